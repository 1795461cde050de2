"""The own-words check, the facts block and the output lines (threads-and-context §2, R004)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts import Contract
from orchestrator.contracts.schemas import customer_fields
from orchestrator.errors import Place
from orchestrator.facts import FactsResult, check_facts, facts_block, output_lines
from orchestrator.graph import Read
from orchestrator.ids import canonical_json
from orchestrator.values import Artifact, ArtifactVersion, FactBasis, Statement

NULL = {"type": "null"}
TEXT = {"type": "string"}


def fact(*options: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*options], "fact_of": "customer"}


def make(properties: dict[str, Any] | None, **changes: Any) -> Contract:
    """A contract with this inline schema; text where there is none."""
    schema = None if properties is None else {"type": "object", "properties": properties, "required": [*properties]}
    values: dict[str, Any] = {
        "name": "plan",
        "about": "A plan.",
        "not_for": (),
        "sensitivity": "internal",
        "tags": (),
        "max_tokens": None,
        "form": "text" if properties is None else "json",
        "schema": schema,
        "model": None,
        "fields": tuple(properties or ()),
        "customer_fields": customer_fields(schema) if schema else (),
        "code": {},
        "digest": "",
        "place": Place("plan.yaml"),
    }
    return Contract(**{**values, **changes})


PLAN = make(
    {
        "customer_budget": fact(TEXT, NULL),
        "launch_date": fact(TEXT, NULL),
        "members": fact({"type": "integer"}, NULL),
        "has_app": fact({"type": "boolean"}, NULL),
        "needs": fact({"type": "array", "items": TEXT}, NULL),
        "rationale": TEXT,
        "components": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": TEXT, "owner": fact(TEXT, NULL)}},
        },
    }
)
IDEA = Statement(
    "idea", "We run a yoga studio with about 300 members.\nWe can spend $2,000 a month.", "input", "idea", True
)
NOTHING: dict[str, Any] = {
    "customer_budget": None,
    "launch_date": None,
    "members": None,
    "has_app": None,
    "needs": None,
    "rationale": "Small.",
    "components": [],
}


def given_input(name: str, text: str, *, sent: bool = True) -> Statement:
    return Statement(name, text, "input", name, sent)


def rates(value: Any, *not_for: str, **read: Any) -> tuple[Read, Artifact]:
    """A read of an artifact `vendor-rates`."""
    contract = make({"weekly_usd": {"type": "number"}, "note": TEXT}, name="vendor-rates", not_for=not_for)
    now = datetime(2026, 11, 30, tzinfo=UTC)
    version = ArtifactVersion(
        *("a1", "r1", "vendor-rates", None, "vendor-rates", 1, "", 0, "model", "model"), now, None, "internal", {}
    )
    options = {"fields": None, "guard": None, **read}
    place = Place("p.yaml", 1, 1)
    return (
        Read("vendor-rates", "step", contract, options["fields"], options["guard"], place),
        Artifact(version, canonical_json(value)),
    )


def check(value: dict[str, Any], *statements: Statement, reads: Any = (), contract: Contract = PLAN) -> FactsResult:
    return check_facts(contract, {**NOTHING, **value} if contract is PLAN else value, statements, reads)


# --- what stays and what goes -----------------------------------------------------------------------------------------


def test_a_stated_value_stays_with_its_basis() -> None:
    result = check({"members": 300, "customer_budget": "2000 USD/month"}, IDEA)
    assert result.value["members"] == 300
    assert result.value["customer_budget"] == "2000 USD/month"
    assert result.facts == {
        "members": FactBasis("stated", "We run a yoga studio with about 300 members", "idea"),
        "customer_budget": FactBasis("stated", "We can spend $2,000 a month", "idea"),
    }
    assert (result.dropped, result.faults) == ((), ())


def test_R004_a_vendor_rate_never_becomes_the_customers_budget() -> None:
    result = check({"customer_budget": "$997/week"}, IDEA, reads=[rates({"weekly_usd": 997})])
    assert result.value["customer_budget"] is None
    assert result.facts == {}
    (dropped,) = result.dropped
    assert (dropped.path, dropped.value, dropped.found_in) == ("customer_budget", "$997/week", "vendor-rates")
    assert result.faults == ()  # it stands nowhere else in the answer: code alone can mend it


def test_R004_the_reask_asserts_the_error_and_names_the_way_out() -> None:
    guard = "These are not the customer's budget."
    value = {"customer_budget": "$997/week", "rationale": "Fits the 997 USD per week that you can spend."}
    (fault,) = check(value, IDEA, reads=[rates({"weekly_usd": 997}, guard)]).faults
    assert fault.kind == "customer_fact"
    assert fault.path == "$.customer_budget"
    assert fault.feedback == (
        'Check failed: "customer_budget" contains "$997/week". That value comes from vendor-rates: '
        "These are not the customer's budget. Answer again in the same form; "
        "if the customer has not stated it, use null."
    )
    assert fault.message == f'customer_budget used "$997/week" from vendor-rates ({json.dumps(guard)})'


def test_an_invented_value_in_another_text_is_asserted_without_a_source() -> None:
    value = {"customer_budget": "$997/week", "components": [{"name": "costs 997 dollars a week", "owner": None}]}
    (fault,) = check(value, IDEA).faults
    assert "The customer has not stated that value." in fault.feedback


@pytest.mark.parametrize("elsewhere", ["$1,997 a week", "19970", "997 people work there", "997 EUR a week", "Small."])
def test_another_figure_in_another_text_is_no_reason_to_ask(elsewhere: str) -> None:
    assert check({"customer_budget": "$997/week", "rationale": elsewhere}, IDEA).faults == ()


def test_a_customer_field_is_not_another_text_field() -> None:
    value = {"customer_budget": "$997/week", "needs": ["spend $997/week"], "components": [{"owner": "$997/week"}]}
    assert check(value, IDEA).faults == ()


def test_a_dropped_name_that_stands_elsewhere_is_asserted() -> None:
    value = {"components": [{"name": "Booking", "owner": "Peter Weber"}], "rationale": "Peter Weber should build it."}
    result = check(value, IDEA)
    assert result.value["components"] == [{"name": "Booking", "owner": None}]
    assert [fault.path for fault in result.faults] == ["$.components[0].owner"]


def test_the_guards_of_contract_and_read_are_both_named() -> None:
    reads = [rates({"weekly_usd": 997}, "Not a budget", guard="No limit either")]
    value = {"customer_budget": "$997/week", "rationale": "997 a week"}
    assert "vendor-rates: Not a budget No limit either. Answer" in check(value, IDEA, reads=reads).faults[0].feedback


def test_only_the_fields_that_were_read_are_a_source() -> None:
    full = {"weekly_usd": 1, "note": "an agency asks $997 a week"}
    whole = check({"customer_budget": "$997/week"}, reads=[rates(full)])
    part = check({"customer_budget": "$997/week"}, reads=[rates(full, fields=("weekly_usd",))])
    assert (whole.dropped[0].found_in, part.dropped[0].found_in) == ("vendor-rates", None)


@pytest.mark.parametrize("word", ["null", "not stated", "N/A", "unknown", "", "none given"])
def test_words_for_null_are_null_and_no_trace_is_left(word: str) -> None:
    assert check({"customer_budget": word}, IDEA) == FactsResult({**NOTHING})


def test_an_input_that_says_not_stated_states_nothing() -> None:
    result = check({"customer_budget": "not stated"}, given_input("customer-budget", "not stated"))
    assert result.value["customer_budget"] is None
    assert result.facts == {}


def test_the_record_is_named_as_such() -> None:
    profile = Statement("profile", "Anna Schmidt", "record", "owner", False)
    result = check({"components": [{"name": "x", "owner": "Anna Schmidt"}]}, profile)
    assert result.facts == {"components[0].owner": FactBasis("record", "Anna Schmidt", "profile")}


def test_a_turn_is_a_statement() -> None:
    turn = Statement("message 3", "Oh, and we open on 1 March 2026!", "turn")
    result = check({"launch_date": "2026-03-01"}, IDEA, turn)
    assert result.value["launch_date"] == "2026-03-01"
    assert result.facts["launch_date"].source == "message 3"


def test_lists_are_checked_by_element() -> None:
    wishes = Statement("message 1", "It needs online booking, and a waiting list.", "turn")
    result = check({"needs": ["online booking", "a loyalty programme", "waiting list", "n/a"]}, wishes)
    assert result.value["needs"] == ["online booking", "waiting list"]
    assert set(result.facts) == {"needs[0]", "needs[1]"}
    assert [(drop.path, drop.value) for drop in result.dropped] == [("needs[1]", "a loyalty programme")]


def test_a_list_of_which_nothing_was_stated_is_null_if_it_may_be() -> None:
    assert check({"needs": ["a loyalty programme"]}, IDEA).value["needs"] is None
    strict = make({"needs": {"type": "array", "items": TEXT, "fact_of": "customer"}})
    assert check({"needs": ["a loyalty programme"]}, IDEA, contract=strict).value == {"needs": []}


def test_a_truth_value_needs_an_answer_to_its_own_question() -> None:
    yes = Statement("message 1", "Yes, we have an app.", "turn")
    assert check({"has_app": True}, yes).value["has_app"] is None
    assert check({"has_app": True}, given_input("has-app", "true")).value["has_app"] is True
    assert check({"has_app": False}, given_input("has-app", "no")).value["has_app"] is False


# --- the customer's own answer to a field -----------------------------------------------------------------------------


def test_an_input_of_the_same_name_supplies_the_fact() -> None:
    result = check({"customer_budget": "$997/week"}, given_input("customer-budget", "five grand, give or take"))
    assert result.value["customer_budget"] == "five grand, give or take"
    assert result.facts["customer_budget"] == FactBasis("stated", "five grand, give or take", "customer-budget")
    assert [(d.value, d.instead) for d in result.dropped] == [("$997/week", "five grand, give or take")]


@pytest.mark.parametrize(
    ("field", "wrong", "said", "right"),
    [
        ("members", 997, "about 300", 300),
        ("members", 997, "300 or 400", None),
        ("members", 997, "12.5", None),
        ("has_app", True, "no", False),
        ("has_app", True, "ask Anna", None),
    ],
)
def test_an_answer_is_taken_over_only_where_it_has_one_meaning(field: str, wrong: Any, said: str, right: Any) -> None:
    assert check({field: wrong}, given_input(field, said)).value[field] == right


OFFER = Statement("idea", "Norvik offered it for 64,000 pounds plus 997 dollars a week.", "input", "idea", True)


def test_R004_a_quoted_offer_is_no_budget_of_a_customer_who_answered_that_question() -> None:
    answer = given_input("customer-budget", "We have not set one. The board decides in January.")
    result = check({"customer_budget": "997 USD/week"}, OFFER, answer)
    assert result.value["customer_budget"] is None
    assert result.facts == {}
    assert result.dropped[0].instead is None  # an answer without a figure is no budget either
    turn = Statement("message 1", "We can do 997 dollars a week.", "turn")
    later = check({"customer_budget": "997 USD/week"}, OFFER, answer, turn)
    assert later.facts["customer_budget"].source == "message 1"


def test_R004_a_guarded_input_states_nothing_about_the_customer() -> None:
    notes = Statement("research", "MatTime asks 89 EUR a month.", "input", "research", True, guarded=True)
    assert check({"customer_budget": "89 EUR/month"}, IDEA, notes).value["customer_budget"] is None
    budget = Statement("customer-budget", "89 EUR a month", "input", "customer-budget", True, guarded=True)
    assert check({"customer_budget": "89 EUR/month"}, IDEA, budget).value["customer_budget"] == "89 EUR/month"


def test_a_null_of_the_model_stays_null() -> None:
    assert check({}, given_input("customer-budget", "5000 USD")).value["customer_budget"] is None


def test_an_option_is_taken_over_only_if_it_was_said() -> None:
    contract = make({"channel": {"enum": ["web_app", "phone"], "fact_of": "customer"}})
    assert check({"channel": "phone"}, given_input("channel", "Web app"), contract=contract).value == {
        "channel": "web_app"
    }
    assert check({"channel": "phone"}, given_input("channel", "radio"), contract=contract).value == {"channel": None}


def test_a_field_marked_as_a_whole_is_checked_by_its_parts() -> None:
    person = {"type": "object", "properties": {"name": TEXT, "city": TEXT}}
    contract = make({"contact": {**person, "fact_of": "customer"}})
    said = Statement("message 1", "Anna decides.", "turn")
    result = check({"contact": {"name": "Anna", "city": "Berlin"}}, said, contract=contract)
    assert result.value == {"contact": {"name": "Anna", "city": None}}
    assert set(result.facts) == {"contact.name"}


# --- properties -------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
said_values = st.sampled_from(["300", 300, "about 300 members", "$2,000 a month", "yoga studio", "yes", "$997", 2000.0])
json_data = st.recursive(
    scalars | said_values,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
plans = st.fixed_dictionaries({}, optional=dict.fromkeys(NOTHING, json_data))
statements = st.lists(
    st.builds(
        Statement,
        source=st.just("s"),
        text=st.sampled_from([IDEA.text, "yes", "300", "about 40k", "n/a"]) | st.text(max_size=30),
        kind=st.sampled_from(["input", "turn", "record"]),
        label=st.none() | st.sampled_from(["members", "customer-budget", "has_app", "needs"]),
    ),
    max_size=3,
)


@given(plans | json_data, statements)
def test_checking_a_checked_value_changes_nothing(value: Any, said: list[Statement]) -> None:
    before = repr(value)
    once = check_facts(PLAN, value, said, [])
    twice = check_facts(PLAN, once.value, said, [])
    assert repr(value) == before
    assert (twice.value, twice.facts, twice.dropped) == (once.value, once.facts, ())


@given(plans, statements)
def test_every_quote_is_verbatim_and_short(value: Any, said: list[Statement]) -> None:
    for basis in check_facts(PLAN, value, said, []).facts.values():
        assert any(basis.quote in statement.text for statement in said)
        assert 0 < len(basis.quote) <= 120


def test_what_no_json_parser_gives_is_not_found_either() -> None:
    value = {"members": float("inf"), "customer_budget": 10**5000, "launch_date": "\ud800"}
    assert check(value, IDEA).facts == {}


def test_a_text_contract_has_no_customer_fields() -> None:
    assert check_facts(make(None), "We can spend $997", [IDEA], []) == FactsResult("We can spend $997")


# --- what the model is told -------------------------------------------------------------------------------------------

ASKS = make({name: fact(TEXT, NULL) for name in ("business", "members", "customer_budget", "launch_date")})


def test_the_facts_block_says_what_is_known_and_what_is_not() -> None:
    known = [given_input("business", "yoga studio"), given_input("members", "about 300")]
    assert facts_block(ASKS, known) == (
        "[Known about the customer]\n"
        "Stated by the customer: business: yoga studio; members: about 300\n"
        "Not stated by the customer: budget, launch date"
    )


def test_what_the_step_does_not_read_is_neither_sent_nor_called_missing() -> None:
    block = facts_block(ASKS, [given_input("customer-budget", "40k EUR", sent=False)])
    assert block == "[Known about the customer]\nNot stated by the customer: business, members, launch date"


def test_a_free_text_may_hold_the_answer_so_nothing_is_claimed() -> None:
    idea = Statement("idea", "A booking page for our yoga studio in Berlin, we have 40k for it.", "input", "idea", True)
    block = facts_block(ASKS, [idea])
    assert block is not None
    assert block.splitlines()[1:] == [f"Stated by the customer: idea: {idea.text}"]


def test_a_free_text_without_figures_states_no_budget_and_no_date() -> None:
    turn = Statement("message 1", "We want a nicer way for our people to book classes.", "turn", None, True)
    assert facts_block(ASKS, [turn]) == "[Known about the customer]\nNot stated by the customer: budget, launch date"


def test_a_count_of_something_is_no_budget_and_no_date() -> None:
    turn = Statement("message 1", "We have 14 therapists and about 2,900 patients.", "turn", None, True)
    assert facts_block(ASKS, [turn]) == "[Known about the customer]\nNot stated by the customer: budget, launch date"


@pytest.mark.parametrize("when", ["before the autumn rush", "in 3 months", "as soon as it works", "on 1 March"])
def test_a_time_in_words_may_be_the_date(when: str) -> None:
    turn = Statement("message 1", f"It should be open to patients {when}.", "turn", None, True)
    assert facts_block(ASKS, [turn]) == "[Known about the customer]\nNot stated by the customer: budget"


def test_a_guarded_input_answers_nothing_but_its_own_name() -> None:
    notes = Statement("research", "MatTime asks 89 EUR a month.", "input", "research", True, guarded=True)
    told = facts_block(ASKS, [notes]) or ""
    assert told.splitlines()[1:] == ["Not stated by the customer: business, members, budget, launch date"]
    budget = Statement("customer-budget", "40k EUR", "input", "customer-budget", True, guarded=True)
    assert "Stated by the customer: budget: 40k EUR" in (facts_block(ASKS, [budget]) or "").splitlines()


def test_an_input_that_says_unknown_is_not_stated() -> None:
    block = facts_block(ASKS, [given_input("customer-budget", "not stated")]) or ""
    assert "Stated by the customer: budget" not in block.splitlines()
    assert "budget" in block.split("Not stated by the customer: ")[1]


def test_an_output_that_asks_for_no_facts_needs_no_block() -> None:
    assert facts_block(make({"rationale": TEXT}), [given_input("business", "yoga studio")]) is None
    assert facts_block(make(None), [given_input("business", "yoga studio")]) is None


def test_a_long_or_multi_line_statement_is_not_repeated() -> None:
    assert "Stated" not in (facts_block(ASKS, [given_input("notes", "one\ntwo")]) or "").replace("Not stated", "")
    assert "Stated" not in (facts_block(ASKS, [given_input("notes", "word " * 60)]) or "").replace("Not stated", "")


def test_the_record_stands_on_a_line_of_its_own() -> None:
    language = Statement("profile", "German", "record", "language", True)
    assert "On record: language: German" in (facts_block(ASKS, [language]) or "").splitlines()


def test_output_lines_say_what_null_means() -> None:
    assert output_lines(PLAN)[0] == '"customer_budget": string or null; null when the customer has not stated it'
    assert '"members": integer or null; null when the customer has not stated it' in output_lines(PLAN)
    assert '"needs": list of string or null; null when the customer has not stated it' in output_lines(PLAN)
    assert '"components[].owner": string or null; null when the customer has not stated it' in output_lines(PLAN)
    assert len(output_lines(PLAN)) == len(PLAN.customer_fields) == 6


def test_output_lines_of_a_field_that_must_have_a_value() -> None:
    contract = make({"channel": {"enum": ["web", "phone"], "fact_of": "customer"}})
    assert output_lines(contract) == ('"channel": "web" or "phone"; as the customer stated it',)
    assert output_lines(make(None)) == ()
