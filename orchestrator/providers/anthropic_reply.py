"""What a Messages API answers: a stream put together block by block, and what the whole means. Pure, no SDK.

The blocks of a reply are its items, and are kept as they came: they go back with every later call of the thread. Only
the text after the last tool is the answer; what was said on the way to one is no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from orchestrator.contracts.schemas import MAX_JSON_BYTES
from orchestrator.ids import canonical_json
from orchestrator.providers.answers import malformed, response_id, text_or_none
from orchestrator.providers.anthropic_wire import THOUGHTS, UNREADABLE
from orchestrator.providers.foreign import compacted
from orchestrator.providers.usage import anthropic_usage
from orchestrator.values import OutputItem, Reply, ToolCall

Status = Literal["completed", "incomplete", "paused"]
STATUSES: Final[Mapping[str, Status]] = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "tool_use": "completed",
    "refusal": "completed",
    "pause_turn": "paused",
}
CUT_OFF: Final[Mapping[str, str]] = {"max_tokens": "max_output_tokens"}


def reply(message: Mapping[str, Any], unreadable: Mapping[str, str] | None = None) -> Reply:
    """The reply in a whole message. `unreadable`: the arguments, by call id, that are no JSON object.

    Raises ProviderFailure (malformed). A stop reason that is not known is a cut-off reply of that name: it is never
    accepted.
    """
    reason = message.get("stop_reason")
    if message.get("type") != "message" or not isinstance(reason, str):
        raise malformed("no message with an end")
    blocks = _blocks(message.get("content"))
    refused = reason == "refusal"
    status = STATUSES.get(reason, "incomplete")
    calls = () if refused else _tool_calls(blocks, unreadable or {})
    if reason == "tool_use" and not calls:
        raise malformed("it stopped for a tool and calls none")
    return Reply(
        id=response_id(message),
        status=status,
        text="" if refused else _answer(blocks),
        # A refused turn is not said again: with it in the thread, every later call would be refused too.
        items=() if refused else tuple(OutputItem(block) for block in blocks),
        tool_calls=calls,
        refusal=_refusal(message.get("stop_details"), blocks) if refused else None,
        incomplete_reason=CUT_OFF.get(reason, reason) if status == "incomplete" else None,
        usage=anthropic_usage(message.get("usage")),
        model=text_or_none(message.get("model")),
        edited=(*_cleared(message.get("context_management")), *compacted(blocks)),
    )


def _blocks(content: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(content, list):
        raise malformed("the message's content is no list")
    if not all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in content):
        raise malformed("a block has no type")
    try:
        canonical_json(content)
    except ValueError as error:
        raise malformed(f"the content cannot be kept: {error}") from error
    return tuple(content)


def _tool_calls(blocks: Sequence[Mapping[str, Any]], unreadable: Mapping[str, str]) -> tuple[ToolCall, ...]:
    calls = []
    for block in blocks:
        if block["type"] != "tool_use":
            continue
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
        if not (isinstance(call_id, str) and call_id and isinstance(name, str) and isinstance(arguments, Mapping)):
            raise malformed("a tool call lacks its id, name or input")
        written = unreadable.get(call_id)
        calls.append(ToolCall(call_id, name, json.dumps(arguments) if written is None else written))
    if len({call.call_id for call in calls}) < len(calls):
        raise malformed("two tool calls carry the same id")
    return tuple(calls)


def _answer(blocks: Sequence[Mapping[str, Any]]) -> str:
    """The texts after the last block that is neither text nor thought."""
    texts: list[str] = []
    for block in blocks:
        if block["type"] == "text":
            texts.append(str(block.get("text", "")))
        elif block["type"] not in THOUGHTS:
            texts.clear()
    return "".join(texts)


def _cleared(applied: object) -> tuple[str, ...]:
    """What the vendor left out of the thread before it read it."""
    edits = applied.get("applied_edits") if isinstance(applied, Mapping) else None
    found = [edit for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    counts = [edit.get("cleared_tool_uses") for edit in found if str(edit.get("type")).startswith("clear_tool_uses")]
    return tuple(f"left out {count} results of tools" for count in counts if isinstance(count, int) and count > 0)


def _refusal(details: object, blocks: Sequence[Mapping[str, Any]]) -> str:
    found = details if isinstance(details, Mapping) else {}
    why = text_or_none(found.get("explanation")) or _answer(blocks).strip() or "no reason given"
    category = text_or_none(found.get("category"))
    return f"{why} (category: {category})" if category else why


# --- a stream, put together -------------------------------------------------------------------------------------------


class Assembly:
    """A message as it grows. `see` takes the events in; `whole` gives the message once `ended`."""

    def __init__(self) -> None:
        self.id = ""
        self.ended = False
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._size = 0

    def see(self, event: Mapping[str, Any]) -> str | None:
        """Take an event in; gives the piece of text it brings, if any. Raises ProviderFailure (malformed)."""
        kind = event.get("type")
        if kind == "message_start":
            self._start(event.get("message"))
            return None
        if kind not in ("content_block_start", "content_block_delta", "message_delta", "message_stop"):
            return None
        if not self.id:
            raise malformed(f"{kind} before the message has begun")
        if kind == "content_block_start":
            self._blocks[_index(event)] = _Block(event.get("content_block"))
        elif kind == "content_block_delta":
            return self._delta(_index(event), event.get("delta"))
        elif kind == "message_delta":
            self._end(event)
        else:
            self.ended = True
        return None

    def whole(self, clean: Any) -> Reply:
        """The reply. `clean` takes secrets out of what only the whole shows. Raises ProviderFailure (malformed)."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        content = [block.whole() for block in blocks]
        unreadable = {block.id: block.arguments for block in blocks if block.unreadable}
        return reply(clean({**self._message, "content": content}), clean(unreadable))

    def _start(self, message: object) -> None:
        found = response_id(message)
        if self.id:
            raise malformed("the message begins twice")
        assert isinstance(message, Mapping)
        self.id = found
        usage = message.get("usage")
        self._message = {**message, "usage": dict(usage) if isinstance(usage, Mapping) else {}}

    def _delta(self, index: int, delta: object) -> str | None:
        if index not in self._blocks or not isinstance(delta, Mapping):
            raise malformed("a delta of a block that has not begun")
        self._size += self._blocks[index].grow(delta)
        if self._size > MAX_JSON_BYTES:
            raise malformed(f"it is longer than {MAX_JSON_BYTES:,} bytes")
        text = delta.get("text") if delta.get("type") == "text_delta" else None
        return text if isinstance(text, str) else None

    def _end(self, event: Mapping[str, Any]) -> None:
        """How it stopped, and the counts so far: each is a total, and one that is missing has not changed."""
        delta, usage = event.get("delta"), event.get("usage")
        if isinstance(delta, Mapping):
            self._message |= {key: delta[key] for key in ("stop_reason", "stop_details") if key in delta}
        if isinstance(event.get("context_management"), Mapping):
            self._message["context_management"] = event["context_management"]
        if isinstance(usage, Mapping):
            self._message["usage"] |= {key: value for key, value in usage.items() if value is not None}


