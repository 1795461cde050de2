"""S01 and S02 where transactions really run side by side: all meet inside their transactions, then go on at once.

In one process the meeting is a barrier behind BEGIN; two processes are let go by a line each, round after round.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.store import Store
from orchestrator.store import server as store_server
from orchestrator.store.sql import Tx
from orchestrator.values import Commit, Dispatch
from tests.database_kit import on
from tests.store_kit import artifact, claim, event, finish, new_run, opened, plan, raw, started, url, using

pytestmark = [pytest.mark.usefixtures("database"), on("postgres")]
ROOT: Final = Path(__file__).parents[2]
MOST: Final = 16


class Meeting:
    """An observer that keeps units of one name inside their transactions until so many are there."""

    def __init__(self, name: str) -> None:
        self.moment = f"{name}:begin"
        self.barrier: threading.Barrier | None = None

    def of(self, count: int) -> None:
        self.barrier = threading.Barrier(count)

    def __call__(self, moment: str) -> None:
        if moment == self.moment and self.barrier is not None:
            self.barrier.wait(30)


@pytest.fixture(autouse=True)
def many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "CONNECTIONS", MOST)


def test_S02_siblings_that_commit_at_the_same_moment_dispatch_their_join_once(tmp_path: Path) -> None:
    """2 to 16 siblings, 240 rounds: each is inside its transaction before the first takes the run's lock."""
    meeting = Meeting("commit")

    async def body(store: Store) -> None:
        for number in range(240):
            siblings = 2 + number % 15 if number % 3 == 0 else 2 + number % 3
            names = [f"s{n}" for n in range(siblings)]
            worker, run, ready = await started(store, *names, f"join: {' '.join(names)}")
            await asyncio.gather(*(store.claim(claim(ready[name], worker)) for name in names))
            meeting.of(siblings)
            commits = [Commit(ready[n], artifact(n), children=("join",), events=(event("done"),)) for n in names]
            results = await asyncio.gather(*(store.commit(commit) for commit in commits))
            meeting.barrier = None
            assert [d.step for result in results for d in result.ready] == ["join"]
            assert [seen.seq for seen in await store.events(run.id)] == list(range(1, siblings + 1))
            assert len(await store.attempts(run.id, "join")) == 1

    using(tmp_path, body, observer=meeting)


def test_S01_of_claims_at_the_same_moment_one_wins(tmp_path: Path) -> None:
    meeting = Meeting("claim")

    async def body(store: Store) -> None:
        worker, _, ready = await started(store, *[f"s{n}" for n in range(60)])
        for number, dispatch in enumerate(ready.values()):
            count = 2 + number % 15
            meeting.of(count)
            won = await asyncio.gather(*(store.claim(claim(dispatch, worker)) for _ in range(count)))
            meeting.barrier = None
            assert sorted(won) == [False] * (count - 1) + [True]

    using(tmp_path, body, observer=meeting)


def test_S01_of_a_commit_a_cancel_and_a_take_over_at_once_one_wins(tmp_path: Path) -> None:
    """Whoever comes first stands, and an attempt never leaves `succeeded`."""
    won: Counter[str] = Counter()

    async def body(store: Store) -> None:
        other = await store.register_worker()
        for number in range(60):
            worker, run, ready = await started(store, "a")
            await store.claim(claim(ready["a"], worker))
            asked: list[Any] = [
                store.commit(Commit(ready["a"], artifact())),
                store.cancel_attempt(ready["a"]),
                store.adopt_run(run.id, other, plan("a"), take_over=True),
            ]
            turn = number % 3  # each is asked first in turn
            results = await asyncio.gather(*asked[turn:], *asked[:turn])
            committed, cancelled, adopted = results[3 - turn :] + results[: 3 - turn]
            assert not (committed.outcome == "committed" and cancelled)
            states = [row.state for row in await store.attempts(run.id, "a")]
            versions = await store.versions(run.id, "a")
            assert len(versions) == (committed.outcome == "committed")
            assert ("succeeded" in states) == (committed.outcome == "committed")
            won["committed" if versions else "cancelled" if cancelled else "taken"] += 1
            for dispatch in adopted:  # what the new owner was given is the newest, and it can end it
                assert dispatch.token > 1 or dispatch.number > 1
                if not dispatch.interrupted:
                    assert await store.claim(claim(dispatch, other))
                assert (await store.commit(Commit(dispatch, artifact("theirs")))).outcome == "committed"

    using(tmp_path, body)
    assert sum(won.values()) == 60


