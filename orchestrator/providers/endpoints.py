"""What this process has learned about servers; it is forgotten with it."""

from __future__ import annotations

from typing import Literal

from orchestrator.providers.base import Provider
from orchestrator.providers.limits import Limits
from orchestrator.providers.window import Calibration


class Endpoints:
    """What this process has learned about servers: does (base_url, model) really chain, or must we replay? And when
    may the next request go there?"""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.calibration = Calibration()
        self._known: dict[tuple[str, str], Literal["server", "replay"]] = {}
        self._lost: set[tuple[str, str]] = set()

    def mode(self, provider: Provider, model: str) -> Literal["server", "replay", "auto"]:
        traits = provider.traits
        if not traits.stores or traits.chaining == "replay":
            return "replay"
        return self._known.get((traits.base_url, model), traits.chaining)

    def learn(self, provider: Provider, model: str, mode: Literal["server", "replay"]) -> None:
        self._known[(provider.traits.base_url, model)] = mode

    def lost(self, provider: Provider, model: str) -> None:
        """An id was not known there. Once, it expired; twice, where no id was ever known, nothing is kept there."""
        key = (provider.traits.base_url, model)
        if self.mode(provider, model) == "auto":
            if key in self._lost:
                self.learn(provider, model, "replay")
            self._lost.add(key)
