"""What is too large: for a contract, which may say that it is cut, and for the window (R028, R029)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.context.budget import beginning
from orchestrator.errors import OrchError
from orchestrator.providers.scripted import ScriptedProvider
from tests.contract.vendors import CHAT
from tests.walk.harness import House
from tests.walk.over_http import at, named, run_here, shop

PROJECT = """
user = "ana"
[providers.acme]
kind = "scripted"
[prices."small"]
input = "1"
output = "1"
context = 2000
"""
PIPELINE = """
version: 1
pipeline: gather
inputs:
  idea: {type: text, about: "What it is about."}
models:
  default: {use: "acme:small", max_output_tokens: 100}
artifacts:
  note: {about: "A note.", not_for: none, schema: text}
steps:
  note: {reads: [idea], prompt: "Look it up.", tools: ["work.py:look"]}
"""


def test_R028_a_tools_result_that_is_over_the_window_is_not_sent(tmp_path: Path) -> None:
    """The tool's 7,000 bytes are 2,000 tokens alone: the call that would carry them is refused here, not there."""
    script: dict[str, list[Any]] = {"note": [{"tool_calls": [{"name": "look", "arguments": {}}]}, {"text": "Found."}]}
    work = 'def look() -> str:\n    """Look."""\n    return "x" * SIZE\n'
    small = House(
        tmp_path / "small", PIPELINE, ScriptedProvider(script, name="acme"), {"work.py": work.replace("SIZE", "700")}
    )
    small.write("orchestrator.toml", PROJECT)
    assert asyncio.run(small.run({"idea": "a shop"})).status == "succeeded"
    large = House(
        tmp_path / "large", PIPELINE, ScriptedProvider(script, name="acme"), {"work.py": work.replace("SIZE", "7000")}
    )
    large.write("orchestrator.toml", PROJECT)
    seen = asyncio.run(large.run({"idea": "a shop"}))
    assert len(large.requests()) == 1
    error = seen.steps["note"].error
    assert error is not None
    assert error.code == "provider_too_long"
    assert "over the window of 2,000; nothing was sent" in error.message


READS = """
version: 1
pipeline: cut
inputs:
  log: {type: log}
models:
  default: {use: "acme:small", max_output_tokens: 100}
artifacts:
  log:
    {about: "What it wrote.", not_for: ["This is no order."], schema: text, max_tokens: 100, overflow: OVERFLOW}
  note: {about: "A note.", not_for: none, schema: text}
steps:
  note: {reads: [log], prompt: "What went wrong?"}
""".replace("log: {type: log}", 'log: {type: log, about: "What the machine wrote."}')
LOG = "".join(f"{n:04} all is well\n" for n in range(1000))


def test_overflow_truncate_shows_the_beginning_says_so_and_lists_what_was_left_out(tmp_path: Path) -> None:
    """100 tokens are 350 bytes, the line that says so among them; the stored value is whole, its guard ahead of it."""
    script: dict[str, list[Any]] = {"note": [{"text": "Nothing."}]}
    house = House(tmp_path, READS.replace("OVERFLOW", "truncate"), ScriptedProvider(script, name="acme"))
    house.write("orchestrator.toml", PROJECT)
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded"
    assert seen.text("log") == LOG
    (request,) = house.requests()
    sent = house.effective(request)
    body = sent.partition("---\n")[2].partition("\n</artifact>")[0]
    assert len(body.encode()) <= 350
    *lines, note = body.split("\n")
    assert lines == LOG.split("\n")[: len(lines)]
    assert len(lines) > 10
    assert note == "[cut here: of about 4,858 tokens, the first 100 at most are shown]"
    assert sent.index("This is no order.") < sent.index("0000 all is well")
    (left,) = [one for one in seen.journals["note"][0].threads[0].left_out if one.layer == "artifact"]
    assert left.source == "the rest of log"
    assert "overflow: truncate" in left.reason
    assert left.tokens >= 4758


def test_overflow_fail_is_an_error_before_anything_is_paid_and_names_the_other_way(tmp_path: Path) -> None:
    house = House(tmp_path, READS.replace("OVERFLOW", "truncate"), ScriptedProvider({}, name="acme"))
    house.write("orchestrator.toml", PROJECT)
    house.write("walk.yaml", READS.replace("OVERFLOW", "fail"))
    with pytest.raises(OrchError, match="max_tokens is 100"):
        asyncio.run(house.run({"log": LOG}))
    assert house.requests() == []


def test_what_is_cut_ends_with_a_whole_character_and_another_policy_is_another_contract(tmp_path: Path) -> None:
    text = "ü" * 1000
    kept = beginning(text, 100)
    assert kept.startswith("üü")
    assert len(kept.encode()) <= 350
    assert kept.partition("\n")[0].strip("ü") == ""
    graphs = []
    for word in ("truncate", "fail"):
        house = House(tmp_path / word, READS.replace("OVERFLOW", word), ScriptedProvider({}, name="acme"))
        house.write("orchestrator.toml", PROJECT)
        graphs.append(house.graph())
    one, other = (graph.inputs["log"].contract.digest for graph in graphs)
    assert one != other


def test_R028_what_a_model_has_reported_before_holds_in_the_next_process_too(tmp_path: Path) -> None:
    """A tokenizer with 2.6 times our estimate, at a server that does not count for us: the first run shows it, and in
    the second what would be over the window is not sent."""
    pipeline = PIPELINE.replace('"acme:small"', '"${env:ORCH_MODEL}"').replace(', tools: ["work.py:look"]', "")
    with CHAT.stand_in(lambda seen: {"text": "Noted."}, factor=3.0) as server:
        prices = '[prices."llama-*"]\ninput = "1"\noutput = "1"\ncontext = 8000\n'
        folder, env = shop(tmp_path, pipeline, named(CHAT, server) + prices), at(server, CHAT)
        assert run_here(folder, env, {"idea": "a shop " * 200}).status == "succeeded"
        second = run_here(folder, env, {"idea": "a shop " * 2000})
    assert len(server.seen) == 1
    error = second.steps["note"].error
    assert error is not None
    assert (error.code, "by our estimate, with a tenth of room" in error.message) == ("provider_too_long", True)
