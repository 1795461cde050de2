"""Edits survive regeneration: a step that runs again is merged with what a person has put there, or both are kept.

idea ── costs ── offer      (costs is JSON; each answer of the model is written by the test)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import edits
from orchestrator.errors import StoreError, UsageError
from orchestrator.exchange.diffing import blame
from orchestrator.merges import bring_together
from orchestrator.values import Item, Request
from tests.database_kit import databases
from tests.walk.harness import House, Seen, Stopper, check_no_gap, meanwhile

pytestmark = pytest.mark.usefixtures("database")

PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  costs:
    about: "What it costs."
    not_for: none
    schema:
      type: object
      properties:
        weekly_usd: {type: integer}
        notes: {type: string}
        items:
          type: array
          items:
            type: object
            properties: {id: {type: string}, usd: {type: integer}}
            required: [id, usd]
      required: [weekly_usd, notes]
  note: {about: "A note.", not_for: none, schema: text}
steps:
  costs:
    reads: [idea]
    produces: costs
    prompt: "Write the costs."
    checks: [{expr: "weekly_usd < 5000", message: "too dear"}]
  offer: {reads: [costs], produces: note, prompt: "Write the offer."}
outputs: [offer]
"""
FIRST = {"weekly_usd": 997, "notes": "none", "items": [{"id": "a", "usd": 1}]}


class Vendor:
    """Answers `costs` with what the test has written, the last of it again and again; `offer` with a word."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [FIRST, *answers]
        self.work: list[Callable[[], Any]] = []

    def __call__(self, request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
        if request.step == "offer":
            return {"text": "offer"}
        if self.work:
            self.work.pop(0)()
        return {"json": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}


def house(folder: Path, *answers: dict[str, Any]) -> House:
    """A run that has ended, with the model's first answer; the next ones are as given."""
    made = House(folder, PIPELINE, Vendor(*answers))
    assert asyncio.run(made.run({"idea": "a shop"})).value("costs") == FIRST
    return made


def first(**more: Any) -> dict[str, Any]:
    return {**FIRST, **more}


def edit(made: House, **more: Any) -> None:
    """Ana changes these fields of the current version, in the newest run."""
    now = asyncio.run(made.look()).value("costs")
    asyncio.run(made.edit("costs", {**now, **more}))


def rerun(made: House) -> Seen:
    return asyncio.run(made.rerun("costs"))


def blamed(seen: Seen) -> dict[str, str]:
    return {name: version.author for name, version in blame(head(seen), seen.versions["costs"]).items()}


def head(seen: Seen) -> Any:
    return seen.artifacts["costs"].version


def notes(seen: Seen) -> list[str]:
    return [event.data["text"] for event in seen.events if event.kind == "step.note"]


async def pinned(made: House, *fields: str, remove: bool = False) -> Any:
    async with made.services() as (services, graph):
        run = await services.store.run("last")
        return await (edits.unpin if remove else edits.pin)(services, graph, run, "costs", fields)


MODEL = "scripted:written"


# --- merges -----------------------------------------------------------------------------------------------------------


def test_S07_a_step_that_runs_again_keeps_what_a_person_edited(tmp_path: Path) -> None:
    """The person's field stays, the model's other changes come in; both are named, field by field."""
    made = house(tmp_path, first(notes="two rooms", items=[{"id": "a", "usd": 2}, {"id": "b", "usd": 3}]))
    edit(made, weekly_usd=1200)
    seen = rerun(made)

    assert seen.status == "succeeded"
    assert seen.value("costs") == {
        "weekly_usd": 1200,
        "notes": "two rooms",
        "items": [{"id": "a", "usd": 2}, {"id": "b", "usd": 3}],
    }
    one, two, three, four = seen.versions["costs"]
    assert [version.author for version in (one, two, three, four)] == [MODEL, "ana", MODEL, MODEL]
    assert (four.parent_id, four.merged_id, four.origin, four.draft) == (two.id, three.id, "model", False)
    assert (three.draft, three.parent_id) == (True, one.id)
    assert blamed(seen) == {"weekly_usd": "ana", "notes": MODEL, "items": MODEL}
    (event,) = [event for event in seen.events if event.kind == "step.merged"]
    assert (event.data["people"], event.data["step"], event.data["edited"]) == ("ana", MODEL, ["weekly_usd"])
    assert notes(seen) == ["kept what ana edited in v2: weekly_usd"]


