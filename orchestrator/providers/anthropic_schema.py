"""A JSON Schema as the Messages API takes it: what its grammar cannot hold becomes words. Pure, no SDK.

The rules are those of the vendor's own `transform_schema`; it is written anew here because what would be sent must be
known without loading the SDK. A bound that is only words may be broken, so every answer is checked against the whole
contract by us, as on any other vendor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_PLAIN: Final = (str, int, float, bool, type(None))


def grammar(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with several types as choices, and all that is not supported in its description."""
    left = dict(schema)
    made: dict[str, Any] = {}
    if "$defs" in left:
        made["$defs"] = {name: grammar(inner) for name, inner in left.pop("$defs").items()}
    if "$ref" in left:
        return {**made, "$ref": left["$ref"]}
    kind = left.pop("type", None)
    if isinstance(kind, list):
        return {**made, **_either(kind, left)}
    made |= _literals(left) or _choices(left) or ({"type": kind} if kind is not None else {})
    made |= {key: left.pop(key) for key in ("description", "title") if isinstance(left.get(key), str)}
    if made.get("type") == "object":
        made |= _object(left)
    elif made.get("type") == "array":
        made |= _array(left)
    elif made.get("type") == "string" and left.get("format") in FORMATS:
        made["format"] = left.pop("format")
    if left:
        in_words = "{" + ", ".join(f"{key}: {value}" for key, value in left.items()) + "}"
        made["description"] = "\n\n".join(filter(None, [made.get("description"), in_words]))
    return made


def _either(kinds: list[Any], left: Mapping[str, Any]) -> dict[str, Any]:
    """`type: [a, null]` as a choice; what is said of the value stays with each type that is not null."""
    if "enum" in left or "const" in left:
        return grammar(left)
    named = {key: left[key] for key in ("description", "title") if key in left}
    rest = {key: value for key, value in left.items() if key not in named}
    return {"anyOf": [grammar({"type": kind, **(rest if kind != "null" else {})}) for kind in kinds], **named}


def _literals(left: dict[str, Any]) -> dict[str, Any]:
    values = left.get("enum")
    if isinstance(values, list) and values and all(isinstance(value, _PLAIN) for value in values):
        return {"enum": left.pop("enum")}
    return {"const": left.pop("const")} if "const" in left and isinstance(left["const"], _PLAIN) else {}


def _choices(left: dict[str, Any]) -> dict[str, Any]:
    for key in _CHOICES:
        if isinstance(left.get(key), list):
            name = "anyOf" if key == "oneOf" else key
            return {name: [grammar(option) for option in left.pop(key)]}
    return {}


def _object(left: dict[str, Any]) -> dict[str, Any]:
    properties = {name: grammar(inner) for name, inner in left.pop("properties", {}).items()}
    required = left.pop("required", None)
    # An object that is open stays so, and is refused by name; closed in silence it could only be answered empty.
    made: dict[str, Any] = {"properties": properties, "additionalProperties": left.pop("additionalProperties", False)}
    return made if required is None else {**made, "required": list(required)}


def _array(left: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if isinstance(left.get("items"), Mapping):
        made["items"] = grammar(left.pop("items"))
    if left.get("minItems") in (0, 1):
        made["minItems"] = left.pop("minItems")
    return made
