"""The only loop over steps.

It holds no state of its own: a commit says what became ready, the loop runs that. Whatever happens to this process, the
store knows which attempts are whose, and another process adopts the run where this one left it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from orchestrator.errors import BudgetExceeded, OrchError, StoreError
from orchestrator.gates import answer_due
from orchestrator.graph import Graph
from orchestrator.step import Services, error_record, run_step
from orchestrator.store.records import RunBusy
from orchestrator.values import Dispatch, ErrorRecord, Event, RunRow, RunStatus, StepState

HEARTBEAT_SECONDS = 10.0
STOPPED = "stopped"
LOOK_SECONDS = 1.0  # how long an answer given elsewhere may wait for the loop to see it


@dataclass
class _Progress:
    """What the loop knows beside the store: tasks under way, the attempts it has begun (with their tokens), whether a
    step waits for an answer that may come from anywhere, and the first reason to stop starting more."""

    tasks: dict[asyncio.Task[tuple[Dispatch, ...]], Dispatch] = field(default_factory=dict)
    begun: set[tuple[str, int]] = field(default_factory=set)
    waits: bool = False
    ended: asyncio.Queue[asyncio.Task[tuple[Dispatch, ...]]] = field(default_factory=asyncio.Queue)
    budget: BudgetExceeded | None = None
    lost: bool = False  # cancelled by somebody, or taken over: whatever is still under way is not wanted any more
    lanes: dict[str, Lane] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether more may be started."""
        return self.budget is None and not self.lost

    def lose(self) -> None:
        self.lost = True
        for task in self.tasks:
            task.cancel()

    def lane(self, graph: Graph, dispatch: Dispatch) -> Lane:
        """The lane of a step's items; one without an end for everything else."""
        for_each = graph.steps[dispatch.step].for_each if dispatch.item is not None else None
        return self.lanes.setdefault(
            dispatch.step if for_each else "", Lane(for_each.concurrency if for_each else None)
        )


@dataclass
class Lane:
    """How many of some attempts may be under way at once (None: all), and those that wait, first come, first served."""

    width: int | None
    running: int = 0
    waiting: deque[Dispatch] = field(default_factory=deque)

    def next(self) -> Dispatch | None:
        """The next attempt that may begin now, counted as begun."""
        if not self.waiting or (self.width is not None and self.running >= self.width):
            return None
        self.running += 1
        return self.waiting.popleft()


async def drive(
    services: Services, graph: Graph, run: RunRow, dispatches: Sequence[Dispatch], hosts: Sequence[str]
) -> RunRow:
    """Run what is ready until nothing is; on cancellation the run is left `paused`, every attempt resumable."""
    cap = None if run.cap_usd is None else str(run.cap_usd)
    _emit(services, "run.started", number=run.number, pipeline=run.pipeline, hosts=list(hosts), cap_usd=cap)
    progress = _Progress(waits=any(step.status == "waiting" for step in await services.store.states(run.id)))
    services = replace(services, listener=partial(_hear, progress, services.listener))
    heart = asyncio.create_task(_heartbeat(services, run, progress))
    try:
        _begin(services, graph, run, dispatches, progress)
        while True:
            while progress.tasks:
                await _collect(services, graph, run, progress)
            answered = await _let_go(services, run, progress)
            if not answered:
                break
            _begin(services, graph, run, answered, progress)
    except BaseException as error:
        await _stop_all(progress)
        record = error_record(error) if isinstance(error, OrchError) else None
        with contextlib.suppress(OrchError):
            await asyncio.shield(services.store.release_run(run.id, services.worker, "paused", record))
        raise
    finally:
        heart.cancel()
    return await _finish(services, run)


def _hear(progress: _Progress, listener: Callable[[Event], None], event: Event) -> None:
    progress.waits |= event.kind == "step.waiting"
    listener(event)


def _begin(services: Services, graph: Graph, run: RunRow, dispatches: Sequence[Dispatch], progress: _Progress) -> None:
    """Start these attempts, each once, whoever has told of them; items beyond their step's concurrency wait for those
    before them. Over the budget, or of a lost run, nothing more."""
    for dispatch in dispatches if progress.goes_on else ():
        right = (dispatch.attempt_id, dispatch.token)
        if right not in progress.begun:
            progress.begun.add(right)
            lane = progress.lane(graph, dispatch)
            lane.waiting.append(dispatch)
            _start_next(services, graph, run, lane, progress)


