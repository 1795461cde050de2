"""Finding a project, its shelves and its Python, and staying inside of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError, UsageError
from orchestrator.project import OutsideProject, Project, PythonLoadError, find_project, library_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    (folder / "orchestrator.toml").write_text('db = "sqlite:///x.db"\n')
    return folder


@pytest.fixture
def project(root: Path) -> Project:
    return find_project(root)


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- the project file ---


def test_the_nearest_project_file_upwards(root: Path) -> None:
    inner = root / "deep" / "er"
    inner.mkdir(parents=True)
    put(root / "deep" / "pyproject.toml", "[project]\nname = 'x'\n")
    found = find_project(inner)
    assert (found.root, found.file, found.config) == (root, root / "orchestrator.toml", {"db": "sqlite:///x.db"})
    put(root / "deep" / "pyproject.toml", "[tool.orchestrator]\nuser = 'ana'\n")
    found = find_project(inner)
    assert (found.root, found.config) == (root / "deep", {"user": "ana"})


def test_no_project_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        find_project(tmp_path)
    assert raised.value.exit_code == 3
    assert "orch init" in (raised.value.hint or "")
    with pytest.raises(UsageError):
        find_project(tmp_path / "missing")


def test_two_project_files_in_one_folder_are_refused(root: Path) -> None:
    put(root / "pyproject.toml", "[tool.orchestrator]\n")
    with pytest.raises(ConfigError, match="two project files"):
        find_project(root)


@pytest.mark.parametrize(("text", "line"), [("a = 1\nb = \n", 2), ("a = 1\na = 2\n", 2)])
def test_broken_toml_names_the_place(root: Path, text: str, line: int) -> None:
    put(root / "orchestrator.toml", text)
    with pytest.raises(ConfigError) as raised:
        find_project(root)
    assert raised.value.place is not None
    assert raised.value.place.line == line
    (root / "orchestrator.toml").write_bytes(b"a = '\xff'\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        find_project(root)


# --- shelves and references ---


def test_the_projects_shelf_comes_before_the_librarys(project: Project, root: Path, tmp_path: Path) -> None:
    own = put(root / "steps" / "sizing.yaml")
    assert project.shelf("steps", "sizing") == own
    assert project.shelf("steps", "sizing.yaml") == own
    assert project.shelf("steps", "other") is None
    assert project.shelf("templates", "sizing") is None
    assert "sizing" in project.shelf_names("steps")
    put(root / "templates" / "mail" / "a.md.j2")
    assert "mail/a.md.j2" in project.shelf_names("templates")


def test_the_library_is_a_shelf_too(
    project: Project, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path.resolve() / "library"
    for kind in ("steps", "templates", "artifacts"):
        (library / kind).mkdir(parents=True)
    monkeypatch.setattr("orchestrator.project.library_root", lambda: library)
    shipped = put(library / "artifacts" / "rates.yaml")
    assert project.shelf("artifacts", "rates") == shipped
    assert project.shelf_names("artifacts") == ("rates",)
    own = put(root / "artifacts" / "rates.yaml")
    assert project.shelf("artifacts", "rates") == own
    put(library / "secret.txt")
    assert not project.holds(library / "secret.txt")


def test_the_library_stands_where_its_three_shelves_are() -> None:
    assert all((library_root() / kind).is_dir() for kind in ("steps", "templates", "artifacts"))


def test_references_are_relative_to_the_naming_file_then_on_the_shelf(project: Project, root: Path) -> None:
    naming = put(root / "pipelines" / "p.yaml")
    shelf = put(root / "templates" / "t.j2")
    assert project.resolve("t.j2", naming, "templates") == shelf
    assert project.resolve("../templates/t.j2", naming) == shelf
    beside = put(root / "pipelines" / "t.j2")
    assert project.resolve("t.j2", naming, "templates") == beside
    assert project.resolve("missing.j2", naming, "templates") is None
    assert project.resolve("bad\0name", naming, "templates") is None
    assert project.resolve("x" * 5000, naming, "templates") is None


def test_S24_references_that_leave_the_project_are_refused(project: Project, root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path / "outside.txt", "secret")
    naming = put(root / "p.yaml")
    (root / "link.txt").symlink_to(outside)
    (root / "templates").mkdir()
    (root / "templates" / "t.j2").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    inner = put(root / "real.txt")
    (root / "inner.txt").symlink_to(inner)
    for reference in ("../outside.txt", str(outside), "link.txt", "folder/outside.txt", "../not-there.txt"):
        with pytest.raises(OutsideProject):
            project.resolve(reference, naming)
    with pytest.raises(OutsideProject):
        project.resolve("t.j2", naming, "templates")
    assert project.resolve("inner.txt", naming) == inner
    sibling = put(tmp_path / "work-2" / "x.txt")  # the root's name as a mere prefix
    with pytest.raises(OutsideProject):
        project.resolve(str(sibling), naming)


# --- pipelines ---


def test_pipelines_are_yaml_files_with_a_pipeline_key(project: Project, root: Path) -> None:
    first = put(root / "discovery.yaml", "version: 1\npipeline: discovery\n")
    second = put(root / "pipelines" / "bid.yml", "pipeline: 'bid-strategy'\nsteps: [broken\n")
    put(root / "compose.yaml", "services: {}\n")
    put(root / "other.yaml", "x:\n  pipeline: nested\n")
    assert project.pipelines() == (first, second)
    assert project.pipeline("discovery") == first
    assert project.pipeline("bid-strategy") == second
    assert project.pipeline("bid") == second
    assert project.pipeline("pipelines/bid.yml") == second
    with pytest.raises(UsageError, match="2 pipelines: discovery, bid-strategy"):
        project.pipeline(None)
    with pytest.raises(UsageError) as raised:
        project.pipeline("discovry")
    assert raised.value.hint == "Did you mean 'discovery'?"


def test_the_only_pipeline_needs_no_name_and_none_is_an_error(project: Project, root: Path) -> None:
    with pytest.raises(UsageError, match="has no pipeline"):
        project.pipeline(None)
    only = put(root / "p.yaml", "pipeline: p\n")
    assert project.pipeline(None) == only
    put(root / "pipelines" / "q.yaml", "pipeline: p\n")
    for name in ("p", None):
        with pytest.raises(UsageError, match=r"given twice: p\.yaml and pipelines/q\.yaml"):
            project.pipeline(name)


@pytest.mark.parametrize("body", ["", "steps: {}\n", "- a list\n"])
def test_a_file_in_pipelines_is_one_even_where_its_key_is_missing(project: Project, root: Path, body: str) -> None:
    broken = put(root / "pipelines" / "broken.yaml", body)
    put(root / "other.yaml", body)
    assert project.pipelines() == (broken,)
    assert project.pipeline("broken") == broken


def test_a_reference_that_climbs_is_a_path_and_never_on_a_shelf(project: Project, root: Path) -> None:
    naming = put(root / "pipelines" / "p.yaml")
    assert project.resolve("../missing.py", naming, "steps") is None


def test_paths_are_shown_relative_to_the_root(project: Project, root: Path) -> None:
    assert project.display(root / "a" / "b.yaml") == "a/b.yaml"
    assert project.display(Path("/elsewhere/b.yaml")) == "/elsewhere/b.yaml"


# --- Python files ---


def test_python_is_loaded_by_path_once_and_leaves_the_path_alone(project: Project, root: Path) -> None:
    file = put(root / "steps.py", "calls = []\nclass Rates: pass\ndef calculate(x):\n    return x + 1\n")
    before, names = list(sys.path), set(sys.modules)
    calculate = project.load_object(file, "calculate")
    assert calculate(1) == 2
    assert project.load_object(file, "Rates") is project.load_object(file, "Rates")
    assert sys.path == before
    assert all(name.startswith("_orch_project_") for name in set(sys.modules) - names)
    assert not (root / "__pycache__").exists()


def test_an_edit_is_seen_even_within_the_same_second_and_at_the_same_size(project: Project, root: Path) -> None:
    file = put(root / "f.py", "VALUE = 1\n")
    assert project.load_object(file, "VALUE") == 1
    stat = file.stat()
    put(file, "VALUE = 2\n")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000))
    assert project.load_object(file, "VALUE") == 2


def test_neighbours_are_imported_relatively_and_are_the_same_module(project: Project, root: Path) -> None:
    rates = put(root / "rates.py", "class Rates:\n    weekly = 997\n")
    cost = put(root / "cost.py", "from .rates import Rates\ndef make():\n    return Rates()\n")
    assert isinstance(project.load_object(cost, "make")(), project.load_object(rates, "Rates"))
    put(rates, "class Rates:\n    weekly = 1200\n")
    assert project.load_object(cost, "make")().weekly == 1200


def test_models_with_postponed_annotations_work(project: Project, root: Path) -> None:
    text = "from __future__ import annotations\nfrom pydantic import BaseModel\n"
    text += "class Part(BaseModel):\n    n: int\nclass Whole(BaseModel):\n    parts: list[Part]\n"
    whole = project.load_object(put(root / "schemas.py", text), "Whole")
    assert whole.model_validate({"parts": [{"n": 1}]}).parts[0].n == 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("x = 1\ndef f(:\n", 2, "not valid Python"),
        ("x = 1\n\nraise ValueError('no rates')\n", 3, "ValueError: no rates"),
        ("import sys\nsys.exit(1)\n", 2, "SystemExit"),
        ("import not_installed_anywhere\n", 1, "'not_installed_anywhere', which is not installed"),
        ("x = 1\n", None, "has no 'calculate'"),
    ],
)
def test_faults_in_python_are_told_with_their_line(
    project: Project, root: Path, text: str, line: int | None, words: str
) -> None:
    file = put(root / "cost.py", text)
    with pytest.raises(PythonLoadError, match=words) as raised:
        project.load_object(file, "calculate")
    assert (raised.value.path, raised.value.line) == (file, line)


def test_a_missing_name_gets_the_nearest_and_a_plain_neighbour_import_the_way_out(project: Project, root: Path) -> None:
    with pytest.raises(PythonLoadError) as raised:
        project.load_object(put(root / "a.py", "def calculate(): ...\n"), "calcuate")
    assert raised.value.hint == "Did you mean 'calculate'?"
    put(root / "my_rates.py")
    with pytest.raises(PythonLoadError) as raised:
        project.load_object(put(root / "b.py", "import my_rates\n"), "x")
    assert "from .my_rates import" in (raised.value.hint or "")
    with pytest.raises(PythonLoadError, match=r"there is no file c\.py"):
        project.load_object(root / "c.py", "x")


def test_S24_python_outside_of_the_project_is_not_executed(project: Project, root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path / "evil.py", f"open({str(tmp_path / 'done')!r}, 'w').close()\nx = 1\n")
    (root / "cost.py").symlink_to(outside)
    with pytest.raises(OutsideProject):
        project.load_object(root / "cost.py", "x")
    assert not (tmp_path / "done").exists()
