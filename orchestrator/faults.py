"""pydantic's errors in plain sentences: what is wrong with a value, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class FaultText:
    """`text` continues a sentence that begins with the key's name: "must be text, not the number 5"."""

    text: str
    hint: str | None = None


_KINDS: Final[Mapping[str, str]] = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain_fault(error: Mapping[str, Any], raw: str | None = None) -> FaultText:
    """One entry of `ValidationError.errors()` as the end of a sentence, with a hint where there is one.

    `raw` is how a number stands in the file, where that is known: `1e3` rather than 1000.0.
    """
    kind, given, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "missing":
        return FaultText("is missing")
    if kind == "literal_error":
        return _choice(given, str(context["expected"]), raw)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return FaultText(f"must be {words} {context[name]}, not {shown(given, raw)}")
    if kind == "value_error":
        return FaultText(f"is not right: {context['error']}")
    wanted = _KINDS.get(kind.split("_")[0])
    if wanted is None:
        return FaultText(f"is not right: {error['msg'][:1].lower()}{error['msg'][1:]}")
    return FaultText(f"must be {wanted}, not {shown(given, raw)}", _type_hint(wanted, given, raw))


def shown(value: object, raw: str | None = None) -> str:
    """A value in a sentence: its kind, and itself where it is short; `raw` is a number as it was written."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, str):
        return f"the text {_short(repr(value))}"
    return f"the number {_short(raw or str(value))}"


def nearest(word: str, known: Sequence[str]) -> str:
    """A hint for a word that is not known: the nearest one, else all there are."""
    near = get_close_matches(word, known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There is: {', '.join(sorted(known))}." if known else "There is none."


def _choice(given: object, expected: str, raw: str | None) -> FaultText:
    words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    hint = nearest(given, words) if isinstance(given, str) and get_close_matches(given, words) else None
    return FaultText(f"must be {_either(words)}, not {shown(given, raw)}", hint)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _type_hint(wanted: str, given: object, raw: str | None) -> str | None:
    if wanted == "text" and isinstance(given, (int, float)):
        return f'Quote it if it is text: "{raw or given}"'
    if wanted == "a list" and isinstance(given, str):
        return f"Write it as a list: [{_short(given)}]"
    if wanted == "a whole number" and isinstance(given, str) and given.isdigit():
        return "Write it without quotes."
    return None


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
