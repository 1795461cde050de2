"""Function tools: a typed Python function becomes a strict JSON Schema, a model's call becomes a checked call of it.

A tool never breaks a thread. Whatever goes wrong in one call, bad JSON, a wrong argument, an exception, a timeout, is
an answer to the model, who may mend it; the trace keeps what happened. Only the project's author can break a tool, by
leaving out a type or the docstring, and hears of it when the pipeline is loaded.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from orchestrator.contracts import Contract, class_contract, schemas
from orchestrator.contracts.rules import SchemaFault, faults_of, json_schema_faults, show
from orchestrator.contracts.sent_schema import strict, unsendable
from orchestrator.errors import Place
from orchestrator.ids import canonical_json, digest, whole_characters
from orchestrator.mcp_pins import Pinned, tool_name
from orchestrator.providers.strictness import strict_faults
from orchestrator.python.declarations import mark_of
from orchestrator.spec import McpSpec, ToolUse
from orchestrator.tool_results import DEFAULT_TOKENS, ResultFault, Shape, Told, tell
from orchestrator.values import ToolSpec
from orchestrator.workers import run_blocking

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TIMEOUT: Final = 60.0
LEAST_TOKENS: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK: Final = "__orchestrator_tool__"


class ToolError(Exception):
    """Raised by a tool to tell the model, in its message, why the call cannot be answered and what to do instead."""


class ToolFault(Exception):
    """A function that cannot be a tool: what is missing, and how to write it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a tool runs that is no function here: a server of the project file, and its words as they were pinned."""

    server: str
    pinned: Pinned


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a step: what the model is told (`spec`), what runs (`call`), whether repeating it is safe (S09).

    `approval`: a person allows each call before it runs. `timeout` is the most seconds for one call, None for what a
    call of the step may take. `shape` says how its result is told. `remote`: it is a tool of an MCP server.
    """

    ref: str
    spec: ToolSpec
    call: Callable[..., Any]
    idempotent: bool
    sha: str
    approval: bool = False
    timeout: float | None = None
    shape: Shape = field(default_factory=Shape)
    remote: Remote | None = None

    def used(self, use: ToolUse, returns: Contract | None) -> Tool:
        """The tool as one step uses it: what the step says goes before what the function says of itself."""
        shape = Shape(
            keep=self.shape.keep if use.keep is None else use.keep,
            max_tokens=use.max_tokens or self.shape.max_tokens,
            returns=returns or self.shape.returns,
        )
        approval = self.approval or use.approval == "required"
        return replace(self, approval=approval, timeout=use.timeout or self.timeout, shape=shape)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The answer to one call. `output` goes to the model, `whole` is the result where that does not hold all of it;
    `data` (JSON) is for the trace."""

    output: str
    is_error: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class _Mark:
    idempotent: bool = False
    approval: bool = False
    timeout: float | None = None
    keep: tuple[str, ...] = ()
    max_tokens: int = DEFAULT_TOKENS


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    idempotent: bool = False,
    approval: bool = False,
    timeout: float | None = None,
    keep: Sequence[str] = (),
    max_tokens: int = DEFAULT_TOKENS,
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    idempotent: bool = False,
    approval: bool = False,
    timeout: float | None = None,
    keep: Sequence[str] = (),
    max_tokens: int = DEFAULT_TOKENS,
) -> F | Callable[[F], F]:
    """Declare how a function behaves as a tool. The function stays as it is.

    `idempotent`: calling it twice does no harm. An interrupted tool is repeated only then; otherwise a person decides.
    `approval`: a person allows each call before it runs; the step waits for that, over restarts too. `timeout`: the
    most seconds for one call. `keep`: the parts of its result that the model is told, as paths (`total`,
    `items.name`); `max_tokens`: the most of it. What is not told stands in the record. A return type that is an
    `@artifact` class is checked, and told with its label.
    """
    marked = _Mark(idempotent, approval, timeout, tuple(keep), max_tokens)

    def mark(target: F) -> F:
        setattr(target, _MARK, marked)
        return target

    return mark if function is None else mark(function)


# --- from a function to a tool ----------------------------------------------------------------------------------------


def build_tool(ref: str, function: Callable[..., Any], sha: str) -> Tool:
    """The tool that a typed function with a docstring is. Raises ToolFault."""
    if not inspect.isroutine(function):
        raise ToolFault(f"{ref} is not a function", "name a function: tools.py:lookup_rates")
    name = function.__name__
    if _NAME.fullmatch(name) is None:
        raise ToolFault(f"{ref}: {name!r} cannot be a tool's name", "use letters, digits and _, at most 64")
    description = inspect.getdoc(function)
    if not description or not description.strip():
        raise ToolFault(
            f"{ref} has no docstring", "the docstring tells the model what the tool does and when to use it"
        )
    schema = strict(_arguments(function).model_json_schema(by_alias=True))
    schema.pop("description", None)
    mark = getattr(function, _MARK, _Mark())
    _check_mark(ref, mark)
    shape = Shape(mark.keep, mark.max_tokens, _returned(ref, function))
    spec = ToolSpec(name, description.strip(), schema)
    return Tool(ref, spec, function, mark.idempotent, sha, mark.approval, mark.timeout, shape)


def _check_mark(ref: str, mark: _Mark) -> None:
    if mark.timeout is not None and not 0 < mark.timeout < float("inf"):
        raise ToolFault(f"{ref} has a timeout of {mark.timeout!r}", "give it in seconds: @tool(timeout=30)")
    if mark.max_tokens < LEAST_TOKENS:
        raise ToolFault(
            f"{ref} lets the model be told {mark.max_tokens} tokens of a result",
            f"give max_tokens={LEAST_TOKENS} or more",
        )
    if not all(all(path.split(".")) for path in mark.keep):
        raise ToolFault(f"{ref} has a path in keep that is none", 'write keep=["total", "items.name"]')


def _returned(ref: str, function: Callable[..., Any]) -> Contract | None:
    """The contract of what it gives, where its return type is an `@artifact` class."""
    cls: Any = typing.get_type_hints(function).get("return")
    if mark_of(cls) is None:
        return None
    try:
        return class_contract(cls, Place(ref.rpartition(":")[0] or ref))
    except ValueError as error:
        raise ToolFault(f"{ref} returns {cls.__name__}, which is no contract: {error}", "mend the class") from error


@functools.lru_cache(maxsize=1024)
def _arguments(function: Callable[..., Any]) -> type[BaseModel]:
    """A model of the parameters; its fields are `p0, p1, …` under aliases, so that any parameter name will do."""
    name = getattr(function, "__name__", repr(function))
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ToolFault(f"{name} has an annotation that cannot be read: {error}", "import the type it names") from error
    fields: dict[str, Any] = {}
    for at, parameter in enumerate(inspect.signature(function).parameters.values()):
        _check_parameter(name, parameter, hints)
        # The function has its own default; the model only has to know that there is one.
        default = ... if parameter.default is inspect.Parameter.empty else None
        fields[f"p{at}"] = (hints[parameter.name], Field(default, alias=parameter.name))
    try:
        model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(by_alias=True)
    except PydanticUserError as error:
        raise ToolFault(
            f"{name} has a parameter that JSON cannot carry: {str(error).splitlines()[0]}",
            "use text, numbers, truth values, lists, Literal or pydantic models",
        ) from error
    for path, reason in unsendable(schema):
        raise ToolFault(f"{name}: {path.removeprefix('$.properties.')} is {reason}", "use a pydantic model")
    return model


def remote_tool(ref: str, server: str, tool: Pinned, spec: McpSpec) -> Tool:
    """A tool of an MCP server, as it was pinned. What runs it is bound where the server is."""
    told = ToolSpec(tool_name(server, tool.name), tool.description, tool.schema, strict=not strict_faults(tool.schema))
    return Tool(
        ref=ref,
        spec=told,
        call=_not_bound,
        idempotent=tool.name in spec.idempotent,
        sha=digest([tool.sha, list(spec.command or ()), spec.url]),
        approval=spec.approval == "all" or tool.name in spec.approval,
        timeout=spec.timeout,
        remote=Remote(server, tool),
    )


async def _not_bound(**arguments: Any) -> Any:
    raise ToolError("the server of this tool is not at hand")


def _check_parameter(name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolFault(f"{name} takes {stars}{parameter.name}", "name every parameter: the model must know them")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolFault(f"{name}: {parameter.name} is positional-only", "leave out the `/`: arguments come by name")
    if parameter.name not in hints:
        raise ToolFault(
            f"{name}: the parameter {parameter.name} has no type", f"write `{parameter.name}: str`, or what it is"
        )


# --- from a call to an answer -----------------------------------------------------------------------------------------


async def call_tool(tool: Tool, arguments: str, *, timeout: float = DEFAULT_TIMEOUT) -> ToolOutcome:
    """Run one call of a model: check its arguments, run the function (off the loop if it is sync), write its result.

    Never raises for what the call or the function does; cancellation passes through. `timeout` is in seconds, and the
    tool's own goes before it where that is shorter. A sync function that runs over it cannot be stopped: its thread
    ends when the function does, and its result is dropped.
    """
    name = tool.spec.name
    timeout = min(timeout, tool.timeout or timeout)
    try:
        values = _checked(tool, arguments)
    except _BadArguments as fault:
        return ToolOutcome(str(fault), True, {"tool": name, "error": "arguments", "message": str(fault)})
    try:
        async with asyncio.timeout(timeout) as limit:
            told = await _run(tool.call, values, lambda result: tell(result, tool.shape, name))
        return ToolOutcome(told.text, False, {"tool": name, **_left_out(told)}, told.whole)
    except ToolError as error:
        message = whole_characters(str(error)) or f"{name} cannot answer this call."
        return ToolOutcome(message, True, {"tool": name, "error": "ToolError", "message": message})
    except ResultFault as fault:
        return ToolOutcome(str(fault), True, {"tool": name, "error": "result", "message": str(fault)})
    except TimeoutError as error:
        if not limit.expired():
            return _raised(name, error)
        message = f"{name} did not answer within {timeout:g} s; it may still have taken effect."
        return ToolOutcome(message, True, {"tool": name, "error": "timeout", "message": message})
    except (Exception, SystemExit) as error:  # whatever the author's function raises is an answer to the model
        return _raised(name, error)


def refusal(tool: Tool, arguments: str) -> bool:
    """Whether a call's arguments are refused, whatever anybody says: nobody needs to be asked about it."""
    try:
        _checked(tool, arguments)
    except _BadArguments:
        return True
    return False


