"""Opening, migrating, refusing: rights of files (S29), generations of the schema (S30), one sentence per failure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine

from orchestrator.errors import StoreError
from orchestrator.store import gates, migrate, open_store, sqlite, tables
from orchestrator.values import Scope
from tests.store_kit import artifact, file, opened, raw, started, url, using, write_cursor


@contextlib.contextmanager
def _engine(path: Path) -> Iterator[Engine]:
    engine = sqlite.engine(path, begin="IMMEDIATE", synchronous="NORMAL", timeout=5)
    try:
        yield engine
    finally:
        engine.dispose()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def _fill(store: object) -> None:
    await started(store, "a", inputs={"x": artifact("kept")}, message="hello")  # type: ignore[arg-type]


# --- files ---


def test_S29_the_folder_and_its_files_are_the_owners_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:

        async def main() -> None:
            store = opened(tmp_path)
            await _fill(store)
            for name in (".orch", ".orch/orch.db", ".orch/orch.db-wal", ".orch/orch.db-shm"):
                assert _mode(tmp_path / name) == (0o700 if name == ".orch" else 0o600), name
            await store.close()

        asyncio.run(main())
    finally:
        os.umask(before)
    assert (tmp_path / ".orch" / ".gitignore").read_text() == "*\n"


def test_S29_an_existing_file_is_closed_to_others_and_its_folder_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "mine.db"
    path.touch(mode=0o644)

    asyncio.run(open_store(f"sqlite:///{path}", Scope()).close())
    assert _mode(path) == 0o600
    assert _mode(tmp_path) == 0o755
    assert not (tmp_path / ".gitignore").exists()


def _refused(folder_url: str, **more: float) -> StoreError:
    with pytest.raises(StoreError) as caught:
        asyncio.run(open_store(folder_url, Scope(), **more).close())  # type: ignore[arg-type]
    error = caught.value
    assert error.exit_code == 8
    assert error.hint
    assert "\n" not in error.message
    return error


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "cannot be opened" in _refused(f"sqlite:///{tmp_path}/file/orch.db").message
    assert "cannot be opened" in _refused("sqlite:////proc/nowhere/orch.db").message
    (tmp_path / "folder").mkdir()
    assert "folder" in _refused(f"sqlite:///{tmp_path}/folder").message


READ_ONLY = """
import os, sys
from orchestrator.errors import StoreError
from orchestrator.store import open_store
from orchestrator.values import Scope
import orchestrator.store.embedded, orchestrator.store.repository
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    open_store(sys.argv[1], Scope())
except StoreError as error:
    print(error.message, "|", error.hint)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_folder_is_one_sentence(exists: bool) -> None:
    """As another user, who may look but not write; the folder stands where every user may go."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        if exists:
            using(folder, _fill)
            (folder / ".orch" / "orch.db").chmod(0o644)
            (folder / ".orch").chmod(0o755)
        folder.chmod(0o555)
        ran = subprocess.run(
            [sys.executable, "-c", READ_ONLY, url(folder)], capture_output=True, text=True, timeout=60, check=False
        )
        folder.chmod(0o700)
    assert ran.returncode == 8, ran.stderr
    assert ran.stderr == ""
    assert "orch.db" in ran.stdout
    assert "--db URL" in ran.stdout


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("These are my notes, and no database at all. " * 100)
    before = path.read_bytes()
    assert "not a database" in _refused(f"sqlite:///{path}").message
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert "another program" in _refused(f"sqlite:///{path}").message
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("known", ["sqlite://", "sqlite:///:memory:", "postgresql://ana:secret@host/db", "orch.db"])
def test_a_url_of_another_kind_is_refused_without_repeating_its_password(known: str) -> None:
    error = _refused(known)
    assert "secret" not in error.message


@pytest.mark.parametrize("new", [False, True])
def test_a_locked_database_is_one_sentence_when_the_time_for_opening_is_over(tmp_path: Path, new: bool) -> None:
    if not new:
        using(tmp_path, _fill)
    file(tmp_path).parent.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(file(tmp_path), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        if new:
            other.execute("CREATE TABLE t (x)")
        assert "locked" in _refused(url(tmp_path), opening_timeout=0.3, busy_timeout=3600.0).message
        other.execute("ROLLBACK")


def test_a_lock_that_lasts_fails_the_write_and_not_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path, busy_timeout=0.2)
        with contextlib.closing(sqlite3.connect(file(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked"):
                await store.register_worker()
            other.execute("ROLLBACK")
        assert await store.register_worker()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(("patience", "told"), [(0.05, 1), (60.0, 0)])
def test_a_long_wait_for_another_process_is_told_once_and_a_short_one_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, told: int
) -> None:
    """The other lets go only when the wait was told of, or at once where it is not to be."""
    monkeypatch.setattr(sqlite, "PATIENCE_SECONDS", patience)
    heard: list[float] = []

    async def main() -> None:
        connection = sqlite3.connect(file(tmp_path), isolation_level=None, check_same_thread=False)
        with contextlib.closing(connection) as other:

            def waiting(seconds: float) -> None:
                heard.append(seconds)
                other.execute("ROLLBACK")

            store = opened(tmp_path, busy_timeout=30.0, waiting=waiting)
            other.execute("BEGIN IMMEDIATE")
            if not told:
                asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")
            assert await store.register_worker()
            await store.close()

    using(tmp_path, _fill)
    asyncio.run(main())
    assert len(heard) == told
    assert all(0 < seconds < 30 for seconds in heard)


def test_looking_at_a_busy_database_waits_for_nobody(tmp_path: Path) -> None:
    """Another process is writing: opening and reading go on beside it."""
    using(tmp_path, _fill)
    with contextlib.closing(sqlite3.connect(file(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        async def main() -> None:
            store = opened(tmp_path, opening_timeout=0.2)
            assert [run.number for run in await store.runs()] == [1]
            await store.close()

        asyncio.run(main())
        other.execute("ROLLBACK")


def test_durability_and_references_are_on(tmp_path: Path) -> None:
    for synchronous, value in (("FULL", 2), ("NORMAL", 1)):

        async def main(synchronous: str = synchronous, value: int = value) -> None:
            store = opened(tmp_path, synchronous=synchronous)
            cursor = write_cursor(store)
            found = {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")}
            assert found == {"synchronous": value, "foreign_keys": 1}
            assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            await store.close()

        asyncio.run(main())


# --- generations ---


def test_S30_the_constant_is_the_newest_revision() -> None:
    assert migrate.revisions()[-1] == migrate.HEAD


def test_S30_models_and_migrations_agree(tmp_path: Path) -> None:
    with _engine(tmp_path / "a.db") as engine, engine.connect() as connection:
        with connection.begin():
            migrate.upgrade(connection)
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []


def test_what_waits_is_found_by_an_index_and_not_among_all_that_ever_ran(tmp_path: Path) -> None:
    """`orch inbox`, over all runs: it begins with the attempts that wait, of which there are few."""
    with _engine(tmp_path / "a.db") as engine, engine.connect() as connection, connection.begin():
        migrate.upgrade(connection)
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as plain:
        scope = {"tenant": "-", "account": "-", "subject": "-"}
        plan = [row[3] for row in plain.execute("EXPLAIN QUERY PLAN " + gates.WAITING.text, scope)]
    assert plan[0] == "SCAN a USING INDEX ix_attempt_waiting", plan
    assert [line.split(" USING ")[0] for line in plan[1:3]] == ["SEARCH s", "SEARCH r"], plan


def test_S30_up_and_down_and_up_again(tmp_path: Path) -> None:
    def schema() -> list[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            query = "SELECT name, sql FROM sqlite_master WHERE name <> 'alembic_version' ORDER BY name"
            return [row for row in connection.execute(query).fetchall() if "alembic" not in row[0]]

    with _engine(tmp_path / "a.db") as engine, engine.connect() as connection:
        with connection.begin():
            migrate.upgrade(connection)
        first = schema()
        with connection.begin():
            command.downgrade(migrate.configuration(connection), "base")
        assert schema() == []
        with connection.begin():
            migrate.upgrade(connection)
        assert schema() == first
        assert len(first) > 16


def test_S30_a_current_database_is_opened_without_alembic(tmp_path: Path) -> None:
    using(tmp_path, _fill)
    program = (
        "import sys; from orchestrator.store import open_store; from orchestrator.values import Scope\n"
        f"open_store({url(tmp_path)!r}, Scope()); print('alembic' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False"
    assert list(tmp_path.rglob("*.bak")) == []


def test_the_package_itself_loads_no_database_library() -> None:
    program = (
        "import sys; import orchestrator.store, orchestrator.store.records\n"
        "print([name for name in ('sqlalchemy', 'sqlmodel', 'alembic', 'sqlite3') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A filled database of the present schema, and a history that has gone one revision further."""
    using(tmp_path, _fill)
    versions = tmp_path / "history" / "versions"
    versions.mkdir(parents=True)
    shipped = Path(migrate.__file__).parent / "migrations"
    for script in (*shipped.glob("*.*"), *(shipped / "versions").glob("*.py")):
        (versions.parent / script.relative_to(shipped)).write_text(script.read_text())
    (versions / "next.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision, down_revision, branch_labels, depends_on = 'next', {migrate.HEAD!r}, None, None\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('session') as table:\n"
        "        table.add_column(sa.Column('colour', sa.Text(), nullable=False, server_default='blue'))\n"
        "        table.alter_column('name', new_column_name='title')\n"
        "def downgrade():\n    pass\n"
    )
    real = migrate.configuration

    def configuration(connection: object = None) -> object:
        config = real(connection)  # type: ignore[arg-type]
        config.set_main_option("script_location", str(versions.parent))
        return config

    monkeypatch.setattr(migrate, "configuration", configuration)
    monkeypatch.setattr(migrate, "HEAD", "next")
    return tmp_path


