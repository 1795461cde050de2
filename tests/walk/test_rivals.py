"""examples/rivals: a pipeline that another one uses for each entry of a list, as a user meets it."""

from __future__ import annotations

from pathlib import Path

from tests.walk.console import ROOT, copied, follow


def test_the_readme_says_what_happens(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "rivals" / "README.md").read_text(encoding="utf-8")
    assert follow(text, copied("rivals", tmp_path)) == 7
