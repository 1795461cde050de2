"""pydantic's errors in plain sentences: what is wrong with a value, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def explain_fault(error: Mapping[str, Any]) -> FaultText:
    """One entry of `ValidationError.errors()` as the end of a sentence, with a hint where there is one."""
    kind, given, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "missing":
        return FaultText("is missing")
    if kind == "literal_error":
        return _choice(given, str(context["expected"]))
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return FaultText(f"must be {words} {context[name]}, not {shown(given)}")
    if kind == "value_error":
        return FaultText(f"is not right: {context['error']}")
    wanted = _KINDS.get(kind.split("_")[0])
    if wanted is None:
        return FaultText(f"is not right: {error['msg'][:1].lower()}{error['msg'][1:]}")
    return FaultText(f"must be {wanted}, not {shown(given)}", _type_hint(wanted, given))


def shown(value: object) -> str:
    """A value in a sentence: its kind, and itself where it is short."""
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
    return f"the number {_short(str(value))}"


def nearest(word: str, known: Sequence[str]) -> str:
    """A hint for a word that is not known: the nearest one, else all there are."""
    near = get_close_matches(word, known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There is: {', '.join(sorted(known))}." if known else "There is none."


def _choice(given: object, expected: str) -> FaultText:
    words = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    hint = nearest(given, words) if isinstance(given, str) and get_close_matches(given, words) else None
    return FaultText(f"must be {_either(words)}, not {shown(given)}", hint)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


_HINTS: Final[Mapping[str, Callable[[object], str | None]]] = {
    "text": lambda given: f'Quote it if it is text: "{given}"' if isinstance(given, (int, float)) else None,
    "a list": lambda given: f"Write it as a list: [{_short(given)}]" if isinstance(given, str) else None,
    "a whole number": lambda given: "Write it without quotes." if isinstance(given, str) and given.isdigit() else None,
}


def _type_hint(wanted: str, given: object) -> str | None:
    make = _HINTS.get(wanted)
    return make(given) if make else None


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
