"""The cost calculator: what each role costs a week at the agency and outside, and what services cost to run.

No model is asked.

The figures are for comparing development costs. They say nothing about what the customer can spend; that sentence is
the contract's (`artifacts/vendor-rates.yaml`), and it travels with the figures into every step that reads them.
"""

from __future__ import annotations

from .rates import Rate, all_rates, service_prices
from .schemas import CustomerBrief, Role, RoleRate, VendorRates

ALWAYS: tuple[Role, ...] = ("product-designer", "web-developer", "quality-engineer", "delivery-lead")
BY_SURFACE: dict[str, Role] = {"mobile-app": "mobile-developer", "integration": "integration-engineer"}


def calculate(customer_brief: CustomerBrief, region: str) -> VendorRates:
    """Compares weekly rates, in US dollars, for the roles the brief calls for.

    Raises ValueError where `rates.csv` has no rates for the region.
    """
    rates = _of_region(region)
    wanted = [*ALWAYS, *(role for surface, role in BY_SURFACE.items() if surface in customer_brief.surfaces)]
    agency = {rate.role: rate for rate in rates if rate.kind == "agency"}
    outside = {role: quote for role in wanted if (quote := _lowest_quote(rates, role)) is not None}
    developer = min((quote for role, quote in outside.items() if role.endswith("-developer")), key=_weekly)
    used = [*(agency[role] for role in wanted), *outside.values()]
    return VendorRates(
        weekly_usd=developer.weekly_usd,
        weekly_usd_role=developer.role,
        weekly_usd_supplier=developer.supplier,
        agency=agency[wanted[0]].supplier,
        region=region,
        roles=[_compared(agency[role], outside.get(role)) for role in wanted],
        services=service_prices(region),
        quoted_on=min(rate.quoted_on for rate in used),
    )


def _of_region(region: str) -> list[Rate]:
    rates = all_rates()
    found = [rate for rate in rates if rate.region == region]
    if not found:
        known = ", ".join(sorted({rate.region for rate in rates}))
        raise ValueError(f"rates.csv has no rates for the region {region!r}; it has {known}")
    return found


def _lowest_quote(rates: list[Rate], role: Role) -> Rate | None:
    return min((rate for rate in rates if rate.kind == "vendor" and rate.role == role), key=_weekly, default=None)


def _weekly(rate: Rate) -> float:
    return rate.weekly_usd


def _compared(agency: Rate, outside: Rate | None) -> RoleRate:
    return RoleRate(
        role=agency.role,
        agency_weekly_usd=agency.weekly_usd,
        outside_weekly_usd=outside.weekly_usd if outside else None,
        outside_supplier=outside.supplier if outside else None,
        minimum_weeks=outside.minimum_weeks if outside else None,
    )
