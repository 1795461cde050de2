"""The walk of a step with items, from its list to its index.

It is entered twice at least: when the list stands, and when the last item has ended. Both times it does the same: look
at the list as it is now, bring it into the run (`Store.expand`), and make the index if nothing is left to do. So it
does not matter who entered it before, or what was edited in between.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.bodies.asking import Walk, claim_of, manifest_now, restart, take_snapshot
from orchestrator.errors import BudgetExceeded, StepFailed
from orchestrator.fan_out import INDEX, Entries, Entry, collector, expand, index_of, item_heads, joined
from orchestrator.graph import StepNode
from orchestrator.ids import sha256
from orchestrator.spec import MISSING, SENSITIVITY_RANK
from orchestrator.staleness import holds
from orchestrator.store.records import Claim, Fenced, NewItem
from orchestrator.thread import manifest
from orchestrator.values import ArtifactVersion, Dispatch, NewArtifact, Snapshot, StepRow

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Collected:
    """All items have ended: the step's own value, and what there is to tell about it. `kept` is there where that is the
    value it has already, with its version."""

    artifact: NewArtifact
    base_head: str | None
    notes: tuple[str, ...] = ()
    kept: tuple[Claim, int] | None = None


def is_collector(walk: Walk) -> bool:
    """Whether it is the step itself that runs, not one of its items. Its time is that of its items, each of which has
    its own limit."""
    return walk.step.for_each is not None and walk.dispatch.item is None


async def collect(walk: Walk) -> tuple[Dispatch, ...] | Collected:
    """Bring the list in; what can run now, or the index where nothing is left to do.

    Raises StepFailed for a list that cannot be used, and where items failed that the step cannot go without.
    """
    store, step, dispatch = walk.services.store, walk.step, walk.dispatch
    seen = replace(walk, step=collector(step))
    snapshot = await take_snapshot(seen)
    now = manifest_now(seen.step, snapshot)
    recorded = await store.manifest(dispatch.attempt_id) if dispatch.interrupted else None
    if recorded is not None and recorded.inputs_hash != now.inputs_hash:
        await restart(seen, recorded, now)
    first = recorded is None
    if first:
        walk.emit("step.started", attempt=dispatch.number, kind="map", model=None)
    found = await _entries(walk, snapshot)
    rows = {row.item: row for row in await store.items(walk.run.id, step.name)}
    versions, force = snapshot.versions, first and dispatch.mode == "fresh"
    items = [NewItem(e.key, e.body, force or _is_stale(step, e, rows.get(e.key), versions)) for e in found.entries]
    claim = claim_of(seen, snapshot, now)
    expanded = await store.expand(claim, "llm" if step.kind == "llm" else "python", items, retry=first)
    if expanded is None:
        raise Fenced
    if expanded.open or first:
        walk.emit("step.items", items=len(items), open=expanded.open)
    if expanded.open:
        return expanded.ready
    over = f"{found.left} more entries were left out: at_most is {_at_most(step)}"
    notes = (over,) if found.left else ()
    made = _gathered(step, await store.items(walk.run.id, step.name), snapshot.head, notes, _lost(step, snapshot))
    head = snapshot.head
    if head is not None and head.sha256 == sha256(made.artifact.body) and holds(seen.step, snapshot.accepted, now):
        # What was read is on record already: it is written once more, not twice.
        return replace(made, kept=(replace(claim, dispatch=replace(dispatch, interrupted=True)), head.version))
    return made


def _at_most(step: StepNode) -> int:
    assert step.for_each is not None
    return step.for_each.at_most


async def _entries(walk: Walk, snapshot: Snapshot) -> Entries:
    """The entries as they stand now: out of the list, or those that the joined step has an item of."""
    step, for_each = walk.step, walk.step.for_each
    assert for_each is not None
    if for_each.same is None:
        whole = snapshot.artifacts.get(for_each.source)  # there is none where the step that makes it was skipped
        return expand(step, for_each.whole.load(whole.body)) if whole is not None else Entries(())
    bodies = await walk.services.store.entries(walk.run.id, for_each.same)
    made = [snapshot.items.get(name, {}) for name in _joined_with(step)]
    return joined(step, [Entry(key, bodies[key]) for key in sorted(bodies) if all(key in keys for keys in made)])


def _joined_with(step: StepNode) -> tuple[str, ...]:
    """The steps whose items its own need: that with the same entries, and those of which each reads its sibling."""
    same = step.for_each.same if step.for_each is not None else None
    read = [read.name for read in step.reads if read.takes == "sibling" and read.default is MISSING]
    return tuple(dict.fromkeys([*([same] if same else []), *read]))


def _lost(step: StepNode, snapshot: Snapshot) -> dict[str, str]:
    """Why entries are missing that a step it is joined with could not do: whoever reads on is told of them too."""
    found: dict[str, str] = {}
    for name in _joined_with(step):
        index = snapshot.artifacts.get(name)
        if index is not None:
            found |= json.loads(index.body)["missing"]
    return found


def _is_stale(step: StepNode, entry: Entry, row: StepRow | None, versions: Mapping[str, ArtifactVersion]) -> bool:
    """Whether an item that has its value is made of something else than what stands now."""
    if row is None or row.head is None:
        return False
    return not holds(step, row.accepted, manifest(step, item_heads(step, entry.key, sha256(entry.body), versions)))


# --- when all have ended ----------------------------------------------------------------------------------------------


def _gathered(
    step: StepNode,
    rows: Sequence[StepRow],
    head: ArtifactVersion | None,
    notes: tuple[str, ...],
    lost: Mapping[str, str],
) -> Collected:
    present = [row for row in rows if not row.retired]
    there = [row for row in present if row.head is not None and row.status == "succeeded"]
    failed = [row for row in present if row.head is None or row.status != "succeeded"]
    _check_enough(step, there, failed)
    missing = {str(row.item): row.error.message if row.error else row.status for row in failed}
    body = index_of([str(row.item) for row in there], {**lost, **missing})
    levels = [row.head.sensitivity for row in there if row.head]
    artifact = NewArtifact(
        contract=INDEX.name,
        body=body,
        author="for_each",
        origin="function",
        sensitivity=max((*levels, step.contract.sensitivity), key=lambda level: SENSITIVITY_RANK[level]),
        field_hashes={str(row.item): "item" for row in there},
    )
    told = (f"{len(there)} of {len(present)}, missing {_named(failed)}",) if failed else ()
    return Collected(artifact, head.id if head else None, (*told, *notes))


def _check_enough(step: StepNode, there: Sequence[StepRow], failed: Sequence[StepRow]) -> None:
    """Raises StepFailed where an item failed that the step cannot go without: each, unless failures are collected;
    all of them at once, or the cap, say nothing about an item, and are never collected."""
    assert step.for_each is not None
    broke = any(row.error is not None and row.error.exit_code == BudgetExceeded.exit_code for row in failed)
    if not failed or (step.for_each.on_error == "collect" and there and not broke):
        return
    kept = f" (the other {len(there)} are kept)" if there else ""
    first = next((row.error for row in failed if row.error is not None), None)
    error = StepFailed(
        f"{step.name}: {len(failed)} of {len(failed) + len(there)} items failed: {_named(failed)}{kept}",
        hint="orch resume tries them again" + ("" if not there else "; on_error: collect goes on without them"),
        code="items_failed",
    )
    codes = {row.error.exit_code for row in failed if row.error is not None}
    error.exit_code = first.exit_code if first is not None and len(codes) == 1 else error.exit_code
    raise error


def _named(failed: Sequence[StepRow]) -> str:
    """The first few that failed, with their reasons."""
    named = [f"{row.item} ({row.error.message if row.error else row.status})" for row in failed[:_NAMED]]
    rest = len(failed) - len(named)
    return "; ".join([*named, *([f"and {rest} more"] if rest else [])])
