"""Orchestrator on the same work: a project on disk, its graph, and the engine on its store."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

from benchmarks import work
from benchmarks.measure import Meter, Numbers
from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.graph import Graph, build_graph
from orchestrator.project import Project, find_project
from orchestrator.settings import Settings, load_settings
from orchestrator.step import Services
from orchestrator.store import embedded  # what opening a database loads, as sqlite3 is loaded for the plain loop

LOADED = (embedded,)
HEAD = """\
version: 1
pipeline: bench
artifacts:
  note:
    about: "A link of the chain."
    not_for: none
    schema:
      type: object
      properties: {number: {type: integer}, text: {type: string}}
      required: [number, text]
      additionalProperties: false
steps:
"""


def chain(folder: Path, steps: int) -> Numbers:
    """A chain of Python steps, each reading the one before it. Closing the database moves its log; that counts too."""
    return _run(folder, _chain(steps), closing=True)


def fanout(folder: Path, steps: int) -> Numbers:
    """Independent steps, all ready from the start: until the run has ended."""
    lines = (f'  s{n}: {{python: "work.py:branch", produces: note}}' for n in range(steps))
    return _run(folder, lines, closing=False)


def resume(folder: Path, steps: int) -> Numbers:
    """The rest of a chain whose process was killed."""
    if not (folder / "bench.yaml").exists():
        write(folder, HEAD, _chain(steps))
    project, settings, graph = load(folder)
    killed = (folder / ".orch" / "orch.db").exists()

    async def go() -> None:
        async with engine.open_services(project, settings) as services:
            if killed:
                await _finish(services, graph)
            else:
                await engine.start_run(services, graph, RunOptions({}))

    with Meter(folder) as meter:
        asyncio.run(go())
    done = _done(graph)
    return meter.numbers | {"ran": len(done), "first": done[0]}


async def _finish(services: Services, graph: Graph) -> None:
    run = await engine.resume_run(services, graph, await services.store.run("last"))
    assert run.status == "succeeded", run.error


def _chain(steps: int) -> Iterable[str]:
    for number in range(steps):
        reads = f", reads: [s{number - 1}]" if number else ""
        yield f'  s{number}: {{python: "work.py:step", produces: note{reads}}}'


def _run(folder: Path, lines: Iterable[str], *, closing: bool) -> Numbers:
    """One run on a database that exists already, as it does for every run but a project's first."""
    write(folder, HEAD, lines)
    started = perf_counter()
    project, settings, graph = load(folder)
    loading = perf_counter() - started

    async def go() -> Numbers:
        async with AsyncExitStack() as opened:
            services = await opened.enter_async_context(engine.open_services(project, settings))
            with Meter(folder) as meter:
                run = await engine.start_run(services, graph, RunOptions({}))
                if closing:
                    await opened.aclose()
            assert run.status == "succeeded", run.error
            return meter.numbers

    numbers = asyncio.run(go())
    return numbers | {"loading": loading, "ran": len(_done(graph))}


def write(folder: Path, head: str, lines: Iterable[str]) -> None:
    """A project of one pipeline; the work is its Python."""
    (folder / "orchestrator.toml").write_text("")
    shutil.copy(work.__file__, folder / "work.py")
    (folder / "bench.yaml").write_text(head + "\n".join(lines) + "\n")


def load(folder: Path) -> tuple[Project, Settings, Graph]:
    """The project and its graph, as each command reads them."""
    project = find_project(folder)
    settings = load_settings(project, {"HOME": str(folder)})
    return project, settings, build_graph(project, settings, project.pipeline(None))


def _done(graph: Graph) -> list[int]:
    """What the project's copy of the work remembers of this process."""
    function = next(iter(graph.steps.values())).function
    assert function is not None
    done: list[int] = function.call.__globals__["done"]
    return done
