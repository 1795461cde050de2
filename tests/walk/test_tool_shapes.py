"""What a step says of a tool's results: kept parts, a contract, a limit; the record has all of it (R053, S21)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.walk.harness import House
from tests.walk.over_http import commands

PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  catalogue:
    about: "What vendors sell."
    not_for: ["No customer has agreed to these prices."]
    sensitivity: LEVEL
    schema: {type: object, properties: {total: {type: integer}, items: {type: array}}, required: [total, items]}
steps:
  buy:
    reads: [idea]
    produces: note
    tools: [{tool: "work.py:read", keep: [total, items.name], returns: catalogue}]
    prompt: "Choose."
outputs: [buy]
"""
WORK = '''
def read(page: int) -> dict:
    """A page of the catalogue."""
    return {"total": 2, "items": [{"name": "door", "text": "CANARY " * 50}, {"name": "lamp", "text": "CANARY " * 50}]}
'''
REPLIES: list[Any] = [{"tool_calls": [{"name": "read", "arguments": {"page": 1}}]}, {"text": "a door"}]


def shop(folder: Path, level: str) -> House:
    files = {"work.py": WORK, "answers/buy.json": json.dumps(REPLIES)}
    return House(folder, PIPELINE.replace("LEVEL", level), {"buy": REPLIES}, files=files)


def test_R053_the_model_is_told_the_kept_parts_under_their_label_and_the_record_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = shop(tmp_path, "internal")
    seen = asyncio.run(house.run({"idea": "a house"}))
    assert (seen.status, seen.text("buy")) == ("succeeded", "a door")
    sent = house.requests("buy")[1].items[-1]
    assert getattr(sent, "output", "") == "\n".join(
        [
            '<artifact step="read" type="catalogue">',
            "About: What vendors sell.",
            "Not for: No customer has agreed to these prices.",
            "---",
            '{"total":2,"items":[{"name":"door"},{"name":"lamp"}]}'.replace(":", ": ").replace(",", ", "),
            "</artifact>",
        ]
    )
    (tool,) = seen.tools("buy")
    assert (tool.whole or "").count("CANARY") == 100
    first, second = (call.done for call in seen.calls("buy"))
    assert first is not None
    assert second is not None
    assert first.first_text_seconds is None  # it said nothing but the call
    assert 0 <= (second.first_text_seconds or -1) <= second.seconds

    orch = commands(tmp_path, {"ORCH_MODEL": "scripted:answers", "ORCH_DB": house.url}, monkeypatch, capsys)
    call = tool.tool_call.call_id
    assert orch("why", "1/buy", "--tool", call).count("CANARY") == 100
    assert f"--tool {call} prints all" in orch("why", "1/buy")
    orch("why", "1/buy", "--tool", "call_x", code=2)


def test_S21_a_tool_whose_results_the_provider_may_not_see_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    house = shop(tmp_path, "confidential")
    seen = asyncio.run(house.run({"idea": "a house"}))
    error = seen.steps["buy"].error
    assert error is not None
    assert (seen.status, error.exit_code, house.requests("buy")) == ("failed", 7, [])
    assert "what read gives, which is confidential" in error.message
