"""A person edits while the run goes on: before, between and in the middle of every write of the store.

Whatever the moment, no artifact is made from a mixture: a step that had ended keeps what it made, one that was running
is redone once with what stands now, and all others see the edit. An edit of the very artifact that is being made is
never overwritten: the step waits, with its draft beside the person's version.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.values import StepStatus
from tests.database_kit import databases
from tests.walk.four_steps import STEPS, four_steps, made
from tests.walk.harness import House, Seen, StopAfter, check_no_gap, meanwhile

pytestmark = pytest.mark.usefixtures("database")


def texts(seen: Seen) -> dict[str, str]:
    return {name: seen.text(name) for name in seen.artifacts}


class EditAt:
    """An observer that edits an artifact right after the nth durable write, before the engine hears of that write.

    On a server a write that the engine does not wait for is no such moment: everything else goes on meanwhile.
    """

    def __init__(self, house: House, at: int, name: str, value: str) -> None:
        self.house, self.at, self.name, self.value = house, at, name, value
        self.writes: list[str] = []
        self.states: dict[str, StepStatus] | None = None

    def __call__(self, moment: str) -> None:
        unawaited = databases.server is not None and moment == "created:committed"
        if not moment.endswith(":committed") or unawaited:
            return
        self.writes.append(moment)
        if len(self.writes) != self.at:
            return
        now = meanwhile(self.house.look())
        meanwhile(self.house.edit(self.name, self.value))
        self.states = {name: row.status for name, row in now.steps.items()}


def writes_of(tmp_path: Path) -> list[str]:
    """The durable writes of a run that nobody disturbs."""
    house, _ = four_steps(tmp_path / "undisturbed")
    counter = EditAt(house, 0, "idea", "")
    assert texts(asyncio.run(house.run({"idea": "red"}, observer=counter))) == made()
    return counter.writes


@pytest.mark.slow
def test_S06_the_brief_is_edited_at_every_store_call(tmp_path: Path) -> None:
    """S06: a step that runs is redone once, with the new value; one that has ended is kept; readers see one truth."""
    writes = writes_of(tmp_path)
    redone = set()
    for at in range(writes.index("create_run:committed") + 1, len(writes) + 1):
        house, _ = four_steps(tmp_path / str(at))
        observer = EditAt(house, at, "idea", "blue")
        seen = asyncio.run(house.run({"idea": "red"}, observer=observer))
        assert observer.states is not None
        was = observer.states

        a = "a(red)" if was["a"] == "succeeded" else "a(blue)"
        expected = {**made(a=a), "idea": "blue"}
        expected["d"] = f"d({'red' if was['d'] == 'succeeded' else 'blue'}, {a}, {expected['c']})"
        assert (texts(seen), seen.status) == (expected, "succeeded"), f"edit at write {at}, {writes[at - 1]}"
        _check_redone(house, seen, {name for name in ("a", "d") if was[name] == "running"})
        redone |= {name for name in ("a", "d") if was[name] == "running"}
    assert redone == {"a", "d"}


@pytest.mark.slow
def test_S06_an_artifact_is_edited_at_every_store_call(tmp_path: Path) -> None:
    """S06 for the value of a step, from the moment it exists: b and d read it, c does not."""
    writes = writes_of(tmp_path)
    redone = set()
    for at in range(writes.index("commit:committed") + 1, len(writes) + 1):
        house, _ = four_steps(tmp_path / str(at))
        observer = EditAt(house, at, "a", "by ana")
        seen = asyncio.run(house.run({"idea": "red"}, observer=observer))
        assert observer.states is not None
        was = observer.states

        b = "b(a(red))" if was["b"] == "succeeded" else "b(by ana)"
        read_by_d = "a(red)" if was["d"] == "succeeded" else "by ana"
        expected = {"idea": "red", "a": "by ana", "b": b, "c": f"c({b})", "d": f"d(red, {read_by_d}, c({b}))"}
        assert (texts(seen), seen.status) == (expected, "succeeded"), f"edit at write {at}, {writes[at - 1]}"
        _check_redone(house, seen, {name for name in ("b", "d") if was[name] == "running"})
        redone |= {name for name in ("b", "d") if was[name] == "running"}
    assert redone == {"b", "d"}


def _check_redone(house: House, seen: Seen, redone: set[str]) -> None:
    """Those were asked twice and have a version more, all others once; the reason is on record."""
    check_no_gap(seen)
    for name in STEPS:
        times = 2 if name in redone else 1
        assert len(house.requests(name)) == times, name
        assert [attempt.state for attempt in seen.attempts[name]] == ["succeeded"] * times
        assert [attempt.redo for attempt in seen.attempts[name]] == [0, 1][:times]
        made_by_model = [version for version in seen.versions[name] if version.origin == "model"]
        assert len(made_by_model) == times, name
        assert not seen.steps[name].stale
    moved = {event.step: event.data["redo"] for event in seen.events if event.kind == "step.moved"}
    assert moved == dict.fromkeys(redone, True)


def test_S06_an_edit_of_the_same_value_redoes_nothing(tmp_path: Path) -> None:
    house, model = four_steps(tmp_path)
    model.during("b", lambda: meanwhile(house.edit("a", "another")), lambda: None)
    model.during("c", lambda: meanwhile(house.edit("b", "b(another)")))  # what it is already
    seen = asyncio.run(house.run({"idea": "red"}))
    assert texts(seen) == {**made(a="another")}
    assert len(seen.versions["b"]) == 2
    assert len(house.requests("c")) == 1


def test_S06_a_second_edit_during_the_redo_stops_there_and_resume_goes_on(tmp_path: Path) -> None:
    """S06: redo once. Edited again meanwhile, the step stays stale, its readers wait, and a resume runs them."""
    house, model = four_steps(tmp_path)
    model.during("a", lambda: meanwhile(house.edit("idea", "blue")), lambda: meanwhile(house.edit("idea", "green")))

    seen = asyncio.run(house.run({"idea": "red"}))

    assert seen.status == "paused"
    assert seen.row.error is not None
    assert (seen.row.error.code, seen.row.error.exit_code) == ("moved", 4)
    assert [version.version for version in seen.versions["a"]] == [1, 2]
    assert seen.steps["a"].stale
    assert [request.step for request in house.requests()] == ["a", "a"]

    seen = asyncio.run(house.resume())

    assert (seen.status, texts(seen)) == ("succeeded", made("green"))
    assert [request.step for request in house.requests()] == ["a", "a", "a", "b", "c", "d"]
    check_no_gap(seen)


def turn_blue(house: House) -> None:
    meanwhile(house.edit("idea", "blue"))


def test_S06_a_step_that_asks_stops_at_the_first_edit_and_a_resume_or_a_keep_goes_on(tmp_path: Path) -> None:
    """`on_input_change: ask`: what is paid twice is a person's choice."""
    for answer, made_of in (("resume", made("blue")), ("keep", {**made(a="a(red)"), "idea": "blue"})):
        house, model = four_steps(tmp_path / answer, ", on_input_change: ask")
        model.during("a", partial(turn_blue, house))
        seen = asyncio.run(house.run({"idea": "red"}))
        assert seen.row.error is not None
        assert (seen.status, seen.row.error.code) == ("paused", "moved")
        assert "orch keep accepts what it made" in str(seen.row.error.hint)
        assert [request.step for request in house.requests()] == ["a"]
        if answer == "keep":
            asyncio.run(house.keep("a"))
        seen = asyncio.run(house.resume())
        expected = made_of if answer == "resume" else {**made_of, "d": "d(blue, a(red), c(b(a(red))))"}
        assert (seen.status, texts(seen)) == ("succeeded", expected)
        assert [request.step for request in house.requests()].count("a") == (2 if answer == "resume" else 1)
        assert asyncio.run(house.stale()) == {}
        check_no_gap(seen)


