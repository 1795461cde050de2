"""The schema's generations. One history, inside the package, run without any configuration at the user's.

A database that is current is recognised by its version row alone, without alembic: that is nearly every opening. Only
a new or an older one is migrated, in one transaction under an exclusive lock. A newer one is refused: an old program
must not write into it (S30).

A file is backed up first, through the database's own API (a copy of the file would miss what still stands in the WAL).
A server is not: its backups are its operator's, who has better means than a client; a migration that fails is undone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, inspect

from orchestrator.errors import StoreError
from orchestrator.store import guard, sqlite
from orchestrator.store.database import missing

LOCK: Final = 0x6F726368  # "orch": the advisory lock of a migration on a server
HEAD: Final = "0001"  # the newest revision of this package; a test compares it with the history


def current(connection: Connection, place: str, hint: str) -> str | None:
    """The database's revision; None for one without tables. Raises StoreError for somebody else's database."""
    tables = set(inspect(connection).get_table_names())
    if sqlite.foreign(tables):
        raise StoreError(
            f"the database {place} belongs to another program: it has tables, but none of Orchestrator's", hint=hint
        )
    if "alembic_version" in tables:
        row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
        return row[0] if row else None
    return None


def bring_up_to_date(engine: Engine, path: Path, now: datetime) -> Path | None:
    """Migrate if there is anything to migrate; the backup, if one was made. `engine` begins IMMEDIATE."""
    with engine.connect() as connection:
        if _peek(connection) == HEAD:
            return None
        with _references_unchecked(connection), connection.begin():
            # Again, now that nobody else can migrate:
            revision = current(connection, str(path), "choose another file with --db URL or ORCH_DB")
            if revision == HEAD:
                return None
            _refuse_newer(revision, str(path))
            backup = back_up(path, revision, now) if revision else None
            upgrade(connection)
            _check_references(connection, path)
        return backup


def server_up_to_date(engine: Engine, place: str, create: bool = True) -> None:
    """Make or migrate the tables on a server if there is anything to do; of several processes, one does."""
    with engine.connect().execution_options(begin="BEGIN") as connection:
        if _peek_server(connection, place) == HEAD:
            return
        with connection.begin():
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
            own = "give Orchestrator a database of its own (createdb), or a schema: …?options=-csearch_path%3Dorch"
            revision = current(connection, place, own)
            if revision is None and not create:
                raise missing(place)
            if revision != HEAD:
                _refuse_newer(revision, place)
                upgrade(connection)


def _peek_server(connection: Connection, place: str) -> str | None:
    """The revision, read outside of any transaction. Raises StoreError for a place where no table of ours can be."""
    raw: Any = connection.connection.driver_connection
    schema, encoding, ours = raw.execute(
        "SELECT current_schema(), current_setting('server_encoding'), to_regclass('alembic_version') IS NOT NULL"
        " AND to_regclass('content') IS NOT NULL AND to_regclass('artifact') IS NOT NULL"
    ).fetchone()
    if schema is None:
        raise StoreError(
            f"the database {place} has no schema that Orchestrator's tables could be in",
            hint="make the schema that the address names: CREATE SCHEMA …",
        )
    if encoding != "UTF8":
        raise StoreError(
            f"the database {place} keeps text as {encoding}, which cannot hold every text",
            hint="make one in UTF-8: createdb --encoding=UTF8 --template=template0 NAME",
        )
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if ours else None
    return row[0] if row else None


@contextmanager
def _references_unchecked(connection: Connection) -> Iterator[None]:
    """Rebuilding a table must not trip over what refers to it. SQLite hears this only outside a transaction, so it is
    said to the driver; all references are checked before the commit instead."""
    raw: Any = connection.connection.driver_connection
    raw.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        raw.execute("PRAGMA foreign_keys=ON")


def _peek(connection: Connection) -> str | None:
    """The revision, read without the write lock that a transaction of this engine would take."""
    raw: Any = connection.connection.driver_connection
    return sqlite.generation(raw.cursor())


def configuration(connection: Connection | None = None) -> Any:
    """Alembic's configuration, complete in memory."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring the schema to `HEAD`, in the transaction that is open."""
    from alembic import command

    connection.execution_options(**{guard.WITHIN: guard.MIGRATION})
    command.upgrade(configuration(connection), HEAD)


def revisions() -> tuple[str, ...]:
    """The known revisions, oldest first."""
    from alembic.script import ScriptDirectory

    found = ScriptDirectory.from_config(configuration()).walk_revisions()
    return tuple(reversed([script.revision for script in found]))


def _refuse_newer(revision: str | None, place: str) -> None:
    if revision is not None and revision not in revisions():
        raise StoreError(
            f"the database {place} is of a newer version of Orchestrator (schema {revision}; this one knows {HEAD})",
            hint="update Orchestrator, or choose another database with --db URL or ORCH_DB",
            code="store_newer",
        )


def back_up(path: Path, revision: str, now: datetime) -> Path:
    """A complete copy beside the database, readable by its owner only, named after its schema and the time."""
    target = path.with_name(f"{path.name}.{revision}.{now:%Y%m%dT%H%M%S%f}.bak")
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
    except BaseException:
        target.unlink(missing_ok=True)  # half a backup is none
        raise
    return target


def _check_references(connection: Connection, path: Path) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise StoreError(
            f"the database {path} could not be migrated: {len(broken)} rows refer to nothing; it is unchanged",
            hint="restore a backup, or report this with the output of `orch doctor`",
        )
