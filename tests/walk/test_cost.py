"""Money, end to end: what each call cost, what a step and a run cost, and the cap that is never passed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.outcome import exit_code
from orchestrator.errors import BudgetExceeded, OrchError
from orchestrator.plan import plan_new
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.trace.documents import run_document
from orchestrator.values import BudgetRow, Reply, Request
from tests.walk.harness import House, Seen

# Dollars per million tokens: the rates of field case A23.
PRICES = """
user = "ana"
[providers.acme]
kind = "scripted"
[prices."priced"]
input = "2.00"
cached = "0.20"
output = "10.00"
"""
PIPELINE = """
version: 1
pipeline: money
inputs:
  order: {{type: text, about: "What was ordered."}}
models:
  default: {{use: "{model}", max_output_tokens: 1000}}
{budget}
artifacts:
  price: {{about: "What the order costs.", not_for: none, schema: {{
    type: object, properties: {{cost: {{type: integer}}}}, required: [cost], additionalProperties: false}}}}
  note: {{about: "A note for the customer.", not_for: none, schema: text}}
steps:
{steps}
"""
STEPS = """
  price: {reads: [order], prompt: "What does it cost?"}
  letter: {reads: [price], produces: note, prompt: "Write the letter."}
"""


def usage(given: int, out: int = 0, cached: int = 0) -> dict[str, int]:
    return {"input_tokens": given, "output_tokens": out, "cached_tokens": cached}


def answer(cost: object, **used: int) -> dict[str, Any]:
    return {"json": {"cost": cost}, "usage": usage(**used)}


def house(
    folder: Path, script: Any, *, model: str = "acme:priced", budget: str = "", steps: str = STEPS, **options: Any
) -> House:
    pipeline = PIPELINE.format(model=model, budget=f"budget: {budget}" if budget else "", steps=steps.strip("\n"))
    provider = script if isinstance(script, ScriptedProvider) else ScriptedProvider(script, name="acme", **options)
    return House(folder, pipeline, provider, files={"orchestrator.toml": PRICES})


def run(there: House, **options: Any) -> Seen:
    return asyncio.run(there.run({"order": "two lamps"}, **options))


def costs(seen: Seen, step: str) -> list[Decimal | None]:
    return [call.done.cost_usd if call.done else None for call in seen.calls(step)]


def document(seen: Seen) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run_document(seen.row, tuple(seen.steps.values()), {}, {})["run"]
    return found


def budget(there: House) -> BudgetRow:
    async def ask() -> BudgetRow:
        async with there.services() as (services, _):
            return await services.store.budget((await services.store.run("last")).id)

    return asyncio.run(ask())


LETTER = [{"text": "It costs 24 USD.", "usage": usage(given=100, out=10)}]


# --- what it cost -----------------------------------------------------------------------------------------------------


def test_A23_cached_tokens_are_priced_once_and_at_their_own_rate(tmp_path: Path) -> None:
    """(9637 - 4352) × $2.00/M + 4352 × $0.20/M = $0.0114404, in the call, the step, the run and its document."""
    there = house(tmp_path, {"price": [answer(24, given=9637, cached=4352)], "letter": LETTER})
    seen = run(there)
    assert costs(seen, "price") == [Decimal("0.0114404")]
    assert seen.steps["price"].cost_usd == Decimal("0.0114404")
    assert seen.steps["letter"].cost_usd == Decimal("0.0003")
    written = document(seen)
    assert written["cost_usd"] == "0.0117404"
    assert written["cost_partial"] is False
    assert written["usage"] == {"input_tokens": 9737, "cached_tokens": 4352, "output_tokens": 10}
    done = next(event.data for event in there.events if event.kind == "run.done")
    assert Decimal(str(done["cost_usd"])) == Decimal("0.0117404")


def test_A23_three_tries_of_which_two_were_rejected_cost_the_sum_of_three(tmp_path: Path) -> None:
    tries = [answer("dear", given=1000, out=10), answer(None, given=1100, out=20), answer(24, given=1200, out=30)]
    seen = run(house(tmp_path, {"price": tries, "letter": LETTER}))
    assert costs(seen, "price") == [Decimal("0.0021"), Decimal("0.0024"), Decimal("0.0027")]
    assert seen.steps["price"].cost_usd == Decimal("0.0072")
    assert seen.steps["price"].usage.input_tokens == 3300
    assert document(seen)["cost_usd"] == "0.0075"


def test_A23_a_step_whose_every_reply_was_rejected_is_charged_for_them_all(tmp_path: Path) -> None:
    there = house(tmp_path, {"price": [answer("dear", given=1000, out=10)] * 9, "letter": LETTER})
    seen = run(there)
    assert seen.steps["price"].status == "failed"
    assert len(there.requests()) == 3
    assert seen.steps["price"].cost_usd == 3 * Decimal("0.0021")
    assert document(seen)["cost_usd"] == "0.0063"
    assert budget(there) == BudgetRow(None, Decimal("0.0063"), Decimal(0))


def test_replies_that_were_cut_off_or_thrown_away_are_charged(tmp_path: Path) -> None:
    half = {"text": "{", "status": "incomplete", "usage": usage(given=1000, out=1000)}
    seen = run(house(tmp_path, {"price": [half, answer(24, given=1000, out=10)], "letter": LETTER}))
    assert costs(seen, "price") == [Decimal("0.012"), Decimal("0.0021")]
    assert seen.steps["price"].cost_usd == Decimal("0.0141")


def test_an_attempt_that_failed_stays_on_the_bill_when_the_step_is_resumed(tmp_path: Path) -> None:
    there = house(tmp_path, {"price": [answer("dear", given=1000, out=10)] * 3, "letter": LETTER})
    run(there)
    there.provider = ScriptedProvider({"price": [answer(24, given=500, out=1)], "letter": LETTER}, name="acme")
    seen = asyncio.run(there.resume())
    assert seen.status == "succeeded"
    assert seen.steps["price"].cost_usd == 3 * Decimal("0.0021") + Decimal("0.00101")
    assert seen.steps["price"].calls == 4


def test_A23_an_unknown_price_is_null_and_the_total_is_marked_partial(tmp_path: Path) -> None:
    script = {"price": [answer(24, given=1000, out=10)], "letter": LETTER}
    seen = run(house(tmp_path, script, model="acme:nobody-knows", budget="{usd: 1, unpriced: allow}"))
    assert seen.status == "succeeded"
    assert costs(seen, "price") == [None]
    assert (seen.steps["price"].cost_usd, seen.steps["price"].cost_partial) == (None, True)
    written = document(seen)
    assert (written["cost_usd"], written["cost_partial"]) == (None, True)
    assert written["steps"][0]["cost_usd"] is None


def test_A23_one_unknown_price_among_known_ones_leaves_a_sum_that_says_so(tmp_path: Path) -> None:
    steps = """
  price: {reads: [order], prompt: "What does it cost?"}
  letter: {reads: [price], produces: note, prompt: "Write the letter.", model: odd}
