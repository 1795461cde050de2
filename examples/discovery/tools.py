"""The one tool of the study: a look into the rate table. It only reads, so repeating it is harmless."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import ToolError, tool

from .rates import all_rates


class Quote(BaseModel):
    supplier: str
    kind: str
    weekly_usd: int
    minimum_weeks: int


@tool(idempotent=True)
def lookup_rates(role: str, region: str) -> list[Quote]:
    """Weekly rates in US dollars for one role in one region, from the agency and from outside vendors.

    Args:
        role: The role as it is written in the rate comparison, for instance platform-engineer.
        region: The customer's region: EU, UK or US.
    """
    rates = all_rates()
    found = [rate for rate in rates if rate.role == role and rate.region == region]
    if not found:
        roles = ", ".join(sorted({rate.role for rate in rates}))
        regions = ", ".join(sorted({rate.region for rate in rates}))
        raise ToolError(f"No rates for {role!r} in {region!r}. Roles: {roles}. Regions: {regions}.")
    return [Quote.model_validate(rate.model_dump()) for rate in found]
