"""The retry policy on a clock that only moves when somebody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.retry import respond, retry_after
from orchestrator.values import Reply, Request, TextItem

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
REQUEST = Request("m", "synthetic_s_1", "", (TextItem(("hello",)),), timeout=600.0)
REPLY = Reply("resp_1", "completed", "done", ())


class World:
    """A clock, a sleep that moves it, and a provider that fails as told and takes `takes` seconds per try."""

    def __init__(self, failures: Sequence[ProviderFailure | BaseException], takes: float = 0.0) -> None:
        self.failures = list(failures)
        self.takes = takes
        self.time = 0.0
        self.slept: list[float] = []
        self.requests: list[Request] = []
        self.events: list[StreamEvent] = []

    traits = Traits("fake", "", "server")

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return 1000.0 + self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        self.requests.append(request)
        self.time += self.takes
        if self.failures:
            raise self.failures.pop(0)
        return REPLY

    async def give_up(self, response_id: str, request: Request) -> None: ...

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        return None

    async def count(self, request: Request) -> int | None:
        return None

    def wire(self, request: Request) -> bytes:
        return b""

    async def close(self) -> None:
        pass

    def run(self, seconds: float | None = None) -> Reply:
        deadline = None if seconds is None else self.monotonic() + seconds
        return asyncio.run(
            respond(self, REQUEST, self.events.append, deadline=deadline, clock=self, sleep=self.sleep),
        )


def failure(kind: str, wait: float | None = None) -> ProviderFailure:
    return ProviderFailure(f"it is {kind}", hint="look", kind=kind, retry_after=wait)


def test_a_good_reply_is_one_try() -> None:
    world = World([])
    assert world.run().tries == 1
    assert world.slept == []


@pytest.mark.parametrize("kind", ["connection", "rate_limit", "overloaded", "malformed"])
def test_passing_troubles_are_tried_five_times_in_all(kind: str) -> None:
    world = World([failure(kind)] * 4)
    assert world.run().tries == 5
    assert world.requests == [REQUEST] * 5

    world = World([failure(kind)] * 9)
    with pytest.raises(ProviderFailure, match=rf"it is {kind} \(tried 5 times\)") as caught:
        world.run()
    assert len(world.requests) == 5
    assert (caught.value.kind, caught.value.hint, caught.value.exit_code) == (kind, "look", 6)


@pytest.mark.parametrize(
    "kind",
    ["quota", "auth", "model", "refused", "bad_request", "too_long", "chain_lost", "unanswered_call"],
)
def test_what_a_retry_cannot_help_is_tried_once(kind: str) -> None:
    world = World([failure(kind)])
    with pytest.raises(ProviderFailure, match=rf"^it is {kind}\b"):
        world.run()
    assert len(world.requests) == 1


def test_the_pause_doubles_with_jitter_and_is_never_longer_than_eight_seconds() -> None:
    world = World([failure("overloaded")] * 4)
    world.run()
    for pause, base in zip(world.slept, (0.5, 1, 2, 4), strict=True):
        assert base <= pause <= min(8, base + 1)


def test_the_servers_wish_is_kept_and_told() -> None:
    world = World([failure("rate_limit", 30.0), failure("rate_limit", 0.25)])
    assert world.run().tries == 3
    assert world.slept == [30.0, 0.25]
    assert world.events == [
        StreamEvent("retry", "it is rate_limit", 30.0),
        StreamEvent("retry", "it is rate_limit", 0.25),
    ]


def test_S32_a_wait_longer_than_the_time_left_fails_at_once_and_says_until_when() -> None:
    world = World([failure("rate_limit", 90.0)])
    with pytest.raises(ProviderFailure) as caught:
        world.run(seconds=60)
    assert caught.value.message == "rate limited until 2026-11-30 12:01:30 UTC: it is rate_limit"
    assert world.slept == []
    assert len(world.requests) == 1
    assert (caught.value.exit_code, caught.value.retry_after) == (6, 90.0)


def test_a_pause_of_our_own_that_no_time_is_left_for_is_not_begun() -> None:
    world = World([failure("overloaded")] * 5, takes=59.8)
    with pytest.raises(ProviderFailure, match=r"^it is overloaded\b"):
        world.run(seconds=60)
    assert world.slept == []


def test_a_try_gets_no_more_time_than_the_step_has() -> None:
    world = World([failure("rate_limit", 20.0)])
    world.run(seconds=50)
    assert [request.timeout for request in world.requests] == [50.0, 30.0]


def test_a_step_without_time_sends_nothing() -> None:
    world = World([])
    with pytest.raises(ProviderFailure, match="no time left"):
        world.run(seconds=0)
    assert world.requests == []


def test_cancellation_and_bugs_are_not_retried() -> None:
    world = World([asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        world.run()
    assert len(world.requests) == 1

    world = World([ZeroDivisionError()])
    with pytest.raises(ZeroDivisionError):
        world.run()
    assert len(world.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:02:00 GMT"}, 120.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e99"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "9s"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": ""}, None),
        ({"retry-after": "2", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9s"}, 2.0),
    ],
)
def test_what_servers_ask_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