def _left_out(told: Told) -> dict[str, Any]:
    """What of a result the model was not told, for the trace."""
    cut = {"cut": told.cut} if told.cut else {}
    return cut | ({"missing": list(told.missing)} if told.missing else {})


class _BadArguments(Exception):
    pass


def _checked(tool: Tool, arguments: str) -> dict[str, Any]:
    """The arguments by name, as the function's types. Parameters left out (or null for it) keep their defaults."""
    name = tool.spec.name
    try:
        given = schemas.parse_json(arguments.strip() or "{}")
    except ValueError as error:
        raise _BadArguments(
            f"The arguments of {name} are not valid JSON: {error}. Call it again with valid JSON."
        ) from error
    if not isinstance(given, dict):
        raise _BadArguments(f"The arguments of {name} must be one JSON object, got {show(given)}.")
    if tool.remote is not None:
        return _checked_by_schema(name, given, tool.remote.pinned.schema)
    model = _arguments(tool.call)
    given = schemas.without_nulls(given, model.model_json_schema(by_alias=True))
    try:
        checked = model.model_validate_json(canonical_json(given, indent=None))
    except ValidationError as error:
        faults = faults_of(error, given)
        raise _BadArguments(f"The arguments of {name} are not valid: {_sentences(faults)}. Call it again.") from error
    except ValueError as error:
        raise _BadArguments(f"The arguments of {name} cannot be used: {error}.") from error
    fields = type(checked).model_fields
    return {str(fields[key].alias): getattr(checked, key) for key in checked.model_fields_set}


