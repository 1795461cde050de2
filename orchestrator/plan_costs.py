"""What a step of a plan would cost: expected, and at the worst. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, Literal

from orchestrator.chain import LOOK_TOKENS
from orchestrator.graph import Graph, ModelChoice, Read, StepNode
from orchestrator.providers.prices import Prices
from orchestrator.providers.tokens import estimate
from orchestrator.values import (
    Usage,
)

Action = Literal["run", "reuse", "maybe", "ask", "skip"]
# What an artifact that does not exist yet is taken to weigh, where its contract sets no limit.
GUESSED_ARTIFACT_TOKENS: Final = 700
GUESSED_REPLY_TOKENS: Final = 500
GUESSED_ENTRY_TOKENS: Final = 100
BODY: Final = "its body decides how often it asks"
TOOLS: Final = "its model decides how often it calls its tools"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step's part of a plan. Costs are USD, None where the price is not known or no model is called."""

    name: str
    action: Action
    reasons: tuple[str, ...]
    tokens_estimate: int | None
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None


def planned(
    prices: Prices,
    step: StepNode,
    sizes: Mapping[str, int],
    action: Action,
    reasons: tuple[str, ...],
    items: int | None = None,
) -> PlannedStep:
    """`items` is how many items there are to make of a step with `for_each`; None where the list is not known yet. No
    step costs more than it may (`max_usd`)."""
    made = _planned_freely(prices, step, sizes, action, reasons, items)
    most, high = step.max_usd, made.cost_high_usd
    if most is None or action == "reuse" or step.model is None or (high is not None and high <= most):
        return made
    reasons = (*made.reasons, f"stops at its max_usd of ${most:f}")
    return replace(made, reasons=reasons, cost_low_usd=_within(step, made.cost_low_usd), cost_high_usd=most)


def _within(step: StepNode, cost: Decimal | None) -> Decimal | None:
    """No more than the step may cost."""
    return cost if cost is None or step.max_usd is None else min(cost, step.max_usd)


def _planned_freely(
    prices: Prices,
    step: StepNode,
    sizes: Mapping[str, int],
    action: Action,
    reasons: tuple[str, ...],
    items: int | None = None,
) -> PlannedStep:
    if step.for_each is None:
        return _priced(prices, step, sizes, action, reasons)
    if action == "reuse":
        return PlannedStep(step.name, action, reasons, None, None, None)
    one = _priced(prices, step, sizes, action, ())
    least, most = (1, step.for_each.at_most) if items is None else (items, items)
    told = (
        f"up to {most} items, one for each of {step.for_each.list_name}"
        if items is None
        else f"{items} item{'' if items == 1 else 's'}"
    )
    return PlannedStep(
        step.name,
        action,
        (told, *reasons, *one.reasons),
        None if one.tokens_estimate is None else one.tokens_estimate * least,
        None if one.cost_low_usd is None else one.cost_low_usd * least,
        None if one.cost_high_usd is None else one.cost_high_usd * most,
    )


def _priced(
    prices: Prices, step: StepNode, sizes: Mapping[str, int], action: Action, reasons: tuple[str, ...]
) -> PlannedStep:
    if step.model is None or action == "reuse":
        return PlannedStep(step.name, action, reasons, None, None, None)
    tokens = _prompt_tokens(step, sizes)
    provider, model, cap = step.model.provider, step.model.model, step.model.max_output_tokens
    reply = min(cap, GUESSED_REPLY_TOKENS)
    low = prices.cost(provider, model, Usage(input_tokens=tokens, output_tokens=reply))
    if step.kind == "python":
        # How often a body asks is known when it has run: its text tells a beginning, nothing tells an end.
        least = low.usd * step.questions if low else None
        return PlannedStep(step.name, action, (*reasons, BODY), tokens * step.questions, least, None)
    # The worst case: every re-ask used, each carrying all earlier replies at their cap, at the dearest of the models
    # that may be asked.
    longest = max(one.max_output_tokens for one in step.model.candidates)
    searches = sum(tool.max_uses for tool in step.hosted)
    worst = [_dearest(prices, step.model, tokens + n * longest, searches) for n in range(step.reasks + 1)]
    if step.repeat is not None:
        # Each further visit is shown the version before it, and told what is not good yet.
        more = tokens + 2 * longest
        visit = [_dearest(prices, step.model, more + n * longest, searches) for n in range(step.reasks + 1)]
        worst += visit * (step.repeat.max_rounds - 1)
        reasons = (*reasons, f"at most {step.repeat.max_rounds} visits")
    unknown = [one.name for one in step.model.fallbacks if prices.price(one.provider, one.model) is None]
    reasons = (*reasons, *(f"no price is known for {name}, which may be asked in its place" for name in unknown))
    high = _sum(*worst, *_worst_summaries(prices, step, sizes))
    if step.tools and high:  # each round is one more call, and nothing here tells how many there will be
        reasons, high = (*reasons, TOOLS), None
    return PlannedStep(step.name, action, reasons, tokens, low.usd if low else None, high)


