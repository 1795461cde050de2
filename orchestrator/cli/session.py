"""What a command needs of the library: the project, its settings, a graph, a database; and one event loop to run in.

Ctrl-C is a request, not an accident: the first one cancels the command's task and waits until the engine has released
the run as paused; the second ends the process at once, which the store survives by design. A terminal that is closed
(SIGHUP) and a polite `kill` (SIGTERM) ask for the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.cli.options import State
from orchestrator.errors import EXIT_INTERRUPTED, OrchError, StoreError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.refs import StepRef
    from orchestrator.graph import Graph
    from orchestrator.project import Project
    from orchestrator.providers.registry import Providers
    from orchestrator.settings import Settings
    from orchestrator.step import Services
    from orchestrator.store import Store
    from orchestrator.values import Event, RunRow, Scope, StepRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Desk:
    """A command's project and settings, read once."""

    state: State
    project: Project
    settings: Settings

    @property
    def scope(self) -> Scope:
        from orchestrator.values import Scope

        return Scope(self.state.tenant, self.state.account, self.state.subject)

    def graph(self, name: str | None, *, require_model: bool = False) -> Graph:
        """The pipeline of that name, checked; None = the only one. Raises UsageError, InvalidProject, ConfigError."""
        from orchestrator.graph import build_graph

        path = self.project.pipeline(name)
        return build_graph(self.project, self.settings, path, require_model=require_model)

    def graph_of(self, run: RunRow, *, require_model: bool = False) -> Graph:
        """The run's pipeline as it is declared now, with the models that this run has of its own."""
        from orchestrator.building.choices import with_models
        from orchestrator.graph import build_graph

        path = self.project.root / run.file
        if not path.is_file():
            path = self.project.pipeline(run.pipeline)
        graph = build_graph(self.project, self.settings, path, require_model=require_model)
        return with_models(graph, self.settings, run.models)

    def known_graph(self, run: RunRow) -> Graph | None:
        """The run's pipeline for labels and staleness, or None where it is broken now: looking must still work."""
        try:
            return self.graph_of(run)
        except OrchError:
            return None


def within(desk: Desk, run: RunRow, ref: StepRef) -> StepRef:
    """The reference itself, or for a step that uses a pipeline that to the step inside with its value."""
    graph = desk.known_graph(run)
    return replace(ref, step=graph.target(ref.step)) if graph is not None and graph.targets else ref


def open_desk(state: State) -> Desk:
    """Find the project from the current folder, read its settings, and make sure that its user trusts it.

    Raises ConfigError, and AccessRefused (exit 7) ahead of anything that is executed or contacted.
    """
    from orchestrator.cli.terminal import hide
    from orchestrator.cli.trust import require_trust
    from orchestrator.project import find_project
    from orchestrator.settings import load_settings

    project = find_project(Path.cwd())
    settings = load_settings(project, os.environ, db=state.db)
    hide(settings.secret_values())
    return Desk(state, require_trust(state, project, settings), settings)


def warn(event: Event) -> None:
    """A listener for commands that show no progress: they tell of nothing but a wait for somebody else."""
    from orchestrator.cli.terminal import console, show, visible

    if event.kind == "store.waiting":
        show(console(stderr=True), visible(str(event.data["message"]), one_line=True))


class NoRuns(UsageError):
    """The project has no database yet; one to look at is not made."""


@asynccontextmanager
async def services(desk: Desk, listener: Callable[[Event], None] = warn) -> AsyncIterator[Services]:
    """Everything the engine works with, opened for one command."""
    from orchestrator.engine import open_services

    providers = _recorded(desk)
    async with open_services(
        desk.project, desk.settings, scope=desk.scope, listener=listener, providers=providers
    ) as opened:
        yield opened


def _recorded(desk: Desk) -> Providers | None:
    """The project's providers as --record or --replay has them; None for themselves."""
    record, replay = desk.state.record, desk.state.replay
    if record and replay:
        raise UsageError("--record and --replay exclude each other", hint="What is replayed is recorded already.")
    if record:
        from orchestrator.providers.recording import Recorder

        return Recorder(desk.project, desk.settings, Path(record))
    if replay:
        from orchestrator.providers.replayed import Replayer

        return Replayer(desk.project, desk.settings, Path(replay))
    return None


@asynccontextmanager
async def reading(desk: Desk) -> AsyncIterator[Store]:
    """The database alone, for commands that only look. A project without one has no runs, and is left so."""
    from orchestrator.store import open_store

    try:
        store = open_store(desk.settings.db, desk.scope, secrets=desk.settings.secret_values(), create=False)
    except StoreError as error:
        if error.code != "store_empty":
            raise
        raise NoRuns("there are no runs yet", hint=f"{desk.state.command('run')} makes the first one.") from None
    try:
        yield store
    finally:
        await store.close()


def find_run(desk: Desk, reference: str) -> RunRow:
    """The run a reference names, read before the engine is opened: its pipeline decides what to open."""

    async def main() -> RunRow:
        async with reading(desk) as store:
            return await store.run(reference)

    return drive(main)


def find_rows(desk: Desk, reference: str) -> tuple[RunRow, tuple[StepRow, ...]]:
    """The same with its inputs and steps."""

    async def main() -> tuple[RunRow, tuple[StepRow, ...]]:
        async with reading(desk) as store:
            run = await store.run(reference)
            return run, await store.steps(run.id)

    return drive(main)


def database_file(url: str) -> Path | None:
    """The file of a SQLite URL; None for servers and for databases in memory."""
    scheme, _, path = url.partition(":///")
    return Path(path) if scheme == "sqlite" and path and path != ":memory:" else None


def drive(main: Callable[[], Coroutine[Any, Any, T]], on_stop: Callable[[], None] = lambda: None) -> T:
    """Run a command's coroutine. The first Ctrl-C calls `on_stop` and cancels it; KeyboardInterrupt follows when it has
    ended. The second one ends the process with 130."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main())
        with _interruptible(loop, task, on_stop) as stops:
            try:
                return loop.run_until_complete(task)
            except asyncio.CancelledError:
                if stops:
                    raise KeyboardInterrupt from None
                raise StoreError("the work was cancelled", hint="Run orch resume to go on.") from None


@contextmanager
def _interruptible(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], on_stop: Callable[[], None]
) -> Iterator[list[int]]:
    """Signals as requests while the block runs. Yields the list of requests seen. Only a main thread gets signals."""
    stops: list[int] = []

    def stop(number: int, frame: object) -> None:
        stops.append(number)
        if len(stops) > 1:
            sys.stderr.write("\x1b[?25h" if sys.stderr.isatty() else "")
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        on_stop()
        loop.call_soon_threadsafe(task.cancel)

    if threading.current_thread() is not threading.main_thread():
        yield stops
        return
    before = {number: signal.signal(number, stop) for number in _requests()}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _requests() -> Iterator[int]:
    yield signal.SIGINT
    yield signal.SIGTERM
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else started with nohup
        yield signal.SIGHUP


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """While a question waits for an answer, Ctrl-C interrupts it as everywhere else: nothing is running yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
