"""When a request may go: the limits of the project file, and what its host has answered lately (S32).

`[limits."anthropic:*"]` names a provider, a model, or a glob of either, with `concurrency`, `requests_per_minute` and
`tokens_per_minute`. A request goes when every limit that fits it lets it, tries after a failure too. A limit is one
count for all that match it, over all steps, runs and processes of this user on this machine (`ground`), whatever
database they use. Within a process requests go in the order in which they ask; over processes, and so over tenants, in
turns (`ledger`).

Tokens are counted as estimated with the whole reply allowed, and corrected by what the provider reports; so at the
moment of asking the count errs on the large side. Other users' and other machines' requests are not seen: for those
there is the provider's 429, whose Retry-After holds for every request of this process to that model.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import ProviderFailure
from orchestrator.ids import sha256, uuid7
from orchestrator.providers.base import Traits
from orchestrator.providers.breaker import LOOK, Breaker
from orchestrator.providers.ground import Ground, MemoryGround, is_alive
from orchestrator.providers.ledger import POLL, Ledger, Want
from orchestrator.spec import LimitSpec
from orchestrator.stopwatch import standing

LONGEST_LOOK: Final = 1.0  # seconds after which one that waits asks again, however long it is told to wait
TOLD_FROM: Final = 1.0  # a shorter wait is not worth a line
Told = Callable[[str, float], None]


@dataclass
class _Limit:
    """One limit at work in this process: its ground, and the queue of those who ask."""

    name: str
    spec: LimitSpec
    ground: Ground
    queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    unsaid: list[Callable[[Ledger], None]] = field(default_factory=list)

    def change(self, work: Callable[[Ledger], float]) -> float | None:
        def all_of_it(ledger: Ledger) -> float:
            for one in self.unsaid:
                one(ledger)
            self.unsaid.clear()
            return work(ledger)

        return self.ground.change(all_of_it)

    def leave(self, want: Want, second: int, used: int | None) -> None:
        """Say that it is over; if somebody else is at the ledger, with the next change."""
        self.unsaid.append(lambda ledger: ledger.leave(want, second, used))
        self.change(lambda ledger: 0.0)
        self.changed.set()


class Limits:
    """The limits and hosts of one process. `tenant` is whose turn it is, over processes."""

    def __init__(
        self,
        specs: Mapping[str, LimitSpec] | None = None,
        *,
        ground: Callable[[str], Ground] | None = None,
        tenant: str = "-",
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._specs = dict(specs or {})
        self._ground = ground or (lambda name: MemoryGround())
        self._tenant = sha256(tenant)[:16]
        self._limits: dict[tuple[str, str], _Limit] = {}
        self._hosts: dict[str, Breaker] = {}
        self.clock = clock or SystemClock()
        self.sleep = sleep

    def admission(self, traits: Traits, model: str, tokens: int, seconds: float) -> Admission:
        """The way in for one call and its further tries: `tokens` is what it may weigh, `seconds` how long a try may
        take. Raises ProviderFailure for a call that no minute of its limit can hold."""
        names = (traits.name, model, f"{traits.name}:{model}")
        fitting = sorted(glob for glob in self._specs if any(fnmatchcase(name, glob) for name in names))
        for glob in fitting:
            most = self._specs[glob].tokens_per_minute
            if most is not None and tokens > most:
                raise ProviderFailure(
                    f"{traits.name}:{model}: the call may take {tokens:,} tokens with its reply, and "
                    f'[limits."{glob}"] allows {most:,} a minute; nothing was sent',
                    hint="read less, lower max_output_tokens, or raise tokens_per_minute in the project file",
                    kind="over_limit",
                )
        return Admission(self, traits, model, tokens, seconds, tuple(self._limit(traits, glob) for glob in fitting))

    def host(self, traits: Traits) -> Breaker:
        return self._hosts.setdefault(f"{traits.name} {traits.base_url}", Breaker())

    def want(self, tokens: int, seconds: float) -> Want:
        return Want(uuid7(), self._tenant, os.getpid(), tokens, seconds)

    def _limit(self, traits: Traits, glob: str) -> _Limit:
        key = (traits.base_url, glob)
        if key not in self._limits:
            ground = self._ground(f"{traits.base_url or traits.name} {glob}")
            self._limits[key] = _Limit(glob, self._specs[glob], ground)
        return self._limits[key]


class Admission:
    """One call on its way in. `told` hears of every longer wait."""

    def __init__(
        self, of: Limits, traits: Traits, model: str, tokens: int, seconds: float, limits: tuple[_Limit, ...]
    ) -> None:
        self._of = of
        self._traits = traits
        self._model = model
        self._tokens = tokens
        self._seconds = seconds
        self._limits = limits

    @asynccontextmanager
    async def entered(self, left: float, told: Told) -> AsyncIterator[Try]:
        """One try: wait until it may go, and say what became of it by `Try.used` or by a ProviderFailure that passes.

        `left` is how long the call may still take, waits for a turn not counted. Raises ProviderFailure where there is
        no use in asking.
        """
        async with AsyncExitStack() as stack:
            made = Try()
            for limit in self._limits:
                await stack.enter_async_context(self._held(limit, made, told))
            probe = await self._host_is_there(left, told)
            host = self._of.host(self._traits)
            try:
                yield made
            except ProviderFailure as failure:
                host.failed(failure, self._model, self._of.clock.monotonic(), probe=probe)
                raise
            except BaseException:
                if probe:
                    host.given_up()
                raise
            host.succeeded()

    @asynccontextmanager
    async def _held(self, limit: _Limit, made: Try, told: Told) -> AsyncIterator[None]:
        want = self._of.want(self._tokens, self._seconds)
        second = 0
        try:
            with standing():
                async with limit.queue:
                    second = await self._turn(limit, want, told)
            yield
        finally:
            limit.leave(want, second, made.tokens)

    async def _turn(self, limit: _Limit, want: Want, told: Told) -> int:
        """Wait for the turn; the second it came in."""
        said = False
        while True:
            now = self._of.clock.monotonic()
            limit.changed.clear()
            wait = limit.change(lambda ledger, at=now: ledger.ask(want, limit.spec, at, is_alive))  # type: ignore[misc]
            if wait == 0:
                return int(now)
            if not said and wait is not None and wait > TOLD_FROM:
                said = True
                told(f'[limits."{limit.name}"] is used up', wait)
            await self._look_again(limit, POLL if wait is None else min(wait, LONGEST_LOOK))

    async def _look_again(self, limit: _Limit, seconds: float) -> None:
        """Sleep so long, or until a request of this process is over."""
        nap = asyncio.ensure_future(self._of.sleep(seconds))
        woken = asyncio.ensure_future(limit.changed.wait())
        try:
            await asyncio.wait({nap, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            nap.cancel()
            woken.cancel()

    async def _host_is_there(self, left: float, told: Told) -> bool:
        """Wait until the host may be asked; whether this is the request that goes ahead. Raises ProviderFailure."""
        clock, host = self._of.clock, self._of.host(self._traits)
        end = clock.monotonic() + left
        while True:
            now = clock.monotonic()
            poor = host.penniless(now)
            if poor is not None:
                raise ProviderFailure(f"not asked again: {poor.message}", hint=poor.hint, kind="quota")
            closed = host.closed.get(self._model, 0.0) - now
            if closed > 0:
                if now + closed > end:
                    raise self._closed_until(closed)
                if closed > TOLD_FROM:
                    told("the provider's Retry-After holds for all requests", closed)
                await self._of.sleep(closed)
                continue
            word, wait = host.ask(now)
            if word in ("go", "probe"):
                return word == "probe"
            if word == "no" or now + wait > end:
                raise self._shut(host, wait)
            if wait > LOOK:
                told(f"{host.failures} failures in a row; the host is given a rest", wait)
            await self._of.sleep(wait)

    def _closed_until(self, seconds: float) -> ProviderFailure:
        return ProviderFailure(
            f"{self._traits.name}:{self._model}: rate limited until {self._time(seconds)}, as the provider has said to "
            "another request; nothing was sent",
            hint="`orch resume` after that time, or raise `timeout` on the step",
            kind="unavailable",
            retry_after=seconds,
        )

    def _shut(self, host: Breaker, seconds: float) -> ProviderFailure:
        last = f"; the last one: {host.last.message}" if host.last is not None else ""
        return ProviderFailure(
            f"{self._traits.name} is not asked until {self._time(seconds)}, after {host.failures} failures in a "
            f"row{last}",
            hint="check that it is up, then `orch resume`",
            kind="unavailable",
        )

    def _time(self, seconds: float) -> str:
        return f"{(self._of.clock.now() + timedelta(seconds=seconds)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass
class Try:
    """What one try has weighed in the end, in tokens; None = not known."""

    tokens: int | None = None

    def used(self, tokens: int | None) -> None:
        self.tokens = tokens
