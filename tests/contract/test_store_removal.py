"""Runs that are removed take only their own with them; what another run needs cannot be removed."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.retention import retain
from orchestrator.store import Store
from orchestrator.store.listing_runs import Wanted
from orchestrator.store.records import AdoptPlan, RunBusy
from orchestrator.values import Commit, Dispatch, ErrorRecord, RunRow, Scope
from tests.contract.test_store_garbage import DAY, Life, contents, mentioned
from tests.store_kit import (
    TestClock,
    artifact,
    claim,
    done,
    file,
    finish,
    new_run,
    plan,
    raw,
    sent,
    started,
    steps,
    thread,
    using,
)

pytestmark = pytest.mark.usefixtures("database")


async def all_of(store: Store, run: RunRow) -> list[Any]:
    """All that can be read of one run: rows, versions with their bodies, journals of the attempts behind them."""
    rows = await store.steps(run.id)
    seen: list[Any] = [run, rows, await store.events(run.id)]
    for row in rows:
        versions = await store.versions(run.id, row.name)
        seen += [await store.artifact(run.id, row.name, None, version.version) for version in versions]
        attempts = await store.attempts(run.id, row.name) if row.kind != "input" else ()
        seen += [await store.journal(attempt.id) for attempt in attempts]
        seen.append(await store.makings([version.id for version in versions]))
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_A13_what_stays_reads_as_before_and_nothing_of_the_others_is_left(tmp_path: Path, seed: int) -> None:
    """Property: forks of forks, edits, resumes; then all but the newest go, and what they need."""
    clock = TestClock()

    async def body(store: Store) -> None:
        life = Life(store, seed)
        for _ in range(4):
            await life.run()
        for _ in range(10):
            await life.random.choice([life.run, life.fork, life.fork, life.edit, life.adopt])()
        clock.move(DAY + 1)
        for run in await store.runs():
            await finished(store, run)
        found = retain(await store.run_marks(), await store.run_needs(), 2)
        kept = [run for run in await store.runs() if run.id in found.kept]
        assert found.gone, "the walk made runs that nobody needs"
        before = [await all_of(store, run) for run in kept]
        for mark in found.gone:
            await store.remove_run(mark.id)
        assert {run.id for run in await store.runs()} == set(found.kept)
        rows, stored = mentioned(tmp_path), contents(tmp_path)
        assert not [mark.id for mark in found.gone if mark.id in rows]
        needed = {key for key in stored if key in rows}
        await store.collect()
        assert set(contents(tmp_path)) == needed
        assert needed < set(stored)
        assert [await all_of(store, run) for run in kept] == before
        assert await store.check() == ()

    using(tmp_path, body, clock=clock)


async def finished(store: Store, run: RunRow) -> None:
    """Make a run one that has ended, whoever owns it."""
    worker = await store.register_worker()
    steps_now = [row.name for row in await store.steps(run.id) if row.kind != "input"]
    await store.adopt_run(run.id, worker, AdoptPlan(steps(*steps_now), "d", b"[]"), take_over=True)
    await store.release_run(run.id, worker, "failed")


def test_a_run_that_a_fork_needs_is_refused_and_stays_whole(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", inputs={"x": artifact("in")})
        await finish(store, worker, ready["a"], "made")
        await store.release_run(run.id, worker, "succeeded")
        heads = {row.name: row.head for row in await store.steps(run.id)}
        shared = tuple(
            replace(step, kind="input" if step.name == "x" else step.kind, head=head.id, last_version=1)
            for step in steps("x", "a")
            if (head := heads[step.name]) is not None
        )
        child, _ = await store.create_run(new_run(steps=shared, parent_id=run.id), worker)
        await store.release_run(child.id, worker, "succeeded")
        assert await store.run_needs() == {child.id: frozenset({run.id})}
        before = await all_of(store, run), mentioned(tmp_path)
        with pytest.raises(UsageError, match=f"needed by run {child.number}"):
            await store.remove_run(run.id)
        assert (await all_of(store, run), mentioned(tmp_path)) == before
        await store.remove_run(child.id)
        await store.remove_run(run.id)
        assert await store.runs() == ()
        for table in ("artifact", "step", "attempt", "event", "budget", "session", "read", "thread"):
            assert raw(tmp_path, f"SELECT COUNT(*) FROM {table}") == [(0,)], table

    using(tmp_path, body)


def test_all_that_a_run_wrote_goes_with_it(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        await Life(store, 1).run()
        run = await store.run("last")
        clock.move(DAY)  # its worker is dead
        await store.remove_run(run.id)
        for table in ("call", "tool_call", "block", "thread", "effect", "attempt", "message", "session", "run"):
            assert raw(tmp_path, f"SELECT COUNT(*) FROM {table}") == [(0,)], table
        clock.move(DAY + 1)
        await store.collect()
        assert contents(tmp_path) == {}

    using(tmp_path, body, clock=clock)


async def asked(store: Store, worker: str, dispatch: Dispatch, continues: str | None = None, **more: Any) -> str:
    """One attempt with a thread, to its end; the thread's id."""
    opening = replace(thread(), continues=continues)
    call = sent(opening.id)
    assert await store.claim(claim(dispatch, worker, thread=opening, sent=call, **more))
    commit = Commit(dispatch, artifact(f"by {opening.id}"), done(call), base_head=more.get("base_head"))
    assert (await store.commit(commit)).outcome == "committed"
    return opening.id


