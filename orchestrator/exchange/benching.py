"""Samples of one step side by side: what each came to, what a variant's samples came to together, where they differ.

Everything here is pure: samples in, comparisons out. Values are JSON data or text; two are the same where their stored
bytes are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from orchestrator.exchange.diffing import WHOLE, Change, changes
from orchestrator.values import ArtifactVersion, ErrorRecord, RunRow, StepStatus, Usage


@dataclass(frozen=True, slots=True)
class Mark:
    """Stands where no value can: null is a value."""

    text: str


ABSENT: Final = Mark("–")
PARTLY: Final = Mark("differs in part")


@dataclass(frozen=True, slots=True)
class Sample:
    """One time the step was made. `faults` are the reasons its answers were sent back for; costs are in USD."""

    name: str
    status: StepStatus
    sha256: str | None
    value: Any
    calls: int
    reasks: int
    faults: tuple[str, ...]
    usage: Usage
    cost_usd: Decimal | None
    cost_partial: bool
    seconds: float
    error: ErrorRecord | None = None

    @property
    def variant(self) -> str:
        return self.name.partition("-")[0]

    @property
    def passed(self) -> bool:
        """Whether an answer held to its contract and every check."""
        return self.sha256 is not None

    @property
    def ended(self) -> bool:
        return self.status in ("succeeded", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class Together:
    """What the samples of one variant came to. `at_once` passed without a re-ask; `same` equal the run's own version;
    costs and seconds are sums over the samples that ended."""

    variant: str
    samples: int
    ended: int
    passed: int
    at_once: int
    reasks: int
    distinct: int
    same: int | None
    usage: Usage
    cost_usd: Decimal | None
    cost_partial: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One place at which samples differ from the run's version or from each other. `values` are what the passed samples
    of a variant have there and how many, the most frequent first. A Mark stands where a value has no such part, or
    where it differs further inside while another sample differs in the whole."""

    path: str
    base: Any
    values: Mapping[str, tuple[tuple[Any, int], ...]]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way the step was made: its model and task by name, and what is different about it from the run's version
    (`a`) or from `a`, in sentences."""

    name: str
    model: str
    task: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Benched:
    """A bench to look at. `base` is the version of the run that the samples are compared with; its value is ABSENT, and
    the version None, where the run had made none."""

    run: RunRow
    step: str
    base: ArtifactVersion | None
    base_value: Any
    variants: tuple[Variant, ...]
    samples: tuple[Sample, ...]

    def sums(self) -> tuple[Together, ...]:
        sha = self.base.sha256 if self.base is not None else None
        return tuple(together(variant.name, self.samples, sha) for variant in self.variants)

    def differences(self) -> tuple[Difference, ...]:
        return differences(self.base_value, self.samples)

    def changed(self, sample: Sample) -> tuple[Change, ...]:
        """How a sample differs from the run's version; nothing where either is missing."""
        return () if self.base is None or not sample.passed else changes(self.base_value, sample.value)


def together(variant: str, samples: Sequence[Sample], base_sha256: str | None) -> Together:
    """The sums of one variant; `base_sha256` is that of the run's own version, None where there is none."""
    own = [sample for sample in samples if sample.variant == variant]
    passed = [sample for sample in own if sample.passed]
    costs = [sample.cost_usd for sample in own if sample.cost_usd is not None]
    return Together(
        variant=variant,
        samples=len(own),
        ended=sum(sample.ended for sample in own),
        passed=len(passed),
        at_once=sum(not sample.reasks for sample in passed),
        reasks=sum(sample.reasks for sample in own),
        distinct=len({sample.sha256 for sample in passed}),
        same=None if base_sha256 is None else sum(sample.sha256 == base_sha256 for sample in passed),
        usage=sum((sample.usage for sample in own), Usage()),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
        cost_partial=any(sample.cost_partial for sample in own),
        seconds=sum(sample.seconds for sample in own),
    )


def differences(base: Any, samples: Sequence[Sample]) -> tuple[Difference, ...]:
    """Every place at which a passed sample differs from the run's value, in the order of the values.

    `base` ABSENT: there is none, so the samples are compared with the first that passed.
    """
    passed = [sample for sample in samples if sample.passed]
    if not passed:
        return ()
    origin = passed[0].value if base is ABSENT else base
    found = [(sample, {change.path: change for change in changes(origin, sample.value)}) for sample in passed]
    first = {path: change for _, one in reversed(found) for path, change in one.items()}
    paths = [path for path in dict.fromkeys(path for _, one in found for path in one) if not _inside(path, first)]
    variants = list(dict.fromkeys(sample.variant for sample in samples))
    return tuple(
        Difference(
            path,
            _old(first[path]),
            {
                variant: _counted([_new(one, path, first[path]) for sample, one in found if sample.variant == variant])
                for variant in variants
            },
        )
        for path in paths
    )


def _inside(path: str, known: Mapping[str, Change]) -> bool:
    """Whether another sample differs in the whole around this place: then that says it all."""
    return any(path != other and _is_around(other, path) for other in known)


def _is_around(outer: str, path: str) -> bool:
    return outer == WHOLE or path.startswith((f"{outer}.", f"{outer}["))


def _old(change: Change) -> Any:
    return ABSENT if change.kind == "added" else change.old


def _new(found: Mapping[str, Change], path: str, like: Change) -> Any:
    """What a sample has at a place: where it does not differ there, what the origin has."""
    change = found.get(path)
    if change is None:
        return PARTLY if any(other != path and _is_around(path, other) for other in found) else _old(like)
    return ABSENT if change.kind == "removed" else change.new


def _counted(values: Sequence[Any]) -> tuple[tuple[Any, int], ...]:
    counted: dict[str, tuple[Any, int]] = {}
    for value in values:
        key = value.text if isinstance(value, Mark) else json.dumps(value, sort_keys=True)
        counted[key] = (value, counted.get(key, (value, 0))[1] + 1)
    return tuple(sorted(counted.values(), key=lambda pair: -pair[1]))
