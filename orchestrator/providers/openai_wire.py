"""The Responses API as bytes and JSON: what is sent, what a reply means, what a refusal means. Pure, no SDK.

`body` is the one place that decides which fields leave. The thread's id decides alone whether the call is chained: a
synthetic id leaves no `previous_response_id` at all (absent, not null), any other id is sent. Everything else is
resent unchanged on each call, because the server carries over items only, and because a changed field would break its
prompt cache. Fields that not every server knows (`store`, `include`, `prompt_cache_key`) are sent only where the
endpoint is known to take them.

Replies come from a server that may be broken, old or hostile; nothing of theirs is believed before it was looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from orchestrator.attachments import data_url, file_name, kind_of, label
from orchestrator.errors import ProviderFailure
from orchestrator.ids import canonical_json, is_synthetic
from orchestrator.providers.answers import field_of, malformed, response_id, text_or_none, words
from orchestrator.providers.base import FailureKind
from orchestrator.providers.foreign import api_of, compacted, plain, since_compaction
from orchestrator.providers.usage import openai_usage
from orchestrator.values import HostedTool, Item, OutputItem, Reply, Request, TextItem, ToolCall, ToolOutput


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an endpoint takes: `chains` False = never an id, `stores` False = ZDR, `caches` = knows cache keys."""

    chains: bool = True
    stores: bool = True
    caches: bool = False


# --- what is sent -----------------------------------------------------------------------------------------------------


def wire(request: Request, dialect: Dialect) -> bytes:
    """The request's exact body. Raises ProviderFailure where it would carry an id that the endpoint must not see."""
    try:
        return canonical_json(body(request, dialect), indent=None)
    except ValueError as error:
        raise ProviderFailure(f"the request cannot be written as JSON: {error}", kind="bad_request") from error


def body(request: Request, dialect: Dialect) -> dict[str, Any]:
    """The request as JSON data, in a fixed order of fields."""
    sent: dict[str, Any] = {"model": request.model}
    if request.system:
        sent["instructions"] = request.system
    if not is_synthetic(request.thread):
        if not (dialect.chains and dialect.stores):
            raise ProviderFailure(
                "this endpoint keeps no responses: nothing can be chained on", kind="chain_unsupported"
            )
        sent["previous_response_id"] = request.thread
    items = request.items if request.edits is None else since_compaction(request.items)
    sent["input"] = [data for item in items for data in item_data(item)]
    if request.tools or request.hosted:
        sent["tools"] = [
            *(
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                    "strict": tool.strict,
                }
                for tool in request.tools
            ),
            *map(_hosted, request.hosted),
        ]
    if request.hosted:
        sent["max_tool_calls"] = sum(tool.max_uses for tool in request.hosted)
    if request.output is not None:
        form = {
            "type": "json_schema",
            "name": request.output.name,
            "schema": dict(request.output.schema),
            "strict": True,
        }
        sent["text"] = {"format": form}
    if request.effort is not None:
        sent["reasoning"] = {"effort": request.effort}
    sent["max_output_tokens"] = request.max_output_tokens
    if request.edits is not None:
        if request.edits.clear_tools_at is not None:
            raise ProviderFailure("this endpoint cannot leave out results of tools", kind="bad_request")
        sent["context_management"] = [{"type": "compaction", "compact_threshold": request.edits.compact_at}]
    included = ["web_search_call.action.sources"] if request.hosted else []
    if not dialect.stores:
        sent["store"] = False
        included.insert(0, "reasoning.encrypted_content")
    if included:
        sent["include"] = included
    if dialect.caches and request.cache_key:
        sent["prompt_cache_key"] = request.cache_key
    if request.background:
        sent["background"] = True
    sent["stream"] = True
    return sent


def _hosted(tool: HostedTool) -> dict[str, Any]:
    """A tool that the vendor runs. It counts uses over all of them, and leaves no domains out."""
    if tool.name != "web_search" or tool.blocked:
        raise ProviderFailure(f"this endpoint has no {tool.name} of that kind", kind="bad_request")
    return {"type": "web_search", **({"filters": {"allowed_domains": list(tool.domains)}} if tool.domains else {})}


