"""A table from a spreadsheet as the list of objects that a contract wants.

A CSV file has no types, so the contract's schema gives them: each column is a field of the objects, each cell becomes
what the field takes. What cannot be read is one error with its line. Nothing is guessed: an unknown column is refused,
an empty cell is null where null is allowed, a field left out where it may be left out, else an empty text or a fault.

What `exporting.table` writes reads back as the same values, but for what a table cannot tell apart: null, left out and
an empty text; a number and its digits as text where both are allowed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from orchestrator.contracts.schemas import Schema, accepts_null, branches, parse_json, properties
from orchestrator.errors import Place, UsageError
from orchestrator.exchange.foreign import from_spreadsheet

WHOLE: Final = ""
_LEFT_OUT: Final = object()
_DELIMITERS: Final = ",;\t"
_LONGEST_CELL: Final = 10_000_000


def table_fields(root: Schema) -> tuple[str, ...]:
    """Where a value of this schema holds a list of objects: the names of fields, or `WHOLE` for the value itself."""
    if _row_schema(root, root) is not None:
        return (WHOLE,)
    return tuple(name for name, field in properties(root, root).items() if _row_schema(field, root) is not None)


def _row_schema(schema: Schema, root: Schema) -> Schema | None:
    """The schema of a list's objects; None for what is no list of objects."""
    for branch in branches(schema, root):
        items = branch.get("items")
        if isinstance(items, Mapping) and properties(items, root):
            return items
    return None


def read_table(text: str, name: str, root: Schema, field: str) -> list[dict[str, Any]]:
    """The rows of a CSV text as objects of the list at `field`; `name` is what messages call the text.

    Raises UsageError with the line for what cannot be read.
    """
    schema = root if field == WHOLE else properties(root, root).get(field, {})
    row_schema = _row_schema(schema, root)
    if row_schema is None:
        raise UsageError(f"{name}: the contract has no list of objects there", hint="Give a JSON file.")
    lines = _records(text, name)
    _, header = next(lines, (0, []))
    if not any(header):
        raise UsageError(f"{name} is empty", hint="Its first line names the columns.", place=Place(name, 1))
    reader = _Reader(name, root, row_schema, tuple(from_spreadsheet(cell.strip()) for cell in header))
    reader.check_header()
    return [reader.row(line, cells) for line, cells in lines if any(cells)]


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins on. Raises UsageError for broken quotes."""
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        hint = 'A cell with quotes, line ends or the separator stands in "…", quotes inside doubled.'
        raise UsageError(f"{name} is not CSV: {error}", hint=hint, place=Place(name, line)) from error


@dataclass(frozen=True, slots=True)
class _Reader:
    """The columns of one file and what they hold."""

    name: str
    root: Schema
    schema: Schema
    columns: tuple[str, ...]

    @property
    def fields(self) -> Mapping[str, Schema]:
        return properties(self.schema, self.root)

    @property
    def required(self) -> frozenset[str]:
        return frozenset(name for branch in branches(self.schema, self.root) for name in branch.get("required", ()))

    def check_header(self) -> None:
        for column in self.columns:
            if column not in self.fields:
                near = get_close_matches(column, self.fields, n=1)
                hint = f'Did you mean "{near[0]}"?' if near else f"Its columns: {', '.join(self.fields)}."
                raise self._fault(1, f'the contract has no field "{column}"', hint)
            if self.columns.count(column) > 1:
                raise self._fault(1, f'the column "{column}" stands there twice', "Each column once.")
        missing = [name for name in self.fields if name in self.required and name not in self.columns]
        if missing:
            raise self._fault(1, f"the column {', '.join(missing)} is missing", "The contract requires it.")

    def row(self, line: int, cells: Sequence[str]) -> dict[str, Any]:
        if len(cells) != len(self.columns):
            said = f"{len(cells)} cells where the first line names {len(self.columns)} columns"
            raise self._fault(line, said, 'A cell that holds the separator stands in "…".')
        found = {name: self._value(line, name, cell) for name, cell in zip(self.columns, cells, strict=True)}
        return {name: value for name, value in found.items() if value is not _LEFT_OUT}

    def _value(self, line: int, column: str, cell: str) -> Any:
        schema = self.fields[column]
        if cell == "":
            return self._empty(line, column, schema)
        text = from_spreadsheet(cell)
        for branch in branches(schema, self.root):
            for kind in _kinds(branch):
                value = _typed(kind, text)
                if value is not _LEFT_OUT and _allowed(branch, value):
                    return value
        wanted = " or ".join(dict.fromkeys(_kind_words(branches(schema, self.root)))) or "what the contract allows"
        raise self._fault(line, f'{column} is "{text[:60]}", not {wanted}', None)

    def _empty(self, line: int, column: str, schema: Schema) -> Any:
        if accepts_null(schema, self.root):
            return None
        if column not in self.required:
            return _LEFT_OUT
        if any("string" in _kinds(branch) for branch in branches(schema, self.root)):
            return ""
        raise self._fault(line, f"{column} is empty", "The contract requires a value there.")

    def _fault(self, line: int, message: str, hint: str | None) -> UsageError:
        return UsageError(f"{self.name}: {message}", hint=hint, place=Place(self.name, line))


_ORDER: Final = ("boolean", "integer", "number", "array", "object", "string")
_WORDS: Final = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "array": "a list in JSON",
    "object": "an object in JSON",
}


def _kinds(branch: Schema) -> tuple[str, ...]:
    """The types a cell may have here. Text comes last: it takes everything."""
    said = branch.get("type")
    values = branch.get("enum", [branch["const"]] if "const" in branch else [])
    if said is None and values:
        said = [_kind_of(value) for value in values]
    named = [said] if isinstance(said, str) else said or list(_ORDER)
    return tuple(kind for kind in _ORDER if kind in named)


def _kind_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _kind_words(found: Sequence[Schema]) -> Iterator[str]:
    for branch in found:
        if "enum" in branch:
            yield "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in branch["enum"])
        else:
            yield from (_WORDS[kind] for kind in _kinds(branch) if kind in _WORDS)


def _typed(kind: str, text: str) -> Any:
    if kind == "string":
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.strip().lower(), _LEFT_OUT)
    if kind in ("integer", "number") and not re.fullmatch(r"\s*-?\d+(\.\d+)?([eE][+-]?\d+)?\s*", text):
        return _LEFT_OUT
    try:
        value = parse_json(text)
    except ValueError:
        return _LEFT_OUT
    wanted = {"integer": int, "number": int | float, "array": list, "object": dict}[kind]
    return value if isinstance(value, wanted) and not isinstance(value, bool) else _LEFT_OUT


def _allowed(branch: Schema, value: Any) -> bool:
    if "const" in branch:
        return bool(value == branch["const"])
    return "enum" not in branch or value in branch["enum"]
