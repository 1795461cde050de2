"""Mermaid source, for Markdown and tools that draw it: a read is an arrow, what is only waited for a dotted one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.drawing.picture import Node, Picture

_SHAPES: Final[Mapping[str, tuple[str, str]]] = {"python": ("[[", "]]"), "gate": ("{{", "}}")}
# Dark text on a light ground with a strong border: readable on white and on black pages.
_CLASSES: Final[Mapping[str, str]] = {
    "input": "fill:#eaeef2,stroke:#57606a,color:#1f2328",
    "plain": "fill:#f6f8fa,stroke:#8c959f,color:#1f2328",
    "succeeded": "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "stale": "fill:#fff1e5,stroke:#bc4c00,color:#1f2328,stroke-width:2px",
    "failed": "fill:#ffebe9,stroke:#cf222e,color:#1f2328,stroke-width:2px",
    "waiting": "fill:#fff8c5,stroke:#9a6700,color:#1f2328,stroke-width:2px",
    "running": "fill:#ddf4ff,stroke:#0969da,color:#1f2328",
    "off": "fill:#f6f8fa,stroke:#8c959f,color:#57606a,stroke-dasharray:4 3",
}
_OFF: Final = frozenset({"pending", "ready", "cancelled", "skipped"})


def mermaid(picture: Picture) -> str:
    # Ids of our own: a step may be called `end`, which is a word of Mermaid's.
    ids = {name: f"i{at}" for at, name in enumerate(picture.inputs)}
    ids |= {node.name: f"s{at}" for at, node in enumerate(picture.steps)}
    lines = [f"%% {_escaped(picture.title)}", "flowchart TD"]
    lines += [f'  {ids[name]}(["{_escaped(name)}"])' for name in picture.inputs]
    for node in picture.steps:
        left, right = _SHAPES.get(node.kind, ("[", "]"))
        label = "<br/>".join([_escaped(node.name), _escaped(" · ".join(node.facts))])
        lines.append(f'  {ids[node.name]}{left}"{label}"{right}')
    for node in picture.steps:
        lines += [f"  {ids[name]} --> {ids[node.name]}" for name in (*node.inputs, *node.reads)]
        lines += [f"  {ids[name]} -.-> {ids[node.name]}" for name in node.needs]
    return "\n".join([*lines, *_classes(picture, ids)])


def _classes(picture: Picture, ids: Mapping[str, str]) -> list[str]:
    members: dict[str, list[str]] = {name: [] for name in _CLASSES}
    members["input"] = [ids[name] for name in picture.inputs]
    for node in picture.steps:
        members[_class(node)].append(ids[node.name])
    used = {name: found for name, found in members.items() if found}
    return [
        *(f"  classDef {name} {_CLASSES[name]}" for name in used),
        *(f"  class {','.join(found)} {name}" for name, found in used.items()),
    ]


def _class(node: Node) -> str:
    if node.state is None:
        return "plain"
    return node.state if node.state in _CLASSES else "off" if node.state in _OFF else "plain"


def _escaped(text: str) -> str:
    """As Mermaid writes them: entities with `#`, in a label and in a comment."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    for char in '#&"<>{}[]()`':
        plain = plain.replace(char, f"\0{ord(char)};")
    return plain.replace("\0", "#")
