"""What a drawing shows: the steps in running order, what each reads and waits for, and in a run how it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orchestrator.graph import Graph, StepNode
    from orchestrator.values import RunRow, StepRow

MARKS: Final[Mapping[str, str]] = {
    "succeeded": "✓",
    "stale": "!",
    "failed": "✗",
    "waiting": "‖",
    "running": "▸",
    "ready": "·",
    "pending": "·",
    "cancelled": "–",
    "skipped": "–",
}
# Of the items of a step, the state that a person should look at first.
_FIRST: Final = ("failed", "waiting", "running", "ready", "pending", "cancelled", "stale", "succeeded", "skipped")


@dataclass(frozen=True, slots=True)
class Node:
    """A step. `inputs` are the run's inputs that it reads, `reads` and `needs` steps of the picture; `state` is None
    where there is no run; `cost_usd` is what is known of it."""

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    state: str | None = None
    items: str = ""
    cost_usd: Decimal | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        return (*self.reads, *self.needs)

    @property
    def facts(self) -> tuple[str, ...]:
        """Its kind, and in a run its state, its items and what it cost, in words."""
        mark = MARKS.get(self.state or "", "·")
        state = self.state or "" if mark == "·" else f"{mark} {self.state}"
        return tuple(part for part in (self.kind, state, self.items, dollars(self.cost_usd)) if part)


@dataclass(frozen=True, slots=True)
class Picture:
    """`steps` come after what they wait for. `run` is the number of the run, None for a pipeline."""

    pipeline: str
    run: int | None
    inputs: tuple[str, ...]
    steps: tuple[Node, ...]

    @property
    def title(self) -> str:
        return self.pipeline if self.run is None else f"{self.pipeline} · run {self.run}"

    def direct(self) -> Mapping[str, tuple[str, ...]]:
        """What each step waits for, without what it waits for anyway because another parent does."""
        above: dict[str, int] = {}  # all ancestors, as bits: cheap for thousands of steps
        bit = {node.name: 1 << at for at, node in enumerate(self.steps)}
        found: dict[str, tuple[str, ...]] = {}
        for node in self.steps:
            implied = 0
            for parent in node.parents:
                implied |= above[parent]
            above[node.name] = implied
            for parent in node.parents:
                above[node.name] |= bit[parent]
            found[node.name] = tuple(parent for parent in node.parents if not bit[parent] & implied)
        return found


def picture_of(
    graph: Graph,
    run: RunRow | None = None,
    rows: Iterable[StepRow] = (),
    stale: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Picture:
    """The picture of a pipeline, or with `run`, its `rows` and the names of its stale steps that of a run.

    `only` names the steps that are drawn; what they read from others is left out with these.
    """
    by_name: dict[str, list[StepRow]] = {}
    for row in rows:
        if not row.retired:
            by_name.setdefault(row.name, []).append(row)
    kept = {name for name in graph.steps if only is None or name in only}
    steps = [
        _node(step, kept, None if run is None else by_name.get(step.name, []), step.name in stale)
        for step in graph.steps.values()
        if step.name in kept
    ]
    used = {name for step in steps for name in step.inputs}
    inputs = tuple(name for name in graph.inputs if only is None or name in used)
    return Picture(graph.name, None if run is None else run.number, inputs, tuple(steps))


def _node(step: StepNode, kept: Collection[str], rows: Sequence[StepRow] | None, stale: bool) -> Node:
    reads = dict.fromkeys(read.name for read in step.reads if read.kind == "step")
    states = [_state(row, stale) for row in rows or ()]
    costs = [row.cost_usd for row in rows or () if row.cost_usd is not None]
    return Node(
        name=step.name,
        kind=step.kind,
        inputs=tuple(dict.fromkeys(read.name for read in step.reads if read.kind == "input")),
        reads=tuple(name for name in reads if name in kept),
        needs=tuple(name for name in step.parents if name not in reads and name in kept),
        state=None if rows is None else min(states, key=_rank, default="pending"),
        items=_items(rows or ()),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
    )


def _state(row: StepRow, stale: bool) -> str:
    return "stale" if row.status == "succeeded" and (stale or row.stale) else row.status


def _rank(state: str) -> int:
    return _FIRST.index(state) if state in _FIRST else -1


def _items(rows: Sequence[StepRow]) -> str:
    """`7 of 8`, where a step has items."""
    items = [row for row in rows if row.item is not None]
    return f"{sum(row.status == 'succeeded' for row in items)} of {len(items)}" if items else ""


def dollars(amount: Decimal | None) -> str:
    """`$0.0114`, `$4.00`; nothing where nothing was paid or nothing is known."""
    if not amount:
        return ""
    if amount < Decimal("0.0001"):
        return "<$0.0001"
    if amount >= 1:
        return f"${amount.quantize(Decimal('0.01')):f}"
    exact = f"{amount.quantize(Decimal('0.0001')):f}"
    return f"${exact[:4]}{exact[4:].rstrip('0')}"
