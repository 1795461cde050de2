"""SQLite, and only here: how it is opened, how a transaction begins, and what its errors mean.

WAL, so that readers and the one writer do not wait for each other; `synchronous=FULL`, so that a paid answer survives
a power cut; `BEGIN IMMEDIATE` for every write, since a transaction that reads first and then writes fails at once
where another process wrote in between, whatever its timeout. Reads begin deferred and take no write lock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from orchestrator.errors import StoreError
from orchestrator.store import guard
from orchestrator.store.database import Opening
from orchestrator.store.sql import Tx

Synchronous = Literal["FULL", "NORMAL"]
READERS: Final = 4
# A quarter of SQLite's default: a step's commit touches twenty pages of different tables, each written whole. (Measured
# with artifacts of 2 KB: a third of the bytes written; with 20 KB: two fifths; no more processor time in either case.)
PAGE_BYTES: Final = 1024
LOG_BYTES: Final = 4 * 1024 * 1024  # as long as SQLite's own default makes the log with its larger pages
_RETRY_SECONDS: Final = 0.02
PATIENCE_SECONDS = 2.0  # a wait for another process that is longer is told of
_LOCKED: Final = ("locked", "busy")


def engine(path: Path, *, begin: Literal["IMMEDIATE", "DEFERRED"], synchronous: Synchronous, timeout: float) -> Engine:
    """An engine whose transactions begin as said. `timeout` is in seconds, for locks of other processes."""
    made = create_engine(
        URL.create("sqlite", database=str(path)),  # and not a text: a path may hold `?` and `%`
        connect_args={"check_same_thread": False, "timeout": timeout},
        pool_size=READERS,
        max_overflow=0,
        pool_timeout=60,
    )

    @event.listens_for(made, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        log = f"wal_autocheckpoint={LOG_BYTES // PAGE_BYTES}"
        # A file may come from elsewhere, and hold more than tables: views and triggers get nothing that is not theirs.
        own = (f"synchronous={synchronous}", "foreign_keys=ON", "trusted_schema=OFF")
        for pragma in (f"page_size={PAGE_BYTES}", log, *own):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if not foreign({name for (name,) in tables}):
            connection.execute("PRAGMA journal_mode=WAL").fetchall()  # it stands in the file: not in one of others

    guard.watch(made)

    @event.listens_for(made, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(f"BEGIN {begin}")

    return made


def foreign(tables: set[str]) -> bool:
    """Whether tables of these names are somebody else's database, whatever tool it was migrated with."""
    return bool(tables - {"alembic_version"}) and not {"artifact", "content"} <= tables


def explain(error: BaseException, path: Path) -> BaseException:
    """What the database refused, as a StoreError with a way out; anything else as it is."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if not isinstance(cause, sqlite3.DatabaseError) or isinstance(cause, sqlite3.IntegrityError):
        return error
    said = str(cause)
    if any(word in said for word in _LOCKED):
        return StoreError(
            f"the database {path} is locked by another program",
            hint="close the program that holds it, or wait for it, and try again",
            code="store_locked",
        )
    if "not a database" in said or "malformed" in said:
        return StoreError(
            f"{path} is not a database of Orchestrator, or it is damaged: {said}",
            hint="choose another file with --db URL or ORCH_DB, or restore a backup (*.bak beside it)",
        )
    if "readonly" in said or "unable to open" in said:
        return StoreError(
            f"the database {path} cannot be written: {said}",
            hint="make the folder and its files writable, or choose another place with --db URL or ORCH_DB",
        )
    if "full" in said or "disk" in said:
        return StoreError(f"the database {path} cannot be written: {said}", hint="free some space and resume the run")
    return error


def generation(cursor: Any) -> str | None:
    """The revision of the tables; None where there are none."""
    try:
        row = cursor.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return row[0] if row else None


def migrated(path: Path) -> StoreError:
    """What to say where it is not this program's any more."""
    return StoreError(
        f"the database {path} was migrated by another version of Orchestrator while this one was running",
        hint="start again with the newer version",
    )


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path; None for none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


class WriteConnection:
    """The one connection that writes, as the writer thread uses it."""

    def __init__(
        self,
        pooled: PoolProxiedConnection,
        path: Path,
        generation: str,
        options: Opening,
        make: Callable[[Any], Tx],
    ) -> None:
        self._pooled = pooled
        self._cursor = pooled.cursor()
        self._path = path
        self._generation = generation
        self._synchronous: Synchronous = options.synchronous
        self._now_set: Synchronous = options.synchronous
        self._options = options
        self._make = make
        # SQLite itself waits only so long as nobody need hear of it; then we ask again, and say so.
        wait = min(PATIENCE_SECONDS, options.busy_timeout)
        self._cursor.execute(f"PRAGMA busy_timeout={int(wait * 1000)}").fetchall()
        self._file = _identity(path)

    def begin(self, durable: bool = True) -> Tx:
        """Raises StoreError where a newer program has migrated the database meanwhile (S30), or somebody has put
        another file in its place: what went into this one would be seen by nobody."""
        wanted: Synchronous = self._synchronous if durable else "NORMAL"
        if wanted != self._now_set:
            self._cursor.execute(f"PRAGMA synchronous={wanted}")
            self._now_set = wanted
        self._take_lock()
        wrong = self._wrong()
        if wrong is not None:
            self.rollback()
            raise wrong
        return self._make(self._cursor)

    def _take_lock(self) -> None:
        """Wait for another process to let go of the file, not without a word."""
        begun, told = time.monotonic(), False
        while True:
            try:
                self._cursor.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - begun
                left = self._options.busy_timeout - waited
                if left <= 0 or not any(word in str(error) for word in _LOCKED):
                    raise
                if waited >= PATIENCE_SECONDS and not told:
                    told = True
                    self._options.waiting(left)
                time.sleep(_RETRY_SECONDS)

    def _wrong(self) -> StoreError | None:
        if _identity(self._path) != self._file:
            return StoreError(
                f"the database {self._path} was moved, deleted or replaced while this program was running",
                hint="put it back and resume the run: what was committed is in the file that was there",
                code="store_moved",
            )
        return None if generation(self._cursor) == self._generation else migrated(self._path)

    def savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT unit")

    def keep(self) -> None:
        self._cursor.execute("RELEASE unit")

    def undo(self) -> None:
        self._cursor.execute("ROLLBACK TO unit")
        self._cursor.execute("RELEASE unit")

    def commit(self) -> None:
        self._cursor.execute("COMMIT")

    def rollback(self) -> None:
        if self._pooled.driver_connection is not None and self._pooled.driver_connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        self._pooled.close()

    def explain(self, error: BaseException) -> BaseException:
        return explain(error, self._path)
