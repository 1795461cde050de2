"""What a value breaks, in plain words: every fault with its path, the rule, and the value that stood there.

A model that is told "$.cost must be a number, got "12k"" mends it in one re-ask; a validator's own message ("Input
should be a valid number, unable to parse string") and its stack of union branches do not help. So the faults of
pydantic and of jsonschema become one kind of sentence here, and alternatives of a union become one fault: "must be a
number or null".

A value may be hostile, or just wrong in a way that an author did not think of: checking it takes time in proportion to
its size. Alternatives of a union that cannot fit are dropped at a glance, lest each level of a tree double the work;
entries are compared by their form and not each with each; what still multiplies is given up (S25).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.contracts import schemas
from orchestrator.ids import canonical_json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as JsonSchemaError

MAX_FAULTS: Final = 50
MAX_REFERENCES: Final = 100_000  # followed for one value; every way to multiply work goes through a reference


@dataclass(frozen=True, slots=True)
class SchemaFault:
    """Where a value breaks the schema: JSONPath-like `path` ("$.components[0].name"), the rule, the offending value."""

    path: str
    rule: str
    value: Any


def json_path(parts: Iterable[str | int]) -> str:
    """`$.components[0].name`; a key that is no plain word is quoted: `$["two words"]`."""
    return "$" + "".join(_step(part) for part in parts)


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if re.fullmatch(r"[\w-]+", part) else f"[{json.dumps(part, ensure_ascii=False)}]"


def show(value: Any, limit: int = 80) -> str:
    """A value as a message quotes it: JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _merged(found: Iterable[tuple[str, str, Any]]) -> tuple[SchemaFault, ...]:
    """One fault per path; the rules of alternatives are joined by `or`."""
    by_path: dict[str, tuple[list[str], Any]] = {}
    for path, rule, value in found:
        rules, _ = by_path.setdefault(path, ([], value))
        if rule not in rules:
            rules.append(rule)
    faults = [SchemaFault(path, _either(rules), value) for path, (rules, value) in by_path.items()]
    return tuple(faults[:MAX_FAULTS])


def _either(rules: Sequence[str]) -> str:
    if len(rules) > 1 and all(rule.startswith("must be ") for rule in rules):
        rules = [rules[0], *(rule.removeprefix("must be ") for rule in rules[1:])]
    return " or ".join(rules)


# --- pydantic ---------------------------------------------------------------------------------------------------------

_PYDANTIC: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this type; leave it out",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "decimal_type": "must be a number",
    "decimal_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "dataclass_type": "must be an object",
    "none_required": "must be null",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "date_type": "must be a date like 2026-11-30",
    "date_parsing": "must be a date like 2026-11-30",
    "date_from_datetime_parsing": "must be a date like 2026-11-30",
    "date_from_datetime_inexact": "must be a date like 2026-11-30, without a time",
    "datetime_type": "must be a date and time like 2026-11-30T09:00:00Z",
    "datetime_parsing": "must be a date and time like 2026-11-30T09:00:00Z",
    "datetime_from_date_parsing": "must be a date and time like 2026-11-30T09:00:00Z",
    "time_parsing": "must be a time like 09:00:00",
}


def pydantic_check(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, tuple[SchemaFault, ...]]:
    """JSON data as an instance of a pydantic model, or all its faults."""
    try:
        return model.model_validate_json(json.dumps(value, ensure_ascii=False)), ()
    except ValidationError as error:
        return None, faults_of(error, value)


def dumped(instance: BaseModel) -> Any:
    """An instance as JSON data. A set is written in the order of its entries' text: its own differs between processes,
    and equal values must be equal bytes."""
    data = instance.model_dump(mode="json", by_alias=True, round_trip=True)
    return _sets_in_order(instance, data)


def _sets_in_order(value: Any, data: Any) -> Any:
    """`data` with its lists sorted where `value`, of which it was written, holds a set."""
    if isinstance(value, RootModel):
        return _sets_in_order(value.root, data)
    if isinstance(data, dict):
        parts = _parts(value, data)
        return {key: _sets_in_order(parts.get(key), item) for key, item in data.items()}
    if isinstance(value, list | tuple) and isinstance(data, list) and len(value) == len(data):
        return [_sets_in_order(inner, item) for inner, item in zip(value, data, strict=True)]
    if isinstance(value, set | frozenset) and isinstance(data, list):
        return sorted(data, key=lambda item: json.dumps(item, ensure_ascii=False, sort_keys=True))
    return data


