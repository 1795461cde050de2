"""`revise`: a finished step is made once more on a person's word, and what follows from that is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command, plain_text, tape_options
from orchestrator.cli.refs import StepRef, step_ref
from orchestrator.cli.run import carry_out, events_option
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.session import Desk
    from orchestrator.graph import Graph
    from orchestrator.step import Services
    from orchestrator.trace.versions import Side
    from orchestrator.values import RunRow, StepRow


@command("revise")
@click.argument("reference", metavar="RUN/STEP[/ITEM]")
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("-m", "--message", metavar="TEXT", help="The same as TEXT.")
@tape_options
@events_option
def revise(state: State, reference: str, text: str | None, message: str | None) -> int:
    """Have a finished step changed as you say: it goes on in its thread.

    Makes a new version. Where something has changed since (an input, or your edit), the step begins anew from what
    stands now, with its current version before it. What you say stands in the session's conversation.
    """
    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("only the current version can be revised", hint=f"Leave out @{ref.version}.")
    if text is not None and message is not None:
        raise UsageError("TEXT and --message say the same", hint="Use one of them.")
    comment = text if text is not None else message
    if comment is None or not comment.strip():
        raise UsageError("nothing is said", hint=f'Say what should change: orch revise {reference} "shorter, please".')
    plain_text("TEXT", comment)
    return _carry_out(state, ref, comment)


def _carry_out(state: State, ref: StepRef, comment: str) -> int:
    from orchestrator.cli.session import find_run, open_desk

    desk = open_desk(state)
    found = find_run(desk, ref.run)
    graph = desk.graph_of(found, require_model=True)
    ref = replace(ref, step=graph.target(ref.step))
    before: list[Side] = []

    async def work(services: Services, progress: Progress) -> RunRow:
        from orchestrator.cli.differences import side
        from orchestrator.engine import revise as revise_step

        row = await services.store.run(found.id)
        before.append(side(row, await services.store.artifact(row.id, ref.step, ref.item), graph))
        return await revise_step(services, graph, row, ref.step, comment, item=ref.item)

    async def ending(services: Services, row: RunRow) -> int:
        return await _end(desk, services, graph, row, before[0])

    return carry_out(desk, graph, work, ending=ending)


async def _end(desk: Desk, services: Services, graph: Graph, row: RunRow, old: Side) -> int:
    """What became of the version, what is stale now, and what to type next. The exit code is the step's own, whatever
    else the run has come to."""
    from orchestrator.cli.differences import side
    from orchestrator.cli.outcome import exit_code, print_run_document, print_summary, stale_by_step
    from orchestrator.trace.versions import diff_document

    store = services.store
    steps = await store.steps(row.id)
    new = side(row, await store.artifact(row.id, old.version.step, old.version.item), graph)
    stale = stale_by_step(graph, steps)
    if desk.state.json:
        await print_run_document(
            store,
            row,
            graph,
            diff=diff_document(old, new),
            stale=[{"step": name, "reasons": list(why)} for name, why in stale.items()],
        )
    elif new.version.id != old.version.id:
        _print(desk, graph, steps, old, new)
        if row.status != "succeeded":
            print_summary(desk.state, row, steps)
    else:
        print_summary(desk.state, row, steps)
    return exit_code(row, steps)


def _print(desk: Desk, graph: Graph, steps: list[StepRow] | tuple[StepRow, ...], old: Side, new: Side) -> None:
    from rich.text import Text

    from orchestrator.cli.differences import print_changes
    from orchestrator.cli.outcome import stale_by_step
    from orchestrator.cli.terminal import console, show, visible

    out, state, name = console(), desk.state, f"{new.run}/{new.version.label}"
    author = visible(new.version.author, one_line=True)
    show(out, Text.assemble((name, "bold"), f"  v{old.version.version} → v{new.version.version} by {author}"))
    print_changes(out, old.value, new.value)
    stale = stale_by_step(graph, steps)
    for step, why in stale.items():
        show(out, Text.assemble("  stale: ", (step, "yellow"), f"  {visible('; '.join(why), one_line=True)}"))
    others = [row for row in steps if row.kind != "input" and row.label != new.version.label and not row.retired]
    show(out, f"  not stale: {sum(row.label not in stale for row in others)}")
    again = f"refresh {new.run}" if stale else ""
    undo = f"restore {name}@{old.version.version}"
    for word, what in (("redo", again), ("undo", undo)):
        if what:
            show(out, Text(f"  {word}: {state.command(what)}", style="dim"))