# By type of delta: the field that holds what is new, and the field of the block that it makes longer.
_GROWS: Final[Mapping[str, tuple[str, str]]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}


class _Block:
    """A block as it grows: its first form, and the pieces that come after."""

    def __init__(self, begun: object) -> None:
        if not isinstance(begun, Mapping):
            raise malformed("a block is no object")
        self._begun = dict(begun)
        self._pieces: dict[str, list[str]] = {}
        self.unreadable = False

    @property
    def id(self) -> str:
        return str(self._begun.get("id"))

    @property
    def arguments(self) -> str:
        return "".join(self._pieces.get("input", ()))

    def grow(self, delta: Mapping[str, Any]) -> int:
        """Take a delta in; gives its size. One of a type that is not known says nothing."""
        kind = str(delta.get("type"))
        if kind == "signature_delta":
            self._begun["signature"] = delta.get("signature")
        elif kind == "compaction_delta":  # the summary comes whole; null where it could not be made
            self._begun |= {key: delta.get(key) for key in ("content", "encrypted_content") if key in delta}
        elif kind == "citations_delta":
            self._begun["citations"] = [*(self._begun.get("citations") or ()), delta.get("citation")]
        elif kind in _GROWS:
            source, target = _GROWS[kind]
            piece = delta.get(source)
            if not isinstance(piece, str):
                raise malformed(f"a {kind} without its {source}")
            self._pieces.setdefault(target, []).append(piece)
            return len(piece)
        return len(str(delta))

    def whole(self) -> dict[str, Any]:
        block = dict(self._begun)
        for target in ("text", "thinking"):
            if target in self._pieces:
                block[target] = str(block.get(target) or "") + "".join(self._pieces[target])
        if self.arguments:
            block["input"] = self._input()
        return block

    def _input(self) -> Any:
        try:
            value = json.loads(self.arguments)
            if isinstance(value, dict):
                canonical_json(value)
                return value
        except (ValueError, RecursionError):
            pass
        self.unreadable = True
        return {UNREADABLE: self.arguments}


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if isinstance(index, bool) or not isinstance(index, int):
        raise malformed("an event does not say which block it is about")
    return index
