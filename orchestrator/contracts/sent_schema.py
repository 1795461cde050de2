"""The schema that is sent to a model: the vendors' strict form of a contract's schema.

Every property is required and no other is allowed, so what was optional becomes nullable; a null that comes back for it
is taken out again by `schemas.without_nulls`. Keywords that the strict form does not know are not sent, and neither are
our own marks: the value is checked against the full schema whatever was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.contracts.schemas import Schema, accepts_null, has_type, pattern_fault, resolve, walk

# What the vendors' strict form knows. Everything else (titles, defaults, our marks, `if`, `not`, …) is not sent; the
# value is checked against the full schema anyhow.
_SENT: Final = (
    "$ref", "type", "description", "enum", "const", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
)  # fmt: skip
_SENT_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_TYPED: Final = ("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const")
NULL: Final[Schema] = {"type": "null"}


def strict(schema: Schema) -> dict[str, Any]:
    """The vendors' strict form: every property required, no others, what was optional nullable, our marks gone."""
    root = schema
    sent = _strict(resolve(schema, root), root)
    defs = schema.get("$defs") or schema.get("definitions")
    if isinstance(defs, Mapping) and defs:
        key = "$defs" if "$defs" in schema else "definitions"
        sent[key] = {name: _strict(value, root) for name, value in defs.items()}
    return sent


def _strict(schema: Any, root: Schema) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    sent = {key: schema[key] for key in _SENT if key in schema and _sendable(key, schema[key])}
    if "type" not in sent and ("enum" in sent or "const" in sent):
        sent = {"type": _types_of(sent.get("enum", [sent.get("const")])), **sent}
    if "$ref" in sent and len(sent) > 1:  # a reference takes no siblings in the strict form
        sent = {"anyOf": [{"$ref": sent.pop("$ref")}], **sent}
    for key, name in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf"), ("prefixItems", "prefixItems")):
        if isinstance(schema.get(key), list):
            sent[name] = [_strict(option, root) for option in schema[key]]
    if len(sent.get("allOf", ())) == 1:
        sent = {**sent.pop("allOf")[0], **sent}
    if isinstance(schema.get("items"), Mapping):
        sent["items"] = _strict(schema["items"], root)
    if "properties" in schema or has_type(schema, "object"):
        sent.update(_strict_object(schema, root))
    return sent


def _strict_object(schema: Schema, root: Schema) -> dict[str, Any]:
    required = schema.get("required") or ()
    fields: dict[str, Any] = {}
    for name, child in (schema.get("properties") or {}).items():
        sent = _strict(child, root)
        optional = name not in required and isinstance(child, Mapping) and not accepts_null(child, root)
        fields[name] = _nullable(sent) if optional else sent
    return {"properties": fields, "required": list(fields), "additionalProperties": False}


def _nullable(sent: dict[str, Any]) -> dict[str, Any]:
    described = {key: sent.pop(key) for key in ("description",) if key in sent}
    options = sent["anyOf"] if list(sent) == ["anyOf"] else [sent]
    return {"anyOf": [*options, dict(NULL)], **described}


def _types_of(values: Sequence[Any]) -> str | list[str]:
    """The JSON types of some values: one word, or a list where there are several."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    kinds = list(dict.fromkeys(names.get(type(value), "null") for value in values))
    return kinds[0] if len(kinds) == 1 else kinds


def _sendable(key: str, value: Any) -> bool:
    if key == "format":
        return value in _SENT_FORMATS
    return key != "pattern" or pattern_fault(value) is None


def unsendable(root: Schema) -> Iterator[tuple[str, str]]:
    """Where the strict form has no words for what the schema says, as (path, reason)."""
    for path, schema in walk(root):
        if (
            has_type(schema, "object")
            and not schema.get("properties")
            and schema.get("additionalProperties") is not False
        ):
            yield path, "a free-form object (a dict), which has no strict form"
        if isinstance(schema.get("prefixItems"), list):
            yield path, "a tuple, which has no strict form"
        if len(schema.get("allOf") or ()) > 1:
            yield path, "an allOf of several schemas, which has no strict form"
        children = {f"properties.{name}": child for name, child in (schema.get("properties") or {}).items()}
        if has_type(schema, "array") and "prefixItems" not in schema:
            children["items"] = schema.get("items", {})
        for name, child in children.items():
            if not (isinstance(child, Mapping) and any(key in child for key in _TYPED)):
                yield f"{path}.{name}", "a value of any kind, which has no strict form"
