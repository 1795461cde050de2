"""The Anthropic driver over real HTTP and the real SDK, against the strict stand-in: the wire, the failure table."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.providers.retry import respond
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Item, OutputFormat, Reply, Request, TextItem, ToolOutput, ToolSpec, Usage
from tests.strict_messages import MessagesServer
from tests.strict_server import Fault, Seen

KEY = "sk-ant-canary-0123456789abcdef"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
MODEL = "claude-x1"
LOOK = ToolSpec("look", "Looks.", SCHEMA)
ROOT = Path(__file__).parents[2]


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    env: dict[str, str] = field(default_factory=lambda: {"ANTHROPIC_API_KEY": KEY})
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.env.get(name) or None

    def secret_values(self) -> tuple[str, ...]:
        return ("pw-CANARY", "tk-CANARY")


@dataclass
class Project:
    root: Path = Path()


def opened(base_url: str | None, env: dict[str, str] | None = None, **spec: Any) -> Providers:
    provider = ProviderSpec(kind="anthropic", base_url=base_url, **spec)
    return Providers(Project(), Settings({"anthropic": provider}, {"ANTHROPIC_API_KEY": KEY} if env is None else env))


def ask(thread: str = "synthetic_s_1", *items: Item, **more: Any) -> Request:
    return Request(MODEL, thread, "Be brief.", items or (TextItem(("hel", "lo")),), **{"timeout": 20.0, **more})


FULL = ask(tools=(LOOK,), output=OutputFormat("form", SCHEMA), effort="medium", max_output_tokens=500, cache_key="k1")


def after(request: Request, reply: Reply, *items: Item) -> Request:
    return replace(request, items=(*request.items, *reply.items, *items))


def send(
    server: MessagesServer, *requests: Request, events: list[StreamEvent] | None = None, **spec: Any
) -> list[Reply]:
    """Each request once, on one provider."""

    async def go() -> list[Reply]:
        providers = opened(server.base_url, **spec)
        listen = (events if events is not None else []).append
        try:
            return [await providers.get("anthropic").respond(request, listen) for request in requests]
        finally:
            await providers.close()

    return asyncio.run(go())


def failing(server: MessagesServer, request: Request, **spec: Any) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        send(server, request, **spec)
    assert KEY not in f"{caught.value.message} {caught.value.hint}", "a key may stand in no message"
    assert caught.value.exit_code == 6
    return caught.value


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    def answer(seen: Seen) -> dict[str, Any]:
        return {"text": f"reply {seen.turn + 1}"}

    with MessagesServer(answer, key=KEY, models=frozenset({MODEL})) as running:
        yield running


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_first_call_has_the_fields_that_it_needs_and_no_others(server: MessagesServer) -> None:
    send(server, ask(), FULL)
    plain, full = server.bodies
    assert plain == {
        "model": MODEL,
        "max_tokens": 8000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "stream": True,
    }
    marked = {"cache_control": {"type": "ephemeral"}}
    assert full == {
        "model": MODEL,
        "max_tokens": 500,
        **marked,
        "system": [{"type": "text", "text": "Be brief.", **marked}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA, "strict": True}],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium", "format": {"type": "json_schema", "schema": SCHEMA}},
        "stream": True,
    }
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.seen[0].headers["content-type"] == "application/json"


def test_S14_the_wire_is_exactly_what_is_sent(server: MessagesServer) -> None:
    request = replace(FULL, items=(TextItem(("Ümläut 日本 \u2028 \x00 </artifact>",)),))
    send(server, request)
    providers = opened(server.base_url)
    assert server.seen[0].raw == providers.get("anthropic").wire(request)
    assert server.seen[0].raw == providers.offline("anthropic").wire(request)
    assert server.seen[0].body["messages"][0]["content"][0]["text"] == "Ümläut 日本 \u2028 \x00 </artifact>"


@pytest.mark.parametrize(
    ("effort", "thinking", "sent"),
    [
        (None, None, None),
        ("none", {"type": "disabled"}, None),
        ("minimal", {"type": "adaptive"}, "low"),
        ("low", {"type": "adaptive"}, "low"),
        ("max", {"type": "adaptive"}, "max"),
    ],
)
def test_effort_is_how_much_to_think(server: MessagesServer, effort: Any, thinking: Any, sent: str | None) -> None:
    send(server, ask(effort=effort))
    [body] = server.bodies
    assert body.get("thinking") == thinking
    assert body.get("output_config") == ({"effort": sent} if sent else None)


def test_what_json_cannot_hold_is_refused_before_sending(server: MessagesServer) -> None:
    assert failing(server, ask("synthetic_s_1", TextItem(("\ud800",)))).kind == "bad_request"
    assert server.seen == []


def test_an_id_to_chain_on_never_leaves(server: MessagesServer) -> None:
    assert failing(server, ask("msg_7")).kind == "chain_unsupported"
    assert server.seen == []
    traits = opened(None).get("anthropic").traits
    assert (traits.chaining, traits.stores, traits.base_url) == ("replay", True, "https://api.anthropic.com")


def test_a_thread_goes_back_verbatim_thoughts_and_signatures_included() -> None:
    called: dict[str, Any] = {
        "reasoning": "Let me thinkä", "redacted": "sealed", "text": "I look.",
        "tool_calls": [{"name": "look", "arguments": {"a": 1.5, "b": [None, "ü"]}}],
    }  # fmt: skip
    with MessagesServer(lambda seen: [called, {"json": {"a": 2}}, {"json": {"a": 3}}][seen.turn]) as server:
        [first] = send(server, FULL)
        second_asked = after(FULL, first, ToolOutput(first.tool_calls[0].call_id, "no", is_error=True))
        [second] = send(server, second_asked)
        [third] = send(server, after(second_asked, second, TextItem(("again",))))
        said = [seen.response["content"] for seen in server.seen]
    assert (first.text, second.text, third.text) == ("", '{"a": 2}', '{"a": 3}')
    assert [dict(item.data) for item in first.items] == said[0]
    turns = server.bodies[2]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert [turns[1]["content"], turns[3]["content"]] == said[:2]
    [result] = turns[2]["content"]
    assert result.pop("cache_control") == {"type": "ephemeral"}
    call_id = first.tool_calls[0].call_id
    assert result == {"type": "tool_result", "tool_use_id": call_id, "content": "no", "is_error": True}
    fixed = [{k: v for k, v in body.items() if k != "messages"} for body in server.bodies]
    assert fixed[0] == fixed[1] == fixed[2], "all else is resent unchanged"


@pytest.mark.parametrize("changed", ["thinking", "signature"])
def test_the_stand_in_refuses_thoughts_that_were_changed(changed: str) -> None:
    called = {"reasoning": "hm", "tool_calls": [{"name": "look", "arguments": {"a": 1}}]}
    with MessagesServer(lambda seen: called) as server:
        [first] = send(server, FULL)
        items = [
            replace(item, data={**item.data, changed: "x"}) if n == 0 else item for n, item in enumerate(first.items)
        ]
        answer = ToolOutput(first.tool_calls[0].call_id, "7")
        assert failing(server, replace(FULL, items=(*FULL.items, *items, answer))).kind == "bad_request"
        assert failing(server, replace(FULL, items=(*FULL.items, *first.items[1:], answer))).kind == "bad_request"


@pytest.mark.parametrize(
    "empty", [{"text": ""}, {"text": " \n"}, {"reasoning": "hm", "text": ""}, {"reasoning": "hm"}, {}]
)
def test_an_answer_that_the_vendor_would_not_take_back_is_left_out(empty: dict[str, Any]) -> None:
    """An empty answer is asked for again; the API refuses empty texts, and a turn of thoughts alone."""
    replies = iter([empty, {"text": "done"}])
    with MessagesServer(lambda seen: next(replies)) as server:
        [first] = send(server, ask())
        assert first.text.strip() == ""
        [second] = send(server, after(ask(), first, TextItem(("the answer was empty",))))
    assert second.text == "done"
    [turn] = server.bodies[1]["messages"]
    assert [block["text"] for block in turn["content"]] == ["hello", "the answer was empty"]


def test_results_stand_first_in_their_turn(server: MessagesServer) -> None:
    call = {"tool_calls": [{"name": "look", "arguments": {"a": 1}}]}
    with MessagesServer(lambda seen: call if seen.turn == 0 else {"text": "done"}) as calling:
        [first] = send(calling, FULL)
        [done] = send(calling, after(FULL, first, TextItem(("and",)), ToolOutput(first.tool_calls[0].call_id, "7")))
    assert done.text == "done"
    assert [block["type"] for block in calling.bodies[1]["messages"][-1]["content"]] == ["tool_result", "text"]


# --- the cache --------------------------------------------------------------------------------------------------------

LONG = TextItem(("x" * 8000,))


def marks(body: dict[str, Any]) -> list[str]:
    found = ["top"] if "cache_control" in body else []
    found += ["system" for block in body["system"] if "cache_control" in block]
    for number, turn in enumerate(body["messages"]):
        found += [f"turn {number}" for block in turn["content"] if "cache_control" in block]
    return found


def test_a_step_that_asks_once_does_not_pay_for_a_cache(server: MessagesServer) -> None:
    [first] = send(server, ask("synthetic_s_1", LONG))
    [second] = send(server, after(ask("synthetic_s_1", LONG), first, TextItem(("again",))))
    assert [marks(body) for body in server.bodies] == [[], []], "one re-ask is no reason to expect another"
    for reply in (first, second):
        assert reply.usage is not None
        assert (reply.usage.cached_tokens, reply.usage.cache_write_tokens) == (0, 0)


def test_R034_a_step_with_tools_reads_what_it_wrote_and_every_token_counts_once() -> None:
    call = {"tool_calls": [{"name": "look", "arguments": {"a": 1}}]}
    with MessagesServer(lambda seen: call if seen.turn < 2 else {"text": "done"}) as server:
        request = replace(FULL, items=(LONG,))
        replies: list[Reply] = []
        for _ in range(3):
            [reply] = send(server, request)
            replies.append(reply)
            request = after(request, reply, *(ToolOutput(c.call_id, "seven") for c in reply.tool_calls))
    usages = [reply.usage or Usage() for reply in replies]
    reports = [seen.response["usage"] for seen in server.seen]
    assert [marks(body) for body in server.bodies] == [
        ["top", "system"], ["top", "system", "turn 0"], ["top", "system", "turn 2"],
    ]  # fmt: skip
    assert usages[0].cached_tokens == 0
    assert usages[0].cache_write_tokens == usages[0].input_tokens > 2000
    assert usages[1].cached_tokens == usages[0].input_tokens, "all that the call before had sent"
    assert usages[2].cached_tokens == usages[1].input_tokens
    for usage, report in zip(usages, reports, strict=True):
        parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        assert usage.input_tokens == sum(report[part] for part in parts)
        assert usage.cached_tokens == report["cache_read_input_tokens"]
        assert usage.cache_write_tokens == report["cache_creation_input_tokens"]


def test_a_turn_of_many_calls_does_not_lose_the_cache() -> None:
    """The vendor looks back some twenty blocks from a mark: thirty calls and their results are more than that."""
    calls = {"tool_calls": [{"name": "look", "arguments": {"a": n}} for n in range(30)]}
    with MessagesServer(lambda seen: calls if seen.turn == 0 else {"text": "done"}) as server:
        request = replace(FULL, items=(LONG,), max_output_tokens=5000)
        [first] = send(server, request)
        [second] = send(server, after(request, first, *(ToolOutput(c.call_id, "7") for c in first.tool_calls)))
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.cached_tokens == first.usage.input_tokens


def test_a_thread_that_has_gone_on_twice_is_cached(server: MessagesServer) -> None:
    request = ask("synthetic_s_1", LONG)
    for _ in range(4):
        [reply] = send(server, request)
        request = after(request, reply, TextItem(("more",)))
    assert [marks(body) for body in server.bodies] == [
        [], [], ["top", "system", "turn 2"], ["top", "system", "turn 4"],
    ]  # fmt: skip
    assert [seen.response["usage"]["cache_read_input_tokens"] > 2000 for seen in server.seen] == [
        False, False, False, True,
    ]  # fmt: skip


def test_A23_cached_tokens_are_priced_once(server: MessagesServer) -> None:
    report = {"input_tokens": 9, "cache_read_input_tokens": 17102, "cache_creation_input_tokens": 0, "output_tokens": 0}
    server.faults = [Fault(response={"usage": report})]
    [reply] = send(server, ask())
    assert reply.usage == Usage(input_tokens=17111, cached_tokens=17102)
    table = {"claude-*": PriceSpec.model_validate({"input": 3, "cached": "0.30", "output": 15})}
    specs = {"anthropic": ProviderSpec(kind="anthropic")}
    priced = Providers(Project(), Settings(specs, prices=table)).prices().cost("anthropic", MODEL, reply.usage)
    assert priced is not None
    assert priced.usd == Decimal("0.0051576")


# --- what comes back --------------------------------------------------------------------------------------------------


def test_the_id_is_told_first_then_the_text(server: MessagesServer) -> None:
    events: list[StreamEvent] = []
    [reply] = send(server, ask(), events=events)
    assert events[0] == StreamEvent("created", reply.id)
    assert len(events) > 2
    assert "".join(event.data for event in events[1:]) == reply.text == "reply 1"
    assert {event.kind for event in events[1:]} == {"text"}
    assert (reply.model, reply.previous, reply.status) == (MODEL, None, "completed")


def test_servers_that_answer_at_once_are_understood(server: MessagesServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(whole=True)]
    [reply] = send(server, ask(), events=events)
    assert reply.text == "reply 1"
    assert reply.usage is not None
    assert events == [StreamEvent("created", reply.id)]


def test_only_what_follows_the_last_tool_is_the_answer() -> None:
    """Tools of the vendor's: it says what it will do, does it, and answers."""
    search = [
        {"type": "text", "text": "I'll search."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "https://a.test"}]},
    ]
    with MessagesServer(lambda seen: {"blocks": search, "text": "It is 7."}) as server:
        [reply] = send(server, ask())
        [again] = send(server, after(ask(), reply, TextItem(("sure?",))))
    assert (reply.text, again.text) == ("It is 7.", "It is 7.")
    assert reply.tool_calls == ()
    assert server.bodies[1]["messages"][1]["content"][:3] == search


