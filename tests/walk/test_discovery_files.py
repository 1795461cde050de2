"""The discovery example as it stands on disk: what is shipped must fit together before any run.

Nothing here calls a model or opens a database. The sample answers are recomputed from the brief, the rate table and
each other, so that a figure changed in one place shows up in all others that rest on it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.demo import REJECTION
from orchestrator.contracts import Contract
from orchestrator.facts import check_facts
from orchestrator.graph import Check, Graph, StepNode, check_pipeline, ready
from orchestrator.project import Project, find_project
from orchestrator.settings import load_settings
from orchestrator.tools import call_tool
from orchestrator.values import Statement

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "discovery"
BRIEFS = ("clinic", "logistics", "yoga-studio")


@pytest.fixture(scope="module")
def project() -> Project:
    return find_project(EXAMPLE)


@pytest.fixture(scope="module")
def graph(project: Project) -> Graph:
    settings = load_settings(project, {"ORCH_MODEL": "scripted:sample_answers"})
    found, diagnostics = check_pipeline(project, settings, project.pipeline("discovery"))
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
    """What the step ends with where nobody rejects it: its last answer; a second of the competitors is for one who
    does."""
    last = replies(step)[0 if step == "competitive-analysis" else -1]
    return last["json"] if "json" in last else last["text"]


def broken(step: StepNode, value: Any) -> dict[str, str]:
    """The step's checks that a value breaks: label → message."""
    said = {check.label: _broken(check, step.contract, value) for check in step.checks}
    return {label: message for label, message in said.items() if message is not None}


def _broken(check: Check, contract: Contract, value: Any) -> str | None:
    if check.expr is not None:
        return None if check.expr.evaluate(value) else check.message or "not true"
    assert check.function is not None
    answer: str | None = check.function.call(contract.instance(contract.dump(value)))
    return answer


def calculator(project: Project, graph: Graph, region: str = "US", surfaces: tuple[str, ...] | None = None) -> Any:
    data = final("customer-brief") if surfaces is None else {**final("customer-brief"), "surfaces": list(surfaces)}
    contract = graph.steps["customer-brief"].contract
    calculate = project.load_object(EXAMPLE / "cost.py", "calculate")
    return calculate(customer_brief=contract.instance(contract.dump(data)), region=region)


# --- the pipeline ----------------------------------------------------------------------------------------------------


def test_ten_steps_nine_ask_a_model_one_is_python_and_a_gate(graph: Graph) -> None:
    assert list(graph.steps) == [
        "opportunity",
        "market-sizing",
        "competitive-analysis",
        "customer-brief",
        "cost-calculator",
        "review",
        "tech-stack",
        "delivery-plan",
        "risks",
        "cost-estimate",
        "executive-summary",
    ]
    without = {name: step.kind for name, step in graph.steps.items() if step.kind != "llm"}
    assert without == {"cost-calculator": "python", "review": "gate"}
    assert graph.warnings == ()


def test_steps_that_do_not_wait_for_each_other_are_ready_at_once(graph: Graph) -> None:
    assert ready(graph, (), ()) == ("opportunity",)
    assert ready(graph, ("opportunity",), ("opportunity",)) == (
        "market-sizing",
        "competitive-analysis",
        "customer-brief",
    )
    studied = ("opportunity", "market-sizing", "competitive-analysis", "customer-brief", "cost-calculator")
    assert ready(graph, studied, studied) == ("review",)
    before = (*studied, "review", "tech-stack")
    assert ready(graph, before, before) == ("delivery-plan", "risks")


def test_the_rates_carry_their_guard_and_the_reading_step_adds_its_own(graph: Graph) -> None:
    assert any("not the customer's budget" in guard for guard in graph.steps["cost-calculator"].contract.not_for)
    (read,) = [read for read in graph.steps["tech-stack"].reads if read.name == "cost-calculator"]
    assert read.guard == "Do not use these figures as budget constraints in the tech stack recommendation."


