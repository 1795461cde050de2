"""`orch schema` and `orch explain`, as typed."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from orchestrator.cli.app import run as orch
from orchestrator.diagnostics import CODES
from orchestrator.yaml_nodes import read_yaml

KINDS = ("pipeline", "step", "artifact")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_printed_as_one_document(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where there is no project."""
    assert orch(["schema", kind]) == 0
    out = capsys.readouterr().out
    Draft202012Validator.check_schema(json.loads(out))
    assert out.isascii()
    assert list(here.iterdir()) == []


def test_init_writes_the_schemas_and_each_of_its_files_names_its_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch(["init", "p"]) == 0
    assert "p/.orch" not in capsys.readouterr().err
    folder = here / "p" / ".orch"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"
    named = {}
    for path in sorted((here / "p").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        match = re.match(r"# yaml-language-server: \$schema=(.+)\n", text)
        assert match is not None, path
        schema = path.parent / match[1]
        named[path.relative_to(here / "p").as_posix()] = schema.name
        document = read_yaml(text.encode(), path.name)
        Draft202012Validator(json.loads(schema.read_bytes())).validate(document.data)
    assert named == {
        "artifacts/announcement.yaml": "artifact.schema.json",
        "artifacts/key-points.yaml": "artifact.schema.json",
        "artifacts/size.yaml": "artifact.schema.json",
        "pipelines/launch.yaml": "pipeline.schema.json",
        "steps/key-points.yaml": "step.schema.json",
    }


def test_write_makes_them_again_without_trust(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORCH_TRUST", raising=False)
    (here / "orchestrator.toml").touch()
    (here / "p.yaml").write_text('pipeline: p\nsteps: {s: {python: "evil.py:f"}}\n', encoding="utf-8")
    (here / "evil.py").write_text("raise SystemExit(9)\n", encoding="utf-8")
    elsewhere = here / "elsewhere"
    elsewhere.write_text("mine", encoding="utf-8")
    (here / ".orch").mkdir()
    (here / ".orch" / "step.schema.json").symlink_to(elsewhere)
    assert orch(["schema", "--write", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [f".orch/{kind}.schema.json" for kind in KINDS]
    assert elsewhere.read_text(encoding="utf-8") == "mine"
    os.remove(here / ".orch" / "step.schema.json")
    assert orch(["schema", "pipeline", "--write"]) == 0
    assert not (here / ".orch" / "step.schema.json").exists()


@pytest.mark.parametrize("arguments", [["schema"], ["schema", "pipelines"], ["explain", "P999"]])
def test_what_there_is_not_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert orch(arguments) == 2
    assert capsys.readouterr().err.count("error: ") == 1


def test_a_code_is_explained_with_both_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert orch(["explain", "P104"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"P104  {CODES['P104']}\n")
    assert out.index("Wrong:") < out.index("Right:")
    assert orch(["explain", "p104", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["codes"]
    assert one["code"] == "P104"
    assert one["wrong"][0]["text"] != one["right"][0]["text"]


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert orch(["explain"]) == 0
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == list(CODES)
