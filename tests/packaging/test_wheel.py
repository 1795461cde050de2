"""The distribution as others get it: built, installed into an environment of its own, used beside a user's packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELVES = ("steps", "templates", "artifacts")
pytestmark = pytest.mark.slow


def done(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A command without the developer's settings and without the checkout on its path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_", "PYTHON"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
        check=False,
    )


def good(*command: str | Path, cwd: Path, **env: str) -> str:
    ended = done(*command, cwd=cwd, **env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(source: Path, target: Path, kind: str) -> Path:
    """A wheel or sdist of a source tree, by the backend that pyproject names, without a network."""
    good(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    (made,) = [path for path in target.iterdir() if (path.suffix == ".whl") == (kind == "wheel")]
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dist")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    return build(ROOT, folder / "sdist", "sdist")


@pytest.fixture(scope="module")
def source(sdist: Path, folder: Path) -> Path:
    """The sdist, unpacked."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (root,) = (folder / "unpacked").iterdir()
    return root


@pytest.fixture(scope="module")
def wheel(source: Path, folder: Path) -> Path:
    """Built from the sdist, as an installer without a wheel does it."""
    return build(source, folder / "wheel", "wheel")


class Environment:
    """A fresh virtual environment that sees this one's dependencies, and not the package under development."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        good(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
        site = good(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder.parent)
        self.site = Path(site.strip())
        # Folders named in a .pth are searched last, and .pth files in them (of editable installs) are not followed.
        (self.site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def orch(self) -> Path:
        return self.folder / "bin" / "orch"

    def install(self, *what: str | Path) -> None:
        uv = shutil.which("uv", path=str(Path(sys.executable).parent))
        assert uv is not None, "`make test` puts uv beside python"
        options = ["--offline", "--no-deps", "--no-build-isolation", "--no-cache", "-q"]
        good(uv, "pip", "install", "--python", self.python, *options, *what, cwd=self.folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, folder: Path) -> Environment:
    environment = Environment(folder / "environment")
    environment.install(wheel)
    return environment


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder with packages and modules of the very names that our shelves have."""
    for name in SHELVES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"MINE = '{name}'\n", encoding="utf-8")
    for name in ("tools", "spec", "values", "testing", "examples"):
        (tmp_path / f"{name}.py").write_text(f"MINE = '{name}'\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def shipped() -> Iterator[Path]:
    """What the repository holds for the wheel: the package, the shelves, the demo's example."""
    for name in ("orchestrator", *SHELVES, "examples/discovery"):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and not {"__pycache__", ".orch", ".env"} & set(path.parts):
                yield path.relative_to(ROOT)


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_the_shelves_and_the_demo_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        path.as_posix() if path.parts[0] == "orchestrator" else f"orchestrator/_library/{path.as_posix()}"
        for path in shipped()
    }
    assert names == expected
    assert all(name.startswith("orchestrator/") for name in names)
    assert "orchestrator/py.typed" in names
    assert "orchestrator/explanations.md" in names
    assert "orchestrator/_library/examples/discovery/discovery.yaml" in names


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    metadata = message_from_bytes(archive.read(f"{info}/METADATA"))
    assert metadata["Name"] == "step-orchestrator"
    assert metadata["Requires-Python"] == ">=3.11"
    entries = archive.read(f"{info}/entry_points.txt").decode()
    assert "orch = orchestrator.cli:main" in entries
    assert "[pytest11]\norchestrator = orchestrator.testing" in entries


def test_the_sdist_holds_what_building_and_testing_need(source: Path, wheel: Path, folder: Path) -> None:
    for name in (
        "pyproject.toml", "README.md", "Makefile", "requirements.lock", "requirements-dev.lock", ".ci/run",
        "tests/packaging/test_wheel.py", "examples/discovery/discovery.yaml", *SHELVES,
    ):  # fmt: skip
        assert (source / name).exists(), name
    assert not [path for path in source.rglob("*") if path.name in (".venv", ".orch", "__pycache__", ".env")]
    direct = build(ROOT, folder / "direct", "wheel")
    assert zipfile.ZipFile(direct).namelist() == zipfile.ZipFile(wheel).namelist()


# --- installed --------------------------------------------------------------------------------------------------------


def test_a_users_packages_and_ours_do_not_meet(installed: Environment, user: Path) -> None:
    script = (
        "import steps, templates, artifacts, tools, spec, values, testing, examples, orchestrator, orchestrator.spec\n"
        "import orchestrator.tools\n"
        "print([m.MINE for m in (steps, templates, artifacts, tools, spec, values, testing, examples)])\n"
        "print(orchestrator.__file__)"
    )
    mine, ours = good(installed.python, "-c", script, cwd=user).splitlines()
    assert mine == str([*SHELVES, "tools", "spec", "values", "testing", "examples"])
    assert Path(ours).is_relative_to(installed.site)
    bare = done(installed.python, "-c", "import steps", cwd=user.parent)
    assert "ModuleNotFoundError" in bare.stderr


def test_init_and_a_run_beside_a_users_own_steps_package(
    installed: Environment, user: Path, data: dict[str, str]
) -> None:
    """In the very folder: the user's packages are also the project's shelves. PYTHONPATH makes them importable."""
    env = {**data, "PYTHONPATH": str(user)}
    good(installed.orch, "init", cwd=user, **env)
    pipeline = user / "pipelines" / "launch.yaml"
    text = pipeline.read_text(encoding="utf-8")
    pipeline.write_text(text + '\nx-shelf: "steps/, templates/ and artifacts/ are packages here"\n', encoding="utf-8")
    assert json.loads(good(installed.orch, "check", "--json", cwd=user, **env))["diagnostics"] == []
    ended = good(installed.orch, "run", "--input", "briefs/launch.json", "--json", cwd=user, **env)
    run: dict[str, Any] = json.loads(ended)["run"]
    assert run["status"] == "succeeded"
    assert {step["name"]: step["reasks"] for step in run["steps"]} == {"key-points": 0, "size": 0, "announcement": 1}
    assert "CSV" in good(installed.orch, "show", "last/announcement", cwd=user, **env)


