"""The database attacked from outside: its place, its file, its generation (S29, S30), and each statement of what is
committed together (S03). SQLite in a file: what a server's operator guards is not here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store, filesystems, migrate, open_store
from orchestrator.store.records import Fenced
from orchestrator.values import Commit, CommitResult, ErrorRecord, Scope, ToolCall, ToolOutput
from tests.store_kit import (
    artifact,
    claim,
    done,
    event,
    new_run,
    opened,
    plan,
    raw,
    sent,
    started,
    thread,
    using,
    write_cursor,
)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _open(path: Path, **more: Any) -> None:
    asyncio.run(open_store(f"sqlite:///{path}", Scope(), **more).close())


def _refused(path: Path, **more: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        _open(path, **more)
    assert caught.value.exit_code == 8
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value


# --- where it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a?b=c&mode=memory", "50% off%41", "#x", "a b", "é\u202e", "a\nb", "\x1b[2J", "~", "-rf", "x;--", "'\"`$(id)"],
)
def test_S30_a_folder_of_any_name_is_that_folder(tmp_path: Path, name: str) -> None:
    """A path inside of a URL was read as one: behind `?` options began, and the file stood elsewhere."""
    _open(tmp_path / name / ".orch" / "orch.db")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / ".orch" / "orch.db").stat().st_size > 0
    _open(tmp_path / name / ".orch" / "orch.db", create=False)


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / {home} rw,relatime - nfs4 server:/export rw,vers=4.2
31 30 0:41 / {home}/local\\040disk rw - xfs /dev/vdb rw
32 22 0:42 / {home}/cloud rw shared:7 master:1 - fuse.sshfs me@host: rw
33 22 0:43 / {home}/cloud/over rw - tmpfs none rw
34 22 0:44 / {home}/smb rw - cifs //server/share rw
a line of another kind
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the test's own folder stood on a network, and other file systems in it."""
    home = tmp_path.resolve() / "home"
    home.mkdir()
    (tmp_path / "mountinfo").write_text(MOUNTS.format(home=home))
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "mountinfo")
    return home


@pytest.mark.parametrize(
    ("place", "kind"),
    [("", "nfs4"), ("deep/er", "nfs4"), ("cloud/x", "fuse.sshfs"), ("smb", "cifs"), ("cloudy", "nfs4")],
)
def test_S30_a_network_file_system_is_refused_and_nothing_is_made(mounts: Path, place: str, kind: str) -> None:
    error = _refused(mounts / place / "new" / "orch.db")
    assert f"on a network file system ({kind})" in error.message
    assert "--db URL" in (error.hint or "")
    assert list(mounts.iterdir()) == []


@pytest.mark.parametrize("place", ["local disk", "cloud/over"])
def test_S30_a_disk_below_a_network_file_system_is_fine(mounts: Path, place: str) -> None:
    file = mounts / place / ".orch" / "orch.db"
    _open(file)
    assert file.is_file()


def test_S30_a_link_to_a_network_file_system_is_seen_through(mounts: Path, tmp_path: Path) -> None:
    (tmp_path / "project").symlink_to(mounts)
    assert "network" in _refused(tmp_path / "project" / ".orch" / "orch.db").message


def test_S30_where_the_system_does_not_tell_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "nowhere")
    assert filesystems.kind_of(tmp_path) is None
    _open(tmp_path / "orch.db")


