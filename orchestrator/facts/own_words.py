"""Is this value in these words? The search behind the own-words check.

A value is taken apart into what can be compared exactly: dates, quantities, and the words that are left. It is found
where one passage holds all of them: dates as dates, numbers with their units, words whole and folded. The passage is a
sentence; for short texts it may be the whole text. That is the customer's own figures and nouns in another order at
worst, never a figure or a name that they did not use.

What it is not: it does not understand. "We are not a gym" holds "gym"; "our rival charges $40" holds $40. It knows no
synonyms and no translations, and then says "not found", which costs a null where a value stood.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from orchestrator.facts.dates import FoundDate, find_dates
from orchestrator.facts.quantities import Quantity, Role, agrees, covered, find_quantities, number
from orchestrator.facts.units import ADVERBS
from orchestrator.facts.wording import (
    HEDGES,
    NEGATIONS,
    STOPWORDS,
    Folded,
    Word,
    find_phrase,
    fold,
    same_word,
    sentences,
    word_set,
    words,
)

Span = tuple[int, int]
_Found = TypeVar("_Found", Word, FoundDate, Quantity)

YES: Final = word_set("yes true y yeah yep ja wahr")
NO: Final = word_set("no false n nope nein falsch")
SHORT_TEXT: Final = 300
PHONE_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Text:
    """A text taken apart: `loose` are the words outside dates and quantities."""

    folded: Folded
    words: tuple[Word, ...]
    loose: tuple[Word, ...]
    dates: tuple[FoundDate, ...]
    quantities: tuple[Quantity, ...]

    def content(self, role: Role) -> list[Word]:
        """The loose words that carry meaning of their own, beyond the field's name."""
        empty = STOPWORDS | HEDGES | role.words
        if any(quantity.per for quantity in self.quantities):  # "a weekly budget of $997": the period is in the figure
            empty |= ADVERBS.keys()
        return [word for word in self.loose if word.key not in empty and word.raw[0].isalnum()]


def take_apart(text: str) -> Text:
    """Take a text apart."""
    folded = fold(text)
    dates = find_dates(folded.text)
    quantities = find_quantities(folded.text, [(date.start, date.end) for date in dates])
    spans = [*((date.start, date.end) for date in dates), *((q.start, q.end) for q in quantities)]
    taken = covered(len(folded.text), spans)
    every = words(folded)
    loose = tuple(word for word in every if not taken[word.start])
    return Text(folded, every, loose, dates, quantities)


def locate(value: Any, said: Text, role: Role, *, labelled: bool = False) -> Span | None:
    """Where a JSON scalar stands in a text (a span of its folded form); None where it does not.

    `role` is what the field's name says; `labelled` means that the text is the answer to this very field. A truth
    value is only ever found in a labelled text: "yes" elsewhere may answer anything.
    """
    if isinstance(value, bool):
        return _truth(value, said) if labelled else None
    if isinstance(value, int | float):
        wanted = number(value)
        return _quantity(wanted, said.quantities, said.dates, role, labelled=labelled) if wanted else None
    if not isinstance(value, str):
        return None
    text = take_apart(value)
    truth = truth_of(text) if len(text.words) == 1 else None
    if truth is not None:
        return _truth(truth, said) if labelled else None
    return _whole(text, said) or _phrase(text, said) or _parts(text, said, role, labelled)


