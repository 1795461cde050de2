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

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from threading import Thread as OsThread
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)

from orchestrator.errors import ConfigError, Diagnostic, Place, UsageError
from orchestrator.ids import variable
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
from orchestrator.python.files import is_loading
from orchestrator.python.pipelines import duration
from orchestrator.run_handle import Outcome, Run, outcome_of
from orchestrator.spec import (
    MISSING,
    AfterReject,
    Effort,
    GateChoice,
    ManifestKind,
    OnInputChange,
    OnTimeout,
    Structured,
)
from orchestrator.using import Using

if TYPE_CHECKING:
    from orchestrator.bodies.ctx import Ctx
    from orchestrator.decision import Decision
    from orchestrator.exchange.benching import Benched
    from orchestrator.exchange.comparing import RunComparison
    from orchestrator.graph import Graph
    from orchestrator.loading import Loaded
    from orchestrator.plan import Plan
    from orchestrator.project import Project
    from orchestrator.settings import Settings
    from orchestrator.step import Services
    from orchestrator.values import Event, RunRow

__all__ = ["Input", "Pipeline", "Read", "Run", "Step", "artifact"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
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


class Pipeline(Using):
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
        self.db: Final = db

    @property
    def name(self) -> str:
        return self.declarations.name

    # --- declaring

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

    # --- the project it belongs to

    def project(self) -> Project:
        """The project that holds the pipeline's file, else the one around the current folder, else that folder."""
        from orchestrator.project import Project, find_project

        file = self.declarations.file
        folder = Path(os.path.realpath(file.parent if file is not None else Path.cwd()))
        try:
            return find_project(folder)
        except ConfigError as error:
            if error.place is not None or (folder / "orchestrator.toml").exists():
                raise
            return Project(root=folder, file=folder / "orchestrator.toml", config={})

    def settings(self) -> Settings:
        """The settings it runs under: environment, `.env`, project file, user file."""
        from orchestrator.settings import load_settings

        return load_settings(self.project(), os.environ, db=self.db)

    def graph(self, *, require_model: bool = False) -> Graph:
        """The checked pipeline. Raises InvalidProject with every fault of it, ConfigError for a model that is not set
        (only if `require_model`)."""
        from orchestrator.building import built, finished

        return finished(*built(self.project(), self.settings(), self._loaded()), require_model=require_model)

    def check(self) -> tuple[Diagnostic, ...]:
        """Every fault and warning of the pipeline, as `orch check` shows them; none for one that is sound."""
        from orchestrator.building import checked

        return checked(self.project(), self.settings(), self._loaded())[1]

    def _repr_html_(self) -> str:
        """For notebooks: the graph, or its faults."""
        from orchestrator.notebook import pipeline_html

        return pipeline_html(self)

    def _loaded(self) -> Loaded:
        from orchestrator.loading import load_declared

        project = self.project()
        file = self.declarations.file
        path = Path(os.path.realpath(file)) if file is not None else project.root / "notebook"
        return load_declared(project, self.declarations, path)

    @asynccontextmanager
    async def _services(self, listener: Callable[[Event], None]) -> AsyncIterator[Services]:
        from orchestrator.engine import open_services

        async with open_services(self.project(), self.settings(), listener=listener) as services:
            yield services

    # --- the doors

    def start(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        message: str | None = None,
        session: str | None = None,
        cap_usd: str | int | Decimal | None = None,
        **values: Any,
    ) -> Run:
        """Start a run; `await` it to its end, or follow it with `async for event in run.events()`.

        Inputs are given by name (`customer-budget` as `customer_budget`), or as a mapping, which also takes names that
        are options here. `message` is the run's message in the customer's words, `session` the conversation it belongs
        to, `cap_usd` the most it may cost. A run that fails is no exception: see `Run.status` and `Run.get`.

        Needs a running event loop. Raises InvalidProject, ConfigError and UsageError when it is awaited.
        """
        from orchestrator.engine import RunOptions, start_run

        cap = _cap(cap_usd)

        async def work(services: Services, graph: Graph) -> RunRow:
            given = {**(inputs or {}), **_by_name(graph, values)}
            return await start_run(services, graph, RunOptions(given, message, session, cap_usd=cap))

        return self._begun(work)

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        message: str | None = None,
        session: str | None = None,
        cap_usd: str | int | Decimal | None = None,
        **values: Any,
    ) -> Run:
        """Like `start`, for code that is not async: returns when the run has ended. Works inside a notebook too, where
        a loop is running already: the run then has a thread and a loop of its own."""

        async def main() -> Run:
            return await self.start(inputs, message=message, session=session, cap_usd=cap_usd, **values)

        _refuse_while_loading(self.name)
        return _finished(main())

    def resume(
        self,
        run: str | int = "last",
        /,
        *,
        cap_usd: str | int | Decimal | None = None,
        take_over: bool = False,
        tools: Mapping[str, str] | None = None,
        settle: Mapping[str, str] | None = None,
    ) -> Run:
        """Go on with a run, by number, id, `last` or `last~1`; finished steps do not run again.

        `tools` answers interrupted tools and effects (`retry`, `done:JSON`, `tell`), `settle` says which version of a
        step stands that was edited and made anew (`head`, `draft`, `draft:FIELD,…`); see `orch resume --help`.
        """
        from orchestrator.engine import resume_run

        cap = _cap(cap_usd)

        async def work(services: Services, graph: Graph) -> RunRow:
            row = await services.store.run(run)
            if row.pipeline != graph.name:
                raise UsageError(
                    f"run {row.number} is one of {row.pipeline}, not of {graph.name}",
                    hint="name the run by its number: p.resume(12)",
                )
            return await resume_run(services, graph, row, cap_usd=cap, take_over=take_over, tools=tools, settle=settle)

        return self._begun(work)

    async def plan(self, inputs: Mapping[str, Any] | None = None, /, **values: Any) -> Plan:
        """What a run with these inputs would do and cost; nothing is sent."""
        from orchestrator.plan import plan_new

        graph = self.graph(require_model=True)
        async with self._services(lambda event: None) as services:
            return await plan_new(services, graph, {**(inputs or {}), **_by_name(graph, values)})

    async def compare(self, old: Run | str | int, new: Run | str | int) -> RunComparison:
        """What two runs of this pipeline differ in: inputs, values by path, prompts block by block, model, cost.

        Takes handles of runs that have ended, or what the command line takes: a number, `last`, `last~1`. Raises
        UsageError for a run that is not there.
        """
        from orchestrator.exchange.gathering import compared_runs
        from orchestrator.exchange.reading import value_of

        graph = self.graph()
        async with self._services(lambda event: None) as services:
            before, after = [await services.store.run(_reference(one)) for one in (old, new)]
            return await compared_runs(services.store, before, after, lambda run, artifact: value_of(artifact, graph))

    async def bench(
        self,
        run: Run | str | int,
        step: Source[Any] | str,
        n: int = 5,
        *,
        model: str | None = None,
        template: str | None = None,
        prompt: str | None = None,
        cap_usd: str | int | Decimal | None = None,
        with_effects: bool = False,
    ) -> Benched:
        """Make a step `n` times on what it read in a run, and as often with another model (an alias, or
        `provider:model`), template or task beside it; the run itself stays as it is. See `orch bench`.

        The samples have a budget of their own, `cap_usd`, by default that of a run. Raises UsageError for a step that
        asks no model, has not what it reads yet, or may act on the world (`with_effects` lets it).
        """
        from orchestrator.bench import bench_step
        from orchestrator.building.variants import Variation

        graph, loaded = self.graph(require_model=model is None), self._loaded()
        variation = Variation(template, None if prompt is None else ("prompt", prompt), model)
        name = step if isinstance(step, str) else step.name
        cap = None if cap_usd is None else Decimal(str(cap_usd))
        async with self._services(lambda event: None) as services:
            row = await services.store.run(_reference(run))
            return await bench_step(services, loaded, graph, row, name, n, variation, cap, with_effects=with_effects)

    async def promote(self, bench: str | int, sample: str) -> int:
        """Take a sample of a bench (`"b-2"`) as the step's new version in the run that was benched; its number there.

        Raises UsageError where there is no such sample, it does not fit, or the run has another version by now.
        """
        from orchestrator.bench import promote

        graph = self.graph()
        async with self._services(lambda event: None) as services:
            done = await promote(services, graph, await services.store.run(str(bench)), sample)
            return done.new.version

    def _begun(self, work: Callable[[Services, Graph], Awaitable[RunRow]]) -> Run:
        """A run whose work has begun as a task of the running loop."""
        _refuse_while_loading(self.name)

        async def main(listener: Callable[[Event], None]) -> Outcome:
            graph = self.graph(require_model=True)
            async with self._services(listener) as services:
                row = await work(services, graph)
                return await outcome_of(services, graph, row)

        return Run(main, self._further)

    def _further(self, work: Callable[[Services, Graph], Awaitable[RunRow]]) -> Run:
        """More work on a run that has ended, from async code or not."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            return self._begun(work)

        async def main() -> Run:
            return await self._begun(work)

        return _finished(main())


# --- small helpers ----------------------------------------------------------------------------------------------------


def _given(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def _name(source: Any) -> Any:
    return source.name if isinstance(source, Source) else source


def _reference(run: Run | str | int) -> str:
    return run.id if isinstance(run, Run) else str(run)


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


def _cap(usd: str | int | Decimal | None) -> Decimal | None:
    try:
        cap = None if usd is None else Decimal(amount(usd))
    except InvalidOperation:
        cap = Decimal(-1)
    if cap is not None and not (cap.is_finite() and cap >= 0):
        raise UsageError(f"cap_usd {usd!r} is not an amount of dollars", hint='write cap_usd="4.00"')
    return cap


def _by_name(graph: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword values by the names of inputs: `customer_budget` is `customer-budget`."""
    names = {variable(name): name for name in graph.inputs}
    return {names.get(key, key): value for key, value in values.items()}


def _refuse_while_loading(name: str) -> None:
    if is_loading():
        raise UsageError(
            f"the file of {name} starts a run whenever it is read",
            hint='put that line under if __name__ == "__main__":',
        )


def _finished(main: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine, also where a loop is running already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # its own errors must not seem to come from this one
    else:
        return _beside(main)
    return asyncio.run(main)


def _beside(main: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine, in a thread with a loop of its own."""
    results: list[R] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(main))
        except BaseException as error:  # carried over to the caller's thread
            errors.append(error)

    thread = OsThread(target=work, name="orch-run")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
