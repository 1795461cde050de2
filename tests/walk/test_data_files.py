"""Data files that a step's functions open: declared, they are part of what the step was made from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.errors import OrchError
from tests.walk.harness import House

PIPELINE = """
version: 1
pipeline: rates
inputs:
  idea: {type: text, about: "What the customer wants."}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  rate: {python: "work.py:rate", reads: [idea], produces: note, files: [rates.csv], stale_on: [read, code]}
outputs: [rate]
"""
WORK = """
from pathlib import Path


def rate(idea: str) -> str:
    return (Path(__file__).parent / "rates.csv").read_text().strip()
"""


def test_another_content_makes_the_step_stale_and_is_named(tmp_path: Path) -> None:
    house = House(tmp_path, PIPELINE, {}, files={"work.py": WORK, "rates.csv": "997\n"})
    seen = asyncio.run(house.run({"idea": "a shop"}))
    assert (seen.status, seen.text("rate")) == ("succeeded", "997")
    assert asyncio.run(house.stale()) == {}
    house.write("rates.csv", "1200\n")
    assert asyncio.run(house.stale()) == {"rate": ("code rates.csv changed",)}
    assert asyncio.run(house.refresh()).text("rate") == "1200"
    assert asyncio.run(house.stale()) == {}


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("nowhere.csv", "there is no file nowhere.csv"),
        ("../rates.csv", "the file ../rates.csv leads out of the project"),
    ],
)
def test_a_file_that_is_not_there_is_a_fault_of_the_pipeline(tmp_path: Path, named: str, what: str) -> None:
    pipeline = PIPELINE.replace("rates.csv", named)
    house = House(tmp_path / "project", pipeline, {}, files={"work.py": WORK, "rates.csv": "997\n"})
    with pytest.raises(OrchError, match=what):
        house.graph()
