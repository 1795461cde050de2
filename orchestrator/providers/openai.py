"""The drivers on OpenAI's own SDK: its Responses API, and chat completions for servers that have no other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote

from orchestrator.errors import ProviderFailure
from orchestrator.ids import is_synthetic
from orchestrator.providers import chat_wire, openai_wire
from orchestrator.providers.answers import malformed, response_id
from orchestrator.providers.base import RETRYABLE, FailureKind, Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.openai_wire import Dialect, Ending
from orchestrator.providers.vendor import EVENTS, VendorProvider, events, timeouts, truncated, whole_body
from orchestrator.values import Reply, Request

ENDINGS: Final[Mapping[str, Ending]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
RUNNING: Final = frozenset({"queued", "in_progress"})
GIVE_UP_SECONDS: Final = 5.0


class _OpenAISdk(VendorProvider):
    """What both have of the SDK; the rest of `options` is VendorProvider's."""

    package: ClassVar[str] = "openai"

    def __init__(
        self, traits: Traits, *, organization: str | None = None, project: str | None = None, **options: Any
    ) -> None:
        super().__init__(traits, **options)
        self._account = (organization, project)

    def _sdk(self) -> Any:
        import openai

        return openai

    def _open(self, http: Any) -> Any:
        from openai import AsyncOpenAI

        client = AsyncOpenAI(api_key=self._key, base_url=self._base_url, max_retries=0, http_client=http)
        # Set afterwards: where there are none, it would take those of the process's environment, for any server.
        client.organization, client.project = self._account
        return client

    def _options(self, timeout: Any) -> dict[str, Any]:
        return {"timeout": timeout, "security": {"bearer_auth": True}}

    def _refusal_kind(self, status: int, error: object, request: Request) -> FailureKind:
        return openai_wire.refusal_kind(status, error, chained=not is_synthetic(request.thread))

    def _broken_off(self, error: object) -> ProviderFailure:
        return openai_wire.failed(error, "the stream broke off", unknown="overloaded")


class OpenAIProvider(_OpenAISdk):
    """An endpoint with a Responses API."""

    api: ClassVar[str] = "Responses API"
    path: ClassVar[str] = "/responses"

    def __init__(self, traits: Traits, dialect: Dialect, **options: Any) -> None:
        super().__init__(traits, **options)
        self._dialect = dialect

    def wire(self, request: Request) -> bytes:
        return openai_wire.wire(request, self._dialect)

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        """The response as it is kept; one that is made in the background is followed to its end. None for one that is
        not there, has failed, or was never to be finished without a listener."""
        try:
            return await self._tried(request, lambda client: self._kept(client, response_id, request, listener, after))
        except ProviderFailure as failure:
            if failure.kind in RETRYABLE:
                raise
            return None

    async def give_up(self, response_id: str, request: Request) -> None:
        """Stop a response that is made in the background; one that has ended, or is not there, is left as it is."""
        at_once = replace(request, timeout=min(request.timeout, GIVE_UP_SECONDS))
        with suppress(ProviderFailure):
            await self._tried(at_once, lambda client: self._cancel(client, response_id, at_once.timeout))

    async def _cancel(self, client: Any, response_id: str, timeout: float) -> None:
        path = f"{self.path}/{quote(response_id, safe='')}/cancel"
        await client.post(path, cast_to=object, options=self._options(timeouts(timeout)))

    async def _kept(
        self, client: Any, response_id: str, request: Request, listener: Listener, after: int | None
    ) -> Reply | None:
        if after is None:
            found = await self._get(client, response_id, request.timeout, {}, listener)
            if isinstance(found, Reply) or found is None:
                return found
            if found.get("background") is not True or found.get("status") not in RUNNING:
                return None
        place = {} if after is None else {"starting_after": str(after)}
        found = await self._get(client, response_id, request.timeout, {"stream": "true", **place}, listener)
        if isinstance(found, Reply) or found is None:
            return found
        raise ProviderFailure("the response is still being made, and is not streamed", kind="connection")

    async def _get(
        self, client: Any, response_id: str, timeout: float, params: Mapping[str, str], listener: Listener
    ) -> Reply | Mapping[str, Any] | None:
        """A kept response: the reply where it has ended with one, None where it has ended without, else as it is."""
        stream = await client.get(
            f"{self.path}/{quote(response_id, safe='')}",
            cast_to=object,
            options={**self._options(timeouts(timeout)), "params": dict(params)},
            stream=True,
            stream_cls=self._sdk().AsyncStream[object],
        )
        async with stream:
            kind = stream.response.headers.get("content-type", "")
            if EVENTS in kind:
                return await self._read(stream, listener)
            document = self._document(await whole_body(stream.response), kind)
        if document.get("id") != response_id:
            return None
        if document.get("status") in RUNNING:
            return document
        return self._whole(document) if document.get("status") in ("completed", "incomplete") else None

    async def _read(self, stream: Any, listener: Listener) -> Reply:
        reading = _Reading(listener)
        async for event in events(stream, self._scrubber):
            reply = reading.see(event)
            if reply is not None:
                return reply
        raise truncated(reading.begun)

    def _whole(self, document: Mapping[str, Any]) -> Reply:
        ending = ENDINGS.get(f"response.{document.get('status')}")
        if document.get("object") != "response" or ending is None:
            raise malformed("no event stream, and no response with an end")
        return openai_wire.reply(document, ending)

    def _missing(self) -> str:
        chat = f'write kind = "chat" under [providers.{self.traits.name}]'
        return f"{super()._missing()}; for a server that speaks chat completions only, {chat}"


