"""Selections in commands, drawings of graphs, and the care of the database file, as a user types them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from orchestrator.cli.app import run as orch_run

BRIEF = ("--input", "briefs/launch.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh project after one run whose key points were edited, as the current folder."""
    home = tmp_path_factory.mktemp("views")
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("ORCH_TRUST", "1")
        os.chdir(home)
        assert orch_run(["init", "shop"]) == 0
        os.chdir("shop")
        assert orch_run(["run", *BRIEF]) == 0
        assert orch_run(["edit", "1/key-points", "--set", "headline=CSV at last"]) == 0
        yield home / "shop"
    os.chdir(before)


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """The document a command prints with `--json`, which must be all that stands on stdout."""
    capsys.readouterr()
    seen = orch_run([*arguments, "--json"])
    out = capsys.readouterr()
    assert seen == code, out.err
    assert out.out.isascii()
    loaded: dict[str, Any] = json.loads(out.out)
    return loaded


def names(steps: list[dict[str, Any]]) -> list[str]:
    return [step["name"] for step in steps]


# --- selections -------------------------------------------------------------------------------------------------------


def test_show_takes_a_selection_and_keeps_the_sums_of_the_run(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = document(capsys, "show", "1")["run"]
    part = document(capsys, "show", "1", "--select", "stale and kind:llm")["run"]
    assert names(whole["steps"]) == ["key-points", "size", "announcement"]
    assert names(part["steps"]) == ["announcement"]
    assert part["usage"] == whole["usage"]
    assert names(
        document(capsys, "show", "1", "--select", "kind:python", "--select", "key-points")["run"]["steps"]
    ) == [
        "key-points",
        "size",
    ]


def test_a_selected_run_shows_only_these_lines(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert orch_run(["show", "1", "--select", "size"]) == 0
    out = capsys.readouterr().out
    assert "size@1" in out
    assert "key-points@" not in out
    assert "1/announcement@" not in out


def test_plan_sums_what_is_selected(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, "plan", "launch", *BRIEF, "--select", "1+announcement and not announcement")
    assert names(plan["steps"]) == ["key-points", "size"]
    assert names(document(capsys, "plan", "1", "--select", "stale")["steps"]) == ["size", "announcement"]
    assert document(capsys, "plan", *BRIEF, "--select", "size")["hosts"] == []


def test_rerun_begins_at_what_is_selected(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = document(capsys, "rerun", "1", "--from", "stale and kind:llm")["run"]
    calls = {step["name"]: step["calls"] for step in child["steps"]}
    assert child["parent"] == 1
    assert calls == {"key-points": 0, "size": 0, "announcement": 2}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "1", "--select", "status:failed"], 'the selection "status:failed" matches no step of launch'),
        (["rerun", "1", "--from", "status:failed"], 'the selection "status:failed" matches no step of launch'),
        (["rerun", "1", "--from", "size", "--from", "status:failed"], "matches no step"),
        (["rerun", "1", "--from", "anouncement"], 'Did you mean "announcement"?'),
        (["plan", "launch", *BRIEF, "--select", "stale"], '"stale" asks about a run'),
        (["show", "1/size", "--select", "size"], "--select and --graph are about a whole run"),
        (["show", "1", "--select", "size and"], "    size and\n            ^"),
    ],
)
def test_a_selection_that_means_nothing_is_code_2(
    arguments: list[str], says: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = len(document(capsys, "runs")["runs"])
    assert orch_run(arguments) == 2
    assert says in capsys.readouterr().err
    assert len(document(capsys, "runs")["runs"]) == runs


# --- drawings ---------------------------------------------------------------------------------------------------------


def test_the_graph_of_a_run_and_of_a_pipeline(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert orch_run(["show", "1", "--graph"]) == 0
    run = capsys.readouterr().out.splitlines()
    assert run[0] == "launch · run 1 · inputs: notes, audience, most-words"
    assert [line.split(" · ")[0] for line in run[1:]] == [
        "└─ ✓ key-points",
        "   └─ ! size",
        "      └─ ! announcement",
    ]
    assert orch_run(["show", "launch", "--graph", "text"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "└─ key-points · llm  ← notes"


def test_drawings_for_other_programs_are_all_of_stdout(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert orch_run(["show", "1", "--graph", "svg"]) == 0
    root = ElementTree.fromstring(capsys.readouterr().out)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert orch_run(["show", "launch", "--graph", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("%% launch\nflowchart TD\n")


def test_the_graph_document(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = document(capsys, "show", "1", "--graph", "mermaid", "--select", "stale")
    assert shown["schema"] == "orch.graph/1"
    assert shown["format"] == "mermaid"
    assert shown["text"].startswith("%% launch")
    size, announcement = shown["graph"]["steps"]
    assert size == {"name": "size", "kind": "python", "reads": [], "needs": [], "state": "stale", "cost_usd": "0"}
    assert announcement["reads"] == ["audience", "most-words", "size"]
    pipeline = document(capsys, "show", "launch", "--graph")["graph"]
    assert pipeline["run"] is None
    assert {step["state"] for step in pipeline["steps"]} == {None}


@pytest.mark.parametrize(
    "arguments", [["1/size", "--graph"], ["lunch", "--graph"], ["1", "--graph", "png"], ["launch"]]
)
def test_what_cannot_be_drawn(arguments: list[str], finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert orch_run(["show", *arguments]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.count("error: ") == 1


# --- the database -----------------------------------------------------------------------------------------------------


def test_a_backup_opens_as_a_database(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "db", "backup", "orch.bak")
    target = finished / "orch.bak"
    assert made == {
        "schema": "orch.db/1",
        "action": "backup",
        "database": document(capsys, "doctor")["database"]["url"],
        "file": str(target),
        "bytes": target.stat().st_size,
    }
    assert target.stat().st_mode & 0o777 == 0o600
    original, copy = (document(capsys, "show", "1", "--db", f"sqlite:///{f}") for f in (".orch/orch.db", "orch.bak"))
    assert copy == original
    assert orch_run(["db", "backup", "orch.bak"]) == 2
    assert "a backup replaces nothing" in capsys.readouterr().err
    assert orch_run(["db", "backup", "again.bak"]) == 0
    assert capsys.readouterr().out.startswith("again.bak: a whole copy, ")


def test_a_check_tells_a_sound_database_from_a_damaged_one(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "db", "check")["problems"] == []
    assert orch_run(["db", "check"]) == 0
    assert capsys.readouterr().out == "ok: the database is sound\n"
    assert orch_run(["db", "backup", "bad.bak"]) == 0
    with sqlite3.connect("bad.bak") as connection:
        connection.execute("UPDATE content SET body = body || 'x' WHERE sha256 = (SELECT min(sha256) FROM content)")
    connection.close()
    bad = document(capsys, "db", "check", "--db", "sqlite:///bad.bak", code=8)
    assert len(bad["problems"]) == 1
    assert "is not what it was when it was stored" in bad["problems"][0]
    assert orch_run(["db", "check", "--db", "sqlite:///bad.bak"]) == 8
    assert capsys.readouterr().out.splitlines()[-1] == "1 problem found"


def test_gc_removes_what_nothing_refers_to(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "db", "backup", "gc.bak")["bytes"] > 0
    here = ("--db", "sqlite:///gc.bak")
    shown = document(capsys, "show", "1", *here)
    assert document(capsys, "db", "gc", *here)["removed"] == 0
    with sqlite3.connect("gc.bak") as connection:
        columns = "tenant, account, subject, sha256, size, used_at, body"
        connection.execute(f"INSERT INTO content ({columns}) VALUES ('-', '-', '-', 'x', 3, 0, 'abc')")
    connection.close()
    gone = document(capsys, "db", "gc", *here)
    assert (gone["schema"], gone["action"], gone["removed"], gone["bytes"]) == ("orch.db/1", "gc", 1, 3)
    assert document(capsys, "show", "1", *here) == shown
    assert orch_run(["db", "gc", *here]) == 0
    assert capsys.readouterr().out.startswith("nothing to remove: ")


@pytest.mark.parametrize(
    "arguments", [["db"], ["db", "backup"], ["db", "check", "x"], ["db", "gc", "x"], ["db", "gargle"]]
)
def test_a_wrong_care_of_the_database(arguments: list[str], finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert orch_run(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
