"""How psycopg is used: the address in parts, a pool whose connections leave BEGIN to us, statements with names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from orchestrator.errors import StoreError
from orchestrator.store import guard

_NAME: Final = re.compile(r":([a-z_][a-z0-9_]*)")
# A connection through a firewall that has dropped it must not hang for the two hours that TCP would wait.
_ALIVE: Final = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30_000}
_IDLE_MS: Final = 60_000  # a process that was stopped in mid-transaction must not keep a run locked for ever


def address(url: str) -> URL:
    """The URL in parts, so that no library repeats it, password and all, in a message of its own."""
    try:
        parts = make_url(url)
        if not parts.database:
            raise ValueError
    except (ArgumentError, ValueError):
        raise StoreError(
            "the database's address cannot be read",
            hint="write postgresql://user:password@host:5432/name; in a password, write @ as %40 and : as %3A",
        ) from None
    return parts.set(drivername="postgresql+psycopg")


def shown(where: URL) -> str:
    """The address without user, password and options (S29)."""
    return URL.create("postgresql", host=where.host, port=where.port, database=where.database).render_as_string()


def pool(where: URL, size: int, opening_timeout: float, lock_timeout: float, begin: str) -> Engine:
    """An engine over so many connections. Timeouts are in seconds; `begin` opens its own transactions, unless a
    connection's option of that name says otherwise."""
    given = {name: value for name, value in _ALIVE.items() if name not in where.query}
    arguments = {"connect_timeout": max(1, round(opening_timeout)), "application_name": "orchestrator", **given}
    made = create_engine(
        where,
        connect_args={**arguments, "client_encoding": "utf8"},
        use_native_hstore=False,
        pool_size=size,
        max_overflow=0,
        pool_timeout=60,
    )

    @event.listens_for(made, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.autocommit = True  # we say BEGIN ourselves
        connection.execute(
            f"SET lock_timeout = {round(lock_timeout * 1000)}; SET idle_in_transaction_session_timeout = {_IDLE_MS}"
        )

    guard.watch(made)

    @event.listens_for(made, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", begin))

    return made


class NamedCursor:
    """A cursor that takes the store's `:name` parameters."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, sql: str, parameters: Mapping[str, Any], /) -> Any:
        return self._cursor.execute(_pyformat(sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Mapping[str, Any]], /) -> Any:
        return self._cursor.executemany(_pyformat(sql), parameters)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return list(self._cursor.fetchall())


@cache
def _pyformat(sql: str) -> bytes:
    """The statement with `%(name)s` for `:name`. The store's statements are fixed, and so are few."""
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%")).encode()