def item_data(item: Item) -> list[dict[str, Any]]:
    """An item as input. The server's own output items go back verbatim: phase, ids and encrypted reasoning included;
    of another API's, what it says."""
    if isinstance(item, TextItem):
        return [{"role": "user", "content": _content(item) if item.files else item.text}]
    if isinstance(item, ToolOutput):
        return [{"type": "function_call_output", "call_id": item.call_id, "output": item.output}]
    return [dict(item.data)] if api_of(item.data) in ("responses", "plain") else list(plain(item.data))


def _content(item: TextItem) -> list[dict[str, Any]]:
    """A message with files: each behind a line that says what it is, then the text."""
    parts: list[dict[str, Any]] = []
    for file in item.files:
        parts.append({"type": "input_text", "text": label(file)})
        if kind_of(file.media) == "image":
            parts.append({"type": "input_image", "image_url": data_url(file)})
        else:
            parts.append({"type": "input_file", "filename": file_name(file), "file_data": data_url(file)})
    return [*parts, {"type": "input_text", "text": item.text}]


# --- what a reply means -----------------------------------------------------------------------------------------------

Ending = Literal["completed", "incomplete", "failed"]


def reply(response: object, ending: Ending, streamed: Sequence[Mapping[str, Any]] = ()) -> Reply:
    """The reply in a terminal response. `streamed` are the finished items seen on the way, for servers that leave the
    terminal output empty. Raises ProviderFailure: `malformed`, or what a failed response says of itself."""
    if not isinstance(response, Mapping):
        raise malformed("the terminal event holds no response")
    if ending == "failed":
        error = response.get("error")
        raise failed(error, "the response failed", unknown="bad_request" if field_of(error, "code") else "overloaded")
    if response.get("error"):
        raise malformed(f"a {ending} response carries an error: {words(response['error'])}")
    items = _items(response.get("output"), streamed)
    texts, refusals = _message_parts(items)
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return Reply(
        id=response_id(response),
        status=ending,
        text="".join(texts),
        items=tuple(OutputItem(item) for item in items),
        tool_calls=_tool_calls(items),
        refusal="".join(refusals) if refusals else None,
        incomplete_reason=str(reason or "unknown") if ending == "incomplete" else None,
        previous=text_or_none(response.get("previous_response_id")),
        usage=openai_usage(response.get("usage"), searches(response.get("tool_usage"), items)),
        model=text_or_none(response.get("model")),
        edited=compacted(items),
    )


