"""A step that is visited until it is good: what its rule says of a version, and what the next visit is told. Pure.

A rule is an expression over the fields of the output and what the step reads; the output as a whole stands under the
step's own name. Where the rule cannot be computed (a null that is compared), it does not hold: the model can mend that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from orchestrator.contracts.rules import show
from orchestrator.expressions import Expression, ExpressionError
from orchestrator.graph import Repeat, StepNode
from orchestrator.ids import canonical_json, variable
from orchestrator.reads import read_data
from orchestrator.values import Redo, Snapshot


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit that has made a version: `number` of `of`, and why the version is not good yet (empty = it is)."""

    number: int
    of: int
    why: str = ""

    @property
    def is_last(self) -> bool:
        return self.number >= self.of


def visited(step: StepNode, value: Any, snapshot: Snapshot) -> Visit | None:
    """What the step's rule says of a version that this visit made; None for a step without one."""
    repeat = step.repeat
    if repeat is None:
        return None
    why = _why(repeat.until, names_of(step, value, snapshot))
    return Visit(round_of(snapshot.redo) + 1, repeat.max_rounds, why)


def round_of(redo: Redo | None) -> int:
    """Which visit of its loop an attempt is, from 0. One that a person asked for is the first of a new series."""
    return redo.round if redo is not None and redo.mode == "repeat" else 0


def feedback(step: StepNode, value: Any, snapshot: Snapshot) -> str:
    """What the next visit is told about this version: the loop's own words, or else which rule does not hold."""
    repeat = step.repeat
    assert repeat is not None
    names = names_of(step, value, snapshot)
    return _said(repeat, names) or _why(repeat.until, names)


def names_of(step: StepNode, value: Any, snapshot: Snapshot) -> Mapping[str, Any]:
    """What the names of a rule stand for: reads, then the output under its own name, then its fields."""
    fields = {variable(name): field for name, field in value.items()} if isinstance(value, Mapping) else {}
    return {**read_data(step, snapshot), variable(step.called): value, **fields}


def _why(until: Expression, names: Mapping[str, Any]) -> str:
    try:
        if until.evaluate(names):
            return ""
        problem = f"`{until.text}` does not hold"
    except ExpressionError as error:
        problem = f"`{until.text}` does not hold: {error.message}"
    seen = [f"{'.'.join(use.path)} = {show(_at(names, use.path))}" for use in until.uses]
    return f"{problem} ({', '.join(dict.fromkeys(seen))})" if seen else problem


def _at(names: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = names
    for part in path:
        known = {variable(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}
        value = known.get(part)
    return value


def _said(repeat: Repeat, names: Mapping[str, Any]) -> str:
    """The declared feedback as text; a list is one line for each entry. Empty where it says nothing."""
    if repeat.feedback is None or isinstance(repeat.feedback, str):
        return repeat.feedback or ""
    try:
        value = repeat.feedback.evaluate(names)
    except ExpressionError:
        return ""
    if isinstance(value, list):
        return "\n".join(f"- {_text(entry)}" for entry in value if entry is not None)
    return _text(value).strip()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(_plain(value), indent=None).decode()


def _plain(value: Any) -> Any:
    """What an expression gives as JSON data: its numbers are decimals."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
