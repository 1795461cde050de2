"""The process is stopped at every moment of every write of the store, in turn, and the run is resumed.

Stopping means: the store's writer ends there and then, before a unit of work has begun or right after it is durable,
and nothing that the old "process" still does reaches the database. For each of those moments:

* the artifacts are in the end the bytes of an uninterrupted run;
* a step that had ended is not begun again, and nobody asks the vendor for it;
* of an interrupted step exactly those calls are asked that had no reply on record: only the one in flight can be paid
  twice;
* whatever a model sees is what it would have seen without the stop: first requests byte for byte, chained ones on the
  id that was on record;
* versions and events count without a gap.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.errors import StoreError
from orchestrator.ids import is_synthetic
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Request
from tests.database_kit import databases
from tests.walk.harness import House, Seen, Stopper, check_no_gap
from tests.walk.ten_steps import CALLS, IDEA, SCRIPT, TEXTS, VALUES, WORLD, ten_steps, world

SEED: Final = 20261130
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "discovery"
# The vendor's own ids are random; everything else of a context must be the same.
VENDOR_ID: Final = re.compile(r"\b(call|fc|rs|msg|resp)_[0-9a-f]{8,}")


@dataclass(frozen=True)
class Baseline:
    """The uninterrupted run: what came of it, and what each step's model saw, reply by reply."""

    house: House
    vendor: Callable[[], ScriptedProvider]
    inputs: Mapping[str, Any]
    seen: Seen
    moments: list[str]
    first: Mapping[str, bytes]
    contexts: Mapping[str, list[str]]

    def fresh(self) -> House:
        """The same project with a new vendor, and the database as this run left it: same session, same keys."""
        databases.copy(self.house.db, self.house.db.with_name("sweep.db"))
        (self.house.folder / "world.txt").unlink(missing_ok=True)
        return self.house.twin(self.vendor(), "sweep.db")


def uninterrupted(house: House, vendor: Callable[[], ScriptedProvider], inputs: Mapping[str, Any]) -> Baseline:
    stopper = Stopper()
    seen = asyncio.run(house.run(inputs, session="walk", observer=stopper))
    assert seen.status == "succeeded", seen.row.error
    contexts: dict[str, list[str]] = {}
    for request in house.requests():
        contexts.setdefault(request.step, []).append(_context(house, request))
    first = {r.step: house.provider.wire(r) for r in house.requests() if is_synthetic(r.thread)}
    return Baseline(house, vendor, inputs, seen, stopper.seen, first, contexts)


def _context(house: House, request: Request) -> str:
    return VENDOR_ID.sub(r"\1_…", house.effective(request))


def begin(base: Baseline, house: House, stop: int) -> Seen | None:
    """Start the run and end the process at a moment; what there is to go on with, if anything.

    It ends by itself where it has fewer moments than the run that was left alone: notes of replies that have begun,
    for which nobody waits, may share a transaction.
    """
    stopper = Stopper(stop)
    with suppress(StoreError):
        asyncio.run(house.run(base.inputs, session="walk", observer=stopper))
    if len(stopper.seen) < stop:
        missing = Counter(base.moments) - Counter(stopper.seen)
        assert {moment.partition(":")[0] for moment in missing} == {"created"}, missing
    seen = asyncio.run(house.look())
    return seen if seen.row.number > base.seen.row.number else None


def go_on(base: Baseline, house: House, before: Seen, stop: int | None = None) -> Seen:
    """Resume, and end the process again at a moment if one is given and comes. Each process is checked alone."""
    after = None
    with house.new_requests() as asked, suppress(StoreError):
        after = asyncio.run(house.resume(observer=Stopper(stop), tools=_answers(before)))
    after = after or asyncio.run(house.look())
    for step in base.seen.attempts:
        of_step = [request for request in asked if request.step == step]
        _check_step(base, house, step, before, after, of_step)
    return after


def _answers(seen: Seen) -> dict[str, str]:
    """`retry` for each tool that must not be repeated without a word, where the run waits for that word."""
    waiting = [name for name, row in seen.steps.items() if row.status == "waiting"]
    return {tool.tool_call.call_id: "retry" for name in waiting for tool in seen.tools(name) if tool.state == "started"}


