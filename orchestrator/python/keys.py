"""What may be said of steps and gates in Python, as keyword arguments: the keys of a pipeline file, typed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from orchestrator.python.declarations import Source
from orchestrator.spec import AfterReject, Effort, ManifestKind, OnInputChange, OnTimeout, Structured

if TYPE_CHECKING:
    from orchestrator.authoring import Step
    from orchestrator.bodies.ctx import Ctx

P = ParamSpec("P")
R = TypeVar("R")
Check = str | Mapping[str, str] | Callable[..., Any]


class CallKeys(TypedDict, total=False):
    """What may be said of the calls of a step, or of all steps. Times are seconds, or text such as "10m"; `max_usd` is
    what the step may cost in a run, with all its items and attempts."""

    model: str
    effort: Effort
    max_output_tokens: int
    structured: Structured
    reasks: int
    timeout: str | float
    call_timeout: str | float
    max_usd: str | int | Decimal


class StepKeys(CallKeys, total=False):
    """What may be said of a step.

    `tools` may be called by its model: functions, names, or mappings with the keys of a pipeline file. `files` are data
    files that its functions open. `checks` are rules on what it makes: expressions over its fields, `{"expr":
    …, "message": …}`, or functions `(value, **reads)` that return None or a message. `needs` are steps it waits for
    without reading them. `for_each` does it once for each entry of a list, with the keys of a pipeline file:
    `{"item": "rival", "in": "rivals.found", "key": "slug"}`; a function takes the entry as the parameter `rival`.
    `conversation` is how much of the session's conversation it sees. `repeat` visits it until a rule holds:
    `{"until": "score >= 8", "max_rounds": 3, "feedback": {"expr": "missing"}, "then": "fail"}`. Where `when`, an
    expression over what it reads, is false, it is skipped. `stale_on` are the changes that make it stale;
    `on_input_change` is what follows where somebody edits what it has read while it runs.
    `review="required"`: a person approves what it made before any other step reads it. `ungated` says why an output
    needs no gate.
    """

    description: str
    tools: Sequence[Callable[..., Any] | str | Mapping[str, Any]]
    files: Sequence[str]
    checks: Sequence[Check]
    needs: Sequence[Source[Any] | str]
    conversation: Mapping[Literal["messages", "tokens"], int] | Literal["off"]
    for_each: Mapping[str, Any]
    repeat: Mapping[str, Any]
    when: str
    stale_on: Sequence[ManifestKind]
    on_input_change: OnInputChange
    review: Literal["required"]
    ungated: str


class OnReject(TypedDict, total=False):
    """What a rejection leads to: see `on_reject` of a pipeline file."""

    redo: Source[Any] | str
    mode: Literal["follow_up", "fresh"]
    max_rounds: int
    then: AfterReject


class GateTimeout(TypedDict):
    """What is decided where nobody answers: `after` is in seconds, or text such as "3d"."""

    after: str | float
    then: OnTimeout


class StepDecorator(Protocol):
    """What `@p.step(…)` is: it makes a step of a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[Ctx, P], Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...
