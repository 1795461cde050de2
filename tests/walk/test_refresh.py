"""Edit, see what is stale, refresh exactly that, or keep it: in the same run, paying for nothing that is as it was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.store.records import RunBusy
from tests.walk.four_steps import PIPELINE, Echo, four_steps, made
from tests.walk.harness import House, Seen, Stopper, check_no_gap, meanwhile, numbers

pytestmark = pytest.mark.usefixtures("database")


def texts(seen: Seen) -> dict[str, str]:
    return {name: seen.text(name) for name in seen.artifacts}


def asked(house: House, before: int) -> list[str]:
    return [request.step for request in house.provider.requests[before:]]


def finished(tmp_path: Path) -> tuple[House, Echo]:
    house, model = four_steps(tmp_path)
    assert asyncio.run(house.run({"idea": "red"})).status == "succeeded"
    return house, model


def test_an_edit_makes_its_readers_stale_and_a_refresh_runs_what_changes(tmp_path: Path) -> None:
    """A changed value is stale where it is read; what is below runs because its own reads change then."""
    house, _ = finished(tmp_path)
    asyncio.run(house.edit("a", "A"))
    assert asyncio.run(house.stale()) == {"b": ("a v1→v2 (ana)",), "d": ("a v1→v2 (ana)",)}
    seen = asyncio.run(house.refresh())
    assert seen.status == "succeeded"
    assert texts(seen) == made(a="A")
    assert asked(house, 4) == ["b", "c", "d"]
    assert asyncio.run(house.stale()) == {}
    check_no_gap(seen)


def test_an_equal_value_stops_the_wave(tmp_path: Path) -> None:
    """What is below a step that ran again is looked at, and keeps its version where nothing it reads has changed."""
    house, model = finished(tmp_path)
    asyncio.run(house.edit("a", "A"))
    asyncio.run(house.edit("b", "b(A)"))  # what b would say: so c and all below it have nothing new to read from b
    asyncio.run(house.refresh())
    before = len(house.provider.requests)
    asyncio.run(house.edit("a", "A "))
    model.says["b"] = "b(A)"
    seen = asyncio.run(house.refresh())
    assert asked(house, before) == ["b", "d"]
    assert seen.text("c") == "c(b(A))"
    assert seen.steps["c"].status == "succeeded"
    assert [attempt.state for attempt in seen.attempts["c"]][-1] == "kept"
    assert numbers(seen.versions["c"]) == [1, 2]
    assert [event.kind for event in seen.events if event.step == "c"][-1] == "step.kept"
    assert asyncio.run(house.stale()) == {}


def test_with_nothing_stale_nothing_happens(tmp_path: Path) -> None:
    house, _ = finished(tmp_path)
    seen = asyncio.run(house.refresh())
    assert (seen.status, len(house.provider.requests)) == ("succeeded", 4)
    assert {name: len(rows) for name, rows in seen.attempts.items()} == dict.fromkeys("abcd", 1)


def test_only_the_selected_steps_begin(tmp_path: Path) -> None:
    house, _ = finished(tmp_path)
    asyncio.run(house.edit("a", "A"))
    seen = asyncio.run(house.refresh(steps={"d"}))
    assert asked(house, 4) == ["d"]
    assert seen.text("d") == "d(red, A, c(b(a(red))))"
    assert list(asyncio.run(house.stale())) == ["b"]


def test_force_runs_a_step_again_though_nothing_changed(tmp_path: Path) -> None:
    house, _ = finished(tmp_path)
    seen = asyncio.run(house.refresh(steps={"b"}, force=True))
    assert asked(house, 4) == ["b"]  # it says the same, so c and d stand
    assert numbers(seen.versions["b"]) == [1, 2]
    assert seen.bodies() == {name: text.encode() for name, text in made().items()}


def test_keep_accepts_a_version_until_something_changes_again(tmp_path: Path) -> None:
    """Stale means: the manifest is neither the one given nor one accepted (threads-and-context §7)."""
    house, _ = finished(tmp_path)
    asyncio.run(house.edit("a", "A"))
    asyncio.run(house.keep("b", "the colour does not matter here"))
    assert list(asyncio.run(house.stale())) == ["d"]
    asyncio.run(house.edit("a", "a(red)"))  # back to what b was made from
    assert asyncio.run(house.stale()) == {}
    asyncio.run(house.edit("a", "A"))  # to what a person accepted
    assert list(asyncio.run(house.stale())) == ["d"]
    asyncio.run(house.edit("a", "B"))
    assert list(asyncio.run(house.stale())) == ["b", "d"]
    seen = asyncio.run(house.look())
    (told,) = [event for event in seen.events if event.kind == "step.kept"]
    assert (told.step, dict(told.data)) == ("b", {"by": "ana", "note": "the colour does not matter here"})
    assert numbers(seen.versions["b"]) == [1]


def test_what_has_no_version_cannot_be_kept(tmp_path: Path) -> None:
    house, model = four_steps(tmp_path)
    refused: list[str] = []

    def keep() -> None:
        with pytest.raises(UsageError) as caught:
            meanwhile(house.keep("b"))
        refused.append(str(caught.value))

    model.during("b", keep)
    asyncio.run(house.run({"idea": "red"}))
    assert refused == ["b has no version that could be kept"]


def test_a_run_that_is_live_is_not_refreshed(tmp_path: Path) -> None:
    house, model = four_steps(tmp_path)
    caught: list[BaseException] = []

    def refresh() -> None:
        with pytest.raises(RunBusy) as refused:
            meanwhile(house.refresh())
        caught.append(refused.value)

    model.during("c", refresh)
    assert texts(asyncio.run(house.run({"idea": "red"}))) == made()
    assert len(caught) == 1


def test_a_failed_refresh_keeps_the_old_version_and_resume_goes_on(tmp_path: Path) -> None:
    house, model = finished(tmp_path)
    asyncio.run(house.edit("a", "A"))
    model.says["c"] = ""
    seen = asyncio.run(house.refresh())
    assert seen.status == "failed"
    assert (seen.text("b"), seen.text("c")) == ("b(A)", "c(b(a(red)))")
    del model.says["c"]
    assert texts(asyncio.run(house.resume())) == made(a="A")


def test_a_refresh_is_stopped_at_every_store_call_and_resumed(tmp_path: Path) -> None:
    """Wherever the process ends, a resume finishes the wave: every step once more at most, and the same texts."""
    house, _ = finished(tmp_path / "counted")
    asyncio.run(house.edit("a", "A"))
    counter = Stopper()
    asyncio.run(house.refresh(observer=counter))
    for at in range(1, len(counter.seen) + 1, 3):
        house, _ = finished(tmp_path / str(at))
        asyncio.run(house.edit("a", "A"))
        with pytest.raises(Exception, match="writer has stopped"):
            asyncio.run(house.refresh(observer=Stopper(at)))
        seen = asyncio.run(house.resume())
        begun = any(attempt.number > 1 for rows in seen.attempts.values() for attempt in rows)
        if begun:
            assert texts(seen) == made(a="A"), counter.seen[at - 1]
        assert seen.status == "succeeded"
        check_no_gap(seen)
        assert all(len(rows) <= 3 for rows in seen.attempts.values())


STALE_ON = PIPELINE.replace('prompt: "Write b."}', 'prompt: "Write b.", stale_on: [read, template]}')


def test_stale_on_moves_a_cause(tmp_path: Path) -> None:
    """By default a changed template is told and redoes nothing; `stale_on` makes it a reason to run."""
    for pipeline, stale in ((PIPELINE, []), (STALE_ON, ["b"])):
        house = House(tmp_path / str(len(stale)), pipeline, Echo())
        asyncio.run(house.run({"idea": "red"}))
        house.write("walk.yaml", pipeline.replace("Write b.", "Write b well."))
        found = asyncio.run(house.stale())
        assert list(found) == stale
        assert list(found.values()) == [("template changed: b",)] * len(stale)
        before = len(house.provider.requests)
        asyncio.run(house.refresh())
        assert asked(house, before) == stale
