"""A provider that answers from recordings: the same requests get the same replies, at no cost and without a network.

Two doors. `orch run … --replay DIR` replays a project's own models; `replayed:DIR` is a model like any other
(`ORCH_MODEL=replayed:tests/tape`, a path from the project's root), for tests. A request that was not recorded is an
error that says of which step it is and what in it differs; nothing is ever made up. A request that was made several
times gets its replies in their order, and the last one again after that.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final, Literal

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers import openai_wire
from orchestrator.providers.base import Listener, Provider, StreamEvent, Traits, no_listener
from orchestrator.providers.cassettes import Cassette, differences, key_of, question
from orchestrator.providers.openai_wire import Dialect
from orchestrator.providers.prices import Prices
from orchestrator.providers.registry import ProjectRoot, Providers, ProviderSettings
from orchestrator.spec import Sensitivity
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Reply, Request

MOST_SHOWN: Final = 3


class ReplayedProvider:
    """Recordings as a provider. The request's model names their folder, below `root`, whatever models were recorded.

    With a `tape` it is that one. Where it stands for the provider `like`, requests are made as they were made to that,
    and their model is their own. `chaining` says how the recorded provider was spoken to, where no tape tells.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        chaining: Literal["auto", "server", "replay"] = "auto",
        may_see: Sensitivity = "internal",
        tape: Cassette | None = None,
        like: Provider | None = None,
        scrubber: Scrubber | None = None,
    ) -> None:
        self._root = root or Path()
        self._tape = tape
        self._like = like
        self._scrubber = scrubber or Scrubber(())
        self._tapes: dict[str, Cassette] = {}
        self._given: Counter[tuple[str, str]] = Counter()
        recorded = list(tape.by_key.values()) if tape is not None else []
        spoken = next((r for r in recorded if like is None or r.provider == like.traits.name), None)
        self._traits = Traits(
            "replayed",
            "",
            spoken.chaining if spoken is not None else chaining,
            stores=spoken.stores if spoken is not None else True,
            may_see=like.traits.may_see if like is not None else may_see,
            background=True,
            hosted=like.traits.hosted if like is not None else frozenset({"web_search", "web_fetch"}),
            hosted_can=like.traits.hosted_can if like is not None else frozenset({"blocked"}),
            edits=frozenset({"compact", "clear_tools"}),
            accepts=like.traits.accepts if like is not None else frozenset({"image", "pdf"}),
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """The recorded reply. Raises ProviderFailure: the recorded one, or that there is no recording, and why."""
        tape = self._cassette(request)
        asked = self._scrubber.data(question(request))
        models = [request.model] if self._like is not None else tape.models
        keys = [key_of({**asked, "model": model}) for model in models]
        key = next((key for key in keys if key in tape.by_key), None)
        if key is None:
            raise self._missing(tape, request, asked)
        told = tape.by_key[key].told
        outcome = told[min(self._given[tape.shown, key], len(told) - 1)].outcome()
        self._given[tape.shown, key] += 1
        if isinstance(outcome, ProviderFailure):
            raise outcome
        listener(StreamEvent("created", outcome.id))
        if outcome.text:
            listener(StreamEvent("text", outcome.text))
        return outcome

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        """Asked again, a request gets its reply again: there is nothing to fetch."""
        return None

    async def give_up(self, response_id: str, request: Request) -> None:
        """Nothing goes on here while nobody listens."""

    async def count(self, request: Request) -> int | None:
        """Nobody counts here."""
        return None

    def wire(self, request: Request) -> bytes:
        """What the vendor would be sent; here nothing is."""
        return self._like.wire(request) if self._like is not None else openai_wire.wire(request, Dialect())

    async def close(self) -> None:
        """Nothing is open."""

    def _cassette(self, request: Request) -> Cassette:
        if self._tape is not None:
            return self._tape
        name = request.model
        if name not in self._tapes:
            folder = self._root / name
            if not Path(name).is_absolute() and not folder.resolve().is_relative_to(self._root.resolve()):
                raise ProviderFailure(f"the recordings {name} lie outside the project", kind="bad_request")
            try:
                self._tapes[name] = Cassette.load(folder, name)
            except ConfigError as error:
                raise ProviderFailure(error.message, hint=error.hint, kind="bad_request") from error
        return self._tapes[name]

    def _missing(self, tape: Cassette, request: Request, asked: dict[str, Any]) -> ProviderFailure:
        if asked["thread"] is not None and not tape.chains:
            return ProviderFailure("recorded without ids: the whole conversation is sent", kind="chain_unsupported")
        place = f"step {request.step}" + (f", item {request.item}" if request.item else "")
        place += f", thread {request.thread_name}" if request.thread_name not in ("main", "1") else ""
        near = tape.near(request, asked)
        if near is None:
            steps = ", ".join(sorted({recording.step for recording in tape.by_key.values()}))
            return _not_recorded(f"{place}: nothing was recorded of it in {tape.shown}; there is {steps}")
        compared = {**asked, "model": near.request.get("model")} if self._like is None else asked
        parts = list(differences(near.request, compared))
        more = f"; and {len(parts) - MOST_SHOWN} more" if len(parts) > MOST_SHOWN else ""
        return _not_recorded(
            f"{place}: call {request.call} is not what was recorded in {tape.shown}. It differs from call {near.call}"
            f" of {near.label} in {'; '.join(parts[:MOST_SHOWN])}{more}"
        )


def _not_recorded(what: str) -> ProviderFailure:
    return ProviderFailure(
        what,
        hint="record again (orch run … --record DIR), or undo what has changed: a recording answers only its own",
        kind="bad_request",
    )


class Replayer(Providers):
    """A project's providers, each of which answers from one folder's recordings: no key is needed, nothing is sent.

    Raises ConfigError where the folder holds none.
    """

    def __init__(self, project: ProjectRoot, settings: ProviderSettings, folder: Path) -> None:
        super().__init__(project, settings)
        self._tape = Cassette.load(folder, str(folder))
        self._scrubber = Scrubber(settings.secret_values())
        self._opened_tapes: dict[str, ReplayedProvider] = {}

    def get(self, name: str) -> Provider:
        if name not in self._opened_tapes:
            like = super().offline(name)
            self._opened_tapes[name] = ReplayedProvider(tape=self._tape, like=like, scrubber=self._scrubber)
        return self._opened_tapes[name]

    def offline(self, name: str) -> Provider:
        return self.get(name)

    def prices(self) -> Prices:
        """Nothing is paid for."""
        return super().prices().free("recorded answers cost nothing again")
