"""Numbers in running text, as values with units: "$997 a week" and "997 dollars per week" are one amount.

Two rules keep a leaked figure from passing as the customer's own:

* a number is read whole ("1,997" and "19970" hold no 997), with its scale ("12k" is 12,000) and both ends of a range
  ("3-5k" says 3,000 and 5,000);
* numbers agree only with compatible units: "$997" is not "997 people", an amount per week is no amount. A number
  without a unit agrees with a number that has one only where the field's name, or the words right beside the number,
  say what is counted (`Role`).

Separators. English and German are read alike: "1,997.50" and "1.997,50". A comma before exactly three digits groups
thousands. A point before exactly three digits groups them if there are several or beside a currency (money has no third
decimal); else both readings are kept, because nothing in "1.997" says which is meant.

Known misses, all on the side of null: no conversion (90 days are not 3 months, cents are not dollars); no arithmetic;
"$" is USD; nouns are compared as words (300 members are not 300 customers). Known passes: hedges and bounds ("about",
"up to") are not compared, nor is the role of a figure within the customer's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from orchestrator.facts.units import (
    ADVERBS,
    DATE_WORDS,
    MONEY,
    MONEY_WORDS,
    NUMBER_WORDS,
    PERCENT_WORDS,
    PERIODS,
    PERSONS,
    SCALES,
    SIGNS,
    UNITS,
)
from orchestrator.facts.wording import HEDGES, NUMBER, STOPWORDS, word_key

MAX_DIGITS: Final = 40
_NUMBER_WORD = "|".join(sorted(NUMBER_WORDS, key=len, reverse=True))
_SIGN = "|".join(re.escape(sign) for sign in sorted(SIGNS, key=len, reverse=True))
_MANY = "hundred|thousand|million|billion|dozen"
_CODE = "|".join(sorted((code.lower() for code in MONEY), key=len, reverse=True))

_START: Final = re.compile(
    rf"(?<![\w.,'/])(?:(?P<minus>[-])(?=[\d$€£¥]))?(?:(?P<sign>{_SIGN})|(?P<code>\b(?:{_CODE})(?=[ \d.-])\.?))? ?"
    rf"(?:(?P<digits>{NUMBER})|(?P<word>(?:{_NUMBER_WORD}|an?(?= (?:{_MANY})\b))(?!\w)))",
    re.IGNORECASE,
)
_SCALE: Final = re.compile(rf"[ -]?({'|'.join(sorted(SCALES, key=len, reverse=True))})\b\.?", re.IGNORECASE)
_TAIL: Final = re.compile(r"(?:[.,]?-+(?= ?[€$£]))?[ -]?(us\$|[$€£¥₹%]|m2|[^\W\d_]+)", re.IGNORECASE)
_SLASH: Final = re.compile(r" ?/ ?([^\W\d_]+)")
_PER: Final = re.compile(r" (?:per|pro|je) ([^\W\d_]+)", re.IGNORECASE)
_EVERY: Final = re.compile(r" (?:an?|each|every|im|in der|die) ([^\W\d_]+)", re.IGNORECASE)
_ADVERB: Final = re.compile(r" (p\.? ?a\.?|[^\W\d_]+)(?!\w)", re.IGNORECASE)
_CLOCK: Final = re.compile(
    r"(?<![\d:.,/])(?P<h>[01]?\d|2[0-3])(?:"
    r"(?::(?P<m>[0-5]\d)(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?: ?(?P<ap>[ap])\.?m\b\.?)?)"
    r"|(?: ?(?P<ap2>[ap])\.?m\b\.?))(?![\d:])",
    re.IGNORECASE,
)
_BRIDGE: Final = re.compile(r" ?- ?| (?:to|bis|until|till) (?:[$€£] ?)?", re.IGNORECASE)
_BETWEEN: Final = re.compile(r" (?:and|or|und|oder) ", re.IGNORECASE)
_NEAR: Final = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|[^ ]", re.IGNORECASE)
_SKIPPED: Final = frozenset(["of", "our", "the", "my", "your", "their", "a", "an", "about", "approx", "very"])


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text: its readings (two where a separator is ambiguous), unit, periods, and the words beside it.

    `unit` is a canonical name ("USD", "percent", "week"); `per` what it is counted by; `nouns` the words that follow,
    `before` those that lead to it; `end` is where number, unit and periods end in the folded text.
    """

    readings: tuple[Decimal, ...]
    unit: str | None = None
    per: frozenset[str] = frozenset()
    nouns: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    start: int = 0
    end: int = 0
    base: Decimal | None = field(default=None, compare=False)
    scale: Decimal | None = field(default=None, compare=False)

    @property
    def beside(self) -> frozenset[str]:
        return frozenset(self.nouns) | frozenset(self.before)


