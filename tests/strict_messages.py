"""A strict stand-in for the Messages API over real HTTP, standard library only: it refuses what the vendor refuses.

It knows nothing of the product it tests. Nothing is kept between requests but what it has signed, and threads where
these are asked for: each message can be continued once, by what is new alone. Thoughts must come
back as they were said, each result right after the call it answers and first in its turn, every call answered once;
no field that is not known, no empty text, no open schema, no more than four marks of the cache. Usage counts the whole
context, cached prefixes beside the rest, written and read where a mark asks for it. Every request is kept.

    with MessagesServer(answer) as server: … server.base_url … server.seen[0].body
    python -m tests.strict_messages --port 0        (its first line of output is its base URL)

Answers are those of `strict_server`, with `stop_reason`, `stop_details`, `redacted` and `blocks` beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.strict_server import Answer, Fault, Json, Refused, Seen, StrictServer, from_schema, tokens

VERSION = "2026-10-21"
FIELDS = frozenset(
    {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "output_config", "thinking", "cache_control"}
    | {"stop_sequences", "stream", "metadata", "service_tier", "context_management", "thread"}
)
BLOCKS = {
    "text": ({"type", "text"}, {"cache_control", "citations"}),
    "thinking": ({"type", "thinking", "signature"}, set[str]()),
    "redacted_thinking": ({"type", "data"}, set[str]()),
    "tool_use": ({"type", "id", "name", "input"}, {"cache_control", "caller"}),
    "tool_result": ({"type", "tool_use_id"}, {"content", "is_error", "cache_control"}),
    "server_tool_use": ({"type", "id", "name", "input"}, {"cache_control", "caller"}),
    "web_search_tool_result": ({"type", "tool_use_id", "content"}, {"cache_control"}),
    "compaction": ({"type", "content"}, {"cache_control", "encrypted_content", "signature", "tool_changes"}),
    "image": ({"type", "source"}, {"cache_control"}),
    "document": ({"type", "source"}, {"cache_control", "title", "context", "citations"}),
}
OURS = frozenset({"text", "tool_result", "image", "document"})
THOUGHTS = frozenset({"thinking", "redacted_thinking"})
TOOL_FIELDS = frozenset({"name", "description", "input_schema", "strict", "cache_control", "type"})
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "minItems", "enum", "const", "anyOf", "allOf"}
    | {"$ref", "$defs", "description", "title", "format"}
)
MIN_CACHED, LOOKBACK, MOST_MARKS = 1024, 20, 4


class No(Refused):
    """An HTTP error with this vendor's error object."""

    def __init__(self, status: int, message: str, type: str = "invalid_request_error", code: str | None = None) -> None:
        super().__init__(status, message)
        self.told: Json = {"type": type, "message": message} | ({"details": {"error_code": code}} if code else {})

    @property
    def body(self) -> Json:
        return {"type": "error", "error": self.told, "request_id": "req_1"}


