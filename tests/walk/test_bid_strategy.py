"""The example in Python: its files fit together, its figures can be recomputed, and it runs by every door.

The sample answers are recomputed from the brief, the tables and each other, so that a figure changed in one place shows
up in all others that rest on it.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.contracts import Contract
from orchestrator.facts import check_facts
from orchestrator.frame import parse
from orchestrator.graph import Check, Graph, check_pipeline
from orchestrator.project import Project, find_project
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.settings import load_settings
from orchestrator.tools import call_tool
from orchestrator.values import Statement
from tests import process_kit
from tests.walk.console import ROOT, copied, environment, follow
from tests.walk.harness import House, Seen, StopAfter

EXAMPLE = ROOT / "examples" / "bid-strategy"
STEPS = (
    "opportunity",
    "competitor-view",
    "swot",
    "partner-needs",
    "risk-register",
    "pricing-position",
    "win-themes",
    "bid-strategy",
)
US = "Fernhill Studio"
PRICED = "pricing-position"


@pytest.fixture(scope="module")
def project() -> Project:
    return find_project(EXAMPLE)


@pytest.fixture(scope="module")
def graph(project: Project) -> Graph:
    settings = load_settings(project, {"ORCH_MODEL": "scripted:sample_answers"})
    found, diagnostics = check_pipeline(project, settings, project.pipeline("bid-strategy"))
    assert diagnostics == ()
    assert found is not None
    return found


def brief(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((EXAMPLE / "briefs" / f"{name}.json").read_text(encoding="utf-8"))
    return data


def replies(step: str) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = json.loads((EXAMPLE / "sample_answers" / f"{step}.json").read_text(encoding="utf-8"))
    return data


def final(step: str) -> Any:
    return replies(step)[-1]["json"]


def table(name: str) -> list[dict[str, str]]:
    with (EXAMPLE / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def instance(graph: Graph, step: str, value: Any = None) -> Any:
    """An answer as what its Python code is given."""
    contract = graph.inputs[step].contract if step in graph.inputs else graph.steps[step].contract
    return contract.instance(contract.dump(final(step) if value is None else value))


def position(project: Project, graph: Graph, **instead: Any) -> Any:
    """The pricing position on the sample answers, some of them replaced."""
    work = project.load_object(EXAMPLE / "pipelines" / "pricing.py", "position")
    return work(
        instance(graph, "opportunity", instead.get("opportunity")),
        instance(graph, "effort", brief("rail")["effort"]),
        instance(graph, "partner-needs", instead.get("partners")),
        instance(graph, "risk-register", instead.get("risks")),
        "north",
    )


# --- the pipeline ----------------------------------------------------------------------------------------------------


def test_eight_steps_four_with_logic_one_of_them_without_a_model(graph: Graph) -> None:
    assert tuple(graph.steps) == STEPS
    assert [name for name, step in graph.steps.items() if step.kind == "llm"] == [
        "opportunity",
        "competitor-view",
        "risk-register",
        "win-themes",
    ]
    assert [name for name, step in graph.steps.items() if not step.asks] == ["pricing-position"]
    assert graph.warnings == ()


def test_our_figures_are_read_under_a_guard_by_the_one_step_that_needs_them(graph: Graph) -> None:
    readers = {name: read for name, step in graph.steps.items() for read in step.reads if read.name == PRICED}
    assert list(readers) == ["bid-strategy"]
    assert "only the price we offer may stand in message_to_buyer" in str(readers["bid-strategy"].guard)
    not_for = graph.steps[PRICED].contract.not_for
    assert any("neither this buyer's ceiling nor its budget" in guard for guard in not_for)


def test_what_the_buyer_may_have_said_may_be_left_unstated(graph: Graph) -> None:
    contract = graph.steps["opportunity"].contract
    facts = ("price_ceiling_gbp", "term_months", "questions_until", "tender_deadline", "go_live")
    assert contract.customer_fields == facts
    assert contract.faults({**final("opportunity"), **dict.fromkeys(facts)}) == ()


@pytest.mark.parametrize("name", ["rail", "water", "library"])
def test_a_brief_gives_every_input_that_has_no_default_and_no_other(graph: Graph, name: str) -> None:
    given = brief(name)
    assert set(given) == set(graph.inputs)
    for key, value in given.items():
        assert graph.inputs[key].contract.faults(value) == (), key


@pytest.mark.parametrize(
    ("name", "written", "kept"),
    [
        ("rail", 520000, None),  # a past award: it stands in our tables, not in the tender
        ("water", 300000, 300000),  # "at most 300,000 pounds in all"
        ("water", 310000, None),
        ("library", 288000, None),  # three years of what they pay today: nobody said it
    ],
)
def test_only_a_ceiling_that_the_tender_holds_is_kept(graph: Graph, name: str, written: int, kept: int | None) -> None:
    said = [Statement("tender", brief(name)["tender"], "input", "tender", sent=True)]
    answer = {**final("opportunity"), "price_ceiling_gbp": written}
    found = check_facts(graph.steps["opportunity"].contract, answer, said)
    assert found.value["price_ceiling_gbp"] == kept


def test_every_date_of_the_sample_answer_is_the_buyer_s(graph: Graph) -> None:
    said = [Statement("tender", brief("rail")["tender"], "input", "tender", sent=True)]
    found = check_facts(graph.steps["opportunity"].contract, final("opportunity"), said)
    assert (found.value, found.dropped) == (final("opportunity"), ())
    assert {path: fact.quote for path, fact in found.facts.items()} == {
        "term_months": "One fixed price for building and 24 months of running",
        "questions_until": "Questions until 12 February 2027",
        "tender_deadline": "Tenders until 5 March 2027",
        "go_live": "Passengers must see it before the timetable change on 12 December 2027",
    }


# --- the sample answers ----------------------------------------------------------------------------------------------


def test_every_answer_has_the_form_of_its_contract(graph: Graph) -> None:
    asking = {name: step for name, step in graph.steps.items() if step.asks}
    assert {path.stem for path in (EXAMPLE / "sample_answers").iterdir()} == set(asking)
    for name, step in asking.items():
        for reply in replies(name):
            if "json" in reply:
                assert step.contract.faults(reply["json"]) == (), name


def test_only_the_first_draft_of_the_themes_breaks_a_rule(project: Project, graph: Graph) -> None:
    broken = [
        (name, at, message)
        for name, step in graph.steps.items()
        if step.asks
        for at, reply in enumerate(replies(name))
        if "json" in reply
        for check in step.checks
        if (message := _said(check, step.contract, reply["json"], project, graph)) is not None
    ]
    assert broken == [
        (
            "win-themes",
            0,
            "“A control room already works with our messages every day.” rests on R-03, and its client may not be "
            "named. Prove it by another reference, or drop the theme.",
        )
    ]
    assert next(row for row in table("references") if row["id"] == "R-03")["may_be_named"] == "no"


def _said(check: Check, contract: Contract, value: Any, project: Project, graph: Graph) -> str | None:
    assert check.function is not None
    reads = {"pricing_position": position(project, graph), "opportunity": instance(graph, "opportunity")}
    message: str | None = check.function.call(contract.instance(contract.dump(value)), **reads)
    return message


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"price_gbp": None}, "a price otherwise"),
        ({"price_gbp": 487000}, "below the floor of 488,000"),
        ({"margin_percent": 18}, "must be 13.5"),
        ({"message_to_buyer": "It costs us 448,785."}, "for us only: 448,785"),
        ({"message_to_buyer": "All for 519,000 pounds."}, None),
        ({"decision": "no-bid", "price_gbp": None, "margin_percent": None}, None),
    ],
)
def test_the_rules_on_the_decision(project: Project, graph: Graph, changed: dict[str, Any], says: str | None) -> None:
    step = graph.steps["bid-strategy"]
    value = {**final("bid-strategy"), **changed}
    said = [_said(check, step.contract, value, project, graph) for check in step.checks]
    messages = [message for message in said if message is not None]
    assert len(messages) == (says is not None)
    assert says is None or says in messages[0]


def test_a_ceiling_below_the_floor_leaves_only_no_bid(project: Project, graph: Graph) -> None:
    checks = graph.steps["bid-strategy"].checks
    reads = {
        "pricing_position": position(project, graph),
        "opportunity": instance(graph, "opportunity", {**final("opportunity"), "price_ceiling_gbp": 480000}),
    }
    value = instance(graph, "bid-strategy")
    said = [check.function.call(value, **reads) for check in checks if check.function is not None]
    assert "480,000 that the buyer has stated is below our floor of 488,000: that is a no-bid" in said[0]


def test_the_tool_knows_the_partners_of_a_region_and_says_where_there_are_others(graph: Graph) -> None:
    (find,) = graph.steps["partner-needs"].tools
    assert find.idempotent
    good = asyncio.run(call_tool(find, '{"capability": "service-desk", "region": "north"}'))
    assert [(row["name"], sorted(row)) for row in json.loads(good.output)] == [
        ("NightDesk", ["free_from", "name", "proof"])  # no rate: the choice is by fit
    ]
    none = asyncio.run(call_tool(find, '{"capability": "station-work", "region": "wales"}'))
    assert none.is_error
    assert "north, south" in none.output


def test_partners_of_the_answer_are_those_that_the_tool_gave(graph: Graph) -> None:
    (find,) = graph.steps["partner-needs"].tools
    given = {
        (row["name"], call["arguments"]["capability"])
        for reply in replies("partner-needs")
        for call in reply.get("tool_calls", ())
        for row in json.loads(asyncio.run(call_tool(find, json.dumps(call["arguments"]))).output)
    }
    assert {(b["partner"], b["capability"]) for b in final("partner-needs")["bookings"]} == given


def test_the_first_answer_forgets_one_requirement_and_the_second_none() -> None:
    mandatory = [r["id"] for r in final("opportunity")["requirements"] if r["mandatory"]]
    first, last = (r["json"] for r in replies("partner-needs") if "json" in r)
    assert [id for id in mandatory if id not in {c["requirement"] for c in first["cover"]}] == ["M3"]
    assert [c["requirement"] for c in last["cover"]] == mandatory == ["M1", "M2", "M3", "M4", "M5"]


# --- the numbers, from the tables to the decision --------------------------------------------------------------------


def test_cost_is_people_partners_and_what_risks_may_take(project: Project, graph: Graph) -> None:
    found = position(project, graph)
    rates = {row["role"]: int(row["weekly_gbp"]) for row in table("rates")}
    people = sum(line["weeks"] * rates[line["role"]] for line in brief("rail")["effort"]["lines"])
    north = {row["name"]: int(row["weekly_gbp"]) for row in table("partners") if row["region"] == "north"}
    partners = sum(b["weeks"] * north[b["partner"]] for b in final("partner-needs")["bookings"])
    risks = sum(
        r["likelihood_percent"] / 100 * r["extra_weeks"] * rates[r["extra_role"]]
        for r in final("risk-register")["risks"]
    )
    assert (people, partners, risks) == (307_300, 126_100, pytest.approx(15_385))
    assert found.risk_allowance_gbp == 15_385
    assert found.cost_gbp == 448_785 == people + partners + 15_385


def test_floor_and_target_leave_their_margins_and_are_the_lowest_that_do(project: Project, graph: Graph) -> None:
    found = position(project, graph)
    assert (found.floor_gbp, found.target_gbp) == (488_000, 547_500)
    for price, margin in ((found.floor_gbp, 0.08), (found.target_gbp, 0.18)):
        assert price - found.cost_gbp >= margin * price
        assert price - 500 - found.cost_gbp < margin * (price - 500)
    assert found.headroom_gbp is None, "no ceiling was stated"


def test_past_awards_are_those_of_others_scaled_to_the_term(project: Project, graph: Graph) -> None:
    found = position(project, graph)
    expected = {
        row["buyer"]: int(row["value_gbp"]) * 24 // int(row["months"])
        for row in table("awards")
        if row["sector"] == "transport" and row["winner"] != US
    }
    assert {award.buyer: award.scaled_gbp for award in found.awards} == expected
    assert sorted(expected.values()) == [460_000, 520_000, 585_000]


def test_points_for_the_price_follow_the_tender_s_rule(project: Project, graph: Graph) -> None:
    """Both prices against the lowest and the middle award, 35 × lowest / own price."""
    found = position(project, graph)
    assert "35 × lowest price / your price" in brief("rail")["tender"]
    prices = {"floor": 488_000, "target": 547_500}
    assert [(c.our_price, c.rival_gbp) for c in found.comparisons] == [
        (name, rival) for name in prices for rival in (460_000, 520_000)
    ]
    for c in found.comparisons:
        ours, rival = prices[c.our_price], c.rival_gbp
        assert c.our_points == pytest.approx(35 * min(ours, rival) / ours, abs=0.005)
        assert c.rival_points == pytest.approx(35 * min(ours, rival) / rival, abs=0.005)
        assert c.quality_lead_needed == pytest.approx(c.rival_points - c.our_points, abs=0.011)


def test_what_the_tender_does_not_say_is_not_worked_out(project: Project, graph: Graph) -> None:
    no_rule = position(project, graph, opportunity={**final("opportunity"), "price_rule": "not-given"})
    assert no_rule.comparisons == []
    no_term = position(project, graph, opportunity={**final("opportunity"), "term_months": None})
    assert {award.scaled_gbp for award in no_term.awards} == {None}
    assert no_term.comparisons == []
    ceiling = position(project, graph, opportunity={**final("opportunity"), "price_ceiling_gbp": 500_000})
    assert ceiling.headroom_gbp == 12_000


def test_a_partner_without_a_rate_is_named(project: Project, graph: Graph) -> None:
    needs = final("partner-needs")
    needs["bookings"][0]["partner"] = "Ridgeway Screens"  # works in the south
    with pytest.raises(ValueError, match=r"partners\.csv has no Ridgeway Screens for station-work in north"):
        position(project, graph, partners=needs)


def test_the_price_is_explained_by_the_numbers_it_has(project: Project, graph: Graph) -> None:
    strategy, found = final("bid-strategy"), position(project, graph)
    price = strategy["price_gbp"]
    assert strategy["margin_percent"] == round(100 * (price - found.cost_gbp) / price, 1)
    ours = 35 * 460_000 / price
    assert price < 520_000, "so all 35 points against the middle award"
    for figure in (f"{price - found.floor_gbp:,} above our floor", f"{ours:.2f} of 35", f"{35 - ours:.2f} elsewhere"):
        assert figure in strategy["price_reason"]


def test_actions_are_in_order_and_before_the_deadline() -> None:
    dates = [action["by"] for action in final("bid-strategy")["actions"]]
    assert dates == sorted(dates)
    assert dates[-1] < final("opportunity")["tender_deadline"]
    assert dates[0] <= final("opportunity")["questions_until"]
    assert len(final("bid-strategy")["message_to_buyer"].split()) <= 120


def test_weeks_that_a_booking_works_out_are_right() -> None:
    for booking in final("partner-needs")["bookings"]:
        assert (
            booking["weeks"]
            == {"station-work": 9, "service-desk": 104, "accessibility-audit": 2}[booking["capability"]]
        )
    assert 8 < 212 / 25 <= 9
    assert final("opportunity")["term_months"] / 12 * 52 == 104


# What a sample answer works out itself; every other number must stand in something the step reads.
WORKED_OUT = {
    "partner-needs": {"25", "8.48", "104"},  # 212 cards at an assumed 25 a week; two years of 52 weeks
    "risk-register": {"40", "20", "30", "25"},  # likelihoods are what this step is asked to estimate
    "bid-strategy": {"519000", "13.5", "31000", "31.02", "3.98"},
}
NAMES = tuple(
    {row["name"] for row in table("partners")}
    | {row["client"] for row in table("references")}
    | {row["winner"] for row in table("awards")} - {US}
    | {"Ostler & Grey"}
)


def test_sample_answers_use_only_what_their_step_reads(project: Project, graph: Graph) -> None:
    """No answer knows a name or a number that the step was not sent."""
    known: dict[str, Any] = brief("rail")
    known["pricing-position"] = position(project, graph).model_dump()
    for name in STEPS:
        step = graph.steps[name]
        if not step.asks:
            continue
        seen = "\n".join(_shown(known[read.name], read.fields) for read in step.reads)
        seen += "".join((EXAMPLE / "templates" / f"{name.replace('-', '_')}.md.j2").read_text(encoding="utf-8"))
        if name == "swot":
            seen += _shown([row for row in table("references") if row["sector"] == "transport"], None)
        if step.tools:
            seen += _shown([{k: row[k] for k in ("name", "proof", "free_from")} for row in table("partners")], None)
        said = "".join(_shown(reply["json"], None) for reply in replies(name) if "json" in reply)
        assert _numbers(said) - _numbers(seen) <= WORKED_OUT.get(name, set()), name
        assert [word for word in NAMES if word in said and word not in seen] == [], name
        known[name] = final(name)


def _shown(value: Any, fields: tuple[str, ...] | None) -> str:
    return json.dumps({key: value[key] for key in fields} if fields else value, ensure_ascii=False)


def _numbers(text: str) -> set[str]:
    """Numbers of two digits and more, without their thousands' commas; dates are left out."""
    months = "January|February|March|June|September|November|December"
    plain = re.sub(rf"\d{{4}}-\d\d-\d\d|\d{{1,2}} (?:{months})(?: \d{{4}})?|(?:{months}) \d{{4}}", "", text)
    found = (number.replace(",", "").rstrip(".") for number in re.findall(r"\d[\d,.]*", plain))
    return {re.sub(r"(?<=\d)\.0$", "", number) for number in found if len(number) > 1}


