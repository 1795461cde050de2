"""`mcp`: the project's servers of tools, and what they said of them when a person looked (S26)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import State, group
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.mcp_pins import Pinned

SCHEMA: Final = "orch.mcp/1"


@group("mcp")
def mcp(state: State) -> int:
    """Show the MCP servers of this project, or pin what they say of their tools.

    `orch mcp` lists them with their allowed tools, and which of these are pinned. It starts nothing.
    """
    return 0 if click.get_current_context().invoked_subcommand else _list(state)


def _list(state: State) -> int:
    from rich.text import Text

    from orchestrator.cli.session import open_desk
    from orchestrator.mcp_pins import load_pins

    desk = open_desk(state)
    pins = load_pins(desk.project)
    if state.json:
        servers = [
            {"name": name, "allow": list(spec.allow), "pinned": sorted(pins.get(name, {}))}
            for name, spec in desk.settings.mcp.items()
        ]
        print_document({"schema": SCHEMA, "servers": servers})
        return 0
    out = console()
    if not desk.settings.mcp:
        show(out, "no MCP servers: [mcp.NAME] in the project file declares one")
    for name, spec in desk.settings.mcp.items():
        show(out, Text(visible(name, one_line=True), style="bold"))
        for tool in spec.allow:
            known = "pinned" if tool in pins.get(name, {}) else f"not pinned: {state.command(f'mcp pin {name}')}"
            show(out, f"  {visible(tool, one_line=True)}  {known}")
    return 0


@mcp.command("pin")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--yes", "-y", is_flag=True, help="Pin what they say without being asked.")
def pin(state: State, names: tuple[str, ...], yes: bool) -> int:
    """Start servers, show what they say of the allowed tools, and pin it.

    Without a name, all of them. A description is an instruction to the model: read what is new. Where nobody can be
    asked, --yes pins; without it the differences are shown, with exit code 4 where there are any.
    """
    from orchestrator.cli.session import drive, open_desk
    from orchestrator.mcp_pins import differences, load_pins, write_pins

    desk = open_desk(state)
    chosen = names or tuple(desk.settings.mcp)
    for name in chosen:
        if name not in desk.settings.mcp:
            known = ", ".join(desk.settings.mcp) or "none"
            raise UsageError(f"there is no MCP server {name!r}", hint=f"The project file has: {known}.")
    found = drive(lambda: _listed(desk, chosen))
    pins = {name: dict(tools) for name, tools in load_pins(desk.project).items() if name in desk.settings.mcp}
    changed = {name: differences(pins.get(name, {}), tools) for name, tools in found.items()}
    told = {name: said for name, said in changed.items() if said}
    _print(desk, found, told)
    pinned = bool(told) and (yes or _agreed(state, names))
    if pinned:
        pins |= {name: dict(tools) for name, tools in found.items()}
        path = write_pins(desk.project, pins)
        show(console(stderr=state.json), f"pinned in {desk.project.display(path)}: commit it")
    if state.json:
        differs = [{"server": name, "tool": said} for name, lines in told.items() for said in lines]
        print_document({"schema": SCHEMA, "changed": differs, "pinned": pinned})
    return 0 if pinned or not told else 4


async def _listed(desk: Desk, names: tuple[str, ...]) -> Mapping[str, Mapping[str, Pinned]]:
    from orchestrator.mcp_client import McpServers

    servers = McpServers(desk.project, desk.settings)
    try:
        return {name: await servers.listed(name) for name in names}
    finally:
        await servers.close()


def _print(desk: Desk, found: Mapping[str, Mapping[str, Pinned]], told: Mapping[str, tuple[str, ...]]) -> None:
    """What each server says that is new, whole: a person answers for what they can see."""
    from rich.text import Text

    out = console(stderr=desk.state.json)
    for name, tools in found.items():
        show(out, Text(visible(name, one_line=True), style="bold"))
        for absent in (allowed for allowed in desk.settings.mcp[name].allow if allowed not in tools):
            show(out, Text(f"  {visible(absent, one_line=True)}: the server has no such tool", style="yellow"))
        if name not in told:
            show(out, "  as it was pinned")
        for said in told.get(name, ()):
            show(out, f"  {visible(said, one_line=True)}")
            described = tools.get(said.partition(":")[0])
            if described is not None:
                show(out, visible(described.description), indent=6)
                show(out, Text(visible(json.dumps(described.schema, ensure_ascii=False)), style="dim"), indent=6)
                fault = described.fault()
                if fault:
                    show(out, Text(f"      it cannot be used: {visible(fault, one_line=True)}", style="red"))


def _agreed(state: State, names: tuple[str, ...]) -> bool:
    from orchestrator.cli.session import plain_interrupts

    out = console(stderr=state.json)
    if not (sys.stdin.isatty() and out.is_terminal):
        show(out, f"nothing was pinned; after reading it: {state.command(' '.join(('mcp pin', *names, '--yes')))}")
        return False
    with plain_interrupts():
        return click.confirm("Pin this?", default=False, err=True)