class ChatProvider(_OpenAISdk):
    """An endpoint with a chat completions API. Nothing is kept there: every call replays its thread."""

    api: ClassVar[str] = "chat completions API"
    path: ClassVar[str] = "/chat/completions"

    def __init__(self, traits: Traits, dialect: chat_wire.Dialect, **options: Any) -> None:
        super().__init__(traits, **options)
        self._dialect = dialect

    def wire(self, request: Request) -> bytes:
        return chat_wire.wire(request, self._dialect)

    async def _read(self, stream: Any, listener: Listener) -> Reply:
        message = chat_wire.Assembly()
        told = False
        try:
            async for chunk in events(stream, self._scrubber):
                text = message.see(chunk)
                if message.id and not told:
                    told = True
                    listener(StreamEvent("created", message.id))
                if text:
                    listener(StreamEvent("text", text))
        except Exception:
            # What follows the end of the reply is its bill: without it the reply is as good, and its cost not known.
            if not message.ended:
                raise
        if not message.ended:
            raise truncated(told)
        return message.whole(self._scrubber.data)

    def _whole(self, document: Mapping[str, Any]) -> Reply:
        choices = document.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, Mapping) else None
        if not isinstance(first, Mapping) or not isinstance(message, Mapping):
            raise malformed("no event stream, and no message either")
        return chat_wire.reply(document, message, first.get("finish_reason"))


class _Reading:
    """One stream, read up to its terminal event."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._id = ""
        self._sequence: int | None = None
        self._items: dict[int, Mapping[str, Any]] = {}
        self._commentary: set[int] = set()

    @property
    def begun(self) -> bool:
        return bool(self._id)

    def see(self, event: Mapping[str, Any]) -> Reply | None:
        """Take an event in; the reply, if it was the last. Raises ProviderFailure."""
        kind = str(event.get("type"))
        number = event.get("sequence_number")
        self._sequence = number if isinstance(number, int) else None
        if kind in ENDINGS:
            items = [self._items[index] for index in sorted(self._items)]
            reply = openai_wire.reply(event.get("response"), ENDINGS[kind], items)
            self._created(reply.id)
            return reply
        if kind == "error":
            raise openai_wire.failed(event, "the stream broke off", unknown="overloaded")
        if kind == "response.created":
            self._created(response_id(event.get("response")))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(event, done=kind.endswith("done"))
        elif kind == "response.output_text.delta":
            index, delta = event.get("output_index"), event.get("delta")
            if isinstance(delta, str) and not (isinstance(index, int) and index in self._commentary):
                self._listener(StreamEvent("text", delta, sequence=self._sequence))
        return None

    def _created(self, found: str) -> None:
        """Report the id once, as soon as it is known."""
        if found != self._id:
            self._id = found
            self._listener(StreamEvent("created", found, sequence=self._sequence))

    def _item(self, event: Mapping[str, Any], *, done: bool) -> None:
        index, item = event.get("output_index"), event.get("item")
        if not isinstance(index, int) or not isinstance(item, Mapping):
            return
        if item.get("phase") not in (None, "final_answer"):
            self._commentary.add(index)
        if done:
            self._items[index] = item


OPENAI_HOST: Final = "api.openai.com"
REPLAY_HOST: Final = "openrouter.ai"  # it refuses an id, and `store` with it; it stores nothing in any case


def dialect_for(traits: Traits, host: str) -> Dialect:
    """What an endpoint takes, by its traits; cache keys only where the host is known to be OpenAI's."""
    chains = traits.stores and traits.chaining != "replay"
    return Dialect(chains=chains, stores=traits.stores or host == REPLAY_HOST, caches=_is_openai(host))


def chat_dialect_for(host: str) -> chat_wire.Dialect:
    """OpenAI and Azure have renamed the cap on a reply, and take the old name for old models only; other servers may
    know nothing but the old one."""
    renamed = _is_openai(host) or host.endswith(".openai.azure.com")
    return chat_wire.Dialect("max_completion_tokens" if renamed else "max_tokens", caches=_is_openai(host))


def _is_openai(host: str) -> bool:
    return host == OPENAI_HOST or host.endswith("." + OPENAI_HOST)


def detect_chaining(traits: Traits, host: str) -> Traits:
    """`auto` settled by the host where it is known: OpenAI, Azure and xAI chain, OpenRouter refuses to."""
    if not traits.stores:
        return replace(traits, chaining="replay")
    if traits.chaining != "auto":
        return traits
    if _is_openai(host) or host == "api.x.ai" or host.endswith(".openai.azure.com"):
        return replace(traits, chaining="server")
    return replace(traits, chaining="replay") if host == REPLAY_HOST else traits
