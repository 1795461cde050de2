"""What one host has answered lately, so that a host in trouble is asked less and a shut one not at all.

After ten failures in a row, whoever asked, the host rests for two seconds; everybody waits. Then one request goes ahead
of the others. If it succeeds they all go; if it fails, the host is down: requests fail at once, and one goes through
each quarter of a minute, later each minute. An account without money is not asked again for a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.errors import ProviderFailure

TROUBLE: Final = frozenset({"connection", "overloaded", "malformed"})
FAILURES: Final = 10
FIRST_REST: Final = 2.0
REST: Final = 15.0
LONGEST_REST: Final = 60.0
LOOK: Final = 0.1
Word = Literal["go", "probe", "wait", "no"]


@dataclass
class Breaker:
    """The state of one host. Times are monotonic seconds."""

    failures: int = 0
    openings: int = 0  # how often it was shut in a row; from the second on, nobody waits
    until: float = 0.0
    probing: bool = False
    last: ProviderFailure | None = None
    broke_until: float = 0.0
    broke: ProviderFailure | None = None
    closed: dict[str, float] = field(default_factory=dict)  # by model: what its Retry-After said

    def ask(self, now: float) -> tuple[Word, float]:
        """Whether a request may go, and how long the answer holds otherwise."""
        if not self.openings:
            return "go", 0.0
        if now < self.until:
            return ("wait", self.until - now) if self.openings == 1 else ("no", self.until - now)
        if not self.probing:
            self.probing = True
            return "probe", 0.0
        return ("wait", LOOK) if self.openings == 1 else ("no", LOOK)

    def penniless(self, now: float) -> ProviderFailure | None:
        """The failure of an account that has just said that it has no money."""
        return self.broke if now < self.broke_until else None

    def succeeded(self) -> None:
        self.failures, self.openings, self.probing = 0, 0, False

    def given_up(self) -> None:
        """The request that went ahead came to no end of its own."""
        self.probing = False

    def failed(self, failure: ProviderFailure, model: str, now: float, *, probe: bool) -> None:
        if failure.kind == "quota":
            self.broke, self.broke_until = failure, now + LONGEST_REST
        if failure.retry_after is not None:
            self.closed[model] = max(self.closed.get(model, 0.0), now + failure.retry_after)
        if failure.kind not in TROUBLE:  # it has answered: it is there
            self.succeeded()
            return
        self.last = failure
        if probe:
            self.probing = False
            self._shut(now)
            return
        self.failures += 1
        if not self.openings and self.failures >= FAILURES:
            self._shut(now)

    def _shut(self, now: float) -> None:
        self.openings += 1
        rest = FIRST_REST if self.openings == 1 else min(LONGEST_REST, REST * 2 ** (self.openings - 2))
        self.until = now + rest