"""
    there = house(tmp_path, {"price": [answer(24, given=1000, out=10)], "letter": LETTER}, steps=steps)
    there.write("walk.yaml", there.pipeline.replace("models:\n", 'models:\n  odd: {use: "acme:nobody-knows"}\n'))
    written = document(run(there))
    assert (written["cost_usd"], written["cost_partial"]) == ("0.0021", True)
    assert [step["cost_partial"] for step in written["steps"]] == [False, True]


def test_A23_a_cap_refuses_what_it_cannot_price_unless_told_otherwise(tmp_path: Path) -> None:
    script = {"price": [answer(24, given=1000, out=10)], "letter": LETTER}
    there = house(tmp_path, script, model="acme:nobody-knows", budget="{usd: 1}")
    seen = run(there)
    assert there.requests() == []
    assert seen.status == "paused"
    assert seen.row.error is not None
    assert seen.row.error.exit_code == 5
    assert "acme:nobody-knows" in seen.row.error.message
    assert '[prices."nobody-knows"]' in (seen.row.error.hint or "")


def test_a_cap_that_only_the_command_gives_refuses_what_it_cannot_price_too(tmp_path: Path) -> None:
    script = {"price": [answer(24, given=1000, out=10)], "letter": LETTER}
    there = house(tmp_path, script, model="acme:nobody-knows")
    assert run(there, cap_usd=Decimal(1)).status == "paused"
    assert there.requests() == []
    assert run(there).status == "succeeded"


def test_a_reply_that_a_broken_check_could_not_judge_is_charged(tmp_path: Path) -> None:
    steps = STEPS.replace('?"}', '?", checks: [{python: "work.py:check"}]}', 1)
    there = house(tmp_path, {"price": [answer(24, given=1000, out=10)], "letter": LETTER}, steps=steps)
    there.write("work.py", "def check(value, **reads):\n    return 1 / 0\n")
    seen = run(there)
    assert seen.steps["price"].error is not None
    assert seen.steps["price"].error.code == "check_broken"
    assert seen.steps["price"].cost_usd == Decimal("0.0021")
    assert budget(there) == BudgetRow(None, Decimal("0.0021"), Decimal(0))


def test_usage_that_was_not_reported_is_charged_as_it_was_reserved(tmp_path: Path) -> None:
    """S31: what is not known is never taken for nothing."""
    there = house(tmp_path, {"price": [{"json": {"cost": 24}, "usage": None}], "letter": LETTER})
    seen = run(there)
    assert (seen.steps["price"].cost_usd, seen.steps["price"].cost_partial) == (None, True)
    reserved = seen.calls("price")[0].sent.reserve_usd
    assert reserved is not None
    assert reserved > Decimal("0.01")
    assert budget(there).spent_usd == reserved + Decimal("0.0003")


@pytest.mark.parametrize("given", [2**40, 10**10])
def test_S31_a_price_that_no_call_can_have_is_not_believed(tmp_path: Path, given: int) -> None:
    """A count that could be one still makes millions of dollars: it would end the run, or the budget of all others."""
    there = house(tmp_path, {"price": [answer(24, given=given, out=given)], "letter": LETTER}, budget='{usd: "4.00"}')
    seen = run(there)
    assert seen.steps["letter"].error is None
    assert (seen.steps["price"].cost_usd, seen.steps["price"].cost_partial) == (None, True)
    reserved = seen.calls("price")[0].sent.reserve_usd
    assert reserved is not None
    assert budget(there).spent_usd == reserved + Decimal("0.0003")


def test_a_call_that_may_have_been_billed_is_charged_in_full_and_one_that_was_refused_is_free(tmp_path: Path) -> None:
    """S31: a timed-out try may be billed, each of the five; a refusal is not."""
    broken = [{"error": "connection", "retry_after": 0}] * 5
    lost = house(tmp_path / "lost", {"price": broken, "letter": LETTER})
    seen = run(lost)
    reserved = seen.calls("price")[0].sent.reserve_usd
    assert seen.steps["price"].error is not None
    assert seen.steps["price"].error.exit_code == 6
    assert (seen.steps["price"].cost_usd, seen.steps["price"].cost_partial) == (None, True)
    assert budget(lost) == BudgetRow(None, reserved or Decimal(-1), Decimal(0))
    refused = house(tmp_path / "refused", {"price": [{"error": "auth"}], "letter": LETTER})
    seen = run(refused)
    assert (seen.steps["price"].cost_usd, seen.steps["price"].cost_partial) == (Decimal(0), False)
    assert budget(refused).spent_usd == 0


# --- the cap ----------------------------------------------------------------------------------------------------------

# The most a reply can cost: 1000 tokens at $10/M, besides the input.
REPLY = Decimal("0.01")


def test_S31_a_call_whose_worst_case_passes_the_cap_is_not_sent_and_the_run_pauses(tmp_path: Path) -> None:
    """The first call reserves a little over a cent and costs a tenth of it; what is left does not hold a second."""
    there = house(tmp_path, {"price": [answer(24, given=100, out=100)], "letter": LETTER}, budget="{usd: 0.0115}")
    seen = run(there)
    assert [request.step for request in there.requests()] == ["price"]
    reserved = seen.calls("price")[0].sent.reserve_usd
    assert reserved is not None
    assert REPLY < reserved <= Decimal("0.0115")
    assert seen.status == "paused"
    error = seen.row.error
    assert error is not None
    assert (error.code, error.exit_code) == ("budget", BudgetExceeded.exit_code) == ("budget", 5)
    assert "$0.0012 is spent" in error.message
    assert "the cap is $0.0115" in error.message
    assert "--cap" in (error.hint or "")
    assert seen.steps["letter"].status in ("ready", "pending")
    assert exit_code(seen.row, tuple(seen.steps.values())) == 5
    assert budget(there) == BudgetRow(Decimal("0.0115"), Decimal("0.0012"), Decimal(0))


def test_a_paused_run_goes_on_with_a_higher_cap_and_pays_nothing_twice(tmp_path: Path) -> None:
    there = house(tmp_path, {"price": [answer(24, given=100, out=100)], "letter": LETTER}, budget="{usd: 0.0115}")
    run(there)
    assert asyncio.run(there.resume()).status == "paused"
    assert len(there.requests()) == 1
    seen = asyncio.run(there.resume(cap_usd=Decimal("1.00")))
    assert seen.status == "succeeded"
    assert seen.row.error is None
    assert seen.row.cap_usd == Decimal("1.00")
    assert [request.step for request in there.requests()] == ["price", "letter"]
    assert document(seen)["cost_usd"] == "0.0015"


def test_a_cap_reached_between_two_calls_of_a_step_goes_on_in_its_chain(tmp_path: Path) -> None:
    tries = [answer("dear", given=1000, out=1000), answer(24, given=1000, out=10)]
    there = house(tmp_path, {"price": tries, "letter": LETTER}, budget="{usd: 0.0115}")
    seen = run(there)
    assert seen.status == "paused"
    assert len(there.requests()) == 1
    seen = asyncio.run(there.resume(cap_usd=Decimal(1)))
    assert seen.status == "succeeded"
    first, second, _ = there.requests()
    assert second.thread == seen.calls("price")[0].done.response_id  # type: ignore[union-attr]
    assert [call.sent.source for call in seen.calls("price")] == ["NEXT_STEP", "REASK"]
    assert seen.steps["price"].attempt == 1
    assert first.items != second.items


@pytest.mark.parametrize("at", ["the first call", "a later call", "an unknown price"])
def test_on_exceed_fail_fails_the_step_and_the_run(tmp_path: Path, at: str) -> None:
    cap = "0.0115" if at == "a later call" else "0.005"
    model = "acme:nobody-knows" if at == "an unknown price" else "acme:priced"
    tries = [answer("dear", given=1000, out=1000), answer(24, given=1000, out=10)]
    there = house(tmp_path, {"price": tries, "letter": LETTER}, model=model, budget=f"{{usd: {cap}, on_exceed: fail}}")
    seen = run(there)
    assert len(there.requests()) == (1 if at == "a later call" else 0)
    assert seen.status == "failed"
    assert seen.steps["price"].status == "failed"
    assert seen.steps["letter"].status == "pending"
    assert seen.row.error is not None
    assert (seen.row.error.code, seen.row.error.exit_code) == ("budget", 5)
    assert exit_code(seen.row, tuple(seen.steps.values())) == 5
    assert budget(there).reserved_usd == 0


def test_the_cap_given_with_the_command_wins_over_the_pipelines(tmp_path: Path) -> None:
    script = {"price": [answer(24, given=100, out=100)], "letter": LETTER}
    assert run(house(tmp_path / "a", script, budget="{usd: 0.0001}"), cap_usd=Decimal(1)).status == "succeeded"
    assert run(house(tmp_path / "b", script, budget="{usd: 1}"), cap_usd=Decimal("0.0001")).status == "paused"


class Gathering(ScriptedProvider):
    """Holds every request back until so many have arrived, and then a while longer: one more would be seen."""

    most = 0
    flying = 0
    wanted = 1
    together: asyncio.Event | None = None

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        self.flying += 1
        self.most = max(self.most, self.flying)
        self.together = self.together or asyncio.Event()
        if self.most >= self.wanted:
            self.together.set()
        await asyncio.wait_for(self.together.wait(), 60)
        await asyncio.sleep(0.3)
        self.flying -= 1
        return await super().respond(request, listener)


def test_S31_calls_in_flight_at_once_never_hold_more_than_the_cap(tmp_path: Path) -> None:
    """Twenty steps are ready at once; each may cost a little over a cent, and the cap holds three of them."""
    steps = "".join(f'  s{n}: {{reads: [order], produces: note, prompt: "Say it."}}\n' for n in range(20))
    provider = Gathering(lambda request, items: {"text": "said", "usage": usage(given=100, out=1000)}, name="acme")
    provider.wanted = 3
    there = house(tmp_path, provider, budget="{usd: 0.035}", steps=steps)
    seen = run(there)
    assert provider.most == 3
    assert len(there.requests()) == 3
    money = budget(there)
    assert money.spent_usd == 3 * Decimal("0.0102")
    assert money.spent_usd <= Decimal("0.035")
    assert money.reserved_usd == 0
    assert seen.status == "paused"
    assert sum(step.status == "succeeded" for step in seen.steps.values() if step.kind == "llm") == 3
    seen = asyncio.run(there.resume(cap_usd=Decimal(1)))
    assert seen.status == "succeeded"
    assert len(there.requests()) == 20


def test_S31_a_plan_foretells_what_the_cap_will_hold(tmp_path: Path) -> None:
    """The plan's worst case of a step is at least what its first call reserves, its expected cost at most that."""
    there = house(tmp_path, {"price": [answer(24, given=100, out=100)], "letter": LETTER})

    async def ask() -> Any:
        async with there.services() as (services, graph):
            return await plan_new(services, graph, {"order": "two lamps"})

    planned = asyncio.run(ask())
    seen = run(there)
    for step in planned.steps:
        reserved = seen.calls(step.name)[0].sent.reserve_usd
        assert reserved is not None
        assert step.cost_low_usd < reserved
        assert step.cost_high_usd > 3 * REPLY
        assert step.cost_high_usd >= reserved
    assert planned.cost_high_usd == sum(step.cost_high_usd for step in planned.steps)
    most = {step.name: step.cost_high_usd for step in planned.steps}
    there.write("walk.yaml", there.pipeline.replace('cost?"}', 'cost?", max_usd: "0.0001"}'))
    limited = {step.name: step for step in asyncio.run(ask()).steps}
    assert limited["price"].cost_low_usd == limited["price"].cost_high_usd == Decimal("0.0001")
    there.write("walk.yaml", there.pipeline.replace('cost?"}', 'cost?", max_usd: "0.02"}'))
    limited = {step.name: step for step in asyncio.run(ask()).steps}
    assert limited["price"].cost_high_usd == Decimal("0.02") < most["price"]
    assert limited["price"].reasons == ("stops at its max_usd of $0.02",)
    assert limited["letter"].cost_high_usd == most["letter"]


