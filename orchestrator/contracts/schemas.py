"""JSON Schema as contracts use it: what may stand in one, how to walk it, and the form its values take.

A contract's schema is written by its author and kept as it is; it is what a value is checked against. A model is sent
another one (`sent_schema`), in which every property is required and what was optional may be null. A null that comes
back for a property that was only optional therefore means "left out", and `without_nulls` takes it out again before the
value is checked.

Authors' regular expressions run on model output, so they must not be able to take exponential time (S25). They are
compiled by pydantic's engine (Rust's `regex`), which is linear by construction and refuses what cannot be: look-around
and back-references.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from orchestrator.ids import MAX_DEPTH, MAX_DIGITS

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as JsonSchemaError

Schema = Mapping[str, Any]

MAX_JSON_BYTES: Final = 20_000_000
FACT_MARK: Final = "fact_of"

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "patternProperties": "list the properties by name, or use additionalProperties",
    "$dynamicRef": "use $ref into $defs",
    "$recursiveRef": "use $ref into $defs",
    "$id": "leave it out: a contract's schema refers to itself only",
    "$anchor": "use $ref into $defs",
    "$dynamicAnchor": "use $ref into $defs",
}
_ONE: Final = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "definitions", "dependentSchemas")


# --- text -> data -----------------------------------------------------------------------------------------------------


def parse_json(text: str) -> Any:
    """JSON data from text that somebody else wrote. Raises ValueError with a reason in plain words.

    Refused, since they have no one meaning or no end: duplicate keys, NaN and infinities, more than 20 MB, nesting
    deeper than 64, numbers of thousands of digits (S25).
    """
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"longer than {MAX_JSON_BYTES} characters")
    try:
        value = json.loads(
            text, parse_constant=_no_constant, parse_int=integer, parse_float=number, object_pairs_hook=_unique
        )
    except RecursionError as error:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    _refuse_deep(value)
    return value


def integer(text: str) -> int:
    """A whole number of JSON. Raises ValueError for one of thousands of digits."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def number(text: str) -> float:
    """Any other number of JSON. Raises ValueError for thousands of digits, and for one beyond all numbers."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"the key {key!r} stands twice in one object")
        value[key] = item
    return value


def _refuse_deep(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


# --- walking a schema -------------------------------------------------------------------------------------------------


def resolve(schema: Schema, root: Schema) -> Schema:
    """Follow local `$ref`s to the schema they name; siblings of a `$ref` are annotations and stay behind."""
    for _ in range(MAX_DEPTH):
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        target = _target(ref, root)
        if target is None:
            return {}
        schema = target
    return {}


def _target(ref: str, root: Schema) -> Schema | None:
    node: Any = root
    for part in ref.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def branches(schema: Schema, root: Schema) -> tuple[Schema, ...]:
    """The alternatives a value may follow, unions unfolded: `anyOf`, `oneOf`, a single `allOf`."""
    schema = resolve(schema, root)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return tuple(b for option in schema[key] if isinstance(option, Mapping) for b in branches(option, root))
    merged = schema.get("allOf")
    single = isinstance(merged, list) and len(merged) == 1 and isinstance(merged[0], Mapping)
    if merged and single and "properties" not in schema:
        return branches(merged[0], root)
    return (schema,)


def accepts_null(schema: Schema, root: Schema) -> bool:
    """Whether null is a valid value: by type, enum, const, or for want of any rule."""
    for branch in branches(schema, root):
        kinds = branch.get("type")
        if kinds is not None:
            named = "null" in kinds if isinstance(kinds, list) else kinds == "null"
        elif "enum" in branch:
            named = None in branch["enum"]
        elif "const" in branch:
            named = branch["const"] is None
        else:
            named = not any(key in branch for key in ("properties", "items", "allOf", "not", "if"))
        if named:
            return True
    return False


def properties(schema: Schema, root: Schema) -> Mapping[str, Schema]:
    """The named properties of an object schema (of the object branches of a union)."""
    found: dict[str, Schema] = {}
    for branch in branches(schema, root):
        for name, value in (branch.get("properties") or {}).items():
            found.setdefault(name, value if isinstance(value, Mapping) else {})
    return found


def has_type(schema: Schema, kind: str) -> bool:
    """Whether a schema names this type, alone or among others."""
    kinds = schema.get("type")
    return kind in kinds if isinstance(kinds, list) else kinds == kind


def at_path(path: tuple[str, ...], root: Schema, match: Callable[[str, Mapping[str, Schema]], str | None]) -> int:
    """How many parts of a path the schema knows. `match` finds the property a part means; in a list a part is a number.

    Where the schema says nothing about names (a free-form object), the rest counts as known.
    """
    schema = root
    for depth, part in enumerate(path):
        known = properties(schema, root)
        name = match(part, known)
        entries = [b["items"] for b in branches(schema, root) if isinstance(b.get("items"), Mapping)]
        if name is not None:
            schema = known[name]
        elif entries and part.isdigit():
            schema = entries[0]
        else:
            return len(path) if _open(schema, root) else depth
    return len(path)


def _open(schema: Schema, root: Schema) -> bool:
    """Whether keys that are not declared may appear: undeclared ones in an object without `properties`, or no type."""
    return any(
        isinstance(branch.get("additionalProperties"), Mapping)
        or branch.get("additionalProperties") is True
        or ("properties" not in branch and branch.get("type", "object") == "object" and "enum" not in branch)
        for branch in branches(schema, root)
    )


def customer_fields(schema: Schema) -> tuple[str, ...]:
    """Dotted paths of the fields marked `fact_of: customer`; `[]` stands for every entry: `components[].owner`."""
    return tuple(path for path, _, _ in marked_fields(schema))


def marked_fields(root: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Each customer field: its path, its schema, and whether it must have a value (neither null nor left out)."""
    yield from _marked(root, root, "", ())


