"""What a used pipeline is given, made in a run: the value of another step as it is, a part of it, or a fixed value.

It becomes an artifact under the contract of the input that it is for, so whoever uses a pipeline sees in the run what
that was given, and a value that does not fit is told before anything behind it is paid for. The guards of what it is
taken from go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.errors import StepFailed
from orchestrator.expressions import ExpressionError
from orchestrator.graph import Hand, StepNode
from orchestrator.reads import read_data
from orchestrator.spec import MISSING
from orchestrator.values import FactBasis, Snapshot

AUTHOR: Final = "with"


def handed(step: StepNode, hand: Hand, snapshot: Snapshot) -> Any:
    """The value. Raises StepFailed where there is none of the input's type."""
    if hand.condition is not None:
        return _holds(step, hand, snapshot)
    value = _taken(step, hand, snapshot)
    try:
        faults = step.contract.faults(value)
    except ValueError as error:  # what JSON cannot hold
        raise _unfit(step, str(error)) from error
    if faults:
        raise _unfit(step, f"{faults[0].path} {faults[0].rule}")
    return value


def guards_of(step: StepNode, snapshot: Snapshot) -> tuple[str, ...]:
    """What the value must not be used for wherever it goes, beside what the input says itself."""
    found: list[str] = []
    for read in step.reads:
        version = snapshot.artifacts[read.name].version if read.name in snapshot.artifacts else None
        own = (read.guard,) if read.guard is not None else ()
        found += [*read.contract.not_for, *(version.guards if version else ()), *own]
    return tuple(guard for guard in dict.fromkeys(found) if guard not in step.contract.not_for)


def facts_of(step: StepNode, snapshot: Snapshot) -> Mapping[str, FactBasis]:
    """What is known about where the value's facts come from: it stays known of the same value."""
    if step.hand is None or step.hand.path:
        return {}
    return {path: basis for one in snapshot.artifacts.values() for path, basis in one.version.facts.items()}


def _holds(step: StepNode, hand: Hand, snapshot: Snapshot) -> bool:
    assert hand.condition is not None
    try:
        return bool(hand.condition.evaluate(read_data(step, snapshot)))
    except ExpressionError as error:
        raise StepFailed(
            f"{step.name} cannot be computed: {error.message}",
            hint=error.hint or "compare with null where a value may be missing",
            code="when",
            place=step.place,
        ) from error


def _taken(step: StepNode, hand: Hand, snapshot: Snapshot) -> Any:
    if hand.value is not MISSING:
        return hand.value
    (read,) = step.reads
    found = snapshot.artifacts.get(read.name)
    if found is None:
        return read.default  # of another kind than MISSING: what it reads has run, or may be skipped
    value = read.contract.load(found.body)
    for part in hand.path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _unfit(step: StepNode, why: str) -> StepFailed:
    source = ".".join((*(read.source for read in step.reads), *(step.hand.path if step.hand else ())))
    return StepFailed(
        f"{step.name} is given {source or 'a fixed value'}, which is no {step.contract.name}: {why}; nothing was sent",
        hint=f"edit what it is taken from, or mend the `with` at {step.place}",
        code="invalid_binding",
        place=step.place,
    )
