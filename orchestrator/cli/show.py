"""`show`: what a run is, and what it made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.conflicts import conflicts_of, documents, print_conflicts
from orchestrator.cli.graph import graph_option, show_graph
from orchestrator.cli.items import counted, folded
from orchestrator.cli.lines import Line, name_width, print_step
from orchestrator.cli.options import State, command
from orchestrator.cli.outcome import (
    next_commands,
    print_outputs,
    print_run_document,
    print_run_error,
    stale_by_step,
)
from orchestrator.cli.pin import told
from orchestrator.cli.refs import StepRef, run_ref, step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.selecting import select_option, selected_of_run
from orchestrator.cli.terminal import console, excerpt, money, visible
from orchestrator.cli.terminal import show as put
from orchestrator.errors import UsageError
from orchestrator.exchange.reading import Opaque, readable, value_of

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from orchestrator.cli.session import Desk
    from orchestrator.contracts import Contract
    from orchestrator.drawing import Format
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import Artifact, RunRow, StepRow


@command("show")
@click.argument("reference", metavar="[RUN|RUN/STEP[/ITEM][@N]]", default="last")
@select_option
@graph_option
@click.option("--items", is_flag=True, help="Every item of steps with for_each, not only what needs a look.")
def show(state: State, reference: str, selections: tuple[str, ...], form: Format | None, items: bool) -> int:
    """Show a run, or the artifact of a step.

    RUN is the last one by default; RUN/STEP@N shows version N, RUN/STEP/ITEM an item of a step with for_each.
    """
    from orchestrator.cli.session import drive, open_desk, reading, within

    if form is not None and "/" not in reference:
        show_graph(state, reference, selections, form)
        return 0
    step = step_ref(reference) if "/" in reference else None
    run = run_ref(reference) if step is None else step.run
    if step is not None and (selections or form):
        hint = f"Write {state.command(f'show {run}')} and the option."
        raise UsageError("--select and --graph are about a whole run", hint=hint)
    desk = open_desk(state)

    async def main() -> None:
        async with reading(desk) as store:
            row = await store.run(run)
            if step is None:
                await _show_run(desk, store, row, await selected_of_run(desk, store, row, selections), items)
            else:
                await _show_step(desk, store, row, within(desk, row, step))

    drive(main)
    return 0


# --- a run ------------------------------------------------------------------------------------------------------------


async def _show_run(desk: Desk, store: Store, run: RunRow, only: frozenset[str] | None, items: bool) -> None:
    """`only` names the steps to show; what is said of the run is said of all of it."""
    if run.kind == "bench" and not desk.state.json:
        from orchestrator.cli.bench import benched_of, report

        report(desk.state, await benched_of(desk, store, run))
        return
    graph = desk.known_graph(run)
    from rich.text import Text

    if desk.state.json:
        await print_run_document(store, run, graph, only)
        return
    steps = await store.steps(run.id)
    reasons = stale_by_step(graph, steps)
    out = console()
    live = run.status != "running" or await _is_live(store, run)
    _print_head(out, run, steps, run.status if live else "interrupted")
    work = [step for step in steps if step.kind != "input" and not step.retired]
    shown = [step for step in work if only is None or step.name in only or step.label in only]
    listed = folded(shown, reasons, every=items)
    names = {step.label: _label(step) for step in listed}
    width = name_width(list(names.values()))
    for step in listed:
        told = counted(step, work, listed) if step.kind == "map" else ()
        print_step(out, _line(step, names[step.label], reasons, run.status == "running" and live, told), width)
    print_run_error(out, run, work)
    if graph is None:
        put(out, f"  the pipeline cannot be loaded now, so staleness is not known: {desk.state.command('check')}")
    else:
        await print_outputs(out, store, run, graph, [step for step in shown if step.item is None], lines=4)
    stale = [step.name for step in work if step.status == "succeeded" and (step.stale or reasons.get(step.label))]
    at_rest = run if live else replace(run, status="paused")
    for hint in next_commands(desk.state, at_rest, work, stale):
        put(out, Text(f"  {hint}", style="dim"))


def _print_head(out: Console, run: RunRow, steps: Sequence[StepRow], status: str) -> None:
    from rich.text import Text

    from orchestrator.trace.documents import total_cost

    cost, partial = total_cost(steps)
    parts = [
        run.pipeline,
        status,
        _moment(run.created_at),
        *([f"from run {run.parent_number}"] if run.parent_number is not None else []),
        f"{money(cost, partial=partial)}{f' of {money(run.cap_usd)}' if run.cap_usd is not None else ''}",
    ]
    put(out, Text.assemble((f"run {run.number}", "bold"), visible(f" · {' · '.join(parts)}")))
    if run.message:
        put(out, f"  message: {excerpt(run.message)}")
    inputs = [step for step in steps if step.kind == "input" and step.head is not None and step.head.version > 1]
    for step in inputs:
        put(out, f"  input {_label(step)} was changed by {visible(step.head.author if step.head else '')}")


def _label(step: StepRow) -> str:
    return f"{step.label}@{step.head.version}" if step.head and step.kind != "map" else step.label


async def _is_live(store: Store, run: RunRow) -> bool:
    """Whether a process works on the run now."""
    try:
        await store.check_free(run.id, "")
    except UsageError:
        return True
    return False


def _line(
    step: StepRow, label: str, reasons: Mapping[str, Sequence[str]], live: bool, of_items: Sequence[str] = ()
) -> Line:
    """`of_items` is what is said of a step's items together."""
    why = reasons.get(step.label, ())
    stale = step.stale or bool(why)
    notes = [*of_items, *([f"stale: {reason}" for reason in why] or (["stale"] if stale else []))]
    if step.reasks:
        notes.append(f"re-asked {step.reasks} ×")
    if step.pins:
        notes.append(told(step.pins))
    if step.draft is not None:
        notes.append(f"a draft (v{step.draft.version}) waits beside the edited version")
    if step.error is not None:
        notes += [step.error.message, *([f"hint: {step.error.hint}"] if step.error.hint else [])]
    if step.decision and step.status != "waiting":
        notes.append(f"{step.decision} by {step.head.author if step.head else ''}")
    if step.status in ("pending", "running", "ready", "skipped", "cancelled"):
        notes.insert(0, "interrupted" if step.status == "running" and not live else step.status)
    return Line(
        label,
        "stale" if stale and step.status == "succeeded" else step.status,
        calls=step.calls,
        input_tokens=step.usage.input_tokens,
        output_tokens=step.usage.output_tokens,
        cost_usd=step.cost_usd,
        cost_partial=step.cost_partial,
        seconds=step.seconds if step.calls or step.seconds else None,
        notes=tuple(notes),
    )


