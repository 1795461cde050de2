"""A provider of written answers, in process, that keeps a vendor's rules: for demos, and for tests of your pipelines.

Two forms. `ORCH_MODEL=scripted:DIR` reads `DIR/<step>.json`, a list of replies in call order (see `script`). In a test,
`ScriptedProvider({"tech-stack": [{"json": {…}}]})` or a function of the request and the thread's items. Each further
thread of a Python step has a list of its own, `DIR/<step>/<thread>.json` or the key `"tech-stack/<thread>"`: its name,
or its number where it has none. So has each further visit of a step with `repeat`: `DIR/<step>/visit-2.json`.

What is not written is an error that names the step; nothing is ever made up. And what a vendor would refuse is refused
here too, so that a green test means something: an unknown id (`chain_lost`), a tool call left without its output
(`unanswered_call`), any id where nothing is stored (`zdr`), a schema that is not strict. `ignores_chain` plays the
server that does not know `previous_response_id` and answers without the history, with a good status.

Response ids carry what the next call must know (which reply is next, which calls are open, how large the context is),
so that a chain goes on in another process, as it would at a vendor. With `durable=False` they do not, and a restart
loses the chain. Usage is computed from the effective context; the part a previous call of the same thread has sent
already counts as cached. Equal conversations give equal numbers.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.errors import ProviderFailure
from orchestrator.ids import canonical_json, is_synthetic
from orchestrator.providers import openai_wire, script
from orchestrator.providers.base import Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.openai_wire import Dialect
from orchestrator.providers.script import ReplyLike, ScriptedReply
from orchestrator.providers.strictness import strict_faults
from orchestrator.providers.tokens import of_bytes
from orchestrator.spec import Sensitivity
from orchestrator.values import Item, OutputItem, Reply, Request, TextItem, ToolCall, ToolOutput, Usage

Script = Mapping[str, Sequence[ReplyLike]] | Callable[[Request, tuple[Item, ...]], ReplyLike]
CACHE_FROM, CACHE_BLOCK = 1024, 128  # tokens: below the first nothing is cached, above it in blocks of the second


class ScriptedProvider:
    """Written answers under a vendor's rules. `requests` keeps every request, `effective` says what the model saw.

    `script`: replies per step (or item, `step/key`), or a function; without it, files under `root`. `zdr`: nothing is
    stored, every id is refused. `window`: the context's limit in tokens.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        root: Path | None = None,
        name: str = "scripted",
        chaining: Literal["auto", "server", "replay"] = "server",
        zdr: bool = False,
        ignores_chain: bool = False,
        durable: bool = True,
        window: int | None = None,
        may_see: Sensitivity = "internal",
    ) -> None:
        mode: Literal["auto", "server", "replay"] = "replay" if zdr else "auto" if ignores_chain else chaining
        hosted, accepts = frozenset({"web_search"}), frozenset({"image", "pdf"})
        self._traits = Traits(
            name,
            "",
            mode,
            stores=not zdr,
            may_see=may_see,
            background=not zdr,
            hosted=hosted,
            accepts=accepts,
        )
        self._script = script
        self._root = root or Path()
        self._ignores_chain = ignores_chain
        self._durable = durable
        self._window = window
        self._stored: dict[str, tuple[Item, ...]] = {}
        self._forgotten: set[str] = set()
        self._traceless: Counter[tuple[str, int]] = Counter()
        self.requests: list[Request] = []

    @property
    def traits(self) -> Traits:
        return self._traits

    def wire(self, request: Request) -> bytes:
        """The body that a vendor would be sent."""
        return openai_wire.wire(request, Dialect(stores=self._traits.stores))

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        """Whole replies are not kept here."""
        return None

    async def give_up(self, response_id: str, request: Request) -> None:
        """Nothing goes on here while nobody listens."""

    async def count(self, request: Request) -> int | None:
        """Nobody counts here."""
        return None

    async def close(self) -> None:
        """Nothing is open."""

    def forget(self, response_id: str) -> None:
        """From now on this id is unknown, as if it had expired."""
        self._forgotten.add(response_id)

    def effective(self, request: Request) -> tuple[Item, ...]:
        """Every item the model saw with this request: what its id stands for, then what was sent."""
        if self._ignores_chain or is_synthetic(request.thread):
            return request.items
        return (*self._stored.get(request.thread, ()), *request.items)

    def effective_text(self, request: Request) -> str:
        """The effective context as one text, the system text first; for looking whether something is in it."""
        return "\n".join([request.system, *(_item_text(item) for item in self.effective(request))])

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """The next written reply. Raises ProviderFailure: the vendor's refusals, a scripted error, no reply left."""
        self.requests.append(request)
        thread = self._thread(request)
        self._check(request, thread)
        reply = self._next(request, thread)
        if reply.searches and not any(tool.name == "web_search" for tool in request.hosted):
            raise script.broken(f"the reply for step {request.step!r} searches, and the step has no web_search")
        if reply.error is not None:
            await asyncio.sleep(reply.delay)
            message = reply.message or f"scripted failure: {reply.error}"
            raise ProviderFailure(message, kind=reply.error, retry_after=reply.retry_after)
        return await self._say(request, thread, reply, listener)

    # --- the vendor's rules

    def _thread(self, request: Request) -> _Thread:
        """Where this request stands in its conversation. Raises ProviderFailure for an id that is not known."""
        if is_synthetic(request.thread):
            return _Thread.of_items(request.thread, request.items)
        if self._ignores_chain:
            return _Thread.of_items(request.thread, request.items)
        known = request.thread in self._stored or self._durable
        parent = _Thread.of_id(request.thread) if known and self._traits.stores else None
        if parent is None or request.thread in self._forgotten:
            raise ProviderFailure(f"Previous response with id '{request.thread}' not found", kind="chain_lost")
        return parent.with_items(request.items)

    def _check(self, request: Request, thread: _Thread) -> None:
        if not request.items:
            raise ProviderFailure("a request needs input", kind="bad_request")
        if not self._ignores_chain:
            if thread.open_calls:
                what = f"No tool output found for function call {thread.open_calls[0]}."
                raise ProviderFailure(what, kind="unanswered_call")
            if thread.strays:
                what = f"No tool call found for function call output with call_id {thread.strays[0]}."
                raise ProviderFailure(what, kind="bad_request")
        schemas = [(f"function {tool.name}", tool.parameters) for tool in request.tools if tool.strict]
        schemas += [(f"response_format {request.output.name}", request.output.schema)] if request.output else []
        for what, schema in schemas:
            faults = strict_faults(schema)
            if faults:
                raise ProviderFailure(f"Invalid schema for {what}: {faults[0]}", kind="bad_request")
        if self._window is not None and _input_tokens(request, thread) > self._window:
            what = f"the input is longer than the context window of {self._window} tokens"
            raise ProviderFailure(what, kind="too_long")

    # --- the script

    def _next(self, request: Request, thread: _Thread) -> ScriptedReply:
        if callable(self._script):
            return script.parse(self._script(request, self.effective(request)), f"the reply for step {request.step!r}")
        replies, where = self._replies(request)
        given = self._traceless[thread.root, thread.turn]
        reply = script.pick(replies, thread.turn, given)
        if reply is None:
            written = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
            asked = thread.turn + given + 1
            raise script.broken(f"step {request.step!r} asks for reply {asked}; {where} holds {written}")
        if not reply.leaves_trace:
            self._traceless[thread.root, thread.turn] += 1
        return reply

    def _replies(self, request: Request) -> tuple[Sequence[ScriptedReply], str]:
        of_item = f"{request.step}/{request.item}" if request.item else ""
        thread = "" if request.thread_name in ("main", "1") else f"/{request.thread_name}"
        name = (of_item if of_item and self._has(request, of_item + thread) else request.step) + thread
        if isinstance(self._script, Mapping):
            where = f"the script of step {name!r}"
            if name not in self._script:
                raise script.broken(f"there is no script for step {name!r}")
            return [script.parse(reply, where) for reply in self._script[name]], where
        folder = Path(request.model)
        path = self._root / folder / f"{name}.json"
        shown = f"{folder / name}.json (step {request.step!r})"
        if not folder.is_absolute() and not path.resolve().is_relative_to(self._root.resolve()):
            raise script.broken(f"{shown} lies outside the project")
        return script.load(path, shown), shown

    def _has(self, request: Request, name: str) -> bool:
        """Whether an item has replies of its own; without them, those of its step are for each."""
        if isinstance(self._script, Mapping):
            return name in self._script
        return (self._root / request.model / f"{name}.json").is_file()

    # --- the reply

    async def _say(self, request: Request, thread: _Thread, reply: ScriptedReply, listener: Listener) -> Reply:
        nonce = os.urandom(6)
        items = _output_items(nonce.hex(), reply)
        told = thread.with_output(request, items)
        response_id = told.to_id(nonce)
        listener(StreamEvent("created", response_id))
        await _stream(reply, request.timeout, listener)
        if self._traits.stores and reply.status == "completed":
            self._stored[response_id] = (*self.effective(request), *items)
        calls = tuple(
            ToolCall(item.data["call_id"], item.data["name"], item.data["arguments"])
            for item in items
            if item.data["type"] == "function_call"
        )
        chained = not is_synthetic(request.thread) and not self._ignores_chain
        return Reply(
            id=response_id,
            status=reply.status,
            text="" if reply.tool_calls else reply.answer,
            items=items,
            tool_calls=calls,
            refusal=reply.refusal,
            incomplete_reason=reply.incomplete_reason if reply.status == "incomplete" else None,
            previous=request.thread if chained else None,
            usage=None if reply.usage is None else reply.usage.over(_usage(request, thread, reply)),
            model=request.model,
        )


