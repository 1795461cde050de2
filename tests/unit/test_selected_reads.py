"""`select:` reads: resolved to named reads when a pipeline is built, and faults of a selection where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import Diagnostic
from orchestrator.graph import Graph
from orchestrator.spec import Places
from orchestrator.thread import explain, manifest
from tests.unit.test_graph_check import World

ARTIFACTS: dict[str, Any] = {
    "rates": {"about": "Rates.", "not_for": ["No budget."], "tags": ["topic:cost"], "schema": "text"},
    "fees": {"about": "Fees.", "not_for": "none", "tags": ["topic:cost", "old"], "schema": "text"},
    "team": {"about": "The team.", "not_for": "none", "tags": ["people"], "schema": "text"},
    "plan": {"about": "The plan.", "not_for": "none", "tags": ["topic:cost"], "schema": "text"},
}
MADE: dict[str, Any] = {name: {"reads": ["idea"], "prompt": f"The {name}."} for name in ("rates", "fees", "team")}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path.resolve())


def steps(*reads: Any, **more: Any) -> dict[str, Any]:
    return {**MADE, "plan": {"prompt": "Plan.", "reads": list(reads), **more}}


def built(world: World, *reads: Any, **more: Any) -> Graph:
    return world.graph(steps(*reads, **more), artifacts=ARTIFACTS, outputs=["plan", *MADE])


def fault(world: World, *reads: Any, **more: Any) -> Diagnostic:
    return world.only(steps(*reads, **more), artifacts=ARTIFACTS, outputs=["plan", *MADE])


def names(graph: Graph) -> list[str]:
    return [read.name for read in graph.steps["plan"].reads]


def test_a_selection_stands_for_a_read_of_each_step_it_means_but_the_reader_itself(world: World) -> None:
    graph = built(world, {"select": "tag:topic:cost", "guard": "Not a limit."}, "team")
    plan = graph.steps["plan"]
    assert names(graph) == ["rates", "fees", "team"], "plan has the tag too, and reads nothing of its own"
    assert [read.guard for read in plan.reads] == ["Not a limit.", "Not a limit.", None]
    assert plan.reads[0].contract.not_for == ("No budget.",)
    assert plan.parents == ("rates", "fees", "team")
    assert list(graph.steps) == ["rates", "fees", "team", "plan"]
    assert [read.read for read in graph.spec.steps["plan"].reads] == ["rates", "fees", "team"]


def test_every_read_stands_where_it_was_written(world: World) -> None:
    plan = built(world, "idea", {"select": "tag:topic:cost"}, {"read": "team"}).steps["plan"]
    lines = (world.root / "p.yaml").read_text(encoding="utf-8").splitlines()
    where = {read.name: lines[read.place.line - 1].strip() for read in plan.reads}
    assert where == {
        "idea": "- idea",
        "rates": "- select: tag:topic:cost",
        "fees": "- select: tag:topic:cost",
        "team": "- read: team",
    }


def test_what_is_read_by_name_is_read_as_it_says_there(world: World) -> None:
    graph = built(world, {"select": "tag:topic:cost", "guard": "From both."}, {"read": "fees", "guard": "Old ones."})
    assert [(read.name, read.guard) for read in graph.steps["plan"].reads] == [
        ("rates", "From both."),
        ("fees", "Old ones."),
    ]
    assert names(built(world, {"select": "tag:topic:cost"}, {"select": "tag:old or tag:people"})) == [
        "rates",
        "fees",
        "team",
    ]


def test_the_whole_language_of_what_is_declared_may_be_used(world: World) -> None:
    world.write("code.py", "def count(idea):\n    return 'x'\n")
    assert names(built(world, {"select": "tag:topic:cost and not tag:old"})) == ["rates"]
    assert names(built(world, {"select": "idea+"})) == ["rates", "fees", "team"]
    assert names(built(world, {"select": "kind:llm and not fees"})) == ["rates", "team"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tag:topic:costs", 'no contract has the tag "topic:costs"'),
        ("status:failed", '"status" asks about a run'),
        ("stale", '"stale" asks about a run'),
        ("tag:old and", "a step was expected here"),
        ("plan", "means no step beside itself"),
        ("rate", 'p has no step "rate"'),
    ],
)
def test_P207_a_selection_that_means_nothing_is_a_fault_at_its_place(world: World, text: str, message: str) -> None:
    found = fault(world, "idea", {"select": text})
    assert found.code == "P207"
    assert message in found.message
    assert found.source is not None
    assert text in found.source
    assert found.place is not None
    assert found.hint


@pytest.mark.parametrize(
    ("read", "code"),
    [
        ({"select": "tag:old", "read": "team"}, "P207"),
        ({"select": "tag:old", "fields": ["x"]}, "P207"),
        ({"guard": "Nothing."}, "P102"),
        ({"read": ""}, "P103"),
        ({"read": 5}, "P103"),
        ({"select": ""}, "P103"),
    ],
)
def test_an_entry_says_once_what_is_read(world: World, read: dict[str, Any], code: str) -> None:
    assert fault(world, "idea", read).code == code


def test_a_selection_that_leads_back_to_the_reader_is_a_circle(world: World) -> None:
    back = {**steps({"select": "team"}), "team": {"reads": ["plan"], "prompt": "Who?"}}
    found = world.only(back, artifacts=ARTIFACTS, outputs=["plan", *MADE])
    assert found.code == "P203"


def test_what_a_template_names_may_be_what_a_faulty_selection_means(world: World) -> None:
    found = fault(world, {"select": "tag:cost"}, prompt="{{ block('rates') }}")
    assert found.code == "P207", "and nothing follows from it"


def test_a_step_that_a_selection_means_only_now_is_a_reason(world: World) -> None:
    before = built(world, {"select": "tag:topic:cost and not fees"}).steps["plan"]
    after = built(world, {"select": "tag:topic:cost"}).steps["plan"]
    assert any("fees" in reason for reason in explain(manifest(before, {}), manifest(after, {})))


def test_entries_that_are_put_together_anew_keep_their_places(world: World) -> None:
    places = Places("p", {("reads", n): place for n, place in enumerate(_places(3))} | {("x",): _places(9)[8]})
    moved = places.with_entries([2, 2, 0], "reads")
    assert [moved.of("reads", n).line for n in range(3)] == [3, 3, 1]
    assert moved.of("x").line == 9


def _places(count: int) -> list[Any]:
    from orchestrator.errors import Place

    return [Place("p", line) for line in range(1, count + 1)]
