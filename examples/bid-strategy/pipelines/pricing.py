"""What the work costs us, and the prices that follow from it. No model is asked.

Every amount comes from a table and every week from an estimate that somebody can look up, so the sums can be done again
by hand. Amounts are whole pounds; points are rounded to two places, for reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_low
from typing import Literal

from .contracts import Award, Comparison, CostLine, Effort, Opportunity, PartnerNeeds, PricingPosition, RiskRegister
from .tables import US, all_awards, all_partners, weekly_rates

MINIMUM_MARGIN = 0.08
WANTED_MARGIN = 0.18
ROUND_TO = 500


def position(
    opportunity: Opportunity, effort: Effort, partners: PartnerNeeds, risks: RiskRegister, region: str
) -> PricingPosition:
    """Cost, floor and target price, and how both fare against the lowest and the middle past award.

    Raises ValueError for a partner whose rate is not in the table.
    """
    rates = weekly_rates()
    own = [_line(line.role, line.weeks, rates[line.role]) for line in effort.lines]
    others = [_partner_line(b.partner, b.capability, b.weeks, region) for b in partners.bookings]
    allowance = round(sum(r.likelihood_percent * r.extra_weeks * rates[r.extra_role] for r in risks.risks) / 100)
    cost = sum(line.cost_gbp for line in [*own, *others]) + allowance
    floor, target = _price(cost, MINIMUM_MARGIN), _price(cost, WANTED_MARGIN)
    awards = _awards(opportunity)
    ceiling = opportunity.price_ceiling_gbp
    return PricingPosition(
        own_work=own,
        partner_work=others,
        risk_allowance_gbp=allowance,
        cost_gbp=cost,
        floor_gbp=floor,
        target_gbp=target,
        floor_margin_percent=margin_percent(floor, cost),
        target_margin_percent=margin_percent(target, cost),
        headroom_gbp=None if ceiling is None else ceiling - floor,
        awards=awards,
        comparisons=list(_comparisons(opportunity, floor, target, awards)),
    )


def margin_percent(price_gbp: int, cost_gbp: int) -> float:
    """What is left of a price when the work is paid, in per cent of the price, to one decimal."""
    return round(100 * (price_gbp - cost_gbp) / price_gbp, 1)


def price_points(weight: float, price_gbp: int, lowest_gbp: int) -> float:
    """Points for a price under the rule weight × lowest price / own price."""
    return weight * lowest_gbp / price_gbp


def _line(name: str, weeks: float, weekly_gbp: int) -> CostLine:
    return CostLine(name=name, weeks=weeks, weekly_gbp=weekly_gbp, cost_gbp=round(weeks * weekly_gbp))


def _partner_line(name: str, capability: str, weeks: float, region: str) -> CostLine:
    for partner in all_partners():
        if (partner.name, partner.capability, partner.region) == (name, capability, region):
            return _line(name, weeks, partner.weekly_gbp)
    raise ValueError(f"partners.csv has no {name} for {capability} in {region}")


def _price(cost_gbp: int, margin: float) -> int:
    """The lowest price, in whole steps, that leaves a margin."""
    return -int(-cost_gbp / (1 - margin) // ROUND_TO) * ROUND_TO


def _awards(opportunity: Opportunity) -> list[Award]:
    """What others were awarded in this sector. Our own award says nothing about a rival's price."""
    term = opportunity.term_months
    return [
        Award(
            buyer=award.buyer,
            year=award.year,
            winner=award.winner,
            value_gbp=award.value_gbp,
            months=award.months,
            scaled_gbp=None if term is None else round(award.value_gbp * term / award.months),
        )
        for award in all_awards()
        if award.sector == opportunity.sector and award.winner != US
    ]


def _comparisons(opportunity: Opportunity, floor: int, target: int, awards: list[Award]) -> Iterator[Comparison]:
    """Both prices against the lowest and the middle award; none where the tender does not say how price is marked."""
    scaled = sorted(award.scaled_gbp for award in awards if award.scaled_gbp is not None)
    weight = sum(criterion.weight for criterion in opportunity.criteria if criterion.kind == "price")
    if opportunity.price_rule == "not-given" or not scaled:
        return
    prices: tuple[tuple[Literal["floor", "target"], int], ...] = (("floor", floor), ("target", target))
    for name, ours in prices:
        for rival in dict.fromkeys((scaled[0], median_low(scaled))):
            lowest = min(ours, rival)
            our_points, rival_points = price_points(weight, ours, lowest), price_points(weight, rival, lowest)
            yield Comparison(
                our_price=name,
                rival_gbp=rival,
                our_points=round(our_points, 2),
                rival_points=round(rival_points, 2),
                quality_lead_needed=round(rival_points - our_points, 2),
            )
