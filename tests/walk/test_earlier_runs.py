"""Reads `from: session | project`: taken from an earlier run when a run starts, kept to, and told when there is newer.

Each answer says what it was shown: `report(red, report(blue))` was made from the idea red and the report before it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.edits import edit_artifact
from orchestrator.engine import refresh_run
from orchestrator.errors import UsageError
from orchestrator.graph import check_pipeline
from orchestrator.plan import Plan, plan_new, plan_run
from orchestrator.values import RunRow, Scope
from tests.walk.four_steps import Echo
from tests.walk.harness import House, Seen, look

pytestmark = pytest.mark.usefixtures("database")

PIPELINE = """
version: 1
pipeline: weekly
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: ["No promise."], schema: text}
steps:
  report:
    reads:
      - idea
      - {read: report, from: SOURCE, as: previous-report, guard: "Old news."DEFAULT}
    produces: note
    prompt: "Write the report."
outputs: [report]
"""


def weekly(folder: Path, source: str = "session", default: str = ", default: null") -> House:
    return House(folder, PIPELINE.replace("SOURCE", source).replace("DEFAULT", default), Echo())


def run(house: House, idea: str, session: str | None = "ana") -> Seen:
    return asyncio.run(house.run({"idea": idea}, session=session))


def planned(house: House, ref: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    async def main() -> Plan:
        async with house.services() as (services, graph):
            return await plan_run(services, graph, await services.store.run(ref))

    return {step.name: (step.action, step.reasons) for step in asyncio.run(main()).steps}


def notes(house: House, session: str | None = "ana") -> tuple[str, ...]:
    async def main() -> Plan:
        async with house.services() as (services, graph):
            return await plan_new(services, graph, {"idea": "red"}, session)

    return asyncio.run(main()).notes


def refreshed(house: House, ref: int) -> Seen:
    async def main() -> Seen:
        async with house.services() as (services, graph):
            row: RunRow = await refresh_run(services, graph, await services.store.run(ref))
            return await look(services, graph, row.id)

    return asyncio.run(main())


def test_S15_a_run_reads_what_the_last_run_of_its_session_made(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    assert run(house, "red").text("report") == "report(red, null)", "there was none: its default is read"
    assert run(house, "odd", "bob").text("report") == "report(odd, null)", "another session"
    second = run(house, "blue")
    assert second.text("report") == "report(blue, report(red, null))"
    assert run(house, "green").text("report") == "report(green, report(blue, report(red, null)))"
    taken = second.artifacts["previous-report"].version
    assert (taken.run_id, taken.step, taken.version) == (asyncio.run(house.look(1)).row.id, "report", 1)
    opening = second.journals["report"][0].threads[0].prompt.text
    assert '<artifact step="previous-report" type="note">' in opening
    assert "No promise." in opening
    assert "Old news." in opening


def test_S15_a_project_read_takes_the_last_run_that_succeeded_of_any_session(tmp_path: Path) -> None:
    house = weekly(tmp_path, "project")
    run(house, "red")
    model: Any = house.provider._script
    model.during("report", lambda: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError):
        run(house, "bad")
    assert run(house, "blue", "bob").text("report") == "report(blue, report(red, null))"


def test_S16_nothing_is_taken_from_another_subject(tmp_path: Path) -> None:
    house = weekly(tmp_path, "project")
    run(house, "red")
    house.scope = Scope(subject="bob")
    assert run(house, "blue").text("report") == "report(blue, null)"


def test_a_run_without_what_it_needs_of_earlier_ones_does_not_start(tmp_path: Path) -> None:
    house = weekly(tmp_path, default="")
    with pytest.raises(UsageError, match="no run of this session has report as note") as raised:
        run(house, "red")
    assert raised.value.code == "nothing_earlier"
    assert house.requests() == []
    assert asyncio.run(house.runs()) == ()
    assert notes(house) == (
        "previous-report: no earlier run of the session has report as note, so the run does not start",
    )


def test_S15_a_plan_says_what_a_new_run_would_take(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    run(house, "red")
    assert notes(house) == ("previous-report is taken from run 1: report@1",)
    assert notes(house, None) == (
        "previous-report: no earlier run of the session has report as note, so its default is read",
    )


def test_S15_an_edit_there_is_a_reason_here_and_refresh_takes_it(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    run(house, "red")
    run(house, "blue")
    assert planned(house, 2)["report"] == ("reuse", ())
    asyncio.run(house.edit("report", "by hand", ref=1))
    assert planned(house, 2)["report"] == ("run", ("previous-report v1→v2 (ana)",))
    assert asyncio.run(house.look(2)).text("previous-report") == "report(red, null)", "taken until it is refreshed"
    seen = refreshed(house, 2)
    assert seen.text("report") == "report(blue, by hand)"
    assert [dict(event.data) for event in seen.events if event.kind == "earlier.moved"] == [{"run": 1}]
    assert planned(house, 2)["report"] == ("reuse", ())


def test_a_later_run_of_the_same_pipeline_makes_no_earlier_one_stale(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    for idea in ("red", "blue", "green"):
        run(house, idea)
    assert planned(house, 2)["report"] == ("reuse", ())
    assert len(refreshed(house, 2).attempts["report"]) == 1


def test_S15_a_fork_copies_the_pin(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    run(house, "red")
    run(house, "blue")
    asyncio.run(house.edit("report", "by hand", ref=1))
    fork = asyncio.run(house.rerun("report", ref=2))
    assert fork.text("report") == "report(blue, report(red, null))"


def test_what_an_earlier_run_made_is_edited_there(tmp_path: Path) -> None:
    house = weekly(tmp_path)
    run(house, "red")
    run(house, "blue")

    async def main() -> None:
        async with house.services() as (services, graph):
            row = await services.store.run(2)
            await edit_artifact(services, graph, row, "previous-report", value="x", base_version=1)

    with pytest.raises(UsageError, match="so it is not edited here"):
        asyncio.run(main())
    with pytest.raises(UsageError, match="no input 'previous-report'"):
        asyncio.run(house.run({"idea": "red", "previous-report": "mine"}))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ("{read: report, from: session}", "report is a step or input here"),
        ("{read: report, from: session, as: idea}", "idea is a step or input here"),
        ("{read: figures, from: project}", "there is no contract figures"),
        ("{read: idea, as: other}", "are said of a read `from`"),
    ],
)
def test_P219_a_read_from_an_earlier_run_that_cannot_be(tmp_path: Path, read: str, message: str) -> None:
    house = weekly(tmp_path)
    text = house.pipeline.replace(
        '{read: report, from: session, as: previous-report, guard: "Old news.", default: null}', read
    )
    project, settings, _ = house.opened()
    _, found = check_pipeline(project, settings, house.write("walk.yaml", text))
    (fault,) = [one for one in found if one.level == "error"]
    assert fault.code == "P219"
    assert message in fault.message
    assert fault.place is not None
    assert fault.hint
