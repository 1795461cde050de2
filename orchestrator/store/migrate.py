"""The schema's generations. One history, inside the package, run without any configuration at the user's.

A database that is current is recognised by its version row alone, without alembic: that is nearly every opening. Only
a new or an older one is migrated, under an exclusive lock, after a backup through the database's own API (a copy of
the file would miss what still stands in the WAL). A newer one is refused: an old program must not write into it (S30).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine

from orchestrator.errors import StoreError
from orchestrator.store import sqlite

HEAD: Final = "0001"  # the newest revision of this package; a test compares it with the history


def current(connection: Connection) -> str | None:
    """The database's revision; None for one without tables. Raises StoreError for somebody else's database."""
    tables = {row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if sqlite.foreign(tables):
        raise StoreError(
            f"the database {connection.engine.url.database} belongs to another program: it has tables, but none of "
            "Orchestrator's",
            hint="choose another file with --db URL or ORCH_DB",
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
            revision = current(connection)  # again, now that nobody else can migrate
            if revision == HEAD:
                return None
            _refuse_newer(revision, path)
            backup = back_up(path, revision, now) if revision else None
            upgrade(connection)
            _check_references(connection, path)
        return backup


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
    try:
        row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return row[0] if row else None


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

    command.upgrade(configuration(connection), HEAD)


def revisions() -> tuple[str, ...]:
    """The known revisions, oldest first."""
    from alembic.script import ScriptDirectory

    found = ScriptDirectory.from_config(configuration()).walk_revisions()
    return tuple(reversed([script.revision for script in found]))


def _refuse_newer(revision: str | None, path: Path) -> None:
    if revision is not None and revision not in revisions():
        raise StoreError(
            f"the database {path} is of a newer version of Orchestrator (schema {revision}; this one knows {HEAD})",
            hint="update Orchestrator, or choose another database with --db URL or ORCH_DB",
            code="store_newer",
        )


def back_up(path: Path, revision: str, now: datetime) -> Path:
    """A complete copy beside the database, readable by its owner only, named after its schema and the time."""
    target = path.with_name(f"{path.name}.{revision}.{now:%Y%m%dT%H%M%S%f}.bak")
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source, copy = sqlite3.connect(path), sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()
    return target


def _check_references(connection: Connection, path: Path) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise StoreError(
            f"the database {path} could not be migrated: {len(broken)} rows refer to nothing; it is unchanged",
            hint="restore a backup, or report this with the output of `orch doctor`",
        )
