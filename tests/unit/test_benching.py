"""Samples side by side: what they came to together, and where they differ. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.context.budget import message_name, message_number
from orchestrator.exchange.benching import ABSENT, PARTLY, Difference, Sample, differences, together
from orchestrator.ids import sha256
from orchestrator.values import Message, Usage


def sample(name: str, value: Any = None, *, failed: bool = False, cost: str | None = "0.10", reasks: int = 0) -> Sample:
    return Sample(
        name=name,
        status="failed" if failed else "succeeded",
        sha256=None if failed else sha256(json.dumps(value)),
        value=value,
        calls=1 + reasks,
        reasks=reasks,
        faults=("check: no",) * reasks,
        usage=Usage(input_tokens=100, output_tokens=10),
        cost_usd=None if cost is None else Decimal(cost),
        cost_partial=cost is None,
        seconds=2.0,
    )


def test_the_sums_of_a_variant_are_over_its_own_samples() -> None:
    samples = [
        sample("a-1", {"x": 1}),
        sample("b-1", {"x": 9}),
        sample("a-2", {"x": 2}, reasks=2),
        sample("a-3", failed=True, reasks=1),
        sample("a-4", {"x": 1}),
    ]
    total = together("a", samples, sha256(json.dumps({"x": 1})))
    assert (total.samples, total.ended, total.passed, total.at_once, total.reasks) == (4, 4, 3, 2, 3)
    assert (total.distinct, total.same) == (2, 2), "a failed sample has no value to count"
    assert (total.cost_usd, total.cost_partial, total.seconds) == (Decimal("0.40"), False, 8.0)
    assert total.usage == Usage(input_tokens=400, output_tokens=40)


def test_a_sample_that_was_not_made_is_no_end_and_an_unknown_price_is_said_to_be_unknown() -> None:
    waiting = replace(sample("a-2", failed=True, cost=None), status="ready", cost_partial=False)
    total = together("a", [sample("a-1", 1, cost=None), waiting], None)
    assert (total.samples, total.ended, total.passed, total.same) == (2, 1, 1, None)
    assert (total.cost_usd, total.cost_partial) == (None, True)


def test_each_place_tells_what_every_variant_has_there_and_how_often() -> None:
    base = {"db": "postgres", "team": 3, "notes": "x"}
    samples = [
        sample("a-1", base),
        sample("a-2", {**base, "db": "mysql"}),
        sample("a-3", base),
        sample("b-1", {**base, "db": "sqlite"}),
        sample("b-2", {"db": "sqlite", "notes": "x"}),
        sample("b-3", failed=True),
    ]
    assert differences(base, samples) == (
        Difference("db", "postgres", {"a": (("postgres", 2), ("mysql", 1)), "b": (("sqlite", 2),)}),
        Difference("team", 3, {"a": ((3, 3),), "b": ((3, 1), (ABSENT, 1))}),
    )


def test_null_is_a_value_and_a_part_that_is_missing_is_none() -> None:
    samples = [sample("a-1", {"x": None}), sample("a-2", {})]
    assert differences({"x": None}, samples) == (Difference("x", None, {"a": ((None, 1), (ABSENT, 1))}),)
    assert differences({}, [sample("a-1", {"x": None})]) == (Difference("x", ABSENT, {"a": ((None, 1),)}),)


def test_a_place_inside_one_that_differs_as_a_whole_is_not_told_twice() -> None:
    base = {"stack": {"db": "postgres"}}
    samples = [sample("a-1", {"stack": {"db": "mysql"}}), sample("a-2", {"stack": None}), sample("a-3", base)]
    (found,) = differences(base, samples)
    assert found.path == "stack"
    assert found.values == {"a": ((PARTLY, 1), (None, 1), ({"db": "postgres"}, 1))}


def test_without_a_version_in_the_run_samples_are_compared_with_the_first_that_passed() -> None:
    samples = [sample("a-1", failed=True), sample("a-2", {"x": 1}), sample("a-3", {"x": 2})]
    assert differences(ABSENT, samples) == (Difference("x", 1, {"a": ((1, 1), (2, 1))}),)
    assert differences(ABSENT, samples[:1]) == ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=1), inner),
    max_leaves=6,
)


@given(VALUES, st.lists(VALUES, min_size=1, max_size=5))
def test_every_passed_sample_is_counted_once_at_every_place(base: Any, values: list[Any]) -> None:
    samples = [sample(f"{'ab'[n % 2]}-{n}", value) for n, value in enumerate(values)]
    for found in differences(base, samples):
        for variant, counted in found.values.items():
            assert sum(count for _, count in counted) == sum(one.variant == variant for one in samples)


@given(VALUES, st.integers(1, 4))
def test_samples_that_equal_the_version_differ_nowhere(base: Any, count: int) -> None:
    assert differences(base, [sample(f"a-{n}", base) for n in range(count)]) == ()


@given(st.integers(1, 10**9), st.sampled_from(["user", "assistant", "operator"]), st.none() | st.just("tech-stack"))
def test_the_name_of_a_message_gives_its_number_back(seq: int, role: Any, step: str | None) -> None:
    assert message_number(message_name(Message(seq, role, "hi", step))) == seq


def test_what_names_no_single_message_has_no_number() -> None:
    assert message_number("heading") is None
    assert message_number("4 earlier messages") is None
