"""The walk of one step, top to bottom: snapshot → context → thread → chain → commit.

`run_step` runs hops 6 to 9 and nothing else. It ends in exactly one transaction that says how the step ended; a step
that was interrupted is entered here again, with the journal its former owner left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from orchestrator.chain import Chain, ChainStopped, Endpoints, Finished, Policy, ToolInDoubt, Verdict, count_reasks
from orchestrator.clock import Clock
from orchestrator.context import build_context
from orchestrator.errors import BudgetExceeded, ConfigError, OrchError, StepFailed, StoreError
from orchestrator.facts import Dropped, check_facts
from orchestrator.graph import Graph, Read, StepNode
from orchestrator.ids import keyed_hash, synthetic_thread_id, variable
from orchestrator.output import feedback, judge, run_checks, schema_faults
from orchestrator.project import Project
from orchestrator.providers.base import Provider
from orchestrator.providers.prices import Prices
from orchestrator.providers.registry import Providers
from orchestrator.settings import Settings
from orchestrator.spec import MISSING, SENSITIVITY_RANK, Sensitivity
from orchestrator.store import Store
from orchestrator.store.records import Claim, Fenced, Journal, ThreadJournal
from orchestrator.thread import compose, explain, manifest
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    CallRow,
    Commit,
    CommitResult,
    Context,
    Dispatch,
    DoneCall,
    ErrorRecord,
    Event,
    Manifest,
    NewArtifact,
    OutputFormat,
    Prompt,
    ReadRecord,
    Reply,
    RunRow,
    SentCall,
    Snapshot,
    ThreadRecord,
    ToolCall,
    ToolOutput,
    Usage,
)
from orchestrator.workers import run_blocking

RENDER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Services:
    """What the effects need, built once per command by `engine.open_services`."""

    project: Project
    settings: Settings
    store: Store
    providers: Providers
    prices: Prices
    clock: Clock
    listener: Callable[[Event], None]
    worker: str
    endpoints: Endpoints = field(default_factory=Endpoints)


@dataclass(frozen=True, slots=True)
class Walk:
    """One dispatch on its way: everything the hops below share."""

    services: Services
    graph: Graph
    run: RunRow
    step: StepNode
    dispatch: Dispatch

    def emit(self, kind: str, /, **data: Any) -> None:
        self.services.listener(Event(kind, self.step.name, self.dispatch.item, data))


async def run_step(services: Services, graph: Graph, run: RunRow, dispatch: Dispatch) -> tuple[Dispatch, ...]:
    """Run one attempt to its end; gives the dispatches that its commit made ready.

    A step's own failure is recorded, not raised. Raises BudgetExceeded (where the run pauses on it) and StoreError.
    """
    walk = Walk(services, graph, run, graph.steps[dispatch.step], dispatch)
    try:
        async with asyncio.timeout(walk.step.timeout):
            return await (_model_step(walk) if walk.step.kind == "llm" else _python_step(walk))
    except Fenced:
        return ()
    except TimeoutError:
        limit = StepFailed(
            f"{walk.step.name} ran longer than its timeout of {walk.step.timeout:g} s",
            hint="raise `timeout` on the step; what was paid is kept, `orch resume` goes on",
            code="timeout",
        )
        return await _failed(walk, limit, None)
    except ToolInDoubt as doubt:
        return await _waiting(walk, doubt)
    except ChainStopped as stopped:
        return await _failed(walk, stopped.error, stopped.done)
    except StoreError:
        raise
    except OrchError as error:
        return await _failed(walk, error, None)


def check_models(services: Services, graph: Graph, *, with_key: bool = True) -> tuple[str, ...]:
    """Every provider the graph needs can be opened; gives the base URLs it sends to. Raises ConfigError.

    `with_key=False` is for looking only: what would be sent can be shown without a key.
    """
    opened = services.providers.get if with_key else services.providers.offline
    hosts: dict[str, None] = {}
    for step in graph.steps.values():
        if step.kind == "llm":
            if step.model is None:
                raise ConfigError(
                    f"{step.name} has no model",
                    hint="set ORCH_MODEL=provider:model, for instance ORCH_MODEL=openai:gpt-6-luna",
                )
            hosts[opened(step.model.provider).traits.base_url] = None
    return tuple(hosts)


# --- a step that asks a model -----------------------------------------------------------------------------------------


async def _model_step(walk: Walk) -> tuple[Dispatch, ...]:
    services, step, dispatch = walk.services, walk.step, walk.dispatch
    snapshot = await _snapshot(walk)
    now = _manifest(step, snapshot)
    journal = await services.store.journal(dispatch.attempt_id) if dispatch.interrupted else None
    if journal is not None and journal.manifest is not None and journal.manifest.inputs_hash != now.inputs_hash:
        return await _model_step(await _restart(walk, journal.manifest, now))
    assert step.model is not None
    provider = services.providers.get(step.model.provider)
    walk.emit("step.started", attempt=dispatch.number, kind="llm", model=f"{step.model.provider}:{step.model.model}")
    claim = _claim(walk, snapshot, now)
    recorded = journal.threads[0] if journal is not None and journal.threads else None
    if recorded:
        await _begin(walk, claim)
    try:
        context = build_context(
            walk.graph,
            step,
            snapshot,
            may_see=provider.traits.may_see,
            provider_name=provider.traits.name,
            window=services.prices.window(step.model.provider, step.model.model),
        )
    except OrchError:
        if not recorded:
            await _begin(walk, claim)
        raise
    thread = _recorded_thread(recorded) if recorded else await _new_thread(walk, provider, context, snapshot)
    recorder = StoreRecorder(services.store, dispatch, None if recorded else replace(claim, thread=thread))
    chain = Chain(
        provider=provider,
        thread=thread,
        policy=_policy(walk),
        check=_checker(walk, context, snapshot),
        recorder=recorder,
        prices=services.prices,
        endpoints=services.endpoints,
        clock=services.clock,
        emit=services.listener,
        calls=list(recorded.calls) if recorded else [],
        tool_rows={(row.call_id, row.tool_call.call_id): row for row in journal.tools} if journal else {},
    )
    finished = await chain.run()
    base = journal.base_head if journal is not None and recorded else claim.base_head
    return await _commit_model(walk, finished, context, base)


async def _snapshot(walk: Walk) -> Snapshot:
    step = walk.step
    return await walk.services.store.snapshot(
        walk.run.id,
        step.name,
        walk.dispatch.item,
        [read.name for read in step.reads],
        step.conversation.messages if step.conversation else 0,
    )


def _manifest(step: StepNode, snapshot: Snapshot) -> Manifest:
    return manifest(step, {name: artifact.version for name, artifact in snapshot.artifacts.items()})


async def _restart(walk: Walk, old: Manifest, new: Manifest) -> Walk:
    """The recorded inputs no longer hold: a new attempt on a new thread, and why (S06)."""
    reason = "; ".join(explain(old, new))
    fresh = await walk.services.store.restart(walk.dispatch, reason)
    if fresh is None:
        raise Fenced
    walk.emit("step.rebuilt", reason=reason)
    return replace(walk, dispatch=fresh)


def _claim(walk: Walk, snapshot: Snapshot, now: Manifest) -> Claim:
    return Claim(
        dispatch=walk.dispatch,
        worker=walk.services.worker,
        manifest=now,
        reads=tuple(_read_record(read, snapshot, now) for read in walk.step.reads),
        base_head=snapshot.head.id if snapshot.head else None,
    )


def _read_record(read: Read, snapshot: Snapshot, now: Manifest) -> ReadRecord:
    found = snapshot.artifacts.get(read.name)
    value = next(entry.hash for entry in now.entries if entry.kind == "read" and entry.name == read.name)
    version: ArtifactVersion | None = found.version if found else None
    return ReadRecord(
        read.name, version.id if version else None, version.version if version else None, read.fields, value
    )


async def _begin(walk: Walk, claim: Claim) -> None:
    """Claim the attempt before anything of it is written or sent. Raises Fenced where the dispatch is late."""
    if not await walk.services.store.claim(claim):
        raise Fenced


async def _new_thread(walk: Walk, provider: Provider, context: Context, snapshot: Snapshot) -> ThreadRecord:
    assert walk.step.model is not None
    return ThreadRecord(
        id=synthetic_thread_id(walk.run.session_id),
        name="main",
        provider=provider.traits.name,
        model=walk.step.model.model,
        base_url=provider.traits.base_url,
        prompt=await compose_off_loop(walk.graph, walk.step, context, snapshot),
        settings={"effort": walk.step.model.effort, "max_output_tokens": walk.step.model.max_output_tokens},
        left_out=context.left_out,
    )


async def compose_off_loop(graph: Graph, step: StepNode, context: Context, snapshot: Snapshot) -> Prompt:
    """`compose` in a thread, with a limit: a template is trusted code, but it may be slow or never end (S22)."""
    try:
        return await asyncio.wait_for(run_blocking(compose, graph, step, context, snapshot), RENDER_SECONDS)
    except TimeoutError as error:
        raise StepFailed(
            f"the template of {step.name} took longer than {RENDER_SECONDS:g} s to render; nothing was sent",
            hint="look for a loop in the template; long texts belong into artifacts, which are not rendered",
            code="render_timeout",
            place=step.template.place if step.template else step.place,
        ) from error


def _recorded_thread(thread: ThreadJournal) -> ThreadRecord:
    return ThreadRecord(
        thread.id,
        thread.name,
        thread.provider,
        thread.model,
        thread.base_url,
        thread.prompt,
        thread.settings,
        thread.left_out,
    )


def output_format(step: StepNode) -> OutputFormat | None:
    """The schema a provider is asked to follow; None for text contracts."""
    schema = step.contract.sent_schema()
    return None if schema is None else OutputFormat(step.contract.name.replace(".", "_"), schema)


def _policy(walk: Walk) -> Policy:
    step, services = walk.step, walk.services
    assert step.model is not None
    scope = services.store.scope
    return Policy(
        model=step.model.model,
        step=step.name,
        max_output_tokens=step.model.max_output_tokens,
        effort=step.model.effort,
        output=output_format(step),
        tools=step.tools,
        reasks=step.reasks,
        call_timeout=step.call_timeout,
        deadline=services.clock.monotonic() + step.timeout,
        cache_key=keyed_hash(services.store.secret_key(), scope.tenant, walk.run.session_id),
        unpriced=walk.run.unpriced,
        capped=walk.run.cap_usd is not None,
    )


Checker = Callable[[Reply, Sequence[CallRow]], Awaitable[Verdict]]


def _checker(walk: Walk, context: Context, snapshot: Snapshot) -> Checker:
    """What makes a reply acceptable, in this order: form and schema, the customer's facts, the step's own checks."""
    contract, step = walk.step.contract, walk.step
    reads = read_values(step, snapshot)

    async def check(reply: Reply, calls: Sequence[CallRow]) -> Verdict:
        judged = judge(reply, contract)
        if judged.faults:
            return Verdict(faults=judged.faults, feedback=feedback(judged.faults, contract.form))
        facts = check_facts(contract, judged.value, context.statements, _sources(step, snapshot))
        # One re-ask asserts it; after that, or with none left, the value is good without it: it is null already.
        asserted = count_reasks(calls) >= step.reasks or any(
            c.done and "customer_fact:" in c.done.reason for c in calls
        )
        faults = () if asserted else facts.faults
        faults = (*faults, *schema_faults(contract, facts.value)) or await run_checks(
            step.checks, facts.value, reads, contract=contract
        )
        if faults:
            return Verdict(faults=faults, feedback=feedback(faults, contract.form))
        notes = tuple(_dropped_note(d) for d in facts.dropped)
        return Verdict(facts.value, contract.dump(facts.value), dict(facts.facts), notes=notes)

    return check


def _dropped_note(drop: Dropped) -> str:
    """What became of a value the customer's words do not hold: their own answer instead, or null."""
    instead = "null" if drop.instead is None else f"their own answer, {drop.instead!r}"
    return f"{drop.path}: {drop.value!r} is not in the customer's words; set to {instead}"


