"""Contracts at run time: a declared artifact type with its schema loaded.

One object answers every question about a value of this type: is it valid, what are its canonical bytes, which top-level
fields does it have, which of them are facts about the customer, and what schema is sent to a model.

A value is JSON data (form `json`), text (`text`, `markdown`) or bytes (`file`). JSON is stored with its keys in the
order the schema declares them, so that equal values are equal bytes whoever made them: a model, a function or a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, RootModel
from pydantic.errors import PydanticUserError

from orchestrator.contracts import fitting, schemas
from orchestrator.contracts.engines import backtracks
from orchestrator.contracts.rules import SchemaFault, dumped, json_schema_faults, non_finite, pydantic_check
from orchestrator.contracts.sent_schema import strict, unsendable
from orchestrator.errors import Diagnostic, Place, StepFailed
from orchestrator.ids import canonical_json, digest, require_json
from orchestrator.providers.tokens import estimate
from orchestrator.python.declarations import kebab, mark_of
from orchestrator.python.references import Found, ReferenceFault, load_reference
from orchestrator.spec import (
    SCALAR_INPUTS,
    SENSITIVITY_RANK,
    TEXT_SCHEMAS,
    ContractSpec,
    InputSpec,
    Overflow,
    PathKey,
    Places,
    Sensitivity,
)

if TYPE_CHECKING:
    from orchestrator.project import Project

__all__ = [
    "Contract",
    "SchemaFault",
    "build_contract",
    "class_contract",
    "contract_input",
    "input_contract",
    "model_contract",
]

Form = Literal["json", "text", "markdown", "file"]
LEAST_SUMMARY: Final = 100  # tokens: a smaller limit has no room for one


@dataclass(frozen=True, slots=True)
class Contract:
    """An artifact type. `form`: json has a schema; text, markdown are UTF-8 text; file is bytes.

    `fields` are the top-level property names (empty for text); `customer_fields` the dotted paths marked
    `fact_of: customer`; `code` maps the Python files it depends on to their hashes; `digest` covers what it says
    (about, not_for, schema, limits), not where it stands.
    """

    name: str
    about: str
    not_for: tuple[str, ...]
    sensitivity: Sensitivity
    tags: tuple[str, ...]
    max_tokens: int | None
    form: Form
    schema: Mapping[str, Any] | None
    model: type[BaseModel] | None
    fields: tuple[str, ...]
    customer_fields: tuple[str, ...]
    code: Mapping[str, str]
    digest: str
    place: Place
    overflow: Overflow = "fail"

    def faults(self, value: Any) -> tuple[SchemaFault, ...]:
        """Everything that is wrong with a value: JSON data, or a model instance where the schema is a model.

        Raises StepFailed where a validator of the project raises anything but ValueError.
        """
        return self._checked(value)[1]

    def normalise(self, value: Any) -> Any:
        """The value as it is stored: JSON data with keys in declared order, defaults filled in by a model.

        Raises ValueError where `faults` finds any.
        """
        data, faults = self._checked(value)
        if faults:
            raise ValueError("; ".join(f"{fault.path} {fault.rule}" for fault in faults))
        return schemas.ordered(data, self.schema or {}) if self.form == "json" else data

    def _checked(self, value: Any) -> tuple[Any, tuple[SchemaFault, ...]]:
        """The value as data, and what is wrong with it; where anything is, the data is of no use."""
        if self.form != "json":
            return value, self._text_faults(value)
        try:
            data = self._data(value)
        except ValueError as error:
            return None, (SchemaFault("$", str(error), None),)
        if self.model is None:
            return data, json_schema_faults(self.schema or {}, data)
        with self._blamed():
            instance, faults = pydantic_check(self.model, data)
            written = None if instance is None else dumped(instance)
        if faults:
            return None, faults
        at = non_finite(written)  # a model takes "nan" for a number
        return (None, (SchemaFault(at[0], "must be a finite number", at[1]),)) if at else (written, ())

    def dump(self, value: Any) -> bytes:
        """The canonical bytes of a value. Raises ValueError where `faults` finds any."""
        return self.encode(self.normalise(value))

    def encode(self, normal: Any) -> bytes:
        """The canonical bytes of a value that `normalise` gave, which is not checked again."""
        if self.form == "json":
            body = canonical_json(normal)
            if self.model is None:
                fitting.note(self.digest, body)
            return body
        return normal if isinstance(normal, bytes) else str(normal).encode()

    def load(self, body: bytes) -> Any:
        """The value of canonical bytes: JSON data, text, or for a file its bytes."""
        if self.form == "json":
            return schemas.parse_json(body.decode())
        return body if self.form == "file" else body.decode()

    def instance(self, body: bytes) -> Any:
        """The value as a Python function gets it: a model instance where the schema is a model, else as `load`."""
        return self.model.model_validate_json(body) if self.model is not None else self.load(body)

    def require(self, body: bytes, sha256: str) -> None:
        """Raises ValueError for a stored value, with the hash of its bytes, that the schema does not allow (any more);
        what a model class checks, `instance` does."""
        if self.form != "json" or self.model is not None or fitting.known(self.digest, sha256):
            return
        faults = self.faults(self.load(body))
        if faults:
            raise ValueError(f"{faults[0].path} {faults[0].rule}")
        fitting.note(self.digest, body)

    def too_large(self, body: bytes) -> str | None:
        """How far a value's canonical bytes are over the token limit, as the end of a sentence; None where they are
        not, or may be."""
        tokens = estimate(body)
        if self.max_tokens is None or self.overflow != "fail" or tokens <= self.max_tokens:
            return None
        limit = f"about {tokens:,} tokens, and max_tokens is {self.max_tokens:,}"
        return f"too large for the contract {self.name}: {limit}"

    def sent_schema(self) -> dict[str, Any] | None:
        """The strict schema a model is sent; None for text forms. Marks and unsupported keywords are left out."""
        return strict(self.schema) if self.form == "json" and self.schema is not None else None

    def field_hashes(self, body: bytes) -> dict[str, str]:
        """One hash per top-level field that the value has; empty for text and scalars."""
        return self.hashes(self.load(body)) if self.fields else {}

    def hashes(self, normal: Any) -> dict[str, str]:
        """`field_hashes` of a value that `normalise` gave."""
        known = self.fields and isinstance(normal, dict)
        return {name: digest(field) for name, field in normal.items()} if known else {}

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """What the project's own validators and serialisers raise is a fault of the project, not of the value."""
        try:
            yield
        except Exception as error:
            raise StepFailed(
                f"the contract {self.name} cannot check a value: {type(error).__name__}: {error}",
                hint="mend the model: a validator raises ValueError for a value that does not fit",
                code="contract_broken",
            ) from error

    def _data(self, value: Any) -> Any:
        """JSON data of a value, without the nulls that stand for left-out properties. Raises ValueError."""
        if isinstance(value, BaseModel):
            value = dumped(value)
        require_json(value)
        return schemas.without_nulls(value, self.schema or {})

    def _text_faults(self, value: Any) -> tuple[SchemaFault, ...]:
        if self.form == "file" and isinstance(value, bytes):
            return ()
        if not isinstance(value, str):
            return (SchemaFault("$", "must be text", value),)
        try:
            value.encode()
        except UnicodeEncodeError:
            return (SchemaFault("$", "must be text without lone surrogates", value),)
        if self.schema is not None and len(value.splitlines()) > 1:
            return (SchemaFault("$", "must be one line", value),)
        words = (self.schema or {}).get("enum")
        if words and value not in words:
            return (SchemaFault("$", f"must be one of {', '.join(words)}", value),)
        return ()


