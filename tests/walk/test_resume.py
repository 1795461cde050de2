"""Going on: each step starts from the database alone, whoever wrote there, whichever process goes on with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from orchestrator.bodies import asking
from orchestrator.errors import ProviderFailure, UsageError
from orchestrator.ids import is_synthetic
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.store.records import RunBusy
from orchestrator.thread import compose
from orchestrator.values import Prompt, Reply, Request
from tests import process_kit
from tests.walk.four_steps import PIPELINE, STEPS, Echo, four_steps, made
from tests.walk.harness import House, Seen, StopAfter, check_no_gap, meanwhile, sql_edit
from tests.walk.ten_steps import CALLS, IDEA, SCRIPT, TEXTS, VALUES, WORLD, ten_steps, world

pytestmark = pytest.mark.usefixtures("database")
NOW = timedelta()
ROOT = Path(__file__).parents[2]


def texts(seen: Seen) -> dict[str, str]:
    return {name: seen.text(name) for name in seen.artifacts}


# --- from the database alone ------------------------------------------------------------------------------------------


def test_R019_a_new_process_sends_the_fourth_step_byte_for_byte(tmp_path: Path) -> None:
    """R019: killed after step 3, a new process on the same database sends for step 4 what it would have been sent."""
    house, _ = four_steps(tmp_path)
    asyncio.run(house.run({"idea": "red"}, session="walk"))
    uninterrupted = dict(zip(STEPS, house.wires(), strict=True))

    house.stopped({"idea": "red"}, StopAfter("commit:committed", 3), session="walk")
    later = house.twin(Echo(), "orch.db")
    seen = asyncio.run(later.resume())

    assert [request.step for request in later.requests()] == ["d"]
    assert later.wires() == [uninterrupted["d"]]
    assert texts(seen) == made()


def test_R019_every_step_of_an_interrupted_run_is_sent_byte_for_byte(tmp_path: Path) -> None:
    """R019, at each boundary: the wires of the killed run and of its resume together are those of a run left alone."""
    house, _ = four_steps(tmp_path)
    asyncio.run(house.run({"idea": "red"}, session="walk"))
    uninterrupted = house.wires()
    for ended in (1, 2, 3):
        with house.new_requests() as asked:
            house.stopped({"idea": "red"}, StopAfter("commit:committed", ended), session="walk")
            asyncio.run(house.resume())
        assert [house.provider.wire(request) for request in asked] == uninterrupted


def test_R020_a_step_is_rerun_alone_twice(tmp_path: Path) -> None:
    """R020: no earlier step is executed, and the request is identical both times."""
    house, _ = four_steps(tmp_path)
    first = asyncio.run(house.run({"idea": "red"}, session="walk"))
    original = house.wires("d")

    with house.new_requests() as asked:
        children = [asyncio.run(house.rerun("d", ref=1)) for _ in range(2)]

    assert [request.step for request in asked] == ["d", "d"]
    assert [house.provider.wire(request) for request in asked] == original * 2
    for child in children:
        assert child.row.parent_id == first.row.id
        assert texts(child) == made()
        for name in ("idea", "a", "b", "c"):
            assert child.artifacts[name] == first.artifacts[name]  # the very same row, by reference
            assert not child.attempts.get(name)
        assert child.artifacts["d"].version.version == 2


def test_R020_a_rerun_from_the_middle_runs_what_is_below_and_nothing_above(tmp_path: Path) -> None:
    """R020 with Python steps and tools above: they are not executed again either."""
    house = ten_steps(tmp_path)
    first = asyncio.run(house.run({"idea": IDEA}, session="walk"))
    done = (tmp_path / "world.txt").read_text()

    with house.new_requests() as asked:
        child = asyncio.run(house.rerun("estimate"))

    assert [request.step for request in asked] == ["estimate", "estimate", "summary"]
    assert {name for name, attempts in child.attempts.items() if attempts} == {"estimate", "tally", "summary"}
    assert (tmp_path / "world.txt").read_text() == done
    assert child.bodies() == first.bodies()


def test_R018_another_program_changes_a_row_while_a_step_runs(tmp_path: Path) -> None:
    """R018: a version written by plain SQL from another process is what the next step shows."""
    house, model = four_steps(tmp_path)

    def edit() -> None:
        run = meanwhile(house.look())
        sql_edit(house.db, run.row.id, "a", "a changed by SQL")

    model.during("c", edit)
    seen = asyncio.run(house.run({"idea": "red"}))

    assert texts(seen) == {
        "idea": "red",
        "a": "a changed by SQL",
        "b": "b(a(red))",
        "c": "c(b(a(red)))",
        "d": "d(red, a changed by SQL, c(b(a(red))))",
    }


def test_R018_another_program_changes_a_row_between_two_processes(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    before = house.stopped({"idea": "red"}, StopAfter("commit:committed", 1))
    sql_edit(house.db, before.row.id, "a", "a changed by SQL")

    seen = asyncio.run(house.resume())

    assert texts(seen) == made(a="a changed by SQL")
    assert "a(red)" not in house.effective(house.requests("b")[-1])


# --- an interrupted step ----------------------------------------------------------------------------------------------


def test_S06_an_interrupted_step_whose_input_was_edited_starts_anew_and_says_why(tmp_path: Path) -> None:
    """S06: resume recomposes; unequal = a new attempt on a new thread, with the reason."""
    house, _ = four_steps(tmp_path)
    before = house.stopped({"idea": "red"}, StopAfter("claim:committed", 2))
    asyncio.run(house.edit("a", "a by ana"))

    seen = asyncio.run(house.resume())

    assert texts(seen) == made(a="a by ana")
    given_up, used = seen.attempts["b"]
    assert (given_up.state, used.state) == ("cancelled", "succeeded")
    assert given_up.error is not None
    assert "a v1→v2" in given_up.error.message
    threads = [journal.threads[0].id for journal in seen.journals["b"]]
    assert threads[0] == before.journals["b"][0].threads[0].id != threads[1]
    check_no_gap(seen)


def test_S06_a_step_that_starts_anew_may_fail_like_any_other(tmp_path: Path) -> None:
    """What goes wrong in the new attempt is the new attempt's end; the given-up one keeps its own."""
    house, model = four_steps(tmp_path)
    house.stopped({"idea": "red"}, StopAfter("claim:committed", 2))
    asyncio.run(house.edit("a", "a by ana"))

    def fail() -> None:
        raise ProviderFailure("the key is not valid", kind="auth")

    model.during("b", fail)
    seen = asyncio.run(house.resume())

    assert [attempt.state for attempt in seen.attempts["b"]] == ["cancelled", "failed"]
    assert (seen.status, seen.steps["b"].status) == ("failed", "failed")
    assert seen.row.error is not None
    assert "the key is not valid" in seen.row.error.message


