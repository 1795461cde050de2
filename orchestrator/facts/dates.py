"""Calendar dates in running text, read conservatively: what was not written is not known.

"1 March 2026", "March 1st, 2026", "2026-03-01", "01.03.2026" and "1. März 2026" are one date. "March 2026" has no day
and "March 1" has no year, and neither is filled in. "03/04/2026" is read both ways, month first and day first, because
nothing in it says which. Relative dates ("next month") are not resolved: the clock is not the customer's word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        [
            "january jan januar jänner", "february feb februar", "march mar märz mrz", "april apr", "may mai",
            "june jun juni", "july jul juli", "august aug", "september sept sep", "october oct oktober okt",
            "november nov", "december dec dezember dez",
        ],
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_QUARTERS: Final = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "last": 4}

_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th|\.)?"
_YEAR = r"(?P<y>(?:19|20|21)\d\d)"
_EDGE = r"(?<![\w.,/-])"
_STOP = r"(?![\w/]|[.,-]\d)"
_MIDNIGHT = r"(?:T00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:?00)?)?"


@dataclass(frozen=True, slots=True)
class CalendarDate:
    """A date as far as it was written. A quarter stands in for the month."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    quarter: int | None = None

    def within(self, said: CalendarDate) -> bool:
        """True when all that this date says was said too: "March 2026" is within "1 March 2026", not the reverse."""
        return all(
            mine is None or mine == theirs
            for mine, theirs in [
                (self.year, said.year),
                (self.month, said.month),
                (self.day, said.day),
                (self.quarter, said.quarter),
            ]
        )


@dataclass(frozen=True, slots=True)
class FoundDate:
    """A date in a text, with every way it can be read, and its span."""

    readings: tuple[CalendarDate, ...]
    start: int
    end: int

    def agrees(self, said: FoundDate) -> bool:
        """True when some reading of this one is within some reading of what was said."""
        return any(mine.within(theirs) for mine in self.readings for theirs in said.readings)

    @property
    def years(self) -> frozenset[int]:
        return frozenset(reading.year for reading in self.readings if reading.year is not None)


_FORMS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in [
        ("day", rf"{_EDGE}{_YEAR}-(?P<m>\d\d)-(?P<d>\d\d){_MIDNIGHT}(?:(?=T\d)|(?![\w/-]|[.,]\d))"),
        ("day", rf"{_EDGE}{_YEAR}[/.](?P<m>\d\d)[/.](?P<d>\d\d){_STOP}"),
        ("day", rf"{_EDGE}(?P<d>\d\d?)\. ?(?P<m>\d\d?)\. ?{_YEAR}{_STOP}"),
        ("either", rf"{_EDGE}(?P<a>\d\d?)(?P<sep>[/-])(?P<b>\d\d?)(?P=sep){_YEAR}{_STOP}"),
        ("day", rf"{_EDGE}{_DAY}(?: of)?[ -]?(?P<n>{_MONTH})\.?(?:,? |-){_YEAR}{_STOP}"),
        ("day", rf"\b(?P<n>{_MONTH})\.? (?:the )?{_DAY}(?:,? (?:of )?){_YEAR}{_STOP}"),
        ("month", rf"\b(?P<n>{_MONTH})\.?(?:,? (?:of )?|-|/){_YEAR}{_STOP}"),
        ("month", rf"{_EDGE}{_YEAR}-(?P<m>\d\d)(?![\w/-]|[.,]\d)"),
        ("month", rf"{_EDGE}(?P<m>\d\d)/{_YEAR}{_STOP}"),
        ("quarter", rf"\bQ(?P<q>[1-4])[ /-]?(?:of )?{_YEAR}{_STOP}"),
        ("quarter", rf"{_EDGE}{_YEAR}[ -]?Q(?P<q>[1-4])\b"),
        ("quarter", rf"\b(?P<qn>{'|'.join(_QUARTERS)}) quarter(?: of)? {_YEAR}{_STOP}"),
        ("yearless", rf"{_EDGE}{_DAY}(?: of)? ?(?P<n>{_MONTH})\b"),
        ("yearless", rf"\b(?P<n>{_MONTH})\.? (?:the )?{_DAY}(?!\w|[.,:]\d|[%k])"),
    ]
)  # fmt: skip


def find_dates(text: str) -> tuple[FoundDate, ...]:
    """All dates of a (folded) text in order, longest form first; impossible ones (32 March) are no dates."""
    found: list[FoundDate] = []
    seen = bytearray(len(text))
    for kind, pattern in _FORMS:
        for match in pattern.finditer(text):
            if _is_verb(kind, match) or any(seen[match.start() : match.end()]):
                continue
            seen[match.start() : match.end()] = b"\x01" * len(match[0])
            if readings := tuple(_valid(_readings(kind, match))):
                found.append(FoundDate(readings, match.start(), match.end()))
    return tuple(sorted(found, key=lambda item: item.start))


def _is_verb(kind: str, match: re.Match[str]) -> bool:
    """ "may 5 people join" and "the 12 may vote" hold no date; a month without a year is written with a capital."""
    return kind == "yearless" and match["n"] == "may"


def _readings(kind: str, match: re.Match[str]) -> Iterator[CalendarDate]:
    part = match.groupdict()
    year = int(part["y"]) if part.get("y") else None
    if kind == "either":
        a, b = int(part["a"]), int(part["b"])
        yield from dict.fromkeys([CalendarDate(year, a, b), CalendarDate(year, b, a)])
    elif kind == "quarter":
        yield CalendarDate(year, quarter=int(part["q"]) if part.get("q") else _QUARTERS[part["qn"].lower()])
    else:
        month = _MONTHS[part["n"].lower()] if part.get("n") else int(part["m"])
        yield CalendarDate(year, month, int(part["d"]) if part.get("d") else None)


def _valid(readings: Iterable[CalendarDate]) -> Iterator[CalendarDate]:
    for reading in readings:
        try:
            date(reading.year or 2000, reading.month or 1, reading.day or 1)
        except ValueError:
            continue
        yield reading
