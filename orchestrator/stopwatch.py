"""The time a step may run, which stands still while it waits for its turn at a provider (S32).

A step's `timeout` is about work: what it computes, and what a server takes. How long others keep it waiting says
nothing about it. While any question of a step waits for its turn, its watch stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Stopwatch:
    """The running time of one dispatch. `stood` adds up, in seconds, how long it has stood still; `told` is how much of
    that is on record."""

    limit: asyncio.Timeout
    stood: float = 0.0
    told: float = 0.0
    waiting: int = 0
    since: float = 0.0
    left: float = 0.0


_running: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """At most so many seconds, waits for a turn left out. Raises TimeoutError."""
    async with asyncio.timeout(seconds) as limit:
        token = _running.set(Stopwatch(limit))
        try:
            yield
        finally:
            _running.reset(token)


def stood() -> float:
    """Seconds that the step under way has waited for its turns so far."""
    watch = _running.get()
    return watch.stood if watch is not None else 0.0


def ran_out() -> bool:
    """Whether the step under way is being stopped because its time is over."""
    watch = _running.get()
    return watch is not None and watch.limit.expired()


def untold() -> float:
    """Seconds of waiting that have come since this was asked last: what is to go on record with the next call."""
    watch = _running.get()
    if watch is None:
        return 0.0
    seconds, watch.told = watch.stood - watch.told, watch.stood
    return seconds


@contextmanager
def standing() -> Iterator[None]:
    """While this lasts, the step's time stands still."""
    watch = _running.get()
    if watch is None or watch.limit.expired():
        yield
        return
    now = asyncio.get_running_loop().time
    watch.waiting += 1
    if watch.waiting == 1:
        watch.since, when = now(), watch.limit.when()
        watch.left = (when or watch.since) - watch.since
        watch.limit.reschedule(None)
    try:
        yield
    finally:
        watch.waiting -= 1
        if not watch.waiting:
            watch.stood += now() - watch.since
            if not watch.limit.expired():
                watch.limit.reschedule(now() + watch.left)
