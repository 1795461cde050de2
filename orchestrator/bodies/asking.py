"""What every step that asks a model needs: what it may look at, its claim, its policy, and what makes a reply good.

A declarative step asks once (`step`), a Python step as often as its body wants (`body`); both ask in the same way, so
the way is here: one snapshot, one manifest, one claim, one check of a reply, one recorder of calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NoReturn, TypeVar
from weakref import WeakValueDictionary

from orchestrator.chain import Chain, ChainStopped, Policy, Verdict
from orchestrator.clock import Clock
from orchestrator.errors import StepFailed, StoreError
from orchestrator.facts import Dropped, check_facts
from orchestrator.graph import Graph, Read, StepNode
from orchestrator.ids import keyed_hash, synthetic_thread_id
from orchestrator.mcp_client import McpServers
from orchestrator.money import Caps, least
from orchestrator.moves import count_reasks
from orchestrator.output import feedback, judge, run_checks, schema_faults
from orchestrator.project import Project
from orchestrator.providers.base import Provider
from orchestrator.providers.endpoints import Endpoints
from orchestrator.providers.prices import Prices
from orchestrator.providers.registry import Providers
from orchestrator.python.functions import converted
from orchestrator.reads import read_values
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.records import Claim, Fenced, ThreadJournal
from orchestrator.thread import Question, compose, explain, manifest
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    CallRow,
    Context,
    Cut,
    Dispatch,
    DoneCall,
    Event,
    Manifest,
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
)
from orchestrator.workers import aside, run_stoppable

T = TypeVar("T")
RENDER_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Services:
    """What the effects need, built once per command by `engine.open_services`.

    `approver` is who approves each gate as soon as it is reached, as it stands (`--yes`); None: gates wait.
    """

    project: Project
    settings: Settings
    store: Store
    providers: Providers
    prices: Prices
    clock: Clock
    listener: Callable[[Event], None]
    worker: str
    endpoints: Endpoints = field(default_factory=Endpoints)
    approver: str | None = None
    mcp: McpServers = field(default_factory=McpServers)
    _locks: MutableMapping[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def one_at_a_time(self, key: str) -> asyncio.Lock:
        """Held by whoever does what this names; it is forgotten when nobody does."""
        return self._locks.setdefault(key, asyncio.Lock())


@dataclass(frozen=True, slots=True)
class Walk:
    """One dispatch on its way: everything the hops below share."""

    services: Services
    graph: Graph
    run: RunRow
    step: StepNode
    dispatch: Dispatch

    @property
    def seconds_left(self) -> float:
        """How long the attempt may still run: its timeout counts the time it was worked on, over all resumes, and no
        waits (S32). No attempt runs longer than it may, so one that is said to have was measured by a clock that was
        moved: nothing is known of it then (S33)."""
        ran = self.dispatch.ran_us / 1e6
        return self.step.timeout - ran if ran < self.step.timeout else self.step.timeout

    @property
    def place(self) -> str:
        """How people name what this dispatch makes: `12/tech-stack`."""
        item = f"/{self.dispatch.item}" if self.dispatch.item else ""
        return f"{self.run.number}/{self.step.name}{item}"

    def emit(self, kind: str, /, **data: Any) -> None:
        self.services.listener(Event(kind, self.step.name, self.dispatch.item, data))


async def take_snapshot(walk: Walk) -> Snapshot:
    redone_by = walk.dispatch.attempt_id if walk.dispatch.mode else None
    seen = await snapshot_of(walk.services.store, walk.run.id, walk.step, walk.dispatch.item, redone_by)
    await _check_approvals(walk, seen)
    return seen


async def _check_approvals(walk: Walk, seen: Snapshot) -> None:
    """What is read must be what was approved, to the byte. Raises StepFailed where an edit came in between."""
    reads = [read for read in walk.step.reads if read.approvers]
    gates = {gate for read in reads for gate in read.approvers}
    approved = await walk.services.store.approved(walk.run.id, sorted(gates)) if gates else {}
    for read in reads:
        found = seen.artifacts.get(read.name)
        items = {f"{read.name}/{key}": one for key, one in seen.items.get(read.name, {}).items()}
        held = {**({read.name: found} if found else {}), **items}
        for gate in read.approvers:
            if not held or any(approved[gate].get(name) != one.version.sha256 for name, one in held.items()):
                raise StepFailed(
                    f"{walk.step.name} reads {read.name} as approved, and {gate} has not approved what it holds now",
                    hint=f"`orch resume {walk.run.number}` lets {gate} ask about it",
                    code="not_approved",
                    place=read.place,
                )


async def snapshot_of(
    store: Store, run_id: str, step: StepNode, item: str | None, redone_by: str | None = None
) -> Snapshot:
    """What a step, or one item of it, may look at now. `redone_by` is the attempt that looks, where somebody asked for
    it."""
    messages = step.conversation.messages if step.conversation else 0
    listed = next((read for read in step.reads if read.kind == "entry"), None)
    entry_of = listed.of if listed else None
    seen = await store.snapshot(run_id, step.name, item, addresses(step, item), messages, redone_by, entry_of=entry_of)
    if listed is None or seen.entry is None:
        return seen
    return replace(seen, artifacts={**seen.artifacts, listed.name: seen.entry})


def addresses(step: StepNode, item: str | None) -> list[str]:
    """What the step reads, as the store is asked for it: `name`, all items of a step as `name/*`, one as `name/key`."""
    takes = {"one": "", "each": "/*", "sibling": f"/{item}"}
    return [read.name + takes[read.takes] for read in step.takes if read.kind != "entry"]


def manifest_now(step: StepNode, snapshot: Snapshot) -> Manifest:
    return manifest(step, snapshot.versions)


class Restarted(Exception):
    """The attempt was given up for a new one, which begins from the first hop: its dispatch."""

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__(dispatch.step)
        self.dispatch = dispatch


async def restart(walk: Walk, old: Manifest, new: Manifest) -> NoReturn:
    """The recorded inputs no longer hold: a new attempt on a new thread, and why (S06). Raises Restarted."""
    reason = "; ".join(explain(old, new))
    fresh = await walk.services.store.restart(walk.dispatch, reason)
    if fresh is None:
        raise Fenced
    walk.emit("step.rebuilt", reason=reason)
    raise Restarted(fresh)


def claim_of(walk: Walk, snapshot: Snapshot, now: Manifest) -> Claim:
    return _claim(walk.services.worker, walk.step, walk.dispatch, snapshot, now)


def _claim(worker: str, step: StepNode, dispatch: Dispatch, snapshot: Snapshot, now: Manifest) -> Claim:
    return Claim(
        dispatch=dispatch,
        worker=worker,
        manifest=now,
        reads=reads_of(step, dispatch.item, snapshot, now),
        base_head=snapshot.head.id if snapshot.head else None,
    )


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Plain Python steps begin in the transaction that makes them ready: they send nothing that needs composing."""

    graph: Graph
    worker: str

    def reads(self, step: str) -> Sequence[str] | None:
        node = self.graph.steps.get(step)
        if node is None or node.asks or node.when or node.only_if or node.for_each is not None or node.kind == "gate":
            return None
        return None if any(read.approvers for read in node.reads) else addresses(node, None)

    def claim(self, dispatch: Dispatch, snapshot: Snapshot) -> Claim:
        node = self.graph.steps[dispatch.step]
        return _claim(self.worker, node, dispatch, snapshot, manifest_now(node, snapshot))