# --- tries that failed ------------------------------------------------------------------------------------------------


def worst(seen: Seen, step: str = "price") -> Decimal:
    """What one try of the step's first call could cost: the estimate and a tenth at $2, and a full reply at $10."""
    tokens = seen.calls(step)[0].sent.estimate_tokens
    return (tokens * Decimal("1.1") * 2 + 1000 * 10) / 1_000_000


def test_S31_tries_that_may_have_been_billed_are_charged_beside_the_one_that_succeeded(tmp_path: Path) -> None:
    lost = {"error": "connection", "retry_after": 0}
    limited = {"error": "rate_limit", "retry_after": 0}
    there = house(tmp_path, {"price": [lost, limited, lost, answer(24, given=100, out=100)], "letter": LETTER})
    seen = run(there)
    assert seen.steps["price"].cost_usd == Decimal("0.0012")  # what the reply cost
    assert budget(there).spent_usd == Decimal("0.0012") + 2 * worst(seen) + Decimal("0.0003")
    assert budget(there).reserved_usd == 0
    assert seen.calls("price")[0].sent.reserve_usd == 3 * worst(seen)


def test_S31_a_further_try_that_the_cap_does_not_hold_is_not_made(tmp_path: Path) -> None:
    """The cap holds two tries; the third could not be paid for if the first two are billed."""
    broken = [{"error": "connection", "retry_after": 0}] * 5
    there = house(tmp_path, {"price": broken, "letter": LETTER}, budget="{usd: 0.025}")
    seen = run(there)
    assert len(there.requests()) == 2
    assert seen.status == "paused"
    assert seen.row.error is not None
    assert "nothing was sent" in seen.row.error.message
    assert budget(there) == BudgetRow(Decimal("0.025"), 2 * worst(seen), Decimal(0))
    there.provider = ScriptedProvider({"price": [answer(24, given=100, out=100)], "letter": LETTER}, name="acme")
    seen = asyncio.run(there.resume(cap_usd=Decimal(1)))
    assert seen.status == "succeeded"
    assert budget(there).spent_usd == 2 * worst(seen) + Decimal("0.0015")


