"""What a price is, as it is kept with each call: rates by size of the request, and where they came from. Pure.

A call is charged by the price that was known when it left, whatever the price list says later (S31); so the price goes
on record with the call, as JSON with exact decimals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol

MILLION: Final = Decimal(1_000_000)
MARGIN: Final = Decimal("1.1")  # what an estimate of input tokens may be off by


class Counted(Protocol):
    """As much of a call's usage as money is about. `input_tokens` includes the cached and the written ones."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def cache_write_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def web_searches(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens. `cached` and `cache_write` are never unknown here: they default to the input's rate."""

    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal

    def cost(self, usage: Counted) -> Decimal:
        """Exact: cached and written tokens are part of `input_tokens` and are priced once, at their own rate."""
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        total = plain * self.input + usage.cached_tokens * self.cached
        total += usage.cache_write_tokens * self.cache_write + usage.output_tokens * self.output
        return total / MILLION

    def data(self) -> dict[str, str]:
        names = ("input", "cached", "cache_write", "output")
        return {name: f"{getattr(self, name).normalize():f}" for name in names}

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Rates:
        return cls(*(Decimal(data[name]) for name in ("input", "cached", "cache_write", "output")))


@dataclass(frozen=True, slots=True)
class Price:
    """The rates of a model, and their source. A request of more input than a tier's begin is charged wholly at that
    tier's rates. `search` is for one search of the provider's own; None = not known, which is never 0."""

    source: str
    rates: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()
    search: Decimal | None = None

    def cost(self, usage: Counted) -> Decimal | None:
        """What a call cost in USD; None where it searched and that has no price."""
        rates = next((r for start, r in reversed(self.tiers) if usage.input_tokens > start), self.rates)
        searched = self._searches(usage.web_searches)
        return None if searched is None else rates.cost(usage) + searched

    def worst(self, input_tokens: int, max_output: int, searches: int = 0) -> Decimal | None:
        """The most a call may cost in USD (S31): the estimated input plus a tenth at the dearest rate of the dearest
        tier (writing to the cache can cost more than plain input), all of `max_output`, and so many searches of the
        provider's own. None where those have no price."""
        every = (self.rates, *(rates for _, rates in self.tiers))
        dearest = max(max(rates.input, rates.cache_write) for rates in every)
        tokens = (input_tokens * MARGIN * dearest + max_output * max(rates.output for rates in every)) / MILLION
        searched = self._searches(searches)
        return None if searched is None else tokens + searched

    def _searches(self, number: int) -> Decimal | None:
        if not number:
            return Decimal(0)
        return None if self.search is None else number * self.search

    def text(self) -> str:
        """As it is kept."""
        data: dict[str, Any] = {"source": self.source, **self.rates.data()}
        if self.tiers:
            data["tiers"] = [{"above": start, **rates.data()} for start, rates in self.tiers]
        if self.search is not None:
            data["search"] = f"{self.search.normalize():f}"
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> Price:
        data = json.loads(text)
        tiers = tuple((tier["above"], Rates.of(tier)) for tier in data.get("tiers", ()))
        search = data.get("search")
        return cls(data["source"], Rates.of(data), tiers, None if search is None else Decimal(search))


@dataclass(frozen=True, slots=True)
class Caps:
    """What may be spent at most, in USD, beside the run's own cap: by one call, by a step in a run with all its items
    and attempts, by a session's runs, and by all runs of a UTC day. None = no cap."""

    call: Decimal | None = None
    step: Decimal | None = None
    session: Decimal | None = None
    day: Decimal | None = None

    @property
    def any(self) -> bool:
        return any(cap is not None for cap in (self.call, self.step, self.session, self.day))


NO_CAPS: Final = Caps()


def least(*caps: Decimal | None) -> Decimal | None:
    """The lowest of these caps; None where there is none."""
    return min((cap for cap in caps if cap is not None), default=None)
