"""A15 (b): 6 MB where 4 MB are allowed, wherever they come from: one clear error that names what, size and limit.

Nothing is tried again that cannot pass, nothing is cut in silence, and no version of it stands in the database.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import OPENAI
from tests.walk.over_http import at, commands

LIMIT = 1_142_857  # tokens; at 3.5 bytes for each, 4 MB
LARGE = "All of it, line by line, as it came out of the log.\n" * 115_385  # 6 MB
SIZE = f"about {-(-len(LARGE) * 2 // 7):,} tokens, and max_tokens is {LIMIT:,}"
PIPELINE = f"""
version: 1
pipeline: logs
inputs:
  log: {{type: log, about: "What the machine wrote."}}
models:
  default: {{use: "${{env:ORCH_MODEL}}", max_output_tokens: 2000000}}
artifacts:
  log: {{about: "A log.", not_for: none, schema: text, max_tokens: {LIMIT}}}
  table:
    about: "Rows."
    not_for: none
    max_tokens: {LIMIT}
    schema: {{type: object, properties: {{text: {{type: string}}}}, required: [text], additionalProperties: false}}
  note: {{about: "A note.", not_for: none, schema: text}}
steps:
STEPS
  after: {{reads: [made], produces: note, prompt: "Say what is in it."}}
outputs: [after]
"""
ASKED = '  made: {reads: [log], produces: log, prompt: "Clean it."}'
COMPUTED = '  made: {python: "work.py:made", reads: [log], produces: log}'
TABLE = '  made: {python: "work.py:table", reads: [log], produces: table}'
WITH_TOOL = '  made: {reads: [log], produces: note, tools: [{tool: "work.py:read", returns: log}], prompt: "Read it."}'
WORK = """
from pathlib import Path


def made(log):
    with (Path(__file__).parent / "calls.txt").open("a") as calls:
        calls.write("called\\n")
    return log if log == "short" else (Path(__file__).parent / "large.txt").read_text()


def table(log):
    return {"text": "short"}


def read() -> str:
    \"\"\"Read the log.\"\"\"
    return (Path(__file__).parent / "large.txt").read_text()
