"""Plain Python steps begin with the transaction that ends what they wait for; a resume holds them to what they read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.walk.harness import House, StopAfter, Stopper

PIPELINE = """
version: 1
pipeline: sums
inputs:
  start: {type: integer, about: "Where the count begins."}
artifacts:
  sum: {about: "A sum.", not_for: none, schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
steps:
  one: {reads: [start], python: "sums.py:one", produces: sum}
  two: {reads: [one], python: "sums.py:two", produces: sum}
  three: {reads: [two], python: "sums.py:three", produces: sum}
"""
SUMS = """
def one(start):
    return {"n": start + 1}

def two(one):
    return {"n": one["n"] * 10}

async def three(two):
    return {"n": two["n"] + 3}
"""


def _house(folder: Path) -> House:
    return House(folder, PIPELINE, {}, files={"sums.py": SUMS})


def test_a_chain_of_functions_needs_one_transaction_for_each(tmp_path: Path) -> None:
    house, stopper = _house(tmp_path), Stopper()
    run = asyncio.run(house.run({"start": 1}, observer=stopper))
    assert run.status == "succeeded"
    assert run.value("three") == {"n": 23}
    written = [moment.removesuffix(":committed") for moment in stopper.seen if moment.endswith(":committed")]
    assert written == ["register_worker", "create_run", "commit", "commit", "commit", "release_run"]


def test_S06_a_function_that_had_begun_begins_anew_where_its_input_was_edited_meanwhile(tmp_path: Path) -> None:
    """Once killed right after it began, once while it ran."""
    for moment, times in (("commit:committed", 1), ("commit:begin", 2)):
        house = _house(tmp_path / moment.replace(":", "-"))
        stopped = house.stopped({"start": 1}, StopAfter(moment, times))
        assert stopped.steps["two"].status == "running"
        asyncio.run(house.edit("one", {"n": 7}))
        run = asyncio.run(house.resume())
        assert run.status == "succeeded"
        assert run.value("three") == {"n": 73}
        first, second = run.attempts["two"]
        assert (first.state, second.state) == ("cancelled", "succeeded")
        assert first.error is not None
        assert "one" in first.error.message
        manifest = run.steps["two"].manifest
        assert manifest is not None
        read = {entry.name: entry.hash for entry in manifest.entries if entry.kind == "read"}
        assert read["one"] == run.versions["one"][-1].sha256, "its manifest is that of what it was made from"


def test_a_function_that_had_begun_runs_again_where_nothing_was_edited(tmp_path: Path) -> None:
    house = _house(tmp_path)
    stopped = house.stopped({"start": 1}, StopAfter("commit:committed", 2))
    assert [stopped.steps[name].status for name in ("one", "two", "three")] == ["succeeded", "succeeded", "running"]
    run = asyncio.run(house.resume())
    assert run.value("three") == {"n": 23}
    assert [len(run.attempts[name]) for name in ("one", "two", "three")] == [1, 1, 1]
