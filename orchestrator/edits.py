"""What a person does about versions: write one, keep one, say which of two stands (S07) and which fields stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestrator.bodies.asking import manifest_now, reads_of, snapshot_of
from orchestrator.contracts import Contract
from orchestrator.errors import UsageError
from orchestrator.exchange.merging import ABSENT, EVERY, Conflict, Side, chooser, covers, merge
from orchestrator.fan_out import collector
from orchestrator.graph import Graph, InputNode, StepNode
from orchestrator.merges import assembled, pinned
from orchestrator.preconditions import known_step, no_bench
from orchestrator.spec import SENSITIVITY_RANK
from orchestrator.staleness import earlier_of
from orchestrator.store.records import Kept, Undecided
from orchestrator.values import Artifact, ArtifactVersion, Dispatch, Merge, NewArtifact, RunRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bodies.asking import Services

_HINT: Final = (
    "Write STEP=head (the edit), STEP=draft (what the step made), or STEP=draft:FIELD,… (the draft there, the edit in"
    " the other conflicts, all else merged); head:FIELD,… likewise."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Which version stands. With `fields`, both are merged, and it stands in the conflicts these cover; the other
    version stands in the rest."""

    keep: Side
    fields: tuple[str, ...] | None = None


def answer(step: str, text: str) -> Answer:
    """`head`, `draft`, `head:FIELD,…` or `draft:FIELD,…` (`*` covers all). Raises UsageError."""
    side, colon, names = text.partition(":")
    fields = tuple(name.strip() for name in names.split(",") if name.strip())
    if not step or side not in ("head", "draft") or bool(colon) != bool(fields):
        raise UsageError(f'"{step}={text}" is no decision about two versions', hint=_HINT)
    return Answer("head" if side == "head" else "draft", fields or None)


def conflicts(contract: Contract, undecided: Undecided) -> tuple[Conflict, ...]:
    """Where a draft that waits and the version beside it differ, each from what both were made of; none where one of
    them cannot be read under the contract as it is now."""
    try:
        base, head, draft = _three(contract, undecided)
    except ValueError:
        return ()
    return merge(base, head, draft).conflicts


def _three(contract: Contract, undecided: Undecided) -> tuple[Any, Any, Any]:
    """The values that are merged; in the draft, pinned fields are the head's."""
    present = undecided.present
    base = ABSENT if present.base is None else contract.load(present.base.body)
    head = contract.load(present.head.body)
    return base, head, pinned(present.pins, head, contract.load(undecided.draft.body)).value


def check_editable(graph: Graph, run: RunRow, name: str, item: str | None = None) -> StepNode | InputNode:
    """The step or input whose value a person may write. Raises UsageError for one that has none of its own."""
    no_bench(run)
    node = graph.steps.get(name) or graph.inputs.get(name)
    if node is None:
        raise UsageError(f"{graph.name} has no step or input {name}", hint=f"it has {', '.join(graph.rank)}")
    if name in earlier_of(graph):
        raise UsageError(
            f"{name} is what an earlier run made, so it is not edited here",
            hint=f"edit it in that run, then: orch refresh {run.number}",
        )
    if item is None and isinstance(node, StepNode):
        source = node.for_each.list_name if node.for_each else ""
        _check_own_value(node, f"edit one of its items, {name}/KEY, or its list, {source}")
    if isinstance(node, StepNode) and node.gate is not None:
        raise UsageError(f"{name} is a gate: its decision is given, not written", hint="orch approve, or orch reject")
    return node


async def edit_artifact(
    services: Services,
    graph: Graph,
    run: RunRow,
    name: str,
    *,
    item: str | None = None,
    value: Any,
    base_version: int,
    origin: Literal["person", "import"] = "person",
    restored: ArtifactVersion | None = None,
) -> ArtifactVersion:
    """A person's new version of a step's or input's value, checked against its contract.

    `restored` is the earlier version whose value this is again: what was found out about that value holds again too.
    Raises UsageError where the value breaks the contract or the head is not `base_version` any more.
    """
    node = check_editable(graph, run, name, item)
    contract = node.contract
    try:
        data = contract.normalise(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}", hint=f"the contract stands in {contract.place}") from error
    faults = contract.faults(data)
    if faults:
        lines = "; ".join(f"{fault.path} {fault.rule}, got {fault.value!r}" for fault in faults[:5])
        raise UsageError(f"{name} does not fit its contract {contract.name}: {lines}", code="invalid_edit")
    head = (await services.store.artifact(run.id, name, item)).version
    body = contract.dump(data)
    excess = contract.too_large(body)
    if excess is not None:
        hint = f"shorten it, or raise max_tokens of the contract {contract.name}"
        raise UsageError(f"{name} is {excess}", hint=hint, code="too_large")
    new = NewArtifact(
        contract=contract.name,
        body=body,
        author=services.settings.user,
        origin=origin,
        sensitivity=max(head.sensitivity, (restored or head).sensitivity, key=lambda level: SENSITIVITY_RANK[level]),
        field_hashes=contract.field_hashes(body),
        facts=restored.facts if restored else {},
        guards=restored.guards if restored else (),
    )
    return await services.store.edit(run.id, name, item, base_version, new)


