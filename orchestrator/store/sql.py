"""Fixed SQL, always inside a scope.

The hot path writes statements, not objects: against a bare insert and commit an ORM session costs 14 times as much,
these about twice. What keeps them safe is that a statement without its scope cannot be built, and that every value on
its way into the database passes one sink (`Scrubber.clean`).

In a statement, `{scope}` becomes the three predicates, `{scope:s}` the same for the alias `s`; each table that is named
needs its own (`guard`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from orchestrator.store import guard
from orchestrator.store.guard import COLUMNS
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Scope

_MARK: Final = re.compile(r"\{scope(?::(\w+))?\}")

Row = tuple[Any, ...]


class Sql:
    """One statement of the store. Raises ValueError at import unless it holds each of its tables inside the scope."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = _MARK.sub(_predicates, text)
        wrong = guard.fault(self.text)
        if wrong is not None:
            raise ValueError(f"a statement that leaves the scope, because {wrong}: {self.text}")


def _predicates(match: re.Match[str]) -> str:
    prefix = f"{match[1]}." if match[1] else ""
    return " AND ".join(f"{prefix}{column} = :{column}" for column in COLUMNS)


def insert(table: str, columns: str, more: str = "") -> Sql:
    """An INSERT of the named columns (blank-separated), its scope columns taken from the scope; `more` follows it."""
    names = (*COLUMNS, *columns.split())
    values = ", ".join(f":{name}" for name in names)
    return Sql(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) {more}")


class Cursor(Protocol):
    """What is used of a database cursor: the common part of sqlite3's and psycopg's."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: Mapping[str, Any], /) -> Any: ...
    def executemany(self, sql: str, parameters: Iterable[Mapping[str, Any]], /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Tx:
    """An open transaction in a scope. `now` is its wall time in microseconds: recorded, never ordered by."""

    __slots__ = ("_cursor", "_scope", "now", "scope", "scrubber")

    def __init__(self, cursor: Cursor, scope: Scope, scrubber: Scrubber, now: int) -> None:
        self._cursor = cursor
        self._scope = {"tenant": scope.tenant, "account": scope.account, "subject": scope.subject}
        self.scope = scope
        self.scrubber = scrubber
        self.now = now

    def run(self, sql: Sql, **values: Any) -> int:
        """The number of rows that were written."""
        self._cursor.execute(sql.text, self._bound(values))
        return self._cursor.rowcount

    def many(self, sql: Sql, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._cursor.executemany(sql.text, [self._bound(row) for row in rows])

    def one(self, sql: Sql, **values: Any) -> Row | None:
        self._cursor.execute(sql.text, self._bound(values))
        # Every row is fetched: a RETURNING statement has written all its rows only when it is exhausted.
        rows = self._cursor.fetchall()
        return rows[0] if rows else None

    def all(self, sql: Sql, **values: Any) -> list[Row]:
        self._cursor.execute(sql.text, self._bound(values))
        return self._cursor.fetchall()

    def _bound(self, values: Mapping[str, Any]) -> dict[str, Any]:
        bound = dict(values)
        self.scrubber.clean(bound)
        bound.update(self._scope)  # last: whatever a caller says, the scope's columns come from the scope
        return bound
