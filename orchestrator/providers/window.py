"""Whether a request fits the model's window, by the vendor's own count where our estimate cannot tell.

Counted are all five parts: system text, messages, tool results, tool definitions with the output schema, and the reply
to come (R028). The estimate is one fixed rule for all models, and the tokenizer of a new one may make twice as many
tokens of a text. So near the window a vendor that counts is asked, which costs nothing, before a call is paid that it
would refuse. Where none counts, the estimate is put right by what that model has reported so far, with a tenth of room:
in this process, or, before it has reported anything here, in the newest calls on record.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from fractions import Fraction
from typing import Final

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Provider
from orchestrator.values import Request

MARGIN: Final = 2  # what the estimate may be short by
HEADROOM: Final = Fraction(11, 10)  # what a calibrated one may be short by
WEIGHT: Final = 0.3  # of the newest call in the mean
MOST: Final = 4  # times an estimate: no tokenizer makes more tokens of a text than it has bytes, which are 3.5 for each

# The newest calls of a provider's model on record, oldest first: what was estimated, and what was reported.
Recorded = Callable[[str, str], Awaitable[Sequence[tuple[int, int]]]]


class Calibration:
    """How far our estimates are off, by provider and model, as the usage of their calls tells: a moving mean."""

    def __init__(self) -> None:
        self._factors: dict[tuple[str, str], float] = {}
        self._looked: set[tuple[str, str]] = set()

    async def look_up(self, provider: str, model: str, recorded: Recorded) -> None:
        """Learn from the record, once, where nothing is known yet."""
        key = (provider, model)
        if key in self._factors or key in self._looked:
            return
        self._looked.add(key)
        for estimate, reported in await recorded(provider, model):
            self.learn(provider, model, estimate, reported)

    def learn(self, provider: str, model: str, estimate: int, reported: int) -> None:
        """A call was estimated so, and so many tokens were reported."""
        if estimate > 0 and reported > 0:
            key, seen = (provider, model), reported / estimate
            known = self._factors.get(key)
            self._factors[key] = seen if known is None else known + WEIGHT * (seen - known)

    def tokens(self, provider: str, model: str, estimate: int) -> int:
        """An estimate put right; as it is where nothing is known."""
        return math.ceil(estimate * self._factors.get((provider, model), 1.0))


async def over_window(
    provider: Provider,
    request: Request,
    estimate: int,
    window: int | None,
    calibration: Calibration,
    recorded: Recorded,
) -> ProviderFailure | None:
    """The failure of a request that does not fit with its reply; None where it fits, or the window is not known."""
    if window is None:
        return None
    name = provider.traits.name
    if MOST * estimate + request.max_output_tokens > window:
        await calibration.look_up(name, request.model, recorded)
    likely = calibration.tokens(name, request.model, estimate)
    if MARGIN * max(estimate, likely) + request.max_output_tokens <= window:
        return None
    counted = await provider.count(request)
    whose = "by the provider's count" if counted is not None else "by our estimate, with a tenth of room"
    tokens = math.ceil(likely * HEADROOM) if counted is None else counted
    if tokens + request.max_output_tokens <= window:
        return None
    return ProviderFailure(
        f"{request.model}: the request has {tokens:,} tokens {whose}; with a reply of up to "
        f"{request.max_output_tokens:,} that is over the window of {window:,}; nothing was sent",
        hint="read fewer artifacts or fields, lower max_output_tokens, or use another model",
        kind="too_long",
    )
