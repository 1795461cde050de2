"""What two runs, or two versions of one artifact, differ in: values, what they were made from, prompts, model, money.

Everything here is pure: rows and values in, a comparison out; `gathering` reads them from the store. Nothing that
cannot differ is compared: one version in both runs is *shared*, two versions of the same value are *equal*, and only
where the bytes differ are values looked at. Prompts are compared block by block by the hashes of their texts.

A comparison says "no difference" if and only if nothing is reported, except money, calls and time: those tell what it
took, and two runs that made the same are the same however much they cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from orchestrator.exchange.diffing import Change, changes
from orchestrator.store.records import Making, Opening, SentBlock
from orchestrator.thread import explain
from orchestrator.values import ArtifactVersion, Manifest, RunRow, StepRow, Usage

UNREAD: Final = object()
Artifacts = Literal["shared", "equal", "changed", "added", "removed", "none"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What it took. A run's step: the sums over all its attempts there; a version: those of the attempt behind it."""

    calls: int = 0
    reasks: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal | None = Decimal(0)
    cost_partial: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a step or input. `value` is JSON data or text, and read only where the two versions differ.

    `manifest` and `openings` are those of the attempt behind the version, in whichever run it stands.
    """

    status: str
    version: ArtifactVersion | None
    numbers: Numbers = Numbers()
    value: Any = UNREAD
    manifest: Manifest | None = None
    openings: tuple[Opening, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block of a thread's first request that came, went or has another text. `old` or `new` is None accordingly.

    `reordered`: the same blocks in another order; `source` is then empty.
    """

    kind: Literal["added", "removed", "changed", "reordered"]
    thread: str
    layer: str
    source: str
    old: SentBlock | None = None
    new: SentBlock | None = None


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One step or input. A side that is None does not have it at all.

    `made_from` says in sentences why the two were made differently; `model` compares model and settings by path.
    """

    name: str
    item: str | None
    kind: str
    old: Half | None
    new: Half | None
    artifact: Artifacts
    changes: tuple[Change, ...] = ()
    made_from: tuple[str, ...] = ()
    prompt: tuple[BlockChange, ...] = ()
    model: tuple[Change, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name}/{self.item}" if self.item else self.name

    @property
    def differs(self) -> bool:
        """Whether anything but what it took is different."""
        if self.artifact in ("shared", "equal", "none") and not (self.made_from or self.prompt or self.model):
            return (self.old and self.old.status) != (self.new and self.new.status)
        return True


@dataclass(frozen=True, slots=True)
class RunSide:
    """A run as one of two: `steps` are its inputs and steps by name and item, in order."""

    run: RunRow
    steps: Mapping[tuple[str, str | None], tuple[StepRow, Half]]

    @property
    def total(self) -> Numbers:
        return total(half.numbers for row, half in self.steps.values() if row.kind != "input")


@dataclass(frozen=True, slots=True)
class RunComparison:
    old: RunSide
    new: RunSide
    inputs: tuple[StepComparison, ...]
    steps: tuple[StepComparison, ...]

    @property
    def differs(self) -> bool:
        return any(one.differs for one in (*self.inputs, *self.steps))

    def counted(self, artifact: Artifacts) -> int:
        return sum(one.artifact == artifact for one in self.steps)


def total(numbers: Iterable[Numbers]) -> Numbers:
    """The sum; the cost is None where nothing of it is priced."""
    found = list(numbers)
    known = [one.cost_usd for one in found if one.cost_usd is not None]
    return Numbers(
        sum(one.calls for one in found),
        sum(one.reasks for one in found),
        sum((one.usage for one in found), Usage()),
        sum(known, Decimal(0)) if known or not found else None,
        any(one.cost_partial for one in found),
        sum(one.seconds for one in found),
    )


def taken(row: StepRow) -> Numbers:
    """What a step took in its run, over all attempts."""
    return Numbers(row.calls, row.reasks, row.usage, row.cost_usd, row.cost_partial, row.seconds)


def behind(making: Making | None) -> Numbers:
    """What the attempt behind a version took."""
    if making is None:
        return Numbers()
    cost, partial = making.cost_usd, making.cost_partial
    return Numbers(making.calls, making.reasks, making.usage, cost, partial, making.seconds)


def differing(old: ArtifactVersion | None, new: ArtifactVersion | None) -> bool:
    """Whether the values must be read to say what differs."""
    return old is not None and new is not None and old.id != new.id and old.sha256 != new.sha256


def compare_runs(old: RunSide, new: RunSide) -> RunComparison:
    """Inputs, then steps, in the order of the new run; what only the old one has stands where it stood."""
    found = [_compare(key, old.steps.get(key), new.steps.get(key)) for key in _merged([*old.steps], [*new.steps])]
    return RunComparison(
        old,
        new,
        tuple(one for one in found if one.kind == "input"),
        tuple(one for one in found if one.kind != "input"),
    )


def _merged(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """All keys in the new order, each one that is gone right behind the one it stood behind."""
    found = list(new)
    for place, key in enumerate(old):
        if key not in found:
            before = old[place - 1] if place else None
            found.insert(found.index(before) + 1 if before is not None else 0, key)
    return found


def _compare(
    key: tuple[str, str | None], old: tuple[StepRow, Half] | None, new: tuple[StepRow, Half] | None
) -> StepComparison:
    row = (new or old or (None,))[0]
    assert row is not None
    return compare_halves(key[0], key[1], row.kind, old and old[1], new and new[1])


def compare_halves(name: str, item: str | None, kind: str, old: Half | None, new: Half | None) -> StepComparison:
    """One step or input of two runs, or two versions of it."""
    before, after = old.version if old else None, new.version if new else None
    artifact = _artifacts(before, after)
    if old is None or new is None or artifact == "shared":
        return StepComparison(name, item, kind, old, new, artifact)
    found = changes(old.value, new.value) if artifact == "changed" else ()
    if artifact == "changed" and not found:
        artifact = "equal"  # other bytes, but only another order of fields, or 1.0 for 1
    return StepComparison(
        name,
        item,
        kind,
        old,
        new,
        artifact,
        changes=found,
        made_from=explain(old.manifest, new.manifest) if old.manifest and new.manifest else (),
        prompt=tuple(_prompts(old.openings, new.openings)) if before and after else (),
        model=tuple(_models(old.openings, new.openings)) if before and after else (),
    )


def _artifacts(old: ArtifactVersion | None, new: ArtifactVersion | None) -> Artifacts:
    if old is None or new is None:
        return "none" if old is new else "removed" if new is None else "added"
    if old.id == new.id:
        return "shared"
    return "equal" if old.sha256 == new.sha256 else "changed"


# --- prompts ----------------------------------------------------------------------------------------------------------


def _paired(old: Sequence[Opening], new: Sequence[Opening]) -> Iterator[tuple[str, Opening | None, Opening | None]]:
    """The threads of both by name; those of one name in their order."""
    before, after = dict(_numbered(old)), dict(_numbered(new))
    for key in _merged([*before], [*after]):
        yield key[0], before.get(key), after.get(key)


def _numbered(openings: Sequence[Opening]) -> Iterator[tuple[tuple[str, int], Opening]]:
    seen: Counter[str] = Counter()
    for opening in openings:
        seen[opening.thread] += 1
        yield (opening.thread, seen[opening.thread]), opening


def _prompts(old: Sequence[Opening], new: Sequence[Opening]) -> Iterator[BlockChange]:
    for thread, before, after in _paired(old, new):
        yield from _blocks(thread, before.blocks if before else (), after.blocks if after else ())


def _blocks(thread: str, old: Sequence[SentBlock], new: Sequence[SentBlock]) -> Iterator[BlockChange]:
    before, after = _by_place(old), _by_place(new)
    alike = True
    for key in _merged([*before], [*after]):
        was, now = before.get(key), after.get(key)
        if was is None or now is None:
            yield BlockChange("removed" if now is None else "added", thread, key[0], key[1], was, now)
        elif was.parts != now.parts:
            yield BlockChange("changed", thread, key[0], key[1], was, now)
        else:
            continue
        alike = False
    if alike and [*before] != [*after]:
        yield BlockChange("reordered", thread, "", "")


def _by_place(blocks: Sequence[SentBlock]) -> dict[tuple[str, str, int], SentBlock]:
    """Blocks by layer and source; a source that stands more than once counts by its order."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for block in blocks:
        seen[block.layer, block.source] += 1
        found[block.layer, block.source, seen[block.layer, block.source]] = block
    return found


def _models(old: Sequence[Opening], new: Sequence[Opening]) -> Iterator[Change]:
    """Model and settings of threads that both have, by path; a thread of another name than main comes first."""
    for thread, before, after in _paired(old, new):
        if before is None or after is None:
            continue
        was, now = ({"model": one.model, **one.settings} for one in (before, after))
        for change in changes(was, now):
            path = change.path if thread == "main" else f"{thread}: {change.path}"
            yield Change(change.kind, path, change.old, change.new)
