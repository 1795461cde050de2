"""The writer thread: units stand alone, nothing is reported that is not durable, death is heard of (S03, S04)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.store import Store
from orchestrator.store.database import Writing
from orchestrator.store.sql import Sql, Tx
from orchestrator.store.sqlite import WriteConnection
from orchestrator.store.writer import Writer
from orchestrator.values import Commit
from tests.database_kit import databases, on
from tests.store_kit import artifact, claim, event, opened, plan, raw, sent, started, thread, using, write_cursor

pytestmark = pytest.mark.usefixtures("database")

ADD = Sql(
    "INSERT INTO session (tenant, account, subject, id, name, created_at)"
    " VALUES (:tenant, :account, :subject, :id, :id, 0)"
)


def _names(folder: Path) -> set[str]:
    return {name for (name,) in raw(folder, "SELECT id FROM session")}


def _writer(store: Store) -> Writing:
    return store._writer


def _adding(*ids: str, fail_at: int | None = None) -> Callable[[Tx], str]:
    """A unit of several statements; it fails ahead of the one with that number."""

    def work(tx: Tx) -> str:
        for number, id_ in enumerate(ids):
            if number == fail_at:
                raise UsageError(f"failed at {id_}")
            tx.run(ADD, id=id_)
        if fail_at == len(ids):
            raise UsageError("failed at the end")
        return ids[0]

    return work


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("at", range(4))
def test_S03_a_failing_unit_takes_nothing_else_with_it(tmp_path: Path, failing: int, at: int) -> None:
    """Four units of three statements, committed together; each statement of each unit fails in turn."""

    async def body(store: Store) -> None:
        gate, busy = threading.Event(), threading.Event()

        def block(tx: Tx) -> bool:
            busy.set()
            return gate.wait(60)

        blocker = asyncio.ensure_future(_writer(store).write("block", block))
        await asyncio.to_thread(busy.wait, 60)  # what follows queues up and is committed as one group
        units = [
            _writer(store).write(f"u{n}", _adding(f"{n}a", f"{n}b", f"{n}c", fail_at=at if n == failing else None))
            for n in range(4)
        ]
        together = asyncio.gather(*units, return_exceptions=True)
        await asyncio.sleep(0)
        gate.set()
        await blocker
        results = await together
        for number, result in enumerate(results):
            if number == failing:
                assert isinstance(result, UsageError)
            else:
                assert result == f"{number}a"

    using(tmp_path, body)
    assert _names(tmp_path) == {f"{n}{letter}" for n in range(4) if n != failing for letter in "abc"}


def test_S03_a_refused_statement_is_undone_with_its_unit_only(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        await _writer(store).write("one", _adding("same"))
        results = await asyncio.gather(
            _writer(store).write("two", _adding("other", "same")),
            _writer(store).write("three", _adding("third")),
            return_exceptions=True,
        )
        assert isinstance(results[0], sqlite3.IntegrityError | psycopg.IntegrityError)
        assert results[1] == "third"

    using(tmp_path, body)
    assert _names(tmp_path) == {"same", "third"}


@on("sqlite")
def test_S03_a_failed_commit_fails_all_its_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = WriteConnection.commit, [False]

    def commit(self: WriteConnection) -> None:
        if broken[0]:
            raise sqlite3.OperationalError("database or disk is full")
        real(self)

    monkeypatch.setattr(WriteConnection, "commit", commit)

    async def body(store: Store) -> None:
        broken[0] = True
        results = await asyncio.gather(
            *(_writer(store).write(f"u{n}", _adding(str(n))) for n in range(5)), return_exceptions=True
        )
        assert all(isinstance(result, StoreError) for result in results)
        assert "full" in str(results[0])
        broken[0] = False
        assert await _writer(store).write("after", _adding("after")) == "after"

    using(tmp_path, body)
    assert _names(tmp_path) == {"after"}


@on("sqlite")
def test_S03_a_unit_is_reported_only_after_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked, committed = WriteConnection.commit, threading.Event(), threading.Event()

    def commit(self: WriteConnection) -> None:
        asked.set()
        committed.wait(60)
        real(self)

    async def body(store: Store) -> None:
        monkeypatch.setattr(WriteConnection, "commit", commit)
        write = asyncio.ensure_future(_writer(store).write("one", _adding("one")))
        await asyncio.to_thread(asked.wait, 60)
        for _ in range(10):  # a report that was made before would have come by now
            await asyncio.sleep(0)
        assert not write.done()
        committed.set()
        assert await write == "one"

    using(tmp_path, body)


@on("sqlite")
def test_twenty_tasks_share_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, commits = WriteConnection.commit, []

    def commit(self: WriteConnection) -> None:
        commits.append(1)
        real(self)

    monkeypatch.setattr(WriteConnection, "commit", commit)

    async def body(store: Store) -> None:
        commits.clear()
        await asyncio.gather(*(_writer(store).write("u", _adding(f"n{n}")) for n in range(200)))

    using(tmp_path, body)
    assert len(_names(tmp_path)) == 200
    assert len(commits) < 100


@on("sqlite")
def test_what_was_paid_waits_for_the_disk_and_a_mere_claim_does_not(tmp_path: Path) -> None:
    """The mode each transaction ran under, as SQLite reports it (2 = FULL, 1 = NORMAL)."""
    modes: dict[str, int] = {}
    cursors: list[Any] = []

    def observer(moment: str) -> None:
        if cursors and moment.endswith(":begin"):
            modes[moment.removesuffix(":begin")] = cursors[0].execute("PRAGMA synchronous").fetchone()[0]

    async def body(store: Store) -> None:
        cursors.append(write_cursor(store))
        worker, _, ready = await started(store, "a", "b")
        await store.claim(claim(ready["a"], worker))
        assert modes.pop("claim") == 1
        await store.commit(Commit(ready["a"], artifact()))
        opening = thread()
        await store.claim(claim(ready["b"], worker, thread=opening, sent=sent(opening.id)))
        await store.heartbeat(worker)
        assert modes == {"register_worker": 1, "create_run": 2, "commit": 2, "claim": 2, "heartbeat": 1}

    using(tmp_path, body, observer=observer)


# --- S04 ---


@pytest.mark.parametrize("moment", ["commit:begin", "commit:committed"])
def test_S04_when_the_writer_dies_everybody_hears_of_it(tmp_path: Path, moment: str) -> None:
    """The thread is stopped inside a step's commit: its caller, all queued and all later writes raise StoreError."""

    def observer(seen: str) -> None:
        if seen == moment:
            raise SystemExit("stopped here")

    async def main() -> None:
        store = opened(tmp_path, observer=observer)
        worker, run, ready = await started(store, "a", "b")
        assert await store.claim(claim(ready["a"], worker))
        results = await asyncio.gather(
            store.commit(Commit(ready["a"], artifact())),
            store.heartbeat(worker),
            store.claim(claim(ready["b"], worker)),
            return_exceptions=True,
        )
        assert isinstance(results[0], StoreError)
        # On a server the others have connections of their own, and may be done before this one begins.
        behind = databases.server is None and moment == "commit:begin"
        assert not behind or all(isinstance(result, StoreError) for result in results[1:])
        for _ in range(2):
            with pytest.raises(StoreError, match="stopped") as error:
                await store.heartbeat(worker)
            assert error.value.exit_code == 8
        with pytest.raises(StoreError):
            await store.created("call", "resp")
        assert (await store.run(run.id)).status == "running"  # what is there can still be looked at
        await store.close()

    asyncio.run(main())
    states = dict(raw(tmp_path, "SELECT s.name, a.state FROM step s JOIN attempt a ON a.id = s.attempt_id"))
    assert states["a"] == ("running" if moment == "commit:begin" else "succeeded")