@dataclass(frozen=True, slots=True)
class Role:
    """What a field's name says about its value: `budget_usd_per_week` is money in USD, per week."""

    words: frozenset[str]
    unit: str | None
    kinds: frozenset[str]  # of "money", "percent", "date"
    per: frozenset[str]


def role_of(name: str) -> Role:
    """Read a field's (or statement's) name, written with `_`, `-` or spaces."""
    parts = [word_key(part) for part in re.findall(r"[^\W_]+", name.lower())]
    content = frozenset(parts) - STOPWORDS - {"customer", "client", "user", "value", "number", "count"}
    units = [UNITS[part] for part in parts if part in UNITS and len(part) > 1]
    per = {ADVERBS[part] for part in parts if part in ADVERBS}
    if "per" in parts[:-1]:
        after = parts[parts.index("per") + 1]
        per.add(PERIODS.get(after, after))
        units = [unit for unit in units if unit not in per]
    money = next((unit for unit in units if unit in MONEY), None)
    unit = money or next(iter(units), None)
    return Role(content, unit, _kinds(frozenset(parts), unit), frozenset(per))


def _kinds(parts: frozenset[str], unit: str | None) -> frozenset[str]:
    kinds = {
        "money": unit in MONEY or parts & MONEY_WORDS,
        "percent": unit == "percent" or parts & PERCENT_WORDS,
        "date": parts & DATE_WORDS,
    }
    return frozenset(kind for kind, holds in kinds.items() if holds)


# --- finding ----------------------------------------------------------------------------------------------------------


def find_quantities(text: str, taken: Sequence[tuple[int, int]] = ()) -> tuple[Quantity, ...]:
    """All numbers of a (folded) text in order, leaving out the spans already taken (dates)."""
    blocked = covered(len(text), taken)
    found: list[Quantity] = []
    for clock in _CLOCK.finditer(text):
        if not any(blocked[slice(*clock.span())]):
            blocked[slice(*clock.span())] = b"\x01" * len(clock[0])
            found.append(Quantity((_minutes(clock),), "clock", start=clock.start(), end=clock.end()))
    at = 0
    while match := _START.search(text, at):
        quantity = None if any(blocked[slice(*match.span())]) else _read(text, match)
        at = max(quantity.end if quantity else match.end(), at + 1)
        if quantity:
            found.append(quantity)
    return tuple(_with_words(text, _join_ranges(text, sorted(found, key=lambda q: q.start))))


def number(value: Any) -> Quantity | None:
    """A JSON number as a quantity without a unit; None for what is not finite."""
    amount = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return Quantity((amount,)) if amount.is_finite() else None


def covered(size: int, spans: Iterable[tuple[int, int]]) -> bytearray:
    """One byte per character, 1 where a span covers it: a text with thousands of numbers stays linear."""
    mask = bytearray(size)
    for low, high in spans:
        mask[low:high] = b"\x01" * (high - low)
    return mask


