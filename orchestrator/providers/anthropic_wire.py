"""The Messages API as bytes and JSON: what is sent, and what a refusal means. Pure, no SDK.

Nothing is kept at the vendor, so every call carries the whole thread: its own turns go back as they came, thinking and
its signatures included. Adjacent items of one side become one turn; the results of tools stand first in theirs, as the
vendor asks. Two things that it answers with and does not take back are left out: texts without a visible character,
and thoughts that nothing follows.

Message Threads (a beta of the vendor's, opt-in) keep a thread for some minutes: a call then names the message that it
goes on from, and carries what is new alone. A message can be gone on from once, system text and tools are fixed by the
first call, and nothing is promised; whatever the vendor does not know any more is sent whole again.

The cache is asked for where another call of the thread is expected: a write costs a quarter more than plain input and
a read a tenth of it, so a step that asks once must not write. A thread with tools will be asked again; so will one that
has been already, twice. The marks stand at the end of the request, at the end of the request before (the vendor looks
back some twenty blocks for it, and one turn can hold more), and after the system text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from orchestrator.attachments import base64_of, kind_of, label
from orchestrator.errors import ProviderFailure
from orchestrator.ids import canonical_json, is_synthetic
from orchestrator.providers.answers import field_of, words
from orchestrator.providers.anthropic_schema import grammar
from orchestrator.providers.base import FailureKind
from orchestrator.providers.foreign import api_of, plain, safe_id
from orchestrator.spec import EditKind
from orchestrator.values import ContextEdits, HostedTool, Item, OutputItem, Request, TextItem, ToolOutput, ToolSpec

EPHEMERAL: Final[Mapping[str, str]] = {"type": "ephemeral"}
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
UNREADABLE: Final = "INVALID_JSON"  # the vendor's own name for arguments that are no JSON object, when they go back

# --- what is sent -----------------------------------------------------------------------------------------------------


def wire(request: Request, *, threads: bool = False) -> bytes:
    """The request's exact body; with `threads` it begins or continues one. Raises ProviderFailure for an id to go on
    from where there are none."""
    try:
        return canonical_json(body(request, threads=threads), indent=None)
    except ValueError as error:
        raise ProviderFailure(f"the request cannot be written as JSON: {error}", kind="bad_request") from error


def body(request: Request, *, threads: bool = False) -> dict[str, Any]:
    """The request as JSON data, in a fixed order of fields."""
    goes_on = not is_synthetic(request.thread)
    if goes_on and not threads:
        raise ProviderFailure("a Messages API keeps no responses: nothing can be chained on", kind="chain_unsupported")
    sent: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output_tokens}
    messages = _messages(request.items)
    before = sum(message["role"] == "assistant" for message in messages)
    cached = goes_on or bool(request.tools or request.hosted) or before > 1
    if cached:
        sent["cache_control"] = EPHEMERAL
        _mark_the_call_before(messages)
    if request.system and not goes_on:
        mark = {"cache_control": EPHEMERAL} if cached else {}
        sent["system"] = [{"type": "text", "text": request.system, **mark}]
    sent["messages"] = messages
    if (request.tools or request.hosted) and not goes_on:
        sent["tools"] = [*map(_tool, request.tools), *map(_hosted, request.hosted)]
    if request.edits is not None:
        sent["context_management"] = {"edits": _edits(request.edits)}
    if goes_on:
        sent["thread"] = {"type": "continue", "previous_message_id": request.thread}
    elif threads:
        sent["thread"] = {"type": "create"}
    return sent | _settings(request) | {"stream": True}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = grammar(tool.parameters) if tool.strict else dict(tool.parameters)
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "input_schema": schema, **strict}


BETAS: Final[Mapping[EditKind, str]] = {
    "compact": "compact-2026-01-12",
    "clear_tools": "context-management-2025-06-27",
}
THREADS: Final = "message-threads-2026-08-12"


def betas(request: Request, *, threads: bool = False) -> str:
    """The `anthropic-beta` header that a request needs; empty for most."""
    edits = [BETAS[kind] for kind in sorted(request.edits.kinds)] if request.edits is not None else []
    return ",".join([*edits, *([THREADS] if threads else [])])


def _edits(edits: ContextEdits) -> list[dict[str, Any]]:
    """In the vendor's order: results of tools go first, so that less is left to sum up."""
    said = (("clear_tool_uses_20250919", edits.clear_tools_at), ("compact_20260112", edits.compact_at))
    return [
        {"type": kind, "trigger": {"type": "input_tokens", "value": tokens}}
        for kind, tokens in said
        if tokens is not None
    ]


