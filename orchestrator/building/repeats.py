"""A step's `repeat:` from what is declared to what can be computed: its rule and its feedback, each name looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.building.names import beyond
from orchestrator.contracts import Contract
from orchestrator.expressions import Expression, ExpressionError, NameUse, dashed_name, parse
from orchestrator.faults import nearest
from orchestrator.graph import Read, Repeat
from orchestrator.ids import variable
from orchestrator.spec import FeedbackSpec

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding

CODE = "P228"


def repeat_of(step: StepBuilding, contract: Contract | None, reads: tuple[Read, ...], asks: bool) -> Repeat | None:
    """The step's loop; None where it has none, or a faulty one (reported)."""
    spec = step.spec.repeat
    if spec is None:
        return None
    if not asks:
        hint = "leave repeat out, or give the function a parameter `ctx: Ctx` to ask a model with"
        step.error(CODE, "plain Python makes the same value on each visit", step.of("repeat"), hint)
        return None
    until = _expression(step, spec.until, contract, reads, "until")
    feedback: Expression | str | None = None
    if isinstance(spec.feedback, FeedbackSpec):
        feedback = _expression(step, spec.feedback.expr, contract, reads, "feedback", "expr")
    else:
        feedback = spec.feedback
    if until is None or (isinstance(spec.feedback, FeedbackSpec) and feedback is None):
        return None
    return Repeat(until, spec.max_rounds, feedback, spec.then, step.of("repeat"))


def _expression(
    step: StepBuilding, text: str, contract: Contract | None, reads: tuple[Read, ...], *key: str
) -> Expression | None:
    place = step.of("repeat", *key)
    try:
        expression = parse(text)
    except ExpressionError as fault:
        step.error(CODE, f"the {key[0]} {text!r}: {fault.message}", place, fault.hint)
        return None
    if contract is None:
        return expression
    known = [*contract.fields, *(read.name for read in reads), step.name]
    dashed = dashed_name(expression, known)
    if dashed is not None:
        message = f"{dashed} is read as a subtraction in {expression.text!r}"
        step.error(CODE, message, place, f"write {variable(dashed)}")
        return None
    looked_up = (_unknown(step.name, use, contract, reads) for use in expression.uses)
    wrong = [found for found in looked_up if found is not None]
    for message, hint in wrong:
        step.error(CODE, message, place, hint)
    return None if wrong else expression


def _unknown(step: str, use: NameUse, contract: Contract, reads: tuple[Read, ...]) -> tuple[str, str | None] | None:
    """Why a name stands for nothing, and what may be meant; None where it does. A field comes before a read."""
    head, rest = use.path[0], use.path[1:]
    if head in map(variable, contract.fields):
        return beyond(use.path, contract, "the output")
    for read in reads:
        if variable(read.name) == head:
            if rest and read.fields is not None and rest[0] not in map(variable, read.fields):
                return f"the step does not read {read.name}.{rest[0]}", f"it reads {', '.join(read.fields)}"
            return beyond(rest, read.contract, read.name)
    if head == variable(step):
        return beyond(rest, contract, "the output")
    names = [variable(name) for name in (*contract.fields, *(read.name for read in reads), step)]
    return f"{head} is neither a field of the output nor something the step reads", nearest(head, names)
