"""What a draft and a person's version both have changed, each in its own way: for people, and for a document (S07)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli.terminal import excerpt, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.exchange.merging import Conflict
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import RunRow


async def conflicts_of(
    store: Store, run: RunRow, graph: Graph | None, step: str, item: str | None
) -> tuple[Conflict, ...]:
    """The conflicts of a draft that waits, of a step or an item; none where nothing waits, or where its pipeline cannot
    be loaded now."""
    from orchestrator.edits import conflicts

    node = graph.steps.get(step) if graph is not None else None
    if node is None:
        return ()
    try:
        undecided = await store.undecided(run.id, step, item)
    except UsageError:
        return ()
    return conflicts(node.contract, undecided)


def documents(found: Sequence[Conflict]) -> list[dict[str, Any]]:
    """Each conflict with its path and the three values; one that is not there is left out."""
    return [{"path": conflict.path, **_present(conflict)} for conflict in found]


def _present(conflict: Conflict) -> dict[str, Any]:
    from orchestrator.exchange.merging import ABSENT

    values = {"base": conflict.base, "head": conflict.head, "draft": conflict.draft}
    return {name: _plain(value) for name, value in values.items() if value is not ABSENT}


def _plain(value: Any) -> Any:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def print_conflicts(out: Console, found: Sequence[Conflict], draft: int) -> None:
    """Each conflict: what both were made of, the person's value, the draft's."""
    from rich.text import Text

    for conflict in found:
        show(out, Text.assemble("  ", ("≠", "yellow"), " ", (visible(conflict.path, one_line=True), "bold")))
        values = _present(conflict)
        for label, name in (("was", "base"), ("edited", "head"), (f"draft v{draft}", "draft")):
            value = excerpt(json.dumps(values[name], ensure_ascii=False)) if name in values else "(not there)"
            show(out, f"      {label:<10}  {value}")
