"""Real processes, really killed: SIGKILL at random moments of `orch run` and `orch resume`.

The stop sweep next door knows every write of the store but only one process; here nothing is simulated. A project is
started and killed, resumed and killed again and again, and resumed to its end; before and after each resume the
database is read. Most moments lie a little after one of the lines that a process prints, which one is drawn, some in
its start, when there may be no run yet. The seed is printed with every failure.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import CallRow, Item, OutputItem, TextItem
from tests import process_kit
from tests.database_kit import Kind, databases
from tests.process_kit import Process
from tests.walk.harness import House, Seen, check_no_gap
from tests.walk.ten_steps import CALLS, IDEA, PIPELINE, SCRIPT, TEXTS, VALUES, WORK, delayed, world

SEED: Final = 20261130
KILLS: Final[Mapping[Kind, int]] = {"sqlite": 50, "postgres": 12}
PLACES: Final[Mapping[Kind, int]] = {"sqlite": 6, "postgres": 4}  # at which the kills must have met a run
DB: Final = Path(".orch") / "orch.db"
EARLY: Final = 5  # of these, killed while the process still starts
IN_A_ROW: Final = 4  # of one run, one after the other
REPLY_SECONDS: Final = 0.04
STARTING: Final = 0.2  # seconds, about what a process needs to its first line
ROOT: Final = Path(__file__).parents[2]
RUN: Final = ("run", "ten-steps", "--set", f"idea={IDEA}", "--session", "walk", "--yes")
VENDOR_ID: Final = re.compile(r"\b(call|fc|rs|msg|resp)_[0-9a-f]{8,}")


def start(folder: Path, *arguments: str) -> Process:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "ORCH_TRUST": "1"}
    env |= {"ORCH_MODEL": "scripted:answers", "ORCH_DB": databases.url(folder / DB)}
    return process_kit.start(folder, *arguments, env=env, stderr=process_kit.STDOUT)


def finish(process: Process) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def kill_after(process: Process, lines: int, seconds: float) -> bool:
    """SIGKILL when the process has said so many lines and then so long; False: it had ended."""
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    process.communicate(timeout=60)
    return bool(process.returncode < 0)


def house_in(folder: Path, database: str = "orch.db") -> House:
    return House(folder, "", ScriptedProvider(root=folder), database=database, model="scripted:answers")


def read(folder: Path) -> Seen | None:
    """The newest run, read from a copy: whoever resumes must find the files as the killed process left them."""
    if databases.server is not None:
        databases.settled(folder / DB)
        seen = asyncio.run(house_in(folder).look())
        return seen if seen.row.number > 1 else None
    copy = folder / ".copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / ".orch", copy)
    seen = asyncio.run(house_in(folder, "../.copy/orch.db").look())
    return seen if seen.row.number > 1 else None


@dataclass(frozen=True)
class Model:
    """A project whose first run was left alone: each sweep works on copies of it."""

    folder: Path
    seen: Seen


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory, database: Kind) -> Model:
    folder = tmp_path_factory.mktemp("model")
    slow_tools = WORK.replace("PAUSE = 0", f"PAUSE = {REPLY_SECONDS}")
    house = House(folder, PIPELINE, SCRIPT, files={"work.py": slow_tools, **delayed(REPLY_SECONDS)})
    code, output = finish(start(house.folder, *RUN))
    assert code == 0, output
    return Model(folder, asyncio.run(house_in(folder).look()))


# --- one project ------------------------------------------------------------------------------------------------------


@dataclass
class Project:
    """A copy of the model on its way through kills and resumes."""

    model: Model
    folder: Path
    dice: random.Random
    kills: int = 0
    retries: int = 0
    finished: list[int] = field(default_factory=list)  # how many steps had ended at each kill

    def walk(self, *, early: bool) -> None:
        """Start it and kill it, resume it and kill it again, and again, resume it to its end; check each process and
        the whole."""
        shutil.copytree(self.model.folder, self.folder)
        if databases.server is not None:
            databases.copy(self.model.folder / DB, self.folder / DB)
        (self.folder / "world.txt").unlink()
        before = self._killed(*RUN, early=early)
        while before is None:  # killed before there was a run
            before = self._killed(*RUN)
        for _ in range(IN_A_ROW - 1):
            before = self._checked(before, self._killed(*self._resume(before), left=len(CALLS) - _ended(before)))
        while True:
            code, output = finish(start(self.folder, *self._resume(before)))
            before = self._checked(before, read(self.folder))
            if code != 4:
                break
        assert code == 0, output
        self._check_end(before)

    def _resume(self, before: Seen) -> list[str]:
        answers = [f"--tool={call}=retry" for call in _in_doubt(before)]
        self.retries += len(answers)
        return ["resume", "last", *answers]

    def _killed(self, *command: str, early: bool = False, left: int = len(CALLS)) -> Seen | None:
        """Start a process and kill it near the end of one of the steps that are left, or in its start."""
        process = start(self.folder, *command)
        if early:
            killed = kill_after(process, 0, self.dice.uniform(0, STARTING))
        else:
            lines = 1 + self.dice.randrange(max(left, 1))  # the first one is about the run
            killed = kill_after(process, lines, self.dice.uniform(0, 2 * REPLY_SECONDS))
        seen = read(self.folder)
        if killed:
            self.kills += 1
            self.finished.append(_ended(seen) if seen else 0)
        return seen

    def _checked(self, before: Seen, after: Seen | None) -> Seen:
        """What one resumed process did: nothing to finished steps, and on with the interrupted ones where they were."""
        assert after is not None
        for step, row in before.steps.items():
            if row.kind != "input":
                _check_step(step, before, after)
        return after

    def _check_end(self, seen: Seen) -> None:
        assert seen.status == "succeeded"
        assert seen.bodies() == self.model.seen.bodies()
        check_no_gap(seen)
        for step in CALLS:
            assert len(seen.versions[step]) == 1, step
            assert len(seen.attempts[step]) == 1, step
            _check_chain(step, seen, self.model.seen, self.kills)
        done = Counter(world(house_in(self.folder)))
        assert done["reserve till"] <= 1 + self.retries
        assert all(1 <= done[f"look_up {part}"] <= 1 + self.kills for part in ("calendar", "till"))


def _ended(seen: Seen) -> int:
    return sum(row.status == "succeeded" for row in seen.steps.values() if row.kind != "input")


def _in_doubt(seen: Seen) -> list[str]:
    waiting = [name for name, row in seen.steps.items() if row.status == "waiting"]
    return [tool.tool_call.call_id for name in waiting for tool in seen.tools(name) if tool.state == "started"]


def _check_step(step: str, before: Seen, after: Seen) -> None:
    if before.steps[step].status == "succeeded":
        assert after.artifacts[step].version == before.artifacts[step].version, step
        assert after.attempts[step] == before.attempts[step], step
        assert after.calls(step) == before.calls(step), step
        return
    kept = [call for call in before.calls(step) if call.done]
    assert [call for call in after.calls(step) if call.done][: len(kept)] == kept, f"{step} lost a reply"
    for tool in before.tools(step):
        if tool.output is not None:
            assert tool in after.tools(step), f"{step} lost what a tool gave"


def _check_chain(step: str, seen: Seen, model: Seen, kills: int) -> None:
    """One thread; each reply asked for in the same words as without kills, on the id of the reply before it."""
    journal = seen.journals[step][0]
    assert len(journal.threads) == (1 if CALLS[step] else 0), step
    head = journal.threads[0].id if journal.threads else ""
    for call in seen.calls(step):
        assert call.sent.previous == head, f"{step}: call {call.sent.seq} left the chain"
        head = call.done.response_id or head if call.done else head
    replied = [call for call in seen.calls(step) if call.done]
    assert [_words(call) for call in replied] == [_words(call) for call in model.calls(step)], step
    assert len(seen.calls(step)) - len(replied) <= kills, f"{step}: more than the call in flight was asked again"


def _words(call: CallRow) -> tuple[str, ...]:
    """What a call sent and got, without the vendor's random ids."""
    items: Sequence[Item] = (*call.sent.items, *(call.done.items if call.done else ()))
    return tuple(VENDOR_ID.sub(r"\1_…", _text(item)) for item in items)


