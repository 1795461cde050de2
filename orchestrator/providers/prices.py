"""What a call cost, and what it may cost at worst, in exact decimal dollars.

A price is looked up in this order: the project's own table (`[prices."gpt-x*"]`), then the packaged data of
genai-prices (offline; its download is never switched on). A model in neither has no price: the answer is None and
totals are marked partial. It is never 0, because a cap that counts an unknown as free is no cap. Scripted answers do
cost exactly 0, and say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from orchestrator.money import Counted, Price, Rates
from orchestrator.spec import PriceSpec

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

FREE: Final[Mapping[str, str]] = {
    "scripted": "scripted answers cost nothing",
    "replayed": "recorded answers cost nothing again",
}


@dataclass(frozen=True, slots=True)
class Priced:
    """An exact amount in USD, and where the rates came from."""

    usd: Decimal
    source: str


class Prices:
    """Prices by provider and model. `tables` are the project's own, by glob of `model` or `provider:model`.

    `base_urls` says where a provider's name leads, so that `[providers.work]` on a known vendor's host is priced as
    that vendor; the names `openai` and `anthropic` are their price lists whatever stands in for their servers.
    """

    def __init__(
        self, tables: Mapping[str, PriceSpec] | None = None, base_urls: Mapping[str, str] | None = None
    ) -> None:
        self._tables = dict(tables or {})
        self._nothing = ""
        self._base_urls = dict(base_urls or {})

    def price(self, provider: str, model: str) -> Price | None:
        """The rates of a model as they are now. None = not known."""
        glob = self._glob(provider, model)
        free = self._free(provider) if glob is None else ""
        if free:
            return Price(free, Rates(*[Decimal(0)] * 4), search=Decimal(0))
        if glob is None:
            found = _packaged(provider, self._base_urls.get(provider, ""), model)
            return None if found is None else _packaged_price(found)
        table = self._tables[glob]
        own = None if table.web_search is None else table.web_search / 1000
        search = own if own is not None else self._packaged_search(provider, model)
        return Price(f'project file, prices."{glob}"', _rates(table), search=search)

    def cost(self, provider: str, model: str, usage: Counted) -> Priced | None:
        """What a call cost in USD. None = no price known for this model."""
        price = self.price(provider, model)
        usd = None if price is None else price.cost(usage)
        return None if price is None or usd is None else Priced(usd, price.source)

    def worst(self, provider: str, model: str, input_tokens: int, max_output: int, searches: int = 0) -> Decimal | None:
        """The most a call may cost in USD (S31). None = no price known."""
        price = self.price(provider, model)
        return None if price is None else price.worst(input_tokens, max_output, searches)

    def _packaged_search(self, provider: str, model: str) -> Decimal | None:
        if self._free(provider):
            return Decimal(0)
        found = _packaged(provider, self._base_urls.get(provider, ""), model)
        return None if found is None else _packaged_price(found).search

    def window(self, provider: str, model: str) -> int | None:
        """The context window in tokens. None = not known."""
        glob = self._glob(provider, model)
        if glob is not None and self._tables[glob].context is not None:
            return self._tables[glob].context
        if self._free(provider):
            return None
        found = _packaged(provider, self._base_urls.get(provider, ""), model)
        return found.context_window if found else None

    def free(self, why: str) -> Prices:
        """The same where nothing is paid for, whatever the model."""
        prices = Prices(None, self._base_urls)
        prices._nothing = why
        return prices

    def _free(self, provider: str) -> str:
        return self._nothing or FREE.get(provider, "")

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


def _packaged_price(model: ModelInfo) -> Price:
    """A vendor's rates; what it does not list of cached and written tokens costs as plain input does."""
    from datetime import UTC, datetime

    listed: Any = model.get_prices(datetime.now(UTC))
    parts = [getattr(listed, f"{name}_mtok", None) for name in ("input", "cache_read", "cache_write", "output")]
    starts = sorted({tier.start for part in parts for tier in getattr(part, "tiers", ())})
    rates = [_at(parts, start) for start in (0, *starts)]
    searches = getattr(listed, "web_searches_kcount", None)
    steps = (_tier(searches, start) for start in (0, *(tier.start for tier in getattr(searches, "tiers", ()))))
    search = max((rate for rate in steps if rate is not None), default=None)
    return Price(
        f"genai-prices, {model.id}",
        rates[0],
        tuple(zip(starts, rates[1:], strict=True)),
        None if search is None else search / 1000,
    )


def _at(parts: Sequence[Any], start: int) -> Rates:
    """The rates of requests above so many tokens of input."""
    plain, cached, written, output = (_tier(part, start) for part in parts)
    plain = plain or Decimal(0)
    return Rates(
        plain, plain if cached is None else cached, plain if written is None else written, output or Decimal(0)
    )


def _tier(price: Any, start: int) -> Decimal | None:
    """A flat price, or that of the highest tier which has begun; None for one that is not listed."""
    if price is None or isinstance(price, Decimal):
        return price
    begun = [tier for tier in price.tiers if tier.start <= start]
    found: Decimal = max(begun, key=lambda tier: tier.start).price if begun else price.base
    return found
