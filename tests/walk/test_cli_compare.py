"""`orch compare`, whole: a run beside its rerun, two runs of other inputs, two versions of one step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.walk.wrong import BRIEF, Desk, starter


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The starter project after one run."""
    desk = starter(tmp_path, capsys, monkeypatch)
    monkeypatch.setenv("ORCH_USER", "ana")
    assert desk.orch("run", *BRIEF)[0] == 0
    return desk


def ok(desk: Desk, *arguments: str) -> str:
    code, out, err = desk.orch(*arguments)
    assert code == 0, err
    return out


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in (*document["inputs"], *document["steps"])}


def test_a_run_beside_its_rerun_shares_what_was_not_made_again(desk: Desk) -> None:
    ok(desk, "edit", "1/key-points", "--set", "headline=CSV at last")
    headline = json.loads((desk.root / "sample_answers/announcement.json").read_text())[-1]["text"].splitlines()[0]
    desk.answers("announcement", {"text": f"{headline}\n\nIt is here."})
    ok(desk, "rerun", "1", "--from", "announcement")
    found = desk.document("compare", "1", "2")
    assert (found["schema"], found["of"], found["equal"], found["shared"]) == ("orch.compare/1", "runs", False, 2)
    assert found["differing"] == ["announcement"]
    parts = by_name(found)
    assert {name: one["artifact"] for name, one in parts.items()} == {
        "notes": "shared",
        "audience": "shared",
        "most-words": "shared",
        "key-points": "shared",
        "size": "shared",
        "announcement": "changed",
    }
    announcement = parts["announcement"]
    assert announcement["made_from"] == ["key-points v1→v2 (ana): headline"]
    assert [(one["kind"], one["layer"], one["source"]) for one in announcement["prompt"]] == [
        ("changed", "artifact", "key-points")
    ]
    assert "+It is here." in announcement["text"]
    assert (announcement["old"]["calls"], announcement["new"]["calls"]) == (2, 1)
    assert parts["key-points"]["new"]["calls"] == 0, "what is shared was not asked again"
    assert (found["new"]["calls"], found["new"]["parent"]) == (1, 1)

    told = ok(desk, "compare", "1", "2").splitlines()
    assert told[0] == "run 1 → run 2 · 1 of 3 steps differs · 1 value changed · 2 steps shared · $0 → $0"
    assert told[1] == "  run 2 was made from run 1: what is shared was not paid again"
    assert "      made from: key-points v1→v2 (ana): headline" in told
    assert any(line.startswith("      took: calls 2 → 1 · re-asks 1 → 0 · tokens in ") for line in told)
    assert any(line.startswith("        ~ key-points  artifact · ") for line in told)
    assert told[-1] == "  = shared: notes, audience, most-words, key-points, size"


def test_two_runs_of_other_inputs(desk: Desk) -> None:
    ok(desk, "run", *BRIEF, "--set", "notes=Nothing new.")
    found = desk.document("compare", "1", "2")
    parts = by_name(found)
    assert found["differing"] == ["notes", "key-points"]
    assert (parts["notes"]["artifact"], parts["key-points"]["artifact"]) == ("changed", "equal")
    assert [one["source"] for one in parts["key-points"]["prompt"]] == ["notes"], "the sample answer is the same"
    told = ok(desk, "compare", "1", "2")
    assert told.startswith("run 1 → run 2 · 1 of 3 inputs and 1 of 3 steps differ · 1 value changed · $0 → $0\n")
    assert "\n      all of it: orch compare 1/notes 2/notes\n" in told, "eight lines are more than a glance"
    assert "+Nothing new." in ok(desk, "compare", "1/notes", "2/notes")


def test_the_same_run_again_is_no_difference(desk: Desk) -> None:
    ok(desk, "run", *BRIEF)
    found = desk.document("compare", "1", "2")
    assert (found["equal"], found["differing"], found["shared"]) == (True, [], 0)
    assert ok(desk, "compare", "1", "2").splitlines()[0] == "run 1 → run 2 · no difference · $0 → $0"
    assert "one and the same run" in ok(desk, "compare", "1", "last~1")


