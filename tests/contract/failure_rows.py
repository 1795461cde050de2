"""The rows of the failure table: what happens on the wire, for each vendor, and its kind.

`tests/contract/test_failure_table.py` holds the drivers to it, `tests/walk/test_failure_reactions.py` whole runs.
"""

from __future__ import annotations

from typing import Any

from tests.contract.vendors import ANTHROPIC, CHAT, OPENAI, Vendor, error, told
from tests.strict_server import Fault

Rows = dict[str, tuple[Fault, str]]
STREAM = {"content-type": "text/event-stream"}
TRIED_AGAIN = {"connection", "rate_limit", "overloaded", "malformed"}


def events_of(data: str | bytes) -> Fault:
    line = data if isinstance(data, bytes) else data.encode()
    return Fault(status=200, body=b"event: message_start\ndata: " + line + b"\n\n", headers=STREAM)


def stream_error(**fields: Any) -> Fault:
    return Fault(events=[{"type": "error", **fields}], events_end=True)


def refused(status: int, type: str, message: str = "No.", code: str | None = None) -> Fault:
    return Fault(status=status, body=told(type, message, code))


def in_stream(type: str, message: str = "Oops") -> Fault:
    return Fault(events=[told(type, message)], events_end=True)


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


# --- the rows ---------------------------------------------------------------------------------------------------------

COMMON: Rows = {
    "reset before headers": (Fault(drop=True), "connection"),
    "reset in mid-stream": (Fault(cut=3), "connection"),
    "ended before anything": (Fault(truncated=0), "connection"),
    "200 empty": (Fault(status=200, body=""), "malformed"),
    "200 text": (Fault(status=200, body="It works!"), "malformed"),
    "200 HTML": (Fault(status=200, body="<html>", headers={"content-type": "text/html"}), "malformed"),
    "200 wrong shape": (Fault(status=200, body={"choices": []}), "malformed"),
    "200 list": (Fault(status=200, body="[]", headers={"content-type": "application/json"}), "malformed"),
    "200 event stream of text": (
        Fault(status=200, body="hello\n\n", headers={"content-type": "text/event-stream"}),
        "connection",
    ),
    "422": (Fault(status=422, body={"detail": [{"msg": "field required"}]}), "bad_request"),
    "404 no such API": (Fault(status=404, body={"detail": "Not Found"}), "bad_request"),
    "408": (Fault(status=408, body=""), "connection"),
    "429 bare": (Fault(status=429, body="slow down"), "rate_limit"),
    "502 HTML": (Fault(status=502, body="<html>Bad gateway</html>"), "overloaded"),
    "event is no object": (events_of("[1]"), "malformed"),
    "number without end": (events_of("9" * 5000), "malformed"),
    "nesting without end": (events_of("[" * 100_000), "malformed"),
    "not UTF-8": (events_of(b"\xff\xfe"), "malformed"),
}


