"""Bodies that nothing refers to any more, and their removal.

They are left by what replaces a reference: the graph of a run that was resumed after its file changed, for one. A body
is only looked at when nobody has referred to it for a while (`used_at`, which every transaction that refers to a body
sets anew): a process may be about to refer to what it has just stored. That makes it safe to look first, in a reading
transaction, and to remove afterwards, a few at a time: what was referred to in between is young again and stays.

A fork is never broken, because there is no counting: a body goes only if no row of any run refers to it. Which columns
refer to bodies is read from the tables' own declarations; the lists that no foreign key watches are `integrity`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlmodel import col, select

from orchestrator.store import integrity
from orchestrator.store import tables as t
from orchestrator.store.columns import from_micros
from orchestrator.store.listings import Reading
from orchestrator.store.sql import Sql, Tx

AT_ONCE: Final = 100  # short transactions: runs that go on meanwhile write in between
_REMOVE: Final = Sql("DELETE FROM content WHERE sha256 = :sha256 AND used_at < :before AND {scope}")


@dataclass(frozen=True, slots=True)
class Removed:
    """How many bodies went, and how many bytes they had."""

    bodies: int
    bytes: int


def unused(reading: Reading, before: int) -> list[tuple[str, int]]:
    """The hash and size of each body that nothing refers to and that was last used before that time (microseconds)."""
    old = select(t.Content.sha256, t.Content.size).where(reading.of(t.Content))
    found = reading.session.exec(old.where(col(t.Content.used_at) < from_micros(before))).all()
    if not found:
        return []
    referred = integrity.listed(reading) | _by_columns(reading)
    return sorted((key, size) for key, size in found if key not in referred)


def _by_columns(reading: Reading) -> set[str]:
    """What the foreign keys of all tables refer to."""
    found: set[str] = set()
    for table in t.metadata.sorted_tables:
        for key in (key for column in table.columns for key in column.foreign_keys):
            if key.column.table.name == "content" and key.column.name == "sha256":
                columns: Any = table.columns
                wanted = select(key.parent).where(reading.of(columns), key.parent.is_not(None)).distinct()
                found.update(reading.session.exec(wanted))
    return found


def remove(tx: Tx, bodies: Sequence[tuple[str, int]], before: int) -> Removed:
    """Remove those that are still as old."""
    gone = [size for key, size in bodies if tx.run(_REMOVE, sha256=key, before=before)]
    return Removed(len(gone), sum(gone))
