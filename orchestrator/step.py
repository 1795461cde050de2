"""The walk of one step, top to bottom: snapshot → context → thread → chain → commit.

`run_step` runs hops 6 to 9 and nothing else. It ends in exactly one transaction that says how the step ended; a step
that was interrupted is entered here again, with the journal its former owner left behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.answering import ToolWaits
from orchestrator.bodies.asking import (
    Begin,
    Restarted,
    Services,
    StoreRecorder,
    Walk,
    arguments,
    begin,
    checker,
    claim_of,
    compose_off_loop,
    dropped_note,
    manifest_now,
    output_format,
    pass_by,
    policy_of,
    restart,
    sources,
    take_snapshot,
    weight,
)
from orchestrator.bodies.body import Body, calls_of
from orchestrator.bodies.following import Opening, opening, taken_up
from orchestrator.bodies.summarising import with_summaries
from orchestrator.bodies.switching import fallbacks_of
from orchestrator.chain import Chain, ChainStopped, Finished
from orchestrator.collecting import Collected, collect, is_collector
from orchestrator.context import build_context
from orchestrator.ending import commit_step, error_record, fail_step, let_wait
from orchestrator.errors import OrchError, StepFailed, StoreError
from orchestrator.expressions import ExpressionError
from orchestrator.facts import FactsResult, check_facts
from orchestrator.fan_out import collector
from orchestrator.gates import gate_step
from orchestrator.graph import Graph, StepNode
from orchestrator.handing import AUTHOR, facts_of, guards_of, handed
from orchestrator.moves import count_reasks
from orchestrator.output import run_checks, schema_faults
from orchestrator.reads import read_data, read_values
from orchestrator.repeating import round_of
from orchestrator.spec import SENSITIVITY_RANK, Sensitivity
from orchestrator.staleness import holds
from orchestrator.stopwatch import time_limit
from orchestrator.store.records import Claim, Fenced, Journal, ToolRow
from orchestrator.tools_done import DoneBefore
from orchestrator.values import (
    CallRow,
    Context,
    Dispatch,
    Event,
    Manifest,
    NewArtifact,
    RunRow,
    Snapshot,
)
from orchestrator.workers import aside, run_blocking


async def run_step(services: Services, graph: Graph, run: RunRow, dispatch: Dispatch) -> tuple[Dispatch, ...]:
    """Run one attempt to its end; gives the dispatches that its commit made ready.

    A step's own failure is recorded, not raised. Raises BudgetExceeded (where the run pauses on it) and StoreError.
    """
    walk = Walk(services, graph, run, graph.steps[dispatch.step], dispatch)
    try:
        async with time_limit(walk.seconds_left if not is_collector(walk) else walk.step.timeout):
            if is_collector(walk):
                return await _collector_step(walk)
            if walk.step.kind == "llm":
                return await _model_step(walk)
            if walk.step.kind == "gate":
                return await gate_step(walk)
            return await (_body_step(walk) if walk.step.asks else _python_step(walk))
    except Fenced:
        return ()
    except Restarted as restarted:
        return await run_step(services, graph, run, restarted.dispatch)
    except TimeoutError:
        limit = StepFailed(
            f"{walk.step.name} ran longer than its timeout of {walk.step.timeout:g} s",
            hint="raise `timeout` on the step, then `orch resume` runs it again; finished steps are kept",
            code="timeout",
        )
        return await fail_step(walk, limit, None)
    except ToolWaits as waits:
        return await let_wait(walk, waits)
    except ChainStopped as stopped:
        return await fail_step(walk, stopped.error, stopped.done)
    except StoreError:
        raise
    except OrchError as error:
        return await fail_step(walk, error, None)


async def _passed_by(walk: Walk, snapshot: Snapshot, now: Manifest) -> tuple[Dispatch, ...] | None:
    """The end of a step that has nothing to make: its `when` is false, or what its version rests on still holds. None
    for one that has."""
    if walk.dispatch.interrupted:
        return None
    # Whether a step with items is wanted at all, its collector asks, once for all of them.
    if walk.dispatch.item is None and not _wanted(walk.step, snapshot):
        return await _skip(walk, snapshot, claim_of(walk, snapshot, now))
    if walk.dispatch.mode or snapshot.head is None or not holds(walk.step, snapshot.accepted, now):
        return None
    return await _keep(walk, claim_of(walk, snapshot, now), snapshot.head.version)


def _false(step: StepNode, snapshot: Snapshot) -> str | None:
    """The first condition of the pipelines it is a part of that is not true: of one that is not wanted itself, the
    outer one's is the first."""
    made = snapshot.artifacts
    return next((read.name for read in step.only_if if read.name not in made or made[read.name].body != b"true"), None)


