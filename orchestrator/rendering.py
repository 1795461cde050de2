"""What one step would send now, to the byte, without sending it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.bodies.asking import snapshot_of
from orchestrator.context import build_context
from orchestrator.context.select import not_declared
from orchestrator.context.summaries import stand_in, to_summarise
from orchestrator.errors import UsageError
from orchestrator.fan_out import expand
from orchestrator.graph import Graph, StepNode
from orchestrator.ids import sha256, synthetic_thread_id
from orchestrator.inputs import check_inputs
from orchestrator.moves import prompt_item
from orchestrator.preconditions import known_step
from orchestrator.step import Services, compose_off_loop, output_format
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    LeftOut,
    NewArtifact,
    Prompt,
    Request,
    RunRow,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Exactly what a step's first call would send: text by block, and the request body as bytes."""

    prompt: Prompt
    left_out: tuple[LeftOut, ...]
    wire: bytes
    model: str


async def render_step(
    services: Services,
    graph: Graph,
    name: str,
    *,
    run: RunRow | None,
    inputs: Mapping[str, Any] | None = None,
    item: str | None = None,
) -> Rendered:
    """The request that `name`, or one item of it, would start with now. Raises UsageError where a read does not exist
    yet."""
    step = _renderable(graph, name, item)
    model = step.model
    assert model is not None
    snapshot = await _snapshot(services, graph, step, run, inputs or {}, item)
    _check_reads(step, graph, snapshot, item)
    provider = services.providers.offline(model.provider)
    stand_ins = {entry.read.name: stand_in(entry) for entry in to_summarise(graph, step, snapshot)}
    snapshot = replace(snapshot, summaries=stand_ins)
    context = build_context(
        graph,
        step,
        snapshot,
        may_see=provider.traits.may_see,
        provider_name=provider.traits.name,
        accepts=provider.traits.accepts,
        window=services.prices.window(model.provider, model.model),
    )
    prompt = await compose_off_loop(step, context, snapshot)
    request = Request(
        model=model.model,
        thread=synthetic_thread_id("render"),
        system=prompt.system,
        items=(prompt_item(prompt),),
        tools=tuple(tool.spec for tool in step.tools),
        hosted=step.hosted,
        output=output_format(step),
        max_output_tokens=model.max_output_tokens,
        effort=model.effort,
        background=model.background,
        edits=model.edits,
        step=step.name,
    )
    return Rendered(prompt, (*not_declared(graph, step), *context.left_out), provider.wire(request), model.name)


def _renderable(graph: Graph, name: str, item: str | None) -> StepNode:
    """The step, if what it would send is known before it runs. Raises UsageError."""
    step = known_step(graph, name)
    name = step.name
    if step.kind == "python" and step.asks:
        hint = f"after a run: orch why RUN/{name} --text shows what it sent"
        raise UsageError(
            f"{name} cannot be rendered: its Python body decides what it asks, its first question too, when it runs",
            hint=hint,
        )
    if step.gate is not None:
        raise UsageError(f"{name} is a gate: it asks a person and sends nothing", hint="orch show shows what it asks")
    if step.model is None or not step.asks:
        raise UsageError(f"{name} is a Python step: it sends nothing", hint="orch show shows its value")
    if (step.for_each is not None) != (item is not None):
        hint = f"name one of them: {name}/KEY" if item is None else f"write {name}"
        what = "is made for each entry of a list" if item is None else f"has no items, so none that is {item}"
        raise UsageError(f"{name} {what}", hint=hint)
    return step


def _check_reads(step: StepNode, graph: Graph, snapshot: Snapshot, item: str | None) -> None:
    """Raises UsageError for a read that does not exist yet."""
    name = step.name
    missing = [r.source for r in step.reads if r.name not in snapshot.artifacts and r.source in graph.steps]
    if missing and item is not None and step.for_each is not None and missing[-1] == step.for_each.source:
        raise UsageError(f"{name} has no item {item}", hint=f"its list is {step.for_each.list_name}")
    if missing:
        raise UsageError(
            f"{name} reads {', '.join(missing)}, which has not run", hint="run the pipeline up to there first"
        )


async def _snapshot(
    services: Services,
    graph: Graph,
    step: StepNode,
    run: RunRow | None,
    inputs: Mapping[str, Any],
    item: str | None,
) -> Snapshot:
    if run is not None:
        return await snapshot_of(services.store, run.id, step, item)
    given = {name: _unsaved(name, new) for name, new in check_inputs(graph, inputs).items()}
    reads = {read.name: given[read.name] for read in step.reads if read.name in given}
    if step.for_each is not None and step.for_each.source in given and step.for_each.same is None:
        reads |= _given_entry(step, given[step.for_each.source], item)
    return Snapshot(reads, record=given, defaulted=frozenset(name for name in given if name not in inputs))


def _given_entry(step: StepNode, whole: Artifact, item: str | None) -> dict[str, Artifact]:
    """The entry of that key, where the list is a given input."""
    assert step.for_each is not None
    entries = expand(step, step.for_each.whole.load(whole.body)).entries
    body = next((entry.body for entry in entries if entry.key == item), None)
    if body is None:
        raise UsageError(f"{step.name} has no item {item}", hint=f"it has {', '.join(entry.key for entry in entries)}")
    return {step.for_each.item: Artifact(replace(whole.version, sha256=sha256(body), field_hashes={}), body)}


def _unsaved(name: str, new: NewArtifact) -> Artifact:
    """An input that no run holds yet."""
    version = ArtifactVersion(
        id="",
        run_id="",
        step=name,
        item=None,
        contract=new.contract,
        version=1,
        sha256=sha256(new.body),
        size=len(new.body),
        author=new.author,
        origin=new.origin,
        created_at=datetime.fromtimestamp(0, UTC),
        parent_id=None,
        sensitivity=new.sensitivity,
        field_hashes=new.field_hashes,
    )
    return Artifact(version, new.body)
