"""What the command line prints: harmless, short, the same everywhere."""

from __future__ import annotations

import io
import json
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from orchestrator.cli.lines import Line, print_step, step_text
from orchestrator.cli.terminal import (
    cost_range,
    duration,
    excerpt,
    hide,
    money,
    show,
    show_line,
    spent,
    tokens,
    visible,
)


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),  # clears the screen
        ("a\rb", "a\\x0db"),  # overwrites the line
        ("\x9b31m", "\\x9b31m"),  # C1 introducer
        ("\x07", "\\x07"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),  # right-to-left override
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\ud800", "\\ud800"),  # a lone surrogate cannot be encoded
        ("a\nb\tc", "a\nb\tc"),
        ("line\r\nend", "line\nend"),
        ("żółć 日本 👩‍💻", "żółć 日本 👩‍💻"),
    ],
)
def test_S27_dangerous_characters_are_spelled_out_and_the_rest_stays(foreign: str, shown: str) -> None:
    assert visible(foreign) == shown


@given(st.text(), st.booleans())
def test_S27_what_is_visible_moves_hides_and_reorders_nothing(foreign: str, one_line: bool) -> None:
    shown = visible(foreign, one_line=one_line)
    shown.encode()
    kept = set() if one_line else {"\n", "\t"}
    assert not {char for char in shown if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")} - kept
    assert not {char for char in shown if unicodedata.bidirectional(char) in BIDI}
    assert visible(shown, one_line=one_line) == shown


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize("width", [30, 200])
@pytest.mark.parametrize("terminal", [True, False])
def test_S27_text_that_was_not_made_visible_becomes_so_when_it_is_printed(width: int, terminal: bool) -> None:
    """A last look: one forgotten name in one message is enough for an attack."""
    file = io.StringIO()
    out = Console(file=file, force_terminal=terminal, color_system=None, width=width, markup=False, highlight=False)
    show(out, "made \x1b[2J\u202e\x9b\u2028 files")
    show(out, Text.assemble(("bold \x1b]8;;http://x\x1b\\", "bold"), " rest"))
    show_line(out, Text("line \x1b[1A"))
    assert not set(file.getvalue()) & {"\x1b", "\u202e", "\x9b", "\u2028"}
    assert file.getvalue().count("\\x1b") == 4


def test_S29_what_is_printed_holds_no_configured_key(capsys: pytest.CaptureFixture[str]) -> None:
    from orchestrator.cli.report import print_document

    hide(["sk-canary-0123456789"])
    try:
        assert visible("my sk-canary-0123456789!") == "my [secret removed]!"
        print_document({"sk-canary-0123456789": ["sk%2Dcanary-0123456789"]})
        assert json.loads(capsys.readouterr().out) == {"[secret removed]": ["[secret removed]"]}
    finally:
        hide(())
    assert visible("my sk-canary-0123456789!") == "my sk-canary-0123456789!"


def test_S27_markup_in_content_is_printed_as_it_is() -> None:
    out, file = _terminal(width=80)
    print_step(out, Line("a", "failed", notes=("[bold]not[/bold] :smile: [link=x]y[/link]",)), 10)
    assert "[bold]not[/bold] :smile: [link=x]y[/link]" in file.getvalue()


def test_one_line_joins_what_content_breaks() -> None:
    assert excerpt("a\n\n  b\x1b") == "a b\\x1b"
    assert excerpt("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (None, "–"),
        (Decimal("0"), "$0"),
        (Decimal("0.0114"), "$0.0114"),
        (Decimal("0.0060"), "$0.006"),
        (Decimal("0.1"), "$0.10"),
        (Decimal("0.00001"), "<$0.0001"),
        (Decimal("12.345"), "$12.34"),
        (Decimal("4.00"), "$4.00"),
    ],
)
def test_money(amount: Decimal | None, written: str) -> None:
    assert money(amount) == written


def test_an_unknown_part_of_a_sum_is_shown() -> None:
    assert money(Decimal("0.5"), partial=True) == "≥$0.50"
    assert spent(None, partial=True) == spent(Decimal(0), partial=True) == "price unknown"
    assert spent(None, partial=False) == "$0 spent"
    assert spent(Decimal("0.083"), partial=True) == "≥$0.083 spent"
    assert cost_range(None, None) == "price unknown"
    assert cost_range(Decimal("0.02"), Decimal("0.11")) == "$0.02–0.11"
    assert cost_range(Decimal("0.02"), None) == "from $0.02"


@pytest.mark.parametrize(
    ("count", "written"), [(7, "7"), (400, "0.4k"), (1234, "1.2k"), (123_456, "123k"), (2_500_000, "2.5M")]
)
def test_tokens(count: int, written: str) -> None:
    assert tokens(count) == written


@pytest.mark.parametrize(("seconds", "written"), [(3.14, "3.1s"), (59.99, "1m00s"), (125, "2m05s"), (3720, "1h02m")])
def test_duration(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_a_step_is_one_line_in_the_same_columns() -> None:
    line = Line("tech-stack", "succeeded", 2, 4100, 900, Decimal("0.021"), False, 9.8)
    assert step_text(line, 12).plain == "  ✓ tech-stack    2 calls  4.1k→0.9k    $0.021   9.8s"
    assert step_text(Line("rates", "pending"), 12).plain == "  · rates"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    out, file = _terminal(width)
    line = Line(
        "a-rather-long-step-name",
        "succeeded",
        2,
        4100,
        900,
        Decimal("0.021"),
        False,
        9.8,
        ("re-asked: " + "word " * 40,),
    )
    print_step(out, line, 24)
    assert all(len(row) <= width for row in file.getvalue().splitlines())


def test_elsewhere_than_on_a_terminal_a_step_with_one_note_is_one_line() -> None:
    file = io.StringIO()
    out = Console(file=file, markup=False, highlight=False, width=40)
    print_step(out, Line("a", "succeeded", 1, 10, 10, None, False, 1.0, ("re-asked: " + "word " * 40,)), 10)
    assert len(file.getvalue().splitlines()) == 1


def test_S27_a_document_is_ascii_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    from orchestrator.cli.report import print_document

    print_document({"value": "\x1b[2J ünï \u202e \ud800 日本"})
    written = capsys.readouterr().out
    assert written.isascii()
    assert "\x1b" not in written
    assert json.loads(written)["value"] == "\x1b[2J ünï \u202e \ud800 日本"


def _terminal(width: int) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, color_system=None, width=width, markup=False, highlight=False), file
