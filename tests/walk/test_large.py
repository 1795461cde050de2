"""A large artifact is rendered and counted beside the event loop, so that nothing else stands still meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.context import build_context
from orchestrator.contracts import Contract
from orchestrator.providers.tokens import estimate
from orchestrator.tool_results import tell
from tests.walk.harness import House

PIPELINE = """
version: 1
pipeline: large
inputs:
  idea: {type: text, about: "What it is about."}
artifacts:
  note: {about: "A note on it.", not_for: none, schema: text}
steps:
  note: {reads: [idea], prompt: "Say what is in it."}
"""


@pytest.mark.parametrize(("size", "beside"), [(5_000, False), (500_000, True)])
def test_a_large_text_is_selected_rendered_and_counted_off_the_loop_and_a_small_one_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, beside: bool
) -> None:
    where: dict[str, set[int]] = {}

    def noted(name: str, work: Any) -> Any:
        def note(*args: Any, **more: Any) -> Any:
            where.setdefault(name, set()).add(threading.get_ident())
            return work(*args, **more)

        return note

    monkeypatch.setattr("orchestrator.bodies.following.build_context", noted("rendered", build_context))
    monkeypatch.setattr("orchestrator.chain.estimate", noted("counted", estimate))
    house = House(tmp_path, PIPELINE, {"note": [{"text": "Lines."}]})
    text = "A line of it. <artifact> is no tag of ours.\n" * (size // 44)

    async def go() -> int:
        assert (await house.run({"idea": text})).status == "succeeded"
        return threading.get_ident()

    loop = asyncio.run(go())
    assert set(where) == {"rendered", "counted"}
    for name, threads in where.items():
        assert (loop not in threads) is beside, name


LISTS = """
version: 1
pipeline: lists
inputs:
  idea: {type: text, about: "What it is about."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  rows:
    about: "A long list."
    not_for: none
    schema: {type: object, properties: {rows: {type: array, items: {type: string}}}, required: [rows],
      additionalProperties: false}
steps:
  made: {python: "work.py:made", produces: rows}
  later: {python: "work.py:later", reads: [made], produces: rows}
  asked: {reads: [later], produces: rows, tools: ["work.py:look", "work.py:look_later"], prompt: "Say it again."}
  body: {python: "work.py:body", reads: [asked], produces: rows}
outputs: [body]
"""
WORK = """
from pydantic import BaseModel

from orchestrator import Ctx, tool

ROWS = {"rows": ["a row of it"] * 20_000}


class Rows(BaseModel):
    rows: list[str]


def made():
    return ROWS


async def later(made):
    return made


@tool(idempotent=True)
def look() -> dict[str, list[str]]:
    \"\"\"Look.\"\"\"
    return ROWS


@tool(idempotent=True)
async def look_later() -> dict[str, list[str]]:
    \"\"\"Look later.\"\"\"
    return ROWS


async def body(ctx: Ctx, asked):
    rows = await ctx.ask(Rows, "Once more.")
    return rows.model_dump()
"""


def test_A24_a_long_list_is_checked_read_and_hashed_off_the_loop_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returned by a function, a coroutine, a body; answered by a model, given by a tool: all that is done with the
    whole of it and takes time by its length."""
    where: dict[str, set[int]] = {}

    def noted(name: str, owner: Any, weighs: Any) -> None:
        work = getattr(owner, name)

        def note(*args: Any, **more: Any) -> Any:
            if weighs(args[-1]):
                where.setdefault(name, set()).add(threading.get_ident())
            return work(*args, **more)

        monkeypatch.setattr(owner, name, note)

    def rows(value: Any) -> bool:
        held = getattr(value, "rows", None) or (value.get("rows", ()) if isinstance(value, dict) else ())
        return len(held) > 10_000

    noted("normalise", Contract, rows)
    noted("faults", Contract, rows)
    noted("hashes", Contract, rows)
    noted("encode", Contract, rows)
    noted("load", Contract, lambda body: len(body) > 100_000)
    noted("instance", Contract, lambda body: len(body) > 100_000)
    monkeypatch.setattr("orchestrator.tools.tell", tell_noted(where))
    answer = {"json": {"rows": ["a row of it"] * 20_000}}
    calls = {"tool_calls": [{"name": "look", "arguments": {}}, {"name": "look_later", "arguments": {}}]}
    house = House(tmp_path, LISTS, {"asked": [calls, answer], "body": [answer]}, {"work.py": WORK})

    async def go() -> int:
        seen = await house.run({"idea": "x"})
        assert seen.status == "succeeded", seen.row.error or [step.error for step in seen.steps.values()]
        return threading.get_ident()

    loop = asyncio.run(go())
    assert set(where) == {"normalise", "faults", "hashes", "encode", "load", "instance", "tell"}
    assert [name for name, threads in where.items() if loop in threads] == []


def tell_noted(where: dict[str, set[int]]) -> Any:
    def note(*args: Any) -> Any:
        where.setdefault("tell", set()).add(threading.get_ident())
        return tell(*args)

    return note
