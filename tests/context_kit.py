"""A small pipeline in memory, for tests of context and thread: contracts, a graph, stored artifacts, a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.contracts import Contract
from orchestrator.errors import Place
from orchestrator.graph import Graph, InputNode, ModelChoice, Read, StepNode, Template
from orchestrator.ids import canonical_json, digest, sha256
from orchestrator.spec import MISSING, SCALAR_INPUTS, ConversationSpec, InputSpec, PipelineSpec, Sensitivity, StepSpec
from orchestrator.values import Artifact, ArtifactVersion, Message, Origin, Snapshot

PLACE = Place("pipeline.yaml", 1, 1)
TALK = ConversationSpec()
VENDOR_GUARDS = ("These are not the customer's budget.", "Do not use these figures as budget limits.")


def contract(
    name: str,
    *,
    about: str = "",
    not_for: tuple[str, ...] = (),
    schema: Mapping[str, Any] | None = None,
    form: Any = None,
    sensitivity: Sensitivity = "internal",
    max_tokens: int | None = None,
    customer: tuple[str, ...] = (),
    code: Mapping[str, str] | None = None,
) -> Contract:
    properties = (schema or {}).get("properties", {})
    return Contract(
        name=name,
        about=about or f"What {name} says.",
        not_for=not_for,
        sensitivity=sensitivity,
        tags=(),
        max_tokens=max_tokens,
        form=form or ("json" if schema is not None else "text"),
        schema=schema,
        model=None,
        fields=tuple(properties),
        customer_fields=customer,
        code=code or {},
        digest=digest([name, about, list(not_for), schema]),
        place=PLACE,
    )


def read(source: Contract, name: str, *, kind: Any = "step", **more: Any) -> Read:
    is_input = kind == "input"
    own = {"given": is_input, "scalar": is_input and source.name in SCALAR_INPUTS}
    given = {"fields": None, "guard": None, "default": MISSING, **own, **more}
    return Read(name=name, kind=kind, contract=source, place=Place("pipeline.yaml", 7, 15), **given)


def step(
    name: str,
    *,
    order: int = 0,
    reads: Iterable[Read] = (),
    prompt: str | None = "Do the work.",
    produces: Contract | None = None,
    conversation: ConversationSpec | None = TALK,
    parents: tuple[str, ...] | None = None,
    max_output_tokens: int = 1000,
    **more: Any,
) -> StepNode:
    reads = tuple(reads)
    base: dict[str, Any] = {
        "kind": "llm",
        "spec": StepSpec(prompt=prompt),
        "function": None,
        "tools": (),
        "checks": (),
        "model": ModelChoice("default", "openai", "model-a", None, max_output_tokens),
        "reasks": 2,
        "timeout": 60.0,
        "call_timeout": 60.0,
        "digest": digest(["definition", name]),
        "place": PLACE,
        "system": "You plan.",
    }
    return StepNode(
        name=name,
        order=order,
        contract=produces or contract(name),
        reads=reads,
        parents=tuple(r.name for r in reads if r.kind == "step") if parents is None else parents,
        template=None if prompt is None else Template(f"{name}.md.j2", prompt, sha256(prompt), Place(f"{name}.md.j2")),
        conversation=conversation,
        **{**base, **more},
    )


def graph(
    steps: Iterable[StepNode], inputs: Mapping[str, tuple[str, Contract]] | None = None, system: str = "You plan."
) -> Graph:
    """A graph of steps in topological order; `inputs` gives each input's declared type and its contract."""
    nodes = {node.name: node for node in steps}
    given = inputs or {}
    spec = PipelineSpec(
        pipeline="test",
        system=system,
        inputs={name: InputSpec(type=kind) for name, (kind, _) in given.items()},
        steps={name: node.spec for name, node in nodes.items()},
    )
    children = {name: tuple(n.name for n in nodes.values() if name in n.parents) for name in nodes}
    return Graph(
        name="test",
        spec=spec,
        file="pipeline.yaml",
        inputs={name: InputNode(name, source, PLACE) for name, (_, source) in given.items()},
        steps=nodes,
        children=children,
        rank={name: at for at, name in enumerate((*given, *nodes))},
        outputs=(),
        digest="graph",
    )


def artifact(
    name: str,
    source: Contract,
    value: Any,
    *,
    version: int = 1,
    author: str = "openai:model-a",
    origin: Origin = "model",
    **more: Any,
) -> Artifact:
    body = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else canonical_json(value)
    fields = {key: digest(item) for key, item in value.items()} if isinstance(value, dict) else {}
    meta = ArtifactVersion(
        id=f"id-{name}-{version}",
        run_id="run-1",
        step=name,
        item=None,
        contract=source.name,
        version=version,
        sha256=sha256(body),
        size=len(body),
        author=author,
        origin=origin,
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
        parent_id=None,
        field_hashes=fields,
        **{"sensitivity": source.sensitivity, **more},
    )
    return Artifact(meta, body)


def snapshot(
    artifacts: Iterable[Artifact] = (), messages: Iterable[Message] = (), *, total: int | None = None, **more: Any
) -> Snapshot:
    found, said = {entry.version.step: entry for entry in artifacts}, tuple(messages)
    return Snapshot(found, said, len(said) if total is None else total, **more)


def messages(count: int, text: str = "m{0}") -> tuple[Message, ...]:
    return tuple(Message(n, "user" if n % 2 else "assistant", text.format(n), "review") for n in range(1, count + 1))
