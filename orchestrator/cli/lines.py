"""One line per step, the same while a run goes on and when it is looked at later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from orchestrator.cli.terminal import duration, excerpt, money, plural, show, show_line, tokens, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "succeeded": ("✓", "green"),
    "repeat": ("↻", "cyan"),
    "kept": ("=", "green"),
    "failed": ("✗", "bold red"),
    "waiting": ("‖", "yellow"),
    "paused": ("‖", "yellow"),
    "running": ("▸", "cyan"),
    "ready": ("·", "dim"),
    "pending": ("·", "dim"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "yellow"),
    "stale": ("!", "yellow"),
}
NAME_WIDTH: Final = 32


@dataclass(frozen=True, slots=True)
class Line:
    """A step as one line. `notes` are for people and may be long: they follow it, or stand below it."""

    name: str
    status: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal | None = None
    cost_partial: bool = False
    seconds: float | None = None
    notes: tuple[str, ...] = ()


def name_width(names: Sequence[str]) -> int:
    """The column that fits these names, within reason."""
    return min(max((len(name) for name in names), default=0), NAME_WIDTH)


def step_text(line: Line, width: int) -> Text:
    """`✓ tech-stack   2 calls   4.1k→0.9k   $0.021   9.8s`; columns without meaning stay empty."""
    from rich.text import Text

    mark, style = MARKS.get(line.status, ("·", ""))
    asked = line.calls > 0
    counted = asked and (line.status != "running" or line.input_tokens + line.output_tokens > 0)
    text = Text.assemble("  ", (mark, style), " ", f"{excerpt(line.name, NAME_WIDTH):<{width}}  ")
    columns = (
        f"{plural(line.calls, 'call') if asked else '':<9}",
        f"{f'{tokens(line.input_tokens)}→{tokens(line.output_tokens)}' if counted else '':<13}",
        f"{money(line.cost_usd, partial=line.cost_partial) if counted else '':<9}",
        f"{duration(line.seconds) if line.seconds is not None else '':<7}",
    )
    text.append("".join(columns), style="dim" if line.status in ("pending", "ready", "skipped") else "")
    text.rstrip()
    return text


def print_step(out: Console, line: Line, width: int) -> None:
    """The line, its notes behind it where they fit, else below it."""
    from rich.text import Text

    text = step_text(line, width)
    notes = [visible(note, one_line=True) for note in line.notes if note]
    if len(notes) == 1:
        beside = Text.assemble(text, "  ", (notes[0], _note_style(line)))
        if not out.is_terminal or beside.cell_len <= out.width:
            show(out, beside)
            return
    show_line(out, text)
    for note in notes:
        show(out, Text(note, style=_note_style(line)), indent=6)


def _note_style(line: Line) -> str:
    return "red" if line.status == "failed" else "yellow" if line.status in ("waiting", "stale") else "dim"
