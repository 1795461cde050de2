"""`inbox`: all that waits for a person, over all runs, each with the command that answers it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.cli.gates import SHOWN_DIGITS, gate_commands
from orchestrator.cli.options import State, command
from orchestrator.cli.terminal import console, duration, show, visible

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.cli.session import Desk
    from orchestrator.store.records import WaitingRow
    from orchestrator.values import RunRow


@command("inbox")
def inbox(state: State) -> int:
    """List what waits for a person, over all runs: gates, tools in doubt, tools to be allowed, conflicts.

    Gates that have waited as long as their pipeline lets them are decided first.
    """
    from orchestrator.cli.report import print_document
    from orchestrator.cli.session import NoRuns, drive, open_desk
    from orchestrator.trace.documents import inbox_document

    desk = open_desk(state)
    rows: tuple[WaitingRow, ...] = ()
    late: list[str] = []
    with contextlib.suppress(NoRuns):
        rows = drive(lambda: _waiting(desk))
        late = drive(lambda: _decide_late(desk, rows))
        rows = drive(lambda: _waiting(desk)) if late else rows
    if state.json:
        entries = [(row, answers(state, row, at_hand=False)) for row in rows]
        print_document(inbox_document(entries, late))
        return 0
    out = console()
    for line in late:
        show(out, f"  {visible(line, one_line=True)}")
    if not rows:
        show(out, "nothing waits for you")
    for row in rows:
        _print(out, state, row, datetime.now(row.since.tzinfo))
    return 0


async def _waiting(desk: Desk) -> tuple[WaitingRow, ...]:
    from orchestrator.cli.session import reading

    async with reading(desk) as store:
        return await store.waiting()


async def _decide_late(desk: Desk, rows: Sequence[WaitingRow]) -> list[str]:
    """Decide at gates whose time is over; what was decided, as lines. A pipeline that is broken now is left alone."""
    from orchestrator.cli.session import reading, services
    from orchestrator.gates import answer_due, may_be_late

    said: list[str] = []
    async with reading(desk) as store:
        runs: dict[str, RunRow] = {row.run_id: await store.run(row.run_id) for row in rows if row.kind == "gate"}
    graphs = {run.id: desk.known_graph(run) for run in runs.values()}
    for run in runs.values():
        graph = graphs[run.id]
        if graph is None or not may_be_late(graph):
            continue
        async with services(desk) as opened:
            for gate in await answer_due(opened, graph, run):
                go_on = desk.state.command(f"resume {run.number}")
                said.append(f"{run.number}/{gate} was decided by its timeout: {go_on}")
    return said


def answers(state: State, row: WaitingRow, *, at_hand: bool) -> list[str]:
    """The commands that answer it. `at_hand`: a person at a terminal, who will be shown what a gate shows."""
    if row.kind == "gate" or row.code == "tool_approval":
        return gate_commands(state, row.number, row.label, at=None if at_hand else row.digest[:SHOWN_DIGITS])
    if row.code == "edited_meanwhile":
        return [state.command(f"resume {row.number} --settle {row.label}=head|draft")]
    hint = row.hint or ""
    _, found, rest = hint.partition("orch resume ")
    return [state.command(f"resume {row.number} {rest}")] if found else [state.command(f"show {row.number}")]


def _print(out: Console, state: State, row: WaitingRow, now: datetime) -> None:
    from rich.text import Text

    waited = duration(max((now - row.since).total_seconds(), 0.0))
    title = (f"{row.number}/{row.label}", "bold")
    show(out, Text.assemble("‖ ", title, "  ", visible(row.message, one_line=True), (f"  {waited}", "dim")))
    if row.shows:
        shown = ", ".join(f"{name}@{head.version} ({head.author})" for name, head in row.shows.items())
        show(out, f"    shows {visible(shown, one_line=True)}")
    for call in row.calls:
        show(out, f"    {visible(call.name, one_line=True)}  {visible(call.id, one_line=True)}")
        show(out, visible(call.arguments), indent=6)
    for line in answers(state, row, at_hand=out.is_terminal):
        show(out, Text(f"    {line}", style="dim"))