TIMED: Final = PIPELINE.replace('prompt: "Write b."', 'prompt: "Write b.", timeout: 10m')


@pytest.mark.parametrize("ran", [599.9, 700.0], ids=["nearly over", "a clock that was moved"])
def test_S32_a_step_has_only_the_time_left_that_it_has_not_run_yet(tmp_path: Path, ran: float) -> None:
    """S32: interrupted a tenth of a second before its time is over, it has that tenth left after any pause. S33: no
    step can have run longer than it may, so a clock that says so was moved, and takes no time from it."""
    house, model = four_steps(tmp_path)
    house.write("walk.yaml", TIMED)

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            house.clock.offset += timedelta(seconds=ran)
            loop.call_soon_threadsafe(task.cancel)

        model.during("b", interrupted)
        model.delay["b"] = 60.0
        await house.run({"idea": "red"})

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    model.delay["b"] = 1.5
    seen = asyncio.run(house.resume(after=timedelta(days=3)))

    assert len(seen.attempts["b"]) == 1
    if ran > 600:
        assert seen.status == "succeeded", seen.row.error
        return
    assert (seen.status, seen.steps["b"].status) == ("failed", "failed")
    assert seen.row.error is not None
    assert (seen.row.error.code, seen.row.error.message) == ("timeout", "b ran longer than its timeout of 600 s")
    model.delay.clear()
    again = asyncio.run(house.resume())
    assert again.status == "succeeded", "a new attempt has all its time"


