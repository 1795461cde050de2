"""Texts as words that can be compared, with the way back to the exact characters they came from.

A person writes “Café Ünal”, a model answers "CAFE\u0301 UNAL's": one name. So texts are folded before they are compared
(NFKC, case, possessives, plurals, dashes, spaces, invisible characters), word by word, and each word remembers where it
stands in the original, because a quote that is shown as proof must be verbatim.

Numbers are single words however they are grouped ("1,997" is never "997"), and each Chinese or Japanese character is a
word of its own, since those texts have no spaces to split at.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NUMBER: Final = r"\d{1,3}(?:[ ']\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,']\d+)*"
_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(
    rf"(?:{NUMBER})(?![^\W_])|[{_CJK}]|(?:(?![{_CJK}])[^\W_])+(?:'(?:(?![{_CJK}])[^\W_])+)*|[$€£¥₹%]"
)
_SENTENCE_END: Final = re.compile(r"[.!?;]+(?=\s|$)|。|[\n\r]+")
_MARKS: Final = {"’": "'", "‘": "'", "ʼ": "'", "′": "'", "´": "'", "`": "'", "\u2212": "-"}


def word_list(text: str) -> list[str]:
    """A vocabulary, written as one text."""
    return text.split()


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOPWORDS: Final = word_set(
    "a an the this that these those of for in on at by to from with into and or but so as is are was were be been "
    "has have had do does did will would can could should may might must it its we our us i my me you your they "
    "their he she his her who which there here also just only some any per each every der die das ein eine einen "
    "und oder von für mit im am zum zur ist sind wir unser unsere"
)
HEDGES: Final = word_set(
    "about around approximately approx roughly circa ca nearly almost up least most max maximum min minimum under "
    "over more less than between until within total overall altogether some currently now ungefähr etwa rund bis "
    "maximal mindestens"
)
NEGATIONS: Final = word_set("not no none never without cannot nor nicht kein keine keinen ohne nie")

_ARTICLES: Final = word_set("a an the der die das ein eine einen")

_NULL_WORDS: Final = frozenset(
    [
        "", "null", "nil", "none", "n a", "undefined", "unknown", "unspecified", "unstated", "unclear", "tbd", "tbc",
        "to be determined", "to be confirmed", "to be defined", "not applicable", "no information", "no data",
        "no answer", "nothing", "nothing stated", "empty", "unbekannt", "keine angabe", "k a", "nicht angegeben",
        "nicht genannt", "nicht bekannt", "offen",
    ]
)  # fmt: skip
_SAID: Final = (
    r"(?:stated|specified|provided|given|mentioned|known|available|disclosed|set|decided|defined|determined|named|said)"
)
_NULL_PHRASE: Final = re.compile(
    rf"(?:is |was )?(?:not|none|nothing|never)(?: been)?(?: yet)? {_SAID}(?: yet)?(?: (?:by|in) .{{1,60}})?"
    rf"|no [a-z ]{{1,30}} {_SAID}(?: yet)?(?: (?:by|in) .{{1,60}})?"
    r"|(?:the )?(?:customer|client|user) (?:has not|hasn't|did not|didn't|does not|doesn't)(?: yet)? "
    r"(?:state|specif|provide|give|mention|know|disclose|set|decide|define|name|say|said)[a-z]*\b.{0,80}"
)


@dataclass(frozen=True, slots=True)
class Folded:
    """A text after NFKC, without invisible characters, with plain dashes, quotes and spaces.

    Character i came from `source[starts[i]:ends[i]]`.
    """

    text: str
    source: str
    starts: Sequence[int]
    ends: Sequence[int]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the source text that a span of the folded text (not empty) came from."""
        return self.starts[start], self.ends[end - 1]


@dataclass(frozen=True, slots=True)
class Word:
    """One word: `key` is what is compared, `raw` as written, `start` and `end` in the folded text."""

    key: str
    raw: str
    start: int
    end: int


def fold(text: str) -> Folded:
    """The comparable form of a text, with the way back."""
    if text.isascii():
        plain = text.replace("`", "'").replace("\t", " ")
        return Folded(plain, text, range(len(text)), range(1, len(text) + 1))
    out: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, cluster in _clusters(text):
        piece = "".join(_plain(char) for char in unicodedata.normalize("NFKC", cluster))
        out.append(piece)
        starts.extend([start] * len(piece))
        ends.extend([start + len(cluster)] * len(piece))
    return Folded("".join(out), text, starts, ends)