def _parts(value: Any, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stands behind the keys of an object: fields, or a mapping's values in its order."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return {info.serialization_alias or name: value.__dict__.get(name) for name, info in fields}
    if is_dataclass(value) and not isinstance(value, type):
        return vars(value) if hasattr(value, "__dict__") else {}
    if isinstance(value, Mapping) and len(value) == len(data):
        return dict(zip(data, value.values(), strict=True))
    return {}


def non_finite(data: Any, path: tuple[str | int, ...] = ()) -> tuple[str, Any] | None:
    """Where JSON data holds a number that is none, and which; None where it holds none."""
    if isinstance(data, float):
        return None if math.isfinite(data) else (json_path(path), str(data))
    if isinstance(data, dict | list):
        entries = data.items() if isinstance(data, dict) else enumerate(data)
        return next((found for key, item in entries if (found := non_finite(item, (*path, key)))), None)
    return None


def faults_of(error: ValidationError, value: Any) -> tuple[SchemaFault, ...]:
    """The faults of a pydantic error about `value`, in the order pydantic found them."""
    details = error.errors(include_url=False, include_input=False)
    return _merged(_pydantic_fault(detail, value) for detail in details)


def _pydantic_fault(detail: ErrorDetails, value: Any) -> tuple[str, str, Any]:
    path, found = _located(detail["loc"], value, missing=detail["type"] == "missing")
    return json_path(path), _pydantic_rule(detail), found


def _located(loc: Sequence[str | int], value: Any, *, missing: bool) -> tuple[list[str | int], Any]:
    """The part of pydantic's location that is in the data: it also names union branches and validators."""
    path: list[str | int] = []
    for at, part in enumerate(loc):
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif missing and at == len(loc) - 1:
            value = None
        else:
            continue
        path.append(part)
    return path, value


def _pydantic_rule(detail: ErrorDetails) -> str:
    context = detail.get("ctx") or {}
    raised = context.get("error")
    if isinstance(raised, Exception):  # a validator of the author: its own words
        return str(raised) or "is not valid"
    template = _PYDANTIC.get(detail["type"])
    if template is None:
        message = detail["msg"]
        return message[:1].lower() + message[1:]
    return template.format(**{key: _number(value) for key, value in context.items()})


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- JSON Schema ------------------------------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, str]] = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_COMPARED: Final[Mapping[str, str]] = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} entries",
    "maxItems": "must have at most {} entries",
    "minProperties": "must have at least {} keys",
    "maxProperties": "must have at most {} keys",
    "pattern": "must match the pattern {}",
    "format": "must have the format {}",
}


@dataclass(slots=True)
class _Visit:
    """One value on its way through one schema."""

    root: Mapping[str, Any]
    references: int = 0


_visit: ContextVar[_Visit] = ContextVar("_visit")


class _Endless(Exception):
    """More references were followed than any honest value needs."""


def json_schema_faults(schema: Mapping[str, Any], value: Any) -> tuple[SchemaFault, ...]:
    """All faults of JSON data under an inline JSON Schema (draft 2020-12; no reference leaves it)."""
    token = _visit.set(_Visit(schema))
    try:
        found = list(_validator(_Same(schema)).iter_errors(value))
    except _Endless:
        return (SchemaFault("$", "is nested in too many ways to be checked; nest it less", value),)
    finally:
        _visit.reset(token)
    errors = sorted(found, key=lambda error: [str(p) for p in error.absolute_path])
    return _merged(fault for error in errors for fault in _json_schema_fault(error))