def _unwanted(step: StepNode, snapshot: Snapshot) -> str:
    false = _false(step, snapshot)
    if false is not None or step.when is None:
        return false or step.name
    return f"when {step.when.text}"


def _wanted(step: StepNode, snapshot: Snapshot) -> bool:
    """Whether the step's `when` is true, and those of the used pipelines it is a part of. Raises StepFailed where it
    cannot be computed on what the step reads."""
    if _false(step, snapshot) is not None:
        return False
    if step.when is None:
        return True
    try:
        return bool(step.when.evaluate(read_data(step, snapshot)))
    except ExpressionError as error:
        raise StepFailed(
            f"{step.name}: its when cannot be computed: {error.message}",
            hint=error.hint or "compare with null where a value may be missing",
            code="when",
            place=step.place,
        ) from error


async def _skip(walk: Walk, snapshot: Snapshot, claim: Claim) -> tuple[Dispatch, ...]:
    return await pass_by(walk, claim, "skipped", {"reason": f"{_unwanted(walk.step, snapshot)} is false"})


async def _keep(walk: Walk, claim: Claim, version: int) -> tuple[Dispatch, ...]:
    return await pass_by(walk, claim, "kept", {"version": version})


async def _collector_step(walk: Walk) -> tuple[Dispatch, ...]:
    """A step with items: they are brought in and dispatched; when all have ended, the step's own value is made."""
    if (walk.step.when is not None or walk.step.only_if) and not walk.dispatch.interrupted:
        seen = replace(walk, step=collector(walk.step))
        snapshot = await take_snapshot(seen)
        if not _wanted(seen.step, snapshot):
            return await _skip(walk, snapshot, claim_of(seen, snapshot, manifest_now(seen.step, snapshot)))
    found = await collect(walk)
    if not isinstance(found, Collected):
        return found
    if found.kept is not None:
        return await _keep(walk, *found.kept)
    once = replace(walk, step=replace(walk.step, repeat=None))  # a loop is over each item, not over their list
    return await commit_step(once, Snapshot({}), found.artifact, None, found.base_head, [], 0, found.notes)


# --- a step that asks a model -----------------------------------------------------------------------------------------


async def _model_step(walk: Walk) -> tuple[Dispatch, ...]:
    services, step, dispatch = walk.services, walk.step, walk.dispatch
    snapshot = await take_snapshot(walk)
    now = manifest_now(step, snapshot)
    journal = await services.store.journal(dispatch.attempt_id) if dispatch.interrupted else None
    if journal is not None and journal.manifest is not None and journal.manifest.inputs_hash != now.inputs_hash:
        await restart(walk, journal.manifest, now)
    passed = await _passed_by(walk, snapshot, now)
    if passed is not None:
        return passed
    assert step.model is not None
    await _verify_tools(walk, snapshot, now)
    provider = services.providers.get(step.model.provider)
    walk.emit("step.started", attempt=dispatch.number, kind="llm", model=f"{step.model.provider}:{step.model.model}")
    claim = claim_of(walk, snapshot, now)
    recorded = journal.main if journal is not None else None
    begun = Begin(walk, claim)
    if recorded:
        await begun()
    try:
        summed = await with_summaries(walk, snapshot, begun, journal)
        snapshot = summed.snapshot
        begins = (
            await taken_up(walk, provider, snapshot, recorded)
            if recorded
            else await opening(walk, provider, snapshot, now)
        )
    except OrchError:
        await begun()
        raise
    recorder = await _recorder(begun, begins, recorded is not None)
    thread, context = begins.thread, begins.context
    fallbacks, barred = fallbacks_of(walk, context.sensitivity, context)
    chain = Chain(
        provider=provider,
        thread=thread,
        policy=replace(policy_of(walk), visit=round_of(snapshot.redo) + 1),
        check=await checker(walk, context, snapshot),
        recorder=recorder,
        source=begins.source,
        before=begins.before,
        fallbacks=fallbacks,
        barred=barred,
        prices=services.prices,
        endpoints=services.endpoints,
        clock=services.clock,
        emit=services.listener,
        calls=list(recorded.calls) if recorded else [],
        tool_rows={(row.call_id, row.tool_call.call_id): row for row in journal.tools} if journal else {},
    )
    chain.done_before = await _done_before(walk, now, chain.tool_rows.values())
    finished = await chain.run()
    base = journal.base_head if journal is not None and recorded else claim.base_head
    return await _commit_model(walk, snapshot, finished, context, base, summed.calls)


