"""Bench: one step again and again on the frozen inputs of a run, as it is declared and made differently, side by side.

A bench is a run of its own below the run it looks at. It shares the very versions that the run's own version was made
from, has one sample for each time the step is made, and a budget that all of them draw on. So calls, cost and trace of
a sample are those of any step, a cap holds, and nothing of the run itself is touched, its conversation included.

    samples   one step row each: the items of `13/tech-stack` are `a-1`, `a-2`, …, `b-1`, …
    variants  `a` is the step as it is declared, `b` what is tried instead
    promote   a sample that a person has chosen becomes the run's new version, told as the model's
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from orchestrator.building.variants import Variation, varied
from orchestrator.context.budget import message_number
from orchestrator.errors import BudgetExceeded, OrchError, StoreError, UsageError
from orchestrator.exchange.benching import ABSENT, Benched, Sample, Variant
from orchestrator.exchange.reading import value_of
from orchestrator.fitness import check_models
from orchestrator.graph import Graph, StepNode
from orchestrator.loading import Loaded
from orchestrator.loop import HEARTBEAT_SECONDS
from orchestrator.plan import Plan, plan_step
from orchestrator.preconditions import known_step
from orchestrator.providers.tokens import of_bytes
from orchestrator.spec import MISSING
from orchestrator.step import Services, error_record, run_step
from orchestrator.store import Store
from orchestrator.store.benches import MadeFrom
from orchestrator.store.records import NewRun, NewStep
from orchestrator.thread import explain
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    Dispatch,
    ErrorRecord,
    Event,
    Manifest,
    NewArtifact,
    RunRow,
    RunStatus,
    StepRow,
)

MOST: Final = 200  # samples of each variant
AT_ONCE: Final = 4  # samples that are made at the same time: a bench is measured, not raced


@dataclass(frozen=True, slots=True)
class Bench:
    """A bench that can begin: the graphs by variant, and the versions that every sample reads.

    `base` is the run's own version, None where the step has not made one yet. `until` is the last line of the session's
    conversation that the step was shown (None: it has been shown none yet, so all there is now is seen).
    """

    run: RunRow
    step: str
    variants: Mapping[str, Graph]
    heads: Mapping[str, ArtifactVersion]
    defaulted: frozenset[str]
    base: ArtifactVersion | None
    until: int | None

    @property
    def node(self) -> StepNode:
        """The step as it is declared."""
        return self.variants["a"].steps[self.step]


async def prepare(
    services: Services,
    loaded: Loaded,
    graph: Graph,
    run: RunRow,
    step: str,
    variation: Variation | None = None,
    *,
    with_effects: bool = False,
) -> Bench:
    """Freeze what the step reads and build its variants. Nothing is written or sent.

    Raises UsageError for a step that cannot be benched: it asks no model, has not what it reads yet, or may act on the
    world each time it is made (`with_effects` lets it); InvalidProject for a template that is wrong.
    """
    _check_step(run, graph.steps[step], with_effects=with_effects)
    variants = {"a": graph}
    if variation:
        variants["b"] = varied(services.project, services.settings, loaded, step, variation)
    for variant in variants.values():
        check_models(services, _alone(variant, step))
    rows = {row.name: row for row in await services.store.steps(run.id) if row.item is None}
    made = await services.store.made_from(run.id, step)
    heads = await _heads(services, graph, run, step, rows, made)
    unsaid = {row.name for row in rows.values() if row.defaulted}
    unsaid |= {name for name, head in heads.items() if head.origin == "input" and head.author == "default"}
    base = rows[step].head if step in rows else None
    return Bench(run, step, variants, heads, frozenset(unsaid & heads.keys()), base, _until(made))


def _check_step(run: RunRow, node: StepNode, *, with_effects: bool) -> None:
    name = node.name
    if run.kind == "bench":
        raise UsageError(f"run {run.number} is a bench itself", hint=f"bench the run: {run.parent_number}/{name}")
    if not node.asks:
        raise UsageError(f"{name} asks no model: the same inputs give the same value", hint="orch show shows its value")
    acting = [tool.spec.name for tool in node.tools if not tool.idempotent]
    what = "its Python body" if node.kind == "python" else f"its tool {acting[0]}" if acting else None
    if what is not None and not with_effects:
        raise UsageError(
            f"{name} may act on the world for each sample: {what} would run again and again",
            hint="--with-effects does it all the same; a tool that may be repeated is declared @tool(idempotent=True)",
            code="effects",
        )


def _alone(graph: Graph, step: str) -> Graph:
    return replace(graph, steps={step: graph.steps[step]})


async def _heads(
    services: Services, graph: Graph, run: RunRow, step: str, rows: Mapping[str, StepRow], made: MadeFrom
) -> dict[str, ArtifactVersion]:
    """The versions the samples see: of what is read, those the run's version was made from; of what the pipeline reads
    only since, and of the customer's other inputs, the current ones."""
    found: dict[str, ArtifactVersion] = {}
    for read in graph.steps[step].takes:
        row = rows.get(read.name)
        head = row.head if row is not None else None
        if read.name in made.reads and (head is None or made.reads[read.name] != head.id):
            head = await _version(services, run, read.name, made.reads[read.name])
        if head is None and read.default is MISSING:
            hint = f"orch resume {run.number} goes on with the run"
            raise UsageError(f"{step} reads {read.name}, which has no value in run {run.number}", hint=hint)
        if head is not None:
            found[read.name] = head
    others = {row.name: row.head for row in rows.values() if row.kind == "input" and row.head is not None}
    return {**{name: head for name, head in others.items() if name not in made.reads}, **found}


