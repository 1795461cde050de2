"""The project's functions that a run calls: do they take what they will be given?

A step function gets one keyword for each read, a check gets `(value, **reads)`. A signature that does not fit would
fail in the middle of a run, after paid calls, so it is an error of the pipeline.

A step function that has a parameter of type `Ctx` gets that too, and may then ask the step's model. One that was
declared in Python (`@p.step`) chooses the names of its parameters freely: it is bound to its reads beforehand.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.bodies.ctx import Ctx
from orchestrator.ids import variable

_BOUND: Final = "__orchestrator_binding__"


class SignatureFault(Exception):
    """A function that cannot be called as it will be."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Bound:
    """One read of a declared step function: its keyword here, the function's own parameter, and how its value becomes
    what the parameter is annotated with (None: as it is)."""

    keyword: str
    parameter: str
    convert: Callable[[Any], Any] | None = None


def bind(function: Callable[..., Any], ctx: str | None, reads: Sequence[Bound]) -> Callable[..., Any]:
    """The function as the engine calls it: one keyword for each read, and `ctx` under its own name if it has one."""

    names = {read.keyword: read.parameter for read in reads} | ({ctx: ctx} if ctx is not None else {})

    def arguments(given: dict[str, Any]) -> dict[str, Any]:
        return {names[keyword]: value for keyword, value in given.items()}

    @functools.wraps(function)
    async def asynchronous(**given: Any) -> Any:
        return await function(**arguments(given))

    @functools.wraps(function)
    def blocking(**given: Any) -> Any:
        return function(**arguments(given))

    bound: Callable[..., Any] = asynchronous if inspect.iscoroutinefunction(function) else blocking
    setattr(bound, _BOUND, _Binding(ctx, {read.keyword: read for read in reads}))
    return bound


@dataclass(frozen=True, slots=True)
class _Binding:
    ctx: str | None
    reads: Mapping[str, Bound]


def _binding(function: Any) -> _Binding | None:
    found = getattr(function, _BOUND, None)
    return found if isinstance(found, _Binding) else None


def read_parameters(function: Any) -> Mapping[str, str]:
    """Of a declared step function: the parameter that takes each read, by the read's keyword."""
    binding = _binding(function)
    return {key: read.parameter for key, read in binding.reads.items()} if binding is not None else {}


def converted(function: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of reads, by keyword, as the function's parameters want them. Raises ValueError."""
    binding = _binding(function)
    converters = {key: read.convert for key, read in binding.reads.items()} if binding is not None else {}
    return {key: convert(value) if (convert := converters.get(key)) else value for key, value in values.items()}


def context_parameter(function: Any) -> str | None:
    """The name of the parameter that takes the step's context; None for a function that asks no model."""
    binding = _binding(function)
    if binding is not None:
        return binding.ctx
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return None
    return next((name for name, kind in hints.items() if kind is Ctx and name != "return"), None)


def check_step_function(name: str, function: Any, reads: Sequence[str]) -> None:
    """One keyword for each read, `ctx` where it asks a model, nothing else required. Raises SignatureFault."""
    if _binding(function) is not None:
        return  # its parameters were checked when they were bound
    ctx = context_parameter(function)
    words = [*([f"{ctx}: Ctx"] if ctx else []), *(variable(read) for read in reads)]
    hint = f"write {'async ' if ctx else ''}def {name}({', '.join(words)})"
    parameters = _parameters(name, function, hint)
    if ctx is not None and not inspect.iscoroutinefunction(function):
        raise SignatureFault(f"{name} takes a Ctx and is not async", hint)
    _refuse_missing(name, parameters, reads, hint)
    _refuse_required(name, parameters.values(), {variable(read) for read in reads} | {ctx or ""}, hint)


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
