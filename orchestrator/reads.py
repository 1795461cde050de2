"""What a step reads, as values: for functions, and for the expressions of `when` and `repeat`."""

from __future__ import annotations

from typing import Any

from orchestrator.graph import StepNode
from orchestrator.ids import variable
from orchestrator.spec import MISSING
from orchestrator.values import Snapshot


def read_values(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as Python values, by the names functions use: a model instance where the schema is pydantic."""
    values: dict[str, Any] = {}
    for read in step.reads:
        found = snapshot.artifacts.get(read.name)
        if found is not None:
            values[variable(read.name)] = read.contract.instance(found.body)
        elif read.default is not MISSING:
            values[variable(read.name)] = read.default
    return values


def read_data(step: StepNode, snapshot: Snapshot) -> dict[str, Any]:
    """The reads as JSON data, by the names that expressions use: text as text, a file as null."""
    values: dict[str, Any] = {}
    for read in step.reads:
        found = snapshot.artifacts.get(read.name)
        if found is not None:
            values[variable(read.name)] = None if read.contract.form == "file" else read.contract.load(found.body)
        elif read.default is not MISSING:
            values[variable(read.name)] = read.default
    return values
