"""A pipeline used as a step, through the real engine and store (authoring-and-cli §1, `uses` with `with`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator.building.variants import Variation, varied
from orchestrator.errors import UsageError
from orchestrator.loading import load_pipeline
from orchestrator.values import Request, TextItem
from tests.walk.harness import House, Seen, StopAfter, check_no_gap

REPORT = """
    version: 1
    pipeline: report
    system: "You write reports."
    defaults: {reasks: 0}
    inputs:
      topic: {type: text, about: "What to write on.", not_for: ["Not a promise."]}
      language: {type: string, default: en}
    artifacts:
      style: {about: "How to write.", not_for: none, schema: text}
      outline: {about: "The outline.", not_for: ["Not the text."], schema: text}
      report: {about: "The report.", not_for: none, schema: markdown}
    steps:
      style: {reads: [language], prompt: "A style for {{ inputs.language }}."}
      outline: {reads: [topic], prompt: "An outline."}
      report:
        reads: [outline, topic, style]
        prompt: "Write in {{ block('style') }} along {{ block('outline') }}."
    outputs: [report]
"""
MARKET = """
      market:
        about: "The market."
        not_for: ["Not a budget."]
        schema:
          type: object
          properties:
            size: {type: integer}
            segment: {type: string}
            rivals:
              type: array
              items:
                type: object
                properties: {slug: {type: string}, about: {type: string}}
                required: [slug, about]
                additionalProperties: false
          required: [size, segment, rivals]
          additionalProperties: false
"""
STUDY = (
    """
    version: 1
    pipeline: study
    system: "You advise founders."
    defaults: {reasks: 0}
    inputs:
      idea: {type: text, about: "What the customer wants."}
    artifacts:"""
    + MARKET
    + """
      advice: {about: "Advice.", not_for: none, schema: text}
    steps:
      market: {reads: [idea], prompt: "Size the market."}
      plan:
        uses: report
        WITH
      advice: {reads: [ADVICE], prompt: "Advise."}
    outputs: [advice]
