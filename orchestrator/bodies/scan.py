"""What a step's Python body will ask, as far as its text tells: the templates it names and the values it quotes.

A body is free to decide at run time. But most write `template="task.md.j2"` as it is, and then a missing file or a name
that the step does not read is found before a run, and a changed template is seen as a change of the step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.python.sources import definition


@dataclass(frozen=True, slots=True)
class AskCall:
    """One call of `ask` in a body. `template` and `prompt` are None where they are no plain text; `quotes` are the
    names of its further values, None where they are not written out (`**values`)."""

    line: int
    template: str | None
    prompt: str | None
    quotes: frozenset[str] | None


def asks_in(function: Callable[..., Any]) -> tuple[AskCall, ...]:
    """The calls of `ask` in a function's text, in order; none where its text is not known."""
    node = definition(function)
    return tuple(_asks(node)) if node is not None else ()


def _asks(node: ast.AST) -> Iterator[AskCall]:
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "ask"):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        template = given.pop("template", None)
        names = None if None in given else frozenset(name for name in given if name is not None)
        prompt = call.args[1] if len(call.args) > 1 else None
        yield AskCall(call.lineno, _text(template), _text(prompt), names)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