def reads_of(step: StepNode, item: str | None, snapshot: Snapshot, now: Manifest) -> tuple[ReadRecord, ...]:
    """The read vector: which versions, and the hashes of what is taken of them (S06)."""
    return tuple(_read_records(step, item, snapshot, now))


def _read_records(step: StepNode, item: str | None, snapshot: Snapshot, now: Manifest) -> Iterator[ReadRecord]:
    """A list's entry is not among them: whether that still stands, the collector sees."""
    hashes = {entry.name: entry.hash for entry in now.entries if entry.kind == "read"}
    for read in step.takes:
        if read.kind == "entry":
            continue
        found = snapshot.artifacts.get(read.name)
        key = item if read.takes == "sibling" else None
        fields = None if read.takes == "each" else read.fields
        yield _read_record(read.name, key, fields, found.version if found else None, hashes[read.name])
        for one, artifact in snapshot.items.get(read.name, {}).items():
            yield _read_record(read.name, one, read.fields, artifact.version, hashes[f"{read.name}/{one}"])


def _read_record(
    name: str, item: str | None, fields: tuple[str, ...] | None, version: ArtifactVersion | None, value: str
) -> ReadRecord:
    return ReadRecord(name, version.id if version else None, version.version if version else None, fields, value, item)


async def pass_by(
    walk: Walk, claim: Claim, state: Literal["kept", "skipped"], told: Mapping[str, Any]
) -> tuple[Dispatch, ...]:
    """End an attempt with nothing made, and say why. Raises Fenced where it is not ours any more."""
    event = Event(f"step.{state}", data=told)
    claim = replace(claim, events=(event,))
    ready = await walk.services.store.pass_by(claim, state, AtOnce(walk.graph, walk.services.worker))
    if ready is None:
        raise Fenced
    walk.emit(event.kind, **told)
    return ready


