"""Claims, commits, take-overs: who may work on a step, and what follows from its end (S01, S02, S06, S07, S33)."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.store import Store
from orchestrator.store import workers as store_workers
from orchestrator.store.records import Fenced, NewStep, RunBusy
from orchestrator.values import Commit, Dispatch, ErrorRecord, NewArtifact, ReadRecord
from tests.store_kit import (
    TestClock,
    artifact,
    claim,
    commit_undecided,
    done,
    event,
    finish,
    manifest,
    new_run,
    opened,
    plan,
    raw,
    reads_of,
    sent,
    started,
    steps,
    thread,
    using,
)

pytestmark = pytest.mark.usefixtures("database")

OOPS = ErrorRecord("oops", "it broke", "mend it")


async def _status(store: Store, run_id: str) -> dict[str, str]:
    return {row.name: row.status for row in await store.steps(run_id)}


def test_a_run_starts_with_what_waits_for_nothing(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        inputs = {"brief": artifact("clinic", author="customer")}
        _, run, ready = await started(store, "a", "b", "c: a b", inputs=inputs, defaulted=frozenset({"brief"}))
        assert (run.number, run.status, run.pipeline) == (1, "running", "demo")
        assert {(d.step, d.number, d.token, d.interrupted) for d in ready.values()} == {
            ("a", 1, 1, False),
            ("b", 1, 1, False),
        }
        assert await _status(store, run.id) == {"brief": "succeeded", "a": "ready", "b": "ready", "c": "pending"}
        first = (await store.steps(run.id))[0]
        assert first.head is not None
        assert (first.kind, first.head.version, first.head.author, first.defaulted) == ("input", 1, "customer", True)

    using(tmp_path, body)


def test_runs_are_found_by_number_id_and_how_recent_they_are(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        runs = [(await started(store, "a"))[1] for _ in range(3)]
        assert [run.number for run in runs] == [1, 2, 3]
        assert [run.number for run in await store.runs(limit=2)] == [3, 2]
        for ref, number in ((2, 2), ("2", 2), (runs[1].id, 2), ("last", 3), ("last~2", 1)):
            assert (await store.run(ref)).number == number
        for ref in (4, "last~3", "nonsense", "0", "99999999999999999999"):
            with pytest.raises(UsageError, match="not found") as error:
                await store.run(ref)
            assert "orch runs" in (error.value.hint or "")

    using(tmp_path, body)


def test_sessions_are_joined_by_name_and_otherwise_new(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        named = [(await started(store, "a", session="ana"))[1] for _ in range(2)]
        assert named[0].session_id == named[1].session_id
        await started(store, "a", session="session-4")
        fourth = (await started(store, "a"))[1]
        assert fourth.number == 4
        assert fourth.session != "session-4"

    using(tmp_path, body)


# --- S01: claims ---


def test_S01_one_of_two_claims_wins(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        won = await asyncio.gather(*(store.claim(claim(ready["a"], worker)) for _ in range(20)))
        assert sorted(won) == [False] * 19 + [True]
        assert await _status(store, run.id) == {"a": "running"}

    using(tmp_path, body)


def test_S01_every_order_of_late_and_new_claims_and_resumes_has_one_winner(tmp_path: Path) -> None:
    """Events: the late claim (token n), the newest claim (n+1), a resume, another resume, and the winner's commit."""

    async def one_order(store: Store, order: tuple[str, ...]) -> None:
        worker, run, ready = await started(store, "a")
        late = newest = ready["a"]
        winners: list[Dispatch] = []
        versions = 0
        for what in order:
            if what == "late":
                won = await store.claim(claim(late, worker))
                assert won == (newest.token == late.token and not winners)
                winners += [late] if won else []
            elif what == "new":
                if newest in winners or (newest.interrupted is False and winners):
                    assert not await store.claim(claim(newest, worker))
                elif await store.claim(claim(newest, worker)):
                    winners.append(newest)
            elif what == "resume":
                for dispatch in await store.adopt_run(run.id, worker, plan("a")):
                    assert dispatch.token > newest.token
                    newest = dispatch
            else:
                for dispatch in [late, *winners]:
                    result = await store.commit(Commit(dispatch, artifact()))
                    versions += result.outcome == "committed"
        assert versions <= 1
        state = (await store.attempts(run.id, "a"))[-1].state
        assert (state == "succeeded") == (versions == 1)
        # After success nothing opens the attempt again, in whatever order it comes.
        if versions:
            assert await store.adopt_run(run.id, worker, plan("a")) == ()
            for dispatch in (late, newest):
                assert not await store.claim(claim(dispatch, worker))
                assert not await store.fail(dispatch, OOPS)
                assert not await store.cancel_attempt(dispatch)
                assert await store.restart(dispatch, "why") is None
            assert (await store.attempts(run.id, "a"))[-1].state == "succeeded"

    async def body(store: Store) -> None:
        for order in set(itertools.permutations(("late", "new", "resume", "resume", "commit"))):
            await one_order(store, order)

    using(tmp_path, body, synchronous="NORMAL")


