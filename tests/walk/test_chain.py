"""The calls inside one step: chained on the latest reply, rebuilt where the chain breaks, never on half an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.chain import MAX_TOOL_ROUNDS
from orchestrator.errors import StoreError
from orchestrator.ids import is_synthetic
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, OutputItem, Reply, Request, TextItem, ToolCall, ToolOutput, Usage
from tests.walk.harness import House, Seen, Stopped

TASK = "Estimate the cost of this order."
PIPELINE = """
version: 1
pipeline: orders
inputs:
  order: {type: text, about: "What was ordered."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 1000}
artifacts:
  price: {about: "What the order costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer}, currency: {type: string}},
    required: [cost, currency], additionalProperties: false}}
  note: {about: "A note for the customer.", not_for: none, schema: text}
steps:
  price:
    reads: [order]
    tools: ["tools.py:look_up", "tools.py:reserve"]
    prompt: "Estimate the cost of this order."
  letter: {reads: [price], produces: note, prompt: "Write the letter."}
"""
TOOLS = '''
from pathlib import Path

from orchestrator import ToolError, tool

WORLD = Path(__file__).parent / "world.txt"


@tool(idempotent=True)
def look_up(part: str, amount: int = 1) -> str:
    """The price of so many of a part."""
    if part == "moon":
        raise ToolError("there is no moon in the list")
    return f"{amount} {part}: {12 * amount}"


@tool
def reserve(part: str) -> str:
    """Reserve a part."""
    with WORLD.open("a") as world:
        world.write(part)
    return "reserved"
'''
GOOD = {"json": {"cost": 24, "currency": "USD"}}
LETTER = [{"text": "It costs 24 USD."}]


def call(**arguments: Any) -> dict[str, Any]:
    return {"name": "look_up", "arguments": arguments}


def house(folder: Path, replies: list[Any] | ScriptedProvider) -> House:
    script = replies if isinstance(replies, ScriptedProvider) else {"price": replies, "letter": LETTER}
    return House(folder, PIPELINE, script, files={"tools.py": TOOLS})


def run(there: House) -> Seen:
    return asyncio.run(there.run({"order": "two lamps"}))


def texts(request: Request) -> list[str]:
    return [item.text for item in request.items if isinstance(item, TextItem)]


def outputs(request: Request) -> list[str]:
    return [item.output for item in request.items if isinstance(item, ToolOutput)]


def ids(seen: Seen, step: str = "price") -> list[str | None]:
    """The ids of the replies, in the order of their calls."""
    return [call.done.response_id if call.done else None for call in seen.calls(step)]


def events(seen: Seen, kind: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in seen.events if event.kind == kind]


class Watched(ScriptedProvider):
    """The vendor, with a hand in its memory: `after` sees every reply before it is given."""

    def __init__(self, script: Any, after: Callable[[Watched, Request, Reply], Reply], **options: Any) -> None:
        super().__init__(script, **options)
        self.after = after

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        return self.after(self, request, await super().respond(request, listener))


# --- on the latest reply ----------------------------------------------------------------------------------------------


def test_A3_R011_each_call_of_a_step_carries_the_id_of_the_reply_before_it_and_only_what_is_new(tmp_path: Path) -> None:
    there = house(tmp_path, [{"tool_calls": [call(part="lamp")]}, {"tool_calls": [call(part="cable")]}, GOOD])
    seen = run(there)
    first, second, third = there.requests("price")
    assert seen.value("price") == {"cost": 24, "currency": "USD"}
    assert is_synthetic(first.thread)
    assert [second.thread, third.thread] == ids(seen)[:2]
    assert (texts(second), outputs(second)) == ([], ["1 lamp: 12"])
    assert (texts(third), outputs(third)) == ([], ["1 cable: 12"])
    assert there.effective(third).count(TASK) == 1
    assert [c.sent.source for c in seen.calls("price")] == ["NEXT_STEP", "TOOL_RESULT", "TOOL_RESULT"]
    assert [c.sent.rung for c in seen.calls("price")] == ["chain"] * 3


def test_R011_a_failed_call_is_tried_again_from_the_same_parent(tmp_path: Path) -> None:
    """R010: none of these sources starts a conversation anew; only the step's beginning does."""
    replies = [
        {"tool_calls": [call(part="lamp")]},
        {"error": "rate_limit", "retry_after": 0},
        {"json": {"cost": "dear", "currency": "USD"}},
        GOOD,
    ]
    there = house(tmp_path, replies)
    seen = run(there)
    one, two = ids(seen)[:2]
    assert [request.thread for request in there.requests("price")[1:]] == [one, one, two]
    assert [c.sent.source for c in seen.calls("price")] == ["NEXT_STEP", "TOOL_RESULT", "REASK"]
    assert [row.done.tries for row in seen.calls("price") if row.done] == [1, 2, 1]


