"""One step of a pipeline by itself, inside other code: its reads are given, its value is returned.

It is a run like any other, in the pipeline's database: what was given stands there as the current versions of what the
step reads, and the step is the only one to run. An artifact that is given is an import, not the customer's word; an
input is.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.graph import Read, StepNode
from orchestrator.ids import variable
from orchestrator.python.declarations import StepDeclaration
from orchestrator.python.functions import context_parameter, read_parameters
from orchestrator.spec import MISSING
from orchestrator.values import NewArtifact


def given_to(
    node: StepNode, declared: StepDeclaration, args: Sequence[Any], values: Mapping[str, Any]
) -> dict[str, NewArtifact]:
    """What a call of the step gives, by the names of its reads. Raises UsageError for values that do not fit."""
    wanted = _parameters(node)
    named = {**_positional(declared, args), **values}
    unknown = [name for name in named if name not in wanted]
    missing = [name for name, read in wanted.items() if name not in named and read.default is MISSING]
    if unknown or missing:
        what = f"it takes no {unknown[0]}" if unknown else f"{missing[0]} is not given"
        raise UsageError(f"{node.name}: {what}", hint=f"it takes {', '.join(wanted) or 'nothing'}")
    return {wanted[name].name: _artifact(node.name, name, value, wanted[name]) for name, value in named.items()}


def _parameters(node: StepNode) -> dict[str, Read]:
    """The step's reads, by the function's parameters that take them, else by their own names."""
    bound = read_parameters(node.function.call) if node.function is not None else {}
    keywords = {variable(read.called): read for read in node.reads}
    return {bound.get(keyword, keyword): read for keyword, read in keywords.items()}


def _positional(declared: StepDeclaration, args: Sequence[Any]) -> dict[str, Any]:
    if declared.function is None:
        if args:
            raise UsageError(f"{declared.name} takes its reads by name", hint="write run(name=value)")
        return {}
    ctx = context_parameter(declared.function)
    names = [name for name in inspect.signature(declared.function).parameters if name != ctx]
    if len(args) > len(names):
        raise UsageError(f"{declared.name} takes {len(names)} values, not {len(args)}")
    return dict(zip(names, args, strict=False))


def _artifact(step: str, name: str, value: Any, read: Read) -> NewArtifact:
    contract = read.contract
    faults = contract.faults(value)
    if faults:
        raise UsageError(f"{step}: {name}: {faults[0].path} {faults[0].rule}", code="invalid_input")
    body = contract.dump(value)
    hashes = contract.field_hashes(body)
    if read.kind == "input":
        return NewArtifact(contract.name, body, "customer", "input", contract.sensitivity, hashes)
    return NewArtifact(contract.name, body, "import", "import", contract.sensitivity, hashes)
