"""Options that take steps: one language for all of them, read against the pipeline and, where there is one, its run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import RunRow, StepRow

select_option = click.option(
    "--select",
    "selections",
    metavar="STEPS",
    multiple=True,
    help='Only these steps: names, name+, tag:T, "status:failed or stale", …',
)


def selected(graph: Graph, selections: Sequence[str], rows: Sequence[StepRow] | None = None) -> tuple[str, ...]:
    """The steps and items (`step/key`) that any of the selections means, in running order. Raises UsageError for one
    that means none."""
    from orchestrator.cli.outcome import stale_by_step
    from orchestrator.selection import select

    stale = set[str]()
    if rows is not None:
        stale = {*stale_by_step(graph, rows), *(row.label for row in rows if row.stale)}
    chosen = dict.fromkeys(name for text in selections for name in select(text, graph, rows, stale))
    order = {name: at for at, name in enumerate(graph.steps)}
    return tuple(sorted(chosen, key=lambda name: order[name.partition("/")[0]]))


def steps_of(names: Iterable[str]) -> frozenset[str]:
    """The steps of what was selected, where items cannot be told apart."""
    return frozenset(name.partition("/")[0] for name in names)


async def selected_of_run(desk: Desk, store: Store, run: RunRow, selections: Sequence[str]) -> frozenset[str] | None:
    """The same for a run that is shown; None where nothing was selected and all is meant."""
    if not selections:
        return None
    return frozenset(selected(desk.graph_of(run), selections, await store.steps(run.id)))


def only_steps(document: dict[str, Any], names: frozenset[str] | None) -> dict[str, Any]:
    """A run's document with these steps alone; its sums stay those of the run."""
    if names is None:
        return document
    run = document["run"]
    return {**document, "run": {**run, "steps": [step for step in run["steps"] if _is_in(step, names)]}}


def _is_in(step: dict[str, Any], names: frozenset[str]) -> bool:
    return step["name"] in names or f"{step['name']}/{step['item']}" in names
