"""Opening a database: which kind it is, its schema, the scope; each failure is one clear sentence.

Opening one that exists and is current reads two rows and imports no alembic.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.clock import Clock
from orchestrator.errors import StoreError
from orchestrator.store.columns import to_micros
from orchestrator.store.database import Database, MakeTx, Opening
from orchestrator.store.scrub import Scrubber
from orchestrator.store.sql import Cursor, Sql, Tx
from orchestrator.values import Scope

_SERVERS: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
_KEY: Final = Sql("SELECT hash_key FROM subject WHERE {scope}")
_SUBJECT: Final = Sql(
    "INSERT INTO subject (tenant, account, subject, hash_key, created_at)"
    " VALUES (:tenant, :account, :subject, :hash_key, :now)"
    " ON CONFLICT (tenant, account, subject) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A database ready for use in one scope, and that scope's key."""

    scope: Scope
    database: Database
    hash_key: bytes


def open_database(
    url: str,
    scope: Scope,
    clock: Clock,
    secrets: Sequence[str],
    options: Opening,
) -> Opened:
    """Raises StoreError for whatever keeps the database from being used."""
    scrubber = Scrubber(secrets)

    def make(cursor: Cursor) -> Tx:
        return Tx(cursor, scope, scrubber, to_micros(clock.now()))

    database = _connected(url, make, clock, options)
    try:
        return Opened(scope, database, _admit(database))
    except BaseException as error:
        database.close()
        explained = database.explain(error)
        if explained is error:
            raise
        raise explained from error


def _connected(url: str, make: MakeTx, clock: Clock, options: Opening) -> Database:
    if url.startswith("sqlite:"):
        from orchestrator.store.embedded import Embedded

        return Embedded(url, make, clock.now(), options)
    if url.startswith(_SERVERS):
        return _server(url, make, options)
    shown = url.split("://")[0]  # the rest may hold a password
    raise StoreError(
        f"a database of the form {shown}:// cannot be used",
        hint="write sqlite:///relative.db, sqlite:////absolute.db or postgresql://user:password@host/name",
    )


def _server(url: str, make: MakeTx, options: Opening) -> Database:
    try:
        from orchestrator.store.server import Server
    except ModuleNotFoundError as missing:
        raise StoreError(
            f"PostgreSQL needs a driver that is not installed ({missing.name})",
            hint="pip install 'step-orchestrator[postgres]'",
        ) from missing
    return Server(url, make, options)


def _admit(database: Database) -> bytes:
    """Make the scope known, once; its key. Reading comes first, so that a look at a busy database waits for no lock."""
    return database.read(_key) or database.write(_new_key)


def _key(tx: Tx) -> bytes | None:
    found = tx.one(_KEY)
    return bytes(found[0]) if found else None


def _new_key(tx: Tx) -> bytes:
    """Of two processes that come at once, one makes the key and the other finds it."""
    tx.run(_SUBJECT, hash_key=os.urandom(32), now=tx.now)
    return bytes(tx.all(_KEY)[0][0])
