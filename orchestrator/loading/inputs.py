"""An input as it is written: its type, its default, the words that it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.faults import shown
from orchestrator.loading.contracts import guards
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.spec import MISSING, SCALAR_INPUTS, InputSpec, PathKey

_INPUT_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def read_input(reader: SpecReader, name: str, data: dict[str, Any], path: PathKey) -> InputSpec | None:
    """An input under its name; None where it cannot be used."""
    keys = reader.keys(data, path, InputSpec, "an input")
    kind = reader.text(keys["type"], (*path, "type"), "'type'") if "type" in keys else None
    keys = guards(reader, keys, path)
    if kind is None:
        if "type" not in keys:
            reader.report("P102", f"'type' is missing in input {name!r}", reader.key_place(*path), _input_hint())
        keys["type"] = kind = "text"
    elif "about" not in keys and (*path, "about") not in reader.dropped and kind not in SCALAR_INPUTS:
        message = f"input {name!r} ({kind}) does not say what it represents: 'about' is missing"
        reader.report("P105", message, reader.key_place(*path), 'Add about: "What the customer …".')
    if "enum" in keys:
        keys = _words(reader, keys, kind, name, path)
    if not _fits(kind, keys.get("default", MISSING)):
        given = shown(keys.pop("default"))
        raw = reader.raw.get((*path, "default"))
        hint = f'Quote it if it is text: "{raw}"' if raw is not None and kind in ("text", "string") else None
        message = f"the default of input {name!r} is not of type {kind}: {given}"
        reader.report("P112", message, reader.place(*path, "default"), hint)
        reader.drop((*path, "default"))
    return reader.model(InputSpec, keys, path, "an input")


def _words(reader: SpecReader, keys: dict[str, Any], kind: str, name: str, path: PathKey) -> dict[str, Any]:
    """The input's `enum`, left out where it is of no use, and reported."""
    at = (*path, "enum")
    words = reader.texts(keys["enum"], at, "'enum'")
    if kind == "string" and words and len(set(words)) == len(words):
        return {**keys, "enum": words}
    if words or keys["enum"] == []:
        _no_words(reader, kind, name, at)
    return {key: value for key, value in keys.items() if key != "enum"}


def _no_words(reader: SpecReader, kind: str, name: str, at: PathKey) -> None:
    hint = "Write type: string." if kind != "string" else "Write words that differ: [formal, friendly]."
    said = f"{kind} has no enum" if kind != "string" else "its enum is not a list of different words"
    reader.report("P103", f"input {name!r}: {said}", reader.place(*at), hint)
    reader.drop(at)


def _fits(kind: str, default: object) -> bool:
    """Whether a default is of an input's simple type. Null is allowed: it means that nothing was stated."""
    types = _INPUT_TYPES.get(kind)
    if types is None or default is MISSING or default is None:
        return True
    return isinstance(default, types) and (kind == "boolean" or not isinstance(default, bool))


def _input_hint() -> str:
    return "One of text, string, number, integer, boolean, file, or the name of a contract."
