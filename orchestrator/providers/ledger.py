"""What was sent under one limit in the last minute, by everybody, and who waits for a turn. Pure, and small enough to
be read and written as a whole for each request.

The minute is kept by the second, and a second counts until it is wholly past: so never more than the limit is sent in
any sixty seconds, at the price of up to one second's worth. Nothing is averaged; where nobody has sent anything, all of
the minute's requests may go at once.

Turns go round over tenants and within a tenant in the order of arrival, so that one with a hundred requests keeps
nobody with one waiting. Who waits, says so again every moment; one that does not is gone and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.spec import LimitSpec

WINDOW: Final = 61  # seconds until everything that was sent within one of them is a minute old
POLL: Final = 0.1  # seconds between two looks at something that may change at any moment
GONE: Final = 5.0  # seconds after which one that has not asked again does not wait any more
_TENANTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Want:
    """A request that would like to go: whose it is, which process asks, what it may weigh, how long it may take."""

    ticket: str
    tenant: str
    process: int
    tokens: int
    seconds: float


@dataclass
class Ledger:
    """`sent`: by second, how many requests and tokens. `held`: tickets under way, with their process and when they are
    over at the latest. `waiting`: tickets that ask, with tenant, process, place in the queue and when they last asked.
    `turns`: when each tenant had its last turn."""

    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, tuple[int, float]] = field(default_factory=dict)
    waiting: dict[str, tuple[str, int, int, float]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def ask(self, want: Want, limit: LimitSpec, now: float, alive: Callable[[int], bool]) -> float:
        """0 where the request may go, and is counted; else the seconds after which to ask again."""
        self._forget(now, alive)
        wait = self._blocked(want, limit, now)
        if not wait and self._first(want) != want.ticket:
            wait = POLL
        self.count += 1
        if wait:
            place = self.waiting[want.ticket][2] if want.ticket in self.waiting else self.count
            self.waiting[want.ticket] = (want.tenant, want.process, place, now)
            return wait
        self.waiting.pop(want.ticket, None)
        self.turns[want.tenant] = self.count
        requests, tokens = self.sent.get(int(now), (0, 0))
        self.sent[int(now)] = (requests + 1, tokens + want.tokens)
        self.held[want.ticket] = (want.process, now + want.seconds)
        return 0.0

    def leave(self, want: Want, second: int, used: int | None) -> None:
        """The request is over, or is not wanted any more; `used` is what it weighed in the end, where that is known."""
        self.waiting.pop(want.ticket, None)
        if self.held.pop(want.ticket, None) is not None and used is not None and second in self.sent:
            requests, tokens = self.sent[second]
            self.sent[second] = (requests, max(0, tokens - want.tokens + used))

    def _forget(self, now: float, alive: Callable[[int], bool]) -> None:
        """What is past, and what belongs to processes that are gone. A time that lies ahead is of an earlier boot."""
        self.sent = {second: sums for second, sums in self.sent.items() if second <= now < second + WINDOW}
        self.held = {key: of for key, of in self.held.items() if now < of[1] and alive(of[0])}
        self.waiting = {key: of for key, of in self.waiting.items() if 0 <= now - of[3] < GONE and alive(of[1])}
        if len(self.turns) > _TENANTS:
            self.turns = dict(sorted(self.turns.items(), key=lambda turn: turn[1])[-_TENANTS:])

    def _blocked(self, want: Want, limit: LimitSpec, now: float) -> float:
        """How long the limit stands in the way; 0 where it does not."""
        if limit.concurrency is not None and len(self.held) >= limit.concurrency:
            return POLL
        requests, tokens = (sum(sums[n] for sums in self.sent.values()) for n in (0, 1))
        wait = 0.0
        for second in sorted(self.sent):
            over = limit.requests_per_minute is not None and requests + 1 > limit.requests_per_minute
            heavy = limit.tokens_per_minute is not None and tokens + want.tokens > limit.tokens_per_minute
            if not over and not heavy:
                break
            requests, tokens = requests - self.sent[second][0], tokens - self.sent[second][1]
            wait = second + WINDOW - now
        return wait

    def _first(self, want: Want) -> str:
        """Whose turn it is: the tenant's that has waited longest for one, of its tickets the oldest."""
        asking = {key: (self.turns.get(of[0], 0), of[2]) for key, of in self.waiting.items()}
        asking.setdefault(want.ticket, (self.turns.get(want.tenant, 0), self.count + 1))
        return min(asking, key=lambda key: asking[key])

    def data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "sent": {str(second): list(sums) for second, sums in self.sent.items()},
            "held": {key: list(of) for key, of in self.held.items()},
            "waiting": {key: list(of) for key, of in self.waiting.items()},
            "turns": self.turns,
            "count": self.count,
        }

    @classmethod
    def of(cls, data: Any) -> Ledger:
        """From JSON. Raises ValueError, TypeError, KeyError or AttributeError for what `data` has not made."""
        return cls(
            sent={int(second): (int(sums[0]), int(sums[1])) for second, sums in data["sent"].items()},
            held={str(key): (int(of[0]), float(of[1])) for key, of in data["held"].items()},
            waiting={
                str(key): (str(of[0]), int(of[1]), int(of[2]), float(of[3])) for key, of in data["waiting"].items()
            },
            turns={str(tenant): int(turn) for tenant, turn in data["turns"].items()},
            count=int(data["count"]),
        )
