"""Which guards a value brings along that a Python body gives to a question: they follow the figure, not only the file.

A body may hand over a whole read, or something it took out of one: `limit=rates.weekly_usd`. A part of a read is known
by being that very object; a figure or a text by being equal to one that stands in a guarded read. What was computed
from it, or written into another text, is not found. Guards too many do no harm: they say of the figure what is true of
it where it also stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from pydantic import BaseModel

from orchestrator.graph import Read
from orchestrator.ids import variable

SHORTEST: Final = 3  # characters of a text that says by itself where it came from
PLAIN: Final = frozenset({0, 1, -1})  # numbers that stand everywhere


def guards_of(read: Read) -> tuple[str, ...]:
    """What must not be made of a read: its contract's guards, and the reader's own."""
    return (*read.contract.not_for, *([read.guard] if read.guard is not None else []))


def inherited(value: Any, reads: Iterable[Read], values: Mapping[str, Any]) -> tuple[str, ...]:
    """The guards of the reads in which a value stands, each once; `values` are the reads as the body has them."""
    found = [read for read in reads if guards_of(read) and _stands_in(value, values.get(variable(read.called)))]
    return tuple(dict.fromkeys(guard for read in found for guard in guards_of(read)))


def _stands_in(value: Any, whole: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float | Decimal):
        return value not in PLAIN and any(_is_number(part) and part == value for part in _parts(whole))
    if isinstance(value, str):
        return len(value) >= SHORTEST and any(isinstance(part, str) and part == value for part in _parts(whole))
    return any(part is value for part in _parts(whole))


def _is_number(part: Any) -> bool:
    return isinstance(part, int | float | Decimal) and not isinstance(part, bool)


def _parts(whole: Any) -> Iterator[Any]:
    """A value and all that stands in it."""
    yield whole
    inner: Iterable[Any] = ()
    if isinstance(whole, BaseModel):
        inner = vars(whole).values()
    elif isinstance(whole, Mapping):
        inner = whole.values()
    elif isinstance(whole, list | tuple):
        inner = whole
    for part in inner:
        yield from _parts(part)
