"""Runs: start, resume, rerun, edit. The only loop over steps is here.

The loop holds no state of its own: a commit says what became ready, the loop runs that. Whatever happens to this
process, the store knows which attempts are whose, and another process adopts the run where this one left it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Literal

from orchestrator import edits
from orchestrator.bodies.asking import AtOnce, manifest_now, reads_of, snapshot_of
from orchestrator.clock import Clock, SystemClock
from orchestrator.contracts.schemas import parse_json
from orchestrator.errors import BudgetExceeded, OrchError, StoreError, UsageError
from orchestrator.fan_out import collector
from orchestrator.gates import answer, answer_due, look_at
from orchestrator.graph import Graph, StepNode, downstream, upstream
from orchestrator.ids import canonical_json
from orchestrator.inputs import check_inputs, given_inputs
from orchestrator.output import too_large
from orchestrator.project import Project
from orchestrator.providers.registry import Providers
from orchestrator.settings import Settings
from orchestrator.spec import SENSITIVITY_RANK, Decided
from orchestrator.staleness import earlier_of, stale_reasons
from orchestrator.step import Services, check_models, error_record, run_step
from orchestrator.store import open_store
from orchestrator.store.records import AdoptPlan, Kept, NewRun, NewStep, RunBusy
from orchestrator.store.scrub import Scrubber
from orchestrator.values import (
    ArtifactVersion,
    Dispatch,
    ErrorRecord,
    Event,
    Mode,
    NewArtifact,
    RunRow,
    RunStatus,
    Scope,
    StepRow,
    StepState,
)

HEARTBEAT_SECONDS = 10.0
STOPPED = "stopped"
LOOK_SECONDS = 1.0  # how long an answer given elsewhere may wait for the loop to see it


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a new run is given. `author` names who the inputs come from; money is in USD."""

    inputs: Mapping[str, Any]
    message: str | None = None
    session: str | None = None
    author: str = "customer"
    cap_usd: Decimal | None = None


@asynccontextmanager
async def open_services(
    project: Project,
    settings: Settings,
    *,
    db: str | None = None,
    scope: Scope | None = None,
    listener: Callable[[Event], None] = lambda event: None,
    clock: Clock | None = None,
    providers: Providers | None = None,
    observer: Callable[[str], None] | None = None,
) -> AsyncIterator[Services]:
    """Open the store and the providers of a project, and close them whatever happens.

    `observer` hears of each write of the store, before and after (see `open_store`).
    """
    clock = clock or SystemClock()
    hear = _without_secrets(listener, settings.secret_values())
    store = open_store(
        db or settings.db,
        scope or Scope(),
        clock=clock,
        secrets=settings.secret_values(),
        observer=observer,
        waiting=_said_by(asyncio.get_running_loop(), hear),
    )
    providers = providers or Providers(project, settings)
    try:
        worker = await store.register_worker()
        yield Services(project, settings, store, providers, providers.prices(), clock, hear, worker)
    finally:
        await providers.close()
        await store.close()


def _said_by(loop: asyncio.AbstractEventLoop, hear: Callable[[Event], None]) -> Callable[[float], None]:
    """Turns a long wait for the database, met in the thread that writes, into an event on the loop."""

    def waiting(seconds: float) -> None:
        text = f"the database is locked by another process; waiting for it, up to {seconds:.0f} s more"
        event = Event("store.waiting", data={"message": text, "seconds": round(seconds, 1)})
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(hear, event)

    return waiting


def _without_secrets(listener: Callable[[Event], None], secrets: Sequence[str]) -> Callable[[Event], None]:
    """A listener that hears nothing of a configured key, whoever has put it into an answer or an error (S29)."""
    if not secrets:
        return listener
    scrubber = Scrubber(secrets)
    return lambda event: listener(replace(event, data=scrubber.data(event.data)))


