"""What a value breaks, in plain words: every fault with its path, the rule, and the value that stood there.

A model that is told "$.cost must be a number, got "12k"" mends it in one re-ask; a validator's own message ("Input
should be a valid number, unable to parse string") and its stack of union branches do not help. So the faults of
pydantic and of jsonschema become one kind of sentence here, and alternatives of a union become one fault: "must be a
number or null".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator import schemas

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as JsonSchemaError

MAX_FAULTS: Final = 50


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


def pydantic_faults(model: type[BaseModel], value: Any) -> tuple[SchemaFault, ...]:
    """All faults of JSON data under a pydantic model."""
    try:
        model.model_validate_json(json.dumps(value, ensure_ascii=False))
    except ValidationError as error:
        return faults_of(error, value)
    return ()


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


def json_schema_faults(schema: Mapping[str, Any], value: Any) -> tuple[SchemaFault, ...]:
    """All faults of JSON data under an inline JSON Schema (draft 2020-12; no reference leaves it)."""
    errors = sorted(_validator(schema).iter_errors(value), key=lambda error: [str(p) for p in error.absolute_path])
    return _merged(fault for error in errors for fault in _json_schema_fault(error))


def _validator(schema: Mapping[str, Any]) -> Any:
    kind, formats, registry = _dialect()
    return kind(dict(schema), format_checker=formats, registry=registry)


@cache
def _dialect() -> tuple[Any, Any, Any]:
    """Draft 2020-12 with linear-time patterns, the formats that need no extras, and nothing to fetch from. Made once:
    building a validator class takes longer than most validations."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import ValidationError as Error
    from jsonschema.validators import extend
    from referencing import Registry

    def pattern(validator: Any, rule: str, instance: Any, schema: Any) -> Iterator[Error]:
        if isinstance(instance, str) and not schemas.pattern_matches(rule, instance):
            yield Error(f"{instance!r} does not match {rule!r}")

    formats = FormatChecker(formats=("date", "email", "ipv4", "ipv6", "uuid"))  # what can be checked without extras
    formats.checks("date-time", raises=ValueError)(_is_datetime)
    linear: Any = extend(Draft202012Validator, {"pattern": pattern})  # type: ignore[no-untyped-call]
    registry: Registry[Any] = Registry()  # empty: nothing is ever fetched
    return linear, formats, registry


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
    wrong_type = {e.schema_path[0] for e in context if e.validator == "type" and len(e.absolute_path) == top}
    fitting = [e for e in context if e.schema_path[0] not in wrong_type]
    for inner in fitting or context:
        yield from _json_schema_fault(inner)