def test_S07_an_edit_survives_every_further_run(tmp_path: Path) -> None:
    """What the next version is compared with is what the step itself said last, not the merged value."""
    made = house(tmp_path, first(notes="second"), first(notes="third"), first(notes="third"))
    edit(made, weekly_usd=1200)
    for expected in ("second", "third", "third"):
        seen = rerun(made)
        assert seen.value("costs") == first(weekly_usd=1200, notes=expected)
        assert blamed(seen)["weekly_usd"] == "ana"
    assert seen.status == "succeeded"


def test_S07_an_edit_of_a_merged_version_survives_too(tmp_path: Path) -> None:
    made = house(tmp_path, first(notes="second"), first(notes="second", items=[]))
    edit(made, weekly_usd=1200)
    rerun(made)
    edit(made, notes="by ana")
    seen = rerun(made)
    assert seen.value("costs") == {"weekly_usd": 1200, "notes": "by ana", "items": []}
    assert blamed(seen) == {"weekly_usd": "ana", "notes": "ana", "items": MODEL}


def test_S07_what_the_model_says_again_leaves_the_persons_version_as_it_is(tmp_path: Path) -> None:
    """The same answer as before: the edit stands, and no version is made."""
    made = house(tmp_path)
    edit(made, weekly_usd=1200)
    seen = rerun(made)
    assert (seen.status, seen.value("costs")) == ("succeeded", first(weekly_usd=1200))
    assert [version.version for version in seen.versions["costs"]] == [1, 2]
    assert head(seen).author == "ana"


def test_S07_what_the_model_says_like_the_person_is_the_models_own(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1200, notes="new"))
    edit(made, weekly_usd=1200)
    seen = rerun(made)
    assert seen.value("costs") == first(weekly_usd=1200, notes="new")
    assert len(seen.versions["costs"]) == 3
    assert blamed(seen) == {"weekly_usd": "ana", "notes": MODEL, "items": MODEL}


def test_S07_items_of_a_list_are_merged_one_by_one_and_both_are_named(tmp_path: Path) -> None:
    made = house(tmp_path, first(items=[{"id": "a", "usd": 1}, {"id": "b", "usd": 9}]))
    edit(made, items=[{"id": "a", "usd": 7}])
    seen = rerun(made)
    assert seen.value("costs")["items"] == [{"id": "a", "usd": 7}, {"id": "b", "usd": 9}]
    assert blamed(seen)["items"] == MODEL
    assert head(seen).merged_id is not None


def test_a_run_that_nobody_edits_merges_nothing(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1))
    seen = rerun(made)
    assert seen.value("costs") == first(weekly_usd=1)
    assert [version.merged_id for version in seen.versions["costs"]] == [None]
    assert notes(seen) == []


# --- conflicts --------------------------------------------------------------------------------------------------------

DRAFT = first(weekly_usd=1100, notes="by the model", items=[{"id": "a", "usd": 2}])


def conflict(tmp_path: Path) -> tuple[House, Seen]:
    made = house(tmp_path, DRAFT)
    edit(made, weekly_usd=1200, notes="by ana")
    return made, rerun(made)


def test_S07_a_field_that_both_have_changed_waits_for_a_person(tmp_path: Path) -> None:
    made, seen = conflict(tmp_path)
    assert seen.status == "waiting"
    row = seen.steps["costs"]
    assert row.draft is not None
    assert (head(seen).author, seen.value("costs")["weekly_usd"]) == ("ana", 1200)
    assert (row.status, row.draft.origin, row.draft.draft) == ("waiting", "model", True)
    assert row.error is not None
    assert (row.error.code, row.error.exit_code) == ("edited_meanwhile", 4)
    assert "weekly_usd and notes" in row.error.message
    assert len(made.requests("offer")) == 1, "nothing below has run"

    async def found() -> Any:
        async with made.services() as (services, graph):
            run = await services.store.run("last")
            undecided = await services.store.undecided(run.id, "costs")
            return edits.conflicts(graph.steps["costs"].contract, undecided)

    assert [(c.path, c.base, c.head, c.draft) for c in asyncio.run(found())] == [
        ("weekly_usd", 997, 1200, 1100),
        ("notes", "none", "by ana", "by the model"),
    ]