@on("sqlite")
def test_S04_a_writer_that_breaks_down_outside_any_unit_is_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = opened(tmp_path)

        def broken(self: Writer, units: list[Any]) -> None:
            raise MemoryError

        monkeypatch.setattr(Writer, "_commit_together", broken)
        results = await asyncio.gather(*(store.register_worker() for _ in range(5)), return_exceptions=True)
        assert all(isinstance(result, StoreError) for result in results)
        assert "MemoryError" in str(results[0])
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("ticks", range(6))
def test_S04_a_cancelled_commit_happens_as_a_whole_or_not_at_all(tmp_path: Path, ticks: int) -> None:
    """The caller is cancelled after so many turns of the loop; once it is let go, the outcome stands."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        await store.claim(claim(ready["a"], worker))
        commit = Commit(ready["a"], artifact(), children=("b",), events=(event("step.done"),))
        task = asyncio.create_task(store.commit(commit))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if task.cancel():  # else it was over, which a fast disk can make it
            with pytest.raises(asyncio.CancelledError):
                await task
        rows = {row.name: row for row in await store.steps(run.id)}
        found = (rows["a"].status, rows["b"].status, len(await store.events(run.id)))
        assert found == (("running", "pending", 0) if ticks == 0 else ("succeeded", "ready", 1))
        # Cancel against success is one compare-and-set: whoever came first stays.
        assert await store.cancel_attempt(ready["a"]) == (ticks == 0)

    using(tmp_path, body)


def test_S04_cancel_against_success_has_one_winner(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        for number in range(60):
            worker, run, ready = await started(store, "a")
            await store.claim(claim(ready["a"], worker))
            both = [store.cancel_attempt(ready["a"]), store.commit(Commit(ready["a"], artifact()))]
            cancelled, committed = (
                await asyncio.gather(*both) if number % 2 else reversed(await asyncio.gather(*reversed(both)))
            )
            assert isinstance(cancelled, bool)
            assert cancelled != (getattr(committed, "outcome", None) == "committed")
            (attempt,) = await store.attempts(run.id, "a")
            assert attempt.state == ("cancelled" if cancelled else "succeeded")

    using(tmp_path, body)


def test_S04_a_closed_store_writes_nothing_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        queued = [asyncio.ensure_future(store.register_worker()) for _ in range(3)]
        await asyncio.sleep(0)
        await store.close()
        assert len({await worker for worker in queued}) == 3
        with pytest.raises(StoreError, match="closed"):
            await store.register_worker()

    asyncio.run(main())
    assert raw(tmp_path, "SELECT COUNT(*) FROM worker") == [(3,)]


def test_the_process_may_stop_at_any_write_and_the_run_goes_on(tmp_path: Path) -> None:
    """A chain of three steps, stopped before and after each of its writes in turn, then resumed: same versions, no
    step commits twice."""

    class Stop(BaseException):
        pass

    lines = ("a", "b: a", "c: b")

    def stopping(at: int) -> Callable[[str], None]:
        seen = [0]

        def observer(moment: str) -> None:
            seen[0] += 1
            if seen[0] == at:
                raise Stop

        return observer

    async def go_on(store: Store, folder: Path) -> None:
        worker = await store.register_worker()
        runs = await store.runs()
        if runs:
            found = list(await store.adopt_run(runs[0].id, worker, plan(*lines), take_over=True))
        else:
            found = list((await started(store, *lines))[2].values())
            worker = raw(folder, "SELECT owner FROM run")[0][0]
        children = {"a": ("b",), "b": ("c",), "c": ()}
        while found:
            dispatch = found.pop(0)
            assert await store.claim(claim(dispatch, worker))
            result = await store.commit(Commit(dispatch, artifact(dispatch.step), children=children[dispatch.step]))
            found += result.ready

    stops = 0
    for at in range(1, 40):
        folder = tmp_path / str(at)

        async def stopped(folder: Path = folder, at: int = at) -> bool:
            store = opened(folder, observer=stopping(at))
            try:
                await go_on(store, folder)
            except StoreError:
                return True
            finally:
                await store.close()
            return False

        was_stopped = asyncio.run(stopped())
        stops += was_stopped
        using(folder, partial(go_on, folder=folder))
        rows = raw(folder, "SELECT step, version FROM artifact ORDER BY step")
        assert rows == [("a", 1), ("b", 1), ("c", 1)]
        states = raw(folder, "SELECT state FROM attempt")
        assert states == [("succeeded",)] * 3
        if not was_stopped:
            break
    assert stops == 2 * (1 + 2 + 6)  # workers twice, the run, and a claim and a commit for each step
