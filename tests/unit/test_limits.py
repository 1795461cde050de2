"""Limits, turns and the rest that a host is given (S32), on a clock that only moves when somebody sleeps."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.project import Project, find_project
from orchestrator.providers.base import Traits
from orchestrator.providers.breaker import FAILURES, Breaker
from orchestrator.providers.ground import FileGround, Ground, MemoryGround, common_ground
from orchestrator.providers.ledger import GONE, Ledger, Want
from orchestrator.providers.limits import Limits
from orchestrator.settings import load_settings
from orchestrator.spec import LimitSpec
from orchestrator.stopwatch import standing, stood, time_limit

TRAITS = Traits("acme", "https://acme.test/v1", "server")


class World:
    """A clock that moves when everybody sleeps: to the first one's waking."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 30, 12, tzinfo=UTC) + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return 1000.0 + self.time

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        entry = (self.time + seconds, waking)
        self.sleepers.append(entry)
        try:
            await waking
        finally:
            if entry in self.sleepers:
                self.sleepers.remove(entry)

    async def until_done(self, work: asyncio.Future[Any]) -> Any:
        while not work.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if not work.done() and self.sleepers:
                due, waking = min(self.sleepers, key=lambda entry: entry[0])
                self.sleepers.remove((due, waking))
                self.time = max(self.time, due)
                if not waking.done():
                    waking.set_result(None)
        return work.result()

    def run(self, main: Callable[[], Any]) -> Any:
        async def all_of_it() -> Any:
            return await self.until_done(asyncio.ensure_future(main()))

        return asyncio.run(all_of_it())


def limits(world: World, spec: LimitSpec | None, ground: Ground | None = None, tenant: str = "-") -> Limits:
    specs = {"acme:*": spec} if spec is not None else {}
    of = (lambda name: ground) if ground is not None else None
    return Limits(specs, ground=of, tenant=tenant, clock=world, sleep=world.sleep)


class Calls:
    """Calls that take so long each, and when they left."""

    def __init__(self, world: World, takes: float = 0.0) -> None:
        self.world = world
        self.takes = takes
        self.left: list[float] = []
        self.who: list[str] = []
        self.flying = self.most = 0

    async def one(self, of: Limits, tokens: int = 0, used: int | None = None, who: str = "") -> None:
        way_in = of.admission(TRAITS, "m", tokens, 600.0)
        async with way_in.entered(math.inf, lambda why, seconds: None) as one_try:
            self.left.append(self.world.time)
            self.who.append(who)
            self.flying += 1
            self.most = max(self.most, self.flying)
            await self.world.sleep(self.takes)
            self.flying -= 1
            one_try.used(used)


def busiest_minute(times: list[float]) -> int:
    return max(sum(start <= at < start + 60 for at in times) for start in times)


# --- the limits -------------------------------------------------------------------------------------------------------


def test_S32_no_more_calls_are_under_way_at_once_than_the_limit_allows() -> None:
    world, spec = World(), LimitSpec(concurrency=7)
    calls, of = Calls(world, takes=1.0), limits(world, spec)

    async def main() -> None:
        await asyncio.gather(*(calls.one(of) for _ in range(98)))

    world.run(main)
    assert calls.most == 7
    assert len(calls.left) == 98
    assert world.time == pytest.approx(14, abs=0.5)  # 14 rounds of 7, and none was made to wait longer than that


def test_S32_no_minute_holds_more_requests_than_allowed_and_a_fresh_one_holds_them_all_at_once() -> None:
    world, spec = World(), LimitSpec(requests_per_minute=30)
    calls, of = Calls(world, takes=0.3), limits(world, spec)

    async def main() -> None:
        await asyncio.gather(*(calls.one(of) for _ in range(100)))

    world.run(main)
    assert calls.left[29] == 0
    assert busiest_minute(calls.left) == 30
    assert world.time < 3 * 62 + 1


def test_S32_tokens_are_counted_as_they_might_be_and_corrected_by_what_they_were() -> None:
    """Calls of at most 600 tokens that use 100: the second goes when the first has said so, not a minute later."""
    world, spec = World(), LimitSpec(tokens_per_minute=1000)
    calls, of = Calls(world, takes=2.0), limits(world, spec)

    async def main() -> None:
        await asyncio.gather(*(calls.one(of, tokens=600, used=100) for _ in range(3)))

    world.run(main)
    assert calls.left == pytest.approx([0, 2, 4], abs=0.2)
    world.run(lambda: calls.one(of, tokens=800))  # 300 are used: 800 more are too many until the first is a minute old
    assert calls.left[3] == pytest.approx(63, abs=2)


