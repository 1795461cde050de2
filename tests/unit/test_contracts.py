"""Contracts: every fault of a value, its canonical bytes, the schema that is sent, facts about the customer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from orchestrator.contracts import Contract, build_contract, contract_input, input_contract, schemas
from orchestrator.contracts.rules import SchemaFault
from orchestrator.contracts.sent_schema import unsendable
from orchestrator.errors import Diagnostic, Place, StepFailed
from orchestrator.project import Project
from orchestrator.spec import ContractSpec, InputSpec, Places

COST: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "cost": {"type": "number", "minimum": 0},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "note": {"type": "string"},
        "owner": {"type": ["string", "null"], "fact_of": "customer"},
    },
    "required": ["cost", "currency", "owner"],
    "additionalProperties": False,
}

MODELS = """
from typing import Annotated
from pydantic import BaseModel, Field, RootModel

class Part(BaseModel):
    name: str
    owner: Annotated[str | None, Field(json_schema_extra={"fact_of": "customer"})] = None

class Cost(BaseModel):
    cost: float
    currency: str = "USD"
    parts: list[Part] = []

class Names(RootModel[list[str]]):
    pass

class Renamed(BaseModel):
    a: int = Field(validation_alias="b")

class Odd(BaseModel):
    f: object = Field(default=None)
    g: type = int

not_a_model = 3
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "orchestrator.toml").write_text("")
    (tmp_path / "schemas.py").write_text(MODELS)
    return Project(tmp_path.resolve(), tmp_path.resolve() / "orchestrator.toml", {})


def build(project: Project, schema: Any, **keys: Any) -> tuple[Contract | None, tuple[Diagnostic, ...]]:
    spec = ContractSpec.model_validate(
        {"artifact": "cost", "about": "A cost.", "not_for": ["Not a budget."], "schema": schema, **keys}
    )
    return build_contract(project, spec, Places("artifacts/cost.yaml"), project.root / "cost.yaml")


def contract(project: Project, schema: Any, **keys: Any) -> Contract:
    made, faults = build(project, schema, **keys)
    assert faults == ()
    assert made is not None
    return made


def of_model(model: type[BaseModel]) -> Contract:
    schema = model.model_json_schema()
    fields = tuple(schemas.properties(schema, schema))
    facts = schemas.customer_fields(schema)
    return Contract(
        "m", "about", (), "internal", (), None, "json", schema, model, fields, facts, {}, "d", Place("m.yaml")
    )


def rules(faults: tuple[SchemaFault, ...]) -> dict[str, str]:
    return {fault.path: fault.rule for fault in faults}


# --- faults


class Line(BaseModel):
    label: str = Field(min_length=2)
    usd: float = Field(ge=0)


class Estimate(BaseModel):
    cost: float
    currency: str
    lines: list[Line] = Field(default=[], max_length=2)
    due: date | None = None
    kind: Literal["low", "high"] = "low"
    weeks: int | None = None

    @field_validator("currency")
    @classmethod
    def known(cls, value: str) -> str:
        if value not in ("USD", "EUR"):
            raise ValueError("must be a currency we bill in: USD or EUR")
        return value


def test_A4_faults_name_field_value_and_rule() -> None:
    """A4: `cost: "12k"`, then a missing `currency`."""
    faults = of_model(Estimate).faults({"cost": "12k"})
    assert faults == (
        SchemaFault("$.cost", "must be a number", "12k"),
        SchemaFault("$.currency", "is required", None),
    )


def test_all_faults_of_a_model_at_once_in_plain_words() -> None:
    value = {
        "cost": None,
        "currency": "dollars",
        "lines": [{"label": "x", "usd": -1}, {"usd": "a"}],
        "due": "soon",
        "kind": "mid",
        "weeks": 1.5,
    }
    assert rules(of_model(Estimate).faults(value)) == {
        "$.cost": "must be a number",
        "$.currency": "must be a currency we bill in: USD or EUR",
        "$.lines[0].label": "must have at least 2 characters",
        "$.lines[0].usd": "must be at least 0",
        "$.lines[1].label": "is required",
        "$.lines[1].usd": "must be a number",
        "$.due": "must be a date like 2026-11-30",
        "$.kind": "must be one of 'low' or 'high'",
        "$.weeks": "must be a whole number",
    }


def test_alternatives_of_a_union_are_one_fault() -> None:
    class Price(BaseModel):
        usd: int | bool | None

    assert rules(of_model(Price).faults({"usd": [1]})) == {"$.usd": "must be a whole number or true or false"}


