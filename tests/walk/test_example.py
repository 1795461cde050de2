"""The shipped example, on the scripted provider: ten steps and a gate, and the very prompt of each of its nine
model steps.

The prompts stand in tests/golden/discovery/. They are what a user's model would be sent, so a change of theirs is a
change of the product: look at it, then write them anew with

    UPDATE_GOLDEN=1 python -m pytest tests/walk/test_example.py
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.frame import FramedQuote, parse
from orchestrator.graph import Graph, build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from tests.walk.harness import Seen, look

EXAMPLE = Path(__file__).parents[2] / "examples" / "discovery"
GOLDEN = Path(__file__).parents[1] / "golden" / "discovery"
BRIEF = json.loads((EXAMPLE / "briefs" / "clinic.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seen, Graph]:
    """One run of a copy of the example with its own sample answers."""
    root = tmp_path_factory.mktemp("example") / "discovery"
    shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns(".orch", "__pycache__"))

    async def go() -> tuple[Seen, Graph]:
        project = find_project(root)
        settings = load_settings(project, {"ORCH_MODEL": "scripted:sample_answers", "HOME": str(root)})
        graph = build_graph(project, settings, project.pipeline(None), require_model=True)
        async with engine.open_services(project, settings, db=f"sqlite:///{root}/.orch/orch.db") as services:
            approving = replace(services, approver="--yes")
            row = await engine.start_run(approving, graph, RunOptions(inputs=BRIEF))
            return await look(services, graph, row.id), graph

    return asyncio.run(go())


def prompts(seen: Seen, graph: Graph) -> dict[str, tuple[str, str]]:
    """System and user text of each model step, as recorded."""
    found = {name: seen.journals[name][0].threads[0].prompt for name, step in graph.steps.items() if step.kind == "llm"}
    return {name: (prompt.system, prompt.text) for name, prompt in found.items()}


def test_R005_all_ten_steps_of_the_example_run(example: tuple[Seen, Graph]) -> None:
    seen, graph = example
    assert seen.status == "succeeded"
    kinds = Counter(step.kind for step in graph.steps.values())
    assert kinds == {"llm": 9, "python": 1, "gate": 1}
    assert {"market-sizing", "competitive-analysis", "tech-stack", "cost-estimate"} <= graph.steps.keys()
    assert all(seen.steps[name].status == "succeeded" for name in graph.steps)
    # Nine model steps: one looks rates up, one is asked again because its totals do not add up.
    assert sum(seen.steps[name].calls for name in graph.steps) == 9 + 1 + 1
    assert {name: row.reasks for name, row in seen.steps.items() if row.reasks} == {"cost-estimate": 1}
    assert [row.tool_call.name for name in graph.steps for row in seen.tools(name)] == ["lookup_rates"]


def test_R005_each_step_but_the_first_reads_what_earlier_ones_made(example: tuple[Seen, Graph]) -> None:
    _, graph = example
    assert [name for name, step in graph.steps.items() if not step.parents] == ["opportunity"]


def test_R005_the_prompts_are_the_golden_ones(example: tuple[Seen, Graph]) -> None:
    found = prompts(*example)
    assert len(found) == 9
    texts = {f"{name}.txt": user for name, (_, user) in found.items()}
    (texts["system.txt"],) = {system for system, _ in found.values()}
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (GOLDEN / name).write_text(text + "\n", encoding="utf-8", newline="\n")
    assert sorted(texts) == sorted(path.name for path in GOLDEN.iterdir())
    for name, text in texts.items():
        assert text + "\n" == (GOLDEN / name).read_text(encoding="utf-8"), name


def test_the_golden_prompts_say_what_they_must(example: tuple[Seen, Graph]) -> None:
    """From first principles, so that a prompt that went wrong cannot be written down as golden."""
    seen, graph = example
    for name, (_, user) in prompts(seen, graph).items():
        step, frame = graph.steps[name], parse(user)
        placed = [piece for piece in frame.task if not isinstance(piece, str)]
        shown = [*frame.artifacts, *(piece for piece in placed if not isinstance(piece, FramedQuote))]
        assert sorted(artifact.step for artifact in shown) == sorted(read.name for read in step.reads)
        for artifact in shown:
            (read,) = (read for read in step.reads if read.name == artifact.step)
            assert artifact.not_for == read.contract.not_for
            assert artifact.guard == read.guard
            if read.fields is None:
                assert artifact.content.encode() == seen.body(artifact.step)
            else:
                assert json.loads(artifact.content).keys() == set(read.fields)
        assert frame.turns == ()


def test_R001_R003_R004_the_vendors_997_reaches_later_steps_only_under_its_guard(example: tuple[Seen, Graph]) -> None:
    """In step k+3 and wherever else: inside the labelled block of the calculator, or in a quote that carries the
    guard; and no field about the customer holds it."""
    seen, graph = example
    guard = "These are not the customer's budget. No customer has said that they can spend these amounts."
    readers = [step.name for step in graph.steps.values() if any(read.name == "cost-calculator" for read in step.reads)]
    assert readers == ["tech-stack", "cost-estimate"]
    for name in readers:
        frame = parse(prompts(seen, graph)[name][1])
        (rates,) = (artifact for artifact in frame.artifacts if artifact.step == "cost-calculator")
        assert "997" in rates.content
        assert guard in rates.not_for
        for piece in frame.task:
            if isinstance(piece, FramedQuote):
                assert (piece.source, piece.value) == ("cost-calculator", "997")
                assert guard in piece.not_for
            else:
                assert "997" not in str(piece)
    for name in graph.steps:
        value = json.loads(seen.body(name)) if graph.steps[name].contract.form == "json" else {}
        assert value.get("customer_budget") is None
    assert seen.value("customer-brief")["team_size"] == 3


def test_the_facts_of_the_example_carry_the_customers_words(example: tuple[Seen, Graph]) -> None:
    seen, _ = example
    facts = seen.artifacts["customer-brief"].version.facts
    assert {path: (basis.basis, basis.source) for path, basis in facts.items()} == {
        "launch_date": ("stated", "launch-date"),
        "team_size": ("stated", "team-size"),
    }
    for basis in facts.values():
        assert basis.quote in BRIEF[basis.source]
