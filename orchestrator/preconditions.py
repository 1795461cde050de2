"""What must hold of a run before a person's wish about it is carried out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.graph import Graph, StepNode
from orchestrator.values import RunRow

if TYPE_CHECKING:
    from orchestrator.bodies.asking import Services


def known_step(graph: Graph, name: str) -> StepNode:
    """The step of this name; for one that uses a pipeline, that with its value. Raises UsageError with the nearest
    word, or all there are."""
    step = graph.steps.get(graph.target(name))
    if step is None:
        near = get_close_matches(name, graph.steps, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"steps: {', '.join(graph.steps)}"
        raise UsageError(f'{graph.name} has no step "{name}"', hint=hint)
    return step


def no_bench(run: RunRow) -> None:
    """Raises UsageError for a bench: its samples are results, and nothing of it goes on."""
    if run.kind == "bench":
        raise UsageError(
            f"run {run.number} is a bench of run {run.parent_number}: it is looked at, and no more",
            hint=f"orch bench {run.number} shows it; --promote SAMPLE takes a sample into run {run.parent_number}",
        )


async def check_same_steps(services: Services, graph: Graph, run: RunRow) -> None:
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