def test_inline_schema_gives_the_same_words(project: Project) -> None:
    made = contract(project, COST)
    value = {"cost": "12k", "currency": "usd", "note": 3, "extra": True}
    assert rules(made.faults(value)) == {
        "$.owner": "is required",
        "$.extra": "is not a field of this type; leave it out",
        "$.cost": "must be a number",
        "$.currency": "must match the pattern ^[A-Z]{3}$",
        "$.note": "must be text",
    }
    assert made.faults({"cost": 1, "currency": "USD", "owner": None}) == ()
    assert rules(made.faults([1])) == {"$": "must be an object"}


def test_inline_unions_name_all_types_or_explain_the_fitting_one(project: Project) -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}},
    }
    made = contract(project, schema)
    assert rules(made.faults({"x": "a"})) == {"$.x": "must be a whole number or null"}
    assert rules(made.faults({"x": 1})) == {"$.x": "must be at least 3"}


def test_formats_are_checked(project: Project) -> None:
    fields = {"day": {"type": "string", "format": "date"}, "at": {"type": "string", "format": "date-time"}}
    made = contract(project, {"type": "object", "properties": fields})
    assert made.faults({"day": "2026-11-30", "at": "2026-11-30T09:00:00Z"}) == ()
    assert rules(made.faults({"day": "soon", "at": "2026-11-30"})) == {
        "$.at": "must have the format date-time",
        "$.day": "must have the format date",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_S25_what_has_no_canonical_form_is_a_fault(value: Any) -> None:
    class Any_(BaseModel):
        x: Any

    faults = of_model(Any_).faults({"x": value})
    assert len(faults) == 1
    assert faults[0].path == "$"


def test_a_validator_that_breaks_is_the_projects_mistake() -> None:
    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def look_up(cls, value: int) -> int:
            return {1: 1}[value]

    made = of_model(Broken)
    assert made.faults({"x": 1}) == ()
    with pytest.raises(StepFailed) as caught:
        made.faults({"x": 2})
    assert caught.value.message == "the contract m cannot check a value: KeyError: 2"
    assert caught.value.code == "contract_broken"


# --- nulls that the strict form made


def test_null_of_an_optional_field_that_is_not_nullable_means_left_out(project: Project) -> None:
    made = contract(project, COST)
    value = {"cost": 1, "currency": "USD", "note": None, "owner": None}
    assert made.faults(value) == ()
    assert made.normalise(value) == {"cost": 1, "currency": "USD", "owner": None}
    model = contract(project, "schemas.py:Cost")
    assert model.normalise({"cost": 2, "currency": None, "parts": None}) == {"cost": 2, "currency": "USD", "parts": []}


def test_null_of_a_required_field_stays_a_fault(project: Project) -> None:
    assert rules(contract(project, COST).faults({"cost": None, "currency": "USD", "owner": None})) == {
        "$.cost": "must be a number"
    }


def test_nulls_are_dropped_deep_inside_lists_unions_and_references(project: Project) -> None:
    schema = {
        "type": "object",
        "$defs": {"p": {"type": "object", "properties": {"n": {"type": "string"}, "kids": {"$ref": "#/$defs/ps"}}},
                  "ps": {"type": "array", "items": {"$ref": "#/$defs/p"}}},
        "properties": {"parts": {"anyOf": [{"$ref": "#/$defs/ps"}, {"type": "null"}]}},
        "required": ["parts"],
    }  # fmt: skip
    made = contract(project, schema)
    value = {"parts": [{"n": None, "kids": [{"n": "x", "kids": None}]}]}
    assert made.normalise(value) == {"parts": [{"kids": [{"n": "x"}]}]}


# --- canonical bytes


def test_keys_stand_in_declared_order_whoever_made_the_value(project: Project) -> None:
    made = contract(project, COST)
    one = made.dump({"owner": None, "currency": "USD", "cost": 997.0})
    assert one == made.dump({"cost": 997, "owner": None, "currency": "USD"})
    assert json.loads(one) == {"cost": 997, "currency": "USD", "owner": None}
    assert list(json.loads(one)) == ["cost", "currency", "owner"]
    assert b"997.0" not in one


def test_extra_keys_follow_by_name(project: Project) -> None:
    schema = {"type": "object", "properties": {"z": {"type": "integer"}}}
    assert list(contract(project, schema).normalise({"b": 1, "z": 2, "a": 3})) == ["z", "a", "b"]


def test_normalise_refuses_what_has_faults(project: Project) -> None:
    with pytest.raises(ValueError, match=r"^\$\.currency is required; \$\.cost must be a number$"):
        contract(project, COST).normalise({"cost": "12k", "owner": None})


class Item(BaseModel):
    name: str
    usd: Decimal
    tags: set[str] = set()
    extra: dict[str, int] = {}


items = st.builds(
    lambda n, u, t, e: {"usd": str(u), "name": n, "extra": e, "tags": t},
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.decimals(0, 10**6, places=2),
    st.lists(st.sampled_from(["a", "b"]), max_size=1),
    st.dictionaries(st.sampled_from(["y", "x", "w"]), st.integers(0, 9), max_size=3),
)


@given(items)
def test_bytes_are_stable_and_read_back(value: dict[str, Any]) -> None:
    """normalise is idempotent, load inverts dump, equal values have equal bytes, an instance dumps to the same."""
    made = of_model(Item)
    body = made.dump(value)
    assert made.dump(made.load(body)) == body
    assert made.dump(dict(reversed(value.items()))) == body
    assert made.dump(made.instance(body)) == body
    assert list(made.load(body)) == ["name", "usd", "tags", "extra"]
    assert made.faults(made.load(body)) == ()


def test_field_hashes_are_per_top_level_field(project: Project) -> None:
    made = contract(project, COST)
    one = made.field_hashes(made.dump({"cost": 1, "currency": "USD", "owner": None}))
    two = made.field_hashes(made.dump({"cost": 2, "currency": "USD", "owner": None}))
    assert set(one) == {"cost", "currency", "owner"}
    assert one["cost"] != two["cost"]
    assert one["currency"] == two["currency"]


def test_text_is_utf8_as_it_is(project: Project) -> None:
    made = contract(project, "markdown")
    assert (made.form, made.fields, made.sent_schema(), made.schema) == ("markdown", (), None, None)
    text = "# Ünal\n\r\n€ 997  \n"
    assert made.dump(text) == text.encode()
    assert made.load(text.encode()) == text
    assert made.field_hashes(text.encode()) == {}
    assert rules(made.faults({"a": 1})) == {"$": "must be text"}
    assert rules(made.faults("\ud800")) == {"$": "must be text without lone surrogates"}


def test_a_file_is_bytes(project: Project) -> None:
    made = contract(project, "file")
    assert made.dump(b"\xff\x00") == b"\xff\x00"
    assert made.load(b"\xff\x00") == b"\xff\x00"


def test_instance_is_the_model(project: Project) -> None:
    made = contract(project, "schemas.py:Cost")
    instance = made.instance(b'{"cost": 2}')
    assert type(instance).__name__ == "Cost"
    assert instance.cost == 2
    assert made.normalise(instance) == {"cost": 2, "currency": "USD", "parts": []}
    assert contract(project, COST).instance(b'{"cost": 2}') == {"cost": 2}


# --- the schema that is sent


def strict_faults(schema: Any, path: str = "$") -> list[str]:
    """The vendors' rules, written down again: every property required, no others, no references with siblings."""
    faults = []
    if isinstance(schema, dict):
        if "properties" in schema:
            if schema.get("required") != list(schema["properties"]):
                faults.append(f"{path}: not all required")
            if schema.get("additionalProperties") is not False:
                faults.append(f"{path}: open")
        if "$ref" in schema and len(schema) > 1:
            faults.append(f"{path}: $ref with siblings")
        for key, value in schema.items():
            if key in ("oneOf", "default", "title", "fact_of", "uniqueItems") and "properties" not in path[-11:]:
                faults.append(f"{path}: {key}")
            faults += strict_faults(value, f"{path}.{key}")
    if isinstance(schema, list):
        for at, value in enumerate(schema):
            faults += strict_faults(value, f"{path}[{at}]")
    return faults


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Zoo(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]
    best: Cat | None = Field(default=None, description="The best.")
    first: Cat = Field(description="The first.")
    title: str = "none"
    code: str = Field(default="x", pattern="^[a-z]+$", max_length=5)
    price: Decimal = Decimal(1)
    tags: set[str] = set()
    budget: Annotated[int | None, Field(json_schema_extra={"fact_of": "customer"})] = None


def test_sent_schema_is_strict() -> None:
    made = of_model(Zoo)
    sent = made.sent_schema()
    assert sent is not None
    assert strict_faults(sent) == []
    assert list(sent["properties"]) == ["pets", "best", "first", "title", "code", "price", "tags", "budget"]
    assert sent["properties"]["title"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert sent["properties"]["code"] == {
        "anyOf": [{"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, {"type": "null"}]
    }
    assert sent["properties"]["budget"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert sent["properties"]["first"] == {"anyOf": [{"$ref": "#/$defs/Cat"}], "description": "The first."}
    assert sent["properties"]["pets"]["items"] == {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    assert sent["$defs"]["Cat"]["properties"]["lives"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert made.schema is not None
    assert "fact_of" in json.dumps(made.schema)


def test_sent_schema_of_an_inline_contract(project: Project) -> None:
    assert contract(project, COST).sent_schema() == {
        "type": "object",
        "properties": {
            "cost": {"type": "number", "minimum": 0},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "owner": {"type": ["string", "null"]},
        },
        "required": ["cost", "currency", "note", "owner"],
        "additionalProperties": False,
    }


def test_an_enum_gets_its_types(project: Project) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x", None]}, "b": {"const": 3}}, "required": ["a"]}
    sent = contract(project, schema).sent_schema()
    assert sent is not None
    assert sent["properties"] == {
        "a": {"type": ["string", "null"], "enum": ["x", None]},
        "b": {"anyOf": [{"type": "integer", "const": 3}, {"type": "null"}]},
    }


class Node(BaseModel):
    name: str
    children: list[Node] = []


def test_sent_schema_of_a_recursive_model_keeps_its_references() -> None:
    sent = of_model(Node).sent_schema()
    assert sent is not None
    assert strict_faults(sent) == []
    assert sent["type"] == "object"
    assert sent["$defs"]["Node"]["properties"]["name"] == {"type": "string"}


def test_an_answer_that_obeys_the_sent_schema_with_nulls_is_accepted() -> None:
    value = {"pets": [{"kind": "cat", "lives": None}, {"kind": "dog"}], "best": None, "title": None, "code": None,
             "first": {"kind": "cat", "lives": 2}, "price": None, "tags": None, "budget": None}  # fmt: skip
    normal = of_model(Zoo).normalise(value)
    assert normal["pets"] == [{"kind": "cat", "lives": 9}, {"kind": "dog"}]
    assert (normal["title"], normal["best"], normal["budget"]) == ("none", None, None)


def test_what_the_strict_form_cannot_say_is_found() -> None:
    class Loose(BaseModel):
        rates: dict[str, float]
        pair: tuple[int, str]
        thing: Any
        things: list[Any]
        fine: list[str]

    assert {path: reason.split(",")[0] for path, reason in unsendable(Loose.model_json_schema())} == {
        "$.properties.rates": "a free-form object (a dict)",
        "$.properties.pair": "a tuple",
        "$.properties.thing": "a value of any kind",
        "$.properties.things.items": "a value of any kind",
    }
    assert list(unsendable(Zoo.model_json_schema())) == []


# --- customer facts


def test_customer_fields_are_found_with_their_paths(project: Project) -> None:
    assert contract(project, COST).customer_fields == ("owner",)
    assert contract(project, "schemas.py:Cost").customer_fields == ("parts[].owner",)
    assert of_model(Node).customer_fields == ()


def test_which_facts_must_have_a_value() -> None:
    mark = {"fact_of": "customer"}
    schema = {
        "type": "object",
        "properties": {
            "required": {"type": "string", **mark},
            "nullable": {"type": ["string", "null"], **mark},
            "optional": {"type": "string", **mark},
            "defaulted": {"type": "string", "default": "EU", **mark},
            "chosen": {"enum": ["a", None], **mark},
            "nested": {"type": "object", "properties": {"deep": {"type": "number", **mark}}, "required": ["deep"]},
        },
        "required": ["required", "nullable", "chosen", "nested"],
    }
    found = {path: required for path, _, required in schemas.marked_fields(schema)}
    assert found == {
        "required": True, "nullable": False, "optional": False, "defaulted": True, "chosen": False, "nested.deep": True,
    }  # fmt: skip


# --- building


def test_R002_a_label_has_two_parts(project: Project) -> None:
    """R002: both parts say something, or the load fails with the artifact named."""
    for keys, part in (
        ({"about": "  "}, "about"),
        ({"not_for": []}, "not_for"),
        ({"not_for": ["Not a budget.", " "]}, "not_for"),
    ):
        made, faults = build(project, COST, **keys)
        assert made is None
        assert [f.code for f in faults] == ["P231"]
        assert faults[0].message == f"contract cost: `{part}` is empty"
    assert contract(project, COST, not_for="none").not_for == ()


@pytest.mark.parametrize(
    ("schema", "code", "words"),
    [
        ({"type": "object", "properties": {"a": {"type": "strng"}}}, "P232", "$.properties.a.type"),
        ({"type": "array", "items": {}}, "P232", "must be an object"),
        ({"type": "object", "properties": {"a": {"$ref": "https://x.example/s"}}}, "P232", "leads out of this schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "P232", "leads nowhere"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "P232", "back to itself"),
        ({"type": "object", "properties": {"a": {"pattern": r"(a+)\1"}}}, "P232", "linear time"),
        ({"type": "object", "properties": {"a": {"pattern": "(?=a)b"}}}, "P232", "linear time"),
        ({"type": "object", "properties": {"a": {"fact_of": "nobody"}}}, "P232", "fact_of"),
        ({"type": "object", "patternProperties": {"^a": {}}}, "P232", "patternProperties"),
        ({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}, "P232", "2020-12"),
        ("schemas.py", "P233", "none of the three forms"),
        ("schemas.py:Cst", "P223", "schemas.py:Cst"),
        ("nowhere.py:Cost", "P222", "there is no file 'nowhere.py'"),
        ("../../etc/x.py:Cost", "P222", "leads out of the project"),
        ("schemas.py:not_a_model", "P233", "is of type int, not a pydantic model"),
        ("schemas.py:Names", "P233", "RootModel"),
        ("schemas.py:Renamed", "P233", "two names"),
        ("schemas.py:Odd", "P233", "no JSON Schema"),
    ],
)
def test_schemas_that_cannot_be_used(project: Project, schema: Any, code: str, words: str) -> None:
    made, faults = build(project, schema)
    assert made is None
    assert [fault.code for fault in faults] == [code]
    assert words in faults[0].message
    assert faults[0].message.startswith("contract cost: ")


def test_S25_patterns_run_in_linear_time(project: Project) -> None:
    """A pattern that takes a backtracking engine exponential time is answered at once."""
    made = contract(project, {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    assert rules(made.faults({"a": "a" * 5000 + "!"})) == {"$.a": "must match the pattern ^(a+)+$"}


def test_code_and_digest(project: Project) -> None:
    made = contract(project, "schemas.py:Cost")
    assert list(made.code) == ["schemas.py"]
    assert made.digest == contract(project, "schemas.py:Cost").digest
    for keys in ({"about": "Other."}, {"not_for": "none"}, {"max_tokens": 5}, {"sensitivity": "secret"}):
        assert contract(project, "schemas.py:Cost", **keys).digest != made.digest
    assert contract(project, COST).digest != made.digest
    assert contract(project, "schemas.py:Cost", tags=["topic:cost"]).digest == made.digest


# --- inputs


def test_scalar_inputs() -> None:
    place = Place("p.yaml", 3)
    made = {
        kind: input_contract("x", InputSpec(type=kind), place) for kind in ("string", "integer", "number", "boolean")
    }
    assert {kind: c.form for kind, c in made.items()} == {
        "string": "text", "integer": "json", "number": "json", "boolean": "json",
    }  # fmt: skip
    assert made["string"].dump("EU") == b"EU"
    assert made["integer"].dump(3.0) == b"3"
    assert made["boolean"].dump(True) == b"true"
    assert made["integer"].load(b"3") == 3
    assert rules(made["integer"].faults("3")) == {"$": "must be a whole number"}
    assert rules(made["number"].faults(True)) == {"$": "must be a number"}
    assert rules(made["boolean"].faults(1)) == {"$": "must be true or false"}
    assert rules(made["string"].faults(3)) == {"$": "must be text"}
    assert rules(made["string"].faults("two\nlines")) == {"$": "must be one line"}
    assert made["string"].about == "The run's input x."


def test_text_inputs_may_have_lines_and_guards() -> None:
    made = input_contract("idea", InputSpec(type="text", about="An idea.", not_for=("Not a spec.",)), Place("p"))
    assert made.faults("two\nlines") == ()
    assert (made.about, made.not_for, made.form) == ("An idea.", ("Not a spec.",), "text")


def test_an_input_of_a_contract_keeps_its_guards_and_may_add_some(project: Project) -> None:
    base = replace(contract(project, COST), sensitivity="confidential")
    spec = InputSpec(type="cost", about="What they pay now.", not_for=("Not a promise.", "Not a budget."))
    made = contract_input(base, spec, Place("p.yaml"))
    assert made.about == "What they pay now."
    assert made.not_for == ("Not a budget.", "Not a promise.")
    assert made.sensitivity == "confidential"
    assert made.digest != base.digest
    assert made.schema == base.schema
