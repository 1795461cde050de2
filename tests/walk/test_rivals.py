"""examples/rivals: a pipeline that another one uses for each entry of a list, as a user meets it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from orchestrator.cli import app
from tests.walk.console import ROOT, copied, follow


def test_the_readme_says_what_happens(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "rivals" / "README.md").read_text(encoding="utf-8")
    assert follow(text, copied("rivals", tmp_path)) == 7


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("show 1/judged/calmbook", "1/judged.verdict/calmbook@1"),
        ("pin 1/judged/calmbook", "1/judged.verdict/calmbook  pin"),
        ("render 1/judged/calmbook", "what this rival means for us"),
        ("export 1/judged/calmbook --to -", "Calmbook is cheap"),
        ("why 1/judged/calmbook", "1/judged.verdict/calmbook · attempt 1"),
        ("keep 1/judged/calmbook -m fine", "1/judged.verdict/calmbook"),
    ],
)
def test_the_name_of_a_used_pipeline_stands_for_its_value_in_every_command(
    args: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied("rivals", tmp_path))
    monkeypatch.setenv("ORCH_MODEL", "scripted:sample_answers")
    monkeypatch.setenv("ORCH_TRUST", "1")
    assert app.run(["run", "rivals", "--input", "briefs/booking.json"]) == 0
    capsys.readouterr()
    code = app.run(shlex.split(args))
    out, err = capsys.readouterr()
    assert (code, says in out) == (0, True), out + err