async def _recorder(begun: Begin, begins: Opening, recorded: bool) -> StoreRecorder:
    """Where the calls of the step's thread are written down; a new thread with its first one."""
    walk, claim = begun.walk, begun.claim
    why = begins.why if not recorded else ""
    events = (Event("step.rebuilt", data={"reason": why}),) if why else ()
    for event in events:
        walk.emit(event.kind, **event.data)
    store, dispatch = walk.services.store, walk.dispatch
    if not begun.done:
        return StoreRecorder(store, dispatch, replace(claim, events=events, thread=begins.thread))
    if events:
        await store.note(dispatch, events)
    return StoreRecorder(store, dispatch, None, None if recorded else begins.thread)


async def _verify_tools(walk: Walk, snapshot: Snapshot, now: Manifest) -> None:
    """Servers of tools must say what was pinned, in each attempt anew (S26). Raises StepFailed, the attempt begun."""
    try:
        await walk.services.mcp.verify(walk.step.tools)
    except OrchError:
        await begin(walk, claim_of(walk, snapshot, now))
        raise


async def _commit_model(
    walk: Walk,
    snapshot: Snapshot,
    finished: Finished,
    context: Context,
    base_head: str | None,
    before: Sequence[CallRow],
) -> tuple[Dispatch, ...]:
    verdict, asked = finished.verdict, finished.calls[-1].sent
    artifact = NewArtifact(
        contract=walk.step.contract.name,
        body=verdict.body,
        author=f"{asked.provider}:{asked.model}",
        origin="model",
        sensitivity=_highest(context.sensitivity, walk.step.contract.sensitivity),
        field_hashes=await aside(len(verdict.body), walk.step.contract.field_hashes, verdict.body),
        facts=verdict.facts,
    )
    # What the thread ended with is kept beside its last reply: a follow-up asks whether that is still what stands.
    done = replace(finished.done, answer=verdict.body)
    calls = [*(c.done for c in (*before, *finished.calls) if c.done), done]
    reasks = count_reasks((*before, *finished.calls))
    return await commit_step(walk, snapshot, artifact, done, base_head, calls, reasks, verdict.notes)


# --- a step in plain Python -------------------------------------------------------------------------------------------


async def _python_step(walk: Walk) -> tuple[Dispatch, ...]:
    snapshot = walk.dispatch.snapshot
    if snapshot is None:
        snapshot, now = await _look(walk)
        passed = await _passed_by(walk, snapshot, now)
        if passed is not None:
            return passed
        await begin(walk, claim_of(walk, snapshot, now))
    walk.emit("step.started", attempt=walk.dispatch.number, kind="python", model=None)
    hand, read = walk.step.hand, weight(snapshot)
    reads: Mapping[str, Any] = {}
    if hand is not None:
        made = await aside(read, lambda: _checked(walk.step, handed(walk.step, hand, snapshot)))
    else:
        reads, values = await aside(read, _reads, walk.step, snapshot)
        made = await _call_function(walk.step, values)
    if walk.step.checks:
        await _check_value(walk.step, walk.step.contract.load(made.body), reads)
    sensitivities = [version.sensitivity for version in snapshot.versions.values()]
    artifact = NewArtifact(
        contract=walk.step.contract.name,
        body=made.body,
        author=_author(walk.step),
        origin="function",
        sensitivity=_highest(*sensitivities, walk.step.contract.sensitivity),
        field_hashes=made.field_hashes,
        facts=facts_of(walk.step, snapshot) if hand else {},
        guards=guards_of(walk.step, snapshot) if hand else (),
    )
    return await commit_step(walk, snapshot, artifact, None, snapshot.head.id if snapshot.head else None, [], 0)