# --- the price --------------------------------------------------------------------------------------------------------


def test_S31_a_call_is_charged_by_the_price_that_was_known_when_it_left_and_keeps_it(tmp_path: Path) -> None:
    """The price list changes while the model thinks."""
    there = house(tmp_path, {})

    def dearer(request: Request, items: Any) -> Any:
        there.write("orchestrator.toml", PRICES.replace("2.00", "9.00"))
        return {"json": {"cost": 24}, "usage": usage(given=1000)} if request.step == "price" else LETTER[0]

    there.provider = ScriptedProvider(dearer, name="acme")
    seen = run(there)
    price = seen.calls("price")[0].sent.price
    assert price is not None
    assert price.source == 'project file, prices."priced"'
    assert [price.rates.input, price.rates.cached, price.rates.output] == [Decimal(2), Decimal("0.2"), Decimal(10)]
    assert costs(seen, "price") == [Decimal("0.002")]


# --- the other caps ---------------------------------------------------------------------------------------------------

TWO = {"price": [answer(24, given=100, out=100)], "letter": LETTER}


def test_S31_a_call_that_may_cost_more_than_one_call_may_is_not_sent(tmp_path: Path) -> None:
    there = house(tmp_path, TWO, budget="{usd: 4, per_call: 0.01}")
    seen = run(there)
    assert there.requests() == []
    assert seen.status == "paused"
    assert seen.row.error is not None
    assert "the cap for one call is $0.01" in seen.row.error.message
    assert budget(there) == BudgetRow(Decimal(4), Decimal(0), Decimal(0))


