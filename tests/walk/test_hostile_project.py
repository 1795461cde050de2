"""Files of a project with anything in them (S25, S27): each fault is told at its place, and none is a bug of ours."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bodies import asking
from orchestrator.cli.app import run as orch
from tests.walk.wrong import BRIEF, starter

FILES = ["pipelines/launch.yaml", "steps/key-points.yaml", "artifacts/key-points.yaml", "artifacts/size.yaml"]
FILES += ["templates/announcement.md.j2", "orchestrator.toml"]
VALUES = [
    "null",
    "[]",
    "{}",
    "{a: {b: c}}",
    "-1",
    "1e3",
    "true",
    "''",
    '"\\0"',
    '"\\u202e\\x1b[2J"',
    "*a",
    "&a x",
    "!!x 1",
]
VALUES += [
    "../../etc/passwd",
    "/dev/zero",
    "/dev/stdin",
    "a.py:",
    "a.py:x:y",
    ":",
    "..",
    "{{ x }}",
    "${env:HOME}",
    "${env:",
]
VALUES += [
    "{$ref: '#'}",
    "{$ref: 'http://x/'}",
    "{properties: {a: true}}",
    "{allOf: [false]}",
    "{type: nope}",
    "{pattern: '('}",
]
VALUES += ["1e999", "inf", "NaN", "99999999999999h", "9" * 100, "\U00100000", "none", "launch", "key-points", "A b"]
VALUES += [
    "{anyOf: [{$ref: '#'}]}",
    "{$defs: {a: {$ref: '#/$defs/a'}}}",
    "{enum: []}",
    "{multipleOf: 0}",
    "{required: x}",
]
CHARS = [
    "\x00",
    "\x1b",
    "\u202e",
    "\x85",
    "\u2028",
    ":",
    "'",
    '"',
    "#",
    "{",
    "[",
    "*",
    "&",
    "!",
    "%",
    "\t",
    "|",
    "{{",
    "{%",
]
LINES = [
    "uses: key-points",
    "reads: [notes]",
    "gate: {ask: x}",
    "for_each: {in: x}",
    "when: 'x'",
    "default: 5",
    "checks: [5]",
]
LINES += [
    "checks: [{expr: '9**9**9'}]",
    "conversation: {messages: -1}",
    "budget: {usd: 1e999}",
    "max_tokens: -1",
    "version: 2",
]

value = st.tuples(st.just("value"), st.integers(0, 200), st.sampled_from(VALUES))
char = st.tuples(st.just("char"), st.integers(0, 5000), st.sampled_from(CHARS))
line = st.tuples(
    st.just("line"), st.integers(0, 200), st.builds(lambda n, t: " " * n + t, st.integers(0, 8), st.sampled_from(LINES))
)
other = st.tuples(st.sampled_from(["twice", "gone", "deeper"]), st.integers(0, 200), st.just(""))


def _changed(text: str, kind: str, at: int, new: str) -> str:
    if kind == "char":
        return text[: at % (len(text) + 1)] + new + text[at % (len(text) + 1) :]
    lines = text.split("\n")
    at %= len(lines)
    match kind:
        case "value":
            lines[at] = lines[at].partition(":")[0] + ": " + new
        case "line":
            lines.insert(at, new)
        case "twice":
            lines.insert(at, lines[at])
        case "gone":
            del lines[at]
        case _:
            lines[at] = "  " + lines[at]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder, before = tmp_path_factory.mktemp("hostile"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("ORCH_TRUST", "1")
        os.chdir(folder)
        with contextlib.redirect_stdout(io.StringIO()):
            assert orch(["init", "project"]) == 0
        os.chdir(folder / "project")
        yield folder / "project"
        os.chdir(before)


ENDLESS = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3


def test_S22_a_template_that_never_ends_fails_its_step_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its siblings finish, looking at it ends too, and no thread goes on with it."""
    desk = starter(tmp_path, capsys, monkeypatch)
    monkeypatch.setattr(asking, "RENDER_SECONDS", 0.3)
    desk.change("templates/announcement.md.j2", "", ENDLESS)
    before = set(threading.enumerate())
    assert desk.orch("check")[0] == 0, "looking at a template renders nothing"
    step, shown = desk.failed(1, "run", *BRIEF)
    assert step["error"]["code"] == "render_timeout"
    assert step["calls"] == 0
    assert shown.count("✓") == 2
    error, _ = desk.refused(1, "render", "1/announcement")
    assert (error["code"], error["file"]) == ("render_timeout", "templates/announcement.md.j2")
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name == "orch-function"]
    for thread in left:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in left)


NAME = "x\x1b[2J\x1b]8;;http:\x07\x9b\u202e\u2066\u2028\x85\r'\"y"
COMMANDS = [
    ("run", "--input", "briefs/launch.json", "--session", NAME, "-m", NAME),
    ("edit", "1/key-points", "--set", f"headline={NAME}"),
    *[("show", "1"), ("why", "1/announcement"), ("history", "1/key-points"), ("doctor",), ("trust",), ("check",)],
    *[("export", "1", "--to", NAME), ("db", "backup", f"{NAME}.bak"), ("show", f"1/{NAME}"), ("run", "--input", NAME)],
    *[("-C", NAME, "runs"), ("--db", f"sqlite:///{NAME}", "runs"), ("rerun", "1", "--from", NAME), (NAME,)],
]


def test_S27_a_folder_and_a_user_of_any_name_move_no_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command, in a folder whose name is an attack, by a user whose name is one, on names that are one."""
    for variable in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(variable)
    for variable in ("USER", "LOGNAME"):
        monkeypatch.setenv(variable, NAME)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / NAME))
    monkeypatch.setenv("ORCH_TRUST", "1")
    (tmp_path / NAME).mkdir()
    monkeypatch.chdir(tmp_path / NAME)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert orch(["init", NAME]) == 0
        os.chdir(NAME)
        codes = [orch(command) for command in COMMANDS]
    assert codes[:10] == [0] * 10, ascii(said.getvalue())
    assert set(codes[10:]) <= {0, 2}
    assert not set(said.getvalue()) & (set(NAME) - set("x[2J]8;http:'\"y")), ascii(said.getvalue())
    assert said.getvalue().count("\\x1b[2J") > 20


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FILES), st.lists(value | char | line | other, min_size=1, max_size=3))
def test_S25_S27_a_file_with_anything_in_it_is_told_of_and_is_no_bug(
    project: Path, name: str, changes: list[tuple[str, int, str]]
) -> None:
    file = project / name
    original = text = file.read_text(encoding="utf-8")
    for kind, at, new in changes:
        text = _changed(text, kind, at, new)
    out, err = io.StringIO(), io.StringIO()
    file.write_text(text, encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = orch(["check"])
    finally:
        file.write_text(original, encoding="utf-8")
    said = out.getvalue() + err.getvalue()
    assert code in (0, 3), said
    assert (code == 3) == ("error" in err.getvalue())
    assert "Traceback" not in said
    assert not set(said) & {"\x00", "\x1b", "\x85", "\u202e", "\u2028"}
