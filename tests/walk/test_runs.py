"""Whole runs: listed, cancelled while they are worked on, tagged, removed; and forks that outlive all that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator import loop
from orchestrator.errors import StepFailed
from orchestrator.retention import retain
from orchestrator.store import Store
from orchestrator.values import Request
from tests.walk.four_steps import four_steps, made
from tests.walk.harness import House, meanwhile
from tests.walk.wrong import BRIEF, Desk, starter


def with_store(house: House, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
    """As another process would: a store of its own."""

    async def main() -> Any:
        async with house.services() as (services, _):
            return await work(services.store)

    return meanwhile(main())


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_S04_a_run_cancelled_by_somebody_else_stops_and_takes_nothing_late(tmp_path: Path) -> None:
    """The model answers after the cancel: nothing of it is taken, and nothing further begins."""
    house, model = four_steps(tmp_path)

    async def cancel(store: Store) -> Any:
        return await store.cancel_run((await store.run("last")).id, "ben")

    model.during("b", lambda: with_store(house, cancel))
    run = asyncio.run(house.run({"idea": "red"}))
    assert run.status == "cancelled"
    assert run.row.error is not None
    assert (run.row.error.message, run.row.error.exit_code) == ("cancelled by ben", 130)
    assert {name: step.status for name, step in run.steps.items() if step.kind != "input"} == {
        "a": "succeeded",
        "b": "cancelled",
        "c": "pending",
        "d": "pending",
    }
    assert set(run.artifacts) == {"idea", "a"}
    assert [r.step for r in house.requests()] == ["a", "b"]
    assert [event.data["status"] for event in house.events if event.kind == "run.done"] == ["cancelled"]

    again = asyncio.run(house.resume())
    assert again.status == "succeeded"
    assert {name: again.text(name) for name in made()} == made()
    assert [r.step for r in house.requests()] == ["a", "b", "b", "c", "d"], "what is finished is not paid again"


def test_S04_the_owner_notices_without_writing_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that would go on for minutes is let go at the next heartbeat."""
    monkeypatch.setattr(loop, "HEARTBEAT_SECONDS", 0.01)
    house, _ = four_steps(tmp_path)
    answering = asyncio.Event()

    class Slow:
        """The vendor, which never answers b."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.traits = inner.traits
            self.let_go = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def respond(self, request: Request, *more: Any) -> Any:
            if request.step != "b":
                return await self.inner.respond(request, *more)
            answering.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.let_go = True

    slow = Slow(house.provider)
    house.provider = slow

    async def main() -> Any:
        running = asyncio.create_task(house.run({"idea": "red"}))
        await answering.wait()
        async with house.services() as (services, _):
            await services.store.cancel_run((await services.store.run("last")).id, "ben")
        return await running

    run = asyncio.run(main())
    assert run.status == "cancelled"
    assert slow.let_go


def stop() -> None:
    raise StepFailed("the model will not say c")


# --- forks and gc -----------------------------------------------------------------------------------------------------


def test_A10_A13_a_fork_lives_on_when_all_that_nobody_needs_is_gone(tmp_path: Path) -> None:
    """Fork with an edit and stop; remove all other runs, their texts too; resume the fork: it reads its own."""
    house, model = four_steps(tmp_path)
    for idea in ("red", "green", "blue"):
        assert asyncio.run(house.run({"idea": idea})).status == "succeeded"
    asyncio.run(house.edit("a", "a(pink)", ref=1))
    model.during("c", stop)
    fork = asyncio.run(house.rerun("b", ref=1))
    assert fork.status == "failed"
    asyncio.run(house.edit("a", "a(grey)", ref=1))  # the original goes on without the fork
    house.clock.offset += timedelta(hours=25)

    async def clean(store: Store) -> Any:
        found = retain(await store.run_marks(), await store.run_needs(), 1)
        for mark in found.gone:
            await store.remove_run(mark.id)
        return [mark.number for mark in found.gone], dict(found.kept), (await store.collect()).bodies

    gone, kept, bodies = with_store(house, clean)
    assert sorted(gone) == [2, 3]
    assert sorted(kept.values()) == ["needed", "newest"]
    assert bodies > 0
    again = asyncio.run(house.resume(fork.row.number))
    assert again.status == "succeeded"
    assert {name: again.text(name) for name in made()} == made("red", "a(pink)")
    assert asyncio.run(house.look(1)).text("a") == "a(grey)"

    async def check(store: Store) -> Any:
        return await store.check()

    assert with_store(house, check) == ()


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The starter project after three runs; the third was made from the first."""
    desk = starter(tmp_path, capsys, monkeypatch)
    monkeypatch.setenv("ORCH_USER", "ana")
    for arguments in (("run", *BRIEF), ("run", *BRIEF), ("rerun", "1", "--from", "announcement")):
        assert desk.orch(*arguments)[0] == 0
    return desk