async def begin(walk: Walk, claim: Claim) -> None:
    """Claim the attempt before anything of it is written or sent. Raises Fenced where the dispatch is late."""
    if not await walk.services.store.claim(claim):
        raise Fenced


@dataclass
class Begin:
    """The claim of an attempt, made once: at the latest with its first call."""

    walk: Walk
    claim: Claim
    done: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self) -> None:
        """Claim the attempt, unless that was done. Raises Fenced where the dispatch is late."""
        async with self._lock:
            if not self.done:
                await begin(self.walk, self.claim)
                self.done = True


async def new_thread(walk: Walk, provider: Provider, context: Context, snapshot: Snapshot) -> ThreadRecord:
    assert walk.step.model is not None
    return ThreadRecord(
        id=synthetic_thread_id(walk.run.session_id),
        name="main",
        provider=provider.traits.name,
        model=walk.step.model.model,
        base_url=provider.traits.base_url,
        prompt=await compose_off_loop(walk.step, context, snapshot),
        settings=walk.step.model.settings,
        left_out=context.left_out,
    )


def weight(snapshot: Snapshot) -> int:
    """About how many bytes are rendered of what a step reads."""
    items = (one for entries in snapshot.items.values() for one in entries.values())
    return sum(len(artifact.body) for artifact in (*snapshot.artifacts.values(), *items))


async def compose_off_loop(
    step: StepNode, context: Context, snapshot: Snapshot, question: Question | None = None
) -> Prompt:
    """`compose` in a thread, with a limit: a template is trusted code, but it may be slow or never end (S22)."""
    return await off_loop(step, compose, step, context, snapshot, question)


async def off_loop(step: StepNode, work: Callable[..., T], *args: Any) -> T:
    """Work that renders a template of the step, in a thread and with the limit of time."""
    try:
        return await asyncio.wait_for(run_stoppable(work, *args), RENDER_SECONDS)
    except TimeoutError as error:
        raise StepFailed(
            f"the template of {step.name} took longer than {RENDER_SECONDS:g} s to render; nothing was sent",
            hint="look for a loop in the template; long texts belong into artifacts, which are not rendered",
            code="render_timeout",
            place=step.template.place if step.template else step.place,
        ) from error


def recorded_thread(thread: ThreadJournal) -> ThreadRecord:
    return ThreadRecord(
        thread.id,
        thread.name,
        thread.provider,
        thread.model,
        thread.base_url,
        thread.prompt,
        thread.settings,
        thread.left_out,
        thread.continues.id if thread.continues else None,
    )


