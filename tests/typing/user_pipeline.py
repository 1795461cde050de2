"""A user's file, as `mypy --strict` sees it: what is right passes, and each `type: ignore` marks an error it must find.

Unused ignores are errors under `--strict`, so a mistake that went unnoticed would fail the check of this file. It is
checked, never executed.
"""

from typing import Annotated, assert_type

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, Read, Run, Step, artifact, tool
from orchestrator.trace.events import RunEvent, StepDone


@artifact(about="How large the market is.", not_for="none")
class MarketSizing(BaseModel):
    customers: int


@artifact(about="Rates.", not_for=["These are not the customer's budget."])
class VendorRates(BaseModel):
    weekly_usd: float


@artifact(about="What to build.", not_for="none")
class TechStack(BaseModel):
    components: list[str]


@artifact(about="The proposal.", not_for="none", markdown=True)
class Proposal(str):
    pass


class Customers(BaseModel):
    customers: int


p = Pipeline("discovery", system="You are brief.", budget_usd="4.00", reasks=1, timeout="10m")
idea = p.input("idea", str, about="What the customer wants.")
Pipeline("x", resaks=1)  # type: ignore[call-arg]


@tool(idempotent=True)
def lookup(what: str) -> str:
    """Look something up."""
    return what


def one() -> int:
    return 1


@p.step
async def market_sizing(ctx: Ctx, idea: str) -> MarketSizing:
    return await ctx.ask(MarketSizing, template="market_sizing.md.j2")


@p.step
def vendor_rates(market: MarketSizing) -> VendorRates:
    return VendorRates(weekly_usd=market.customers)


@p.step(tools=[lookup], model="cheap", needs=[market_sizing])
async def tech_stack(
    ctx: Ctx,
    market: Annotated[Customers, Read("market-sizing", fields=["customers"])],
    rates: Annotated[VendorRates, Read(guard="No limit.")],
) -> TechStack:
    chat = ctx.thread("choice")
    stack = await chat.ask(TechStack, template="tech_stack.md.j2", limit=rates)
    assert_type(stack, TechStack)
    if not stack.components:
        stack = await chat.ask(TechStack, "Name at least one component.")
    text: str = await ctx.ask(str, "Why?")
    count: int = await ctx.once("count", lambda: len(text))
    wrong: VendorRates = await ctx.ask(TechStack, "Choose.")  # type: ignore[arg-type]
    number: str = await ctx.once("number", one)  # type: ignore[arg-type]
    await ctx.ask(TechStack, prompt="Choose.", template=3)  # type: ignore[arg-type]
    print(wrong, number, count, stack.weekly_usd)  # type: ignore[attr-defined]
    return stack


@p.step(efort="low")  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def misspelt(market: MarketSizing) -> VendorRates:
    return VendorRates(weekly_usd=1)


proposal = p.llm("proposal", produces=Proposal, reads=[tech_stack, idea, Read(vendor_rates, guard="No.")], prompt="Go.")
estimate = p.llm("estimate", reads=["tech-stack"], template="estimate.md.j2")
p.outputs(proposal, "estimate")


async def main() -> None:
    run = await p.start(idea="a shop", message="Be quick.")
    assert_type(run, Run)
    assert_type(run.get(tech_stack), TechStack)
    assert_type(run.get(proposal), Proposal)
    assert_type(run.get(idea), str)
    wrong: MarketSizing = run.get(tech_stack)  # type: ignore[assignment]
    run.get("tech-stack")  # type: ignore[arg-type]
    stack = await tech_stack.run(market=Customers(customers=3), rates=VendorRates(weekly_usd=1))
    assert_type(stack, TechStack)
    await tech_stack.run(market=VendorRates(weekly_usd=1), rates=VendorRates(weekly_usd=1))  # type: ignore[arg-type]
    await tech_stack.run(market=Customers(customers=3))  # type: ignore[call-arg]
    rates: VendorRates = await vendor_rates.run(MarketSizing(customers=3))
    other: TechStack = await vendor_rates.run(MarketSizing(customers=3))  # type: ignore[assignment]
    following = p.start({"idea": "a shop"})
    async for event in following.events():
        assert_type(event, RunEvent)
        if isinstance(event, StepDone):
            print(event.step, event.calls, event.cost_usd)
    again: Run = await p.resume("last", cap_usd="5.00")
    plan = await p.plan(idea="a shop")
    print(wrong, rates, other, again.status, plan.cost_high_usd, p.run(idea="a shop").number)


def takes(step: Step[..., TechStack]) -> None: ...


takes(tech_stack)
takes(market_sizing)  # type: ignore[arg-type]
