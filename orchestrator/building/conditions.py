"""A step's `when:`, and what follows for those that read a step which may be skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orchestrator.building.names import beyond
from orchestrator.expressions import Expression, ExpressionError, NameUse, dashed_name, parse
from orchestrator.faults import nearest
from orchestrator.graph import Read
from orchestrator.ids import variable
from orchestrator.spec import MISSING

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding

WHEN: Final = "P237"
NO_DEFAULT: Final = "P209"


def when_of(step: StepBuilding, reads: tuple[Read, ...]) -> Expression | None:
    """The condition, each of its names looked up among what the step reads; None where it is faulty (reported)."""
    text = step.spec.when
    if text is None:
        return None
    place = step.of("when")
    try:
        expression = parse(text)
    except ExpressionError as fault:
        step.error(WHEN, f"the when {text!r}: {fault.message}", place, fault.hint)
        return None
    if step._reads_in_doubt():
        return None
    dashed = dashed_name(expression, [read.name for read in reads])
    if dashed is not None:
        message = f"{dashed} is read as a subtraction in {expression.text!r}"
        step.error(WHEN, message, place, f"write {variable(dashed)}")
        return None
    faulty = {variable(spec.read) for spec in step.spec.reads} - {variable(read.name) for read in reads}
    uses = [use for use in expression.uses if use.path[0] not in faulty]
    wrong = [found for found in (_unknown(use, reads) for use in uses) if found is not None]
    for message, hint in wrong:
        step.error(WHEN, f"the when {expression.text!r}: {message}", place, hint)
    return None if wrong else expression


def _unknown(use: NameUse, reads: tuple[Read, ...]) -> tuple[str, str | None] | None:
    """Why a name stands for nothing, and what may be meant; None where it does."""
    head, rest = use.path[0], use.path[1:]
    for read in reads:
        if variable(read.name) == head and read.takes == "each":
            return None  # its keys are known when it has run
        if variable(read.name) == head:
            if rest and read.fields is not None and rest[0] not in map(variable, read.fields):
                return f"the step does not read {read.name}.{rest[0]}", f"it reads {', '.join(read.fields)}"
            return beyond(rest, read.contract, read.name)
    return f"{head} is nothing that the step reads", nearest(head, [variable(read.name) for read in reads])


def check_defaults(step: StepBuilding, reads: tuple[Read, ...]) -> None:
    """Who reads a step that may be skipped says what stands for it then (A21)."""
    for read in reads:
        # What a joined step reads of another is there for each of its entries: without it there are none.
        skipped = read.kind == "step" and step.building.may_be_skipped(read.name)
        if skipped and read.default is MISSING and read.takes != "sibling":
            step.error(
                NO_DEFAULT,
                f"{read.name} may be skipped (it has a `when`), and this read has no default",
                read.place,
                f"write {{read: {read.name}, default: null}}, or another value of its contract",
            )
