"""A strict stand-in for a chat completions API over real HTTP, standard library only: it refuses what servers refuse.

It knows nothing of the product it tests. Nothing is kept between requests: a thread must come whole, each call of a
tool answered once, right after the turn that made it. No field that is not known (an id to chain on least of all), no
open schema, no usage in a stream that was not asked for it. Every request is kept.

    with ChatServer(answer) as server: … server.base_url … server.seen[0].body

Answers are those of `strict_server`, with `finish_reason` beside them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

from tests.strict_server import NAME, Answer, Fault, Json, Refused, Seen, StrictServer, check_strict, common, tokens

FIELDS = frozenset(
    {"model", "messages", "tools", "tool_choice", "response_format", "reasoning_effort", "stream", "stream_options"}
    | {"max_tokens", "max_completion_tokens", "parallel_tool_calls", "temperature", "top_p", "seed", "stop", "user"}
)
ROLES = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "refusal", "tool_calls", "reasoning_content"}),
}


class ChatServer(StrictServer):
    """The server; `options` are StrictServer's. `usage=False`: it counts nothing in streams, as some do."""

    path = "/v1/chat/completions"

    def __init__(self, answer: Answer | None = None, *, usage: bool = True, **options: Any) -> None:
        super().__init__(answer or (lambda seen: {"text": "text"}), **options)
        self.counts = usage

    def __enter__(self) -> ChatServer:
        super().__enter__()
        return self

    # --- the rules

    def respond(self, seen: Seen, fault: Fault) -> Json:
        self._authorize(seen.headers)
        body = seen.body
        check_body(body, self.models)
        seen.effective = check_messages(body.get("messages"))
        with self._lock:
            usage = self._counted(body | {"messages": [*self.hidden, *body["messages"]]})
        if self.window is not None and usage["prompt_tokens"] > self.window:
            what = (
                f"request ({usage['prompt_tokens']} tokens) exceeds the available context size ({self.window} tokens)"
            )
            raise Refused(400, what)
        completion = self._completion(seen, self.answer(seen), usage) | fault.response
        with self._lock:
            if self.remembers:
                self.hidden = [*self.hidden, *body["messages"], completion["choices"][0]["message"]]
        return completion

    def script(self, response: Json, fault: Fault) -> Iterator[Json]:
        for number, chunk in enumerate(chunks(response, usage=self.counts)):
            if chunk["choices"] and chunk["choices"][0]["finish_reason"] is not None:
                chunk["choices"][0] |= fault.end
            yield chunk
            if number == 0:
                yield from fault.events
                if fault.events_end:
                    return
        yield {"type": "[DONE]"}

    def frame(self, event: Json, number: int, *, malformed: bool) -> bytes:
        data = "[DONE]" if event.get("type") == "[DONE]" else json.dumps(event)
        return f"data: {data[: len(data) // 2] if malformed else data}\n\n".encode()

    def retrieve(self, response_id: str, path: str) -> Json:
        raise Refused(404, "Not Found")

    def _counted(self, body: Json) -> Json:
        """ceil(bytes / 4) tokens; cached is the longest prefix seen before, in blocks of 128, from 1024 up."""
        fixed = [body["model"], body.get("tools"), body.get("response_format")]
        prompt = json.dumps([*fixed, *body["messages"]], ensure_ascii=False).encode()
        shared = max((common(prompt, before) for before in self._prompts), default=0) // 4
        self._prompts.append(prompt)
        cached = shared - shared % 128 if shared >= 1024 else 0
        return {"prompt_tokens": self.tokens(prompt), "prompt_tokens_details": {"cached_tokens": cached}}

    def _completion(self, seen: Seen, reply: Json, usage: Json) -> Json:
        message = message_of(reply)
        calls = message.get("tool_calls", ())
        said = tokens("".join([message["content"] or "", *(c["function"]["arguments"] for c in calls)]).encode())
        thought = tokens(message.get("reasoning_content", "").encode())
        reason = "length" if reply.get("status") == "incomplete" else "tool_calls" if calls else "stop"
        cap = seen.body.get("max_completion_tokens", seen.body.get("max_tokens"))
        if cap is not None and said + thought > cap:
            message, said, reason = message | {"content": (message["content"] or "")[: cap * 4]}, cap, "length"
            message.pop("tool_calls", None)
        usage |= {"completion_tokens": said + thought, "completion_tokens_details": {"reasoning_tokens": thought}}
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        choice = {"index": 0, "message": message, "finish_reason": reply.get("finish_reason", reason)}
        return {
            "id": "chatcmpl-" + secrets.token_hex(12),
            "object": "chat.completion",
            "created": 1,
            "model": seen.body["model"],
            "choices": [choice],
            "usage": reply.get("usage", usage),
        }