async def keep_step(
    services: Services, graph: Graph, run: RunRow, name: str, note: str, *, item: str | None = None
) -> ArtifactVersion:
    """Accept the current version of a step, or of one item of it, as it is, whatever has changed above it: it is not
    stale any more. A step with items is kept with all of them.

    Raises UsageError where the step has no version or is under way.
    """
    no_bench(run)
    step = known_step(graph, name)
    name = step.name
    if step.gate is not None:
        raise UsageError(
            f"{name} is a gate: only an answer opens it", hint="`orch refresh` lets it ask about what changed"
        )
    node = collector(step) if step.for_each is not None and item is None else step
    seen = await snapshot_of(services.store, run.id, node, item)
    if seen.head is None:
        label = f"{name}/{item}" if item else name
        raise UsageError(
            f"{label} has no version that could be kept", hint=f"`orch show {run.number}` says what there is"
        )
    for key in seen.head.field_hashes if node is not step else ():
        await keep_step(services, graph, run, name, note, item=key)
    now = manifest_now(node, seen)
    kept = Kept(name, item, seen.head.id, now, reads_of(node, item, seen, now), services.settings.user, note)
    await services.store.keep(run.id, kept)
    return seen.head


async def settle(services: Services, graph: Graph, run: RunRow, name: str, text: str) -> tuple[Dispatch, ...]:
    """Answer the conflict of a step (`tech-stack`, or one item of it) as `answer` reads it; what can run now.

    Raises UsageError where nothing waits, a field is in no conflict, or the result breaks the contract.
    """
    said = answer(name, text)
    step, _, item = name.partition("/")
    undecided = await services.store.undecided(run.id, step, item or None)
    merged = None
    if said.fields is not None or (said.keep == "draft" and undecided.present.pins):
        merged = _decided(_step(graph, step), undecided, said, services.settings.user)
    return await services.store.settle(
        run.id, step, said.keep, item=item or None, merge=merged, by=services.settings.user
    )


def _decided(step: StepNode, undecided: Undecided, said: Answer, by: str) -> Merge:
    contract, present = step.contract, undecided.present
    try:
        base, head, draft = _three(contract, undecided)
    except ValueError as error:
        hint = "keep one of the two as a whole"
        raise UsageError(f"the versions of {step.name} cannot be merged: {error}", hint=hint) from error
    value = draft
    if said.fields is not None:
        found = merge(base, head, draft, chooser(said.keep, said.fields))
        _check_named(step.name, said.fields, found.conflicts)
        value = found.value
    try:
        artifact = assembled(contract, present.head, _by(undecided.draft, by), value)
    except ValueError as error:
        hint = "decide otherwise, or edit the value"
        raise UsageError(
            f"{step.name} would not fit its contract {contract.name}: {error}", hint=hint, code="invalid_edit"
        ) from error
    return Merge(present.head.version.id, present.base.version.id if present.base else None, present.pins, artifact)


def _by(draft: Artifact, author: str) -> NewArtifact:
    """A draft as the beginning of a person's version."""
    version = draft.version
    return NewArtifact(
        contract=version.contract,
        body=draft.body,
        author=author,
        origin="person",
        sensitivity=version.sensitivity,
        field_hashes=version.field_hashes,
        facts=version.facts,
        guards=version.guards,
    )


def _check_named(step: str, fields: Sequence[str], found: Sequence[Conflict]) -> None:
    for name in fields:
        if not any(covers(name, conflict.path) for conflict in found):
            there = ", ".join(conflict.path for conflict in found) or "none"
            raise UsageError(f"{step} has no conflict at {name}", hint=f"its conflicts: {there}")


# --- pins -------------------------------------------------------------------------------------------------------------


async def pin(services: Services, graph: Graph, run: RunRow, name: str, fields: Sequence[str]) -> Mapping[str, str]:
    """Keep top-level fields of a step's value (none named = all of it) as they are whenever it runs again; every pin it
    then has, with who set it. Raises UsageError for an input, an unknown field, or a step without a version."""
    name, _, item = name.partition("/")
    step = _step(graph, name)
    if not item:
        _check_own_value(step, f"pin one of its items: orch pin {run.number}/{step.name}/KEY")
    contract = step.contract
    for field in fields:
        if field != EVERY and field not in contract.fields:
            near = get_close_matches(field, contract.fields, n=1)
            there = f"there is: {', '.join(contract.fields)}" if contract.fields else "it can be pinned as a whole"
            hint = f'did you mean "{near[0]}"?' if near else there
            raise UsageError(f"{contract.name} has no field {field}", hint=hint)
    user = services.settings.user
    return await services.store.pin(run.id, step.name, tuple(fields) or (EVERY,), user, item=item or None)


async def unpin(services: Services, graph: Graph, run: RunRow, name: str, fields: Sequence[str]) -> Mapping[str, str]:
    """Let pinned fields (none named = all of them) change again; the pins that are left. Raises UsageError for a field
    that is not pinned."""
    name, _, item = name.partition("/")
    step = _step(graph, name)
    return await services.store.unpin(run.id, step.name, fields, services.settings.user, item=item or None)


def _check_own_value(step: StepNode, hint: str) -> None:
    if step.for_each is not None:
        raise UsageError(f"{step.name} is made for each entry of a list: it has no value of its own", hint=hint)


def _step(graph: Graph, name: str) -> StepNode:
    if name in graph.inputs:
        raise UsageError(f"{name} is an input: nothing but an edit changes it", hint="pins are for steps")
    return known_step(graph, name)
