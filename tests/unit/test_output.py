"""Judging replies: what becomes a value, what becomes a fault, what the model is told (A4, R004)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.contracts import Contract
from orchestrator.errors import Place, StepFailed
from orchestrator.expressions import parse
from orchestrator.graph import Check, Function
from orchestrator.output import Judged, feedback, judge, run_checks, schema_faults
from orchestrator.values import Fault, Reply


class Estimate(BaseModel):
    total_low: float | None = None
    total_high: float
    currency: str


def contract(form: Any = "json", *, model: Any = None, max_tokens: int | None = None) -> Contract:
    schema = {
        "type": "object",
        "properties": {"cost": {"type": "number"}, "currency": {"type": "string"}},
        "required": ["cost", "currency"],
        "additionalProperties": False,
    }
    schema = model.model_json_schema() if model else schema
    return Contract(
        name="estimate",
        about="An estimate.",
        not_for=(),
        sensitivity="internal",
        tags=(),
        max_tokens=max_tokens,
        form=form,
        schema=schema if form == "json" else None,
        model=model,
        fields=("cost", "currency") if form == "json" else (),
        customer_fields=(),
        code={},
        digest="",
        place=Place("estimate.yaml"),
    )


def reply(text: str, **changes: Any) -> Reply:
    values: dict[str, Any] = {"id": "resp_1", "status": "completed", "text": text, "items": ()}
    return Reply(**{**values, **changes})


def judged(text: str, **changes: Any) -> Judged:
    return judge(reply(text), contract(**changes))


GOOD = '{"currency": "EUR", "cost": 12}'


def test_a_good_answer_becomes_a_value_in_declared_order() -> None:
    result = judged(GOOD)
    assert result.faults == ()
    assert list(result.value.items()) == [("cost", 12), ("currency", "EUR")]


def test_a_model_fills_in_its_defaults() -> None:
    result = judged('{"total_high": 5, "currency": "EUR"}', model=Estimate)
    assert result.value == {"total_low": None, "total_high": 5.0, "currency": "EUR"}


@pytest.mark.parametrize("text", ["```json\n{}\n```", "```\n{}\n```", "\n```JSON \n{}\n```\n", "```json\r\n{}\r\n```"])
def test_one_fence_around_the_whole_answer_is_taken_off(text: str) -> None:
    assert judged(text.replace("{}", GOOD)).value == {"cost": 12, "currency": "EUR"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"Here it is:\n```json\n{GOOD}\n```", "line 1"),
        (f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```", "line"),
        (f"```python\n{GOOD}\n```", "line 1"),
        (f"{GOOD} {GOOD}", "Extra data"),
        (GOOD[:-1], "line 1"),
        ('{"cost": 12, "currency": "EU', "line 1"),
        ("{'cost': 12}", "line 1"),
        ('{"cost": 1, "cost": 2, "currency": "EUR"}', "twice"),
        ('{"cost": NaN, "currency": "EUR"}', "NaN"),
        ('{"cost": -Infinity, "currency": "EUR"}', "Infinity"),
        ("[" * 70 + "]" * 70, "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
        ('{"cost": ' + "9" * 5000 + "}", "digits"),
        ('{"cost": 0.' + "9" * 5000 + "}", "digits"),
        ('{"cost": 1e999, "currency": "EUR"}', "1e999 is too large for a number"),
    ],
)
def test_what_is_not_strictly_json_is_never_repaired(text: str, reason: str) -> None:
    (fault,) = judged(text).faults
    assert fault.kind == "not_json"
    assert reason in fault.feedback


def test_a_lone_surrogate_is_a_fault() -> None:
    assert [fault.kind for fault in judged('{"cost": 1, "currency": "\\ud800"}').faults] == ["schema"]


def test_A4_all_schema_faults_are_told_at_once_with_field_value_and_rule() -> None:
    result = judged('{"cost": "12k", "note": 1}')
    assert {fault.path for fault in result.faults} == {"$.cost", "$.currency", "$.note"}
    told = feedback(result.faults)
    (cost,) = [line for line in told.splitlines() if "$.cost" in line]
    assert '"12k"' in cost
    assert "must be a number" in cost
    assert told.startswith("Your last answer failed validation:\n- ")
    assert told.endswith("\nReturn the corrected JSON only.")


@pytest.mark.parametrize("form", ["json", "text", "markdown"])
@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_answer(form: str, text: str) -> None:
    assert [fault.kind for fault in judged(text, form=form).faults] == ["empty"]


def test_a_refusal_is_one_even_beside_text() -> None:
    (fault,) = judge(reply(GOOD, refusal="I can't help with that."), contract()).faults
    assert (fault.kind, fault.message) == ("refusal", "I can't help with that.")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_cut_off_reply_is_no_answer_even_if_it_reads_as_one(form: str) -> None:
    cut = judge(reply(GOOD, status="incomplete", incomplete_reason="max_output_tokens"), contract(form))
    assert [fault.kind for fault in cut.faults] == ["too_large"]


def test_text_is_kept_as_it_is() -> None:
    text = "```json\n{}\n```\n  # Title \n"
    assert judged(text, form="markdown") == Judged(text)


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_text_without_a_form_in_bytes_is_refused(text: str) -> None:
    assert [fault.kind for fault in judged(text, form="text").faults] == ["schema"]


def test_the_token_limit_is_told() -> None:
    assert judged("x" * 35, form="text", max_tokens=10).faults == ()
    (fault,) = judged("x" * 36, form="text", max_tokens=10).faults
    assert fault.kind == "too_large"
    assert "about 11 tokens, the limit is 10" in fault.feedback
    assert feedback([fault], "text").endswith("Return the corrected text only.")


def test_the_token_limit_holds_for_what_later_steps_read() -> None:
    spaced = GOOD.replace(" ", " " * 400)
    assert judged(spaced, max_tokens=20).faults == ()


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_data.map(json.dumps) | st.text())
def test_no_reply_raises(text: str) -> None:
    for form in ("json", "text"):
        result = judged(text, form=form)
        assert result.faults == () or result.value is None
        if result.faults:
            assert feedback(result.faults, form)


# --- feedback ---------------------------------------------------------------------------------------------------------


def fault(kind: Any = "schema", told: str = "$.a: 1 (must be text)") -> Fault:
    return Fault(kind, "$.a", "a", told)


def test_at_most_twenty_faults_are_listed_and_the_rest_counted() -> None:
    lines = feedback([fault(told=f"fault {number}") for number in range(23)]).splitlines()
    assert lines[1:21] == [f"- fault {number}" for number in range(20)]
    assert "3 more" in lines[21]
    assert len(lines) == 23


def test_a_long_value_is_shortened_and_stays_on_one_line() -> None:
    (found,) = schema_faults(contract(), {"cost": "line\n" * 1000, "currency": "EUR"})
    told = feedback([found])
    assert len(told.splitlines()) == 3
    assert len(told) < 250


def test_an_assertion_stands_alone() -> None:
    assert feedback([fault("customer_fact", "Check failed: so.")]) == "Check failed: so."


def test_an_assertion_beside_other_faults() -> None:
    told = feedback([fault("customer_fact", "Check failed: so."), fault()]).splitlines()
    assert told == [
        "Your last answer failed validation:",
        "- $.a: 1 (must be text)",
        "Check failed: so.",
        "Return the corrected JSON only.",
    ]


# --- checks -----------------------------------------------------------------------------------------------------------

VALUE = {"total_low": 9, "total_high": 5, "currency": "EUR", "parts": {"net-cost": 3}}


def run(check: Check, value: Any = VALUE, reads: dict[str, Any] | None = None, **more: Any) -> tuple[Fault, ...]:
    return asyncio.run(run_checks([check], value, reads or {}, **more))


def expr(text: str, message: str | None = None) -> Check:
    return Check(text, parse(text), None, message)


def function(call: Any, message: str | None = None) -> Check:
    return Check("checks.py:adds_up", None, Function("checks.py:adds_up", "checks.py", "", call), message)


def test_an_expression_that_holds_is_no_fault() -> None:
    assert run(expr("total_low > total_high")) == ()


def test_a_failed_expression_is_told_with_the_values_of_its_names() -> None:
    (found,) = run(expr("total_low <= total_high", "the low total must not exceed the high total"))
    assert found.kind == "check"
    assert found.message == "the low total must not exceed the high total"
    assert found.feedback == "the low total must not exceed the high total (total_low = 9, total_high = 5)"


def test_a_failed_expression_without_a_message_is_shown_itself() -> None:
    (found,) = run(expr("parts.net_cost > 3"))
    assert found.feedback == "`parts.net_cost > 3` does not hold (parts.net_cost = 3)"


def test_an_expression_that_meets_a_null_is_the_answers_fault() -> None:
    (found,) = run(expr("total_low <= total_high", "low over high"), {"total_low": None, "total_high": 5})
    assert found.message.startswith("low over high: ")
    assert "total_low = null" in found.feedback


def test_a_function_gets_value_and_reads_and_returns_a_message() -> None:
    def adds_up(value: Any, *, market: Any) -> str | None:
        return None if value["total_high"] == market else f"expected {market}"

    assert run(function(adds_up), reads={"market": 5}) == ()
    (found,) = run(function(adds_up), reads={"market": 6})
    assert (found.kind, found.message, found.feedback) == ("check", "expected 6", "expected 6")
    (named,) = run(function(adds_up, "it must add up"), reads={"market": 6})
    assert (named.message, named.feedback) == ("it must add up", "it must add up (expected 6)")


def test_a_function_may_be_async() -> None:
    async def adds_up(value: Any) -> str | None:
        await asyncio.sleep(0)
        return "no"

    assert [found.message for found in run(function(adds_up))] == ["no"]


def test_a_sync_function_runs_off_the_loop() -> None:
    def in_loop(value: Any) -> str | None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return None
        return "in the loop"

    assert run(function(in_loop)) == ()


def test_a_function_gets_an_instance_where_the_schema_is_a_model() -> None:
    def adds_up(value: Any) -> str | None:
        return None if isinstance(value, Estimate) and value.total_high == 5 else "no model"

    value = {"total_low": 1, "total_high": 5, "currency": "EUR"}
    assert run(function(adds_up), value, contract=contract(model=Estimate)) == ()
    assert [found.message for found in run(function(adds_up), value)] == ["no model"]


def test_a_function_cannot_change_the_value() -> None:
    def spoils(value: Any) -> None:
        value["parts"]["net-cost"] = 0

    value = json.loads(json.dumps(VALUE))
    assert run(function(spoils), value) == ()
    assert value == VALUE


def test_a_function_that_raises_is_the_projects_mistake() -> None:
    def broken(value: Any) -> None:
        raise KeyError("total")

    with pytest.raises(StepFailed) as caught:
        run(function(broken))
    assert "checks.py:adds_up" in caught.value.message
    assert "KeyError: 'total'" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("said", [True, False, "", 3])
def test_a_function_that_answers_neither_none_nor_a_message(said: Any) -> None:
    with pytest.raises(StepFailed, match="not None or a message"):
        run(function(lambda value: said))


def test_every_check_runs() -> None:
    checks = [expr("total_low <= total_high"), function(lambda value: None), expr('currency == "USD"')]
    found = asyncio.run(run_checks(checks, VALUE, {}))
    assert len(found) == 2