def _clusters(text: str) -> list[tuple[int, str]]:
    """Characters, each with the combining marks that follow it, so that composed and decomposed forms meet."""
    found: list[tuple[int, str]] = []
    for at, char in enumerate(text):
        if found and unicodedata.combining(char):
            start, cluster = found[-1]
            if len(cluster) < 8:
                found[-1] = (start, cluster + char)
        else:
            found.append((at, char))
    return found


def _plain(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cf":
        return ""
    if category == "Zs" or char == "\t":
        return " "
    return "-" if category == "Pd" else _MARKS.get(char, char)


def words(folded: Folded) -> tuple[Word, ...]:
    """The words of a text, in order: words, numbers, and the signs of currencies and percent."""
    return tuple(
        Word(word_key(match[0]), match[0], match.start(), match.end()) for match in _WORD.finditer(folded.text)
    )


def word_key(raw: str) -> str:
    """What two writings of one word share: case folded, possessive and plural endings taken off."""
    key = unicodedata.normalize("NFC", raw.casefold())
    return singular(key[:-2] if key.endswith("'s") else key.rstrip("'"))


def singular(word: str) -> str:
    """English plural endings taken off: classes → class, studios → studio, agencies → agency; others are kept."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1]


def sentences(folded: Folded) -> tuple[tuple[int, int], ...]:
    """Spans of sentences and lines, in the folded text."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _SENTENCE_END.finditer(folded.text):
        spans.append((start, match.start()))
        start = match.end()
    spans.append((start, len(folded.text)))
    return tuple(span for span in spans if folded.text[slice(*span)].strip())


def means_null(text: str) -> bool:
    """True for "", "null", "not stated", "n/a", "unknown", "the customer has not stated a budget" and the like."""
    if len(text) > 200:
        return False
    plain = " ".join(re.findall(r"[^\W_]+(?:'[^\W_]+)*", fold(text).text.casefold()))
    if plain == "na":
        return "/" in text or "." in text
    return plain in _NULL_WORDS or _NULL_PHRASE.fullmatch(plain) is not None


def find_phrase(needle: Sequence[Word], hay: Sequence[Word]) -> tuple[int, int] | None:
    """The span of the first place where the needle's words stand in a row (articles skipped), whole words only."""
    wanted = [word for word in needle if word.key not in _ARTICLES]
    present = [word for word in hay if word.key not in _ARTICLES]
    if not wanted:
        return None
    for at in range(len(present) - len(wanted) + 1):
        window = present[at : at + len(wanted)]
        if all(same_word(a, b) for a, b in zip(wanted, window, strict=True)):
            return window[0].start, window[-1].end
    return None


def same_word(wanted: Word, present: Word) -> bool:
    """Equal when folded. Capitals that are a function word otherwise (US, IT) must be written in capitals."""
    if wanted.key != present.key:
        return False
    acronym = len(wanted.raw) <= 3 and wanted.raw.isupper() and wanted.key in STOPWORDS and len(wanted.raw) > 1
    return not acronym or present.raw == wanted.raw


def quote(folded: Folded, span: tuple[int, int], limit: int = 120) -> str:
    """The verbatim words around a span: its sentence, cut to `limit` characters at word boundaries."""
    bounds = next((s for s in sentences(folded) if s[0] <= span[0] < s[1]), span)
    low, high = folded.original(min(bounds[0], span[0]), max(bounds[1], span[1]))
    start, end = folded.original(*span)
    text = folded.source
    if high - low > limit:
        low, high = _window(text, (low, high), (start, end), limit)
    return text[low:high].strip()


def _window(text: str, bounds: tuple[int, int], span: tuple[int, int], limit: int) -> tuple[int, int]:
    """The part of `bounds` around `span`, at most `limit` long, that cuts no word unless the span itself is longer."""
    slack = max(0, limit - (span[1] - span[0]))
    low = max(bounds[0], span[0] - slack // 2)
    high = min(bounds[1], low + limit)
    low = max(bounds[0], high - limit)
    low = min(low, span[0])
    while low < span[0] and low > bounds[0] and not text[low - 1].isspace():
        low += 1
    while high > span[1] and high < bounds[1] and not text[high].isspace():
        high -= 1
    return low, min(high, low + limit)
