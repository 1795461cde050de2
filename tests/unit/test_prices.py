"""Money, from first principles: rates per million tokens times tokens, each token priced once."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from orchestrator.providers.prices import Prices
from orchestrator.providers.usage import anthropic_usage, openai_usage
from orchestrator.spec import PriceSpec
from orchestrator.values import Usage


def table(input: str, cached: str | None = None, output: str = "0", write: str | None = None) -> PriceSpec:
    return PriceSpec(
        input=Decimal(input),
        cached=None if cached is None else Decimal(cached),
        cache_write=None if write is None else Decimal(write),
        output=Decimal(output),
    )


def cost(prices: Prices, model: str, usage: Usage | None, provider: str = "openai") -> Decimal:
    assert usage is not None
    priced = prices.cost(provider, model, usage)
    assert priced is not None
    return priced.usd


OPENAI_REPORT = {
    "input_tokens": 9637,
    "input_tokens_details": {"cached_tokens": 4352},
    "output_tokens": 0,
    "total_tokens": 9637,
}
ANTHROPIC_REPORT = {"input_tokens": 9, "cache_read_input_tokens": 17102, "output_tokens": 0}


def test_A23_openai_counts_cached_tokens_inside_the_input() -> None:
    """(9637 - 4352) * 2.00 + 4352 * 0.20 = 11440.4 per million."""
    usage = openai_usage(OPENAI_REPORT)
    assert usage == Usage(input_tokens=9637, cached_tokens=4352)
    assert cost(Prices({"gpt-x*": table("2.00", "0.20")}), "gpt-x1", usage) == Decimal("0.0114404")


def test_A23_the_packaged_price_list_gives_the_same_dollars() -> None:
    assert cost(Prices(), "gpt-6-sol", openai_usage(OPENAI_REPORT)) == Decimal("0.0114404")


def test_A23_anthropic_counts_cached_tokens_beside_the_input() -> None:
    """9 * 3 + 17102 * 0.30 = 5157.6 per million."""
    usage = anthropic_usage(ANTHROPIC_REPORT)
    assert usage == Usage(input_tokens=17111, cached_tokens=17102)
    assert cost(Prices({"*": table("3", "0.30")}), "claude-x", usage, "anthropic") == Decimal("0.0051576")


def test_A23_cache_writes_are_priced_once_at_their_own_rate() -> None:
    """1000 plain, 8000 read, 1000 written, 500 out at gpt-6.1-sol's 2 / 0.1 / 2.5 / 10 per million."""
    usage = Usage(input_tokens=10_000, cached_tokens=8_000, cache_write_tokens=1_000, output_tokens=500)
    expected = Decimal(1_000 * 2 + 1_000 * 10 // 2) / 1_000_000 + Decimal("0.0008") + Decimal("0.0025")
    assert expected == Decimal("0.0103")
    assert cost(Prices(), "gpt-6.1-sol", usage) == expected
    assert cost(Prices({"gpt-6.1-*": table("2", "0.1", "10", "2.5")}), "gpt-6.1-sol", usage) == expected


def test_rates_left_out_are_the_rate_of_plain_input() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, cache_write_tokens=100_000)
    assert cost(Prices({"m": table("7")}), "m", usage) == Decimal(7)


def test_A23_an_unknown_model_has_no_price_and_never_zero() -> None:
    prices = Prices()
    for provider, model in [("openai", "gpt-6.2-sol"), ("openai", "llama3"), ("mine", "anything")]:
        assert prices.cost(provider, model, Usage(input_tokens=5)) is None
        assert prices.worst(provider, model, 1000, 1000) is None
        assert prices.window(provider, model) is None


def test_the_projects_table_wins_and_the_longest_glob_wins() -> None:
    prices = Prices({"gpt-6*": table("100"), "gpt-6-sol": table("1"), "mine:gpt-6-sol": table("5")})
    million = Usage(input_tokens=1_000_000)
    assert cost(prices, "gpt-6-sol", million) == 1
    assert cost(prices, "gpt-6-sol", million, "mine") == 5
    assert cost(prices, "gpt-6-luna", million) == 100
    priced = prices.cost("openai", "gpt-6-luna", million)
    assert priced is not None
    assert priced.source == 'project file, prices."gpt-6*"'