def test_everything_but_the_items_is_sent_again_unchanged_on_every_call(tmp_path: Path) -> None:
    there = house(tmp_path, [{"tool_calls": [call(part="lamp")]}, {"text": "24"}, GOOD])
    run(there)
    bodies = [json.loads(wire) for wire in there.wires("price")]
    assert [body.pop("previous_response_id", None) is None for body in bodies] == [True, False, False]
    for body in bodies:
        body.pop("input")
    assert bodies[0] == bodies[1] == bodies[2]
    assert {"instructions", "tools", "text", "max_output_tokens"} <= bodies[0].keys()


def test_A4_a_reask_is_the_former_id_and_the_feedback_which_names_field_value_and_rule(tmp_path: Path) -> None:
    wrong = [{"json": {"cost": "12k", "currency": "USD"}}, {"json": {"cost": 12000}}]
    there = house(tmp_path, [*wrong, {"json": {"cost": 12000, "currency": "USD"}}])
    seen = run(there)
    _, second, third = there.requests("price")
    assert [second.thread, third.thread] == ids(seen)[:2]
    for request, words in ((second, ("$.cost", '"12k"', "whole number")), (third, ("$.currency", "required"))):
        assert len(request.items) == 1
        for word in words:
            assert word in texts(request)[0]
        assert TASK not in texts(request)[0]
    usages = [c.done.usage.input_tokens for c in seen.calls("price") if c.done and c.done.usage]
    assert usages[0] < usages[1] < usages[2] < 2 * usages[0]
    assert there.effective(third).count(TASK) == 1
    assert seen.steps["price"].reasks == 2
    assert seen.value("price") == {"cost": 12000, "currency": "USD"}


