"""The language of `expr`: what it computes, what it refuses, what it says when values do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.expressions import ExpressionError, dashed_name, parse

STACK = {"components": [{"name": "web"}, {"name": "api"}], "lead": None, "hosting-plan": {"usd": 40}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("total_low <= total_high", True),
        ("total_low > total_high", False),
        ("total_low < 15 < total_high", True),
        ("total_low + 5 == 15 and not total_high < 0", True),
        ("len(stack.components) > 1", True),
        ("region in ['EU', 'UK']", True),
        ("region not in ('EU',)", False),
        ("min(total_low, total_high) == 10", True),
        ("max([1, 2, 3]) == 3", True),
        ("abs(total_low - total_high) == 10", True),
        ("total_high / total_low == 2", True),
        ("total_low * -1 == -10", True),
        ("stack.lead is None", True),
        ("stack.lead is not None", False),
        ("stack.hosting_plan.usd == 40", True),
        ("stack.absent == None", True),
        ("left_out is None", True),
        ("region == 'US' or total_low", 10),
        ("'EU' == region", True),
    ],
)
def test_computes(text: str, value: Any) -> None:
    values = {"total_low": 10, "total-high": 20, "stack": STACK, "region": "EU"}
    assert parse(text).evaluate(values) == value


def test_numbers_are_decimal_as_written() -> None:
    assert parse("a + b == 0.3").evaluate({"a": 0.1, "b": 0.2}) is True
    assert parse("0.1 in rates").evaluate({"rates": [0.1]}) is True
    assert parse("total == 3 * 1.1").evaluate({"total": 3.3}) is True


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_integers_agree_with_python(a: int, b: int) -> None:
    assert parse("a + b * 2 - 3 <= abs(a)").evaluate({"a": a, "b": b}) is (a + b * 2 - 3 <= abs(a))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("components[0]", "index"),
        ("all(c for c in x)", "all"),
        ("__import__('os')", "__import__"),
        ("x.__class__()", "x.__class__"),
        ("(lambda: 1)()", "lambda"),
        ("a ** 9", "Pow"),
        ("f'{a}'", "f-string"),
        ("{'a': 1}", "{…}"),
        ("a if b else c", "if"),
        ("[x for x in y]", "comprehension"),
        ("'a'.upper()", "upper"),
        ("len(a, b)", "one value"),
        ("max()", "list"),
        ("min(key=a)", "list"),
        ("a is b", "None, True and False"),
        ("len", "function"),
        ("a = b", "not an expression"),
        ("a <", "not an expression"),
        ("", "not an expression"),
        ("b'x'", "bytes"),
        ("x" * 2001, "longer"),
        ("(1).real", "not a name"),
    ],
)
def test_refuses_what_is_not_in_the_language(text: str, word: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert word in caught.value.message


def test_json_words_get_a_hint() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("done == true")
    assert caught.value.hint == "write `True`"
    assert caught.value.column == 9


def test_single_equals_gets_a_hint() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("a = 3")
    assert caught.value.hint == "compare with `==`"


def test_no_object_is_reachable() -> None:
    """An attribute is a key of a JSON object: Python's own attributes do not exist."""
    with pytest.raises(ExpressionError, match="not an object"):
        parse("name.__class__").evaluate({"name": "text"})
    assert parse("item.__class__ is None").evaluate({"item": {}}) is True
    assert parse("item.keys is None").evaluate({"item": {"a": 1}}) is True


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("low <= high", {"low": None, "high": 3}, "`low` is null and `high` is 3: `<=` cannot compare them"),
        ("low + 1 > 0", {"low": None}, "`low` is null, and `+` needs a number"),
        ("low + 1 > 0", {"low": True}, "`low` is true, and `+` needs a number"),
        ("name * 9 == 0", {"name": "x"}, "`name` is the text 'x', and `*` needs a number"),
        ("len(stack) > 0", {"stack": None}, "`len(stack)` cannot be computed on null"),
        ("min(costs) > 0", {"costs": []}, "`min(costs)` cannot be computed on a list"),
        ("stack.lead.name == 1", {"stack": {"lead": None}}, "`stack.lead` is null, so it has no `name`"),
        ("a / b > 1", {"a": 1, "b": 0}, "`b` is 0, so nothing can be divided by it"),
        ("a / b > 1", {"a": 0, "b": 0}, "`b` is 0, so nothing can be divided by it"),
        ("missing > 1", {"a": 1}, "`missing` is null and `1` is 1: `>` cannot compare them"),
    ],
)
def test_says_which_value_does_not_fit(text: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(values)
    assert caught.value.message == message


def test_short_circuit_guards_a_null() -> None:
    assert parse("low is None or low > 3").evaluate({"low": None}) is True
    assert parse("low is not None and low > 3").evaluate({"low": None}) is False


def test_names_and_paths_in_order() -> None:
    expression = parse("len(tech_stack.components) > low and low < max(high, 3)")
    assert [use.path for use in expression.uses] == [("tech_stack", "components"), ("low",), ("low",), ("high",)]
    assert expression.names == {"tech_stack", "low", "high"}


def test_a_name_written_with_a_dash_is_found() -> None:
    """A21: `tech-stack.components` is a subtraction to Python; the error must say so, not `tech` is unknown."""
    names = ["tech-stack", "tech", "cost"]
    assert dashed_name(parse("len(tech-stack.components) > 0"), names) == "tech-stack"
    assert dashed_name(parse("tech - cost > 0"), names) is None
    assert dashed_name(parse("name == 'tech-stack'"), names) is None
    assert dashed_name(parse("a - tech_stack > 0"), names) is None
