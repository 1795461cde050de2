"""A strict stand-in for the Responses API over real HTTP, standard library only: it refuses what the vendor refuses.

It knows nothing of the product it tests. Chains are a tree; an unknown id is 400 `previous_response_not_found`; a tool
call left unanswered is 400; what was not stored cannot be chained on; schemas must be strict; reasoning must come back
with its encrypted content; usage counts the effective context, with a prefix cache. Every request is kept.

In a test:      with StrictServer(answer) as server: … server.base_url … server.seen[0].body
As a process:   python tests/strict_server.py --port 0 --script FILE    (its first line of output is its base URL)

Without a script the answer is made from the JSON Schema that was sent: always the same one, valid, dull.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FIELDS = frozenset(
    {"model", "input", "instructions", "previous_response_id", "store", "include", "tools", "tool_choice", "text"}
    | {"parallel_tool_calls", "reasoning", "max_output_tokens", "prompt_cache_key", "stream", "stream_options"}
    | {"truncation", "metadata", "temperature", "top_p", "background", "max_tool_calls", "context_management"}
)
TOOL_FIELDS = frozenset({"type", "name", "description", "parameters", "strict"})
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Refused(Exception):
    """An HTTP error with the vendor's error object."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}

    @property
    def body(self) -> Json:
        return {"error": self.error}