def test_S06_a_step_that_keeps_goes_on_with_what_it_made_and_is_shown_as_stale(tmp_path: Path) -> None:
    """`on_input_change: keep`: nothing is paid twice, its readers go on, and a refresh makes it anew."""
    house, model = four_steps(tmp_path, ", on_input_change: keep")
    model.during("a", lambda: meanwhile(house.edit("idea", "blue")))
    seen = asyncio.run(house.run({"idea": "red"}))
    assert (seen.status, texts(seen)) == (
        "succeeded",
        {**made(), "idea": "blue", "d": "d(blue, a(red), c(b(a(red))))"},
    )
    assert [request.step for request in house.requests()] == ["a", "b", "c", "d"]
    [moved] = [event.data for event in seen.events if event.kind == "step.moved"]
    assert moved == {"inputs": ["idea"], "redo": False, "stands": True}
    assert set(asyncio.run(house.stale())) == {"a"}
    check_no_gap(seen)
    assert texts(asyncio.run(house.refresh())) == made("blue")


def conflict(tmp_path: Path) -> tuple[House, Seen]:
    """A run in which ana edits `a` while it is being made again."""
    house, model = four_steps(tmp_path)
    model.during("a", lambda: meanwhile(house.edit("idea", "blue")), lambda: meanwhile(house.edit("a", "by ana")))
    return house, asyncio.run(house.run({"idea": "red"}))


