"""Runs: start, resume, refresh, revise, decide. Each says what is to run; `loop.drive` runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator import edits
from orchestrator.bodies.asking import AtOnce
from orchestrator.building.choices import with_models
from orchestrator.clock import Clock, SystemClock
from orchestrator.contracts.schemas import parse_json
from orchestrator.errors import UsageError
from orchestrator.fitness import check_models
from orchestrator.gates import answer, answer_due, look_at
from orchestrator.graph import Graph, downstream
from orchestrator.ids import canonical_json
from orchestrator.inputs import check_inputs
from orchestrator.loop import drive
from orchestrator.mcp_client import McpServers
from orchestrator.preconditions import check_same_steps, known_step, no_bench
from orchestrator.project import Project
from orchestrator.providers.endpoints import Endpoints
from orchestrator.providers.ground import common_ground
from orchestrator.providers.limits import Limits
from orchestrator.providers.registry import Providers
from orchestrator.run_rows import new_steps, spec_json
from orchestrator.settings import Settings, is_on
from orchestrator.spec import Decided
from orchestrator.staleness import earlier_of, stale_reasons
from orchestrator.step import Services
from orchestrator.store import open_store
from orchestrator.store.records import AdoptPlan, Approval, NewRun, NewStep, RunBusy, ToolAnswer
from orchestrator.store.scrub import Scrubber
from orchestrator.values import (
    Event,
    Mode,
    NewArtifact,
    RunRow,
    Scope,
    StepRow,
)

if TYPE_CHECKING:
    from orchestrator.trace.telemetry import Telemetry


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
    telemetry = _telemetry(settings)
    hear = _without_secrets(_both(listener, telemetry.hear) if telemetry else listener, settings.secret_values())
    store = open_store(
        db or settings.db,
        scope or Scope(),
        clock=clock,
        secrets=settings.secret_values(),
        observer=observer,
        waiting=_said_by(asyncio.get_running_loop(), hear),
    )
    providers = providers or Providers(project, settings)
    providers = telemetry.seen(providers) if telemetry else providers
    mcp = McpServers(project, settings)
    try:
        worker = await store.register_worker()
        limits = Limits(settings.limits, ground=common_ground(os.environ), tenant=store.scope.tenant, clock=clock)
        endpoints = Endpoints(limits)
        yield Services(project, settings, store, providers, providers.prices(), clock, hear, worker, endpoints, mcp=mcp)
    finally:
        await mcp.close()
        await providers.close()
        await store.close()
        if telemetry is not None:
            await asyncio.to_thread(telemetry.finish)


def _telemetry(settings: Settings) -> Telemetry | None:
    """Spans of what happens here, where they are wanted; nothing of them is loaded otherwise."""
    if not is_on(settings.get("ORCH_OTEL")):
        return None
    from orchestrator.trace import telemetry

    return telemetry.opened(settings.get, settings.secret_values())


def _both(one: Callable[[Event], None], other: Callable[[Event], None]) -> Callable[[Event], None]:
    def hear(event: Event) -> None:
        other(event)
        one(event)

    return hear


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
            graph_json=spec_json(graph),
            session=options.session,
            message=options.message,
            author=services.settings.user,
            inputs=artifacts,
            defaulted=frozenset(name for name in artifacts if name not in options.inputs),
            steps=tuple(new_steps(graph)),
            cap_usd=options.cap_usd if options.cap_usd is not None else (budget.usd if budget else None),
            on_exceed=budget.on_exceed if budget else "pause",
            unpriced=budget.unpriced if budget else "refuse",  # bites only where the command sets a cap
        ),
        services.worker,
        AtOnce(graph, services.worker),
    )
    return await drive(services, graph, run, dispatches, hosts)


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
            graph_json=spec_json(graph),
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
    return await drive(services, single, run, dispatches, hosts)


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

    `tools` answers tools in doubt (`retry`, `done:JSON`, `tell`) and tools that a person must allow (`approve`,
    `reject:WHY`), `settle` says which version stands of a step that was
    edited and made anew (`head`, `draft`, `draft:FIELD,…`; see `edits.answer`). Raises UsageError where the run is live
    elsewhere or its pipeline lost a step.
    """
    no_bench(run)
    graph = with_models(graph, services.settings, run.models)
    hosts = check_models(services, graph)
    await check_same_steps(services, graph, run)
    if not take_over:
        await services.store.check_free(run.id, services.worker)
    if cap_usd is not None:
        await services.store.set_cap(run.id, cap_usd)
    plan = AdoptPlan(tuple(new_steps(graph)), graph.digest, spec_json(graph))
    for call_id, said in (tools or {}).items():
        await _decide(services, run, call_id, said)
    for step, which in (settle or {}).items():
        await edits.settle(services, graph, run, step, which)
    await answer_due(services, graph, run)
    dispatches = await services.store.adopt_run(run.id, services.worker, plan, take_over=take_over)
    return await drive(services, graph, await services.store.run(run.id), dispatches, hosts)


async def revise(
    services: Services, graph: Graph, run: RunRow, name: str, comment: str, *, item: str | None = None
) -> RunRow:
    """Have a finished step made anew as a person asks, then go on with the run: its readers become stale, and wait.

    Where nothing has changed since, the step's thread goes on; else it begins anew from the present (S05). Raises
    UsageError for a step that makes no model calls, has no version, or has not come to an end.
    """
    step = known_step(graph, name)
    name = step.name
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
    graph = with_models(graph, services.settings, run.models)
    check_models(services, graph)
    await check_same_steps(services, graph, run)
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
    graph = with_models(graph, services.settings, run.models)
    hosts = check_models(services, graph)
    await check_same_steps(services, graph, run)
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
        tuple(new_steps(graph)),
        graph.digest,
        spec_json(graph),
        again={(n, key): "fresh" if force and (key or n in wanted) else "" for n, key in _keys(first, items)},
        below=frozenset((name, "") for name in downstream(graph, [*first, *(row.name for row in items)])),
    )
    dispatches = await services.store.adopt_run(run.id, services.worker, plan, take_over=take_over)
    return await drive(services, graph, await services.store.run(run.id), dispatches, hosts)


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


async def _decide(services: Services, run: RunRow, call_id: str, answer: str) -> None:
    kind, _, output = answer.partition(":")
    if kind in ("approve", "reject"):
        said: Approval = "approve" if kind == "approve" else "reject"
        word = ToolAnswer(frozenset([call_id]), said, services.settings.user, output.strip())
        await services.store.answer_tools(run.id, word)
        return
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
