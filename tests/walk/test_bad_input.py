"""Everything an author or a user can write wrong, typed as they would type it: one clear error, the right exit code,
nothing half-written. The model and the wire are in test_bad_answers, signals and locks in test_interrupted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.walk.wrong import BRIEF, Desk, starter

PIPELINE, SIZE, TEMPLATE = "pipelines/launch.yaml", "artifacts/size.yaml", "templates/announcement.md.j2"
GUARD = 'guard: "These counts are for planning. They are not news."'
NOT_FOR = '- "Not a measure of the release\'s quality."'
SIZE_STEP = "  size:\n    description"


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return starter(tmp_path, capsys, monkeypatch)


def position(text: str, mark: str) -> tuple[int, int]:
    """Line and column of a piece of text, as an editor counts."""
    before = text[: text.index(mark)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


# --- authoring --------------------------------------------------------------------------------------------------------

# file, what stands there, what is written instead, the code, where it must point ("" = the whole file), what it says
AUTHORING = [
    (PIPELINE, "reads: [key-points]", "reads: [key-points", "P006", "[key-points", "not closed"),
    (PIPELINE, SIZE_STEP, "  size:\n\tdescription", "P007", "\tdescription", "a tab"),
    (PIPELINE, "outputs: [", "outputs: [size]\noutputs: [", "P008", "outputs: [announcement]", "a second time"),
    (PIPELINE, GUARD, "guard: Not issue #5 and not news", "P015", "Not issue", "5 and not news"),
    (PIPELINE, f"- read: size\n        {GUARD}", "- {read: size, guard: plan, not news}", "P016", "plan,", "not news"),
    (PIPELINE, GUARD, "guard: Note: not news", "P017", "Note:", "a mapping"),
    (PIPELINE, GUARD, 'guard: ""', "P103", '""', "empty"),
    (SIZE, NOT_FOR, "- Not a measure: of quality", "P017", "Not a measure:", "a mapping"),
    (SIZE, NOT_FOR, "- Not a measure #1", "P015", "Not a measure #", "1"),
    (SIZE, "about:", "x-about:", "P104", "artifact: size", "'about' is missing"),
    (SIZE, "points: {type: integer}", "points: {type: integre}", "P232", "type: object", "integre"),
    (PIPELINE, "reads: [key-points]", "reads: [key-pionts]", "P201", "key-pionts", "Did you mean 'key-points'?"),
    (PIPELINE, "- read: size\n", "- read: size\n        fields: [point]\n", "P205", "point]", "'points'?"),
    (PIPELINE, "reads: [key-points]", "reads: [key-points, size]", "P203", "size]", "reads itself"),
    (PIPELINE, "outputs: [announcement]", "outputs: [announcment]", "P201", "announcment", "'announcement'?"),
    (PIPELINE, "outputs:", "outptus:", "P101", "outptus:", "Did you mean 'outputs'?"),
    (PIPELINE, "template: ann", "template: an", "P211", "anouncement.md", "Did you mean 'announcement.md.j2'?"),
    (TEMPLATE, "", "{% if x %}", "P212", "", "endif"),
    (TEMPLATE, "", "{{ inputs.notes }}", "P213", "", "does not read"),
    (TEMPLATE, "", "{{ size }}", "P215", "", "block('size')"),
    (PIPELINE, "counting.py:count", "counting.py:cuont", "P223", '"../counting.py:cuont', "Did you mean 'count'?"),
    (PIPELINE, "../counting.py", "../cuonting.py", "P222", '"../cuonting.py', "there is no file '../cuonting.py'"),
    (PIPELINE, "../counting.py", "../../elsewhere.py", "P222", '"../../else', "leads out of the project"),
    (PIPELINE, "template: announ", "model: cheap\n    template: announ", "P240", "cheap", "There is: default."),
    (PIPELINE, "version: 1\n", "version: 1\x00\n", "P003", "\x00", "U+0000"),
]


@pytest.mark.parametrize(("file", "old", "new", "code", "at", "says"), AUTHORING)
def test_an_authoring_fault_is_told_once_at_its_place_and_nothing_is_made(
    file: str, old: str, new: str, code: str, at: str, says: str, desk: Desk
) -> None:
    text = desk.change(file, old, new)
    error, err = desk.refused(3, "check")
    line, column = position(text, at) if at else (1, None)
    assert (error["code"], error["file"], error["line"], error["column"]) == (code, file, line, column)
    assert says in err
    assert err.count("error[") == 1, "one mistake, one error: no follow-up faults"
    found = [one["code"] for one in desk.document("check", code=3)["diagnostics"] if one["level"] == "error"]
    assert found == [code]
    desk.refused(3, "run", *BRIEF)
    assert not (desk.root / ".orch" / "orch.db").exists()


def test_a_cycle_names_the_way_around(desk: Desk) -> None:
    desk.change(PIPELINE, "reads: [key-points]", "reads: [key-points, announcement]")
    desk.change("counting.py", "def count(", "def count(announcement, ")
    error, err = desk.refused(3, "check")
    assert error["code"] == "P203"
    assert "size → announcement → size" in err


def test_a_required_customer_fact_that_nothing_supplies_fails_the_check(desk: Desk) -> None:
    desk.change(SIZE, "required: [points,", "required: [budget, points,")
    desk.change(SIZE, "    points:", '    budget: {type: string, "fact_of": customer}\n    points:')
    error, err = desk.refused(3, "check")
    assert error["code"] == "P236"
    assert "budget is a required fact about the customer" in err
    assert "let it be null" in err
    desk.change(SIZE, "budget: {type: string,", "budget: {type: [string, 'null'],")
    assert desk.orch("check")[0] == 0


@pytest.mark.parametrize(
    ("body", "code"), [("", "P004"), ("# nothing\n", "P004"), ("- a\n", "P005"), ("version: 1\n", "P102")]
)
def test_a_file_in_pipelines_that_is_none_says_what_is_wrong_with_it(body: str, code: str, desk: Desk) -> None:
    desk.write(PIPELINE, body)
    assert desk.refused(3, "check")[0]["code"] == code
    assert desk.refused(3, "run", *BRIEF)[0]["file"] == PIPELINE


def test_a_file_of_another_encoding_or_size_says_so(desk: Desk) -> None:
    text = (desk.root / PIPELINE).read_text(encoding="utf-8")
    (desk.root / PIPELINE).write_bytes(text.encode("utf-16"))
    assert desk.refused(3, "check")[0]["code"] == "P003"
    desk.write(PIPELINE, "#" * 1_000_000 + "\n" + text)
    assert desk.refused(3, "check")[0]["code"] == "P002"
    bomb = "".join(f"x-{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdef", "bcdefg", strict=True))
    desk.write(PIPELINE, f"x-a: &a [1]\n{bomb}{text}")
    assert desk.refused(3, "check")[0]["code"] == "P012"
    desk.write(PIPELINE, f"x-a: {'[' * 500}{']' * 500}\n{text}")
    assert desk.refused(3, "check")[0]["code"] == "P012"


def test_two_pipelines_of_one_name_are_told_with_both_files(desk: Desk) -> None:
    desk.write("pipelines/second.yaml", (desk.root / PIPELINE).read_text(encoding="utf-8"))
    error, _ = desk.refused(3, "check")
    assert (error["code"], error["file"]) == ("P113", "pipelines/second.yaml")
    for arguments in (["run"], ["run", "launch"]):
        assert f"{PIPELINE} and pipelines/second.yaml" in desk.refused(2, *arguments, *BRIEF)[1]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("def count(:\n", "counting.py:1: counting.py is not valid Python"),
        ("import nonesuch\n", "counting.py imports 'nonesuch', which is not installed"),
        ("import sys\nsys.exit(0)\n", "counting.py:2: counting.py fails when it is loaded: SystemExit: 0"),
        ("raise OSError('\x1b[2J\u202e')\n", "fails when it is loaded: OSError"),
    ],
)
def test_a_python_file_that_cannot_be_loaded_is_an_authoring_fault(body: str, says: str, desk: Desk) -> None:
    desk.write("counting.py", body)
    error, _ = desk.refused(3, "check")
    assert error["code"] == "P223"
    assert says in error["message"]


# --- keys of later versions -------------------------------------------------------------------------------------------

LATER_STEP = [
    "recall: [{from: profile}]", "memory: {x: 1}",
    "chat: true", "require: approved",
    "fallback: [default]", "updates: [x]", "tripwires: [{figures: true}]", 'select: "tag:x"', "from: session",
]  # fmt: skip
LATER = [
    *((PIPELINE, "    description: The text that goes out.", "    ", key) for key in LATER_STEP),
    (PIPELINE, "outputs: [announcement]", "outputs: [announcement]\n", "memory: {x: 1}"),
    (SIZE, "artifact: size", "artifact: size\n", "tripwires: [{figures: true}]"),
]


@pytest.mark.parametrize(("file", "old", "before", "key"), LATER)
def test_a_key_of_a_later_version_is_not_available_yet(file: str, old: str, before: str, key: str, desk: Desk) -> None:
    text = desk.change(file, old, before + key)
    error, err = desk.refused(3, "check")
    assert (error["code"], (error["line"], error["column"])) == ("P150", position(text, key))
    assert error["file"] == file
    assert f"'{key.split(':')[0]}' in a" in error["message"]
    assert error["message"].endswith("is not available yet")
    assert err.count("error[") == 1


@pytest.mark.parametrize("word", ["truncate", "summarise"])
def test_a_way_over_a_limit_needs_a_limit_and_a_summary_needs_room(word: str, desk: Desk) -> None:
    text = desk.change(SIZE, "artifact: size", f"artifact: size\noverflow: {word}")
    error, _ = desk.refused(3, "check")
    assert error["code"] == "P102"
    assert error["message"] == f"contract size: overflow: {word} needs a limit, and `max_tokens` is missing"
    assert (error["line"], error["column"]) == position(text, word)
    text = desk.change(SIZE, f"overflow: {word}", f"overflow: {word}\nmax_tokens: 99")
    if word == "truncate":
        assert desk.orch("check")[0] == 0
        return
    error, _ = desk.refused(3, "check")
    assert error["code"] == "P103"
    assert error["message"] == "contract size: `max_tokens` is 99, which leaves no room for a summary"
    assert (error["line"], error["column"]) == position(text, "99")
    desk.change(SIZE, "max_tokens: 99", "max_tokens: 100")
    assert desk.orch("check")[0] == 0


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says", "line"),
    [
        ("x = [\n", "is not valid TOML", None),
        ("usr = 5\n", "Did you mean 'user'?", 1),
        ('[providers."e\\u001b[2J"]\nkind = "openai"\n', "is no name of a provider", None),
        ("[providers.openai]\nkind = 3\n", "anthropic, scripted or replayed, not the number 3", 2),
        ('[providers.openai]\napi_key = "sk-canary-1"\n', "Keys do not belong into files", 2),
    ],
)
def test_a_wrong_project_file_is_code_3(body: str, says: str, line: int | None, desk: Desk) -> None:
    desk.write("orchestrator.toml", body)
    error, err = desk.refused(3, "check")
    assert says in err
    assert "canary" not in err
    assert line is None or error["line"] == line


@pytest.mark.parametrize(
    ("model", "code", "says"),
    [
        ("gpt-6", "P241", "write provider:model"),
        ("openai:", "P241", "'openai:' is not a model"),
        ("opneai:x", "P242", "Did you mean 'openai'?"),
        (None, "no_model", "ORCH_MODEL is not set"),
    ],
)
def test_a_model_that_is_none_is_code_3_and_no_run(
    model: str | None, code: str, says: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.root / ".env").unlink()
    if model is not None:
        monkeypatch.setenv("ORCH_MODEL", model)
    for command in ("run", "plan"):
        error, err = desk.refused(3, command, *BRIEF)
        assert error["code"] == code
        assert says in err
    assert desk.runs == []


@pytest.mark.parametrize(
    ("key", "url", "says"),
    [
        (None, None, "OPENAI_API_KEY is not set; api.openai.com needs a key"),
        ("", None, "OPENAI_API_KEY is not set"),
        ("sk two words", None, "holds blanks or characters that no key has"),
        ("sk-x-0123456789", "ftp://me:pw-canary@host/v1", "no http address"),
        ("sk-x-0123456789", "http://127.0.0.1:99999/v1", "no http address"),
    ],
)
def test_a_missing_key_or_a_wrong_address_is_code_3_before_anything_is_asked(
    key: str | None, url: str | None, says: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_MODEL", "openai:m")
    for name, value in (("OPENAI_API_KEY", key), ("OPENAI_BASE_URL", url)):
        if value is not None:
            monkeypatch.setenv(name, value)
    _, err = desk.refused(3, "run", *BRIEF)
    assert says in err
    assert "canary" not in err
    assert desk.runs == []


def test_a_provider_whose_named_key_is_not_set_is_code_3(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(
        "orchestrator.toml",
        '[providers.own]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "OWN_KEY"\n',
    )
    monkeypatch.setenv("ORCH_MODEL", "own:m")
    assert "OWN_KEY is not set" in desk.refused(3, "run", *BRIEF)[1]


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "holds a list"),
        ('{"note": "x"}', "did you mean notes?"),
        ('{"most-words": 5}', "needs the input notes"),
        ('{"notes": 5}', "input notes: must be text, got 5"),
        ('{"notes": null}', "input notes: must be text, got null"),
        ('{"notes": "x", "most-words": 2.5}', "input most-words: must be a whole number, got 2.5"),
        ('{"notes": "x", "most-words": NaN}', "NaN is not JSON"),
        ('{"notes": "x", "audience": "a\\nb"}', "must be one line"),
        ('{"notes": "x", "notes": "y"}', "twice"),
        ('{"notes": "\\ud800"}', "without lone surrogates"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_input_file_is_code_2_and_no_run(given: str, says: str, desk: Desk) -> None:
    desk.write("in.json", given)
    assert says in desk.refused(2, "run", "--input", "in.json")[1]
    assert desk.runs == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", *BRIEF, "--set", "notes=\udcff"], "must be text without lone surrogates"),
        (["run", *BRIEF, "--set", "most-words=1e400"], '"1e400" is not an integer'),
        (["run", *BRIEF, "--set", f"most-words={'9' * 4200}"], '9…" is not an integer'),
        (["run", "--input", "/dev/zero"], "/dev/zero holds more than 20,000,000 bytes"),
        (["run", *BRIEF, "-m", "\udcff"], "--message is not UTF-8 text"),
        (["run", *BRIEF, "-m", " "], "--message is empty"),
        (["run", *BRIEF, "--session", ""], "--session is empty"),
        (["run", *BRIEF, "--session", "\udcff"], "--session is not UTF-8 text"),
        (["run", *BRIEF, "--tenant", ""], "--tenant is empty"),
        (["run", *BRIEF, "--subject", "\udcff"], "--subject is not UTF-8 text"),
        (["run", *BRIEF, "--cap", "1e999999"], "is not a sum that can be kept"),
        (["run", "lunch", *BRIEF], "Did you mean 'launch'?"),
        (["show", "1"], "there are no runs yet"),
        (["resume"], "there are no runs yet"),
    ],
)
def test_a_value_that_cannot_be_is_code_2(arguments: Sequence[str], says: str, desk: Desk) -> None:
    assert says in desk.refused(2, *arguments)[1]


def test_an_unknown_run_names_the_command_that_lists_them(desk: Desk) -> None:
    assert desk.orch("run", *BRIEF)[0] == 0
    for reference in ("9", "0", "last~9"):
        error, _ = desk.refused(2, "show", reference)
        assert error["message"] == f"run {reference} not found"
        assert error["hint"] == "`orch runs` lists the runs of this project"


def test_a_run_whose_step_was_taken_out_of_the_file_is_told_before_anything_is_paid(desk: Desk) -> None:
    desk.answers("announcement", {"text": ""}, {"text": ""}, {"text": ""})
    assert desk.orch("run", *BRIEF)[0] == 1
    start, end = "  announcement:\n", "\noutputs: [announcement]"
    text = (desk.root / PIPELINE).read_text(encoding="utf-8")
    desk.write(PIPELINE, text[: text.index(start)] + text[text.index(end) :].replace("[announcement]", "[size]"))
    error, _ = desk.refused(2, "resume")
    assert error["code"] == "steps_removed"
    assert "announcement" in error["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "code", "says"),
    [
        ("check >&-", 0, ""),
        ("check --json >&-", 0, ""),
        ("show 99 2>&-", 2, ""),
        ("run --input - <&-", 2, "stdin is not JSON"),
        ("run --input briefs/launch.json --json >&-", 0, "succeeded"),
        ("check >/dev/full", 1, "error: the output cannot be written: the disk is full"),
        ("check --json >/dev/full", 1, "error: the output cannot be written: the disk is full"),
    ],
)
def test_streams_that_are_closed_or_full_are_no_bug(shell: str, code: int, says: str, desk: Desk) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m orchestrator {shell}"],
        cwd=desk.root,
        env=desk.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


EVIL = "\x1b[2J\x1b]0;t\x07\x9b\u202egnp\u2066"


@pytest.mark.parametrize(
    "arguments",
    [
        [EVIL],
        ["run", EVIL],
        ["run", f"--{EVIL}"],
        ["run", "--input", EVIL],
        ["run", "--set", f"{EVIL}=x"],
        ["run", "--cap", EVIL],
        ["-C", EVIL, "run"],
        ["show", f"1/{EVIL}"],
        ["edit", f"last/size@{EVIL}"],
        ["rerun", "--from", EVIL],
        ["resume", "--tool", EVIL],
        ["run", "--db", EVIL],
        ["check", EVIL],
    ],
)
def test_S27_what_was_typed_is_quoted_with_its_control_characters_visible(arguments: Sequence[str], desk: Desk) -> None:
    assert desk.refused(3 if "--db" in arguments else 2, *arguments)


def test_S27_a_printed_command_is_safe_too(desk: Desk) -> None:
    code, out, _ = desk.orch("run", *BRIEF, "--db", f"sqlite:///{EVIL.replace('/', '')}.db")
    assert code == 0
    assert "show 1/announcement" in out


def test_S27_file_names_and_keys_of_a_hostile_project_are_visible(desk: Desk) -> None:
    desk.write(f"pipelines/{EVIL}.yaml", 'version: 1\npipeline: "e\\u202e"\n"st\\u001bpes": 3\n')
    error, err = desk.refused(3, "check")
    assert error["file"] == f"pipelines/{EVIL}.yaml"
    assert "\\u{1b}[2J" in err
    os.rename(desk.root / f"pipelines/{EVIL}.yaml", os.fsencode(desk.root / "pipelines") + b"/\xff.yaml")
    assert json.dumps(desk.refused(3, "check")[0]["file"]) == '"pipelines/\\udcff.yaml"'