async def _version(services: Services, run: RunRow, name: str, artifact_id: str | None) -> ArtifactVersion | None:
    versions = await services.store.versions(run.id, name)
    return next((version for version in versions if version.id == artifact_id), None)


def _until(made: MadeFrom) -> int | None:
    """The newest line of the conversation that was shown; 0 where something was sent and no line with it."""
    if made.conversation is None:
        return None
    return max((number for source in made.conversation if (number := message_number(source))), default=0)


# --- what it costs, and making it -------------------------------------------------------------------------------------


def plan_bench(services: Services, bench: Bench, samples: int) -> Plan:
    """What so many samples of each variant would cost, and the hosts they are sent to."""
    sizes = {name: of_bytes(head.size) for name, head in bench.heads.items()}
    levels = {name: head.sensitivity for name, head in bench.heads.items()}
    plans = [plan_step(services, graph, bench.step, sizes, levels, samples) for graph in bench.variants.values()]
    lows, highs = [plan.cost_low_usd for plan in plans], [plan.cost_high_usd for plan in plans]
    return Plan(
        tuple(step for plan in plans for step in plan.steps),
        tuple(dict.fromkeys(host for plan in plans for host in plan.hosts)),
        sum((low for low in lows if low is not None), Decimal(0)) if None not in lows else None,
        sum((high for high in highs if high is not None), Decimal(0)) if None not in highs else None,
        tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def cap_of(bench: Bench, cap_usd: Decimal | None) -> Decimal | None:
    """The most the bench may cost: what was said, else what a whole run of the pipeline may cost."""
    budget = bench.variants["a"].spec.budget
    return cap_usd if cap_usd is not None else budget.usd if budget else None


async def run_bench(services: Services, bench: Bench, samples: int, cap_usd: Decimal | None = None) -> RunRow:
    """Make the samples; gives the bench's row. A sample that fails is a result like any other.

    Status: `succeeded` where every sample has ended, `paused` where the cap let no more of them begin.
    """
    run, dispatches = await services.store.create_run(_new_run(services, bench, samples, cap_usd), services.worker)
    cap = None if run.cap_usd is None else str(run.cap_usd)
    told = {"number": run.number, "run": bench.run.number, "samples": len(dispatches), "cap_usd": cap}
    services.listener(Event("bench.started", bench.step, None, told))
    try:
        budget = await _make(services, bench, run, dispatches)
    except BaseException as error:
        record = error_record(error) if isinstance(error, OrchError) else None
        with contextlib.suppress(OrchError):
            await asyncio.shield(services.store.release_run(run.id, services.worker, "cancelled", record))
        raise
    status, record = _ending(budget)
    await services.store.release_run(run.id, services.worker, status, record)
    return await services.store.run(run.id)


def _ending(budget: BudgetExceeded | None) -> tuple[RunStatus, ErrorRecord | None]:
    if budget is None:
        return "succeeded", None
    hint = "bench again with a higher --cap, or with fewer samples"
    return "paused", replace(error_record(budget), hint=hint)


def _new_run(services: Services, bench: Bench, samples: int, cap_usd: Decimal | None) -> NewRun:
    graph = bench.variants["a"]
    budget = graph.spec.budget
    rows = [_shared(graph, name, head) for name, head in bench.heads.items()]
    if bench.base is not None:
        rows.append(_shared(graph, bench.step, bench.base))
    # In turns, so that a cap cuts all variants alike.
    names = [f"{variant}-{number}" for number in range(1, samples + 1) for variant in bench.variants]
    rows += [NewStep(bench.step, name, bench.node.kind, graph.rank[bench.step]) for name in names]
    return NewRun(
        pipeline=graph.name,
        file=graph.file,
        graph_digest=graph.digest,
        graph_json=graph.spec.model_dump_json(by_alias=True, exclude_unset=True).encode(),
        session=bench.run.session,
        message=None,
        author=services.settings.user,
        inputs={},
        defaulted=bench.defaulted,
        steps=tuple(rows),
        cap_usd=cap_of(bench, cap_usd),
        on_exceed="pause",
        unpriced=budget.unpriced if budget else "refuse",
        parent_id=bench.run.id,
        kind="bench",
        until_message=bench.until,
    )


def _shared(graph: Graph, name: str, head: ArtifactVersion) -> NewStep:
    kind = graph.steps[name].kind if name in graph.steps else "input"
    return NewStep(name, None, kind, graph.rank[name], head=head.id, last_version=head.version)


async def _make(services: Services, bench: Bench, run: RunRow, dispatches: Sequence[Dispatch]) -> BudgetExceeded | None:
    """Run every sample to its end; over the budget no further one begins."""
    gate = asyncio.Semaphore(AT_ONCE)
    stopped: list[BudgetExceeded] = []

    async def one(dispatch: Dispatch) -> None:
        async with gate:
            if not stopped:
                graph, visits = bench.variants[(dispatch.item or "a").partition("-")[0]], [dispatch]
                try:
                    while visits:  # a step that repeats itself has more than one
                        visits += await run_step(services, graph, run, visits.pop())
                except BudgetExceeded as error:
                    stopped.append(error)

    heart = asyncio.create_task(_heartbeat(services))
    tasks = [asyncio.create_task(one(dispatch), name=dispatch.item) for dispatch in dispatches]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in (heart, *tasks):
            task.cancel()
        await asyncio.gather(heart, *tasks, return_exceptions=True)
    return stopped[0] if stopped else None


async def _heartbeat(services: Services) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        with contextlib.suppress(StoreError):  # the samples' own writes meet it too, and report it
            await services.store.heartbeat(services.worker)


async def bench_step(
    services: Services,
    loaded: Loaded,
    graph: Graph,
    run: RunRow,
    step: str,
    samples: int,
    variation: Variation,
    cap_usd: Decimal | None,
    *,
    with_effects: bool,
) -> Benched:
    """All of it at once, for code that has nothing to ask in between. Raises what `prepare` raises."""
    if not 1 <= samples <= MOST:
        raise UsageError(f"{samples} samples", hint=f"take 1 to {MOST}")
    name = known_step(graph, step).name
    bench = await prepare(services, loaded, graph, run, name, variation or None, with_effects=with_effects)
    made = await run_bench(services, bench, samples, cap_usd)
    return await look(services.store, made, lambda artifact: value_of(artifact, graph))


# --- looking at it ----------------------------------------------------------------------------------------------------


async def look(store: Store, bench: RunRow, value_of: Callable[[Artifact], Any]) -> Benched:
    """The bench as the store holds it; `value_of` reads a body. Raises UsageError for a run that is none."""
    if bench.kind != "bench":
        hint = f"to make one: orch bench {bench.number}/STEP"
        raise UsageError(f"run {bench.number} is no bench", hint=hint)
    rows = await store.steps(bench.id)
    made = [row for row in rows if row.item is not None]
    step = made[0].name
    base = next((row for row in rows if row.name == step and row.item is None), None)
    head = base.head if base is not None else None
    samples = tuple([await _sample(store, bench, row, value_of) for row in made])
    return Benched(
        run=bench,
        step=step,
        base=head,
        base_value=value_of(await store.artifact(bench.id, step)) if head is not None else ABSENT,
        variants=_variants(made, base),
        samples=tuple(sorted(samples, key=lambda sample: (sample.variant, int(sample.name.partition("-")[2])))),
    )


async def _sample(store: Store, bench: RunRow, row: StepRow, value_of: Callable[[Artifact], Any]) -> Sample:
    faults: list[str] = []
    if (row.reasks or row.status == "failed") and row.attempt_id is not None:
        calls = [call.done for thread in (await store.journal(row.attempt_id)).threads for call in thread.calls]
        faults = [done.reason for done in calls if done is not None and done.outcome in ("reask", "rejected")]
    return Sample(
        name=str(row.item),
        status=row.status,
        sha256=row.head.sha256 if row.head else None,
        value=value_of(await store.artifact(bench.id, row.name, row.item)) if row.head else None,
        calls=row.calls,
        reasks=row.reasks,
        faults=tuple(faults),
        usage=row.usage,
        cost_usd=row.cost_usd,
        cost_partial=row.cost_partial,
        seconds=row.seconds,
        error=row.error,
    )


def _variants(samples: Sequence[StepRow], base: StepRow | None) -> tuple[Variant, ...]:
    """Each variant by what its first sample was made from; `a` is compared with the run's version, others with `a`."""
    manifests: dict[str, Manifest] = {}
    for row in samples:
        manifests.setdefault(str(row.item).partition("-")[0], row.manifest or Manifest(()))
    before = base.manifest if base is not None else None
    found = []
    for name in sorted(manifests):
        now = manifests[name]
        changes = explain(before, now) if before is not None and before.entries and now.entries else ()
        found.append(Variant(name, _note(now, "model").partition(",")[0], _name(now, "template"), changes))
        before = manifests["a"]
    return tuple(found)


def _note(manifest: Manifest, kind: str) -> str:
    return next((entry.note for entry in manifest.entries if entry.kind == kind), "")


def _name(manifest: Manifest, kind: str) -> str:
    return next((entry.name for entry in manifest.entries if entry.kind == kind), "")


# --- taking a sample over ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promoted:
    """The run that got a sample as its new version, and the version that it replaced."""

    run: RunRow
    old: ArtifactVersion
    new: ArtifactVersion


async def promote(services: Services, graph: Graph, bench: RunRow, sample: str) -> Promoted:
    """The sample as a new version of the step in the run that was benched, told as the model's.

    Raises UsageError where there is no such sample, it breaks the contract as it is now, or the run's version is
    another one by now.
    """
    store = services.store
    rows = [row for row in await store.steps(bench.id) if row.item is not None]
    row = next((row for row in rows if row.item == sample), None)
    if row is None:
        known = ", ".join(str(one.item) for one in rows)
        raise UsageError(f"bench {bench.number} has no sample {sample}", hint=f"its samples: {known}")
    if row.head is None:
        raise UsageError(f"{sample} has no value: {row.status}", hint="choose a sample that passed")
    base = await _base(services, bench, row)
    artifact = await store.artifact(bench.id, row.name, sample)
    _check_value(graph, row.name, artifact.body)
    version = artifact.version
    new = NewArtifact(
        contract=version.contract,
        body=artifact.body,
        author=version.author,
        origin=version.origin,
        sensitivity=version.sensitivity,
        field_hashes=version.field_hashes,
        facts=version.facts,
        guards=version.guards,
    )
    told = Event("step.promoted", row.name, None, {"bench": bench.number, "sample": sample})
    run = await store.run(bench.parent_id or "")
    made = await store.promote(run.id, row.name, base.id, bench=bench.id, item=sample, new=new, told=told)
    return Promoted(run, base, made)


async def _base(services: Services, bench: RunRow, sample: StepRow) -> ArtifactVersion:
    """The version that the samples were compared with."""
    rows = await services.store.steps(bench.id)
    base = next((row.head for row in rows if row.name == sample.name and row.item is None), None)
    if base is None:
        raise UsageError(
            f"run {bench.parent_number} had made no {sample.name} yet, so there is nothing to replace",
            hint=f"change the step in the pipeline, then: orch resume {bench.parent_number}",
        )
    return base


def _check_value(graph: Graph, step: str, body: bytes) -> None:
    """The contract may have changed since the sample was made."""
    contract = graph.steps[step].contract
    try:
        faults = contract.faults(contract.load(body))
    except ValueError as error:
        raise UsageError(f"the sample is no {contract.name} any more: {error}", hint="bench again") from error
    if faults:
        told = "; ".join(f"{fault.path} {fault.rule}, got {fault.value!r}" for fault in faults[:3])
        raise UsageError(f"the sample does not fit {contract.name} as it is now: {told}", code="invalid_edit")
    excess = contract.too_large(body)
    if excess is not None:
        raise UsageError(f"the sample is {excess}", code="too_large")