def test_an_edit_back_and_forth_keeps_the_interrupted_step_in_its_chain(tmp_path: Path) -> None:
    """What counts is the value that was read, not how often its row was replaced."""
    house, _ = four_steps(tmp_path)
    house.stopped({"idea": "red"}, StopAfter("claim:committed", 2))
    asyncio.run(house.edit("a", "a by ana"))
    asyncio.run(house.edit("a", "a(red)"))

    seen = asyncio.run(house.resume())

    assert texts(seen) == made()
    assert [attempt.state for attempt in seen.attempts["b"]] == ["succeeded"]
    assert seen.versions["a"][-1].version == 3
    assert [read.version for read in seen.journals["b"][0].reads] == [3]  # the read vector names what it would read now


@pytest.mark.parametrize("lost", [False, True], ids=["chained", "replayed"])
def test_S13_recorded_text_is_sent_again_whatever_the_renderer_has_become(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """S13: the renderer changes between kill and resume; the model still sees the text of its thread's beginning."""
    house = ten_steps(tmp_path)
    asyncio.run(house.run({"idea": IDEA}, session="walk"))
    opening = house.requests("right")[0].items
    before = house.stopped({"idea": IDEA}, StopAfter("done:committed"), session="walk")
    (call,) = before.calls("right")
    assert call.done is not None
    assert call.done.response_id is not None
    if lost:
        house.provider.forget(call.done.response_id)

    def louder(*given: Any) -> Prompt:
        prompt = compose(*given)
        return replace(prompt, blocks=tuple(replace(b, parts=(b.text.upper(),)) for b in prompt.blocks))

    monkeypatch.setattr(asking, "compose", louder)
    with house.new_requests() as asked:
        seen = asyncio.run(house.resume())

    of_step = [request for request in asked if request.step == "right"]
    assert of_step[0].thread == call.done.response_id
    assert len(of_step) == (2 if lost else 1)
    assert is_synthetic(of_step[-1].thread) is lost
    assert house.provider.effective(of_step[-1])[0] == opening[0]
    assert "PLAN IT." in house.effective(house.requests("plan")[-1])  # later threads do begin in the new form
    assert seen.value("right") == VALUES["right"]


def test_a_pipeline_changed_before_the_resume_repeats_only_what_was_interrupted(tmp_path: Path) -> None:
    """Finished steps are kept though their prompts changed; the interrupted one starts anew and names the template."""
    house, _ = four_steps(tmp_path)
    house.stopped({"idea": "red"}, StopAfter("claim:committed", 2))
    house.write("walk.yaml", PIPELINE.replace("Write a.", "Write another a.").replace("Write b.", "Write another b."))

    with house.new_requests() as asked:
        seen = asyncio.run(house.resume())

    assert [request.step for request in asked] == ["b", "c", "d"]
    assert "Write another b." in house.effective(asked[0])
    given_up, _ = seen.attempts["b"]
    assert given_up.error is not None
    assert "template" in given_up.error.message
    assert texts(seen) == made()


def test_a_step_added_before_the_resume_runs_and_a_removed_one_is_named(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    house.stopped({"idea": "red"}, StopAfter("commit:committed", 2))
    house.write(
        "walk.yaml", PIPELINE.replace("  c: {reads: [b]", "  b: {reads: [b]").replace("  b: {reads: [a]", "  x: {")
    )
    house.write(
        "walk.yaml", PIPELINE.replace("outputs: [d]", "  e: {reads: [b], produces: note, prompt: More.}\noutputs: [e]")
    )
    seen = asyncio.run(house.resume())
    assert seen.text("e") == "e(b(a(red)))"

    house.write("walk.yaml", PIPELINE)
    with house.new_requests() as asked, pytest.raises(UsageError, match=r"has e, which walk\.yaml does not have"):
        asyncio.run(house.resume())
    assert asked == []


# --- who may go on ----------------------------------------------------------------------------------------------------


def test_S01_a_live_run_is_not_resumed_and_its_owner_is_named(tmp_path: Path) -> None:
    """S01: refused with exit 2, host and process named, nothing changed; the run goes on as if nothing had been."""
    house, model = four_steps(tmp_path)
    refused: list[RunBusy] = []

    def resume() -> None:
        with pytest.raises(RunBusy) as caught:
            meanwhile(house.resume(after=NOW))
        refused.append(caught.value)

    model.during("b", resume)
    seen = asyncio.run(house.run({"idea": "red"}))

    (error,) = refused
    assert error.exit_code == 2
    assert f"process {os.getpid()} on {socket.gethostname()}" in error.message
    assert "--take-over" in (error.hint or "")
    assert texts(seen) == made()
    assert len(house.requests()) == 4
    assert all(len(attempts) == 1 for attempts in seen.attempts.values())


def test_S01_who_takes_a_run_over_finishes_it_and_the_other_writes_nothing(tmp_path: Path) -> None:
    """S01: one winner. The call in flight is paid twice; the late reply lands nowhere."""
    house, model = four_steps(tmp_path)
    finished: list[Seen] = []
    model.during("b", lambda: finished.append(meanwhile(house.resume(after=NOW, take_over=True))))

    late = asyncio.run(house.run({"idea": "red"}))

    assert [request.step for request in house.requests()] == ["a", "b", "b", "c", "d"]
    (winner,) = finished
    assert winner.status == late.status == "succeeded"
    assert texts(winner) == texts(late) == made()
    assert late.versions == winner.versions
    assert late.attempts == winner.attempts
    assert late.events == winner.events
    unanswered = [call for call in late.calls("b") if call.done is None]
    assert len(unanswered) == 1


class Slow(ScriptedProvider):
    """A vendor who, asked for one reply of one step, lets somebody else take the run over first.

    The other's request for the same step is held in its turn until `release`: so the late reply comes while the step
    is in other hands, not when all is over.
    """

    def __init__(self, step: str, call: int, take_over: Callable[[], Seen]) -> None:
        super().__init__(SCRIPT)
        self.step, self.call, self.take_over = step, call, take_over
        self.pool = ThreadPoolExecutor(1)
        self.other: Future[Seen] | None = None
        self.asked, self.release = Event(), Event()

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        if self.other is None and (request.step, request.call) == (self.step, self.call):
            self.other = self.pool.submit(self.take_over)
            await asyncio.to_thread(self.asked.wait, 30)
        elif self.other is not None and request.step == self.step and not self.release.is_set():
            self.asked.set()
            await asyncio.to_thread(self.release.wait, 30)
        return await super().respond(request, listener)


@pytest.mark.parametrize(
    ("step", "call"), [("outline", 1), ("right", 1), ("right", 2), ("stack", 1), ("stack", 2), ("stack", 3)]
)
def test_S01_a_late_reply_starts_no_call_and_no_tool(tmp_path: Path, step: str, call: int) -> None:
    """S01: whatever the late reply is (a draft to be mended, tool calls, the answer), its owner has lost the step."""
    slow = Slow(step, call, lambda: asyncio.run(house.resume(after=NOW, take_over=True)))
    house = ten_steps(tmp_path).twin(slow, "orch.db")

    with pytest.raises(RunBusy, match="run 1 was taken over by another process"):
        asyncio.run(house.run({"idea": IDEA}))
    before = asyncio.run(house.look())
    slow.release.set()
    assert slow.other is not None
    seen = slow.other.result(30)

    assert before.status == "running"
    assert before.steps[step].status == "running"
    assert seen.status == "succeeded"
    assert {name: seen.text(name) for name in TEXTS} == TEXTS
    assert {name: seen.value(name) for name in VALUES} == VALUES
    assert Counter(world(house)) == Counter(WORLD)
    asked = Counter(request.step for request in house.requests())
    assert asked[step] == CALLS[step] + 1
    assert sum(asked.values()) <= sum(CALLS.values()) + 2  # a sibling's call may have been in flight too
    check_no_gap(seen)


def test_S01_an_expired_lease_is_taken_without_asking(tmp_path: Path) -> None:
    """S01: 30 seconds without a heartbeat; 29 are not enough."""
    house, _ = four_steps(tmp_path)
    house.stopped({"idea": "red"}, StopAfter("claim:committed", 2))
    with pytest.raises(RunBusy):
        asyncio.run(house.resume(after=timedelta(seconds=20)))
    seen = asyncio.run(house.resume(after=timedelta(seconds=11)))
    assert texts(seen) == made()


def test_answers_given_to_a_live_run_are_refused_with_it(tmp_path: Path) -> None:
    """Nothing half-written: who may not take the run changes neither its cap nor anything else."""
    house, model = four_steps(tmp_path)

    def resume() -> None:
        with pytest.raises(RunBusy):
            meanwhile(house.resume(after=NOW, cap_usd=Decimal(7)))

    model.during("b", resume)
    seen = asyncio.run(house.run({"idea": "red"}))
    assert seen.row.cap_usd is None


@pytest.mark.slow
def test_S01_a_run_of_a_living_process_is_refused_and_of_a_killed_one_taken_at_once(tmp_path: Path) -> None:
    """S01 with real processes: exit 2 naming the process; after its SIGKILL no lease is waited for."""
    answers = {f"answers/{s}.json": f'[{{"text": "{s}", "delay": {30 if s == "b" else 0}}}]' for s in STEPS}
    house = House(tmp_path, PIPELINE, ScriptedProvider(root=tmp_path), files=answers, model="scripted:answers")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "ORCH_TRUST": "1"}
    env |= {"ORCH_MODEL": "scripted:answers", "ORCH_DB": house.url}
    first = process_kit.start(tmp_path, "run", "--set", "idea=red", "--yes", env=env)
    try:
        assert first.stdout is not None
        assert any(" a " in line for line in iter(first.stdout.readline, ""))
        second = process_kit.run(tmp_path, "resume", env=env)
        assert second.returncode == 2
        assert f"process {first.pid} on {socket.gethostname()}" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=60)

    house.write("answers/b.json", '[{"text": "b"}]')
    third = process_kit.run(tmp_path, "resume", env=env)
    assert third.returncode == 0, third.stdout + third.stderr
    assert {name: text for name, text in texts(asyncio.run(house.look())).items() if name != "idea"} == {
        name: name for name in STEPS
    }


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(days=2)], ids=["back", "ahead"])
def test_S33_a_clock_that_jumps_in_mid_run_changes_neither_order_nor_deadlines(tmp_path: Path, jump: timedelta) -> None:
    """S33: order is by sequence, deadlines are monotonic; no step ran for a negative time."""
    house, model = four_steps(tmp_path)

    def move() -> None:
        house.clock.offset += jump

    model.during("b", move)
    seen = asyncio.run(house.run({"idea": "red"}))
    asyncio.run(house.edit("a", "a by ana"))
    again = asyncio.run(house.look())

    assert texts(seen) == made()
    check_no_gap(again)
    assert [event.step for event in seen.events if event.kind == "step.done"] == list(STEPS)
    assert [version.author for version in again.versions["a"]] == ["scripted:written", "ana"]
    assert again.text("a") == "a by ana"
    assert all(0 <= row.seconds < 60 or jump > timedelta() for row in seen.steps.values())


def test_S33_a_run_stopped_before_the_clock_went_back_is_resumed_in_order(tmp_path: Path) -> None:
    """S33: messages, calls and versions of the later process come later, though its clock says earlier."""
    house = ten_steps(tmp_path)
    house.stopped({"idea": IDEA}, StopAfter("done:committed", 2))
    seen = asyncio.run(house.resume(after=timedelta(hours=-1), take_over=True))

    assert {name: seen.text(name) for name in TEXTS} == TEXTS
    assert [call.sent.seq for call in seen.calls("stack")] == list(range(1, len(seen.calls("stack")) + 1))
    assert len([call for call in seen.calls("stack") if call.done]) == len(SCRIPT["stack"])
    check_no_gap(seen)