class _Same:
    """A schema as a key: the same object, not an equal one. Schemas are never changed once they are loaded."""

    __slots__ = ("schema",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schema is other.schema


@lru_cache(maxsize=256)
def _validator(same: _Same) -> Any:
    """Kept, as long as it is used: making one takes longer than checking a value with it."""
    kind, formats, registry = _dialect()
    return kind(dict(same.schema), format_checker=formats, registry=registry)


@cache
def _dialect() -> tuple[Any, Any, Any]:
    """Draft 2020-12 with keywords that take linear time, the formats that need no extras, and nothing to fetch from.
    Made once: building a validator class takes longer than most validations."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError as Error
    from jsonschema.validators import extend
    from referencing import Registry

    def pattern(validator: Any, rule: str, instance: Any, schema: Any) -> Iterator[Error]:
        if isinstance(instance, str) and not schemas.pattern_matches(rule, instance):
            yield Error(f"{instance!r} does not match {rule!r}")

    def multiple_of(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Error]:
        if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(rule)):
            yield Error(f"{instance!r} is not a multiple of {rule}")

    def unique_items(validator: Any, rule: bool, instance: Any, schema: Any) -> Iterator[Error]:
        if rule and isinstance(instance, list) and len(set(map(_form, instance))) < len(instance):
            yield Error("entries are not unique")

    def union(standard: Any) -> Any:
        def check(validator: Any, options: Any, instance: Any, schema: Any) -> Iterator[Error]:
            yield from standard(validator, _worth_a_look(validator, options, instance), instance, schema)

        return check

    def reference(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[Error]:
        visit = _visit.get()
        visit.references += 1
        if visit.references > MAX_REFERENCES:
            raise _Endless
        yield from known["$ref"](validator, ref, instance, schema)

    formats = FormatChecker(formats=("date", "email", "ipv4", "ipv6", "uuid"))  # what can be checked without extras
    formats.checks("date-time", raises=ValueError)(_is_datetime)
    known: Any = Draft202012Validator.VALIDATORS
    own: dict[str, Any] = {
        "pattern": pattern,
        "multipleOf": multiple_of,
        "uniqueItems": unique_items,
        "$ref": reference,
    }
    own |= {name: union(known[name]) for name in ("anyOf", "oneOf")}
    linear: Any = extend(Draft202012Validator, own)  # type: ignore[no-untyped-call]
    registry: Registry[Any] = Registry()  # empty: nothing is ever fetched
    return linear, formats, registry


def _worth_a_look(validator: Any, options: Sequence[Any], instance: Any) -> Sequence[Any]:
    """The alternatives that a value may follow, by its type, constants and required fields alone; where it follows
    none, what of all of them can be said without looking further down."""
    if not isinstance(instance, list | dict):
        return options
    root = _visit.get().root
    glances = [_glance(option, root) for option in options]
    fitting = [
        option for option, at in zip(options, glances, strict=True) if validator.evolve(schema=at).is_valid(instance)
    ]
    return fitting or glances


_AT_A_GLANCE: Final = ("type", "const", "enum", "required")


def _glance(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a schema says of a value itself and of its fields' constants; a value it refuses, the schema refuses too."""
    if not isinstance(schema, Mapping):
        return schema
    schema = schemas.resolve(schema, root)
    said = {key: schema[key] for key in _AT_A_GLANCE if key in schema}
    fields = {name: child for name, child in (schema.get("properties") or {}).items() if isinstance(child, Mapping)}
    told = {name: {key: child[key] for key in ("const", "enum") if key in child} for name, child in fields.items()}
    return {**said, "properties": {name: child for name, child in told.items() if child}}


def _form(value: Any) -> bytes:
    """Equal values, equal bytes, whatever the order of keys."""
    return canonical_json(schemas.ordered(value, {}), indent=None)


def _is_datetime(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _json_schema_fault(error: JsonSchemaError) -> Iterator[tuple[str, str, Any]]:
    path = list(error.absolute_path)
    keyword, rule, value = str(error.validator), cast(Any, error.validator_value), cast(Any, error.instance)
    if keyword in ("anyOf", "oneOf") and error.context:
        yield from _union_fault(error)
    elif keyword == "required":
        for name in rule:
            if name not in value:
                yield json_path([*path, name]), "is required", None
    elif keyword == "additionalProperties" and rule is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        for name in value:
            if name not in known:
                yield json_path([*path, name]), "is not a field of this type; leave it out", value[name]
    else:
        yield json_path(path), _json_schema_rule(keyword, rule, error.message), value


def _json_schema_rule(keyword: str, rule: Any, message: str) -> str:
    if keyword == "type":
        return "must be " + " or ".join(
            _TYPES.get(kind, str(kind)) for kind in ([rule] if isinstance(rule, str) else rule)
        )
    if keyword == "enum":
        return "must be one of " + ", ".join(show(option) for option in rule)
    if keyword == "const":
        return f"must be {show(rule)}"
    if keyword == "uniqueItems":
        return "must not hold the same entry twice"
    template = _COMPARED.get(keyword)
    return template.format(rule) if template else message


def _union_fault(error: JsonSchemaError) -> Iterator[tuple[str, str, Any]]:
    """Of the alternatives, those whose type fits are explained; where none fits, all types are named."""
    top = len(error.absolute_path)
    context = error.context or []
    context = [e for e in context if e.schema_path] or context  # the alternative `false` has no words of its own
    wrong_type = {e.schema_path[0] for e in context if e.validator == "type" and len(e.absolute_path) == top}
    fitting = [e for e in context if e.schema_path and e.schema_path[0] not in wrong_type]
    for inner in fitting or context:
        yield from _json_schema_fault(inner)