def test_a_pipeline_uses_the_shipped_shelves(installed: Environment, user: Path, data: dict[str, str]) -> None:
    """Definition, template and contract come from inside the installed package."""
    (user / "orchestrator.toml").touch()
    (user / "study.yaml").write_text(STUDY, encoding="utf-8")
    (user / "answers").mkdir()
    (user / "answers" / "executive-summary.json").write_text('[{"text": "# A shop\\n\\nDo it."}]', encoding="utf-8")
    env = {**data, "ORCH_MODEL": "scripted:answers"}
    assert json.loads(good(installed.orch, "check", "--json", cwd=user, **env))["diagnostics"] == []
    good(installed.orch, "run", "--set", "idea=a shop", cwd=user, **env)
    found = json.loads(good(installed.orch, "show", "last/executive-summary", "--json", cwd=user, **env))["artifact"]
    assert found["value"] == "# A shop\n\nDo it."
    assert found["contract"] == "executive-summary"


def test_the_demo_runs_from_the_wheel(installed: Environment, tmp_path: Path, data: dict[str, str]) -> None:
    shown = good(installed.orch, "demo", "--yes", tmp_path / "demo", cwd=tmp_path, **data)
    assert "hand-written samples" in shown.splitlines()[0]
    assert "succeeded" in shown
    assert "11 of 11 steps" in shown
    assert (tmp_path / "demo" / ".orch" / "orch.db").exists()


def test_version_and_doctor_tell_the_installed_package(
    installed: Environment, tmp_path: Path, data: dict[str, str]
) -> None:
    assert good(installed.orch, "--version", cwd=tmp_path, **data) == "orch 0.1.0\n"
    doctor = json.loads(good(installed.orch, "doctor", "--json", cwd=tmp_path, **data))
    assert doctor["versions"]["step-orchestrator"] == "0.1.0"


def test_the_plugin_is_found_in_the_installed_package(
    installed: Environment, tmp_path: Path, data: dict[str, str]
) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(orch_project, orch_scripted):\n"
        "    import orchestrator\n"
        f"    assert orchestrator.__file__.startswith({str(installed.site)!r})\n"
        "    artifact = '{artifact: a, about: A., not_for: none, schema: text}'\n"
        "    files = {'p.yaml': 'pipeline: p\\nsteps: {a: {prompt: Do.}}', 'artifacts/a.yaml': artifact}\n"
        "    run = orch_project(files).run(model=orch_scripted({'a': [{'text': 'Done.'}]}))\n"
        "    assert run.value('a') == 'Done.'\n",
        encoding="utf-8",
    )
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:llmock"]
    assert "1 passed" in good(installed.python, "-m", "pytest", *options, cwd=tmp_path, **data)


STUDY = """\
pipeline: study
inputs:
  idea: {type: text, about: "What the customer wants."}
steps:
  executive-summary: {uses: executive-summary, reads: [idea]}
"""
TYPED = """\
from orchestrator import tool
from orchestrator.testing import OrchRun, assert_not_in_context


@tool(idempotent=True)
def rate(region: str) -> float:
    \"\"\"The weekly rate of a region.\"\"\"
    return 1.0


def look(run: OrchRun) -> str:
    assert_not_in_context(run, "997")
    return run.status
"""


def test_mypy_strict_reads_the_types_of_the_wheel(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TYPED, encoding="utf-8")
    (tmp_path / "bad.py").write_text(
        "from orchestrator.testing import OrchRun\n\n\ndef look(run: OrchRun) -> int:\n    return run.status\n",
        encoding="utf-8",
    )
    options: list[str | Path] = [
        "--strict",
        "--config-file=",
        "--python-executable",
        installed.python,
        "--cache-dir",
        tmp_path / "cache",
    ]
    ended = done(sys.executable, "-m", "mypy", *options, "good.py", "bad.py", cwd=tmp_path)
    assert ended.stdout.splitlines() == [
        'bad.py:5: error: Incompatible return value type (got "str", expected "int")  [return-value]',
        "Found 1 error in 1 file (checked 2 source files)",
    ], ended.stdout + ended.stderr


# --- editable ---------------------------------------------------------------------------------------------------------


def test_an_editable_install_follows_its_source(
    source: Path, folder: Path, tmp_path: Path, data: dict[str, str]
) -> None:
    environment = Environment(folder / "editable")
    environment.install("-e", source)
    where = "import orchestrator, orchestrator.project as p; print(orchestrator.__file__); print(p.library_root())"
    file, library = good(environment.python, "-c", where, cwd=tmp_path).splitlines()
    assert Path(file) == source / "orchestrator" / "__init__.py"
    assert Path(library) == source
    good(environment.orch, "init", "p", cwd=tmp_path, **data)
    good(environment.orch, "-C", "p", "run", "--input", "briefs/launch.json", cwd=tmp_path, **data)
    (source / "orchestrator" / "added.py").write_text("NEW = 1\n", encoding="utf-8")
    assert good(environment.python, "-c", "import orchestrator.added as a; print(a.NEW)", cwd=tmp_path) == "1\n"