def numbers(desk: Desk, *arguments: str) -> list[int]:
    return [run["number"] for run in desk.document("runs", *arguments)["runs"]]


def test_the_list_alone_and_as_ls_and_filtered(desk: Desk) -> None:
    assert numbers(desk) == numbers(desk, "ls") == [3, 2, 1]
    assert numbers(desk, "--limit", "1") == numbers(desk, "ls", "--limit", "1") == [3]
    assert numbers(desk, "ls", "--status", "failed") == []
    assert numbers(desk, "--pipeline", "launch") == [3, 2, 1]
    assert desk.orch("runs", "tag", "2", "good", "kept.1")[1] == "run 2: good, kept.1\n"
    assert numbers(desk, "--tag", "good") == [2]
    assert desk.document("runs", "tag", "2", "--remove", "good")["tags"] == ["kept.1"]
    [line] = desk.orch("runs", "--tag", "kept.1")[1].splitlines()
    assert line.startswith("  ✓ 2  launch  succeeded  ")
    assert line.endswith("  $0  [kept.1]")
    assert "from 1" in desk.orch("runs", "--limit", "1")[1]
    assert desk.orch("runs", "--status", "failed")[1] == "no run is like that\n"
    assert "cannot be a tag" in desk.refused(2, "runs", "tag", "2", "Not Good")[1]
    assert 'there is no command "runs nix"' in desk.refused(2, "runs", "nix")[1]


def test_runs_are_removed_when_it_is_said_twice(desk: Desk) -> None:
    error, _ = desk.refused(2, "runs", "rm", "2")
    assert (error["code"], error["message"]) == ("unconfirmed", "run 2 would be removed for good")
    assert numbers(desk) == [3, 2, 1]
    assert desk.document("runs", "rm", "2", "--yes") == {"schema": "orch.removed/1", "removed": [2]}
    assert desk.refused(2, "runs", "rm", "1", "--yes")[0]["code"] == "run_needed"
    assert numbers(desk) == [3, 1]
    assert desk.document("runs", "rm", "1", "--with-children", "--yes")["removed"] == [3, 1]
    assert numbers(desk) == []
    assert "run 1 not found" in desk.refused(2, "show", "1")[1]
    assert desk.orch("run", *BRIEF)[0] == 0
    assert numbers(desk) == [4], "a number is given once"


def test_A13_gc_keeps_the_newest_the_tagged_and_what_they_need(desk: Desk) -> None:
    for _ in range(3):
        assert desk.orch("run", *BRIEF)[0] == 0
    assert desk.orch("runs", "tag", "3", "good")[0] == 0
    assert desk.refused(2, "db", "gc", "--keep", "1")[0]["code"] == "unconfirmed"
    assert desk.refused(2, "db", "check", "--keep", "1")[0]["message"] == "only gc removes runs"
    found = desk.document("db", "gc", "--keep", "1", "--yes")
    assert (sorted(found["runs"]), found["kept"]) == ([2, 4, 5], 3)
    assert found["file_bytes"]["after"] < found["file_bytes"]["before"]
    assert numbers(desk) == [6, 3, 1]
    told = desk.orch("db", "gc", "--keep", "1", "--yes")[1].splitlines()
    assert told[:2] == ["no run to remove", "  kept 3 runs (1 newest, 1 tagged, 1 needed by these)"]
    assert desk.orch("db", "check")[0] == 0
    assert desk.orch("rerun", "3", "--from", "announcement")[0] == 0


def test_only_a_run_with_something_left_to_do_is_cancelled(desk: Desk) -> None:
    assert "run 1 has ended" in desk.refused(2, "runs", "cancel", "1")[1]
    desk.change("orchestrator.toml", "", "")
    desk.change("pipelines/launch.yaml", 'usd: "0.50"', 'usd: "0.00", on_exceed: pause')
    desk.answers("announcement")
    assert desk.orch("run", *BRIEF)[0] != 0
    assert "has failed" in desk.refused(2, "runs", "cancel", "4")[1]
