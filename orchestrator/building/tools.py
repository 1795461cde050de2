"""The tools of a step, from what it names to what its model is told and what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.contracts import Contract
from orchestrator.errors import Place
from orchestrator.faults import nearest
from orchestrator.spec import ToolUse
from orchestrator.tools import Tool, ToolFault, build_tool

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding


def tools_of(step: StepBuilding) -> tuple[Tool, ...]:
    """The tools that a step names, in its order; those that are faulty are reported and left out."""
    tools: dict[str, Tool] = {}
    for at, use in enumerate(step.spec.tools):
        place = step.of("tools", at)
        if any(use.tool == other.tool for other in step.spec.tools[:at]):
            step.error("P204", f"it names the tool {use.tool} twice", place, "leave one out")
            continue
        tool = _function(step, use, place)
        if tool is None:
            continue
        if tool.spec.name in tools:
            other = tools[tool.spec.name].ref
            what = f"two tools are named {tool.spec.name}: {other} and {use.tool}"
            step.error("P226", what, place, "rename one function")
            continue
        tools[tool.spec.name] = tool
    return tuple(tools.values())


def _function(step: StepBuilding, use: ToolUse, place: Place) -> Tool | None:
    found = step.load(use.tool, "tools", place)
    if found is None:
        return None
    try:
        return build_tool(use.tool, found.value, found.sha).used(use, _returned(step, use, place))
    except ToolFault as fault:
        step.error("P225", f"{fault.message}, so it cannot be a tool", place, fault.hint)
        return None


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
