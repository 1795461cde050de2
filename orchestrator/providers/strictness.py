"""What a vendor's strict mode asks of a schema: every property required, nothing additional, an object at the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")


def strict_faults(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Why strict mode refuses this schema, each with the place of the fault; empty if it does not."""
    top = () if schema.get("type") == "object" else ("schema must have type 'object' at the top",)
    return (*top, *_faults(schema, "$"))


def _faults(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        if schema.get("additionalProperties") is not False:
            yield f"{path}: 'additionalProperties' is required to be supplied and to be false"
        missing = sorted(set(schema.get("properties", {})) - set(schema.get("required", ())))
        if missing:
            yield f"{path}: 'required' must include every key in properties; missing {', '.join(missing)}"
    for name, inner in _inner(schema):
        yield from _faults(inner, f"{path}.{name}")


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in _MAPS:
        table = schema.get(key)
        for name, inner in table.items() if isinstance(table, Mapping) else ():
            if isinstance(inner, Mapping):
                yield f"{key}.{name}", inner
    for key in _LISTS:
        entries = schema.get(key)
        for number, inner in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(inner, Mapping):
                yield f"{key}.{number}", inner
    if isinstance(schema.get("items"), Mapping):
        yield "items", schema["items"]