async def start_run(services: Services, graph: Graph, options: RunOptions) -> RunRow:
    """Create a run and go on until nothing can. Raises UsageError for bad inputs, ConfigError for a missing model."""
    artifacts = check_inputs(graph, options.inputs, options.author)
    hosts = check_models(services, graph)
    budget = graph.spec.budget
    run, dispatches = await services.store.create_run(
        NewRun(
            pipeline=graph.name,
            file=graph.file,
            graph_digest=graph.digest,
            graph_json=_spec_json(graph),
            session=options.session,
            message=options.message,
            author=services.settings.user,
            inputs=artifacts,
            defaulted=frozenset(name for name in artifacts if name not in options.inputs),
            steps=tuple(_new_steps(graph)),
            cap_usd=options.cap_usd if options.cap_usd is not None else (budget.usd if budget else None),
            on_exceed=budget.on_exceed if budget else "pause",
            unpriced=budget.unpriced if budget else "refuse",  # bites only where the command sets a cap
        ),
        services.worker,
        AtOnce(graph, services.worker),
    )
    return await _drive(services, graph, run, dispatches, hosts)


async def start_step(services: Services, graph: Graph, name: str, given: Mapping[str, NewArtifact]) -> RunRow:
    """Run one step alone, on values for what it reads; inputs that are not given have their defaults.

    Raises UsageError for an input without a value, ConfigError for a missing model.
    """
    step = graph.steps[name]
    inputs = [read.name for read in step.reads if read.kind == "input" and read.name not in given]
    only = replace(graph, inputs={read: graph.inputs[read] for read in inputs})
    values = {**check_inputs(only, {}), **given}
    single = replace(graph, steps={name: replace(step, parents=())}, children={name: ()})
    hosts = check_models(services, single)
    budget = graph.spec.budget
    run, dispatches = await services.store.create_run(
        NewRun(
            pipeline=graph.name,
            file=graph.file,
            graph_digest=graph.digest,
            graph_json=_spec_json(graph),
            session=None,
            message=None,
            author=services.settings.user,
            inputs=values,
            defaulted=frozenset(inputs),
            steps=(
                *(NewStep(read, None, "input", graph.rank[read]) for read in values),
                NewStep(name, None, step.kind, graph.rank[name]),
            ),
            cap_usd=budget.usd if budget else None,
            on_exceed=budget.on_exceed if budget else "pause",
            unpriced=budget.unpriced if budget else "refuse",
        ),
        services.worker,
        AtOnce(single, services.worker),
    )
    return await _drive(services, single, run, dispatches, hosts)


async def resume_run(
    services: Services,
    graph: Graph,
    run: RunRow,
    *,
    cap_usd: Decimal | None = None,
    take_over: bool = False,
    tools: Mapping[str, str] | None = None,
    settle: Mapping[str, str] | None = None,
) -> RunRow:
    """Go on with the same run: finished steps never run again, interrupted ones go on in their chain.

    `tools` answers tools in doubt (`retry`, `done:JSON`, `tell`), `settle` says which version stands of a step that was
    edited and made anew (`head`, `draft`, `draft:FIELD,…`; see `edits.answer`). Raises UsageError where the run is live
    elsewhere or its pipeline lost a step.
    """
    no_bench(run)
    hosts = check_models(services, graph)
    await _check_same_steps(services, graph, run)
    if not take_over:
        await services.store.check_free(run.id, services.worker)
    if cap_usd is not None:
        await services.store.set_cap(run.id, cap_usd)
    plan = AdoptPlan(tuple(_new_steps(graph)), graph.digest, _spec_json(graph))
    for call_id, said in (tools or {}).items():
        await _decide(services, run, call_id, said)
    for step, which in (settle or {}).items():
        await edits.settle(services, graph, run, step, which)
    await answer_due(services, graph, run)
    dispatches = await services.store.adopt_run(run.id, services.worker, plan, take_over=take_over)
    return await _drive(services, graph, await services.store.run(run.id), dispatches, hosts)