def test_versions_and_messages_are_numbered_without_gaps_by_many_at_once(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", session="s")
        await finish(store, worker, ready["a"], "v1")

        async def edit(person: int) -> int:
            for _ in range(200):
                base = (await store.artifact(run.id, "a")).version.version
                try:
                    return (await store.edit(run.id, "a", None, base, artifact(f"by {person}"))).version
                except UsageError:
                    continue
            raise AssertionError("never")

        made = await asyncio.gather(*(edit(person) for person in range(20)))
        assert sorted(made) == list(range(2, 22))
        lines = await asyncio.gather(*(store.add_message("s", "user", str(n)) for n in range(40)))
        assert sorted(line.seq for line in lines) == list(range(1, 41))
        runs = await asyncio.gather(*(store.create_run(new_run("a", session="s"), worker) for _ in range(20)))
        assert sorted(row.number for row, _ in runs) == list(range(2, 22))

    using(tmp_path, body)


def test_S31_many_workers_share_one_cap(tmp_path: Path) -> None:
    """50 calls of 0.02 against a cap of 0.30: fifteen may leave."""
    from decimal import Decimal

    from orchestrator.errors import BudgetExceeded
    from tests.store_kit import sent, thread

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, *[f"s{n}" for n in range(50)], cap_usd=Decimal("0.30"))

        async def call(dispatch: Dispatch) -> bool:
            opening = thread()
            try:
                return await store.claim(claim(dispatch, worker, thread=opening, sent=sent(opening.id, reserve="0.02")))
            except BudgetExceeded:
                return False

        assert sum(await asyncio.gather(*(call(dispatch) for dispatch in ready.values()))) == 15
        assert (await store.budget(run.id)).reserved_usd == Decimal("0.30")

    using(tmp_path, body)


# --- two processes ---

OTHER: Final = """
import asyncio, json, sys
from orchestrator.store import open_store
from orchestrator.values import Commit, Dispatch, Scope
from tests.store_kit import artifact

async def main():
    store = open_store(sys.argv[1], Scope())
    await store.register_worker()
    print("ready", flush=True)
    for line in sys.stdin:
        mine = [Dispatch(*fields) for fields in json.loads(line)]
        commits = [store.commit(Commit(dispatch, artifact(dispatch.step), children=("join",))) for dispatch in mine]
        results = await asyncio.gather(*commits)
        print(json.dumps([[r.outcome, [d.step for d in r.ready]] for r in results]), flush=True)
    await store.close()

asyncio.run(main())
"""


class Process:
    """Another process on the same database, which commits what it is given a line of."""

    def __init__(self, where: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER, where], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.heard() == "ready\n"

    def tell(self, dispatches: list[Dispatch]) -> None:
        fields = [[d.run_id, d.step, d.item, d.attempt_id, d.number, d.token] for d in dispatches]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields) + "\n")
        self._process.stdin.flush()

    def heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> None:
        self._process.communicate(timeout=30)


def test_S02_siblings_in_two_processes_dispatch_their_join_once(tmp_path: Path) -> None:
    """Half of the siblings each, 100 rounds; some dispatches are given to both, and only one commits them (S01)."""

    async def body(store: Store) -> None:
        processes = [Process(url(tmp_path)) for _ in range(2)]
        for number in range(100):
            names = [f"s{n}" for n in range(2 + number % 7)]
            worker, _, ready = await started(store, *names, f"join: {' '.join(names)}")
            await asyncio.gather(*(store.claim(claim(ready[name], worker)) for name in names))
            shared, own = [ready[names[0]]], [ready[name] for name in names[1:]]
            halves = [shared + own[::2], own[1::2] + shared]
            for process, half in zip(processes, halves, strict=True):
                process.tell(half)
            results = [result for process in processes for result in json.loads(process.heard())]
            assert Counter(outcome for outcome, _ in results) == {"committed": len(names), "fenced": 1}
            assert [step for _, found in results for step in found] == ["join"]
        for process in processes:
            process.end()

    using(tmp_path, body)
    assert raw(tmp_path, "SELECT COUNT(*) FROM attempt WHERE state = 'ready'") == [(100,)]


# --- S03, S04: the promises of the one writer, kept by many ---


def test_S04_what_is_reported_is_committed_and_a_cancelled_caller_waits_for_it(tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        from orchestrator.store import workers

        inside.set()
        go_on.wait(20)
        return workers.register(tx)

    async def body(store: Store) -> None:
        task = asyncio.ensure_future(store._writer.write("slow", slow))
        await asyncio.to_thread(inside.wait, 20)
        task.cancel()
        for _ in range(10):  # whoever was to be let go at once would be by now
            await asyncio.sleep(0)
        assert not task.done()  # it is let go when the unit is settled
        assert raw(tmp_path, "SELECT COUNT(*) FROM worker") == [(0,)]
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert raw(tmp_path, "SELECT COUNT(*) FROM worker") == [(1,)]

    using(tmp_path, body)


def test_S04_once_writing_has_ended_nothing_is_committed_or_reported(tmp_path: Path) -> None:
    """One unit is inside its transaction when another one's observer ends the process: it is not committed either."""
    inside, ended = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        from orchestrator.store import workers

        inside.set()
        ended.wait(20)
        return workers.register(tx)

    def observer(moment: str) -> None:
        if moment == "heartbeat:begin":
            raise SystemExit("the end")

    async def main() -> None:
        store = opened(tmp_path, observer=observer)
        task = asyncio.ensure_future(store._writer.write("slow", slow))
        await asyncio.to_thread(inside.wait, 20)
        with pytest.raises(StoreError, match="writer has stopped: the end"):
            await store.heartbeat("w")
        ended.set()
        for asked in (task, store.register_worker()):
            with pytest.raises(StoreError, match="writer has stopped"):
                await asked
        assert await store.runs() == ()  # what is there can still be looked at
        await store.close()

    asyncio.run(main())
    assert raw(tmp_path, "SELECT COUNT(*) FROM worker") == [(0,)]
