"""S09 in Python bodies and over failures: a tool that has acted does not act again, whatever the step died of.

A body goes on with the answers it has. Where a question failed after its tool had acted, where the process was killed
between the effect and its record, where the step's time was over while a tool ran: the effect is in the world once.
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure, StoreError
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, Request, ToolOutput
from tests.contract.failure_rows import ROWS
from tests.contract.vendors import VENDORS, Vendor
from tests.strict_server import Seen as Asked
from tests.walk.harness import House, Seen, StopAfter, check_no_gap
from tests.walk.over_http import at, named, resume_here, run_here, seen_here, typed, world

IDEA = {"idea": "a house"}
BODY = """
import asyncio
import os
import signal
from pathlib import Path

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, artifact, tool

HERE = Path(__file__).parent


@artifact(about="What was ordered.", not_for="none")
class Orders(BaseModel):
    lines: list[str]


class Note(BaseModel):
    text: str


@tool
def order(part: str) -> str:
    \"\"\"Order a part.\"\"\"
    with (HERE / "world.txt").open("a") as world:
        world.write(part + "\\n")
        number = len((HERE / "world.txt").read_text().split()) + 1
    if (HERE / "trap").exists():
        (HERE / "trap").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{part} is order {number}"


p = Pipeline("shop")
p.input("idea", str, about="What the customer wants.")


@p.step(tools=[order])
async def buy(ctx: Ctx, idea: str) -> Orders:
ASKS
"""
TWICE = """
    chat = ctx.thread("talk")
    first = await chat.ask(Note, "Order a door.")
    second = await chat.ask(Note, "Order one more door.")
    return Orders(lines=[first.text, second.text])
"""
ONCE = """
    note = await ctx.ask(Note, "Order a door.")
    return Orders(lines=[note.text])
"""
BESIDE = """
    notes = await asyncio.gather(*(ctx.thread(name).ask(Note, "Order a door.") for name in ("east", "west")))
    if not (HERE / "there").exists():
        raise ConnectionError("nobody there")
    return Orders(lines=sorted(note.text for note in notes))
