"""PostgreSQL: a bounded pool, transactions side by side, and what to do when a connection is lost.

Writing transactions are READ COMMITTED, and one that changes a run takes the run's row first: what it reads after that
is what the one before it committed (S02). Reading ones see one moment of the database, as on SQLite (REPEATABLE READ).

A transaction that is known not to have committed is run again: one that the server undid for the sake of others, and
one whose connection went before COMMIT was sent. A connection lost in COMMIT itself proves neither. Then the server is
asked what became of that very transaction, by its number; and its word counts only if it has been up since, because a
server that crashed may hand out the number of a lost transaction again. What cannot be known is said, never guessed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection

from orchestrator.errors import StoreError, UsageError
from orchestrator.store import migrate, server_errors
from orchestrator.store.database import MakeTx, Observer, Opening
from orchestrator.store.pooled import PooledWriter
from orchestrator.store.server_engine import NamedCursor, address, pool, shown
from orchestrator.store.sql import Tx

T = TypeVar("T")
CONNECTIONS: Final = 8  # of one process
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_NOT_DURABLE: Final = "SET LOCAL synchronous_commit = off;"
# A writing transaction holds this lock shared and a migration alone: no old program writes into a new schema (S30). The
# version is read after the lock, in a statement of its own, so that what a migration has just committed is seen.
_WRITE: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; {more} SELECT pg_advisory_xact_lock_shared({lock});"
    " SELECT version_num, pg_current_xact_id()::text, now()::text, pg_postmaster_start_time()::text"
    " FROM alembic_version"
)
# A transaction still open after its connection was lost belongs to nobody: it is ended, so that its outcome is final.
_END: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_xid = %(number)s::xid8::xid AND usename = current_user"
)
_OUTCOME: Final = (
    "SELECT pg_xact_status(%(number)s::xid8), pg_postmaster_start_time()::text = %(life)s"
    " AND checkpoint_time < date_trunc('second', %(begun)s::timestamptz) FROM pg_control_checkpoint()"
)


class _Undone(Exception):
    """Nothing of the transaction has happened, and it may well succeed the next time."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class _Mark:
    """A writing transaction as the server knows it: its number, its beginning, and since when the server is up."""

    number: str
    begun: str
    life: str


