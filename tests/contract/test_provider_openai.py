"""The OpenAI driver over real HTTP and the real SDK, against the strict stand-in: the wire, and the failure table."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import Provider, StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.providers.retry import respond
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Item, OutputFormat, Reply, Request, TextItem, ToolOutput, ToolSpec, Usage
from tests.strict_server import Fault, Seen, StrictServer

KEY = "sk-canary-0123456789abcdef"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
MODEL = "gpt-x1"


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    env: dict[str, str] = field(default_factory=lambda: {"OPENAI_API_KEY": KEY})
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.env.get(name) or None

    def secret_values(self) -> tuple[str, ...]:
        return ("pw-CANARY", "tk-CANARY")


@dataclass
class Project:
    root: Path = Path()


def opened(base_url: str | None, env: dict[str, str] | None = None, **spec: Any) -> Providers:
    provider = ProviderSpec(kind="openai", base_url=base_url, **spec)
    return Providers(Project(), Settings({"openai": provider}, {"OPENAI_API_KEY": KEY} if env is None else env))


def ask(thread: str = "synthetic_s_1", *items: Item, **more: Any) -> Request:
    return Request(MODEL, thread, "Be brief.", items or (TextItem(("hel", "lo")),), **{"timeout": 5.0, **more})


FULL = ask(
    tools=(ToolSpec("look", "Looks.", SCHEMA),),
    output=OutputFormat("form", SCHEMA),
    effort="medium",
    max_output_tokens=500,
    cache_key="k1",
)


def send(server: StrictServer, *requests: Request, events: list[StreamEvent] | None = None, **spec: Any) -> list[Reply]:
    """Each request once, on one provider."""

    async def go() -> list[Reply]:
        providers = opened(server.base_url, **spec)
        listen = (events if events is not None else []).append
        try:
            return [await providers.get("openai").respond(request, listen) for request in requests]
        finally:
            await providers.close()

    return asyncio.run(go())


def once(providers: Providers, request: Request, name: str = "openai") -> Reply:
    async def go() -> Reply:
        try:
            return await providers.get(name).respond(request)
        finally:
            await providers.close()

    return asyncio.run(go())


def failing(server: StrictServer, request: Request, **spec: Any) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        send(server, request, **spec)
    assert KEY not in f"{caught.value.message} {caught.value.hint}", "a key may stand in no message"
    assert caught.value.exit_code == 6
    return caught.value


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer(lambda seen: {"text": f"reply {seen.turn + 1}"}, key=KEY, models=frozenset({MODEL})) as running:
        yield running


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_R007_R009_a_first_call_has_no_previous_response_id_and_a_later_one_has(server: StrictServer) -> None:
    [first] = send(server, FULL)
    [second] = send(server, replace(FULL, thread=first.id, items=(TextItem(("more",)),)))
    one, two = server.bodies
    assert "previous_response_id" not in one, "absent, not null"
    assert two["previous_response_id"] == first.id == second.previous
    assert second.text == "reply 2"
    assert two["input"] == [{"role": "user", "content": "more"}], "only what is new travels"


@pytest.mark.parametrize("thread", ["resp_x", "xsynthetic_s_1", "Synthetic_s_1"])
def test_R008_only_the_prefix_makes_an_id_synthetic(server: StrictServer, thread: str) -> None:
    assert failing(server, ask(thread)).kind == "chain_lost"
    assert server.bodies[0]["previous_response_id"] == thread


def test_all_else_is_resent_unchanged_on_every_call(server: StrictServer) -> None:
    [first] = send(server, FULL)
    send(server, replace(FULL, thread=first.id, items=(TextItem(("more",)),)))
    one, two = ({k: v for k, v in body.items() if k not in ("input", "previous_response_id")} for body in server.bodies)
    assert one == two
    assert one == {
        "model": MODEL,
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}],
        "text": {"format": {"type": "json_schema", "name": "form", "schema": SCHEMA, "strict": True}},
        "reasoning": {"effort": "medium"},
        "max_output_tokens": 500,
        "stream": True,
    }, "no store, no cache key: a host that is not known to be OpenAI's may refuse them"


def test_S14_the_wire_is_exactly_what_is_sent(server: StrictServer) -> None:
    request = replace(FULL, items=(TextItem(("Ümläut 日本 \u2028 \x00 </artifact>",)),))
    [first] = send(server, request)
    providers = opened(server.base_url)
    assert server.seen[0].raw == providers.get("openai").wire(request)
    assert server.seen[0].raw == providers.offline("openai").wire(request)
    assert server.seen[0].body["input"][0]["content"] == "Ümläut 日本 \u2028 \x00 </artifact>"
    assert first.text == "reply 1"


def test_what_json_cannot_hold_is_refused_before_sending(server: StrictServer) -> None:
    assert failing(server, ask("synthetic_s_1", TextItem(("\ud800",)))).kind == "bad_request"
    assert server.seen == []


def test_a_server_with_its_own_key_and_headers_gets_them(server: StrictServer) -> None:
    send(server, ask())
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.seen[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        (None, "k1"),
        ("https://eu.api.openai.com/v1", "k1"),
        ("https://api.openai.com.evil.test/v1", None),
        ("https://openrouter.ai/api/v1", None),
        ("http://localhost:1/v1", None),
    ],
)
def test_cache_keys_go_to_openai_only(url: str | None, key: str | None) -> None:
    body = json.loads(opened(url).get("openai").wire(FULL))
    assert body.get("prompt_cache_key") == key


@pytest.mark.parametrize(
    ("url", "chaining", "store", "expected"),
    [
        (None, "auto", None, "server"),
        ("https://my.openai.azure.com/openai/v1", "auto", None, "server"),
        ("https://api.x.ai/v1", "auto", None, "server"),
        ("https://openrouter.ai/api/v1", "auto", None, "replay"),
        ("http://localhost:11434/v1", "auto", None, "auto"),
        ("http://localhost:11434/v1", "server", None, "server"),
        (None, "replay", None, "replay"),
        (None, "server", False, "replay"),
    ],
)
def test_whether_an_endpoint_chains(url: str | None, chaining: Any, store: bool | None, expected: str) -> None:
    traits = opened(url, chaining=chaining, store=store).get("openai").traits
    assert (traits.chaining, traits.stores) == (expected, store is not False)


def test_A6_where_nothing_is_stored_no_id_is_sent_and_reasoning_travels_sealed() -> None:
    def answer(seen: Seen) -> dict[str, Any]:
        call = {"tool_calls": [{"name": "look", "arguments": {"a": 1}}], "reasoning": "CANARY"}
        return call if seen.turn == 0 else {"json": {"a": 1}}

    with StrictServer(answer, zdr=True) as server:
        [first] = send(server, FULL, store=False)
        answered = ToolOutput(first.tool_calls[0].call_id, "7")
        replay = replace(FULL, items=(*FULL.items, *first.items, answered))
        [second] = send(server, replay, store=False)
        with pytest.raises(ProviderFailure, match="keeps no responses") as caught:
            send(server, replace(FULL, thread=first.id, items=(answered,)), store=False)
    assert caught.value.kind == "chain_unsupported"
    assert second.text == '{"a": 1}'
    assert len(server.bodies) == 2, "the third call was stopped here"
    for body in server.bodies:
        assert "previous_response_id" not in body
        assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    sealed = [item for item in server.bodies[1]["input"] if item.get("type") == "reasoning"]
    assert sealed == [dict(first.items[0].data)]
    assert sealed[0]["encrypted_content"]


# --- what comes back --------------------------------------------------------------------------------------------------


def test_the_id_is_told_first_then_the_text(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    [reply] = send(server, ask(), events=events)
    assert events[0] == StreamEvent("created", reply.id)
    assert len(events) > 2
    assert "".join(event.data for event in events[1:]) == reply.text == "reply 1"
    assert {event.kind for event in events[1:]} == {"text"}


def test_items_come_back_verbatim_and_commentary_is_no_answer() -> None:
    reply = {"text": "let me look", "tool_calls": [{"name": "look", "arguments": {"a": 1}}], "reasoning": "hm"}
    events: list[StreamEvent] = []
    with StrictServer(lambda seen: reply) as server:
        [got] = send(server, FULL, events=events)
    assert [dict(item.data) for item in got.items] == server.seen[0].response["output"]
    assert got.items[1].data["phase"] == "commentary"
    assert got.text == ""
    assert [event.kind for event in events] == ["created"], "commentary is not streamed as the answer"
    [call] = got.tool_calls
    assert (call.call_id, call.name, call.arguments) == (got.items[2].data["call_id"], "look", '{"a": 1}')


def test_usage_is_normalised(server: StrictServer) -> None:
    long = TextItem(("x" * 8000,))
    [first, second] = send(server, ask("synthetic_s_1", long), ask("synthetic_s_2", long, TextItem(("y",))))
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.input_tokens == server.seen[0].response["usage"]["input_tokens"] > 2000
    assert (first.usage.cached_tokens, first.usage.output_tokens) == (0, 2)
    assert second.usage.cached_tokens == 1920, "15 blocks of 128 of the 2,000 tokens seen before"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": float("nan")},
        {"input_tokens": 1, "output_tokens": True},
        {"input_tokens": 2**41, "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 2}},
    ],
)
def test_S31_hostile_usage_is_unknown(server: StrictServer, usage: Any) -> None:
    server.faults = [Fault(response={"usage": usage})]
    [reply] = send(server, ask())
    assert (reply.text, reply.usage) == ("reply 1", None)


def test_a_refusal_is_told_apart() -> None:
    with StrictServer(lambda seen: {"refusal": "I will not."}) as server:
        [reply] = send(server, ask())
    assert (reply.status, reply.text, reply.refusal) == ("completed", "", "I will not.")


def test_a_cut_off_reply_says_why() -> None:
    with StrictServer(lambda seen: {"json": {"a": "x" * 400}}) as server:
        [reply] = send(server, ask(max_output_tokens=50))
    assert (reply.status, reply.incomplete_reason) == ("incomplete", "max_output_tokens")
    assert reply.text == '{"a": "' + "x" * 193, "50 tokens of 4 bytes"
    assert reply.usage is not None
    assert reply.usage.output_tokens == 50


def test_S12_a_server_that_ignores_the_field_is_seen_by_its_echo(server: StrictServer) -> None:
    [first] = send(server, ask())
    server.faults = [Fault(ignore_chain=True)]
    [second] = send(server, ask(first.id, TextItem(("more",))))
    assert (second.text, second.previous) == ("reply 1", None)


def test_S12_a_response_id_that_looks_like_ours_is_refused(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(response={"id": "synthetic_s_9"})]
    with pytest.raises(ProviderFailure, match="synthetic_") as caught:
        send(server, ask(), events=events)
    assert caught.value.kind == "malformed"
    assert events == []


def test_servers_that_answer_at_once_are_understood(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(whole=True)]
    [reply] = send(server, ask(), events=events)
    assert reply.text == "reply 1"
    assert events == [StreamEvent("created", reply.id)]


def test_the_terminal_event_decides_which_id_it_was(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(end={"id": "resp_other"})]
    [reply] = send(server, ask(), events=events)
    told = [event.data for event in events if event.kind == "created"]
    assert told == [server.seen[0].response["id"], "resp_other"]
    assert reply.id == "resp_other"


def test_servers_that_leave_the_final_output_empty_are_understood(server: StrictServer) -> None:
    server.faults = [Fault(empty_end=True)]
    [reply] = send(server, ask())
    assert reply.text == "reply 1"
    assert [dict(item.data) for item in reply.items] == server.seen[0].response["output"]


# --- the failure table (every row: what happens on the wire, the kind, whether it is tried again) ---------------------


def error(code: str | None, message: str = "No.", type: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "code": code, "param": None, **more}}


def stream_error(**fields: Any) -> Fault:
    return Fault(events=[{"type": "error", **fields}], events_end=True)


ANY_CALL: dict[str, tuple[Fault, str]] = {
    "reset before headers": (Fault(drop=True), "connection"),
    "reset in mid-stream": (Fault(cut=3), "connection"),
    "ended before anything": (Fault(truncated=0), "connection"),
    "ended without a terminal event": (Fault(truncated=5), "connection"),
    "malformed event": (Fault(malformed=2), "malformed"),
    "200 empty": (Fault(status=200, body=""), "malformed"),
    "200 text": (Fault(status=200, body="It works!"), "malformed"),
    "200 HTML": (Fault(status=200, body="<html>", headers={"content-type": "text/html"}), "malformed"),
    "200 wrong shape": (Fault(status=200, body={"choices": []}), "malformed"),
    "200 list": (Fault(status=200, body="[]", headers={"content-type": "application/json"}), "malformed"),
    "200 error": (Fault(status=200, body=error("server_error")), "malformed"),
    "200 event stream of text": (
        Fault(status=200, body="hello\n\n", headers={"content-type": "text/event-stream"}),
        "connection",
    ),
    "event is no object": (
        Fault(status=200, body="data: [1]\n\n", headers={"content-type": "text/event-stream"}),
        "malformed",
    ),
    "response without id": (Fault(response={"id": None}), "malformed"),
    "output is no list": (Fault(response={"output": {}}), "malformed"),
    "output item without type": (Fault(end={"output": [{"id": "x"}]}), "malformed"),
    "lone surrogate": (Fault(end={"output": [{"type": "reasoning", "id": "\ud800"}]}), "malformed"),
    "call without arguments": (
        Fault(end={"output": [{"type": "function_call", "call_id": "c", "name": "n"}]}),
        "malformed",
    ),
    "two calls of one id": (
        Fault(end={"output": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}] * 2}),
        "malformed",
    ),
    "number without end": (
        Fault(status=200, body=f"data: {'9' * 5000}\n\n", headers={"content-type": "text/event-stream"}),
        "malformed",
    ),
    "nesting without end": (
        Fault(status=200, body=f"data: {'[' * 100_000}\n\n", headers={"content-type": "text/event-stream"}),
        "malformed",
    ),
    "not UTF-8": (
        Fault(status=200, body=b"data: \xff\xfe\n\n", headers={"content-type": "text/event-stream"}),
        "malformed",
    ),
    "completed with an error": (Fault(end={"error": {"code": "x", "message": "y"}}), "malformed"),
    "in-stream error, flat": (stream_error(code="server_error", message="Oops", param=None), "overloaded"),
    "in-stream error, nested": (stream_error(error={"code": "server_error", "message": "Oops"}), "overloaded"),
    "in-stream error, unknown": (stream_error(code="zzz", message="Oops", param=None), "overloaded"),
    "in-stream rate limit": (stream_error(error={"code": "rate_limit_exceeded", "message": "Slow"}), "rate_limit"),
    "in-stream overload": (stream_error(error={"type": "overloaded_error", "message": "Busy"}), "overloaded"),
    "in-stream quota": (stream_error(code="insufficient_quota", message="Pay", param=None), "quota"),
    "failed: server_error": (Fault(ending="failed", end={"error": {"code": "server_error"}}), "overloaded"),
    "failed: no reason": (Fault(ending="failed"), "overloaded"),
    "failed: rate limit": (Fault(ending="failed", end={"error": {"code": "rate_limit_exceeded"}}), "rate_limit"),
    "failed: policy": (Fault(ending="failed", end={"error": {"code": "misalignment_policy_violation"}}), "refused"),
    "failed: bio policy": (Fault(ending="failed", end={"error": {"code": "bio_policy"}}), "refused"),
    "failed: invalid prompt": (Fault(ending="failed", end={"error": {"code": "invalid_prompt"}}), "refused"),
    "failed: bad image": (Fault(ending="failed", end={"error": {"code": "invalid_image"}}), "bad_request"),
    "400 other": (Fault(status=400, body=error("invalid_value")), "bad_request"),
    "422": (Fault(status=422, body={"detail": [{"msg": "field required"}]}), "bad_request"),
    "413": (Fault(status=413, body="too large"), "bad_request"),
    "400 too long, by code": (Fault(status=400, body=error("context_length_exceeded")), "too_long"),
    "400 too long, by text": (
        Fault(status=400, body=error(None, "The prompt (5000 tokens) exceeds the max_model_len (4096).")),
        "too_long",
    ),
    "400 too long, relayed": (
        Fault(status=400, body={"error_type": "context_length_exceeded", **error("invalid_prompt")}),
        "too_long",
    ),
    "400 missing tool output": (
        Fault(status=400, body=error(None, "No tool output found for function call call_1.")),
        "unanswered_call",
    ),
    "400 policy": (Fault(status=400, body=error("invalid_prompt")), "refused"),
    "401": (Fault(status=401, body=error("invalid_api_key", f"Incorrect API key provided: {KEY}.")), "auth"),
    "402": (Fault(status=402, body=error(None, "Insufficient credits")), "quota"),
    "403": (Fault(status=403, body=error(None, "Not your project")), "auth"),
    "404 model": (Fault(status=404, body=error("model_not_found", f"The model '{MODEL}' does not exist")), "model"),
    "404 model, by text": (Fault(status=404, body=error(None, f'model "{MODEL}" not found, try pulling it')), "model"),
    "400 model": (Fault(status=400, body=error("model_not_found")), "model"),
    "404 no such API": (Fault(status=404, body={"detail": "Not Found"}), "bad_request"),
    "408": (Fault(status=408, body=""), "connection"),
    "409": (Fault(status=409, body=error(None)), "overloaded"),
    "429 rate": (Fault(status=429, body=error("rate_limit_exceeded", type="tokens")), "rate_limit"),
    "429 slow down": (Fault(status=429, body=error("slow_down", type="rate_limit_error")), "rate_limit"),
    "429 bare": (Fault(status=429, body="slow down"), "rate_limit"),
    "429 rate under a quota's type": (
        Fault(status=429, body=error("rate_limit_exceeded", type="insufficient_quota")),
        "rate_limit",
    ),
    "429 quota": (Fault(status=429, body=error("insufficient_quota", type="insufficient_quota")), "quota"),
    "429 quota, by type": (Fault(status=429, body=error(None, type="insufficient_quota")), "quota"),
    "429 credit": (Fault(status=429, body=error("credit_balance_exhausted", type="rate_limit_error")), "quota"),
    "500": (Fault(status=500, body=error("server_error", type="server_error")), "overloaded"),
    "502 HTML": (Fault(status=502, body="<html>Bad gateway</html>"), "overloaded"),
    "503": (Fault(status=503, body=error("server_is_overloaded")), "overloaded"),
    "529": (Fault(status=529, body=error(None)), "overloaded"),
}
TRIED_AGAIN = {"connection", "rate_limit", "overloaded", "malformed"}


@pytest.mark.parametrize("row", ANY_CALL)
def test_failure_table(server: StrictServer, row: str) -> None:
    fault, kind = ANY_CALL[row]
    server.faults = [fault]
    assert failing(server, ask()).kind == kind
    assert len(server.seen) == 1, "one respond is one request: the SDK's own retries are off"


@pytest.mark.parametrize("row", ANY_CALL)
def test_failure_table_is_tried_again_only_where_that_can_help(server: StrictServer, row: str) -> None:
    fault, kind = ANY_CALL[row]
    server.faults = [fault]
    waits: list[float] = []

    async def no_sleep(seconds: float) -> None:
        waits.append(seconds)

    async def go() -> Reply:
        providers = opened(server.base_url)
        try:
            return await respond(providers.get("openai"), ask(), sleep=no_sleep)
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
    assert len(bodies) == (2 if kind in TRIED_AGAIN else 1)
    assert len(set(bodies)) == 1, "a retry is the very same request"


CHAINED: dict[str, tuple[Fault, str]] = {
    "400 lost": (
        Fault(status=400, body=error("previous_response_not_found", param="previous_response_id")),
        "chain_lost",
    ),
    "404 lost": (Fault(status=404, body=error("previous_response_not_found")), "chain_lost"),
    "404 lost, by text": (Fault(status=404, body=error(None, "Response with id 'resp_1' not found.")), "chain_lost"),
    "404 lost, bare": (Fault(status=404, body={"detail": "Response resp_1 not found"}), "chain_lost"),
    "400 unknown parameter": (
        Fault(status=400, body=error("unknown_parameter", "Unknown parameter: 'previous_response_id'.")),
        "chain_unsupported",
    ),
    "400 not supported": (
        Fault(status=400, body=error(None, "llama.cpp does not support 'previous_response_id'.")),
        "chain_unsupported",
    ),
    "500 not supported": (
        Fault(status=500, body=error("500", "llama.cpp does not support 'previous_response_id'.", "server_error")),
        "chain_unsupported",
    ),
    "422 extra field": (
        Fault(status=422, body={"detail": "previous_response_id: Extra inputs are not permitted"}),
        "chain_unsupported",
    ),
    "404 model": (Fault(status=404, body=error("model_not_found", "The model does not exist")), "model"),
    "429": (Fault(status=429, body=error("rate_limit_exceeded")), "rate_limit"),
    "500": (Fault(status=500, body=error("server_error")), "overloaded"),
}


@pytest.mark.parametrize("row", CHAINED)
def test_failure_table_of_chained_calls(server: StrictServer, row: str) -> None:
    fault, kind = CHAINED[row]
    [first] = send(server, ask())
    server.faults = [fault]
    assert failing(server, ask(first.id, TextItem(("more",)))).kind == kind


def test_the_same_words_say_nothing_about_the_chain_of_a_first_call(server: StrictServer) -> None:
    server.faults = [Fault(status=400, body=error(None, "previous_response_id is not supported"))]
    assert failing(server, ask()).kind == "bad_request"


def test_lost_forgotten_and_unanswered_by_the_servers_own_rules() -> None:
    with StrictServer(lambda seen: {"tool_calls": [{"name": "look", "arguments": {}}]}) as server:
        [first] = send(server, FULL)
        assert failing(server, ask(first.id, TextItem(("hm",)))).kind == "unanswered_call"
        server.forget(first.id)
        answered = ToolOutput(first.tool_calls[0].call_id, "7")
        assert failing(server, ask(first.id, answered)).kind == "chain_lost"


def test_wrong_key_wrong_model_and_a_schema_that_is_not_strict(server: StrictServer) -> None:
    refused = failing(server, ask(), env={"OPENAI_API_KEY": "sk-other-key"})
    assert refused.kind == "auth"
    assert "OPENAI_API_KEY" in str(refused.hint)
    assert "sk-other-key" not in refused.message
    wrong = failing(server, replace(ask(), model="gpt-nope"))
    assert (wrong.kind, wrong.message.count("gpt-nope")) == ("model", 2)
    loose = OutputFormat("form", {**SCHEMA, "required": []})
    assert failing(server, ask(output=loose)).kind == "bad_request"


def test_the_window_of_the_model() -> None:
    with StrictServer(lambda seen: {"text": "x"}, window=100) as server:
        assert failing(server, ask("synthetic_s_1", TextItem(("x" * 500,)))).kind == "too_long"


# --- connections ------------------------------------------------------------------------------------------------------


def test_nobody_listens() -> None:
    with StrictServer() as gone:
        url = gone.base_url
    with pytest.raises(ProviderFailure, match=r"127\.0\.0\.1:\d+ \(gpt-x1\): the connection failed") as caught:
        once(opened(url), ask())
    assert caught.value.kind == "connection"


@pytest.mark.parametrize("fault", [Fault(delay=30), Fault(stalled=0), Fault(stalled=3)])
def test_silence_is_a_timeout(server: StrictServer, fault: Fault) -> None:
    server.faults = [fault]
    assert failing(server, ask(timeout=0.3)).kind == "connection"
    assert server.seen[0].disconnected.wait(5), "the connection is closed"


def test_a_stream_that_trickles_for_ever_is_a_timeout_too(server: StrictServer) -> None:
    server.faults = [Fault(trickle=0.1)]
    failure = failing(server, ask(timeout=0.35))
    assert failure.kind == "connection"
    assert "no complete reply within 0.35 s" in failure.message


@pytest.mark.parametrize("fault", [Fault(delay=30), Fault(stalled=4)])
def test_A24_cancelling_closes_the_connection_and_propagates(server: StrictServer, fault: Fault) -> None:
    server.faults = [fault]

    async def go() -> None:
        providers = opened(server.base_url)
        task = asyncio.create_task(providers.get("openai").respond(ask()))
        await asyncio.to_thread(server.seen_one.wait, 5)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.seen[0].disconnected.wait, 5)
        again = await providers.get("openai").respond(ask())
        assert again.text == "reply 1"
        await providers.close()

    asyncio.run(go())


def test_A24_connections_are_used_again(server: StrictServer) -> None:
    send(server, *[ask()] * 5)
    assert server.connections == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_S24_a_redirect_is_not_followed(server: StrictServer, status: int) -> None:
    with StrictServer(lambda seen: {"text": "stolen"}) as thief:
        server.faults = [Fault(status=status, headers={"location": f"{thief.base_url}/responses"}, body="")]
        failure = failing(server, ask())
        assert thief.seen == []
    assert failure.kind == "bad_request"
    assert "redirects are not followed" in failure.message


@pytest.mark.parametrize(
    ("headers", "wait"), [({"retry-after": "17"}, 17.0), ({"retry-after-ms": "40"}, 0.04), ({}, None)]
)
def test_the_servers_wish_to_wait_is_passed_on(
    server: StrictServer, headers: dict[str, str], wait: float | None
) -> None:
    server.faults = [Fault(status=429, body=error("rate_limit_exceeded"), headers=headers)]
    assert failing(server, ask()).retry_after == wait


# --- keys and addresses -----------------------------------------------------------------------------------------------


def get(providers: Providers, name: str = "openai") -> Provider:
    return providers.get(name)


def test_no_key_for_openai_is_an_error_that_names_the_variable_and_the_way_without() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set") as caught:
        get(opened(None, env={}))
    assert caught.value.exit_code == 3
    assert "orch demo" in str(caught.value.hint)
    assert "ORCH_MODEL=scripted:DIR" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        get(opened(None, env={"OPENAI_API_KEY": KEY}, api_key_env="MY_KEY"))


def test_without_a_key_one_can_look_but_not_send() -> None:
    offline = opened(None, env={}).offline("openai")
    assert json.loads(offline.wire(FULL))["model"] == MODEL
    with pytest.raises(ProviderFailure, match="there is no key") as caught:
        asyncio.run(offline.respond(FULL))
    assert caught.value.kind == "auth"


def test_other_servers_need_no_key_and_never_get_openais() -> None:
    with StrictServer(lambda seen: {"text": "x"}) as server:
        spec = ProviderSpec(kind="openai", base_url=server.base_url)
        providers = Providers(Project(), Settings({"local": spec}))
        once(providers, ask(), "local")
        [seen] = server.seen
        assert KEY not in seen.headers["authorization"]
        send(server, ask(), env={})
        assert server.seen[1].headers["authorization"] != "Bearer "


def test_choosing_a_provider_loads_no_sdk() -> None:
    """Planning and rendering need a driver's `wire`, and must not pay a second for the vendor's package."""
    code = """