def test_every_fact_about_the_customer_may_be_left_unstated(graph: Graph) -> None:
    assert graph.steps["customer-brief"].contract.customer_fields == ("customer_budget", "launch_date", "team_size")
    assert graph.steps["cost-estimate"].contract.customer_fields == ("customer_budget", "launch_date")
    unstated = {"customer_budget": None, "launch_date": None, "team_size": None}
    assert graph.steps["customer-brief"].contract.faults({**final("customer-brief"), **unstated}) == ()


def test_the_tool_may_be_repeated(graph: Graph) -> None:
    (lookup,) = graph.steps["tech-stack"].tools
    assert lookup.spec.name == "lookup_rates"
    assert lookup.idempotent


@pytest.mark.parametrize("fill", [("text", 1), ("", 0)], ids=["ones", "zeros"])
def test_a_bland_answer_of_the_right_form_passes_every_check(graph: Graph, fill: tuple[str, int]) -> None:
    """The checks refuse what contradicts itself, not what is short: any server that follows the schema gets through."""
    for step in graph.steps.values():
        schema = step.contract.sent_schema()
        if step.kind == "llm" and schema is not None:
            value = bland(schema, schema, *fill)
            assert step.contract.faults(value) == (), step.name
            assert broken(step, value) == {}, step.name


def bland(schema: Mapping[str, Any], root: Mapping[str, Any], text: str, number: int) -> Any:
    """The plainest value of a schema: first choice, one element a list."""
    if "$ref" in schema:
        return bland(root["$defs"][schema["$ref"].rpartition("/")[2]], root, text, number)
    if "anyOf" in schema:
        return bland(schema["anyOf"][0], root, text, number)
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: bland(child, root, text, number) for name, child in schema["properties"].items()}
    if schema["type"] == "array":
        return [bland(schema["items"], root, text, number)]
    return text if schema["type"] == "string" else number


# --- the briefs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BRIEFS)
def test_a_brief_gives_every_input_that_has_no_default_and_no_other(graph: Graph, name: str) -> None:
    given = brief(name)
    assert set(given) <= set(graph.inputs)
    assert {"idea", "business"} <= set(given)
    for key, value in given.items():
        assert graph.inputs[key].contract.faults(value) == (), key


def test_one_customer_states_a_budget_one_does_not_and_one_quotes_a_vendor() -> None:
    assert "customer-budget" not in brief("clinic")
    assert not any(re.search(r"[$€£]|USD|EUR|GBP|dollar|euro|pound", text) for text in brief("clinic").values())
    assert "18,000 euros" in brief("yoga-studio")["customer-budget"]
    assert "997 dollars a week" in brief("logistics")["idea"]
    assert re.search(r"\d", brief("logistics")["customer-budget"]) is None


# --- the rates -------------------------------------------------------------------------------------------------------


def test_the_calculator_finds_the_lowest_outside_quote_for_a_developer(project: Project, graph: Graph) -> None:
    rates = calculator(project, graph)
    assert (rates.weekly_usd, rates.weekly_usd_role, rates.weekly_usd_supplier) == (
        997,
        "web-developer",
        "Kestrel Softworks",
    )
    lead = next(rate for rate in rates.roles if rate.role == "delivery-lead")
    assert (lead.agency_weekly_usd, lead.outside_weekly_usd, lead.minimum_weeks) == (3300, None, None)
    assert graph.steps["cost-calculator"].contract.faults(rates) == ()


@pytest.mark.parametrize("region", ["EU", "UK", "US"])
def test_the_rates_cover_every_role_in_every_region(project: Project, graph: Graph, region: str) -> None:
    rates = calculator(project, graph, region, ("web", "mobile-app", "back-office", "integration"))
    assert [rate.role for rate in rates.roles][-2:] == ["mobile-developer", "integration-engineer"]
    assert [service.per for service in rates.services] == ["month", "month", "message"]
    assert {rate.region for rate in project.load_object(EXAMPLE / "rates.py", "all_rates")()} == {"EU", "UK", "US"}


def test_an_unknown_region_is_named_with_the_known_ones(project: Project, graph: Graph) -> None:
    with pytest.raises(ValueError, match="no rates for the region 'Mars'; it has EU, UK, US"):
        calculator(project, graph, "Mars")


