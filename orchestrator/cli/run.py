"""`run`, `resume`, `rerun`: the three ways a run is set going."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command, plain_text, state_of, tape_options
from orchestrator.cli.refs import run_ref
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.session import Desk
    from orchestrator.engine import RunOptions
    from orchestrator.graph import Graph
    from orchestrator.plan import Plan
    from orchestrator.step import Services
    from orchestrator.values import Event, RunRow

Work = Callable[["Services", "Progress"], Awaitable["RunRow"]]
# What is printed when the work is done; gives the exit code.
Ending = Callable[["Services", "RunRow"], Awaitable[int]]


def _as_lines(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        state = state_of(context)
        state.json = state.jsonl = True


events_option = click.option(
    "--jsonl",
    is_flag=True,
    expose_value=False,
    callback=_as_lines,
    help="Live events on stdout, one JSON line each; the run's document is the last.",
)


@command("run")
@click.argument("name", required=False)
@click.option("--input", "-i", "file", metavar="FILE|-", help="JSON object of input names; - reads stdin.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="One input; wins over --input.")
@click.option("-m", "--message", help="The run's message, in the user's own words.")
@click.option("--session", metavar="NAME", help="Go on with this conversation; default: a new one.")
@click.option("--cap", metavar="USD", help="The most this run may cost; overrides the pipeline's budget.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: send, and approve every gate as it stands.")
@tape_options
@events_option
def run(
    state: State,
    name: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    message: str | None,
    session: str | None,
    cap: str | None,
    yes: bool,
) -> int:
    """Run a pipeline.

    NAME may be left out where the project has one pipeline.
    """
    from orchestrator.cli.inputs import read_inputs
    from orchestrator.cli.session import open_desk
    from orchestrator.engine import RunOptions
    from orchestrator.inputs import check_inputs

    cap_usd = money_option("--cap", cap)
    plain_text("--message", message)
    plain_text("--session", session)
    desk = open_desk(state)
    graph = desk.graph(name, require_model=True)
    inputs = read_inputs(file, assignments, graph.inputs)
    check_inputs(graph, inputs)
    options = RunOptions(inputs=inputs, message=message, session=session, cap_usd=cap_usd)
    return start(desk, graph, options, ask=not yes)


def start(desk: Desk, graph: Graph, options: RunOptions, *, ask: bool, hints: bool = True) -> int:
    """Plan, ask where money is at stake and someone is there to answer, then run to the end.

    Without `ask` nobody is asked at gates either: each is approved as it stands, by `--yes`.
    """
    from orchestrator.engine import start_run
    from orchestrator.fitness import check_models
    from orchestrator.plan import plan_new

    async def work(services: Services, progress: Progress) -> RunRow:
        check_models(services, graph)  # a key that is missing is told before anything is asked
        plan = await plan_new(services, graph, options.inputs)
        budget = graph.spec.budget.usd if graph.spec.budget else None
        cap = options.cap_usd if options.cap_usd is not None else budget
        progress.announced = confirm(desk.state, plan, cap, ask=ask)
        progress.expect(plan.steps)
        return await start_run(replace(services, approver=None if ask else "--yes"), graph, options)

    return carry_out(desk, graph, work, hints=hints)


@command("resume")
@click.argument("reference", metavar="[RUN]", default="last")
@click.option("--cap", metavar="USD", help="Raise (or set) the run's cap.")
@click.option("--take-over", is_flag=True, help="Take the run from a process that still looks alive.")
@click.option("--tool", "tools", metavar="CALL_ID=retry|done:JSON|tell", multiple=True, help="A tool in doubt.")
@click.option(
    "--settle",
    "settles",
    metavar="STEP=head|draft[:FIELD,…]",
    multiple=True,
    help="Keep the edit or the draft; with fields, in these conflicts only.",
)
@tape_options
@events_option
def resume(
    state: State, reference: str, cap: str | None, take_over: bool, tools: tuple[str, ...], settles: tuple[str, ...]
) -> int:
    """Go on with a run; finished steps are not repeated.

    RUN is the last one by default.
    """
    from orchestrator.cli.session import find_run, open_desk
    from orchestrator.engine import resume_run

    cap_usd = money_option("--cap", cap)
    decisions, settled = _decisions(tools), _settles(settles)
    desk = open_desk(state)
    found = find_run(desk, run_ref(reference))
    graph = desk.graph_of(found, require_model=True)

    async def work(services: Services, progress: Progress) -> RunRow:
        row = await services.store.run(found.id)
        return await resume_run(
            services, graph, row, cap_usd=cap_usd, take_over=take_over, tools=decisions, settle=settled
        )

    return carry_out(desk, graph, work)


@command("rerun")
@click.argument("reference", metavar="[RUN]", default="last")
@click.option("--from", "steps", metavar="STEPS", multiple=True, help="Begin again here; all below runs again too.")
@click.option("--only", "--select", "only", metavar="STEPS", multiple=True, help="Run just these again.")
@click.option("--until", metavar="STEPS", multiple=True, help="Of all that, run only what these need; nothing below.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Another value of an input.")
@click.option("--model", metavar="MODEL", help="What runs again asks this alias, or provider:model.")
@tape_options
@events_option
def rerun(
    state: State,
    reference: str,
    steps: tuple[str, ...],
    only: tuple[str, ...],
    until: tuple[str, ...],
    assignments: tuple[str, ...],
    model: str | None,
) -> int:
    """Run again from a step, as a new run that shares what is unchanged.

    STEPS is a name, an item (STEP/KEY: the others are shared), or a selection: tag:costs, status:failed, "stale and
    kind:llm". An input that is --set has its other value in the new run alone; what reads it runs again, and all below.
    """
    from orchestrator.cli.inputs import read_inputs
    from orchestrator.cli.selecting import selected, steps_of
    from orchestrator.cli.session import find_rows, open_desk
    from orchestrator.forks import rerun as rerun_run

    if steps and only:
        raise UsageError("--from and --only exclude each other", hint="--from runs what is below too.")
    if not (steps or only or assignments):
        raise UsageError("nothing is to run again", hint="Write --from STEP, --only STEP or --set INPUT=VALUE.")
    desk = open_desk(state)
    found, rows = find_rows(desk, run_ref(reference))
    graph = desk.graph_of(found, require_model=True)

    def names(texts: tuple[str, ...]) -> list[str]:
        wanted = steps_of(selected(graph, texts, rows))
        return [name for name in graph.steps if name in wanted]

    first = selected(graph, steps or only, rows)

    inputs = read_inputs(None, assignments, graph.inputs) if assignments else {}

    async def work(services: Services, progress: Progress) -> RunRow:
        row = await services.store.run(found.id)
        return await rerun_run(
            services, graph, row, first, only=bool(only), until=names(until), inputs=inputs, model=model
        )

    return carry_out(desk, graph, work)


def carry_out(desk: Desk, graph: Graph, work: Work, *, hints: bool = True, ending: Ending | None = None) -> int:
    """Run the engine's coroutine under live progress, then print how it ended (`ending`, by default the run's outputs
    and its summary). Returns the exit code."""
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.report import EventLines
    from orchestrator.cli.session import drive, services

    progress = Progress(desk.state, list(graph.steps))
    listeners: list[Callable[[Event], None]] = [progress, *([EventLines()] if desk.state.jsonl else [])]

    def listen(event: Event) -> None:
        for listener in listeners:
            listener(event)

    async def main() -> int:
        async with services(desk, listen) as opened:
            try:
                with progress:
                    row = await work(opened, progress)
            except asyncio.CancelledError:
                await _paused(desk.state, opened, graph)
                raise
            if ending is not None:
                return await ending(opened, row)
            return await _ending(desk.state, opened, graph, row, hints)

    return drive(main, on_stop=progress.stop_asked)


async def _ending(state: State, services: Services, graph: Graph, row: RunRow, hints: bool) -> int:
    from orchestrator.cli.outcome import exit_code, print_outputs, print_run_document, print_summary
    from orchestrator.cli.terminal import console

    steps = await services.store.steps(row.id)
    if row.status == "succeeded" and not state.json:
        await print_outputs(console(), services.store, row, graph, steps, lines=6)
    print_summary(state, row, steps, hints=hints)
    if state.json:
        await print_run_document(services.store, row, graph)
    return exit_code(row, steps)


async def _paused(state: State, services: Services, graph: Graph) -> None:
    """Interrupted by a person: the engine has released the run; a program still gets its document."""
    from orchestrator.cli.outcome import print_run_document

    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    if state.json and state.run_number is not None:
        await print_run_document(services.store, await services.store.run(state.run_number), graph)


def confirm(state: State, plan: Plan, cap: Decimal | None, *, ask: bool) -> bool:
    """Before the first paid call: where it goes, what it may cost, the cap; and a question where someone can answer.

    Returns whether there was anything to say. Raises click.Abort for a no: nothing has been sent.
    """
    from orchestrator.cli.session import plain_interrupts
    from orchestrator.cli.terminal import console, cost_range, money, show, visible
    from orchestrator.trace.documents import host_names

    hosts = host_names(plan.hosts)
    if not hosts:
        return False
    out = console(stderr=state.json)
    names = visible(", ".join(hosts), one_line=True)
    limit = f"cap {money(cap)}" if cap is not None else "no cap"
    show(out, f"sends to {names} · {cost_range(plan.cost_low_usd, plan.cost_high_usd)} · {limit}")
    if ask and sys.stdin.isatty() and out.is_terminal:
        with plain_interrupts():
            if not click.confirm("Go on?", default=True, err=True):
                click.echo("Nothing was sent.", err=True)
                raise click.Abort
    return True


def money_option(name: str, text: str | None) -> Decimal | None:
    """A dollar amount as typed: `4`, `4.00`, `$4`. Raises UsageError."""
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise UsageError(f'{name} "{text}" is not an amount of dollars', hint=f"Write {name} 4.00.")
    return amount


def _decisions(tools: Sequence[str]) -> dict[str, str]:
    decisions: dict[str, str] = {}
    for text in tools:
        call_id, equals, answer = text.partition("=")
        if not equals or not call_id or not (answer in ("retry", "tell") or answer.startswith("done:")):
            raise UsageError(
                f'--tool "{text}" is no decision',
                hint="Write --tool CALL_ID=retry (run it again), =done:JSON (it was done, with this result) or =tell.",
            )
        decisions[call_id] = answer
    return decisions


def _settles(settles: Sequence[str]) -> Mapping[str, str]:
    from orchestrator.edits import answer

    settled: dict[str, str] = {}
    for text in settles:
        step, _, said = text.partition("=")
        answer(step, said)
        settled[step] = said
    return settled
