"""The Anthropic driver over real HTTP and the real SDK, against the strict stand-in: the wire, the failure table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Reply, Request, TextItem, ToolOutput, Usage
from tests.contract.vendors import ANTHROPIC, SCHEMA, Project, Settings, after
from tests.contract.vendors import told as error
from tests.strict_messages import MessagesServer
from tests.strict_server import Fault, StrictServer

KEY, MODEL, FULL = ANTHROPIC.key, ANTHROPIC.model, ANTHROPIC.full
opened, ask, send, failing = ANTHROPIC.opened, ANTHROPIC.ask, ANTHROPIC.send, ANTHROPIC.failing


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with ANTHROPIC.server() as running:
        yield running


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_first_call_has_the_fields_that_it_needs_and_no_others(server: StrictServer) -> None:
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


def test_S14_the_wire_is_exactly_what_is_sent(server: StrictServer) -> None:
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
def test_effort_is_how_much_to_think(server: StrictServer, effort: Any, thinking: Any, sent: str | None) -> None:
    send(server, ask(effort=effort))
    [body] = server.bodies
    assert body.get("thinking") == thinking
    assert body.get("output_config") == ({"effort": sent} if sent else None)


def test_what_json_cannot_hold_is_refused_before_sending(server: StrictServer) -> None:
    assert failing(server, ask("synthetic_s_1", TextItem(("\ud800",)))).kind == "bad_request"
    assert server.seen == []


def test_an_id_to_chain_on_never_leaves(server: StrictServer) -> None:
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


def test_results_stand_first_in_their_turn(server: StrictServer) -> None:
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


def test_a_step_that_asks_once_does_not_pay_for_a_cache(server: StrictServer) -> None:
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


def test_a_thread_that_has_gone_on_twice_is_cached(server: StrictServer) -> None:
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


def test_A23_cached_tokens_are_priced_once(server: StrictServer) -> None:
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


def test_the_id_is_told_first_then_the_text(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    [reply] = send(server, ask(), events=events)
    assert events[0] == StreamEvent("created", reply.id)
    assert len(events) > 2
    assert "".join(event.data for event in events[1:]) == reply.text == "reply 1"
    assert {event.kind for event in events[1:]} == {"text"}
    assert (reply.model, reply.previous, reply.status) == (MODEL, None, "completed")


def test_servers_that_answer_at_once_are_understood(server: StrictServer) -> None:
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
def test_S31_hostile_usage_is_unknown(server: StrictServer, usage: Any) -> None:
    server.faults = [Fault(response={"usage": usage})]
    [reply] = send(server, ask())
    assert (reply.text, reply.usage) == ("reply 1", None)


def test_S12_a_response_id_that_looks_like_ours_is_refused(server: StrictServer) -> None:
    events: list[StreamEvent] = []
    server.faults = [Fault(response={"id": "synthetic_s_9"})]
    with pytest.raises(ProviderFailure, match="synthetic_") as caught:
        send(server, ask(), events=events)
    assert caught.value.kind == "malformed"
    assert events == []


# --- counting ---------------------------------------------------------------------------------------------------------


def counted(server: StrictServer, request: Request, **spec: Any) -> int | None:
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


def test_a_vendor_that_does_not_count_is_no_failure(server: StrictServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_servers_own_rules(server: StrictServer) -> None:
    refusal = failing(server, ask(), env={"ANTHROPIC_API_KEY": "sk-ant-other-key"})
    assert refusal.kind == "auth"
    assert "ANTHROPIC_API_KEY" in str(refusal.hint)
    assert "sk-ant-other-key" not in refusal.message
    wrong = failing(server, replace(ask(), model="claude-nope"))
    assert (wrong.kind, wrong.message.count("claude-nope")) == ("model", 2)
    with MessagesServer(window=100) as small:
        assert failing(small, ask("synthetic_s_1", TextItem(("x" * 500,)))).kind == "too_long"


# --- keys and addresses -----------------------------------------------------------------------------------------------


def test_S29_a_key_that_is_echoed_is_taken_out_of_everything(server: StrictServer) -> None:
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


def test_S29_the_sdks_own_log_holds_no_key(server: StrictServer, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_key_does_not_go_to_another_vendor_by_its_name() -> None:
    for name, kind in (("anthropic", "openai"), ("openai", "anthropic")):
        spec = ProviderSpec.model_validate({"kind": kind})
        keys = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
        with pytest.raises(ConfigError, match="its key would go to another vendor"):
            Providers(Project(), Settings({name: spec}, keys)).get(name)


def test_threads_are_kept_there_only_where_that_is_asked_for_and_not_under_zero_retention() -> None:
    assert opened(None).get("anthropic").traits.chaining == "replay"
    assert opened(None, chaining="server").get("anthropic").traits.chaining == "server"
    with pytest.raises(ConfigError, match="a thread is kept there"):
        opened(None, chaining="server", store=False).get("anthropic")


def test_an_address_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(ConfigError, match="The base_url of provider 'anthropic'") as caught:
        opened("api.anthropic.com").get("anthropic")
    assert "ANTHROPIC_BASE_URL" in str(caught.value.hint)


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
