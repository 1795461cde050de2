"""What every provider keeps to, run over each: the scripted one in process, the drivers over the strict servers.

The chain is written against these rules and nothing else, so a new driver has to pass here and nowhere else.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.ids import canonical_json, synthetic_thread_id
from orchestrator.providers.base import Provider, StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Item, OutputFormat, Reply, Request, TextItem, ToolOutput, ToolSpec
from tests.strict_chat import ChatServer
from tests.strict_messages import MessagesServer
from tests.strict_server import Fault, Seen, StrictServer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
LOOK = ToolSpec("look", "Looks something up.", SCHEMA)
CALL = {"tool_calls": [{"name": "look", "arguments": {"a": 1}}, {"name": "look", "arguments": {"a": 2}}]}


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return "sk-test-key" if name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") else None

    def secret_values(self) -> tuple[str, ...]:
        return ()


@dataclass
class Project:
    root: Path = Path()


class World(ABC):
    """A provider and what stands behind it: written replies per thread, and knobs a vendor would not give us."""

    provider: Provider
    optional_fields = False  # whether a schema may leave fields optional

    @property
    def chains(self) -> bool:
        return self.provider.traits.chaining != "replay"

    def on(self, request: Request, reply: Reply, *items: Item) -> Request:
        """The call after this one: on the reply's id where there are ids, else with everything that was said."""
        if self.chains:
            return replace(request, thread=reply.id, items=items)
        return replace(request, items=(*request.items, *reply.items, *items))

    @abstractmethod
    def forget(self, response_id: str) -> None: ...

    @abstractmethod
    def effective(self, call: int) -> str:
        """All the model saw with the n-th request, as text."""

    def send(self, *requests: Request, events: list[StreamEvent] | None = None) -> list[Reply]:
        async def go() -> list[Reply]:
            listen = ([] if events is None else events).append
            try:
                return [await self.provider.respond(request, listen) for request in requests]
            finally:
                await self.provider.close()

        return asyncio.run(go())

    def fails(self, request: Request) -> str:
        with pytest.raises(ProviderFailure) as caught:
            self.send(request)
        assert caught.value.exit_code == 6
        return caught.value.kind


class Scripted(World):
    def __init__(self, replies: Sequence[Any], *, zdr: bool, ignores_chain: bool) -> None:
        self.scripted = ScriptedProvider({"step": replies}, zdr=zdr, ignores_chain=ignores_chain)
        self.provider = self.scripted

    def forget(self, response_id: str) -> None:
        self.scripted.forget(response_id)

    def effective(self, call: int) -> str:
        return self.scripted.effective_text(self.scripted.requests[call])


class OverHttp(World):
    def __init__(self, server: StrictServer, *, zdr: bool, ignores_chain: bool) -> None:
        self.server = server
        spec = ProviderSpec(kind="openai", base_url=server.base_url, store=False if zdr else None)
        self.provider = Providers(Project(), Settings({"openai": spec})).get("openai")

    def forget(self, response_id: str) -> None:
        self.server.forget(response_id)

    def effective(self, call: int) -> str:
        seen = self.server.seen[call]
        return canonical_json([seen.body.get("instructions"), *seen.effective]).decode()


class AnthropicOverHttp(World):
    optional_fields = True

    def __init__(self, server: MessagesServer) -> None:
        self.server = server
        spec = ProviderSpec(kind="anthropic", base_url=server.base_url)
        self.provider = Providers(Project(), Settings({"anthropic": spec})).get("anthropic")

    def forget(self, response_id: str) -> None:
        """Nothing is known there."""

    def effective(self, call: int) -> str:
        seen = self.server.seen[call]
        return canonical_json([seen.body.get("system"), *seen.effective]).decode()


class ChatOverHttp(World):
    def __init__(self, server: ChatServer) -> None:
        self.server = server
        spec = ProviderSpec(kind="chat", base_url=server.base_url)
        self.provider = Providers(Project(), Settings({"local": spec})).get("local")

    def forget(self, response_id: str) -> None:
        """Nothing is known there."""

    def effective(self, call: int) -> str:
        return canonical_json(self.server.seen[call].effective).decode()


