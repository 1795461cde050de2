"""The lowest rung: a thread that has grown over the model's window goes on with its older tool results cut (R028).

The model is told what was cut. The newest results, which it has not read yet, are whole; so is everything that was said
by itself, and everything in the record. Where there is nothing to cut, the step fails with a name, as ever.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Request, TextItem, ToolOutput
from tests.walk.harness import House, Seen, StopAfter

PIPELINE = """
version: 1
pipeline: reading
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  notes: {reads: [idea], produces: note, tools: ["work.py:page"], prompt: "Read the pages.",
    checks: [{python: "work.py:good"}]}
outputs: [notes]
"""
WORK = """
from orchestrator import tool


@tool(idempotent=True)
def page(name: str) -> str:
    \"\"\"A page of the book.\"\"\"
    return f"page {name}: " + name * SIZE


def good(value, **reads):
    return "It is bad." if value == "bad" else None
"""
PAGE = 6000  # characters: about 1,715 tokens


def read(name: str) -> dict[str, Any]:
    return {"reasoning": f"Now {name}.", "tool_calls": [{"name": "page", "arguments": {"name": name}}]}


SCRIPT: dict[str, list[Any]] = {"notes": [read("a"), read("b"), {"text": "bad"}, {"text": "Both are read."}]}


def house(folder: Path, *, chaining: str = "server", window: int = 3000, size: int = PAGE) -> House:
    provider: Any = ScriptedProvider(SCRIPT, chaining=chaining, window=window)  # type: ignore[arg-type]
    return House(folder, PIPELINE, provider, files={"work.py": WORK.replace("SIZE", str(size))})


def results(request: Request) -> list[str]:
    return [item.output for item in request.items if isinstance(item, ToolOutput)]


def check_short(request: Request) -> None:
    """Everything is there, in order; the older result is its beginning and says so, the newest is whole."""
    older, newest = results(request)
    assert older.startswith("page a: " + "a" * 392 + "\n[")
    assert older.endswith("5,608 more characters of this result are left out now: the conversation would be too long]")
    assert newest == "page b: " + "b" * PAGE
    assert isinstance(request.items[0], TextItem)
    assert "Now a." not in str(request.items), "reasoning travels sealed"
    assert sum("encrypted_content" in str(item) for item in request.items) == 2


def rungs(run: Seen) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for call in run.calls("notes"):
        assert call.done is not None
        found.append((call.sent.source, call.sent.rung, call.done.reason if call.done.status == "failed" else ""))
    return found


def test_a_chain_over_the_window_goes_on_in_its_short_form_and_then_chains_on(tmp_path: Path) -> None:
    h = house(tmp_path)
    run = asyncio.run(h.run({"idea": "a book"}))
    assert (run.status, run.text("notes")) == ("succeeded", "Both are read.")
    assert rungs(run) == [
        ("NEXT_STEP", "chain", ""),
        ("TOOL_RESULT", "chain", ""),
        ("TOOL_RESULT", "chain", "too_long"),
        ("TOOL_RESULT", "compact", ""),
        ("REASK", "chain", ""),
    ]
    requests = h.requests("notes")
    check_short(requests[3])
    assert requests[4].thread.startswith("resp_"), "what the server holds now is the short form"
    assert [tool.output.output for tool in run.tools("notes") if tool.output] == [
        f"page {name}: " + name * PAGE for name in "ab"
    ], "the record is whole"
    [why] = [event.data for event in run.events if event.kind == "chain_rebuilt"]
    assert why["reason"] == "too_long"
    assert run.steps["notes"].calls == 5


def test_a_thread_that_is_replayed_stays_short_and_is_not_refused_again(tmp_path: Path) -> None:
    h = house(tmp_path, chaining="replay")
    run = asyncio.run(h.run({"idea": "a book"}))
    assert run.status == "succeeded"
    assert [rung for _, rung, _ in rungs(run)] == ["chain", "replay", "replay", "compact", "compact"]
    check_short(h.requests("notes")[3])


def test_what_the_vendor_found_too_long_holds_over_a_restart(tmp_path: Path) -> None:
    """The process dies right after the refusal was written down: the next one sends the short form at once."""
    h = house(tmp_path)
    h.stopped({"idea": "a book"}, StopAfter("done:committed", 3))
    before = len(h.requests("notes"))
    run = asyncio.run(h.resume())
    assert run.status == "succeeded"
    check_short(h.requests("notes")[before])
    assert [reason for *_, reason in rungs(run)].count("too_long") == 1


@pytest.mark.parametrize(("window", "calls"), [(1900, 2), (2300, 4)], ids=["nothing older to cut", "not even short"])
def test_what_does_not_fit_even_so_is_a_named_failure(tmp_path: Path, window: int, calls: int) -> None:
    """The first result alone is over the window; or the second is, however short the first."""
    size = PAGE if calls == 2 else 6500
    h = house(tmp_path, window=window, size=size)
    run = asyncio.run(h.run({"idea": "a book"}))
    assert run.status == "failed"
    error = run.steps["notes"].error
    assert error is not None
    assert error.code == "provider_too_long"
    assert f"longer than the context window of {window} tokens" in error.message
    assert len(h.requests("notes")) == calls


def test_R028_what_would_be_refused_is_sent_short_at_once(tmp_path: Path) -> None:
    """The window is known here, and our own count says that it would be passed: no call is spent on hearing so."""
    h = house(tmp_path, window=100_000)
    h.write("orchestrator.toml", '[prices."scripted:written"]\ninput = 0\noutput = 0\ncontext = 3600\n')
    h.write("walk.yaml", PIPELINE.replace('ORCH_MODEL}"}', 'ORCH_MODEL}", max_output_tokens: 300}'))
    run = asyncio.run(h.run({"idea": "a book"}))
    assert run.status == "succeeded"
    assert [rung for _, rung, _ in rungs(run)] == ["chain", "chain", "compact", "compact"]
    assert all(reason == "" for *_, reason in rungs(run))
    check_short(h.requests("notes")[2])
