"""A project's Python files, executed by path under a private name.

They are never imported by name: a project's `steps.py` must not meet anybody else's, and `sys.path` is never changed.
The files of one folder form one private package, so a file reaches its neighbours by a relative import,
`from .rates import VendorRates`, and each file is executed once whoever asks for it: a class has one identity. When a
`.py` file of the folder changes, the folder becomes a new package and everything in it is loaded afresh; folders below
it are not watched. A plain `import rates` finds installed packages only.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
import traceback
from difflib import get_close_matches
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PREFIX = "_orch_project_"
_lock = threading.RLock()
_loading = threading.local()


class PythonLoadError(ValueError):
    """A Python file cannot be executed, or lacks the name asked for. `line` counts from 1; None is the whole file."""

    def __init__(self, message: str, path: Path, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.hint = hint


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time: cached bytecode is matched by whole seconds, and an edit may be quicker."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_object(path: Path, name: str) -> Any:
    """The attribute `name` of the Python file at `path`. Raises PythonLoadError."""
    module = load_module(path)
    if hasattr(module, name):
        return getattr(module, name)
    public = [word for word in vars(module) if not word.startswith("_")]
    near = get_close_matches(name, public, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Define {name!r} at the top level of {path.name}."
    raise PythonLoadError(f"{path.name} has no {name!r}", path, hint=hint)


def load_module(path: Path) -> ModuleType:
    """The executed Python file at `path`. Raises PythonLoadError."""
    with _lock:
        return _module(path)


def is_loading() -> bool:
    """Whether this thread is executing a project's file: a moment at which nothing may be run."""
    return getattr(_loading, "depth", 0) > 0


def _module(path: Path) -> ModuleType:
    name = f"{_package(path.parent)}.{path.stem.replace('.', '_')}"
    known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshLoader(name, str(path)))
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise PythonLoadError(f"{path.name} is not a Python file", path, hint="Its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: pydantic resolves annotations through it
    _loading.depth = getattr(_loading, "depth", 0) + 1
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _explained(error, path) from error
    finally:
        _loading.depth -= 1
    return module


def _package(folder: Path) -> str:
    """The private package of a folder as it is now. Its name covers the state of its files: changed files, new name."""
    state = hashlib.sha256(str(folder).encode("utf-8", "surrogateescape"))
    for file in sorted(folder.glob("*.py")):
        stat = file.stat()
        state.update(f"\0{file.name}\0{stat.st_mtime_ns}\0{stat.st_size}".encode("utf-8", "surrogateescape"))
    name = _PREFIX + state.hexdigest()[:24]
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
        importlib.invalidate_caches()  # a neighbour may be younger than the import system's listing of the folder
    return name


def _explained(error: BaseException, path: Path) -> PythonLoadError:
    if isinstance(error, SyntaxError) and error.filename is not None:
        where = path if error.filename == str(path) else Path(error.filename)
        return PythonLoadError(f"{where.name} is not valid Python: {error.msg}", where, error.lineno)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else None
    if isinstance(error, ModuleNotFoundError):
        hint = None
        if error.name and (path.parent / f"{error.name}.py").is_file():
            hint = f"A file of the same folder is imported relatively: from .{error.name} import …"
        return PythonLoadError(f"{path.name} imports {error.name!r}, which is not installed", path, line, hint)
    text = str(error) or "no message"
    return PythonLoadError(f"{path.name} fails when it is loaded: {type(error).__name__}: {text}", path, line)