@pytest.mark.parametrize(
    ("answer", "expected", "author"),
    [
        ("head", first(weekly_usd=1200, notes="by ana"), "ana"),
        ("draft", DRAFT, MODEL),
        ("draft:weekly_usd", {**DRAFT, "notes": "by ana"}, "ana"),
        ("head:weekly_usd", {**DRAFT, "weekly_usd": 1200}, "ana"),
        ("head:*", {**DRAFT, "weekly_usd": 1200, "notes": "by ana"}, "ana"),
        ("draft:weekly_usd,notes", DRAFT, MODEL),
    ],
)
def test_S07_a_conflict_is_decided_whole_or_field_by_field(
    tmp_path: Path, answer: str, expected: dict[str, Any], author: str
) -> None:
    made, _ = conflict(tmp_path)
    seen = asyncio.run(made.resume(settle={"costs": answer}))
    assert (seen.status, seen.value("costs"), head(seen).author) == ("succeeded", expected, author)
    assert seen.steps["costs"].draft is None
    assert len(made.requests("costs")) == 2, "nothing is paid again"
    truth = {name: "ana" if expected[name] == first(weekly_usd=1200, notes="by ana")[name] else MODEL for name in FIRST}
    assert blamed(seen) == {**truth, "items": MODEL}
    (told,) = [event.data for event in seen.events if event.kind == "step.settled"]
    assert told["by"] == "ana"
    assert told["version"] == head(seen).version


def test_S07_a_decision_holds_for_the_next_run(tmp_path: Path) -> None:
    """Ana has decided against the draft; the model says the same again: nobody is asked twice."""
    made, _ = conflict(tmp_path)
    decided = asyncio.run(made.resume(settle={"costs": "draft:notes"}))
    seen = rerun(made)
    assert (seen.status, seen.value("costs")) == ("succeeded", decided.value("costs"))
    made, _ = conflict(tmp_path / "head")
    decided = asyncio.run(made.resume(settle={"costs": "head"}))
    seen = rerun(made)
    assert (seen.status, seen.value("costs")) == ("succeeded", decided.value("costs"))


def test_S07_an_edit_decides_a_conflict(tmp_path: Path) -> None:
    made, _ = conflict(tmp_path)
    edit(made, weekly_usd=1150)
    seen = asyncio.run(made.resume())
    assert (seen.status, seen.value("costs")) == ("succeeded", first(weekly_usd=1150, notes="by ana"))
    assert seen.steps["costs"].draft is None
    assert len(made.requests("offer")) == 2
    assert len(made.requests("costs")) == 2
    assert [event.data["kept"] for event in seen.events if event.kind == "step.settled"] == ["edit"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("draft:items", "no conflict at items"),
        ("draft:weekly", "no conflict at weekly"),
        ("draft:", "no decision"),
        ("mine", "no decision"),
    ],
)
def test_S07_a_decision_about_nothing_is_refused_and_changes_nothing(tmp_path: Path, answer: str, message: str) -> None:
    made, before = conflict(tmp_path)
    with pytest.raises(UsageError, match=message):
        asyncio.run(made.resume(settle={"costs": answer}))
    after = asyncio.run(made.look())
    assert (after.versions, after.steps["costs"].status) == (before.versions, "waiting")


def test_S07_what_is_merged_must_pass_the_checks_of_the_step(tmp_path: Path) -> None:
    """Ana's figure breaks a check, which is her right; but nothing new is silently put upon it."""
    made = house(tmp_path, first(notes="new"))
    edit(made, weekly_usd=9000)
    seen = rerun(made)
    assert seen.status == "waiting"
    error = seen.steps["costs"].error
    assert error is not None
    assert "too dear" in error.message
    seen = asyncio.run(made.resume(settle={"costs": "draft"}))
    assert (seen.status, seen.value("costs")) == ("succeeded", first(notes="new"))


def test_S07_what_is_merged_must_fit_the_contract(tmp_path: Path) -> None:
    """Two changes that each fit, and together do not."""
    made = house(tmp_path, first(items=[{"id": "a", "usd": 1}, {"id": "b", "usd": 1}]))
    edit(made, items=[{"id": "a", "usd": 1}, {"id": "c", "usd": 1}])
    asyncio.run(made.look())
    made.write(
        "walk.yaml", PIPELINE.replace("          type: array\n", "          type: array\n          maxItems: 2\n")
    )
    seen = rerun(made)
    assert seen.status == "waiting"
    error = seen.steps["costs"].error
    assert error is not None
    assert "does not fit its contract costs" in error.message
    with pytest.raises(UsageError, match="no conflict at"):
        asyncio.run(made.resume(settle={"costs": "draft:items"}))


# --- at every moment --------------------------------------------------------------------------------------------------


