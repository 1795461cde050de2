"""What grows with the work, and what does not: input by what is read, records by what is new (A15, R023)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tests.contract.vendors import OPENAI
from tests.strict_server import Seen, StrictServer
from tests.walk.over_http import at, run_here, shop

ROUNDS = 100
RESULT = 5_000  # characters
LOOKING = """
version: 1
pipeline: study
inputs:
  idea: {type: text, about: "What it is about."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 200}
artifacts:
  note: {about: "A note.", not_for: none, schema: text}
steps:
  study: {reads: [idea], produces: note, tools: ["look.py:look"], prompt: "Look it all up."}
"""
LOOK = f'''
def look(page: int) -> str:
    """A page."""
    return f"page {{page:03}} ".ljust({RESULT}, "x")
'''


def reader(seen: Seen) -> dict[str, Any]:
    """Reads page after page, then says so."""
    if seen.turn < ROUNDS:
        return {"tool_calls": [{"name": "look", "arguments": {"page": seen.turn}}]}
    return {"text": "I have read it all."}


def test_A15_a_step_of_a_hundred_tool_calls_over_its_window_completes_and_its_record_stays_small(
    tmp_path: Path,
) -> None:
    """500 KB of results through a window of 120 KB: what was told before is cut and said to be, whenever it is too
    much. In the record each result stands once, whole, and a call is a short row that refers to it."""
    with StrictServer(reader, window=30_000) as server:
        folder = shop(tmp_path, LOOKING)
        (folder / "look.py").write_text(LOOK, encoding="utf-8")
        run = run_here(folder, at(server, OPENAI), {"idea": "a shop"})
    assert (run.status, run.text("study")) == ("succeeded", "I have read it all.")
    tools = run.tools("study")
    assert [tool.output.output[:8] for tool in tools if tool.output] == [f"page {n:03}" for n in range(ROUNDS)]
    assert {len(tool.output.output) for tool in tools if tool.output} == {RESULT}
    refused = [seen for seen in server.seen if seen.status == 400]
    assert 1 <= len(refused) < ROUNDS / 10, "it is cut when it must be, and not with every call"
    calls = run.calls("study")
    assert len(calls) == ROUNDS + 1 + len(refused)
    assert [call.sent.rung for call in calls].count("compact") == len(refused)
    with sqlite3.connect(folder / ".orch" / "orch.db") as database:
        [(mean,)] = database.execute("SELECT AVG(LENGTH(items) + LENGTH(output_items) + LENGTH(tool_calls)) FROM call")
        [(stored,)] = database.execute("SELECT SUM(LENGTH(body)) FROM content")
    assert mean < 4_000
    assert ROUNDS * RESULT <= stored < 1.2 * ROUNDS * RESULT


STEPS = "abcdefgh"


def chained(reads: str) -> str:
    """Eight steps, each reading the one before, and `reads` beside it."""
    lines = [
        f'  {name}: {{reads: [{"idea" if n == 0 else STEPS[n - 1]}{reads}], produces: note, prompt: "Go on."}}'
        for n, name in enumerate(STEPS)
    ]
    return LOOKING.partition("steps:")[0].replace(", max_output_tokens: 200", "") + "steps:\n" + "\n".join(lines) + "\n"


def sizes(folder: Path, said: str) -> list[int]:
    """The input tokens of each step, by the server's own count, where every step says this."""
    with StrictServer(lambda seen: {"text": said}) as server:
        run = run_here(shop(folder, chained("")), at(server, OPENAI), {"idea": "a shop"})
        assert run.status == "succeeded"
        return [seen.response["usage"]["input_tokens"] for seen in server.seen]


def test_R023_input_grows_with_what_a_step_reads_and_with_nothing_else(tmp_path: Path) -> None:
    """However late a step is, it brings what it reads and no more; 4,000 more bytes read are 1,000 more tokens."""
    short, long = sizes(tmp_path / "short", "x" * 4_000), sizes(tmp_path / "long", "x" * 8_000)
    assert set(short[1:]) == {short[1]}, "the eighth step weighs what the second does"
    assert [more - less for less, more in zip(short, long, strict=True)] == [0, *[1_000] * 7]