def test_S01_a_zombie_writes_nothing(tmp_path: Path) -> None:
    """After a take-over, whatever the former owner still does is refused, and leaves no row."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        other = await store.register_worker()
        mine, opening = ready["a"], thread()
        call = sent(opening.id)
        assert await store.claim(claim(mine, worker, thread=opening, sent=call))
        (theirs,) = await store.adopt_run(run.id, other, plan("a", "b: a"), take_over=True)
        assert (theirs.attempt_id, theirs.token, theirs.interrupted) == (mine.attempt_id, 2, True)
        with pytest.raises(Fenced):
            await store.sent(mine, sent(opening.id, 2))
        with pytest.raises(Fenced):
            await store.open_thread(mine, more := thread("second"), sent(more.id))
        with pytest.raises(Fenced):
            await store.done(mine, done(call), [event("call.done")])
        assert (await store.commit(Commit(mine, artifact(), children=("b",)))).outcome == "fenced"
        assert not await store.fail(mine, OOPS)
        assert not await store.wait(mine, OOPS)
        (seen,) = (await store.journal(mine.attempt_id)).threads
        assert [row.sent.seq for row in seen.calls] == [1]
        assert await store.events(run.id) == ()
        assert await store.versions(run.id, "a") == ()
        result = await store.commit(Commit(theirs, artifact(), children=("b",)))
        assert [d.step for d in result.ready] == ["b"]

    using(tmp_path, body)


def test_S01_a_run_of_a_living_worker_is_refused_and_names_it(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await store.claim(claim(ready["a"], worker))
        other = await store.register_worker()
        clock.move(29)
        with pytest.raises(RunBusy, match=str(os.getpid())) as error:
            await store.adopt_run(run.id, other, plan("a"))
        assert error.value.exit_code == 2
        assert "--take-over" in (error.value.hint or "")
        assert store_workers.this_process().host in error.value.message
        clock.move(2)  # 31 seconds without a heartbeat
        (dispatch,) = await store.adopt_run(run.id, other, plan("a"))
        assert dispatch.interrupted

    using(tmp_path, body, clock=clock)


def test_S01_a_heartbeat_keeps_a_run(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        worker, run, _ = await started(store, "a")
        other = await store.register_worker()
        clock.move(25)
        await store.heartbeat(worker)
        clock.move(25)
        with pytest.raises(RunBusy):
            await store.adopt_run(run.id, other, plan("a"))
        assert await store.adopt_run(run.id, other, plan("a"), take_over=True)

    using(tmp_path, body, clock=clock)


def test_S01_a_dead_process_of_this_boot_is_dead_at_once(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await store.claim(claim(ready["a"], worker))
        raw(tmp_path, "UPDATE worker SET pid = ?", gone.pid)
        other = await store.register_worker()
        (dispatch,) = await store.adopt_run(run.id, other, plan("a"))
        assert (dispatch.interrupted, dispatch.token) == (True, 2)

    using(tmp_path, body)


@pytest.mark.parametrize("column", ["host", "boot_id"])
def test_S01_a_pid_of_another_machine_says_nothing(tmp_path: Path, column: str) -> None:
    """Containers share a boot id, hosts may share a name: only both together tell that a pid is one of ours."""
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()

    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a")
        raw(tmp_path, f"UPDATE worker SET pid = ?, {column} = 'elsewhere'", gone.pid)
        with pytest.raises(RunBusy):
            await store.adopt_run(run.id, await store.register_worker(), plan("a"))

    using(tmp_path, body)


def test_a_released_run_can_be_taken_at_once(tmp_path: Path) -> None:
    """Ctrl-C: the run is paused, its running attempt keeps its state and goes on in the next process."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b")
        await store.claim(claim(ready["a"], worker))
        await store.release_run(run.id, worker, "paused")
        assert (await store.run(run.id)).status == "paused"
        assert not await store.claim(claim(ready["b"], worker))
        assert (await store.commit(Commit(ready["a"], artifact()))).outcome == "fenced"
        with pytest.raises(Fenced):
            await store.open_thread(ready["a"], late := thread(), sent(late.id))
        other = await store.register_worker()
        found = {d.step: d for d in await store.adopt_run(run.id, other, plan("a", "b"))}
        assert (found["a"].interrupted, found["a"].token, found["a"].attempt_id) == (True, 2, ready["a"].attempt_id)
        assert (found["b"].interrupted, found["b"].token) == (False, 2)
        assert (await store.run(run.id)).status == "running"
        # The former worker cannot end what is no longer its own.
        await store.release_run(run.id, worker, "failed", OOPS)
        assert (await store.run(run.id)).status == "running"

    using(tmp_path, body)


