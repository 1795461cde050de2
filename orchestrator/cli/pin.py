"""`pin`: fields of a step's value that stay as they are, whatever the step says when it runs again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import step_ref
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@command("pin")
@click.argument("reference", metavar="RUN/STEP")
@click.argument("fields", metavar="[FIELD]...", nargs=-1)
@click.option("--remove", is_flag=True, help="Let these fields, or all where none is named, change again.")
def pin(state: State, reference: str, fields: tuple[str, ...], remove: bool) -> int:
    """Keep fields of a step's value as they are when it runs again.

    FIELD is a top-level field; without one, all of the value is kept. Pins go along into reruns.
    """
    from orchestrator import edits
    from orchestrator.cli.report import print_document
    from orchestrator.cli.session import drive, find_run, open_desk, services

    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("a pin is on a step, not on a version", hint=f"Leave out @{ref.version}.")
    desk = open_desk(state)
    run = find_run(desk, ref.run)
    graph = desk.graph_of(run)
    ref = replace(ref, step=graph.target(ref.step))

    async def main() -> Mapping[str, str]:
        async with services(desk) as opened:
            decide = edits.unpin if remove else edits.pin
            return await decide(opened, graph, run, ref.label, fields)

    pins = drive(main)
    if state.json:
        named = {"run": run.number, "step": ref.step, "item": ref.item}
        print_document({"schema": "orch.pins/1", **named, "pins": dict(pins)})
    else:
        _print(state, f"{run.number}/{ref.label}", pins)
    return 0


def _print(state: State, name: str, pins: Mapping[str, str]) -> None:
    from rich.text import Text

    out = console()
    show(out, Text.assemble((name, "bold"), f"  {told(pins) or 'nothing is pinned'}"))
    if pins:
        show(out, Text(f"  undo: {state.command(f'pin {name} --remove')}", style="dim"))


def told(pins: Mapping[str, str]) -> str:
    """`pinned: weekly_usd, notes by ana`; empty where nothing is."""
    by: dict[str, list[str]] = {}
    for field, who in pins.items():
        by.setdefault(who, []).append("all of it" if field == "*" else field)
    parts = [f"{', '.join(fields)} by {who}" for who, fields in by.items()]
    return visible(f"pinned: {'; '.join(parts)}", one_line=True) if parts else ""