def _marked(schema: Schema, root: Schema, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Schema, bool]]:
    for branch in branches(schema, root):
        if id(branch) in above:
            continue  # a recursive model: its fields are named once
        inside = (*above, id(branch))
        required = branch.get("required") or ()
        for name, child in (branch.get("properties") or {}).items():
            if not isinstance(child, Mapping):
                continue  # `true`, `false`
            here = f"{path}.{name}" if path else name
            if _is_marked(child, root):
                absent = name not in required and child.get("default") is None
                yield here, child, not (absent or accepts_null(child, root))
            yield from _marked(child, root, here, inside)
        if isinstance(branch.get("items"), Mapping):
            yield from _marked(branch["items"], root, f"{path}[]", inside)


def _is_marked(schema: Any, root: Schema) -> bool:
    if not isinstance(schema, Mapping):
        return False
    options = (schema, resolve(schema, root), *branches(schema, root))
    return any(option.get(FACT_MARK) == "customer" for option in options)


# --- what may stand in a contract -------------------------------------------------------------------------------------


def walk(schema: Any, path: str = "$") -> Iterator[tuple[str, Schema]]:
    """Every sub-schema with its path, `$defs` included."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for key in _ONE:
        yield from walk(schema.get(key), f"{path}.{key}")
    for key in _MANY:
        for at, option in enumerate(schema.get(key) or ()):
            yield from walk(option, f"{path}.{key}[{at}]")
    for key in _NAMED:
        for name, option in (schema.get(key) or {}).items():
            yield from walk(option, f"{path}.{key}.{name}")


def schema_faults(root: Schema) -> list[str]:
    """What is wrong with an author's inline schema, each in one sentence. An empty list means it can be used."""
    from jsonschema import Draft202012Validator

    errors = list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(root))
    if errors:
        return [_metafault(error) for error in errors[:5]]
    faults = [fault for path, schema in walk(root) for fault in _local_faults(path, schema, root)]
    if not faults and _loops(root):
        faults.append("$: a $ref leads back to itself without going through a property or a list")
    if not faults and not has_type(resolve(root, root), "object"):
        faults.append("$: the schema of a contract must be an object (type: object); put a list into a property")
    return faults


def _metafault(error: JsonSchemaError) -> str:
    while error.context:  # the first alternative is the usual form: a type is a word before it is a list of words
        error = error.context[0]
    return f"{_json_path(list(error.absolute_path))}: {error.message}"


def _local_faults(path: str, schema: Schema, root: Schema) -> Iterator[str]:
    for key, hint in _UNSUPPORTED.items():
        if key in schema:
            yield f"{path}: {key} is not supported in a contract; {hint}"
    dialect = schema.get("$schema")
    if isinstance(dialect, str) and "2020-12" not in dialect:
        yield f"{path}: $schema must be JSON Schema 2020-12, or left out"
    ref = schema.get("$ref")
    if isinstance(ref, str):
        if ref != "#" and not ref.startswith("#/"):
            yield f"{path}: $ref {ref!r} leads out of this schema; only references like #/$defs/name are followed"
        elif _target(ref, root) is None:
            yield f"{path}: $ref {ref!r} leads nowhere"
    reason = pattern_fault(schema["pattern"]) if "pattern" in schema else None
    if reason is not None:
        yield f"{path}: the pattern {schema['pattern']!r} cannot be used: {reason}"
    if schema.get(FACT_MARK, "customer") != "customer":
        yield f"{path}: {FACT_MARK} knows only `customer`"


def _loops(root: Schema) -> bool:
    """Whether checking a value could go round without consuming any of it."""
    return any(_loops_from(schema, root, ()) for _, schema in walk(root) if "$ref" in schema)


def _loops_from(schema: Any, root: Schema, above: tuple[int, ...]) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if id(schema) in above:
        return True
    inside = (*above, id(schema))
    in_place = [option for key in ("anyOf", "oneOf", "allOf") for option in schema.get(key) or ()]
    in_place += [schema[key] for key in ("not", "if", "then", "else") if key in schema]
    if isinstance(schema.get("$ref"), str):
        in_place.append(_target(schema["$ref"], root))
    return any(_loops_from(option, root, inside) for option in in_place)


