"""`plan`: the run without its calls, by the same code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.lines import name_width
from orchestrator.cli.options import State, command
from orchestrator.cli.refs import is_run, run_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.selecting import select_option, selected, steps_of
from orchestrator.cli.terminal import console, cost_range, excerpt, money, show, tokens, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from decimal import Decimal

    from orchestrator.plan import Plan

STYLES: Final = {"run": "cyan", "reuse": "green", "maybe": "yellow", "ask": "yellow", "skip": "dim"}


@command("plan")
@click.argument("target", metavar="[NAME|RUN]", required=False)
@click.option("--input", "-i", "file", metavar="FILE|-", help="JSON object of input names; - reads stdin.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="One input; wins over --input.")
@click.option("--session", metavar="NAME", help="The conversation that the new run would go on with.")
@select_option
def plan(
    state: State,
    target: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    session: str | None,
    selections: tuple[str, ...],
) -> int:
    """Show what would run, why, and what it would cost; nothing is sent.

    For a new run of pipeline NAME with these inputs, or for going on with RUN. With --select the sums are those of the
    selected steps.
    """
    if target is not None and is_run(target):
        if file is not None or assignments or session is not None:
            hint = "Leave out --input, --set and --session, or name a pipeline."
            raise UsageError("a run already has its inputs", hint=hint)
        return _plan_run(state, target, selections)
    return _plan_new(state, target, file, assignments, selections, session)


def _plan_new(
    state: State,
    name: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    selections: tuple[str, ...],
    session: str | None,
) -> int:
    from orchestrator.cli.inputs import read_inputs
    from orchestrator.cli.session import drive, open_desk, services
    from orchestrator.inputs import check_inputs
    from orchestrator.plan import part_of, plan_new

    desk = open_desk(state)
    graph = desk.graph(name, require_model=True)
    inputs = read_inputs(file, assignments, graph.inputs)
    check_inputs(graph, inputs)

    async def main() -> Plan:
        async with services(desk) as opened:
            planned = await plan_new(opened, graph, inputs, session)
            return part_of(opened, graph, planned, steps_of(selected(graph, selections))) if selections else planned

    return _print(state, drive(main), graph.name, graph.spec.budget.usd if graph.spec.budget else None)


def _plan_run(state: State, reference: str, selections: tuple[str, ...]) -> int:
    from orchestrator.cli.session import drive, find_run, open_desk, services
    from orchestrator.plan import part_of, plan_run

    desk = open_desk(state)
    run = find_run(desk, run_ref(reference))
    graph = desk.graph_of(run, require_model=True)

    async def main() -> Plan:
        async with services(desk) as opened:
            planned = await plan_run(opened, graph, run)
            if not selections:
                return planned
            chosen = selected(graph, selections, await opened.store.steps(run.id))
            return part_of(opened, graph, planned, steps_of(chosen))

    return _print(state, drive(main), f"run {run.number} · {run.pipeline}", run.cap_usd)


def _print(state: State, planned: Plan, title: str, cap: Decimal | None) -> int:
    from rich.text import Text

    from orchestrator.trace.documents import host_names, plan_document

    if state.json:
        print_document(plan_document(planned))
        return 0
    out = console()
    hosts = ", ".join(host_names(planned.hosts))
    parts = [
        f"sends to {hosts}" if hosts else "sends to no host",
        cost_range(planned.cost_low_usd, planned.cost_high_usd),
        f"cap {money(cap)}" if cap is not None else "no cap",
    ]
    show(out, Text.assemble(("plan ", "bold"), visible(f"{title} · {' · '.join(parts)}", one_line=True)))
    width = name_width([step.name for step in planned.steps])
    for step in planned.steps:
        size = f"{tokens(step.tokens_estimate)} tokens" if step.tokens_estimate is not None else ""
        priced = step.cost_low_usd is not None or step.cost_high_usd is not None
        price = cost_range(step.cost_low_usd, step.cost_high_usd) if priced else ""
        reasons = visible("; ".join(step.reasons), one_line=True)
        line = Text.assemble("  ", (f"{step.action:<6}", STYLES[step.action]), f" {excerpt(step.name, 32):<{width}}  ")
        line.append(f"{size:<12} {price:<18} {reasons}".rstrip())
        show(out, line)
    notes = [*planned.notes]
    if cap is not None and planned.cost_high_usd is not None and planned.cost_high_usd > cap:
        notes.append(
            f"the worst case is over the cap of {money(cap)}: the run would stop before the call that passes it"
        )
    for note in notes:
        show(out, Text(f"  {visible(note)}", style="dim"))
    return 0
