"""Which steps of a child run are made again as a whole, and of which only some items are. Pure.

An item is known by its key. Where only one of a step's items runs again, a step that is joined with it (`same`) has
only the item of that key to do again; a step that reads all items, or anything else that is new, runs again as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.graph import Graph, StepNode, downstream
from orchestrator.preconditions import known_step
from orchestrator.store.records import NewStep
from orchestrator.values import StepRow

Keys = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Named:
    """What a person named to run again: whole steps, and of other steps the keys of items."""

    whole: frozenset[str]
    items: Keys

    @property
    def steps(self) -> frozenset[str]:
        """All steps of which anything was named."""
        return self.whole | self.items.keys()


def named(graph: Graph, names: Sequence[str], rows: Sequence[StepRow]) -> Named:
    """`STEP` and `STEP/KEY` apart; a step named both ways is meant as a whole. Raises UsageError for an unknown one."""
    whole, items = set[str](), dict[str, set[str]]()
    for text in names:
        name, inside, key = text.partition("/")
        step = known_step(graph, name).name
        if inside:
            items.setdefault(step, set()).add(_known_key(step, key, rows))
        else:
            whole.add(step)
    return Named(frozenset(whole), {name: frozenset(keys) for name, keys in items.items() if name not in whole})


def _known_key(step: str, key: str, rows: Sequence[StepRow]) -> str:
    keys = [row.item for row in rows if row.name == step and row.item and not row.retired]
    if key not in keys:
        hint = f"its items: {', '.join(keys[:20])}" if keys else f"{step} has no items; name it as a whole: {step}"
        raise UsageError(f'{step} has no item "{key}"', hint=hint)
    return key


def items_below(graph: Graph, begun: Named) -> Keys:
    """The steps at and below what was named of which only some items run again, with the keys of those."""
    whole = begun.whole | downstream(graph, begun.whole)
    affected = whole | begun.items.keys() | downstream(graph, begun.items)
    found: dict[str, frozenset[str] | None] = dict.fromkeys(whole)

    def keys_of(name: str) -> frozenset[str] | None:
        """None where the step runs again as a whole."""
        if name not in found:
            above = affected.intersection(graph.steps[name].parents)
            parts = [keys_of(parent) for parent in above] if above <= _joined(graph.steps[name]) else [None]
            known = [part for part in parts if part is not None]
            found[name] = begun.items.get(name, frozenset()).union(*known) if len(known) == len(parts) else None
        return found[name]

    return {name: keys for name in sorted(affected) if (keys := keys_of(name)) is not None}


def _joined(step: StepNode) -> frozenset[str]:
    """The steps of which an item reads nothing but what is under its own key."""
    siblings = {read.name for read in step.reads if read.takes == "sibling"}
    same = {step.for_each.same} if step.for_each is not None and step.for_each.same is not None else set[str]()
    return frozenset(siblings | same) - {read.name for read in step.reads if read.takes == "each"}


def item_rows(step: NewStep, rows: Sequence[StepRow], keys: frozenset[str]) -> list[NewStep]:
    """The items of a step that runs again for these keys alone: the others are shared, those of the keys go on from the
    number of their last version. One that has no value has nothing to share, and is left to the step itself."""
    return [
        NewStep(step.name, row.item, row.kind, step.order, (), *_begins(row, row.item in keys), entry=row.entry)
        for row in rows
        if row.name == step.name and row.item and row.head and not row.retired
    ]


def _begins(row: StepRow, again: bool) -> tuple[str | None, int]:
    assert row.head is not None
    last = max(row.head.version, row.draft.version if row.draft else 0)
    return (None, last) if again else (row.head.id, row.head.version)