def test_S31_a_steps_cap_counts_all_its_items_and_attempts_and_no_other_step(tmp_path: Path) -> None:
    steps = STEPS.replace('cost?"}', 'cost?", max_usd: "0.0125"}', 1)
    tries = [answer("dear", given=1000, out=100), answer(24, given=1100, out=10)]
    there = house(tmp_path, {"price": tries, "letter": LETTER}, steps=steps)
    seen = run(there)
    assert [request.step for request in there.requests()] == ["price"]  # $0.003 are spent, and a re-ask may cost a cent
    assert seen.row.error is not None
    assert "the cap for step price is $0.0125" in seen.row.error.message
    assert "max_usd" in (seen.row.error.hint or "")
    there.write("walk.yaml", there.pipeline.replace("0.0125", "0.02"))
    seen = asyncio.run(there.resume())
    assert seen.status == "succeeded"
    assert [request.step for request in there.requests()] == ["price", "price", "letter"]


def test_S31_the_cap_of_a_session_counts_all_its_runs(tmp_path: Path) -> None:
    """A call may cost a little over a cent; a run spends $0.0015, which leaves too little for the next one's first."""
    there = house(
        tmp_path, {**TWO, "price": TWO["price"] * 3, "letter": LETTER * 3}, budget="{usd: 1, per_session: 0.0119}"
    )
    assert run(there, session="ana").status == "succeeded"
    there.provider = ScriptedProvider(TWO, name="acme")
    seen = run(there, session="ana")
    assert seen.status == "paused"
    assert seen.row.error is not None
    assert "$0.0015 is spent, and the cap for session ana is $0.0119" in seen.row.error.message
    there.provider = ScriptedProvider(TWO, name="acme")
    assert run(there, session="ben").status == "succeeded"