def output_format(step: StepNode) -> OutputFormat | None:
    """The schema a provider is asked to follow; None for text contracts, and where the task says it in words."""
    if step.model is not None and step.model.structured == "prompt":
        return None
    schema = step.contract.sent_schema()
    return None if schema is None else OutputFormat(step.contract.name.replace(".", "_"), schema)


def policy_of(walk: Walk) -> Policy:
    step, services = walk.step, walk.services
    assert step.model is not None
    scope = services.store.scope
    caps = caps_of(walk)
    return Policy(
        model=step.model.model,
        step=step.name,
        max_output_tokens=step.model.max_output_tokens,
        effort=step.model.effort,
        output=output_format(step),
        tools=tuple(map(services.mcp.bound, step.tools)),
        hosted=step.hosted,
        reasks=step.reasks,
        call_timeout=step.call_timeout,
        deadline=services.clock.monotonic() + walk.seconds_left,
        cache_key=keyed_hash(services.store.secret_key(), scope.tenant, walk.run.session_id),
        unpriced=walk.run.unpriced,
        capped=walk.run.cap_usd is not None or caps.any,
        caps=caps,
        item=walk.dispatch.item,
        background=step.model.background,
        edits=step.model.edits,
    )


def caps_of(walk: Walk) -> Caps:
    """What the pipeline, its step and the project allow, the lesser where several say something."""
    of_run, of_project = walk.graph.spec.budget, walk.services.settings.budget
    return Caps(
        call=least(of_run.per_call if of_run else None, of_project.per_call),
        step=walk.step.max_usd,
        session=least(of_run.per_session if of_run else None, of_project.per_session),
        day=of_project.per_day,
    )


async def answered(chain: Chain, recorder: StoreRecorder) -> bytes:
    """The accepted answer's canonical bytes, of a question that is not the step's last: it is written down at once.

    Raises what stopped it, which is written down too.
    """
    try:
        finished = await chain.run()
    except ChainStopped as stopped:
        if stopped.done is not None:
            await _written(chain, recorder, stopped.done)
        raise stopped.error from stopped
    await _written(chain, recorder, replace(finished.done, answer=finished.verdict.body))
    return finished.verdict.body


async def _written(chain: Chain, recorder: StoreRecorder, done: DoneCall) -> None:
    await recorder.done(done, ())
    chain.calls[-1] = replace(chain.calls[-1], done=done)


Checker = Callable[[Reply, Sequence[CallRow]], Awaitable[Verdict]]


async def checker(walk: Walk, context: Context, snapshot: Snapshot) -> Checker:
    """What makes a reply acceptable, in this order: form and schema, the customer's facts, the step's own checks.

    Raises StepFailed for a read that its contract does not allow any more.
    """
    contract, step, read = walk.step.contract, walk.step, weight(snapshot)
    reads = await aside(read, read_values, step, snapshot)

    async def check(reply: Reply, calls: Sequence[CallRow]) -> Verdict:
        # One re-ask asserts it; after that, or with none left, the value is good without it: it is null already.
        asserted = count_reasks(calls) >= step.reasks or any(
            c.done and "customer_fact:" in c.done.reason for c in calls
        )
        looked = await aside(len(reply.text) + read, _looked_at, step, context, snapshot, reply, asserted)
        faults = looked.faults or await run_checks(step.checks, looked.value, reads, contract=contract)
        if faults:
            return Verdict(faults=faults, feedback=feedback(faults, contract.form))
        return looked

    return check


def _looked_at(step: StepNode, context: Context, snapshot: Snapshot, reply: Reply, asserted: bool) -> Verdict:
    """A reply under the contract and the customer's words, which is all that is computed of it; with its faults."""
    contract = step.contract
    judged = judge(reply, contract)
    if judged.faults:
        return Verdict(faults=judged.faults)
    facts = check_facts(contract, judged.value, context.statements, sources(step, snapshot))
    faults = (*(() if asserted else facts.faults), *schema_faults(contract, facts.value))
    if faults:
        return Verdict(faults=faults)
    body, notes = contract.dump(facts.value), tuple(dropped_note(d) for d in facts.dropped)
    return Verdict(facts.value, body, dict(facts.facts), notes=notes)


