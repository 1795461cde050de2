"""Steps with items, where runs are shown: one line for the step with all sums, and the items that need a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from orchestrator.values import Usage

if TYPE_CHECKING:
    from orchestrator.values import StepRow

FEW: Final = 8
_NAMED: Final = 3


def folded(rows: Sequence[StepRow], reasons: Mapping[str, Sequence[str]], *, every: bool) -> list[StepRow]:
    """The rows to print: each step, its items summed up in it; then the items, all where they are few or wanted, else
    those that failed, wait or are stale."""
    by_step: dict[str, list[StepRow]] = {}
    for row in rows:
        by_step.setdefault(row.name, []).extend([row] if row.item else [])
    listed: list[StepRow] = []
    for row in rows:
        items = by_step[row.name]
        if row.item is None:
            listed.append(summed(row, items) if row.kind == "map" else row)
        elif every or len(items) <= FEW or row.status in ("failed", "waiting") or reasons.get(row.label):
            listed.append(row)
    return listed


def summed(step: StepRow, items: Sequence[StepRow]) -> StepRow:
    """The step with what its items took, all together."""
    rows = [step, *items]
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return replace(
        step,
        calls=sum(row.calls for row in rows),
        reasks=sum(row.reasks for row in rows),
        usage=sum((row.usage for row in rows), Usage()),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
        cost_partial=any(row.cost_partial for row in rows),
        seconds=sum(row.seconds for row in rows),
    )


def counted(step: StepRow, rows: Sequence[StepRow], listed: Sequence[StepRow]) -> tuple[str, ...]:
    """`7 of 8 · acme: timeout after 5 tries`: how many items are done, and the first few that are not, unless they are
    among those that are `listed`."""
    items = [row for row in rows if row.name == step.name and row.item]
    done = sum(row.status == "succeeded" for row in items)
    told = {row.label for row in listed}
    failed = [row for row in items if row.error and row.status in ("failed", "waiting") and row.label not in told]
    named = [f"{row.item}: {row.error.message}" for row in failed[:_NAMED] if row.error]
    rest = len(failed) - len(named)
    return (" · ".join([f"{done} of {len(items)}", *named, *([f"and {rest} more"] if rest else [])]),)