def multiplying(root: Schema) -> tuple[str, tuple[str, ...]] | None:
    """A union whose alternatives lead back to it, so that a validator which tries them all doubles its work at every
    level of a value: its path and what the alternatives are called. A union with a discriminator tries one."""
    for path, schema in walk(root):
        own = _alternatives(schema, root)
        around = [name for name, option in own.items() if _leads_to(option, set(own), root)]
        if len(around) > 1:
            return path, tuple(around)
    return None


def _alternatives(schema: Schema, root: Schema) -> dict[str, Schema]:
    """The objects of a union without a discriminator, by the end of the reference that names each."""
    if "discriminator" in schema:
        return {}
    options = [option for key in ("anyOf", "oneOf") for option in schema.get(key) or () if isinstance(option, Mapping)]
    named = {str(option.get("$ref", "")).rpartition("/")[2]: resolve(option, root) for option in options}
    return {name: option for name, option in named.items() if name and has_type(option, "object")}


def _leads_to(schema: Schema, names: set[str], root: Schema) -> bool:
    """Whether below a schema stands a union of at least two of these alternatives."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        for _, inner in walk(waiting.pop()):
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if len(names & _alternatives(inner, root).keys()) > 1:
                return True
            if "$ref" in inner:
                waiting.append(resolve(inner, root))
    return False


@functools.lru_cache(maxsize=512)
def _pattern(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])


def pattern_fault(pattern: Any) -> str | None:
    """Why a regular expression cannot be used (it must be linear-time); None if it can."""
    if not isinstance(pattern, str):
        return "it is not text"
    try:
        _pattern(pattern)
    except SchemaError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip().startswith("error:")]
        return (lines[0].removeprefix("error:").strip() if lines else "it is not a valid expression") + (
            " (patterns must run in linear time: no look-around, no back-references)"
        )
    return None


def pattern_matches(pattern: str, text: str) -> bool:
    try:
        _pattern(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


def _json_path(parts: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


# --- the form values take ---------------------------------------------------------------------------------------------


def without_nulls(value: Any, root: Schema) -> Any:
    """Take out nulls of properties that may be left out but not be null: the strict form made the model write them."""
    return _arrange(value, root, root, drop=True, order=False)


def ordered(value: Any, root: Schema) -> Any:
    """Keys in the order the schema declares them, others after them by name; so equal values have equal bytes."""
    return _arrange(value, root, root, drop=False, order=True)


def _arrange(value: Any, schema: Any, root: Schema, *, drop: bool, order: bool) -> Any:
    if not isinstance(schema, Mapping):
        schema = {}
    if isinstance(value, list):
        return _arrange_list(value, _branch(value, schema, root), root, drop=drop, order=order)
    if isinstance(value, dict):
        return _arrange_object(value, _branch(value, schema, root), root, drop=drop, order=order)
    return value


def _arrange_list(value: list[Any], branch: Schema, root: Schema, *, drop: bool, order: bool) -> list[Any]:
    prefix = branch.get("prefixItems") or ()
    rest = branch.get("items", {})
    return [
        _arrange(item, prefix[at] if at < len(prefix) else rest, root, drop=drop, order=order)
        for at, item in enumerate(value)
    ]


def _arrange_object(value: dict[str, Any], branch: Schema, root: Schema, *, drop: bool, order: bool) -> dict[str, Any]:
    known: Mapping[str, Any] = _all_properties(branch, root)
    required = branch.get("required") or ()
    other = branch.get("additionalProperties", {})
    names = [n for n in known if n in value] + sorted(n for n in value if n not in known) if order else list(value)
    arranged: dict[str, Any] = {}
    for name in names:
        child = known.get(name, other)
        left_out = (
            value[name] is None
            and name in known
            and name not in required
            and isinstance(child, Mapping)
            and not accepts_null(child, root)
        )
        if not (drop and left_out):
            arranged[name] = _arrange(value[name], child, root, drop=drop, order=order)
    return arranged


def _all_properties(branch: Schema, root: Schema) -> dict[str, Any]:
    """The properties of an object schema, those of its `allOf` parts too, in the order they are declared."""
    found = dict(branch.get("properties") or {})
    for part in branch.get("allOf") or ():
        for name, child in properties(part, root).items() if isinstance(part, Mapping) else ():
            found.setdefault(name, child)
    return found


def _branch(value: Any, schema: Schema, root: Schema) -> Schema:
    """The alternative of a union that a value follows: the first of its kind whose constants and keys fit."""
    kind = "array" if isinstance(value, list) else "object"
    options = [b for b in branches(schema, root) if "type" not in b or has_type(b, kind)]
    if kind == "object" and len(options) > 1:
        options = [b for b in options if _fits(value, b, root)] or options
    return options[0] if options else {}


def _fits(value: Mapping[str, Any], branch: Schema, root: Schema) -> bool:
    known = branch.get("properties") or {}
    if any(name not in value for name in branch.get("required") or ()):
        return False
    for name, child in known.items():
        child = resolve(child, root) if isinstance(child, Mapping) else {}
        if name in value and "const" in child and value[name] != child["const"]:
            return False
        if name in value and "enum" in child and value[name] not in child["enum"]:
            return False
    return branch.get("additionalProperties") is not False or all(name in known for name in value)