def test_S31_a_day_is_the_utc_day_of_sending_and_counts_all_runs_also_those_before_the_cap(tmp_path: Path) -> None:
    there = house(tmp_path, TWO)
    run(there)
    there.write("orchestrator.toml", PRICES + '[budget]\nper_day = "0.0119"\n')
    there.provider = ScriptedProvider(TWO, name="acme")
    seen = run(there)
    assert there.requests() == []
    assert seen.row.error is not None
    assert "$0.0015 is spent, and the cap for the day" in seen.row.error.message
    assert "tomorrow" in (seen.row.error.hint or "")
    seen = asyncio.run(there.resume(after=timedelta(days=1)))
    assert seen.status == "succeeded"


def test_S31_of_the_caps_of_user_project_and_pipeline_the_lowest_holds(tmp_path: Path) -> None:
    there = house(tmp_path, TWO, budget="{usd: 4, per_call: 3}")
    there.write("orchestrator.toml", PRICES + '[budget]\nper_call = "2"\n')
    there.write(".config/orchestrator/config.toml", '[budget]\nper_call = "0.005"\nper_day = "7"\n')
    _, settings, _ = there.opened()
    assert (settings.budget.per_call, settings.budget.per_day) == (Decimal("0.005"), Decimal(7))
    assert run(there).status == "paused"