@dataclass
class Fault:
    """What goes wrong with one request. Counts of events include `response.created`.

    `status` with `headers` and `body` replaces the whole answer (200 too). `drop` closes without a word; `delay` waits
    first. After so many events the stream is `cut` (reset), `truncated` (ends well-formed), `malformed` (not JSON) or
    `stalled` (for `stall_seconds`). `ignore_chain` answers as a server that does not know the field. `events` are sent
    right after `response.created`, and nothing after them if `events_end`. `response` is merged into the response,
    `end` only into that of the terminal event, whose type `ending` replaces; `empty_end` takes its output away. `whole`
    answers without a stream; `trickle` says nothing but comments, one each so many seconds.
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json | str | bytes | None = None
    drop: bool = False
    delay: float = 0.0
    cut: int | None = None
    truncated: int | None = None
    malformed: int | None = None
    stalled: int | None = None
    stall_seconds: float = 30.0
    ignore_chain: bool = False
    events: Sequence[Json] = ()
    events_end: bool = False
    ending: str | None = None
    response: Json = field(default_factory=dict)
    end: Json = field(default_factory=dict)
    empty_end: bool = False
    whole: bool = False
    trickle: float | None = None


@dataclass
class Seen:
    """One request: its raw bytes, its JSON, what the model saw in effect, what was answered, and when it came."""

    raw: bytes
    body: Json
    headers: dict[str, str]
    effective: list[Json] = field(default_factory=list)
    status: int = 0
    response: Json = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)
    disconnected: threading.Event = field(default_factory=threading.Event)

    @property
    def turn(self) -> int:
        """How many replies the effective context holds."""
        kinds = [is_output(item) for item in self.effective]
        return sum(1 for before, now in zip([False, *kinds], kinds, strict=False) if now and not before)

    @property
    def name(self) -> str:
        """What identifies the step: the name of its output format."""
        text = self.body.get("text") or {}
        return str((text.get("format") or {}).get("name", ""))


Answer = Callable[[Seen], Json]


def is_output(item: Json) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call", "web_search_call")


class StrictServer:
    """The server. `answer` gives the reply to a request: {text}, {json}, {refusal}, {tool_calls: [{name, arguments}]},
    with `reasoning`, `usage`, `status` beside it. `faults` are used up one a request, None for a healthy one."""

    path = "/v1/responses"

    def __init__(
        self,
        answer: Answer | None = None,
        *,
        port: int = 0,
        zdr: bool = False,
        ignore_chain: bool = False,
        looks_at_items: bool = False,
        key: str | None = None,
        models: frozenset[str] | None = None,
        window: int | None = None,
        log: Path | None = None,
        hidden: Sequence[Json] = (),
        remembers: bool = False,
        factor: float = 1.0,
    ) -> None:
        """Beside what the vendor would do: `hidden` items stand ahead of every thread, as a gateway's prompt does;
        `remembers`: so does all that was said to it before, in other threads. `factor`: of tokens, as another tokenizer
        makes of a text."""
        self.answer = answer or generic()
        self.hidden, self.remembers, self.factor = list(hidden), remembers, factor
        self.looks_at_items = looks_at_items  # also where it ignores the chain: a result without its call is refused
        self.zdr, self.ignore_chain, self.key, self.models, self.window, self.log = (
            zdr, ignore_chain, key, models, window, log,
        )  # fmt: skip
        self.seen: list[Seen] = []
        self.faults: list[Fault | None] = []
        self.seen_one = threading.Event()
        self.taken: Callable[[], None] = lambda: None  # called as soon as a request is here
        self.stalling = threading.Event()  # a stream stands still
        self.asked_for: list[str] = []  # paths by which a response was to be had again
        self.refusing: list[int] = []  # how the next requests for a response that is kept are refused
        self.unfinished = 0  # so many times it is told that a background response is still being made
        self.stopped: list[str] = []  # ids of background responses that were cancelled
        self.connections = 0
        self._nodes: dict[str, list[Json]] = {}
        self._responses: dict[str, Json] = {}
        self._prompts: list[bytes] = []
        self._reasoning_of: dict[str, str] = {}
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.app = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> StrictServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def forget(self, response_id: str) -> None:
        """As if the response had expired."""
        with self._lock:
            self._nodes.pop(response_id, None)
            self._responses.pop(response_id, None)

    @property
    def bodies(self) -> list[Json]:
        return [seen.body for seen in self.seen]

    # --- the rules

    def take(self, raw: bytes, headers: dict[str, str]) -> tuple[Seen, Fault]:
        """Record a request and its fault, if one is due."""
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        seen = Seen(raw, body if isinstance(body, dict) else {}, headers)
        with self._lock:
            self.seen.append(seen)
            self.seen_one.set()
            self.taken()
            fault = (self.faults.pop(0) if self.faults else None) or Fault()
        return seen, fault

    def respond(self, seen: Seen, fault: Fault) -> Json:
        """The response object to a request. Raises Refused."""
        self._authorize(seen.headers)
        body = seen.body
        check_body(body, self.models)
        items = input_items(body)
        with self._lock:
            parent = self._parent(body, ignore=fault.ignore_chain or self.ignore_chain)
            ignored = parent is None and body.get("previous_response_id") is not None
            seen.effective = from_summary([*(self.hidden if parent is None else parent), *items])
            if not ignored or self.looks_at_items:
                check_items(seen.effective, stored=not self.zdr and body.get("store") is not False)
                self._check_reasoning(seen.effective)
            usage = self._usage(body, seen.effective)
            summary = self._summary(body, usage)
        if self.window is not None and usage["input_tokens"] > self.window:
            raise Refused(
                400, f"This model's maximum context length is {self.window} tokens.", "context_length_exceeded"
            )
        reply = self.answer(seen)
        if summary is not None:
            reply = reply | {"summary": summary}
        response = self._response(seen, reply, usage, None if ignored else body.get("previous_response_id"))
        response |= fault.response
        with self._lock:
            self._keep(seen, response)
            if self.remembers:
                self.hidden = [*seen.effective, *response["output"]]
        return response

    def script(self, response: Json, fault: Fault) -> Iterator[Json]:
        """What a response says as a stream, and what a fault makes of it."""
        for number, event in enumerate(events(response)):
            if event["type"] == f"response.{response['status']}":
                change = fault.end | ({"output": []} if fault.empty_end else {})
                event = {"type": f"response.{fault.ending or response['status']}", "response": response | change}
            yield event
            if number == 0:
                yield from fault.events
                if fault.events_end:
                    return

    def frame(self, event: Json, number: int, *, malformed: bool) -> bytes:
        """An event as it travels; a malformed one is cut in half."""
        data = json.dumps(event | {"sequence_number": number})
        data = data[: len(data) // 2] if malformed else data
        return f"event: {event['type']}\ndata: {data}\n\n".encode()

    def beside(self, path: str, raw: bytes, headers: dict[str, str]) -> Json:
        """The answer to a request for something else: to stop a response that is made in the background. Raises
        Refused."""
        found = re.fullmatch(re.escape(self.path) + r"/([^/]+)/cancel", path)
        with self._lock:
            if found is None or found[1] not in self._responses:
                raise Refused(404, "Not found")
            if not self._responses[found[1]]["background"]:
                raise Refused(400, "Only background responses can be cancelled.")
            self.stopped.append(found[1])
            self._responses[found[1]] |= {"status": "cancelled", "output": [], "usage": None}
            return self._responses[found[1]]

    def retrieve(self, response_id: str, path: str) -> Json:
        with self._lock:
            self.asked_for.append(path)
            if response_id not in self._responses:
                raise Refused(404, f"Response with id '{response_id}' not found.")
            response = self._responses[response_id]
            if "stream=true" not in path and self.unfinished:
                self.unfinished -= 1
                return response | {"status": "in_progress", "output": [], "usage": None}
            return response

    def _authorize(self, headers: dict[str, str]) -> None:
        given = headers.get("authorization", "")
        if not given.startswith("Bearer ") or (self.key is not None and given != f"Bearer {self.key}"):
            raise Refused(401, f"Incorrect API key provided: {given.removeprefix('Bearer ')}.", "invalid_api_key")

    def _parent(self, body: Json, *, ignore: bool) -> list[Json] | None:
        parent = body.get("previous_response_id")
        if parent is None or ignore:
            return None
        if parent not in self._nodes:
            what = f"Previous response with id '{parent}' not found."
            raise Refused(400, what, "previous_response_not_found", "previous_response_id")
        return self._nodes[parent]

    def _summary(self, body: Json, usage: Json) -> Json | None:
        """What stands for all before it, where the request has asked for it and is that long."""
        for entry in body.get("context_management") or ():
            if usage["input_tokens"] >= entry["compact_threshold"]:
                sealed = base64.b64encode(secrets.token_bytes(60)).decode()
                return {"type": "compaction", "id": "cmp_" + secrets.token_hex(12), "encrypted_content": sealed}
        return None

    def _check_reasoning(self, items: list[Json]) -> None:
        there = {item.get("id") for item in items if item.get("type") == "reasoning"}
        for item in items:
            needed = self._reasoning_of.get(str(item.get("id")))
            if needed is not None and needed not in there:
                what = f"Item '{item.get('id')}' was provided without its required 'reasoning' item: '{needed}'."
                raise Refused(400, what, None, "input")

    def tokens(self, data: bytes) -> int:
        return math.ceil(tokens(data) * self.factor)

    def _usage(self, body: Json, items: list[Json]) -> Json:
        """ceil(bytes / 4) tokens; cached is the longest prefix seen before, in blocks of 128, from 1024 up."""
        fixed = [body["model"], body.get("tools"), body.get("text"), body.get("instructions")]
        prompt = json.dumps([*fixed, *items], ensure_ascii=False).encode()
        shared = max((common(prompt, before) for before in self._prompts), default=0) // 4
        self._prompts.append(prompt)
        cached = shared - shared % 128 if shared >= 1024 else 0
        details = {"cached_tokens": cached, "cache_write_tokens": 0}
        return {"input_tokens": self.tokens(prompt), "input_tokens_details": details}

    def _response(self, seen: Seen, reply: Json, usage: Json, previous: str | None) -> Json:
        output = output_items(reply)
        said = sum(self.tokens(spoken(item)) for item in output)
        thought = self.tokens(str(reply.get("reasoning", "")).encode())
        status, details = reply.get("status", "completed"), None
        cap = seen.body.get("max_output_tokens")
        if cap is not None and said + thought > cap:
            output, said, status = cut_off(output, cap), cap, "incomplete"
        if status == "incomplete":
            details = {"reason": reply.get("incomplete_reason", "max_output_tokens")}
        usage |= {"output_tokens": said + thought, "output_tokens_details": {"reasoning_tokens": thought}}
        usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
        return {
            "id": "resp_" + secrets.token_hex(24),
            "object": "response",
            "created_at": int(time.time()),
            "status": status,
            "error": None,
            "incomplete_details": details,
            "model": seen.body["model"],
            "output": output,
            "previous_response_id": previous,
            "store": not self.zdr and seen.body.get("store") is not False,
            "background": seen.body.get("background", False),
            "usage": reply.get("usage", usage),
            **({"tool_usage": reply["tool_usage"]} if "tool_usage" in reply else {}),
        }

    def _keep(self, seen: Seen, response: Json) -> None:
        thought = next((item["id"] for item in response["output"] if item["type"] == "reasoning"), None)
        for item in response["output"]:
            if thought is not None and item["type"] == "function_call":
                self._reasoning_of[item["id"]] = thought
        if response["store"] and response["status"] == "completed":
            self._nodes[response["id"]] = [*seen.effective, *response["output"]]
            self._responses[response["id"]] = response


def tokens(data: bytes) -> int:
    return -(-len(data) // 4)


def common(one: bytes, other: bytes) -> int:
    """The length of the common prefix, by halving."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


