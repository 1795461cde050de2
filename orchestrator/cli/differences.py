"""Differences on a terminal: one line per path, or a text's changed lines; also what an edit is refused with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cli.terminal import excerpt, show, show_line, visible

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
    from orchestrator.cli.outcome import value_of
    from orchestrator.trace.versions import Side

    return Side(run.number, artifact.version, value_of(artifact, graph))


def print_changes(out: Console, old: Any, new: Any) -> None:
    """What differs between two values; a text that runs over lines is told line by line."""
    from rich.text import Text

    from orchestrator.exchange.diffing import WHOLE, changes

    found = changes(old, new)
    if not found:
        show(out, "  no difference")
    for change in found:
        if _are_texts(change) and change.path == WHOLE:
            _print_lines(out, change, indent=2)
            continue
        mark, style = MARKS[change.kind]
        head = Text.assemble("  ", (mark, style), " ", (visible(change.path, one_line=True), "bold"))
        if _are_texts(change) and "\n" in change.old + change.new:
            show_line(out, head)
            _print_lines(out, change, indent=6)
        else:
            show(out, Text.assemble(head, "  ", _told(change)))


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


def _print_lines(out: Console, change: Change, indent: int) -> None:
    from orchestrator.exchange.diffing import text_diff

    for line in text_diff(change.old, change.new):
        show(out, _line(line), indent=indent)


def _line(line: str) -> Text:
    from rich.text import Text

    return Text(visible(line), style=_STYLES.get(line[:1], ""))