def stands_in(value: Any, text: Text, role: Role, *, lenient: bool = True) -> bool:
    """True where a figure, date or phrase of the value also stands in another text, units missing or not.

    This finds where a value was taken from, so one figure of several is enough; a truth value stands nowhere.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    if isinstance(value, int | float):
        wanted = number(value)
        return wanted is not None and any(agrees(wanted, q, role, lenient=lenient) for q in text.quantities)
    parts = take_apart(value)
    if any(agrees(mine, q, role, lenient=lenient) for mine in parts.quantities for q in text.quantities):
        return True
    if any(mine.agrees(date) for mine in parts.dates for date in text.dates):
        return True
    figures = parts.quantities or parts.dates
    return not figures and bool(_named(parts)) and find_phrase(parts.words, text.words) is not None


def truth_of(text: Text) -> bool | None:
    """What a plain yes or no at the start of a text says; None for anything else."""
    first = text.words[0].key if text.words else ""
    return True if first in YES else False if first in NO else None


def _truth(value: bool, said: Text) -> Span | None:
    return (said.words[0].start, said.words[0].end) if truth_of(said) is value else None


def _whole(value: Text, said: Text) -> Span | None:
    """The value is all that was said, word for word."""
    if not value.words or len(value.words) != len(said.words):
        return None
    same = all(map(_same_text, value.words, said.words)) and _readings(value) == _readings(said)
    return (said.words[0].start, said.words[-1].end) if same else None


def _same_text(a: Word, b: Word) -> bool:
    """Equal words; figures must be written alike, since "1.997" and "1,997" need not be one number."""
    return a.raw == b.raw if a.raw[0].isdigit() else same_word(a, b)


def _readings(text: Text, span: Span | None = None) -> list[tuple[Decimal, ...]]:
    """The numbers of a text (or of a span of it) as values: words alone do not show a minus."""
    low, high = span or (0, len(text.folded.text))
    return [quantity.readings for quantity in text.quantities if low < quantity.end <= high]


def _named(value: Text) -> list[Word]:
    """The words that can name something: function words only where they are capitals (US)."""
    capitals = [word for word in value.loose if word.raw.isupper() and len(word.raw) > 1]
    return capitals + [word for word in value.loose if word.raw[0].isalnum() and word.key not in STOPWORDS]


def _phrase(value: Text, said: Text) -> Span | None:
    """The value's words in a row. Amounts with units and dates go by value instead, so that "997" is not "$997"."""
    if value.dates or any(quantity.unit or quantity.per for quantity in value.quantities):
        return None
    phone = len(value.words) > 1 and sum(char.isdigit() for char in value.folded.text) >= PHONE_DIGITS
    span = find_phrase(value.words, said.words) if _named(value) or phone else None
    return span if span and _readings(value) == _readings(said, span) else None


def _parts(value: Text, said: Text, role: Role, labelled: bool) -> Span | None:
    content = value.content(role)
    if labelled:  # "300 people" for `members: 300`: the noun is the label's
        nouns = {noun for quantity in value.quantities for noun in quantity.nouns}
        content = [word for word in content if word.key not in nouns]
    if not (content or value.dates or value.quantities):
        return None
    for passage in _passages(value, content, said):
        found = _in_passage(value, content, said, passage, role, labelled)
        if found:
            return min(low for low, _ in found), max(high for _, high in found)
    return None


def _passages(value: Text, content: Sequence[Word], said: Text) -> Iterator[Span]:
    """Sentences; then the whole text, for words only if it is short. Two names from two sentences are no name."""
    yield from sentences(said.folded)
    only_a_name = len(content) <= 2 and not (value.dates or value.quantities)
    if not content or (len(said.folded.text) <= SHORT_TEXT and not only_a_name):
        yield 0, len(said.folded.text)


def _in_passage(
    value: Text, content: Sequence[Word], said: Text, passage: Span, role: Role, labelled: bool
) -> list[Span] | None:
    """The spans of all parts of the value within one passage; None if any part is missing."""
    present = _within(said.words, passage)
    dates = _within(said.dates, passage)
    quantities = _within(said.quantities, passage)
    if len(content) > 1 and _negates(present) and not _negates(value.words):
        return None
    found = [_word(word, present) for word in content]
    found += [_date(date, dates) for date in value.dates]
    found += [_quantity(wanted, quantities, dates, role, labelled=labelled) for wanted in value.quantities]
    return [span for span in found if span] if all(found) else None


def _within(found: Sequence[_Found], passage: Span) -> Sequence[_Found]:
    """The part of an ordered list that starts within a passage."""
    low, high = (bisect_left(found, edge, key=lambda item: item.start) for edge in passage)
    return found[low:high]


def _negates(present: Sequence[Word]) -> bool:
    return any(word.key in NEGATIONS or word.key.endswith("n't") for word in present)


def _word(wanted: Word, present: Sequence[Word]) -> Span | None:
    return next(((word.start, word.end) for word in present if same_word(wanted, word)), None)


def _date(wanted: FoundDate, dates: Sequence[FoundDate]) -> Span | None:
    return next(((date.start, date.end) for date in dates if wanted.agrees(date)), None)


def _quantity(
    wanted: Quantity, quantities: Sequence[Quantity], dates: Sequence[FoundDate], role: Role, *, labelled: bool
) -> Span | None:
    for said in quantities:
        if agrees(wanted, said, role, labelled=labelled):
            return said.start, said.end
    if "date" in role.kinds and wanted.unit is None:  # `launch_year: 2026` for "in March 2026"
        return next(((date.start, date.end) for date in dates if date.years & set(wanted.readings)), None)
    return None
