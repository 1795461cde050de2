"""Whole commands, as a user types them: in this process where that is enough, in one of their own where it is not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator.cli.app import COMMANDS, root
from orchestrator.cli.app import run as orch_run
from tests import process_kit

HEAVY = ("openai", "anthropic", "sqlalchemy", "sqlmodel", "pydantic", "jinja2", "yaml", "alembic", "rich", "jsonschema")


def orch(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own, without the developer's settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))}
    return process_kit.run(cwd or Path.cwd(), *arguments, env={**own, "ORCH_TRUST": "1", **(env or {})})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder and an environment without settings; -C may change the folder, and it is put back."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- the shell around the commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["nonsense"]])
def test_help_loads_no_sdk_no_database_and_no_models(arguments: list[str]) -> None:
    script = (
        "import sys; from orchestrator.cli.app import run\n"
        f"run({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    expected = "['rich']" if arguments == ["nonsense"] else "[]"
    assert done.stderr.splitlines()[-1] == expected


def test_help_is_quick() -> None:
    """Under 300 ms on an idle core; processor time is measured, so that a busy machine passes."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "orchestrator", "--help"], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    spent = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    assert spent < 0.3


def test_help_lists_exactly_the_commands_that_exist() -> None:
    shown = orch("--help").stdout
    for name in COMMANDS:
        assert f"\n  {name} " in shown
    for later in ("ui", "memory"):
        assert f"\n  {later} " not in shown


def test_each_help_text_is_the_first_line_of_its_command() -> None:
    group = root()
    context = click.Context(group)
    for name, entry in COMMANDS.items():
        command = group.get_command(context, name)
        assert command is not None
        assert (command.help or "").splitlines()[0] == entry.help
        assert command.name == name


