"""What a run is given: a JSON object from a file or stdin, then single values, which win.

Only the form is judged here; whether names, types and required values fit the pipeline is the library's question.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Place, UsageError

if TYPE_CHECKING:
    from orchestrator.graph import InputNode

MAX_BYTES = 20_000_000
_HINT = 'An input file is one JSON object of input names: {"idea": "…"}.'


def read_inputs(file: str | None, assignments: Sequence[str], declared: Mapping[str, InputNode]) -> dict[str, Any]:
    """The given values by input name: `--input`, overlaid by `--set k=v`; of a file `@PATH`, from the folder of the
    input file or from here. Raises UsageError."""
    values = dict(read_object(file)) if file is not None else {}
    folder = Path(file).parent if file not in (None, "-") else Path()
    for name, value in values.items():
        if _is_file(name, declared) and isinstance(value, str):
            values[name] = read_bytes(str(folder / _path(name, value)))
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f'--set "{assignment}" has no value', hint="Write --set name=value.")
        is_file = _is_file(name, declared)
        values[name] = read_bytes(_path(name, text)) if is_file else _typed(name, text, declared)
    return values


def _is_file(name: str, declared: Mapping[str, InputNode]) -> bool:
    """Whether an input is a file: `@PATH` is then its bytes."""
    return name in declared and declared[name].contract.form == "file"


def _path(name: str, text: str) -> str:
    """Where a file is that was given as `@PATH`. A path without its mark would be sent as the file's text."""
    if not text.startswith("@"):
        hint = f"Write @ and its path: {name}=@photo.png."
        raise UsageError(f'the input {name} is a file, and "{text[:60]}" is a text', hint=hint)
    return text[1:]


def read_object(file: str) -> Mapping[str, Any]:
    """The JSON object in a file (`-`: stdin). Raises UsageError that says what stands there instead, and where."""
    name = "stdin" if file == "-" else file
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", hint=_HINT) from error
    value = parse_json(text, name, hint=_HINT)
    if not isinstance(value, dict):
        raise UsageError(f"{name} holds {_kind(value)}, not an object", hint=_HINT)
    return value


def parse_json(text: str, name: str, *, hint: str | None = None) -> Any:
    """Strict JSON: no key twice, no NaN, no number without end. `name` is what messages call the text. Raises
    UsageError with the place."""
    from orchestrator.contracts.schemas import integer, number

    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=integer, parse_float=number
        )
    except json.JSONDecodeError as error:
        place = Place(name, error.lineno, error.colno)
        raise UsageError(f"{name} is not JSON: {error.msg}", hint=hint, place=place) from error
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{name} is not usable: {error}", hint=hint) from error


def read_bytes(file: str) -> bytes:
    """A file's bytes, or stdin's for `-`. Raises UsageError that says why it cannot be read."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as source:
            body = source.read(MAX_BYTES + 1)  # a device has no end
    except IsADirectoryError as error:
        raise UsageError(f"{file} is a folder, not a file", hint="Name a file in it.") from error
    except FileNotFoundError as error:
        hint = "Relative paths are from the current folder, or from -C."
        raise UsageError(f"there is no file {file}", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(body) > MAX_BYTES:
        raise UsageError(f"{'stdin' if file == '-' else file} holds more than {MAX_BYTES:,} bytes", hint="Shorten it.")
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is given twice')
    return values


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def _typed(name: str, text: str, declared: Mapping[str, InputNode]) -> Any:
    """A `--set` value under the input's contract; texts are taken as they are, all else as JSON."""
    if name not in declared or declared[name].contract.form != "json":
        return text
    kind = declared[name].contract.name
    try:
        return parse_json(text, "the value")
    except UsageError as error:
        wanted = {"integer": "an integer", "number": "a number", "boolean": "true or false"}
        hint = f"{name} is declared as {kind}."
        given = text if len(text) <= 80 else f"{text[:79]}…"
        raise UsageError(f'--set {name}: "{given}" is not {wanted.get(kind, "JSON")}', hint=hint) from error
