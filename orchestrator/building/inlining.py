"""The steps of a used pipeline in the place of the step that uses it. Pure: nodes in, nodes out.

Inside, a step `draft` of `study` becomes `study.draft`; what it reads becomes `study.NAME`, of which it goes on to
speak as NAME: in templates, functions, expressions and in what a model is shown. So it is made of the same, byte for
byte, as when its pipeline runs alone. An input becomes the step that makes its value (`handing`).

With `for_each` whatever depends on the entry is done for each of them, joined by key; the rest is done once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.graph import ForEach, Graph, InputNode, Read, StepNode

Nodes = dict[str, StepNode]


@dataclass(frozen=True, slots=True)
class Group:
    """A used pipeline, and what it is given: `condition` decides whether it is done at all, `for_each` for what.
    `outside` is what the step that uses it waits for."""

    name: str
    graph: Graph
    given: tuple[StepNode, ...]
    condition: StepNode | None
    for_each: ForEach | None
    outside: tuple[str, ...]

    def full(self, name: str) -> str:
        """A name of the used pipeline, in the run."""
        return f"{self.name}.{name}"

    @property
    def prefixed(self) -> Mapping[str, tuple[str, ...]]:
        """The groups that it consists of: itself, and those inside."""
        own = [*(node.name for node in (self.condition, *self.given) if node), *map(self.full, self.graph.steps)]
        inner = {self.full(name): tuple(map(self.full, names)) for name, names in self.graph.groups.items()}
        return {self.name: tuple(own), **inner}


def fanned(group: Group) -> frozenset[str]:
    """The steps, by their names in the run, that are done for each entry: what is given a part of it, and all that
    reads from there. A gate asks once, about all of them."""
    if group.for_each is None:
        return frozenset()
    found = {node.name for node in group.given if any(_of_entry(read) for read in node.reads)}
    for node in group.graph.steps.values():
        if node.gate is None and any(group.full(read.source) in found for read in node.reads):
            found.add(group.full(node.name))
    return frozenset(found)


def _of_entry(read: Read) -> bool:
    return read.kind == "entry" or read.takes == "sibling"


def nodes_of(group: Group) -> Nodes:
    """The steps of a group, by their names in the run; what they are given still reads what the using pipeline calls
    it."""
    many = fanned(group)
    first = next((node.name for node in group.given if node.name in many), None)
    nodes: Nodes = {}
    for node in (group.condition, *group.given):
        if node is not None:
            nodes[node.name] = _given(group, node, many, first)
    for inner in group.graph.steps.values():
        nodes[group.full(inner.name)] = _inner(group, inner, nodes, many, first)
    return nodes


def inputs_of(group: Group) -> dict[str, InputNode]:
    """What the used pipeline takes from earlier runs: one of its own steps has its name in the run there too."""
    found: dict[str, InputNode] = {}
    for node in group.graph.inputs.values():
        earlier = node.earlier
        if earlier is not None:
            step = group.full(earlier.step) if earlier.step in group.graph.steps else earlier.step
            name = group.full(node.name)
            found[name] = replace(node, name=name, earlier=replace(earlier, step=step))
    return found


def ends(names: Iterable[str], nodes: Nodes) -> tuple[str, ...]:
    """The steps of a group that no other of it waits for: when they have ended, all of it has."""
    names = tuple(names)
    awaited = {parent for name in names for parent in nodes[name].parents}
    return tuple(name for name in names if name not in awaited)


# --- what depends on the entry ----------------------------------------------------------------------------------------


def _joined(group: Group, name: str, first: str | None) -> ForEach | None:
    """The fan-out of a step inside: the first that is given a part of the entry has the list, the others its keys."""
    assert group.for_each is not None
    return group.for_each if name == first else replace(group.for_each, same=first)


# --- steps ------------------------------------------------------------------------------------------------------------


def _given(group: Group, node: StepNode, many: frozenset[str], first: str | None) -> StepNode:
    only_if = _conditions(group) if node is not group.condition else ()
    parents = [*node.parents, *(read.name for read in only_if)]
    for_each = _joined(group, node.name, first) if node.name in many else None
    if for_each is not None and node.name != first and first is not None:
        parents.append(first)
    return replace(node, only_if=only_if, parents=tuple(dict.fromkeys(parents)), for_each=for_each)


def _conditions(group: Group) -> tuple[Read, ...]:
    node = group.condition
    if node is None:
        return ()
    return (Read(node.name, "step", node.contract, None, None, node.place, alias="when"),)


def _inner(group: Group, node: StepNode, known: Nodes, many: frozenset[str], first: str | None) -> StepNode:
    name = group.full(node.name)
    each = name in many
    reads = tuple(_read(group, read, known, each, many) for read in node.reads)
    only_if = (*_conditions(group), *(_read(group, read, known, each, many) for read in node.only_if))
    inside = [group.full(parent) for parent in node.parents]
    inside += [read.source for read in (*reads, *only_if) if read.kind == "step" or read.given]
    inside += [first] if each and first is not None else []
    above = [parent for parent in dict.fromkeys(inside) if parent in known]
    for_each = _joined(group, name, first) if each else _listed(group, node.for_each)
    gate = node.gate
    if gate is not None:
        redo = group.full(gate.redo) if gate.redo is not None else None
        gate = replace(gate, redo=redo, reviews=group.full(gate.reviews) if gate.reviews is not None else None)
    return replace(
        node,
        name=name,
        alias=node.called,
        reads=reads,
        only_if=only_if,
        parents=tuple(above) or group.outside,
        for_each=for_each,
        gate=gate,
    )


def _read(group: Group, read: Read, known: Nodes, each: bool, many: frozenset[str]) -> Read:
    source = group.full(read.source)
    moved = replace(read, alias=read.called, approvers=tuple(map(group.full, read.approvers)))
    if read.kind == "entry":
        return replace(moved, of=source, alias="")
    moved = replace(moved, name=source, takes=_takes(read, each, source in many))
    return replace(moved, kind="step") if source in known else moved


def _takes(read: Read, each: bool, source_each: bool) -> Literal["one", "each", "sibling"]:
    if not source_each:
        return read.takes
    return "sibling" if each else "each"


def _listed(group: Group, for_each: ForEach | None) -> ForEach | None:
    """A fan-out of the used pipeline itself. Its list is one of its steps, or what it is given."""
    if for_each is None:
        return None
    same = group.full(for_each.same) if for_each.same is not None else None
    return replace(for_each, source=group.full(for_each.source), source_kind="step", same=same)


# --- into the whole ---------------------------------------------------------------------------------------------------


def linked(nodes: Nodes, groups: Mapping[str, tuple[str, ...]], targets: Mapping[str, str]) -> Nodes:
    """The steps with the names of the using pipeline looked up: `targets` are the steps that names of outputs stand
    for, and who waits for a group waits for all of it."""
    last = {name: ends(names, nodes) for name, names in groups.items()}
    return {name: _linked(node, last, targets) for name, node in nodes.items()}


def _linked(node: StepNode, last: Mapping[str, tuple[str, ...]], targets: Mapping[str, str]) -> StepNode:
    reads, only_if = (tuple(_to(read, targets) for read in part) for part in (node.reads, node.only_if))
    parents: list[str] = []
    for parent in node.parents:
        parents += last.get(parent, (parent,))
    parents += [read.source for read in reads if read.kind == "step" and read not in node.reads]
    for_each = node.for_each
    if for_each is not None:
        same = targets.get(for_each.same, for_each.same) if for_each.same is not None else None
        for_each = replace(for_each, source=targets.get(for_each.source, for_each.source), same=same)
    gate = node.gate
    if gate is not None and gate.redo is not None:
        gate = replace(gate, redo=targets.get(gate.redo, gate.redo))
    return replace(
        node, reads=reads, only_if=only_if, parents=tuple(dict.fromkeys(parents)), for_each=for_each, gate=gate
    )


def _to(read: Read, targets: Mapping[str, str]) -> Read:
    if read.kind == "entry":
        return replace(read, of=targets.get(read.of, read.of))
    target = targets.get(read.name)
    return (
        read if target is None else replace(read, name=target, alias=read.called if target != read.name else read.alias)
    )