def _sum(*costs: Decimal | None) -> Decimal | None:
    """Together, None where one of them is not known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


def _summed_up(step: StepNode, sizes: Mapping[str, int]) -> Iterator[tuple[Read, int | None]]:
    """The reads that may be summed up for a step, each with its size where it is known."""
    for read in step.reads:
        # Of a step with items it is the list's size that is known, not theirs.
        limit, size = read.contract.max_tokens, sizes.get(read.name) if read.takes == "one" else None
        if read.contract.overflow == "summarise" and limit is not None and (size is None or size > limit):
            yield read, size


def _worst_summaries(prices: Prices, step: StepNode, sizes: Mapping[str, int]) -> list[Decimal | None]:
    """What each call for the summaries of a step costs at the most: as if no other step had them made, every re-ask
    used, and what is not made yet as long as a reply can be."""
    model = step.summariser
    if model is None:
        return []
    sent = [model.max_output_tokens if size is None else size for _, size in _summed_up(step, sizes)]
    longest = model.max_output_tokens
    return [_dearest(prices, model, tokens + n * longest) for tokens in sent for n in range(step.reasks + 1)]


def with_summaries(
    prices: Prices, graph: Graph, steps: Sequence[PlannedStep], sizes: Mapping[str, int]
) -> list[PlannedStep]:
    """The plan with what is known to be summed up: by the first step that needs it, once."""
    seen: set[str] = set()
    found: list[PlannedStep] = []
    for planned in steps:
        step = graph.steps[planned.name]
        model = step.summariser
        if model is None or planned.action in ("reuse", "skip"):
            found.append(planned)
            continue
        low, reasons = [planned.cost_low_usd], list(planned.reasons)
        for read, size in _summed_up(step, sizes):
            limit = read.contract.max_tokens or 0
            if size is None:
                reasons.append(f"{read.name} is summed up first if it is over {limit:,} tokens")
            elif read.name not in seen:
                seen.add(read.name)
                reasons.append(f"{read.name} is summed up first: about {size:,} tokens, at most {limit:,} are read")
                cost = prices.cost(model.provider, model.model, Usage(input_tokens=size, output_tokens=limit))
                low.append(cost.usd if cost else None)
        found.append(replace(planned, reasons=tuple(reasons), cost_low_usd=_within(step, _sum(*low))))
    return found


def _dearest(prices: Prices, model: ModelChoice, tokens: int, searches: int = 0) -> Decimal | None:
    """The most that one question may cost, at whichever model answers it, with so many searches of the provider's; None
    where that of one is not known."""
    read = tokens + searches * LOOK_TOKENS
    worst = [prices.worst(one.provider, one.model, read, one.max_output_tokens, searches) for one in model.candidates]
    known = [cost for cost in worst if cost is not None]
    return max(known) if len(known) == len(worst) else None


def _prompt_tokens(step: StepNode, sizes: Mapping[str, int]) -> int:
    task = estimate(step.template.text) if step.template else 0
    reads = [_read_tokens(read, sizes) for read in step.reads]
    labels = sum(estimate(read.contract.about + "".join(read.contract.not_for)) + 20 for read in step.reads)
    return task + sum(reads) + labels + GUESSED_REPLY_TOKENS // 5


def _read_tokens(read: Read, sizes: Mapping[str, int]) -> int:
    """What a read may weigh. An entry is a small part of its list; of a step with items each counts."""
    if read.kind == "entry":
        return GUESSED_ENTRY_TOKENS
    known = sizes.get(read.name)
    one = read.contract.max_tokens or GUESSED_ARTIFACT_TOKENS
    if read.takes == "one" and known is not None:
        return known if read.contract.overflow == "fail" or read.contract.max_tokens is None else min(known, one)
    return one if read.takes != "each" else known or one