def like_openai(vendor: Vendor) -> Rows:
    """What servers of both of OpenAI's APIs say of a request."""
    return {
        "200 error": (Fault(status=200, body=error("server_error")), "malformed"),
        "400 other": (Fault(status=400, body=error("invalid_value")), "bad_request"),
        "400 too long, by code": (Fault(status=400, body=error("context_length_exceeded")), "too_long"),
        "400 too long, by text": (
            Fault(status=400, body=error(None, "The prompt (5000 tokens) exceeds the max_model_len (4096).")),
            "too_long",
        ),
        "400 policy": (Fault(status=400, body=error("invalid_prompt")), "refused"),
        "401": (Fault(status=401, body=error("invalid_api_key", f"Incorrect API key provided: {vendor.key}.")), "auth"),
        "402": (Fault(status=402, body=error(None, "Insufficient credits")), "quota"),
        "403": (Fault(status=403, body=error(None, "Not your project")), "auth"),
        "404 model": (
            Fault(status=404, body=error("model_not_found", f"The model '{vendor.model}' does not exist")),
            "model",
        ),
        "404 model, by text": (
            Fault(status=404, body=error(None, f'model "{vendor.model}" not found, try pulling it')),
            "model",
        ),
        "400 model": (Fault(status=400, body=error("model_not_found")), "model"),
        "409": (Fault(status=409, body=error(None)), "overloaded"),
        "413": (Fault(status=413, body="too large"), "bad_request"),
        "429 rate": (Fault(status=429, body=error("rate_limit_exceeded", type="tokens")), "rate_limit"),
        "429 slow down": (Fault(status=429, body=error("slow_down", type="rate_limit_error")), "rate_limit"),
        "429 rate under a quota's type": (
            Fault(status=429, body=error("rate_limit_exceeded", type="insufficient_quota")),
            "rate_limit",
        ),
        "429 quota": (Fault(status=429, body=error("insufficient_quota", type="insufficient_quota")), "quota"),
        "429 quota, by type": (Fault(status=429, body=error(None, type="insufficient_quota")), "quota"),
        "429 credit": (Fault(status=429, body=error("credit_balance_exhausted", type="rate_limit_error")), "quota"),
        "500": (Fault(status=500, body=error("server_error", type="server_error")), "overloaded"),
        "503": (Fault(status=503, body=error("server_is_overloaded")), "overloaded"),
        "529": (Fault(status=529, body=error(None)), "overloaded"),
        "in-stream error, nested": (stream_error(error={"code": "server_error", "message": "Oops"}), "overloaded"),
        "in-stream rate limit": (stream_error(error={"code": "rate_limit_exceeded", "message": "Slow"}), "rate_limit"),
        "in-stream overload": (stream_error(error={"type": "overloaded_error", "message": "Busy"}), "overloaded"),
    }


RESPONSES: Rows = {
    "ended without a terminal event": (Fault(truncated=5), "connection"),
    "malformed event": (Fault(malformed=2), "malformed"),
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
    "completed with an error": (Fault(end={"error": {"code": "x", "message": "y"}}), "malformed"),
    "in-stream error, flat": (stream_error(code="server_error", message="Oops", param=None), "overloaded"),
    "in-stream error, unknown": (stream_error(code="zzz", message="Oops", param=None), "overloaded"),
    "in-stream quota": (stream_error(code="insufficient_quota", message="Pay", param=None), "quota"),
    "failed: server_error": (Fault(ending="failed", end={"error": {"code": "server_error"}}), "overloaded"),
    "failed: no reason": (Fault(ending="failed"), "overloaded"),
    "failed: rate limit": (Fault(ending="failed", end={"error": {"code": "rate_limit_exceeded"}}), "rate_limit"),
    "failed: policy": (Fault(ending="failed", end={"error": {"code": "misalignment_policy_violation"}}), "refused"),
    "failed: bio policy": (Fault(ending="failed", end={"error": {"code": "bio_policy"}}), "refused"),
    "failed: invalid prompt": (Fault(ending="failed", end={"error": {"code": "invalid_prompt"}}), "refused"),
    "failed: bad image": (Fault(ending="failed", end={"error": {"code": "invalid_image"}}), "bad_request"),
    "400 too long, relayed": (
        Fault(status=400, body={"error_type": "context_length_exceeded", **error("invalid_prompt")}),
        "too_long",
    ),
    "400 missing tool output": (
        Fault(status=400, body=error(None, "No tool output found for function call call_1.")),
        "unanswered_call",
    ),
}

TEXT = {"type": "text", "text": "x"}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
MESSAGES: Rows = {
    "ended in the text": (Fault(truncated=4), "connection"),
    "ended before its end was said": (Fault(truncated=8), "connection"),
    "malformed event": (Fault(malformed=3), "malformed"),
    "200 error": (Fault(status=200, body=told("api_error")), "malformed"),
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
    "401": (refused(401, "authentication_error", f"invalid bearer token {ANTHROPIC.key}"), "auth"),
    "402": (refused(402, "billing_error"), "quota"),
    "402 another's limit": (refused(402, "billing_error", code="linked_organization_spend_limit_reached"), "quota"),
    "403": (refused(403, "permission_error"), "auth"),
    "404 model": (refused(404, "not_found_error", f"model: {ANTHROPIC.model}"), "model"),
    "409": (refused(409, "conflict_error"), "overloaded"),
    "413": (refused(413, "request_too_large", "Request exceeds the maximum size"), "too_long"),
    "429 rate": (refused(429, "rate_limit_error"), "rate_limit"),
    "429 ramp": (refused(429, "rate_limit_error", code="ramp_limit_exceeded"), "rate_limit"),
    "429 spend limit": (refused(429, "rate_limit_error", code="enforced_spend_limit_reached"), "quota"),
    "429 contract": (refused(429, "rate_limit_error", code="contract_spend_limit_reached"), "quota"),
    "500": (refused(500, "api_error"), "overloaded"),
    "503": (refused(503, "api_error"), "overloaded"),
    "504": (refused(504, "timeout_error"), "overloaded"),
    "529": (refused(529, "overloaded_error", "Overloaded"), "overloaded"),
    "529 compaction": (refused(529, "overloaded_error", code="compaction_unavailable"), "overloaded"),
}

CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
COMPLETIONS: Rows = {
    "ended in the text": (Fault(truncated=2), "connection"),
    "ended before its end was said": (Fault(truncated=4), "connection"),
    "malformed event": (Fault(malformed=2), "malformed"),
    "chunk without choices": (Fault(events=[{"id": "c1", "choices": "none"}]), "malformed"),
    "reply without id": (Fault(response={"id": None}), "malformed"),
    "reply under an id of ours": (Fault(response={"id": "synthetic_s_9"}), "malformed"),
    "whole without a message": (Fault(whole=True, response={"choices": [{}]}), "malformed"),
    "whole without an end": (
        Fault(whole=True, response={"choices": [{"message": {"content": "x"}, "finish_reason": None}]}),
        "malformed",
    ),
    "stopped for a tool it does not call": (Fault(end={"finish_reason": "tool_calls"}), "malformed"),
    "call without a name": (
        Fault(events=[chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"arguments": "{}"}}]})]),
        "malformed",
    ),
    "arguments of no call": (
        Fault(events=[chunk({"tool_calls": [{"function": {"arguments": "{}"}}]})]),
        "malformed",
    ),
    "call is no object": (Fault(events=[chunk({"tool_calls": ["look"]})]), "malformed"),
    "two calls of one id": (
        Fault(events=[chunk({"tool_calls": [{"index": 0, **CALLED}, {"index": 1, **CALLED}]}, "tool_calls")]),
        "malformed",
    ),
    "lone surrogate": (
        Fault(whole=True, response={"choices": [{"message": {"content": "\ud800"}, "finish_reason": "stop"}]}),
        "malformed",
    ),
    "the server gave up": (Fault(end={"finish_reason": "error"}), "overloaded"),
    "in-stream error of a relay": (
        Fault(
            events=[{"error": {"code": 502, "message": "Upstream is gone"}, **chunk({"content": ""}, "error")}],
            events_end=True,
        ),
        "overloaded",
    ),
    "in-stream quota": (Fault(events=[error("insufficient_quota")], events_end=True), "quota"),
    "400 too long, llama.cpp": (
        Fault(
            status=400,
            body={
                "error": {
                    "code": 400,
                    "message": "request (9 tokens) exceeds the available context size (8 tokens)",
                    "type": "exceed_context_size_error",
                }
            },
        ),
        "too_long",
    ),
    "400 too long, vLLM": (
        Fault(
            status=400,
            body={
                "object": "error",
                "message": "This model's maximum context length is 8 tokens. However, you requested 9 tokens.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
        ),
        "too_long",
    ),
    "400 too long, LM Studio": (
        Fault(status=400, body={"error": "The model is loaded with context length of only 8 tokens."}),
        "too_long",
    ),
    "400 missing tool output": (
        Fault(
            status=400,
            body=error(
                None,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: call_1",
            ),
        ),
        "unanswered_call",
    ),
    "404 model, Ollama": (
        Fault(status=404, body=error(None, 'model "x" not found, try pulling it first', "not_found_error")),
        "model",
    ),
    "503 loading": (
        Fault(status=503, body={"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        "overloaded",
    ),
}
ROWS = {
    "openai": {**COMMON, **like_openai(OPENAI), **RESPONSES},
    "anthropic": {**COMMON, **MESSAGES},
    "chat": {**COMMON, **like_openai(CHAT), **COMPLETIONS},
}

# Of calls on an id.
CHAINED: Rows = {
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
    "400 a result without its call": (
        Fault(status=400, body=error(None, "No tool call found for function call output with call_id call_1.")),
        "chain_unsupported",
    ),
}
