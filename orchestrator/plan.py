"""What a run would do, without doing it: per step an action, its reasons and a price; and what one step would send.

The same questions decide a real run: which steps are not done, which recorded manifest no longer equals the one made
from what the store holds now (threads-and-context §7). Nothing here calls a model or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

from orchestrator.bodies.asking import snapshot_of
from orchestrator.context import build_context
from orchestrator.context.budget import fit_conversation
from orchestrator.context.guards import highest, may_be_sent
from orchestrator.context.select import not_declared
from orchestrator.context.summaries import stand_in, to_summarise
from orchestrator.errors import UsageError
from orchestrator.fan_out import collector, expand
from orchestrator.fitness import check_models
from orchestrator.graph import Graph, ModelChoice, Read, StepNode, downstream
from orchestrator.ids import sha256, synthetic_thread_id
from orchestrator.inputs import check_inputs
from orchestrator.moves import prompt_item
from orchestrator.preconditions import known_step
from orchestrator.providers.prices import Prices
from orchestrator.providers.tokens import estimate, of_bytes
from orchestrator.spec import ConversationSpec, Sensitivity
from orchestrator.staleness import Difference, differences, earlier_of, with_newest
from orchestrator.step import Services, compose_off_loop, output_format
from orchestrator.store.earlier import Taken
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    FromEarlier,
    LeftOut,
    NewArtifact,
    Prompt,
    Request,
    RunRow,
    Snapshot,
    StepRow,
    Usage,
)

Action = Literal["run", "reuse", "maybe", "ask", "skip"]
# What an artifact that does not exist yet is taken to weigh, where its contract sets no limit.
GUESSED_ARTIFACT_TOKENS: Final = 700
GUESSED_REPLY_TOKENS: Final = 500
GUESSED_ENTRY_TOKENS: Final = 100
BODY: Final = "its body decides how often it asks"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step's part of a plan. Costs are USD, None where the price is not known or no model is called."""

    name: str
    action: Action
    reasons: tuple[str, ...]
    tokens_estimate: int | None
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in running order, the base URLs that would be sent to, and the sum: expected low, worst case high."""

    steps: tuple[PlannedStep, ...]
    hosts: tuple[str, ...]
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """Exactly what a step's first call would send: text by block, and the request body as bytes."""

    prompt: Prompt
    left_out: tuple[LeftOut, ...]
    wire: bytes
    model: str


async def plan_new(services: Services, graph: Graph, inputs: Mapping[str, Any], session: str | None = None) -> Plan:
    """The plan of a run that does not exist yet. Raises what starting it would raise for its inputs and models."""
    hosts = check_models(services, graph, with_key=False)
    given = check_inputs(graph, inputs)
    sizes = {name: estimate(artifact.body) for name, artifact in given.items()}
    taken = await services.store.earlier_now(session, earlier_of(graph))
    sizes |= {name: of_bytes(one.version.size) for name, one in taken.items()}
    refused = _refusals(services, graph, {name: one.version.sensitivity for name, one in taken.items()})
    counts = {s.name: _listed(s, given) for s in graph.steps.values()}
    steps = [
        _planned(
            services.prices, s, sizes, "ask" if s.gate is not None else "run", refused.get(s.name, ()), counts[s.name]
        )
        for s in graph.steps.values()
    ]
    plan = _plan(graph, _with_summaries(services.prices, graph, steps, sizes), hosts)
    return replace(
        plan, notes=(*plan.notes, *(_taken(name, earlier, taken) for name, earlier in earlier_of(graph).items()))
    )


def _taken(name: str, earlier: FromEarlier, taken: Mapping[str, Taken]) -> str:
    """What a new run would take from an earlier one."""
    if name in taken:
        return f"{name} is taken from run {taken[name].run}: {earlier.step}@{taken[name].version.version}"
    lacks = "so the run does not start" if earlier.required else "so its default is read"
    return f"{name}: no earlier run of the {earlier.source} has {earlier.step} as {earlier.contract}, {lacks}"