async def revise(
    services: Services, graph: Graph, run: RunRow, name: str, comment: str, *, item: str | None = None
) -> RunRow:
    """Have a finished step made anew as a person asks, then go on with the run: its readers become stale, and wait.

    Where nothing has changed since, the step's thread goes on; else it begins anew from the present (S05). Raises
    UsageError for a step that makes no model calls, has no version, or has not come to an end.
    """
    step = graph.steps.get(name)
    if step is None:
        raise UsageError(f"{graph.name} has no step {name}", hint=f"steps: {', '.join(graph.steps)}")
    if step.for_each is not None and item is None:
        hint = f"name one: orch revise {run.number}/{name}/KEY"
        raise UsageError(f"{name} is made for each entry of a list", hint=hint, code="not_revisable")
    if not step.asks:
        raise UsageError(
            f"{name} is plain Python, which no word can change",
            hint=f"give it another value: orch edit {run.number}/{name}",
            code="not_revisable",
        )
    if not comment.strip():
        raise UsageError("the comment is empty", hint="say what should change")
    no_bench(run)
    check_models(services, graph)
    await _check_same_steps(services, graph, run)
    await services.store.check_free(run.id, services.worker)
    await services.store.artifact(run.id, name, item)
    mode: Mode = "follow_up" if step.kind == "llm" else "fresh"
    await services.store.redo(run.id, name, item, mode, comment, services.settings.user)
    return await resume_run(services, graph, run)


async def refresh_run(
    services: Services,
    graph: Graph,
    run: RunRow,
    *,
    steps: Collection[str] | None = None,
    force: bool = False,
    take_over: bool = False,
) -> RunRow:
    """Run what is stale in a run again, and what is below it as far as its inputs really change.

    `steps` are the only ones to begin with (default: all that are stale, and what has not run or failed), items among
    them as `step/key`; `force` runs them whether they are stale or not. Where nothing is stale, nothing happens. Raises
    what `resume_run` raises.
    """
    no_bench(run)
    hosts = check_models(services, graph)
    await _check_same_steps(services, graph, run)
    if not take_over:
        await services.store.check_free(run.id, services.worker)
    await services.store.take_newest(run.id, earlier_of(graph))
    rows = await services.store.steps(run.id)
    stale = stale_reasons(graph, rows)
    named = [row for row in rows if row.item and not row.retired and row.label in (steps or ())]
    # An item that failed is missing in its step's value, so the step is entered; it looks at each of its items.
    missing = {row.name for row in named if row.status == "failed"}
    wanted = [name for name in graph.steps if (steps is None or name in steps) and (force or name in stale)]
    first = [name for name in graph.steps if name in wanted or name in missing]
    items = [row for row in named if row.name not in first and (force or row.label in stale)]
    plan = AdoptPlan(
        tuple(_new_steps(graph)),
        graph.digest,
        _spec_json(graph),
        again={(n, key): "fresh" if force and (key or n in wanted) else "" for n, key in _keys(first, items)},
        below=frozenset((name, "") for name in downstream(graph, [*first, *(row.name for row in items)])),
    )
    dispatches = await services.store.adopt_run(run.id, services.worker, plan, take_over=take_over)
    return await _drive(services, graph, await services.store.run(run.id), dispatches, hosts)


async def decide(
    services: Services,
    graph: Graph,
    run: RunRow,
    gate: str,
    decision: Decided,
    *,
    comment: str = "",
    at: str,
    item: str | None = None,
) -> RunRow:
    """Answer a gate for what has the digest `at`, and go on with the run unless that has ended it or it is live
    elsewhere. Raises UsageError where the gate does not wait, or shows something else by now."""
    shown = await look_at(services, graph, run, gate, item)
    by = services.settings.user
    answered = await answer(services, graph, run, shown, decision, by=by, comment=comment, at=at)
    with contextlib.suppress(RunBusy):
        if not answered.ended:
            return await resume_run(services, graph, await services.store.run(run.id))
    return await services.store.run(run.id)