def _check_step(base: Baseline, house: House, step: str, before: Seen, after: Seen, asked: list[Request]) -> None:
    """One step in one resumed process: only what was not on record was asked, and asked in the same words."""
    if before.steps[step].status == "succeeded":
        assert not asked, f"{step} had ended and was asked again"
        assert after.artifacts[step].version == before.artifacts[step].version
        assert after.attempts[step] == before.attempts[step]
        return
    replies = [call.done for call in before.calls(step) if call.done]
    expected = base.contexts.get(step, [])[len(replies) :]
    assert [_context(house, request) for request in asked] == expected[: len(asked)], step
    if after.steps[step].status == "succeeded":
        assert len(asked) == len(expected), f"{step}: {len(asked)} calls for {len(expected)} replies not on record"
    if asked and replies:
        assert asked[0].thread == replies[-1].response_id, f"{step} left its chain"
    if asked and not replies:
        assert house.provider.wire(asked[0]) == base.first[step], f"{step}: another first request"


def check_end(base: Baseline, house: House, seen: Seen) -> None:
    """What holds of the whole run, however often it was stopped."""
    assert seen.status == "succeeded", seen.row.error
    assert seen.bodies() == base.seen.bodies()
    check_no_gap(seen)
    for step, attempts in seen.attempts.items():
        assert len(attempts) == 1, step  # it went on: nothing it was made from had changed
        assert len(seen.versions[step]) == 1, step
        replies = [call for call in seen.calls(step) if call.done]
        unanswered = len(seen.calls(step)) - len(replies)
        assert len(replies) == len(base.contexts.get(step, ())), step
        assert len(house.requests(step)) <= len(replies) + unanswered, f"{step}: a call that is not on record"


def sweep(base: Baseline, *, twice: bool) -> Counter[str]:
    """Stop at every moment; with `twice`, after every write and once more while resuming. Gives the moments by name."""
    dice = random.Random(SEED)
    for stop, moment in enumerate(base.moments, start=1):
        if twice and moment.endswith(":begin"):
            continue  # what is there is what was there after the write before; the ten steps are stopped here too
        house = base.fresh()
        again = dice.randint(1, len(base.moments)) if twice else None
        try:
            _stop_and_go_on(base, house, stop, again)
        except AssertionError as error:
            error.add_note(f"stopped at moment {stop} (about {moment}), then at {again} of the resume; seed {SEED}")
            raise
    return Counter(base.moments)


def _stop_and_go_on(base: Baseline, house: House, stop: int, again: int | None) -> None:
    seen = begin(base, house, stop)
    if seen is None:
        assert house.requests() == []  # nothing was asked before the run was on record
        return
    seen, retried = go_on(base, house, seen, again), 0
    while seen.status in ("running", "waiting"):
        retried += len(_answers(seen))
        seen = go_on(base, house, seen)
    check_end(base, house, seen)
    _check_world(house, retried, stops=1 if again is None else 2)


def _check_world(house: House, retried: int, stops: int) -> None:
    """A tool that must not be repeated was run once, and once more for each time a person said `retry`."""
    done = Counter(world(house))
    assert done["reserve till"] <= 1 + retried
    assert all(done[line] <= 1 + stops for line in WORLD)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("database")
def test_stopped_at_every_store_call_of_ten_steps(tmp_path: Path) -> None:
    """R019, S09: final artifacts equal, no finished step again, no version gap, only the call in flight twice."""
    base = uninterrupted(ten_steps(tmp_path), lambda: ScriptedProvider(SCRIPT), {"idea": IDEA})
    assert {name: base.seen.text(name) for name in TEXTS} == TEXTS
    assert {name: base.seen.value(name) for name in VALUES} == VALUES
    assert {name: len(base.contexts.get(name, ())) for name in CALLS} == CALLS
    assert Counter(world(base.house)) == Counter(WORLD)

    met = sweep(base, twice=False)

    writes = [
        "create_run",
        "claim",
        "sent",
        "created",
        "done",
        "tool_started",
        "tool_finished",
        "commit",
        "release_run",
    ]
    assert all(met[f"{write}:committed"] for write in writes)
    assert databases.server is not None or all(met[f"{write}:begin"] for write in writes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stopped_twice_at_every_store_call_of_the_example(tmp_path: Path) -> None:
    """The shipped study, ten steps and a gate, with its sample answers: stopped after each write, and in the resume."""
    folder = shutil.copytree(EXAMPLE, tmp_path / "study", ignore=shutil.ignore_patterns(".orch", "__pycache__"))
    study = House(folder, "", ScriptedProvider(root=folder), model="scripted:sample_answers", approver="--yes")
    inputs = json.loads((EXAMPLE / "briefs" / "clinic.json").read_text())
    base = uninterrupted(study, lambda: ScriptedProvider(root=folder), inputs)
    assert len(base.seen.attempts) == 11

    assert sum(sweep(base, twice=True).values()) > 60
