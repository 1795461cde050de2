"""Opening a database on a server: its tables made once, refused where they are not ours, one sentence per failure."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine

from orchestrator.errors import StoreError
from orchestrator.store import migrate, open_store, server_engine, tables
from orchestrator.values import Scope
from tests.postgres_kit import PASSWORD, Server
from tests.store_kit import artifact, started

_numbers = count(1)


@pytest.fixture
def empty(postgres: Server) -> Iterator[str]:
    """The name of a database without tables."""
    name = f"empty{next(_numbers)}"
    postgres.make(name)
    yield name
    postgres.drop(name)


@pytest.fixture
def engine(postgres: Server, empty: str) -> Iterator[Engine]:
    made = server_engine.pool(server_engine.address(postgres.url(empty)), 2, 5, 5, "BEGIN")
    yield made
    made.dispose()


def _open(url: str, **more: float) -> None:
    asyncio.run(open_store(url, Scope(), **more).close())  # type: ignore[arg-type]


def _fill(url: str) -> None:
    async def main() -> None:
        store = open_store(url, Scope())
        await started(store, "a", inputs={"x": artifact("kept")}, message="hello")
        await store.close()

    asyncio.run(main())


def _refused(url: str, **more: float) -> StoreError:
    with pytest.raises(StoreError) as caught:
        _open(url, **more)
    error = caught.value
    assert error.exit_code == 8
    assert error.hint
    assert "\n" not in f"{error.message}{error.hint}"
    return error


# --- the schema ---


def test_S30_models_and_migrations_agree_on_a_server(engine: Engine) -> None:
    with engine.connect() as connection:
        with connection.begin():
            migrate.upgrade(connection)
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []


def test_text_is_sorted_by_code_point_whatever_the_servers_language(engine: Engine) -> None:
    """The server of the tests sorts like English: `a` before `B`, and signs as if they were not there."""
    with engine.connect() as connection, connection.begin():
        migrate.upgrade(connection)
        query = "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        ours = f"{query} WHERE table_schema = 'public' AND data_type = 'text'"
        found = connection.exec_driver_sql(ours).fetchall()
        assert len(found) > 100
        assert [row for row in found if row[2] != "C"] == []
        connection.exec_driver_sql("CREATE TEMPORARY TABLE t AS SELECT unnest(ARRAY['a', 'B', '-a']) AS x")
        by_language = connection.exec_driver_sql("SELECT x FROM t ORDER BY x").fetchall()
        assert [name for (name,) in by_language] != sorted(["a", "B", "-a"])


def test_S30_up_and_down_and_up_again_on_a_server(engine: Engine) -> None:
    query = (
        "SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'alembic_version' ORDER BY 1, 2"
    )
    with engine.connect() as connection:

        def schema() -> list[tuple[object, ...]]:
            with connection.begin():
                return [tuple(row) for row in connection.exec_driver_sql(query)]

        with connection.begin():
            migrate.upgrade(connection)
        first = schema()
        with connection.begin():
            command.downgrade(migrate.configuration(connection), "base")
        assert schema() == []
        with connection.begin():
            migrate.upgrade(connection)
        assert schema() == first
        assert len({row[0] for row in first}) > 16


def test_S30_of_several_that_find_an_empty_database_one_makes_the_tables(postgres: Server, empty: str) -> None:
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            _open(postgres.url(empty))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert postgres.admin(empty, "SELECT version_num FROM alembic_version") == [(migrate.HEAD,)]
    assert postgres.admin(empty, "SELECT COUNT(*) FROM subject") == [(1,)]


def test_S30_a_current_database_on_a_server_is_opened_without_alembic(postgres: Server, empty: str) -> None:
    _fill(postgres.url(empty))
    program = (
        "import sys; from orchestrator.store import open_store; from orchestrator.values import Scope\n"
        f"open_store({postgres.url(empty)!r}, Scope()); print('alembic' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False"


@pytest.fixture
def older(postgres: Server, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that leads from a filled database of the present schema to the next one."""
    _fill(postgres.url(empty))
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
    return versions / "next.py"


def test_S30_an_older_database_is_migrated_and_keeps_its_rows(postgres: Server, empty: str, older: Path) -> None:
    _open(postgres.url(empty))
    assert postgres.admin(empty, "SELECT version_num FROM alembic_version") == [("next",)]
    assert postgres.admin(empty, "SELECT title, colour FROM session") == [("session-1", "blue")]


