"""What is stale, and why: the recorded manifests of a version against the one made from what the store holds now.

A version is stale when its present manifest is neither the one it was made from nor one that a person has accepted for
it. Versions are compared, never times; only what is read counts. Which entries count is the step's `stale_on`: by
default a changed value, label or contract. Anything else that differs (template, code, model, tools) is told as
`changed` and redoes nothing by itself. Entry by entry, so the reason falls out of the comparison (threads-and-context
§7).

One comparison serves all who ask: what `plan` shows, what `refresh` runs, and whether an attempt has anything to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.fan_out import collector, item_heads
from orchestrator.graph import Graph, StepNode
from orchestrator.spec import ManifestKind
from orchestrator.thread import explain, manifest
from orchestrator.values import ArtifactVersion, FromEarlier, Manifest, StepRow, heads_of

MADE_WITH: Final[frozenset[ManifestKind]] = frozenset({"definition", "template", "code", "tools", "model"})
EDITED_MEANWHILE: Final = "an input was edited while it ran"


@dataclass(frozen=True, slots=True)
class Difference:
    """How what a step was made from differs from what it would be made from now. `stale` reasons redo it, `changed`
    ones are told only."""

    stale: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def difference(step: StepNode, accepted: Sequence[Manifest], now: Manifest) -> Difference:
    """`accepted` are the manifests that stand for the step's version, the newest first: one that holds is enough."""
    if any(was.inputs_hash == now.inputs_hash for was in accepted):
        return Difference()
    found = [_difference(step, was, now) for was in accepted]
    return next((one for one in found if not one.stale), found[0] if found else Difference())


def _difference(step: StepNode, old: Manifest, new: Manifest) -> Difference:
    # A model that is not set here says nothing about the one the step was made with.
    unknown = {"model"} if step.model is None else set()
    return Difference(
        explain(_only(old, step.stale_on - unknown), _only(new, step.stale_on - unknown)),
        explain(_only(old, MADE_WITH - step.stale_on - unknown), _only(new, MADE_WITH - step.stale_on - unknown)),
    )


def _only(whole: Manifest, kinds: Collection[str]) -> Manifest:
    return Manifest(tuple(entry for entry in whole.entries if entry.kind in kinds))


def holds(step: StepNode, accepted: Sequence[Manifest], now: Manifest) -> bool:
    """Whether a version that rests on these manifests is what the step would be made from now: nothing to do."""
    return bool(accepted) and not difference(step, accepted, now).stale


def differences(graph: Graph, rows: Sequence[StepRow]) -> dict[str, Difference]:
    """For each step that has come to something, what its manifests say about it now; items under `step/key`; pure."""
    heads = heads_of(rows)
    found: dict[str, Difference] = {}
    for row in rows:
        step = graph.steps.get(row.name)
        if step is None or not row.accepted or row.retired or (row.head is None and row.status != "skipped"):
            continue
        step, now = _as_now(step, row, heads)
        one = difference(step, row.accepted, now)
        found[row.label] = Difference((EDITED_MEANWHILE,), one.changed) if row.stale and not one.stale else one
    return found


def earlier_of(graph: Graph) -> dict[str, FromEarlier]:
    """What the pipeline takes from earlier runs, by the name it has here."""
    return {name: node.earlier for name, node in graph.inputs.items() if node.earlier is not None}


def with_newest(rows: Sequence[StepRow], newest: Mapping[str, ArtifactVersion]) -> tuple[StepRow, ...]:
    """The rows as they would be if what is taken from earlier runs were taken now: a newer one is a reason (S15)."""
    return tuple(replace(row, head=newest[row.name]) if row.name in newest else row for row in rows)


def _as_now(step: StepNode, row: StepRow, heads: Mapping[str, ArtifactVersion]) -> tuple[StepNode, Manifest]:
    """What a step, the collector of its items or one of them would be made from now."""
    if step.for_each is None:
        return step, manifest(step, heads)
    if row.item is None:
        return collector(step), manifest(collector(step), heads)
    return step, manifest(step, item_heads(step, row.item, row.entry or "", heads))


def stale_reasons(graph: Graph, rows: Sequence[StepRow]) -> Mapping[str, tuple[str, ...]]:
    """Why each stale step is stale; the others are not named."""
    return {name: one.stale for name, one in differences(graph, rows).items() if one.stale}
