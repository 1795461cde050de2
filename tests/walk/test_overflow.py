"""What a step gathers in its thread counts against the window before it is sent (R028, R029)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from orchestrator.providers.scripted import ScriptedProvider
from tests.walk.harness import House

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
