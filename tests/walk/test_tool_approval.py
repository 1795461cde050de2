"""Tools that a person must allow: the step waits over restarts, and each call runs once or never (S08, S09)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.store.records import AskedTools, ToolAnswer
from orchestrator.values import Item, Request, ToolOutput
from tests.walk.harness import House, StopAfter, check_no_gap
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
steps:
  buy:
    reads: [idea]
    produces: note
    tools: ["work.py:look", {tool: "work.py:order", approval: required}]
    prompt: "Order it."
  report: {reads: [buy], produces: note, prompt: "Report."}
outputs: [report]
"""
WORK = """
from pathlib import Path

HERE = Path(__file__).parent


def look(part: str) -> str:
    \"\"\"Look a part up.\"\"\"
    with (HERE / "looked.txt").open("a") as file:
        file.write(part + "\\n")
    return part + " costs 5"


def order(part: str) -> str:
    \"\"\"Order a part.\"\"\"
    with (HERE / "world.txt").open("a") as world:
        world.write(part + "\\n")
    return part + " is ordered"
"""


def buyer(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    """Asks for a look and two orders in one reply, then says what came of them."""
    results = [item for item in items if isinstance(item, ToolOutput)]
    if request.step == "buy" and not results:
        orders = [{"name": "order", "arguments": {"part": part}} for part in ("door", "lamp")]
        return {"tool_calls": [orders[0], {"name": "look", "arguments": {"part": "door"}}, orders[1]]}
    return {"text": "; ".join(result.output for result in results) or "done"}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, PIPELINE, buyer, files={"work.py": WORK})


def world(house: House, name: str = "world.txt") -> list[str]:
    path = house.folder / name
    return sorted(path.read_text().splitlines()) if path.exists() else []


async def asked(house: House) -> AskedTools:
    async with house.services() as (services, _):
        run = await services.store.run("last")
        (found,) = await services.store.asked_tools(run.id)
        return found


async def say(house: House, decision: Any, *parts: str, comment: str = "", at: str | None = None) -> bool:
    """A person's word on the orders of these parts, given in a process of its own."""
    calls = (await asked(house)).calls
    chosen = frozenset(call.id for call in calls if json.loads(call.arguments)["part"] in parts)
    async with house.services() as (services, _):
        run = await services.store.run("last")
        return await services.store.answer_tools(run.id, ToolAnswer(chosen, decision, "ben", comment, at))


