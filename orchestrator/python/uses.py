"""`p.use(…)`: another pipeline as a step, as a pipeline file says it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from orchestrator.python.declarations import Declarations, Declared, Read, Source, StepDeclaration
from orchestrator.spec import MISSING


def used(entry: StepDeclaration, pipelines: MutableMapping[str, Declarations]) -> dict[str, Any]:
    """The keys `uses` and `with` of a step; the pipeline itself is noted under the name that stands for it."""
    uses = entry.keys.get("uses")
    if not isinstance(uses, Declared):
        return {key: _given(entry.keys[key]) for key in ("with",) if key in entry.keys}
    declared = uses.declarations
    pipelines[declared.name] = declared
    return {"uses": declared.name, "with": _given(entry.keys.get("with", {}))}


def _given(inputs: Any) -> Any:
    return {name: _bound(value) for name, value in inputs.items()} if isinstance(inputs, Mapping) else inputs


def _bound(value: Any) -> Any:
    if isinstance(value, Source):
        return value.name
    if not isinstance(value, Read):
        return dict(value) if isinstance(value, Mapping) else value
    said = {"guard": value.guard} if value.guard is not None else {}
    said |= {"default": value.default} if value.default is not MISSING else {}
    return {"read": value.source, **said} if said else value.source
