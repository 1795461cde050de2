"""What each step of a bid makes, what it represents, and what it must not be used for.

Three kinds of money meet here: what the work costs us, what others were once paid, and what this buyer has said it will
pay. Each has a contract or a field of its own, and only the last may ever be called the buyer's.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from orchestrator import artifact

Role = Literal[
    "product-designer",
    "web-developer",
    "mobile-developer",
    "integration-engineer",
    "platform-engineer",
    "quality-engineer",
    "delivery-lead",
]
Capability = Literal["station-work", "service-desk", "accessibility-audit", "field-hardware", "data-migration"]
Region = Literal["north", "south", "wales"]
Sector = Literal["transport", "utilities", "public-services"]
BUYER_FACT: JsonDict = {"fact_of": "customer"}


class Value(BaseModel):
    """Unknown fields are refused: a misspelt field in an edit is an error, not a silent nothing."""

    model_config = ConfigDict(extra="forbid")


class EffortLine(Value):
    role: Role
    weeks: float = Field(description="Weeks of one person.")


@artifact(
    about="The weeks of our own people that the work takes, as our estimators put it.",
    not_for=["Estimated for costing. It is not a plan and promises no date."],
    max_tokens=800,
)
class Effort(Value):
    covers: str
    leaves_out: list[str] = Field(description="Work that is needed and that somebody else must do.")
    lines: list[EffortLine]


class Requirement(Value):
    id: str = Field(description="The tender's own mark, for instance M2; else the number in order.")
    text: str = Field(description="In the tender's words, shortened.")
    mandatory: bool


class Criterion(Value):
    name: str
    kind: Literal["quality", "social-value", "price"]
    weight: float = Field(description="Points.")


@artifact(
    about="What the tender asks for and how it will be judged, sorted out from the buyer's words.",
    not_for=[
        "Our reading. Where it differs from the tender, the tender is right.",
        "An empty fact means that the buyer has not said it. Do not fill it from other figures.",
    ],
    tags=["topic:need"],
    max_tokens=1800,
)
class Opportunity(Value):
    title: str = Field(description="What is bought, in at most eight words.")
    sector: Sector
    need: str = Field(description="What goes wrong today, with the buyer's own numbers.")
    requirements: list[Requirement]
    criteria: list[Criterion]
    price_rule: Literal["lowest-over-price", "not-given"] = Field(
        description="lowest-over-price: points are weight × lowest price / own price, or in proportion to the lowest."
    )
    price_ceiling_gbp: int | None = Field(
        description="The most the buyer said it will pay, in pounds; null when the buyer has not stated it.",
        json_schema_extra=BUYER_FACT,
    )
    term_months: int | None = Field(
        description="Months of running that the price covers; null when the buyer has not stated it.",
        json_schema_extra=BUYER_FACT,
    )
    questions_until: str | None = Field(
        description="YYYY-MM-DD; null when the buyer has not stated it.", json_schema_extra=BUYER_FACT
    )
    tender_deadline: str | None = Field(
        description="YYYY-MM-DD; null when the buyer has not stated it.", json_schema_extra=BUYER_FACT
    )
    go_live: str | None = Field(
        description="Date by which it must be in use, YYYY-MM-DD; null when not stated.", json_schema_extra=BUYER_FACT
    )
    open_questions: list[str] = Field(description="What must be asked before we can price or promise it.")


class Competitor(Value):
    name: str
    likely: Literal["certain", "likely", "possible"] = Field(description="Whether it will bid.")
    brings: list[str]
    lacks: list[str] = Field(description="What the tender asks for and it is not known to have.")
    will_say: str = Field(description="The argument it will make against a bidder like us, in one sentence.")
    source: str = Field(description="Where we have this from.")


@artifact(
    about="Who else may bid, what each brings and lacks, as far as our notes go.",
    not_for=[
        "Our own view, for us only. No text for the buyer names a competitor.",
        "What a competitor is not known to have may still exist.",
    ],
    tags=["topic:market"],
    max_tokens=1500,
)
class CompetitorView(Value):
    competitors: list[Competitor]
    left_open: list[str] = Field(description="What the buyer needs and none of them is known to offer.")


class ShownReference(Value):
    id: str
    client: str
    delivered: int
    what: str
    result: str
    may_be_named: bool


@artifact(
    about="What we have delivered in this sector, from our own list.",
    not_for=["A client that may not be named stands here for our own judgement. No text for the buyer names it."],
)
class References(Value):
    """Given to a question by `swot` itself; no step makes it."""

    references: list[ShownReference]


class Strength(Value):
    point: str
    evidence: str
    reference: str | None = Field(description="Id of the reference that shows it, for instance R-02; null without one.")


class Point(Value):
    point: str
    evidence: str


@artifact(
    about="Where we stand for this one tender: our strengths and weaknesses, what helps and what threatens us.",
    not_for=[
        "Said among ourselves. Weaknesses and threats do not go into any text for the buyer.",
        "A strength without a reference is a claim, not a proof.",
    ],
    tags=["topic:position"],
    max_tokens=1800,
)
class Swot(Value):
    strengths: list[Strength]
    weaknesses: list[Point]
    opportunities: list[Point]
    threats: list[Point]
    so_what: str = Field(description="In two sentences: on what we can win, and on what we would lose.")


class Cover(Value):
    requirement: str = Field(description="Id of the requirement.")
    by: Literal["us", "partner", "open"] = Field(description="open: neither we nor any partner we found.")
    partner: str | None = Field(description="Name as find_partners gives it; null unless by is partner.")
    how: str = Field(description="Our own proof, what the partner does, or what is missing.")


class Booking(Value):
    partner: str
    capability: Capability
    weeks: float = Field(description="Weeks to be paid for.")
    basis: str = Field(description="How the weeks were worked out, with what is assumed.")


@artifact(
    about="Who covers each mandatory requirement, we, a partner or nobody yet, and for how long a partner is needed.",
    not_for=[
        "No partner has agreed to anything yet. Do not promise one to the buyer.",
        "Weeks are for costing. They are not an order.",
    ],
    tags=["topic:partners"],
    max_tokens=1500,
)
class PartnerNeeds(Value):
    cover: list[Cover] = Field(description="One entry for each mandatory requirement.")
    bookings: list[Booking]
    to_agree: list[str] = Field(description="What must be settled with a partner before the tender is sent.")


class Risk(Value):
    title: str
    cause: str
    likelihood_percent: int = Field(ge=0, le=100)
    extra_role: Role = Field(description="Whose time it would cost most.")
    extra_weeks: float = Field(ge=0, description="Weeks of that role if it happens.")
    answer: str = Field(description="What we do about it, and by when.")
    owner: str


@artifact(
    about="What could make this contract dearer or later for us if we win, how likely it is, and what we do about it.",
    not_for=[
        "Estimates of ours, not events. Weeks count only if the risk happens.",
        "For us only: the buyer is told what we do, not how likely we think a failure is.",
    ],
    tags=["topic:risk"],
    max_tokens=1500,
)
class RiskRegister(Value):
    risks: list[Risk]
    watch_first: str = Field(description="Title of the risk to settle before the tender is sent.")


class CostLine(Value):
    name: str
    weeks: float
    weekly_gbp: int
    cost_gbp: int


class Award(Value):
    buyer: str
    year: int
    winner: str
    value_gbp: int
    months: int
    scaled_gbp: int | None = Field(description="For this tender's term, in proportion; null where no term is stated.")


class Comparison(Value):
    """Our price against one rival price: who gets how many points for the price alone."""

    our_price: Literal["floor", "target"]
    rival_gbp: int
    our_points: float
    rival_points: float
    quality_lead_needed: float = Field(description="Points to be ahead elsewhere to draw level; below 0: we lead.")


@artifact(
    about="What the work costs us, the prices that follow from it, and how they would fare against past awards.",
    not_for=[
        "Cost, margin and floor are for us only. They stand in no text for the buyer.",
        "Past awards are what other buyers paid others. They are neither this buyer's ceiling nor its budget.",
    ],
    tags=["topic:price"],
    max_tokens=2000,
)
class PricingPosition(Value):
    own_work: list[CostLine]
    partner_work: list[CostLine]
    risk_allowance_gbp: int = Field(description="Likelihood × weeks × rate, over all risks.")
    cost_gbp: int
    floor_gbp: int = Field(description="The lowest price that leaves the minimum margin.")
    target_gbp: int = Field(description="The price that leaves the margin we want.")
    floor_margin_percent: float
    target_margin_percent: float
    headroom_gbp: int | None = Field(description="Stated ceiling less floor; null when no ceiling is stated.")
    awards: list[Award] = Field(description="Awards of this sector to others.")
    comparisons: list[Comparison]


class Theme(Value):
    theme: str = Field(description="One sentence the buyer would repeat.")
    answers: str = Field(description="Id of the requirement, or name of the criterion, it speaks to.")
    proof: str
    reference: str | None = Field(description="Id of the reference that proves it; null without one.")


@artifact(
    about="The three or four sentences the tender is built on, each with what it answers and what proves it.",
    not_for=["Written for the buyer's eyes. Nothing about competitors, costs or our own doubts belongs here."],
    tags=["topic:message"],
    max_tokens=1000,
)
class WinThemes(Value):
    themes: list[Theme] = Field(min_length=1, max_length=4)


class Action(Value):
    by: str = Field(description="YYYY-MM-DD.")
    who: str
    what: str


@artifact(
    about="Whether and how we bid: the decision, the price, what must be settled first, and who does what until then.",
    not_for=[
        "For us only, except message_to_buyer.",
        "A recommendation. The bid is decided by the managing director.",
    ],
    tags=["topic:decision"],
    max_tokens=2000,
)
class BidStrategy(Value):
    decision: Literal["bid", "bid-if", "no-bid"] = Field(description="bid-if: only once the conditions are met.")
    because: list[str]
    conditions: list[str] = Field(description="What must be true before the tender is sent; empty for bid.")
    price_gbp: int | None = Field(description="The price we offer; null for no-bid.")
    margin_percent: float | None = Field(description="(price − cost) / price, in per cent with one decimal.")
    price_reason: str
    questions: list[str] = Field(description="What to ask the buyer before its questions close.")
    actions: list[Action]
    message_to_buyer: str = Field(description="The opening of the tender's summary, at most 120 words.")
