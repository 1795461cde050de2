"""The driver for OpenAI's Responses API and for servers that speak it, on the vendor's own SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from orchestrator.errors import ProviderFailure
from orchestrator.ids import is_synthetic
from orchestrator.providers import openai_wire
from orchestrator.providers.answers import malformed, response_id
from orchestrator.providers.base import FailureKind, Listener, StreamEvent, Traits
from orchestrator.providers.openai_wire import Dialect, Ending
from orchestrator.providers.vendor import VendorProvider, events, truncated
from orchestrator.values import Reply, Request

ENDINGS: Final[Mapping[str, Ending]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


class OpenAIProvider(VendorProvider):
    """An endpoint with a Responses API; the rest of `options` is VendorProvider's."""

    api: ClassVar[str] = "Responses API"
    package: ClassVar[str] = "openai"
    path: ClassVar[str] = "/responses"

    def __init__(
        self,
        traits: Traits,
        dialect: Dialect,
        *,
        organization: str | None = None,
        project: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(traits, **options)
        self._dialect = dialect
        self._account = (organization, project)

    def wire(self, request: Request) -> bytes:
        return openai_wire.wire(request, self._dialect)

    def _sdk(self) -> Any:
        import openai

        return openai

    def _open(self, http: Any) -> Any:
        from openai import AsyncOpenAI

        organization, project = self._account
        return AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            organization=organization,
            project=project,
            max_retries=0,
            http_client=http,
        )

    def _options(self, timeout: Any) -> dict[str, Any]:
        return {"timeout": timeout, "security": {"bearer_auth": True}}

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

    def _refusal_kind(self, status: int, error: object, request: Request) -> FailureKind:
        return openai_wire.refusal_kind(status, error, chained=not is_synthetic(request.thread))

    def _broken_off(self, error: object) -> ProviderFailure:
        return openai_wire.failed(error, "the stream broke off", unknown="overloaded")


class _Reading:
    """One stream, read up to its terminal event."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._id = ""
        self._items: dict[int, Mapping[str, Any]] = {}
        self._commentary: set[int] = set()

    @property
    def begun(self) -> bool:
        return bool(self._id)

    def see(self, event: Mapping[str, Any]) -> Reply | None:
        """Take an event in; the reply, if it was the last. Raises ProviderFailure."""
        kind = str(event.get("type"))
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
                self._listener(StreamEvent("text", delta))
        return None

    def _created(self, found: str) -> None:
        """Report the id once, as soon as it is known."""
        if found != self._id:
            self._id = found
            self._listener(StreamEvent("created", found))

    def _item(self, event: Mapping[str, Any], *, done: bool) -> None:
        index, item = event.get("output_index"), event.get("item")
        if not isinstance(index, int) or not isinstance(item, Mapping):
            return
        if item.get("phase") not in (None, "final_answer"):
            self._commentary.add(index)
        if done:
            self._items[index] = item


def dialect_for(traits: Traits, host: str) -> Dialect:
    """What an endpoint takes, by its traits; cache keys only where the host is known to be OpenAI's."""
    chains = traits.stores and traits.chaining != "replay"
    return Dialect(chains=chains, stores=traits.stores, caches=host == OPENAI_HOST or host.endswith("." + OPENAI_HOST))


OPENAI_HOST: Final = "api.openai.com"


def detect_chaining(traits: Traits, host: str) -> Traits:
    """`auto` settled by the host where it is known: OpenAI, Azure and xAI chain, OpenRouter refuses to."""
    if not traits.stores:
        return replace(traits, chaining="replay")
    if traits.chaining != "auto":
        return traits
    if host in (OPENAI_HOST, "api.x.ai") or host.endswith((".api.openai.com", ".openai.azure.com")):
        return replace(traits, chaining="server")
    return replace(traits, chaining="replay") if host == "openrouter.ai" else traits
