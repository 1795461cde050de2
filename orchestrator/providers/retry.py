"""One retry policy for all drivers: five tries in all, the server's wish honoured, never longer than there is time.

The SDKs' own retries are off, because two layers multiply (three tries of three are nine paid requests) and because
they neither know the step's deadline nor tell anyone. A try repeats the very same request from the same parent, so a
retry leaves no trace in the thread. A wait that the step has no time for is not begun: it fails at once and says
until when the provider is closed (S32).
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import RETRYABLE, Listener, Provider, StreamEvent, may_be_billed, no_listener
from orchestrator.providers.limits import Admission, Limits
from orchestrator.stopwatch import stood
from orchestrator.values import Reply, Request

TRIES: Final = 5
Sleep = Callable[[float], Awaitable[None]]


async def nothing() -> None:
    """What is to be done beside a try where nothing is."""


async def respond(
    provider: Provider,
    request: Request,
    listener: Listener = no_listener,
    *,
    deadline: float | None = None,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
    admission: Admission | None = None,
    begin: Callable[[], Awaitable[None]] = nothing,
    again: Callable[[], Awaitable[None]] = nothing,
    patience: float = math.inf,
) -> Reply:
    """Ask until there is a reply, at most five times. `deadline` is monotonic seconds of `clock`; None = no limit.

    Each try waits at `admission` for its turn. `begin` is awaited right ahead of the first one, `again` ahead of each
    that follows one which may have been billed; what they raise ends the call. A wait longer than `patience` that the
    server asks for is not begun.

    Raises ProviderFailure: the last try's, with its kind and the number of tries; or at once, where a retry cannot
    help or the wait is longer than the time left. Cancellation propagates and closes the connection.
    """
    policy = _Policy(clock or SystemClock(), deadline, listener, patience)
    way_in = admission or Limits(clock=clock, sleep=sleep).admission(provider.traits, request.model, 0, 0.0)
    retrying = AsyncRetrying(
        stop=stop_after_attempt(TRIES),
        wait=policy.wait,
        retry=retry_if_exception(_worth_another_try),
        before_sleep=policy.before_sleep,
        sleep=sleep,
        reraise=True,
    )
    try:
        async for attempt in retrying:
            with attempt:
                async with way_in.entered(min(policy.left(), patience), policy.waits) as one_try:
                    within = policy.within_time(request)
                    await (begin() if policy.tries == 1 else again() if policy.may_be_billed else nothing())
                    reply = await provider.respond(within, listener)
                    one_try.used(reply.usage.input_tokens + reply.usage.output_tokens if reply.usage else None)
                return replace(reply, tries=attempt.retry_state.attempt_number)
    except ProviderFailure as failure:
        raise _after_tries(failure, policy.tries) from failure
    raise AssertionError("tenacity ended without a result")  # pragma: no cover


def _worth_another_try(error: BaseException) -> bool:
    return isinstance(error, ProviderFailure) and error.kind in RETRYABLE


def _after_tries(failure: ProviderFailure, tries: int) -> ProviderFailure:
    """The same failure, saying how often it was tried."""
    if tries < 2:
        return failure
    message = f"{failure.message} (tried {tries} times)"
    return ProviderFailure(
        message, hint=failure.hint, kind=failure.kind, retry_after=failure.retry_after, unbilled=failure.unbilled
    )


class _Policy:
    """How long to wait before the next try, and whether there is time for it."""

    def __init__(self, clock: Clock, deadline: float | None, listener: Listener, patience: float = math.inf) -> None:
        self.patience = patience
        self.clock = clock
        self.deadline = deadline
        self.listener = listener
        self.tries = 0
        self.may_be_billed = False
        self._backoff = wait_exponential_jitter(multiplier=0.5, max=8)

    def left(self) -> float:
        return math.inf if self.deadline is None else self.deadline + stood() - self.clock.monotonic()

    def waits(self, why: str, seconds: float) -> None:
        self.listener(StreamEvent("wait", why, seconds))

    def within_time(self, request: Request) -> Request:
        """The request with no more time than the step has left. Raises ProviderFailure when there is none."""
        left = self.left()
        if left <= 0:
            raise ProviderFailure(
                "no time left to ask the provider", hint="raise `timeout` on the step", kind="no_time"
            )
        self.tries += 1
        return request if request.timeout <= left else replace(request, timeout=left)

    def wait(self, state: RetryCallState) -> float:
        failure = _failure(state)
        wish = failure.retry_after
        return self._backoff(state) if wish is None else wish

    def before_sleep(self, state: RetryCallState) -> None:
        failure = _failure(state)
        self.may_be_billed = may_be_billed(failure)
        wait = state.upcoming_sleep
        if wait < min(self.left(), self.patience):
            self.listener(StreamEvent("retry", failure.message, wait))
        elif failure.retry_after is None:
            raise failure
        else:
            raise self._closed_until(failure, wait) from failure

    def _closed_until(self, failure: ProviderFailure, wait: float) -> ProviderFailure:
        until = (self.clock.now() + timedelta(seconds=wait)).astimezone(UTC)
        what = "rate limited" if failure.kind == "rate_limit" else "unavailable"
        return ProviderFailure(
            f"{what} until {until:%Y-%m-%d %H:%M:%S} UTC: {failure.message}",
            hint="`orch resume` after that time, or raise `timeout` on the step",
            kind=failure.kind,
            retry_after=wait,
            unbilled=failure.unbilled,
        )


def _failure(state: RetryCallState) -> ProviderFailure:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ProviderFailure)
    return error


# --- what a server asks for -------------------------------------------------------------------------------------------

_DURATION: Final = re.compile(
    r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_LONGEST: Final = 366 * 86400.0


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the server wants us to wait: `retry-after-ms`, `retry-after` (seconds or an HTTP date), else the reset of
    an exhausted bucket, `x-ratelimit-*` (durations) or `anthropic-ratelimit-*` (times). None = it did not say, or not
    in a way that can be read."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is not None:
        seconds = _number(value)
        return _until(value, now) if seconds is None else seconds
    resets = [*_openai_resets(headers), *_anthropic_resets(headers, now)]
    return max((reset for reset in resets if reset is not None), default=None)


def _openai_resets(headers: Mapping[str, str]) -> Iterator[float | None]:
    for bucket in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{bucket}") == "0":
            yield _duration(headers.get(f"x-ratelimit-reset-{bucket}", ""))


def _anthropic_resets(headers: Mapping[str, str], now: datetime) -> Iterator[float | None]:
    for bucket in ("requests", "tokens", "input-tokens", "output-tokens"):
        if headers.get(f"anthropic-ratelimit-{bucket}-remaining") == "0":
            yield _moment(headers.get(f"anthropic-ratelimit-{bucket}-reset", ""), now)


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if 0 <= number <= _LONGEST else None


def _until(value: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _moment(value: str, now: datetime) -> float | None:
    """An RFC 3339 time → seconds from now."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = max(0.0, (moment - now).total_seconds())
    return seconds if seconds <= _LONGEST else None


def _duration(value: str) -> float | None:
    """`6m0s`, `1h2m3.5s`, `120ms` → seconds."""
    match = _DURATION.fullmatch(value)
    if match is None or not any(match.groups()):
        return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1, 0.001), strict=True) if part)