def test_two_versions_of_one_step(desk: Desk) -> None:
    ok(desk, "edit", "1/key-points", "--set", "headline=CSV at last")
    found = desk.document("compare", "1/key-points@1", "1/key-points@2")
    assert (found["of"], found["equal"]) == ("versions", False)
    [step] = found["steps"]
    assert [(one["path"], one["new"]) for one in step["changes"]] == [("headline", "CSV at last")]
    assert step["prompt"] == step["made_from"] == step["model"] == [], "both rest on one attempt"
    assert step["old"]["calls"] == step["new"]["calls"] == 1
    told = ok(desk, "compare", "1/key-points@1", "1/key-points@2")
    assert told.startswith("1/key-points@1 → 1/key-points@2 · another value\n")
    assert '    ~ headline  "Export your invoices as CSV" → "CSV at last"\n' in told
    assert "\n  1/key-points@2 by ana (person)\n" in told


def test_the_same_step_of_two_runs_with_its_prompt_line_by_line(desk: Desk) -> None:
    ok(desk, "edit", "1/key-points", "--set", "headline=CSV at last")
    ok(desk, "rerun", "1", "--from", "announcement")
    [step] = desk.document("compare", "1/announcement", "2/announcement")["steps"]
    [block] = step["prompt"]
    changed = [line for line in block["text"] if line[0] in "+-"]
    assert changed == ['-  "headline": "Export your invoices as CSV",', '+  "headline": "CSV at last",']
    assert '+  "headline": "CSV at last",\n' in ok(desk, "compare", "1/announcement", "2/announcement")


def test_another_template_and_another_model_are_told(desk: Desk) -> None:
    desk.change("templates/key_points.md.j2", "", "Be brief.\n")
    desk.change("pipelines/launch.yaml", "max_output_tokens: 2000", "max_output_tokens: 900")
    ok(desk, "run", *BRIEF)
    step = by_name(desk.document("compare", "1", "2"))["key-points"]
    assert step["artifact"] == "equal"
    assert any(reason.startswith("template changed: ") for reason in step["made_from"])
    assert ("max_output_tokens", 900) in [(one["path"], one["new"]) for one in step["model"]]
    assert [(one["layer"], one["kind"]) for one in step["prompt"]] == [("task", "changed")]


def test_a_run_that_stopped_beside_one_that_did_not(desk: Desk) -> None:
    desk.answers("announcement")
    assert desk.orch("run", *BRIEF)[0] != 0
    found = desk.document("compare", "1", "2")
    step = by_name(found)["announcement"]
    assert (step["artifact"], step["old"]["status"], step["new"]["status"]) == ("removed", "succeeded", "failed")
    told = ok(desk, "compare", "1", "2")
    assert "\n  succeeded → failed\n" in told
    assert "\n    - announcement  @1 → no value · succeeded → failed\n" in told


def test_S27_foreign_text_in_a_comparison_is_harmless(desk: Desk) -> None:
    ok(desk, "edit", "1/key-points", "--set", "headline=a\x1b[2Jb\u202ec")
    ok(desk, "rerun", "1", "--from", "announcement")
    for pair in (("1/key-points@1", "2/key-points"), ("1/announcement", "2/announcement"), ("1", "2")):
        ok(desk, "compare", *pair)  # `Desk.orch` looks for dangerous characters


def test_what_cannot_be_compared_is_one_error(desk: Desk) -> None:
    assert "a run and a step" in desk.refused(2, "compare", "1", "1/notes")[1]
    assert "run 9 not found" in desk.refused(2, "compare", "1", "9")[1]
    assert "no version 7" in desk.refused(2, "compare", "1/notes@7", "1/notes")[1]
    assert "missing argument" in desk.refused(2, "compare", "1")[1]