def test_S31_fifty_workers_against_one_day_never_hold_more_than_its_cap(tmp_path: Path) -> None:
    """Five runs at once of ten steps each, all in flight together: the day holds three calls."""
    steps = "".join(f'  s{n}: {{reads: [order], produces: note, prompt: "Say it."}}\n' for n in range(10))
    provider = Gathering(lambda request, items: {"text": "said", "usage": usage(given=100, out=1000)}, name="acme")
    there = house(tmp_path, provider, steps=steps)
    there.write("orchestrator.toml", PRICES + '[budget]\nper_day = "0.035"\n')

    async def five() -> list[Seen]:
        await there.run({"order": "nothing"})  # the tables are made, and three calls are paid
        return await asyncio.gather(*(there.run({"order": "two lamps"}) for _ in range(5)))

    there.write("orchestrator.toml", PRICES + '[budget]\nper_day = "0.035"\n')
    runs = asyncio.run(five())
    assert len(there.requests()) == 3
    assert provider.most <= 3
    assert {seen.status for seen in runs} == {"paused"}


@pytest.mark.parametrize(
    ("budget_", "what"),
    [
        ("{usd: 4, per_call: lots}", "per_call"),
        ("{usd: 4, per_day: 3}", "per_day"),
        ("{usd: 4, per_session: -1}", "per_session"),
    ],
)
def test_a_cap_that_is_no_amount_or_stands_in_the_wrong_place_is_named(tmp_path: Path, budget_: str, what: str) -> None:
    with pytest.raises(OrchError, match=what):
        house(tmp_path, TWO, budget=budget_).graph()
