"""A provider that writes down what a real one answers, so that the run can be had again without it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import Listener, Provider, Traits, no_listener
from orchestrator.providers.cassettes import TELLING, Recording, Told, key_of, path_of, question, write
from orchestrator.providers.registry import ProjectRoot, Providers, ProviderSettings
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Reply, Request


class Recorder(Providers):
    """The project's providers, each of which records what it is asked and what it answers. `folder` is made here.

    Raises ConfigError where it cannot be."""

    def __init__(self, project: ProjectRoot, settings: ProviderSettings, folder: Path) -> None:
        super().__init__(project, settings)
        self._tape = Tape(folder, Scrubber(settings.secret_values()))
        self._recording: dict[str, RecordingProvider] = {}

    def get(self, name: str) -> Provider:
        if name not in self._recording:
            self._recording[name] = RecordingProvider(super().get(name), self._tape)
        return self._recording[name]


class Tape:
    """The folder as this process fills it. What was recorded before for the same request is replaced; a request that is
    made more than once keeps all its replies, in order."""

    def __init__(self, folder: Path, scrubber: Scrubber) -> None:
        self._folder = folder
        self._scrubber = scrubber
        self._made: dict[str, Recording] = {}
        self._lock = asyncio.Lock()
        try:
            if folder.is_symlink():
                raise OSError(0, "it is a symbolic link")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error

    async def add(self, traits: Traits, request: Request, outcome: Reply | ProviderFailure) -> None:
        """Raises ConfigError where the folder cannot be written."""
        asked = self._scrubber.data(question(request))
        key = key_of(asked)
        told = Told.model_validate(self._scrubber.data(Told.of(outcome).model_dump(mode="json")))
        async with self._lock:
            before = self._made.get(key)
            made = before or Recording(
                step=request.step,
                item=request.item,
                thread=request.thread_name,
                call=request.call,
                provider=traits.name,
                chaining=traits.chaining,
                stores=traits.stores,
                request=asked,
                told=[told],
            )
            if before is not None:
                made = before.model_copy(update={"told": [*before.told, told]})
            self._made[key] = made
            try:
                await asyncio.to_thread(write, path_of(self._folder, made, key), made)
            except OSError as error:
                raise _unwritable(self._folder, error) from error


class RecordingProvider:
    """One provider, listened to."""

    def __init__(self, inner: Provider, tape: Tape) -> None:
        self._inner = inner
        self._tape = tape

    @property
    def traits(self) -> Traits:
        return self._inner.traits

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        try:
            reply = await self._inner.respond(request, listener)
        except ProviderFailure as failure:
            if failure.kind in TELLING:
                await self._tape.add(self.traits, request, failure)
            raise
        await self._tape.add(self.traits, request, reply)
        return reply

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        reply = await self._inner.retrieve(response_id, request, listener, after=after)
        if reply is not None:
            await self._tape.add(self.traits, request, replace(reply, tries=1))
        return reply

    async def give_up(self, response_id: str, request: Request) -> None:
        await self._inner.give_up(response_id, request)

    async def count(self, request: Request) -> int | None:
        return await self._inner.count(request)

    def wire(self, request: Request) -> bytes:
        return self._inner.wire(request)

    async def close(self) -> None:
        await self._inner.close()


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the run cannot be recorded in {folder}: {error.strerror or error}", hint="give --record a folder of your own"
    )
