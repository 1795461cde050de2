"""The OpenAI driver over real HTTP and the real SDK, against the strict stand-in: the wire, and the failure table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import Provider, StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import OutputFormat, Reply, Request, TextItem, ToolOutput, Usage
from tests.contract.vendors import OPENAI, SCHEMA, Project, Settings
from tests.strict_server import Fault, Seen, StrictServer

KEY, MODEL, FULL = OPENAI.key, OPENAI.model, OPENAI.full
opened, ask, send, failing = OPENAI.opened, OPENAI.ask, OPENAI.send, OPENAI.failing


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with OPENAI.server() as running:
        yield running


def once(providers: Providers, request: Request, name: str = "openai") -> Reply:
    async def go() -> Reply:
        try:
            return await providers.get(name).respond(request)
        finally:
            await providers.close()

    return asyncio.run(go())


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
    assert events[0] == StreamEvent("created", reply.id, sequence=0)
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


# --- the server's own rules -------------------------------------------------------------------------------------------


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
