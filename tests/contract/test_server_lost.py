"""Connections that go away, and transactions that the server undoes: nothing twice, nothing lost, nothing guessed.

Between the store and the server stands a wire that can be cut at a COMMIT: before it arrives, after it has happened but
before the answer, or so that the server does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import psycopg
import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store, open_store
from orchestrator.store import server as store_server
from orchestrator.store.sql import Tx
from orchestrator.values import Commit, Scope
from tests.database_kit import databases, on
from tests.postgres_kit import Server
from tests.store_kit import artifact, claim, file, opened, plan, raw, started, using

pytestmark = [pytest.mark.usefixtures("database"), on("postgres")]
COMMIT: Final = b"COMMIT\x00"
Cut = Literal["before", "answer", "silently"]


class Wire(socketserver.ThreadingTCPServer):
    """Passes bytes on to the server's socket. `cut` says what happens at the next COMMIT; `commits` were seen."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.cut: Cut | None = None
        self.commits = 0
        self.held: list[socket.socket] = []  # of connections that the server believes to be there
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def has_cut(self) -> bool:
        return self.cut is None

    def url(self, database: str) -> str:
        return f"postgresql://app@127.0.0.1:{self.server_address[1]}/{database}"


class _Connection(socketserver.BaseRequestHandler):
    server: Wire

    def handle(self) -> None:
        client, far = self.request, socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # the other end is gone, or was never there
            far.connect(self.server.target)
            while self._pass_on(client, far):
                pass
        if far not in self.server.held:
            far.close()

    def _pass_on(self, client: socket.socket, far: socket.socket) -> bool:
        for ready in select.select([client, far], [], [])[0]:
            data = ready.recv(65536)
            if not data:
                return False
            if ready is client and COMMIT in data:
                self.server.commits += 1
                cut, self.server.cut = self.server.cut, None
                if cut is not None:
                    self._cut(cut, far, data)
                    return False
            (far if ready is client else client).sendall(data)
        return True

    def _cut(self, cut: Cut, far: socket.socket, data: bytes) -> None:
        if cut == "answer":
            far.sendall(data)
            far.recv(65536)  # it has happened, and nobody hears of it
        elif cut == "silently":
            self.server.held.append(far)


@pytest.fixture
def wire(postgres: Server) -> Iterator[Wire]:
    made = Wire(f"{postgres.folder}/.s.PGSQL.{postgres.port}")
    yield made
    made.shutdown()
    made.server_close()
    for held in made.held:
        held.close()


def _by(wire: Wire, folder: Path, **more: Any) -> Store:
    return open_store(wire.url(databases.name(file(folder))), Scope(), **more)


def _quiet(postgres: Server) -> None:
    """No checkpoint in this second: one that is older than the transaction proves that the server did not crash."""
    postgres.admin("postgres", "CHECKPOINT")
    time.sleep(1.1)


# --- at COMMIT ---


@pytest.mark.parametrize("cut", ["before", "answer", "silently"])
def test_A20_a_connection_lost_in_a_commit_is_looked_up(tmp_path: Path, postgres: Server, wire: Wire, cut: Cut) -> None:
    """A step's commit, S01's compare-and-set: repeated blindly it would be "fenced" by itself, or be lost."""

    async def main() -> None:
        store = _by(wire, tmp_path)
        worker, run, ready = await started(store, "a", "b: a")
        await store.claim(claim(ready["a"], worker))
        _quiet(postgres)
        wire.cut = cut
        result = await store.commit(Commit(ready["a"], artifact("v"), children=("b",)))
        assert wire.has_cut()
        assert result.outcome == "committed"
        assert [dispatch.step for dispatch in result.ready] == ["b"]
        assert [v.version for v in await store.versions(run.id, "a")] == [1]
        assert len(await store.attempts(run.id, "b")) == 1
        await store.close()

    asyncio.run(main())


def test_what_was_committed_is_not_committed_again(tmp_path: Path, postgres: Server, wire: Wire) -> None:
    """An insert without any fence: only the look-up keeps it from happening twice."""

    async def main() -> None:
        store = _by(wire, tmp_path)
        for cut in ("before", "answer", "silently"):
            _quiet(postgres)
            before = wire.commits
            wire.cut = cut
            await store.add_message("s", "user", cut)
            assert wire.commits - before == (1 if cut == "answer" else 2)
        await store.close()

    asyncio.run(main())
    assert raw(tmp_path, "SELECT seq, message FROM message ORDER BY seq") == [
        (1, "before"),
        (2, "answer"),
        (3, "silently"),
    ]


@pytest.mark.parametrize("how", ["checkpoint", "restart"])
def test_what_the_server_cannot_know_is_said(tmp_path: Path, postgres: Server, wire: Wire, how: str) -> None:
    """After a crash the number of a lost transaction may belong to another one: then its outcome proves nothing.

    A crash ends in a checkpoint, and so does each test here; a restart gives the server a new life.
    """

    async def main() -> None:
        store = _by(wire, tmp_path)
        real = store_server.Server._outcome
        asked: list[Any] = []

        def after_it(self: store_server.Server, mark: Any) -> Any:
            asked.append(mark)
            if len(asked) > 1:
                return real(self, mark)
            if how == "restart":
                postgres.restart()
            else:
                postgres.admin("postgres", "CHECKPOINT")
            return real(self, mark)

        _quiet(postgres)
        store_server.Server._outcome = after_it  # type: ignore[method-assign]
        try:
            wire.cut = "answer"
            with pytest.raises(StoreError, match="in the middle of a commit") as error:
                await store.add_message("s", "user", "hello")
            assert error.value.exit_code == 8
            assert "resume" in (error.value.hint or "")
        finally:
            store_server.Server._outcome = real  # type: ignore[method-assign]
        await store.close()

    asyncio.run(main())
    assert raw(tmp_path, "SELECT message FROM message") == [("hello",)]