"""
)
ONE = "with: {topic: {read: market.segment, guard: Not a forecast.}, language: {value: de}}"
EACH = """for_each: {item: rival, in: market.rivals, key: slug, on_error: collect}
        with: {topic: rival.about, language: {value: de}}"""
IDEA = {"idea": "a secret shop"}


def study(way: str = ONE, advice: str = "plan") -> str:
    return STUDY.replace("WITH", way).replace("ADVICE", advice)


def prompt_of(request: Request) -> str:
    return "".join(item.text for item in request.items if isinstance(item, TextItem))


class Vendor:
    """What the models say. Outlines of broken topics are empty, which no contract allows."""

    def __init__(self, *slugs: str, segment: str = "clinics", broken: str = "\0") -> None:
        self.slugs = slugs
        self.segment = segment
        self.broken = broken

    def __call__(self, request: Request, seen: object) -> dict[str, Any]:
        text = prompt_of(request)
        if request.step == "market":
            rivals = [{"slug": slug, "about": f"all about {slug}"} for slug in self.slugs]
            return {"json": {"size": 7, "segment": self.segment, "rivals": rivals}}
        if request.step.endswith("outline") and self.broken in text:
            return {"text": ""}
        about = next((slug for slug in self.slugs if f"all about {slug}" in text), "")
        return {"text": f"{request.step} {about}".strip()}


def house(folder: Path, pipeline: str | None = None, vendor: Vendor | None = None, **files: str) -> House:
    others = {f"pipelines/{name}.yaml": text for name, text in files.items()}
    return House(folder, pipeline or study(), vendor or Vendor(), files={"pipelines/report.yaml": REPORT, **others})


def ran(home: House) -> Seen:
    seen = asyncio.run(home.run(IDEA))
    assert seen.status == "succeeded", seen.row.error
    check_no_gap(seen)
    return seen


# --- what crosses -----------------------------------------------------------------------------------------------------


def test_its_steps_see_what_they_are_given_and_nothing_else_of_the_run(tmp_path: Path) -> None:
    """R012 at the boundary of a pipeline: no other step, no other input, no instructions of the one that uses it."""
    home = house(tmp_path)
    seen = ran(home)
    assert [name for name in seen.steps if name.startswith("plan")] == [
        "plan.topic", "plan.language", "plan.style", "plan.outline", "plan.report",
    ]  # fmt: skip
    assert seen.text("plan.topic") == "clinics"
    for step in ("plan.style", "plan.outline", "plan.report"):
        (request,) = home.requests(step)
        whole = request.system + prompt_of(request)
        assert "You write reports." in request.system
        assert "secret shop" not in whole
        assert "founders" not in whole
        assert "rivals" not in whole
    (advice,) = home.requests("advice")
    assert '<artifact step="plan" type="report">' in prompt_of(advice)
    assert "plan.outline" not in prompt_of(advice)


def test_R003_guards_go_with_what_is_given(tmp_path: Path) -> None:
    """Those of the input, of the contract it is taken from, and of the binding; ahead of the content."""
    home = house(tmp_path)
    ran(home)
    told = prompt_of(home.requests("plan.outline")[0])
    for guard in ("Not a promise.", "Not a budget.", "Not a forecast."):
        assert guard in told.split("clinics")[0]


def test_a_request_is_the_same_bytes_as_when_the_pipeline_runs_alone(tmp_path: Path) -> None:
    """Names inside are its own: nothing in a prompt tells where it is used. Only guards are added to what is given."""
    used = house(tmp_path / "used", study("with: {topic: idea, language: {value: de}}"))
    ran(used)
    alone = House(tmp_path / "alone", REPORT, lambda request, seen: {"text": f"plan.{request.step}"})
    asyncio.run(alone.run({"topic": IDEA["idea"], "language": "de"}))
    for step in ("style", "outline", "report"):
        (one,), (two,) = used.requests(f"plan.{step}"), alone.requests(step)
        assert (one.system, prompt_of(one)) == (two.system, prompt_of(two))


# --- what is stale ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_an_edit_goes_through_the_boundary_as_far_as_values_change(tmp_path: Path) -> None:
    home = house(tmp_path)
    ran(home)
    market = {"size": 8, "segment": "clinics", "rivals": []}
    asyncio.run(home.edit("market", market))
    assert asyncio.run(home.stale()) == {}  # `size` is not given to anybody
    asyncio.run(home.edit("market", {**market, "segment": "schools"}))
    assert asyncio.run(home.stale()) == {"plan.topic": ("market v1→v3 (ana): segment",)}
    with home.new_requests() as sent:
        seen = asyncio.run(home.refresh())
    assert seen.status == "succeeded"
    assert [request.step for request in sent] == ["plan.outline", "plan.report"]  # it comes out equal: advice stands
    assert "schools" in prompt_of(sent[0])
    assert seen.text("plan.topic") == "schools"
    assert asyncio.run(home.stale()) == {}


def test_a_fixed_value_that_is_changed_in_the_file_is_a_change_of_what_is_given(tmp_path: Path) -> None:
    home = house(tmp_path)
    ran(home)
    home.write("walk.yaml", study().replace("{value: de}", "{value: fr}"))
    assert set(asyncio.run(home.stale())) == {"plan.language"}
    seen = asyncio.run(home.refresh())
    assert seen.text("plan.language") == "fr"
    assert "A style for fr." in prompt_of(home.requests("plan.style")[1])


def test_an_edit_of_its_result_reaches_whoever_reads_it(tmp_path: Path) -> None:
    home = house(tmp_path)
    ran(home)
    asyncio.run(home.edit("plan.report", "# By hand"))
    assert set(asyncio.run(home.stale())) == {"advice"}
    asyncio.run(home.refresh())
    assert "# By hand" in prompt_of(home.requests("advice")[1])


def test_a_value_that_is_no_such_input_is_told_before_anything_inside_is_paid(tmp_path: Path) -> None:
    home = house(tmp_path, study("with: {topic: idea, language: market.segment}"), Vendor(segment="two\nlines"))
    seen = asyncio.run(home.run(IDEA))
    assert seen.status == "failed"
    error = seen.steps["plan.language"].error
    assert error is not None
    assert error.code == "invalid_binding"
    assert "plan.language is given market.segment, which is no string: $ must be one line" in error.message
    assert not home.requests("plan.style")


# --- for each ---------------------------------------------------------------------------------------------------------


def test_for_each_does_it_for_each_entry_and_what_is_the_same_for_all_once(tmp_path: Path) -> None:
    home = house(tmp_path, study(EACH), Vendor("acme", "bolt", "corp"))
    seen = ran(home)
    asked = Counter(request.step for request in home.requests())
    assert asked == {"market": 1, "plan.style": 1, "plan.outline": 3, "plan.report": 3, "advice": 1}
    for slug in ("acme", "bolt", "corp"):
        assert seen.text(f"plan.topic/{slug}") == f"all about {slug}"
        assert seen.text(f"plan.report/{slug}") == f"plan.report {slug}"
    told = prompt_of(home.requests("advice")[0])
    assert told.index('step="plan/acme"') < told.index('step="plan/bolt"') < told.index('step="plan/corp"')
    only = [prompt_of(request) for request in home.requests("plan.report") if "about bolt" in prompt_of(request)]
    assert len(only) == 1
    assert "about acme" not in only[0]


def test_an_entry_that_fails_inside_is_missing_for_readers_and_they_are_told(tmp_path: Path) -> None:
    home = house(tmp_path, study(EACH), Vendor("acme", "bolt", "corp", broken="about bolt"))
    seen = ran(home)
    assert "plan.report/bolt" not in seen.steps
    assert seen.steps["plan.outline/bolt"].status == "failed"
    told = prompt_of(home.requests("advice")[0])
    assert "2 of 3 items. Missing: bolt (the output is still not valid" in told


@pytest.mark.usefixtures("database")
def test_one_entry_that_is_edited_redoes_its_own_chain_only(tmp_path: Path) -> None:
    vendor = Vendor("acme", "bolt")
    home = house(tmp_path, study(EACH), vendor)
    ran(home)
    asyncio.run(home.edit("plan.outline", "Another outline.", item="bolt"))
    assert set(asyncio.run(home.stale())) == {"plan.report", "plan.report/bolt"}
    with home.new_requests() as sent:
        asyncio.run(home.refresh())
    assert [request.step for request in sent] == ["plan.report"]
    assert "Another outline." in prompt_of(sent[0])
    assert "about bolt" in prompt_of(sent[0])


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("stop", [3, 6, 9, 12])
def test_A9_killed_inside_it_goes_on_where_it_was(tmp_path: Path, stop: int) -> None:
    """Items times steps: no committed one runs again, and the end is that of an undisturbed run."""
    vendor = Vendor("acme", "bolt", "corp")
    whole = ran(house(tmp_path / "whole", study(EACH), vendor))
    home = house(tmp_path / "stopped", study(EACH), vendor)
    before = home.stopped(IDEA, StopAfter("commit:committed", stop))
    done = {label for label, row in before.steps.items() if row.status == "succeeded" and row.calls}
    with home.new_requests() as sent:
        seen = asyncio.run(home.resume())
    assert seen.status == "succeeded", seen.row.error
    assert seen.bodies() == whole.bodies()
    again = {f"{request.step}/{request.item}" if request.item else request.step for request in sent}
    assert not again & done
    check_no_gap(seen)


# --- when -------------------------------------------------------------------------------------------------------------


WHEN = """with: {topic: market.segment, language: {value: de}}
        when: "market.size > 9" """


def test_A21_where_its_when_is_false_nothing_of_it_is_done_and_readers_get_their_default(tmp_path: Path) -> None:
    home = house(tmp_path, study(WHEN, '{read: plan, default: "No plan."}'))
    seen = ran(home)
    assert seen.value("plan.when") is False
    skipped = {name for name, row in seen.steps.items() if row.status == "skipped"}
    assert skipped == {"plan.topic", "plan.language", "plan.style", "plan.outline", "plan.report"}
    error = seen.steps["plan.report"].error
    assert error is not None
    assert error.message == "plan.when is false"
    assert {request.step for request in home.requests()} == {"market", "advice"}
    assert "No plan." in prompt_of(home.requests("advice")[0])

    asyncio.run(home.edit("market", {"size": 10, "segment": "clinics", "rivals": []}))
    seen = asyncio.run(home.refresh())
    assert seen.status == "succeeded"
    assert seen.value("plan.when") is True
    assert seen.text("plan.report") == "plan.report"
    assert "plan.report" in prompt_of(home.requests("advice")[1])
    assert "true" not in prompt_of(home.requests("plan.report")[0])  # the condition is nobody's material


# --- in one another, with people --------------------------------------------------------------------------------------

CHECKED = """
    version: 1
    pipeline: checked
    inputs:
      subject: {type: text, about: "The subject."}
    artifacts:
      summary: {about: "The summary.", not_for: none, schema: text}
    steps:
      draft: {uses: report, with: {topic: subject}}
      summary: {reads: [draft], prompt: "Sum up {{ block('draft') }}."}
      look:
        gate: {ask: "Good?", shows: [draft, summary], on_reject: {redo: summary, max_rounds: 2}}
    outputs: [summary]
