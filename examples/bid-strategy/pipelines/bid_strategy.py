"""Shall we bid for this contract, with whom, and at what price? Eight steps, from a buyer's tender to a decision.

Four of them have logic of their own and are functions; four are a task and nothing else, and are one call of `p.llm`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, Read

from . import checks, pricing
from .contracts import (
    BidStrategy,
    CompetitorView,
    Cover,
    Effort,
    Opportunity,
    PartnerNeeds,
    PricingPosition,
    References,
    RiskRegister,
    Swot,
    WinThemes,
)
from .register import enter
from .tables import all_references
from .tools import find_partners

p = Pipeline(
    "bid-strategy",
    description="From a tender to a bid decision: with whom, at what price, on which arguments.",
    system=(
        "You prepare the bids of Fernhill Studio, a software studio of 34 people. "
        "The customer is the buyer who published the tender.\n"
        "Use only what stands in this message. Where something you need is missing, say that it is missing; "
        "where a number is needed all the same, assume one and call it an assumption.\n"
        "A figure means what its label says. All money is in pounds without tax.\n"
        "Write plain, short sentences. No slogans."
    ),
    budget_usd="4.00",
    unpriced="allow",
    max_output_tokens=4000,
    reasks=2,
    timeout="10m",
)

buyer = p.input("buyer", "string", about="Who buys, in one line.")
tender = p.input("tender", str, about="What the buyer published: what it wants, its conditions, and how it will award.")
notes = p.input(
    "notes",
    str,
    about="What our own people heard, read and know, each with its source.",
    not_for=["Said by us, not by the buyer. Nothing in it is a requirement, a date or a price of the buyer."],
    default="No notes yet.",
)
region = p.input("region", "string", about="Where the work is: north, south or wales. Decides which partners can come.")
effort = p.input("effort", Effort)

opportunity = p.llm(
    "opportunity",
    description="What is asked, how it is judged, and what the buyer has said about money and dates.",
    produces=Opportunity,
    reads=[buyer, tender],
    template="opportunity.md.j2",
    checks=[checks.weights_add_up],
)

competitor_view = p.llm(
    "competitor-view",
    description="Who else may bid, and what each brings and lacks.",
    produces=CompetitorView,
    reads=[notes, opportunity],
    template="competitor_view.md.j2",
)


@p.step(description="Where we stand for this one tender, with references.", checks=[checks.references_exist])
async def swot(
    ctx: Ctx,
    notes: Annotated[str, Read(guard="Heard on the market day is not promised by the buyer.")],
    opportunity: Opportunity,
    competitors: CompetitorView,
) -> Swot:
    """Only the references of the tender's own sector are shown: a long list invites padding."""
    ours = [each.model_dump(exclude={"sector"}) for each in all_references() if each.sector == opportunity.sector]
    return await ctx.ask(Swot, template="swot.md.j2", our_references=References.model_validate({"references": ours}))


class NeedsOnly(BaseModel):
    """What of an effort estimate concerns partners: its numbers do not."""

    leaves_out: list[str]


@p.step(
    description="Who covers what we cannot do ourselves.", tools=[find_partners], checks=[checks.partners_are_known]
)
async def partner_needs(
    ctx: Ctx,
    notes: str,
    region: str,
    opportunity: Opportunity,
    effort: Annotated[NeedsOnly, Read("effort", fields=["leaves_out"])],
) -> PartnerNeeds:
    """Asks, looks whether every mandatory requirement is covered, and asks again in the same conversation if not."""
    chat = ctx.thread()
    needs = await chat.ask(PartnerNeeds, template="partner_needs.md.j2")
    forgotten = uncovered(opportunity, needs.cover)
    if forgotten:
        needs = await chat.ask(
            PartnerNeeds,
            f"Nothing in `cover` speaks to {', '.join(forgotten)}, and every mandatory requirement must be met. "
            "Look for a partner where we cannot do it ourselves; say `open` where you find none. Answer in full again.",
        )
    return needs


def uncovered(opportunity: Opportunity, cover: list[Cover]) -> list[str]:
    """The mandatory requirements that nobody was named for, not even `open`."""
    spoken = {each.requirement for each in cover}
    return [each.id for each in opportunity.requirements if each.mandatory and each.id not in spoken]


risk_register = p.llm(
    "risk-register",
    description="What could make the contract dearer or later for us, and what we do about it.",
    produces=RiskRegister,
    reads=[notes, opportunity, partner_needs, Read(effort, fields=["covers", "leaves_out"])],
    template="risk_register.md.j2",
    checks=[checks.watch_first_is_listed],
)


@p.step(description="What the work costs us, floor and target price, and how they would fare. No model is asked.")
def pricing_position(
    opportunity: Opportunity, effort: Effort, partners: PartnerNeeds, risks: RiskRegister, region: str
) -> PricingPosition:
    return pricing.position(opportunity, effort, partners, risks, region)


win_themes = p.llm(
    "win-themes",
    description="The sentences the tender is built on.",
    produces=WinThemes,
    reads=[
        opportunity,
        Read(swot, fields=["strengths", "opportunities"]),
        Read(competitor_view, fields=["left_open"], guard="Speak to what is left open without naming any bidder."),
    ],
    template="win_themes.md.j2",
    checks=[checks.proofs_may_be_shown],
)


@p.step(
    description="Bid or not, at what price, on which conditions; entered in the register of bids.",
    checks=[checks.price_holds, checks.nothing_inside_gets_out],
)
async def bid_strategy(
    ctx: Ctx,
    buyer: str,
    opportunity: Opportunity,
    swot: Swot,
    partners: PartnerNeeds,
    price: Annotated[
        PricingPosition,
        Read(guard="Of these figures only the price we offer may stand in message_to_buyer."),
    ],
    risks: RiskRegister,
    themes: WinThemes,
) -> BidStrategy:
    strategy = await ctx.ask(BidStrategy, template="bid_strategy.md.j2")
    await ctx.once(
        "register",
        lambda: enter(ctx.run, buyer, opportunity.title, strategy.decision, strategy.price_gbp),
        idempotent=True,
    )
    return strategy


p.outputs(bid_strategy)


def main() -> None:
    """The same run from Python: `python -m pipelines.bid_strategy briefs/rail.json`."""
    brief = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run = p.run(brief)
    decided, price = run.get(bid_strategy), run.get(pricing_position)
    print(f"run {run.number}: {decided.decision}")
    if decided.price_gbp is not None:
        print(f"£{decided.price_gbp:,}, {decided.price_gbp - price.floor_gbp:,} above the floor")
    for condition in decided.conditions:
        print(f"- {condition}")


if __name__ == "__main__":
    main()