# --- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Schema:
    form: Form
    schema: Mapping[str, Any] | None = None
    model: type[BaseModel] | None = None
    code: Mapping[str, str] | None = None


class _Fault(Exception):
    """One fault of a contract, to be placed by its key."""

    def __init__(self, code: str, message: str, hint: str | None = None, key: str = "schema") -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.key = code, message, hint, key


def build_contract(
    project: Project,
    spec: ContractSpec,
    places: Places,
    base: Path,
    prefix: PathKey = (),
    *,
    live: Mapping[str, Found] | None = None,
) -> tuple[Contract | None, tuple[Diagnostic, ...]]:
    """A contract with its schema loaded, or what is wrong with it. References are relative to the file `base`.

    `prefix` is where the contract stands in `places`: empty for a file of its own. `live` holds models that are loaded
    already, by reference.
    """
    faults = [*_label_faults(spec), *_limit_faults(spec)]
    loaded: _Schema | None = None
    try:
        loaded = _load_schema(project, spec.schema_, base, live or {})
    except _Fault as fault:
        faults.append(fault)
    except _Faults as several:
        faults.extend(several.faults)
    if faults or loaded is None:
        return None, tuple(_diagnostic(fault, spec.artifact, places, prefix) for fault in faults)
    return _contract(spec, loaded, places.of(*prefix, "schema")), ()


