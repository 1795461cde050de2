"""Which rows a statement means: each table it names must be held inside the scope, column by column (S16, S20).

The check reads the statement's text, so that it needs nobody's good will. Fixed SQL is checked when it is built, at
import; what SQLAlchemy makes of the table classes is checked by a hook on the cursor, because a Core select, `text()`,
a bulk update or a count passes by whatever criteria an ORM adds. Scope columns are compared with parameters, and those
must be the scope's: a value written into the text does not count.

What it does not judge is logic: an OR beside the predicates is for a reader to see.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from orchestrator.values import Scope

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

COLUMNS: Final = ("tenant", "account", "subject")
WITHIN: Final = "within"  # the connection's option that says whose statements it carries
MIGRATION: Final = "migration"
_FREE: Final = re.compile(r"alembic_version|sqlite_\w+|pg_\w+|information_schema")  # no table of ours
_NO_ALIAS: Final = (
    "where|set|on|join|left|inner|outer|cross|order|group|having|limit|union|values|select|using|default|returning"
)
_NAMED: Final = re.compile(
    rf'\b(FROM|JOIN|UPDATE|INTO)\s+(?!SET\b)"?(\w+)"?(?:\s+(?:AS\s+)?(?!(?:{_NO_ALIAS})\b)"?(\w+)"?)?(\s*,)?',
    re.IGNORECASE,
)
_WITH: Final = re.compile(r'\b(?:WITH|RECURSIVE)\s+"?(\w+)"?\s*(?:\([^)]*\)\s*)?AS\s*\(', re.IGNORECASE)
_HELD: Final = re.compile(r'\b(tenant|account|subject)"? = (?::\1\b|\?|%\(\1\w*\)s)')
_INSERT: Final = re.compile(
    r"\s*INSERT INTO \w+ \(tenant, account, subject\b[^)]*\)\s+VALUES\s+\(:tenant, :account, :subject\b"
)
_CONFLICT: Final = re.compile(r"\bON CONFLICT \((?!tenant, account, subject\b)[^)]*\) DO UPDATE\b")
_MOVES: Final = re.compile(r"\bSET\b(?:(?!\bWHERE\b).)*?\b(?:tenant|account|subject)\"?\s*=", re.IGNORECASE | re.DOTALL)
_PARAMETER: Final = re.compile(r"(tenant|account|subject)(_\d+)?")


class Unscoped(RuntimeError):
    """A statement was refused before it ran: it would have met rows that are not the scope's."""


@lru_cache(maxsize=1024)
def fault(sql: str) -> str | None:
    """Why a statement is refused; None for one that stays inside the scope."""
    if "SET" in sql and _MOVES.search(sql):
        return "it moves rows to another scope"
    held = Counter((_prefix(sql, found.start()), found[1]) for found in _HELD.finditer(sql))
    made_here = set(_WITH.findall(sql)) if "WITH" in sql else set[str]()
    for verb, table, alias, comma in _NAMED.findall(sql):
        if table in made_here or _FREE.fullmatch(table):
            continue
        if comma:
            return f"it does not say how {table} is joined"
        if verb.upper() == "INTO" and not _INSERT.match(sql):
            return f"it inserts into {table} without taking the scope's columns from the scope"
        if verb.upper() == "INTO" and not _CONFLICT.search(sql):
            continue
        if not _take(held, (alias,) if alias else (table, "")):
            return f"it does not hold {table} inside the scope"
    return None


def _prefix(sql: str, at: int) -> str:
    """The table or alias right before a column."""
    before = sql[max(0, at - 70) : at].removesuffix('"')
    if not before.endswith("."):
        return ""
    return before[:-1].replace("(", " ").split()[-1].strip('"')


def _take(held: Counter[tuple[str, str]], names: tuple[str, ...]) -> bool:
    """Use up the three predicates of one table, which may go by any of these names."""
    for name in names:
        if all(held[name, column] for column in COLUMNS):
            held.subtract((name, column) for column in COLUMNS)
            return True
    return False


def watch(engine: Engine) -> None:
    """Refuse what an engine's connections would execute outside of the scope they were given."""
    from sqlalchemy import event

    @event.listens_for(engine, "before_cursor_execute")
    def before(
        connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        within = connection.get_execution_options().get(WITHIN)
        if within == MIGRATION:
            return
        wrong = fault(statement)
        if wrong is None and _HELD.search(statement):
            wrong = _foreign(within, context)
        if wrong is not None:
            raise Unscoped(f"refused, because {wrong}: {statement}")


def _foreign(within: Scope | None, context: Any) -> str | None:
    """Whether the parameters for the scope's columns are those of a scope at all, and of this one."""
    if within is None:
        return "no scope was given"
    for values in (context and context.compiled_parameters) or [{}]:
        for name, value in values.items():
            match = _PARAMETER.fullmatch(name)
            if match and value != getattr(within, match[1]):
                return "it asks for another scope"
    return None