def _items(output: object, streamed: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    if output is not None and not isinstance(output, list):
        raise malformed("the response's output is no list")
    items = tuple(output or streamed)
    if not all(isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in items):
        raise malformed("an output item has no type")
    try:
        canonical_json(items)
    except ValueError as error:
        raise malformed(f"the output cannot be kept: {error}") from error
    return items


def searches(reported: object, items: Sequence[Mapping[str, Any]]) -> object:
    """How many searches are charged: what the server says of it, else the searches that it shows."""
    told = reported.get("web_search") if isinstance(reported, Mapping) else None
    if isinstance(told, Mapping) and told.get("num_requests") is not None:
        return told["num_requests"]
    actions = [item.get("action") for item in items if item["type"] == "web_search_call"]
    return sum(1 for action in actions if isinstance(action, Mapping) and action.get("type") == "search")


def _message_parts(items: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Texts and refusals of the final answer; commentary on the way to tool calls is no answer."""
    texts: list[str] = []
    refusals: list[str] = []
    for item in items:
        if item["type"] != "message" or item.get("phase") not in (None, "final_answer"):
            continue
        parts = item.get("content")
        for part in parts if isinstance(parts, list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind == "output_text" and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "refusal":
                refusals.append(str(part.get("refusal") or "no reason given"))
    return texts, refusals


def _tool_calls(items: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    calls = []
    for item in items:
        if item["type"] != "function_call":
            continue
        fields = [item.get(key) for key in ("call_id", "name", "arguments")]
        if not all(isinstance(value, str) for value in fields) or not fields[0]:
            raise malformed("a function call lacks its call_id, name or arguments")
        calls.append(ToolCall(*map(str, fields)))
    if len({call.call_id for call in calls}) < len(calls):
        raise malformed("two function calls carry the same call_id")
    return tuple(calls)


# --- what a refusal means (providers' failure table) ------------------------------------------------------------------

_BY_CODE: Final[Mapping[str, FailureKind]] = {
    "previous_response_not_found": "chain_lost",
    "context_length_exceeded": "too_long",
    "model_not_found": "model",
    "insufficient_quota": "quota",
    "credit_balance_exhausted": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "slow_down": "rate_limit",
    "server_error": "overloaded",
    "internal_error": "overloaded",
    "api_error": "overloaded",
    "overloaded_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "service_unavailable": "overloaded",
    "vector_store_timeout": "overloaded",
    "invalid_api_key": "auth",
    "authentication_error": "auth",
    "permission_error": "auth",
    "content_filter": "refused",
    "invalid_prompt": "refused",
}
_BY_STATUS: Final[Mapping[int, FailureKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "connection",
    409: "overloaded",
    429: "rate_limit",
}
_TOO_LONG: Final = re.compile(
    r"context[ _](length|window|size)|max_model_len|prompt is too long|too many (input )?tokens", re.IGNORECASE
)
_LOST: Final = re.compile(r"not found|no longer|expired|does(?: not|n't) exist|deleted", re.IGNORECASE)
_UNANSWERED: Final = re.compile(
    r"no tool output found|tool_calls?\W+ must be followed by tool messages|did not have response messages",
    re.IGNORECASE,
)
_ORPHANED: Final = re.compile(r"no tool call found", re.IGNORECASE)


def refusal_kind(status: int, error: object, *, chained: bool) -> FailureKind:
    """Which row of the failure table an HTTP error is. Texts first, where servers send no code; then the code; then
    the status."""
    message = words(error)
    if _TOO_LONG.search(message) or field_of(error, "error_type") == "context_length_exceeded":
        return "too_long"
    if _UNANSWERED.search(message):
        return "unanswered_call"
    named = _named(error)
    if chained and named != "chain_lost":
        about_chain = _about_chain(status, error, named)
        if about_chain is not None:
            return about_chain
    if status >= 500:
        return "overloaded"
    if status == 404 and named is None and "model" in message.lower():
        return "model"
    return named or _BY_STATUS.get(status, "bad_request")


def _named(error: object) -> FailureKind | None:
    """What the error calls itself. The code wins: a rate limit may carry the type of a quota, and vice versa."""
    code = field_of(error, "code")
    if "policy" in code:
        return "refused"
    return _BY_CODE.get(code) or (_BY_CODE.get(field_of(error, "type")) if not code else None)


def _about_chain(status: int, error: object, named: FailureKind | None) -> FailureKind | None:
    """`lost` = the server knows the field but not this id; `unsupported` = it does not know the field. One that finds
    no call to a tool's result has not looked at the id that leads to it."""
    message = words(error)
    if _ORPHANED.search(message):
        return "chain_unsupported"
    if "previous_response_id" in message or field_of(error, "param") == "previous_response_id":
        return "chain_lost" if _LOST.search(message) else "chain_unsupported"
    return "chain_lost" if status == 404 and named is None and "model" not in message.lower() else None


def failed(error: object, what: str, *, unknown: FailureKind) -> ProviderFailure:
    """An error reported inside a reply or a stream. `unknown` is the kind where its code says nothing known."""
    named = _named(error) or _BY_CODE.get(field_of(error, "type"))
    if named is None:
        named = "too_long" if _TOO_LONG.search(words(error)) else unknown
    return ProviderFailure(f"{what}: {words(error)}", kind=named)