HOSTED: Final[Mapping[str, str]] = {"web_search": "web_search_20250305", "web_fetch": "web_fetch_20250910"}


def _hosted(tool: HostedTool) -> dict[str, Any]:
    """A tool that the vendor runs. What is fetched is cited, as what is searched always is."""
    sent: dict[str, Any] = {"type": HOSTED[tool.name], "name": tool.name, "max_uses": tool.max_uses}
    domains = {"allowed_domains": list(tool.domains), "blocked_domains": list(tool.blocked)}
    sent |= {key: names for key, names in domains.items() if names}
    return sent | ({"citations": {"enabled": True}} if tool.name == "web_fetch" else {})


def counted(request: Request) -> bytes:
    """The body of a request for the number of its tokens: all that is read, nothing of how it is answered."""
    sent = {name: value for name, value in body(request).items() if name not in ("max_tokens", "stream")}
    return canonical_json(sent, indent=None)


def _settings(request: Request) -> dict[str, Any]:
    """How much to think, and in which form to answer. Left out, both are the model's own default."""
    config: dict[str, Any] = {}
    thinking: dict[str, Any] = {}
    if request.effort == "none":
        thinking["type"] = "disabled"
    elif request.effort is not None:
        config["effort"] = "low" if request.effort == "minimal" else request.effort
        thinking["type"] = "adaptive"
    if request.output is not None:
        config["format"] = {"type": "json_schema", "schema": grammar(request.output.schema)}
    fields = {"thinking": thinking, "output_config": config}
    return {name: value for name, value in fields.items() if value}


