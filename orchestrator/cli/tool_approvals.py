"""Tool calls that wait for a person: how they are shown, and how `approve` and `reject` answer them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State
from orchestrator.cli.refs import StepRef
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.bodies.asking import Services
    from orchestrator.cli.session import Desk
    from orchestrator.spec import Decided
    from orchestrator.store.records import AskedTools, ToolAnswer
    from orchestrator.values import RunRow

SHOWN_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says: of all calls that a step asks about, or of those that are named."""

    decision: Decided
    comment: str
    at: str | None
    calls: frozenset[str]


def answered(desk: Desk, run: RunRow, ref: StepRef, word: Word) -> bool | None:
    """Answer the tool calls that a step asks about; whether this process may go on with the run. None where it asks
    about none. Raises UsageError, click.Abort for a no."""
    from orchestrator.cli.session import drive, services

    async def main() -> bool | None:
        async with services(desk) as opened:
            waiting = await opened.store.asked_tools(run.id)
            asked = next((one for one in waiting if (one.step, one.item) == (ref.step, ref.item)), None)
            if asked is None:
                if word.calls:
                    hint = "`orch inbox` lists what waits for a person"
                    raise UsageError(f"{run.number}/{ref.label} asks about no tool calls", hint=hint)
                return None
            said = _said(desk.state, opened, run, asked, word)
            on = await opened.store.answer_tools(run.id, said)
            return on and await _is_free(opened, run) if _told(desk.state, run, asked, said) else False

    return drive(main)


def _said(state: State, services: Services, run: RunRow, asked: AskedTools, word: Word) -> ToolAnswer:
    from orchestrator.store.records import ToolAnswer

    if word.decision == "stop":
        raise UsageError(
            "a tool call is approved or rejected", hint=f"to end the run: {state.command(f'runs cancel {run.number}')}"
        )
    known = {call.id for call in asked.calls}
    if word.calls - known:
        raise UsageError(
            f"{run.number}/{asked.label} does not ask about {min(word.calls - known)}",
            hint=f"it asks about {', '.join(sorted(known))}",
        )
    decision = word.decision
    if word.at is None and decision == "approve":
        _ask(state, run, asked, word.calls)
    by = services.settings.user
    return ToolAnswer(word.calls or frozenset(known), decision, by, word.comment.strip(), word.at or asked.digest)


def _ask(state: State, run: RunRow, asked: AskedTools, only: frozenset[str]) -> None:
    """Show what would be done, and ask. Raises UsageError where nobody can be asked, click.Abort for a no."""
    from orchestrator.cli.session import plain_interrupts

    out = console(stderr=state.json)
    name = f"{run.number}/{asked.label}"
    if not (sys.stdin.isatty() and out.is_terminal):
        raise UsageError(
            "approving takes --at DIGEST where nobody can be shown what is approved",
            hint=f"{state.command('inbox')} shows it; then: {state.command(f'approve {name} --at DIGEST')}",
            code="digest_required",
        )
    print_asked(out, run.number, asked, only)
    with plain_interrupts():
        if not click.confirm("Allow this?", default=False, err=True):
            click.echo("Nothing was decided.", err=True)
            raise click.Abort


def print_asked(out: Console, number: int, asked: AskedTools, only: frozenset[str] = frozenset()) -> None:
    """The calls, whole: a person answers for what they can see."""
    from rich.text import Text

    show(out, Text.assemble((f"{number}/{asked.label}", "bold"), "  wants to call"))
    for call in asked.calls:
        if not only or call.id in only:
            name = (visible(call.name, one_line=True), "bold")
            show(out, Text.assemble("  ", name, (f"  {visible(call.id, one_line=True)}", "dim")))
            for line in visible(call.arguments).splitlines():
                show(out, line, indent=4)
    show(out, Text(f"  digest {asked.digest[:SHOWN_DIGITS]}", style="dim"))


def _told(state: State, run: RunRow, asked: AskedTools, said: ToolAnswer) -> bool:
    """Say what was decided; whether all that the step asked about has its answer."""
    from rich.text import Text

    out = console(stderr=state.json)
    word = "allowed" if said.decision == "approve" else "refused"
    names = ", ".join(call.name for call in asked.calls if call.id in said.calls)
    what = visible(f"{word} by {said.by}: {names}", one_line=True)
    show(out, Text.assemble((f"{run.number}/{asked.label}", "bold"), "  ", what))
    rest = [call for call in asked.calls if call.id not in said.calls]
    if rest:
        names = ", ".join(f"{call.name} ({call.id})" for call in rest)
        show(out, f"  it still asks about {visible(names, one_line=True)}")
    return not rest


async def _is_free(services: Services, run: RunRow) -> bool:
    try:
        await services.store.check_free(run.id, services.worker)
    except UsageError as busy:
        show(console(stderr=True), f"  it goes on where it runs: {visible(busy.message, one_line=True)}")
        return False
    return True
