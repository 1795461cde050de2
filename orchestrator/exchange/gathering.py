"""Reads from the store what a comparison needs, and no body that both sides share or that is the same in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.exchange.comparing import (
    UNREAD,
    BlockChange,
    Half,
    RunComparison,
    RunSide,
    StepComparison,
    behind,
    compare_halves,
    compare_runs,
    differing,
    taken,
)
from orchestrator.values import Artifact, ArtifactVersion, RunRow, StepRow

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.store.records import Making

Value = Callable[[RunRow, Artifact], Any]


async def compared_runs(store: Store, old: RunRow, new: RunRow, value: Value) -> RunComparison:
    """Two runs, whole. `value` gives a body as JSON data or text, as its contract says."""
    rows = [{(row.name, row.item): row for row in await store.steps(run.id)} for run in (old, new)]
    apart = [key for key in rows[0] if key in rows[1] and _head(rows[0][key]) != _head(rows[1][key])]
    heads = {head for key in apart for side in rows if (head := _head(side[key])) is not None}
    made = await store.makings(heads)
    halves: list[dict[tuple[str, str | None], tuple[StepRow, Half]]] = []
    for run, side, other in zip((old, new), rows, reversed(rows), strict=True):
        halves.append({})
        for key, row in side.items():
            beside = other.get(key)
            read = differing(row.head, beside.head if beside else None)
            halves[-1][key] = row, await _half(store, run, row, made, value if read else None)
    return compare_runs(RunSide(old, halves[0]), RunSide(new, halves[1]))


def _head(row: StepRow) -> str | None:
    return row.head.id if row.head else None


async def _half(store: Store, run: RunRow, row: StepRow, made: Mapping[str, Making], value: Value | None) -> Half:
    making = made.get(row.head.id) if row.head else None
    return Half(
        row.status,
        row.head,
        taken(row),
        value(run, await store.artifact(run.id, row.name, row.item)) if value else UNREAD,
        row.manifest,
        making.openings if making else (),
    )


async def compared_versions(
    store: Store, old: tuple[RunRow, ArtifactVersion], new: tuple[RunRow, ArtifactVersion], kind: str, value: Value
) -> StepComparison:
    """Two versions, of one step or of two, with the attempts behind them. `kind` is that of the new one's step."""
    made = await store.makings({old[1].id, new[1].id})
    read = differing(old[1], new[1])
    halves = [await _version(store, run, version, made, value if read else None) for run, version in (old, new)]
    return compare_halves(new[1].step, new[1].item, kind, *halves)


async def _version(
    store: Store, run: RunRow, version: ArtifactVersion, made: Mapping[str, Making], value: Value | None
) -> Half:
    making = made.get(version.id)
    return Half(
        "",
        version,
        behind(making),
        value(run, await store.artifact(run.id, version.step, version.item, version.version)) if value else UNREAD,
        making.manifest if making else None,
        making.openings if making else (),
    )


async def block_texts(store: Store, found: tuple[BlockChange, ...]) -> Mapping[str, str]:
    """The texts of changed blocks, by the hashes of their parts."""
    blocks = [block for change in found for block in (change.old, change.new) if block is not None]
    return await store.texts({part for block in blocks for part in block.parts})
