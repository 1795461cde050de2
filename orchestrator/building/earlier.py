"""Reads of what earlier runs made (`from: session | project`), as inputs that nobody gives.

When a run starts it takes the newest version there is and keeps to it (S15). So in the graph such a read is an input
with what it takes (`earlier`); two steps that read the same under one name share it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.errors import Place
from orchestrator.graph import InputNode
from orchestrator.spec import MISSING, ReadSpec
from orchestrator.values import FromEarlier

if TYPE_CHECKING:
    from orchestrator.building import Building


def resolve_earlier(building: Building) -> None:
    """Put reads by name in place of reads from earlier runs, and note what they take; faults are reported."""
    steps = dict(building.spec.steps)
    for name, step in steps.items():
        if not any(read.from_ or read.as_ or read.type for read in step.reads):
            continue
        reads = [_local(building, name, read, at) for at, read in enumerate(step.reads)]
        kept = [(at, read) for at, read in enumerate(reads) if read is not None]
        if len(kept) < len(reads):
            building.loaded = replace(building.loaded, dropped=building.loaded.dropped | {("steps", name, "reads")})
        building.places = building.places.with_entries([at for at, _ in kept], "steps", name, "reads")
        steps[name] = step.model_copy(update={"reads": tuple(read for _, read in kept)})
    building.spec = building.spec.model_copy(update={"steps": steps})


def _local(building: Building, step: str, read: ReadSpec, at: int) -> ReadSpec | None:
    """The read by the name it has in this run; None where it is faulty, and reported."""
    place = building.of("steps", step, "reads", at)
    if read.from_ is None:
        if read.as_ is None and read.type is None:
            return read
        building.error(
            "P219", f"step {step}: `as` and `type` are said of a read `from` an earlier run", place, "add from"
        )
        return None
    name = read.as_ or read.read
    node = _node(building, step, read, name, place)
    if node is None:
        return None
    building.inputs[name] = node
    building.known_as_input(name)
    return read.model_copy(update={"read": name, "from_": None, "as_": None, "type": None})


def _node(building: Building, step: str, read: ReadSpec, name: str, place: Place) -> InputNode | None:
    assert read.from_ is not None
    if name in building.spec.steps or name in building.spec.inputs:
        hint = f"give it a name of its own: as: previous-{name}"
        building.error(
            "P219", f"step {step}: {name} is a step or input here, and read from a {read.from_}", place, hint
        )
        return None
    own = building.spec.steps.get(read.read)
    contract_name = read.type or (own.produces if own is not None else None) or read.read
    contract = building.contract(contract_name)
    if contract is None:
        if not building.has_contract(contract_name):
            hint = "name its contract: type: NAME"
            building.error("P219", f"step {step}: there is no contract {contract_name} for {read.read}", place, hint)
        return None
    earlier = FromEarlier(read.from_, read.read, contract.name, required=read.default is MISSING)
    before = building.inputs.get(name)
    there = before.earlier if before is not None else None
    if there is not None and replace(there, required=earlier.required) != earlier:
        hint = "give one of them another name with `as`"
        building.error("P219", f"step {step}: {name} is two things read from earlier runs", place, hint)
        return None
    required = earlier.required or (there is not None and there.required)
    return InputNode(name, contract, place, earlier=replace(earlier, required=required))
