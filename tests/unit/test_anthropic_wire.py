"""The Messages API's pure parts: the schema it is sent, the turns of a thread, a stream put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from anthropic import transform_schema
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ProviderFailure
from orchestrator.providers import anthropic_reply, anthropic_wire
from orchestrator.providers.anthropic_reply import Assembly, reply
from orchestrator.providers.anthropic_schema import grammar
from orchestrator.providers.retry import retry_after
from orchestrator.values import Item, OutputItem, Reply, Request, TextItem, ToolOutput
from tests.strict_messages import check_grammar, check_turns, events, merged

# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "description": "{minimum: 1}"}),
        (
            {"type": "string", "maxLength": 9, "pattern": "a+", "description": "A name."},
            {"type": "string", "description": "A name.\n\n{maxLength: 9, pattern: a+}"},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "binary"}, {"type": "string", "description": "{format: binary}"}),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 3},
            {"type": "array", "items": {"type": "integer"}, "description": "{minItems: 3}"},
        ),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 1}),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"const": 7, "title": "T"}, {"const": 7, "title": "T"}),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}),
        (
            {"type": ["string", "null"], "maxLength": 9, "description": "D"},
            {"anyOf": [{"type": "string", "description": "{maxLength: 9}"}, {"type": "null"}], "description": "D"},
        ),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"enum": ["a", None]}),
        ({"$ref": "#/$defs/A", "description": "x"}, {"$ref": "#/$defs/A"}),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {"type": "integer", "minimum": 0}},
            },
            {
                "$defs": {"A": {"type": "integer", "description": "{minimum: 0}"}},
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "additionalProperties": False,
            },
        ),
    ],
)  # fmt: skip
def test_what_a_grammar_cannot_hold_becomes_words(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    before = json.dumps(schema)
    assert grammar(schema) == sent
    assert json.dumps(schema) == before, "the contract's schema is left as it is"


def test_an_open_object_is_left_open_and_so_refused_by_name() -> None:
    assert grammar({"type": "object", "additionalProperties": True})["additionalProperties"] is True


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("integer")}, optional={"minimum": st.integers(), "description": st.text(min_size=1)}
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"format": st.sampled_from(["date", "email"]), "maxLength": st.integers(0, 99)},
    ),
    st.fixed_dictionaries({"enum": st.lists(st.one_of(st.text(), st.integers(), st.none()), min_size=1)}),
    st.just({"type": "string", "format": "binary"}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
)


def deeper(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 4)}
        ),
        st.builds(
            lambda fields: {
                "type": "object", "properties": fields, "required": list(fields), "additionalProperties": False,
            },
            st.dictionaries(st.text(min_size=1), inner, max_size=4),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    )  # fmt: skip


@given(st.recursive(LEAVES, deeper, max_leaves=12))
def test_the_schema_that_is_sent_is_what_the_vendors_own_sdk_would_send(schema: dict[str, Any]) -> None:
    sent = grammar(schema)
    assert sent == transform_schema(json.loads(json.dumps(schema)))
    check_grammar(sent, "schema")
    assert grammar(sent) == sent


# --- turns ------------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
BLOCKS = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    TEXTS.map(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}),
    st.just({"type": "redacted_thinking", "data": "d"}),
)


@st.composite
def threads(draw: st.DrawFn) -> tuple[Item, ...]:
    """A thread as a chain makes them: a question, replies (some call tools), the results or a further question."""
    items: list[Item] = [TextItem(("hello",))]
    for turn in range(draw(st.integers(0, 4))):
        items += [OutputItem(block) for block in draw(st.lists(BLOCKS, max_size=3))]
        calls = [f"t{turn}{number}" for number in range(draw(st.integers(0, 3)))]
        items += [OutputItem({"type": "tool_use", "id": call, "name": "look", "input": {}}) for call in calls]
        items += [ToolOutput(call, "7") for call in calls] or [TextItem(("more",))]
    return tuple(items)


@given(threads(), st.booleans())
def test_every_thread_is_one_that_the_vendor_takes(items: tuple[Item, ...], tools: bool) -> None:
    body = anthropic_wire.body(Request("m", "synthetic_s_1", "system", items))
    turns = merged(json.loads(json.dumps(body["messages"])))
    check_turns(turns)
    assert turns == body["messages"], "adjacent turns are one already"
    said = [block for turn in turns for block in turn["content"]]
    ours = [block for block in said if block["type"] in ("tool_result", "tool_use")]
    wanted = [item for item in items if isinstance(item, ToolOutput) or _calls(item)]
    assert len(ours) == len(wanted), "no call and no result is lost"
    assert json.dumps(body).count("cache_control") <= 4


def _calls(item: Item) -> bool:
    return isinstance(item, OutputItem) and item.data["type"] == "tool_use"


# --- streams ----------------------------------------------------------------------------------------------------------

CALLS = st.builds(
    lambda number, value: {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"a": value}},
    st.integers(),
    st.one_of(st.none(), st.integers(), TEXTS, st.lists(TEXTS)),
)
MESSAGES = st.builds(
    lambda content, stop: {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop,
        "stop_sequence": None, "stop_details": None, "usage": {"input_tokens": 3, "output_tokens": 4},
    },
    st.lists(st.one_of(BLOCKS, CALLS), max_size=5, unique_by=lambda block: block.get("id", id(block))),
    st.sampled_from(["end_turn", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"]),
)  # fmt: skip


@given(MESSAGES)
def test_a_stream_says_what_the_whole_message_says(message: dict[str, Any]) -> None:
    assembly = Assembly()
    shown = "".join(text for event in events(message) if (text := assembly.see(event)))
    assert assembly.ended
    assert assembly.whole(lambda data: data) == reply(message)
    assert shown == "".join(block["text"] for block in message["content"] if block["type"] == "text")


@given(MESSAGES, st.data())
def test_a_stream_that_stops_anywhere_has_not_ended(message: dict[str, Any], data: st.DataObject) -> None:
    script = list(events(message))
    cut = data.draw(st.integers(0, len(script) - 1))
    assembly = Assembly()
    for event in script[:cut]:
        assembly.see(event)
    assert not assembly.ended


@pytest.mark.parametrize("kind", ["text", "thinking", "partial_json", "signature", "unknown"])
def test_a_stream_without_end_is_given_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic_reply, "MAX_JSON_BYTES", 1000)
    types = {"partial_json": "input_json_delta"}
    delta = {"type": types.get(kind, f"{kind}_delta"), kind: "x" * 100}
    assembly = Assembly()
    assembly.see({"type": "message_start", "message": {"id": "m1"}})
    assembly.see({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})

    def much_more() -> None:
        for _ in range(20):
            assembly.see({"type": "content_block_delta", "index": 0, "delta": delta})

    with pytest.raises(ProviderFailure, match="longer than 1,000 bytes") as caught:
        much_more()
    assert caught.value.kind == "malformed"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "x"]
FIELDS = ["message", "index", "content_block", "delta", "usage"]
DELTAS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"]
        )
    },
    optional=dict.fromkeys(["text", "partial_json", "thinking", "signature", "citation"], JSON),
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(KINDS)},
            optional={**dict.fromkeys(FIELDS, JSON), "index": st.integers(0, 1), "delta": st.one_of(DELTAS, JSON)},
        ),
        max_size=8,
    )
)
def test_whatever_a_server_streams_is_a_reply_or_a_named_failure(script: list[Mapping[str, Any]]) -> None:
    assembly = Assembly()
    begin = {"type": "message_start", "message": {"id": "m1", "type": "message"}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    whole: list[Mapping[str, Any]] = [begin, block, *script]
    found: Reply | ProviderFailure
    try:
        for event in whole:
            assembly.see(event)
        found = assembly.whole(lambda data: data)
    except ProviderFailure as failure:
        found = failure
    assert found.id == "m1" if isinstance(found, Reply) else found.kind == "malformed"


# --- when to come back ------------------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
BUCKET = "anthropic-ratelimit-{}-{}".format


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({BUCKET("tokens", "remaining"): "0", BUCKET("tokens", "reset"): "2026-11-30T12:00:30Z"}, 30.0),
        ({BUCKET("tokens", "remaining"): "5", BUCKET("tokens", "reset"): "2026-11-30T12:00:30Z"}, None),
        ({BUCKET("requests", "remaining"): "0", BUCKET("requests", "reset"): "2026-11-30T11:59:00Z"}, 0.0),
        ({BUCKET("requests", "remaining"): "0", BUCKET("requests", "reset"): "soon"}, None),
        ({BUCKET("requests", "remaining"): "0", BUCKET("requests", "reset"): "9999-01-01T00:00:00Z"}, None),
        (
            {
                BUCKET("input-tokens", "remaining"): "0", BUCKET("input-tokens", "reset"): "2026-11-30T12:00:10Z",
                BUCKET("output-tokens", "remaining"): "0",
                BUCKET("output-tokens", "reset"): "2026-11-30T13:00:20+01:00",
            },
            20.0,
        ),
        (
            {
                "retry-after": "7",
                BUCKET("tokens", "remaining"): "0", BUCKET("tokens", "reset"): "2026-11-30T12:00:30Z",
            },
            7.0,
        ),
    ],
)  # fmt: skip
def test_an_exhausted_bucket_says_when_it_is_full_again(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOON) == seconds


# --- Message Threads --------------------------------------------------------------------------------------------------


def test_a_continued_thread_carries_what_is_new_and_none_of_what_its_first_call_fixed() -> None:
    """Vendor's rule (beta message-threads-2026-08-12): no `system` and no `tools` on continue, all else per request."""
    first = Request("claude-x1", "synthetic_s_1", "Be brief.", (TextItem(("hello",)),), max_output_tokens=100)
    begun = anthropic_wire.body(first, threads=True)
    assert begun["thread"] == {"type": "create"}
    assert begun["system"] == [{"type": "text", "text": "Be brief."}]
    then = Request(
        "claude-x1", "msg_1", "Be brief.", (ToolOutput("toolu_1", "42"),), max_output_tokens=100, effort="low"
    )
    sent = anthropic_wire.body(then, threads=True)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "42"}
    assert sent == {
        "model": "claude-x1",
        "max_tokens": 100,
        "cache_control": {"type": "ephemeral"},
        "messages": [{"role": "user", "content": [result]}],
        "thread": {"type": "continue", "previous_message_id": "msg_1"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "stream": True,
    }
    assert "thread" not in anthropic_wire.body(first)
    with pytest.raises(ProviderFailure) as caught:
        anthropic_wire.body(then)
    assert caught.value.kind == "chain_unsupported"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "thread_not_found", "chain_lost"),
        (400, "thread_already_continued", "chain_lost"),
        (400, "thread_continue_in_flight", "chain_lost"),
        (400, "thread_fingerprint_mismatch", "chain_lost"),
        (400, "thread_unsupported_request", "chain_unsupported"),
    ],
)
def test_what_a_thread_is_refused_for_leads_to_the_whole_of_it(status: int, code: str, kind: str) -> None:
    error = {"type": "invalid_request_error", "message": "the model's thread", "details": {"error_code": code}}
    assert anthropic_wire.refusal_kind(status, error) == kind