def _keys(steps: Sequence[str], items: Sequence[StepRow]) -> list[tuple[str, str]]:
    return [*((name, "") for name in steps), *((row.name, row.item or "") for row in items)]


async def keep_step(
    services: Services, graph: Graph, run: RunRow, name: str, note: str, *, item: str | None = None
) -> ArtifactVersion:
    """Accept the current version of a step, or of one item of it, as it is, whatever has changed above it: it is not
    stale any more. A step with items is kept with all of them.

    Raises UsageError where the step has no version or is under way.
    """
    no_bench(run)
    step = graph.steps.get(name)
    if step is None:
        raise UsageError(f"{graph.name} has no step {name}", hint=f"steps: {', '.join(graph.steps)}")
    if step.gate is not None:
        raise UsageError(
            f"{name} is a gate: only an answer opens it", hint="`orch refresh` lets it ask about what changed"
        )
    node = collector(step) if step.for_each is not None and item is None else step
    seen = await snapshot_of(services.store, run.id, node, item)
    if seen.head is None:
        label = f"{name}/{item}" if item else name
        raise UsageError(
            f"{label} has no version that could be kept", hint=f"`orch show {run.number}` says what there is"
        )
    for key in seen.head.field_hashes if node is not step else ():
        await keep_step(services, graph, run, name, note, item=key)
    now = manifest_now(node, seen)
    kept = Kept(name, item, seen.head.id, now, reads_of(node, item, seen, now), services.settings.user, note)
    await services.store.keep(run.id, kept)
    return seen.head


async def rerun(
    services: Services,
    graph: Graph,
    run: RunRow,
    from_steps: Sequence[str],
    *,
    only: bool = False,
    until: Sequence[str] = (),
    inputs: Mapping[str, Any] | None = None,
) -> RunRow:
    """A child run: the named steps and all below them run again, everything else is shared by reference.

    `only`: just the named steps. `until`: of all these, only what those steps need, themselves included. `inputs` have
    other values in the child, and what reads them runs again, with all below. What is shared although something above
    it is new is stale in the child; a refresh runs it. Raises UsageError for an unknown step or input.
    """
    no_bench(run)
    for name in (*from_steps, *until):
        if name not in graph.steps:
            raise UsageError(f"{graph.name} has no step {name}", hint=f"steps: {', '.join(graph.steps)}")
    given = given_inputs(graph, inputs or {}, services.settings.user)
    hosts = check_models(services, graph)
    again = set(from_steps) | (set() if only else downstream(graph, from_steps)) | downstream(graph, given)
    again &= upstream(graph, until) | set(until) if until else again
    every = await services.store.steps(run.id)
    rows = {row.name: row for row in every if row.item is None}
    again |= _ask_again(graph, every, again)  # an approval that is not given cannot be shared, whatever `until` says
    new = again | given.keys()
    shared = [_shared(step, rows.get(step.name), step.name in new) for step in _new_steps(graph)]
    steps = tuple(one for step in shared for one in (step, *_shared_items(step, every)))
    child, dispatches = await services.store.create_run(
        NewRun(
            pipeline=graph.name,
            file=graph.file,
            graph_digest=graph.digest,
            graph_json=_spec_json(graph),
            session=run.session,
            message=run.message,
            author=services.settings.user,
            inputs=given,
            defaulted=frozenset(row.name for row in rows.values() if row.defaulted) - given.keys(),
            steps=steps,
            cap_usd=run.cap_usd,
            on_exceed=run.on_exceed,
            unpriced=run.unpriced,
            parent_id=run.id,
        ),
        services.worker,
        AtOnce(graph, services.worker),
    )
    return await _drive(services, graph, child, dispatches, hosts)


