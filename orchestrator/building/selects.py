"""`select:` reads, replaced by the reads they stand for: one of each step that the selection means, whole.

This happens before the steps are built, so that everything behind it knows named reads only. A selection may therefore
speak of what is declared (names, tags, kinds), never of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.selection import choose, parse
from orchestrator.spec import InputSpec, ReadSpec, StepSpec

if TYPE_CHECKING:
    from orchestrator.building import Building


@dataclass(frozen=True, slots=True)
class _Tagged:
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class _Step:
    kind: str
    parents: tuple[str, ...]
    reads: tuple[_Read, ...]
    contract: _Tagged


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The pipeline as it is declared: what waits for what follows from the reads that have a name."""

    name: str
    inputs: Mapping[str, InputSpec]
    steps: Mapping[str, _Step]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


def resolve_selects(building: Building) -> None:
    """Put named reads in place of selections, in the building's spec, places and all; faults are reported there."""
    if not any(read.select is not None for step in building.spec.steps.values() for read in step.reads):
        return
    pipeline = _declared(building)
    steps = dict(building.spec.steps)
    for name, step in steps.items():
        found = [
            (at, one) for at, read in enumerate(step.reads) for one in _meant(building, pipeline, name, step, read, at)
        ]
        steps[name] = step.model_copy(update={"reads": tuple(read for _, read in found)})
        building.places = building.places.with_entries([at for at, _ in found], "steps", name, "reads")
    building.spec = building.spec.model_copy(update={"steps": steps})


def _declared(building: Building) -> _Pipeline:
    spec = building.spec
    steps = {}
    for name, step in spec.steps.items():
        named = [building.uses.origin(read.read) for read in step.reads if read.select is None]
        parents = tuple(one for one in dict.fromkeys((*named, *step.needs)) if one in spec.steps)
        reads = tuple(_Read("input" if one in spec.inputs else "step", one) for one in named)
        kind = "python" if step.python is not None else "llm"
        steps[name] = _Step(kind, parents, reads, _Tagged(_tags(building, name, step)))
    return _Pipeline(spec.pipeline, spec.inputs, steps)


def _tags(building: Building, name: str, step: StepSpec) -> tuple[str, ...]:
    """Those of its contract; of a used pipeline those of all its outputs."""
    if name not in building.uses:
        contract = building.contract(step.produces or name)
        return contract.tags if contract is not None else ()
    outputs = [output for output, owner in building.uses.outputs().items() if owner == name]
    found = [building.uses.contract(output) for output in outputs]
    return tuple(dict.fromkeys(tag for contract in found if contract is not None for tag in contract.tags))


def _meant(
    building: Building, pipeline: _Pipeline, name: str, step: StepSpec, read: ReadSpec, at: int
) -> Sequence[ReadSpec]:
    """The reads that one entry stands for: itself where it has a name."""
    if read.select is None:
        return (read,)
    try:
        chosen = choose(parse(read.select), pipeline)
    except UsageError as error:
        message = error.message.splitlines()[0]
        _fault(building, name, f"the selection {read.select!r}: {message}", at, error.hint)
        return ()
    named = {one.read for one in step.reads}
    earlier = [_quietly(one.select, pipeline) for one in step.reads[:at] if one.select is not None]
    known = named.union(*earlier)
    if not [one for one in chosen if one != name]:
        hint = f"the steps of {pipeline.name}: {', '.join(pipeline.steps)}"
        _fault(building, name, f"the selection {read.select!r} means no step beside itself", at, hint)
    return tuple(
        read.model_copy(update={"read": one, "select": None}) for one in chosen if one != name and one not in known
    )


def _fault(building: Building, name: str, message: str, at: int, hint: str | None) -> None:
    """What the step reads is then in doubt, so nothing that seems to be missing is a fault of its own."""
    building.error("P207", f"step {name}: {message}", building.of("steps", name, "reads", at, "select"), hint)
    dropped = building.loaded.dropped | {("steps", name, "reads")}
    building.loaded = replace(building.loaded, dropped=dropped)


def _quietly(text: str, pipeline: _Pipeline) -> frozenset[str]:
    """What an entry before this one means; its own fault is told at its own place."""
    try:
        return frozenset(choose(parse(text), pipeline))
    except UsageError:
        return frozenset()