class EditAt:
    """An observer that edits the weekly figure right after the nth durable write."""

    def __init__(self, made: House, at: int) -> None:
        self.house, self.at = made, at
        self.moments: list[str] = []

    def __call__(self, moment: str) -> None:
        unawaited = databases.server is not None and moment == "created:committed"
        if moment.endswith(":committed") and not unawaited:
            self.moments.append(moment)
            if len(self.moments) == self.at:
                meanwhile(raised(self.house))


async def raised(made: House) -> None:
    """Ana raises the weekly figure, whatever else stands there."""
    seen = await made.look()
    await made.edit("costs", {**seen.value("costs"), "weekly_usd": seen.value("costs")["weekly_usd"] + 100})


async def asked_again(made: House) -> None:
    async with made.services() as (services, _):
        await services.store.redo((await services.store.run("last")).id, "costs", None, "fresh", None, "ana")


def again(made: House, observer: Callable[[str], None] | None = None) -> Seen:
    """The step is made anew in the same run."""
    asyncio.run(asked_again(made))
    return asyncio.run(made.resume(observer=observer))


@pytest.mark.slow
@pytest.mark.parametrize("edited_before", [False, True])
def test_S07_an_edit_at_every_store_call_is_never_lost(tmp_path: Path, edited_before: bool) -> None:
    """S07: ana edits while the step is made again, after each write of it: her figure stands, the model's note comes
    in, nothing is paid twice. So it is where she had edited before, too."""
    draft = first(notes="new")
    counter = EditAt(house(tmp_path / "undisturbed", draft), 0)
    assert again(counter.house, counter).value("costs") == draft
    merged = []
    for at in range(counter.moments.index("adopt_run:committed") + 1, len(counter.moments) + 1):
        made = house(tmp_path / str(at), draft)
        if edited_before:
            asyncio.run(raised(made))
        seen = again(made, EditAt(made, at))
        now = seen if at < len(counter.moments) else asyncio.run(made.look())
        expected = first(weekly_usd=1197 if edited_before else 1097, notes="new")
        assert now.value("costs") == expected, f"edited at {at}, {counter.moments[at - 1]}"
        assert seen.status == "succeeded"
        assert len(made.requests("costs")) == 2
        assert blamed(now) == {"weekly_usd": "ana", "notes": MODEL, "items": MODEL}
        check_no_gap(now)
        merged.append(any(event.kind == "step.merged" for event in now.events))
    assert any(merged)
    assert all(merged) is edited_before


