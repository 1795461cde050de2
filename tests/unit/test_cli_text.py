"""What the command line prints: harmless, short, the same everywhere."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from rich.console import Console

from orchestrator.cli.lines import Line, print_step, step_text
from orchestrator.cli.terminal import cost_range, duration, excerpt, money, spent, tokens, visible


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
