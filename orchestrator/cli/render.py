"""`render`: the exact text a step would send, before it is paid for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import is_run, run_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show, visible, without_secrets
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.rendering import Rendered

SCHEMA = "orch.render/1"


@command("render")
@click.argument("target", metavar="RUN/STEP[/ITEM]|NAME/STEP[/ITEM]")
@click.option("--input", "-i", "file", metavar="FILE|-", help="Inputs, for a step that reads inputs only.")
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="One input; wins over --input.")
@click.option("--wire", is_flag=True, help="Print the exact request body instead.")
def render(state: State, target: str, file: str | None, assignments: tuple[str, ...], wire: bool) -> int:
    """Print the exact text a step would send; nothing is sent.

    RUN/STEP uses the run's current artifacts; NAME/STEP a pipeline and the given inputs.
    """
    owner, slash, name = target.partition("/")
    step, _, item = name.partition("/")
    if not slash or not step:
        raise UsageError(f'"{target}" names no step', hint="Write RUN/STEP, as 12/tech-stack, or PIPELINE/STEP.")
    if is_run(owner):
        if file is not None or assignments:
            raise UsageError("a run already has its inputs", hint="Leave out --input and --set, or name a pipeline.")
        rendered = _of_run(state, owner, step, item or None)
    else:
        rendered = _of_pipeline(state, owner, step, item or None, file, assignments)
    _print(state, rendered, name, wire)
    return 0


def _of_run(state: State, owner: str, step: str, item: str | None) -> Rendered:
    from orchestrator.cli.session import drive, find_run, open_desk, services
    from orchestrator.rendering import render_step

    desk = open_desk(state)
    run = find_run(desk, run_ref(owner))
    graph = desk.graph_of(run, require_model=True)

    async def main() -> Rendered:
        async with services(desk) as opened:
            return await render_step(opened, graph, step, run=run, inputs=None, item=item)

    return drive(main)


def _of_pipeline(
    state: State, name: str, step: str, item: str | None, file: str | None, assignments: tuple[str, ...]
) -> Rendered:
    from orchestrator.cli.inputs import read_inputs
    from orchestrator.cli.session import drive, open_desk, services
    from orchestrator.rendering import render_step

    desk = open_desk(state)
    graph = desk.graph(name, require_model=True)
    inputs = read_inputs(file, assignments, graph.inputs)

    async def main() -> Rendered:
        async with services(desk) as opened:
            return await render_step(opened, graph, step, run=None, inputs=inputs, item=item)

    return drive(main)


def _print(state: State, rendered: Rendered, step: str, wire: bool) -> None:
    from orchestrator.trace.why import prompt_text

    text = prompt_text(rendered.prompt.system, rendered.prompt.text)
    if state.json:
        print_document(
            {
                "schema": SCHEMA,
                "step": step,
                "model": str(rendered.model),
                "system": rendered.prompt.system,
                "user": rendered.prompt.text,
                "text": text,
                "wire": rendered.wire.decode("utf-8"),
                "tokens_estimate": rendered.prompt.tokens,
                "inputs_hash": rendered.prompt.manifest.inputs_hash,
                "left_out": [{"source": left.source, "reason": left.reason} for left in rendered.left_out],
            }
        )
    elif wire:
        _print_wire(rendered.wire)
    else:
        show(console(), visible(text))


def _print_wire(body: bytes) -> None:
    """The bytes themselves into a pipe or file; on a terminal with dangerous characters spelled out."""
    if sys.stdout.isatty():
        show(console(), visible(body.decode("utf-8", errors="replace")))
    else:
        sys.stdout.buffer.write(without_secrets(body.decode("utf-8")).encode() + b"\n")
