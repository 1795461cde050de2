"""Versions as people see them: what differs, who made which, and back to an earlier one; whole commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run

BRIEF = ["--input", "briefs/launch.json"]
Say = Callable[..., str]
Document = Callable[..., dict[str, Any]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A fresh project as the current folder, after one run."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.setenv("ORCH_USER", "ana")
    monkeypatch.chdir(tmp_path)
    assert orch_run(["init", "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    assert orch_run(["run", *BRIEF]) == 0
    capsys.readouterr()
    return tmp_path / "shop"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command says to its user: stdout where it succeeds, else the one error on stderr."""

    def say(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert orch_run(arguments) == code
        seen = capsys.readouterr()
        if code == 0:
            return seen.out
        assert seen.err.count("error: ") == 1
        assert "Traceback" not in seen.err
        return seen.err

    return say


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Document:
    """The document a command prints with `--json`, which must be all that stands on stdout."""

    def document(*arguments: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert orch_run([*arguments, "--json"]) == code
        out = capsys.readouterr().out
        assert out.isascii()
        loaded: dict[str, Any] = json.loads(out)
        return loaded

    return document


# --- diff -------------------------------------------------------------------------------------------------------------


def test_a_diff_tells_a_value_by_path(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last", "--set", "points.0.gain=Less typing.")
    before = document("show", "1/key-points@1")["artifact"]["value"]
    found = document("diff", "1/key-points@1", "1/key-points@2")
    assert found["schema"] == "orch.diff/1"
    assert found["equal"] is False
    assert found["text"] is None
    assert {name: found["old"][name] for name in ("run", "step", "version", "origin")} == {
        "run": 1,
        "step": "key-points",
        "version": 1,
        "origin": "model",
    }
    assert (found["new"]["version"], found["new"]["author"], found["new"]["origin"]) == (2, "ana", "person")
    assert found["changes"] == [
        {"kind": "changed", "path": "headline", "old": before["headline"], "new": "CSV at last"},
        {"kind": "changed", "path": "points[0].gain", "old": before["points"][0]["gain"], "new": "Less typing."},
    ]
    assert document("diff", "1/key-points") == found, "alone, a version is compared with the one it was made from"
    assert document("diff", "1/key-points@2") == found
    assert '  ~ headline  "Export your invoices as CSV" → "CSV at last"\n' in say("diff", "1/key-points")


def test_a_diff_tells_a_text_line_by_line(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/notes", "--set", "x=1", code=2)
    old = document("show", "1/announcement")["artifact"]["value"]
    (project / "new.md").write_text(old.replace("# Export your invoices as CSV", "# CSV at last"), encoding="utf-8")
    say("edit", "1/announcement", "--file", "new.md")
    lines = document("diff", "1/announcement")["text"]
    assert [line for line in lines if line[0] in "+-"] == ["-# Export your invoices as CSV", "+# CSV at last"]
    assert "  -# Export your invoices as CSV\n  +# CSV at last\n" in say("diff", "1/announcement")


def test_versions_of_two_runs_can_be_compared(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last")
    say("rerun", "1", "--from", "key-points")
    found = document("diff", "1/key-points", "2/key-points")
    assert (found["old"]["run"], found["new"]["run"]) == (1, 2)
    assert [change["path"] for change in found["changes"]] == ["headline"]
    assert document("diff", "1/key-points@1", "2/key-points")["equal"] is True
    assert "no difference" in say("diff", "1/key-points@1", "2/key-points")


def test_foreign_text_in_a_diff_is_harmless(project: Path, say: Say) -> None:
    """S27"""
    say("edit", "1/key-points", "--set", "headline=a\x1b[2Jb\u202ec")
    shown = say("diff", "1/key-points")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    (project / "new.md").write_text("a\x1b[2J\n\u202eb\n", encoding="utf-8")
    say("edit", "1/announcement", "--file", "new.md")
    assert "+a\\x1b[2J" in say("diff", "1/announcement")


def test_what_cannot_be_compared_is_one_error(project: Path, say: Say) -> None:
    assert "names a run" in say("diff", "1", "2", code=2)
    assert "made anew" in say("diff", "1/key-points", code=2)
    assert "no version 7" in say("diff", "1/key-points@7", "1/key-points", code=2)
    assert "not found" in say("diff", "1/nothing", "1/key-points", code=2)


# --- history ----------------------------------------------------------------------------------------------------------


def test_a_history_tells_who_made_what_from_what(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last")
    say("rerun", "1", "--from", "announcement")
    found = document("history", "1/key-points")
    assert found["schema"] == "orch.history/1"
    assert (found["run"], found["step"], found["head"]) == (1, "key-points", 2)
    one, two = found["versions"]
    assert (one["origin"], one["parent"], one["changed"], one["head_in"]) == ("model", None, None, [])
    assert (two["author"], two["origin"], two["parent"]) == ("ana", "person", 1)
    assert two["changed"] == {"added": [], "removed": [], "changed": ["headline"]}
    assert two["head_in"] == [1, 2]
    assert (one["current"], two["current"]) == (False, True)
    assert {name: (one["version"], one["author"]) for name, one in found["blame"].items()} == {
        "headline": (2, "ana"),
        "points": (1, "scripted:sample_answers"),
        "open_questions": (1, "scripted:sample_answers"),
    }
    shown = say("history", "1/key-points").splitlines()
    assert shown[1].startswith("  * v2  ")
    assert shown[1].endswith("by ana (person) · from v1 · headline changed · shared by run 2")
    assert shown[2].endswith("by scripted:sample_answers (model) · made anew")
    blamed = say("history", "1/key-points", "--blame")
    assert "  headline        v2 by ana (person) · " in blamed
    assert "  points          v1 by scripted:sample_answers (model) · " in blamed


def test_a_history_reads_no_bodies(project: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.store import Store

    async def refuse(*arguments: object) -> None:
        raise AssertionError("a body was read")

    say("edit", "1/key-points", "--set", "headline=CSV at last")
    monkeypatch.setattr(Store, "artifact", refuse)
    assert "v2" in say("history", "1/key-points")
    assert "v2" in say("history", "1/key-points", "--blame")


def test_a_history_of_nothing_is_one_error(project: Path, say: Say) -> None:
    assert "not found" in say("history", "1/nothing", code=2)
    assert "names no step" in say("history", "1", code=2)
    assert "Leave out @1" in say("history", "1/key-points@1", code=2)
