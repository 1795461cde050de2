"""`orch rerun --model`: a child run whose steps ask another model, also after it was stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.errors import StepFailed, UsageError
from tests.walk.four_steps import four_steps, made
from tests.walk.harness import House


def asked(house: House, since: int) -> list[tuple[str, str]]:
    return [(request.step, request.model) for request in house.requests()[since:]]


def first(house: House) -> tuple[int, str]:
    """How many requests the first run made, and what model it asked."""
    assert asyncio.run(house.run({"idea": "red"})).status == "succeeded"
    (model,) = {request.model for request in house.requests()}
    return len(house.requests()), model


def test_what_runs_again_asks_the_other_model_and_the_parent_keeps_its_own(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    since, usual = first(house)
    child = asyncio.run(house.rerun("c", model="openai:other"))
    assert asked(house, since) == [("c", "other"), ("d", "other")]
    assert {name: child.text(name) for name in made()} == made(), "a and b are shared"

    since = len(house.requests())
    asyncio.run(house.rerun("c", ref=1))
    assert asked(house, since) == [("c", usual), ("d", usual)]


def test_the_child_keeps_its_model_over_a_stop_a_refresh_and_a_rerun_of_its_own(tmp_path: Path) -> None:
    house, model = four_steps(tmp_path)
    since, usual = first(house)

    def stop() -> None:
        raise StepFailed("the model will not say d")

    model.during("d", stop)
    assert asyncio.run(house.rerun("c", model="openai:other")).status == "failed"
    assert asyncio.run(house.resume()).status == "succeeded"
    assert asked(house, since) == [("c", "other"), ("d", "other"), ("d", "other")]

    since = len(house.requests())
    asyncio.run(house.edit("b", "another b"))
    assert asyncio.run(house.refresh()).status == "succeeded"
    assert asked(house, since) == [("c", "other"), ("d", "other")]

    since = len(house.requests())
    asyncio.run(house.rerun("b"))
    assert asked(house, since) == [("b", usual), ("c", "other"), ("d", "other")]


@pytest.mark.parametrize(
    ("text", "says"),
    [("nonesuch", "there is no model alias nonesuch"), ("nobody:m", "there is no provider nobody")],
)
def test_a_model_that_is_none_makes_no_run(text: str, says: str, tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    since, _ = first(house)
    with pytest.raises(UsageError, match=says):
        asyncio.run(house.rerun("c", model=text))
    assert asked(house, since) == []
    assert asyncio.run(house.look()).row.number == 1


def test_a_model_for_steps_that_ask_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def count(idea: str) -> str:\n    return str(len(idea))\n")
    pipeline = """
version: 1
pipeline: counting
inputs:
  idea: {type: text, about: "What the customer wants."}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  size: {reads: [idea], produces: note, python: "work.py:count"}
outputs: [size]
"""
    house = House(tmp_path, pipeline, lambda request, items: {"text": "never asked"})
    asyncio.run(house.run({"idea": "red"}))
    with pytest.raises(UsageError, match="nothing that runs again asks a model"):
        asyncio.run(house.rerun("size", model="openai:other"))
