"""A pipeline as the rows that a new run begins with."""

from __future__ import annotations

from orchestrator.graph import Graph
from orchestrator.store.records import NewStep


def spec_json(graph: Graph) -> bytes:
    """The pipeline as declared, for the record: what was not given is not written."""
    return graph.spec.model_dump_json(by_alias=True, exclude_unset=True).encode()


def new_steps(graph: Graph) -> list[NewStep]:
    """A row for each input and each step, in the order of the file."""
    inputs = [
        NewStep(name, None, "input", graph.rank[name], earlier=node.earlier) for name, node in graph.inputs.items()
    ]
    return inputs + [
        NewStep(step.name, None, "map" if step.for_each else step.kind, graph.rank[step.name], step.parents)
        for step in graph.steps.values()
    ]