def test_a_paused_turn_goes_on_as_it_is_without_a_word_from_us() -> None:
    search = [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}]
    found = [{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}]
    going_on: dict[str, Any] = {"blocks": found, "text": "It is 7."}
    replies = iter([{"blocks": search, "stop_reason": "pause_turn"}, going_on, {"text": "Yes."}])
    with MessagesServer(lambda seen: next(replies)) as server:
        [paused] = send(server, ask())
        [reply] = send(server, after(ask(), paused))
        [last] = send(server, after(after(ask(), paused), reply, TextItem(("sure?",))))
    assert (paused.status, paused.text) == ("paused", "")
    assert (reply.status, reply.text, last.text) == ("completed", "It is 7.", "Yes.")
    assert [turn["role"] for turn in server.bodies[1]["messages"]] == ["user", "assistant"]
    assert server.bodies[1]["messages"][1]["content"] == search
    one_turn = [*search, *found, {"type": "text", "text": "It is 7.", "citations": None}]
    assert server.bodies[2]["messages"][1] == {"role": "assistant", "content": one_turn}


def test_a_refusal_says_why_and_leaves_nothing_in_the_thread() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This could harm."}
    half = {"text": "Sure, first", "tool_calls": [{"name": "look", "arguments": {"a": 1}}]}
    reply = {**half, "stop_reason": "refusal", "stop_details": details}
    with MessagesServer(lambda seen: reply) as server:
        [refused] = send(server, FULL)
        assert (refused.status, refused.refusal) == ("completed", "This could harm. (category: cyber)")
        assert (refused.text, refused.items, refused.tool_calls) == ("", (), ())
        server.answer = lambda seen: {"text": "I won't.", "stop_reason": "refusal"}
        assert send(server, ask())[0].refusal == "I won't."
        server.answer = lambda seen: {"stop_reason": "refusal"}
        assert send(server, ask())[0].refusal == "no reason given"