def test_the_tool_answers_with_all_suppliers_and_explains_an_unknown_role(graph: Graph) -> None:
    (lookup,) = graph.steps["tech-stack"].tools
    good = asyncio.run(call_tool(lookup, '{"role": "platform-engineer", "region": "US"}'))
    assert not good.is_error
    assert [(row["supplier"], row["weekly_usd"]) for row in json.loads(good.output)] == [
        ("Fernhill Studio", 3900),
        ("Kestrel Softworks", 1420),
    ]
    bad = asyncio.run(call_tool(lookup, '{"role": "plumber", "region": "US"}'))
    assert bad.is_error
    assert "delivery-lead" in bad.output


# --- the sample answers ----------------------------------------------------------------------------------------------


def test_there_are_answers_for_every_model_step_and_for_nothing_else(graph: Graph) -> None:
    model_steps = {name for name, step in graph.steps.items() if step.kind == "llm"}
    assert {path.stem for path in (EXAMPLE / "sample_answers").iterdir()} == model_steps
    assert {name: len(replies(name)) for name in model_steps if len(replies(name)) != 1} == {
        "competitive-analysis": 2,
        "tech-stack": 2,
        "cost-estimate": 2,
    }


def test_every_answer_has_the_form_of_its_contract(graph: Graph) -> None:
    for name, step in graph.steps.items():
        for reply in replies(name) if step.kind == "llm" else ():
            if "tool_calls" not in reply:
                assert step.contract.faults(reply.get("json", reply.get("text"))) == (), name


def test_only_the_first_cost_estimate_fails_and_only_because_it_does_not_add_up(graph: Graph) -> None:
    failed = [
        (name, at, label)
        for name, step in graph.steps.items()
        if step.kind == "llm"
        for at, reply in enumerate(replies(name))
        if "json" in reply
        for label in broken(step, reply["json"])
    ]
    assert [(name, at) for name, at, _ in failed] == [("cost-estimate", 0)]
    assert "adds_up" in failed[0][2]
    (message,) = broken(graph.steps["cost-estimate"], replies("cost-estimate")[0]["json"]).values()
    assert "total_high is 154,500, which is 18,450 less than its components" in message


def test_the_call_of_the_tool_gives_what_the_answer_says_it_looked_up(graph: Graph) -> None:
    (call,) = replies("tech-stack")[0]["tool_calls"]
    (lookup,) = graph.steps["tech-stack"].tools
    assert call["name"] == lookup.spec.name
    rows = json.loads(asyncio.run(call_tool(lookup, json.dumps(call["arguments"]))).output)
    assert final("tech-stack")["looked_up"] == [
        {"role": call["arguments"]["role"], "supplier": row["supplier"], "weekly_usd": row["weekly_usd"]}
        for row in rows
    ]


# --- the numbers, from the brief to the summary ----------------------------------------------------------------------


@pytest.fixture
def agency(project: Project, graph: Graph) -> Callable[[str], float]:
    """The agency's weekly rate of a role: from the calculator, or where that lacks the role from the tool."""
    rates = {rate.role: float(rate.agency_weekly_usd) for rate in calculator(project, graph).roles}
    for row in final("tech-stack")["looked_up"]:
        if row["supplier"] == "Fernhill Studio":
            rates[row["role"]] = row["weekly_usd"]
    return rates.__getitem__


def test_the_market_follows_from_the_brief() -> None:
    market, words = final("market-sizing"), brief("clinic")
    assert "2,900 patients" in words["idea"]
    assert "240 patients asked; 168 would book" in words["research"]
    assert market["total"] == 2900
    assert market["reachable"] == 2900 * 168 / 240
    assert market["first_year"] == market["reachable"] * 0.6
    assert sum(segment["size"] for segment in market["segments"]) == market["total"]


def test_the_plan_takes_as_long_as_its_phases_and_counts_back_from_the_launch() -> None:
    plan, launch = final("delivery-plan"), date.fromisoformat(final("customer-brief")["launch_date"])
    assert "1 September 2027" in brief("clinic")["launch-date"]
    assert launch == date(2027, 9, 1)
    assert plan["total_weeks"] == sum(phase["weeks"] for phase in plan["phases"]) == 17
    assert date.fromisoformat(plan["latest_start"]) == launch - timedelta(weeks=17)
    for phase in plan["phases"]:
        assert all(effort["weeks"] <= phase["weeks"] for effort in phase["effort"]), phase["name"]


