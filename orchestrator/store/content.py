"""Bodies by hash: every text that is sent, made or answered is stored once per scope and referred to (S16, S25).

A block is a list of hashes, and so are a call's items: an artifact's body is one row however many steps read it, and
replay concatenates what stands here instead of rendering anything again (S13). The references, as JSON:

    ["text", [hash, …]]     a user message, part by part; with files, [[hash, name, media], …] behind them
    ["prompt"]              the user message that opens a thread: the parts of its blocks
    ["tool", id, hash, 0|1] a tool's output, and whether it is an error
    ["output", hash]        an output item of the provider, verbatim
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.attachments import weight
from orchestrator.ids import sha256
from orchestrator.store import json_text
from orchestrator.store.sql import Tx, insert
from orchestrator.values import Attachment, Item, OutputItem, TextItem, ToolOutput

_PUT = insert(
    "content",
    "sha256 size used_at body",
    "ON CONFLICT (tenant, account, subject, sha256) DO UPDATE SET used_at = excluded.used_at",
)


_NOTHING = TextItem(())


class Bodies:
    """The bodies one transaction refers to: added one by one, written together, ahead of what refers to them."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._rows: dict[str, bytes] = {}

    def add(self, body: bytes | str) -> str:
        """The hash under which the body will stand. Raises ValueError for a text with lone surrogates."""
        scrubbed = self._tx.scrubber.body(body.encode() if isinstance(body, str) else body)
        key = sha256(scrubbed)
        self._rows[key] = scrubbed
        return key

    def size(self, key: str) -> int:
        return len(self._rows[key])

    def write(self) -> None:
        """In the order of their hashes: two transactions that write the same bodies must not wait for each other."""
        tx = self._tx
        rows = sorted(self._rows.items())
        tx.many(_PUT, [{"sha256": key, "size": len(body), "used_at": tx.now, "body": body} for key, body in rows])
        self._rows = {}


def put(tx: Tx, body: bytes | str) -> str:
    """Store one body; its hash."""
    bodies = Bodies(tx)
    key = bodies.add(body)
    bodies.write()
    return key


def refer(items: Iterable[Item], bodies: Bodies, prompt: str | None = None) -> str:
    """Items as references. A message that equals the thread's own opening (`prompt`) refers to its blocks' parts."""
    return json_text.dump([_reference(item, bodies, prompt) for item in items])


def _reference(item: Item, bodies: Bodies, prompt: str | None) -> list[Any]:
    if isinstance(item, TextItem):
        if prompt is not None and item.text == prompt:
            return ["prompt"]
        parts = [bodies.add(part) for part in item.parts]
        files = [[bodies.add(file.body), file.name, file.media] for file in item.files]
        return ["text", parts, files] if files else ["text", parts]
    if isinstance(item, ToolOutput):
        return ["tool", item.call_id, bodies.add(item.output), int(item.is_error)]
    return ["output", bodies.add(_verbatim(item.data))]


def _verbatim(data: Mapping[str, Any]) -> bytes:
    """Provider JSON as bytes; a lone surrogate inside a string becomes its JSON escape and is read back as it was."""
    return json_text.dump(data).encode("utf-8", "backslashreplace")


def hashes(references: str) -> set[str]:
    """The bodies that a list of references needs."""
    found: set[str] = set()
    for kind, *rest in json_text.load(references):
        found.update(rest[0] if kind == "text" else rest[-1:] if kind == "output" else rest[1:2])
        found.update(file[0] for file in (rest[1] if kind == "text" and len(rest) > 1 else ()))
    return found


def items(references: str, bodies: Mapping[str, bytes], opening: TextItem = _NOTHING) -> tuple[Item, ...]:
    """The items again. `opening` is the message that the thread's blocks make."""
    return tuple(_item(kind, rest, bodies, opening) for kind, *rest in json_text.load(references))


def _item(kind: str, rest: list[Any], bodies: Mapping[str, bytes], opening: TextItem) -> Item:
    if kind == "prompt":
        return opening
    if kind == "text":
        files = [_file(name, media, bodies[key]) for key, name, media in (rest[1] if len(rest) > 1 else ())]
        return TextItem(tuple(bodies[key].decode() for key in rest[0]), tuple(files))
    if kind == "tool":
        return ToolOutput(rest[0], bodies[rest[1]].decode(), bool(rest[2]))
    return OutputItem(json_text.load(bodies[rest[0]].decode()))


def _file(name: str, media: str, body: bytes) -> Attachment:
    return Attachment(name, media, body, weight(media, body))
