"""The project's functions that a run calls: do they take what they will be given?

A step function gets one keyword for each read, a check gets `(value, **reads)`. A signature that does not fit would
fail in the middle of a run, after paid calls, so it is an error of the pipeline.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.ids import variable


class SignatureFault(Exception):
    """A function that cannot be called as it will be."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def check_step_function(name: str, function: Any, reads: Sequence[str]) -> None:
    """One keyword for each read, nothing else required. Raises SignatureFault."""
    hint = f"write def {name}({', '.join(variable(read) for read in reads)})"
    parameters = _parameters(name, function, hint)
    _refuse_missing(name, parameters, reads, hint)
    _refuse_required(name, parameters.values(), {variable(read) for read in reads}, hint)


def check_check_function(name: str, function: Any, reads: Sequence[str]) -> None:
    """The value first, then a keyword for each read. Raises SignatureFault."""
    hint = f"write def {name}(value, **reads)"
    parameters = _parameters(name, function, hint)
    ordered = list(parameters.values())
    first = ordered[0] if ordered else None
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        raise SignatureFault(f"{name} does not take the value it is to check", hint)
    rest = {p.name: p for p in ordered[1:]}
    if first.kind is first.VAR_POSITIONAL:
        rest = {p.name: p for p in ordered}
    elif first.name in {variable(read) for read in reads}:
        raise SignatureFault(f"{name}: its first parameter {first.name} has the name of a read", hint)
    _refuse_missing(name, rest, reads, hint)
    _refuse_required(name, rest.values(), {variable(read) for read in reads}, hint)


def _parameters(name: str, function: Any, hint: str) -> Mapping[str, inspect.Parameter]:
    if not callable(function) or inspect.isclass(function):
        raise SignatureFault(f"{name} is not a function", hint)
    try:
        return inspect.signature(function).parameters
    except (ValueError, TypeError) as error:
        raise SignatureFault(f"{name} has no signature that can be read", hint) from error


def _refuse_missing(name: str, parameters: Mapping[str, inspect.Parameter], reads: Sequence[str], hint: str) -> None:
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    by_keyword = {p.name for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [variable(read) for read in reads if variable(read) not in by_keyword]
    if missing:
        raise SignatureFault(f"{name} does not take {_list(missing)}, which the step reads", hint)


def _refuse_required(name: str, parameters: Any, given: set[str], hint: str) -> None:
    extra = [
        p.name
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and (p.name not in given or p.kind is p.POSITIONAL_ONLY)
    ]
    if extra:
        raise SignatureFault(f"{name} needs {_list(extra)}, which the step does not read", hint)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
