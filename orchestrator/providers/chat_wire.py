"""The chat completions API as bytes and JSON: what is sent, and what a reply means. Pure, no SDK.

It is what servers speak that have no Responses API. Nothing is kept there: no id is ever sent, and every call brings
its whole thread, the server's own turns as they came. Thoughts go back only beside the tool calls they led to: there
some vendors demand them, elsewhere some refuse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from orchestrator.attachments import data_url, file_name, kind_of, label
from orchestrator.errors import ProviderFailure
from orchestrator.ids import canonical_json, is_synthetic
from orchestrator.providers.answers import field_of, malformed, response_id, text_or_none
from orchestrator.providers.foreign import plain, spoken
from orchestrator.providers.openai_wire import failed
from orchestrator.providers.usage import chat_usage
from orchestrator.values import Item, OutputItem, Reply, Request, TextItem, ToolCall, ToolOutput

THOUGHTS: Final = frozenset({"reasoning", "reasoning_content", "reasoning_details"})
CUT_OFF: Final[Mapping[str, str]] = {"length": "max_output_tokens"}
ENDED: Final = frozenset({"stop", "tool_calls", "function_call"})
BROKEN: Final = frozenset({"error", "abort", "insufficient_system_resource"})  # the server gave up, not the model


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between servers: how the cap on a reply is called, and whether cache keys are known."""

    cap: str = "max_tokens"
    caches: bool = False


# --- what is sent -----------------------------------------------------------------------------------------------------


def wire(request: Request, dialect: Dialect) -> bytes:
    """The request's exact body. Raises ProviderFailure for an id to chain on: there are none here."""
    try:
        return canonical_json(body(request, dialect), indent=None)
    except ValueError as error:
        raise ProviderFailure(f"the request cannot be written as JSON: {error}", kind="bad_request") from error


def body(request: Request, dialect: Dialect) -> dict[str, Any]:
    """The request as JSON data, in a fixed order of fields."""
    if not is_synthetic(request.thread):
        raise ProviderFailure(
            "a chat completions API keeps no responses: nothing can be chained on", kind="chain_unsupported"
        )
    sent: dict[str, Any] = {"model": request.model}
    system = [{"role": "system", "content": request.system}] if request.system else []
    sent["messages"] = [*system, *_messages(request.items)]
    if request.tools:
        sent["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                    "strict": tool.strict,
                },
            }
            for tool in request.tools
        ]
    if request.output is not None:
        form = {"name": request.output.name, "schema": dict(request.output.schema), "strict": True}
        sent["response_format"] = {"type": "json_schema", "json_schema": form}
    if request.effort is not None:
        sent["reasoning_effort"] = request.effort
    sent[dialect.cap] = request.max_output_tokens
    if dialect.caches and request.cache_key:
        sent["prompt_cache_key"] = request.cache_key
    return sent | {"stream": True, "stream_options": {"include_usage": True}}


def _messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The items as messages; results of tools stand right after the turn that called them."""
    messages: list[dict[str, Any]] = []
    for theirs, group in groupby(items, lambda item: isinstance(item, OutputItem)):
        run = list(group)
        ours = sorted(run, key=lambda item: not isinstance(item, ToolOutput))
        messages += _turns(run) if theirs else [_message(item) for item in ours]
    return messages


def _message(item: Item) -> dict[str, Any]:
    if isinstance(item, ToolOutput):
        return {"role": "tool", "tool_call_id": item.call_id, "content": item.output}
    assert not isinstance(item, OutputItem)
    return {"role": "user", "content": _content(item) if item.files else item.text}


def _content(item: TextItem) -> list[dict[str, Any]]:
    """A message with files: each behind a line that says what it is, then the text."""
    parts: list[dict[str, Any]] = []
    for file in item.files:
        parts.append({"type": "text", "text": label(file)})
        if kind_of(file.media) == "image":
            parts.append({"type": "image_url", "image_url": {"url": data_url(file)}})
        else:
            parts.append({"type": "file", "file": {"filename": file_name(file), "file_data": data_url(file)}})
    return [*parts, {"type": "text", "text": item.text}]


def _turns(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The server's own turns as they came. What another vendor's reply says becomes a turn of the same words."""
    turns: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []

    def close() -> None:
        if texts or calls:
            turn = {"role": "assistant", "content": "\n\n".join(texts) or None}
            turns.append(turn | ({"tool_calls": list(calls)} if calls else {}))
        texts.clear()
        calls.clear()

    for item in items:
        assert isinstance(item, OutputItem)
        if "type" not in item.data and "tool_calls" not in item.data and set(item.data) == {"role", "content"}:
            texts.append(spoken(item.data["content"]))
        elif "type" not in item.data:
            close()
            turns.append(_own(item.data))
        else:
            for said in plain(item.data):
                if said.get("type") == "function_call":
                    function = {"name": said["name"], "arguments": said["arguments"]}
                    calls.append({"id": said["call_id"], "type": "function", "function": function})
                else:
                    texts.append(said["content"])
    close()
    return turns


def _own(message: Mapping[str, Any]) -> dict[str, Any]:
    if message.get("tool_calls"):
        return dict(message)
    return {name: value for name, value in message.items() if name not in THOUGHTS}


