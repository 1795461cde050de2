"""`orch bench` as people type it: the table, the document, what is refused, and a sample that is taken over."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run

Say = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A fresh project after one run, with a second model whose headline is another one."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.setenv("ORCH_USER", "ana")
    monkeypatch.chdir(tmp_path)
    assert orch_run(["init", "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    shutil.copytree("sample_answers", "other_answers")
    answers = Path("other_answers/key-points.json")
    replies = json.loads(answers.read_text(encoding="utf-8"))
    replies[0]["json"]["headline"] = "CSV [bold]at last"
    answers.write_text(json.dumps(replies), encoding="utf-8")
    assert orch_run(["run", "--input", "briefs/launch.json"]) == 0
    capsys.readouterr()
    return tmp_path / "shop"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command says: stdout where it succeeds, else stderr."""

    def say(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert orch_run(arguments) == code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.out if code == 0 else seen.err

    return say


def document(say: Say, *arguments: str) -> dict[str, Any]:
    out = say(*arguments, "--json")
    assert out.isascii()
    loaded: dict[str, Any] = json.loads(out)
    return loaded


def test_two_variants_stand_side_by_side(project: Path, say: Say) -> None:
    out = say("bench", "1/key-points", "--n", "2", "--model", "scripted:other_answers")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "bench 2 · 1/key-points · 4 samples" in lines
    assert "bench 2 · 1/key-points@1 · succeeded · $0 spent" in lines
    assert "model scripted:sample_answers scripted:other_answers" in lines
    assert "checks passed 2 of 2 (2 at once) 2 of 2 (2 at once)" in lines
    assert "distinct values 1 1" in lines
    assert "same as @1 2 0" in lines
    assert "✓ a-1 same as @1" in lines
    assert "✓ b-2 1 difference: headline" in lines
    assert 'headline @1 "Export your invoices as CSV"' in lines
    assert 'b "CSV [bold]at last" ×2' in lines
    assert lines[-1] == "orch bench 2 --promote b-2"
    shown = say("bench", "2")
    assert (
        shown.splitlines()
        == out.splitlines()[out.splitlines().index("bench 2 · 1/key-points@1 · succeeded · $0 spent") :]
    )
    assert say("show", "2") == shown, "a bench is shown as one"


def test_the_document_of_a_bench(project: Path, say: Say) -> None:
    found = document(say, "bench", "1/key-points", "--n", "1", "--model", "scripted:other_answers")
    assert {key: found[key] for key in ("schema", "bench", "run", "step", "version", "status", "error")} == {
        "schema": "orch.bench/1",
        "bench": 2,
        "run": 1,
        "step": "key-points",
        "version": 1,
        "status": "succeeded",
        "error": None,
    }
    assert [variant["name"] for variant in found["variants"]] == ["a", "b"]
    assert [variant["same_as_version"] for variant in found["variants"]] == [1, 0]
    assert [(one["name"], one["passed"], one["same_as_version"]) for one in found["samples"]] == [
        ("a-1", True, True),
        ("b-1", True, False),
    ]
    old, new = "Export your invoices as CSV", "CSV [bold]at last"
    assert found["samples"][1]["changes"] == [{"kind": "changed", "path": "headline", "old": old, "new": new}]
    assert found["differences"] == [
        {
            "path": "headline",
            "version": {"value": old},
            "values": {"a": [{"value": old, "count": 1}], "b": [{"value": new, "count": 1}]},
        }
    ]
    assert document(say, "bench", "2") == found


def test_a_sample_can_be_looked_at_like_any_step(project: Path, say: Say) -> None:
    say("bench", "1/key-points", "--n", "1", "--model", "scripted:other_answers")
    assert "CSV [bold]at last" in say("show", "2/key-points/b-1")
    assert say("why", "2/key-points/b-1").startswith("2/key-points/b-1 · attempt 1 · succeeded")
    changed = say("diff", "1/key-points", "2/key-points/b-1")
    assert changed.startswith("1/key-points@1 → 2/key-points/b-1@1")
    assert '~ headline  "Export your invoices as CSV" → "CSV [bold]at last"' in changed
    assert "not found" in say("show", "2/key-points/b-9", code=2)
    assert "is not the key of an item" in say("show", "2/key-points/B 1", code=2)
    assert "not found in this run" in say("edit", "1/key-points/b-1", "--set", "headline=x", code=2)


def test_a_promoted_sample_tells_what_became_stale(project: Path, say: Say) -> None:
    say("bench", "1/key-points", "--n", "1", "--model", "scripted:other_answers")
    out = say("bench", "2", "--promote", "b-1")
    assert "1/key-points  v1 → v2 by scripted:other_answers · contract ok" in out
    assert "stale: announcement" in out
    assert "undo: orch restore 1/key-points@1" in out
    assert document(say, "show", "1/key-points")["artifact"]["origin"] == "model"
    assert "thread main · other_answers" in say("why", "1/key-points"), "its sample's"
    assert "changed since this bench" in say("bench", "2", "--promote", "a-1", code=2)
    new = document(say, "bench", "1/key-points", "--n", "1")
    assert new["variants"][0]["changes"] == [
        "model changed: scripted:other_answers, at most 2000 tokens → scripted:sample_answers, at most 2000 tokens"
    ]
    promoted = document(say, "bench", "3", "--promote", "a-1")
    assert (promoted["artifact"]["version"], promoted["artifact"]["author"]) == (3, "scripted:sample_answers")
    assert [one["step"] for one in promoted["stale"]] == []


def test_benches_are_no_runs_of_the_list(project: Path, say: Say) -> None:
    say("bench", "1/key-points", "--n", "1")
    assert [run["number"] for run in document(say, "runs")["runs"]] == [1]
    every = document(say, "runs", "--all")["runs"]
    assert [(run["number"], run["kind"], run["parent"]) for run in every] == [(2, "bench", 1), (1, "run", None)]
    assert "bench of 1" in say("runs", "--all")
    assert document(say, "show", "last")["run"]["number"] == 1


def test_a_prompt_and_a_template_are_tried_without_touching_the_pipeline(project: Path, say: Say) -> None:
    before = Path("pipelines/launch.yaml").read_bytes()
    Path("short.md").write_text("Name the points, shortly.\n", encoding="utf-8")
    Path("templates/other.md").write_text("Name the points at length.\n", encoding="utf-8")
    first = document(say, "bench", "1/key-points", "--n", "1", "--prompt", "short.md")
    second = document(say, "bench", "1/key-points", "--n", "1", "--template", "other.md")
    third = document(say, "bench", "1/key-points", "--n", "1", "--template", "templates/other.md")
    assert [found["variants"][1]["task"] for found in (first, second, third)] == [
        "short.md",
        "other.md",
        "templates/other.md",
    ]
    assert first["variants"][1]["changes"] == ["template changed: key_points.md.j2 → short.md"]
    assert "Name the points, shortly." in say("why", "2/key-points/b-1", "--text")
    assert "Name the points at length." in say("why", "4/key-points/b-1", "--text")
    assert Path("pipelines/launch.yaml").read_bytes() == before


def test_what_cannot_be_benched_is_refused_with_the_way_out(project: Path, say: Say) -> None:
    assert "size asks no model" in say("bench", "1/size", code=2)
    assert 'has no step "key-point"' in say("bench", "1/key-point", code=2)
    assert "run 9 not found" in say("bench", "9/key-points", code=2)
    assert "run 1 is no bench" in say("bench", "1", code=2)
    assert "run 1 is no bench" in say("bench", "1", "--promote", "a-1", code=2)
    assert "takes a sample of a bench" in say("bench", "1/key-points", "--promote", "a-1", code=2)
    assert "takes no options" in say("bench", "1", "--model", "default", code=2)
    assert "starts from the current version" in say("bench", "1/key-points@1", code=2)
    missing = say("bench", "1/key-points", "--template", "nix.j2", code=3)
    assert "there is no template nix.j2" in missing
    assert "--> --template:1:1" in missing
    assert "there is no model alias foo" in say("bench", "1/key-points", "--model", "foo", code=3)
    Path("empty.md").write_text(" \n", encoding="utf-8")
    assert "empty.md is empty" in say("bench", "1/key-points", "--prompt", "empty.md", code=2)
    assert [run["number"] for run in document(say, "runs", "--all")["runs"]] == [1]


def test_a_cap_ends_a_bench_with_5(project: Path, say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    """At $1000 for a million tokens no call of the other model fits under a cent; the sample answers cost nothing."""
    toml = Path("orchestrator.toml")
    more = '\n[providers.acme]\nkind = "scripted"\n[prices."other_answers"]\ninput = "1000"\noutput = "1000"\n'
    toml.write_text(toml.read_text(encoding="utf-8") + more, encoding="utf-8")
    assert orch_run(["bench", "1/key-points", "--n", "2", "--model", "acme:other_answers", "--cap", "0.01"]) == 5
    out = capsys.readouterr().out
    assert "and the cap is $0.01; nothing was sent" in out
    assert "orch resume" not in out
    assert "b-1  not made" in out
    assert "a-1  same as @1" in out


def test_a_rerun_with_another_model_says_so_and_keeps_it_when_it_is_looked_at(say: Say, project: Path) -> None:
    say("rerun", "1", "--only", "key-points", "--model", "scripted:other_answers")
    shown = document(say, "show", "2/key-points")["artifact"]
    assert shown["author"] == "scripted:other_answers"
    assert "CSV [bold]at last" in say("show", "2/key-points")
    compared = say("compare", "1/key-points", "2/key-points")
    assert "scripted:other_answers" in compared
    assert "there is no model alias foo" in say("rerun", "1", "--from", "key-points", "--model", "foo", code=2)