def test_S30_a_backup_is_made_before_a_migration(older: Path) -> None:
    """Through the database's own API: what still stands in the WAL is in it."""
    with contextlib.closing(sqlite3.connect(file(older), isolation_level=None)) as other:
        other.execute("PRAGMA wal_autocheckpoint=0")
        other.execute("UPDATE message SET message = 'only in the WAL'")
        asyncio.run(opened(older).close())
    (backup,) = older.rglob("*.bak")
    assert backup.parent == file(older).parent
    assert _mode(backup) == 0o600
    assert backup.name.startswith("orch.db.0001.")
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert connection.execute("SELECT message FROM message").fetchall() == [("only in the WAL",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw(older, "SELECT version_num FROM alembic_version") == [("next",)]
    assert raw(older, "SELECT title, colour FROM session") == [("session-1", "blue")]
    assert raw(older, "PRAGMA foreign_key_check") == []


def test_S30_several_processes_migrate_once(older: Path) -> None:
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            asyncio.run(opened(older).close())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(older.rglob("*.bak"))) == 1


def test_S30_a_failed_migration_leaves_the_database_as_it_was(older: Path) -> None:
    script = older / "history" / "versions" / "next.py"
    failing = script.read_text().replace("def downgrade", "    raise OSError(28, 'No space left')\ndef downgrade")
    script.write_text(failing)
    with pytest.raises(StoreError, match="No space left"):
        opened(older)
    assert raw(older, "SELECT version_num FROM alembic_version") == [("0001",)]
    assert raw(older, "SELECT name FROM session") == [("session-1",)]


def test_S30_a_newer_database_is_refused(tmp_path: Path) -> None:
    using(tmp_path, _fill)
    raw(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    error = _refused(url(tmp_path))
    assert "newer" in error.message
    assert "9999" in error.message
    assert "update" in (error.hint or "").lower()
    assert raw(tmp_path, "SELECT COUNT(*) FROM run") == [(1,)]
    assert list(tmp_path.rglob("*.bak")) == []


def test_S30_an_old_process_does_not_write_into_a_new_schema(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        await store.register_worker()
        raw(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(StoreError, match="migrated by another version"):
            await store.register_worker()
        await store.close()

    asyncio.run(main())
    assert raw(tmp_path, "SELECT COUNT(*) FROM worker") == [(1,)]


def test_an_opening_that_fails_leaves_no_open_files(tmp_path: Path) -> None:
    using(tmp_path, _fill)
    raw(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError):
        opened(tmp_path)
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and _is_open(fd)]
    assert [name for name in held if str(tmp_path) in name] == []


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")
