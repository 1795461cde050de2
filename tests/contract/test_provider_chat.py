"""The driver for chat completions over real HTTP and the real SDK, against the strict stand-in: wire and replies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.errors import ConfigError
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import OutputItem, TextItem, ToolOutput, Usage
from tests.contract.vendors import CHAT, OPENAI, SCHEMA, Project, Settings, after
from tests.strict_chat import ChatServer
from tests.strict_server import Fault, StrictServer

MODEL, FULL = CHAT.model, CHAT.full
opened, ask, send, failing = CHAT.opened, CHAT.ask, CHAT.send, CHAT.failing


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with CHAT.server() as running:
        yield running


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_first_call_has_the_fields_that_it_needs_and_no_others(server: StrictServer) -> None:
    send(server, ask(), FULL)
    plain, full = server.bodies
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    assert plain == {"model": MODEL, "messages": messages, "max_tokens": 8000, **streaming}
    function = {"name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}
    assert full == {
        "model": MODEL,
        "messages": messages,
        "tools": [{"type": "function", "function": function}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA, "strict": True}},
        "reasoning_effort": "medium",
        "max_tokens": 500,
        **streaming,
    }


def test_S14_the_wire_is_exactly_what_is_sent(server: StrictServer) -> None:
    request = replace(FULL, items=(TextItem(("Ümläut 日本 \u2028 \x00 </artifact>",)),))
    send(server, request)
    providers = opened(server.base_url)
    assert server.seen[0].raw == providers.get("local").wire(request)
    assert server.seen[0].raw == providers.offline("local").wire(request)
    assert server.seen[0].body["messages"][1]["content"] == "Ümläut 日本 \u2028 \x00 </artifact>"


@pytest.mark.parametrize(
    ("url", "cap", "key"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens", "k1"),
        ("https://my.openai.azure.com/openai/v1", "max_completion_tokens", None),
        ("http://localhost:11434/v1", "max_tokens", None),
        ("https://openrouter.ai/api/v1", "max_tokens", None),
    ],
)
def test_what_differs_between_hosts(url: str, cap: str, key: str | None) -> None:
    """OpenAI refuses the old name of the cap for models that think; others may not know the new one."""
    body = json.loads(opened(url).get("local").wire(FULL))
    assert (body[cap], body.get("prompt_cache_key")) == (500, key)
    assert len({"max_tokens", "max_completion_tokens"} & set(body)) == 1
    assert "store" not in body


def test_R008_an_id_to_chain_on_never_leaves(server: StrictServer) -> None:
    assert failing(server, ask("chatcmpl-7")).kind == "chain_unsupported"
    assert server.seen == []
    assert opened(server.base_url).get("local").traits.chaining == "replay"


def test_a_chain_cannot_be_wished_for_and_an_address_must_be_given() -> None:
    with pytest.raises(ConfigError, match="chat completions keep no responses"):
        opened("http://localhost:1/v1", chaining="server").get("local")
    with pytest.raises(ConfigError, match="has no base_url: it is not known where it is") as caught:
        opened(None).get("local")
    assert "[providers.local]" in str(caught.value.hint)


def test_A8_a_thread_goes_back_as_it_came_and_thoughts_only_beside_the_calls_they_led_to() -> None:
    """Some vendors demand them there, others refuse them elsewhere; each call is answered, also with an error."""
    called: dict[str, Any] = {
        "reasoning": "Let me thinkä", "text": "I look.",
        "tool_calls": [{"name": "look", "arguments": {"a": 1.5, "b": "ü"}}, {"name": "look", "arguments": "{"}],
    }  # fmt: skip
    thought = {"reasoning": "hm", "json": {"a": 2}}
    with ChatServer(lambda seen: [called, thought, {"json": {"a": 3}}][seen.turn]) as server:
        [first] = send(server, FULL)
        one, two = first.tool_calls
        second_asked = after(FULL, first, TextItem(("and",)), *(ToolOutput(c.call_id, "7") for c in (one, two)))
        [second] = send(server, second_asked)
        [third] = send(server, after(second_asked, second, TextItem(("again",))))
        said = [seen.response["choices"][0]["message"] for seen in server.seen]
    assert (one.arguments, two.arguments) == ('{"a": 1.5, "b": "\\u00fc"}', "{"), "as it wrote them"
    assert (first.text, second.text, third.text) == ("", '{"a": 2}', '{"a": 3}')
    turns = server.bodies[2]["messages"]
    assert [turn["role"] for turn in turns] == [
        "system", "user", "assistant", "tool", "tool", "user", "assistant", "user",
    ]  # fmt: skip
    assert turns[2] == said[0]
    assert turns[3] == {"role": "tool", "tool_call_id": one.call_id, "content": "7"}
    assert turns[6] == {"role": "assistant", "content": '{"a": 2}'}
    fixed = [{k: v for k, v in body.items() if k != "messages"} for body in server.bodies]
    assert fixed[0] == fixed[1] == fixed[2], "all else is resent unchanged"


def test_what_a_vendor_adds_to_its_calls_goes_back_with_them() -> None:
    """A signature of thoughts in a call, details of thoughts in a turn: unknown here, needed there."""
    extra = {"extra_content": {"google": {"thought_signature": "sig"}}}
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}, **extra}
    delta = {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}], "tool_calls": [call]}
    fault = Fault(events=[{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}])
    with ChatServer(lambda seen: {"text": ""}) as server:
        server.faults = [fault]
        [first] = send(server, FULL)
    wire = opened("http://localhost:1/v1").get("local").wire(after(FULL, first, ToolOutput("c1", "7")))
    turn = json.loads(wire)["messages"][2]
    assert turn["tool_calls"] == [{name: value for name, value in call.items() if name != "index"}]
    assert turn["reasoning_details"] == delta["reasoning_details"]


def test_what_another_vendor_said_is_said_again_in_this_ones_words() -> None:
    items = (
        OutputItem({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}),
        OutputItem({"type": "message", "id": "m", "role": "assistant", "phase": "commentary",
                    "content": [{"type": "output_text", "text": "I look."}]}),
        OutputItem({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}),
        ToolOutput("call_1", "7"),
        OutputItem({"type": "thinking", "thinking": "SECRET", "signature": "s"}),
        OutputItem({"type": "text", "text": "Seven."}),
    )  # fmt: skip
    with ChatServer(lambda seen: {"text": "Yes."}) as server:
        [reply] = send(server, ask("synthetic_s_1", TextItem(("how many?",)), *items, TextItem(("sure?",))))
    assert reply.text == "Yes."
    function = {"name": "look", "arguments": "{}"}
    assert server.bodies[0]["messages"][2:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "sure?"},
    ]


@pytest.mark.parametrize("empty", [{"text": ""}, {"reasoning": "hm"}])
def test_an_answer_that_a_server_would_not_take_back_is_left_out(empty: dict[str, Any]) -> None:
    replies = iter([empty, {"text": "done"}])
    with ChatServer(lambda seen: next(replies)) as server:
        [first] = send(server, ask())
        [second] = send(server, after(ask(), first, TextItem(("the answer was empty",))))
    assert (first.text, second.text) == ("", "done")
    assert [turn["role"] for turn in server.bodies[1]["messages"]] == ["system", "user", "user"]


# --- what comes back --------------------------------------------------------------------------------------------------


def test_the_id_is_told_first_then_the_text(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    [reply] = send(server, ask(), events=events)
    assert events[0] == StreamEvent("created", reply.id)
    assert len(events) > 2
    assert "".join(event.data for event in events[1:]) == reply.text == "reply 1"
    assert (reply.model, reply.previous, reply.status) == (MODEL, None, "completed")


def test_usage_is_normalised_and_priced(server: StrictServer) -> None:
    """R034: what was cached is part of the input, and counts once."""
    long = TextItem(("x" * 8000,))
    [first, second] = send(server, ask("synthetic_s_1", long), ask("synthetic_s_2", long, TextItem(("y",))))
    assert first.usage is not None
    assert first.usage.input_tokens == server.seen[0].response["usage"]["prompt_tokens"] > 2000
    assert (first.usage.cached_tokens, first.usage.output_tokens) == (0, 2)
    assert second.usage is not None
    assert second.usage.cached_tokens == 1920, "15 blocks of 128 of the 2,000 tokens seen before"
    table = {"llama-*": PriceSpec.model_validate({"input": 3, "cached": "0.30", "output": 15})}
    specs = {"local": ProviderSpec(kind="chat", base_url="http://localhost:1/v1")}
    prices = Providers(Project(), Settings(specs, prices=table)).prices()
    priced = prices.cost("local", MODEL, Usage(input_tokens=17111, cached_tokens=17102))
    assert priced is not None
    assert priced.usd == Decimal("0.0051576")


def test_thoughts_are_counted_and_are_no_answer() -> None:
    events: list[StreamEvent] = []
    with ChatServer(lambda seen: {"reasoning": "x" * 40, "text": "done"}) as server:
        [reply] = send(server, ask(), events=events)
    assert reply.usage is not None
    assert (reply.text, reply.usage.reasoning_tokens, reply.usage.output_tokens) == ("done", 10, 11)
    assert "x" not in "".join(event.data for event in events[1:])


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": float("nan")},
        {"prompt_tokens": 2**41, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}},
    ],
)
def test_S31_hostile_usage_is_unknown(server: StrictServer, usage: Any) -> None:
    server.faults = [Fault(response={"usage": usage})]
    [reply] = send(server, ask())
    assert (reply.text, reply.usage) == ("reply 1", None)


def test_a_reply_is_whole_when_it_said_why_it_ends_also_where_its_bill_is_missing(server: StrictServer) -> None:
    """Some servers count nothing in streams; or the connection breaks between the end and the count."""
    with ChatServer(lambda seen: {"text": "done"}, usage=False) as silent:
        [reply] = send(silent, ask())
        assert (reply.text, reply.usage) == ("done", None)
    for broken in (Fault(cut=5), Fault(malformed=5), Fault(truncated=5)):
        server.faults = [broken]
        [reply] = send(server, ask())
        assert (reply.text, reply.usage) == ("reply 1", None)


@pytest.mark.parametrize(
    ("reason", "told"), [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("zzz", "zzz")]
)
def test_a_cut_off_reply_says_why_and_one_of_an_unknown_end_is_never_accepted(reason: str, told: str) -> None:
    with ChatServer(lambda seen: {"text": '{"a": ', "finish_reason": reason}) as server:
        [reply] = send(server, ask())
    assert (reply.status, reply.incomplete_reason, reply.text) == ("incomplete", told, '{"a": ')


def test_a_call_that_was_cut_off_is_no_call() -> None:
    call = {"tool_calls": [{"name": "look", "arguments": '{"a": '}], "finish_reason": "length"}
    with ChatServer(lambda seen: call) as server:
        [reply] = send(server, FULL)
    assert (reply.status, reply.tool_calls) == ("incomplete", ())


def test_a_refusal_is_told_apart() -> None:
    with ChatServer(lambda seen: {"refusal": "I will not."}) as server:
        [reply] = send(server, ask())
    assert (reply.status, reply.text, reply.refusal) == ("completed", "", "I will not.")


def chunks(*deltas: dict[str, Any], reason: str = "stop", **more: Any) -> Fault:
    """A stream of these deltas in place of the server's own."""
    made: list[dict[str, Any]] = [{"id": "x", "choices": [{"delta": delta}], **more} for delta in deltas]
    last = {"id": "x", "choices": [{"delta": {}, "finish_reason": reason}]}
    return Fault(events=[*made, last], events_end=True)


