"""`uses:` of another pipeline, and its `with:`: which file is meant, and what its inputs are given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.faults import shown
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.project import Project
from orchestrator.python.declarations import Declarations
from orchestrator.spec import MISSING, BindSpec, PathKey

# A pipeline that is used: its file, or what was declared in Python.
PipelineSource = Path | Declarations


def pipeline_file(project: Project, reference: str, found: Path | None) -> Path | None:
    """The pipeline that a step uses: `found` on the way to it, or one of that name; None where it names no pipeline."""
    if found is not None:
        return found if found in project.pipelines() else None
    try:
        return project.pipeline(reference)
    except UsageError:
        return None


def bindings(reader: SpecReader, value: object, path: PathKey) -> dict[str, BindSpec]:
    """What each input is given; what is faulty is reported and dropped."""
    part = reader.mapping(value, path, "'with'")
    found: dict[str, BindSpec] = {}
    for name, given in (part or {}).items():
        bound = _binding(reader, given, (*path, name))
        if bound is None:
            reader.drop((*path, name))
        else:
            found[name] = bound
    return found


def _binding(reader: SpecReader, value: Any, path: PathKey) -> BindSpec | None:
    if isinstance(value, str) and value.strip():
        return BindSpec(read=value)
    if not isinstance(value, dict):
        hint = f"Write {{value: {reader.raw.get(path, value)}}} for a fixed value, else the name of a step or input."
        message = f"{path[-1]!r} in 'with' must name what the input is given, not {shown(value)}"
        reader.report("P103", message, reader.place(*path), hint)
        return None
    given = reader.keys(value, path, BindSpec, "'with'")
    if "guard" in given and reader.text(given["guard"], (*path, "guard"), "'guard'") is None:
        del given["guard"]
    if ("read" in given) == ("value" in given) or not _fits_together(given):
        hint = "Write {read: STEP, guard: …, default: …}, or {value: …} alone."
        reader.report("P103", f"{path[-1]!r} in 'with' has either 'read' or 'value'", reader.place(*path), hint)
        return None
    bound = reader.model(BindSpec, given, path, "'with'")
    return bound if bound is not None and (bound.read or bound.value is not MISSING) else None


def _fits_together(given: Mapping[str, Any]) -> bool:
    return "value" not in given or not given.keys() & {"guard", "default"}