class MessagesServer(StrictServer):
    """The server; `options` are StrictServer's. An answer can be begun for no model here (that ended with 4.6)."""

    path = "/v1/messages"
    cached: list[bytes]

    def __init__(self, answer: Answer | None = None, **options: Any) -> None:
        super().__init__(answer or generic(), **options)
        self.cached = []
        self._kept: dict[str, tuple[Json, list[Json]]] = {}  # what a thread was begun with, and its turns
        self._continued: set[str] = set()
        self.no_threads = False
        self._signed: dict[str, str] = {}
        self._thoughts: dict[str, list[Json]] = {}

    @property
    def base_url(self) -> str:
        return super().base_url.removesuffix("/v1")

    def __enter__(self) -> MessagesServer:
        super().__enter__()
        return self

    # --- the rules

    def respond(self, seen: Seen, fault: Fault) -> Json:
        self._let_in(seen.headers)
        body = seen.body
        check_body(body, self.models)
        edits = edits_of(body, seen.headers)
        with self._lock:
            body, seen.effective = self._of_thread(body, seen.headers)
        check_turns(seen.effective)
        with self._lock:
            self._check_signed(seen.effective)
            turns, cleared = edited(body, seen.effective, edits)
            turns = [*self.hidden, *turns]
            usage = self._counted(body, turns)
        total = sum(usage[key] for key in INPUTS)
        if self.window is not None and total > self.window:
            raise No(400, f"prompt is too long: {total} tokens > {self.window} maximum")
        message = self._message(seen, self.answer(seen), usage)
        if cleared:
            applied = {"type": CLEARS, "cleared_tool_uses": cleared, "cleared_input_tokens": cleared}
            message["context_management"] = {"applied_edits": [applied]}
        if total >= edits.get(COMPACTS, total + 1):
            message = summed_up(message, usage)
        with self._lock:
            self._sign(message)
            if "thread" in body:
                said = {"role": "assistant", "content": message["content"]}
                self._kept[message["id"]] = (body, [*seen.effective, said])
            if self.remembers:
                self.hidden = [*turns, {"role": "assistant", "content": message["content"]}]
        return message | fault.response

    def beside(self, path: str, raw: bytes, headers: dict[str, str]) -> Json:
        self._let_in(headers)
        if path != f"{self.path}/count_tokens":
            raise No(404, "Not found", "not_found_error")
        body = json.loads(raw)
        for field in ("max_tokens", "stream"):
            if field in body:
                raise No(400, f"{field}: Extra inputs are not permitted")
        check_body(body | {"max_tokens": 1}, self.models)
        turns, _ = edited(body, merged(body["messages"]), edits_of(body, headers))
        return {"input_tokens": self.tokens(b"".join(pieces(body, turns)[0]))}

    def script(self, response: Json, fault: Fault) -> Iterator[Json]:
        for number, event in enumerate(events(response)):
            if event["type"] == "message_delta":
                event |= {"delta": event["delta"] | fault.end}
            yield event
            if number == 0:
                yield from fault.events
                if fault.events_end:
                    return

    def forget(self, response_id: str) -> None:
        self._kept.pop(response_id, None)

    def _of_thread(self, body: Json, headers: dict[str, str]) -> tuple[Json, list[Json]]:
        """The request as it stands with its thread, and all turns."""
        if "thread" not in body:
            return body, merged(body["messages"])
        if THREADS not in headers.get("anthropic-beta", "").split(","):
            raise No(400, "thread: Extra inputs are not permitted")
        if self.no_threads:
            raise No(400, "thread: not available", code="thread_unsupported_request")
        if body["thread"] == {"type": "create"}:
            return body, merged(body["messages"])
        if set(body["thread"]) != {"type", "previous_message_id"} or body["thread"]["type"] != "continue":
            raise No(400, "thread: invalid")
        fixed = sorted({"system", "tools"} & set(body))
        if fixed:
            raise No(400, f"{fixed[0]}: not permitted when a thread is continued")
        previous = body["thread"]["previous_message_id"]
        if previous not in self._kept:
            raise No(404, f"thread: {previous}", "not_found_error", "thread_not_found")
        if previous in self._continued:
            raise No(400, f"thread: {previous}", code="thread_already_continued")
        self._continued.add(previous)
        begun, turns = self._kept[previous]
        kept = {key: begun[key] for key in ("system", "tools") if key in begun}
        return body | kept, merged([*turns, *body["messages"]])

    def _let_in(self, headers: dict[str, str]) -> None:
        if headers.get("anthropic-version") != VERSION:
            raise No(400, "anthropic-version: header is required")
        given = headers.get("authorization", "")
        if not given.startswith("Bearer ") or (self.key is not None and given != f"Bearer {self.key}"):
            raise No(401, f"invalid bearer token {given.removeprefix('Bearer ')}", "authentication_error")

    def _check_signed(self, turns: list[Json]) -> None:
        for turn in turns:
            blocks = turn["content"]
            for block in blocks:
                if block["type"] == "thinking" and self._signed.get(block["signature"]) != block["thinking"]:
                    raise No(400, "messages: Invalid `signature` in `thinking` block")
                if block["type"] == "redacted_thinking" and block["data"] not in self._signed:
                    raise No(400, "messages: Invalid `data` in `redacted_thinking` block")
                said = self._thoughts.get(block.get("id", ""), [])
                before = [b for b in blocks[: blocks.index(block)] if b["type"] in THOUGHTS]
                if said and before[-len(said) :] != said:
                    raise No(400, "messages: thinking blocks must stand before `tool_use` as they were")

    def _sign(self, message: Json) -> None:
        for block in message["content"]:
            if block["type"] == "thinking":
                self._signed[block["signature"]] = block["thinking"]
            elif block["type"] == "redacted_thinking":
                self._signed[block["data"]] = ""
        thoughts: list[Json] = []
        for block in message["content"]:
            if block["type"] in THOUGHTS:
                thoughts.append(block)
            elif block["type"] == "tool_use":
                self._thoughts[block["id"]] = list(thoughts)

    def _counted(self, body: Json, turns: list[Json]) -> Json:
        """ceil(bytes / 4) tokens; what stands before a mark is read where it was written, and written where not."""
        parts, marks = pieces(body, turns)
        prefixes = [b"".join(parts[: end + 1]) for end in range(len(parts))]
        read = 0
        for mark in marks:
            for end in range(mark, max(-1, mark - LOOKBACK), -1):
                if prefixes[end] in self.cached:
                    read = max(read, self.tokens(prefixes[end]))
                    break
        upto = max((self.tokens(prefixes[mark]) for mark in marks), default=0)
        writes = upto if upto >= MIN_CACHED else read
        self.cached.extend(prefixes[mark] for mark in marks if self.tokens(prefixes[mark]) >= MIN_CACHED)
        total = self.tokens(prefixes[-1])
        written = max(0, writes - read)
        return {
            "input_tokens": total - read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
        }

    def _message(self, seen: Seen, reply: Json, usage: Json) -> Json:
        content, stop, details = content_of(reply), reply.get("stop_reason"), reply.get("stop_details")
        said, thought = (sum(map(weight, group)) for group in parted(content))
        if stop is None:
            stop = "max_tokens" if reply.get("status") == "incomplete" else "end_turn"
            stop = "tool_use" if "tool_calls" in reply else stop
        if "refusal" in reply:
            stop, details = "refusal", {"type": "refusal", "category": None, "explanation": reply["refusal"]}
        cap = seen.body["max_tokens"]
        if said + thought > cap:
            content, said, stop = cut_off(content, cap), cap - min(thought, cap), "max_tokens"
        usage = usage | {"output_tokens": said + thought, "output_tokens_details": {"thinking_tokens": thought}}
        return {
            "id": "msg_" + secrets.token_hex(12),
            "type": "message",
            "role": "assistant",
            "model": seen.body["model"],
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "stop_details": details,
            "usage": reply.get("usage", usage),
        }


