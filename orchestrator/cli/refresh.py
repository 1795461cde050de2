"""`refresh` and `keep`: the two answers to a stale step, in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command, plain_text, tape_options
from orchestrator.cli.refs import run_ref, step_ref
from orchestrator.cli.run import carry_out, confirm, events_option
from orchestrator.cli.selecting import selected, steps_of
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.session import Desk
    from orchestrator.graph import Graph
    from orchestrator.step import Services
    from orchestrator.values import ArtifactVersion, RunRow


@command("refresh")
@click.argument("reference", metavar="[RUN]", default="last")
@click.option("--select", "selections", metavar="STEPS", multiple=True, help="Begin with these stale steps only.")
@click.option("--force", is_flag=True, help="Run the selected steps again even where nothing has changed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before the first paid call.")
@tape_options
@events_option
def refresh(state: State, reference: str, selections: tuple[str, ...], force: bool, yes: bool) -> int:
    """Run what is stale again, in the same run.

    RUN is the last one by default. What waits for a step that ran again is looked at once more: it runs if what it
    reads has really changed, else its version stands.
    """
    from orchestrator.cli.session import find_rows, open_desk
    from orchestrator.engine import refresh_run
    from orchestrator.plan import plan_run

    if force and not selections:
        raise UsageError("--force needs --select", hint="Name what is to run again: --select tech-stack --force.")
    desk = open_desk(state)
    found, rows = find_rows(desk, run_ref(reference))
    graph = desk.graph_of(found, require_model=True)
    chosen = frozenset(selected(graph, selections, rows)) if selections else None

    async def work(services: Services, progress: Progress) -> RunRow:
        plan = await plan_run(
            services, graph, await services.store.run(found.id), again=steps_of(chosen or ()) if force else None
        )
        if any(step.action in ("run", "maybe") for step in plan.steps):
            progress.announced = confirm(state, plan, found.cap_usd, ask=not yes)
            progress.expect(plan.steps)
        row = await services.store.run(found.id)
        return await refresh_run(services, graph, row, steps=chosen, force=force)

    return carry_out(desk, graph, work)


@command("keep")
@click.argument("reference", metavar="RUN/STEP[/ITEM]")
@click.option("-m", "--message", required=True, help="Why it stands; it is kept in the run's events.")
def keep(state: State, reference: str, message: str) -> int:
    """Accept a stale step's version as it is.

    It is not stale any more, until something above it changes again.
    """
    from orchestrator.cli.session import drive, find_run, open_desk, services
    from orchestrator.edits import keep_step

    plain_text("--message", message)
    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("only the current version can be kept", hint=f"Leave out @{ref.version}.")
    desk = open_desk(state)
    run = find_run(desk, ref.run)
    graph = desk.graph_of(run)

    async def main() -> None:
        async with services(desk) as opened:
            version = await keep_step(opened, graph, run, graph.target(ref.step), message, item=ref.item)
            await _report(desk, opened, graph, run, version)

    drive(main)
    return 0


async def _report(desk: Desk, services: Services, graph: Graph, run: RunRow, version: ArtifactVersion) -> None:
    from rich.text import Text

    from orchestrator.cli.outcome import stale_by_step
    from orchestrator.cli.report import print_document
    from orchestrator.cli.show import artifact_json
    from orchestrator.cli.terminal import console, show, visible
    from orchestrator.trace.documents import edit_document

    reasons = stale_by_step(graph, await services.store.steps(run.id))
    if desk.state.json:
        artifact = await services.store.artifact(run.id, version.step, version.item)
        print_document(edit_document(await artifact_json(services.store, run, artifact, graph), reasons))
        return
    out = console()
    by = visible(services.settings.user, one_line=True)
    show(out, Text.assemble((f"{run.number}/{version.label}", "bold"), f"  v{version.version} stands, says {by}"))
    for step, why in reasons.items():
        show(out, Text.assemble("  stale: ", (step, "yellow"), f"  {visible('; '.join(why), one_line=True)}"))
    if not reasons:
        show(out, "  nothing is stale")
