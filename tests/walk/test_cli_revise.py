"""`orch revise` as people and programs use it: whole commands on the starter project, and the door in Python."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run

BRIEF = ["--input", "briefs/launch.json"]
Say = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A fresh project as the current folder, after one run; its first step has three answers."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.setenv("ORCH_USER", "ana")
    monkeypatch.chdir(tmp_path)
    assert orch_run(["init", "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    answers = tmp_path / "shop" / "sample_answers" / "key-points.json"
    (first,) = json.loads(answers.read_text("utf-8"))
    more = [{"json": {**first["json"], "headline": headline}} for headline in ("CSV at last", "CSV, finally")]
    answers.write_text(json.dumps([first, *more]), encoding="utf-8")
    assert orch_run(["run", *BRIEF]) == 0
    capsys.readouterr()
    return tmp_path / "shop"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command prints, stdout and stderr."""

    def say(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert orch_run(arguments) == code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.out + seen.err

    return say


def test_revise_tells_the_change_what_became_stale_and_what_to_type(project: Path, say: Say) -> None:
    told = say("revise", "1/key-points", "a better headline")
    assert "1/key-points  v1 → v2 by scripted:sample_answers\n" in told
    assert '  ~ headline  "Export your invoices as CSV" → "CSV at last"\n' in told
    assert "  stale: size  key-points v1→v2 (scripted:sample_answers): headline\n" in told
    assert "  stale: announcement  " in told
    assert "  not stale: 0\n" in told
    assert "  redo: orch refresh 1\n" in told
    assert "  undo: orch restore 1/key-points@1" in told
    assert "v2 → v3" in say("revise", "last/key-points", "-m", "and again")
    assert say("diff", "1/key-points").count("CSV, finally") == 1


def test_revise_gives_one_document(project: Path, say: Say) -> None:
    out = say("revise", "1/key-points", "a better headline", "--json")
    document: dict[str, Any] = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert (document["schema"], document["run"]["status"]) == ("orch.run/1", "succeeded")
    assert [change["path"] for change in document["diff"]["changes"]] == ["headline"]
    assert (document["diff"]["old"]["version"], document["diff"]["new"]["version"]) == (1, 2)
    assert [entry["step"] for entry in document["stale"]] == ["size", "announcement"]


def test_why_shows_the_follow_up_and_what_stood_before_it(project: Path, say: Say) -> None:
    say("revise", "1/key-points", "a better headline")
    told = say("why", "1/key-points")
    assert re.search(r"1  FOLLOW_UP +on resp_", told)
    before, _, after = told.partition("\n  sent\n")
    assert "  sent before, in the thread that this one goes on from\n" in before
    assert "notes@1  artifact · reads" in before
    assert "message 1  comment · comment by ana" in after
    assert "key_points.md.j2" not in after
    text = say("why", "1/key-points", "--text")
    assert text.count("──── system ────") == 1
    assert text.rstrip().endswith("──── call 1 · FOLLOW_UP · user ────\n[Comment for this version]\na better headline")
    document = json.loads(say("why", "1/key-points", "--json"))
    (thread,) = document["threads"]
    assert thread["continues"].startswith("synthetic_")
    assert [block["source"] for block in document["blocks"] if not block["continued"]] == ["message 1"]


def test_S05_why_shows_the_rebuilt_thread_its_draft_and_the_reason(project: Path, say: Say) -> None:
    say("edit", "1/key-points", "--set", "headline=By hand")
    assert "thread rebuilt: edited by ana" in say("revise", "1/key-points", "a better headline")
    told = say("why", "1/key-points")
    assert re.search(r"1  REBUILD +starts from nothing", told)
    assert "key-points@2  draft · current draft, edited by ana" in told
    assert "guard sent: “Open questions are not promises and not features.”" in told
    assert "the thread that made the current version  (edited by ana)" in told
    assert "sent before" not in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["1/key-points"], "nothing is said"),
        (["1/key-points", " "], "nothing is said"),
        (["1/key-points", "a", "-m", "b"], "say the same"),
        (["1/key-points@1", "a"], "only the current version can be revised"),
        (["1/size", "a"], "size is plain Python"),
        (["1/nothing", "a"], "nothing not found in this run"),
        (["1/notes", "a"], 'has no step "notes"'),
        (["7/key-points", "a"], "run 7 not found"),
    ],
)
def test_what_cannot_be_revised_is_a_usage_error(project: Path, say: Say, arguments: list[str], message: str) -> None:
    assert message in say("revise", *arguments, code=2)
    assert "v2" not in say("show", "1")


def test_a_revise_that_fails_leaves_the_version_and_resume_tries_it_again(project: Path, say: Say) -> None:
    answers = project / "sample_answers" / "key-points.json"
    written = answers.read_text("utf-8")
    answers.write_text(json.dumps(json.loads(written)[:1]), encoding="utf-8")
    told = say("revise", "1/key-points", "a better headline", code=6)
    assert "orch resume 1" in told
    assert "Export your invoices as CSV" in say("show", "1/key-points")
    answers.write_text(written, encoding="utf-8")
    say("resume", "1")
    assert "CSV at last" in say("show", "1/key-points")
    assert "FOLLOW_UP" in say("why", "1/key-points")


PYTHON = """
from orchestrator import Pipeline, artifact


@artifact(about="A letter.", not_for="none")
class Letter(str):
    pass


p = Pipeline("letters")
p.input("idea", str, about="What the customer wants.")
letter = p.llm("letter", produces=Letter, reads=["idea"], prompt="Write.")
"""


def test_the_door_in_python_gives_another_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n')
    (tmp_path / "letters.py").write_text(PYTHON)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "letter.json").write_text(json.dumps(["one", "two", "three"]))
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("letters", tmp_path / "letters.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.p.run(idea="a shop")
    again = run.revise(module.letter, "shorter")  # outside async code: it has ended
    assert (run.get(module.letter), again.get(module.letter)) == ("one", "two")
    assert again.number == run.number

    async def inside() -> str:
        third = await again.revise("letter", "shorter still")
        return str(third.get(module.letter))

    assert asyncio.run(inside()) == "three"
