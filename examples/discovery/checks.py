"""Rules on outputs that one comparison cannot say. A check returns None, or the message the model is told."""

from __future__ import annotations

from typing import Any

from .schemas import CostEstimate, DeliveryPlan


def adds_up(value: CostEstimate, **reads: Any) -> str | None:
    """Both totals are the sums of their lines. Each line may be rounded to a whole dollar, so the totals may be off
    by one dollar a line."""
    if not value.components:
        return None
    problems = []
    for name, total, parts in (
        ("total_low", value.total_low, [line.low_usd for line in value.components]),
        ("total_high", value.total_high, [line.high_usd for line in value.components]),
    ):
        difference = total - sum(parts)
        if abs(difference) > len(parts):
            side = "more" if difference > 0 else "less"
            problems.append(f"{name} is {total:,.0f}, which is {abs(difference):,.0f} {side} than its components")
    return "; ".join(problems) + ". Correct the totals or the components so that they add up." if problems else None


def lines_in_order(value: CostEstimate, **reads: Any) -> str | None:
    """No component's low figure is above its high one."""
    wrong = [line.name for line in value.components if line.low_usd > line.high_usd]
    return f"low_usd is above high_usd in: {', '.join(wrong)}" if wrong else None


def phases_fit(value: DeliveryPlan, **reads: Any) -> str | None:
    """Phases may overlap, so the whole may be shorter than their sum, but never longer."""
    phases = sum(phase.weeks for phase in value.phases)
    if not value.phases or value.total_weeks <= phases:
        return None
    return f"total_weeks is {value.total_weeks:g}, but the phases take {phases:g} weeks one after the other"
