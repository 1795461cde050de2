"""How a run ended, for people and for programs: the summary below the progress, the document, the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, excerpt, money, plural, show, visible
from orchestrator.errors import EXIT_OK, EXIT_WAITING, OrchError

if TYPE_CHECKING:
    from orchestrator.cli.options import State
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import Artifact, RunRow, StepRow


def exit_code(run: RunRow, steps: Sequence[StepRow]) -> int:
    """0 done, 4 waits; else the code of what stopped it: the run's own error, or its first failed step's."""
    if run.status == "succeeded":
        return EXIT_OK
    if run.status == "waiting":
        return EXIT_WAITING
    errors = [run.error, *(step.error for step in steps if step.status == "failed")]
    return next((error.exit_code for error in errors if error is not None), OrchError.exit_code)


async def input_values(store: Store, run: RunRow, steps: Sequence[StepRow], graph: Graph | None) -> dict[str, Any]:
    """The current input values of a run by name, JSON data."""
    values: dict[str, Any] = {}
    for step in steps:
        if step.kind == "input" and step.head is not None:
            values[step.name] = value_of(await store.artifact(run.id, step.name), graph)
    return values


def value_of(artifact: Artifact, graph: Graph | None) -> Any:
    """A body as JSON data or text, read by its contract; without the contract as what it looks like."""
    import json

    name = artifact.version.step
    node = None if graph is None else graph.steps.get(name) or graph.inputs.get(name)
    if node is not None and node.contract.name == artifact.version.contract:
        return node.contract.load(artifact.body)
    text = artifact.body.decode("utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def stale_by_step(graph: Graph | None, steps: Sequence[StepRow]) -> Mapping[str, tuple[str, ...]]:
    """Why each stale step is stale; empty where the pipeline cannot be loaded now."""
    if graph is None:
        return {}
    from orchestrator.plan import stale_reasons

    return {name: reasons for name, reasons in stale_reasons(graph, steps).items() if reasons}


async def print_run_document(store: Store, run: RunRow, graph: Graph | None) -> None:
    """The run document on stdout, whatever the run's status."""
    from orchestrator.trace.documents import run_document

    steps = await store.steps(run.id)
    inputs = await input_values(store, run, steps, graph)
    print_document(run_document(run, steps, inputs, stale_by_step(graph, steps)))


def print_summary(state: State, run: RunRow, steps: Sequence[StepRow]) -> None:
    """The last lines of a run: money, what happened, and what to type next."""
    from rich.text import Text

    from orchestrator.trace.documents import total_cost

    out = console(stderr=state.json)
    work = [step for step in steps if step.kind != "input"]
    cost, partial = total_cost(work)
    done = sum(step.status == "succeeded" for step in work)
    spent = f"{money(cost, partial=partial)} spent" if cost is not None else "price unknown" if partial else "$0 spent"
    style = {"succeeded": "green", "failed": "red"}.get(run.status, "yellow")
    show(
        out,
        Text.assemble("  ", (run.status, style), f" · {done} of {plural(len(work), 'step')} · {spent}"),
    )
    if run.error is not None:
        show(out, Text(f"  {visible(run.error.message)}", style="red"))
        if run.error.hint:
            show(out, f"  hint: {visible(run.error.hint)}")
    for hint in next_commands(state, run, work):
        show(out, Text(f"  {hint}", style="dim"))


def next_commands(state: State, run: RunRow, steps: Sequence[StepRow]) -> list[str]:
    """Commands that make sense now, ready to paste."""
    number = run.number
    if run.status in ("failed", "paused", "cancelled"):
        failed = next((step.name for step in steps if step.status == "failed"), None)
        look = [state.command(f"why {number}/{failed}")] if failed else []
        return [state.command(f"resume {number}"), *look, state.command(f"show {number}")]
    if run.status == "waiting":
        return [state.command(f"show {number}")]
    last = steps[-1].name if steps else ""
    return [state.command(f"show {number}/{last}"), state.command(f"why {number}/{last}")]


async def print_outputs(state: State, store: Store, run: RunRow, graph: Graph, *, limit: int = 400) -> None:
    """The outputs in short: where each stands and how it begins."""
    import json

    from rich.text import Text

    out = console(stderr=state.json)
    for name in graph.outputs:
        artifact = await store.artifact(run.id, name)
        value = value_of(artifact, graph)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        show(out, Text.assemble("  ", (f"{run.number}/{name}", "bold"), "  ", excerpt(text, limit)))
