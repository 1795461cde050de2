"""A stored body as a value again: JSON data or text."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.graph import Graph
    from orchestrator.values import Artifact


def value_of(artifact: Artifact, graph: Graph | None) -> Any:
    """A body as JSON data or text, as its contract says; without the contract, or where its form has changed since, as
    what it looks like.

    Bytes that are no text are `{"base64": "…"}`: every value here can stand in a document.
    """
    name = artifact.version.step
    node = None if graph is None else graph.steps.get(name) or graph.inputs.get(name)
    try:
        text = artifact.body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(artifact.body).decode()}
    if node is not None and node.contract.name == artifact.version.contract and node.contract.form != "json":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