def test_S30_a_failed_migration_leaves_the_server_as_it_was(postgres: Server, empty: str, older: Path) -> None:
    failing = older.read_text().replace("def downgrade", "    op.execute('SELECT 1 / 0')\ndef downgrade")
    older.write_text(failing)
    with pytest.raises(Exception, match="division by zero"):
        _open(postgres.url(empty))
    assert postgres.admin(empty, "SELECT version_num FROM alembic_version") == [("0001",)]
    assert postgres.admin(empty, "SELECT name FROM session") == [("session-1",)]


def _until_one_waits(postgres: Server, database: str) -> None:
    """Until somebody asks this database for a lock that another one has."""
    waiting = (
        "SELECT COUNT(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = %s"
    )
    deadline = time.monotonic() + 60
    while postgres.admin("postgres", waiting, [database]) == [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_S30_a_migration_waits_for_writers_and_they_for_it(
    postgres: Server, empty: str, older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that has seen the old schema commits before it changes; one that comes later is refused."""
    with monkeypatch.context() as earlier:
        earlier.setattr(migrate, "HEAD", "0001")
        store = open_store(postgres.url(empty), Scope())
    inside, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def work(tx: object) -> str:
        inside.set()
        go_on.wait(20)
        seen.append("written")
        return "written"

    def migrated() -> None:
        _open(postgres.url(empty))
        seen.append("moved")

    async def main() -> None:
        writing = asyncio.ensure_future(store._writer.write("slow", work))
        await asyncio.to_thread(inside.wait, 20)
        migrating = asyncio.ensure_future(asyncio.to_thread(migrated))
        await asyncio.to_thread(_until_one_waits, postgres, empty)
        assert seen == []
        go_on.set()
        assert await writing == "written"
        await migrating
        assert seen == ["written", "moved"]
        with pytest.raises(StoreError, match="migrated by another version"):
            await store.register_worker()
        await store.close()

    asyncio.run(main())


def test_S30_a_newer_database_on_a_server_is_refused(postgres: Server, empty: str) -> None:
    _fill(postgres.url(empty))
    postgres.admin(empty, "UPDATE alembic_version SET version_num = '9999'")
    error = _refused(postgres.url(empty))
    assert "newer" in error.message
    assert "9999" in error.message
    assert postgres.admin(empty, "SELECT COUNT(*) FROM run") == [(1,)]


@pytest.mark.parametrize("theirs", ["", "CREATE TABLE alembic_version (version_num text); "])
def test_a_database_of_another_program_on_a_server_is_left_as_it_is(postgres: Server, empty: str, theirs: str) -> None:
    postgres.admin(empty, f"{theirs}CREATE TABLE users (x int)")
    if theirs:
        postgres.admin(empty, f"INSERT INTO alembic_version VALUES ('{migrate.HEAD}')")
    error = _refused(postgres.url(empty))
    assert "another program" in error.message
    assert "search_path" in (error.hint or "")
    tables_now = postgres.admin(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert len(tables_now) == (2 if theirs else 1)


def test_a_schema_of_its_own_beside_another_program(postgres: Server, empty: str) -> None:
    postgres.admin(empty, "CREATE TABLE users (x int)")
    url = postgres.url(empty) + "&options=-csearch_path%3Dorch"
    assert "CREATE SCHEMA" in (_refused(url).hint or "")
    postgres.admin(empty, "CREATE SCHEMA orch AUTHORIZATION app")
    _fill(url)
    assert postgres.admin(empty, "SELECT COUNT(*) FROM orch.run") == [(1,)]


def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Server) -> None:
    name = f"latin{next(_numbers)}"
    provider = " LOCALE_PROVIDER libc" if postgres.has_icu else ""
    options = f"ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0{provider}"
    postgres.admin("postgres", f"CREATE DATABASE {name} OWNER app {options}")
    assert "LATIN1" in _refused(postgres.url(name)).message
    postgres.drop(name)


# --- what goes wrong ---


def test_S29_a_password_opens_the_database_and_is_repeated_nowhere(postgres: Server, empty: str) -> None:
    url = postgres.url_by_password(empty)

    async def main() -> str:
        store = open_store(url, Scope())
        await store.register_worker()
        place = store._database.place
        await store.close()
        return place

    assert asyncio.run(main()) == f"postgresql://127.0.0.1:{postgres.port}/{empty}"


def test_a_wrong_password_is_one_sentence(postgres: Server, empty: str) -> None:
    error = _refused(postgres.url_by_password(empty, PASSWORD + "typo"))
    assert "password" in error.message
    assert "typo" not in f"{error.message}{error.hint}"
    assert PASSWORD not in f"{error.message}{error.hint}"


def test_an_unknown_user_is_one_sentence(postgres: Server) -> None:
    assert "refuses the user" in _refused(postgres.url("postgres").replace("app@", "nobody@")).message


def test_a_statement_that_the_server_ends_is_one_sentence(postgres: Server, empty: str) -> None:
    """A limit of the operator's: the server is there, so it is not said that it cannot be reached."""
    _fill(postgres.url(empty))

    async def main() -> None:
        store = open_store(postgres.url(empty), Scope())

        def slow(tx: Any) -> None:
            tx._cursor.execute("SET LOCAL statement_timeout = 50", {})
            tx._cursor.execute("SELECT pg_sleep(5)", {})

        with pytest.raises(StoreError, match="gave up: canceling statement"):
            await store._writer.write("slow", slow)
        assert await store.register_worker()
        await store.close()

    asyncio.run(main())


def test_a_missing_database_is_one_sentence(postgres: Server) -> None:
    error = _refused(postgres.url("nowhere"))
    assert "nowhere does not exist" in error.message
    assert "createdb" in (error.hint or "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:s3cret-word@127.0.0.1:1/db",
        "postgres://ana:s3cret-word@127.0.0.1:1/db",
        "postgresql+psycopg://ana:s3cret-word@no-such-host.invalid/db",
        "postgresql://ana:s3cret-word@/db?host=/tmp/no-such-folder",
    ],
)
def test_a_server_that_cannot_be_reached_is_one_sentence_at_once(url: str) -> None:
    error = _refused(url)
    assert "cannot be reached" in error.message
    assert "s3cret" not in f"{error.message}{error.hint}"


@pytest.mark.parametrize("url", ["postgresql://ana:s3c/ret@h:port/db", "postgresql://h", "postgresql://"])
def test_an_address_that_is_none_is_one_sentence(url: str) -> None:
    error = _refused(url)
    assert "cannot be read" in error.message
    assert "s3c" not in f"{error.message}{error.hint}"


def test_a_user_without_rights_is_told(postgres: Server, empty: str) -> None:
    postgres.admin(empty, "ALTER SCHEMA public OWNER TO admin")
    postgres.admin(empty, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    postgres.admin(empty, "REVOKE ALL ON SCHEMA public FROM app")
    error = _refused(postgres.url(empty))
    assert "no schema" in error.message or "does not allow" in error.message
    postgres.admin(empty, "GRANT USAGE ON SCHEMA public TO app")
    assert "does not allow" in _refused(postgres.url(empty)).message


def test_a_read_only_server_is_told(postgres: Server, empty: str) -> None:
    _fill(postgres.url(empty))
    postgres.admin(empty, f'ALTER DATABASE "{empty}" SET default_transaction_read_only = on')

    async def main() -> None:
        store = open_store(postgres.url(empty), Scope())
        assert [run.number for run in await store.runs()] == [1]
        with pytest.raises(StoreError, match="read-only"):
            await store.register_worker()
        await store.close()

    asyncio.run(main())


def test_without_the_driver_it_is_said_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from orchestrator.errors import StoreError; from orchestrator.store import open_store\n"
        "from orchestrator.values import Scope\n"
        "try: open_store('postgresql://ana:s3cret@h/db', Scope())\n"
        "except StoreError as error: print(error.exit_code, error.message, error.hint)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.startswith("8 ")
    assert "pip install 'step-orchestrator[postgres]'" in ran.stdout
    assert "s3cret" not in ran.stdout


def test_an_opening_that_fails_leaves_no_connection(postgres: Server, empty: str) -> None:
    postgres.admin(empty, "CREATE TABLE users (x int)")
    _refused(postgres.url(empty))
    left = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'orchestrator'"
    for _ in range(100):
        if postgres.admin("postgres", left, [empty]) == [(0,)]:
            return
        threading.Event().wait(0.05)
    raise AssertionError("a connection is left")