def test_S24_a_project_that_comes_with_links_writes_nowhere_else(tmp_path: Path) -> None:
    """A clone with `.orch` as a link would have its user keep runs, and close folders, somewhere else."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    for target in (elsewhere, tmp_path / "nowhere"):
        project = tmp_path / f"to-{target.name}"
        project.mkdir()
        (project / ".orch").symlink_to(target)
        assert "symbolic link" in _refused(project / ".orch" / "orch.db").message
    (tmp_path / "own" / ".orch").mkdir(parents=True)
    for target in (elsewhere / "their.db", tmp_path / "nowhere.db"):
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "own" / ".orch" / "orch.db").unlink()
        (tmp_path / "own" / ".orch" / "orch.db").symlink_to(target)
        assert "symbolic link" in _refused(tmp_path / "own" / ".orch" / "orch.db").message
    assert list(elsewhere.iterdir()) == []
    assert _mode(elsewhere) == 0o755
    assert not (tmp_path / "nowhere").exists()
    assert not (tmp_path / "nowhere.db").exists()


def test_S29_an_own_folder_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    """As a clone, an archive or an older program may have left it."""
    folder = tmp_path / ".orch"
    folder.mkdir()
    folder.chmod(0o777)
    before = os.umask(0)
    try:
        _open(folder / "orch.db")
    finally:
        os.umask(before)
    assert (_mode(folder), _mode(folder / "orch.db")) == (0o700, 0o600)
    assert (folder / ".gitignore").read_text() == "*\n"


def test_an_own_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".orch").write_text("mine")
    assert "cannot be opened" in _refused(tmp_path / ".orch" / "orch.db").message
    assert (tmp_path / ".orch").read_text() == "mine"


def test_S24_what_stands_beside_the_tables_of_a_foreign_file_is_not_trusted(tmp_path: Path) -> None:
    """A database may come with a project: its views and triggers may use nothing that could reach out of it."""

    async def body(store: Store) -> None:
        assert write_cursor(store).execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert await store.runs() == ()

    using(tmp_path, body)


# --- what becomes of it while it is open ------------------------------------------------------------------------------


def _moved(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def _deleted(file: Path) -> None:
    file.unlink()


def _replaced(file: Path) -> None:
    _deleted(file)
    file.write_bytes(b"")


@pytest.mark.parametrize("how", [_moved, _deleted, _replaced])
def test_a_database_that_is_taken_away_is_heard_of(tmp_path: Path, how: Callable[[Path], None]) -> None:
    """Writes would go on into a file that nobody sees any more, and be lost with the process."""

    async def main() -> None:
        store = opened(tmp_path)
        await started(store, "a")
        how(tmp_path / ".orch" / "orch.db")
        with pytest.raises(StoreError, match="moved, deleted or replaced") as caught:
            await started(store, "b")
        assert caught.value.code == "store_moved"
        await store.close()

    asyncio.run(main())


def test_a_database_that_is_put_back_is_the_same_again(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        await started(store, "a")
        file = tmp_path / ".orch" / "orch.db"
        file.rename(file.with_name("aside"))
        with pytest.raises(StoreError, match="moved"):
            await store.register_worker()
        file.with_name("aside").rename(file)
        await started(store, "b")
        assert [run.number for run in await store.runs()] == [2, 1]
        await store.close()

    asyncio.run(main())


# --- generations ------------------------------------------------------------------------------------------------------


def _everything(folder: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(folder / ".orch" / "orch.db")) as connection:
        return [line for line in connection.iterdump() if "alembic_version" not in line]


@pytest.mark.parametrize("change", ["UPDATE alembic_version SET version_num = '9999'", "DROP TABLE alembic_version"])
def test_S30_an_old_process_writes_nothing_into_a_new_schema_by_any_door(tmp_path: Path, change: str) -> None:
    """Every method that writes, on a run under way, after another program has migrated the database."""

    async def main() -> None:
        store = opened(tmp_path)
        worker, run, ready = await started(store, "a", "b", "c", inputs={"x": artifact("kept")})
        opening = thread()
        first = sent(opening.id)
        assert await store.claim(claim(ready["a"], worker, thread=opening, sent=first))
        assert await store.claim(claim(ready["b"], worker))
        before = _everything(tmp_path)
        raw(tmp_path, change)
        other = thread()
        doors: list[Coroutine[Any, Any, Any]] = [
            store.register_worker(),
            store.heartbeat(worker),
            store.create_run(new_run("a"), worker),
            store.adopt_run(run.id, worker, plan("a", "b", "c")),
            store.release_run(run.id, worker, "paused"),
            store.set_cap(run.id, Decimal(5)),
            store.claim(claim(ready["c"], worker)),
            store.open_thread(ready["b"], other, sent(other.id)),
            store.sent(ready["a"], sent(opening.id, 2)),
            store.done(ready["a"], done(first)),
            store.tool_started(ready["a"], first.id, ToolCall("t", "look", "{}")),
            store.tool_finished(ready["a"], first.id, "t", ToolOutput("t", "x")),
            store.effect_started(ready["b"], "key"),
            store.effect_finished(ready["b"], "key", b"1"),
            store.commit(Commit(ready["b"], artifact())),
            store.fail(ready["b"], ErrorRecord("x", "x", None)),
            store.wait(ready["b"], ErrorRecord("x", "x", None)),
            store.restart(ready["b"], "why"),
            store.cancel_attempt(ready["b"]),
            store.settle(run.id, "a", "head"),
            store.decide_tool(run.id, "t", "retry", None),
            store.decide_effect(run.id, "key", "retry", None),
            store.edit(run.id, "x", None, 1, artifact("new")),
            store.add_message("s", "user", "hello"),
        ]
        for door in doors:
            with pytest.raises(StoreError, match="migrated by another version") as caught:
                await door
            assert caught.value.exit_code == 8
        assert _everything(tmp_path) == before
        await store.close()

    asyncio.run(main())


def test_S30_an_old_process_that_reads_a_new_schema_says_so(tmp_path: Path) -> None:
    """A table that is gone is no bug then."""

    async def main() -> None:
        store = opened(tmp_path)
        _, run, _ = await started(store, "a")
        raw(tmp_path, "ALTER TABLE call RENAME TO calls")
        with pytest.raises(Exception, match="no such table") as bug:
            await store.steps(run.id)
        assert not isinstance(bug.value, StoreError), "with tables of this generation it is one"
        raw(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(StoreError, match="migrated by another version"):
            await store.steps(run.id)
        await store.close()

    asyncio.run(main())


def test_S30_half_a_backup_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    using(tmp_path, lambda store: started(store, "a"))
    connect = sqlite3.connect

    class Full:
        """A disk that is full when the copy is written."""

        def __init__(self, path: Path) -> None:
            self.real = connect(path)

        def backup(self, target: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        def close(self) -> None:
            self.real.close()

    monkeypatch.setattr(sqlite3, "connect", Full)
    with pytest.raises(sqlite3.OperationalError):
        migrate.back_up(tmp_path / ".orch" / "orch.db", "0001", datetime(2026, 1, 1, tzinfo=UTC))
    assert list(tmp_path.rglob("*.bak")) == []


# --- S03: units that are committed together ---------------------------------------------------------------------------


class Failing:
    """A cursor that fails at one statement of one unit. `roll_back`: as SQLite does where the disk is full, it takes
    the whole transaction with it."""

    def __init__(self, cursor: sqlite3.Cursor, at: int, roll_back: bool) -> None:
        self._cursor, self._at, self._roll_back = cursor, at, roll_back
        self.armed, self.seen, self.failed = False, 0, False

    def _count(self, sql: str) -> None:
        self.armed = self.armed and not sql.startswith("RELEASE")  # the unit has ended
        if not self.armed:
            return
        if self.seen == self._at:
            self.failed, self.armed = True, False
            if self._roll_back:
                self._cursor.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        self.seen += 1

    def execute(self, sql: str, *parameters: Any) -> Any:
        self._count(sql)
        return self._cursor.execute(sql, *parameters)

    def executemany(self, sql: str, rows: Any) -> Any:
        self._count(sql)
        return self._cursor.executemany(sql, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


@contextlib.contextmanager
def _failing(store: Store, at: int, roll_back: bool) -> Iterator[Failing]:
    connection = store._database.connection  # type: ignore[attr-defined]
    real = connection._cursor
    failing = Failing(real, at, roll_back)
    connection._cursor = failing
    try:
        yield failing
    finally:
        connection._cursor = real


async def _together(store: Store, at: int, which: int, roll_back: bool) -> tuple[list[Any], bool]:
    """Three steps' commits in one transaction; one statement of one of them fails. Results, and whether it did."""
    worker, _, ready = await started(store, "a", "b", "c", "d: a b c")
    for name in "abc":
        assert await store.claim(claim(ready[name], worker))
    gate, begun = threading.Event(), threading.Event()
    with _failing(store, at, roll_back) as failing:

        def block(_tx: object) -> None:
            begun.set()
            gate.wait(5)

        blocker = asyncio.ensure_future(store._writer.write("block", block))
        await asyncio.to_thread(begun.wait, 5)
        names = iter("abc")
        real = store._database.connection.savepoint  # type: ignore[attr-defined]

        def savepoint() -> None:
            real()
            failing.armed = next(names) == "abc"[which]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._database.connection, "savepoint", savepoint)  # type: ignore[attr-defined]
            commits = [
                Commit(ready[name], artifact(name), children=("d",), events=(event("step.done", at=name),))
                for name in "abc"
            ]
            together = asyncio.gather(*map(store.commit, commits), return_exceptions=True)
            await asyncio.sleep(0.01)
            gate.set()
            await blocker
            results = await together
    return list(results), failing.failed