# --- an artifact ------------------------------------------------------------------------------------------------------


async def _show_step(desk: Desk, store: Store, run: RunRow, ref: StepRef) -> None:
    graph = desk.known_graph(run)
    if ref.version is None and not desk.state.json and await _show_gate(desk, store, run, ref, graph):
        return
    if ref.version is None and not desk.state.json and await _show_calls(desk.state, store, run, ref):
        return
    artifact = await store.artifact(run.id, ref.step, ref.item, ref.version)
    if desk.state.json:
        print_document(await artifact_json(store, run, artifact, graph))
        return
    _print_artifact(desk.state, run, artifact, contract_of(graph, artifact), await _read_by(store, artifact), graph)
    if ref.version is None:
        await _print_decisions(desk, store, run, graph, ref)


async def _print_decisions(desk: Desk, store: Store, run: RunRow, graph: Graph | None, ref: StepRef) -> None:
    """What is pinned, and what waits to be decided between an edit and a draft."""
    from rich.text import Text

    row = next(row for row in await store.steps(run.id) if row.label == ref.label)
    out = console()
    if row.pins:
        put(out, f"  {told(row.pins)}")
    if row.draft is None:
        return
    put(out, f"  a draft (v{row.draft.version}) waits beside this version")
    if row.error is not None:
        put(out, f"  {excerpt(row.error.message, 300)}")
    print_conflicts(out, await conflicts_of(store, run, graph, ref.step, ref.item), row.draft.version)
    resume = f"resume {run.number} --settle {ref.label}"
    for answer in ("head", "draft", "draft:FIELD,…"):
        put(out, Text(f"  {desk.state.command(f'{resume}={answer}')}", style="dim"))


