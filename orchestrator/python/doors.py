"""The doors of a pipeline in Python: the project it belongs to, its checked graph, and its runs.

There is one synchronous door, `run`; everything else is awaited.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from threading import Thread as OsThread
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import ConfigError, Diagnostic, UsageError
from orchestrator.ids import variable
from orchestrator.python.declarations import Source, amount
from orchestrator.python.files import is_loading
from orchestrator.python.using import Using
from orchestrator.run_handle import Outcome, Run, outcome_of

if TYPE_CHECKING:
    from orchestrator.exchange.benching import Benched
    from orchestrator.exchange.comparing import RunComparison
    from orchestrator.graph import Graph
    from orchestrator.loading import Loaded
    from orchestrator.plan import Plan
    from orchestrator.project import Project
    from orchestrator.settings import Settings
    from orchestrator.step import Services
    from orchestrator.values import Event, RunRow

R = TypeVar("R")


class Doors(Using):
    """What can be done with a pipeline that is declared: `Pipeline` is the only one."""

    db: str | None

    @property
    def name(self) -> str:
        return self.declarations.name

    # --- declaring

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


def _reference(run: Run | str | int) -> str:
    return run.id if isinstance(run, Run) else str(run)


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
