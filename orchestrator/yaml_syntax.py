"""What a YAML parser complains about, in words for people who write pipelines and not parsers.

A parser names the token it did not expect; a person needs the likely mistake. The most costly ones come first: text
that was meant whole and is cut or turned into structure by `#`, `,` or `: ` (a guard that is cut is a guard lost).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from yaml.error import Mark, MarkedYAMLError

GUARD_KEYS: Final = ("guard", "about", "not_for", "ask", "message")
_WORDS = "|".join(GUARD_KEYS)
_GUARD_TEXT = re.compile(rf"(?:^|[\s{{,-])(?P<key>{_WORDS})\s*:\s+(?P<text>[^\s\"'|>\[{{].*)$")
_LIST_ENTRY = re.compile(r"^\s*-\s+(?P<text>[^\s\"'|>\[{].*)$")
_QUOTE_IT = "Quote the whole value if the character belongs to its text."


@dataclass(frozen=True, slots=True)
class SyntaxFault:
    """`line` and `column` count from 1."""

    code: str
    message: str
    hint: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """Applies where `problem` is found in the parser's complaint and `context` in what it was doing."""

    problem: str
    code: str
    message: str
    hint: str
    context: str = ""
    at_start: bool = False  # point at where the construct began rather than at where it failed


_RULES: Final = (
    _Rule(r"character '\\t'", "P007", "a tab stands here; YAML needs spaces", "Replace the tab by spaces."),
    _Rule(
        r"character '(?P<char>.+)' that cannot start",
        "P006",
        "a value that is not quoted cannot begin with {char}",
        _QUOTE_IT,
    ),
    _Rule(
        r"end of stream|document separator",
        "P006",
        "this quote is never closed",
        "Close it, or double a quote that belongs to the text: 'customer''s'.",
        context=r"quoted scalar",
        at_start=True,
    ),
    _Rule(
        r"unknown escape|escape sequence",
        "P006",
        "this backslash sequence means nothing inside double quotes",
        r"Use single quotes, or write the backslash twice: \\.",
    ),
    _Rule(r"undefined alias", "P011", "'*' begins an alias, and no anchor of this name stands above", _QUOTE_IT),
    _Rule(r"second occurrence", "P011", "this anchor is given a second time", "Give each anchor a name of its own."),
    _Rule(
        r"alphabetic or numeric",
        "P011",
        "'&' begins an anchor and '*' an alias; this is neither",
        _QUOTE_IT,
        context=r"anchor|alias",
        at_start=True,
    ),
    _Rule(r"", "P010", "'!' begins a tag, and tags are not used here", _QUOTE_IT, context=r"tag", at_start=True),
    _Rule(r"tag handle", "P010", "'!' begins a tag, and tags are not used here", _QUOTE_IT),
    _Rule(
        r"",
        "P009",
        "a line that begins with '%' is a YAML directive; directives are not used here",
        "Remove the line.",
        context=r"directive",
        at_start=True,
    ),
    _Rule(r"directive|incompatible YAML", "P009", "directives are not used here", "Remove the lines before '---'."),
    _Rule(
        r"",
        "P006",
        "text after '|' or '>' must begin on the next line, indented",
        "Break the line after '|'; quote the value if '|' or '>' belongs to its text.",
        context=r"block scalar",
    ),
    _Rule(
        r"mapping values are not allowed",
        "P006",
        "a ':' stands where no key can begin",
        "Quote the value if the ':' belongs to its text; else mend the indentation.",
    ),
    _Rule(
        r"sequence entries are not allowed",
        "P006",
        "a list entry '- …' cannot begin here",
        "Put it on a line of its own; quote the value if the '-' belongs to its text.",
    ),
    _Rule(
        r"could not find expected ':'",
        "P006",
        "this line is neither `key: value` nor a list entry",
        "Put a ':' and a space after the key, or indent the line under the text it continues.",
        at_start=True,
    ),
    _Rule(
        r"",
        "P006",
        "this '{{' is not closed, or a comma is missing in it",
        "Close it with '}}'; quote values that hold ',', ':', '{{' or '}}'.",
        context=r"flow mapping",
        at_start=True,
    ),
    _Rule(
        r"",
        "P006",
        "this '[' is not closed, or a comma is missing in it",
        "Close it with ']'; quote entries that hold ',', ':', '[' or ']'.",
        context=r"flow sequence",
        at_start=True,
    ),
    _Rule(
        r"block end",
        "P006",
        "this does not belong to what stands above it",
        "Give entries of one level the same indentation; quote a whole value, not a part of it.",
    ),
    _Rule(
        r"document start",
        "P006",
        "this stands outside of the mapping that the file holds",
        "Give keys of one level the same indentation, and close what was opened.",
    ),
)