async def _stream(reply: ScriptedReply, timeout: float, listener: Listener) -> None:
    """The text in two parts with the delay between them, so that a cancelled call has said half of it."""
    text = "" if reply.tool_calls else reply.answer
    cut = len(text) * 2 // 5
    for part, wait in ((text[:cut], reply.delay), (text[cut:], 0.0)):
        if part:
            listener(StreamEvent("text", part))
        if wait > timeout:
            await asyncio.sleep(timeout)
            raise ProviderFailure(f"no complete reply within {timeout:g} s", kind="connection")
        await asyncio.sleep(wait)


def _output_items(nonce: str, reply: ScriptedReply) -> tuple[OutputItem, ...]:
    """The reply as a vendor's output items. A text beside tool calls is commentary, not the answer."""
    items: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        sealed = base64.b64encode(reply.reasoning.encode()).decode()
        items.append({"type": "reasoning", "id": f"rs_{nonce}", "summary": [], "encrypted_content": sealed})
    for number, search in enumerate(reply.searches):
        pages = [{"type": "url", "url": source.url} for source in search.sources]
        action = {"type": "search", "query": search.query, "sources": pages}
        items.append(
            {"type": "web_search_call", "id": f"ws_{nonce}{number:02x}", "status": "completed", "action": action}
        )
    if reply.refusal is not None:
        items.append(_message(nonce, {"type": "refusal", "refusal": reply.refusal}))
    elif reply.answer or not reply.tool_calls:
        message = _message(nonce, {"type": "output_text", "text": reply.answer, "annotations": _cited(reply)})
        items.append(message | {"phase": "commentary" if reply.tool_calls else "final_answer"})
    for number, call in enumerate(reply.tool_calls):
        item = {"type": "function_call", "id": f"fc_{nonce}{number:02x}", "call_id": _call_id(nonce, number)}
        items.append(item | {"name": call.name, "arguments": call.text, "status": "completed"})
    return tuple(OutputItem(item) for item in items)