def _start_next(services: Services, graph: Graph, run: RunRow, lane: Lane, progress: _Progress) -> None:
    dispatch = lane.next() if progress.goes_on else None
    if dispatch is not None:
        task = asyncio.create_task(run_step(services, graph, run, dispatch), name=dispatch.step)
        progress.tasks[task] = dispatch
        task.add_done_callback(progress.ended.put_nowait)


async def _collect(services: Services, graph: Graph, run: RunRow, progress: _Progress) -> None:
    """Wait for one step to end and start what it made ready, or what somebody's answer has made ready meanwhile."""
    try:
        task = await asyncio.wait_for(progress.ended.get(), LOOK_SECONDS if progress.waits else None)
    except TimeoutError:
        await answer_due(services, graph, run)
        _begin(services, graph, run, await services.store.ready(run.id, services.worker), progress)
        return
    lane = progress.lane(graph, progress.tasks.pop(task))
    lane.running -= 1
    try:
        ready = task.result()
    except BudgetExceeded as error:
        progress.budget = progress.budget or error
        return
    except asyncio.CancelledError:
        if not progress.lost:
            raise
        return
    _start_next(services, graph, run, lane, progress)
    _begin(services, graph, run, ready, progress)


async def _stop_all(progress: _Progress) -> None:
    for task in progress.tasks:
        task.cancel()
    await asyncio.gather(*progress.tasks, return_exceptions=True)


async def _let_go(services: Services, run: RunRow, progress: _Progress) -> tuple[Dispatch, ...]:
    """End the work on the run; what an answer has made ready in the last moment is given back instead."""
    status, error = outcome(await services.store.states(run.id), progress.budget)
    on = progress.budget is None and not progress.lost
    return await services.store.release_run(run.id, services.worker, status, error, unless_ready=on)


async def _finish(services: Services, run: RunRow) -> RunRow:
    steps = await services.store.states(run.id)
    final = await services.store.run(run.id)
    if final.status == "running":
        raise RunBusy(
            f"run {run.number} was taken over by another process, which goes on with it",
            hint=f"orch show {run.number} shows how far it is",
            code="taken_over",
        )
    costs = [step.cost_usd for step in steps if step.cost_usd is not None]
    _emit(
        services,
        "run.done",
        status=final.status,
        cost_usd=str(sum(costs)) if costs else None,
        cost_partial=any(step.cost_partial for step in steps),
        error=final.error.message if final.error else None,
    )
    return final


def outcome(steps: Sequence[StepState], budget: BudgetExceeded | None) -> tuple[RunStatus, ErrorRecord | None]:
    """What a run has come to when nothing of it is ready any more; a person's stop outranks a failure, a failure a
    wait, a wait a pause."""
    stopped = [step.error for step in steps if step.status == "cancelled" and step.error]
    if any(error.code == STOPPED for error in stopped):
        return "cancelled", next(error for error in stopped if error.code == STOPPED)
    collected = {step.name for step in steps if step.item is None and step.status == "succeeded"}
    steps = [step for step in steps if step.item is None or step.name not in collected]
    failed = [step for step in steps if step.status == "failed"]
    waiting = [step for step in steps if step.status == "waiting"]
    if failed:
        return "failed", failed[0].error
    if waiting:
        return "waiting", waiting[0].error
    if budget is not None:
        return "paused", error_record(budget)
    if all(step.status in ("succeeded", "skipped") and not step.stale for step in steps):
        return "succeeded", None
    stale = ", ".join(f"{step.name}/{step.item}" if step.item else step.name for step in steps if step.stale)
    if not stale:
        return "paused", ErrorRecord("unfinished", "some steps did not run", "orch resume runs them", 4)
    message = f"the inputs of {stale} were edited while it ran"
    return "paused", ErrorRecord("moved", message, "orch resume runs it again; orch keep accepts what it made", 4)


async def _heartbeat(services: Services, run: RunRow, progress: _Progress) -> None:
    """Say that this worker lives, and stop what is under way of a run that is no longer its own."""
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(StoreError):  # the steps' own writes meet it too, and report it
            await services.store.heartbeat(services.worker)
            if not await services.store.is_owned(run.id, services.worker):
                progress.lose()


def _emit(services: Services, kind: str, **data: Any) -> None:
    services.listener(Event(kind, None, None, data))