"""
Orch = Callable[..., str]


class Desk:
    """A project with these answers, and its commands."""

    def __init__(self, folder: Path, orch: Orch) -> None:
        self.folder, self.orch = folder, orch

    def write(self, steps: str, **answers: list[Any]) -> None:
        (self.folder / "orchestrator.toml").write_text('user = "ana"\n', encoding="utf-8")
        (self.folder / "logs.yaml").write_text(PIPELINE.replace("STEPS", steps), encoding="utf-8")
        (self.folder / "work.py").write_text(WORK, encoding="utf-8")
        (self.folder / "large.txt").write_text(LARGE, encoding="utf-8")
        (self.folder / "answers").mkdir()
        for step, lines in {"after": [{"text": "Lines."}], **answers}.items():
            (self.folder / "answers" / f"{step}.json").write_text(json.dumps(lines), encoding="utf-8")

    def run(self, log: str = "a log", code: int = 0) -> str:
        return self.orch("run", "--set", f"log={log}", "--yes", code=code)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.orch("show", "last", "--json"))["run"]
        return found

    def step(self, name: str) -> dict[str, Any]:
        return next(step for step in self.document()["steps"] if step["name"] == name)

    def rows(self, sql: str) -> list[Any]:
        with sqlite3.connect(f"file:{self.folder}/.orch/orch.db?mode=ro", uri=True) as database:
            return database.execute(sql).fetchall()

    def versions(self, name: str) -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM artifact WHERE step = '{name}'")[0][0])

    def largest(self) -> int:
        return int(self.rows("SELECT COALESCE(MAX(LENGTH(body)), 0) FROM content")[0][0])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, commands(tmp_path, {"ORCH_MODEL": "scripted:answers"}, monkeypatch, capsys))


def test_A15_an_answer_that_is_too_large_is_asked_for_again_twice_and_then_an_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(ASKED)
    with OPENAI.stand_in(lambda seen: {"text": LARGE}) as server:
        for name, value in at(server, OPENAI).items():
            monkeypatch.setenv(name, value)
        said = desk.run(code=1)
    assert len(server.seen) == 3
    step = desk.step("made")
    assert f"the answer is too large for the contract log: {SIZE}" in " ".join(said.split())
    assert (step["calls"], step["reasks"], step["version"]) == (3, 2, None)
    assert step["error"]["code"] == "invalid_output"
    assert "ask for less in the template, or raise max_tokens of the contract" in step["error"]["hint"]
    assert (desk.versions("made"), desk.step("after")["status"]) == (0, "pending")


def test_A15_an_answer_that_is_shorter_when_it_is_told_so_is_taken(desk: Desk) -> None:
    desk.write(ASKED, made=[{"text": LARGE}, {"text": "A short log."}])
    desk.run()
    assert (desk.step("made")["calls"], desk.versions("made")) == (2, 1)
    [told] = desk.rows("SELECT reason FROM call WHERE outcome = 'reask'")
    assert SIZE in told[0]


def test_A15_what_a_function_returns_is_an_error_at_once_and_a_resume_calls_it_once_more(desk: Desk) -> None:
    desk.write(COMPUTED)
    said = desk.run(code=1)
    message = f"what work.py:made returned is too large for the contract log: {SIZE}"
    assert message in " ".join(said.split())
    assert (desk.step("made")["error"]["code"], desk.step("made")["version"]) == ("too_large", None)
    assert "return less, or raise max_tokens of the contract log" in desk.step("made")["error"]["hint"]
    desk.orch("resume", code=1)
    assert (desk.folder / "calls.txt").read_text() == "called\n" * 2
    assert (desk.versions("made"), desk.step("after")["status"]) == (0, "pending")
    assert desk.largest() < 10_000, "nothing of it is kept"


def test_A15_an_edit_and_an_import_are_refused_and_what_stands_stays(desk: Desk) -> None:
    desk.write(COMPUTED)
    desk.run("short")
    large = str(desk.folder / "large.txt")
    for command in (("edit", "last/made", "--file", large), ("import", "last/made", large)):
        said = " ".join(desk.orch(*command, code=2).split())
        assert f"made is too large for the contract log: {SIZE}" in said
        assert "shorten it, or raise max_tokens of the contract log" in said
    assert "log is too large" in " ".join(desk.orch("import", "last/log", large, code=2).split())
    assert (desk.versions("made"), desk.versions("log")) == (1, 1)
    assert desk.largest() < 10_000
    assert "stale" not in desk.orch("show", "last")


def test_A15_a_field_that_is_set_to_too_much_is_refused(desk: Desk) -> None:
    desk.write(TABLE)
    desk.run()
    said = " ".join(desk.orch("edit", "last/made", "--set", f"text={LARGE}", code=2).split())
    assert "made is too large for the contract table: about" in said
    assert f"max_tokens is {LIMIT:,}" in said
    assert (desk.versions("made"), desk.largest() < 10_000) == (1, True)


def test_A15_an_input_that_is_too_large_starts_no_run(desk: Desk) -> None:
    desk.write(COMPUTED)
    (desk.folder / "brief.json").write_text(json.dumps({"log": LARGE}), encoding="utf-8")
    for given in (("--set", f"log={LARGE}"), ("--input", str(desk.folder / "brief.json"))):
        said = " ".join(desk.orch("run", *given, "--yes", code=2).split())
        assert f"input log is too large for the contract log: {SIZE}" in said
    assert not (desk.folder / "calls.txt").exists()
    assert json.loads(desk.orch("runs", "ls", "--json"))["runs"] == []


def test_A15_what_a_tool_gives_over_its_contract_is_told_to_the_model_as_the_tools_error(desk: Desk) -> None:
    """It could not be told whole in any case; and cut, it would be no valid one of its contract."""
    call = {"tool_calls": [{"name": "read", "arguments": {}}]}
    desk.write(WITH_TOOL, made=[call, {"text": "It cannot be read."}])
    desk.run()
    [tool] = json.loads(desk.orch("why", "last/made", "--json"))["tools"]
    assert tool["is_error"] is True
    [told] = desk.rows("SELECT c.body FROM tool_call t JOIN content c ON c.sha256 = t.output")
    assert bytes(told[0]).decode() == f"what read gave is too large for the contract log: {SIZE}"
    assert desk.largest() < 10_000
    assert desk.step("made")["calls"] == 2


def test_A15_what_a_tool_gives_without_a_contract_is_cut_with_a_word_and_kept_whole(desk: Desk) -> None:
    call = {"tool_calls": [{"name": "read", "arguments": {}}]}
    desk.write(WITH_TOOL.replace(", returns: log", ""), made=[call, {"text": "Lines."}])
    desk.run()
    [told] = desk.rows("SELECT c.body FROM tool_call t JOIN content c ON c.sha256 = t.output")
    text = bytes(told[0]).decode()
    kept, note = text.rsplit("\n", 1)
    assert LARGE.startswith(kept)
    assert f"of {len(LARGE):,} characters are left out" in note
    assert desk.largest() == len(LARGE), "the whole stands in the record"
