"""SQLite in a file: the folder, the file and its rights, one connection that writes and a small pool that reads.

The folder is made 0700 with a `.gitignore` of its own, the file 0600 before SQLite sees it (its WAL inherits that), so
that nothing is readable to others even for a moment (S29).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, cast

from sqlalchemy import Connection

from orchestrator.errors import StoreError
from orchestrator.files import keep_private, private_folder
from orchestrator.store import migrate, sqlite
from orchestrator.store.database import MakeTx, Observer, Opening, missing
from orchestrator.store.filesystems import refuse_network
from orchestrator.store.sql import Cursor, Tx
from orchestrator.store.writer import Writer

T = TypeVar("T")
_PREFIX: Final = "sqlite:///"
_MOST: Final = 20
OWN_FOLDER: Final = ".orch"


class Embedded:
    """A database file of this project, open."""

    connections = sqlite.READERS

    def __init__(
        self,
        url: str,
        make: MakeTx,
        now: datetime,
        options: Opening,
    ) -> None:
        """Raises StoreError for whatever keeps the file from being used."""
        self.path = _path(url)
        self._make = make
        self._timeout = options.busy_timeout
        if not options.create and not self.path.exists():
            raise missing(self.place)
        refuse_network(self.path)
        synchronous, timeout = options.synchronous, options.opening_timeout
        self._writes = sqlite.engine(self.path, begin="IMMEDIATE", synchronous=synchronous, timeout=timeout)
        self._reads = sqlite.engine(self.path, begin="DEFERRED", synchronous=synchronous, timeout=timeout)
        try:
            with _explained(self.path):
                _prepare(self.path)
                migrate.bring_up_to_date(self._writes, self.path, now)
                _check_writable(self.path)
                pooled = self._writes.raw_connection()
                self.connection = sqlite.WriteConnection(pooled, self.path, migrate.HEAD, options, make)
        except BaseException:
            self._dispose()
            raise

    @property
    def place(self) -> str:
        return str(self.path)

    def read(self, work: Callable[[Tx], T]) -> T:
        pooled = self._reads.raw_connection()
        try:
            cursor = cast(Cursor, pooled.cursor())
            cursor.execute("BEGIN", {})
            return work(self._make(cursor))
        finally:
            pooled.close()  # the pool rolls back what is open

    def browse(self, work: Callable[[Connection], T]) -> T:
        with self._reads.connect() as connection, connection.begin():
            return work(connection)

    def write(self, work: Callable[[Tx], T]) -> T:
        tx = self.connection.begin()
        try:
            value = work(tx)
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise
        return value

    def writing(self, threads: ThreadPoolExecutor, observer: Observer | None) -> Writer:
        """The one thread that writes; it needs none of the others."""
        return Writer(self.connection, observer)

    def explain(self, error: BaseException) -> BaseException:
        if "no such" in str(error) and not self._is_current():  # a table that is not there is no bug then
            return sqlite.migrated(self.path)
        return sqlite.explain(error, self.path)

    def _is_current(self) -> bool:
        """Whether the tables are still this program's; asked on a connection of its own, from any thread."""
        with closing(sqlite3.connect(self.path)) as connection:
            return sqlite.generation(connection.cursor()) == migrate.HEAD

    def damage(self, connection: Connection) -> list[str]:
        found = [str(row[0]) for row in connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST})")]
        dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        return [
            *(f"the file is damaged: {line}" for line in found if line != "ok"),
            *(f"a row of {row[0]} refers to a missing row of {row[2]}" for row in dangling),
        ]

    def copy_to(self, target: Path) -> int:
        from orchestrator.store.copying import copy_file

        return copy_file(self.path, target)

    def compact(self) -> tuple[int, int]:
        """Others wait with their writes meanwhile. What stands in the WAL is counted too: it is brought in first."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=self._timeout)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            before = self.path.stat().st_size
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return before, self.path.stat().st_size

    def close(self) -> None:
        self.connection.close()
        self._dispose()

    def _dispose(self) -> None:
        self._writes.dispose()
        self._reads.dispose()


def _path(url: str) -> Path:
    if url == _PREFIX or not url.startswith(_PREFIX) or ":memory:" in url:
        raise StoreError(
            "a database of the form sqlite:// cannot be used",
            hint="write sqlite:///relative.db or sqlite:////absolute.db",
        )
    return Path(url.removeprefix(_PREFIX)).expanduser().absolute()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the database {path} cannot be opened: {error.strerror or error}",
            hint="make the folder writable, or choose another place with --db URL or ORCH_DB",
        ) from error
    except StoreError:
        raise
    except Exception as error:
        explained = sqlite.explain(error, path)
        if explained is error:
            raise
        raise explained from error


def _prepare(path: Path) -> None:
    folder = path.parent
    if folder.name == OWN_FOLDER and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link")
    if folder.name == OWN_FOLDER or not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        private_folder(folder)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise
        keep_private(path)


def _check_writable(path: Path) -> None:
    """Found out now rather than in the middle of a run: SQLite needs the file and, for its WAL, the folder."""
    for needed in (path, path.parent):
        if not os.access(needed, os.W_OK):
            raise PermissionError(13, f"{needed} is not writable")
