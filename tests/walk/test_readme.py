"""The README's walk is real: each `$ orch …` of it runs, in order, and says what stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walk.console import ROOT, copied, follow


@pytest.mark.slow
def test_the_walk_of_the_readme_says_what_stands_there(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    walk = text.split("## Five minutes")[1].split("\n## ")[0]
    assert follow(walk, copied("discovery", tmp_path)) >= 7


@pytest.mark.slow
def test_the_discovery_readme_walks_from_a_rejection_to_a_comparison_with_real_output(tmp_path: Path) -> None:
    """Issue 4: a gate with a rejection, then edit, stale, refresh, compare."""
    text = (ROOT / "examples" / "discovery" / "README.md").read_text(encoding="utf-8")
    assert follow(text, copied("discovery", tmp_path)) >= 9