def _cited(reply: ScriptedReply) -> list[dict[str, Any]]:
    """The pages that the answer refers to: all of it, as far as anybody knows."""
    whole = {"type": "url_citation", "start_index": 0, "end_index": len(reply.answer)}
    pages = [source for search in reply.searches for source in search.sources if source.cited]
    return [whole | {"url": source.url, "title": source.title} for source in pages]


def _message(nonce: str, part: dict[str, Any]) -> dict[str, Any]:
    message = {"type": "message", "id": f"msg_{nonce}", "role": "assistant", "status": "completed"}
    return message | {"content": [part]}


def _call_id(nonce: str, number: int) -> str:
    return f"call_{nonce}{number:02x}"


# --- where a request stands in its conversation -----------------------------------------------------------------------

_FIELDS: Final = (("root", 4), ("turn", 2), ("size", 5), ("sent", 5), ("calls", 1))  # of an id, with their bytes
_NONCE, _CHECK = 6, 2


@dataclass(frozen=True, slots=True)
class _Thread:
    """A conversation before its next reply: `root` is a tag of its first thread id, `turn` counts its replies, `size`
    is the bytes of its items, `sent` the bytes that the call before had already sent. `open_calls` are tool calls
    without an output, `strays` outputs without a call."""

    root: str
    turn: int
    size: int
    sent: int
    open_calls: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()

    @staticmethod
    def of_items(thread_id: str, items: Sequence[Item]) -> _Thread:
        """A conversation whose items are all there, as in a first call or a replay."""
        turn = size = sent = 0
        before: Item | None = None
        for item in items:
            if isinstance(item, OutputItem) and not isinstance(before, OutputItem):
                turn, sent = turn + 1, size
            size += _weight(item)
            before = item
        root = hashlib.sha256(thread_id.encode()).hexdigest()[:8]
        calls = _call_ids([item for item in items if isinstance(item, OutputItem)])
        return _Thread(root, turn, size, sent, *_match(calls, items))

    def with_items(self, items: Sequence[Item]) -> _Thread:
        """The same conversation, chained on, with what is new."""
        size = self.size + sum(_weight(item) for item in items)
        return _Thread(self.root, self.turn, size, self.sent, *_match(self.open_calls, items))

    def with_output(self, request: Request, items: Sequence[OutputItem]) -> _Thread:
        """The conversation after a reply. All of this call's input has now been sent once."""
        size = self.size + sum(_weight(item) for item in items)
        return _Thread(self.root, self.turn + 1, size, self.size, _call_ids(items))

    def to_id(self, nonce: bytes) -> str:
        """A response id that another process can read: what the next call on it must know, and a check sum."""
        numbers = {"root": int(self.root, 16), "turn": self.turn, "size": self.size, "sent": self.sent}
        numbers["calls"] = len(self.open_calls)
        content = nonce + b"".join(numbers[name].to_bytes(width, "big") for name, width in _FIELDS)
        return "resp_" + (content + hashlib.sha256(content).digest()[:_CHECK]).hex()

    @staticmethod
    def of_id(response_id: str) -> _Thread | None:
        """The conversation an id stands for; None for an id that was not made here."""
        try:
            raw = bytes.fromhex(response_id.removeprefix("resp_"))
        except ValueError:
            return None
        content, check = raw[:-_CHECK], raw[-_CHECK:]
        if len(content) != _NONCE + sum(w for _, w in _FIELDS) or hashlib.sha256(content).digest()[:_CHECK] != check:
            return None
        numbers, at = {}, _NONCE
        for name, width in _FIELDS:
            numbers[name] = int.from_bytes(content[at : at + width], "big")
            at += width
        calls = tuple(_call_id(content[:_NONCE].hex(), number) for number in range(numbers["calls"]))
        return _Thread(f"{numbers['root']:08x}", numbers["turn"], numbers["size"], numbers["sent"], calls)