# --- resume ---


def test_resume_dispatches_what_is_left_and_nothing_that_is_done(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        lines = ("done", "failed", "never", "child: done", "late: child failed")
        worker, run, ready = await started(store, *lines)
        result = await finish(store, worker, ready["done"], children=("child",))
        assert [d.step for d in result.ready] == ["child"]
        await store.claim(claim(ready["failed"], worker))
        assert await store.fail(ready["failed"], OOPS)
        await store.release_run(run.id, worker, "failed", OOPS)
        assert (await store.run(run.id)).error == OOPS
        found = {d.step: d for d in await store.adopt_run(run.id, worker, plan(*lines))}
        assert set(found) == {"failed", "never", "child"}
        assert (found["failed"].number, found["failed"].token) == (2, 1)
        assert (found["never"].number, found["never"].token) == (1, 2)
        assert (await store.run(run.id)).error is None
        result = await finish(store, worker, found["failed"], children=("late",))
        assert result.ready == ()
        result = await finish(store, worker, found["child"], children=("late",))
        assert [d.step for d in result.ready] == ["late"]

    using(tmp_path, body)


def test_resume_with_a_changed_graph_adds_steps_and_recounts(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "c: a")
        await finish(store, worker, ready["a"], children=("c",))
        found = await store.adopt_run(run.id, worker, plan("a", "new", "c: a new", "first: a"))
        assert {d.step for d in found} == {"new", "first"}
        assert (await store.run(run.id)).graph_digest == "d2"
        new = next(d for d in found if d.step == "new")
        result = await finish(store, worker, new, children=("c",))
        assert [(d.step, d.token) for d in result.ready] == [("c", 2)]
        assert [row.order for row in await store.steps(run.id)] == [0, 1, 2, 3]

    using(tmp_path, body)


def test_a_restart_gives_up_the_attempt_and_says_why(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await store.claim(claim(ready["a"], worker))
        fresh = await store.restart(ready["a"], "template changed")
        assert fresh is not None
        assert (fresh.number, fresh.token) == (2, 1)
        assert fresh.attempt_id != ready["a"].attempt_id
        assert [row.state for row in await store.attempts(run.id, "a")] == ["cancelled", "ready"]
        (told,) = await store.events(run.id)
        assert (told.kind, told.step, told.data) == ("step.restarted", "a", {"reason": "template changed"})
        assert await store.claim(claim(fresh, worker))

    using(tmp_path, body)


def test_an_attempt_whose_first_call_was_refused_can_fail(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run, ready = await started(store, "a")
        assert await store.fail(ready["a"], OOPS)
        (row,) = await store.steps(run.id)
        assert (row.status, row.error) == ("failed", OOPS)

    using(tmp_path, body)


# --- S02: the join ---


def test_S02_siblings_that_end_at_once_dispatch_their_join_once(tmp_path: Path) -> None:
    async def round_of(store: Store, siblings: int) -> None:
        names = [f"s{n}" for n in range(siblings)]
        worker, run, ready = await started(store, *names, f"join: {' '.join(names)}")
        await asyncio.gather(*(store.claim(claim(ready[name], worker)) for name in names))
        results = await asyncio.gather(
            *(store.commit(Commit(ready[name], artifact(name), children=("join",))) for name in names)
        )
        assert [d.step for result in results for d in result.ready] == ["join"]
        assert (await _status(store, run.id))["join"] == "ready"

    async def body(store: Store) -> None:
        for number in range(150):
            await round_of(store, 2 + number % 15)

    using(tmp_path, body, synchronous="NORMAL")


def test_S02_a_parent_is_counted_once(tmp_path: Path) -> None:
    """A step that its children have counted already is not counted again, whichever way it comes to succeed twice."""

    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a", "b", "join: a b")
        raw(tmp_path, "UPDATE step SET released = 1 WHERE name = 'a'")
        assert (await finish(store, worker, ready["a"], children=("join",))).ready == ()
        assert raw(tmp_path, "SELECT unmet FROM step WHERE name = 'join'") == [(2,)]

    using(tmp_path, body)


def test_S02_two_processes_writers_do_not_miss_each_other(tmp_path: Path) -> None:
    """Two stores on one file, as two processes have them: the run's lock is in the database."""

    async def main() -> None:
        one, two = opened(tmp_path), opened(tmp_path)
        try:
            for _ in range(40):
                worker, _, ready = await started(one, "a", "b", "join: a b")
                await one.claim(claim(ready["a"], worker))
                await two.claim(claim(ready["b"], worker))
                results = await asyncio.gather(
                    one.commit(Commit(ready["a"], artifact(), children=("join",))),
                    two.commit(Commit(ready["b"], artifact(), children=("join",))),
                )
                assert [d.step for result in results for d in result.ready] == ["join"]
        finally:
            await one.close()
            await two.close()

    asyncio.run(main())


# --- S06, S07: edits in between ---


async def _edited(store: Store, run_id: str, step: str, value: str, version: int = 1, **fields: Any) -> str:
    new = NewArtifact("note", value.encode(), "ana", "person", "internal", artifact(value, **fields).field_hashes)
    return (await store.edit(run_id, step, None, version, new)).id


def test_S06_an_input_that_moved_makes_the_version_stale_and_runs_the_step_once_more(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a", "c: b")
        (b,) = (await finish(store, worker, ready["a"], "old", children=("b",))).ready
        await store.claim(claim(b, worker, reads=await reads_of(store, run.id, "a")))
        await _edited(store, run.id, "a", "new")
        result = await store.commit(Commit(b, artifact("from old"), children=("c",)))
        assert (result.outcome, result.moved, result.version) == ("moved", ("a",), 1)
        (again,) = result.ready
        assert (again.step, again.number, again.token) == ("b", 2, 1)
        row = {r.name: r for r in await store.steps(run.id)}["b"]
        assert row.stale
        assert row.head is not None
        head = row.head.id
        assert (await store.artifact(run.id, "b")).body == b"from old"
        assert [e.data for e in await store.events(run.id)] == [{"inputs": ["a"], "redo": True, "stands": False}]
        # The second time it reads what is there now, and its reader may go on.
        await store.claim(claim(again, worker, reads=await reads_of(store, run.id, "a"), base_head=head))
        result = await store.commit(Commit(again, artifact("from new"), children=("c",), base_head=head))
        assert (result.outcome, result.version) == ("committed", 2)
        assert [d.step for d in result.ready] == ["c"]
        assert [r.stale for r in await store.steps(run.id)] == [False, False, False]

    using(tmp_path, body)


def test_S06_a_second_move_leaves_the_step_stale_for_the_next_resume(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a", "c: b")
        (dispatch,) = (await finish(store, worker, ready["a"], "0", children=("b",))).ready
        head = None
        for number in (1, 2):
            reads = await reads_of(store, run.id, "a")
            await store.claim(claim(dispatch, worker, reads=reads, base_head=head))
            await _edited(store, run.id, "a", str(number), number)
            result = await store.commit(Commit(dispatch, artifact(f"b{number}"), children=("c",), base_head=head))
            assert result.outcome == "moved"
            head = result.artifact_id
            dispatch = result.ready[0] if result.ready else dispatch
        assert result.ready == ()
        assert (await _status(store, run.id))["c"] == "pending"
        (again,) = await store.adopt_run(run.id, worker, plan("a", "b: a", "c: b"))
        assert (again.step, again.number) == ("b", 3)
        reads = await reads_of(store, run.id, "a")
        await store.claim(claim(again, worker, reads=reads, base_head=head))
        result = await store.commit(Commit(again, artifact("b3"), children=("c",), base_head=head))
        assert [d.step for d in result.ready] == ["c"]

    using(tmp_path, body)


def test_S06_a_persons_version_of_a_stale_step_stands_and_its_readers_go_on(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a", "c: b")
        (b,) = (await finish(store, worker, ready["a"], "0", children=("b",))).ready
        await store.claim(claim(b, worker, reads=await reads_of(store, run.id, "a")))
        await _edited(store, run.id, "a", "1")
        (again,) = (await store.commit(Commit(b, artifact("b1"), children=("c",)))).ready
        assert await store.fail(again, OOPS)
        (retry,) = await store.adopt_run(run.id, worker, plan("a", "b: a", "c: b"))
        head = (await store.artifact(run.id, "b")).version.id
        await store.claim(claim(retry, worker, reads=await reads_of(store, run.id, "a"), base_head=head))
        await _edited(store, run.id, "a", "2", 2)
        (last,) = (await store.commit(Commit(retry, artifact("b2"), children=("c",), base_head=head))).ready
        head = (await store.artifact(run.id, "b")).version.id
        await store.claim(claim(last, worker, reads=await reads_of(store, run.id, "a"), base_head=head))
        await _edited(store, run.id, "a", "3", 3)
        assert (await store.commit(Commit(last, artifact("b3"), base_head=head))).ready == ()
        await _edited(store, run.id, "b", "ana's", 3)
        found = await store.adopt_run(run.id, worker, plan("a", "b: a", "c: b"))
        assert [d.step for d in found] == ["c"]

    using(tmp_path, body)


@pytest.mark.parametrize(
    ("fields", "edit", "outcome"),
    [
        (None, {"price": 1, "name": "x"}, "moved"),
        (("price",), {"price": 1, "name": "x"}, "committed"),
        (("price",), {"price": 2, "name": "n"}, "moved"),
        (("price", "gone"), {"price": 1, "name": "x"}, "moved"),
    ],
)
def test_S06_only_what_was_read_counts(
    tmp_path: Path, fields: tuple[str, ...] | None, edit: dict[str, Any], outcome: str
) -> None:
    """The first version is {price: 1, name: n}; an edit of a field that was not read is no reason."""

    async def body(store: Store) -> None:
        given = {"a": artifact("v1", price=1, name="n")}
        worker, run, ready = await started(store, "b", inputs=given)
        version = (await store.artifact(run.id, "a")).version
        read = ReadRecord("a", version.id, 1, fields, "h")
        await store.claim(claim(ready["b"], worker, reads=(read,)))
        await _edited(store, run.id, "a", "v2", **edit)
        assert (await store.commit(Commit(ready["b"], artifact()))).outcome == outcome

    using(tmp_path, body)


def test_S06_a_value_that_was_changed_back_has_not_moved(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "b", inputs={"a": artifact("v")})
        await store.claim(claim(ready["b"], worker, reads=await reads_of(store, run.id, "a")))
        await _edited(store, run.id, "a", "w")
        await _edited(store, run.id, "a", "v", 2)
        assert (await store.commit(Commit(ready["b"], artifact()))).outcome == "committed"

    using(tmp_path, body)


def test_S06_a_default_that_was_read_moves_when_a_value_appears(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a", "b")
        absent = (ReadRecord("a", None, None, None, "default"),)
        await store.claim(claim(ready["b"], worker, reads=absent))
        await finish(store, worker, ready["a"])
        result = await store.commit(Commit(ready["b"], artifact()))
        assert (result.outcome, result.moved) == ("moved", ("a",))

    using(tmp_path, body)


async def _conflict(store: Store) -> tuple[str, str, str]:
    """Step b ran, is re-run, and meanwhile ana edits b itself: run, ana's version id, the draft's id."""
    worker, run, ready = await started(store, "a", "b: a", "c: b")
    (b,) = (await finish(store, worker, ready["a"], children=("b",))).ready
    reads = await reads_of(store, run.id, "a")
    await store.claim(claim(b, worker, reads=reads))
    await _edited(store, run.id, "a", "a2")
    moved = await store.commit(Commit(b, artifact("b1"), children=("c",)))
    (again,) = moved.ready
    reads = await reads_of(store, run.id, "a")
    await store.claim(claim(again, worker, reads=reads, base_head=moved.artifact_id))
    anas = await _edited(store, run.id, "b", "ana's b")
    commit = Commit(again, artifact("b3"), children=("c",), base_head=moved.artifact_id)
    result = await commit_undecided(store, commit)
    assert (result.outcome, result.version, result.ready) == ("conflict", 3, ())
    assert result.artifact_id is not None
    return run.id, anas, result.artifact_id


def test_S07_an_edit_of_the_step_itself_survives_and_the_draft_waits(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        run_id, anas, draft = await _conflict(store)
        row = {r.name: r for r in await store.steps(run_id)}["b"]
        assert row.head is not None
        assert row.draft is not None
        assert (row.status, row.head.id, row.draft.id, row.draft.draft) == ("waiting", anas, draft, True)
        assert row.error is not None
        assert row.error.exit_code == 4
        assert (await store.artifact(run_id, "b")).body == b"ana's b"
        assert (await store.artifact(run_id, "b", version=3)).body == b"b3"
        assert (await _status(store, run_id))["c"] == "pending"
        assert (
            await store.adopt_run(run_id, await store.register_worker(), plan("a", "b: a", "c: b"), take_over=True)
            == ()
        )

    using(tmp_path, body)


@pytest.mark.parametrize(("keep", "value"), [("head", b"ana's b"), ("draft", b"b3")])
def test_S07_the_answer_makes_one_of_them_current_and_the_run_goes_on(tmp_path: Path, keep: Any, value: bytes) -> None:
    async def body(store: Store) -> None:
        run_id, *_ = await _conflict(store)
        ready = await store.settle(run_id, "b", keep)
        assert [d.step for d in ready] == ["c"]
        row = {r.name: r for r in await store.steps(run_id)}["b"]
        assert (row.status, row.draft, row.stale) == ("succeeded", None, False)
        assert (await store.artifact(run_id, "b")).body == value
        assert [v.version for v in await store.versions(run_id, "b")] == [1, 2, 3]
        with pytest.raises(UsageError, match="no draft"):
            await store.settle(run_id, "b", keep)

    using(tmp_path, body)


def test_S07_a_draft_taken_after_its_inputs_moved_again_is_made_once_more(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        run_id, *_ = await _conflict(store)
        await _edited(store, run_id, "a", "a3", 2)
        assert await store.settle(run_id, "b", "draft") == ()
        assert {r.name: r.stale for r in await store.steps(run_id)}["b"]

    using(tmp_path, body)


def test_S07_an_edit_while_the_process_was_down_is_not_lost_on_resume(tmp_path: Path) -> None:
    """The head the attempt began with counts, also where the resumed process knows only today's."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        first = await finish(store, worker, ready["a"], "v1")
        fresh = await _again(tmp_path, store, run.id, worker)
        await store.claim(claim(fresh, worker, base_head=first.artifact_id))
        anas = await _edited(store, run.id, "a", "ana's")
        (resumed,) = await store.adopt_run(run.id, worker, plan("a"))
        assert await store.claim(claim(resumed, worker, base_head=anas))
        result = await store.commit(Commit(resumed, artifact("v3"), base_head=anas))
        assert result.outcome == "edited"
        assert result.present is not None
        assert result.present.base is not None
        assert (result.present.head.version.id, result.present.base.version.id) == (anas, first.artifact_id)
        assert await store.events(run.id) == ()
        assert (await _status(store, run.id))["a"] == "running"

    using(tmp_path, body)


async def _again(folder: Path, store: Store, run_id: str, worker: str) -> Dispatch:
    """A new attempt of a finished step: its version is marked as one whose inputs had moved."""
    raw(folder, "UPDATE step SET stale = 1")
    (dispatch,) = await store.adopt_run(run_id, worker, plan("a"))
    return dispatch


# --- edits ---


def test_an_edit_needs_the_version_it_was_made_on(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b")
        await finish(store, worker, ready["a"], "v1")
        second = await _edited(store, run.id, "a", "v2")
        with pytest.raises(UsageError, match=r"changed meanwhile.*version 2") as error:
            await _edited(store, run.id, "a", "mine")
        assert error.value.exit_code == 2
        with pytest.raises(UsageError, match="no version yet"):
            await _edited(store, run.id, "b", "x")
        with pytest.raises(UsageError, match="not found"):
            await _edited(store, run.id, "nobody", "x")
        one, two = await store.versions(run.id, "a")
        assert (two.id, two.parent_id, two.author, two.origin, two.version) == (second, one.id, "ana", "person", 2)

    using(tmp_path, body)


def test_S29_an_edit_that_changes_nothing_makes_no_version(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        result = await finish(store, worker, ready["a"], "same")
        assert await _edited(store, run.id, "a", "same") == result.artifact_id
        assert len(await store.versions(run.id, "a")) == 1

    using(tmp_path, body)


def test_versions_are_numbered_without_gaps_whoever_makes_them(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"], "v1")
        for number in range(1, 6):
            await _edited(store, run.id, "a", f"v{number + 1}", number)
        assert [v.version for v in await store.versions(run.id, "a")] == [1, 2, 3, 4, 5, 6]

    using(tmp_path, body)


# --- child runs ---


def test_a_child_run_shares_heads_and_numbers_on(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a", inputs={"x": artifact("in")})
        (b,) = (await finish(store, worker, ready["a"], "a1", children=("b",), manifest=manifest("why a"))).ready
        await finish(store, worker, b, "b1")
        await _edited(store, run.id, "a", "a2")
        rows = {row.name: row for row in await store.steps(run.id)}
        heads = {name: row.head for name, row in rows.items()}
        x, a, b_ = heads["x"], heads["a"], heads["b"]
        assert x is not None
        assert a is not None
        assert b_ is not None
        shared = (
            NewStep("x", None, "input", -1, (), x.id, 1),
            NewStep("a", None, "python", 0, (), a.id, 2),
            NewStep("b", None, "python", 1, ("a",), None, b_.version),
        )
        child, found = await store.create_run(new_run(steps=shared, parent_id=run.id), worker)
        assert (child.parent_number, child.number) == (1, 2)
        (dispatch,) = found
        assert dispatch.step == "b"
        assert (await store.artifact(child.id, "a")).body == b"a2"
        # What the parent makes after the fork is not the child's.
        await _edited(store, run.id, "a", "a3", 2)
        assert (await store.artifact(child.id, "a")).body == b"a2"
        assert [v.version for v in await store.versions(child.id, "a")] == [1, 2]
        with pytest.raises(UsageError, match="no version 3"):
            await store.artifact(child.id, "a", version=3)
        result = await finish(store, worker, dispatch, "b2")
        assert result.version == 2
        assert (await store.artifact(run.id, "b")).version.version == 1
        of_a = {row.name: row for row in await store.steps(child.id)}["a"]
        assert (of_a.status, of_a.attempt, of_a.manifest) == ("succeeded", 0, manifest("why a"))

    using(tmp_path, body)


# --- S33, events, sums ---


def test_S33_order_is_by_number_when_the_clock_goes_back(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b", session="s", message="first")
        await store.claim(claim(ready["a"], worker, events=(event("one"), event("two"))))
        clock.move(-3600)
        await store.add_message("s", "operator", "second")
        await store.commit(Commit(ready["a"], artifact(), events=(event("three", version=1),)))
        await store.claim(claim(ready["b"], worker, events=(event("four"),)))
        rows = await store.events(run.id)
        assert [(e.seq, e.kind, e.step, e.attempt) for e in rows] == [
            (1, "one", "a", 1),
            (2, "two", "a", 1),
            (3, "three", "a", 1),
            (4, "four", "b", 1),
        ]
        assert rows[2].at < rows[1].at
        assert [e.seq for e in await store.events(run.id, after=2)] == [3, 4]
        other = (await started(store, "a", session="s"))[1]
        seen = await store.snapshot(other.id, "a", None, (), 30)
        assert [(m.seq, m.text) for m in seen.conversation] == [(1, "first"), (2, "second")]
        assert all(row.seconds == 0 for row in await store.steps(run.id) if row.name == "a")

    using(tmp_path, body, clock=clock)


def test_running_time_does_not_count_the_gap_of_a_crash(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await store.claim(claim(ready["a"], worker))
        clock.move(3600)
        (resumed,) = await store.adopt_run(run.id, worker, plan("a"))
        clock.move(2)
        assert (await store.commit(Commit(resumed, artifact()))).outcome == "committed"
        (row,) = await store.steps(run.id)
        assert row.seconds == 2.0

    using(tmp_path, body, clock=clock)


def test_the_cap_can_be_changed(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a", cap_usd=Decimal("0.10"))
        assert (await store.budget(run.id)).cap_usd == Decimal("0.10")
        await store.set_cap(run.id, Decimal("0.35"))
        assert (await store.run(run.id)).cap_usd == Decimal("0.35")

    using(tmp_path, body)


def test_a_graph_that_names_a_step_twice_is_refused(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker = await store.register_worker()
        with pytest.raises(UsageError, match="twice"):
            await store.create_run(new_run(steps=(*steps("a"), *steps("a"))), worker)
        assert await store.runs() == ()

    using(tmp_path, body)