"""


@pytest.mark.usefixtures("database")
def test_pipelines_in_pipelines_and_a_gate_inside_holds_back_whoever_reads_outside(tmp_path: Path) -> None:
    way = "uses: checked\n        with: {subject: market.segment}"
    home = house(tmp_path, study().replace("uses: report\n        " + ONE, way), checked=CHECKED)
    seen = asyncio.run(home.run(IDEA))
    assert seen.status == "waiting"
    assert seen.steps["plan.look"].status == "waiting"
    assert seen.text("plan.draft.report") == "plan.draft.report"
    assert not home.requests("advice")  # its output is there, and not approved
    told = prompt_of(home.requests("plan.summary")[0])
    assert '<artifact step="draft" type="report">' in told
    graph = home.graph()
    assert graph.groups["plan.draft"] == (
        "plan.draft.topic", "plan.draft.language", "plan.draft.style", "plan.draft.outline", "plan.draft.report",
    )  # fmt: skip
    assert set(graph.groups["plan.draft"]) < set(graph.groups["plan"])
    assert graph.target("plan") == "plan.summary"
    assert graph.target("plan.draft") == "plan.draft.report"

    seen = asyncio.run(home.answer("plan.look", "reject", "Shorter."))
    assert seen.status == "waiting"
    assert "Shorter." in prompt_of(home.requests("plan.summary")[1])
    seen = asyncio.run(home.answer("plan.look"))
    assert seen.status == "succeeded"
    assert len(home.requests("advice")) == 1


def test_rerun_from_a_step_inside_shares_what_is_above_it(tmp_path: Path) -> None:
    home = house(tmp_path)
    ran(home)
    with home.new_requests() as sent:
        child = asyncio.run(home.rerun("plan.outline"))
    assert child.status == "succeeded"
    assert [request.step for request in sent] == ["plan.outline", "plan.report", "advice"]


def test_several_outputs_are_read_one_by_one_or_all(tmp_path: Path) -> None:
    both = REPORT.replace("outputs: [report]", "outputs: [outline, report]")
    home = house(tmp_path, study(advice="plan"), report=both)
    seen = ran(home)
    told = prompt_of(home.requests("advice")[0])
    assert '<artifact step="plan.outline" type="outline">' in told
    assert '<artifact step="plan.report" type="report">' in told
    assert seen.status == "succeeded"


def test_a_step_inside_is_not_tried_with_another_model_from_outside(tmp_path: Path) -> None:
    """It would have to be said in the pipeline it belongs to; the answer is a sentence, no traceback."""
    home = house(tmp_path)
    graph = home.graph()
    project, settings, _ = home.opened()
    loaded = load_pipeline(project, project.pipeline("walk"))
    with pytest.raises(UsageError, match=r"plan\.report belongs to the pipeline that plan uses"):
        varied(project, settings, loaded, "plan.report", Variation(model="openai:other"))
    assert graph.steps["plan.report"].model is not None


BRIEF = """
    version: 1
    pipeline: brief
    inputs:
      budget: {type: text, about: "What the customer can spend."}
    artifacts:
      brief:
        about: "The brief."
        not_for: none
        schema:
          type: object
          properties: {budget: {type: [string, "null"], fact_of: customer}}
          required: [budget]
          additionalProperties: false
    steps:
      brief: {reads: [budget], prompt: "Write the brief."}
"""
CALLER = """
    version: 1
    pipeline: caller
    inputs:
      can-spend: {type: text, about: "What the customer can spend."}
    artifacts:
      end: {about: "The end.", not_for: none, schema: text}
    steps:
      plan: {uses: brief, with: {budget: can-spend}}
      end: {reads: [plan], prompt: "End."}
"""


def test_what_the_customer_said_is_that_inside_too_under_the_name_it_has_there(tmp_path: Path) -> None:
    script: dict[str, list[dict[str, object]]] = {
        "plan.brief": [{"json": {"budget": "5,000 USD"}}],
        "end": [{"text": "done"}],
    }
    home = House(tmp_path, CALLER, script, files={"pipelines/brief.yaml": BRIEF})
    seen = asyncio.run(home.run({"can-spend": "5,000 USD"}))
    assert seen.status == "succeeded", seen.row.error
    assert "Stated by the customer: budget: 5,000 USD" in prompt_of(home.requests("plan.brief")[0])
    assert seen.value("plan.brief") == {"budget": "5,000 USD"}
    basis = seen.artifacts["plan.brief"].version.facts["budget"]
    assert (basis.basis, basis.source) == ("stated", "can-spend")
