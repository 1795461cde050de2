"""What a step reads, as values: for functions, and for the expressions of `when` and `repeat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.contracts import Contract
from orchestrator.errors import StepFailed
from orchestrator.graph import Read, StepNode
from orchestrator.ids import variable
from orchestrator.spec import MISSING
from orchestrator.values import Artifact, Snapshot


def read_values(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as Python values, by the names functions use: a model instance where the schema is pydantic; the items
    of a step as a mapping from key to value.

    Raises StepFailed for a value that its contract does not allow any more.
    """
    return _values(step, snapshot, _instance)


def read_data(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as JSON data, by the names that expressions use: text as text, a file as null, the items of a step as
    an object."""
    return _values(step, snapshot, _data)


def _instance(contract: Contract, artifact: Artifact) -> Any:
    contract.require(artifact.body, artifact.version.sha256)
    return contract.instance(artifact.body)


def _data(contract: Contract, artifact: Artifact) -> Any:
    return None if contract.form == "file" else contract.load(artifact.body)


def _values(step: StepNode, snapshot: Snapshot, value: Callable[[Contract, Artifact], Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for read in step.reads:
        found = snapshot.artifacts.get(read.name)
        if found is not None and read.takes == "each":
            items = sorted(snapshot.items.get(read.name, {}).items())
            values[variable(read.called)] = {key: _fitting(step, read, artifact, value) for key, artifact in items}
        elif found is not None:
            values[variable(read.called)] = _fitting(step, read, found, value)
        elif read.default is not MISSING:
            values[variable(read.called)] = read.default
    return values


def _fitting(step: StepNode, read: Read, artifact: Artifact, value: Callable[[Contract, Artifact], Any]) -> Any:
    """The value, as its contract is now: that may have changed since the value was made (A19)."""
    try:
        return value(read.contract, artifact)
    except ValueError as error:
        name, contract = artifact.version.label, read.contract
        why = _why(contract, artifact.body) or str(error).splitlines()[0]
        raise StepFailed(
            f"{step.name} reads {name}@{artifact.version.version}, which its contract {contract.name} does not allow"
            f" any more: {why}; nothing was sent",
            hint=f"make {name} anew (orch refresh), or edit it; the contract stands in {contract.place}",
            code="invalid_read",
        ) from error


def _why(contract: Contract, body: bytes) -> str:
    """The first thing that is wrong with a value; empty where it is no value of the contract's form at all."""
    try:
        faults = contract.faults(contract.load(body))
    except ValueError:
        return ""
    return f"{faults[0].path} {faults[0].rule}" if faults else ""