# --- runs ------------------------------------------------------------------------------------------------------------


def house_in(folder: Path) -> House:
    return House(folder, "", ScriptedProvider(root=folder), model="scripted:sample_answers")


def register(folder: Path) -> list[dict[str, str]]:
    with (folder / "bid_register.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, Seen]:
    """One run of a copy of the example, to its end."""
    house = house_in(copied("bid-strategy", tmp_path_factory.mktemp("bid")))
    return house, asyncio.run(house.run(brief("rail")))


def test_all_eight_steps_run_and_make_what_the_answers_say(ran: tuple[House, Seen]) -> None:
    house, seen = ran
    assert seen.status == "succeeded", seen.row.error
    assert {name: row.calls for name, row in seen.steps.items() if name in STEPS} == {
        **dict.fromkeys(STEPS, 1),
        "partner-needs": 4,
        "win-themes": 2,
        "pricing-position": 0,
    }
    assert {name: seen.value(name) for name in STEPS if name != "pricing-position"} == {
        name: final(name) for name in STEPS if name != "pricing-position"
    }
    assert seen.value("pricing-position")["cost_gbp"] == 448_785
    assert register(house.folder) == [
        {
            "run": str(seen.row.number),
            "buyer": brief("rail")["buyer"],
            "title": "One place to inform train passengers",
            "decision": "bid-if",
            "price_gbp": "519000",
        }
    ]


def test_the_second_question_goes_on_in_the_thread_of_the_first(ran: tuple[House, Seen]) -> None:
    house, seen = ran
    calls = seen.calls("partner-needs")
    assert [call.sent.source for call in calls] == ["NEXT_STEP", "TOOL_RESULT", "FOLLOW_UP", "TOOL_RESULT"]
    assert all(later.sent.previous == earlier.response_id for earlier, later in pairwise(calls))
    assert [row.tool_call.name for row in seen.tools("partner-needs")] == ["find_partners"] * 3
    follow_up = house.requests("partner-needs")[2]
    assert "Nothing in `cover` speaks to M3" in str(follow_up.items[-1])


def test_what_each_step_is_sent_is_labelled(ran: tuple[House, Seen]) -> None:
    house, _ = ran
    swot = parse(_first_text(house, "swot"))
    (references,) = (piece for piece in swot.task if not isinstance(piece, str))
    assert "No text for the buyer names it" in str(references)
    assert "R-04" not in str(references), "only references of the tender's sector"
    strategy = parse(_first_text(house, "bid-strategy"))
    (price,) = (artifact for artifact in strategy.artifacts if artifact.step == "pricing-position")
    assert "only the price we offer" in str(price.guard)
    partners = parse(_first_text(house, "partner-needs"))
    (effort,) = (artifact for artifact in partners.artifacts if artifact.step == "effort")
    assert json.loads(effort.content).keys() == {"leaves_out"}
    themes = _first_text(house, "win-themes")
    for inside in ("448785", "488000", "Signalbox One leaves out the phones", "Nobody at the buyer knows us"):
        assert (inside in themes) == (inside == "Signalbox One leaves out the phones"), inside


def _first_text(house: House, step: str) -> str:
    return "".join(part for item in house.requests(step)[0].items for part in getattr(item, "parts", ()))


# --- interrupted -----------------------------------------------------------------------------------------------------


ASKED_AGAIN = ("call.sent", "partner-needs", "FOLLOW_UP")


@pytest.mark.slow
def test_S11_killed_in_the_second_question_and_resumed_the_first_is_not_paid_again(tmp_path: Path) -> None:
    """A real process, really killed, while the model thinks about the follow-up."""
    folder = copied("bid-strategy", tmp_path)
    answers = replies("partner-needs")
    slow = [*answers[:2], {**answers[2], "delay": 60}, answers[3]]
    (folder / "sample_answers" / "partner-needs.json").write_text(json.dumps(slow), encoding="utf-8")
    house = house_in(folder)
    env = {**environment(tmp_path), "ORCH_DB": f"sqlite:///{house.db}"}
    process = process_kit.start(folder, "run", "--input", "briefs/rail.json", "--jsonl", env=env)
    assert process.stdout is not None
    try:
        events = (json.loads(line) for line in process.stdout)
        next(e for e in events if (e["event"], e["step"], e.get("source")) == ASKED_AGAIN)
    finally:
        process.kill()
        process.communicate(timeout=60)
    (folder / "sample_answers" / "partner-needs.json").write_text(json.dumps(answers), encoding="utf-8")
    before = asyncio.run(house.look())
    assert [call.done is not None for call in before.calls("partner-needs")] == [True, True, False]

    house.provider = ScriptedProvider(root=folder)
    with house.new_requests() as sent:
        seen = asyncio.run(house.resume())

    assert seen.status == "succeeded", seen.row.error
    asked = [request for request in sent if request.step == "partner-needs"]
    assert len(asked) == 2, "the follow-up again, and its tool's result"
    assert all("Nothing in `cover` speaks to M3" in house.effective(request) for request in asked)
    assert seen.calls("partner-needs")[:2] == before.calls("partner-needs")[:2]
    assert len(seen.attempts["partner-needs"]) == 1
    assert [event.kind for event in house.events if event.step == "partner-needs"].count("ask.recalled") == 1
    assert seen.value("partner-needs") == final("partner-needs")
    assert len(register(folder)) == 1


@pytest.mark.parametrize("moment", ["effect_started:committed", "effect_finished:begin", "effect_finished:committed"])
def test_a_decision_is_entered_once_wherever_the_process_ends(tmp_path: Path, moment: str) -> None:
    house = house_in(copied("bid-strategy", tmp_path))
    house.stopped(brief("rail"), StopAfter(moment))

    with house.new_requests() as sent:
        seen = asyncio.run(house.resume())

    assert seen.status == "succeeded", seen.row.error
    assert sent == [], "the decision itself is on record"
    assert len(register(house.folder)) == 1


def test_the_register_keeps_one_line_for_each_run(project: Project, tmp_path: Path) -> None:
    enter = project.load_object(EXAMPLE / "pipelines" / "register.py", "enter")
    file = tmp_path / "bids.csv"
    assert enter(1, "Buyer, Ltd", "A thing", "bid", 100, file=file) == 1
    assert enter(2, "Other", "B thing", "no-bid", None, file=file) == 2
    assert enter(1, "Buyer, Ltd", "A thing", "no-bid", None, file=file) == 2
    assert file.read_text(encoding="utf-8") == (
        'run,buyer,title,decision,price_gbp\n2,Other,B thing,no-bid,\n1,"Buyer, Ltd",A thing,no-bid,\n'
    )


# --- from Python -----------------------------------------------------------------------------------------------------


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The pipeline's module as a program of the same folder imports it."""
    folder = copied("bid-strategy", tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(folder))
    invalidate_caches()
    yield import_module("pipelines.bid_strategy")
    for name in [name for name in sys.modules if name == "pipelines" or name.startswith("pipelines.")]:
        del sys.modules[name]


def test_one_step_alone_is_given_its_reads_and_gives_its_value(pipelines: Any) -> None:
    value = asyncio.run(
        pipelines.swot.run(
            notes="Nobody at the buyer knows us.",
            opportunity=pipelines.Opportunity.model_validate(final("opportunity")),
            competitors=pipelines.CompetitorView.model_validate(final("competitor-view")),
        )
    )
    assert isinstance(value, pipelines.Swot)
    assert value.model_dump() == final("swot")


def test_a_run_from_python_gives_typed_values(pipelines: Any) -> None:
    run = pipelines.p.run(brief("rail"))
    assert run.status == "succeeded", run.error
    price = run.get(pipelines.pricing_position)
    assert isinstance(price, pipelines.PricingPosition)
    assert price.floor_gbp == 488_000
    assert run.get(pipelines.tender) == brief("rail")["tender"]


# --- what is written about it ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_s_readme_says_what_happens(tmp_path: Path) -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    folder = copied("bid-strategy", tmp_path)
    assert follow(text, folder) == 6
    alone, excerpt = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert excerpt in (EXAMPLE / "pipelines" / "bid_strategy.py").read_text(encoding="utf-8")
    (folder / "alone.py").write_text(alone, encoding="utf-8")
    command = [sys.executable, "alone.py"]
    done = subprocess.run(command, cwd=folder, env=environment(tmp_path), capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.strip() == final("swot")["so_what"]


@pytest.mark.slow
def test_the_example_passes_mypy_strict_as_a_user_s_own_code(tmp_path: Path) -> None:
    folder = copied("bid-strategy", tmp_path)
    wrong = (
        "from .bid_strategy import p, pricing_position, swot\n"
        "price: int = p.run().get(pricing_position)\n"
        "swot.run(notes=3)\n"
    )
    (folder / "pipelines" / "wrong.py").write_text(wrong, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "-p", "pipelines"],
        cwd=folder,
        env={**environment(tmp_path), "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    faults = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {line.split(":")[0] for line in faults} == {"pipelines/wrong.py"}, done.stdout
    assert {int(line.split(":")[1]) for line in faults} == {2, 3}