def test_reasks_are_counted_and_then_the_step_fails_with_what_is_wrong(tmp_path: Path) -> None:
    there = house(tmp_path, [{"json": {"cost": n}} for n in range(9)])
    seen = run(there)
    assert len(there.requests()) == 3
    error = seen.steps["price"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("invalid_output", 1)
    assert "after 2 re-asks" in error.message
    assert "currency" in error.message
    assert "price" not in seen.artifacts


def test_a_refusal_is_not_argued_with(tmp_path: Path) -> None:
    there = house(tmp_path, [{"refusal": "I cannot price this."}, GOOD])
    seen = run(there)
    assert len(there.requests()) == 1
    assert seen.steps["price"].error is not None
    assert seen.steps["price"].error.code == "refused"
    assert "I cannot price this." in seen.steps["price"].error.message


# --- tools ------------------------------------------------------------------------------------------------------------


def test_S09_every_call_is_answered_also_one_that_cannot_be_made(tmp_path: Path) -> None:
    calls = [
        {"name": "look_up", "arguments": '{"part": "lamp"'},
        call(part="lamp", amount="many"),
        {"name": "look_up", "arguments": "[]"},
        {"name": "reserve", "arguments": {"part": 5}},
        {"name": "buy", "arguments": {}},
        call(part="moon"),
        call(part="lamp", amount=2),
    ]
    there = house(tmp_path, [{"tool_calls": calls}, GOOD])
    seen = run(there)
    answers = [item for item in there.requests("price")[1].items if isinstance(item, ToolOutput)]
    asked = seen.calls("price")[0].done
    assert asked is not None
    assert [answer.call_id for answer in answers] == [c.call_id for c in asked.tool_calls]
    said = [answer.output for answer in answers]
    for text, words in zip(said, ["not valid JSON", "amount", "object", "part", "look_up", "no moon"], strict=False):
        assert words in text
    assert said[-1] == "2 lamp: 24"
    recorded = {row.tool_call.call_id: row.output for row in seen.tools("price")}
    assert [recorded[answer.call_id] for answer in answers] == answers
    assert [answer.is_error for answer in answers] == [True] * 6 + [False]
    assert not (tmp_path / "world.txt").exists()
    assert seen.value("price") == {"cost": 24, "currency": "USD"}


class Numbered(ScriptedProvider):
    """A server that numbers the calls of each reply anew, as some do; it does not chain."""

    def __init__(self) -> None:
        super().__init__({}, chaining="replay")

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        self.requests.append(request)
        turn = sum(isinstance(item, ToolOutput) for item in request.items)
        reply = Reply(f"resp_{len(self.requests)}", "completed", json.dumps(GOOD["json"]), (), usage=Usage(100))
        if request.step == "letter" or turn == 2:
            return reply
        asked = ToolCall("call_0", "look_up", json.dumps({"part": ("lamp", "cable")[turn]}))
        item = {"type": "function_call", "call_id": "call_0", "name": "look_up", "arguments": asked.arguments}
        return replace(reply, text="", items=(OutputItem(item),), tool_calls=(asked,))


def test_a_call_id_used_twice_does_not_bring_back_the_first_answer(tmp_path: Path) -> None:
    """The process ends between the second call's reply and its tool; the journal holds the first one's output."""
    moments: list[str] = []

    def stop(moment: str) -> None:
        moments.append(moment)
        if moments.count("tool_started:begin") == 2 and moment == "tool_started:begin":
            raise Stopped

    there = house(tmp_path, Numbered())
    with pytest.raises(StoreError):
        asyncio.run(there.run({"order": "two lamps"}, observer=stop))
    seen = asyncio.run(there.resume())
    assert seen.value("price") == GOOD["json"]
    assert outputs(there.requests("price")[-1]) == ["1 lamp: 12", "1 cable: 12"]
    assert len(there.requests("price")) == 3


def test_a_model_that_calls_tools_for_ever_is_stopped(tmp_path: Path) -> None:
    there = house(tmp_path, ScriptedProvider(lambda request, items: {"tool_calls": [call(part="lamp")]}))
    seen = run(there)
    assert seen.status == "failed"
    assert len(there.requests()) == MAX_TOOL_ROUNDS + 1
    assert "tools" in str(seen.steps["price"].error)


# --- a chain that is lost ---------------------------------------------------------------------------------------------


def forget_first(provider: Watched, request: Request, reply: Reply) -> Reply:
    if len(provider.requests) == 1:
        provider.forget(reply.id)
    return reply


@pytest.mark.parametrize("chaining", ["server", "auto"])
def test_A5_a_forgotten_reply_costs_one_replay_and_then_the_chain_goes_on(tmp_path: Path, chaining: Any) -> None:
    replies = [{"reasoning": "lamps", "tool_calls": [call(part="lamp")]}, {"json": {"cost": 24}}, GOOD]
    provider = Watched({"price": replies, "letter": LETTER}, forget_first, chaining=chaining)
    there = house(tmp_path, provider)
    seen = run(there)
    first, lost, replayed, chained = there.requests("price")
    assert not is_synthetic(lost.thread)
    assert replayed.thread == first.thread
    kinds = [item.data["type"] for item in replayed.items if isinstance(item, OutputItem)]
    assert replayed.items[0] == first.items[0]
    assert kinds == ["reasoning", "function_call"]
    assert outputs(replayed) == ["1 lamp: 12"]
    assert chained.thread == ids(seen)[2]
    assert len(chained.items) == 1
    rows = seen.calls("price")
    assert [row.sent.source for row in rows] == ["NEXT_STEP", "TOOL_RESULT", "TOOL_RESULT", "REASK"]
    assert [row.sent.rung for row in rows] == ["chain", "chain", "replay", "chain"]
    assert [row.done.reason for row in rows if row.done][1] == "chain_lost"
    assert [event["reason"] for event in events(seen, "chain_rebuilt")] == ["chain_lost"]
    assert seen.value("price") == {"cost": 24, "currency": "USD"}


def test_a_server_that_never_keeps_anything_is_asked_for_it_no_more_than_twice(tmp_path: Path) -> None:
    def forget(provider: Watched, request: Request, reply: Reply) -> Reply:
        provider.forget(reply.id)
        return reply

    turns = [{"tool_calls": [call(part="lamp")]}, {"tool_calls": [call(part="cable")]}, {"json": {"cost": 2}}, GOOD]
    there = house(tmp_path, Watched({"price": turns, "letter": LETTER}, forget, chaining="auto"))
    seen = run(there)
    assert [is_synthetic(r.thread) for r in there.requests("price")] == [True, False, True, False, True, True]
    assert seen.value("price") == {"cost": 24, "currency": "USD"}


def test_A6_without_storage_no_id_is_ever_sent_and_sealed_reasoning_travels(tmp_path: Path) -> None:
    turns: list[Any] = [
        {"reasoning": "lamps first", "tool_calls": [call(part="lamp")]},
        {"reasoning": "then cables", "tool_calls": [call(part="cable")]},
        GOOD,
    ]
    kept, zdr = house(tmp_path / "kept", turns), house(tmp_path / "zdr", [])
    zdr.provider = ScriptedProvider({"price": turns, "letter": LETTER}, zdr=True)
    wanted, seen = run(kept), run(zdr)
    bodies = [json.loads(wire) for wire in zdr.wires()]
    assert all(is_synthetic(request.thread) for request in zdr.requests())
    assert not any("previous_response_id" in body for body in bodies)
    assert not any(item.get("type") == "item_reference" for body in bodies for item in body["input"])
    assert all(body["store"] is False and "reasoning.encrypted_content" in body["include"] for body in bodies)
    sealed = [item["encrypted_content"] for item in bodies[2]["input"] if item.get("type") == "reasoning"]
    assert len(sealed) == 2
    assert all(sealed)
    assert [row.sent.rung for row in seen.calls("price")] == ["chain", "replay", "replay"]
    assert seen.bodies() == wanted.bodies()


# --- a server that does not chain, and says nothing -------------------------------------------------------------------

NONSENSE = {"json": {"cost": 0, "currency": "none"}}


def sees_the_task(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    """Valid by the schema in any case; right only where the whole conversation is there."""
    if request.step == "letter":
        return LETTER[0]
    if not any(isinstance(item, TextItem) and TASK in item.text for item in items):
        return NONSENSE
    answered = sum(isinstance(item, ToolOutput) for item in items)
    return {"tool_calls": [call(part="lamp", amount=answered + 1)]} if answered < 2 else GOOD


def test_S12_an_answer_that_has_not_seen_the_chain_is_thrown_away_and_the_server_remembered(tmp_path: Path) -> None:
    there = house(tmp_path, ScriptedProvider(sees_the_task, ignores_chain=True))
    seen = run(there)
    assert seen.value("price") == {"cost": 24, "currency": "USD"}
    requests = there.requests("price")
    assert [is_synthetic(request.thread) for request in requests] == [True, False, True, True]
    rows = seen.calls("price")
    assert [row.done.outcome for row in rows if row.done] == ["tools", "discarded", "tools", "accepted"]
    assert [row.sent.rung for row in rows] == ["chain", "chain", "replay", "replay"]
    assert rows[1].done is not None
    assert rows[1].done.reason == "the server ignored previous_response_id"
    assert not any(json.dumps(NONSENSE["json"]) in there.effective(request) for request in there.requests())
    assert len(seen.versions["price"]) == 1
    assert len(events(seen, "chain_rebuilt")) == 1
    # It was paid for all the same.
    assert seen.steps["price"].calls == 4
    assert seen.steps["price"].usage.output_tokens == sum(
        row.done.usage.output_tokens for row in rows if row.done and row.done.usage
    )


def test_S12_an_echo_is_not_believed_where_the_server_counted_less_than_the_chain_holds(tmp_path: Path) -> None:
    def parrot(provider: Watched, request: Request, reply: Reply) -> Reply:
        return reply if is_synthetic(request.thread) else replace(reply, previous=request.thread)

    there = house(tmp_path, Watched(sees_the_task, parrot, ignores_chain=True))
    seen = run(there)
    assert seen.value("price") == {"cost": 24, "currency": "USD"}
    rows = [row.done for row in seen.calls("price") if row.done]
    assert [row.outcome for row in rows] == ["tools", "discarded", "tools", "accepted"]
    assert "fewer input tokens" in rows[1].reason


def test_S12_a_new_answer_under_an_old_id_is_no_link_of_the_chain(tmp_path: Path) -> None:
    """The chain would go on from a response of which nobody knows which one it is."""

    def stuck(provider: Watched, request: Request, reply: Reply) -> Reply:
        return reply if is_synthetic(request.thread) else replace(reply, id=request.thread)

    there = house(tmp_path, Watched(sees_the_task, stuck))
    seen = run(there)
    assert seen.value("price") == {"cost": 24, "currency": "USD"}
    rows = [row.done for row in seen.calls("price") if row.done]
    assert [row.outcome for row in rows] == ["tools", "discarded", "tools", "accepted"]
    assert rows[1].reason == "the server answered under the id of the response before"


# --- half an answer ---------------------------------------------------------------------------------------------------

HALF = '{"cost": 24, "currency": "US'


def test_a_cut_off_reply_is_redone_once_from_its_parent_with_more_room(tmp_path: Path) -> None:
    there = house(tmp_path, [{"tool_calls": [call(part="lamp")]}, {"text": HALF, "status": "incomplete"}, GOOD])
    seen = run(there)
    _, cut, redone = there.requests("price")
    assert cut.thread == redone.thread == ids(seen)[0]
    assert cut.items == redone.items
    assert (cut.max_output_tokens, redone.max_output_tokens) == (1000, 2000)
    assert HALF not in there.effective(redone)
    rows = seen.calls("price")
    assert [row.done.outcome for row in rows if row.done] == ["tools", "cut_off", "accepted"]
    assert [row.sent.source for row in rows] == ["NEXT_STEP", "TOOL_RESULT", "TOOL_RESULT"]
    assert seen.value("price") == {"cost": 24, "currency": "USD"}


def test_the_next_call_after_a_redo_is_chained_on_the_redo(tmp_path: Path) -> None:
    there = house(tmp_path, [{"text": HALF, "status": "incomplete"}, {"json": {"cost": 24}}, GOOD])
    seen = run(there)
    cut, redone, asked = there.requests("price")
    assert (cut.thread, redone.thread) == (cut.thread, cut.thread)
    assert is_synthetic(cut.thread)
    assert asked.thread == ids(seen)[1]
    assert asked.max_output_tokens == 1000


@pytest.mark.parametrize(
    "half",
    [HALF, '{"cost": 24, "currency": "USD"}', '```json\n{"cost": 24, "currency": "USD"}\n```\n{'],
    ids=["broken", "whole by chance", "fenced"],
)
def test_twice_cut_off_is_a_named_failure_and_half_an_answer_never_an_artifact(tmp_path: Path, half: str) -> None:
    there = house(tmp_path, [{"text": half, "status": "incomplete"}, {"text": half, "status": "incomplete"}, GOOD])
    seen = run(there)
    assert len(there.requests()) == 2
    assert seen.status == "failed"
    error = seen.steps["price"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("cut_off", 1)
    assert "2000 output tokens" in error.message
    assert "max_output_tokens" in (error.hint or "")
    assert "price" not in seen.artifacts
    assert seen.steps["price"].calls == 2


def test_a_reply_that_was_stopped_for_another_reason_is_not_redone(tmp_path: Path) -> None:
    stopped = {"text": HALF, "status": "incomplete", "incomplete_reason": "content_filter"}
    there = house(tmp_path, [stopped, GOOD])
    seen = run(there)
    assert len(there.requests()) == 1
    assert "content_filter" in str(seen.steps["price"].error)


@pytest.mark.parametrize(
    "text", [HALF, HALF + '"', '{"cost": 24, "currency": "USD"', '[{"cost": 24, "currency": "USD"}']
)
def test_JSON_that_ends_early_is_asked_for_again_and_never_repaired(tmp_path: Path, text: str) -> None:
    there = house(tmp_path, [{"text": text}, {"json": {"cost": 25, "currency": "EUR"}}])
    seen = run(there)
    assert "not valid JSON" in texts(there.requests("price")[1])[0]
    assert seen.value("price") == {"cost": 25, "currency": "EUR"}


def test_a_chain_that_is_lost_under_a_cut_off_reply_ends_too(tmp_path: Path) -> None:
    """Lost, replayed, cut off: the redo stays a replay, and a second cut ends it."""
    half = {"text": HALF, "status": "incomplete"}
    turns = [{"tool_calls": [call(part="lamp")]}, half, half, half, half, half, GOOD]
    there = house(tmp_path, Watched({"price": turns, "letter": LETTER}, forget_first))
    seen = run(there)
    assert [is_synthetic(request.thread) for request in there.requests("price")] == [True, False, True, True]
    assert [request.max_output_tokens for request in there.requests("price")] == [1000, 1000, 1000, 2000]
    assert seen.steps["price"].error is not None
    assert seen.steps["price"].error.code == "cut_off"


@pytest.mark.parametrize("at", ["the redo", "the replay"])
def test_a_redo_and_a_replay_stay_what_they_are_when_their_process_dies(tmp_path: Path, at: str) -> None:
    class Dies(BaseException):
        pass

    def die(provider: Watched, request: Request, reply: Reply) -> Reply:
        if at == "the replay":
            forget_first(provider, request, reply)
        if len(provider.requests) == 3:
            raise Dies
        return reply

    second = [{"text": HALF, "status": "incomplete"}] if at == "the redo" else []
    turns = [{"tool_calls": [call(part="lamp")]}, *second, GOOD]
    there = house(tmp_path, Watched({"price": turns, "letter": LETTER}, die))
    with pytest.raises(Dies):
        run(there)
    seen = asyncio.run(there.resume())
    before, again = there.requests("price")[2:4]
    assert (before.thread, before.items, before.max_output_tokens) == (
        again.thread,
        again.items,
        again.max_output_tokens,
    )
    assert seen.value("price") == {"cost": 24, "currency": "USD"}
