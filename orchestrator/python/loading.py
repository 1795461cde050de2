"""What a project's Python files declare: executed by path, looked through, never imported by name."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import Diagnostic, Place
from orchestrator.project import OutsideProject, Project, PythonLoadError
from orchestrator.python.declarations import Declarations, Declared, kebab, mark_of
from orchestrator.python.sources import text_of
from orchestrator.yaml_nodes import Document


def declared_in(project: Project, path: Path) -> Declarations | Diagnostic:
    """The one pipeline that a Python file assigns, or why there is none. Executes the file."""
    shown = project.display(path)
    try:
        module = project.load_module(path)
    except PythonLoadError as error:
        place = Place(project.display(error.path), error.line or 0)
        return Diagnostic("P223", error.message, place, error.hint, _line(error.path, place.line))
    except OutsideProject:
        return Diagnostic("P108", f"{shown} is outside the project", None, "Move the file into the project.")
    known = {id(value): value for value in vars(module).values() if isinstance(value, Declared)}
    # One that another file declares is imported to be used as a step; a file that only passes one on has that.
    own = {key: value for key, value in known.items() if _is_of(value, path)}
    pipelines = own or known
    if len(pipelines) != 1:
        count = f"{len(pipelines)} pipelines" if pipelines else "no pipeline"
        hint = 'A Python pipeline file has one: p = Pipeline("name").'
        return Diagnostic("P301", f"{shown} assigns {count}", Place(shown), hint)
    [pipeline] = pipelines.values()
    return pipeline.declarations


def declared_contract(project: Project, path: Path) -> Document:
    """A Python file of the shelf `artifacts/` as the contract file it stands for, with its faults."""
    shown, name = project.display(path), kebab(path.stem)
    document = Document(shown)
    try:
        module = project.load_module(path)
    except PythonLoadError as error:
        place = Place(project.display(error.path), error.line or 0)
        fault = Diagnostic("P223", error.message, place, error.hint, _line(error.path, place.line))
        document.diagnostics.append(fault)
        return document
    marks = [(value, mark) for value in vars(module).values() if (mark := mark_of(value)) and mark.name == name]
    if not marks:
        hint = 'The file of a contract has a class of that name with @artifact(about="…", not_for=[…]).'
        document.report("P230", f"{shown} declares no artifact type {name}", Place(shown), hint)
        return document
    cls, mark = marks[0]
    document.text = text_of(str(path))
    document.lines = document.text.splitlines()
    document.places = {(): Place(shown, mark.place.line)}
    document.data = {"artifact": name, "schema": f"{path.name}:{cls.__name__}", **mark.keys}
    return document


def _is_of(pipeline: Declared, path: Path) -> bool:
    file = pipeline.declarations.file
    return file is not None and os.path.realpath(file) == os.path.realpath(path)


def _line(path: Path, number: int) -> str | None:
    lines = text_of(str(path)).splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else None
