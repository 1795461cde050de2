"""Which part of a Python file an object depends on, so that an edit elsewhere in the file is no change of it.

A pipeline in Python has many steps in one file. If each depended on the whole file, mending one step would mark all the
others as changed and throw away what an interrupted one has paid for. So an object's code is its own definition, every
definition of the file that it names, directly or not, and whatever runs when the file is loaded (statements that define
nothing). Left out are the declarations on a `Pipeline`, whose content is the definition itself, and what stands under
`if __name__ == "__main__":`. A file that looks names up by text (`globals`, `eval`, `import *`) counts as a whole.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.ids import sha256
from orchestrator.syntax import module_of

_DYNAMIC: Final = frozenset({"globals", "locals", "vars", "eval", "exec", "__import__"})
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class CodeSlice:
    """The hash of the part, and the relative imports that it uses: of level, module and names."""

    sha: str
    imports: tuple[ast.ImportFrom, ...]


@functools.lru_cache(maxsize=256)
def code_slice(text: str, name: str) -> CodeSlice | None:
    """What the top-level object `name` depends on; None where only the whole file can stand for it."""
    file = _parsed(text)
    if file is None or name not in file.named:
        return None
    chosen = _reachable(file, name)
    if chosen is None:
        return None
    lines = text.splitlines(keepends=True)
    parts = [_text(lines, statement, file.pipelines) for statement in chosen]
    imports = tuple(s for s in chosen if isinstance(s, ast.ImportFrom) and s.level)
    return CodeSlice(sha256("".join(parts)), imports)


@dataclass(frozen=True, slots=True)
class _File:
    statements: tuple[ast.stmt, ...]
    named: dict[str, list[ast.stmt]]
    loose: tuple[ast.stmt, ...]
    pipelines: frozenset[str]


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> _File | None:
    """None for a file that is not valid Python, or imports names it does not list."""
    tree = module_of(text)
    if tree is None or any(
        alias.name == "*" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ):
        return None
    pipelines = frozenset(name for statement in tree.body for name in _pipelines(statement))
    kept = tuple(statement for statement in tree.body if not _left_out(statement, pipelines))
    named: dict[str, list[ast.stmt]] = {}
    loose: list[ast.stmt] = []
    for statement in kept:
        names = list(_defined(statement))
        for name in names:
            named.setdefault(name, []).append(statement)
        if not names:
            loose.append(statement)
    return _File(kept, named, tuple(loose), pipelines)


def _pipelines(statement: ast.stmt) -> Iterator[str]:
    """The variables that a statement makes pipelines."""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if called == "Pipeline":
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _left_out(statement: ast.stmt, pipelines: frozenset[str]) -> bool:
    if any(_pipelines(statement)):
        return True
    if isinstance(statement, ast.If) and "__name__" in _names(statement.test):
        return True
    call = getattr(statement, "value", None)
    return isinstance(statement, ast.Expr | ast.Assign) and isinstance(call, ast.Call) and _root(call) in pipelines


def _root(node: ast.expr) -> str | None:
    """`p` of `p`, `p.step` and `p.step(…)`."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives the file; none for what is more than a definition."""
    if isinstance(statement, _Definition):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if all(isinstance(target, ast.Name) for target in targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _reachable(file: _File, name: str) -> Sequence[ast.stmt] | None:
    """The statements behind a name, in the order of the file; None where names are looked up by text."""
    chosen: set[int] = set()
    waiting = [*file.named[name], *(s for s in file.loose if not _is_text(s))]
    while waiting:
        statement = waiting.pop()
        if id(statement) in chosen:
            continue
        chosen.add(id(statement))
        used = _used(statement, file.pipelines)
        if used & _DYNAMIC:
            return None
        waiting += [found for other in used for found in file.named.get(other, ())]
    return [statement for statement in file.statements if id(statement) in chosen]


def _is_text(statement: ast.stmt) -> bool:
    """A docstring of the file."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _used(statement: ast.stmt, pipelines: frozenset[str]) -> set[str]:
    if not isinstance(statement, _Definition):
        return _names(statement)
    kept = [d for d in statement.decorator_list if _root(d) not in pipelines]
    parts = [node for node in ast.iter_child_nodes(statement) if node not in statement.decorator_list]
    return {name for node in (*kept, *parts) for name in _names(node)}


def _names(node: ast.AST) -> set[str]:
    """Every name under a node; the words of a text count too, as it may be an annotation."""
    names = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    texts = [child.value for child in ast.walk(node) if isinstance(child, ast.Constant)]
    return names | {text for text in texts if isinstance(text, str) and text.isidentifier() and text not in _DYNAMIC}


def _text(lines: Sequence[str], statement: ast.stmt, pipelines: frozenset[str]) -> str:
    """A statement as written, without its declarations on a pipeline."""
    first = statement.lineno
    if isinstance(statement, _Definition):
        kept = [d.lineno for d in statement.decorator_list if _root(d) not in pipelines]
        first = min([*kept, first])
    return "".join(lines[first - 1 : statement.end_lineno])