def _contract(spec: ContractSpec, loaded: _Schema, place: Place) -> Contract:
    not_for = () if spec.not_for == "none" else spec.not_for
    schema = loaded.schema
    return Contract(
        name=spec.artifact,
        about=spec.about.strip(),
        not_for=not_for,
        sensitivity=spec.sensitivity,
        tags=spec.tags,
        max_tokens=spec.max_tokens,
        overflow=spec.overflow,
        form=loaded.form,
        schema=schema,
        model=loaded.model,
        fields=tuple(schemas.properties(schema, schema)) if schema is not None else (),
        customer_fields=schemas.customer_fields(schema) if schema is not None else (),
        code=dict(loaded.code or {}),
        digest=_digest(
            spec.artifact,
            spec.about.strip(),
            not_for,
            spec.sensitivity,
            spec.max_tokens,
            loaded.form,
            schema,
            spec.overflow,
        ),
        place=place,
    )


def _digest(
    name: str,
    about: str,
    not_for: tuple[str, ...],
    sensitivity: str,
    max_tokens: int | None,
    form: str,
    schema: Any,
    overflow: str = "fail",
) -> str:
    """Of what the contract says. The schema counts with the order of its keys: that is the order of a value's bytes."""
    said = None if schema is None else canonical_json(schema).decode()
    limit = max_tokens if overflow == "fail" else [max_tokens, overflow]
    return digest([name, about, list(not_for), sensitivity, limit, form, said])


def _diagnostic(fault: _Fault, name: str, places: Places, prefix: PathKey) -> Diagnostic:
    place = places.of(*prefix, fault.key)
    return Diagnostic(fault.code, f"contract {name}: {fault.message}", place, fault.hint, places.line(place))


def _label_faults(spec: ContractSpec) -> list[_Fault]:
    """Both parts of the label say something (R002)."""
    faults = []
    if not spec.about.strip():
        faults.append(_Fault("P231", "`about` is empty", "say in one sentence what its value represents", "about"))
    if not spec.not_for or any(not guard.strip() for guard in spec.not_for):
        hint = "say what its value must not be used for, or write `not_for: none` on purpose"
        faults.append(_Fault("P231", "`not_for` is empty", hint, "not_for"))
    return faults


def _limit_faults(spec: ContractSpec) -> list[_Fault]:
    """A way to go on over a limit needs a limit, and a summary room of its own."""
    if spec.overflow == "fail":
        return []
    if spec.max_tokens is None:
        message = f"overflow: {spec.overflow} needs a limit, and `max_tokens` is missing"
        return [_Fault("P102", message, "add max_tokens: 2000, or take overflow out", "overflow")]
    if spec.overflow == "summarise" and spec.max_tokens < LEAST_SUMMARY:
        message = f"`max_tokens` is {spec.max_tokens}, which leaves no room for a summary"
        return [_Fault("P103", message, f"give it {LEAST_SUMMARY} or more, or write overflow: truncate", "max_tokens")]
    return []


class _Faults(Exception):
    def __init__(self, faults: list[_Fault]) -> None:
        super().__init__()
        self.faults = faults


def _load_schema(project: Project, schema: str | dict[str, Any], base: Path, live: Mapping[str, Found]) -> _Schema:
    if isinstance(schema, dict):
        faults = schemas.schema_faults(schema)
        if faults:
            raise _Faults([_Fault("P232", f"the schema is not valid: {fault}") for fault in faults])
        return _Schema("json", schema)
    if schema in TEXT_SCHEMAS:
        form: Form = "text" if schema == "text" else "markdown" if schema == "markdown" else "file"
        return _Schema(form)
    if ":" not in schema:
        raise _Fault(
            "P233",
            f"`schema: {schema}` is none of the three forms",
            "write `schemas.py:Model`, an inline JSON Schema, or text, markdown or file",
        )
    return _model_schema(schema, live.get(schema) or _load_model(project, schema, base))


def _load_model(project: Project, ref: str, base: Path) -> Found:
    try:
        return load_reference(project, ref, base, "artifacts")
    except ReferenceFault as fault:
        raise _Fault(fault.code, fault.message, fault.hint) from fault


