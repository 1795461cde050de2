"""`approve` and `reject`: a person's answer at a gate, for exactly what they saw."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import State, command, plain_text, tape_options
from orchestrator.cli.refs import StepRef, step_ref
from orchestrator.cli.run import events_option
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import OrchError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.cli.progress import Progress
    from orchestrator.cli.session import Desk
    from orchestrator.graph import Graph, StepNode
    from orchestrator.spec import Decided
    from orchestrator.step import Services
    from orchestrator.store.records import Answered, Shown
    from orchestrator.values import Artifact, RunRow

SHOWN_DIGITS: Final = 16
_MOST_STATES: Final = 20_000  # combinations of versions that are looked through for a digest

at_option = click.option("--at", metavar="DIGEST", help="What you saw, as `orch show RUN/GATE` names it.")
call_option = click.option("--call", "calls", metavar="CALL_ID", multiple=True, help="Only this tool call of a step.")
stay_option = click.option("--no-resume", "stay", is_flag=True, help="Answer only; the run does not go on.")


@command("approve")
@click.argument("reference", metavar="RUN/GATE")
@at_option
@click.option("-m", "--message", help="A comment; later steps see it.")
@call_option
@stay_option
@tape_options
@events_option
def approve(
    state: State, reference: str, at: str | None, message: str | None, calls: tuple[str, ...], stay: bool
) -> int:
    """Approve what a gate shows, or the tool calls that a step asks about; the run then goes on.

    At a terminal all of it is shown, and you are asked. Elsewhere --at says what you saw: where anything of that has
    changed, nothing is approved, and the difference is shown. For a step with `review: required`, name the step.
    """
    plain_text("--message", message)
    check_digest(at)
    return _decided(state, reference, "approve", at, message or "", stay, calls)


@command("reject")
@click.argument("reference", metavar="RUN/GATE")
@click.option("-m", "--message", required=True, help="What is wrong: the next attempt goes by it.")
@at_option
@click.option("--stop", is_flag=True, help="Make nothing again: end the run here.")
@call_option
@stay_option
@tape_options
@events_option
def reject(
    state: State, reference: str, message: str, at: str | None, stop: bool, calls: tuple[str, ...], stay: bool
) -> int:
    """Reject what a gate shows, with a comment; what is not good enough is made again.

    With --at the rejection is for what you saw, else for what stands now. Of tool calls that are rejected the model is
    told.
    """
    plain_text("--message", message)
    check_digest(at)
    return _decided(state, reference, "stop" if stop else "reject", at, message, stay, calls)


def check_digest(at: str | None) -> None:
    """Raises UsageError for what is no digest, or too little of one."""
    if at is not None and not re.fullmatch(r"[0-9a-f]{12,64}", at):
        hint = "`orch show RUN/GATE` prints it; its first 12 characters are enough."
        raise UsageError(f'--at "{at}" is not the digest of what a gate shows', hint=hint)


def _decided(
    state: State,
    reference: str,
    decision: Decided,
    at: str | None,
    comment: str,
    stay: bool,
    calls: tuple[str, ...],
) -> int:
    """Answer, then go on with the run unless somebody else has it or nobody wants to."""
    from orchestrator.cli.run import carry_out
    from orchestrator.cli.session import find_run, open_desk
    from orchestrator.cli.tool_approvals import Word, answered
    from orchestrator.store.records import RunBusy

    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("a gate is answered for what stands now", hint=f"Leave out @{ref.version}.")
    desk = open_desk(state)
    run = find_run(desk, ref.run)
    graph = desk.graph_of(run, require_model=not stay and decision != "stop")
    word = Word(decision, comment, at, frozenset(calls))
    goes_on = answered(desk, run, ref, word)
    if goes_on is None:
        goes_on = _answered(desk, graph, run, ref, decision, at, comment)
    if stay or not goes_on:
        return _done(desk, graph, run)

    async def work(services: Services, progress: Progress) -> RunRow:
        from orchestrator.engine import resume_run

        return await resume_run(services, graph, await services.store.run(run.id))

    try:
        return carry_out(desk, graph, work)
    except RunBusy:
        return _done(desk, graph, run)


def _done(desk: Desk, graph: Graph, run: RunRow) -> int:
    """The answer stands, and that is all: a program gets the run as it is now."""
    from orchestrator.cli.outcome import print_run_document
    from orchestrator.cli.session import drive, reading

    async def main() -> None:
        async with reading(desk) as store:
            await print_run_document(store, await store.run(run.id), graph)

    if desk.state.json:
        drive(main)
    return 0


def _answered(
    desk: Desk, graph: Graph, run: RunRow, ref: StepRef, decision: Decided, at: str | None, comment: str
) -> bool:
    """Give the answer; whether this process may go on with the run, since no other one has it."""
    from orchestrator import gates
    from orchestrator.cli.session import drive, services

    async def main() -> bool:
        async with services(desk) as opened:
            node = gates.gate_node(graph, ref.step)
            seen = await gates.look_at(opened, graph, run, node.name)
            if at is None and decision == "approve":
                _ask(desk.state, run, node, seen, graph)
            by = opened.settings.user
            try:
                answered = await gates.answer(opened, graph, run, seen, decision, by=by, comment=comment, at=at)
            except UsageError as error:
                raise await _refused(desk.state, opened, graph, run, seen, at, error) from error
            return await _told(desk.state, opened, run, seen, decision, by, answered)

    return drive(main)


def _ask(state: State, run: RunRow, node: StepNode, seen: Shown, graph: Graph) -> None:
    """Show all that would be approved, and ask. Raises UsageError where nobody can be asked, click.Abort for a no."""
    from orchestrator.cli.session import plain_interrupts

    out = console(stderr=state.json)
    name = f"{run.number}/{node.name}"
    if not (sys.stdin.isatty() and out.is_terminal):
        look = state.command(f"show {name}")
        give = state.command(f"approve {name} --at DIGEST")
        raise UsageError(
            "approving takes --at DIGEST where nobody can be shown what is approved",
            hint=f"{look} shows it, and its digest; then: {give}",
            code="digest_required",
        )
    print_gate(out, run, node, seen, graph)
    with plain_interrupts():
        if not click.confirm("Approve this?", default=False, err=True):
            click.echo("Nothing was decided.", err=True)
            raise click.Abort


async def _told(
    state: State, services: Services, run: RunRow, seen: Shown, decision: Decided, by: str, answered: Answered
) -> bool:
    """Say what was decided. Whether the run is free to go on here."""
    from rich.text import Text

    word = {"approve": "approved", "reject": "rejected", "stop": "stopped"}[decision]
    shown = ", ".join(f"{name}@{head.version.version}" for name, head in seen.heads.items())
    what = visible(f"{word} by {by}: {shown}", one_line=True)
    out = console(stderr=state.json)
    show(out, Text.assemble((f"{run.number}/{seen.gate}", "bold"), "  ", what))
    if answered.redone is not None:
        show(out, f"  {visible(answered.redone)} is made again, and the gate asks again then")
    elif not answered.opened and not answered.ended:
        show(out, "  nothing is made again: the gate stays shut until what it shows is approved")
    if answered.ended:
        return False
    try:
        await services.store.check_free(run.id, services.worker)
    except UsageError as busy:
        show(out, f"  it goes on where it runs: {visible(busy.message, one_line=True)}")
        return False
    return True


# --- what changed meanwhile -------------------------------------------------------------------------------------------


async def _refused(
    state: State, services: Services, graph: Graph, run: RunRow, seen: Shown, at: str | None, error: UsageError
) -> OrchError:
    """Where something changed since the person looked: what, version by version; other errors as they are."""
    from orchestrator.cli.report import Refused
    from orchestrator.gates import look_at
    from orchestrator.store.gates import SHOWN_CHANGED

    if error.code != SHOWN_CHANGED:
        return error
    now = await look_at(services, graph, run, seen.gate, seen.item)
    before = seen.heads if at is None else await _state_of(services, run, now, at)
    again = state.command(f"show {run.number}/{seen.gate}")
    if before is None:
        hint = f"{again} shows what stands now, and its digest"
        return UsageError(f"the digest {visible(at or '')} is of nothing that {seen.gate} asks about", hint=hint)
    diffs = await _differences(state, graph, run, before, now)
    hint = f"see what stands now ({again}), and answer for that"
    return Refused(error.message, hint=hint, code=error.code, beside={"diffs": diffs})


async def _differences(
    state: State, graph: Graph, run: RunRow, before: Mapping[str, Artifact], now: Shown
) -> list[dict[str, object]]:
    from rich.text import Text

    from orchestrator.cli.differences import print_changes, side
    from orchestrator.trace.versions import diff_document

    out, found = console(stderr=True), []
    for name, head in now.heads.items():
        was = before.get(name)
        if was is None or was.version.sha256 == head.version.sha256:
            continue
        old, new = side(run, was, graph), side(run, head, graph)
        by = visible(
            f"v{was.version.version} → v{head.version.version} by {head.version.author} meanwhile", one_line=True
        )
        show(out, Text.assemble((f"{run.number}/{name}", "bold"), "  ", by))
        print_changes(out, old.value, new.value)
        found.append(diff_document(old, new))
    return found


async def _state_of(services: Services, run: RunRow, now: Shown, at: str) -> dict[str, Artifact] | None:
    """The versions that a digest stands for, of all that the gate could have shown; None where it stands for none."""
    from orchestrator.store.records import shown_digest

    store = services.store
    attempts = [row.id for row in reversed(await store.attempts(run.id, now.gate, now.item))]
    versions = [tuple(reversed(await store.versions(run.id, name))) for name in now.heads]
    for heads in itertools.islice(itertools.product(*versions), _MOST_STATES):
        found = dict(zip(now.heads, heads, strict=True))
        hashes = {name: head.sha256 for name, head in found.items()}
        if any(shown_digest(attempt, hashes).startswith(at) for attempt in attempts):
            return {name: await store.artifact(run.id, name, None, head.version) for name, head in found.items()}
    return None


# --- what a gate shows ------------------------------------------------------------------------------------------------


def print_gate(out: Console, run: RunRow, node: StepNode, seen: Shown, graph: Graph | None) -> None:
    """The question, and the whole of what it is about."""
    from rich.text import Text

    from orchestrator.cli.show import pretty
    from orchestrator.exchange.reading import value_of

    assert node.gate is not None
    title = (f"{run.number}/{node.name}", "bold")
    show(out, Text.assemble(title, "  ", visible(node.gate.ask, one_line=True)))
    if seen.error is not None and seen.error.code != "gate":
        show(out, Text(f"  {visible(seen.error.message, one_line=True)}", style="yellow"))
    for name, head in seen.heads.items():
        by = visible(f"by {head.version.author} ({head.version.origin})", one_line=True)
        show(out, Text.assemble("  ", (f"{name}@{head.version.version}", "bold"), "  ", by))
        for line in visible(pretty(value_of(head, graph))).splitlines():
            show(out, line, indent=4)
    show(out, Text(f"  digest {seen.digest[:SHOWN_DIGITS]}", style="dim"))


def gate_commands(
    state: State, number: int, gate: str, choices: Sequence[str] = (), at: str | None = None
) -> list[str]:
    """The commands that answer a gate, ready to paste; with `at` they work where there is no terminal."""
    found = [state.command(f"approve {number}/{gate}{f' --at {at}' if at else ''}")]
    if not choices or "reject" in choices:
        found.append(f'{state.command(f"reject {number}/{gate}")} -m "…"')
    return found
