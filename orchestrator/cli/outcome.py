"""How a run ended, for people and for programs: the summary below the progress, the document, the exit code."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, excerpt, plural, show, show_line, spent, visible
from orchestrator.errors import EXIT_OK, EXIT_WAITING, OrchError
from orchestrator.exchange.reading import readable, value_of

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.cli.options import State
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import RunRow, StepRow


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


def stale_by_step(graph: Graph | None, steps: Sequence[StepRow]) -> Mapping[str, tuple[str, ...]]:
    """Why each stale step is stale; empty where the pipeline cannot be loaded now."""
    if graph is None:
        return {}
    from orchestrator.staleness import stale_reasons

    return stale_reasons(graph, steps)


async def print_run_document(
    store: Store, run: RunRow, graph: Graph | None, only: frozenset[str] | None = None, **beside: Any
) -> None:
    """The run document on stdout, whatever the run's status; `only` names the steps it shows, `beside` stands next to
    the run."""
    from orchestrator.cli.selecting import only_steps
    from orchestrator.trace.documents import run_document

    steps = await store.steps(run.id)
    inputs = await input_values(store, run, steps, graph)
    document = only_steps(run_document(run, steps, inputs, stale_by_step(graph, steps)), only)
    print_document({**document, **beside})


def print_summary(state: State, run: RunRow, steps: Sequence[StepRow], *, hints: bool = True) -> None:
    """The last lines of a run: how it ended, money, what stopped it, and what to type next."""
    from rich.text import Text

    from orchestrator.trace.documents import total_cost

    out = console(stderr=state.json)
    work = [step for step in steps if step.kind != "input"]
    cost, partial = total_cost(work)
    work_steps = [step for step in work if step.item is None]
    done = sum(step.status == "succeeded" for step in work_steps)
    style = {"succeeded": "green", "failed": "red"}.get(run.status, "yellow")
    counts = f" · {done} of {plural(len(work_steps), 'step')} · {spent(cost, partial)}"
    show(out, Text.assemble("  ", (run.status, style), counts))
    print_run_error(out, run, work)
    for hint in next_commands(state, run, work) if hints else ():
        show(out, Text(f"  {hint}", style="dim"))


def print_run_error(out: Console, run: RunRow, steps: Sequence[StepRow]) -> None:
    """What stopped the run, unless a step's line has said it already."""
    from rich.text import Text

    error = run.error
    if error is None or any(step.error is not None and step.error.message == error.message for step in steps):
        return
    show(out, Text(f"  {visible(error.message)}", style="red"))
    if error.hint:
        show(out, f"  hint: {visible(error.hint)}")


def next_commands(state: State, run: RunRow, steps: Sequence[StepRow], stale: Sequence[str] = ()) -> list[str]:
    """Commands that make sense now, ready to paste. `stale` are the steps that are stale."""
    number = run.number
    if run.status in ("failed", "paused", "cancelled"):
        failed = next((step.label for step in steps if step.status == "failed" and step.kind != "map"), None)
        look = [state.command(f"why {number}/{failed}")] if failed else []
        return [state.command(f"resume {number}"), *look, state.command(f"show {number}")]
    if run.status == "waiting":
        from orchestrator.cli.gates import gate_commands

        waiting = [step for step in steps if step.status == "waiting" and step.kind != "map"]
        asking = [s.label for s in waiting if s.kind == "gate" or (s.error and s.error.code == "tool_approval")]
        answers = [line for name in asking for line in gate_commands(state, number, name)]
        return [*answers, state.command(f"show {number}{f'/{asking[0]}' if asking else ''}")]
    if stale:
        keep = keep_command(state, number, stale, [step.name for step in steps if step.kind == "gate"])
        return [state.command(f"refresh {number}"), *([keep] if keep else [])]
    last = next((step.label for step in reversed(steps) if step.status != "skipped"), "")
    beside = [] if run.parent_number is None else [state.command(f"compare {run.parent_number} {number}")]
    return [*beside, state.command(f"show {number}/{last}"), state.command(f"why {number}/{last}")]


def keep_command(state: State, number: int, stale: Iterable[str], gates: Container[str]) -> str | None:
    """The command that keeps the first of the stale steps as it is; None where there are only gates, which none but an
    answer opens."""
    first = next((label for label in stale if label.partition("/")[0] not in gates), None)
    return state.command(f'keep {number}/{first} -m "…"') if first else None


async def print_outputs(
    out: Console, store: Store, run: RunRow, graph: Graph, steps: Sequence[StepRow], *, lines: int
) -> None:
    """The outputs there are, in short: where each stands, and how it begins."""
    from rich.text import Text

    made = {step.name for step in steps if step.head is not None and step.item is None}
    for name in [name for name in graph.outputs if name in made]:
        artifact = await store.artifact(run.id, name)
        show(out, Text(f"  {run.number}/{name}@{artifact.version.version}", style="bold"))
        for line in preview(value_of(artifact, graph), lines):
            show_line(out, Text(f"    {line}"))


def preview(value: Any, lines: int) -> list[str]:
    """The beginning of a value on a few lines: a text's own lines, or a name and a short value for each field."""
    value = readable(value)
    if isinstance(value, str):
        found = [excerpt(line, 110) for line in value.splitlines() if line.strip()]
    elif isinstance(value, dict):
        found = [f"{excerpt(name, 40)}: {_short(item)}" for name, item in value.items()]
    else:
        found = [_short(value)]
    return found[:lines] + (["…"] if len(found) > lines else [])


def _short(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return f"{len(value)} × {', '.join(value[0]) if isinstance(value[0], dict) else 'list'}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return excerpt(text, 90)
