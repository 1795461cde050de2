"""What a call cost, and what it may cost at worst, in exact decimal dollars.

A price is looked up in this order: the project's own table (`[prices."gpt-x*"]`), then the packaged data of
genai-prices (offline; its download is never switched on). A model in neither has no price: the answer is None and
totals are marked partial. It is never 0, because a cap that counts an unknown as free is no cap. Scripted answers do
cost exactly 0, and say why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from orchestrator.spec import PriceSpec
from orchestrator.values import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

MILLION: Final = Decimal(1_000_000)
MARGIN: Final = Decimal("1.1")  # what an estimate of input tokens may be off by


@dataclass(frozen=True, slots=True)
class Priced:
    """An exact amount in USD, and where the rates came from."""

    usd: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens. `cached` and `cache_write` are never unknown here: they default to the input's rate."""

    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Exact: cached and written tokens are part of `input_tokens` and are priced once, at their own rate."""
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        total = plain * self.input + usage.cached_tokens * self.cached
        total += usage.cache_write_tokens * self.cache_write + usage.output_tokens * self.output
        return total / MILLION


class Prices:
    """Prices by provider and model. `tables` are the project's own, by glob of `model` or `provider:model`.

    `base_urls` says where a provider's name leads, so that `[providers.work]` on a known vendor's host is priced as
    that vendor; the names `openai` and `anthropic` are their price lists whatever stands in for their servers.
    """

    def __init__(
        self, tables: Mapping[str, PriceSpec] | None = None, base_urls: Mapping[str, str] | None = None
    ) -> None:
        self._tables = dict(tables or {})
        self._base_urls = dict(base_urls or {})

    def cost(self, provider: str, model: str, usage: Usage) -> Priced | None:
        """What a call cost in USD. None = no price known for this model."""
        glob = self._glob(provider, model)
        if glob is not None:
            return Priced(_rates(self._tables[glob]).cost(usage), f'project file, prices."{glob}"')
        if provider == "scripted":
            return Priced(Decimal(0), "scripted answers cost nothing")
        found = _packaged(provider, self._base_urls.get(provider, ""), model)
        return None if found is None else Priced(_packaged_cost(found, usage), f"genai-prices, {found.id}")

    def worst(self, provider: str, model: str, input_tokens: int, max_output: int) -> Decimal | None:
        """The most a call may cost in USD (S31): the estimated input plus a tenth at the dearest rate of the dearest
        tier (writing to the cache can cost more than plain input), and all of `max_output`. None = no price known."""
        rates = self._dearest(provider, model)
        if rates is None:
            return None
        dearest_input = input_tokens * MARGIN * max(rates.input, rates.cache_write)
        return (dearest_input + max_output * rates.output) / MILLION

    def window(self, provider: str, model: str) -> int | None:
        """The context window in tokens. None = not known."""
        glob = self._glob(provider, model)
        if glob is not None and self._tables[glob].context is not None:
            return self._tables[glob].context
        if provider == "scripted":
            return None
        found = _packaged(provider, self._base_urls.get(provider, ""), model)
        return found.context_window if found else None

    def _dearest(self, provider: str, model: str) -> Rates | None:
        glob = self._glob(provider, model)
        if glob is not None:
            return _rates(self._tables[glob])
        if provider == "scripted":
            return Rates(Decimal(0), Decimal(0), Decimal(0), Decimal(0))
        found = _packaged(provider, self._base_urls.get(provider, ""), model)
        return None if found is None else _packaged_dearest(found)

    def _glob(self, provider: str, model: str) -> str | None:
        """The most specific (longest) matching glob; ties by declaration order."""
        names = (model, f"{provider}:{model}")
        hits = [glob for glob in self._tables if any(fnmatchcase(name, glob) for name in names)]
        return max(hits, key=len, default=None)


def _rates(table: PriceSpec) -> Rates:
    cached = table.input if table.cached is None else table.cached
    written = table.input if table.cache_write is None else table.cache_write
    return Rates(table.input, cached, written, table.output)


# --- the packaged data ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _packaged(provider: str, base_url: str, model: str) -> ModelInfo | None:
    """The vendor's entry for a model. Imported here: the data takes half a second to load."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    by_name: tuple[str | None, str | None] = (provider, None)
    ways = [by_name] if provider in ("openai", "anthropic") or not base_url else [(None, base_url), by_name]
    for provider_id, url in ways:
        try:
            return snapshot.find_provider_model(model, None, provider_id, url)[1]
        except LookupError:
            continue
    return None


def _packaged_prices(model: ModelInfo) -> Any:
    from datetime import UTC, datetime

    return model.get_prices(datetime.now(UTC))


def _packaged_cost(model: ModelInfo, usage: Usage) -> Decimal:
    from genai_prices import Usage as Counted

    counted = Counted(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    total: Decimal = _packaged_prices(model).calc_price(counted)["total_price"]
    return total


def _packaged_dearest(model: ModelInfo) -> Rates:
    prices = _packaged_prices(model)
    plain = _dearest_tier(prices.input_mtok)
    return Rates(
        input=plain,
        cached=_dearest_tier(prices.cache_read_mtok),
        cache_write=max(plain, _dearest_tier(prices.cache_write_mtok)),
        output=_dearest_tier(prices.output_mtok),
    )


def _dearest_tier(price: Any) -> Decimal:
    """A flat price, or the highest of a base and its tiers; a price that is not listed is free."""
    if price is None:
        return Decimal(0)
    if isinstance(price, Decimal):
        return price
    dearest: Decimal = max([price.base, *(tier.price for tier in price.tiers)])
    return dearest