"""
DOOR: dict[str, Any] = {"tool_calls": [{"name": "order", "arguments": {"part": "door"}}]}


def house(folder: Path, asks: str, script: Any) -> House:
    files = {"orchestrator.toml": 'user = "ana"\n', "shop.py": BODY.replace("ASKS", asks.strip("\n"))}
    return House(folder, "", script, files)


class Clerk:
    """Orders for each question, once it is told the result says so; refuses the so-manieth requests."""

    def __init__(self, *refused: int) -> None:
        self.refused, self.asked = refused, 0

    def __call__(self, request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
        self.asked += 1
        if self.asked in self.refused:
            raise ProviderFailure("not now", kind="auth")
        last = items[-1]
        return {"json": {"text": last.output}} if isinstance(last, ToolOutput) else DOOR


def recalled(seen: Seen) -> int:
    return sum(event.kind == "tool.recalled" for event in seen.events)


def resumed(there: House, times: int) -> Seen:
    for _ in range(times):
        seen = asyncio.run(there.resume())
    return seen


# --- a question that failed after its tool had acted ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "resumes", "told"),
    [
        ((2,), 1, 1),  # the first question, between the order and the answer
        ((4,), 1, 1),  # the second: the first is answered, and what was done for that is used up
        ((2, 4), 2, 2),  # again and again
        ((2, 6), 2, 2),  # the first; then, the first answered, the second
    ],
)
def test_S09_a_failed_question_of_a_body_does_not_act_again(
    tmp_path: Path, refused: tuple[int, ...], resumes: int, told: int
) -> None:
    """Two questions, each of which orders one door: two doors in the world, and each answer speaks of its own."""
    shop = house(tmp_path, TWICE, Clerk(*refused))
    assert asyncio.run(shop.run(IDEA)).status == "failed"
    seen = resumed(shop, resumes)
    assert (seen.status, seen.value("buy")) == ("succeeded", {"lines": ["door is order 1", "door is order 2"]})
    assert world(tmp_path) == ["door", "door"]
    assert recalled(seen) == told
    check_no_gap(seen)


def test_S09_what_was_ordered_for_answers_that_stand_is_ordered_neither_again_nor_less(tmp_path: Path) -> None:
    """Both questions are answered when the body fails; then nothing is asked, told or done."""
    shop = house(tmp_path, BESIDE, Clerk())
    assert asyncio.run(shop.run(IDEA)).status == "failed"
    (tmp_path / "there").touch()
    with shop.new_requests() as asked:
        seen = asyncio.run(shop.resume())
    assert seen.value("buy") == {"lines": ["door is order 1", "door is order 2"]}
    assert (asked, world(tmp_path), recalled(seen)) == ([], ["door", "door"], 0)


@pytest.mark.parametrize("after", range(1, 4))
def test_S09_a_resume_of_a_failed_body_that_is_stopped_too_has_it_once(tmp_path: Path, after: int) -> None:
    """It failed with a door ordered; the attempt after it is stopped at one write after the other."""
    shop = house(tmp_path, ONCE, Clerk(2))
    assert asyncio.run(shop.run(IDEA)).status == "failed"
    with pytest.raises(StoreError):
        asyncio.run(shop.resume(observer=StopAfter("done:begin", after) if after < 3 else StopAfter("commit:begin")))
    seen = asyncio.run(shop.resume())
    assert (seen.status, seen.value("buy")) == ("succeeded", {"lines": ["door is order 1"]})
    assert world(tmp_path) == ["door"]


@VENDORS
def test_S09_over_http_a_failed_question_of_a_body_is_told_what_was_done(tmp_path: Path, vendor: Vendor) -> None:
    def clerk(seen: Asked) -> dict[str, Any]:
        return {"json": {"text": "It is ordered."}} if seen.turn % 2 else DOOR

    with vendor.stand_in(clerk) as server:
        (tmp_path / "orchestrator.toml").write_text('user = "ana"\n' + named(vendor, server))
        (tmp_path / "shop.py").write_text(BODY.replace("ASKS", TWICE.strip("\n")))
        wrong = ROWS[vendor.kind]["401"][0]
        server.faults = [None, None, None, wrong]
        env = at(server, vendor)
        assert run_here(tmp_path, env, IDEA).status == "failed"
        run = resume_here(tmp_path, env)
    assert (run.status, world(tmp_path), recalled(run)) == ("succeeded", ["door", "door"], 1)
    assert [seen.status for seen in server.seen] == [200, 200, 200, wrong.status, 200, 200]


# --- killed between the effect and its record -------------------------------------------------------------------------


@pytest.mark.slow
def test_S09_SIGKILL_between_effect_and_record_in_a_body_waits_for_a_word(tmp_path: Path) -> None:
    answers = [DOOR, {"json": {"text": "one"}}, DOOR, {"json": {"text": "two"}}]
    shop = house(tmp_path, TWICE, ScriptedProvider({"buy/talk": answers}))
    shop.write("answers/buy/talk.json", json.dumps(answers))
    shop.write("trap", "")
    env = {"ORCH_MODEL": "scripted:answers"}
    assert typed(tmp_path, env, "run", "--set", "idea=a house", "--yes")[0] == -signal.SIGKILL
    code, *said = typed(tmp_path, env, "resume")
    [row] = seen_here(tmp_path, env).tools("buy")
    assert f"--tool {row.tool_call.call_id}=" in "".join(said)
    assert (code, world(tmp_path), row.state) == (4, ["door"], "started")
    assert (typed(tmp_path, env, "resume")[0], world(tmp_path)) == (4, ["door"])
    code, *said = typed(tmp_path, env, "resume", "--tool", f"{row.tool_call.call_id}=done:it came")
    assert code == 0, said
    seen = seen_here(tmp_path, env)
    assert (seen.value("buy"), world(tmp_path)) == ({"lines": ["one", "two"]}, ["door", "door"])
    assert [tool.output.output for tool in seen.tools("buy") if tool.output] == ["it came", "door is order 2"]


# --- under way when the step failed -----------------------------------------------------------------------------------

SLOW = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  buy: {reads: [idea], produces: note, tools: ["work.py:order"], prompt: "Order it.", timeout: 3s}
outputs: [buy]
"""
STANDS_STILL = """
import time
from pathlib import Path

HERE = Path(__file__).parent


def order(part: str) -> str:
    \"\"\"Order a part.\"\"\"
    with (HERE / "world.txt").open("a") as world:
        world.write(part + "\\n")
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return part + " is ordered"
"""


def clerk(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    last = items[-1]
    return {"text": last.output} if isinstance(last, ToolOutput) else DOOR


@pytest.mark.parametrize(
    ("word", "said", "doors"), [("retry", "door is ordered", 2), ("done:it came", "it came", 1)], ids=["retry", "done"]
)
def test_S09_a_tool_that_was_under_way_when_the_time_was_over_waits_for_a_word(
    tmp_path: Path, word: str, said: str, doors: int
) -> None:
    """The step failed with its timeout, and the order is out. Its model, which begins anew, orders again: nobody knows
    whether it has it, so it is not done, and a person is asked."""
    shop = House(tmp_path, SLOW, clerk, {"work.py": STANDS_STILL})
    failed = asyncio.run(shop.run(IDEA))
    assert failed.steps["buy"].error is not None
    assert failed.steps["buy"].error.code == "timeout"
    (tmp_path / "go").touch()
    for _ in range(2):
        seen = asyncio.run(shop.resume())
        assert (seen.status, world(tmp_path)) == ("waiting", ["door"])
    row = seen.tools("buy")[-1]
    assert (row.state, row.decision) == ("started", None)
    seen = asyncio.run(shop.resume(tools={row.tool_call.call_id: word}))
    assert (seen.status, seen.text("buy"), world(tmp_path)) == ("succeeded", said, ["door"] * doors)
