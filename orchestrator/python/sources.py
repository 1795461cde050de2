"""The text behind Python objects: which file holds them, on which line and column their parts stand, their hash.

Most objects stand in a file of the project. What does not has a stated fallback, so that a notebook works too: its hash
is that of its own source as Python knows it (a cell's text); where Python knows none, of its compiled code, or of its
JSON Schema for a model. Helpers that such an object uses from other cells are then not seen.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, Final

from orchestrator.errors import Place
from orchestrator.ids import digest, sha256
from orchestrator.project import Project
from orchestrator.python.references import Found, code_of
from orchestrator.syntax import module_of

NOTEBOOK: Final = "notebook"


def found(project: Project, value: Any, base: Path) -> Found:
    """A live object as if a file had named it: `file.py:name`, relative to the file `base`, with its code's hash."""
    target = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    name = str(getattr(target, "__qualname__", type(target).__name__))
    file = source_file(target)
    if file is None:
        return Found(f"{NOTEBOOK}:{name}", NOTEBOOK, value, {NOTEBOOK: _own_hash(target)})
    if project.holds(file):
        ref = f"{Path(os.path.relpath(file, base.parent)).as_posix()}:{name}"
        return Found(ref, project.display(file), value, code_of(project, file, name))
    module = str(getattr(target, "__module__", file.stem))
    return Found(f"{module}:{name}", module, value, {module: sha256(file.read_bytes())})


def source_file(target: Any) -> Path | None:
    """The real file an object was defined in; None for a notebook's cell, a prompt, or a built-in."""
    code = getattr(target, "__code__", None)
    name = code.co_filename if isinstance(code, CodeType) else None
    if name is None:
        name = getattr(sys.modules.get(getattr(target, "__module__", "")), "__file__", None)
    path = Path(os.path.realpath(name)) if name else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _own_hash(target: Any) -> str:
    try:
        return sha256(inspect.getsource(target))
    except (OSError, TypeError):
        pass
    code = getattr(target, "__code__", None)
    if isinstance(code, CodeType):
        return digest(list(_compiled(code)))
    schema = getattr(target, "model_json_schema", None)
    return digest([str(target), schema() if callable(schema) else None])


def _compiled(code: CodeType) -> Iterator[Any]:
    """What a function's compiled code says, without where it stands."""
    yield [code.co_code.hex(), list(code.co_names), list(code.co_varnames)]
    for constant in code.co_consts:
        yield list(_compiled(constant)) if isinstance(constant, CodeType) else repr(constant)


# --- places -----------------------------------------------------------------------------------------------------------


def text_of(file: str) -> str:
    """The text of a file, or of a notebook's cell, by the name that tracebacks use; empty where there is none."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def keyword_places(place: Place) -> Mapping[str, Place]:
    """Where each keyword of the call stands that begins on the line of `place`: its value's line and column."""
    tree = module_of(text_of(place.file))
    nodes = ast.walk(tree) if tree is not None else ()
    call = next((node for node in nodes if isinstance(node, ast.Call) and node.lineno == place.line), None)
    keywords = call.keywords if call is not None else []
    return {kw.arg: Place(place.file, kw.value.lineno, kw.value.col_offset + 1) for kw in keywords if kw.arg}


def function_places(function: Any) -> Mapping[str, Place]:
    """Where a function's name (under ``""``) and its parameters stand; at least the function's first line."""
    code = inspect.unwrap(function).__code__
    whole = Place(code.co_filename, code.co_firstlineno)
    node = definition(function)
    if node is None:
        return {"": whole}
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {
        "": Place(code.co_filename, node.lineno, node.col_offset + 1),
        **{a.arg: Place(code.co_filename, a.lineno, a.col_offset + 1) for a in arguments},
    }


def definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The syntax tree of a function, with the lines of its file; None where its text is not known."""
    code = inspect.unwrap(function).__code__
    tree = module_of(text_of(code.co_filename))
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None
