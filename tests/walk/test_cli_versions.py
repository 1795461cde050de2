"""Versions as people see them: what differs, who made which, and back to an earlier one; whole commands."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run
from orchestrator.edits import edit_artifact
from orchestrator.ids import sha256
from orchestrator.values import ArtifactVersion, FactBasis
from tests.walk.four_steps import four_steps

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
    say("rerun", "1", "--from", "key-points")
    say("edit", "1/key-points", "--set", "headline=CSV at last")
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


# --- restore ----------------------------------------------------------------------------------------------------------


def test_a_restored_version_is_a_new_one_and_what_it_makes_stale_is_told(
    project: Path, say: Say, document: Document
) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last")
    say("rerun", "1", "--from", "size")
    old = document("show", "2/key-points@1")["artifact"]
    new = document("restore", "2/key-points@1")
    assert new["schema"] == "orch.artifact/1"
    assert new["artifact"]["value"] == old["value"]
    assert new["artifact"]["sha256"] == old["sha256"]
    assert (new["artifact"]["version"], new["artifact"]["parent"]) == (3, 2)
    assert (new["artifact"]["author"], new["artifact"]["origin"]) == ("ana", "person")
    assert {one["step"]: one["reasons"] for one in new["stale"]} == {
        "size": ["key-points v2→v3 (ana): headline"],
        "announcement": ["key-points v2→v3 (ana): headline"],
    }
    assert document("show", "1/key-points")["artifact"]["version"] == 2, "the run it was forked from keeps its own"
    three = document("history", "2/key-points")["versions"][-1]
    assert (three["equal_to"], three["parent"]) == (1, 2)
    assert "equal to v1" in say("history", "2/key-points")


def test_a_restore_takes_an_edit_back(project: Path, say: Say, document: Document) -> None:
    """The edit names the way back, and afterwards nothing is stale: the steps read equal values."""
    shown = say("edit", "1/key-points", "--set", "headline=CSV at last")
    assert "  undo: orch restore 1/key-points@1\n" in shown
    assert "v2 → v3 by ana" in say("restore", "1/key-points@1")
    assert [step["stale"] for step in document("show", "1")["run"]["steps"]] == [False, False, False]
    assert "unchanged: still v3" in say("restore", "1/key-points@1"), "equal bytes make no version (S29)"


def test_a_restored_value_must_fit_the_contract_as_it_is_now(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last")
    contract = project / "artifacts" / "key-points.yaml"
    text = contract.read_text(encoding="utf-8")
    assert "headline: {type: string}" in text
    contract.write_text(text.replace("headline: {type: string}", "headline: {type: string, maxLength: 12}"))
    assert "$.headline" in say("restore", "1/key-points@1", code=2)
    assert document("show", "1/key-points")["artifact"]["version"] == 2


def test_a_value_of_another_form_than_its_contract_has_now_is_one_error(project: Path, say: Say) -> None:
    (project / "new.md").write_text("# Short\n", encoding="utf-8")
    say("edit", "1/announcement", "--file", "new.md")
    contract = project / "artifacts" / "announcement.yaml"
    text = contract.read_text(encoding="utf-8")
    assert "\nschema: markdown" in text
    fields = "{type: object, additionalProperties: false, required: [text], properties: {text: {type: string}}}"
    contract.write_text(text.replace("\nschema: markdown", f"\nschema: {fields}"), encoding="utf-8")
    assert "announcement@1 cannot be read" in say("restore", "1/announcement@1", code=2)
    assert "# Short" in say("show", "1/announcement")
    assert "+# Short" in say("diff", "1/announcement")
    say("export", "1")


def test_what_was_found_out_about_a_value_comes_back_with_it(tmp_path: Path) -> None:
    """The customer's own words for a field, guards that follow a figure, and who may see it."""

    async def main() -> ArtifactVersion:
        house, _ = four_steps(tmp_path / "house")
        await house.run({"idea": "red"})
        await house.edit("a", "of a person")
        async with house.services() as (services, graph):
            run = await services.store.run("last")
            old = await services.store.artifact(run.id, "a", None, 1)
            known = {"budget": FactBasis("stated", "at most 5000", "idea")}
            version = replace(old.version, facts=known, guards=("Not a limit.",), sensitivity="confidential")
            return await edit_artifact(
                services, graph, run, "a", value=old.body.decode(), base_version=2, restored=version
            )

    new = asyncio.run(main())
    assert (new.version, new.facts["budget"].quote, new.guards) == (3, "at most 5000", ("Not a limit.",))
    assert new.sensitivity == "confidential"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("1/key-points", "history 1/key-points"),
        ("1/key-points@9", "no version 9"),
        ("1/nothing@1", "has no step or input nothing"),
    ],
)
def test_what_cannot_be_restored_is_one_error(reference: str, says: str, project: Path, say: Say) -> None:
    assert says in say("restore", reference, code=2)


