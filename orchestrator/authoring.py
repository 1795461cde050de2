"""Pipelines in Python: typed functions whose parameters are reads and whose return type is the contract.

    p = Pipeline("discovery", budget_usd="4.00")
    p.input("idea", str, about="What the customer wants to build, in their words.")

    @p.step
    async def market_sizing(ctx: Ctx, idea: str) -> MarketSizing:
        return await ctx.ask(MarketSizing, template="market_sizing.md.j2")

    p.llm("cost-estimate", produces=CostEstimate, reads=[market_sizing], template="cost_estimate.md.j2")

    run = await p.start(idea="a clinic's booking system")
    run.get(market_sizing)                          # a MarketSizing

What is declared here becomes the same `PipelineSpec` as a YAML file and runs through the same engine, so a file that
assigns a `Pipeline` is found by the command line like any other. Declaring checks nothing: all faults of a pipeline
come together, each at its line, when it is first needed.

There is one synchronous door, `p.run`; everything else is awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)

from orchestrator.errors import Diagnostic, Place
from orchestrator.python.declarations import (
    Declarations,
    InputDeclaration,
    Read,
    Source,
    StepDeclaration,
    amount,
    artifact,
    author,
    caller,
    file_of,
    kebab,
)
from orchestrator.python.doors import Doors
from orchestrator.python.keys import CallKeys, GateTimeout, OnReject, StepDecorator, StepKeys
from orchestrator.python.pipelines import duration
from orchestrator.run_handle import Run
from orchestrator.spec import (
    MISSING,
    GateChoice,
)

if TYPE_CHECKING:
    from orchestrator.bodies.ctx import Ctx
    from orchestrator.decision import Decision
    from orchestrator.graph import Graph
    from orchestrator.step import Services
    from orchestrator.values import RunRow

__all__ = ["Input", "Pipeline", "Read", "Run", "Step", "artifact"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Step(Source[R_co], Generic[P, R_co]):
    """A step of a pipeline. `R_co` is what it makes; `P` are the reads of its function, without the context."""

    def __init__(self, pipeline: Pipeline, declared: StepDeclaration) -> None:
        self.pipeline: Final = pipeline
        self.declared: Final = declared
        self.name = declared.name

    def value_type(self) -> Any:
        if self.declared.function is None:
            return self.declared.produces
        return get_type_hints(self.declared.function, localns=dict(self.declared.names)).get("return")

    async def run(self, *args: P.args, **values: P.kwargs) -> R_co:
        """This step alone, inside other code: its reads are given, its value is returned.

        It is a run like any other, in the database of its pipeline, with checks, re-asks and budget. What is given for
        an artifact counts as imported, what is given for an input as the customer's words. Raises what stopped it.
        """
        from orchestrator.bodies.alone import given_to
        from orchestrator.engine import start_step

        async def work(services: Services, graph: Graph) -> RunRow:
            given = given_to(graph.steps[self.name], self.declared, args, values)
            return await start_step(services, graph, self.name, given)

        return (await self.pipeline._begun(work)).get(self)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class Input(Source[R_co]):
    """An input of a pipeline: what a run is given."""

    def __init__(self, declared: InputDeclaration) -> None:
        self.declared: Final = declared
        self.name = declared.name

    def value_type(self) -> Any:
        return self.declared.type

    def __repr__(self) -> str:
        return f"<input {self.name}>"


class Pipeline(Doors):
    """A pipeline and the doors to its runs. One file holds one; the module docstring shows what it looks like."""

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        system: str | None = None,
        models: Mapping[str, str | Mapping[str, Any]] | None = None,
        budget_usd: str | int | Decimal | None = None,
        on_exceed: Literal["pause", "fail"] | None = None,
        unpriced: Literal["refuse", "allow"] | None = None,
        per_call_usd: str | int | Decimal | None = None,
        per_session_usd: str | int | Decimal | None = None,
        db: str | None = None,
        **defaults: Unpack[CallKeys],
    ) -> None:
        """`models` maps aliases to `provider:model` (or to the keys of a pipeline file); steps name aliases.

        Keys of a call (`model`, `reasks`, `timeout`, …) are defaults for all steps. `db` is the URL of the database, by
        default the project's.
        """
        place = caller()
        caps = {"usd": budget_usd, "per_call": per_call_usd, "per_session": per_session_usd}
        written = {key: amount(cap) for key, cap in caps.items() if cap is not None}
        budget = _given(**written, on_exceed=on_exceed, unpriced=unpriced)
        self.declarations = Declarations(
            name=name,
            place=place,
            file=file_of(place),
            keys=_given(description=description, system=system),
            models={key: {"use": use} if isinstance(use, str) else dict(use) for key, use in (models or {}).items()},
            defaults=_timed(defaults),
            budget=budget,
        )
        if budget and budget_usd is None:
            hint = 'for example Pipeline(…, budget_usd="4.00")'
            given = [f"{key}_usd" if key in caps else key for key in budget]
            verb = "is" if len(given) == 1 else "are"
            message = f"{' and '.join(given)} {verb} about a budget: budget_usd is missing"
            fault = Diagnostic("P102", message, place, hint)
            self.declarations.faults.append(fault)
            self.declarations.budget = {}
        self.db = db

    @overload
    def input(
        self,
        name: str,
        type: type[R],
        /,
        *,
        about: str | None = None,
        not_for: Sequence[str] | Literal["none"] | None = None,
        default: Any = MISSING,
        sensitivity: str | None = None,
    ) -> Input[R]: ...
    @overload
    def input(
        self,
        name: str,
        type: str,
        /,
        *,
        about: str | None = None,
        not_for: Sequence[str] | Literal["none"] | None = None,
        default: Any = MISSING,
        sensitivity: str | None = None,
    ) -> Input[Any]: ...
    def input(
        self,
        name: str,
        type: Any,
        /,
        *,
        about: str | None = None,
        not_for: Sequence[str] | Literal["none"] | None = None,
        default: Any = MISSING,
        sensitivity: str | None = None,
    ) -> Input[Any]:
        """Declare an input of each run.

        `type` is `str` (text of any length), `int`, `float`, `bool`, `bytes` (a file), a `Literal` of words, an
        artifact type, or a word of a pipeline file (`"string"` is one line). `about` says what it represents; it may be
        left out for a number, a truth value, a word or one line. Without a `default` it must be given.
        """
        not_for = not_for if not_for is None or not_for == "none" else list(not_for)
        keys = _given(about=about, not_for=not_for, sensitivity=sensitivity)
        keys |= {} if default is MISSING else {"default": default}
        declared = InputDeclaration(name, type, keys, caller())
        self.declarations.inputs.append(declared)
        return Input(declared)

    @overload
    def step(self, function: Callable[Concatenate[Ctx, P], Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def step(self, function: Callable[P, R], /) -> Step[P, R]: ...
    @overload
    def step(self, *, name: str | None = None, **keys: Unpack[StepKeys]) -> StepDecorator: ...
    def step(self, *functions: Callable[..., Any], name: str | None = None, **keys: Any) -> Any:
        """Declare a function as a step: `market_sizing` is the step `market-sizing`.

        A parameter of an artifact type reads the step that makes it; `Annotated[T, Read(…)]` says more; any other type
        reads the run's input of that name. The return type is the step's contract. With a first parameter `ctx: Ctx`
        the function may ask the step's model, and is async; without one it is plain Python. It may run more than once
        (see `orchestrator.bodies.ctx`). Checks are made on what is returned, and on each answer of the same type; they
        get the reads by the names of the steps and inputs (`market-sizing` as `market_sizing`), not of the parameters.
        """
        place, frame = caller(), author()
        names = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

        def declare(target: Callable[..., Any]) -> Step[..., Any]:
            declared = _declaration(name or kebab(target.__name__), place, keys, function=target, names=names)
            self.declarations.steps.append(declared)
            return Step(self, declared)

        return declare(*functions) if functions else declare

    @overload
    def llm(
        self,
        name: str,
        /,
        *,
        produces: type[R],
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., R]: ...
    @overload
    def llm(
        self,
        name: str,
        /,
        *,
        produces: str | None = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., Any]: ...
    def llm(
        self,
        name: str,
        /,
        *,
        produces: Any = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., Any]:
        """Declare a step without logic of its own: one question to its model, as in a YAML file.

        `produces` is an artifact type, or the name of a contract of the shelf; left out, it is the contract called like
        the step. The task is a `template` (a file) or a `prompt` (text with the same slots).
        """
        task = _given(template=template, prompt=prompt)
        declared = _declaration(name, caller(), keys, task, reads=tuple(reads), produces=produces)
        self.declarations.steps.append(declared)
        return Step(self, declared)

    def outputs(self, *sources: Source[Any] | str) -> None:
        """Say which values the pipeline is for. Without this, those that no other step waits for."""
        self.declarations.outputs.extend(sources)

    @overload
    def map(
        self,
        name: str,
        /,
        *,
        over: str | None = None,
        key: str | None = None,
        same: Source[Any] | str | None = None,
        item: str | None = None,
        where: str | None = None,
        at_most: int | None = None,
        if_more: Literal["fail", "take_first"] | None = None,
        concurrency: int | None = None,
        on_error: Literal["fail", "collect"] | None = None,
        produces: type[R],
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., Mapping[str, R]]: ...
    @overload
    def map(
        self,
        name: str,
        /,
        *,
        over: str | None = None,
        key: str | None = None,
        same: Source[Any] | str | None = None,
        item: str | None = None,
        where: str | None = None,
        at_most: int | None = None,
        if_more: Literal["fail", "take_first"] | None = None,
        concurrency: int | None = None,
        on_error: Literal["fail", "collect"] | None = None,
        produces: str | None = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., Mapping[str, Any]]: ...
    def map(
        self,
        name: str,
        /,
        *,
        over: str | None = None,
        key: str | None = None,
        same: Source[Any] | str | None = None,
        item: str | None = None,
        where: str | None = None,
        at_most: int | None = None,
        if_more: Literal["fail", "take_first"] | None = None,
        concurrency: int | None = None,
        on_error: Literal["fail", "collect"] | None = None,
        produces: Any = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        template: str | None = None,
        prompt: str | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step[..., Any]:
        """Declare a step that asks its model once for each entry of a list; its value is a mapping from key to what was
        made.

        `over` is the list, `step.field` or `input.field`; `key` the field that names an entry, left out where entries
        are texts. Or `same` is another such step, to go on with its entries. `{{ item }}` is the entry in the task; it
        is called `item` elsewhere. `where` keeps the entries for which an expression holds; more than `at_most` fail,
        or `if_more="take_first"`. With `on_error="collect"` readers are told which are missing.
        """
        for_each = _given(
            key=key, where=where, at_most=at_most, over=if_more, concurrency=concurrency, on_error=on_error, item=item
        )
        for_each |= _given(**{"in": over}, same=same.name if isinstance(same, Source) else same)
        task = _given(template=template, prompt=prompt, for_each=for_each)
        declared = _declaration(name, caller(), keys, task, reads=tuple(reads), produces=produces)
        self.declarations.steps.append(declared)
        return Step(self, declared)

    def gate(
        self,
        name: str,
        /,
        *,
        ask: str,
        shows: Sequence[Source[Any] | str],
        choices: Sequence[GateChoice] | None = None,
        on_reject: OnReject | None = None,
        timeout: GateTimeout | None = None,
        needs: Sequence[Source[Any] | str] = (),
        description: str | None = None,
    ) -> Step[..., Decision]:
        """Declare a question to a person about what other steps made; steps that need it wait for the answer.

        What is approved is what the `shows` hold at that moment; a change of it lets the gate ask again. The answer is
        the step's value, a `Decision`. `on_reject` says which step is made again after a rejection, `timeout` what is
        decided where nobody answers. The run meanwhile ends as `waiting`; `run.approve` and `run.reject` answer.
        """
        rejected = {key: _name(value) for key, value in (on_reject or {}).items()}
        late = {**timeout, "after": duration(timeout["after"])} if timeout else None
        asked = {"ask": ask, "shows": [_name(source) for source in shows]}
        asked |= _given(choices=None if choices is None else list(choices))
        asked |= _given(on_reject=rejected or None, timeout=late)
        keys: dict[str, Any] = {"needs": needs, **_given(description=description)}
        declared = _declaration(name, caller(), keys, {"gate": asked}, produces=_decision())
        self.declarations.steps.append(declared)
        return Step(self, declared)

    def chat(self, name: str, /, **keys: Any) -> Step[..., Any]:
        """Not available yet: a step that talks with the customer."""
        return self._later(name, "p.chat", "give each run its message: p.start(message=…)")

    def _later(self, name: str, what: str, instead: str) -> Step[..., Any]:
        hint = f"for now, {instead}"
        place = caller()
        self.declarations.faults.append(Diagnostic("P150", f"{what} is not available yet", place, hint))
        return Step(self, _declaration(name, place, {}))


# --- small helpers ----------------------------------------------------------------------------------------------------


def _given(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def _name(source: Any) -> Any:
    return source.name if isinstance(source, Source) else source


def _decision() -> type[Decision]:
    from orchestrator.decision import Decision

    return Decision


def _timed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that were given, times and amounts as a pipeline file writes them."""
    write = {"timeout": duration, "call_timeout": duration, "max_usd": amount}
    found = {key: value for key, value in keys.items() if value is not None}
    return {key: write[key](value) if key in write else value for key, value in found.items()}


def _declaration(
    name: str, place: Place, keys: Mapping[str, Any], task: Mapping[str, Any] | None = None, **more: Any
) -> StepDeclaration:
    rest = {key: value for key, value in keys.items() if key not in ("tools", "checks", "needs")}
    if rest.get("files") is not None:
        rest["files"] = list(rest["files"])
    for key in ("conversation", "repeat"):
        if isinstance(rest.get(key), Mapping):
            rest[key] = {name: dict(part) if isinstance(part, Mapping) else part for name, part in rest[key].items()}
    return StepDeclaration(
        name=name,
        place=place,
        keys={**(task or {}), **_timed(rest)},
        needs=tuple(keys.get("needs") or ()),
        tools=tuple(keys.get("tools") or ()),
        checks=tuple(_check(check) for check in keys.get("checks") or ()),
        **more,
    )


def _check(check: Any) -> Any:
    return dict(check) if isinstance(check, Mapping) else check
