"""S25 attacked through contracts: any JSON Schema an author may write is refused in words, or works with any value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.contracts import Contract, schemas
from orchestrator.contracts.sent_schema import strict, unsendable
from orchestrator.errors import Place
from orchestrator.facts import check_facts, facts_block, output_lines
from orchestrator.output import feedback, judge
from orchestrator.values import Reply, Statement

NAMES = st.sampled_from(["a", "b", "customer_budget", "", "é", "$ref", "type", "x.y", "x[]"])
KINDS = ["string", "object", "array", "number", "integer", "boolean", "null"]


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A schema whose parts are schemas: every keyword there is, in any combination."""
    several, named = st.lists(inner, min_size=1, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from([*KINDS, ["object", "null"], ["array", "object"]]),
            "properties": named,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": several,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "contains": inner,
            "propertyNames": inner,
            "dependentSchemas": named,
            "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a"]),
            "uniqueItems": st.booleans(),
            "multipleOf": st.sampled_from([1, 0.01, 1e-300, 1e300]),
            "minimum": st.sampled_from([0, -1, 1e308]),
            "pattern": st.sampled_from(["^a+$", r"(\d{1,100})*", "(?=x)", "["]),
            "format": st.sampled_from(["date", "date-time", "uuid", "nothing"]),
            "enum": st.sampled_from([[1, "a", None], [{"a": 1}], [True]]),
            "const": st.sampled_from([1, None, "x", [1]]),
            "fact_of": st.just("customer"),
        },
    )


parts: st.SearchStrategy[Any] = st.recursive(st.booleans() | st.just({}), _around, max_leaves=4)
authored = st.builds(
    lambda schema, properties, defs: {**schema, "type": "object", "properties": properties, "$defs": defs},
    _around(parts),
    st.dictionaries(NAMES, parts, max_size=3),
    st.fixed_dictionaries({"a": parts, "b": parts}),
)
scalars = st.sampled_from([None, True, 0, 1, -1, 1.5, 1e308, 10**400, "", "a", "null", "2026-11-30", "budget $5"])
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(NAMES, data, max_size=4)
SAID = (Statement("message", "Our budget is $5.", "turn"), Statement("a", "yes", "input", "a", True))


def _contract(schema: dict[str, Any]) -> Contract:
    fields, facts = tuple(schemas.properties(schema, schema)), schemas.customer_fields(schema)
    return Contract(
        "c", "A value.", (), "internal", (), None, "json", schema, None, fields, facts, {}, "", Place("c.yaml")
    )


def _use(schema: dict[str, Any], value: Any) -> None:
    """Everything that is done with a contract and an answer under it."""
    contract = _contract(schema)
    list(unsendable(schema))
    json.dumps(strict(schema))
    schemas.multiplying(schema)
    output_lines(contract)
    facts_block(contract, SAID)
    result = judge(Reply(id="r", status="completed", text=json.dumps(value), items=()), contract)
    if result.faults:
        feedback(result.faults)
        return
    body = contract.dump(result.value)
    assert contract.dump(contract.load(body)) == body
    json.dumps(check_facts(contract, result.value, SAID).value)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(authored, st.lists(objects | data, min_size=1, max_size=3))
def test_S25_a_schema_is_refused_in_words_or_works_with_any_value(schema: dict[str, Any], values: list[Any]) -> None:
    faults = schemas.schema_faults(schema)
    assert all(faults)
    for value in values if not faults else ():
        _use(schema, value)


@pytest.mark.parametrize(
    "part",
    [
        True,
        False,
        {"anyOf": [False, {"type": "integer"}]},
        {"oneOf": [True]},
        {"allOf": [True]},
        {"allOf": [True, {"properties": {"y": True}}]},
        {"items": False},
        {"not": False},
        {"anyOf": [False]},
    ],
    ids=repr,
)
@pytest.mark.parametrize("value", [None, 1, "x", [1], {"y": 1}])
def test_S25_true_and_false_are_schemas_too(part: Any, value: Any) -> None:
    schema = {"type": "object", "properties": {"a": part}}
    assert schemas.schema_faults(schema) == []
    _use(schema, {"a": value})