def test_S09_calls_wait_for_a_person_over_restarts_and_run_once(house: House) -> None:
    """What needs no word runs at once and once; what does, when all of the reply is answered; the outputs go together,
    in the order of the calls, on the same chain."""
    seen = asyncio.run(house.run({"idea": "a house"}))
    assert (seen.status, world(house), world(house, "looked.txt")) == ("waiting", [], ["door"])
    error = seen.steps["buy"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("tool_approval", 4)
    assert error.message == 'buy wants to call order({"part": "door"}), order({"part": "lamp"})'
    assert error.hint == 'orch approve 1/buy | orch reject 1/buy -m "…"'

    with house.new_requests() as sent:
        for _ in range(2):  # nobody has said anything
            assert asyncio.run(house.resume()).status == "waiting"
        assert asyncio.run(say(house, "approve", "door")) is False  # the other one is not answered yet
        assert asyncio.run(house.resume()).status == "waiting"
        assert (sent, world(house), world(house, "looked.txt")) == ([], [], ["door"])
        assert asyncio.run(say(house, "approve", "lamp")) is True
        seen = asyncio.run(house.resume())

    assert (seen.status, world(house), world(house, "looked.txt")) == ("succeeded", ["door", "lamp"], ["door"])
    assert seen.text("buy") == "door is ordered; door costs 5; lamp is ordered"
    assert [request.step for request in sent] == ["buy", "report"]
    first = seen.calls("buy")[0]
    assert first.done is not None
    assert sent[0].thread == first.done.response_id
    assert [type(item) for item in sent[0].items] == [ToolOutput] * 3
    answered = [event.data for event in seen.events if event.kind == "tool.answered"]
    assert [(told["decision"], told["by"]) for told in answered] == [("approve", "ben")] * 2
    check_no_gap(seen)


def test_S09_a_refusal_is_told_to_the_model_and_nothing_runs(house: House) -> None:
    asyncio.run(house.run({"idea": "a house"}))
    asyncio.run(say(house, "reject", "door", "lamp", comment="too dear"))
    seen = asyncio.run(house.resume())
    assert (seen.status, world(house)) == ("succeeded", [])
    assert seen.text("buy") == "; ".join(
        ["A person refused this call: too dear", "door costs 5", "A person refused this call: too dear"]
    )
    assert [tool.decision for tool in seen.tools("buy")].count("reject") == 2


def test_S08_an_answer_is_for_the_calls_that_were_seen(house: House) -> None:
    """The digest is of all that the step asks about; an answered call waits for none."""
    asyncio.run(house.run({"idea": "a house"}))
    before = asyncio.run(asked(house))
    with pytest.raises(UsageError, match="other tool calls than you saw"):
        asyncio.run(say(house, "approve", "door", at="0" * 64))
    assert asyncio.run(say(house, "approve", "door", at=before.digest[:16])) is False
    with pytest.raises(UsageError, match="other tool calls than you saw"):
        asyncio.run(say(house, "approve", "lamp", at=before.digest))
    for unknown in (before.calls[0].id, "call_nobody"):
        with pytest.raises(UsageError, match=f"{unknown} does not wait"):
            asyncio.run(house.resume(tools={unknown: "approve"}))
    with pytest.raises(UsageError, match="does not wait for a decision"):  # that is for what was interrupted
        asyncio.run(house.resume(tools={before.calls[1].id: "retry"}))
    assert world(house) == []


def test_S09_an_allowed_call_that_is_interrupted_is_in_doubt_and_not_repeated(house: House) -> None:
    """The word was for one execution: stopped between effect and record, a person has to say what became of it."""
    asyncio.run(house.run({"idea": "a house"}))
    calls = {json.loads(call.arguments)["part"]: call.id for call in asyncio.run(asked(house)).calls}
    said = dict.fromkeys(calls.values(), "approve")
    with pytest.raises(StoreError):
        asyncio.run(house.resume(tools=said, observer=StopAfter("tool_finished:begin", 2)))
    done = world(house)
    with house.new_requests() as sent:
        seen = asyncio.run(house.resume())
    error = seen.steps["buy"].error
    assert error is not None
    assert (seen.status, error.code, sent, world(house)) == ("waiting", "tool_in_doubt", [], done)
    doubtful = [tool.tool_call.call_id for tool in seen.tools("buy") if tool.output is None]
    seen = asyncio.run(house.resume(tools=dict.fromkeys(doubtful, "done:ordered")))
    assert (seen.status, world(house)) == ("succeeded", done)


def test_nobody_is_asked_about_arguments_that_the_tool_would_not_take(tmp_path: Path) -> None:
    replies: list[Any] = [{"tool_calls": [{"name": "order", "arguments": {"part": 5}}]}, {"text": "no"}]
    house = House(tmp_path, PIPELINE, {"buy": replies, "report": [{"text": "r"}]}, files={"work.py": WORK})
    seen = asyncio.run(house.run({"idea": "a house"}))
    assert (seen.status, world(house)) == ("succeeded", [])
    (tool,) = seen.tools("buy")
    assert tool.output is not None
    assert tool.output.output.startswith("The arguments of order are not valid: part")


def test_the_commands_of_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` ends with 4 and says how to answer; `inbox` shows the calls; `approve` wants the digest where nobody is
    shown anything, takes one call at a time with --call, and the run goes on when all are answered."""
    orders = [{"name": "order", "arguments": {"part": part}} for part in ("door", "lamp")]
    files = {
        "work.py": WORK,
        "answers/buy.json": json.dumps([{"tool_calls": orders}, {"text": "bought"}]),
        "answers/report.json": '[{"text": "reported"}]',
    }
    house = House(tmp_path, PIPELINE, {}, files=files)
    orch = commands(tmp_path, {"ORCH_MODEL": "scripted:answers"}, monkeypatch, capsys)

    assert "orch approve 1/buy" in orch("run", "--set", "idea=a house", code=4)
    (row,) = json.loads(orch("inbox", "--json"))["waiting"]
    assert [(call["tool"], call["arguments"]) for call in row["calls"]] == [
        ("order", '{"part": "door"}'),
        ("order", '{"part": "lamp"}'),
    ]
    shown = orch("inbox")
    assert '{"part": "lamp"}' in shown
    assert f"orch approve 1/buy --at {row['digest'][:16]}" in shown

    assert f"orch approve 1/buy --at {row['digest'][:16]}" in orch("show", "1/buy")
    assert "--at DIGEST" in orch("approve", "1/buy", code=2)
    assert "does not ask about call_x" in orch("reject", "1/buy", "-m", "no", "--call", "call_x", code=2)
    door = row["calls"][0]["id"]
    told = orch("reject", "1/buy", "-m", "too dear", "--call", door, "--at", row["digest"])
    assert "refused by" in told
    assert "it still asks about order" in told
    assert world(house) == []
    (row,) = json.loads(orch("inbox", "--json"))["waiting"]
    assert row["message"] == 'buy wants to call order({"part": "lamp"})'  # and not what has its answer
    assert "door" not in orch("show", "1") + orch("show", "1/buy")
    assert "reported" in orch("approve", "1/buy", "--at", row["digest"][:16])
    assert world(house) == ["lamp"]
    assert "nothing waits" in orch("inbox")


@pytest.mark.parametrize("moment", ["tools_asked:begin", "tools_asked:committed", "answer_tools:committed"])
def test_S09_stopped_while_asking_or_answering_loses_and_repeats_nothing(house: House, moment: str) -> None:
    calls: dict[str, str] = {}
    if moment == "answer_tools:committed":
        asyncio.run(house.run({"idea": "a house"}))
        calls = {call.id: "approve" for call in asyncio.run(asked(house)).calls}
        with pytest.raises(StoreError):
            asyncio.run(house.resume(tools=calls, observer=StopAfter(moment, 2)))
    else:
        house.stopped({"idea": "a house"}, StopAfter(moment))
        assert asyncio.run(house.resume()).status == "waiting"
        calls = {call.id: "approve" for call in asyncio.run(asked(house)).calls}
    assert world(house) == []
    seen = asyncio.run(house.resume(tools={} if moment == "answer_tools:committed" else calls))
    assert (seen.status, world(house), world(house, "looked.txt")) == ("succeeded", ["door", "lamp"], ["door"])