def _sources(step: StepNode, snapshot: Snapshot) -> list[tuple[Read, Artifact]]:
    return [(read, snapshot.artifacts[read.name]) for read in step.reads if read.name in snapshot.artifacts]


def read_values(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as Python values, by the names functions use: a model instance where the schema is pydantic."""
    values: dict[str, Any] = {}
    for read in step.reads:
        found = snapshot.artifacts.get(read.name)
        if found is not None:
            values[variable(read.name)] = read.contract.instance(found.body)
        elif read.default is not MISSING:
            values[variable(read.name)] = read.default
    return values


async def _commit_model(
    walk: Walk, finished: Finished, context: Context, base_head: str | None
) -> tuple[Dispatch, ...]:
    model = walk.step.model
    assert model is not None
    verdict = finished.verdict
    artifact = NewArtifact(
        contract=walk.step.contract.name,
        body=verdict.body,
        author=f"{model.provider}:{model.model}",
        origin="model",
        sensitivity=_highest(context.sensitivity, walk.step.contract.sensitivity),
        field_hashes=walk.step.contract.field_hashes(verdict.body),
        facts=verdict.facts,
    )
    calls = [*(c.done for c in finished.calls if c.done), finished.done]
    return await _commit(walk, artifact, finished.done, base_head, calls, count_reasks(finished.calls), verdict.notes)


# --- a step in plain Python -------------------------------------------------------------------------------------------


async def _python_step(walk: Walk) -> tuple[Dispatch, ...]:
    snapshot = await _snapshot(walk)
    now = _manifest(walk.step, snapshot)
    walk.emit("step.started", attempt=walk.dispatch.number, kind="python", model=None)
    claim = _claim(walk, snapshot, now)
    await _begin(walk, claim)
    reads = read_values(walk.step, snapshot)
    value = await _call_function(walk.step, reads)
    body = _checked_body(walk.step, value)
    problems = await run_checks(walk.step.checks, walk.step.contract.load(body), reads, contract=walk.step.contract)
    if problems:
        raise StepFailed(
            f"{walk.step.name}: {problems[0].message}", hint="mend the function or its inputs", code="check"
        )
    sensitivities = [a.version.sensitivity for a in snapshot.artifacts.values()]
    artifact = NewArtifact(
        contract=walk.step.contract.name,
        body=body,
        author=walk.step.function.ref if walk.step.function else walk.step.name,
        origin="function",
        sensitivity=_highest(*sensitivities, walk.step.contract.sensitivity),
        field_hashes=walk.step.contract.field_hashes(body),
    )
    return await _commit(walk, artifact, None, claim.base_head, [], 0)


async def _call_function(step: StepNode, reads: Mapping[str, Any]) -> Any:
    assert step.function is not None
    try:
        if inspect.iscoroutinefunction(step.function.call):
            return await step.function.call(**reads)
        return await run_blocking(step.function.call, **reads)
    except OrchError:
        raise
    except (Exception, SystemExit) as error:
        raise StepFailed(
            f"{step.function.ref} raised {type(error).__name__}: {error}",
            hint=f"mend {step.function.file}; `orch resume` runs the step again",
            code="function_raised",
        ) from error


def _checked_body(step: StepNode, value: Any) -> bytes:
    assert step.function is not None
    try:
        data = step.contract.normalise(value)
    except ValueError as error:
        raise StepFailed(
            f"{step.function.ref} returned no valid {step.contract.name}: {error}", code="invalid_output"
        ) from error
    faults = step.contract.faults(data)
    if faults:
        first = faults[0]
        raise StepFailed(
            f"{step.function.ref} returned no valid {step.contract.name}: "
            f"{first.path} {first.rule}, got {first.value!r}",
            hint=f"the contract stands in {step.contract.place}",
            code="invalid_output",
        )
    return step.contract.dump(data)


# --- the end ----------------------------------------------------------------------------------------------------------


async def _commit(
    walk: Walk,
    artifact: NewArtifact,
    done: DoneCall | None,
    base_head: str | None,
    calls: Sequence[DoneCall],
    reasks: int,
    notes: Sequence[str] = (),
) -> tuple[Dispatch, ...]:
    usage = sum((c.usage for c in calls if c.usage), Usage())
    costs = [c.cost_usd for c in calls]
    summary = {
        "calls": len(calls),
        "reasks": reasks,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": str(sum(c for c in costs if c is not None)) if any(c is not None for c in costs) else None,
        "cost_partial": None in costs,
        "seconds": round(sum(c.seconds for c in calls), 3),
    }
    result = await walk.services.store.commit(
        Commit(
            dispatch=walk.dispatch,
            artifact=artifact,
            done=done,
            children=walk.graph.children[walk.step.name],
            base_head=base_head,
            events=(
                *(Event("step.note", data={"text": note}) for note in notes),
                Event("step.done", data=summary),
            ),
        )
    )
    return _after_commit(walk, result, summary)


def _after_commit(walk: Walk, result: CommitResult, summary: Mapping[str, Any]) -> tuple[Dispatch, ...]:
    if result.outcome in ("committed", "moved"):
        walk.emit("step.done", version=result.version, **summary)
    if result.outcome == "moved":
        walk.emit("step.moved", inputs=list(result.moved), redo=bool(result.ready))
    if result.outcome == "conflict":
        walk.emit(
            "step.waiting", code="edited_meanwhile", message=f"{walk.step.name} was edited while it ran", hint=None
        )
    return result.ready


async def _failed(walk: Walk, error: OrchError, done: DoneCall | None) -> tuple[Dispatch, ...]:
    if isinstance(error, BudgetExceeded) and walk.run.on_exceed == "pause":
        if done is not None:
            await walk.services.store.done(walk.dispatch, done)
        raise error
    await walk.services.store.fail(walk.dispatch, error_record(error), done)
    walk.emit("step.failed", code=error.code, message=error.message, hint=error.hint)
    return ()


async def _waiting(walk: Walk, error: OrchError) -> tuple[Dispatch, ...]:
    await walk.services.store.wait(walk.dispatch, error_record(error))
    walk.emit("step.waiting", code=error.code, message=error.message, hint=error.hint)
    return ()


def error_record(error: OrchError) -> ErrorRecord:
    return ErrorRecord(error.code, error.message, error.hint, error.exit_code)


def _highest(*levels: Sensitivity) -> Sensitivity:
    return max(levels, key=lambda level: SENSITIVITY_RANK[level])


@dataclass
class StoreRecorder:
    """Writes a chain's calls down. The first call goes into the claim's transaction, all later ones are fenced."""

    store: Store
    dispatch: Dispatch
    claim: Claim | None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def sent(self, call: SentCall) -> None:
        if self.claim is None:
            await self.store.sent(self.dispatch, call)
            return
        if not await self.store.claim(replace(self.claim, sent=call)):
            raise Fenced
        self.claim = None

    def created(self, call_id: str, response_id: str) -> None:
        """Not awaited: it rides in the next commit, and nothing is lost if it never lands."""
        task = asyncio.get_running_loop().create_task(self._note(call_id, response_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note(self, call_id: str, response_id: str) -> None:
        with contextlib.suppress(StoreError):  # the call's own `done` meets it too, and reports it
            await self.store.created(call_id, response_id)

    async def done(self, call: DoneCall, events: Sequence[Event]) -> None:
        await self.store.done(self.dispatch, call, events)

    async def tool_started(self, call_id: str, tool_call: ToolCall) -> None:
        await self.store.tool_started(self.dispatch, call_id, tool_call)

    async def tool_finished(self, call_id: str, output: ToolOutput) -> None:
        await self.store.tool_finished(self.dispatch, call_id, output.call_id, output)


__all__ = [
    "Journal",
    "Services",
    "StoreRecorder",
    "check_models",
    "error_record",
    "output_format",
    "read_values",
    "run_step",
]
