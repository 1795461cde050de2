"""Each code is explained; its wrong snippet gives exactly this code, its right one gives none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.check import check_project
from orchestrator.cli.options import State
from orchestrator.cli.session import Desk
from orchestrator.diagnostics import CODES
from orchestrator.errors import UsageError
from orchestrator.explain import PAGE, Snippet, explain, explanations, skeleton
from orchestrator.project import Project
from orchestrator.settings import load_settings

# Codes whose fault is not in the text of a file: each is made by a test of its own below, or, for P231, by the tests
# of contracts, since the loader reports the same slip in a file earlier.
NOT_IN_A_TEXT = frozenset({"P001", "P002", "P003", "P231", "P243"})
IN_A_TEXT = [code for code in CODES if code not in NOT_IN_A_TEXT]


class World:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.write("orchestrator.toml", b"")
        self.model: dict[str, str] = {"ORCH_MODEL": "scripted:answers"}

    def write(self, name: str, body: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def put(self, snippets: Sequence[Snippet]) -> None:
        """The snippets as files; the one without a name is completed from the skeleton."""
        part = next((snippet.text for snippet in snippets if snippet.file is None), "")
        uses_shelf = any(snippet.file == "artifacts/notes.yaml" for snippet in snippets)
        if not any(snippet.file == "demo.py" for snippet in snippets):
            self.write("demo.yaml", completed(part, without=("artifacts",) if uses_shelf else ()).encode())
        for snippet in snippets:
            if snippet.file is not None:
                self.write(snippet.file, snippet.text.encode())

    def codes(self) -> set[str]:
        project = Project(self.root, self.root / "orchestrator.toml", {})
        settings = load_settings(project, {"HOME": str(self.root), **self.model})
        return {found.code for found in check_project(Desk(State(), project, settings), None)[1]}


def completed(part: str, without: Sequence[str] = ()) -> str:
    """A pipeline from the snippet's sections and, where it has none of that name, the skeleton's."""
    sections = re.split(r"^(?=\w)", skeleton(), flags=re.MULTILINE)
    own = {line.split(":")[0] for line in part.splitlines() if re.match(r"\w", line)}
    return "".join(s for s in sections if s and s.split(":")[0] not in own and s.split(":")[0] not in without) + part


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_every_code_is_explained_and_no_other() -> None:
    assert list(explanations()) == list(CODES)
    headings = re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_an_explanation_says_more_than_the_summary_and_shows_both_sides(code: str) -> None:
    found = explain(code)
    assert len(found.text) > 60
    assert found.summary == CODES[code]
    assert found.wrong
    assert found.right
    assert found.wrong != found.right
    assert "```" not in found.text


def test_the_skeleton_is_sound(world: World) -> None:
    assert list(yaml.safe_load(skeleton())) == ["pipeline", "inputs", "artifacts", "steps"]
    world.put([])
    assert world.codes() == set()


@pytest.mark.parametrize("code", IN_A_TEXT)
def test_the_wrong_snippet_gives_exactly_this_code(code: str, world: World) -> None:
    world.put(explain(code).wrong)
    assert world.codes() == {code}


@pytest.mark.parametrize("code", CODES)
def test_the_right_snippet_gives_none(code: str, world: World) -> None:
    right = explain(code).right
    world.put([snippet for snippet in right if snippet.language != "sh"])
    assert world.codes() == set()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("P002", b"artifact: notes\nabout: x\n" + b"#" * 1_000_001),
        ("P003", "artifact: notes\nabout: Zürich\n".encode("latin-1")),
        ("P003", b"artifact: notes\nabout: a\x00b\n"),
    ],
)
def test_faults_of_a_file_as_such(code: str, body: bytes, world: World) -> None:
    world.put([Snippet("yaml", "artifacts/notes.yaml", "")])
    world.write("artifacts/notes.yaml", body)
    assert world.codes() == {code}


def test_a_file_that_is_gone_when_it_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put([Snippet("yaml", "artifacts/notes.yaml", "artifact: notes\n")])
    read = Path.read_bytes

    def gone(path: Path) -> bytes:
        if path.name == "notes.yaml":
            raise FileNotFoundError(2, "No such file or directory")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert world.codes() == {"P001"}


def test_without_a_model_the_check_warns(world: World) -> None:
    world.put([])
    world.model = {}
    assert world.codes() == {"P243"}


@pytest.mark.parametrize("written", ["P101", "p101", "error[P101]", "warning[p101]:", " P101 "])
def test_a_code_is_found_however_it_was_copied(written: str) -> None:
    assert explain(written).code == "P101"


@pytest.mark.parametrize("written", ["P999", "P1010", "101", "reads", ""])
def test_an_unknown_code_is_told(written: str) -> None:
    with pytest.raises(UsageError, match="there is no code"):
        explain(written)
