"""A pipeline of ten steps with everything a walk can meet: a branch, a join, two Python steps, tools, re-asks.

    outline ─┬─ left ───────────┬─ stack ─┬─ plan ──┬─ estimate ── tally ── summary
             └─ right ── rates ─┘         └─ risks ─┘

`right` and `estimate` are asked twice (not the form; a check), `stack` calls two tools in two turns. `look_up` may be
repeated, `reserve` must not be: each appends a line to a file, so that a test can count what happened to the world.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.walk.harness import House

IDEA: Final = "A booking page for a yoga studio."

PIPELINE: Final = """
version: 1
pipeline: ten-steps
inputs:
  idea: {type: text, about: "What the customer wants."}
  region: {type: string, about: "Where they work.", default: EU}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  sizes: {about: "How large it is.", not_for: none, schema: {
    type: object, properties: {members: {type: integer}, rooms: {type: integer}},
    required: [members, rooms], additionalProperties: false}}
  money: {about: "Prices of suppliers.", not_for: ["These are not the customer's budget."], schema: {
    type: object, properties: {low: {type: integer}, high: {type: integer}},
    required: [low, high], additionalProperties: false}}
steps:
  outline: {reads: [idea], produces: note, prompt: "Outline it."}
  left: {reads: [outline], produces: note, prompt: "Say more about the left half."}
  right: {reads: [outline, region], produces: sizes, prompt: "Give the sizes."}
  rates: {reads: [right], python: "work.py:rates", produces: money}
  stack:
    reads: [left, rates]
    produces: note
    tools: ["work.py:look_up", "work.py:reserve"]
    prompt: "Choose the parts."
  plan: {reads: [stack], produces: note, prompt: "Plan it."}
  risks: {reads: [stack, idea], produces: note, prompt: "What could go wrong?"}
  estimate:
    reads: [plan, risks, rates]
    produces: money
    checks: [{expr: "low <= high", message: "low must not exceed high"}]
    prompt: "Estimate it."
  tally: {reads: [estimate, {read: rates, fields: [high]}], python: "work.py:tally", produces: sizes}
  summary: {reads: [outline, plan, estimate, tally], produces: note, prompt: "Sum it up."}
outputs: [summary]
"""

WORK: Final = """
import time
from pathlib import Path

from orchestrator import tool

WORLD = Path(__file__).parent / "world.txt"
PAUSE = 0


def rates(right):
    return {"low": right["members"] * 2, "high": right["members"] * 3}


def tally(estimate, rates):
    return {"members": estimate["high"] - estimate["low"], "rooms": rates["high"]}


@tool(idempotent=True)
def look_up(part: str) -> str:
    \"\"\"The price of a part.\"\"\"
    with WORLD.open("a") as world:
        world.write(f"look_up {part}\\n")
    time.sleep(PAUSE)
    return f"{part}: 12"


@tool
def reserve(part: str) -> str:
    \"\"\"Reserve a part: once.\"\"\"
    with WORLD.open("a") as world:
        world.write(f"reserve {part}\\n")
    time.sleep(PAUSE)
    return f"{part}: reserved"
"""

SCRIPT: Final[Mapping[str, list[dict[str, Any]]]] = {
    "outline": [{"text": "An outline: a calendar, a till."}],
    "left": [{"text": "The calendar shows classes."}],
    "right": [{"text": "About three hundred."}, {"json": {"members": 300, "rooms": 4}}],
    "stack": [
        {
            "reasoning": "I need prices first.",
            "tool_calls": [
                {"name": "look_up", "arguments": {"part": "calendar"}},
                {"name": "look_up", "arguments": {"part": "till"}},
            ],
        },
        {"tool_calls": [{"name": "reserve", "arguments": {"part": "till"}}]},
        {"text": "A calendar for 12 and a till for 12, reserved."},
    ],
    "plan": [{"text": "First the calendar, then the till."}],
    "risks": [{"text": "The till may be late."}],
    "estimate": [{"json": {"low": 90, "high": 60}}, {"json": {"low": 60, "high": 90}}],
    "summary": [{"text": "It can be done for 60 to 90."}],
}

# What the artifacts must be in the end: the last answer of each script, the two functions worked out by hand.
TEXTS: Final = {
    "outline": "An outline: a calendar, a till.",
    "left": "The calendar shows classes.",
    "stack": "A calendar for 12 and a till for 12, reserved.",
    "plan": "First the calendar, then the till.",
    "risks": "The till may be late.",
    "summary": "It can be done for 60 to 90.",
}
VALUES: Final = {
    "right": {"members": 300, "rooms": 4},
    "rates": {"low": 600, "high": 900},
    "estimate": {"low": 60, "high": 90},
    "tally": {"members": 30, "rooms": 900},
}
CALLS: Final = {
    "outline": 1, "left": 1, "right": 2, "rates": 0, "stack": 3,
    "plan": 1, "risks": 1, "estimate": 2, "tally": 0, "summary": 1,
}  # fmt: skip
WORLD: Final = ["look_up calendar", "look_up till", "reserve till"]


def ten_steps(folder: Path) -> House:
    return House(folder, PIPELINE, SCRIPT, files={"work.py": WORK})


def delayed(seconds: float) -> dict[str, str]:
    """The same answers as files for `scripted:answers`, each with a pause in its middle."""
    return {
        f"answers/{step}.json": json.dumps([{**reply, "delay": seconds} for reply in replies])
        for step, replies in SCRIPT.items()
    }


def world(house: House) -> list[str]:
    """What the tools did, in order."""
    file = house.folder / "world.txt"
    return file.read_text().splitlines() if file.exists() else []