async def _look(walk: Walk) -> tuple[Snapshot, Manifest]:
    """What the step reads, where no other transaction has begun it; one whose inputs moved meanwhile begins anew."""
    snapshot = await take_snapshot(walk)
    now = manifest_now(walk.step, snapshot)
    if walk.dispatch.interrupted:
        recorded = await walk.services.store.manifest(walk.dispatch.attempt_id)
        if recorded is not None and recorded.inputs_hash != now.inputs_hash:
            await restart(walk, recorded, now)
    return snapshot, now


async def _check_value(step: StepNode, value: Any, reads: Mapping[str, Any]) -> None:
    """The step's own checks on what its function returned: there is nobody to ask again."""
    problems = await run_checks(step.checks, value, reads, contract=step.contract)
    if problems:
        raise StepFailed(f"{step.name}: {problems[0].message}", hint="mend the function or its inputs", code="check")


def _author(step: StepNode) -> str:
    """Who made what a function returned, as people read it."""
    if step.function is None:
        return AUTHOR if step.hand is not None else step.name
    file, _, name = step.function.ref.rpartition(":")
    return f"{name} in {file}" if file else name


def _reads(step: StepNode, snapshot: Snapshot) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The reads as values, and what the step's function is given of them."""
    reads = read_values(step, snapshot)
    return reads, arguments(step, reads)


@dataclass(frozen=True, slots=True)
class _Made:
    """What a function returned, as it is stored."""

    body: bytes
    field_hashes: Mapping[str, str]


async def _call_function(step: StepNode, values: Mapping[str, Any]) -> _Made:
    """What the step's function returns. That is checked beside the event loop, as a blocking function itself is run: it
    may be large."""
    assert step.function is not None
    call = step.function.call
    if inspect.iscoroutinefunction(call):
        with _blamed(step):
            value = await call(**values)
        return await run_blocking(_checked, step, value)

    def work() -> _Made:
        with _blamed(step):
            value = call(**values)
        return _checked(step, value)

    return await run_blocking(work)


@contextmanager
def _blamed(step: StepNode) -> Iterator[None]:
    """What the step's own function raises fails the step."""
    assert step.function is not None
    try:
        yield
    except OrchError:
        raise
    except (Exception, SystemExit) as error:
        raise StepFailed(
            f"{step.function.ref} raised {type(error).__name__}: {error}",
            hint=f"mend {step.function.file}; `orch resume` runs the step again",
            code="function_raised",
        ) from error


def _checked(step: StepNode, value: Any) -> _Made:
    """What a function returned, as it is stored. Raises StepFailed where that breaks the contract."""
    maker = step.function.ref if step.function is not None else step.name
    try:
        data = step.contract.normalise(value)
    except ValueError as error:
        raise StepFailed(f"{maker} returned no valid {step.contract.name}: {error}", code="invalid_output") from error
    # What a model's own serialiser writes, the model may refuse to read again.
    faults = step.contract.faults(data) if step.contract.model is not None else ()
    if faults:
        first = faults[0]
        raise StepFailed(
            f"{maker} returned no valid {step.contract.name}: {first.path} {first.rule}, got {first.value!r}",
            hint=f"the contract stands in {step.contract.place}",
            code="invalid_output",
        )
    body = step.contract.encode(data)
    excess = step.contract.too_large(body)
    if excess is not None:
        raise StepFailed(
            f"what {maker} returned is {excess}",
            hint=f"return less, or raise max_tokens of the contract {step.contract.name}",
            code="too_large",
        )
    return _Made(body, step.contract.hashes(data))


# --- a step whose Python body asks a model ----------------------------------------------------------------------------


