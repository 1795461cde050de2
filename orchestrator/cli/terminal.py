"""What people read: one console, foreign text made harmless, and small numbers written the same way everywhere.

Everything that a model, a file or a server wrote is foreign. It reaches the terminal without markup, without
highlighting, and with its dangerous characters spelled out (`visible`). And what is printed holds no configured key,
whoever has put it there (S29).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import IO, TYPE_CHECKING

from orchestrator.exchange import foreign

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from orchestrator.store.scrub import Scrubber

_scrubber: Scrubber | None = None


def hide(secrets: Sequence[str]) -> None:
    """From here on nothing that is printed shows these values. An empty list ends it."""
    global _scrubber
    if secrets:
        from orchestrator.store.scrub import Scrubber
    _scrubber = Scrubber(secrets) if secrets else None


def without_secrets(text: str) -> str:
    """The text as it may leave this process."""
    return text if _scrubber is None else _scrubber.text(text)


def visible(text: str, *, one_line: bool = False) -> str:
    """Foreign text for a terminal: dangerous characters spelled out, no configured key in it."""
    return foreign.visible(without_secrets(text), one_line=one_line)


def console(*, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> Console:
    """A console for the stream as it is now; never interprets what it is given, never ends the process."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            """rich would end the process here; whether a reader that left matters is the command's to decide."""
            raise BrokenPipeError(errno.EPIPE, "the reader has left")

    return Quiet(stderr=stderr, file=file, width=width, markup=False, highlight=False, emoji=False)


def lenient_streams() -> None:
    """A terminal that cannot show a character shows its escape; printing never fails for a character set.

    A stream that the caller has closed becomes the null device: else the next file opened would take its place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (for the whole process)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _safe(text: Text) -> Text:
    """The last look at what is printed: whatever was put together without `visible` becomes so here, in one style."""
    from rich.text import Text

    plain = visible(text.plain)
    return text if plain == text.plain else Text(plain, style=text.style)


def show(out: Console, text: Text | str, *, indent: int = 0) -> None:
    """Print a line or paragraph: wrapped with a hanging indent on a terminal, one unbroken line elsewhere."""
    from rich.padding import Padding
    from rich.text import Text

    body = _safe(Text(text) if isinstance(text, str) else text)
    if out.is_terminal:
        out.print(Padding(body, (0, 0, 0, indent)) if indent else body)
    else:
        out.print(Text(" " * indent) + body if indent else body, soft_wrap=True)


def show_line(out: Console, line: Text) -> None:
    """Print one line: cut to the width of a terminal, whole elsewhere."""
    line = _safe(line)
    if out.is_terminal:
        out.print(line, no_wrap=True, overflow="ellipsis")
    else:
        out.print(line, soft_wrap=True)


def excerpt(text: str, limit: int = 200) -> str:
    """The beginning of a foreign text on one line."""
    line = visible(text, one_line=True)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def money(usd: Decimal | None, *, partial: bool = False) -> str:
    """`$0.0114`, `$4.00`; `–` where nothing is priced; `≥` where a part is unknown."""
    if usd is None:
        return "–"
    if usd and abs(usd) < Decimal("0.0001"):
        written = "<$0.0001"
    elif abs(usd) >= 1:
        written = f"${usd.quantize(Decimal('0.01')):f}"
    else:
        exact = f"{usd.quantize(Decimal('0.0001')):f}"
        written = f"${exact[:4]}{exact[4:].rstrip('0')}" if usd else "$0"
    return f"≥{written}" if partial else written


def spent(usd: Decimal | None, partial: bool) -> str:
    """`$0.083 spent`; what is not priced is said to be unknown, never counted as nothing."""
    if partial and not usd:
        return "price unknown"
    return f"{money(usd or Decimal(0), partial=partial)} spent"


def cost_range(low: Decimal | None, high: Decimal | None) -> str:
    """`$0.02–0.11`, or what is known of it."""
    if low is None and high is None:
        return "price unknown"
    if high is None:
        return f"from {money(low)}"
    if low is None or money(low) == money(high):
        return money(high)
    return f"{money(low)}–{money(high).removeprefix('$')}"


def tokens(count: int) -> str:
    """`1.2k`; exact below 100."""
    if count < 100:
        return str(count)
    if count < 99_950:
        return f"{count / 1000:.1f}k"
    return f"{count / 1000:.0f}k" if count < 999_500 else f"{count / 1_000_000:.1f}M"


def duration(seconds: float) -> str:
    """`3.1s`, `2m05s`, `1h02m`."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def plural(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
