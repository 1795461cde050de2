"""A run's inputs: what was given, checked against what is declared, as artifacts authored by the customer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from orchestrator.contracts.rules import show
from orchestrator.errors import UsageError
from orchestrator.graph import Graph, InputNode
from orchestrator.spec import MISSING
from orchestrator.values import NewArtifact


def check_inputs(graph: Graph, given: Mapping[str, Any], author: str = "customer") -> dict[str, NewArtifact]:
    """Every declared input with a value, defaults filled in. Raises UsageError for the first thing wrong."""
    declared = {name: node for name, node in graph.inputs.items() if node.earlier is None}
    for name in given:
        if name not in declared:
            near = get_close_matches(name, list(declared), n=1)
            known = f"did you mean {near[0]}?" if near else f"inputs: {', '.join(declared) or 'none'}"
            raise UsageError(f"{graph.name} has no input {name!r}", hint=known, code="unknown_input")
    missing = [node.name for node in declared.values() if node.name not in given and node.default is MISSING]
    if missing:
        raise UsageError(
            f"{graph.name} needs the input{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint=f"--set {missing[0]}=…, or --input FILE.json with all of them",
            code="missing_input",
        )
    return {
        name: _artifact(node, given.get(name, node.default), author if name in given else "default")
        for name, node in declared.items()
    }


def given_inputs(graph: Graph, given: Mapping[str, Any], author: str) -> dict[str, NewArtifact]:
    """The inputs that are given, and no other. Raises UsageError for the first thing wrong."""
    if not given.keys() <= graph.inputs.keys():
        check_inputs(graph, given)  # which says what is not known
    known = {name: graph.inputs[name] for name in given}
    return check_inputs(replace(graph, inputs=known), given, author)


def _artifact(node: InputNode, value: Any, author: str) -> NewArtifact:
    contract = node.contract
    faults = contract.faults(value)
    if faults:
        first = faults[0]
        where = "" if first.path == "$" else f" at {first.path}"
        got = "" if first.value is None and value is not None else f", got {show(first.value)}"
        raise UsageError(
            f"input {node.name}{where}: {first.rule}{got}",
            hint=f"it is declared in {node.place}",
            code="invalid_input",
        )
    body = contract.dump(value)
    excess = contract.too_large(body)
    if excess is not None:
        hint = f"shorten it, or raise max_tokens of the contract {contract.name}"
        raise UsageError(f"input {node.name} is {excess}", hint=hint, code="too_large")
    return NewArtifact(contract.name, body, author, "input", contract.sensitivity, contract.field_hashes(body))