async def edit_artifact(
    services: Services,
    graph: Graph,
    run: RunRow,
    name: str,
    *,
    item: str | None = None,
    value: Any,
    base_version: int,
    origin: Literal["person", "import"] = "person",
    restored: ArtifactVersion | None = None,
) -> ArtifactVersion:
    """A person's new version of a step's or input's value, checked against its contract.

    `restored` is the earlier version whose value this is again: what was found out about that value holds again too.
    Raises UsageError where the value breaks the contract or the head is not `base_version` any more.
    """
    no_bench(run)
    node = graph.steps.get(name) or graph.inputs.get(name)
    if node is None:
        raise UsageError(f"{graph.name} has no step or input {name}", hint=f"it has {', '.join(graph.rank)}")
    if name in earlier_of(graph):
        raise UsageError(
            f"{name} is what an earlier run made, so it is not edited here",
            hint=f"edit it in that run, then: orch refresh {run.number}",
        )
    if item is None and isinstance(node, StepNode) and node.for_each is not None:
        hint = f"edit one of its items, {name}/KEY, or its list, {node.for_each.list_name}"
        raise UsageError(f"{name} is made for each entry of a list: it has no value of its own", hint=hint)
    if isinstance(node, StepNode) and node.gate is not None:
        raise UsageError(f"{name} is a gate: its decision is given, not written", hint="orch approve, or orch reject")
    contract = node.contract
    try:
        data = contract.normalise(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", hint=f"the contract stands in {contract.place}") from error
    faults = contract.faults(data)
    if faults:
        lines = "; ".join(f"{fault.path} {fault.rule}, got {fault.value!r}" for fault in faults[:5])
        raise UsageError(f"{name} does not fit its contract {contract.name}: {lines}", code="invalid_edit")
    head = (await services.store.artifact(run.id, name, item)).version
    body = contract.dump(data)
    excess = too_large(contract, body)
    if excess is not None:
        hint = f"shorten it, or raise max_tokens of the contract {contract.name}"
        raise UsageError(f"{name} is {excess}", hint=hint, code="too_large")
    new = NewArtifact(
        contract=contract.name,
        body=body,
        author=services.settings.user,
        origin=origin,
        sensitivity=max(head.sensitivity, (restored or head).sensitivity, key=lambda level: SENSITIVITY_RANK[level]),
        field_hashes=contract.field_hashes(body),
        facts=restored.facts if restored else {},
        guards=restored.guards if restored else (),
    )
    return await services.store.edit(run.id, name, item, base_version, new)


# --- the loop over steps ----------------------------------------------------------------------------------------------


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


async def _drive(
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
    message = f"the inputs of {stale} were edited again while it ran" if stale else "some steps did not run"
    return "paused", ErrorRecord("moved" if stale else "unfinished", message, "orch resume runs them", 4)


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


def no_bench(run: RunRow) -> None:
    """Raises UsageError for a bench: its samples are results, and nothing of it goes on."""
    if run.kind == "bench":
        raise UsageError(
            f"run {run.number} is a bench of run {run.parent_number}: it is looked at, and no more",
            hint=f"orch bench {run.number} shows it; --promote SAMPLE takes a sample into run {run.parent_number}",
        )


# --- rows of a new run ------------------------------------------------------------------------------------------------


def _spec_json(graph: Graph) -> bytes:
    """The pipeline as declared, for the record: what was not given is not written."""
    return graph.spec.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _new_steps(graph: Graph) -> list[NewStep]:
    inputs = [
        NewStep(name, None, "input", graph.rank[name], earlier=node.earlier) for name, node in graph.inputs.items()
    ]
    return inputs + [
        NewStep(step.name, None, "map" if step.for_each else step.kind, graph.rank[step.name], step.parents)
        for step in graph.steps.values()
    ]


def _shared_items(step: NewStep, rows: Sequence[StepRow]) -> list[NewStep]:
    """The items of a step that is shared: those that its value names."""
    there = {
        key for row in rows if row.name == step.name and not row.item and row.head for key in row.head.field_hashes
    }
    return [
        NewStep(step.name, row.item, row.kind, step.order, (), row.head.id, row.head.version, entry=row.entry)
        for row in rows
        if step.kind == "map" and step.head and row.name == step.name and row.head and row.item in there
    ]


def _ask_again(graph: Graph, every: Sequence[StepRow], again: Collection[str]) -> set[str]:
    """The gates whose answer a child run cannot share, because it is none or not for what stands now (S15), and all
    that waits for them."""
    stale, asking = stale_reasons(graph, every), set()
    rows = {row.name: row for row in every if row.item is None}
    for node in graph.steps.values():
        row = rows.get(node.name)
        if node.gate is None or node.name in again or row is None:
            continue
        opened = row.decision == "approve" or (row.decision == "reject" and node.gate.then == "go_on")
        if not opened or row.status != "succeeded" or node.name in stale:
            asking.add(node.name)
    return asking | downstream(graph, asking)


def _shared(step: NewStep, row: StepRow | None, again: bool) -> NewStep:
    if row is None or row.head is None or (row.kind == "map") != (step.kind == "map"):
        return step
    last = max(row.head.version, row.draft.version if row.draft else 0)
    return replace(step, last_version=last) if again else replace(step, head=row.head.id, last_version=last)


async def _check_same_steps(services: Services, graph: Graph, run: RunRow) -> None:
    """A run goes on under the pipeline file as it is now; a step it has begun must still be there."""
    known = {step.name: step.kind == "map" for step in await services.store.states(run.id) if step.item is None}
    gone = [name for name in known if name not in graph.rank]
    if gone:
        raise UsageError(
            f"run {run.number} has {', '.join(gone)}, which {graph.file} does not have any more",
            hint="put it back, or start a new run",
            code="steps_removed",
        )
    other = [name for name, step in graph.steps.items() if known.get(name, bool(step.for_each)) != bool(step.for_each)]
    if other:
        what = "is now made for each entry of a list" if graph.steps[other[0]].for_each else "has no for_each any more"
        raise UsageError(
            f"{other[0]} {what}, and run {run.number} was begun with the other",
            hint="put it back, or start a new run",
            code="steps_changed",
        )
    new = [name for name in graph.inputs if name not in known]
    if new:
        raise UsageError(
            f"{graph.file} now has the input {', '.join(new)}, which run {run.number} was not given",
            hint="start a new run",
            code="inputs_added",
        )


async def _decide(services: Services, run: RunRow, call_id: str, answer: str) -> None:
    kind, _, output = answer.partition(":")
    if call_id.startswith("once:") and (kind == "retry" or (kind == "done" and output)):
        key = call_id.removeprefix("once:")
        value = canonical_json(_json(call_id, output), indent=None) if kind == "done" else None
        await services.store.decide_effect(run.id, key, "retry" if kind == "retry" else "done", value)
        return
    if call_id.startswith("once:"):
        raise UsageError(f"--tool {call_id}={answer} is not an answer", hint="an effect takes retry or done:JSON")
    if kind == "retry" or kind == "tell":
        await services.store.decide_tool(run.id, call_id, "retry" if kind == "retry" else "tell", None)
    elif kind == "done" and output:
        await services.store.decide_tool(run.id, call_id, "done", output)
    else:
        raise UsageError(f"--tool {call_id}={answer} is not an answer", hint="retry, done:JSON or tell")


def _json(call_id: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise UsageError(f"--tool {call_id}=done: what follows is not JSON: {error}") from error


__all__ = [
    "RunOptions",
    "Services",
    "check_inputs",
    "check_models",
    "edit_artifact",
    "keep_step",
    "open_services",
    "outcome",
    "refresh_run",
    "rerun",
    "resume_run",
    "revise",
    "start_run",
]
