"""A stored body as a value again: JSON data or text."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from orchestrator.attachments import is_text, told

if TYPE_CHECKING:
    from orchestrator.graph import Graph
    from orchestrator.values import Artifact


class Opaque(dict[str, str]):
    """Bytes that are no text: as a document has them, and in words for people."""

    def __init__(self, body: bytes) -> None:
        super().__init__(base64=b64encode(body).decode())
        self.told = told(body)


def readable(value: Any) -> Any:
    """A value as people are shown it: of bytes that are no text, what they are."""
    return f"[{value.told}]" if isinstance(value, Opaque) else value


def value_of(artifact: Artifact, graph: Graph | None) -> Any:
    """A body as JSON data or text, as its contract says; without the contract, or where its form has changed since, as
    what it looks like.

    Bytes that are no text are `{"base64": "…"}`: every value here can stand in a document.
    """
    name = artifact.version.step
    node = None if graph is None else graph.steps.get(name) or graph.inputs.get(name)
    form = node.contract.form if node is not None and node.contract.name == artifact.version.contract else None
    if form == "file" and not is_text(artifact.body):
        return Opaque(artifact.body)
    try:
        text = artifact.body.decode()
    except UnicodeDecodeError:
        return Opaque(artifact.body)
    if form is not None and form != "json":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