# --- two editors at once ----------------------------------------------------------------------------------------------


def test_the_second_of_two_editors_sees_what_the_first_has_changed(
    project: Path, say: Say, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While ana's editor is open ben is quicker: hers is refused with his change, her text is kept, his stands."""
    script = project / "slow.py"
    ben = [sys.executable, "-m", "orchestrator", "edit", "1/key-points", "--set", "headline=Ben was quicker"]
    script.write_text(
        "import os, pathlib, subprocess, sys\n"
        f"subprocess.run({ben!r}, env={{**os.environ, 'ORCH_USER': 'ben'}}, check=True)\n"
        "path = pathlib.Path(sys.argv[-1])\n"
        "path.write_text(path.read_text().replace('Export your invoices as CSV', 'Ana has time'))\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    refused = say("edit", "1/key-points", code=2)
    assert "1/key-points  v1 → v2 by ben meanwhile\n" in refused
    assert '  ~ headline  "Export your invoices as CSV" → "Ben was quicker"\n' in refused
    assert "orch diff 1/key-points@1 1/key-points@2" in refused
    [kept] = (project / ".orch" / "edits").iterdir()
    assert str(kept) in refused
    assert "Ana has time" in kept.read_text(encoding="utf-8")
    now = document("show", "1/key-points")["artifact"]
    assert (now["version"], now["author"], now["value"]["headline"]) == (2, "ben", "Ben was quicker")


def test_a_program_says_which_version_its_edit_is_of(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=One", "--base", "1")
    refused = document("edit", "1/key-points", "--set", "headline=Two", "--base", "1", code=2)
    assert refused["error"]["code"] == "changed_meanwhile"
    assert "at version 2, not 1" in refused["error"]["message"]
    assert refused["diff"] == document("diff", "1/key-points@1", "1/key-points@2")
    assert document("show", "1/key-points")["artifact"]["value"]["headline"] == "One"
    assert "no version 9" in say("edit", "1/key-points", "--set", "headline=Two", "--base", "9", code=2)


# --- export -----------------------------------------------------------------------------------------------------------


def test_a_run_is_exported_as_a_folder(project: Path, say: Say, document: Document) -> None:
    say("edit", "1/key-points", "--set", "headline=CSV at last")
    found = document("export", "1", "--to", "out/launch")
    assert (found["schema"], found["to"]) == ("orch.export/1", "out/launch")
    folder = project / "out" / "launch"
    assert {one["path"] for one in found["files"]} == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    manifest = json.loads((folder / "manifest.json").read_text(encoding="ascii"))
    assert manifest["run"] == document("show", "1")["run"]
    entries = {entry["name"]: entry for entry in manifest["artifacts"]}
    assert [entries[name]["file"] for name in ("notes", "key-points", "announcement")] == [
        "inputs/notes.txt",
        "steps/key-points.json",
        "steps/announcement.md",
    ]
    points = document("show", "1/key-points")["artifact"]
    assert json.loads((folder / "steps/key-points.json").read_text(encoding="utf-8")) == points["value"]
    for name in ("version", "author", "origin", "parent", "about", "not_for", "sha256"):
        assert entries["key-points"][name] == points[name]
    assert (folder / "steps/key-points.points.csv").read_text(encoding="utf-8").startswith("what,gain\n")
    assert "CSV at last" in (folder / "report.html").read_text(encoding="utf-8")


def test_an_artifact_is_exported_as_the_bytes_it_is(project: Path, say: Say, document: Document) -> None:
    assert "wrote announcement.md" in say("export", "1/announcement")
    say("export", "1/key-points", "--csv", "--to", "points.csv")
    body = (project / "announcement.md").read_bytes()
    assert body.startswith(b"# Export your invoices as CSV\n")
    assert sha256(body) == document("show", "1/announcement")["artifact"]["sha256"]
    assert (project / "announcement.md").stat().st_mode & 0o777 == 0o600
    assert (project / "points.csv").read_bytes().startswith(b"what,gain\r\n")
    assert say("export", "1/announcement@1", "--to", "-") == body.decode()


def test_an_export_overwrites_nothing_and_leaves_nothing_half_written(
    project: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "run-1").mkdir()
    say("export")
    before = sorted(path.name for path in project.iterdir())
    assert "there already" in say("export", "1", code=2)
    say("export", "1/announcement")
    assert "there already" in say("export", "1/announcement", code=2)
    assert "no list of objects" in say("export", "1/size", "--csv", code=2)
    assert "as a folder" in say("export", "1", "--csv", code=2)
    (project / "file").write_text("", encoding="utf-8")
    assert "cannot be written" in say("export", "1", "--to", "file/x", code=3)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "announcement.md":
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "no space left" in say("export", "1", "--to", "second", code=3)
    assert sorted(path.name for path in project.iterdir()) == sorted([*before, "announcement.md", "file"])


# --- import -----------------------------------------------------------------------------------------------------------


def test_an_imported_text_is_a_new_version_with_its_label(project: Path, say: Say, document: Document) -> None:
    (project / "mine.md").write_text("# Mine\n", encoding="utf-8")
    new = document("import", "1/announcement", "mine.md")["artifact"]
    assert (new["version"], new["parent"], new["author"], new["origin"]) == (2, 1, "ana", "import")
    assert new["value"] == "# Mine\n"
    assert new["not_for"] == document("show", "1/announcement@1")["artifact"]["not_for"]
    assert "by ana (import)" in say("history", "1/announcement")


def test_an_imported_input_makes_its_readers_stale(project: Path, say: Say, document: Document) -> None:
    (project / "notes.txt").write_text("Release 4.3 brings nothing new.", encoding="utf-8")
    new = document("import", "1/notes", "notes.txt")
    assert new["artifact"]["origin"] == "import"
    assert [one["step"] for one in new["stale"]] == ["key-points"]
    assert "Release 4.3" in document("render", "1/key-points")["user"]


def test_an_imported_table_replaces_its_list(project: Path, say: Say, document: Document) -> None:
    """From the program and back: what is exported, changed in a spreadsheet and imported keeps all else."""
    before = document("show", "1/key-points")["artifact"]["value"]
    say("export", "1/key-points", "--csv", "--to", "points.csv")
    table = (project / "points.csv").read_bytes()
    assert "unchanged: still v1" in say("import", "1/key-points", "points.csv")
    (project / "points.csv").write_bytes(table + b'"=1+1, in words",Nobody\r\n')
    new = document("import", "1/key-points", "points.csv")["artifact"]
    assert new["value"] == {**before, "points": [*before["points"], {"what": "=1+1, in words", "gain": "Nobody"}]}
    assert [change["path"] for change in document("diff", "1/key-points")["changes"]] == ["points[3]"]
    say("export", "1/key-points", "--csv", "--to", "again.csv")
    assert b'"\'=1+1, in words",Nobody\r\n' in (project / "again.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("bad.json", '{"headline": 1,\n "headline": 2}', "given twice"),
        ("bad.json", '{"headline":\n oops}', "bad.json:2:2"),
        ("bad.json", '{"headline": "x"}', "$.points is required"),
        ("bad.md", "# Points", "wants JSON"),
        ("bad.csv", "what,gain\nCSV,All,too much\n", "bad.csv:2"),
        ("bad.csv", "what,why\nCSV,x\n", 'no field "why"'),
        ("bad.csv", "what,gain\n\xff,x\n", "is not UTF-8"),
    ],
)
def test_a_bad_file_is_one_error_and_no_version(
    name: str, text: str, says: str, project: Path, say: Say, document: Document
) -> None:
    (project / name).write_bytes(text.encode("latin-1"))
    assert says in say("import", "1/key-points", name, code=2)
    assert document("show", "1/key-points")["artifact"]["version"] == 1


def test_what_cannot_be_imported_is_one_error(project: Path, say: Say) -> None:
    (project / "a.csv").write_text("what,gain\nCSV,x\n", encoding="utf-8")
    assert "there is no file" in say("import", "1/key-points", "none.json", code=2)
    assert "no list of objects that a table could be" in say("import", "1/size", "a.csv", code=2)
    assert "--field: points" in say("import", "1/key-points", "a.csv", "--field", "words", code=2)
    assert "--field is for a CSV" in say("import", "1/notes", "a.txt", "--field", "words", code=2)
    assert "has no step or input nothing" in say("import", "1/nothing", "a.csv", code=2)
    say("import", "1/key-points", "a.csv")
    assert "at version 2, not 1" in say("import", "1/key-points", "a.csv", "--base", "1", code=2)


def test_a_file_is_imported_as_its_bytes(project: Path, say: Say, document: Document) -> None:
    """Bytes that are no text stand as base64 in documents, and leave as they came."""
    pipeline = project / "pipelines" / "launch.yaml"
    text = pipeline.read_text(encoding="utf-8")
    added = '  logo: {type: file, about: "The logo.", default: "none", not_for: ["Not a licence."]}\n  audience:'
    pipeline.write_text(text.replace("  audience:", added, 1), encoding="utf-8")
    say("run", *BRIEF)
    body = b"\x89PNG\r\n\xff\x00"
    (project / "logo.png").write_bytes(body)
    assert document("show", "2/logo")["artifact"]["value"] == "none"
    new = document("import", "2/logo", "logo.png")["artifact"]
    assert new["value"] == {"base64": "iVBORw0K/wA="}
    assert new["not_for"] == ["Not a licence."]
    shown = say("show", "2/logo")
    assert "[a file that is no text, 8 bytes, sha256 " in shown
    assert "orch export 2/logo@2" in shown
    document("diff", "2/logo")
    say("export", "2/logo", "--to", "out.png")
    assert (project / "out.png").read_bytes() == body
    say("export", "2")
    assert (project / "run-2" / "inputs" / "logo.bin").read_bytes() == body
    assert "<pre>\n8 bytes</pre>" in (project / "run-2" / "report.html").read_text(encoding="utf-8")


# --- pins and conflicts -----------------------------------------------------------------------------------------------


def other_answer(project: Path, **fields: Any) -> None:
    """The model says something else about the key points from now on."""
    answers = project / "sample_answers" / "key-points.json"
    (reply,) = json.loads(answers.read_text(encoding="utf-8"))
    answers.write_text(json.dumps([{"json": {**reply["json"], **fields}}]), encoding="utf-8")


def test_a_pin_is_set_shown_kept_and_taken_off(project: Path, say: Say, document: Document) -> None:
    assert say("pin", "1/key-points", "headline") == (
        "1/key-points  pinned: headline by ana\n  undo: orch pin 1/key-points --remove\n"
    )
    assert "pinned: headline by ana" in say("show", "1")
    assert "  pinned: headline by ana\n" in say("show", "1/key-points")
    other_answer(project, headline="Another", open_questions=[])
    assert "kept headline as pinned by ana" in say("rerun", "1", "--from", "key-points")
    made = document("show", "2/key-points")["artifact"]
    assert (made["value"]["headline"], made["value"]["open_questions"]) == ("Export your invoices as CSV", [])
    assert made["pins"] == {"headline": "ana"}
    assert document("pin", "2/key-points", "headline", "--remove") == {
        "schema": "orch.pins/1",
        "run": 2,
        "step": "key-points",
        "item": None,
        "pins": {},
    }
    assert "nothing is pinned" in say("pin", "2/key-points", "--remove")
    assert 'did you mean "headline"?' in say("pin", "2/key-points", "headlin", code=2)
    assert "Leave out @1" in say("pin", "2/key-points@1", code=2)


def test_S07_a_conflict_is_shown_by_path_and_decided_by_field(project: Path, say: Say, document: Document) -> None:
    """What both have changed stands there with all three values, and the command that decides."""
    say("edit", "1/key-points", "--set", "headline=By ana", "--set", "open_questions=[]")
    other_answer(project, headline="By the model", open_questions=["Why?"])
    assert orch_run(["rerun", "1", "--from", "key-points"]) == 4
    found = document("show", "2/key-points")["artifact"]["conflicts"]
    first = ["Does the CSV export keep custom fields?"]
    assert found == [
        {"path": "headline", "base": "Export your invoices as CSV", "head": "By ana", "draft": "By the model"},
        {"path": "open_questions", "base": first, "head": [], "draft": ["Why?"]},
    ]
    shown = say("show", "2/key-points")
    assert '  ≠ headline\n      was         "Export your invoices as CSV"\n      edited      "By ana"\n' in shown
    assert '      draft v3    "By the model"\n' in shown
    assert "  orch resume 2 --settle key-points=draft:FIELD,…\n" in shown
    assert "edited by ana, and the new version differs there too: headline and open_questions" in say("show", "2")
    assert "no conflict at points" in say("resume", "2", "--settle", "key-points=draft:points", code=2)

    say("resume", "2", "--settle", "key-points=draft:headline")
    decided = document("show", "2/key-points")["artifact"]
    assert (decided["value"]["headline"], decided["value"]["open_questions"]) == ("By the model", [])
    assert decided["conflicts"] == []
    blame = document("history", "2/key-points")["blame"]
    assert [blame[name]["author"] for name in ("headline", "open_questions")] == ["scripted:sample_answers", "ana"]
    assert "v2 merged with v3" in say("history", "2/key-points")