# --- what a reply means -----------------------------------------------------------------------------------------------


def reply(document: Mapping[str, Any], message: Mapping[str, Any], reason: object) -> Reply:
    """The reply in a whole message and the reason for its end. `document` carries id, usage and model.

    Raises ProviderFailure (malformed). A reason that is not known is a cut-off reply of that name: never accepted.
    """
    if not isinstance(reason, str) or not reason:
        raise malformed("the reply does not say why it ended")
    if reason in BROKEN:
        raise failed({"message": f"finish_reason {reason}"}, "the server broke off", unknown="overloaded")
    calls = _tool_calls(message.get("tool_calls"))
    if reason in ("tool_calls", "function_call") and not calls:
        raise malformed("it stopped for a tool and calls none")
    item = _kept(message)
    refusal = text_or_none(message.get("refusal"))
    ended = reason in ENDED
    return Reply(
        id=response_id(document),
        status="completed" if ended else "incomplete",
        # What is said on the way to a tool is no answer.
        text="" if calls or refusal else spoken(message.get("content")),
        items=(OutputItem(item),) if item else (),
        tool_calls=calls if ended else (),
        refusal=refusal,
        incomplete_reason=None if ended else CUT_OFF.get(reason, reason),
        usage=chat_usage(document.get("usage")),
        model=text_or_none(document.get("model")),
    )


def _kept(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The turn as it goes back with later calls; None where it says nothing that a server would take back."""
    turn = {"role": "assistant", "content": None, **{name: value for name, value in message.items() if value}}
    if not turn.get("content") and not turn.get("tool_calls") and not turn.get("refusal"):
        return None
    try:
        canonical_json(turn)
    except ValueError as error:
        raise malformed(f"the message cannot be kept: {error}") from error
    return turn | {"role": "assistant"}


def _tool_calls(calls: object) -> tuple[ToolCall, ...]:
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        fields = [field_of(call, "id"), field_of(function, "name")]
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if not all(fields) or not isinstance(arguments, str):
            raise malformed("a tool call lacks its id, name or arguments")
        found.append(ToolCall(fields[0], fields[1], arguments or "{}"))
    if len({call.call_id for call in found}) < len(found):
        raise malformed("two tool calls carry the same id")
    return tuple(found)


# --- a stream, put together -------------------------------------------------------------------------------------------


class Assembly:
    """A message as it grows. `see` takes the chunks in; `ended` once one said why the reply ends; usage may follow."""

    def __init__(self) -> None:
        self.id = ""
        self.ended = False
        self._document: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[object, int] = {}
        self._reason: object = None

    def see(self, chunk: Mapping[str, Any]) -> str:
        """Take a chunk in; gives the piece of text it brings. Raises ProviderFailure (malformed)."""
        if not self.id and chunk.get("id"):  # some servers say something about the request first, under no id
            self.id = response_id(chunk)
        for name in ("id", "model", "usage"):
            if chunk.get(name):
                self._document[name] = chunk[name]
        choices = chunk.get("choices", ()) or []
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise malformed("a chunk has no choices")
        first = next((choice for choice in choices if choice.get("index", 0) == 0), None)
        if first is None:
            return ""
        delta = first.get("delta")
        text = self._grow(delta) if isinstance(delta, Mapping) else ""
        if first.get("finish_reason") is not None:
            self._reason, self.ended = first["finish_reason"], True
        return text

    def whole(self, clean: Any) -> Reply:
        """The reply. `clean` takes secrets out of what only the whole shows. Raises ProviderFailure (malformed)."""
        calls = {"tool_calls": self._calls} if self._calls else {}
        return reply(clean(self._document), clean({**self._message, **calls}), self._reason)

    def _grow(self, delta: Mapping[str, Any]) -> str:
        for name, value in delta.items():
            if name == "tool_calls":
                self._grow_calls(value)
            elif name != "role":
                _join(self._message, name, value)
        return spoken(delta.get("content"))

    def _grow_calls(self, pieces: object) -> None:
        """Pieces of calls, told apart by their index; without one, a piece with an id begins a call."""
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, Mapping):
                raise malformed("a piece of a tool call is no object")
            place = piece.get("index")
            key: object = place if isinstance(place, int) else piece.get("id") or ("last", len(self._calls) - 1)
            at = key[1] if isinstance(key, tuple) else self._places.setdefault(key, len(self._calls))
            if at < 0:
                raise malformed("a piece of a tool call that has not begun")
            if at == len(self._calls):
                self._calls.append({})
            call = self._calls[at]
            for name, value in piece.items():
                if name == "function" and isinstance(value, Mapping):
                    function = call.setdefault("function", {"arguments": ""})
                    function |= {"name": value["name"]} if value.get("name") else {}
                    _join(function, "arguments", value.get("arguments"))
                elif name != "index" and value is not None:
                    call[name] = value


def _join(target: dict[str, Any], name: str, value: object) -> None:
    """Texts and lists grow, all else is replaced; null says nothing."""
    before = target.get(name)
    if isinstance(before, str) and isinstance(value, str):
        target[name] = before + value
    elif isinstance(before, list) and isinstance(value, list):
        target[name] = [*before, *value]
    elif value is not None:
        target[name] = value
