"""JSON Schemas of the files people write, made from the same pydantic models that read them (`orch schema`).

An editor with such a schema completes keys, explains them, and marks most mistakes while they are typed. It is made
from the models, and says in addition what the loader does before a model sees the data: shorthand (`reads: [idea]`),
durations and amounts as text, `x-` extras, a contract's name that stands in its key, and that a key that is there says
something. It promises one thing: what the loader accepts, the schema accepts. The reverse holds for the shape of a
file only; whether a read exists, `orch check` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from orchestrator.loading.key_help import KEY_HELP
from orchestrator.loading.spec_reader import NAME
from orchestrator.spec import SCALAR_INPUTS, ContractSpec, PipelineSpec, StepSpec, parse_duration

FileKind = Literal["pipeline", "step", "artifact"]
FILE_KINDS: Final[tuple[FileKind, ...]] = ("pipeline", "step", "artifact")
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final[JsonSchemaValue] = {"type": "string", "pattern": r"\S"}
_NAME: Final[JsonSchemaValue] = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_DURATION: Final[JsonSchemaValue] = {
    "type": "string",
    "pattern": r"^\s*(?=[0-9.]*[1-9])[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$",
    "examples": ["30s", "10m", "2h"],
}
_AMOUNT: Final[JsonSchemaValue] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"}],
    "examples": ["4.00"],
}
_NAMED: Final = ("inputs", "artifacts", "models", "steps")
_FULL: Final = ("fields", "keep", "domains", "blocked", "not_for")  # lists that say something or are left out


def file_schema(kind: FileKind) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one kind of file."""
    models: Mapping[FileKind, type[BaseModel]] = {"pipeline": PipelineSpec, "step": StepSpec, "artifact": ContractSpec}
    made = models[kind].model_json_schema(by_alias=True, schema_generator=_Generator)
    parts: dict[str, Any] = made.pop("$defs", {})
    adapt = {"pipeline": _pipeline, "step": _step_file, "artifact": _contract}
    for name, part in parts.items():
        _described(name, part)
    _described(models[kind].__name__, made)
    _shorthand(parts)
    adapt[kind](made, parts)
    return {"$schema": DIALECT, "title": f"orch {kind} file", **made, **({"$defs": parts} if parts else {})}


class _Generator(GenerateJsonSchema):
    """pydantic's generator, for values as they stand in a file rather than as the models hold them."""

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        if schema["function"]["function"] is parse_duration:
            return dict(_DURATION)
        return super().function_before_schema(schema)

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])  # a key that is there says something

    def str_schema(self, schema: Any) -> JsonSchemaValue:
        return dict(_TEXT)

    def decimal_schema(self, schema: Any) -> JsonSchemaValue:
        return dict(_AMOUNT)

    def dict_schema(self, schema: Any) -> JsonSchemaValue:
        values = self.generate_inner(schema["values_schema"])
        return {"type": "object", **({"additionalProperties": values} if values else {})}

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default")
        told = isinstance(default, str | int) and default != "" and inner.get("type") != "array"
        return {**inner, "default": default} if told and "$ref" not in inner else inner


def _described(name: str, part: dict[str, Any]) -> None:
    """A model's object: each key explained, extras allowed, pydantic's titles left out."""
    part.pop("title", None)
    part["patternProperties"] = {"^x-": True}
    for key, value in part.get("properties", {}).items():
        value.pop("title", None)
        value.pop("gt", None)  # of a duration, whose pattern says it
        for option in [value, *value.get("anyOf", ())] if key in _FULL else ():
            if option.get("type") == "array":
                option["minItems"] = 1
        help_text = KEY_HELP[name].get(key)
        if help_text is not None:
            value["description"] = help_text


def _shorthand(parts: Mapping[str, Any]) -> None:
    if "StepSpec" in parts:
        _entries(parts["StepSpec"]["properties"])
    if "ReadSpec" in parts:
        whole = {"required": ["select"], "not": {"required": ["fields"]}}
        parts["ReadSpec"]["oneOf"] = [{"required": ["read"]}, whole]
    if "CheckSpec" in parts:
        parts["CheckSpec"]["oneOf"] = [{"required": ["expr"]}, {"required": ["python"]}]
    if "BindSpec" in parts:
        whole = {"required": ["value"], "not": {"anyOf": [{"required": ["guard"]}, {"required": ["default"]}]}}
        parts["BindSpec"]["oneOf"] = [{"required": ["read"]}, whole]
    if "ForEachSpec" in parts:
        parts["ForEachSpec"]["oneOf"] = [{"required": ["in"]}, {"required": ["same"]}]


def _entries(step: dict[str, Any]) -> None:
    """`reads: [idea]`, `tools: ["tools.py:look"]`, `checks: ["total > 0"]` and `with: {topic: idea}` beside the long
    forms."""
    for key in ("reads", "tools", "checks"):
        step[key]["items"] = {"anyOf": [dict(_TEXT), step[key]["items"]]}
    step["with"]["additionalProperties"] = {"anyOf": [dict(_TEXT), step["with"]["additionalProperties"]]}


def _pipeline(made: dict[str, Any], parts: dict[str, Any]) -> None:
    properties = made["properties"]
    for key in _NAMED:
        properties[key]["propertyNames"] = dict(_NAME)
    properties["steps"]["minProperties"] = 1
    properties["pipeline"].update(_NAME)
    # The key of an inline contract is its name.
    parts["ContractSpec"]["required"].remove("artifact")
    scalars = {"enum": sorted(SCALAR_INPUTS)}
    parts["InputSpec"].update({"if": {"properties": {"type": scalars}}, "else": {"required": ["about"]}})
    kind = parts["InputSpec"]["properties"]["type"]
    kind["examples"] = ["text", *scalars["enum"], "file"]


def _step_file(made: dict[str, Any], parts: dict[str, Any]) -> None:
    """A step definition holds the keys of a step, but uses no other definition."""
    properties = made["properties"]
    _entries(properties)
    del properties["uses"], properties["with"]
    parts.pop("BindSpec", None)
    made["properties"] = {"step": {**_TEXT, "description": KEY_HELP["StepSpec"]["step"]}, **properties}


def _contract(made: dict[str, Any], parts: dict[str, Any]) -> None:
    made["properties"]["artifact"].update(_NAME)