def test_each_cost_line_is_its_phase_at_the_agency_s_rates(agency: Callable[[str], float]) -> None:
    *lines, allowance = final("cost-estimate")["components"]
    for phase, line in zip(final("delivery-plan")["phases"], lines, strict=True):
        cost = sum(effort["weeks"] * agency(effort["role"]) for effort in phase["effort"])
        assert (line["name"], line["low_usd"], line["high_usd"]) == (phase["name"], cost, round(cost * 1.2))
    risks = final("risks")["risks"]
    assert allowance["low_usd"] == 0
    assert allowance["high_usd"] == sum(risk["extra_weeks"] * agency(risk["extra_role"]) for risk in risks)


def test_every_sum_written_out_in_words_is_right(agency: Callable[[str], float]) -> None:
    """`basis` says "design 3 × 3,100 + … = 21,850": the terms give the total, and the total is the line's."""
    for line in final("cost-estimate")["components"]:
        terms = re.findall(r"([\d.]+) × ([\d,]+)", line["basis"])
        total = sum(float(weeks) * float(rate.replace(",", "")) for weeks, rate in terms)
        assert f"= {total:,.0f}" in line["basis"]
        assert total == (line["low_usd"] or line["high_usd"])


def test_running_costs_and_the_outside_option_are_recomputed(project: Project, graph: Graph) -> None:
    estimate, rates = final("cost-estimate"), calculator(project, graph)
    monthly = [part["monthly_usd"] for part in final("tech-stack")["components"] if part["monthly_usd"] is not None]
    prices = {(service.service, service.per): service.usd for service in rates.services}
    sms, hosting = prices["SMS", "message"], prices["managed hosting for health data", "month"]
    assert monthly == [round(620 * 52 / 12 * sms, 2), hosting]
    assert estimate["running_monthly_usd"] == pytest.approx(sum(monthly))
    weeks = sum(
        effort["weeks"]
        for phase in final("delivery-plan")["phases"]
        for effort in phase["effort"]
        if effort["role"] == rates.weekly_usd_role
    )
    web = next(rate for rate in rates.roles if rate.role == rates.weekly_usd_role)
    assert web.minimum_weeks == weeks == 12
    assert f"{weeks * (web.agency_weekly_usd - rates.weekly_usd):,.0f} USD" in estimate["outside_option"]


def test_the_summary_quotes_the_study(graph: Graph) -> None:
    summary, estimate = final("executive-summary"), final("cost-estimate")
    total_low, total_high = estimate["total_low"], estimate["total_high"]
    planned = sum(line["high_usd"] - line["low_usd"] for line in estimate["components"][:-1])
    allowance = estimate["components"][-1]["high_usd"]
    assert total_high - total_low == planned + allowance
    for figure in (total_low, total_high, planned, allowance, 2900, 2030, 1218):
        assert f"{figure:,.0f}" in summary
    assert f"about {estimate['running_monthly_usd']:.0f} USD a month" in summary
    assert {risk["title"] for risk in final("risks")["risks"][:3]} & set(_bold(summary))
    assert len(summary.split()) <= 350
    assert [line for line in summary.splitlines() if line.startswith("## ")] == [
        "## Recommendation",
        "## Why",
        "## What it takes",
        "## What could go wrong",
        "## Decisions needed",
    ]


def _bold(markdown: str) -> Iterator[str]:
    return (found.rstrip(".,") for found in re.findall(r"\*\*(.+?)\*\*", markdown))