def call(arguments: str, **more: Any) -> dict[str, Any]:
    return {"function": {"arguments": arguments, **({"name": "look"} if "id" in more else {})}, **more}


def test_what_servers_do_differently_is_understood(server: StrictServer) -> None:
    """Calls without an index, whole calls under `stop`, no arguments at all, content in parts, a first chunk that
    belongs to no reply, no type of event."""
    server.faults = [
        chunks(
            {"tool_calls": [call("{", id="c1")]}, {"tool_calls": [call("}")]}, {"tool_calls": [call("{}", id="c2")]}
        ),
        chunks({"tool_calls": [call("", id="c1", index=0)]}),
        chunks({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "done"}]}),
        Fault(whole=True),
    ]
    calls, bare, parts, whole = send(server, FULL, FULL, ask(), ask())
    assert [(c.call_id, c.arguments) for c in calls.tool_calls] == [("c1", "{}"), ("c2", "{}")]
    assert [c.arguments for c in bare.tool_calls] == ["{}"]
    assert (parts.text, whole.text) == ("done", "reply 1")
    first = 'data: {"id": "", "choices": [], "prompt_filter_results": []}\n\n'
    then = 'data: {"id": "x", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": null}\n\n'
    server.faults = [Fault(status=200, body=first + then, headers={"content-type": "text/event-stream"})]
    [azure] = send(server, ask())
    assert (azure.id, azure.text) == ("x", "hi")


