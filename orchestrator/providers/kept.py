"""Answers that a provider goes on making, or has kept, while nobody listened: heard to their end, asked for once.

A `Kept` stands in for a provider during one call. It remembers the id under which the answer began and how far it was
heard; a further try of the same call then listens again from there, which costs nothing, and asks anew only where there
is nothing to be had any more. With an id from before, of a call whose process died, it never asks anew: that is for the
caller to decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Listener, Provider, StreamEvent, Traits, may_be_billed, no_listener
from orchestrator.providers.retry import nothing
from orchestrator.values import Reply, Request


class Kept:
    """One call's provider. `response_id` is that of an answer which was begun before; `again` is awaited ahead of each
    further time that it is asked for anew, where the time before may have been billed."""

    def __init__(
        self, provider: Provider, response_id: str = "", again: Callable[[], Awaitable[None]] = nothing
    ) -> None:
        self._provider = provider
        self._again = again
        self._may_be_billed = False
        self._id = response_id
        self._asks = not response_id
        self._sequence: int | None = None

    @property
    def traits(self) -> Traits:
        return self._provider.traits

    @property
    def begun(self) -> bool:
        """Whether an answer was begun, which may be billed whatever is heard of it."""
        return bool(self._id)

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """The answer. Raises ProviderFailure: as the provider does, and `bad_request` where an answer begun before is
        not to be had."""

        def hear(event: StreamEvent) -> None:
            if event.kind == "created" and event.data != self._id:
                self._id, self._sequence = event.data, None
            self._sequence = self._sequence if event.sequence is None else event.sequence
            listener(event)

        if self._id:
            kept = await self._listen(request, hear)
            if kept is not None:
                return kept
        if not self._asks:
            raise ProviderFailure("the provider has no answer under this id", kind="bad_request")
        self._id = ""
        if self._may_be_billed:
            await self._again()
        try:
            return await self._provider.respond(request, hear)
        except ProviderFailure as failure:
            self._may_be_billed = may_be_billed(failure)
            raise

    async def _listen(self, request: Request, hear: Listener) -> Reply | None:
        try:
            return await self._provider.retrieve(self._id, request, hear, after=self._sequence)
        except ProviderFailure as failure:
            if failure.kind == "overloaded":  # or it has ended so: then there is no more of the stream
                self._sequence = None
            raise

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        return await self._provider.retrieve(response_id, request, listener, after=after)

    async def give_up(self, response_id: str, request: Request) -> None:
        await self._provider.give_up(response_id, request)

    async def forget(self, request: Request) -> None:
        """Give up the answer that was begun, if one was."""
        if self._id:
            await self._provider.give_up(self._id, request)

    async def count(self, request: Request) -> int | None:
        return await self._provider.count(request)

    def wire(self, request: Request) -> bytes:
        return self._provider.wire(request)

    async def close(self) -> None:
        """The provider outlives the call."""
