"""Databases for tests, by the folder they belong to: a file below it, or a database on the tests' own server.

What a test may do to one behind the store's back stands here too: one statement as another program, a copy, all bytes.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from sqlalchemy import Connection, create_engine

from orchestrator.store import migrate
from orchestrator.store.migrate import upgrade as migrated

if TYPE_CHECKING:
    from tests.postgres_kit import Server

Kind = Literal["sqlite", "postgres"]
KINDS: Final = ("sqlite", "postgres")


def on(*kinds: Kind) -> pytest.MarkDecorator:
    """For a test that uses `database` but not on every kind."""
    return pytest.mark.parametrize("database", kinds, indirect=True)


class Databases:
    """The databases of one test. A path like `folder/.orch/orch.db` names one, whatever kind it is of."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self._names: dict[Path, str] = {}
        self._gate = threading.Lock()

    @contextlib.contextmanager
    def on(self, server: Server | None) -> Iterator[None]:
        self.server = server
        try:
            yield
        finally:
            for name in self._names.values():
                if server is not None:
                    server.give_back(name)
            self.server, self._names = None, {}

    def name(self, path: Path) -> str:
        """The name on the server of the database that the path stands for, made if it is new."""
        assert self.server is not None
        with self._gate:
            if path not in self._names:
                self._names[path] = self.server.current()
            return self._names[path]

    def url(self, path: Path) -> str:
        return f"sqlite:///{path}" if self.server is None else self.server.url(self.name(path))

    def raw(self, path: Path, sql: str, *values: object) -> list[Any]:
        """One statement on a connection of its own, with `?` for values, where no reference is checked."""
        if self.server is None:
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                return connection.execute(sql, values).fetchall()
        import psycopg

        with psycopg.connect(self.server.address(self.name(path))) as served:
            served.execute("SET session_replication_role = replica")
            cursor = served.execute(sql.replace("?", "%s"), values or None)
            return cursor.fetchall() if cursor.description else []

    def copy(self, path: Path, target: Path) -> None:
        """A database like another one, which nobody has open."""
        if self.server is None:
            shutil.copyfile(path, target)
            return
        self.server.fill(self.name(target), self.name(path))

    def settled(self, path: Path) -> None:
        """Wait until the server has noticed that a killed process is gone, and has ended what that had begun."""
        assert self.server is not None
        query = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = %s"
        deadline = time.monotonic() + 30
        while self.server.admin("postgres", query, [self.name(path)]) != [(0,)]:
            assert time.monotonic() < deadline, "a connection stays"
            time.sleep(0.01)

    def everything(self, path: Path) -> bytes:
        """All that the database holds: the bytes of its files, or of every row on the server."""
        if self.server is None:
            return b"".join(file.read_bytes() for file in path.parent.iterdir())
        import psycopg

        found: list[bytes] = []
        with psycopg.connect(self.server.address(self.name(path))) as served:
            tables = served.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            for (table,) in tables:
                with served.cursor().copy(f'COPY "{table}" TO STDOUT (FORMAT binary)') as rows:
                    found.extend(bytes(part) for part in rows)
        return b"".join(found)


databases: Final = Databases()


# --- the schema, without its history ----------------------------------------------------------------------------------


def made_at_once(connection: Connection) -> None:
    """What migrations make of a new file, as its statements: most tests need the schema, and not the way to it."""
    if connection.dialect.name != "sqlite" or connection.exec_driver_sql("SELECT 1 FROM sqlite_master").first():
        migrated(connection)
        return
    raw: Any = connection.connection.driver_connection
    for statement in _schema():
        raw.execute(statement)


@functools.cache
def _schema() -> tuple[str, ...]:
    with create_engine("sqlite://").begin() as connection:
        migrated(connection)
        found = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        )
        return (*(row[0] for row in found), f"INSERT INTO alembic_version VALUES ('{migrate.HEAD}')")