@pytest.mark.parametrize("roll_back", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_S03_each_statement_of_each_unit_fails_alone_or_takes_all(tmp_path: Path, which: int, roll_back: bool) -> None:
    """Real commits of siblings. The failing one leaves nothing; the others are whole. Where the database itself undid
    the transaction, all of them heard of it and none is there."""
    at, failures = 0, 0
    while True:
        folder = tmp_path / str(at)
        results, failed = using(folder, lambda store, at=at: _together(store, at, which, roll_back))  # type: ignore[misc]
        states = dict(raw(folder, "SELECT s.name, a.state FROM step s JOIN attempt a ON a.id = s.attempt_id"))
        made = {name for (name,) in raw(folder, "SELECT step FROM artifact")}
        told = {name for (name,) in raw(folder, "SELECT step FROM event WHERE kind = 'step.done'")}
        waits = raw(folder, "SELECT unmet FROM step WHERE name = 'd'")[0][0]
        good = set("abc") if not failed else set() if roll_back else set("abc") - {"abc"[which]}
        assert {name for name, result in zip("abc", results, strict=True) if isinstance(result, CommitResult)} == good
        assert made == told == good
        assert {name for name in "abc" if states[name] == "succeeded"} == good
        assert waits == 3 - len(good)
        assert (using(folder, lambda store: store.check())) == ()
        if not failed:
            break
        failures += 1
        at += 1
    assert failures > 5, "the statements of a commit were really met, one after the other"


def test_S03_a_unit_that_raises_what_no_future_takes_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        def stop(_tx: object) -> None:
            raise StopIteration

        gate = threading.Event()
        blocker = asyncio.ensure_future(store._writer.write("block", lambda tx: gate.wait(5)))
        await asyncio.sleep(0.01)
        both = asyncio.gather(store._writer.write("stop", stop), store.register_worker(), return_exceptions=True)
        await asyncio.sleep(0)
        gate.set()
        await blocker
        first, second = await asyncio.wait_for(both, 5)
        assert isinstance(first, RuntimeError)
        assert isinstance(second, str)

    using(tmp_path, body)


def test_S03_a_fenced_unit_takes_nothing_else_with_it(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a", "b")
        assert await store.claim(claim(ready["a"], worker))
        results = await asyncio.gather(
            store.commit(Commit(ready["b"], artifact("never claimed"))),
            store.commit(Commit(ready["a"], artifact("good"))),
            store.done(ready["b"], done(sent("no thread"))),
            return_exceptions=True,
        )
        assert [getattr(result, "outcome", type(result)) for result in results] == ["fenced", "committed", Fenced]

    using(tmp_path, body)
    assert raw(tmp_path, "SELECT step FROM artifact") == [("a",)]