def _messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The items as turns. A turn that is left out brings its neighbours together."""
    turns: list[tuple[bool, list[dict[str, Any]]]] = []
    own = {
        item.data.get("id") for item in items if isinstance(item, OutputItem) and item.data.get("type") == "tool_use"
    }
    for theirs, group in groupby(items, lambda item: isinstance(item, OutputItem)):
        run = list(group)
        blocks = _said(run) if theirs else [block for item in run for block in (*_files(item), _block(item, own))]
        if turns and turns[-1][0] == theirs:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((theirs, blocks))
    messages = []
    for theirs, blocks in turns:
        first = blocks if theirs else sorted(blocks, key=lambda block: block["type"] != "tool_result")
        messages.append({"role": "assistant" if theirs else "user", "content": first})
    return messages


def _said(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The vendor's own blocks, verbatim, but for those it does not take back. Of another API's, what they say."""
    blocks = [block for item in items if isinstance(item, OutputItem) for block in _theirs(item.data)]
    kept = [block for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
    while kept and kept[-1].get("type") in THOUGHTS:
        kept.pop()
    return kept


def _theirs(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if api_of(data) == "messages":
        yield dict(data)
        return
    for said in plain(data):
        if said.get("type") == "function_call":
            call = {"type": "tool_use", "id": safe_id(said["call_id"]), "name": said["name"]}
            yield call | {"input": _arguments(said["arguments"])}
        else:
            yield {"type": "text", "text": said["content"]}


def _arguments(text: str) -> dict[str, Any]:
    """A call's arguments as the object that this API has them as, also where they are none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {UNREADABLE: text}


def _block(item: Item, own: Container[object]) -> dict[str, Any]:
    """`own` are the ids of calls that the vendor made itself; those of others are written as it takes them."""
    if isinstance(item, ToolOutput):
        failed = {"is_error": True} if item.is_error else {}
        call_id = item.call_id if item.call_id in own else safe_id(item.call_id)
        return {"type": "tool_result", "tool_use_id": call_id, "content": item.output, **failed}
    assert not isinstance(item, OutputItem)
    return {"type": "text", "text": item.text}


def _files(item: Item) -> Iterator[dict[str, Any]]:
    """The files of a message, ahead of its text, each behind a line that says what it is."""
    for file in item.files if isinstance(item, TextItem) else ():
        yield {"type": "text", "text": label(file)}
        source = {"type": "base64", "media_type": file.media, "data": base64_of(file)}
        kind = kind_of(file.media)
        yield {"type": "image", "source": source} if kind == "image" else {"type": "document", "source": source}


def _mark_the_call_before(messages: list[dict[str, Any]]) -> None:
    """The end of the request before this one is the end of the last turn of ours but one."""
    ours = [message for message in messages[:-1] if message["role"] == "user"]
    if ours:
        ours[-1]["content"][-1]["cache_control"] = EPHEMERAL


# --- what a refusal means (providers' failure table) ------------------------------------------------------------------

_BY_CODE: Final[Mapping[str, FailureKind]] = {
    "ramp_limit_exceeded": "rate_limit",
    "compaction_unavailable": "overloaded",
    "organization_on_hold": "auth",
    "thread_not_found": "chain_lost",
    "thread_already_continued": "chain_lost",
    "thread_continue_in_flight": "chain_lost",
    "thread_fingerprint_mismatch": "chain_lost",
    "thread_unsupported_request": "chain_unsupported",
}
_BY_TYPE: Final[Mapping[str, FailureKind]] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "quota",
    "rate_limit_error": "rate_limit",
    "overloaded_error": "overloaded",
    "api_error": "overloaded",
    "conflict_error": "overloaded",
    "timeout_error": "connection",
    "request_too_large": "too_long",
    "not_found_error": "bad_request",
    "invalid_request_error": "bad_request",
}
_BY_STATUS: Final[Mapping[int, FailureKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "connection",
    409: "overloaded",
    413: "too_long",
    429: "rate_limit",
    499: "connection",
}
_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceeds? (the )?context (limit|window)|exceeds? the available context|too many input tokens"
    r"|maximum context length",
    re.IGNORECASE,
)
_UNANSWERED: Final = re.compile(r"without `?tool_result`? blocks? immediately after", re.IGNORECASE)
_UNPAID: Final = re.compile(r"credit balance is too low", re.IGNORECASE)
_POLICY: Final = re.compile(r"content filtering policy", re.IGNORECASE)


def refusal_kind(status: int, error: object) -> FailureKind:
    """Which row of the failure table an HTTP error is: first what is told by texts alone, then the stable code, the
    type, the status."""
    if status >= 500:
        return "overloaded"
    by_text = _by_text(words(error))
    if by_text is not None:
        return by_text
    code = _code(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status == 404:
        return "model" if "model" in words(error).lower() else "bad_request"
    return _named(error) or _BY_STATUS.get(status, "bad_request")


def _by_text(message: str) -> FailureKind | None:
    if _TOO_LONG.search(message):
        return "too_long"
    if _UNANSWERED.search(message):
        return "unanswered_call"
    if _POLICY.search(message):
        return "refused"
    return "quota" if _UNPAID.search(message) else None


def _named(error: object) -> FailureKind | None:
    """What the error calls itself: its code names the cause, its type the broad category."""
    code = _code(error)
    if code.endswith("spend_limit_reached"):
        return "quota"
    return _BY_CODE.get(code) or _BY_TYPE.get(field_of(error, "type"))


def _code(error: object) -> str:
    """The stable name of a cause; empty for most errors."""
    return field_of(error.get("details") if isinstance(error, Mapping) else None, "error_code")


def broken_off(error: object) -> ProviderFailure:
    """An error reported inside a stream; its status was good."""
    message = words(error)
    kind = _by_text(message) or _named(error) or "overloaded"
    return ProviderFailure(f"the stream broke off: {message}", kind=kind)