async def _body_step(walk: Walk) -> tuple[Dispatch, ...]:
    services, step, dispatch = walk.services, walk.step, walk.dispatch
    snapshot = await take_snapshot(walk)
    now = manifest_now(step, snapshot)
    journal = await services.store.journal(dispatch.attempt_id) if dispatch.interrupted else None
    if journal is not None and journal.manifest is not None and journal.manifest.inputs_hash != now.inputs_hash:
        await restart(walk, journal.manifest, now)
    passed = await _passed_by(walk, snapshot, now)
    if passed is not None:
        return passed
    assert step.model is not None
    await _verify_tools(walk, snapshot, now)
    model = f"{step.model.provider}:{step.model.model}"
    walk.emit("step.started", attempt=dispatch.number, kind="python", model=model)
    claim = claim_of(walk, snapshot, now)
    begun = Begin(walk, claim)
    await begun()
    summed = await with_summaries(walk, snapshot, begun, journal)
    snapshot = summed.snapshot
    _, values = await aside(weight(snapshot), _reads, step, snapshot)
    body = Body(walk, snapshot, now, values, journal, await _failed_before(walk, now))
    made = await run_blocking(_checked, step, await body.call())
    facts, made = await _checked_facts(walk, snapshot, made)
    sensitivities = [*body.sensitivities, *(version.sensitivity for version in snapshot.versions.values())]
    artifact = NewArtifact(
        contract=step.contract.name,
        body=made.body,
        author=_author(step),
        origin="function",
        sensitivity=_highest(*sensitivities, step.contract.sensitivity),
        field_hashes=made.field_hashes,
        facts=dict(facts.facts),
    )
    calls = [*summed.calls, *calls_of(body.threads)]
    base = journal.base_head if journal is not None and journal.manifest is not None else claim.base_head
    notes = [dropped_note(drop) for drop in facts.dropped]
    done = [call.done for call in calls if call.done]
    return await commit_step(walk, snapshot, artifact, None, base, done, count_reasks(calls), notes)


async def _failed_before(walk: Walk, now: Manifest) -> list[Journal]:
    """The journals of the attempts that failed right before this one, from the same inputs, oldest first: what they
    were answered is paid for. An attempt that was asked for to begin anew knows none."""
    dispatch, store = walk.dispatch, walk.services.store
    found: list[Journal] = []
    if dispatch.number == 1 or dispatch.mode:
        return found
    for row in reversed(await store.attempts(dispatch.run_id, dispatch.step, dispatch.item)):
        if row.number >= dispatch.number:
            continue
        if row.state != "failed" or row.inputs_hash != now.inputs_hash:
            break
        found.insert(0, await store.journal(row.id))
    return found


async def _done_before(walk: Walk, now: Manifest, own: Iterable[ToolRow]) -> DoneBefore:
    """What the step's tools did in attempts that failed; nothing where none of them acts on the world."""
    if all(tool.idempotent for tool in walk.step.tools):
        return DoneBefore()
    return DoneBefore([journal.tools for journal in await _failed_before(walk, now)], own)


async def _checked_facts(walk: Walk, snapshot: Snapshot, made: _Made) -> tuple[FactsResult, _Made]:
    """The returned value under the rules that an answer is under: the customer's words first, then the checks; and as
    it is stored after that."""
    step, size = walk.step, len(made.body) + weight(snapshot)
    facts, stored = await aside(size, _found_said, walk, snapshot, made.body)
    for drop in facts.dropped:
        walk.emit("step.note", text=dropped_note(drop))
    reads, _ = await aside(weight(snapshot), _reads, step, snapshot)
    await _check_value(step, facts.value, reads)
    return facts, stored


def _found_said(walk: Walk, snapshot: Snapshot, body: bytes) -> tuple[FactsResult, _Made]:
    step = walk.step
    # Nothing is sent here, so nothing can be refused: the statements are all that is wanted of the context.
    context = build_context(walk.graph, step, snapshot, may_see="secret", provider_name="", window=None)
    value = step.contract.load(body)
    facts = check_facts(step.contract, value, context.statements, sources(step, snapshot))
    wrong = schema_faults(step.contract, facts.value)
    if wrong:
        raise StepFailed(
            f"{step.name} returned what the customer has not said, and cannot go without it: {wrong[0].message}",
            hint="let the field be null, or read an input that says it",
            code="invalid_output",
        )
    stored = step.contract.dump(facts.value)
    return facts, _Made(stored, step.contract.field_hashes(stored))


def _highest(*levels: Sensitivity) -> Sensitivity:
    return max(levels, key=lambda level: SENSITIVITY_RANK[level])


__all__ = ["Services", "compose_off_loop", "error_record", "output_format", "run_step"]