THREADS = "message-threads-2026-08-12"
CLEARS, COMPACTS = "clear_tool_uses_20250919", "compact_20260112"
BETAS = {CLEARS: "context-management-2025-06-27", COMPACTS: "compact-2026-01-12"}
KEPT_USES = 3  # the vendor's default


def edits_of(body: Json, headers: dict[str, str]) -> dict[str, int]:
    """What the request lets happen to its context, with the tokens from which on."""
    if "context_management" not in body:
        return {}
    given = headers.get("anthropic-beta", "").split(",")
    found: dict[str, int] = {}
    for edit in body["context_management"]["edits"]:
        if set(edit) != {"type", "trigger"} or edit["trigger"]["type"] != "input_tokens":
            raise No(400, "context_management.edits.0: Extra inputs are not permitted")
        if BETAS.get(edit["type"]) not in given:
            raise No(400, "context_management: Extra inputs are not permitted")
        found[edit["type"]] = edit["trigger"]["value"]
    return found


def edited(body: Json, turns: list[Json], edits: dict[str, int]) -> tuple[list[Json], int]:
    """What is read of the turns: from the last summary on, old results of tools left out; and how many were."""
    turns = from_summary(turns)
    results = [b for turn in turns for b in turn["content"] if b["type"] == "tool_result"]
    old = results[:-KEPT_USES]
    if not old or tokens(b"".join(pieces(body, turns)[0])) < edits.get(CLEARS, 2**40):
        return turns, 0
    hollow = [
        turn | {"content": [b | {"content": "[cleared]"} if b in old else b for b in turn["content"]]} for turn in turns
    ]
    return hollow, len(old)


def from_summary(turns: list[Json]) -> list[Json]:
    for number in range(len(turns) - 1, -1, -1):
        content = turns[number]["content"]
        for at in range(len(content) - 1, -1, -1):
            if content[at]["type"] == "compaction" and content[at]["content"]:
                return [turns[number] | {"content": content[at:]}, *turns[number + 1 :]]
    return turns