def test_the_servers_own_rules(server: StrictServer) -> None:
    refusal = failing(server, ask(), env={"LOCAL_KEY": "sk-other-key"})
    assert refusal.kind == "auth"
    assert "LOCAL_KEY" in str(refusal.hint)
    assert failing(server, replace(ask(), model="nope")).kind == "model"
    with ChatServer(window=100) as small:
        assert failing(small, ask("synthetic_s_1", TextItem(("x" * 500,)))).kind == "too_long"


def test_a_server_without_the_responses_api_is_told_how_to_reach(server: StrictServer) -> None:
    """Where `/responses` is not found, the words to write are in the hint."""
    failure = OPENAI.failing(server, OPENAI.ask())
    assert failure.kind == "bad_request"
    assert 'write kind = "chat" under [providers.openai]' in str(failure.hint)


def test_the_stand_in_refuses_what_servers_refuse(server: StrictServer) -> None:

    def refused(*items: Any, **more: Any) -> str:
        return failing(server, ask("synthetic_s_1", TextItem(("x",)), *items, **more)).kind

    turn = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {}}]}
    assert refused(OutputItem(turn)) == "unanswered_call"
    assert refused(OutputItem(turn), ToolOutput("c1", "7"), ToolOutput("c2", "7")) == "bad_request"
    assert refused(OutputItem({"role": "assistant", "content": "x"})) == "bad_request"
