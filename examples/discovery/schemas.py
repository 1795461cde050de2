"""What each step of the discovery study produces.

Every field is required and typed, so the same model serves as the schema a provider enforces. What may be unknown is
nullable. Facts about the customer are marked `fact_of: customer`: whatever a model writes there is kept only if the
customer said it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal[
    "product-designer",
    "web-developer",
    "mobile-developer",
    "integration-engineer",
    "platform-engineer",
    "quality-engineer",
    "delivery-lead",
]
CUSTOMER_FACT = {"fact_of": "customer"}


class Value(BaseModel):
    """Unknown fields are refused: a misspelt field in an edit is an error, not a silent nothing."""

    model_config = ConfigDict(extra="forbid")


class Evidence(Value):
    statement: str
    source: Literal["customer", "research"]


class Opportunity(Value):
    title: str = Field(description="The idea in at most eight words.")
    problem: str = Field(description="What goes wrong today, for whom, how often.")
    affected: list[str] = Field(description="Groups of people who have the problem.")
    wanted_outcomes: list[str] = Field(description="What would be different, in terms someone can check.")
    evidence: list[Evidence] = Field(description="Numbers and observations that are given, each with its source.")
    open_questions: list[str] = Field(description="What must be asked before the idea can be judged.")


class CustomerBrief(Value):
    customer: str = Field(description="Who the customer is, in one line.")
    goals: list[str]
    must_have: list[str] = Field(description="What the first version cannot do without.")
    out_of_scope: list[str] = Field(description="What the customer ruled out or put off.")
    surfaces: list[Literal["web", "mobile-app", "back-office", "integration"]] = Field(
        description="Kinds of software that must be built. A site that works in a phone's browser is web."
    )
    constraints: list[str] = Field(description="Rules, systems and habits the solution has to live with.")
    customer_budget: str | None = Field(
        description="What the customer said they can spend; null when the customer has not stated it.",
        json_schema_extra=CUSTOMER_FACT,
    )
    launch_date: str | None = Field(
        description="The launch date the customer gave, as YYYY-MM-DD if it is a full date; null when not stated.",
        json_schema_extra=CUSTOMER_FACT,
    )
    team_size: int | None = Field(
        description="How many of the customer's own people will work with it; null when not stated.",
        json_schema_extra=CUSTOMER_FACT,
    )
    open_questions: list[str]


class RoleRate(Value):
    role: Role
    agency_weekly_usd: int
    outside_weekly_usd: int | None = Field(description="Lowest outside quote; null when nobody offers the role.")
    outside_supplier: str | None
    minimum_weeks: int | None = Field(description="Shortest booking the outside supplier accepts.")


class ServicePrice(Value):
    service: str
    supplier: str
    per: str = Field(description="What the price is for: a month, a message.")
    usd: float
    quoted_on: str


class VendorRates(Value):
    weekly_usd: int = Field(description="Lowest outside quote for one developer for one week, in whole US dollars.")
    weekly_usd_role: Role
    weekly_usd_supplier: str
    agency: str
    region: str
    roles: list[RoleRate]
    services: list[ServicePrice] = Field(description="Prices of services that a solution may need to run.")
    quoted_on: str = Field(description="Date of the oldest weekly rate used, YYYY-MM-DD.")


class Component(Value):
    name: str
    purpose: str
    choice: str = Field(description="The product, framework or way of building that is recommended.")
    reason: str
    monthly_usd: float | None = Field(description="Running cost a month where a price is given above, else null.")
    monthly_basis: str = Field(description="How the running cost was worked out, or what must be asked for a price.")


class Rejected(Value):
    choice: str
    reason: str


class LookedUpRate(Value):
    role: Role
    supplier: str
    weekly_usd: float


class TechStack(Value):
    summary: str
    components: list[Component]
    rejected: list[Rejected] = Field(description="Options that were considered and not taken.")
    roles: list[Role] = Field(description="Roles needed to build this.")
    looked_up: list[LookedUpRate] = Field(description="Rates from lookup_rates for roles the comparison lacks.")


class Effort(Value):
    role: Role
    weeks: float = Field(description="Weeks of one person.")


class Phase(Value):
    name: str
    weeks: float = Field(description="How long the phase takes on the calendar.")
    result: str = Field(description="What can be shown at its end.")
    effort: list[Effort]


class DeliveryPlan(Value):
    phases: list[Phase]
    total_weeks: float = Field(description="From the first phase's start to the last one's end.")
    latest_start: str | None = Field(description="Last start, without slack, for the launch date; null without a date.")
    needs_from_customer: list[str]
    assumptions: list[str]


class Risk(Value):
    title: str
    cause: str
    likelihood: Literal["low", "medium", "high"]
    impact: Literal["low", "medium", "high"]
    mitigation: str
    owner: str = Field(description="Who acts: a role, or someone at the customer.")
    extra_role: Role = Field(description="Whose time it would cost most.")
    extra_weeks: float = Field(description="Weeks of that role if it happens; 0 if it costs no build time.")


class RiskRegister(Value):
    risks: list[Risk]
    watch_first: str = Field(description="Title of the risk to settle before anything else.")


class CostLine(Value):
    name: str
    low_usd: float
    high_usd: float
    basis: str = Field(description="The sum behind it: weeks × rate per role.")


class CostEstimate(Value):
    components: list[CostLine]
    total_low: float
    total_high: float
    running_monthly_usd: float
    running_basis: str
    outside_option: str = Field(description="What the lowest outside quote would change, as a comparison only.")
    assumptions: list[str]
    customer_budget: str | None = Field(
        description="What the customer said they can spend; null when the customer has not stated it.",
        json_schema_extra=CUSTOMER_FACT,
    )
    launch_date: str | None = Field(
        description="The launch date the customer gave, as YYYY-MM-DD if it is a full date; null when not stated.",
        json_schema_extra=CUSTOMER_FACT,
    )