async def plan_run(services: Services, graph: Graph, run: RunRow, *, again: Collection[str] | None = None) -> Plan:
    """What `resume` and a refresh of everything stale would do to an existing run; `again` names steps that are to run
    whether they are stale or not."""
    hosts = check_models(services, graph, with_key=False)
    newest = await services.store.newest_earlier(run.id, earlier_of(graph))
    every = with_newest(await services.store.steps(run.id), newest)
    rows = {row.name: row for row in every if row.item is None}
    found = differences(graph, every)
    for name in again or ():
        found[name] = Difference((*found.get(name, Difference()).stale, "asked for"))
    sizes = {name: -(-row.head.size * 2 // 7) for name, row in rows.items() if row.head}
    below = downstream(graph, [name for name, difference in found.items() if difference.stale])
    actions = {
        name: _action(rows.get(name), found.get(name, Difference()), name in below, step.gate is not None)
        for name, step in graph.steps.items()
    }
    kept = {name for name in graph.rank if name in graph.inputs or actions[name][0] == "reuse"}
    heads = {name: row.head.sensitivity for name, row in rows.items() if row.head and name in kept}
    refused = _refusals(services, graph, heads)
    cut = await _conversations_cut(services, run, [s for s in graph.steps.values() if s.name not in kept])
    steps = []
    for step in graph.steps.values():
        action, why = actions[step.name]
        why = (*why, *refused.get(step.name, ()), *cut.get(step.name, ()))
        steps.append(_planned(services.prices, step, sizes, action, why, _open_items(step, every, found)))
    return _plan(graph, _with_summaries(services.prices, graph, steps, sizes), hosts)


def plan_step(
    services: Services, graph: Graph, name: str, sizes: Mapping[str, int], levels: Mapping[str, Sensitivity], times: int
) -> Plan:
    """The plan of running one step alone, so many times, on versions of these sizes (tokens) and sensitivities."""
    part = replace(graph, steps={name: graph.steps[name]})
    hosts = check_models(services, part, with_key=False)
    refused = _refusals(services, graph, levels).get(name, ())
    once = _planned(services.prices, part.steps[name], sizes, "run", refused)
    (once,) = _with_summaries(services.prices, part, [once], sizes)
    return _plan(part, [once] * times, hosts)


def part_of(services: Services, graph: Graph, plan: Plan, names: Collection[str]) -> Plan:
    """The plan of these steps alone, with their own hosts and sums."""
    part = replace(graph, steps={name: step for name, step in graph.steps.items() if name in names})
    hosts = check_models(services, part, with_key=False)
    return _plan(part, [step for step in plan.steps if step.name in part.steps], hosts)


def _refusals(services: Services, graph: Graph, known: Mapping[str, Sensitivity]) -> dict[str, tuple[str, ...]]:
    """The steps that would be refused for what they read, and why. `known` are the levels of what is there already; a
    step that is to run gets the highest level it reads, as its output will (S21)."""
    levels = {name: known.get(name, node.contract.sensitivity) for name, node in graph.inputs.items()}
    refused: dict[str, tuple[str, ...]] = {}
    for step in graph.steps.values():
        reads = {read.name: highest((read.contract.sensitivity, levels[read.source])) for read in step.reads}
        levels[step.name] = known.get(step.name) or highest((step.contract.sensitivity, *reads.values()))
        if step.name in known or step.model is None or not step.asks:
            continue
        refused[step.name] = tuple(_refusals_of(services, step, reads))
    return refused


def _refusals_of(services: Services, step: StepNode, reads: Mapping[str, Sensitivity]) -> Iterator[str]:
    """Why a step would be refused, or could not fall back on another model, for what it reads."""
    for chosen in step.models:
        first = "would be refused" if chosen is step.model else f"could not have {chosen.name} sum up what is too large"
        for choice in chosen.candidates:
            traits = services.providers.offline(choice.provider).traits
            what = first if choice is chosen else f"could not fall back on {choice.name}"
            for name, level in reads.items():
                if not may_be_sent(level, traits.may_see):
                    yield f"{what}: {name} is {level}, and {traits.name} may see {traits.may_see} at most"


async def _conversations_cut(services: Services, run: RunRow, steps: Sequence[StepNode]) -> dict[str, tuple[str, ...]]:
    """The steps whose conversation is cut by its token cap, and how many messages that costs (G21)."""
    by_limits: dict[ConversationSpec, tuple[str, ...]] = {}
    for limits, name in {step.conversation: step.name for step in steps if step.conversation}.items():
        seen = await services.store.snapshot(run.id, name, None, [], limits.messages)
        over = len(seen.conversation) - len(fit_conversation(limits, seen.conversation, len(seen.conversation))[0])
        if over:
            what = f"{over} of the last {len(seen.conversation)} messages"
            by_limits[limits] = (f"the conversation's cap of {limits.tokens} tokens leaves out {what}",)
    return {step.name: by_limits[step.conversation] for step in steps if step.conversation in by_limits}


def _action(row: StepRow | None, difference: Difference, below: bool, gate: bool) -> tuple[Action, tuple[str, ...]]:
    if row is not None and row.status == "waiting":
        return "ask", (row.error.message,) if row.error else ()
    if gate and (row is None or row.head is None or row.decision == "stop" or difference.stale):
        return "ask", difference.stale
    if row is None or (row.head is None and row.status != "skipped"):
        return "run", (row.error.message,) if row is not None and row.error else ()
    if difference.stale:
        return "run", difference.stale
    if below:
        return "maybe", ("runs if what it reads changes",)
    if row.status == "skipped":
        return "skip", (row.error.message,) if row.error else ()
    return "reuse", tuple(f"kept although {reason}" for reason in difference.changed)


def _listed(step: StepNode, given: Mapping[str, NewArtifact]) -> int | None:
    """How many items a step will have, where its list is a given input. Raises StepFailed for a list that cannot be."""
    for_each = step.for_each
    if for_each is None or for_each.same is not None or for_each.source not in given:
        return None
    return len(expand(step, for_each.whole.load(given[for_each.source].body)).entries)


def _open_items(step: StepNode, rows: Sequence[StepRow], found: Mapping[str, Difference]) -> int | None:
    """How many items of a run's step are to be made, as far as its list is known."""
    items = [row for row in rows if row.name == step.name and row.item is not None and not row.retired]
    listed = [r.name for r in collector(step).reads if r.name == step.for_each.source] if step.for_each else []
    changed = any(
        reason.startswith(f"{name} ") for name in listed for reason in found.get(step.name, Difference()).stale
    )
    if not items or changed:
        return None
    return sum(row.status != "succeeded" or bool(found.get(row.label, Difference()).stale) for row in items)


def _planned(
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
    return replace(made, reasons=(*made.reasons, f"stops at its max_usd of ${most:f}"), cost_high_usd=most)


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
    worst = [_dearest(prices, step.model, tokens + n * longest) for n in range(step.reasks + 1)]
    if step.repeat is not None:
        # Each further visit is shown the version before it, and told what is not good yet.
        more = tokens + 2 * longest
        visit = [_dearest(prices, step.model, more + n * longest) for n in range(step.reasks + 1)]
        worst += visit * (step.repeat.max_rounds - 1)
        reasons = (*reasons, f"at most {step.repeat.max_rounds} visits")
    high = _sum(*worst, *_worst_summaries(prices, step, sizes))
    return PlannedStep(step.name, action, reasons, tokens, low.usd if low else None, high)


def _sum(*costs: Decimal | None) -> Decimal | None:
    """Together, None where one of them is not known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


def _summed_up(step: StepNode, sizes: Mapping[str, int]) -> Iterator[tuple[Read, int | None]]:
    """The reads that may be summed up for a step, each with its size where it is known."""
    for read in step.reads:
        limit, size = read.contract.max_tokens, sizes.get(read.name)
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


def _with_summaries(
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
        found.append(replace(planned, reasons=tuple(reasons), cost_low_usd=_sum(*low)))
    return found


def _dearest(prices: Prices, model: ModelChoice, tokens: int) -> Decimal | None:
    """The most that one question may cost, at whichever model answers it; None where that of one is not known."""
    worst = [prices.worst(one.provider, one.model, tokens, one.max_output_tokens) for one in model.candidates]
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


def _plan(graph: Graph, steps: list[PlannedStep], hosts: tuple[str, ...]) -> Plan:
    asked = [s for s in steps if s.tokens_estimate is not None]
    low = [s.cost_low_usd for s in asked]
    high = [s.cost_high_usd for s in asked if s.action != "reuse"]
    notes = [f"no price is known for the model of {s.name}" for s in asked if s.cost_low_usd is None]
    return Plan(
        tuple(steps),
        hosts,
        sum((c for c in low if c is not None), Decimal(0)) if None not in low else None,
        sum((c for c in high if c is not None), Decimal(0)) if None not in high else None,
        tuple(notes),
    )


# --- render -----------------------------------------------------------------------------------------------------------


async def render_step(
    services: Services,
    graph: Graph,
    name: str,
    *,
    run: RunRow | None,
    inputs: Mapping[str, Any] | None = None,
    item: str | None = None,
) -> Rendered:
    """The request that `name`, or one item of it, would start with now. Raises UsageError where a read does not exist
    yet."""
    step = known_step(graph, name)
    name = step.name
    if step.kind == "python" and step.asks:
        hint = f"after a run: orch why RUN/{name} --text shows what it sent"
        raise UsageError(
            f"{name} cannot be rendered: its Python body decides what it asks, its first question too, when it runs",
            hint=hint,
        )
    if step.gate is not None:
        raise UsageError(f"{name} is a gate: it asks a person and sends nothing", hint="orch show shows what it asks")
    if step.model is None or not step.asks:
        raise UsageError(f"{name} is a Python step: it sends nothing", hint="orch show shows its value")
    if (step.for_each is not None) != (item is not None):
        hint = f"name one of them: {name}/KEY" if item is None else f"write {name}"
        what = "is made for each entry of a list" if item is None else f"has no items, so none that is {item}"
        raise UsageError(f"{name} {what}", hint=hint)
    snapshot = await _snapshot(services, graph, step, run, inputs or {}, item)
    missing = [r.source for r in step.reads if r.name not in snapshot.artifacts and r.source in graph.steps]
    if missing and item is not None and step.for_each is not None and missing[-1] == step.for_each.source:
        raise UsageError(f"{name} has no item {item}", hint=f"its list is {step.for_each.list_name}")
    if missing:
        raise UsageError(
            f"{name} reads {', '.join(missing)}, which has not run", hint="run the pipeline up to there first"
        )
    provider = services.providers.offline(step.model.provider)
    stand_ins = {entry.read.name: stand_in(entry) for entry in to_summarise(graph, step, snapshot)}
    snapshot = replace(snapshot, summaries=stand_ins)
    context = build_context(
        graph,
        step,
        snapshot,
        may_see=provider.traits.may_see,
        provider_name=provider.traits.name,
        accepts=provider.traits.accepts,
        window=services.prices.window(step.model.provider, step.model.model),
    )
    prompt = await compose_off_loop(step, context, snapshot)
    request = Request(
        model=step.model.model,
        thread=synthetic_thread_id("render"),
        system=prompt.system,
        items=(prompt_item(prompt),),
        tools=tuple(tool.spec for tool in step.tools),
        hosted=step.hosted,
        output=output_format(step),
        max_output_tokens=step.model.max_output_tokens,
        effort=step.model.effort,
        background=step.model.background,
        edits=step.model.edits,
        step=step.name,
    )
    model = f"{step.model.provider}:{step.model.model}"
    return Rendered(prompt, (*not_declared(graph, step), *context.left_out), provider.wire(request), model)


async def _snapshot(
    services: Services,
    graph: Graph,
    step: StepNode,
    run: RunRow | None,
    inputs: Mapping[str, Any],
    item: str | None,
) -> Snapshot:
    if run is not None:
        return await snapshot_of(services.store, run.id, step, item)
    given = {name: _unsaved(name, new) for name, new in check_inputs(graph, inputs).items()}
    reads = {read.name: given[read.name] for read in step.reads if read.name in given}
    if step.for_each is not None and step.for_each.source in given and step.for_each.same is None:
        reads |= _given_entry(step, given[step.for_each.source], item)
    return Snapshot(reads, record=given, defaulted=frozenset(name for name in given if name not in inputs))


def _given_entry(step: StepNode, whole: Artifact, item: str | None) -> dict[str, Artifact]:
    """The entry of that key, where the list is a given input."""
    assert step.for_each is not None
    entries = expand(step, step.for_each.whole.load(whole.body)).entries
    body = next((entry.body for entry in entries if entry.key == item), None)
    if body is None:
        raise UsageError(f"{step.name} has no item {item}", hint=f"it has {', '.join(entry.key for entry in entries)}")
    return {step.for_each.item: Artifact(replace(whole.version, sha256=sha256(body), field_hashes={}), body)}


def _unsaved(name: str, new: NewArtifact) -> Artifact:
    """An input that no run holds yet."""
    version = ArtifactVersion(
        id="",
        run_id="",
        step=name,
        item=None,
        contract=new.contract,
        version=1,
        sha256=sha256(new.body),
        size=len(new.body),
        author=new.author,
        origin=new.origin,
        created_at=datetime.fromtimestamp(0, UTC),
        parent_id=None,
        sensitivity=new.sensitivity,
        field_hashes=new.field_hashes,
    )
    return Artifact(version, new.body)