# --- what is refused --------------------------------------------------------------------------------------------------


def check_body(body: Json, models: frozenset[str] | None) -> None:
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise Refused(400, f"Unrecognized request argument supplied: {unknown[0]}", "unknown_parameter", unknown[0])
    if not isinstance(body.get("model"), str):
        raise Refused(400, "you must provide a model parameter")
    if models is not None and body["model"] not in models:
        raise Refused(404, f"model '{body['model']}' not found", "model_not_found")
    if "stream_options" in body and not body.get("stream"):
        raise Refused(400, "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    form = body.get("response_format")
    if form is not None:
        schema = form.get("json_schema") or {}
        if form.get("type") != "json_schema" or not NAME.fullmatch(str(schema.get("name"))) or "schema" not in schema:
            raise Refused(400, "Invalid 'response_format'.", "invalid_value", "response_format")
        if schema.get("strict"):
            check_strict(schema["schema"], f"response_format '{schema['name']}'", "response_format")
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        known = {"name", "description", "parameters", "strict"}
        if set(tool) != {"type", "function"} or set(function) - known or not NAME.fullmatch(str(function.get("name"))):
            raise Refused(400, "Invalid tool.", "invalid_value", "tools")
        if function.get("strict"):
            check_strict(function["parameters"], f"function '{function['name']}'", "tools")


def check_messages(messages: Any) -> list[Json]:
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "[] is too short - 'messages'")
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES or set(message) - ROLES[role] or "content" not in message:
            raise Refused(400, f"Invalid 'messages[{number}]'.", "invalid_value", f"messages[{number}]")
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused(
                    400, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                )
            waiting.remove(message["tool_call_id"])
            continue
        refuse_unanswered(waiting)
        if not isinstance(message["content"], str) and not (message.get("tool_calls") or message.get("refusal")):
            raise Refused(400, f"Invalid value for 'content': expected a string, got null. 'messages[{number}]'")
        if message.get("reasoning_content") and not message.get("tool_calls"):
            raise Refused(400, "The reasoning_content is only taken beside tool_calls.")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    refuse_unanswered(waiting)
    if messages[-1]["role"] == "assistant":
        raise Refused(400, "Cannot continue an assistant message.")
    return list(messages)


def refuse_unanswered(calls: list[str]) -> None:
    if calls:
        raise Refused(
            400,
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}",
        )


# --- what is answered -------------------------------------------------------------------------------------------------


def message_of(reply: Json) -> Json:
    text = json.dumps(reply["json"], ensure_ascii=False) if "json" in reply else reply.get("text")
    message: Json = {"role": "assistant", "content": text}
    if "reasoning" in reply:
        message["reasoning_content"] = reply["reasoning"]
    if "refusal" in reply:
        message["refusal"] = reply["refusal"]
    if "tool_calls" in reply:
        tag = secrets.token_hex(8)
        message["tool_calls"] = [
            {
                "id": f"call_{tag}{number}",
                "type": "function",
                "function": {"name": call["name"], "arguments": _written(call["arguments"])},
            }
            for number, call in enumerate(reply["tool_calls"])
        ]
    return message


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def chunks(completion: Json, *, usage: bool) -> Iterator[Json]:
    """The completion as its stream: texts and arguments a third each, the reason for the end, then the usage."""
    head: Json = {key: completion[key] for key in ("id", "created", "model") if key in completion}
    head["object"] = "chat.completion.chunk"
    choice = completion["choices"][0] if completion.get("choices") else {"message": {}, "finish_reason": None}
    message = choice["message"]

    def chunk(delta: Json, reason: str | None = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content", "refusal"):
        yield from (chunk({name: part}) for part in thirds(message.get(name) or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        begun = call | {"function": call["function"] | {"arguments": ""}}
        yield chunk({"tool_calls": [{"index": index, **begun}]})
        for part in thirds(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    if usage:
        yield {**head, "choices": [], "usage": completion["usage"]}


def thirds(text: str) -> list[str]:
    third = len(text) // 3 + 1
    return [text[start : start + third] for start in range(0, len(text), third)]
