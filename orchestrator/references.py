"""References to Python: `file.py:name`, found like any other reference, loaded by path, hashed with what it imports.

A function's behaviour is not only its own file. What it takes from neighbouring files of the project (`from .rates
import usd`) is hashed with it, so that a change there is seen as a change of code; installed packages are not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from orchestrator.ids import digest, sha256
from orchestrator.project import OutsideProject, Project, PythonLoadError, Shelf

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
    return Found(ref, project.display(path), value, _code(project, path, _module_at(path)))


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
    places = [project.display(folder / ref)]
    if shelf is not None:
        places.append(f"{shelf}/{ref}")
        if library_root() != project.root:
            places.append(f"the shipped {shelf}/{ref}")
    return tuple(dict.fromkeys(places))


def _module_at(path: Path) -> ModuleType | None:
    found = [m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(path)]
    return found[-1] if found else None


def _code(project: Project, path: Path, module: ModuleType | None) -> Mapping[str, str]:
    files = {path, *(_imported(module) if module is not None else ())}
    return {project.display(file): sha256(file.read_bytes()) for file in sorted(files)}


def _imported(module: ModuleType) -> Iterator[Path]:
    """The files of the module's private package that it takes something from, directly or not."""
    package = module.__name__.rpartition(".")[0]
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.__name__ in seen:
            continue
        seen.add(current.__name__)
        if current.__file__:
            yield Path(current.__file__)
        for value in vars(current).values():
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            near = sys.modules.get(name) if isinstance(name, str) and name.startswith(f"{package}.") else None
            if near is not None:
                waiting.append(near)
