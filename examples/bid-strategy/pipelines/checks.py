"""Rules on answers. A check returns None, or the message the model is told."""

from __future__ import annotations

import re
from typing import Any

from .contracts import BidStrategy, Opportunity, PartnerNeeds, PricingPosition, RiskRegister, Swot, WinThemes
from .pricing import margin_percent
from .tables import all_partners, all_references


def weights_add_up(value: Opportunity, **reads: Any) -> str | None:
    total = sum(criterion.weight for criterion in value.criteria)
    if total == 100:
        return None
    return f"the criteria weigh {total:g} points together, not 100. Take them all from the tender."


def references_exist(value: Swot, **reads: Any) -> str | None:
    known = {reference.id for reference in all_references()}
    unknown = [point.reference for point in value.strengths if point.reference and point.reference not in known]
    return f"there is no reference {', '.join(unknown)}. Use an id of the list, or null." if unknown else None


def partners_are_known(value: PartnerNeeds, **reads: Any) -> str | None:
    """Each partner named has been found for what it is booked for, and whoever covers something is booked."""
    known = {(partner.name, partner.capability) for partner in all_partners()}
    strangers = [f"{b.partner} ({b.capability})" for b in value.bookings if (b.partner, b.capability) not in known]
    if strangers:
        return f"find_partners does not give {', '.join(strangers)}. Copy name and capability, or leave it open."
    booked = {booking.partner for booking in value.bookings}
    wrong = [c.requirement for c in value.cover if (c.partner in booked) != (c.by == "partner")]
    return f"{', '.join(wrong)}: `partner` names a booking, and only where `by` is partner." if wrong else None


def watch_first_is_listed(value: RiskRegister, **reads: Any) -> str | None:
    titles = [risk.title for risk in value.risks]
    return None if value.watch_first in titles else f"watch_first is none of the titles: {'; '.join(titles)}"


def proofs_may_be_shown(value: WinThemes, **reads: Any) -> str | None:
    """No client is named in a tender who has not agreed to it."""
    known = {reference.id: reference for reference in all_references()}
    problems = []
    for theme in value.themes:
        reference = known.get(theme.reference or "")
        if theme.reference and reference is None:
            problems.append(f"there is no reference {theme.reference}")
        elif reference is not None and not reference.may_be_named:
            problems.append(f"“{theme.theme}” rests on {reference.id}, and its client may not be named")
    return "; ".join(problems) + ". Prove it by another reference, or drop the theme." if problems else None


def price_holds(
    value: BidStrategy, pricing_position: PricingPosition, opportunity: Opportunity, **reads: Any
) -> str | None:
    """A price exactly where there is a bid, between floor and stated ceiling, with the margin that it leaves."""
    price, floor, ceiling = value.price_gbp, pricing_position.floor_gbp, opportunity.price_ceiling_gbp
    if (price is None) != (value.decision == "no-bid"):
        return "price_gbp is null for no-bid, and a price otherwise"
    if price is None:
        return None
    if ceiling is not None and ceiling < floor:
        return f"the ceiling of {ceiling:,} that the buyer has stated is below our floor of {floor:,}: that is a no-bid"
    if price < floor:
        return f"price_gbp is {price:,}, below the floor of {floor:,}: no bid at that price"
    if ceiling is not None and price > ceiling:
        return f"price_gbp is {price:,}, above the ceiling of {ceiling:,} that the buyer has stated"
    margin = margin_percent(price, pricing_position.cost_gbp)
    return None if value.margin_percent == margin else f"margin_percent is {value.margin_percent}, and must be {margin}"


def nothing_inside_gets_out(value: BidStrategy, pricing_position: PricingPosition, **reads: Any) -> str | None:
    """The one text for the buyer holds no figure of ours but the price."""
    inside = {pricing_position.cost_gbp, pricing_position.floor_gbp, pricing_position.target_gbp} - {value.price_gbp}
    said = {int(number.replace(",", "")) for number in re.findall(r"\d{1,3}(?:,\d{3})+|\d+", value.message_to_buyer)}
    leaked = sorted(inside & said)
    return f"message_to_buyer holds a figure that is for us only: {leaked[0]:,}" if leaked else None
