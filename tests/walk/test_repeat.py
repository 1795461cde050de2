"""A step that is visited until its rule holds: bounded, each visit's version kept and paid for, resumable anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import frame
from orchestrator.errors import InvalidProject, StoreError
from orchestrator.ids import is_synthetic
from orchestrator.plan import plan_new
from orchestrator.values import Item, Request, TextItem
from tests.walk.harness import House, Seen, Stopper

PIPELINE = """
version: 1
pipeline: letters
inputs:
  least: {{type: integer, about: "How good it must be."}}
models:
  default: {{use: "${{env:ORCH_MODEL}}", max_output_tokens: 1000}}
artifacts:
  draft: {{about: "A draft.", not_for: none, schema: {{
    type: object, properties: {{score: {{type: integer}}, text: {{type: string}}, missing: {{type: string}}}},
    required: [score, text, missing], additionalProperties: false}}}}
  letter: {{about: "A letter.", not_for: none, schema: text}}
steps:
  draft:
    reads: [least]
    prompt: "Draft it."
    repeat: {repeat}
  letter: {{reads: [draft], prompt: "Write it."}}
"""
USUAL = "{until: score >= least, max_rounds: 3, feedback: {expr: missing}}"
INPUTS = {"least": 8}


class Scores:
    """A model whose drafts have these scores, one after the other."""

    def __init__(self, *scores: int | None) -> None:
        self.scores = list(scores)

    def __call__(self, request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
        if request.step == "letter":
            return {"text": "The letter."}
        score = self.scores.pop(0)
        return {"json": {"score": score, "text": f"DRAFT-{score}", "missing": f"what {score} lacks"}}


def house(folder: Path, scores: Sequence[int | None], repeat: str = USUAL) -> House:
    return House(folder, PIPELINE.format(repeat=repeat), Scores(*scores))


def run(there: House) -> Seen:
    return asyncio.run(there.run(INPUTS))


def told(request: Request) -> frame.Parsed:
    (item,) = request.items
    assert isinstance(item, TextItem)
    return frame.parse(item.text)


@pytest.mark.usefixtures("database")
def test_a_step_is_visited_until_its_rule_holds(tmp_path: Path) -> None:
    there = house(tmp_path, [3, 6, 9])
    seen = run(there)
    assert seen.status == "succeeded"
    assert [seen.value("draft")["score"], len(there.requests("draft")), len(there.requests("letter"))] == [9, 3, 1]
    assert [v.version for v in seen.versions["draft"]] == [1, 2, 3]
    assert [(a.mode, a.round, a.state) for a in seen.attempts["draft"]] == [
        ("", 0, "succeeded"),
        ("repeat", 1, "succeeded"),
        ("repeat", 2, "succeeded"),
    ]
    assert seen.steps["draft"].calls == 3, "every visit is counted"
    assert not seen.steps["draft"].stale
    repeats = [(e.data["round"], e.data["of"], e.data["reason"]) for e in seen.events if e.kind == "step.repeat"]
    assert repeats == [
        (1, 3, "`score >= least` does not hold (score = 3, least = 8)"),
        (2, 3, "`score >= least` does not hold (score = 6, least = 8)"),
    ]
    assert [event.kind for event in there.events if event.step == "draft"].count("step.done") == 1


def test_a_visit_sees_the_draft_before_it_and_what_is_not_good_yet(tmp_path: Path) -> None:
    there = house(tmp_path, [3, 6, 9])
    run(there)
    first, second, third = there.requests("draft")
    assert all(is_synthetic(request.thread) for request in (first, second, third))
    assert len({request.thread for request in (first, second, third)}) == 3, "no chain crosses a visit"
    assert (told(first).feedback, [a.draft for a in told(first).artifacts]) == (None, [None])
    assert told(second).feedback == "what 3 lacks"
    (draft,) = [artifact for artifact in told(second).artifacts if artifact.draft is not None]
    assert (draft.step, draft.draft) == ("draft", "as this step made it")
    assert "DRAFT-3" in draft.content
    assert told(third).feedback == "what 6 lacks"
    assert "DRAFT-3" not in there.effective(third)
    assert "Draft it." in there.effective(third)
    blocks = {block.layer: block for block in asyncio.run(there.look()).journals["draft"][1].threads[0].prompt.blocks}
    assert blocks["feedback"].rule.startswith("feedback of repeat, walk.yaml:16")


def test_a_rule_that_holds_at_once_costs_one_visit(tmp_path: Path) -> None:
    there = house(tmp_path, [8])
    seen = run(there)
    assert (seen.status, len(there.requests("draft"))) == ("succeeded", 1)


@pytest.mark.usefixtures("database")
def test_after_the_last_visit_the_step_fails_and_keeps_what_it_has(tmp_path: Path) -> None:
    there = house(tmp_path, [1, 2, 3, 4])
    seen = run(there)
    assert seen.status == "failed"
    assert len(there.requests("draft")) == 3
    assert there.requests("letter") == []
    error = seen.steps["draft"].error
    assert error is not None
    assert (error.code, error.message) == (
        "not_good_enough",
        "after 3 visits `score >= least` does not hold (score = 3, least = 8)",
    )
    assert seen.value("draft")["score"] == 3
    assert seen.artifacts["draft"].version.version == 3
    # Resume visits once more, from the last draft; it never takes what was not good enough.
    again = asyncio.run(there.resume())
    assert again.status == "failed"
    assert len(there.requests("draft")) == 4
    assert told(there.requests("draft")[-1]).feedback == "what 3 lacks"


def test_then_accept_takes_the_last_version(tmp_path: Path) -> None:
    there = house(tmp_path, [1, 2], "{until: score >= least, max_rounds: 2, then: accept}")
    seen = run(there)
    assert seen.status == "succeeded"
    assert seen.value("draft")["score"] == 2
    assert len(there.requests("letter")) == 1
    notes = [event.data["text"] for event in seen.events if event.kind == "step.note"]
    assert notes == ["accepted after 2 visits, although `score >= least` does not hold (score = 2, least = 8)"]
    # Without feedback of its own, the rule is what the model is told.
    assert told(there.requests("draft")[1]).feedback == "`score >= least` does not hold (score = 1, least = 8)"


def test_a_rule_about_a_text_speaks_of_it_by_the_step_s_name(tmp_path: Path) -> None:
    texts = ["far too long a letter", "short"]

    def answer(request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
        return (
            {"text": texts.pop(0)} if request.step == "letter" else {"json": {"score": 9, "text": "t", "missing": ""}}
        )

    pipeline = PIPELINE.format(repeat=USUAL).replace(
        'letter: {reads: [draft], prompt: "Write it."}',
        'letter: {reads: [draft], prompt: "Write it.", repeat: {until: "len(letter) < 10", feedback: "Shorter!"}}',
    )
    there = House(tmp_path, pipeline, answer)
    seen = run(there)
    assert (seen.status, seen.text("letter")) == ("succeeded", "short")
    assert told(there.requests("letter")[1]).feedback == "Shorter!"


def test_a_word_of_a_person_goes_through_all_visits(tmp_path: Path) -> None:
    there = house(tmp_path, [8, 3, 9])
    run(there)
    seen = asyncio.run(there.revise("draft", "mention the towels"))
    assert seen.status == "succeeded"
    _, followed, visited = there.requests("draft")
    assert not is_synthetic(followed.thread)
    assert told(visited).comment == "mention the towels"
    assert told(visited).feedback == "what 3 lacks"
    assert [(a.mode, a.round) for a in seen.attempts["draft"]] == [("", 0), ("follow_up", 0), ("repeat", 1)]


def by_draft(request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
    """3, then 6, then 9, as the draft that is shown says: however often a visit is asked for."""
    if request.step == "letter":
        return {"text": "The letter."}
    text = "".join(item.text for item in seen if isinstance(item, TextItem))
    score = next((score for draft, score in (("DRAFT-3", 6), ("DRAFT-6", 9)) if draft in text), 3)
    return {"json": {"score": score, "text": f"DRAFT-{score}", "missing": "more"}}


def test_a_loop_that_was_stopped_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    """At every moment of every write: the same versions in the end, and only calls in flight are paid twice."""
    stops = Stopper()
    whole = house(tmp_path / "whole", [3, 6, 9])
    asyncio.run(whole.run(INPUTS, observer=stops))
    for at in range(1, len(stops.seen) + 1):
        there = house(tmp_path / f"at-{at}", [])
        there.provider._script = by_draft
        with pytest.raises(StoreError):
            asyncio.run(there.run(INPUTS, observer=Stopper(at)))
        if not asyncio.run(there.runs()):
            continue
        seen = asyncio.run(there.resume())
        assert seen.status == "succeeded", stops.seen[at - 1]
        assert seen.value("draft")["score"] == 9
        assert [v.version for v in seen.versions["draft"]] == [1, 2, 3]
        assert [a.round for a in seen.attempts["draft"]] == [0, 1, 2]
        assert len(there.requests("draft")) in (3, 4)


BODY = """
from orchestrator import Ctx, Pipeline, artifact