def test_S07_an_edit_of_the_artifact_in_the_making_is_kept_and_so_is_the_draft(tmp_path: Path) -> None:
    """S07: the step waits; the person's version is the head, the model's a draft beside it; nothing below has run."""
    house, seen = conflict(tmp_path)

    assert seen.status == "waiting"
    row = seen.steps["a"]
    assert row.status == "waiting"
    assert row.head is not None
    assert row.draft is not None
    assert (row.head.version, row.head.author, seen.text("a")) == (2, "ana", "by ana")
    assert (row.draft.version, row.draft.draft, row.draft.origin) == (3, True, "model")
    assert row.error is not None
    assert row.error.exit_code == 4
    assert "edited by ana" in row.error.message
    assert [request.step for request in house.requests()] == ["a", "a"]
    check_no_gap(seen)


def test_S07_without_an_answer_a_resume_changes_nothing(tmp_path: Path) -> None:
    house, before = conflict(tmp_path)
    with house.new_requests() as asked:
        seen = asyncio.run(house.resume())
    assert (seen.status, asked) == ("waiting", [])
    assert seen.versions == before.versions
    assert seen.attempts["a"] == before.attempts["a"]


def test_S07_the_persons_version_may_stand(tmp_path: Path) -> None:
    house, _ = conflict(tmp_path)
    with house.new_requests() as asked:
        seen = asyncio.run(house.resume(settle={"a": "head"}))
    assert (seen.status, texts(seen)) == ("succeeded", made("blue", a="by ana"))
    assert [request.step for request in asked] == ["b", "c", "d"]
    assert seen.steps["a"].draft is None
    assert all("a(blue)" not in house.effective(request) for request in asked)
    check_no_gap(seen)


def test_S07_the_draft_may_become_the_head(tmp_path: Path) -> None:
    house, _ = conflict(tmp_path)
    with house.new_requests() as asked:
        seen = asyncio.run(house.resume(settle={"a": "draft"}))
    assert (seen.status, texts(seen)) == ("succeeded", made("blue"))
    assert [request.step for request in asked] == ["b", "c", "d"]
    assert seen.artifacts["a"].version.version == 3
    assert not seen.artifacts["a"].version.draft
    assert all("by ana" not in house.effective(request) for request in asked)
    check_no_gap(seen)


def test_S07_stopped_between_the_answer_and_what_follows_from_it(tmp_path: Path) -> None:
    """The answer is durable by itself: who resumes later need not give it again, and cannot give another."""
    house, _ = conflict(tmp_path)
    with pytest.raises(Exception, match="writer has stopped"):
        asyncio.run(house.resume(settle={"a": "draft"}, observer=StopAfter("settle:committed")))
    with pytest.raises(UsageError, match="no draft"):
        asyncio.run(house.resume(settle={"a": "head"}))
    seen = asyncio.run(house.resume())
    assert (seen.status, texts(seen)) == ("succeeded", made("blue"))


def test_S07_a_stale_base_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    """A person who edits the version before last hears of it."""
    house, _ = four_steps(tmp_path)
    asyncio.run(house.run({"idea": "red"}))
    asyncio.run(house.edit("a", "first", base=1))
    with pytest.raises(UsageError, match="version 2, not 1; nothing was written"):
        asyncio.run(house.edit("a", "second", base=1))
    assert [version.version for version in asyncio.run(house.look()).versions["a"]] == [1, 2]
