"""What a run would do, without doing it: per step an action, its reasons and a price.

The same questions decide a real run: which steps are not done, which recorded manifest no longer equals the one made
from what the store holds now (threads-and-context §7). Nothing here calls a model or writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from orchestrator.attachments import kind_of, media_of, weight
from orchestrator.context.budget import fit_conversation
from orchestrator.context.guards import highest, may_be_sent
from orchestrator.fan_out import collector, expand
from orchestrator.fitness import check_models
from orchestrator.graph import Graph, StepNode, downstream
from orchestrator.inputs import check_inputs
from orchestrator.plan_costs import Action, PlannedStep, planned, with_summaries
from orchestrator.providers.tokens import estimate, of_bytes
from orchestrator.spec import ConversationSpec, Sensitivity
from orchestrator.staleness import Difference, differences, earlier_of, with_newest
from orchestrator.step import Services
from orchestrator.store.earlier import Taken
from orchestrator.values import (
    FromEarlier,
    NewArtifact,
    RunRow,
    StepRow,
)

NO_FILES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in running order, the base URLs that would be sent to, and the sum: expected low, worst case high."""

    steps: tuple[PlannedStep, ...]
    hosts: tuple[str, ...]
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None
    notes: tuple[str, ...] = ()


async def plan_new(services: Services, graph: Graph, inputs: Mapping[str, Any], session: str | None = None) -> Plan:
    """The plan of a run that does not exist yet. Raises what starting it would raise for its inputs and models."""
    hosts = check_models(services, graph, with_key=False)
    given = check_inputs(graph, inputs)
    media = {name: found for name, one in given.items() if (found := _media(graph, name, one))}
    sizes = {name: _weight(artifact, media.get(name)) for name, artifact in given.items()}
    taken = await services.store.earlier_now(session, earlier_of(graph))
    sizes |= {name: of_bytes(one.version.size) for name, one in taken.items()}
    refused = _refusals(services, graph, {name: one.version.sensitivity for name, one in taken.items()}, media)
    counts = {s.name: _listed(s, given) for s in graph.steps.values()}
    steps = [
        planned(
            services.prices, s, sizes, "ask" if s.gate is not None else "run", refused.get(s.name, ()), counts[s.name]
        )
        for s in graph.steps.values()
    ]
    plan = _plan(graph, with_summaries(services.prices, graph, steps, sizes), hosts)
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
        steps.append(planned(services.prices, step, sizes, action, why, _open_items(step, every, found)))
    return _plan(graph, with_summaries(services.prices, graph, steps, sizes), hosts)


def plan_step(
    services: Services, graph: Graph, name: str, sizes: Mapping[str, int], levels: Mapping[str, Sensitivity], times: int
) -> Plan:
    """The plan of running one step alone, so many times, on versions of these sizes (tokens) and sensitivities."""
    part = replace(graph, steps={name: graph.steps[name]})
    hosts = check_models(services, part, with_key=False)
    refused = _refusals(services, graph, levels).get(name, ())
    once = planned(services.prices, part.steps[name], sizes, "run", refused)
    (once,) = with_summaries(services.prices, part, [once], sizes)
    return _plan(part, [once] * times, hosts)


def part_of(services: Services, graph: Graph, plan: Plan, names: Collection[str]) -> Plan:
    """The plan of these steps alone, with their own hosts and sums."""
    part = replace(graph, steps={name: step for name, step in graph.steps.items() if name in names})
    hosts = check_models(services, part, with_key=False)
    return _plan(part, [step for step in plan.steps if step.name in part.steps], hosts)


def _media(graph: Graph, name: str, given: NewArtifact) -> str | None:
    """What kind of picture or document an input is; None for all that is text."""
    return media_of(given.body) if graph.inputs[name].contract.form == "file" else None


def _weight(given: NewArtifact, media: str | None) -> int:
    return estimate(given.body) if media is None else weight(media, given.body)


def _refusals(
    services: Services, graph: Graph, known: Mapping[str, Sensitivity], media: Mapping[str, str] = NO_FILES
) -> dict[str, tuple[str, ...]]:
    """The steps that would be refused for what they read, and why. `known` are the levels of what is there already; a
    step that is to run gets the highest level it reads, as its output will (S21). `media` are the inputs that would go
    beside the text, as what they are."""
    levels = {name: known.get(name, node.contract.sensitivity) for name, node in graph.inputs.items()}
    refused: dict[str, tuple[str, ...]] = {}
    for step in graph.steps.values():
        reads = {read.name: highest((read.contract.sensitivity, levels[read.source])) for read in step.reads}
        levels[step.name] = known.get(step.name) or highest((step.contract.sensitivity, *reads.values()))
        if step.name in known or step.model is None or not step.asks:
            continue
        files = {read.name: media[read.source] for read in step.reads if read.source in media}
        refused[step.name] = (*_refusals_of(services, step, reads), *_files_refused(services, step, files))
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


def _files_refused(services: Services, step: StepNode, files: Mapping[str, str]) -> Iterator[str]:
    """Why a step would be refused for a picture or document, or could not fall back on another model with it."""
    for choice in step.model.candidates if step.model is not None else ():
        traits = services.providers.offline(choice.provider).traits
        what = "would be refused" if choice is step.model else f"could not fall back on {choice.name}"
        for name, media in files.items():
            if kind_of(media) not in traits.accepts:
                yield f"{what}: {name} is {media}, which {traits.name} does not take"


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


def _plan(graph: Graph, steps: list[PlannedStep], hosts: tuple[str, ...]) -> Plan:
    asked = [s for s in steps if s.tokens_estimate is not None]
    low = [s.cost_low_usd for s in asked]
    high = [s.cost_high_usd for s in asked if s.action != "reuse"]
    budget = graph.spec.budget
    stops = budget is not None and budget.unpriced == "refuse"
    led = ": the cap cannot be kept, so the run would stop there" if stops else ""
    notes = [f"no price is known for the model of {s.name}{led}" for s in asked if s.cost_low_usd is None]
    return Plan(
        tuple(steps),
        hosts,
        sum((c for c in low if c is not None), Decimal(0)) if None not in low else None,
        sum((c for c in high if c is not None), Decimal(0)) if None not in high else None,
        tuple(notes),
    )
