"""What a step reads, as values: for functions, and for the expressions of `when` and `repeat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.contracts import Contract
from orchestrator.graph import StepNode
from orchestrator.ids import variable
from orchestrator.spec import MISSING
from orchestrator.values import Snapshot


def read_values(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as Python values, by the names functions use: a model instance where the schema is pydantic; the items
    of a step as a mapping from key to value."""
    return _values(step, snapshot, lambda contract, body: contract.instance(body))


def read_data(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as JSON data, by the names that expressions use: text as text, a file as null, the items of a step as
    an object."""
    return _values(step, snapshot, lambda contract, body: None if contract.form == "file" else contract.load(body))


def _values(step: StepNode, snapshot: Snapshot, value: Callable[[Contract, bytes], Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for read in step.reads:
        found = snapshot.artifacts.get(read.name)
        if found is not None and read.takes == "each":
            items = sorted(snapshot.items.get(read.name, {}).items())
            values[variable(read.name)] = {key: value(read.contract, artifact.body) for key, artifact in items}
        elif found is not None:
            values[variable(read.name)] = value(read.contract, found.body)
        elif read.default is not MISSING:
            values[variable(read.name)] = read.default
    return values