def explain_syntax(error: MarkedYAMLError, lines: Sequence[str]) -> SyntaxFault:
    """The likely mistake behind a parser's error, with its place."""
    mark = error.problem_mark or error.context_mark
    found = _guard_fault(error, mark, lines) if mark is not None else None
    if found is not None:
        return found
    problem, context = error.problem or "", error.context or ""
    for rule in _RULES:
        match = re.search(rule.problem, problem)
        if match is None or re.search(rule.context, context) is None:
            continue
        where = (error.context_mark if rule.at_start else None) or mark
        line, column = _position(where)
        fields = match.groupdict()
        return SyntaxFault(rule.code, rule.message.format(**fields), rule.hint.format(**fields), line, column)
    line, column = _position(mark)
    return SyntaxFault("P006", "this cannot be read as YAML", "Look at quotes, brackets and indentation.", line, column)


def _position(mark: Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


def _guard_fault(error: MarkedYAMLError, mark: Mark, lines: Sequence[str]) -> SyntaxFault | None:
    """The fault where the error stands in or right below a guard that is not quoted: it was cut or made a mapping."""
    problem = error.problem or ""
    below = _by_indent if "mapping values" in problem else _line_above
    for number in (mark.line, below(mark.line, lines)):
        key, text, column = _guard_at(number, lines)
        if not key:
            continue
        cut = re.search(r"\s#(?P<rest>.*)$", text)
        if cut and number != mark.line and re.search(r"expected ':'|block end|mapping values", problem):
            return SyntaxFault("P015", *cut_by_hash(key, cut["rest"].strip()), number + 1, column)
        if "':'" in problem or "mapping values" in problem:
            whole = text if number == mark.line else f"{text} {lines[mark.line].strip()}"
            if ":" in whole:
                return SyntaxFault("P017", *made_mapping(key, whole), number + 1, column)
    return None


def cut_by_hash(key: str, rest: str) -> tuple[str, str]:
    """Message and hint for text that YAML dropped as a comment."""
    return f"text after '#' was dropped from this {label(key)}: {rest}", f"Quote the whole {label(key)}."


def cut_by_comma(key: str, rest: str) -> tuple[str, str]:
    """Message and hint for text that a comma of a flow mapping cut off."""
    return f"text after ',' was dropped from this {label(key)}: {rest}", f"Quote the whole {label(key)}."


def made_mapping(key: str, text: str) -> tuple[str, str]:
    """Message and hint for text that `: ` turned into a mapping."""
    return f"the ': ' in this {label(key)} makes it a mapping: {text}", f"Quote the whole {label(key)}."


def label(key: str) -> str:
    """How messages call the text under a key."""
    return {"not_for": "guard", "ask": "question"}.get(key, key)


def _guard_at(number: int, lines: Sequence[str]) -> tuple[str, str, int]:
    """Key, text and column of the guard on a line (counted from 0), or empty."""
    if not 0 <= number < len(lines):
        return "", "", 0
    match = _GUARD_TEXT.search(lines[number])
    if match is not None:
        return match["key"], match["text"], match.start("text") + 1
    entry = _LIST_ENTRY.match(lines[number])
    if entry is not None and _opens_not_for(number, lines):
        return "not_for", entry["text"], entry.start("text") + 1
    return "", "", 0


def _opens_not_for(number: int, lines: Sequence[str]) -> bool:
    """Whether the list a line belongs to stands under `not_for:`."""
    for line in reversed(lines[:number]):
        if line.strip() and not line.lstrip().startswith(("-", "#")):
            return re.match(r"\s*not_for\s*:\s*(#.*)?$", line) is not None
    return False


def _line_above(number: int, lines: Sequence[str]) -> int:
    return number - 1


def _by_indent(number: int, lines: Sequence[str]) -> int:
    """The nearest line above that is indented less: the one whose text a line would continue."""
    if number >= len(lines):
        return -1
    depth = len(lines[number]) - len(lines[number].lstrip())
    for above in range(number - 1, -1, -1):
        line = lines[above]
        if line.strip() and len(line) - len(line.lstrip()) < depth:
            return above
    return -1