async def _show_gate(desk: Desk, store: Store, run: RunRow, ref: StepRef, graph: Graph | None) -> bool:
    """What a gate that waits asks about, if it is one."""
    from rich.text import Text

    from orchestrator.cli.gates import SHOWN_DIGITS, gate_commands, print_gate
    from orchestrator.store.gates import NOT_WAITING

    node = graph.steps.get(ref.step) if graph is not None else None
    if node is None or node.gate is None:
        return False
    try:
        seen = await store.shown(run.id, node.name, None, [read.name for read in node.reads])
    except UsageError as error:
        if error.code == NOT_WAITING:
            return False
        raise
    out = console()
    print_gate(out, run, node, seen, graph)
    at = None if out.is_terminal else seen.digest[:SHOWN_DIGITS]
    for line in gate_commands(desk.state, run.number, node.name, node.gate.choices, at):
        put(out, Text(f"  {line}", style="dim"))
    return True


async def _show_calls(state: State, store: Store, run: RunRow, ref: StepRef) -> bool:
    """The tool calls that a step asks about, if it waits for a word on some."""
    from rich.text import Text

    from orchestrator.cli.gates import SHOWN_DIGITS, gate_commands
    from orchestrator.cli.tool_approvals import print_asked

    waiting = await store.asked_tools(run.id)
    asked = next((one for one in waiting if (one.step, one.item) == (ref.step, ref.item)), None)
    if asked is None:
        return False
    out = console()
    print_asked(out, run.number, asked)
    at = None if out.is_terminal else asked.digest[:SHOWN_DIGITS]
    for line in gate_commands(state, run.number, asked.label, at=at):
        put(out, Text(f"  {line}", style="dim"))
    return True


async def artifact_json(store: Store, run: RunRow, artifact: Artifact, graph: Graph | None) -> dict[str, Any]:
    """The artifact document of one version, with its label as the contract says it now."""
    from orchestrator.trace.documents import artifact_document

    version = artifact.version
    contract = contract_of(graph, artifact)
    row = next(row for row in await store.steps(run.id) if (row.name, row.item) == (version.step, version.item))
    current = row.head is not None and row.head.id == version.id
    others = {other.id: other.version for other in await store.versions(run.id, version.step, version.item)}
    return artifact_document(
        artifact,
        value_of(artifact, graph),
        run=run.number,
        about=contract.about if contract else None,
        not_for=contract.not_for if contract else (),
        parent=others.get(version.parent_id) if version.parent_id else None,
        read_by=await _read_by(store, artifact),
        pins=row.pins,
        conflicts=documents(await conflicts_of(store, run, graph, version.step, version.item)) if current else (),
    )


async def _read_by(store: Store, artifact: Artifact) -> tuple[str, ...]:
    return await store.readers(artifact.version.id)


def contract_of(graph: Graph | None, artifact: Artifact) -> Contract | None:
    """The contract of an artifact's step or input as it is declared now."""
    name = artifact.version.step
    step = None if graph is None else graph.steps.get(name)
    if step is not None and step.for_each is not None and artifact.version.item is None:
        from orchestrator.fan_out import INDEX

        return INDEX
    node = step or (None if graph is None else graph.inputs.get(name))
    return node.contract if node is not None else None


def _print_artifact(
    state: State,
    run: RunRow,
    artifact: Artifact,
    contract: Contract | None,
    readers: Sequence[str],
    graph: Graph | None,
) -> None:
    from rich.text import Text

    version, out = artifact.version, console()
    parts = [
        version.contract,
        version.sensitivity,
        f"by {version.author} ({version.origin})",
        _moment(version.created_at),
        f"read by {', '.join(readers)}" if readers else "read by no step",
    ]
    title = f"{run.number}/{version.label}@{version.version}"
    put(out, Text.assemble((title, "bold"), " · ", visible(" · ".join(parts), one_line=True)))
    if version.draft:
        put(out, "  a draft: it is not the current version")
    if contract is not None:
        put(out, Text.assemble("  ", ("About: ", "bold"), visible(contract.about, one_line=True)))
        for guard in contract.not_for:
            put(out, Text.assemble("  ", ("Not for: ", "bold"), visible(guard, one_line=True)))
    for guard in version.guards:
        put(out, Text.assemble("  ", ("Not for: ", "bold"), visible(guard, one_line=True)))
    put(out, "  ---")
    value = value_of(artifact, graph)
    put(out, visible(pretty(value)))
    if isinstance(value, Opaque):
        put(out, Text(f"  {state.command(f'export {title}')}", style="dim"))
    for path, basis in version.facts.items():
        put(out, f"  {path}: {basis.basis}, “{excerpt(basis.quote)}” ({visible(basis.source, one_line=True)})")


def pretty(value: Any) -> str:
    """A value for reading: text as it is, data indented."""
    value = readable(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _moment(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M")
