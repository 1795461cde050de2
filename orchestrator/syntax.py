"""Python text as a syntax tree; the one place that parses it."""

from __future__ import annotations

import ast
import functools
from typing import Any, Final

_MISMATCH: Final = "recursion depth mismatch"


@functools.lru_cache(maxsize=64)
def module_of(text: str | bytes) -> ast.Module | None:
    """The tree of a Python file; None where it is not valid Python, which only executing it can explain."""
    try:
        tree: ast.Module = _parsed(text, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree


def expression_of(text: str) -> ast.expr:
    """The tree of one expression. Raises SyntaxError, ValueError, RecursionError or MemoryError."""
    tree: ast.Expression = _parsed(text, "eval")
    return tree.body


def _parsed(text: str | bytes, mode: str) -> Any:
    """CPython before 3.11.8 and 3.12.2 keeps one count of depth for all that parse at the same time, and raises
    SystemError where another thread, or a finaliser that formats a traceback, parsed in between (gh-106905): once more,
    then."""
    try:
        return ast.parse(text, mode=mode)
    except SystemError as error:
        if _MISMATCH not in str(error):
            raise
        return ast.parse(text, mode=mode)