# --- what is refused --------------------------------------------------------------------------------------------------


def check_body(body: Json, models: frozenset[str] | None) -> None:
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise Refused(400, f"Unknown parameter: '{unknown[0]}'.", "unknown_parameter", unknown[0])
    if not isinstance(body.get("model"), str):
        raise Refused(400, "Missing required parameter: 'model'.", "missing_required_parameter", "model")
    if models is not None and body["model"] not in models:
        raise Refused(
            404, f"The model '{body['model']}' does not exist or you do not have access to it.", "model_not_found"
        )
    if body.get("previous_response_id") == "":
        raise Refused(400, "Invalid 'previous_response_id': empty string.", "invalid_value", "previous_response_id")
    if body.get("background") and body.get("store") is False:
        raise Refused(400, "Background mode requires 'store' to be true.", "invalid_value", "background")
    for entry in body.get("context_management") or ():
        if set(entry) != {"type", "compact_threshold"} or entry["type"] != "compaction":
            raise Refused(400, "Invalid 'context_management'.", "invalid_value", "context_management")
    cap = body.get("max_output_tokens")
    if cap is not None and (not isinstance(cap, int) or cap < 16):
        raise Refused(400, "Invalid 'max_output_tokens': the minimum is 16.", "integer_below_min_value")
    form = (body.get("text") or {}).get("format")
    if form is not None:
        if form.get("type") != "json_schema" or not NAME.fullmatch(str(form.get("name"))):
            raise Refused(400, "Invalid 'text.format'.", "invalid_value", "text.format")
        check_strict(form["schema"], f"response_format '{form['name']}'", "text.format.schema")
    for tool in body.get("tools") or ():
        if tool.get("type") == "web_search":
            if set(tool) - {"type", "filters", "search_context_size", "user_location"}:
                raise Refused(400, "Invalid tool.", "invalid_value", "tools")
            continue
        if set(tool) - TOOL_FIELDS or tool.get("type") != "function" or not NAME.fullmatch(str(tool.get("name"))):
            raise Refused(400, "Invalid tool.", "invalid_value", "tools")
        if tool.get("strict") is not False:
            check_strict(tool["parameters"], f"function '{tool['name']}'", "tools")


