"""What another vendor's reply says, in words that every vendor takes: its texts and its tool calls.

A thread can go on at another vendor, or on another model of the same one. What the model there is shown are the texts
and the calls with their results; thoughts, their signatures and seals, ids of items and the vendor's own tools belong
to the model that made them, and stay behind. The plain form is that of a Responses input without ids; each wire knows
how to say it in its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from orchestrator.ids import sha256
from orchestrator.values import Item, OutputItem

Api = Literal["responses", "messages", "chat", "plain"]
_MESSAGES: Final = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def portable(items: Iterable[Item]) -> tuple[Item, ...]:
    """Items as any other vendor may see them; what we have said ourselves is plain already."""
    found: list[Item] = []
    for item in items:
        found.extend(map(OutputItem, plain(item.data)) if isinstance(item, OutputItem) else [item])
    return tuple(found)


def api_of(item: Mapping[str, Any]) -> Api:
    """Which API an item of a reply comes from; `plain` says the same in all."""
    kind = item.get("type")
    if kind == "compaction":  # both have one: here its text, sealed there
        return "messages" if "content" in item else "responses"
    if kind is None:
        return "plain" if set(item) == {"role", "content"} else "chat"
    return "messages" if kind in _MESSAGES or str(kind).endswith("_tool_result") else "responses"


def plain(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One item of a reply as texts and calls; nothing where it is neither."""
    kind = item.get("type")
    if kind == "function_call":
        yield called(str(item.get("call_id")), str(item.get("name")), item.get("arguments"))
    elif kind == "tool_use":
        yield called(str(item.get("id")), str(item.get("name")), item.get("input"))
    elif kind == "text":
        yield from _said(item.get("text"))
    elif kind == "message" or (kind is None and item.get("role") == "assistant"):
        yield from _said(spoken(item.get("content")))
        for call in item.get("tool_calls") or ():
            function = call.get("function") or {}
            yield called(str(call.get("id")), str(function.get("name")), function.get("arguments"))


def since_compaction(items: Sequence[Item]) -> tuple[Item, ...]:
    """From the vendor's last summary of the thread on, which stands for all before it; everything where there is
    none. One without content has failed, and stands for nothing."""
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if isinstance(item, OutputItem) and compacted([item.data]):
            return tuple(items[at:])
    return tuple(items)


def compacted(items: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """That the vendor has summed up the thread, where an item of its reply says so."""
    done = any(
        item.get("type") == "compaction" and (item.get("content") or item.get("encrypted_content")) for item in items
    )
    return ("summed up what stood before",) if done else ()


def spoken(content: object) -> str:
    """The text of a message's content, which is text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def called(call_id: str, name: str, arguments: object) -> dict[str, Any]:
    """A tool call in the plain form; its arguments are JSON text there."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def safe_id(call_id: str) -> str:
    """A call's id as the strictest vendor takes it; the same one for a call and its result."""
    return call_id if _SAFE_ID.fullmatch(call_id) else f"call_{sha256(call_id.encode())[:24]}"


def _said(text: object) -> Iterator[dict[str, Any]]:
    if isinstance(text, str) and text.strip():
        yield {"role": "assistant", "content": text}
