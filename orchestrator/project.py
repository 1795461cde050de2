"""The project: the folder a command works in, and where a name in its files leads.

A project is a folder with `[tool.orchestrator]` in `pyproject.toml`, or an `orchestrator.toml`. Its shelves (`steps/`,
`templates/`, `artifacts/`) come before the shipped library's. A cloned project is not trusted, so a reference that
leaves project and library, also through a symbolic link, is refused wherever it is written (S24).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, NoReturn

from orchestrator.errors import AccessRefused, ConfigError, Place, UsageError
from orchestrator.python.files import PythonLoadError, load_module, load_object

__all__ = [
    "OutsideProject",
    "Project",
    "PythonLoadError",
    "Shelf",
    "find_project",
    "library_root",
    "on_shelf",
    "read_toml",
]

Shelf = Literal["steps", "templates", "artifacts"]
SHELVES: Final[tuple[Shelf, ...]] = ("steps", "templates", "artifacts")
_SUFFIX: Final[Mapping[str, str]] = {"steps": ".yaml", "artifacts": ".yaml"}
_PIPELINE_KEY = re.compile(r"^pipeline[ ]*:[ ]*(?P<quote>[\"']?)(?P<name>[^\s\"'#]*)(?P=quote)", re.MULTILINE)
# `p = Pipeline("name"`: looked for in the text, so that only files which hold a pipeline are ever executed for one.
_PYTHON_PIPELINE = re.compile(
    r"^\w+[ ]*(?::[^=\n]+)?=[ ]*(?:\w+\.)?Pipeline\(\s*(?:name[ ]*=[ ]*)?(?:[\"'](?P<name>[^\"'\n]*)[\"']|[A-Za-z_])",
    re.MULTILINE,
)
_TOML_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class OutsideProject(ValueError):
    """A reference leads out of the project and the library, once symbolic links are followed."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project on disk. `root` is real (no symbolic links); `config` is the table of `file` that belongs to us.

    `executable` are the Python files that may be executed beside the library's; None is all, for whoever opens a
    project of their own in code. The command line fills it with what its user has agreed to (`trust`).
    """

    root: Path
    file: Path
    config: Mapping[str, Any]
    executable: frozenset[Path] | None = None

    def shelf(self, kind: Shelf, name: str) -> Path | None:
        """The file of a name on a shelf, the project's before the library's. Raises OutsideProject."""
        suffix = _SUFFIX.get(kind, "")
        names = [name] if not suffix or name.endswith(suffix) else [name + suffix, name]
        names += [f"{name}.py", f"{name.replace('-', '_')}.py"] if kind == "artifacts" else []
        for root in (self.root, library_root()):
            for candidate in names:
                found = self._file(root / kind / candidate)
                if found is not None:
                    return found
        return None

    def shelf_names(self, kind: Shelf) -> tuple[str, ...]:
        """Every name on a shelf of project and library, sorted, without the suffix of its kind: for nearest words."""
        suffix = _SUFFIX.get(kind, "")
        names = {
            path.relative_to(root / kind).as_posix().removesuffix(suffix)
            for root in (self.root, library_root())
            for path in (root / kind).rglob(f"*{suffix}")
            if path.is_file() and not path.name.startswith(".")
        }
        return tuple(sorted(names))

    def resolve(self, ref: str, base: Path, kind: Shelf | None = None) -> Path | None:
        """The file a reference names: relative to the file (or folder) `base` that names it, then on the shelf.

        None means not found. Raises OutsideProject for a reference that leaves project and library, found or not.
        """
        folder = base if base.is_dir() else base.parent
        found = self._file(folder / ref)
        if found is None and kind is not None and on_shelf(ref):
            found = self.shelf(kind, ref)
        return found

    def pipelines(self) -> tuple[Path, ...]:
        """The pipeline files, broken ones too: YAML at the root with a `pipeline:` key, all YAML in `pipelines/`, and
        Python in both whose text assigns a `Pipeline`. Nothing is executed."""
        return tuple(path for path, _ in self._named_pipelines())

    def pipeline(self, name: str | None) -> Path:
        """The file of a pipeline by its name, its file's stem or its path; None takes the only one there is."""
        known = tuple(self._named_pipelines())
        if not known:
            raise UsageError(
                f"This project has no pipeline: no YAML file in {self.root} has a `pipeline:` key, no Python file "
                "assigns a Pipeline, and none is in pipelines/",
                hint="`orch init DIR` makes a project with a pipeline that runs.",
            )
        if name is None:
            return known[0][0] if len(known) == 1 else _which(self, known)
        found = [path for path, declared in known if declared == name]
        found = found or [path for path, _ in known if name in (path.stem, self.display(path))]
        if len(found) > 1:
            _twice(self, name, found)
        return found[0] if found else _unknown(name, known)

    def display(self, path: Path) -> str:
        """A path as messages show it: relative to the root where it is inside."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)

    def load_object(self, path: Path, name: str) -> Any:
        """A name out of one of the project's Python files. Raises PythonLoadError, OutsideProject, AccessRefused."""
        return load_object(self._executable(path), name)

    def load_module(self, path: Path) -> ModuleType:
        """One of the project's Python files, executed. Raises PythonLoadError, OutsideProject, AccessRefused."""
        return load_module(self._executable(path))

    def _executable(self, path: Path) -> Path:
        found = self._file(path)
        if found is None:
            raise PythonLoadError(f"there is no file {self.display(path)}", path)
        if self.executable is not None and found not in self.executable and not _shipped(found):
            raise AccessRefused(
                f"{self.display(found)} is not executed: nothing showed that it would be, so nobody was asked",
                hint="Look at it; `orch trust --always`, or --trust for one command, covers whatever is executed.",
                code="untrusted",
            )
        return found

    def holds(self, path: Path) -> bool:
        """Whether a path is in the project or the library once symbolic links are followed."""
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(root) for root in self._allowed())

    def _file(self, path: Path) -> Path | None:
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a NUL in the name
            return None
        if not self.holds(real):
            raise OutsideProject(f"{path} leads out of the project")
        # isfile, unlike Path.is_file, answers False for a name that is too long or not readable.
        return real if os.path.isfile(real) else None

    def _allowed(self) -> Iterator[Path]:
        yield self.root
        for kind in SHELVES:
            yield library_root() / kind

    def _named_pipelines(self) -> Iterator[tuple[Path, str]]:
        for folder in (self.root, self.root / "pipelines"):
            for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*.py")]):
                text = _text(path)
                python = path.suffix == ".py"
                match = (_PYTHON_PIPELINE if python else _PIPELINE_KEY).search(text)
                if python and (match is None or "orchestrator" not in text):
                    continue
                if match is not None:
                    yield path, (match["name"] or path.stem if python else match["name"])
                elif folder != self.root:  # what is wrong with it, loading says
                    yield path, path.stem