def test_no_vendor_figure_is_taken_for_the_budget() -> None:
    """The clinic stated no budget: nobody names one, and 997 stands only in the comparison it was looked up for."""
    assert final("customer-brief")["customer_budget"] is None
    assert final("cost-estimate")["customer_budget"] is None
    assert "No budget has been stated" in final("executive-summary")
    holders = {
        (step, key)
        for step in ("opportunity", "customer-brief", "tech-stack", "delivery-plan", "risks", "cost-estimate")
        for key, value in final(step).items()
        if re.search(r"(?<![\d,.])997(?![\d,.]*\d)", json.dumps(value))
    }
    assert holders == {("cost-estimate", "outside_option")}
    assert "997" not in final("executive-summary")


@pytest.mark.parametrize("step", ["customer-brief", "cost-estimate"])
def test_what_the_clinic_said_is_kept_and_a_vendor_s_rate_is_not(graph: Graph, step: str) -> None:
    said = [Statement(name, text, "input", name, sent=True) for name, text in brief("clinic").items()]
    contract, answer = graph.steps[step].contract, final(step)
    kept = check_facts(contract, answer, said)
    assert (kept.value, kept.dropped, kept.faults) == (answer, (), ())
    assert kept.facts["launch_date"].source == "launch-date"
    leaked = check_facts(contract, {**answer, "customer_budget": "$997/week"}, said)
    assert leaked.value == answer
    assert [dropped.path for dropped in leaked.dropped] == ["customer_budget"]


# What a sample answer works out itself; every other number must stand in something the step reads.
WORKED_OUT = {
    "opportunity": {"26", "70"},  # 231 of 880 calls, 168 of 240 patients, in per cent
    "market-sizing": {"1750", "2030", "1218", "60", "0.70", "0.60"},  # 60 % is an assumption and called one
    "tech-stack": {"32.24", "2687", "52", "12"},  # SMS a month
    "delivery-plan": {"1.5", "17"},  # weeks of people are what this step is asked to estimate
    "risks": {"0.5"},
    "cost-estimate": {
        *("21850", "26220", "53450", "64140", "30850", "37020", "22600", "27120", "18450", "128750", "172950"),
        *("442.24", "2403", "28836", "20"),  # the 20 % is the task's
    },
    "executive-summary": {"442", "25750"},
}
NAMES = ("CareDesk", "SlotWell", "Pingline", "Tidewater", "Fernhill", "Kestrel", "Norvane")


def test_sample_answers_use_only_what_their_step_reads(project: Project, graph: Graph) -> None:
    """No answer knows a name or a number that the step was not sent."""
    known: dict[str, Any] = {name: brief("clinic").get(name, node.default) for name, node in graph.inputs.items()}
    for name, step in graph.steps.items():
        if step.kind != "llm":
            known[name] = calculator(project, graph).model_dump() if step.kind == "python" else None
            continue
        seen = "\n".join(_shown(known[read.name], read.fields) for read in step.reads)
        seen += "".join(_shown(row, None) for row in final(name)["looked_up"]) if step.tools else ""
        said = _shown(final(name), None)
        assert _numbers(said) - _numbers(seen) <= WORKED_OUT.get(name, set()), name
        assert [word for word in NAMES if word in said and word not in seen] == [], name
        known[name] = final(name)


def test_the_answer_to_the_rejection_adds_what_it_names_and_nothing_else() -> None:
    first, second = (reply["json"] for reply in replies("competitive-analysis"))
    *others, added = second["competitors"]
    assert others == first["competitors"]
    assert second["gaps"] == first["gaps"]
    assert added["name"].lower() in REJECTION.lower()
    assert added["price"] in REJECTION
    assert _numbers(_shown(second, None)) - _numbers(_shown(first, None)) == _numbers(REJECTION)


def _shown(value: Any, fields: tuple[str, ...] | None) -> str:
    return json.dumps({key: value[key] for key in fields} if fields else value, ensure_ascii=False)


def _numbers(text: str) -> set[str]:
    """Numbers of two digits and more, without their thousands' commas; dates are left out."""
    plain = re.sub(r"\d{4}-\d\d-\d\d|(?:\d{1,2} )?(?:May|September|October|November)(?: \d{4})?", "", text)
    found = (number.replace(",", "").rstrip(".") for number in re.findall(r"\d[\d,.]*", plain))
    return {re.sub(r"(?<=\d)\.0$", "", number) for number in found if len(number) > 1}
