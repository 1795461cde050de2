"""Differences on a terminal: one line per path, or a text's changed lines; also what an edit is refused with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cli.terminal import excerpt, show, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from orchestrator.exchange.diffing import Change
    from orchestrator.graph import Graph
    from orchestrator.trace.versions import Side
    from orchestrator.values import Artifact, RunRow

MARKS: Final = {
    "added": ("+", "green"),
    "removed": ("-", "red"),
    "changed": ("~", "yellow"),
    "reordered": ("↕", "yellow"),
}
_STYLES: Final = {"+": "green", "-": "red", "@": "dim"}


def side(run: RunRow, artifact: Artifact, graph: Graph | None) -> Side:
    """An artifact as one of two that are compared."""
    from orchestrator.exchange.reading import readable, value_of
    from orchestrator.trace.versions import Side

    return Side(run.number, artifact.version, readable(value_of(artifact, graph)))


def print_changes(out: Console, old: Any, new: Any, *, indent: int = 2, most: int | None = None) -> None:
    """What differs between two values; a text that runs over lines is told line by line. `most` lines at most."""
    from itertools import islice

    lines = _told_lines(old, new)
    for line, more in islice(lines, most):
        show(out, line, indent=indent + more)


def change_lines(old: Any, new: Any) -> int:
    """How many lines `print_changes` prints of two values."""
    return sum(1 for _ in _told_lines(old, new))


def _told_lines(old: Any, new: Any) -> Iterator[tuple[Text, int]]:
    """The lines, each with how far it is indented."""
    from rich.text import Text

    from orchestrator.exchange.diffing import WHOLE, changes

    found = changes(old, new)
    if not found:
        yield Text("no difference"), 0
    for change in found:
        if _are_texts(change) and change.path == WHOLE:
            yield from ((line, 0) for line in _lines(change))
            continue
        mark, style = MARKS[change.kind]
        head = Text.assemble((mark, style), " ", (visible(change.path, one_line=True), "bold"))
        if _are_texts(change) and "\n" in change.old + change.new:
            yield head, 0
            yield from ((line, 4) for line in _lines(change))
        else:
            yield Text.assemble(head, "  ", _told(change)), 0


def _are_texts(change: Change) -> bool:
    return isinstance(change.old, str) and isinstance(change.new, str)


def _told(change: Change) -> str:
    if change.kind == "added":
        return _short(change.new)
    if change.kind == "removed":
        return _short(change.old)
    return f"{_short(change.old)} → {_short(change.new)}"


def _short(value: Any) -> str:
    return excerpt(json.dumps(value, ensure_ascii=False))


def _lines(change: Change) -> Iterator[Text]:
    from orchestrator.exchange.diffing import text_diff

    return (diff_line(line) for line in text_diff(change.old, change.new))


def diff_line(line: str) -> Text:
    """A line of a unified diff, coloured by what it says."""
    from rich.text import Text

    return Text(visible(line), style=_STYLES.get(line[:1], ""))