def test_a_cut_off_reply_says_why() -> None:
    with MessagesServer(lambda seen: {"json": {"a": "x" * 400}}) as server:
        [reply] = send(server, ask(max_output_tokens=50))
    assert (reply.status, reply.incomplete_reason) == ("incomplete", "max_output_tokens")
    assert reply.text == '{"a": "' + "x" * 193, "50 tokens of 4 bytes"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 50


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "something_new"])
def test_every_other_end_is_never_an_answer(reason: str) -> None:
    with MessagesServer(lambda seen: {"json": {"a": 1}, "stop_reason": reason}) as server:
        [reply] = send(server, ask())
    assert (reply.status, reply.incomplete_reason) == ("incomplete", reason)
    assert reply.usage is not None


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '{"a": NaN}', "null", "[" * 5000])
def test_arguments_that_are_no_object_are_kept_and_can_be_answered(arguments: str) -> None:
    call = {"tool_calls": [{"name": "look", "arguments": arguments}]}
    request = replace(FULL, max_output_tokens=5000)
    with MessagesServer(lambda seen: call if seen.turn == 0 else {"text": "done"}) as server:
        [first] = send(server, request)
        [tool_call] = first.tool_calls
        assert tool_call.arguments == arguments
        [done] = send(server, after(request, first, ToolOutput(tool_call.call_id, "no JSON", is_error=True)))
    assert done.text == "done"
    assert server.bodies[1]["messages"][1]["content"][0]["input"] == {"INVALID_JSON": arguments}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": float("nan")},
        {"input_tokens": 1, "output_tokens": True},
        {"input_tokens": 2**41, "output_tokens": 1},
    ],
)
def test_S31_hostile_usage_is_unknown(server: MessagesServer, usage: Any) -> None:
    server.faults = [Fault(response={"usage": usage})]
    [reply] = send(server, ask())
    assert (reply.text, reply.usage) == ("reply 1", None)


