"""Opening a database: the folder, the file and its rights, the schema, the scope; each failure is one clear sentence.

Opening one that exists and is current reads a row and imports no alembic. The folder is made 0700 with a `.gitignore`
of its own, the file 0600 before SQLite sees it (its WAL inherits that), so that nothing is readable to others even for
a moment (S29).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine

from orchestrator.clock import Clock
from orchestrator.errors import StoreError
from orchestrator.store import migrate, sqlite
from orchestrator.store.columns import to_micros
from orchestrator.store.scrub import Scrubber
from orchestrator.store.sql import Cursor, Sql, Tx
from orchestrator.values import Scope

_PREFIX: Final = "sqlite:///"
_KEY: Final = Sql("SELECT hash_key FROM subject WHERE {scope}")
_SUBJECT: Final = Sql(
    "INSERT INTO subject (tenant, account, subject, hash_key, created_at)"
    " VALUES (:tenant, :account, :subject, :hash_key, :now)"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A database ready for use: engines that begin as their names say, the writing connection, the scope's key."""

    path: Path
    scope: Scope
    clock: Clock
    scrubber: Scrubber
    reads: Engine
    writes: Engine
    writer: sqlite.WriteConnection
    hash_key: bytes

    def transaction(self, cursor: Cursor) -> Tx:
        return Tx(cursor, self.scope, self.scrubber, to_micros(self.clock.now()))


def open_database(
    url: str,
    scope: Scope,
    clock: Clock,
    synchronous: sqlite.Synchronous,
    secrets: Sequence[str],
    opening_timeout: float,
    busy_timeout: float,
) -> Opened:
    """Raises StoreError for whatever keeps the database from being used."""
    path = _path(url)
    scrubber = Scrubber(secrets)
    writes = sqlite.engine(path, begin="IMMEDIATE", synchronous=synchronous, timeout=opening_timeout)
    reads = sqlite.engine(path, begin="DEFERRED", synchronous=synchronous, timeout=opening_timeout)
    try:
        with _explained(path):
            _prepare(path)
            migrate.bring_up_to_date(writes, path, clock.now())
            _check_writable(path)

            def transaction(cursor: Any) -> Tx:
                return Tx(cursor, scope, scrubber, to_micros(clock.now()))

            writer = sqlite.WriteConnection(
                writes.raw_connection(), path, migrate.HEAD, synchronous, busy_timeout, transaction
            )
            key = _admit(writer)
    except BaseException:
        writes.dispose()
        reads.dispose()
        raise
    return Opened(path, scope, clock, scrubber, reads, writes, writer, key)


def _path(url: str) -> Path:
    if not url.startswith(_PREFIX) or url == _PREFIX or ":memory:" in url:
        shown = url.split("://")[0]  # the rest may hold a password
        raise StoreError(
            f"a database of the form {shown}:// cannot be used",
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
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise
        _keep_private(path)


def _keep_private(path: Path) -> None:
    """An older file that others may read, of our own user, is closed to them."""
    state = path.stat()
    if state.st_mode & 0o077 and state.st_uid == os.geteuid():
        path.chmod(state.st_mode & 0o700)


def _check_writable(path: Path) -> None:
    """Found out now rather than in the middle of a run: SQLite needs the file and, for its WAL, the folder."""
    for needed in (path, path.parent):
        if not os.access(needed, os.W_OK):
            raise PermissionError(13, f"{needed} is not writable")


def _admit(writer: sqlite.WriteConnection) -> bytes:
    """Make the scope known, once; its key. Reading comes first, so that a look at a busy database waits for no lock."""
    found = writer.peek().one(_KEY)
    if found is None:
        tx = writer.begin()
        found = tx.one(_KEY)
        if found is None:
            tx.run(_SUBJECT, hash_key=os.urandom(32), now=tx.now)
            found = tx.all(_KEY)[0]
        writer.commit()
    return bytes(found[0])