def test_scripted_answers_cost_nothing_and_say_so() -> None:
    priced = Prices().cost("scripted", "answers", Usage(input_tokens=10**6, output_tokens=10**6))
    assert priced is not None
    assert (priced.usd, priced.source) == (Decimal(0), "scripted answers cost nothing")
    assert Prices().worst("scripted", "answers", 10**6, 10**6) == 0
    assert cost(Prices({"answers": table("1")}), "answers", Usage(input_tokens=10**6), "scripted") == 1


def test_S31_the_worst_case_is_a_tenth_more_input_at_the_dearest_tier_and_all_of_the_output() -> None:
    """gpt-6-sol above its tier: input 4, writing to the cache 5, output 15 per million; all of it may be written."""
    assert Prices().worst("openai", "gpt-6-sol", 100_000, 8_000) == Decimal("1.1") * Decimal("0.5") + Decimal("0.12")
    flat = Prices({"m": table("2", "0.2", "10")})
    assert flat.worst("openai", "m", 1_000_000, 1_000) == Decimal("2.21")


def test_a_price_tier_applies_to_the_whole_request() -> None:
    """Above 272k tokens of input gpt-6.1-sol costs 4 instead of 2 per million."""
    assert cost(Prices(), "gpt-6.1-sol", Usage(input_tokens=272_000)) == Decimal("0.544")
    assert cost(Prices(), "gpt-6.1-sol", Usage(input_tokens=300_000)) == Decimal("1.2")


def test_a_provider_on_a_known_vendors_host_is_priced_as_that_vendor() -> None:
    million = Usage(input_tokens=100_000)
    assert Prices().cost("work", "gpt-6-sol", million) is None
    there = Prices(base_urls={"work": "https://api.openai.com/v1"})
    assert cost(there, "gpt-6-sol", million, "work") == Decimal("0.2")


def test_windows_come_from_the_table_first() -> None:
    spec = PriceSpec(input=Decimal(1), output=Decimal(1), context=4096)
    assert Prices({"gpt-6-sol": spec}).window("openai", "gpt-6-sol") == 4096
    assert Prices({"gpt-6-sol": table("1")}).window("openai", "gpt-6-sol") == 1_050_000


def _report(**changes: object) -> dict[str, object]:
    return {**OPENAI_REPORT, **changes}


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        "9637",
        {},
        _report(input_tokens=-1),
        _report(input_tokens=True),
        _report(input_tokens=9637.0),
        _report(input_tokens="9637"),
        _report(input_tokens=2**40 + 1),
        _report(output_tokens=None),
        _report(output_tokens=json.loads("NaN")),
        _report(output_tokens=json.loads("1e400")),
        _report(input_tokens_details={"cached_tokens": 9638}),
        _report(input_tokens_details={"cached_tokens": -5}),
        _report(input_tokens_details={"cached_tokens": 9000, "cache_write_tokens": 638}),
        _report(input_tokens_details=[]),
        _report(output_tokens_details={"reasoning_tokens": "many"}),
    ],
)
def test_S31_a_hostile_report_is_unknown_not_zero(report: object) -> None:
    assert openai_usage(report) is None


def test_S31_the_largest_honest_numbers_pass() -> None:
    details = {"cached_tokens": 2**40}
    report = {"input_tokens": 2**40, "input_tokens_details": details, "output_tokens": 2**40}
    assert openai_usage(report) == Usage(input_tokens=2**40, cached_tokens=2**40, output_tokens=2**40)


def test_S31_anthropic_reports_are_checked_too() -> None:
    assert anthropic_usage(ANTHROPIC_REPORT | {"cache_read_input_tokens": -1}) is None
    assert anthropic_usage({"input_tokens": 2**40, "cache_read_input_tokens": 1, "output_tokens": 0}) is None


def test_servers_that_report_no_details_are_believed() -> None:
    assert openai_usage({"input_tokens": 5, "output_tokens": 7, "input_tokens_details": None}) == Usage(5, 0, 0, 7)
    cached = {"cached_tokens": 2, "cache_write_tokens": None}
    assert openai_usage({"input_tokens": 5, "output_tokens": 7, "input_tokens_details": cached}) == Usage(5, 2, 0, 7)
