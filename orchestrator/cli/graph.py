"""`show --graph`: the graph of a pipeline, or of a run with its states, as a tree, Mermaid source or an SVG."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli.refs import is_run, run_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.selecting import selected, steps_of
from orchestrator.cli.terminal import console, show_line, visible

if TYPE_CHECKING:
    from orchestrator.cli.options import State
    from orchestrator.cli.session import Desk
    from orchestrator.drawing import Format, Picture

graph_option = click.option(
    "--graph",
    "form",
    type=click.Choice(["text", "mermaid", "svg"]),
    is_flag=False,
    flag_value="text",
    metavar="[text|mermaid|svg]",
    help="Draw what waits for what; also for the pipeline NAME.",
)


def show_graph(state: State, reference: str, selections: Sequence[str], form: Format) -> None:
    """Print the drawing of a run or of a pipeline by its name; only what is selected."""
    from orchestrator.cli.session import open_desk
    from orchestrator.drawing import draw

    desk = open_desk(state)
    picture = (_of_run if is_run(reference) else _of_pipeline)(desk, reference, selections)
    drawing = draw(picture, form)
    if state.json:
        from orchestrator.trace.documents import graph_document

        print_document(graph_document(picture, form, drawing))
    elif form == "text":
        from rich.text import Text

        out = console()
        for line in drawing.splitlines():
            show_line(out, Text(visible(line)))
    else:
        sys.stdout.write(drawing + "\n")


def _of_pipeline(desk: Desk, name: str, selections: Sequence[str]) -> Picture:
    from orchestrator.drawing import picture_of

    graph = desk.graph(name)
    return picture_of(graph, only=steps_of(selected(graph, selections)) if selections else None)


def _of_run(desk: Desk, reference: str, selections: Sequence[str]) -> Picture:
    from orchestrator.cli.outcome import stale_by_step
    from orchestrator.cli.session import find_rows
    from orchestrator.drawing import picture_of

    run, rows = find_rows(desk, run_ref(reference))
    graph = desk.graph_of(run)
    only = steps_of(selected(graph, selections, rows)) if selections else None
    return picture_of(graph, run, rows, set(stale_by_step(graph, rows)), only)