import sys
from tests.contract.test_provider_openai import FULL, opened
providers = opened(None)
providers.get("openai").wire(FULL), providers.hosts(), providers.prices()
print(sorted(n for n in ("openai", "httpx2", "anthropic", "genai_prices") if n in sys.modules))
"""
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_environment_of_the_process_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-process")
    with StrictServer(lambda seen: {"text": "x"}, key=KEY) as server:
        send(server, ask())
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        get(opened(None, env={}))


@pytest.mark.parametrize("key", ["sk-a b", "sk-ä", "sk-a\nb"])
def test_a_key_that_cannot_be_one_is_a_clear_error(key: str) -> None:
    with pytest.raises(ConfigError, match="The key in OPENAI_API_KEY holds") as caught:
        get(opened(None, env={"OPENAI_API_KEY": key}))
    assert key not in caught.value.message


@pytest.mark.parametrize(
    "url", ["api.openai.com/v1", "ftp://host/v1", "https://", "http://h:x/v1", "http://h:99999/v1"]
)
def test_an_address_that_is_none_is_a_clear_error(url: str) -> None:
    with pytest.raises(ConfigError, match="The base_url of provider 'openai'"):
        get(opened(url))


@pytest.mark.parametrize(
    "host",
    [
        "\u0430pi.openai.com",
        "api\u3002openai.com",
        "evil.com\\.openai.com",
        "evil.com%2f.openai.com",
        "a;b",
        "a\u202eb",
    ],
)
def test_S24_a_host_that_looks_like_another_is_refused(host: str) -> None:
    """A letter of another script, or one that becomes a dot: people would agree to one host, and contact another."""
    with pytest.raises(ConfigError, match="other characters than letters") as caught:
        get(opened(f"https://{host}/v1"))
    assert caught.value.message.isascii()
    assert "xn--" in (caught.value.hint or "")


def test_S29_addresses_are_shown_without_user_and_query() -> None:
    providers = opened("http://ana:s3cret@localhost:8080/v1?token=t0ken")
    traits = get(providers).traits
    assert traits.base_url == "http://localhost:8080/v1"
    assert providers.hosts(["openai"]) == ("localhost:8080",)


def test_hosts_are_those_of_the_names_asked_for() -> None:
    specs = {
        "openai": ProviderSpec(kind="openai"),
        "scripted": ProviderSpec(kind="scripted"),
        "local": ProviderSpec(kind="openai", base_url="http://[::1]:99/v1"),
    }
    providers = Providers(Project(), Settings(specs))
    assert providers.hosts() == ("[::1]:99", "api.anthropic.com", "api.openai.com"), "Anthropic's needs no table"
    assert providers.hosts(["openai", "scripted"]) == ("api.openai.com",)
    assert providers.hosts(["scripted"]) == ()


def test_an_unknown_provider_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="There is no provider 'opnai'") as caught:
        get(opened(None), "opnai")
    assert "Did you mean 'openai'?" in str(caught.value.hint)


def test_prices_know_where_a_provider_leads() -> None:
    specs = {"work": ProviderSpec(kind="openai", base_url="https://api.openai.com/v1")}
    table = {"gpt-x*": PriceSpec.model_validate({"input": 1, "output": 1})}
    prices = Providers(Project(), Settings(specs, prices=table)).prices()
    assert prices.cost("work", "gpt-6-sol", Usage(input_tokens=10)) is not None
    assert prices.cost("work", "gpt-x1", Usage(input_tokens=1_000_000)) is not None


@pytest.mark.parametrize(("store", "stores"), [(False, False), (None, True)])
def test_the_scripted_provider_is_configured_in_the_same_place(store: bool | None, stores: bool) -> None:
    spec = ProviderSpec(kind="scripted", store=store, may_see="secret")
    traits = get(Providers(Project(), Settings({"scripted": spec})), "scripted").traits
    assert (traits.name, traits.stores, traits.may_see) == ("scripted", stores, "secret")
