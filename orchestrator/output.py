"""From a model's reply to a value, or to faults the model can mend.

A reply is judged once, strictly, and never repaired: half a JSON document that happens to close its brackets is still
half an answer. The one thing taken off is a code fence around the whole reply, which says nothing about the content.
What is wrong is told all at once, each fault with its field, the value that stood there and the rule, because a model
that learns of its mistakes one by one pays for each with a call.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from orchestrator.contracts import Contract
from orchestrator.contracts.rules import show
from orchestrator.contracts.schemas import parse_json
from orchestrator.errors import StepFailed
from orchestrator.expressions import Expression, ExpressionError
from orchestrator.graph import Check, Function
from orchestrator.ids import variable, whole_characters
from orchestrator.providers.tokens import estimate
from orchestrator.values import Fault, Reply
from orchestrator.workers import run_blocking

MAX_FAULTS: Final = 20
_Kind = Literal["empty", "not_json", "schema", "refusal", "too_large"]
_FENCED: Final = re.compile(r"\s*```(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n[ \t]*```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a reply came to: `value` is JSON data or text and counts only where there are no `faults`."""

    value: Any = None
    faults: tuple[Fault, ...] = ()


def judge(reply: Reply, contract: Contract) -> Judged:
    """Read a reply under a contract. Never raises: whatever a model sends becomes a value or faults."""
    if reply.refusal:
        return _one("refusal", reply.refusal, "the request was refused")
    if reply.status != "completed":
        return _one("too_large", "the answer was cut off", "the answer was cut off: answer again, in full and shorter")
    if not reply.text.strip():
        return _one("empty", "the answer was empty", "the answer was empty")
    judged = _json(reply.text, contract) if contract.form == "json" else _text(reply.text, contract)
    return judged if judged.faults else _sized(judged.value, contract)


def _one(kind: _Kind, message: str, feedback: str) -> Judged:
    return Judged(faults=(Fault(kind, "$", message, feedback),))


def _json(text: str, contract: Contract) -> Judged:
    fenced = _FENCED.fullmatch(text)
    try:
        value = parse_json(fenced[1] if fenced else text)
    except ValueError as error:
        return _one("not_json", f"the answer is not JSON: {error}", f"the answer is not valid JSON: {error}")
    faults = schema_faults(contract, value)
    return Judged(faults=faults) if faults else Judged(contract.normalise(value))


def _text(text: str, contract: Contract) -> Judged:
    if "\x00" in text:
        return _one("schema", "the text holds a NUL character", "the text must not hold a NUL character")
    faults = schema_faults(contract, text)
    return Judged(faults=faults) if faults else Judged(text)


def schema_faults(contract: Contract, value: Any) -> tuple[Fault, ...]:
    """Every rule of the contract's schema that a value breaks."""
    return tuple(
        Fault("schema", f.path, f"{f.path} {f.rule}", f"{f.path}: {show(f.value)} ({f.rule})", f.value)
        for f in contract.faults(value)
    )


def _sized(value: Any, contract: Contract) -> Judged:
    """The contract's token limit holds for the value as later steps will read it."""
    body = contract.dump(value)
    excess = contract.too_large(body)
    if excess is None:
        return Judged(value)
    limit = f"about {estimate(body):,} tokens, the limit is {contract.max_tokens:,}"
    return _one("too_large", f"the answer is {excess}", f"the answer is too long: {limit}")


# --- the re-ask -------------------------------------------------------------------------------------------------------


def feedback(faults: Sequence[Fault], form: str = "json") -> str:
    """What the model is told about its last answer: one line per fault, at most 20, and what to send.

    An assertion about a customer fact is complete in itself and stands alone where nothing else is wrong.
    """
    asserted = [fault.feedback for fault in faults[:MAX_FAULTS] if fault.kind == "customer_fact"]
    failed = [fault.feedback for fault in faults[:MAX_FAULTS] if fault.kind != "customer_fact"]
    lines = ["Your last answer failed validation:", *(f"- {_one_line(text)}" for text in failed)] if failed else []
    if len(faults) > MAX_FAULTS:
        lines.append(f"- and {len(faults) - MAX_FAULTS} more of the same kind")
    lines += asserted
    if failed:
        lines.append("Return the corrected JSON only." if form == "json" else "Return the corrected text only.")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- checks -----------------------------------------------------------------------------------------------------------


async def run_checks(
    checks: Sequence[Check], value: Any, reads: Mapping[str, Any], *, contract: Contract | None = None
) -> tuple[Fault, ...]:
    """Run a step's checks on a valid value: every one that fails is a fault.

    `value` is JSON data or text; an expression sees its top-level fields. A function gets (value, **reads): the value
    as functions see it under `contract` (a model instance where the schema is a model), else a copy of the data.
    Functions may be async; others run in a thread. A function that raises is the project's mistake, not the model's:
    StepFailed names it.
    """
    faults: list[Fault] = []
    for check in checks:
        if check.expr is not None:
            faults.extend(_expression(check, check.expr, value))
        elif check.function is not None:
            given = copy.deepcopy(value) if contract is None else contract.instance(contract.dump(value))
            faults.extend(await _function(check, check.function, given, reads))
    return tuple(faults)


def _expression(check: Check, expression: Expression, value: Any) -> list[Fault]:
    """An expression that meets a value it cannot compute with (a null) fails too: the model can mend the value."""
    fields = value if isinstance(value, Mapping) else {}
    why = ""
    try:
        if expression.evaluate(fields):
            return []
    except ExpressionError as error:
        why = f": {error.message}"
    problem = (check.message or f"`{expression.text}` does not hold") + why
    seen = ", ".join(dict.fromkeys(f"{'.'.join(use.path)} = {show(_at(fields, use.path))}" for use in expression.uses))
    return [_failed(problem, seen)]


def _at(fields: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value a name in an expression stands for; null where there is none."""
    value: Any = fields
    for part in path:
        known = {variable(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}
        value = known.get(part)
    return value


async def _function(check: Check, function: Function, value: Any, reads: Mapping[str, Any]) -> list[Fault]:
    try:
        if inspect.iscoroutinefunction(function.call):
            said = await function.call(value, **reads)
        else:
            said = await run_blocking(function.call, value, **reads)
            said = await said if inspect.isawaitable(said) else said
    except (Exception, SystemExit) as error:
        raise _broken(check, f"raised {type(error).__name__}: {error}") from error
    if said is None:
        return []
    if not isinstance(said, str) or not said.strip():
        raise _broken(check, f"returned {said!r}, not None or a message")
    said = whole_characters(said)
    return [_failed(check.message or said, said if check.message else "")]


def _broken(check: Check, what: str) -> StepFailed:
    hint = "mend the check: it returns None where the value is good, else one sentence for the model"
    return StepFailed(f"the check {check.label} {what}", hint=hint, code="check_broken")


def _failed(problem: str, detail: str) -> Fault:
    return Fault("check", "$", problem, f"{problem} ({detail})" if detail else problem)