def _checked_by_schema(name: str, given: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    faults = json_schema_faults(schema, given)
    if faults:
        raise _BadArguments(f"The arguments of {name} are not valid: {_sentences(faults)}. Call it again.")
    return given


def _sentences(faults: tuple[SchemaFault, ...]) -> str:
    return "; ".join(
        f"{fault.path.removeprefix('$.')} {fault.rule}" + ("" if fault.value is None else f", got {show(fault.value)}")
        for fault in faults
    )


async def _run(function: Callable[..., Any], values: Mapping[str, Any], told: Callable[[Any], Told]) -> Told:
    """What the function gives, as it is told. Both beside the event loop: a result may be large."""
    if not inspect.iscoroutinefunction(function):

        def work() -> Any:
            result = function(**values)
            return result if inspect.isawaitable(result) else told(result)

        done = await run_blocking(work)
        if isinstance(done, Told):
            return done
        return await run_blocking(told, await done)
    return await run_blocking(told, await function(**values))


def _raised(name: str, error: BaseException) -> ToolOutcome:
    kind, said = type(error).__name__, whole_characters(str(error))
    message = f"{name} failed: {kind}: {said}" if said else f"{name} failed: {kind}"
    return ToolOutcome(message, True, {"tool": name, "error": kind, "message": said})
