"""The tools of a step, from what it names to what its model is told and what runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from orchestrator.contracts import Contract
from orchestrator.errors import Place
from orchestrator.faults import nearest
from orchestrator.mcp_pins import load_pins
from orchestrator.spec import ToolUse
from orchestrator.tools import Tool, ToolFault, build_tool, remote_tool
from orchestrator.values import HostedName, HostedTool

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding

HOSTED: Final[Mapping[str, HostedName]] = {"web_search": "web_search", "web_fetch": "web_fetch"}
MCP: Final = "mcp:"
HOSTED_KEYS: Final = ("max_uses", "domains", "blocked")
FUNCTION_KEYS: Final = ("approval", "timeout", "returns", "keep", "max_tokens")
MAX_USES: Final = 5
_DOMAIN: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+(?<!-)")


def tools_of(step: StepBuilding) -> tuple[Tool, ...]:
    """The tools that a step names, in its order; those that are faulty are reported and left out."""
    tools: dict[str, Tool] = {}
    for at, use in enumerate(step.spec.tools):
        place = step.of("tools", at)
        if any(use.tool == other.tool for other in step.spec.tools[:at]):
            step.error("P204", f"it names the tool {use.tool} twice", place, "leave one out")
            continue
        if use.tool in HOSTED:
            _refuse_keys(step, use, FUNCTION_KEYS, f"{use.tool} is run by the provider", at)
            continue
        _refuse_keys(step, use, HOSTED_KEYS, f"{use.tool} is no tool of the provider", at)
        for tool in _remote(step, use, place) if use.tool.startswith(MCP) else _function(step, use, place):
            if tool.spec.name in tools:
                other = tools[tool.spec.name].ref
                what = f"two tools are named {tool.spec.name}: {other} and {use.tool}"
                step.error("P226", what, place, "rename one function")
                continue
            tools[tool.spec.name] = tool
    return tuple(tools.values())


def hosted_of(step: StepBuilding) -> tuple[HostedTool, ...]:
    """The tools of the provider's own that a step names; whether it has them, is known when a run starts."""
    found: dict[str, HostedTool] = {}
    for at, use in enumerate(step.spec.tools):
        if use.tool not in HOSTED:
            continue
        if use.domains and use.blocked:
            what = f"{use.tool} has both `domains` and `blocked`"
            step.error("P238", what, step.of("tools", at), "name what it may look at, or what it may not")
        for domain in (*(use.domains or ()), *(use.blocked or ())):
            if not _DOMAIN.fullmatch(domain):
                what = f"{domain!r} is no domain"
                step.error("P238", what, step.of("tools", at), "write it without https:// and path: example.org")
        found[use.tool] = HostedTool(HOSTED[use.tool], use.max_uses or MAX_USES, use.domains or (), use.blocked or ())
    return tuple(found.values())


def _refuse_keys(step: StepBuilding, use: ToolUse, keys: tuple[str, ...], what: str, at: int) -> None:
    for key in keys:
        if getattr(use, key) is not None:
            step.error("P238", f"{what}, so it has no `{key}`", step.of("tools", at, key), "leave the key out")


def _function(step: StepBuilding, use: ToolUse, place: Place) -> list[Tool]:
    near = get_close_matches(use.tool, HOSTED, n=1) if ":" not in use.tool else []
    if near:
        what = f"{use.tool!r} is neither a reference to Python nor a tool of the provider"
        step.error("P221", what, place, f"did you mean {near[0]!r}?")
        return []
    found = step.load(use.tool, "tools", place)
    if found is None:
        return []
    try:
        return [build_tool(use.tool, found.value, found.sha).used(use, _returned(step, use, place))]
    except ToolFault as fault:
        step.error("P225", f"{fault.message}, so it cannot be a tool", place, fault.hint)
        return []


def _remote(step: StepBuilding, use: ToolUse, place: Place) -> list[Tool]:
    """The tools of an MCP server: `mcp:SERVER/TOOL`, or `mcp:SERVER` for all that the project file allows."""
    server, _, only = use.tool.removeprefix(MCP).partition("/")
    spec = step.building.mcp.get(server)
    if spec is None:
        named, _, wanted = server.replace(":", ".").partition(".")
        hint = nearest(server, list(step.building.mcp)) if step.building.mcp else None
        if wanted and named in step.building.mcp:
            hint = f"write {MCP}{named}/{wanted}"
        what = f"there is no MCP server {server!r}"
        step.error("P239", what, place, hint or f"declare it under [mcp.{server}] of the project file")
        return []
    if only and only not in spec.allow:
        step.error("P239", f"[mcp.{server}] does not allow {only}", place, f"allowed: {', '.join(spec.allow)}")
        return []
    pins = load_pins(step.building.project).get(server, {})
    found: list[Tool] = []
    for name in [only] if only else spec.allow:
        fault = "it is not pinned" if name not in pins else pins[name].fault()
        if fault is not None:
            what = f"the tool {name} of the MCP server {server} cannot be used: {fault}"
            step.error("P239", what, place, f"look at what the server offers: orch mcp pin {server}")
            continue
        tool = remote_tool(f"{MCP}{server}/{name}", server, pins[name], spec)
        found.append(tool.used(use, _returned(step, use, place)))
    return found


def _returned(step: StepBuilding, use: ToolUse, place: Place) -> Contract | None:
    """The contract that the step says a tool's result is under."""
    if use.returns is None:
        return None
    contract = step.building.contract(use.returns)
    if contract is None and not step.building.has_contract(use.returns):
        hint = nearest(use.returns, step.building.contract_names())
        step.error("P230", f"there is no contract {use.returns} for what {use.tool} gives", place, hint)
    elif contract is not None and contract.form == "file":
        step.error("P235", f"{use.tool} cannot give a file to a model", place, "let it return text or a model")
        return None
    return contract
