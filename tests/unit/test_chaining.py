"""What a run would have cost as one chain, and with its whole history: worked out by hand (R022)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from orchestrator.money import Price, Rates
from orchestrator.store.costs import Asked, Made, Piece, Recorded
from orchestrator.trace.chaining import Comparison, compare
from orchestrator.trace.costs import said
from orchestrator.values import Usage

PRICE = Price("ours", Rates(*map(Decimal, ("2", "0.2", "2", "10"))))
SYSTEM = 1000


def call(step: str, tokens: int, out: int, at: float, **more: object) -> Asked:
    usage = Usage(tokens, 0, 0, out)
    made = Asked(step, f"{step}#1", step, False, True, "acme:m", at, tokens, usage, PRICE.cost(usage), PRICE)
    return replace(made, **more)  # type: ignore[arg-type]


def piece(key: str, tokens: int, source: str = "", *, artifact: bool = True) -> Piece:
    return Piece(key, source or key, tokens, artifact)


# a makes a@1; b reads it; a person edits it; c reads the edited one, and what b made.
CALLS = (call("a", 2000, 1000, 0), call("b", 2500, 800, 10), call("c", 3300, 600, 20))
PIECES = {
    "a": (piece("idea@1", 500), piece("task a", 500, artifact=False)),
    "b": (piece("a@1", 1000), piece("task b", 500, artifact=False)),
    "c": (piece("a@2", 1000), piece("b@1", 800), piece("task c", 500, artifact=False)),
}
MADE = {
    "a@1": Made("a#1", "a", True),
    "a@2": Made("a#1", "a", False),
    "b@1": Made("b#1", "b", True),
    "c@1": Made("c#1", "c", True),
}


def ways(calls: tuple[Asked, ...] = CALLS, **more: object) -> Comparison:
    return compare(replace(Recorded(calls, PIECES, dict.fromkeys("abc", SYSTEM), MADE), **more))  # type: ignore[arg-type]


def test_R022_a_chain_reads_all_that_was_said_and_brings_only_what_is_new_and_what_was_edited() -> None:
    """b: 2000 + 1000 said, 500 new. c: 3500 + 800 said, 500 new, and the 1000 of the edit."""
    found = ways()
    assert [step.one_chain.input_tokens for step in found.steps] == [2000, 3500, 5800]
    assert [step.one_chain.cached_tokens for step in found.steps] == [0, 2944, 4224]  # 3000 and 4300, in blocks of 128
    assert [step.as_run.input_tokens for step in found.steps] == [2000, 2500, 3300]
    assert [step.whole_history.input_tokens for step in found.steps] == [2000, 3500, 5800]
    assert found.run.as_run.cost_usd == Decimal("0.0396")
    assert [step.one_chain.cost_usd for step in found.steps] == [
        Decimal("0.014"),
        Decimal(556 * 2 + 8000) / 10**6 + Decimal(2944) * Decimal("0.2") / 10**6,
        Decimal(1576 * 2 + 6000) / 10**6 + Decimal(4224) * Decimal("0.2") / 10**6,
    ]
    assert found.run.one_chain.cost_usd == Decimal("0.0336976")
    assert found.run.whole_history.cost_usd == Decimal("0.0466")


def test_it_is_said_plainly_where_chaining_would_have_been_cheaper_and_what_it_would_have_carried() -> None:
    found = ways()
    assert found.chain_is_cheaper
    assert found.replaced == Decimal(1000) / 11300  # the old a, in c's context
    assert said(found) == (
        "one chain through all steps would have been cheaper: 15% less",
        "its whole history would have been dearer: 18% more",
        "8.8% of what the chain would have read had been replaced by then",
    )
    without_discount = Price("ours", Rates(*map(Decimal, ("2", "2", "2", "10"))))
    dear = ways(tuple(replace(one, price=without_discount) for one in CALLS))
    assert not dear.chain_is_cheaper
    assert said(dear)[0] == "one chain through all steps would have been dearer: 18% more"


def test_R034_a_gap_of_more_than_five_minutes_or_another_model_has_nothing_in_the_cache() -> None:
    late = (CALLS[0], replace(CALLS[1], at=300.0), replace(CALLS[2], at=600.5))
    assert [step.one_chain.cached_tokens for step in ways(late).steps] == [0, 2944, 0]
    other = (CALLS[0], replace(CALLS[1], model="acme:other"), CALLS[2])
    assert [step.one_chain.cached_tokens for step in ways(other).steps] == [0, 0, 0]


def test_where_writing_to_the_cache_costs_more_the_chain_pays_it_for_what_is_new() -> None:
    dear = Price("ours", Rates(*map(Decimal, ("2", "0.2", "2.5", "10"))))
    found = ways(tuple(replace(one, price=dear) for one in CALLS))
    expected = Decimal("556") * Decimal("2.5") + Decimal(2944) * Decimal("0.2") + 8000
    assert found.steps[1].one_chain.cost_usd == expected / 10**6
    assert found.steps[1].whole_history.cost_usd == Decimal(3500 * 2 + 8000) / 10**6


def test_an_output_schema_is_no_part_of_the_conversation_and_estimates_are_put_right_by_what_was_reported() -> None:
    """a's request has a schema of 300 tokens; the provider counts half as much again as we estimate."""
    first = replace(CALLS[0], estimate=2300, usage=Usage(3450, 0, 0, 1000))
    found = ways((first, CALLS[1], CALLS[2]))
    assert [step.one_chain.input_tokens for step in found.steps][:2] == [3450, 3450 - 450 + 1000 + 500]


def test_calls_inside_a_step_go_on_from_each_other_and_those_without_usage_are_counted_apart() -> None:
    """b is asked twice: the second call brings 200 more than the first one's input and answer."""
    again = replace(CALLS[1], at=11, usage=Usage(2500 + 800 + 200, 0, 0, 700))
    lost = replace(CALLS[1], at=12, usage=None, cost_usd=None)
    found = ways((CALLS[0], CALLS[1], again, lost, CALLS[2]))
    assert found.steps[1].one_chain.input_tokens == 3500 + 4500
    assert found.steps[2].one_chain.input_tokens == 4500 + 700 + 1500
    assert found.unreported == 1
    assert said(found)[-1] == "1 call reported no usage, and counts in none of these"


def test_without_prices_or_calls_nothing_is_claimed() -> None:
    found = ways(tuple(replace(one, price=None, cost_usd=None) for one in CALLS))
    assert (found.run.as_run.cost_usd, found.run.as_run.partial) == (None, True)
    assert said(found)[0].startswith("no price is known")
    assert compare(Recorded((), {}, {}, {})).steps == ()