def summed_up(message: Json, usage: Json) -> Json:
    """The answer behind a summary. The summing up is billed beside the sums at the top."""
    block = {"type": "compaction", "content": "They talked.", "encrypted_content": secrets.token_hex(20)}
    made = {**usage, "type": "compaction", "output_tokens": 7}
    counted = {"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    later = message["usage"] | counted
    iterations = [made, {**counted, "type": "message", "output_tokens": later["output_tokens"]}]
    return message | {"content": [block, *message["content"]], "usage": later | {"iterations": iterations}}


INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def pieces(body: Json, turns: list[Json]) -> tuple[list[bytes], list[int]]:
    """What the model sees, piece by piece in the order of the cache: form and tools, system, turns; and which of them
    are marked. Marks themselves are no part of it."""
    system = body.get("system") or []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    fixed = [body["model"], (body.get("output_config") or {}).get("format"), *(body.get("tools") or ())]
    found: list[Any] = [*fixed, *blocks]
    for turn in turns:
        found += [{**block, "role": turn["role"]} for block in turn["content"]]
    bare = [{k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, dict) else p for p in found]
    marks = [at for at, piece in enumerate(found) if isinstance(piece, dict) and "cache_control" in piece]
    if "cache_control" in body:
        marks.append(len(found) - 1)
    return [json.dumps(piece, ensure_ascii=False).encode() for piece in bare], marks


def parted(content: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    return [b for b in content if b["type"] not in THOUGHTS], [b for b in content if b["type"] in THOUGHTS]


def weight(block: Json) -> int:
    if block["type"] == "tool_use":
        return tokens(json.dumps(block["input"]).encode())
    return tokens(str(block.get("text", block.get("thinking", ""))).encode())


# --- what is refused --------------------------------------------------------------------------------------------------


def check_body(body: Json, models: frozenset[str] | None) -> None:
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise No(400, f"{unknown[0]}: Extra inputs are not permitted")
    if not isinstance(body.get("model"), str):
        raise No(400, "model: Field required")
    if models is not None and body["model"] not in models:
        raise No(404, f"model: {body['model']}", "not_found_error")
    cap = body.get("max_tokens")
    if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
        raise No(400, "max_tokens: Field required")
    system = body.get("system", "")
    for block in () if isinstance(system, str) else system:
        check_block(block, "system", frozenset({"text"}))
    for tool in body.get("tools") or ():
        if str(tool.get("type")).startswith(("web_search_", "web_fetch_")):
            check_hosted(tool)
            continue
        if set(tool) - TOOL_FIELDS or not NAME.fullmatch(str(tool.get("name"))):
            raise No(400, "tools.0: invalid tool")
        if (tool.get("input_schema") or {}).get("type") != "object":
            raise No(400, "tools.0.input_schema: Field required")
        if tool.get("strict"):
            check_grammar(tool["input_schema"], "tools.0.input_schema")
    check_settings(body)
    marks = json.dumps(body).count('"cache_control"')
    if marks > MOST_MARKS:
        raise No(400, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def check_hosted(tool: Json) -> None:
    known = {"type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "citations"}
    if set(tool) - known or tool["type"] not in (f"{tool['name']}_20250305", f"{tool['name']}_20250910"):
        raise No(400, "tools.0: invalid tool")
    if tool.get("allowed_domains") and tool.get("blocked_domains"):
        raise No(400, "tools.0: allowed_domains and blocked_domains exclude each other")


def check_settings(body: Json) -> None:
    config = body.get("output_config") or {}
    if set(config) - {"effort", "format"}:
        raise No(400, "output_config: Extra inputs are not permitted")
    if "effort" in config and config["effort"] not in ("low", "medium", "high", "xhigh", "max"):
        raise No(400, "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    form = config.get("format")
    if form is not None:
        if set(form) != {"type", "schema"} or form["type"] != "json_schema":
            raise No(400, "output_config.format: Extra inputs are not permitted")
        check_grammar(form["schema"], "output_config.format.schema")
    thinking = body.get("thinking")
    if thinking is not None and thinking not in ({"type": "adaptive"}, {"type": "disabled"}):
        raise No(400, "thinking: invalid")


def check_grammar(schema: Json, where: str) -> None:
    """Only what the grammar can hold; every object closed."""
    unknown = sorted(set(schema) - KEYWORDS)
    if unknown:
        raise No(400, f"{where}: For '{schema.get('type')}' type, property '{unknown[0]}' is not supported")
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        raise No(400, f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    if isinstance(schema.get("type"), list):
        raise No(400, f"{where}: 'type' must be one type")
    if schema.get("minItems", 0) not in (0, 1):
        raise No(400, f"{where}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    for table in ("properties", "$defs"):
        for name, inner in (schema.get(table) or {}).items():
            check_grammar(inner, f"{where}.{name}")
    for choices in ("anyOf", "allOf"):
        for inner in schema.get(choices) or ():
            check_grammar(inner, f"{where}.{choices}")
    if isinstance(schema.get("items"), dict):
        check_grammar(schema["items"], f"{where}.items")


def merged(messages: Any) -> list[Json]:
    """The turns: adjacent messages of one role are one."""
    if not isinstance(messages, list) or not messages:
        raise No(400, "messages: at least one message is required")
    turns: list[Json] = []
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if set(message) != {"role", "content"} or role not in ("user", "assistant"):
            raise No(400, f"messages.{number}: Extra inputs are not permitted")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not blocks:
            raise No(400, f"messages.{number}: all messages must have non-empty content")
        for block in blocks:
            check_block(block, f"messages.{number}", OURS if role == "user" else frozenset(BLOCKS) - {"tool_result"})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": list(blocks)})
    return turns


def check_block(block: Any, where: str, allowed: frozenset[str]) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in allowed:
        raise No(400, f"{where}.content: Input tag '{kind}' is not allowed here")
    needed, more = BLOCKS[kind]
    if not needed <= set(block) or set(block) - needed - more:
        raise No(400, f"{where}.content.{kind}: Extra inputs are not permitted")
    if kind == "text" and not block["text"].strip():
        raise No(400, f"{where}: text content blocks must contain non-whitespace text")
    if kind in ("tool_use", "server_tool_use") and not isinstance(block["input"], dict):
        raise No(400, f"{where}.content.tool_use.input: Input should be a valid dictionary")
    if block.get("cache_control", {"type": "ephemeral"}) != {"type": "ephemeral"}:
        raise No(400, f"{where}.content.cache_control: invalid")


def check_turns(turns: list[Json]) -> None:
    if turns[0]["role"] != "user":
        raise No(400, 'messages: first message must use the "user" role')
    last = turns[-1]["content"][-1]["type"]
    if turns[-1]["role"] == "assistant" and last not in ("server_tool_use", "web_search_tool_result"):
        raise No(400, "This model does not support assistant message prefill.")
    ids = [b["id"] for turn in turns for b in turn["content"] if b["type"] == "tool_use"]
    if len(set(ids)) < len(ids):
        raise No(400, "messages: `tool_use` ids must be unique")
    for number, turn in enumerate(turns):
        if turn["role"] == "assistant" and turn["content"][-1]["type"] in THOUGHTS:
            raise No(400, f"messages.{number}: The final block in an assistant message cannot be `thinking`.")
        calls = [b["id"] for b in turns[number - 1]["content"] if b["type"] == "tool_use"] if number else []
        check_results(turn, calls if turn["role"] == "user" else [], number)
    if calls_of(turns[-1]):
        raise No(400, "messages: `tool_use` ids were found without `tool_result` blocks immediately after")


def calls_of(turn: Json) -> list[str]:
    return [block["id"] for block in turn["content"] if block["type"] == "tool_use"]


def check_results(turn: Json, calls: list[str], number: int) -> None:
    kinds = [block["type"] == "tool_result" for block in turn["content"]]
    results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
    missing = [call for call in calls if call not in results]
    if missing or (results and kinds != sorted(kinds, reverse=True)):
        what = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}"
        raise No(400, f"messages.{number}: {what}")
    if set(results) - set(calls):
        raise No(400, f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks")
    if len(set(results)) < len(results):
        raise No(400, f"messages.{number}: each tool_use must have a single result")


# --- what is answered -------------------------------------------------------------------------------------------------


def content_of(reply: Json) -> list[Json]:
    content: list[Json] = []
    tag = secrets.token_hex(8)
    if "reasoning" in reply:
        signature = hashlib.sha256(f"{tag}{reply['reasoning']}".encode()).hexdigest()
        content.append({"type": "thinking", "thinking": reply["reasoning"], "signature": signature})
    if "redacted" in reply:
        content.append({"type": "redacted_thinking", "data": f"{tag}{reply['redacted']}"})
    content += reply.get("blocks", ())
    text = json.dumps(reply["json"], ensure_ascii=False) if "json" in reply else reply.get("text")
    if text is not None:
        content.append({"type": "text", "text": text, "citations": None})
    for number, call in enumerate(reply.get("tool_calls", ())):
        content.append(
            {"type": "tool_use", "id": f"toolu_{tag}{number}", "name": call["name"], "input": call["arguments"]}
        )
    return content


def cut_off(content: list[Json], cap: int) -> list[Json]:
    """The texts, ended where the cap of tokens is reached."""
    return [block | {"text": block["text"][: cap * 4]} for block in content if block["type"] == "text"]


def events(message: Json) -> Iterator[Json]:
    """The message as its stream. Deltas of text are a third each, so that there are some."""
    counted = message["usage"] or {}
    begun = {key: value for key, value in counted.items() if not key.startswith("output_tokens_")}
    usage = (begun | {"output_tokens": 1}) if counted else counted
    hollow = message | {"content": [], "stop_reason": None, "stop_details": None, "usage": usage}
    yield {"type": "message_start", "message": hollow}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        begin, deltas = streamed(block)
        yield {"type": "content_block_start", "index": index, "content_block": begin}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ends = {key: message[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    late = {key: value for key, value in counted.items() if key.startswith("output_tokens") or key == "iterations"}
    done = {key: message[key] for key in ("context_management",) if key in message}
    yield {"type": "message_delta", "delta": ends, "usage": late, **done}
    yield {"type": "message_stop"}


def streamed(block: Json) -> tuple[Json, list[Json]]:
    """A block's first form, and what makes it whole."""
    if block.get("type") == "text":
        return block | {"text": ""}, [{"type": "text_delta", "text": part} for part in thirds(block["text"])]
    if block.get("type") == "thinking":
        parts = [{"type": "thinking_delta", "thinking": part} for part in thirds(block["thinking"])]
        hollow = block | {"thinking": "", "signature": ""}
        return hollow, [*parts, {"type": "signature_delta", "signature": block["signature"]}]
    if block.get("type") == "compaction":
        told = {key: block[key] for key in ("content", "encrypted_content")}
        return block | {"content": None, "encrypted_content": None}, [{"type": "compaction_delta", **told}]
    if block.get("type") in ("tool_use", "server_tool_use"):
        given = block["input"]
        text = given if isinstance(given, str) else json.dumps(given)
        return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in ["", *thirds(text)]]
    return block, []


def thirds(text: str) -> list[str]:
    third = len(text) // 3 + 1
    return [text[start : start + third] for start in range(0, len(text), third)]


def form_of(seen: Seen) -> Json | None:
    """The schema that was asked for."""
    form = (seen.body.get("output_config") or {}).get("format")
    return form["schema"] if form else None


def generic(*, tool_first: bool = False) -> Answer:
    """Answers by the schema that was sent; optionally each thread first calls a tool."""

    def answer(seen: Seen) -> Json:
        tools = seen.body.get("tools") or ()
        if tool_first and tools and seen.turn == 0:
            schema = tools[0]["input_schema"]
            return {"tool_calls": [{"name": tools[0]["name"], "arguments": from_schema(schema, schema)}]}
        schema = form_of(seen)
        return {"text": "text"} if schema is None else {"json": from_schema(schema, schema)}

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="A strict stand-in for the Messages API.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, help="append each request with its effective context, one JSON a line")
    parser.add_argument("--tool-first", action="store_true", help="each thread with tools calls the first one first")
    parser.add_argument("--key", help="the only accepted key")
    options = parser.parse_args()
    answer = generic(tool_first=options.tool_first)
    with MessagesServer(answer, port=options.port, key=options.key, log=options.log) as server:
        print(server.base_url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