def test_S32_a_call_larger_than_its_limit_is_an_error_and_names_the_limit() -> None:
    with pytest.raises(ProviderFailure, match=r'may take 1,001 tokens.*\[limits."acme:\*"\] allows 1,000') as found:
        limits(World(), LimitSpec(tokens_per_minute=1000)).admission(TRAITS, "m", 1001, 1.0)
    assert found.value.kind == "over_limit"


def test_S32_every_limit_that_fits_holds_and_others_do_not() -> None:
    world = World()
    calls = Calls(world, takes=1.0)
    specs = {"acme": LimitSpec(concurrency=5), "m": LimitSpec(concurrency=2), "other:*": LimitSpec(concurrency=1)}
    of = Limits(specs, clock=world, sleep=world.sleep)

    async def main() -> None:
        await asyncio.gather(*(calls.one(of) for _ in range(6)))

    world.run(main)
    assert calls.most == 2


def test_S32_one_greedy_and_nine_modest_tenants_take_turns() -> None:
    """A hundred requests of one, then one of each other: none of the nine waits for more than one round of all ten."""
    world, ground = World(), MemoryGround()
    calls = Calls(world, takes=1.0)

    async def main() -> None:
        spec = LimitSpec(concurrency=1)
        greedy = limits(world, spec, ground, "greedy")
        jobs = [asyncio.ensure_future(calls.one(greedy, who="greedy")) for _ in range(100)]
        await world.sleep(0.5)
        for n in range(9):
            jobs.append(asyncio.ensure_future(calls.one(limits(world, spec, ground, f"modest {n}"), who="modest")))
        await asyncio.gather(*jobs)

    world.run(main)
    last_modest = max(place for place, who in enumerate(calls.who) if who == "modest")
    assert last_modest <= 10


def test_S32_processes_share_one_count_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    world = World()
    spec = LimitSpec(concurrency=2)
    dead = Want("theirs", "x", 2**22 + 7, 0, 600.0)  # above the largest process number of Linux
    FileGround(tmp_path / "x").change(lambda ledger: ledger.ask(dead, spec, world.monotonic(), lambda process: True))
    assert json.loads((tmp_path / "x").read_bytes())["held"]
    one, two = (limits(world, spec, FileGround(tmp_path / "x")) for _ in range(2))
    calls = Calls(world, takes=1.0)

    async def main() -> None:
        await asyncio.gather(*(calls.one(of) for of in (one, two) for _ in range(4)))

    world.run(main)
    assert calls.most == 2
    assert json.loads((tmp_path / "x").read_bytes())["held"] == {}


def test_a_ledger_that_cannot_be_read_begins_anew_and_without_a_home_it_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"sent": 5')
    assert FileGround(tmp_path / "x").change(lambda ledger: ledger) == Ledger()
    assert isinstance(common_ground({})("x"), MemoryGround)
    assert isinstance(common_ground({"HOME": "/proc/nowhere"})("x"), MemoryGround)
    made = common_ground({"HOME": str(tmp_path)})("a limit")
    assert isinstance(made, FileGround)
    assert made.path.parent == tmp_path / ".local" / "share" / "orchestrator" / "limits"
    assert made.path.stat().st_mode & 0o777 == 0o600


def test_one_that_waits_and_is_given_up_or_gone_stands_in_nobodys_way() -> None:
    ledger, spec = Ledger(), LimitSpec(concurrency=1)
    want = [Want(name, name, 1, 0, 600.0) for name in "abc"]
    assert ledger.ask(want[0], spec, 0.0, lambda process: True) == 0
    assert ledger.ask(want[1], spec, 0.0, lambda process: True) > 0
    ledger.leave(want[0], 0, None)
    assert ledger.ask(want[2], spec, 0.1, lambda process: True) > 0  # it is b's turn
    assert ledger.ask(want[2], spec, GONE + 0.1, lambda process: True) == 0  # b has not asked again
    assert Ledger.of(json.loads(json.dumps(ledger.data()))) == ledger


# --- the host ---------------------------------------------------------------------------------------------------------