def test_S12_a_response_id_that_looks_like_ours_is_refused(server: MessagesServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(response={"id": "synthetic_s_9"})]
    with pytest.raises(ProviderFailure, match="synthetic_") as caught:
        send(server, ask(), events=events)
    assert caught.value.kind == "malformed"
    assert events == []


# --- counting ---------------------------------------------------------------------------------------------------------


def counted(server: MessagesServer, request: Request, **spec: Any) -> int | None:
    async def go() -> int | None:
        providers = opened(server.base_url, **spec)
        try:
            return await providers.get("anthropic").count(request)
        finally:
            await providers.close()

    return asyncio.run(go())


def test_R028_the_vendor_counts_what_a_request_would_bring_system_tools_and_form_included() -> None:
    with MessagesServer(lambda seen: {"json": {"a": 1}}, key=KEY) as server:
        number = counted(server, FULL)
        assert server.seen == [], "counting is no call"
        [reply] = send(server, FULL)
        assert reply.usage is not None
        assert number == reply.usage.input_tokens > 50
        without = [replace(FULL, tools=()), replace(FULL, output=None), replace(FULL, system=""), ask()]
        assert all((counted(server, less) or 0) < number for less in without)


def test_a_vendor_that_does_not_count_is_no_failure(server: MessagesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(server, replace(ask(), model="claude-nope")) is None
    assert counted(server, ask(), env={"ANTHROPIC_API_KEY": "sk-ant-other-key"}) is None
    answers: list[Any] = [{}, [], "many", {"input_tokens": "7"}, {"input_tokens": True}, {"input_tokens": -1}]
    for answer in answers:
        monkeypatch.setattr(server, "beside", lambda *_, answer=answer: answer)
        assert counted(server, ask()) is None
    monkeypatch.setattr(server, "beside", lambda *_: {"input_tokens": 7})
    assert counted(server, ask()) == 7
    with MessagesServer() as gone:
        pass
    assert counted(gone, ask()) is None


# --- the failure table (every row: what happens on the wire, the kind, whether it is tried again) ---------------------


def error(type: str, message: str = "No.", code: str | None = None) -> dict[str, Any]:
    inner = {"type": type, "message": message} | ({"details": {"error_code": code}} if code else {})
    return {"type": "error", "error": inner, "request_id": "req_1"}


def refused(status: int, type: str, message: str = "No.", code: str | None = None) -> Fault:
    return Fault(status=status, body=error(type, message, code))


def in_stream(type: str, message: str = "Oops") -> Fault:
    return Fault(events=[error(type, message)], events_end=True)


def events_of(*data: str) -> Fault:
    body = "".join(f"event: message_start\ndata: {line}\n\n" for line in data)
    return Fault(status=200, body=body, headers={"content-type": "text/event-stream"})


TEXT = {"type": "text", "text": "x"}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
FAILURES: dict[str, tuple[Fault, str]] = {
    "reset before headers": (Fault(drop=True), "connection"),
    "reset in mid-stream": (Fault(cut=3), "connection"),
    "ended before anything": (Fault(truncated=0), "connection"),
    "ended in the text": (Fault(truncated=4), "connection"),
    "ended before its end was said": (Fault(truncated=8), "connection"),
    "malformed event": (Fault(malformed=3), "malformed"),
    "200 empty": (Fault(status=200, body=""), "malformed"),
    "200 text": (Fault(status=200, body="It works!"), "malformed"),
    "200 HTML": (Fault(status=200, body="<html>", headers={"content-type": "text/html"}), "malformed"),
    "200 wrong shape": (Fault(status=200, body={"choices": []}), "malformed"),
    "200 list": (Fault(status=200, body="[]", headers={"content-type": "application/json"}), "malformed"),
    "200 error": (Fault(status=200, body=error("api_error")), "malformed"),
    "200 event stream of text": (
        Fault(status=200, body="hello\n\n", headers={"content-type": "text/event-stream"}),
        "connection",
    ),
    "event is no object": (events_of("[1]"), "malformed"),
    "event without a message": (events_of('{"type": "message_start"}'), "malformed"),
    "block before its message": (events_of('{"type": "content_block_start", "index": 0}'), "malformed"),
    "message begins twice": (Fault(events=[{"type": "message_start", "message": {"id": "m2"}}]), "malformed"),
    "delta of no block": (
        Fault(events=[{"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}]),
        "malformed",
    ),
    "block without an index": (Fault(events=[{"type": "content_block_start", "content_block": TEXT}]), "malformed"),
    "block is no object": (
        Fault(events=[{"type": "content_block_start", "index": 9, "content_block": "x"}]),
        "malformed",
    ),
    "block without a type": (Fault(whole=True, response={"content": [{"text": "x"}]}), "malformed"),
    "content is no list": (Fault(whole=True, response={"content": {}}), "malformed"),
    "message without id": (Fault(response={"id": None}), "malformed"),
    "message without an end": (Fault(end={"stop_reason": None}), "malformed"),
    "whole message without an end": (Fault(whole=True, response={"stop_reason": None}), "malformed"),
    "stopped for a tool it does not call": (Fault(end={"stop_reason": "tool_use"}), "malformed"),
    "lone surrogate": (Fault(whole=True, response={"content": [{"type": "text", "text": "\ud800"}]}), "malformed"),
    "call without a name": (
        Fault(response={"content": [{"type": "tool_use", "id": "t1", "input": {}}]}),
        "malformed",
    ),
    "two calls of one id": (Fault(response={"content": [CALL, CALL]}), "malformed"),
    "number without end": (events_of("9" * 5000), "malformed"),
    "nesting without end": (events_of("[" * 100_000), "malformed"),
    "not UTF-8": (
        Fault(status=200, body=b"event: ping2\ndata: \xff\xfe\n\n", headers={"content-type": "text/event-stream"}),
        "malformed",
    ),
    "in-stream overload": (in_stream("overloaded_error"), "overloaded"),
    "in-stream api error": (in_stream("api_error"), "overloaded"),
    "in-stream unknown": (in_stream("zzz"), "overloaded"),
    "in-stream rate limit": (in_stream("rate_limit_error"), "rate_limit"),
    "in-stream timeout": (in_stream("timeout_error"), "connection"),
    "in-stream no money": (in_stream("billing_error"), "quota"),
    "in-stream refused": (in_stream("invalid_request_error"), "bad_request"),
    "in-stream too long": (in_stream("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "too_long"),
    "in-stream without words": (Fault(events=[{"type": "error"}], events_end=True), "overloaded"),
    "400 other": (refused(400, "invalid_request_error", "messages.0: bad"), "bad_request"),
    "400 too long": (refused(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "too_long"),
    "400 too long with the reply": (
        refused(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9 > 8"),
        "too_long",
    ),
    "400 missing result": (
        refused(
            400,
            "invalid_request_error",
            "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        ),
        "unanswered_call",
    ),
    "400 no credit": (refused(400, "invalid_request_error", "Your credit balance is too low to access it."), "quota"),
    "400 policy": (refused(400, "invalid_request_error", "Output blocked by content filtering policy"), "refused"),
    "401": (refused(401, "authentication_error", f"invalid bearer token {KEY}"), "auth"),
    "402": (refused(402, "billing_error"), "quota"),
    "402 another's limit": (refused(402, "billing_error", code="linked_organization_spend_limit_reached"), "quota"),
    "403": (refused(403, "permission_error"), "auth"),
    "404 model": (refused(404, "not_found_error", f"model: {MODEL}"), "model"),
    "404 no such API": (Fault(status=404, body={"detail": "Not Found"}), "bad_request"),
    "408": (Fault(status=408, body=""), "connection"),
    "409": (refused(409, "conflict_error"), "overloaded"),
    "413": (refused(413, "request_too_large", "Request exceeds the maximum size"), "too_long"),
    "422": (Fault(status=422, body={"detail": [{"msg": "field required"}]}), "bad_request"),
    "429 rate": (refused(429, "rate_limit_error"), "rate_limit"),
    "429 ramp": (refused(429, "rate_limit_error", code="ramp_limit_exceeded"), "rate_limit"),
    "429 bare": (Fault(status=429, body="slow down"), "rate_limit"),
    "429 spend limit": (refused(429, "rate_limit_error", code="enforced_spend_limit_reached"), "quota"),
    "429 contract": (refused(429, "rate_limit_error", code="contract_spend_limit_reached"), "quota"),
    "500": (refused(500, "api_error"), "overloaded"),
    "502 HTML": (Fault(status=502, body="<html>Bad gateway</html>"), "overloaded"),
    "503": (refused(503, "api_error"), "overloaded"),
    "504": (refused(504, "timeout_error"), "overloaded"),
    "529": (refused(529, "overloaded_error", "Overloaded"), "overloaded"),
    "529 compaction": (refused(529, "overloaded_error", code="compaction_unavailable"), "overloaded"),
}
TRIED_AGAIN = {"connection", "rate_limit", "overloaded", "malformed"}


@pytest.mark.parametrize("row", FAILURES)
def test_failure_table(server: MessagesServer, row: str) -> None:
    """Each row has its kind, after one request; it is tried again, as the very same request, only where that helps."""
    fault, kind = FAILURES[row]
    server.faults = [fault]
    waits: list[float] = []

    async def no_sleep(seconds: float) -> None:
        waits.append(seconds)

    async def go() -> Reply:
        providers = opened(server.base_url)
        provider = providers.get("anthropic")
        try:
            with pytest.raises(ProviderFailure) as caught:
                await provider.respond(ask())
            assert (caught.value.kind, len(server.seen)) == (kind, 1), "one respond is one request"
            assert KEY not in f"{caught.value.message} {caught.value.hint}"
            server.faults = [fault]
            return await respond(provider, ask(), sleep=no_sleep)
        finally:
            await providers.close()

    if kind in TRIED_AGAIN:
        reply = asyncio.run(go())
        assert (reply.text, reply.tries, len(waits)) == ("reply 1", 2, 1)
    else:
        with pytest.raises(ProviderFailure):
            asyncio.run(go())
        assert waits == []
    bodies = [seen.raw for seen in server.seen]
    assert len(bodies) == (3 if kind in TRIED_AGAIN else 2)
    assert len(set(bodies)) == 1, "a retry is the very same request"


def test_the_servers_own_rules(server: MessagesServer) -> None:
    refusal = failing(server, ask(), env={"ANTHROPIC_API_KEY": "sk-ant-other-key"})
    assert refusal.kind == "auth"
    assert "ANTHROPIC_API_KEY" in str(refusal.hint)
    assert "sk-ant-other-key" not in refusal.message
    wrong = failing(server, replace(ask(), model="claude-nope"))
    assert (wrong.kind, wrong.message.count("claude-nope")) == ("model", 2)
    with MessagesServer(window=100) as small:
        assert failing(small, ask("synthetic_s_1", TextItem(("x" * 500,)))).kind == "too_long"


# --- connections ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault(delay=30), Fault(stalled=0), Fault(stalled=3)])
def test_silence_is_a_timeout(server: MessagesServer, fault: Fault) -> None:
    server.faults = [fault]
    assert failing(server, ask(timeout=1.0)).kind == "connection"
    assert server.seen[0].disconnected.wait(5), "the connection is closed"


def test_a_stream_that_trickles_for_ever_is_a_timeout_too(server: MessagesServer) -> None:
    server.faults = [Fault(trickle=0.1)]
    failure = failing(server, ask(timeout=0.75))
    assert failure.kind == "connection"
    assert "no complete reply within 0.75 s" in failure.message


def test_A24_fifty_cancels_in_a_row_leak_no_connection(server: MessagesServer) -> None:
    """In mid-stream and before the first word, in turn; then the pool serves as before."""
    kinds = [Fault(stalled=4), Fault(delay=30), Fault(stalled=0), Fault(trickle=0.05), Fault(stalled=1)]
    server.faults = [kinds[n % 5] for n in range(50)]
    came = [threading.Event() for _ in range(50)]
    server.taken = lambda: came[len(server.seen) - 1].set() if len(server.seen) <= 50 else None

    async def go() -> None:
        providers = opened(server.base_url)
        provider = providers.get("anthropic")
        for number in range(50):
            told = asyncio.Queue[StreamEvent]()
            task = asyncio.create_task(provider.respond(ask(), told.put_nowait))
            if number % 5 == 0:
                assert [(await told.get()).kind for _ in range(2)] == ["created", "text"], "half of an answer is there"
            else:
                await asyncio.to_thread(came[number].wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for seen in server.seen:
            assert await asyncio.to_thread(seen.disconnected.wait, 10), "the server sees every one of them go"
        before = server.connections
        for _ in range(3):
            assert (await provider.respond(ask())).text == "reply 1"
        assert server.connections == before + 1, "and one new connection does for all that follows"
        await providers.close()

    asyncio.run(go())


def test_A24_connections_are_used_again(server: MessagesServer) -> None:
    send(server, *[ask()] * 5)
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_S24_a_redirect_is_not_followed(server: MessagesServer, status: int) -> None:
    with MessagesServer(lambda seen: {"text": "stolen"}) as thief:
        server.faults = [Fault(status=status, headers={"location": f"{thief.base_url}/v1/messages"}, body="")]
        failure = failing(server, ask())
        assert thief.seen == []
    assert failure.kind == "bad_request"
    assert "redirects are not followed" in failure.message


@pytest.mark.parametrize(
    ("headers", "wait"), [({"retry-after": "17"}, 17.0), ({"retry-after-ms": "40"}, 0.04), ({}, None)]
)
@pytest.mark.parametrize("status", [429, 529])
def test_the_servers_wish_to_wait_is_passed_on(
    server: MessagesServer, status: int, headers: dict[str, str], wait: float | None
) -> None:
    server.faults = [Fault(status=status, body=error("rate_limit_error"), headers=headers)]
    assert failing(server, ask()).retry_after == wait


# --- keys and addresses -----------------------------------------------------------------------------------------------


def test_S29_a_key_that_is_echoed_is_taken_out_of_everything(server: MessagesServer) -> None:
    """Also one that comes in pieces: only the whole text shows it."""
    said: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}} for part in
          ("your key is ", KEY[:9], KEY[9:])),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]  # fmt: skip
    server.faults = [Fault(events=said, events_end=True), Fault(response={"id": f"msg_{KEY}"})]
    [echoed, named] = send(server, ask(), ask())
    assert echoed.text == "your key is [secret removed]"
    assert KEY not in str(echoed)
    assert KEY not in str(named)


def test_S29_the_sdks_own_log_holds_no_key(server: MessagesServer, caplog: pytest.LogCaptureFixture) -> None:
    """As with ANTHROPIC_LOG=debug: what it sends is hidden by the SDK, what a server echoes is not."""
    caplog.set_level(logging.DEBUG)
    echoing = Fault(status=400, body=error("invalid_request_error", f"what is {KEY}?"), headers={"x-echo": KEY})
    server.faults = [echoing, Fault(response={"model": KEY})]
    failing(server, ask())
    send(server, ask())
    assert any(record.name.startswith("anthropic") for record in caplog.records)
    assert "x-echo" in caplog.text
    assert KEY not in caplog.text


def test_no_key_is_an_error_that_names_the_variable_and_the_way_without() -> None:
    with pytest.raises(ConfigError, match=r"ANTHROPIC_API_KEY is not set; api\.anthropic\.com needs a key") as caught:
        opened(None, env={}).get("anthropic")
    assert caught.value.exit_code == 3
    assert "orch demo" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        opened(None, env={"ANTHROPIC_API_KEY": KEY}, api_key_env="MY_KEY").get("anthropic")


def test_without_a_key_one_can_look_but_not_send() -> None:
    offline = opened(None, env={}).offline("anthropic")
    assert json.loads(offline.wire(FULL))["model"] == MODEL
    with pytest.raises(ProviderFailure, match="there is no key") as caught:
        asyncio.run(offline.respond(FULL))
    assert caught.value.kind == "auth"


def test_another_server_of_this_kind_needs_no_key_and_never_gets_anthropics() -> None:
    with MessagesServer(lambda seen: {"text": "x"}) as server:
        spec = ProviderSpec(kind="anthropic", base_url=server.base_url)
        providers = Providers(Project(), Settings({"local": spec}))

        async def go() -> Reply:
            reply = await providers.get("local").respond(ask())
            await providers.close()
            return reply

        assert asyncio.run(go()).text == "x"
        assert KEY not in server.seen[0].headers["authorization"]


def test_a_key_does_not_go_to_another_vendor_by_its_name() -> None:
    for name, kind in (("anthropic", "openai"), ("openai", "anthropic")):
        spec = ProviderSpec.model_validate({"kind": kind})
        keys = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
        with pytest.raises(ConfigError, match="its key would go to another vendor"):
            Providers(Project(), Settings({name: spec}, keys)).get(name)


def test_a_chain_cannot_be_wished_for() -> None:
    with pytest.raises(ConfigError, match="a Messages API keeps no responses"):
        opened(None, chaining="server").get("anthropic")


def test_an_address_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="The base_url of provider 'anthropic'") as caught:
        opened("api.anthropic.com").get("anthropic")
    assert "ANTHROPIC_BASE_URL" in str(caught.value.hint)


def test_choosing_a_provider_loads_no_sdk() -> None:
    code = """
import sys
from tests.contract.test_provider_anthropic import FULL, opened
providers = opened(None)
providers.get("anthropic").wire(FULL), providers.hosts(), providers.prices()
print(sorted(n for n in ("openai", "httpx2", "anthropic", "genai_prices") if n in sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_environment_of_the_process_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-process")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-process")
    with MessagesServer(lambda seen: {"text": "x"}, key=KEY) as server:
        send(server, ask())
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY is not set"):
        opened(None, env={}).get("anthropic")


def test_prices_and_windows_of_the_vendor() -> None:
    specs = {
        "anthropic": ProviderSpec(kind="anthropic"),
        "work": ProviderSpec(kind="anthropic", api_key_env="WORK_KEY"),
    }
    prices = Providers(Project(), Settings(specs)).prices()
    usage = Usage(input_tokens=10_000, cached_tokens=8_000, cache_write_tokens=1_000, output_tokens=500)
    for name in specs:
        priced = prices.cost(name, "claude-sonnet-5-5", usage)
        assert priced is not None
        assert priced.usd == Decimal("0.0103"), "1,000 at $2, 8,000 at $0.10, 1,000 at $2.50, 500 at $10"
        assert prices.window(name, "claude-sonnet-5-5") == 1_000_000