def dropped_note(drop: Dropped) -> str:
    """What became of a value the customer's words do not hold: their own answer instead, or null."""
    instead = "null" if drop.instead is None else f"their own answer, {drop.instead!r}"
    return f"{drop.path}: {drop.value!r} is not in the customer's words; set to {instead}"


def sources(step: StepNode, snapshot: Snapshot) -> list[tuple[Read, Artifact]]:
    found: list[tuple[Read, Artifact]] = []
    for read in step.reads:
        if read.takes == "each":
            items = snapshot.items.get(read.name, {})
            found += [(replace(read, name=f"{read.name}/{key}"), artifact) for key, artifact in items.items()]
        elif read.name in snapshot.artifacts:
            found.append((read, snapshot.artifacts[read.name]))
    return found


def arguments(step: StepNode, reads: Mapping[str, Any]) -> dict[str, Any]:
    """What the step's own function gets of its reads. Raises StepFailed where a value is not what it declares."""
    assert step.function is not None
    try:
        return converted(step.function.call, reads)
    except ValueError as error:
        raise StepFailed(
            f"{step.name} reads what its parameters cannot hold: {str(error).splitlines()[0]}",
            hint=f"see the types of {step.function.ref}",
            code="invalid_read",
        ) from error


@dataclass
class StoreRecorder:
    """Writes a chain's calls down. The first call goes into the claim's transaction, or into the one that opens its
    thread (`thread`, a further one of a running attempt); all later ones are fenced."""

    store: Store
    dispatch: Dispatch
    claim: Claim | None
    thread: ThreadRecord | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def sent(self, call: SentCall) -> None:
        if self.thread is not None:
            await self.store.open_thread(self.dispatch, self.thread, call)
            self.thread = None
            return
        if self.claim is None:
            await self.store.sent(self.dispatch, call)
            return
        if not await self.store.claim(replace(self.claim, sent=call)):
            raise Fenced
        self.claim = None

    async def again(self, call: SentCall) -> None:
        await self.store.again(self.dispatch, call)

    def created(self, call_id: str, response_id: str) -> None:
        """Not awaited: it rides in the next commit, and nothing is lost if it never lands."""
        task = asyncio.get_running_loop().create_task(self._note(call_id, response_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note(self, call_id: str, response_id: str) -> None:
        with contextlib.suppress(StoreError):  # the call's own `done` meets it too, and reports it
            await self.store.created(call_id, response_id)

    async def told(self, event: Event) -> None:
        """Before anything was sent it rides with the claim: the attempt is nobody's yet."""
        if self.claim is not None:
            self.claim = replace(self.claim, events=(*self.claim.events, event))
        else:
            await self.store.note(self.dispatch, (event,))

    async def counted(self, provider: str, model: str) -> Sequence[tuple[int, int]]:
        return await self.store.counted(provider, model)

    async def cut(self, call_id: str, cut: Cut) -> None:
        with contextlib.suppress(StoreError, Fenced):  # it is over in any case
            await self.store.cut(self.dispatch, call_id, cut)

    async def done(self, call: DoneCall, events: Sequence[Event]) -> None:
        await self.store.done(self.dispatch, call, events)

    async def tool_started(self, call_id: str, tool_call: ToolCall) -> None:
        await self.store.tool_started(self.dispatch, call_id, tool_call)

    async def tool_finished(self, call_id: str, output: ToolOutput, whole: str | None) -> None:
        await self.store.tool_finished(self.dispatch, call_id, output.call_id, output, whole)

    async def tools_asked(self, call_id: str, tool_calls: Sequence[ToolCall]) -> None:
        await self.store.tools_asked(self.dispatch, call_id, tool_calls)
