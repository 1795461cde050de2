"""`rerun`: a child run of which a part is made again, with the rest shared by reference."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from tests.walk.four_steps import four_steps, made
from tests.walk.harness import House, Seen, numbers

pytestmark = pytest.mark.usefixtures("database")


def finished(tmp_path: Path) -> House:
    house, _ = four_steps(tmp_path)
    assert asyncio.run(house.run({"idea": "red"})).status == "succeeded"
    return house


def child(house: House, *steps: str, **options: Any) -> tuple[Seen, list[str]]:
    with house.new_requests() as asked:
        seen = asyncio.run(house.rerun(*steps, **options))
    return seen, [request.step for request in asked]


def stale(house: House) -> list[str]:
    return list(asyncio.run(house.stale()))


def test_from_a_step_all_below_runs_again_whatever_it_says(tmp_path: Path) -> None:
    seen, asked = child(finished(tmp_path), "b")
    assert (seen.status, asked) == ("succeeded", ["b", "c", "d"])
    assert seen.artifacts["a"].version.run_id != seen.row.id  # shared by reference
    assert numbers(seen.versions["b"])[-1] == 2


def test_only_runs_just_that_and_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    house = finished(tmp_path)
    seen, asked = child(house, "b", only=True)
    assert (seen.status, asked) == ("succeeded", ["b"])
    assert stale(house) == []  # it says the same


def test_until_stops_there_and_tells_what_is_stale_then(tmp_path: Path) -> None:
    house = finished(tmp_path)
    seen, asked = child(house, inputs={"idea": "blue"}, until=["b"])
    assert (seen.status, asked) == ("succeeded", ["a", "b"])
    assert seen.text("b") == made("blue")["b"]
    assert stale(house) == ["c", "d"]
    with house.new_requests() as more:
        asyncio.run(house.refresh())
    assert [request.step for request in more] == ["c", "d"]
    assert {name: asyncio.run(house.look()).text(name) for name in made()} == made("blue")


def test_another_input_is_the_child_s_alone(tmp_path: Path) -> None:
    """R017, A10: the child reads its own value, the parent keeps what it had."""
    house = finished(tmp_path)
    seen, asked = child(house, inputs={"idea": "blue"})
    assert asked == ["a", "b", "c", "d"]
    assert {name: seen.text(name) for name in made()} == made("blue")
    assert (seen.artifacts["idea"].version.version, seen.artifacts["idea"].version.author) == (2, "ana")
    parent = asyncio.run(house.look(1))
    assert {name: parent.text(name) for name in made()} == made("red")
    assert all("red" not in house.effective(request) for request in house.provider.requests[4:])


def test_what_is_unknown_is_refused_before_anything_runs(tmp_path: Path) -> None:
    house = finished(tmp_path)
    unknown: list[dict[str, Any]] = [{"inputs": {"ide": "blue"}}, {"until": ["e"]}]
    for refused in unknown:
        with pytest.raises(UsageError):
            asyncio.run(house.rerun("b", **refused))
    assert len(asyncio.run(house.runs())) == 1
    assert len(house.provider.requests) == 4