class _Patience:
    """How long to try again, with pauses that grow and differ, so that those who collided do not meet again."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = 0.005

    def wait(self, error: BaseException) -> None:
        """Raises the error where there is no time left."""
        if time.monotonic() + self._pause > self._deadline:
            raise error
        time.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(1.0, self._pause * 2)


class Server:
    """A database on a server, open. Its patience is for locks of others, and for a server that is away."""

    def __init__(self, url: str, make: MakeTx, options: Opening) -> None:
        """Raises StoreError for whatever keeps the database from being used."""
        where = address(url)
        self.place = shown(where)
        self.connections = CONNECTIONS
        self._make = make
        self._patience = options.busy_timeout
        self._generation = migrate.HEAD
        self._pool = pool(where, CONNECTIONS, options.opening_timeout, self._patience, _READ)
        try:
            migrate.server_up_to_date(self._pool, self.place, options.create)
        except BaseException as error:
            self.close()
            explained = self.explain(error)
            if explained is error:
                raise
            raise explained from error

    def read(self, work: Callable[[Tx], T]) -> T:
        return self._again(lambda: self._read(work))

    def browse(self, work: Callable[[Connection], T]) -> T:
        return self._again(lambda: self._browse(work))

    def write(self, work: Callable[[Tx], T], durable: bool = True) -> T:
        return self._again(lambda: self._write(work, durable))

    def writing(self, threads: ThreadPoolExecutor, observer: Observer | None) -> PooledWriter:
        return PooledWriter(self, threads, observer)

    def explain(self, error: BaseException) -> BaseException:
        return server_errors.explain(error, self.place)

    def damage(self, connection: Connection) -> list[str]:
        """References are the server's to keep, and so are its files."""
        return []

    def copy_to(self, target: Path) -> int:
        raise UsageError(f"{self.place} is on a server, which has its own backups", hint=f"pg_dump writes {target}.")

    def compact(self) -> None:
        """The server vacuums by itself."""

    def close(self) -> None:
        self._pool.dispose()

    # --- one try

    def _again(self, once: Callable[[], T]) -> T:
        patience = _Patience(self._patience)
        while True:
            try:
                return once()
            except _Undone as undone:
                patience.wait(undone.error)

    def _read(self, work: Callable[[Tx], T]) -> T:
        with self._held() as held:
            cursor = held.cursor()
            cursor.execute(_READ)
            return work(self._make(NamedCursor(cursor)))  # what is open is rolled back when the pool gets it back

    def _browse(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._pool.connect() as connection, connection.begin():
                return work(connection)
        except (DBAPIError, psycopg.Error) as error:
            lost = isinstance(error, DBAPIError) and error.connection_invalidated
            if (lost or server_errors.passing(error, None)) and not server_errors.refusal(error):
                raise _Undone(error) from error
            raise

    def _write(self, work: Callable[[Tx], T], durable: bool) -> T:
        with self._held() as held:
            cursor = held.cursor()
            mark = self._begin(cursor, durable)
            value = work(self._make(NamedCursor(cursor)))
            lost = _commit(held, cursor)
        if lost is not None and not self._committed(mark, lost):
            raise _Undone(lost)
        return value

    @contextmanager
    def _held(self) -> Iterator[PoolProxiedConnection]:
        """A connection for one transaction, given back at its end. Raises _Undone for what may pass."""
        connection: Any = None
        try:
            held = self._pool.raw_connection()
            connection = held.driver_connection
            try:
                yield held
            except BaseException as error:
                if server_errors.disconnected(error, connection):
                    held.invalidate(error)
                raise
            finally:
                held.close()
        except (DBAPIError, psycopg.Error) as error:
            if server_errors.passing(error, connection) and not server_errors.refusal(error):
                raise _Undone(error) from error
            raise

    def _begin(self, cursor: Any, durable: bool) -> _Mark:
        """Raises StoreError where a newer program has migrated the database meanwhile (S30)."""
        cursor.execute(_WRITE.format(more="" if durable else _NOT_DURABLE, lock=migrate.LOCK))
        while cursor.nextset():
            pass
        version, *mark = cursor.fetchone() or (None, "", "", "")
        if version != self._generation:
            raise StoreError(
                f"the database {self.place} was migrated by another version of Orchestrator while this one was running",
                hint="start again with the newer version",
            )
        return _Mark(*mark)

    def _committed(self, mark: _Mark, lost: BaseException) -> bool:
        """Whether a transaction whose COMMIT was not answered has happened. Raises StoreError where nobody knows."""
        patience = _Patience(self._patience)
        while True:
            try:
                outcome, same_life = self._outcome(mark)
            except _Undone as undone:
                patience.wait(undone.error)
                continue
            if outcome == "aborted":
                return False
            if outcome == "committed" and same_life:
                return True
            if outcome != "in progress":
                raise _unknown(self.place) from lost
            patience.wait(lost)

    def _outcome(self, mark: _Mark) -> tuple[str | None, bool]:
        """What the server says of a transaction, and whether it has been up since."""
        values = {"number": mark.number, "begun": mark.begun, "life": mark.life}
        with self._held() as held:
            cursor: Any = held.cursor()
            cursor.execute(_END, values)
            try:
                cursor.execute(_OUTCOME, values)
            except psycopg.errors.InvalidParameterValue:
                return "aborted", False  # a number this server has not reached yet: it lost the transaction in a crash
            except psycopg.errors.InsufficientPrivilege:
                return None, False
            found: tuple[str | None, bool] = cursor.fetchone()
            return found


def _commit(held: PoolProxiedConnection, cursor: Any) -> BaseException | None:
    """Commit; the error, if the connection went while doing so."""
    try:
        cursor.execute("COMMIT")
    except psycopg.Error as error:
        if not server_errors.disconnected(error, held.driver_connection):
            raise
        held.invalidate(error)
        return error
    if cursor.statusmessage != "COMMIT":
        raise psycopg.errors.InFailedSqlTransaction("a failed transaction cannot be committed")
    return None


def _unknown(place: str) -> StoreError:
    return StoreError(
        f"the connection to {place} was lost in the middle of a commit, and the server cannot say what became of it",
        hint="resume the run: what was committed is kept, and the rest is done again",
    )