def _model_schema(ref: str, found: Found) -> _Schema:
    model = found.value
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise _Fault(
            "P233", f"{ref} is {_kind(model)}, not a pydantic model", "name a class that derives from BaseModel"
        )
    if issubclass(model, RootModel):
        raise _Fault("P233", f"{ref} is a RootModel; a contract is an object", "put its value into a named field")
    try:
        schema = model.model_json_schema(mode="validation")
        written = model.model_json_schema(mode="serialization")
    except PydanticUserError as error:
        raise _Fault("P233", f"{ref} has no JSON Schema: {str(error).splitlines()[0]}") from error
    lost = _renamed(schema, written)
    if lost:
        raise _Fault("P233", f"{ref}.{lost} is read and written under two names", "give it one `alias=`")
    if backtracks(model):
        raise _Fault(
            "P233",
            f"{ref} has regular expressions that Python's engine runs, which can take exponential time",
            'give patterns as text, Field(pattern=r"…"), without regex_engine, look-around or back-references',
        )
    if found_union := schemas.multiplying(schema):
        path, names = found_union
        raise _Fault(
            "P233",
            f"{ref}: each of {' and '.join(names)} can hold all of them again ({path}), and checking a deep value "
            "would try every combination",
            'give the union a discriminator: Field(discriminator="kind"), with a Literal field of that name in each',
        )
    return _Schema("json", schema, model, found.code)


def _kind(value: Any) -> str:
    return "a class" if isinstance(value, type) else f"of type {type(value).__name__}"


def _renamed(read: Mapping[str, Any], written: Mapping[str, Any]) -> str | None:
    """A property that a model does not write under the name it reads, so that its value could not be read back."""
    pairs = [(read, written)]
    pairs += [(child, written.get("$defs", {}).get(name, child)) for name, child in read.get("$defs", {}).items()]
    for before, after in pairs:
        for name in before.get("properties", {}):
            if name not in after.get("properties", {}):
                return str(name)
    return None


def class_contract(cls: type[Any], place: Place) -> Contract:
    """The contract of a class that a Python body asks for: an artifact type, any other model, or `str`.

    Raises ValueError, in words, for a class that no model can be asked for.
    """
    mark = mark_of(cls)
    keys = dict(mark.keys) if mark is not None else {"about": "An answer inside a step.", "not_for": "none"}
    name = mark.name if mark is not None else kebab(cls.__name__)
    loaded = _Schema("markdown" if keys.get("schema") == "markdown" else "text")
    if not issubclass(cls, str):
        try:
            loaded = _model_schema(cls.__name__, Found(cls.__name__, "", cls, {}))
        except _Fault as fault:
            raise ValueError(fault.message) from fault
    for path, reason in unsendable(loaded.schema or {}):
        raise ValueError(f"{path} is {reason}")
    spec = ContractSpec.model_validate({**keys, "artifact": name, "schema": "text", "overflow": "fail"})
    return _contract(spec, loaded, place)


def model_contract(spec: ContractSpec, model: type[BaseModel], place: Place) -> Contract:
    """The contract of a model of our own; `spec` says the rest, its schema does not count."""
    return _contract(spec, _model_schema(model.__name__, Found(model.__name__, "", model, {})), place)


# --- inputs -----------------------------------------------------------------------------------------------------------

_SCALARS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
}


def input_contract(name: str, spec: InputSpec, place: Place) -> Contract:
    """The contract of an input with a built-in type. `string` (one line) and `text` are text, numbers are JSON."""
    form: Form = "file" if spec.type == "file" else "text" if spec.type in ("string", "text") else "json"
    schema = _SCALARS[spec.type] if spec.type in SCALAR_INPUTS else None
    if schema is not None and spec.enum:
        schema = {**schema, "enum": list(spec.enum)}
    about = (spec.about or f"The run's input {name}.").strip()
    not_for = () if spec.not_for == "none" else spec.not_for
    return Contract(
        name=spec.type,
        about=about,
        not_for=not_for,
        sensitivity=spec.sensitivity,
        tags=(),
        max_tokens=None,
        form=form,
        schema=schema,
        model=None,
        fields=(),
        customer_fields=(),
        code={},
        digest=_digest(spec.type, about, not_for, spec.sensitivity, None, form, schema),
        place=place,
    )


def contract_input(contract: Contract, spec: InputSpec, place: Place) -> Contract:
    """A declared contract as an input's: the input says what this value represents, and may add guards."""
    from dataclasses import replace

    about = (spec.about or contract.about).strip()
    added = () if spec.not_for == "none" else spec.not_for
    not_for = (*contract.not_for, *(guard for guard in added if guard not in contract.not_for))
    sensitivity = max(contract.sensitivity, spec.sensitivity, key=lambda s: SENSITIVITY_RANK[s])
    limits = (contract.max_tokens, contract.form, contract.schema, contract.overflow)
    said = _digest(contract.name, about, not_for, sensitivity, *limits)
    return replace(contract, about=about, not_for=not_for, sensitivity=sensitivity, digest=said, place=place)
