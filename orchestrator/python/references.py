"""References to Python: `file.py:name`, found like any other reference, loaded by path, hashed with what it imports.

A function's behaviour is not only its own lines. What it uses of its file (`code_slices`), and the neighbouring files
of the project that it takes something from (`from .rates import usd`), are hashed with it, so that a change there is
seen as a change of code. Installed packages are not, nor are data files that a function opens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from orchestrator.ids import digest, sha256
from orchestrator.project import OutsideProject, Project, PythonLoadError, Shelf, on_shelf
from orchestrator.python.slices import code_slice
from orchestrator.syntax import module_of

FORM: Final = "file.py:name"


class ReferenceFault(Exception):
    """A reference that does not lead to a Python object; `code` is the diagnostic's."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


@dataclass(frozen=True, slots=True)
class Found:
    """A loaded object. `code` maps its file, and the project's files it imports, to their hashes."""

    ref: str
    file: str
    value: Any
    code: Mapping[str, str]

    @property
    def sha(self) -> str:
        """One hash for all of the code."""
        return next(iter(self.code.values())) if len(self.code) == 1 else digest(dict(self.code))


def load_reference(project: Project, ref: str, base: Path, shelf: Shelf | None = None) -> Found:
    """The object that `file.py:name` names, relative to the file `base`, then on a shelf. Raises ReferenceFault."""
    file, _, name = ref.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ReferenceFault("P221", f"{ref!r} is not a reference to Python", f"write it as {FORM}")
    path = _find(project, file, base, shelf)
    try:
        value = project.load_object(path, name)
    except PythonLoadError as error:
        line = f"{project.display(error.path)}:{error.line}: " if error.line else ""
        raise ReferenceFault("P223", f"{ref} cannot be loaded: {line}{error.message}", error.hint) from error
    return Found(ref, project.display(path), value, code_of(project, path, name))


def _find(project: Project, file: str, base: Path, shelf: Shelf | None) -> Path:
    try:
        path = project.resolve(file, base, shelf)
    except OutsideProject as error:
        raise ReferenceFault(
            "P222", f"{file!r} leads out of the project", "keep every file inside the project's folder"
        ) from error
    if path is None:
        places = ", ".join(looked_at(project, file, base, shelf))
        raise ReferenceFault(
            "P222", f"there is no file {file!r}; looked at {places}", "paths are relative to the file that names them"
        )
    return path


def looked_at(project: Project, ref: str, base: Path, shelf: Shelf | None) -> tuple[str, ...]:
    """The places a reference is looked for, in order, as messages show them."""
    from orchestrator.project import library_root

    folder = base if base.is_dir() else base.parent
    places = [project.display(Path(normpath(folder / ref)))]
    if shelf is not None and on_shelf(ref):
        places.append(f"{shelf}/{ref}")
        if library_root() != project.root:
            places.append(f"the shipped {shelf}/{ref}")
    return tuple(dict.fromkeys(places))


def find_code(project: Project, ref: str, base: Path, shelf: Shelf | None = None) -> Path | None:
    """The file of a reference, nothing executed; None where `load_reference` would raise before it executes any."""
    file = ref.rpartition(":")[0]
    try:
        return project.resolve(file, base, shelf) if file.endswith(".py") else None
    except OutsideProject:
        return None


def code_files(path: Path) -> Mapping[Path, bytes]:
    """A Python file and every file that it imports relatively, directly or not, with their text."""
    bodies: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in bodies:
            bodies[file] = file.read_bytes()
            waiting.extend(_imported(file, bodies[file]))
    return bodies


def code_of(project: Project, path: Path, name: str) -> Mapping[str, str]:
    """What a top-level name of a file depends on: the part of this file, and the project's files it takes from."""
    part = code_slice(path.read_bytes().decode("utf-8-sig", "replace"), name)
    if part is None:
        bodies = code_files(path)
        return {project.display(file): sha256(bodies[file]) for file in sorted(bodies)}
    others: dict[Path, bytes] = {}
    for node in part.imports:
        for found in _named(path, node):
            others.update(code_files(found))
    others.pop(path, None)
    return {project.display(path): part.sha, **{project.display(f): sha256(others[f]) for f in sorted(others)}}


def _imported(file: Path, body: bytes) -> Iterator[Path]:
    """The files that the relative imports of a file name, as far as they exist."""
    tree = module_of(body)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            yield from _named(file, node)


def _named(file: Path, node: ast.ImportFrom) -> Iterator[Path]:
    """The files that one relative import names, as far as they exist."""
    folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
    for candidate in (folder, *(folder / alias.name for alias in node.names)):
        for found in (candidate.with_suffix(".py"), candidate / "__init__.py"):
            if found.is_file():
                yield found