def check_strict(schema: Json, what: str, param: str) -> None:
    if schema.get("type") != "object":
        raise Refused(400, f"Invalid schema for {what}: must be of type 'object'.", "invalid_json_schema", param)
    for inner in subschemas(schema):
        if inner.get("type") != "object" and "properties" not in inner:
            continue
        if inner.get("additionalProperties") is not False:
            what_is = "'additionalProperties' is required to be supplied and to be false"
            raise Refused(400, f"Invalid schema for {what}: {what_is}.", "invalid_json_schema", param)
        missing = set(inner.get("properties", {})) - set(inner.get("required", []))
        if missing:
            what_is = f"'required' must include every key in properties. Missing {sorted(missing)}"
            raise Refused(400, f"Invalid schema for {what}: {what_is}.", "invalid_json_schema", param)


def subschemas(schema: Any) -> Iterator[Json]:
    """A schema and everything below it that is one. A property named like a keyword is still a property."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for inner in schema.get(key, {}).values():
            yield from subschemas(inner)
    for inner in (*schema.get("anyOf", ()), *schema.get("allOf", ()), schema.get("items")):
        yield from subschemas(inner)


def input_items(body: Json) -> list[Json]:
    given = body.get("input")
    if isinstance(given, str) and given:
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise Refused(400, "Missing required parameter: 'input'.", "missing_required_parameter", "input")
    for number, item in enumerate(given):
        needed = {
            "function_call_output": ("call_id", "output"),
            "function_call": ("call_id", "name", "arguments"),
            "reasoning": ("id", "summary"),
            "compaction": ("encrypted_content",),
            "web_search_call": ("id", "action"),
            "message": ("role", "content"),
        }.get(item.get("type", "message"))
        if needed is None or not all(key in item for key in needed):
            raise Refused(400, f"Invalid 'input[{number}]'.", "invalid_value", f"input[{number}]")
    return list(given)


def from_summary(items: list[Json]) -> list[Json]:
    """The last summary stands for what is before it."""
    at = max((n for n, item in enumerate(items) if item.get("type") == "compaction"), default=0)
    return items[at:]


def check_items(items: list[Json], *, stored: bool) -> None:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in outputs:
            raise Refused(400, f"No tool output found for function call {call}.", None, "input")
    for output in outputs:
        if output not in calls and items[0].get("type") != "compaction":
            raise Refused(400, f"No tool call found for function call output with call_id {output}.", None, "input")
    if len(set(outputs)) < len(outputs):
        raise Refused(400, "Duplicate tool output.", "invalid_value", "input")
    for item in items:
        if item.get("type") == "reasoning" and not stored and not item.get("encrypted_content"):
            raise Refused(404, f"Item with id '{item['id']}' not found. Items are not persisted when `store` is false.")


# --- what is answered -------------------------------------------------------------------------------------------------


def output_items(reply: Json) -> list[Json]:
    tag = secrets.token_hex(12)
    items: list[Json] = [reply["summary"]] if "summary" in reply else []  # made before a word is thought
    if "reasoning" in reply:
        sealed = base64.b64encode(reply["reasoning"].encode()).decode()
        items.append({"type": "reasoning", "id": f"rs_{tag}", "summary": [], "encrypted_content": sealed})
    items += reply.get("items", ())
    text = json.dumps(reply["json"], ensure_ascii=False) if "json" in reply else reply.get("text")
    part: Json | None = None
    if "refusal" in reply:
        part = {"type": "refusal", "refusal": reply["refusal"]}
    elif text is not None:
        part = {"type": "output_text", "text": text, "annotations": reply.get("annotations", [])}
    if part is not None:
        phase = "commentary" if "tool_calls" in reply else "final_answer"
        message = {"type": "message", "id": f"msg_{tag}", "role": "assistant", "status": "completed", "phase": phase}
        items.append(message | {"content": [part]})
    for number, call in enumerate(reply.get("tool_calls", ())):
        arguments = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
        item = {
            "type": "function_call",
            "id": f"fc_{tag}{number}",
            "call_id": f"call_{tag}{number}",
            "status": "completed",
        }
        items.append(item | {"name": call["name"], "arguments": arguments})
    return items


def spoken(item: Json) -> bytes:
    if item["type"] == "message":
        part = item["content"][0]
        return str(part.get("text", part.get("refusal", ""))).encode()
    return str(item.get("arguments", "")).encode()


def cut_off(output: list[Json], cap: int) -> list[Json]:
    """The messages, ended where the cap of tokens is reached; a cut-off tool call is no call."""
    kept: list[Json] = []
    for item in output:
        if item["type"] == "message" and item["content"][0]["type"] == "output_text":
            part = item["content"][0]
            kept.append(item | {"status": "incomplete", "content": [part | {"text": part["text"][: cap * 4]}]})
    return kept


def events(response: Json) -> Iterator[Json]:
    """The response as its stream. Deltas of text are a third each, so that there are some."""
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index}
        hollow = {key: value for key, value in item.items() if key not in ("content", "arguments", "encrypted_content")}
        yield {"type": "response.output_item.added", **place, "item": hollow}
        if item["type"] == "message" and item["content"][0]["type"] == "output_text":
            text = item["content"][0]["text"]
            third = len(text) // 3 + 1
            for start in range(0, len(text), third):
                delta = {"item_id": item["id"], "content_index": 0, "delta": text[start : start + third]}
                yield {"type": "response.output_text.delta", **place, **delta}
        if item["type"] == "function_call":
            arguments = {"item_id": item["id"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, **arguments}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


# --- answers from a schema, from a script -----------------------------------------------------------------------------


def from_schema(schema: Json, root: Json) -> Any:
    """A value that fits: first of an enum, null where it is allowed, "text", 1, true, one item or as many as needed."""
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return from_schema(target, root)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    if "anyOf" in schema:
        nullable = any(option.get("type") == "null" for option in schema["anyOf"])
        return None if nullable else from_schema(schema["anyOf"][0], root)
    if "allOf" in schema:
        return from_schema(schema["allOf"][0], root)
    kind = schema.get("type")
    if isinstance(kind, list):
        return None if "null" in kind else from_schema(schema | {"type": kind[0]}, root)
    if kind == "object":
        return {name: from_schema(inner, root) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [from_schema(schema.get("items", {}), root)] * max(1, schema.get("minItems", 1))
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    if kind == "boolean":
        return True
    dates = {"date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z"}
    return dates.get(schema.get("format", ""), "text").ljust(schema.get("minLength", 0), "x")


def generic(*, invalid_first: bool = False, tool_first: bool = False) -> Answer:
    """Answers by the schema that was sent; optionally each thread first calls a tool, or first answers wrongly."""

    def answer(seen: Seen) -> Json:
        tools = seen.body.get("tools") or ()
        if tool_first and tools and seen.turn == 0:
            schema = tools[0]["parameters"]
            return {"tool_calls": [{"name": tools[0]["name"], "arguments": from_schema(schema, schema)}]}
        form = (seen.body.get("text") or {}).get("format")
        if form is None:
            return {"text": "text"}
        if invalid_first and seen.turn == (1 if tool_first and tools else 0):
            return {"json": {"unexpected": True}}
        return {"json": from_schema(form["schema"], form["schema"])}

    return answer


def scripted(replies: Mapping[str, Sequence[Json]], otherwise: Answer) -> Answer:
    """Answers by the name of the output format and the number of replies so far; `otherwise` for all else."""

    def answer(seen: Seen) -> Json:
        lines = replies.get(seen.name, ())
        return lines[seen.turn] if seen.turn < len(lines) else otherwise(seen)

    return answer


# --- HTTP -------------------------------------------------------------------------------------------------------------


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    app: StrictServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.app.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        match = re.fullmatch(r"/v1/responses/([^/?]+)(?:\?(.*))?", self.path)
        try:
            if match is None:
                raise Refused(404, "Not found")
            if self.server.app.refusing:
                status = self.server.app.refusing.pop(0)
                self._json(status, Refused(status, "Not now.").body, {"retry-after-ms": "1"})
                return
            response, query = self.server.app.retrieve(match[1], self.path), match[2] or ""
            if "stream=true" not in query:
                self._json(200, response)
            elif not response["background"]:
                raise Refused(400, "This response cannot be streamed because it was not created with background=true.")
            else:
                after = re.search(r"starting_after=(\d+)", query)
                self._again(response, int(after[1]) if after else -1)
        except Refused as refused:
            self._json(refused.status, refused.body)

    def do_POST(self) -> None:
        app = self.server.app
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != app.path:
            try:
                self._json(200, app.beside(self.path, raw, self._lowered()))
            except Refused as refused:
                self._json(refused.status, refused.body)
            return
        seen, fault = app.take(raw, self._lowered())
        self._wait(fault.delay, seen)
        if fault.drop:
            self._reset()
        elif fault.status is not None:
            seen.status = fault.status
            self._json(fault.status, fault.body if fault.body is not None else "", fault.headers)
        else:
            try:
                self._answer(app, seen, fault)
            except OSError:  # gone while something was written to it
                seen.disconnected.set()
                self.close_connection = True
        self._log(app, seen)

    def _lowered(self) -> dict[str, str]:
        return {key.lower(): value for key, value in self.headers.items()}

    def _answer(self, app: StrictServer, seen: Seen, fault: Fault) -> None:
        try:
            seen.response = app.respond(seen, fault)
            seen.status = 200
        except Refused as refused:
            seen.status = refused.status
            self._json(refused.status, refused.body)
            return
        if fault.whole or not seen.body.get("stream"):
            self._json(200, seen.response)
        else:
            self._stream(seen, fault)

    def _stream(self, seen: Seen, fault: Fault) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while fault.trickle is not None and not self._wait(fault.trickle, seen):
            self._chunk(b": still thinking\n\n")
        for number, event in enumerate(self.server.app.script(seen.response, fault)):
            if number == fault.cut:
                self._reset()
                return
            if number == fault.truncated:
                break
            if number == fault.stalled:
                self.server.app.stalling.set()
                if self._wait(fault.stall_seconds, seen):
                    return
            self._chunk(self.server.app.frame(event, number, malformed=number == fault.malformed))
        self._chunk(b"")

    def _again(self, response: Json, after: int) -> None:
        """The stream of a kept response, from the event after that number on."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(self.server.app.script(response, Fault())):
            if number > after:
                data = json.dumps(event | {"sequence_number": number})
                self._chunk(f"event: {event['type']}\ndata: {data}\n\n".encode())
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, body: Json | str | bytes, headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        kind = "application/json" if isinstance(body, dict) else "text/plain"
        for key, value in {"content-type": kind, "content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def _reset(self) -> None:
        """Close hard, so that the client sees a reset and not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)
        self.connection.close()
        self.close_connection = True

    def _wait(self, seconds: float, seen: Seen) -> bool:
        """Wait; True as soon as the client has gone."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], min(left, 0.05))
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                seen.disconnected.set()
                self.close_connection = True
                return True
        return False

    def _log(self, app: StrictServer, seen: Seen) -> None:
        if app.log is None:
            return
        line = {"body": seen.body, "effective": seen.effective, "status": seen.status, "response": seen.response}
        with app._lock, app.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="A strict stand-in for the Responses API.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, help='JSON: {"format name": [replies in order]}')
    parser.add_argument("--log", type=Path, help="append each request with its effective context, one JSON a line")
    parser.add_argument("--zdr", action="store_true", help="store nothing: no id can be chained on")
    parser.add_argument("--ignore-chain", action="store_true", help="do not know previous_response_id")
    parser.add_argument("--invalid-first", action="store_true", help="each thread's first answer breaks its schema")
    parser.add_argument("--tool-first", action="store_true", help="each thread with tools calls the first one first")
    parser.add_argument("--key", help="the only accepted key")
    options = parser.parse_args()
    answer = generic(invalid_first=options.invalid_first, tool_first=options.tool_first)
    if options.script:
        answer = scripted(json.loads(options.script.read_text("utf-8")), answer)
    flags = {"zdr": options.zdr, "ignore_chain": options.ignore_chain}
    with StrictServer(answer, port=options.port, key=options.key, log=options.log, **flags) as server:
        print(server.base_url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
