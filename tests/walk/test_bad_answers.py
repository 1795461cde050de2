"""What comes back wrong: a provider that refuses, answers that are empty, huge or hostile, functions that fail, keys
that are echoed. Through the real command, the real SDK and a strict server.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.graph import build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.values import Event
from tests.strict_server import Fault, Seen, StrictServer
from tests.walk.wrong import BRIEF, DANGEROUS, Desk, starter

KEY = "sk-CANARY-0123456789abcdef"
EVIL = "\x1b[2J\x1b]0;t\x07\x9b\u202egnp\u2066\u2028\r"
RUN = ("run", *BRIEF, "--yes")
COUNTING = "def count(key_points):\n    {}\n    return {{'points': 1, 'open_questions': 0}}\n"
LONG = "One more sentence about this release. " * 1000


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return starter(tmp_path, capsys, monkeypatch)


def use(server: StrictServer, monkeypatch: pytest.MonkeyPatch, model: str = "some-model") -> None:
    monkeypatch.setenv("ORCH_MODEL", f"openai:{model}")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)


# --- the provider says no ---------------------------------------------------------------------------------------------


def refusal(status: int, message: str, code: str) -> Fault:
    return Fault(status=status, body={"error": {"message": message, "type": code, "code": code, "param": None}})


NO = [
    ("provider_model", refusal(404, "The model 'some-model' does not exist", "model_not_found"), "ORCH_MODEL"),
    ("provider_quota", refusal(429, "You exceeded your current quota", "insufficient_quota"), "out of credit"),
    ("provider_auth", refusal(401, f"Incorrect API key provided: {KEY}.", "invalid_api_key"), "OPENAI_API_KEY"),
    ("provider_bad_request", refusal(400, f"What {EVIL} is this", "invalid_request_error"), "check base_url"),
    ("provider_bad_request", Fault(status=307, headers={"Location": "http://127.0.0.1:9/"}), "check base_url"),
]


@pytest.mark.parametrize(("code", "fault", "hint"), NO)
def test_what_a_provider_refuses_is_code_6_after_one_request_with_the_way_out(
    code: str, fault: Fault, hint: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StrictServer() as server:
        use(server, monkeypatch)
        server.faults = [fault, fault]
        step, shown = desk.failed(6, *RUN)
        assert len(server.seen) == 2, "one request for each of the two runs: nothing here gets better by asking again"
    assert step["error"]["code"] == code
    assert hint in step["error"]["hint"]
    assert KEY not in shown + json.dumps(step)
    assert (step["calls"], step["version"], step["cost_usd"]) == (1, None, "0")
    assert shown.count("✗") == 1


def test_a_real_server_that_does_not_know_the_model_or_the_key(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictServer(models=frozenset({"another"})) as server:
        use(server, monkeypatch)
        assert desk.failed(6, *RUN)[0]["error"]["code"] == "provider_model"
    with StrictServer(key="sk-another") as server:
        use(server, monkeypatch)
        assert desk.failed(6, *RUN)[0]["error"]["code"] == "provider_auth"


# --- answers that cannot be used --------------------------------------------------------------------------------------


def says(reply: dict[str, Any]) -> Callable[[Seen], dict[str, Any]]:
    return lambda seen: reply


@pytest.mark.parametrize(
    ("reply", "code", "calls", "told"),
    [
        ({"text": ""}, "invalid_output", 3, "the answer was empty"),
        ({"text": " \n"}, "invalid_output", 3, "the answer was empty"),
        ({"text": "{}"}, "invalid_output", 3, "$.headline is required"),
        ({"text": "Sure! Here it is"}, "invalid_output", 3, "not JSON"),
        ({"text": "[" * 50_000}, "cut_off", 2, "cut off (max_output_tokens)"),
        ({"text": "9" * 5_000}, "invalid_output", 3, "a number of 5,000 digits"),
        ({"text": f'{{"{EVIL[:3]}": 1}}'}, "invalid_output", 3, "control character"),
        ({"text": json.dumps({EVIL: EVIL, "headline": 3})}, "invalid_output", 3, "$.headline must be text"),
        ({"refusal": f"I cannot {EVIL}"}, "refused", 1, "the model refused: I cannot \\x1b[2J"),
    ],
)
def test_an_answer_that_stays_wrong_is_code_1_and_no_version(
    reply: dict[str, Any], code: str, calls: int, told: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StrictServer(says(reply)) as server:
        use(server, monkeypatch)
        step, shown = desk.failed(1, *RUN)
        assert len(server.seen) == 2 * calls
    assert (step["error"]["code"], step["calls"], step["version"]) == (code, calls, None)
    assert told in shown
    assert desk.document("show", "last")["run"]["status"] == "failed"


def test_an_answer_that_is_too_large_is_code_1_and_names_contract_size_limit_and_way_out(desk: Desk) -> None:
    desk.answers("announcement", *[{"text": LONG}] * 3)
    step, shown = desk.failed(1, *RUN)
    size = -(-len(LONG) * 2 // 7)  # a token is 3.5 bytes
    assert f"too large for the contract announcement: about {size:,} tokens, and max_tokens is 800" in shown
    assert "raise max_tokens of the contract" in step["error"]["hint"]
    assert step["version"] is None


def test_S25_a_written_answer_that_is_no_text_is_refused_by_name(desk: Desk) -> None:
    desk.write("sample_answers/key-points.json", '[{"json": {"headline": "\\ud800"}}]')
    step, _ = desk.failed(6, *RUN)
    assert "reply 1 of sample_answers/key-points.json" in step["error"]["message"]
    assert "lone surrogate" in step["error"]["message"]


# --- too much to send -------------------------------------------------------------------------------------------------


def test_six_megabytes_of_input_are_refused_before_anything_is_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write("big.json", json.dumps({"notes": "word " * 1_200_000}))
    with StrictServer() as server:
        use(server, monkeypatch, "gpt-5")
        step, shown = desk.failed(1, "run", "--input", "big.json", "--yes")
        assert server.seen == []
    assert step["error"]["code"] == "too_large"
    for part in ("key-points does not fit the window of openai:gpt-5", "notes with 1,714,", "nothing was sent"):
        assert part in step["error"]["message"]
    assert "use a model with a larger window" in shown
    assert step["cost_usd"] in (None, "0")


def test_a_read_over_its_contract_is_refused_before_anything_is_sent(desk: Desk) -> None:
    desk.change("artifacts/key-points.yaml", "max_tokens: 1500", "max_tokens: 2500")
    points = [{"what": "word " * 250, "gain": "none"}] * 5
    desk.answers("key-points", {"json": {"headline": "x", "points": points, "open_questions": []}})
    assert desk.orch(*RUN)[0] == 0
    desk.change("artifacts/key-points.yaml", "max_tokens: 2500", "max_tokens: 1500")
    assert desk.orch("rerun", "last", "--from", "announcement")[0] == 1
    step = next(s for s in desk.document("show", "last")["run"]["steps"] if s["status"] == "failed")
    assert step["error"]["code"] == "too_large"
    assert step["error"]["message"].startswith("key-points is too large for announcement: about ")
    assert "its contract key-points allows 1,500 (max_tokens); nothing was sent" in step["error"]["message"]
    assert step["calls"] == 0


def test_an_input_or_an_edit_over_its_contract_is_code_2_and_makes_nothing(desk: Desk) -> None:
    desk.write(
        "artifacts/brief.yaml",
        'artifact: brief\nabout: "Notes."\nnot_for: none\nschema: text\nmax_tokens: 500\n',
    )
    desk.change("pipelines/launch.yaml", "type: text", "type: brief")
    desk.write("big.json", json.dumps({"notes": LONG}))
    error, _ = desk.refused(2, "run", "--input", "big.json")
    assert error["code"] == "too_large"
    assert error["message"].startswith("input notes is too large for the contract brief: about ")
    assert "raise max_tokens of the contract brief" in error["hint"]
    assert desk.runs == []
    assert desk.orch(*RUN)[0] == 0
    desk.write("big.md", LONG)
    error, _ = desk.refused(2, "edit", "1/announcement", "--file", "big.md")
    assert error["message"].startswith("announcement is too large for the contract announcement: about ")
    assert desk.document("show", "1/announcement")["artifact"]["version"] == 1
    assert desk.refused(2, "why", "1/announcement@7")[0]["message"] == "announcement has no version 7"


def test_S21_what_a_provider_may_not_see_is_code_7_and_nothing_is_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(
        "artifacts/secret-notes.yaml",
        'artifact: secret-notes\nabout: "Notes."\nnot_for: none\nschema: text\nsensitivity: confidential\n',
    )
    desk.change("pipelines/launch.yaml", "type: text", "type: secret-notes")
    with StrictServer() as server:
        use(server, monkeypatch)
        step, shown = desk.failed(7, *RUN)
        assert server.seen == []
    assert step["error"]["code"] == "sensitivity"
    assert "notes" in step["error"]["message"]
    assert "confidential" in shown


# --- the project's own code -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('no \\x1b[2J \\u202e \\ud800')", "raised ValueError: no \\x1b[2J \\u202e"),
        ("import sys; sys.exit(4)", "raised SystemExit: 4"),
        ("next(iter([]))", "StopIteration"),
        ("return None", "returned no valid size"),
        ("return {'points': 1, 'open_questions': '\\ud800'}", "text holds a lone surrogate"),
        ("return {'points': 10 ** 5000, 'open_questions': 0}", "returned no valid size"),
        ("return {'points': float('nan'), 'open_questions': 0}", "finite"),
        ("return {'points': 10 ** 3000, 'open_questions': 0}", "is too large for the contract size: about 8"),
    ],
)
def test_a_function_that_fails_is_its_steps_failure_and_its_siblings_stay(body: str, told: str, desk: Desk) -> None:
    desk.write("counting.py", COUNTING.format(body))
    desk.change("artifacts/size.yaml", "artifact: size", "artifact: size\nmax_tokens: 500")
    step, shown = desk.failed(1, *RUN)
    assert step["name"] == "size"
    assert told in shown
    assert "counting.py:count" in step["error"]["message"]
    steps = {s["name"]: s["status"] for s in desk.document("show", "last")["run"]["steps"]}
    assert steps == {"key-points": "succeeded", "size": "failed", "announcement": "pending"}


def test_a_check_that_ends_the_program_is_broken_and_says_so(desk: Desk) -> None:
    desk.write("checks.py", "import sys\n\n\ndef short_enough(value, **reads):\n    sys.exit('enough')\n")
    step, _ = desk.failed(1, *RUN)
    assert step["error"]["code"] == "check_broken"
    assert "raised SystemExit: enough" in step["error"]["message"]


@pytest.mark.slow
def test_whatever_the_projects_code_prints_stdout_holds_the_document_only(desk: Desk) -> None:
    noise = "import os, subprocess; print('LOUD'); os.write(1, b'LOUD'); subprocess.run(['echo', 'LOUD'])"
    desk.write("counting.py", f"print('LOUD')\n{COUNTING.format(noise)}")
    done = desk.process(*RUN, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]["status"] == "succeeded"
    assert done.stderr.count("LOUD") == 4
    assert "LOUD" in desk.process(*RUN).stdout


# --- hostile text -----------------------------------------------------------------------------------------------------


def test_S27_what_inputs_and_models_say_is_visible_and_moves_nothing(desk: Desk) -> None:
    """Every command that shows it; `Desk.orch` looks at each byte."""
    desk.write("evil.json", json.dumps({"notes": f"{EVIL}\x00", "audience": EVIL[:4], "most-words": 90}))
    desk.answers("announcement", {"text": f"# Head {EVIL} and more"})
    evil = ("--input", "evil.json")
    code, shown, _ = desk.orch("run", *evil, "-m", EVIL, "--session", EVIL)
    assert code == 0
    assert "# Head \\x1b[2J" in shown
    looks = [("show", "1"), ("show", "1/announcement"), ("show", "1/notes"), ("why", "1/key-points"), ("runs",)]
    looks += [("render", "1/announcement"), ("plan", *evil), ("check",), ("doctor",)]
    for command in looks:
        assert desk.orch(*command)[0] == 0
        desk.document(*command)
    assert "\\x1b[2J" in desk.orch("show", "1/announcement")[1]
    assert "\\u202e" in desk.orch("why", "1/key-points", "--text")[1]
    artifact = desk.document("show", "1/announcement")["artifact"]
    assert artifact["value"] == f"# Head {EVIL} and more", "stored bytes stay as they came"


def test_S27_the_test_sees_what_it_looks_for() -> None:
    assert set(EVIL) & DANGEROUS == {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028", "\r"}


# --- secrets ----------------------------------------------------------------------------------------------------------


def stored(root: Path) -> bytes:
    """Every byte of every file of the project, and the database's rows as SQLite gives them back."""
    files = b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())
    with sqlite3.connect(root / ".orch" / "orch.db") as database:
        return files + "\n".join(database.iterdump()).encode("utf-8", "replace")


