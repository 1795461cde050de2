"""The driver for Anthropic's Messages API and for servers that speak it, on the vendor's own SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from orchestrator.errors import ProviderFailure
from orchestrator.ids import is_synthetic
from orchestrator.providers import anthropic_reply, anthropic_wire
from orchestrator.providers.answers import error_of
from orchestrator.providers.base import FailureKind, Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.vendor import VendorProvider, events, truncated
from orchestrator.values import Reply, Request

COUNT_SECONDS: Final = 10.0


class AnthropicProvider(VendorProvider):
    """An endpoint with a Messages API. Nothing is kept there: every call replays its thread. With `chaining = "server"`
    the vendor keeps a thread for some minutes (Message Threads), and a call sends what is new."""

    api: ClassVar[str] = "Messages API"
    package: ClassVar[str] = "anthropic"
    path: ClassVar[str] = "/v1/messages"
    _unkept = False  # the vendor keeps no thread of this account's, or none like these

    def wire(self, request: Request) -> bytes:
        return anthropic_wire.wire(request, threads=self._threads)

    @property
    def traits(self) -> Traits:
        return replace(self._traits, chaining="replay") if self._unkept else self._traits

    @property
    def _threads(self) -> bool:
        return self.traits.chaining == "server"

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """One try. A message that is not known is refused, so an answer has seen the one that was named; whether the
        server has looked at the name at all, the chain sees by the tokens that it counts (S12)."""
        asked = self._threads  # another call may learn meanwhile that there are none
        try:
            reply = await super().respond(request, listener)
        except ProviderFailure as failure:
            if failure.kind != "chain_unsupported" or not asked:
                raise
            self._unkept = True  # from now on threads are sent whole
            if not is_synthetic(request.thread):
                raise
            reply = await super().respond(request, listener)
        return reply if is_synthetic(request.thread) else replace(reply, previous=request.thread)

    async def count(self, request: Request) -> int | None:
        if not self._key or not is_synthetic(request.thread):  # what a thread holds is not counted anywhere
            return None
        import httpx2

        sdk, client = self._sdk(), self._client()
        try:
            async with asyncio.timeout(min(request.timeout, COUNT_SECONDS)):
                answer = await client.post(
                    f"{self.path}/count_tokens",
                    cast_to=object,
                    content=anthropic_wire.counted(request),
                    options={"headers": self._headers(request)},
                )
        except (sdk.AnthropicError, httpx2.HTTPError, TimeoutError, ValueError, RecursionError):
            return None  # the request itself will say what is wrong
        found = answer.get("input_tokens") if isinstance(answer, Mapping) else None
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None

    def _headers(self, request: Request) -> dict[str, str]:
        betas = anthropic_wire.betas(request, threads=self._threads)
        return {"anthropic-beta": betas} if betas else {}

    def _sdk(self) -> Any:
        import anthropic

        return anthropic

    def _open(self, http: Any) -> Any:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(
            api_key=self._key, base_url=self._base_url, max_retries=0, http_client=http, open_telemetry=False
        )

    async def _read(self, stream: Any, listener: Listener) -> Reply:
        message = anthropic_reply.Assembly()
        told = False
        async for event in events(stream, self._scrubber):
            text = message.see(event)
            if message.id and not told:
                told = True
                listener(StreamEvent("created", message.id))
            if text:
                listener(StreamEvent("text", text))
            if message.ended:
                return message.whole(self._scrubber.data)
        raise truncated(told)

    def _whole(self, document: Mapping[str, Any]) -> Reply:
        return anthropic_reply.reply(document)

    def _refusal_kind(self, status: int, error: object, request: Request) -> FailureKind:
        return anthropic_wire.refusal_kind(status, error)

    def _broken_off(self, error: object) -> ProviderFailure:
        return anthropic_wire.broken_off(error_of(error))