def on_shelf(ref: str) -> bool:
    """Whether a reference can name something on a shelf: one that climbs is a path, relative to where it stands."""
    return ".." not in Path(ref).parts


def find_project(start: Path) -> Project:
    """The project that holds `start`: the nearest folder upwards with a project file. Raises ConfigError."""
    start = Path(os.path.realpath(start))
    if not start.is_dir():
        raise UsageError(f"There is no folder {start}", hint="-C takes the folder of a project.")
    for folder in (start, *start.parents):
        found = _project_at(folder)
        if found is not None:
            return found
    raise ConfigError(
        f"No project here: neither {start} nor a folder above it has an orchestrator.toml, or a pyproject.toml with "
        "[tool.orchestrator]",
        hint="`orch init DIR` makes one; `-C DIR` chooses another folder.",
    )


def library_root() -> Path:
    """The folder of the shipped shelves: inside an installed package, else beside it in a source checkout."""
    package = Path(os.path.realpath(__file__)).parent
    for candidate in (package / "_library", package.parent):
        if all((candidate / kind).is_dir() for kind in SHELVES):
            return candidate
    raise ConfigError(
        f"The shipped steps, templates and artifacts are missing beside {package}",
        hint="The installation is incomplete: install step-orchestrator again.",
    )


def _shipped(path: Path) -> bool:
    return any(path.is_relative_to(library_root() / kind) for kind in SHELVES)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, decimals kept exact. Raises ConfigError with the place of a mistake."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file, parse_float=Decimal)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="Check the file's permissions.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint="Save it as UTF-8.", place=Place(str(path))) from error
    except tomllib.TOMLDecodeError as error:
        match = _TOML_PLACE.search(str(error))
        place = Place(str(path), int(match[1]), int(match[2])) if match else Place(str(path))
        reason = _TOML_PLACE.sub("", str(error))
        raise ConfigError(f"{place} is not valid TOML: {reason}", hint="Mend the file there.", place=place) from error


def _project_at(folder: Path) -> Project | None:
    own, shared = folder / "orchestrator.toml", folder / "pyproject.toml"
    table: Any = None
    if shared.is_file():
        tool = read_toml(shared).get("tool", {})
        table = tool.get("orchestrator") if isinstance(tool, dict) else None
    if own.is_file():
        if table is not None:
            raise ConfigError(
                f"{folder} has two project files: orchestrator.toml, and [tool.orchestrator] in pyproject.toml",
                hint="Keep one of them.",
            )
        return Project(root=folder, file=own, config=read_toml(own))
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"tool.orchestrator in {shared} must be a table", hint="Write [tool.orchestrator].")
    return Project(root=folder, file=shared, config=table)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # a file that cannot be read is not a pipeline; naming it gives the reason


def _twice(project: Project, name: str, paths: list[Path]) -> NoReturn:
    places = " and ".join(project.display(path) for path in paths)
    raise UsageError(f"The pipeline name {name!r} is given twice: {places}", hint="Rename one of them.")


def _which(project: Project, known: tuple[tuple[Path, str], ...]) -> NoReturn:
    declared = [name for _, name in known]
    for name in declared:
        if declared.count(name) > 1:
            _twice(project, name, [path for path, other in known if other == name])
    names = ", ".join(declared)
    raise UsageError(f"This project has {len(known)} pipelines: {names}", hint="Name the one you mean.")


def _unknown(name: str, known: tuple[tuple[Path, str], ...]) -> NoReturn:
    names = [declared for _, declared in known]
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There is: {', '.join(names)}."
    raise UsageError(f"There is no pipeline {name!r} in this project", hint=hint)
