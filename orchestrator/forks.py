"""Child runs: what runs again in them, and what they share with their parent by reference."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.bodies.asking import AtOnce
from orchestrator.building.choices import with_models
from orchestrator.errors import UsageError
from orchestrator.fitness import check_models
from orchestrator.forked_items import Keys, item_rows, items_below, named
from orchestrator.graph import Graph, downstream, upstream
from orchestrator.inputs import given_inputs
from orchestrator.loop import drive
from orchestrator.preconditions import known_step, no_bench
from orchestrator.run_rows import new_steps, spec_json
from orchestrator.staleness import stale_reasons
from orchestrator.step import Services
from orchestrator.store.records import NewRun, NewStep
from orchestrator.values import RunRow, StepRow


async def rerun(
    services: Services,
    graph: Graph,
    run: RunRow,
    from_steps: Sequence[str],
    *,
    only: bool = False,
    until: Sequence[str] = (),
    inputs: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> RunRow:
    """A child run: the named steps and all below them run again, everything else is shared by reference.

    `STEP/KEY` is one item of a step: the others are shared, and where a step joined with it is below, of that too.
    `only`: just the named steps. `until`: of all these, only what those steps need, themselves included. `inputs` have
    other values in the child, and what reads them runs again, with all below. What is shared although something above
    it is new is stale in the child; a refresh runs it. Beyond the limit no gate is asked, and what has no value yet
    gets none: a resume of the child goes on there. `model` (an alias, or `provider:model`) is what the steps that run
    again ask in the child, also when it is resumed. Raises UsageError for an unknown step, item, input or model.
    """
    no_bench(run)
    last = {known_step(graph, name).name for name in until}
    every = await services.store.steps(run.id)
    begun = named(graph, from_steps, every)
    given = given_inputs(graph, inputs or {}, services.settings.user)
    changed = downstream(graph, given)
    again = set(begun.steps | changed | (frozenset() if only else downstream(graph, begun.steps)))
    items = begun.items if only else items_below(graph, begun)
    last = last or (again if only else set(graph.steps))
    limit = last | upstream(graph, last)
    again &= limit
    rows = {row.name: row for row in every if row.item is None}
    asking = _ask_again(graph, every, again)
    items = {name: keys for name, keys in items.items() if name in again and name not in changed | asking}
    again |= asking & limit  # an approval that is not given cannot be shared
    new = again | given.keys()
    models = {**run.models, **_asking(graph, again, model)}
    graph = with_models(graph, services.settings, models)
    hosts = check_models(services, graph)
    listed = [_shared(step, rows.get(step.name), step.name in new) for step in new_steps(graph)]
    shared = [
        step
        for step in listed
        if step.kind == "input" or step.name in limit or (step.head is not None and step.name not in asking)
    ]
    steps = tuple(one for step in shared for one in (step, *_shared_items(step, every, items)))
    child, dispatches = await services.store.create_run(
        NewRun(
            pipeline=graph.name,
            file=graph.file,
            graph_digest=graph.digest,
            graph_json=spec_json(graph),
            session=run.session,
            message=run.message,
            author=services.settings.user,
            inputs=given,
            defaulted=frozenset(row.name for row in rows.values() if row.defaulted) - given.keys(),
            steps=steps,
            cap_usd=run.cap_usd,
            on_exceed=run.on_exceed,
            unpriced=run.unpriced,
            models=models,
            parent_id=run.id,
        ),
        services.worker,
        AtOnce(graph, services.worker),
    )
    return await drive(services, graph, child, dispatches, hosts)


def _asking(graph: Graph, again: Collection[str], model: str | None) -> dict[str, str]:
    """The steps that are to ask this model. Raises UsageError where a model is named and none would ask it."""
    chosen = {name: model for name in again if model is not None and graph.steps[name].asks}
    if model is not None and not chosen:
        raise UsageError(
            f"nothing that runs again asks a model, so {model} would not be asked",
            hint="leave the model out, or begin at a step that asks one",
        )
    return chosen


def _shared_items(step: NewStep, rows: Sequence[StepRow], again: Keys) -> list[NewStep]:
    """The items of a step that is shared: those that its value names. Of one that runs again, for some of its items or
    all: all there are, so that what people wrote in them is merged with what is made anew (S07)."""
    if step.name in again:
        return item_rows(step, rows, again[step.name])
    if step.kind == "map" and step.head is None:
        return item_rows(step, rows, frozenset(row.item for row in rows if row.name == step.name and row.item))
    there = {
        key for row in rows if row.name == step.name and not row.item and row.head for key in row.head.field_hashes
    }
    return [
        NewStep(step.name, row.item, row.kind, step.order, (), row.head.id, row.head.version, entry=row.entry)
        for row in rows
        if step.kind == "map" and step.head and row.name == step.name and row.head and row.item in there
    ]


def _ask_again(graph: Graph, every: Sequence[StepRow], again: Collection[str]) -> set[str]:
    """The gates whose answer a child run cannot share, because it is none, not for what stands now (S15), or for what
    is made again, and all that waits for them."""
    stale, asking = stale_reasons(graph, every), set()
    rows = {row.name: row for row in every if row.item is None}
    for node in graph.steps.values():
        row = rows.get(node.name)
        if node.gate is None or node.name in again or row is None:
            continue
        opened = row.decision == "approve" or (row.decision == "reject" and node.gate.then == "go_on")
        made_again = any(read.name in again for read in node.reads)
        if not opened or row.status != "succeeded" or node.name in stale or made_again:
            asking.add(node.name)
    return asking | downstream(graph, asking)


def _shared(step: NewStep, row: StepRow | None, again: bool) -> NewStep:
    if row is None or row.head is None or (row.kind == "map") != (step.kind == "map"):
        return step
    last = max(row.head.version, row.draft.version if row.draft else 0)
    return replace(step, last_version=last) if again else replace(step, head=row.head.id, last_version=last)