def _minutes(clock: re.Match[str]) -> Decimal:
    hour, half = int(clock["h"]), (clock["ap"] or clock["ap2"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Decimal(hour * 60 + int(clock["m"] or 0))


def _read(text: str, match: re.Match[str]) -> Quantity | None:
    """The quantity that starts at a match; None where the digits are part of a name, a version or a fraction."""
    unit = SIGNS[match["sign"].lower()] if match["sign"] else None
    unit = match["code"].rstrip(".").upper() if match["code"] else unit
    end, scale = _scale(text, match.end(), unit)
    end, after = _unit(text, end)
    end, per = _periods(text, end)
    if end < len(text) and (text[end].isalnum() or (text[end] in "/.,'" and text[end + 1 : end + 2].isdigit())):
        return None
    unit = after or unit
    values = _values(match, unit in MONEY)
    if not values:
        return None
    start = match.start() + (len(match[0]) - len(match[0].lstrip()))
    sign = -1 if match["minus"] and not re.search(r"\d ?$", text[max(0, match.start() - 2) : match.start()]) else 1
    readings = tuple(sign * value * (scale or 1) for value in values)
    return Quantity(readings, unit, per, start=start, end=end, base=values[0], scale=scale)


def _values(match: re.Match[str], money: bool) -> tuple[Decimal, ...]:
    if match["word"]:
        return (Decimal(NUMBER_WORDS.get(match["word"].lower(), 1)),)
    return read_number(match["digits"], money=money)


def read_number(digits: str, *, money: bool = False) -> tuple[Decimal, ...]:
    """The values a grouped number can have; none where the grouping makes no sense ("3.11.2", "5,6")."""
    if len(digits) > MAX_DIGITS:
        return ()
    plain = digits.replace(" ", "").replace("'", "")
    groups = re.split(r"[.,]", plain)
    if len(groups) == 1:
        return (Decimal(plain),) if _grouped(re.split(r"[ ']", digits)) else ()
    separators = re.findall(r"[.,]", plain)
    whole, last = groups[:-1], groups[-1]
    if len(separators) == 1:
        return _one_separator(separators[0], whole[0], last, money)
    if separators[-1] not in separators[:-1]:  # 1,234.5 and 1.234,5
        return (Decimal("".join(whole) + "." + last),) if len(set(separators[:-1])) == 1 and _grouped(whole) else ()
    return (Decimal("".join(groups)),) if len(set(separators)) == 1 and _grouped(groups) else ()


def _one_separator(separator: str, whole: str, rest: str, money: bool) -> tuple[Decimal, ...]:
    decimal, joined = Decimal(f"{whole}.{rest}"), Decimal(whole + rest)
    if len(rest) != 3 or len(whole) > 3 or whole.startswith("0"):
        return (decimal,)
    if separator == "," or money:
        return (joined,)
    return (decimal, joined)


def _grouped(groups: Sequence[str]) -> bool:
    """Thousands (1,234,567) or the Indian way (12,34,567)."""
    if len(groups) == 1:
        return True
    middle = {len(group) for group in groups[1:-1]}
    return (
        1 <= len(groups[0]) <= 3 and len(groups[-1]) == 3 and (middle <= {3} or (middle == {2} and len(groups[0]) < 3))
    )


def _scale(text: str, at: int, unit: str | None) -> tuple[int, Decimal | None]:
    """The scale after a number. `m` and `b` count only as capitals or beside a currency ("$2.5m")."""
    scale: Decimal | None = None
    while match := _SCALE.match(text, at):
        word = match[1]
        money = unit in MONEY or _unit(text, match.end())[1] in MONEY
        if word in ("m", "b", "mm") and not money:
            break
        scale = (scale or Decimal(1)) * SCALES[word.lower()]
        at = match.end()
    return at, scale


def _unit(text: str, at: int) -> tuple[int, str | None]:
    match = _TAIL.match(text, at)
    if match is None:
        return at, None
    word = match[1].lower()
    name = SIGNS.get(word) or UNITS.get(word)
    letter = len(word) == 1 and word.isalpha()
    if name is None or (letter and (match.start(1) != at or match[1].isupper())):  # "5 d", "3D": too little to go by
        return at, None
    return match.end(), name


def _periods(text: str, at: int) -> tuple[int, frozenset[str]]:
    """What an amount is counted by: "/week", "per person", "a month", "monthly", "p.a."."""
    per: set[str] = set()
    while True:
        found = _period(text, at)
        if found is None:
            return at, frozenset(per)
        at, name = found
        per.add(name)


def _period(text: str, at: int) -> tuple[int, str] | None:
    if match := _SLASH.match(text, at) or _PER.match(text, at):
        return match.end(), PERIODS.get(match[1].lower(), word_key(match[1]))
    if (match := _EVERY.match(text, at)) and match[1].lower() in PERIODS and len(match[1]) > 1:
        return match.end(), PERIODS[match[1].lower()]
    if match := _ADVERB.match(text, at):
        word = match[1].lower().replace(" ", "")
        name = "year" if word in ("p.a.", "p.a") else ADVERBS.get(word)
        return (match.end(), name) if name else None
    return None


def _join_ranges(text: str, found: Sequence[Quantity]) -> Iterator[Quantity]:
    """Both ends of "$3-5k" or "between 10 and 12 weeks" get the scale and unit that is written once."""
    ends = list(found)
    for at in range(len(ends) - 1):
        low, high = ends[at], ends[at + 1]
        gap = text[low.end : high.start]
        between = re.search(r"\b(?:between|from|zwischen) ?$", text[max(0, low.start - 10) : low.start], re.IGNORECASE)
        if _BRIDGE.fullmatch(gap) or (between and _BETWEEN.fullmatch(gap)):
            ends[at], ends[at + 1] = _share(low, high)
    yield from ends


def _share(low: Quantity, high: Quantity) -> tuple[Quantity, Quantity]:
    if high.scale and not low.scale and low.base is not None and high.base is not None and low.base < high.base:
        low = replace(low, readings=tuple(value * high.scale for value in low.readings), scale=high.scale)
    low = replace(low, unit=low.unit or high.unit, per=low.per or high.per)
    return low, replace(high, unit=high.unit or low.unit)


def _with_words(text: str, found: Iterator[Quantity]) -> Iterator[Quantity]:
    """Add the words beside each number: up to three after it, up to four before it, never across another number."""
    quantities = list(found)
    for at, quantity in enumerate(quantities):
        first, last = _range_of(text, quantities, at)
        low = quantities[first - 1].end if first else 0
        start, end = quantities[first].start, quantities[last].end
        after = text[end : end + 60]
        nouns = tuple(_run(_NEAR.findall(after[1:] if re.match(r"-\w", after) else after), 3))
        lead = _NEAR.findall(text[max(low, start - 60) : start])
        before = tuple(_run(list(reversed(lead)), 4, before=True))
        if text[quantity.start : quantity.end].lower() == "one" and not nouns:
            continue  # "we have not set one", "one of our rooms"
        per = quantity.per or frozenset(ADVERBS[word] for word in (*before, *nouns) if word in ADVERBS)
        yield replace(quantity, nouns=nouns, before=before, per=per)


def _range_of(text: str, quantities: Sequence[Quantity], at: int) -> tuple[int, int]:
    """The first and last of the numbers in a range with this one ("10 to 12 members": both are counted in members)."""
    first, last = at, at
    if at and _BRIDGE.fullmatch(text[quantities[at - 1].end : quantities[at].start]):
        first = at - 1
    if at + 1 < len(quantities) and _BRIDGE.fullmatch(text[quantities[at].end : quantities[at + 1].start]):
        last = at + 1
    return first, last


def _run(tokens: Sequence[str], limit: int, *, before: bool = False) -> Iterator[str]:
    """Content words in a row. After a number a function word ends the run; before it, only punctuation does."""
    taken = 0
    for token in tokens:
        key = word_key(token)
        if not token[0].isalpha():
            if before and token in ':=(~"_':  # `"members": 300` in JSON is as near as `members: 300`
                continue
            return
        if key in HEDGES or key in _SKIPPED:
            continue
        if key in STOPWORDS:
            if before:
                continue
            return
        yield key
        taken += 1
        if taken == limit:
            return


# --- comparing --------------------------------------------------------------------------------------------------------


def agrees(value: Quantity, said: Quantity, role: Role, *, labelled: bool = False, lenient: bool = False) -> bool:
    """True when the value's number is the number that was said, in compatible units.

    `labelled`: what was said is the answer to this very field (an input of the same name), so a unit may be left out on
    either side. `lenient`: to find where a figure came from; a missing unit or period on either side is no obstacle.
    """
    if not _same_number(value, said, role):
        return False
    if value.per and not lenient and not _periods_fit(value, said, role, labelled=labelled):
        return False
    near = bool(role.words & said.beside)
    nouns = frozenset(value.nouns) - role.words - (PERSONS if labelled else frozenset())
    if value.unit:
        return _units_fit(value, said, role, labelled=labelled, lenient=lenient, near=near)
    if nouns:
        return _nouns_fit(nouns, said, labelled=labelled, lenient=lenient, near=near)
    return _bare_fits(value, said, role, labelled=labelled, lenient=lenient, near=near)


def _same_number(value: Quantity, said: Quantity, role: Role) -> bool:
    if set(value.readings) & set(said.readings):
        return True
    ratio = value.unit is None and said.unit == "percent" and "percent" in role.kinds
    return ratio and any(reading * 100 in said.readings for reading in value.readings)


def _units_fit(value: Quantity, said: Quantity, role: Role, *, labelled: bool, lenient: bool, near: bool) -> bool:
    if said.unit:
        return said.unit == value.unit and (lenient or _periods_fit(value, said, role, labelled=labelled))
    if not (labelled or lenient or near) or (said.nouns and not near):
        return False
    return lenient or _periods_fit(value, said, role, labelled=labelled)


def _periods_fit(value: Quantity, said: Quantity, role: Role, *, labelled: bool) -> bool:
    """An amount per week is no amount; the field's name may say the period instead of the value or the statement."""
    mine = value.per or role.per
    theirs = said.per or (role.per if labelled else frozenset())
    return mine == theirs


def _nouns_fit(nouns: frozenset[str], said: Quantity, *, labelled: bool, lenient: bool, near: bool) -> bool:
    if said.unit:
        return False
    return bool(nouns & said.beside) or (not said.nouns and (labelled or lenient or near))


def _bare_fits(value: Quantity, said: Quantity, role: Role, *, labelled: bool, lenient: bool, near: bool) -> bool:
    """A number without a unit: does the field's name, or a word beside the number, say that this is what is counted?"""
    if said.unit and role.unit and said.unit != role.unit:
        return False
    if said.per and role.per - said.per and not lenient:
        return False
    if labelled or near:
        return True
    if said.unit:
        return _fits_kind(said.unit, role) and not (role.per and not said.per and not lenient)
    if said.nouns:
        return False
    return lenient or ("date" in role.kinds and _is_year(value))


def _fits_kind(unit: str, role: Role) -> bool:
    if role.unit:
        return unit == role.unit
    return (unit in MONEY and "money" in role.kinds) or (unit == "percent" and "percent" in role.kinds)


def _is_year(value: Quantity) -> bool:
    return any(1900 <= reading < 2200 and reading == reading.to_integral_value() for reading in value.readings)
