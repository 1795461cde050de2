"""Faults as people read them, and the table of codes."""

from __future__ import annotations

import re
from pathlib import Path

import orchestrator
from orchestrator.diagnostics import CODES, format_diagnostic, format_diagnostics, ordered, visible
from orchestrator.errors import Diagnostic, Place


def test_the_whole_shape() -> None:
    fault = Diagnostic("P101", "'temlate' is not a key of a step", Place("p.yaml", 12, 5), "Did you mean 'template'?")
    with_line = Diagnostic(fault.code, fault.message, fault.place, fault.hint, source="    temlate: x")
    assert format_diagnostic(with_line) == (
        "error[P101]: 'temlate' is not a key of a step\n"
        "  --> p.yaml:12:5\n"
        " 12 |     temlate: x\n"
        "    |     ^\n"
        "  hint: Did you mean 'template'?"
    )
    assert format_diagnostic(fault) == (
        "error[P101]: 'temlate' is not a key of a step\n  --> p.yaml:12:5\n  hint: Did you mean 'template'?"
    )
    assert format_diagnostic(Diagnostic("P201", "so", level="warning")) == "warning[P201]: so"


def test_the_caret_stands_under_its_column_behind_wide_characters() -> None:
    line = "名: 値x"
    shown = format_diagnostic(Diagnostic("P101", "m", Place("f", 1, 6), source=line)).splitlines()
    assert shown[2] == " 1 | 名: 値x"
    assert shown[3] == "   | " + " " * 7 + "^"  # two wide characters of two cells, a colon, a space, x is the next
    tab = format_diagnostic(Diagnostic("P007", "m", Place("f", 1, 2), source="\tx")).splitlines()
    assert (tab[2], tab[3]) == (" 1 |  x", "   |  ^")


def test_a_long_line_is_cut_around_the_caret() -> None:
    line = "a" * 500 + "HERE" + "b" * 500
    shown = format_diagnostic(Diagnostic("P101", "m", Place("f", 1, 501), source=line)).splitlines()
    assert len(shown[2]) < 130
    assert shown[2][shown[3].index("^") :].startswith("HERE")


def test_S27_nothing_in_a_fault_reaches_the_terminal_as_a_control() -> None:
    hostile = "a\x1b[31m\x9b\u202eb\u200b\r\n"
    fault = Diagnostic("P101", hostile, Place(hostile, 1, 3), hostile, source=hostile)
    assert set(re.findall(r"[\x00-\x1f\x7f-\x9f\u202e\u200b]", format_diagnostic(fault))) == {"\n"}
    assert format_diagnostic(fault).count("\n") == 4
    assert visible("\x1b[31m") == "\\u{1b}[31m"
    assert visible("naïve “quotes” – 値") == "naïve “quotes” – 値"


def test_errors_come_first_then_files_and_places_and_each_once() -> None:
    late = Diagnostic("P101", "late", Place("b.yaml", 10, 1))
    early = Diagnostic("P101", "early", Place("b.yaml", 9, 1))
    first = Diagnostic("P101", "first", Place("a.yaml", 99, 1))
    warning = Diagnostic("P202", "warn", Place("a.yaml", 1, 1), level="warning")
    assert ordered([late, warning, early, first, late]) == (first, early, late, warning)
    assert (
        format_diagnostics([late, early])
        == "error[P101]: early\n  --> b.yaml:9:1\n\nerror[P101]: late\n  --> b.yaml:10:1"
    )


def test_every_code_used_is_in_the_table_and_every_code_of_the_table_is_used() -> None:
    package = Path(orchestrator.__file__).parent
    files = [path for path in package.rglob("*.py") if path.name != "diagnostics.py"]
    used = {code for path in files for code in re.findall(r"\"(P\d{3})\"", path.read_text(encoding="utf-8"))}
    assert used == set(CODES)
    assert all(re.fullmatch(r"P[0-3]\d\d", code) and text.endswith(".") for code, text in CODES.items())