def test_a_number_that_the_server_has_not_reached_was_lost_with_its_last_life(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        database = store._database
        assert isinstance(database, store_server.Server)
        mark = store_server._Mark("4294967290", "2026-01-01T00:00:00Z", "then")
        assert database._outcome(mark)[0] == "aborted"

    using(tmp_path, body)


# --- before COMMIT ---


def _ended(database: str, postgres: Server) -> None:
    """All connections of the store are ended by the server, as in a restart or a failover."""
    ours = "datname = %s AND application_name = 'orchestrator'"
    postgres.admin("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}", [database])


def test_idle_connections_that_were_ended_are_replaced(tmp_path: Path, postgres: Server) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        for _ in range(3):
            await asyncio.gather(*(store.run(run.id) for _ in range(8)))  # all connections are open
            _ended(databases.name(file(tmp_path)), postgres)
            await asyncio.gather(store.run(run.id), store.steps(run.id), store.attempts(run.id, "a"))
            _ended(databases.name(file(tmp_path)), postgres)
            await store.heartbeat(worker)
        assert await store.claim(claim(ready["a"], worker))

    using(tmp_path, body)


def test_a_transaction_whose_connection_was_ended_is_run_again(tmp_path: Path, postgres: Server) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> str:
        tries.append(1)
        if len(tries) < 3:
            _ended(databases.name(file(tmp_path)), postgres)
        from orchestrator.store import workers

        return workers.register(tx)

    async def body(store: Store) -> None:
        worker = await store._writer.write("register", work)
        assert raw(tmp_path, "SELECT id FROM worker") == [(worker,)]

    using(tmp_path, body)
    assert len(tries) == 3


def test_a_server_that_restarts_is_waited_for(tmp_path: Path, postgres: Server) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await store.claim(claim(ready["a"], worker))
        gone, begun = threading.Event(), threading.Event()

        def meanwhile() -> None:
            gone.set()
            begun.wait(60)

        restarting = asyncio.ensure_future(asyncio.to_thread(postgres.restart, meanwhile))
        await asyncio.to_thread(gone.wait, 60)
        committing = asyncio.ensure_future(store.commit(Commit(ready["a"], artifact())))
        await asyncio.sleep(0)  # whenever it comes to the server: all that was open is closed
        begun.set()
        result = await committing
        assert result.outcome == "committed"
        assert len(await store.versions(run.id, "a")) == 1
        await restarting

    using(tmp_path, body)


def test_a_server_that_stays_away_is_one_sentence(tmp_path: Path, postgres: Server, wire: Wire) -> None:
    async def main() -> None:
        store = _by(wire, tmp_path, busy_timeout=0.5)
        await store.register_worker()
        wire.target = "/tmp/no-such-socket"
        _ended(databases.name(file(tmp_path)), postgres)
        for asked in (store.register_worker, store.runs):
            with pytest.raises(StoreError, match="cannot be reached") as error:
                await asked()
            assert error.value.exit_code == 8
        await store.close()

    asyncio.run(main())


# --- transactions that the server undoes ---


def test_a_deadlock_is_resolved_inside_the_store(tmp_path: Path) -> None:
    """Two units that take two rows in opposite orders, both inside at once: one is undone and run again."""
    meeting = threading.Barrier(2)
    tries: list[str] = []

    def taking(first: str, second: str) -> Callable[[Tx], str]:
        def work(tx: Tx) -> str:
            from orchestrator.store import runs

            tries.append(first)
            runs.lock(tx, first)
            if tries.count(first) == 1:
                meeting.wait(20)
            runs.lock(tx, second)
            return first

        return work

    async def body(store: Store) -> None:
        one, two = (await started(store, "a"))[1].id, (await started(store, "a"))[1].id
        both = [store._writer.write("x", taking(one, two)), store._writer.write("y", taking(two, one))]
        assert await asyncio.gather(*both) == [one, two]
        assert len(tries) == 3

    using(tmp_path, body)


@pytest.mark.parametrize("error", [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected])
def test_what_the_server_rolled_back_for_others_is_run_again(tmp_path: Path, error: type[psycopg.Error]) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> int:
        tries.append(1)
        if len(tries) < 4:
            raise error("try again")
        return len(tries)

    async def body(store: Store) -> None:
        assert await store._writer.write("x", work) == 4

    using(tmp_path, body)


def test_a_lock_that_lasts_fails_the_write_and_not_the_store(tmp_path: Path, postgres: Server) -> None:
    async def main() -> None:
        store = opened(tmp_path, busy_timeout=0.3)
        _, run, _ = await started(store, "a")
        with psycopg.connect(postgres.address(databases.name(file(tmp_path)))) as other:
            other.execute("SELECT 1 FROM run FOR UPDATE")
            with pytest.raises(StoreError, match="locked"):
                await store.adopt_run(run.id, await store.register_worker(), plan("a"))
            assert (await store.run(run.id)).number == 1  # looking waits for nobody
        await store.adopt_run(run.id, await store.register_worker(), plan("a"), take_over=True)
        await store.close()

    asyncio.run(main())


def test_a_refused_statement_is_no_reason_to_try_again(tmp_path: Path) -> None:
    tries: list[int] = []

    def work(tx: Tx) -> None:
        tries.append(1)
        raise psycopg.errors.UniqueViolation("twice")

    async def body(store: Store) -> None:
        with pytest.raises(psycopg.errors.UniqueViolation):
            await store._writer.write("x", work)

    using(tmp_path, body)
    assert len(tries) == 1