@artifact(about="A plan.", not_for="none")
class Plan(str):
    pass


p = Pipeline("plans")
p.input("idea", str, about="What the customer wants.")


@p.step(repeat={"until": "len(plan) > 20", "feedback": "too short"})
async def plan(ctx: Ctx, idea: str) -> Plan:
    return Plan(await ctx.ask(str, f"Plan it: {ctx.feedback}", **({"draft": ctx.draft} if ctx.draft else {})))
"""


def test_a_python_body_is_told_the_feedback_and_has_the_draft(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n')
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "plans.py").write_text(BODY)
    texts = ["a plan", "a plan that is long enough"]
    there = House(tmp_path, "", lambda request, seen: {"text": texts.pop(0)})
    seen = asyncio.run(there.run({"idea": "a shop"}))
    assert seen.text("plan") == "a plan that is long enough"
    first, second = (there.effective(request) for request in there.requests("plan"))
    assert "Plan it: None" in first
    assert "Plan it: too short" in second
    assert '<quote from="draft" path="$">a plan</quote>' in second


def test_a_plan_counts_every_visit_in_its_worst_case(tmp_path: Path) -> None:
    priced = '\n[prices."written"]\ninput = 1\noutput = 10\n'

    async def high(there: House) -> Any:
        there.write("orchestrator.toml", 'user = "ana"\n' + priced)
        async with there.services() as (services, graph):
            return (await plan_new(services, graph, INPUTS)).steps[0]

    once = house(tmp_path / "once", [], "{until: score > 1, max_rounds: 2}")
    once.write("walk.yaml", PIPELINE.format(repeat="X").replace("    repeat: X\n", ""))
    single, double, triple = (
        asyncio.run(high(there))
        for there in (
            once,
            house(tmp_path / "two", [], "{until: score > 1, max_rounds: 2}"),
            house(tmp_path / "three", [], "{until: score > 1, max_rounds: 3}"),
        )
    )
    assert single.cost_high_usd is not None
    assert double.cost_high_usd >= 2 * single.cost_high_usd
    assert triple.cost_high_usd - double.cost_high_usd == double.cost_high_usd - single.cost_high_usd
    assert double.cost_low_usd == single.cost_low_usd
    assert "at most 3 visits" in triple.reasons


@pytest.mark.parametrize(
    ("repeat", "code", "says"),
    [
        ("{until: quality >= 8}", "P228", "quality is neither a field of the output nor something the step reads"),
        ("{until: least.more > 1}", "P228", "least has no field more"),
        ("{until: draft.points > 1}", "P228", "the output has no field points"),
        ("{until: 'score >='}", "P228", "is not an expression"),
        ("{until: score > 1, feedback: {expr: nothing}}", "P228", "nothing is neither"),
        ("{max_rounds: 3}", "P102", "'until' is missing"),
        ("{until: score > 1, max_rounds: 1}", "P103", "'max_rounds'"),
        ("{until: score > 1, max_rounds: 21}", "P103", "'max_rounds'"),
        ("{until: score > 1, then: stop}", "P103", "'then'"),
        ("{until: score > 1, feedback: [1]}", "P103", "'feedback'"),
        ("{until: score > 1, feedback: {expr: score, more: 1}}", "P101", "'more'"),
        ("{until: score > 1, often: 2}", "P101", "'often'"),
        ("true", "P103", "'repeat' must be a mapping"),
    ],
)
def test_a_loop_that_cannot_work_is_an_authoring_fault(tmp_path: Path, repeat: str, code: str, says: str) -> None:
    with pytest.raises(InvalidProject) as raised:
        house(tmp_path, [], repeat).graph()
    found = [(fault.code, fault.message) for fault in raised.value.diagnostics]
    assert any(code == given and says in message for given, message in found), found
    assert all(fault.place is not None and fault.place.line >= 15 for fault in raised.value.diagnostics)


def test_plain_python_is_not_repeated(tmp_path: Path) -> None:
    pipeline = PIPELINE.format(repeat=USUAL).replace('prompt: "Draft it."', 'python: "code.py:draft"')
    there = House(tmp_path, pipeline, {}, files={"code.py": "def draft(least):\n    return {}\n"})
    with pytest.raises(InvalidProject) as raised:
        there.graph()
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message) == ("P228", "step draft: plain Python makes the same value on each visit")


def test_written_answers_are_a_list_for_each_visit(tmp_path: Path) -> None:
    def draft(score: int) -> list[dict[str, Any]]:
        return [{"json": {"score": score, "text": "t", "missing": "m"}}]

    script: dict[str, Any] = {"draft": draft(1), "draft/visit-2": draft(2), "draft/visit-3": draft(9), "letter": ["L"]}
    there = House(tmp_path, PIPELINE.format(repeat=USUAL), script)
    seen = run(there)
    assert (seen.status, seen.value("draft")["score"]) == ("succeeded", 9)
    assert {thread.name for journal in seen.journals["draft"] for thread in journal.threads} == {"main"}


def test_a_refresh_goes_through_the_loop_and_takes_nothing_that_is_not_good(tmp_path: Path) -> None:
    there = house(tmp_path, [9, 9, 4, 10])
    run(there)
    asyncio.run(there.edit("least", 10))
    seen = asyncio.run(there.refresh())
    assert (seen.status, seen.value("draft")["score"]) == ("succeeded", 10)
    assert [(a.mode, a.round) for a in seen.attempts["draft"]] == [("", 0), ("", 0), ("repeat", 1), ("repeat", 2)]
    assert len(there.requests("letter")) == 2, "the letter is written once more, when the loop has ended"
    assert asyncio.run(there.refresh()).status == "succeeded"
    assert len(there.requests()) == 6, "nothing is stale any more"


def test_a_loop_that_has_failed_is_not_kept_by_a_refresh(tmp_path: Path) -> None:
    there = house(tmp_path, [1, 2, 3, 4])
    assert run(there).status == "failed"
    seen = asyncio.run(there.refresh())
    assert seen.status == "failed"
    assert [a.state for a in seen.attempts["draft"]] == ["succeeded", "succeeded", "failed", "failed"]
    assert there.requests("letter") == []