def test_a_follow_up_goes_with_its_run_and_needs_the_run_whose_thread_it_goes_on_in(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        first = await asked(store, worker, ready["a"])
        head = (await store.artifact(run.id, "a")).version.id
        again = await store.redo(run.id, "a", None, "follow_up", "Shorter.", "ana")
        await asked(store, worker, again, first, base_head=head)
        await store.release_run(run.id, worker, "succeeded")
        assert await store.run_needs() == {}

        worker, other, ready = await started(store, "a")
        await asked(store, worker, ready["a"], first)
        await store.release_run(other.id, worker, "succeeded")
        assert await store.run_needs() == {other.id: frozenset({run.id})}
        with pytest.raises(UsageError, match=f"needed by run {other.number}"):
            await store.remove_run(run.id)
        await store.remove_run(other.id)
        await store.remove_run(run.id)
        for table in ("thread", "attempt", "message", "artifact", "run"):
            assert raw(tmp_path, f"SELECT COUNT(*) FROM {table}") == [(0,)], table

    using(tmp_path, body)


def test_a_run_that_is_worked_on_is_refused(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a")
        with pytest.raises(RunBusy, match=f"run {run.number} is being worked on"):
            await store.remove_run(run.id)
        clock.move(31)
        await store.remove_run(run.id)

    using(tmp_path, body, clock=clock)


def test_what_was_said_stays_with_a_session_that_goes_on(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        runs = []
        for text in ("one", "two"):
            worker, run, _ = await started(store, "a", session="clinic", message=text)
            await store.release_run(run.id, worker, "failed")
            runs.append(run)
        await store.remove_run(runs[0].id)
        assert raw(tmp_path, "SELECT message, run_id FROM message ORDER BY seq") == [
            ("one", None),
            ("two", runs[1].id),
        ]
        assert (await store.run(runs[1].id)).message == "two"
        await store.add_message("clinic", "user", "three")
        await store.remove_run(runs[1].id)
        assert raw(tmp_path, "SELECT message FROM message ORDER BY seq") == [("one",), ("three",)]

    using(tmp_path, body)


def test_S16_runs_of_others_are_not_found(tmp_path: Path) -> None:
    other = Scope("other", "-", "-")
    run_id = using(tmp_path, lambda store: started(store, "a"), other)[1].id

    async def body(store: Store) -> None:
        assert (await store.run_marks(), await store.run_needs(), await store.glances(Wanted())) == ((), {}, ())
        assert not await store.is_owned(run_id, "-")
        for act in (store.remove_run(run_id), store.tag_run(run_id, ["x"]), store.cancel_run(run_id, "eve")):
            with pytest.raises(UsageError, match="not found"):
                await act

    using(tmp_path, body)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_tells_cost_and_what_waits_and_is_filtered(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, one, ready = await started(store, "a", "b")
        opening = thread()
        call = sent(opening.id)
        assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        await store.commit(Commit(ready["a"], artifact("v"), done(call, "0.25")))
        assert await store.claim(claim(ready["b"], worker))
        assert await store.wait(ready["b"], ErrorRecord("gate", "look"))
        await store.release_run(one.id, worker, "waiting")
        _, two, ready = await started(store, "a", pipeline="other")
        opening = thread()
        call = sent(opening.id)
        assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        await store.done(ready["a"], done(call))
        await store.tag_run(one.id, ["a_b", "good"])
        await store.tag_run(one.id, ["late"], ["good"])
        await store.tag_run(two.id, ["axb"])

        async def listed(**wanted: Any) -> list[int]:
            return [found.run.number for found in await store.glances(Wanted(**wanted))]

        newer, older = await store.glances(Wanted())
        assert (older.cost_usd, older.cost_partial, older.waiting, older.run.tags) == (
            Decimal("0.25"),
            False,
            ("b",),
            ("a_b", "late"),
        )
        assert (newer.cost_usd, newer.cost_partial, newer.waiting) == (None, True, ())
        assert await listed(limit=1) == [2]
        assert await listed(status="waiting") == [1]
        assert await listed(pipeline="other") == [2]
        assert await listed(tag="a_b") == [1], "an underscore stands for itself"
        assert await listed(tag="good") == []
        assert await listed(tag="a") == []
        assert await listed(status="waiting", pipeline="other") == []

    using(tmp_path, body)


# --- cancel -----------------------------------------------------------------------------------------------------------


def test_S01_after_a_cancel_whatever_comes_is_late(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b", "c", "d: a")
        await finish(store, worker, ready["a"], "made", children=["d"])
        opening = thread()
        call = sent(opening.id)
        assert await store.claim(claim(ready["b"], worker, thread=opening, sent=call))
        assert await store.is_owned(run.id, worker)
        assert await store.cancel_run(run.id, "ben") == ("b", "c", "d")
        assert not await store.is_owned(run.id, worker)
        late = Commit(ready["b"], artifact("late"), done(call, "1.00"))
        assert (await store.commit(late)).outcome == "fenced"
        assert not await store.claim(claim(ready["c"], worker))
        assert not await store.fail(ready["b"], ErrorRecord("x", "late"))
        await store.release_run(run.id, worker, "succeeded")
        now = await store.run(run.id)
        assert (now.status, now.error and now.error.message) == ("cancelled", "cancelled by ben")
        states = {row.name: (row.status, row.head is not None) for row in await store.steps(run.id)}
        assert states == {
            "a": ("succeeded", True),
            "b": ("cancelled", False),
            "c": ("cancelled", False),
            "d": ("cancelled", False),
        }
        assert [(e.kind, e.data) for e in await store.events(run.id)][-1] == (
            "run.cancelled",
            {"by": "ben", "steps": ["b", "c", "d"]},
        )
        with pytest.raises(UsageError, match="cancelled already"):
            await store.cancel_run(run.id, "ben")

    using(tmp_path, body)


def test_a_commit_that_was_first_stands(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b")
        await finish(store, worker, ready["a"], "made")
        await store.cancel_run(run.id, "ben")
        assert (await store.artifact(run.id, "a")).body == b"made"

    using(tmp_path, body)


def test_a_cancelled_run_can_go_on_and_begins_what_was_given_up_anew(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b", "c: a")
        await finish(store, worker, ready["a"], "made", children=["c"])
        assert await store.claim(claim(ready["b"], worker))
        await store.cancel_run(run.id, "ben")
        again = await store.adopt_run(run.id, worker, plan("a", "b", "c: a"))
        assert [(one.step, one.number, one.interrupted) for one in again] == [("b", 2, False), ("c", 2, False)]
        for one in again:
            assert (await finish(store, worker, one, one.step)).outcome == "committed"
        assert (await store.run(run.id)).status == "running"

    using(tmp_path, body)


def test_what_waits_is_given_up_too_and_a_run_that_has_ended_is_refused(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        assert await store.claim(claim(ready["a"], worker))
        assert await store.wait(ready["a"], ErrorRecord("gate", "look"))
        await store.release_run(run.id, worker, "waiting")
        assert await store.cancel_run(run.id, "ben") == ("a",)
        assert [row.status for row in await store.steps(run.id)] == ["cancelled"]
        other, ended, _ = await started(store, "a")
        await store.release_run(ended.id, other, "failed")
        with pytest.raises(UsageError, match="has failed"):
            await store.cancel_run(ended.id, "ben")

    using(tmp_path, body)


def test_a_compacted_file_is_smaller_and_sound(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        if not store.url.startswith("sqlite"):
            assert await store.compact() is None
            return
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"], "x" * 300_000)
        await store.release_run(run.id, worker, "succeeded")
        await store.remove_run(run.id)
        clock.move(DAY + 1)
        assert (await store.collect()).bodies > 0
        before, after = await store.compact() or (0, 0)
        assert before - after > 250_000
        assert file(tmp_path).stat().st_size == after
        assert await store.check() == ()
        await started(store, "a")

    clock = TestClock()
    using(tmp_path, body, clock=clock)
