"""`when`: a step runs where its condition is true; who reads a skipped one has a default for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InvalidProject
from tests.walk.harness import House, Seen, numbers

pytestmark = pytest.mark.usefixtures("database")

PIPELINE = """
version: 1
pipeline: bids
inputs:
  brief: {type: text, about: "What the customer asks for."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  rating:
    about: "How well we fit."
    not_for: none
    schema: {type: object, properties: {score: {type: integer}}, required: [score], additionalProperties: false}
steps:
  rating: {reads: [brief], prompt: "Rate it."}
  bid: {reads: [rating, brief], produces: note, prompt: "Write the bid.", when: "rating.score >= 5"}
  refusal: {reads: [rating], produces: note, prompt: "Decline politely.", when: "rating.score < 5"}
  summary:
    python: "summary.py:summary"
    produces: note
    reads:
      - {read: bid, default: null}
      - {read: refusal, default: null}
"""
SUMMARY = """
def summary(bid, refusal):
    return f"bid: {bid}; refusal: {refusal}"
"""


def house(folder: Path, *scores: int) -> House:
    script: dict[str, list[dict[str, Any]]] = {
        "rating": [{"json": {"score": score}} for score in scores],
        "bid": [{"text": "We bid."}, {"text": "We bid again."}],
        "refusal": [{"text": "We do not."}],
    }
    return House(folder, PIPELINE, script, files={"summary.py": SUMMARY})


def states(seen: Seen) -> dict[str, str]:
    return {name: row.status for name, row in seen.steps.items() if row.kind != "input"}


def test_a_step_whose_when_is_false_is_skipped_and_its_readers_use_their_defaults(tmp_path: Path) -> None:
    there = house(tmp_path, 3)
    seen = asyncio.run(there.run({"brief": "a kiosk"}))
    assert seen.status == "succeeded"
    assert states(seen) == {
        "rating": "succeeded",
        "bid": "skipped",
        "refusal": "succeeded",
        "summary": "succeeded",
    }
    assert seen.text("summary") == "bid: None; refusal: We do not."
    assert [request.step for request in there.requests()] == ["rating", "refusal"]
    (told,) = [event for event in seen.events if event.kind == "step.skipped"]
    assert (told.step, dict(told.data)) == ("bid", {"reason": "when rating.score >= 5 is false"})
    (read,) = [read for read in seen.journals["summary"][0].reads if read.name == "bid"]
    assert (read.artifact_id, read.version) == (None, None)
    assert asyncio.run(there.stale()) == {}


def test_an_edit_turns_the_branch_and_a_refresh_runs_the_other(tmp_path: Path) -> None:
    """What was skipped runs, what ran is skipped: it has no current version then, and keeps its history."""
    there = house(tmp_path, 3)
    asyncio.run(there.run({"brief": "a kiosk"}))
    asyncio.run(there.edit("rating", {"score": 8}))
    assert sorted(asyncio.run(there.stale())) == ["bid", "refusal"]
    seen = asyncio.run(there.refresh())
    assert states(seen) == {"rating": "succeeded", "bid": "succeeded", "refusal": "skipped", "summary": "succeeded"}
    assert seen.text("summary") == "bid: We bid.; refusal: None"
    assert "refusal" not in seen.artifacts
    assert numbers(seen.versions["refusal"]) == [1]
    assert asyncio.run(there.stale()) == {}


def test_a_condition_that_stays_false_asks_nobody_and_ends_the_wave(tmp_path: Path) -> None:
    there = house(tmp_path, 3)
    asyncio.run(there.run({"brief": "a kiosk"}))
    before = len(there.requests())
    asyncio.run(there.edit("brief", "a bigger kiosk"))
    asyncio.run(there.keep("rating"))
    seen = asyncio.run(there.refresh())
    assert len(there.requests()) == before
    assert states(seen)["bid"] == "skipped"
    assert numbers(seen.versions["summary"]) == [1]


def test_a_run_stopped_after_a_skip_resumes_behind_it(tmp_path: Path) -> None:
    there = house(tmp_path, 3)
    seen = asyncio.run(there.run({"brief": "a kiosk"}))
    attempts = {name: len(rows) for name, rows in seen.attempts.items()}
    again = asyncio.run(there.resume())
    assert again.status == "succeeded"
    assert {name: len(rows) for name, rows in again.attempts.items()} == attempts


def test_a_condition_that_cannot_be_computed_fails_the_step_before_it_asks(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace('"rating.score >= 5"', '"brief > 5"')
    there = House(tmp_path, pipeline, {"rating": [{"json": {"score": 3}}]}, files={"summary.py": SUMMARY})
    there.provider.requests.clear()
    seen = asyncio.run(there.run({"brief": "a kiosk"}))
    error = seen.steps["bid"].error
    assert seen.status == "failed"
    assert error is not None
    assert (error.code, error.message.split(":")[0]) == ("when", "bid")
    assert "bid" not in [request.step for request in there.requests()]


def faults(folder: Path, pipeline: str) -> list[tuple[str, str]]:
    there = House(folder, pipeline, {}, files={"summary.py": SUMMARY})
    with pytest.raises(InvalidProject) as caught:
        there.graph()
    return [(fault.code, str(fault.place)) for fault in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("{read: bid, default: null}", "{read: bid}", "P209", "walk.yaml:21:9"),
        ('"rating.score >= 5"', '"rating.points >= 5"', "P237", "walk.yaml:15:81"),
        ('"rating.score >= 5"', '"budget >= 5"', "P237", "walk.yaml:15:81"),
        ('"rating.score >= 5"', '"rating.score >="', "P237", "walk.yaml:15:81"),
    ],
)
def test_A21_what_a_condition_needs_is_checked_when_the_file_is_read(
    tmp_path: Path, old: str, new: str, code: str, place: str
) -> None:
    """A21 (b): a read of a conditional step without a default is a load error at its place, and so is a wrong name."""
    assert faults(tmp_path, PIPELINE.replace(old, new, 1)) == [(code, place)]


def test_the_condition_is_part_of_the_definition(tmp_path: Path) -> None:
    """A changed condition is told, and with `stale_on` redoes the step."""
    there = house(tmp_path, 6)
    asyncio.run(there.run({"brief": "a kiosk"}))
    there.write("walk.yaml", PIPELINE.replace("rating.score >= 5", "rating.score >= 7"))

    async def changed() -> Any:
        from orchestrator.staleness import differences

        async with there.services() as (services, graph):
            run = await services.store.run("last")
            return differences(graph, await services.store.steps(run.id))["bid"]

    found = asyncio.run(changed())
    assert (found.stale, found.changed) == ((), ("step definition changed: bid",))