def fail(of: Limits, kind: str, wait: float | None = None, left: float = math.inf) -> Any:
    async def main() -> None:
        async with of.admission(TRAITS, "m", 0, 1.0).entered(left, lambda why, seconds: None):
            raise ProviderFailure(f"it is {kind}", kind=kind, retry_after=wait)

    return main


def test_S32_a_host_that_fails_ten_times_rests_then_one_request_goes_ahead_and_then_it_is_down() -> None:
    world = World()
    of = limits(world, None)
    for _ in range(FAILURES):
        with pytest.raises(ProviderFailure, match="it is overloaded"):
            world.run(fail(of, "overloaded"))
    assert world.time == 0
    calls, ahead = Calls(world), []

    async def main() -> list[Any]:
        ahead.append(asyncio.ensure_future(fail(of, "connection")()))
        await asyncio.sleep(0)
        return await asyncio.gather(ahead[0], *(calls.one(of) for _ in range(20)), return_exceptions=True)

    results = world.run(main)
    assert world.time == pytest.approx(2, abs=0.2)
    assert calls.left == []  # the one ahead failed: the twenty were not sent
    assert all(isinstance(result, ProviderFailure) for result in results)
    assert results[-1].kind == "unavailable"
    assert "is not asked until 2026-11-30 12:00:17 UTC, after 10 failures in a row" in results[-1].message
    assert "it is connection" in results[-1].message
    world.time += 16
    world.run(lambda: calls.one(of))
    world.run(lambda: calls.one(of))
    assert len(calls.left) == 2  # it is back


def test_a_success_or_a_refusal_between_failures_starts_the_count_again() -> None:
    breaker = Breaker()
    for kind in ["overloaded"] * 9 + ["bad_request"] + ["overloaded"] * 9:
        breaker.failed(ProviderFailure(kind, kind=kind), "m", 0.0, probe=False)
    assert breaker.ask(0.0) == ("go", 0.0)


def test_S32_a_retry_after_holds_for_every_request_to_that_model_and_fails_what_has_no_time_for_it() -> None:
    world = World()
    of = limits(world, None)
    with pytest.raises(ProviderFailure):
        world.run(fail(of, "rate_limit", wait=30.0))
    with pytest.raises(ProviderFailure, match="rate limited until 2026-11-30 12:00:30 UTC"):
        world.run(fail(of, "connection", left=29.0))
    calls = Calls(world)
    world.run(lambda: calls.one(of))
    assert calls.left == [30.0]


def test_S32_an_account_without_money_is_not_asked_again_by_those_who_come_after() -> None:
    world = World()
    of = limits(world, None)
    with pytest.raises(ProviderFailure):
        world.run(fail(of, "quota"))
    calls = Calls(world)
    with pytest.raises(ProviderFailure, match="not asked again: it is quota") as found:
        world.run(lambda: calls.one(of))
    assert (found.value.kind, calls.left) == ("quota", [])


# --- a step's time ----------------------------------------------------------------------------------------------------


def test_S32_a_steps_time_stands_still_while_it_waits_for_its_turn() -> None:
    async def main() -> float:
        async with time_limit(1.0):
            with standing():
                await asyncio.gather(asyncio.sleep(1.2), asyncio.sleep(1.2))
            waited = stood()
            with pytest.raises(TimeoutError):  # no more than its time is left all the same
                async with time_limit(0.05):
                    await asyncio.sleep(5)
            return waited

    assert 1.19 < asyncio.run(main()) < 2.4, "two waits at once are one"


# --- the project file -------------------------------------------------------------------------------------------------


def project(folder: Path, text: str) -> Project:
    (folder / "orchestrator.toml").write_text(text)
    return find_project(folder)


def test_limits_stand_in_the_project_file_and_are_shown(tmp_path: Path) -> None:
    settings = load_settings(project(tmp_path, '[limits."acme:*"]\nconcurrency = 4\n'), {"HOME": str(tmp_path)})
    assert settings.limits == {"acme:*": LimitSpec(concurrency=4)}
    assert dict(settings.table())['limits."acme:*"'].value == "concurrency 4"


@pytest.mark.parametrize("line", ["concurrency = 0", "requests = 5", 'tokens_per_minute = "many"'])
def test_a_wrong_limit_names_file_and_key(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=rf"orchestrator.toml.*limits.acme:\*.{line.split()[0]}"):
        load_settings(project(tmp_path, f'[limits."acme:*"]\n{line}\n'), {"HOME": str(tmp_path)})