def _call_ids(items: Sequence[OutputItem]) -> tuple[str, ...]:
    return tuple(str(item.data["call_id"]) for item in items if item.data.get("type") == "function_call")


def _match(calls: Sequence[str], items: Sequence[Item]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tool calls without an output, and outputs without a call."""
    answered = [item.call_id for item in items if isinstance(item, ToolOutput)]
    return tuple(c for c in calls if c not in answered), tuple(c for c in answered if c not in calls)


def _weight(item: Item) -> int:
    if isinstance(item, TextItem) and item.files:
        return _weight(replace(item, files=())) + sum(file.tokens * 7 // 2 for file in item.files)
    return sum(len(canonical_json(data, indent=None)) for data in openai_wire.item_data(item))


def _item_text(item: Item) -> str:
    if isinstance(item, TextItem):
        return item.text
    return item.output if isinstance(item, ToolOutput) else canonical_json(dict(item.data), indent=None).decode()


# --- usage ------------------------------------------------------------------------------------------------------------


def _fixed_bytes(request: Request) -> int:
    """What every call of a thread sends again: system text, tools, output format."""
    tools = [[tool.name, tool.description, dict(tool.parameters)] for tool in request.tools]
    form = dict(request.output.schema) if request.output else None
    hosted = [[tool.digest for tool in request.hosted]] if request.hosted else []
    return len(canonical_json([request.system, tools, form, *hosted], indent=None))


def _input_tokens(request: Request, thread: _Thread) -> int:
    return of_bytes(_fixed_bytes(request) + thread.size)


def _usage(request: Request, thread: _Thread, reply: ScriptedReply) -> Usage:
    prefix = of_bytes(_fixed_bytes(request) + thread.sent) if thread.turn else 0
    said = [reply.answer, reply.refusal or "", *(call.name + call.text for call in reply.tool_calls)]
    reasoning = of_bytes(len((reply.reasoning or "").encode()))
    return Usage(
        input_tokens=_input_tokens(request, thread),
        cached_tokens=prefix - prefix % CACHE_BLOCK if prefix >= CACHE_FROM else 0,
        output_tokens=of_bytes(sum(len(text.encode()) for text in said)) + reasoning,
        reasoning_tokens=reasoning,
        web_searches=len(reply.searches),
    )