@pytest.mark.slow
def test_S29_a_key_appears_nowhere_even_when_echoed_and_with_the_sdk_talking(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary over every command's output and every byte on disk; what sends does so with OPENAI_LOG=debug.

    The server echoes the key as it is, quoted and packed, in an error, a header and an answer; a function of the
    project puts it into an error too.
    """
    packed = [base64.b64encode(b"x" * n + KEY.encode()).decode() for n in range(3)]
    coded = [KEY, "".join(f"%{byte:02X}" for byte in KEY.encode()), *packed]
    leaks = [form[6:-6] for form in coded]
    failing = "import os, base64 as b; raise ValueError((k := os.environ['OPENAI_API_KEY']), b.b64encode(k.encode()))"
    with StrictServer() as server:
        use(server, monkeypatch)
        env = {name: os.environ[name] for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")} | {"OPENAI_LOG": "debug"}
        echo = " ".join(coded)
        server.faults = [refusal(400, f"bad header: Bearer {echo}", "invalid_request_error")]
        failed = desk.program(*RUN, env=env)
        assert failed.returncode == 6
        assert "Bearer [secret removed]" in failed.stdout
        assert "openai" in failed.stderr, "the SDK's own log is on"
        answer = json.dumps({"headline": echo, "points": [{"what": echo, "gain": ""}], "open_questions": []})
        said_so = {"output": [{"type": "message", "content": [{"type": "output_text", "text": answer}]}]}
        server.faults = [Fault(end=said_so, headers={"x-request-id": KEY})]
        desk.write("counting.py", COUNTING.format(failing))
        broken = desk.program("resume", "--jsonl", env=env)
        assert broken.returncode == 1
        assert "ValueError" in broken.stdout
        desk.write("counting.py", COUNTING.format("pass"))
        resumed = desk.program("resume", "--json", env=env)
        assert resumed.returncode == 0
        assert all(seen.headers["authorization"] == f"Bearer {KEY}" for seen in server.seen), "it was really used"
    said = "".join(done.stdout + done.stderr for done in (failed, broken, resumed))
    looks = [("show", "1"), ("show", "1/announcement"), ("why", "1/key-points"), ("why", "1/key-points", "--text")]
    looks += [("render", "1/announcement"), ("plan", *BRIEF), ("runs",), ("check",), ("doctor",)]
    for command in looks:
        code, out, err = desk.orch(*command)
        assert code == 0
        said += out + err + json.dumps(desk.document(*command))
    assert "[secret removed]" in desk.orch("show", "1/key-points")[1]
    assert [form for form in leaks if form in said] == []
    on_disk = stored(desk.root)
    assert [form for form in leaks if form.encode() in on_disk] == []


def test_S29_who_follows_a_run_in_python_hears_no_key(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events go to other people's code: nothing of ours stands between that and a log."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    desk.write("counting.py", COUNTING.format("import os; raise ValueError(os.environ['OPENAI_API_KEY'])"))
    heard: list[Event] = []

    async def main() -> None:
        project = find_project(desk.root)
        settings = load_settings(project, os.environ)
        graph = build_graph(project, settings, project.pipeline(None), require_model=True)
        inputs = json.loads((desk.root / BRIEF[1]).read_text(encoding="utf-8"))
        async with engine.open_services(project, settings, listener=heard.append) as services:
            await engine.start_run(services, graph, RunOptions(inputs=inputs))

    asyncio.run(main())
    said = [str(event.data.get("message")) for event in heard if event.kind == "step.failed"]
    assert any("ValueError: [secret removed]" in message for message in said), said
    assert KEY not in repr(heard)


def test_S29_secrets_in_addresses_are_not_shown_and_not_stored(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictServer() as server:
        use(server, monkeypatch)
        host = server.base_url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:pw-CANARY@{host}/v1?token=tk-CANARY")
        code, out, err = desk.orch(*RUN)
        assert code in (0, 6)
        for command in (("show", "1"), ("why", "1/key-points"), ("plan", *BRIEF), ("doctor",)):
            found = desk.orch(*command)
            out, err = out + found[1] + json.dumps(desk.document(*command)), err + found[2]
    assert host in out
    assert "CANARY" not in out + err
    assert b"CANARY" not in stored(desk.root)
    _, err = desk.refused(8, "runs", "--db", "postgresql://me:pw-CANARY@host/db")
    assert "CANARY" not in err