def test_every_command_takes_the_shared_options() -> None:
    group = root()
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        names = {option for parameter in command.params for option in parameter.opts}
        assert {"-C", "--db", "--json", "--tenant", "--account", "--subject", "--trust"} <= names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rn"], 'Did you mean "run"?'),
        (["run", "--sessoin", "x"], "--session"),
        (["run", "a", "b"], "unexpected extra argument"),
        (["rerun"], "--from"),
        (["runs", "nothing"], "There are ls, cancel, tag, rm."),
        (["runs", "rm"], "missing argument"),
        (["-C", "nowhere", "check"], "-C nowhere: no such file or directory"),
    ],
)
def test_a_wrong_command_line_is_one_error_with_code_2(
    arguments: list[str], says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch_run(arguments) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("error: ")
    assert says in seen.err
    assert seen.err.count("error: ") == 1
    assert orch_run([*arguments, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert set(document["error"]) == {"code", "message", "file", "line", "column", "hint"}


def test_a_wrong_option_leads_to_the_help_of_its_own_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for own, wrong in (("cost", ["--by"]), ("cost", ["--by", "hour"]), ("runs ls", ["--limit"])):
        assert orch_run([*own.split(), *wrong]) == 2
        assert f"hint: orch {own} --help shows what it takes." in capsys.readouterr().err


def test_json_works_before_and_after_the_name_of_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--json", "doctor"], ["doctor", "--json"]):
        assert orch_run(arguments) == 0
        assert json.loads(capsys.readouterr().out)["schema"] == "orch.doctor/1"


def test_outside_a_project_the_way_in_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check"], ["run"], ["show"], ["runs"]):
        assert orch_run(command) == 3
        assert "orch init" in capsys.readouterr().err


def test_a_bug_is_code_70_with_its_traceback_and_a_document(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import orchestrator.project

    def broken(start: Path) -> None:
        raise RuntimeError("what \x1b[2J now")

    monkeypatch.setattr(orchestrator.project, "find_project", broken)
    assert orch_run(["check", "--json"]) == 70
    seen = capsys.readouterr()
    assert json.loads(seen.out)["error"]["code"] == "bug"
    assert "Traceback" in seen.err
    assert "\x1b" not in seen.err
    assert seen.err.splitlines()[-1].startswith("error: this is a bug in orch, sorry")


def test_a_reader_that_leaves_early_ends_the_command_quietly(here: Path) -> None:
    command = f"{sys.executable} -m orchestrator --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


# --- init and check ---------------------------------------------------------------------------------------------------


@pytest.fixture
def project(here: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A fresh project from `orch init`, and the current folder."""
    assert orch_run(["init", "my project"]) == 0
    capsys.readouterr()
    os.chdir("my project")
    return here / "my project"


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """The document a command prints with `--json`, which must be all that stands on stdout."""
    seen = orch_run([*arguments, "--json"])
    out = capsys.readouterr()
    assert seen == code, out.err
    assert out.out.isascii()
    loaded: dict[str, Any] = json.loads(out.out)
    return loaded


def test_init_makes_a_project_that_passes_check_and_says_what_to_type(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch_run(["init", "my project"]) == 0
    out = capsys.readouterr().out
    assert "orch -C 'my project' run --input briefs/launch.json" in out
    made = {str(path.relative_to(here / "my project")) for path in (here / "my project").rglob("*") if path.is_file()}
    assert {"orchestrator.toml", ".gitignore", "README.md", "pipelines/launch.yaml"} <= made
    assert {name.split("/")[0] for name in made} >= {"steps", "templates", "artifacts", "sample_answers"}
    checked = document(capsys, "-C", "my project", "check")
    assert checked["pipelines"][0]["name"] == "launch"
    assert checked["diagnostics"] == []


def test_init_never_overwrites(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p").mkdir()
    (here / "p" / "README.md").write_text("mine", encoding="utf-8")
    assert orch_run(["init", "p"]) == 2
    assert "README.md" in capsys.readouterr().err
    assert [path.name for path in (here / "p").iterdir()] == ["README.md"]
    (here / "file").touch()
    assert orch_run(["init", "file"]) == 2


def test_check_tells_every_fault_of_every_file_in_one_pass(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = project / "pipelines" / "launch.yaml"
    text = pipeline.read_text(encoding="utf-8")
    pipeline.write_text(
        text.replace("reads: [key-points]", "reads: [key-pionts]").replace("template: announ", "template: anoun"),
        encoding="utf-8",
    )
    contract = project / "artifacts" / "size.yaml"
    contract.write_text(contract.read_text(encoding="utf-8").replace("not_for:", "not_four:"), encoding="utf-8")
    assert orch_run(["check"]) == 3
    err = capsys.readouterr().err
    assert "pipelines/launch.yaml:" in err
    assert "artifacts/size.yaml:" in err
    assert "key-points" in err
    assert "^" in err
    found = document(capsys, "check", code=3)
    assert found["error"]["line"] > 0
    assert {one["file"] for one in found["diagnostics"]} == {"pipelines/launch.yaml", "artifacts/size.yaml"}
    assert len([one for one in found["diagnostics"] if one["level"] == "error"]) >= 3


# --- run and what follows ---------------------------------------------------------------------------------------------


BRIEF = ["--input", "briefs/launch.json"]


def test_a_new_project_runs_and_each_command_tells_of_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = document(capsys, "plan", *BRIEF)
    assert [step["action"] for step in planned["steps"]] == ["run", "run", "run"]
    assert planned["hosts"] == []

    done = document(capsys, "run", *BRIEF)["run"]
    assert done["status"] == "succeeded"
    assert done["number"] == 1
    assert done["inputs"]["most-words"] == 90
    steps = {step["name"]: step for step in done["steps"]}
    assert steps["announcement"]["calls"] == 2
    assert steps["announcement"]["reasks"] == 1
    assert steps["size"]["calls"] == 0

    assert document(capsys, "show")["run"] == done
    assert [run["number"] for run in document(capsys, "runs", "ls")["runs"]] == [1]

    points = document(capsys, "show", "last/key-points")["artifact"]
    assert points["value"]["headline"] == "Export your invoices as CSV"
    assert points["not_for"] == ["Open questions are not promises and not features."]
    assert set(points["read_by"]) == {"size", "announcement"}

    why = document(capsys, "why", "1/announcement", "--text")
    calls = why["threads"][0]["calls"]
    assert [call["source"] for call in calls] == ["NEXT_STEP", "REASK"]
    assert calls[0]["previous_response_id"] is None
    assert calls[1]["previous_response_id"] == calls[0]["response_id"]
    read = next(block for block in why["blocks"] if block["source"] == "key-points")
    assert read["guards"] == ["Open questions are not promises and not features."]
    assert read["used"]
    assert "at most 90 words" in why["text"]
    assert "at most 90 are wanted" in why["text"].split("call 2")[1]


def test_run_tells_its_steps_on_stdout_and_with_json_on_stderr(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch_run(["run", *BRIEF]) == 0
    plain = capsys.readouterr().out
    assert "✓ announcement" in plain
    assert "re-asked: " in plain
    assert "orch show 1/announcement" in plain
    assert orch_run(["run", *BRIEF, "--json"]) == 0
    seen = capsys.readouterr()
    json.loads(seen.out)
    assert "✓ announcement" in seen.err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a list"),
        ('{"note": "x"}', "notes"),
        ('{"notes": "x", "most-words": "many"}', "most-words"),
        ('{"most-words": 5}', "notes"),
        ('{"notes": 5}', "notes"),
        ('{"notes": "x", "notes": "y"}', "twice"),
    ],
)
def test_bad_input_is_one_error_with_code_2_and_no_run(
    given: str, says: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "in.json").write_text(given, encoding="utf-8")
    assert orch_run(["run", "--input", "in.json"]) == 2
    seen = capsys.readouterr()
    assert says in seen.err
    assert seen.err.count("error: ") == 1
    assert "Traceback" not in seen.err
    assert document(capsys, "runs")["runs"] == []
    assert document(capsys, "run", "--input", "in.json", code=2)["error"]["message"]


@pytest.mark.parametrize("name", ["none.json", "briefs", "-"])
def test_an_input_that_cannot_be_read_is_code_2(
    name: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    class Stdin:
        buffer = io.BytesIO(b"\xff\xfe")

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert orch_run(["run", "--input", name]) == 2
    assert document(capsys, "runs")["runs"] == [] if capsys.readouterr().err else False


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "lunch", *BRIEF],
        ["show", "1/annoucement"],
        ["show", "99"],
        ["show", "1/announcement@9"],
        ["why", "1/notes"],
        ["why", "1/nothing"],
        ["why", "1"],
        ["render", "1/nothing"],
        ["render", "announcement"],
        ["render", "1/size"],
        ["rerun", "1", "--from", "anouncement"],
        ["edit", "1/announcement@1"],
        ["edit", "1/key-points", "--set", "headlin=x"],
        ["edit", "1/size", "--set", "points=many"],
        ["resume", "99"],
        ["plan", "1", *BRIEF],
        ["run", "--cap", "lots", *BRIEF],
        ["resume", "1", "--tool", "x"],
        ["resume", "1", "--settle", "a=b"],
    ],
)
def test_an_unknown_name_or_a_wrong_value_is_code_2(
    arguments: Sequence[str], finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch_run(arguments) == 2
    seen = capsys.readouterr()
    assert seen.err.count("error: ") == 1
    assert "Traceback" not in seen.err


@pytest.fixture
def finished(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The project after one run."""
    assert orch_run(["run", *BRIEF]) == 0
    capsys.readouterr()
    return project


def test_an_edit_makes_a_version_and_names_what_became_stale(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = document(capsys, "edit", "1/key-points", "--set", "headline=CSV at last")
    assert new["artifact"]["version"] == 2
    assert new["artifact"]["origin"] == "person"
    assert new["artifact"]["parent"] == 1
    assert new["artifact"]["value"]["headline"] == "CSV at last"
    assert {one["step"] for one in new["stale"]} == {"size", "announcement"}
    assert all("key-points v1→v2" in reason for one in new["stale"] for reason in one["reasons"])

    shown = document(capsys, "show", "1")["run"]
    assert {step["name"]: step["stale"] for step in shown["steps"]} == {
        "key-points": False,
        "size": True,
        "announcement": True,
    }
    planned = document(capsys, "plan", "1")
    assert {step["name"]: step["action"] for step in planned["steps"]}["size"] == "run"
    assert document(capsys, "show", "1/key-points@1")["artifact"]["value"]["headline"] == "Export your invoices as CSV"


def test_R017_the_rendered_request_holds_the_edit_and_not_the_old_text(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch_run(["edit", "1/key-points", "--set", "headline=CSV at last"]) == 0
    capsys.readouterr()
    rendered = document(capsys, "render", "1/announcement")
    assert "CSV at last" in rendered["user"]
    assert "Export your invoices as CSV" not in rendered["user"]
    assert "CSV at last" in rendered["wire"]


def test_render_needs_no_run_where_a_step_reads_inputs_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rendered = document(capsys, "render", "launch/key-points", *BRIEF)
    assert "Release 4.2" in rendered["user"]
    assert orch_run(["render", "launch/key-points", *BRIEF]) == 0
    assert "Release 4.2" in capsys.readouterr().out
    assert orch_run(["render", "launch/announcement", *BRIEF]) == 2


def test_an_unchanged_edit_makes_no_version(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S29"""
    assert orch_run(["edit", "1/key-points", "--set", "headline=Export your invoices as CSV"]) == 0
    assert "unchanged: still v1" in capsys.readouterr().out
    assert document(capsys, "show", "1/key-points")["artifact"]["version"] == 1


def test_an_edit_from_a_file(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / "new.md").write_text("# Short\n\nCSV is here.\n", encoding="utf-8")
    new = document(capsys, "edit", "last/announcement", "--file", "new.md")
    assert new["artifact"]["value"].startswith("# Short")
    assert new["stale"] == []


def editor(folder: Path, body: str) -> str:
    """An $EDITOR that does what `body` says with the file `path`."""
    script = folder / "an editor.py"
    script.write_text(f"import pathlib, sys\npath = pathlib.Path(sys.argv[-1])\n{body}\n", encoding="utf-8")
    return f"'{sys.executable}' '{script}' --wait"


def test_S29_the_editor_gets_a_private_file_and_no_shell(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = finished / "seen.txt"
    body = (
        f"pathlib.Path({str(seen)!r}).write_text(oct(path.stat().st_mode) + oct(path.parent.stat().st_mode))\n"
        "assert sys.argv[1] == '--wait'\n"
        "path.write_text(path.read_text().replace('Export your invoices as CSV', 'CSV at last'))"
    )
    monkeypatch.setenv("EDITOR", editor(finished, body) + " '; touch pwned'")
    assert orch_run(["edit", "1/key-points"]) == 0
    assert "v1 → v2" in capsys.readouterr().out
    assert seen.read_text(encoding="utf-8") == "0o1006000o40700"
    assert not (finished / "pwned").exists()
    assert list((finished / ".orch" / "edits").iterdir()) == []


def test_S29_the_text_of_a_refused_edit_is_kept_and_can_be_used(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor(finished, "path.write_text('{\"headline\": 7}')"))
    assert orch_run(["edit", "1/key-points"]) == 2
    err = capsys.readouterr().err
    [kept] = (finished / ".orch" / "edits").iterdir()
    assert str(kept) in err
    assert kept.read_text(encoding="utf-8") == '{"headline": 7}'
    assert kept.stat().st_mode & 0o777 == 0o600
    assert document(capsys, "show", "1/key-points")["artifact"]["version"] == 1


def test_an_editor_that_fails_changes_nothing(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor(finished, "sys.exit(3)"))
    assert orch_run(["edit", "1/key-points"]) == 2
    assert "ended with 3" in capsys.readouterr().err
    assert list((finished / ".orch" / "edits").iterdir()) == []
    monkeypatch.delenv("EDITOR")
    monkeypatch.delenv("VISUAL", raising=False)
    assert orch_run(["edit", "1/key-points"]) == 2
    assert "--set" in capsys.readouterr().err


def test_R020_a_rerun_is_a_child_that_shares_what_is_above(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = document(capsys, "rerun", "1", "--from", "announcement")["run"]
    assert child["number"] == 2
    assert child["parent"] == 1
    steps = {step["name"]: step for step in child["steps"]}
    assert steps["key-points"]["calls"] == 0
    assert steps["announcement"]["calls"] == 2
    shared = document(capsys, "why", "2/key-points")
    assert shared["threads"][0]["calls"][0]["source"] == "NEXT_STEP"


def test_a_failed_run_prints_its_document_and_resume_goes_on(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = project / "sample_answers" / "announcement.json"
    good = answers.read_text(encoding="utf-8")
    answers.unlink()
    failed = document(capsys, "run", *BRIEF, code=6)["run"]
    assert failed["status"] == "failed"
    steps = {step["name"]: step for step in failed["steps"]}
    assert steps["size"]["status"] == "succeeded"
    assert "announcement" in steps["announcement"]["error"]["message"]
    answers.write_text(good, encoding="utf-8")
    resumed = document(capsys, "resume")["run"]
    assert resumed["number"] == 1
    assert resumed["status"] == "succeeded"
    assert {s["name"]: s["calls"] for s in resumed["steps"]}["key-points"] == 1


# --- models, keys and money -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["run"], ["plan"], ["run", "--json"]])
def test_without_a_model_nothing_runs_and_the_way_out_is_told(
    command: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".env").unlink()
    assert orch_run([*command, *BRIEF]) == 3
    assert "ORCH_MODEL" in capsys.readouterr().err
    assert orch_run(["check"]) == 0


def test_without_a_key_nothing_runs_and_the_variable_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_MODEL", "openai:some-model")
    assert orch_run(["run", *BRIEF, "--yes"]) == 3
    err = capsys.readouterr().err
    assert "OPENAI_API_KEY" in err
    assert "Traceback" not in err
    assert document(capsys, "runs")["runs"] == []


def on_a_terminal(project: Path, typed: bytes | None, *arguments: str) -> tuple[int, str]:
    """A command on a pseudo-terminal, where someone types (None: presses Ctrl-C). Returns exit code and screen."""
    import pty
    import select
    import signal

    own = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "OPENAI_"))}
    # A host that nothing can reach: the question comes before anything is sent.
    env = {
        **own,
        "ORCH_MODEL": "openai:m",
        "OPENAI_API_KEY": "sk-x-0123456789",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    }
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=project,
        env=env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    shown, pressed = b"", 0.0
    while True:  # until it has ended: pytest's own limit is the only one
        ended = process.poll() is not None
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            shown += os.read(master, 4096)
        elif ended:
            break
        if b"Go on?" in shown and typed is not None and not pressed:
            pressed = time.monotonic()
            os.write(master, typed)
        elif b"Go on?" in shown and typed is None and not ended and time.monotonic() - pressed > 3:
            # As a person would, and once more where nothing happens: who presses before readline waits is not heard.
            pressed = time.monotonic()
            process.send_signal(signal.SIGINT)
    os.close(slave)
    os.close(master)
    return process.wait(timeout=60), shown.decode()


@pytest.mark.slow
@pytest.mark.parametrize("typed", [b"n\n", None])
def test_before_a_paid_call_host_price_and_cap_are_shown_and_no_is_an_answer(
    typed: bytes | None, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = on_a_terminal(project, typed, "run", *BRIEF)
    assert code == 130
    assert "sends to 127.0.0.1:9 · price unknown · cap $0.50" in shown
    assert "Go on?" in shown
    assert "Traceback" not in shown
    assert document(capsys, "runs")["runs"] == []


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_S29_doctor_tells_origins_and_never_a_secret(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:pass-canary@models.example:8443/v1?token=t")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary-0123456789")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://me:pass-canary@claude.example/messages?token=t")
    assert orch_run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "canary" not in out
    found = document(capsys, "doctor")
    assert "canary" not in json.dumps(found)
    settings = {row["name"]: row for row in found["settings"]}
    assert settings["OPENAI_API_KEY"] == {
        "name": "OPENAI_API_KEY",
        "value": "set",
        "origin": "environment",
        "secret": True,
    }
    assert settings["ORCH_MODEL"]["value"] == "scripted:sample_answers"
    assert settings["ORCH_MODEL"]["origin"] == ".env"
    assert settings["ANTHROPIC_API_KEY"]["value"] == "set"
    assert settings["providers.anthropic.base_url"]["value"] == "https://claude.example/messages"
    assert found["hosts"] == ["claude.example", "models.example:8443"]
    assert found["database"] == {
        "url": f"sqlite:///{project.resolve()}/.orch/orch.db",
        "exists": False,
        "problems": [],
    }
    assert not (project / ".orch" / "orch.db").exists()


def test_doctor_works_outside_of_a_project(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(capsys, "doctor")["project"] is None


def test_a_file_that_is_no_database_is_code_8(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "notes.db").write_text("not a database, " * 100, encoding="utf-8")
    for command in (["runs"], ["doctor"], ["run", *BRIEF]):
        assert orch_run([*command, "--db", "sqlite:///notes.db"]) == 8
    assert (project / "notes.db").read_text(encoding="utf-8") == "not a database, " * 100


# --- demo -------------------------------------------------------------------------------------------------------------


def test_the_demo_runs_without_a_key_and_touches_nothing_of_the_user(here: Path) -> None:
    folder = here / "try it"
    done = orch(
        "demo", str(folder), "--yes", cwd=here, env={"ORCH_MODEL": "openai:never", "ORCH_DB": "sqlite:///no.db"}
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "hand-written" in lines[0]
    assert "no model is called" in lines[0]
    assert done.stdout.count("✓") == 11
    assert "re-asked: " in done.stdout
    assert "✓ review  approved by --yes" in done.stdout
    assert "executive-summary" in done.stdout
    assert f"orch -C '{folder}' why last/tech-stack" in done.stdout
    assert sorted(path.name for path in here.iterdir() if path.name != "config") == ["try it"]
    shown = orch("-C", str(folder), "show", "last", "--json", cwd=here)
    assert json.loads(shown.stdout)["run"]["status"] == "succeeded"


def test_the_demo_stops_at_the_gate_and_the_commands_it_prints_go_on(here: Path) -> None:
    """As a run of one's own does: it ends with code 4, and each command under `next:` can be pasted."""
    done = orch("demo", "d", cwd=here)
    assert done.returncode == 4, done.stderr
    assert "‖ review  waits for you: " in done.stdout
    assert done.stdout.count("✓") == 5
    _, _, printed = done.stdout.partition("next:\n")
    look, approve, reject, inbox = (shlex.split(line)[1:] for line in printed.splitlines())
    assert "competitive-analysis@1" in orch(*look, cwd=here).stdout
    assert orch(*approve, cwd=here).returncode == 2, "nobody can be shown anything here"
    rejected = orch(*reject, cwd=here)
    assert rejected.returncode == 4
    assert "✓ competitive-analysis  1 call" in rejected.stdout
    again = orch(*look, cwd=here).stdout
    assert "competitive-analysis@2" in again
    assert "call-back queue" in again
    (digest,) = re.findall(r"--at ([0-9a-f]+)", orch(*inbox, cwd=here).stdout)
    approved = orch(*approve, "--at", digest, cwd=here)
    assert approved.returncode == 0, approved.stderr
    assert "succeeded · 11 of 11 steps" in approved.stdout


def test_the_demo_does_not_write_into_a_folder_that_holds_something(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "full").mkdir()
    (here / "full" / "mine.txt").touch()
    assert orch_run(["demo", "full"]) == 2
    assert [path.name for path in (here / "full").iterdir()] == ["mine.txt"]


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_pauses_the_run_and_resume_goes_on(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import signal

    (project / "counting.py").write_text(
        "import asyncio, pathlib\n\n\n"
        "async def count(key_points: dict) -> dict:\n"
        "    if not pathlib.Path('go').exists():\n"
        "        pathlib.Path('waiting').touch()\n"
        "        await asyncio.sleep(60)\n"
        "    return {'points': 1, 'open_questions': 0}\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "run", *BRIEF, "--json"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (project / "waiting").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run 1 is paused: orch resume 1" in err
    assert "Traceback" not in err
    assert json.loads(out)["run"]["status"] == "paused"
    (project / "go").touch()
    assert document(capsys, "resume", "1")["run"]["status"] == "succeeded"