def _text(item: Item) -> str:
    if isinstance(item, TextItem):
        return item.text
    return str(dict(item.data)) if isinstance(item, OutputItem) else f"{item.call_id} {item.output} {item.is_error}"


# --- the sweep --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)  # about a minute; a machine that is busy with other things may need many
def test_killed_at_random_moments(model: Model, tmp_path: Path, database: Kind) -> None:
    """S09, R019: after SIGKILL finished steps never run again, the interrupted one goes on in its chain, each call in
    flight may be paid twice and no other."""
    assert {name: model.seen.text(name) for name in TEXTS} == TEXTS
    assert {name: model.seen.value(name) for name in VALUES} == VALUES
    assert {name: len(model.seen.calls(name)) for name in CALLS} == CALLS

    done: list[Project] = []

    def lane(number: int) -> None:
        """Projects one after the other until there have been enough kills; two lanes run side by side."""
        turn = 0
        while sum(project.kills for project in done) < KILLS[database]:
            seed = SEED + 1000 * number + turn
            project = Project(model, tmp_path / f"{number}-{turn}", random.Random(seed))
            try:
                project.walk(early=len(done) < EARLY)
            except AssertionError as error:
                error.add_note(f"project {project.folder} of seed {seed}, after {project.kills} kills")
                raise
            done.append(project)
            turn += 1

    with ThreadPoolExecutor(2) as lanes:
        for result in [lanes.submit(lane, number) for number in range(2)]:
            result.result()
    finished = Counter(count for project in done for count in project.finished)
    assert len(finished) >= PLACES[database], (
        f"the kills do not lie all over the run: {sorted(finished.items())}, seed {SEED}"
    )