Make = Callable[..., World]
EVERY = ("scripted", "openai over HTTP", "anthropic over HTTP", "chat over HTTP")
WITH_IDS = pytest.mark.parametrize("world", EVERY[:2], indirect=True)


@pytest.fixture(params=EVERY)
def world(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a world: `world(reply, reply, …, zdr=, ignores_chain=)`."""
    servers: list[StrictServer] = []

    def make(*replies: Any, zdr: bool = False, ignores_chain: bool = False) -> World:
        flags = {"zdr": zdr, "ignores_chain": ignores_chain}
        if request.param == "scripted":
            return Scripted(replies, **flags)

        def answer(seen: Seen) -> dict[str, Any]:
            reply = replies[seen.turn]
            return {"text": reply} if isinstance(reply, str) else dict(reply)

        if request.param == "anthropic over HTTP":
            messages = MessagesServer(answer)
            servers.append(messages.__enter__())
            return AnthropicOverHttp(messages)
        if request.param == "chat over HTTP":
            chat = ChatServer(answer)
            servers.append(chat.__enter__())
            return ChatOverHttp(chat)
        server = StrictServer(answer, zdr=zdr, ignore_chain=ignores_chain)
        servers.append(server.__enter__())
        return OverHttp(server, **flags)

    yield make
    for server in servers:
        server.__exit__()


THREAD = synthetic_thread_id("s")
HELLO = TextItem(("hello",))
MORE = TextItem(("more",))


def ask(thread: str = THREAD, *items: Item, **more: Any) -> Request:
    return Request("m", thread, "system text", items or (HELLO,), step="step", timeout=10, **more)


def test_a_thread_goes_on_reply_by_reply(world: Make) -> None:
    it = world("one", "two", "three")
    [first] = it.send(one := ask())
    [second] = it.send(two := it.on(one, first, MORE))
    [third] = it.send(it.on(two, second, MORE))
    ids = [None, first.id, second.id] if it.chains else [None] * 3
    assert [(r.text, r.status) for r in (first, second, third)] == [
        (text, "completed") for text in ("one", "two", "three")
    ]
    assert [reply.previous for reply in (first, second, third)] == ids
    assert len({first.id, second.id, third.id}) == 3
    assert not any(reply.id.startswith("synthetic_") for reply in (first, second, third))
    assert [word in it.effective(2) for word in ("hello", "one", "two", "more")] == [True] * 4


def test_a_reply_can_be_gone_on_from_twice(world: Make) -> None:
    it = world("one", "two")
    [first] = it.send(one := ask())
    [left, right] = it.send(it.on(one, first, MORE), it.on(one, first, TextItem(("other",))))
    assert (left.text, right.text) == ("two", "two")
    assert left.previous == right.previous == (first.id if it.chains else None)


@WITH_IDS
def test_replaying_all_items_is_as_good_as_chaining(world: Make) -> None:
    it = world({**CALL, "reasoning": "hm"}, "two")
    [first] = it.send(ask(tools=(LOOK,)))
    answers = [ToolOutput(call.call_id, "7") for call in first.tool_calls]
    [chained] = it.send(ask(first.id, *answers, tools=(LOOK,)))
    [replayed] = it.send(ask(THREAD, HELLO, *first.items, *answers, tools=(LOOK,)))
    assert (chained.text, chained.previous) == ("two", first.id)
    assert (replayed.text, replayed.previous) == ("two", None)
    assert chained.usage is not None
    assert replayed.usage is not None
    assert chained.usage.input_tokens == replayed.usage.input_tokens, "chaining saves upload, not tokens"


def test_the_wire_is_pure_and_carries_no_synthetic_id(world: Make) -> None:
    it = world("one", "two")
    first = it.provider.wire(ask())
    assert first == it.provider.wire(ask(synthetic_thread_id("other")))
    assert b"previous_response_id" not in first
    assert b"synthetic_" not in first
    if it.chains:
        assert b'"previous_response_id": "resp_7"' in it.provider.wire(ask("resp_7"))


def test_ids_come_before_text_and_text_comes_in_order(world: Make) -> None:
    events: list[StreamEvent] = []
    [reply] = world("a longer reply").send(ask(), events=events)
    assert (events[0].kind, events[0].data) == ("created", reply.id)
    assert "".join(event.data for event in events[1:]) == "a longer reply"


@pytest.mark.parametrize("thread", ["resp_never", "xsynthetic_s"])
def test_an_unknown_id_is_a_lost_chain(world: Make, thread: str) -> None:
    it = world("one")
    assert it.fails(ask(thread, MORE)) == ("chain_lost" if it.chains else "chain_unsupported")


@WITH_IDS
def test_A5_a_forgotten_id_is_a_lost_chain_and_replay_mends_it(world: Make) -> None:
    it = world("one", "two", "three")
    [first] = it.send(ask())
    it.forget(first.id)
    assert it.fails(ask(first.id, MORE)) == "chain_lost"
    [second] = it.send(ask(THREAD, HELLO, *first.items, MORE))
    [third] = it.send(ask(second.id, MORE))
    assert (second.text, third.text, third.previous) == ("two", "three", second.id)


def test_every_tool_call_wants_its_output_at_once(world: Make) -> None:
    it = world(CALL, "done")
    [first] = it.send(opening := ask(tools=(LOOK,)))
    assert [(call.name, call.arguments) for call in first.tool_calls] == [("look", '{"a": 1}'), ("look", '{"a": 2}')]
    one, two = (ToolOutput(call.call_id, "7") for call in first.tool_calls)
    assert it.fails(it.on(opening, first, MORE)) == "unanswered_call"
    assert it.fails(it.on(opening, first, one)) == "unanswered_call"
    assert it.fails(ask(THREAD, HELLO, *first.items, one)) == "unanswered_call"
    odd = it.fails(it.on(opening, first, one, two, ToolOutput("call_x", "?")))
    assert odd in ("bad_request", "chain_unsupported"), "a server that does not look at the id says the same"
    [done] = it.send(it.on(opening, first, one, two))
    assert done.text == "done"


@WITH_IDS
def test_A6_without_storage_no_id_leaves_and_reasoning_is_carried(world: Make) -> None:
    it = world({**CALL, "reasoning": "CANARY"}, "two", zdr=True)
    traits = it.provider.traits
    assert (traits.stores, traits.chaining) == (False, "replay")
    [first] = it.send(ask(tools=(LOOK,)))
    sealed = [item for item in first.items if item.data["type"] == "reasoning"]
    assert sealed[0].data["encrypted_content"]
    answers = [ToolOutput(call.call_id, "7") for call in first.tool_calls]
    assert it.fails(ask(first.id, *answers)) in ("chain_lost", "chain_unsupported")
    [second] = it.send(ask(THREAD, HELLO, *first.items, *answers, tools=(LOOK,)))
    assert second.text == "two"


@WITH_IDS
def test_S12_a_server_that_ignores_the_id_shows_in_the_echo(world: Make) -> None:
    it = world("one", "two", ignores_chain=True)
    assert it.provider.traits.chaining == "auto"
    [first] = it.send(ask())
    [second] = it.send(ask(first.id, MORE))
    assert (second.text, second.previous) == ("one", None), "a good status, and no history"
    assert "hello" not in it.effective(1)
    [replayed] = it.send(ask(THREAD, HELLO, *first.items, MORE))
    assert replayed.text == "two"


def test_a_cut_off_reply_and_a_refusal(world: Make) -> None:
    [cut] = world({"text": '{"a": ', "status": "incomplete"}).send(ask())
    assert (cut.status, cut.incomplete_reason, cut.text) == ("incomplete", "max_output_tokens", '{"a": ')
    [no] = world({"refusal": "I will not."}).send(ask())
    assert (no.status, no.refusal, no.text) == ("completed", "I will not.", "")


def test_schemas_that_are_not_strict_are_refused(world: Make) -> None:
    it = world("one")
    loose = {**SCHEMA, "required": []}
    if not it.optional_fields:
        assert it.fails(ask(output=OutputFormat("form", loose))) == "bad_request"
    opened = {**SCHEMA, "additionalProperties": True}
    assert it.fails(ask(output=OutputFormat("form", opened))) == "bad_request"
    assert it.fails(ask(tools=(replace(LOOK, parameters=opened),))) == "bad_request"
    assert it.send(ask(output=OutputFormat("form", SCHEMA), tools=(LOOK,)))[0].text == "one"


def test_usage_includes_what_was_cached(world: Make) -> None:
    it = world(CALL, "two")
    long = ask(THREAD, TextItem(("x" * 9000,)), tools=(LOOK,))
    [first] = it.send(long)
    [second] = it.send(it.on(long, first, *(ToolOutput(call.call_id, "7") for call in first.tool_calls)))
    for reply in (first, second):
        assert reply.usage is not None
        assert reply.usage.input_tokens > 9000 // 4
        assert 0 < reply.usage.output_tokens < 20
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.cached_tokens == 0
    assert second.usage.input_tokens > first.usage.input_tokens >= second.usage.cached_tokens > 2000


def test_another_thread_sees_nothing_of_the_first(world: Make) -> None:
    it = world({**CALL, "reasoning": "CANARY-1", "text": "CANARY-2"}, "two")
    [first] = it.send(opening := ask(tools=(LOOK,)))
    answers = [ToolOutput(call.call_id, "CANARY-3") for call in first.tool_calls]
    it.send(it.on(opening, first, *answers))
    it.send(ask(synthetic_thread_id("s")))
    assert [word in it.effective(1) for word in ("hello", "CANARY-2", "CANARY-3")] == [True] * 3
    assert "CANARY" not in it.effective(2)


def test_the_strict_server_answers_by_schema_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The stand-in as whole-command tests start it: generic answers, a tool call and an invalid answer first."""
    import json
    import subprocess
    import sys

    log = tmp_path / "log.jsonl"
    script = Path(__file__).parents[1] / "strict_server.py"
    options = ["--port", "0", "--tool-first", "--invalid-first", "--log", str(log)]
    with subprocess.Popen([sys.executable, str(script), *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            spec = ProviderSpec(kind="openai", base_url=url)
            request = ask(tools=(LOOK,), output=OutputFormat("form", SCHEMA))

            async def go() -> list[Reply]:
                provider = Providers(Project(), Settings({"openai": spec})).get("openai")
                first = await provider.respond(request)
                answer = ToolOutput(first.tool_calls[0].call_id, "7")
                second = await provider.respond(replace(request, thread=first.id, items=(answer,)))
                third = await provider.respond(replace(request, thread=second.id, items=(MORE,)))
                await provider.close()
                return [first, second, third]

            first, second, third = asyncio.run(go())
        finally:
            process.terminate()
    assert first.tool_calls[0].arguments == '{"a": 1}'
    assert second.text == '{"unexpected": true}'
    assert third.text == '{"a": 1}'
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["body"].get("previous_response_id") for line in lines] == [None, first.id, second.id]
    assert len(lines[2]["effective"]) == 5


def test_the_servers_faults_are_used_up_one_a_request() -> None:
    with StrictServer(lambda seen: {"text": "ok"}) as server:
        server.faults = [None, Fault(status=500)]
        it = OverHttp(server, zdr=False, ignores_chain=False)
        assert it.send(ask())[0].text == "ok"
        assert it.fails(ask()) == "overloaded"
        assert it.send(ask())[0].text == "ok"