def test_S07_an_edit_while_the_two_are_brought_together_is_merged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was merged is held against what stands there when it is committed; then it is merged once more."""
    made = house(tmp_path, first(notes="new"))
    asyncio.run(raised(made))
    rounds = []

    async def merged_meanwhile(*given: Any) -> Any:
        outcome = await bring_together(*given)
        rounds.append(given)
        if len(rounds) <= 3:
            meanwhile(raised(made))
        return outcome

    monkeypatch.setattr("orchestrator.ending.bring_together", merged_meanwhile)
    seen = again(made)
    assert len(rounds) == 4
    assert (seen.status, seen.value("costs")) == ("succeeded", first(weekly_usd=1397, notes="new"))
    assert len(made.requests("costs")) == 2
    check_no_gap(seen)


def test_S07_a_pin_set_while_the_two_are_brought_together_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = house(tmp_path, first(notes="new"))
    asyncio.run(raised(made))

    async def pinned_meanwhile(*given: Any) -> Any:
        outcome = await bring_together(*given)
        meanwhile(pinned(made, "notes"))
        return outcome

    monkeypatch.setattr("orchestrator.ending.bring_together", pinned_meanwhile)
    seen = again(made)
    assert (seen.status, seen.value("costs")) == ("succeeded", first(weekly_usd=1097))


@pytest.mark.slow
def test_S07_stopped_at_every_write_of_a_merge_nothing_is_lost(tmp_path: Path) -> None:
    """Whenever the process ends, a resume comes to the same value."""
    draft = first(notes="new")
    at = 0
    while True:
        at += 1
        made = house(tmp_path / str(at), draft)
        asyncio.run(raised(made))
        stopper = Stopper(at)
        asyncio.run(asked_again(made))
        try:
            seen = asyncio.run(made.resume(observer=stopper))
        except StoreError:
            seen = asyncio.run(made.resume())
            assert seen.value("costs") == first(weekly_usd=1097, notes="new"), stopper.seen[-1]
            assert seen.status == "succeeded"
            check_no_gap(seen)
            continue
        break
    assert at > 6


# --- pins -------------------------------------------------------------------------------------------------------------


def test_a_pinned_field_stays_whatever_the_step_says(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1, notes="new"), first(weekly_usd=2, notes="newer"))
    assert asyncio.run(pinned(made, "weekly_usd")) == {"weekly_usd": "ana"}
    seen = rerun(made)
    assert seen.value("costs") == first(notes="new")
    assert notes(seen) == ["kept weekly_usd as pinned by ana"]
    assert seen.steps["costs"].pins == {"weekly_usd": "ana"}, "pins travel with the head"
    assert blamed(seen) == {"weekly_usd": MODEL, "notes": MODEL, "items": MODEL}
    seen = rerun(made)
    assert seen.value("costs") == first(notes="newer")

    assert asyncio.run(pinned(made, remove=True)) == {}
    seen = rerun(made)
    assert seen.value("costs") == first(weekly_usd=2, notes="newer")
    assert [event.data for event in asyncio.run(made.look("last~1")).events if event.kind == "step.pinned"] == [
        {"by": "ana", "added": [], "removed": ["weekly_usd"]}
    ]


def test_a_pin_on_the_whole_keeps_it(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1))
    assert asyncio.run(pinned(made)) == {"*": "ana"}
    seen = rerun(made)
    assert seen.value("costs") == FIRST
    assert notes(seen) == ["kept all of it as pinned by ana"]
    assert len(seen.versions["costs"]) == 1
    assert asyncio.run(pinned(made, "*", remove=True)) == {}
    assert rerun(made).value("costs") == first(weekly_usd=1)


def test_S07_an_edit_that_was_pinned_outlives_the_pin(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1), first(weekly_usd=1, notes="new"))
    edit(made, weekly_usd=1200)
    asyncio.run(pinned(made, "*"))
    assert rerun(made).value("costs") == first(weekly_usd=1200)
    asyncio.run(pinned(made, remove=True))
    seen = rerun(made)
    assert (seen.status, seen.value("costs")) == ("succeeded", first(weekly_usd=1200, notes="new"))


def test_a_pinned_field_that_is_left_out_stays_left_out(tmp_path: Path) -> None:
    made = house(tmp_path, first(weekly_usd=1))
    asyncio.run(made.edit("costs", {"weekly_usd": 997, "notes": "none"}))
    asyncio.run(pinned(made, "items"))
    assert rerun(made).value("costs") == {"weekly_usd": 1, "notes": "none"}


def test_a_pinned_edit_is_no_conflict(tmp_path: Path) -> None:
    """S07: what is pinned is decided already; pins also stand when a conflict elsewhere is."""
    made = house(tmp_path, DRAFT)
    edit(made, weekly_usd=1200, notes="by ana")
    asyncio.run(pinned(made, "weekly_usd"))
    seen = rerun(made)
    assert seen.steps["costs"].error is not None
    assert "weekly_usd" not in seen.steps["costs"].error.message
    seen = asyncio.run(made.resume(settle={"costs": "draft"}))
    assert seen.value("costs") == {**DRAFT, "weekly_usd": 1200}


def test_a_pin_that_is_taken_off_after_a_conflict_leaves_no_edit_behind(tmp_path: Path) -> None:
    made = house(tmp_path, DRAFT)
    edit(made, weekly_usd=1200)
    asyncio.run(pinned(made, "items"))
    assert rerun(made).status == "waiting"
    seen = asyncio.run(made.resume(settle={"costs": "head:weekly_usd"}))
    assert seen.value("costs") == {**DRAFT, "weekly_usd": 1200, "items": FIRST["items"]}
    asyncio.run(pinned(made, remove=True))
    assert rerun(made).value("costs") == {**DRAFT, "weekly_usd": 1200}


@pytest.mark.parametrize(
    ("step", "fields", "message"),
    [
        ("costs", ["weekly"], "costs has no field weekly"),
        ("offer", ["weekly_usd"], "note has no field weekly_usd"),
        ("idea", [], "idea is an input"),
        ("nothing", [], 'has no step "nothing"'),
    ],
)
def test_a_pin_that_holds_nothing_is_refused(tmp_path: Path, step: str, fields: list[str], message: str) -> None:
    made = house(tmp_path)

    async def main() -> None:
        async with made.services() as (services, graph):
            await edits.pin(services, graph, await services.store.run("last"), step, fields)

    with pytest.raises(UsageError, match=message):
        asyncio.run(main())
    with pytest.raises(UsageError, match="no pin on notes"):
        asyncio.run(pinned(made, "notes", remove=True))
