"""Graphs and rows for tests of what is pure: built in one line each, without a project on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from orchestrator.contracts import input_contract
from orchestrator.errors import Place
from orchestrator.graph import Graph, InputNode, Read, StepNode, topological
from orchestrator.spec import InputSpec, PipelineSpec, StepSpec
from orchestrator.values import ArtifactVersion, StepRow, StepStatus, Usage

PLACE = Place("p.yaml")
CONTRACT = input_contract("x", InputSpec(type="text", about="x"), PLACE)


@dataclass(frozen=True)
class Part:
    """A step by what it reads (steps or inputs) and needs."""

    reads: Sequence[str] = ()
    needs: Sequence[str] = ()
    tags: Sequence[str] = ()
    kind: str = "llm"
    more: Mapping[str, Any] = field(default_factory=dict)


def graph_of(parts: Mapping[str, Part], inputs: Sequence[str] = (), name: str = "shop") -> Graph:
    """The graph of such steps, declared in this order."""
    parents = {
        step: tuple(dict.fromkeys([read for read in part.reads if read in parts] + list(part.needs)))
        for step, part in parts.items()
    }
    steps = {step: _node(step, at, parts[step], parents[step], inputs) for at, step in enumerate(topological(parents))}
    return Graph(
        name=name,
        spec=PipelineSpec(pipeline=name, steps={}),
        file="p.yaml",
        inputs={read: InputNode(read, CONTRACT, PLACE) for read in inputs},
        steps=steps,
        children={step: tuple(child for child in steps if step in parents[child]) for step in steps},
        rank={known: at for at, known in enumerate([*inputs, *steps])},
        outputs=(),
        digest="g",
    )


def _node(name: str, order: int, part: Part, parents: tuple[str, ...], inputs: Sequence[str]) -> StepNode:
    reads = [Read(r, "input" if r in inputs else "step", CONTRACT, None, None, PLACE) for r in part.reads]
    fields: dict[str, Any] = dict.fromkeys(("template", "function", "model", "conversation"))
    return StepNode(
        name=name, kind=part.kind, order=order, spec=StepSpec(prompt="x", needs=tuple(part.needs)),  # type: ignore[arg-type]
        contract=replace(CONTRACT, tags=tuple(part.tags)), reads=tuple(reads), parents=parents, tools=(), checks=(),
        reasks=2, timeout=1.0, call_timeout=1.0, digest="d", place=PLACE, **fields, **part.more,
    )  # fmt: skip


def row_of(name: str, status: StepStatus = "succeeded", cost: str | None = None, **more: Any) -> StepRow:
    """A step of a run, or an item of one; a succeeded one has an artifact."""
    values: dict[str, Any] = {
        "name": name, "item": None, "kind": "llm", "order": 1, "status": status, "attempt": 1, "attempt_id": "a",
        "head": _version(name) if status == "succeeded" else None, "draft": None, "inputs_hash": None, "manifest": None,
        "calls": 1, "reasks": 0, "usage": Usage(), "cost_usd": Decimal(cost) if cost is not None else None,
        "cost_partial": False, "seconds": 1.0, "error": None,
    }  # fmt: skip
    return StepRow(**{**values, **more})


def _version(name: str) -> ArtifactVersion:
    return ArtifactVersion(
        id=f"artifact-{name}", run_id="r", step=name, item=None, version=1, contract="x", sha256="0" * 64, size=3,
        author="step", origin="model", created_at=datetime(2026, 3, 1, tzinfo=UTC), parent_id=None,
        sensitivity="internal", field_hashes={},
    )  # fmt: skip


@st.composite
def dags(draw: st.DrawFn, most: int = 10) -> Graph:
    """A random graph with two inputs, declared in an order that has nothing to do with the topological one."""
    names = [f"s{at}" for at in range(draw(st.integers(1, most)))]
    parts = {}
    for at, name in enumerate(names):
        above = sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=3))) if at else []
        needed = [parent for parent in above if draw(st.booleans())]
        given = sorted(draw(st.sets(st.sampled_from(["i0", "i1"]))))
        reads = [*given, *(parent for parent in above if parent not in needed)]
        tags = sorted(draw(st.sets(st.sampled_from(["red", "blue"]))))
        parts[name] = Part(reads, needed, tags, draw(st.sampled_from(["llm", "python"])))
    return graph_of({name: parts[name] for name in draw(st.permutations(names))}, ["i0", "i1"])
