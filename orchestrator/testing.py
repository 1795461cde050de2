"""A pytest plug-in: pipelines under test, with written answers in place of models and a database of the test's own.

Installed with the package, nothing to import or configure:

    def test_the_stack_never_sees_the_rate_as_a_budget(orch_project, orch_scripted):
        model = orch_scripted({"tech-stack": [{"json": {"components": ["Django"], "budget": None}}], …})
        run = orch_project().run("discovery", {"idea": "a booking site"}, model=model)
        assert run.status == "succeeded"
        assert run.value("tech-stack")["budget"] is None
        assert_guarded(run, "tech-stack", "cost-calculator")
        assert_not_in_context(run, "997", step="executive-summary")
        assert_stateless_start(run)

The engine, the store and the checks are the real ones; only the vendor is replaced, by one that enforces the vendors'
rules. Nothing is sent anywhere. This module loads nothing but pytest: the rest comes with the first use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.authoring import Pipeline
    from orchestrator.frame import FramedArtifact, FramedQuote
    from orchestrator.graph import Graph
    from orchestrator.project import Project
    from orchestrator.providers.base import Provider
    from orchestrator.providers.registry import Providers
    from orchestrator.providers.replayed import ReplayedProvider
    from orchestrator.providers.scripted import Script, ScriptedProvider
    from orchestrator.python.declarations import Source
    from orchestrator.settings import Settings
    from orchestrator.step import Services
    from orchestrator.store.records import Journal, ThreadJournal
    from orchestrator.values import Artifact, CallRow, ErrorRecord, RunRow, StepRow

__all__ = [
    "OrchProject",
    "OrchRun",
    "ProjectFactory",
    "ReplayedFactory",
    "ScriptedFactory",
    "assert_guarded",
    "assert_not_in_context",
    "assert_stateless_start",
    "orch_project",
    "orch_replayed",
    "orch_scripted",
]

T = TypeVar("T")
_MODEL: Final = "scripted:written"
# What a developer's own settings say must not decide how a test ends.
_SETTINGS: Final = ("ORCH_MODEL", "ORCH_MODEL_CHEAP", "ORCH_DB", "ORCH_USER", "XDG_CONFIG_HOME", "HOME")


class ScriptedFactory(Protocol):
    """What the fixture `orch_scripted` is."""

    def __call__(self, script: Script | None = None, **options: Any) -> ScriptedProvider: ...


class ProjectFactory(Protocol):
    """What the fixture `orch_project` is."""

    def __call__(self, source: Mapping[str, str] | str | Path | None = None) -> OrchProject: ...


@pytest.fixture
def orch_scripted() -> ScriptedFactory:
    """Makes a model from written answers: `orch_scripted({"step": [{"text": "…"}, {"json": {…}}]})`.

    For each step its replies in call order, each `{text}`, `{json}`, `{tool_calls: [{name, arguments}]}`, `{refusal}`
    or `{error}`; or a function of the request. Its `requests` keep what was asked. Options are those of
    `ScriptedProvider`.
    """

    def make(script: Script | None = None, **options: Any) -> ScriptedProvider:
        from orchestrator.providers.scripted import ScriptedProvider

        return ScriptedProvider({} if script is None else script, **options)

    return make


class ReplayedFactory(Protocol):
    """What the fixture `orch_replayed` is."""

    def __call__(self, folder: str | Path) -> ReplayedProvider: ...


@pytest.fixture
def orch_replayed(request: pytest.FixtureRequest) -> ReplayedFactory:
    """Makes a model from the recordings of a real run (`orch run … --record DIR`): `orch_replayed("tape")`, a path
    from the test file's folder. A request that was not recorded fails its step, and says what in it differs."""

    def make(folder: str | Path) -> ReplayedProvider:
        from orchestrator.providers.cassettes import Cassette
        from orchestrator.providers.replayed import ReplayedProvider

        return ReplayedProvider(tape=Cassette.load(request.path.parent / folder, str(folder)))

    return make


@pytest.fixture
def orch_project(tmp_path: Path, request: pytest.FixtureRequest) -> ProjectFactory:
    """Opens a project: `orch_project()` the one that holds this test file, `orch_project("path")` another,
    `orch_project({"pipe.yaml": "…"})` a new one of these files. Its database is in `tmp_path`, never the project's."""

    def make(source: Mapping[str, str] | str | Path | None = None) -> OrchProject:
        if isinstance(source, Mapping):
            return _written(tmp_path / "project", source, tmp_path / "orch.db")
        return OrchProject(Path(source) if source is not None else request.path.parent, tmp_path / "orch.db")

    return make


def _written(folder: Path, files: Mapping[str, str], database: Path) -> OrchProject:
    project = OrchProject(folder, database)
    for name, text in {"orchestrator.toml": "", **files}.items():
        project.write(name, text)
    return project


# --- a project and its runs -------------------------------------------------------------------------------------------


@dataclass
class OrchProject:
    """A project under test. `folder` is its folder or one below; `model` the last one that a run was given.

    The methods are the commands of the same names. They also work inside a running event loop.
    """

    folder: Path
    database: Path
    model: Provider | None = field(default=None, init=False)

    def write(self, name: str, text: str) -> Path:
        """A file of the project; its text may be indented with the test."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def run(
        self,
        pipeline: str | Pipeline | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        model: Provider | None = None,
        **options: Any,
    ) -> OrchRun:
        """`orch run`. `pipeline` is its name, or a `Pipeline` of your code; the project's only one may be left out.

        `options` are those of `RunOptions`: message, session, author, cap_usd. Raises what it raises, InvalidProject,
        UsageError …; a step that fails raises nothing, it is the run's status.
        """
        from orchestrator.engine import RunOptions, start_run

        self.model = model or self.model

        async def work(services: Services, graph: Graph) -> RunRow:
            return await start_run(services, graph, RunOptions(inputs=inputs or {}, **options))

        return self._do(pipeline, work)

    def resume(self, run: OrchRun, *, model: Provider | None = None, **options: Any) -> OrchRun:
        """`orch resume`. `options` are those of `resume_run`: cap_usd, take_over, tools, settle."""
        from orchestrator.engine import resume_run

        self.model = model or self.model

        async def work(services: Services, graph: Graph) -> RunRow:
            return await resume_run(services, graph, await services.store.run(run.row.id), **options)

        return self._do(run.pipeline, work)

    def revise(self, run: OrchRun, step: str, comment: str, *, model: Provider | None = None) -> OrchRun:
        """`orch revise`: the step made once more as a person asks; the run as it is then."""
        from orchestrator.engine import revise

        self.model = model or self.model

        async def work(services: Services, graph: Graph) -> RunRow:
            return await revise(services, graph, await services.store.run(run.row.id), step, comment)

        return self._do(run.pipeline, work)

    def rerun(self, run: OrchRun, *steps: str, model: Provider | None = None) -> OrchRun:
        """`orch rerun RUN --from STEP`: the child run."""
        from orchestrator.forks import rerun

        self.model = model or self.model

        async def work(services: Services, graph: Graph) -> RunRow:
            return await rerun(services, graph, await services.store.run(run.row.id), steps)

        return self._do(run.pipeline, work)

    def edit(self, run: OrchRun, step: str, value: Any) -> OrchRun:
        """`orch edit`: a person's new version of a value; the run as it is then."""
        from orchestrator.edits import edit_artifact

        async def work(services: Services, graph: Graph) -> RunRow:
            row = await services.store.run(run.row.id)
            base = (await services.store.artifact(row.id, step)).version.version
            await edit_artifact(services, graph, row, step, value=value, base_version=base)
            return row

        return self._do(run.pipeline, work)

    def _do(
        self, pipeline: str | Pipeline | None, work: Callable[[Services, Graph], Coroutine[Any, Any, RunRow]]
    ) -> OrchRun:
        async def main() -> OrchRun:
            async with self._opened(pipeline) as (services, graph):
                row = await work(services, graph)
                return await _look(services, graph, row.id, pipeline or graph.name)

        return _finished(main)

    @asynccontextmanager
    async def _opened(self, pipeline: str | Pipeline | None) -> AsyncIterator[tuple[Services, Graph]]:
        from orchestrator.engine import open_services
        from orchestrator.project import find_project
        from orchestrator.providers.scripted import ScriptedProvider
        from orchestrator.settings import load_settings

        own = None if isinstance(pipeline, str) else pipeline
        project = find_project(self.folder) if own is None else own.project()
        environ = {name: value for name, value in os.environ.items() if name not in _SETTINGS}
        settings = load_settings(project, {**environ, "ORCH_MODEL": _MODEL, "ORCH_USER": "tester"})
        graph = _graph(project, settings, pipeline)
        providers = _one_vendor(project, settings, self.model or ScriptedProvider({}))
        async with open_services(project, settings, db=f"sqlite:///{self.database}", providers=providers) as services:
            yield services, graph


@dataclass(frozen=True)
class OrchRun:
    """A run as the database held it when a command had ended."""

    row: RunRow
    pipeline: str | Pipeline
    graph: Graph
    steps: Mapping[str, StepRow]
    artifacts: Mapping[str, Artifact]
    journals: Mapping[str, tuple[Journal, ...]]

    @property
    def status(self) -> str:
        return self.row.status

    @property
    def error(self) -> ErrorRecord | None:
        """What stopped the run, or its first failed step."""
        return next(filter(None, [self.row.error, *(step.error for step in self.steps.values())]), None)

    def value(self, step: str | Source[Any]) -> Any:
        """The current value of a step or input, by its name or as declared in Python: JSON data, or text."""
        name = step if isinstance(step, str) else step.name
        return self._node(name).contract.load(self.artifacts[name].body)

    def threads(self, step: str) -> tuple[ThreadJournal, ...]:
        """Every conversation of a step with its model, over all its attempts, in order."""
        self._node(step)
        return tuple(thread for journal in self.journals.get(step, ()) for thread in journal.threads)

    def calls(self, step: str) -> tuple[CallRow, ...]:
        """Every call of a step, in order."""
        return tuple(call for thread in self.threads(step) for call in thread.calls)

    def prompt(self, step: str) -> str:
        """The text of the step's (last) first request."""
        threads = self.threads(step)
        assert threads, f"{step} has asked no model in run {self.row.number}"
        return threads[-1].prompt.text

    def _node(self, step: str) -> Any:
        node = self.graph.steps.get(step) or self.graph.inputs.get(step)
        assert node is not None, f"{self.row.pipeline} has no {step!r}; it has {', '.join(self.graph.rank)}"
        return node


def _graph(project: Project, settings: Settings, pipeline: str | Pipeline | None) -> Graph:
    from orchestrator.building import built, finished
    from orchestrator.loading import load_declared, load_pipeline

    if pipeline is None or isinstance(pipeline, str):
        loaded = load_pipeline(project, project.pipeline(pipeline))
    else:
        file = pipeline.declarations.file
        loaded = load_declared(project, pipeline.declarations, file.resolve() if file else project.root / "test")
    return finished(*built(project, settings, loaded), require_model=True)


async def _look(services: Services, graph: Graph, run_id: str, pipeline: str | Pipeline) -> OrchRun:
    store = services.store
    steps = {row.name: row for row in await store.steps(run_id) if row.item is None}
    attempts = {name: await store.attempts(run_id, name) for name in graph.steps}
    return OrchRun(
        row=await store.run(run_id),
        pipeline=pipeline,
        graph=graph,
        steps=steps,
        artifacts={name: await store.artifact(run_id, name) for name, row in steps.items() if row.head},
        journals={name: tuple([await store.journal(a.id) for a in rows]) for name, rows in attempts.items()},
    )


def _one_vendor(project: Project, settings: Settings, model: Provider) -> Providers:
    """Providers whose every name leads to one model, which is never closed: it is the vendor, and outlives commands."""
    from orchestrator.providers.registry import Providers

    class OneVendor(Providers):
        def get(self, name: str) -> Provider:
            return model

        def offline(self, name: str) -> Provider:
            return model

    return OneVendor(project, settings)


def _finished(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end, in a thread of its own where this one has an event loop already."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(main())).result()


# --- what a test may ask ----------------------------------------------------------------------------------------------


def assert_not_in_context(run: OrchRun, text: str, *, step: str | None = None) -> None:
    """No request of a step (of any step, without one) held this text: not in the prompt, not in what followed.

    Looked for as it is, and as JSON and the frame would write it. What a model itself said in the same conversation
    does not count; what it was shown of it elsewhere does.
    """
    assert text.strip(), "an empty text is in every context"
    for name in [step] if step is not None else list(run.graph.steps):
        for thread in run.threads(name):
            for where, sent in _sent(thread):
                assert not _holds(sent, text), f"{text!r} was sent to {name}, in {where}: …{_around(sent, text)}…"


def assert_guarded(run: OrchRun, step: str, source: str, *, says: str = "") -> None:
    """Wherever a step was shown something of `source`, a guard stood with it; one that holds the words `says`."""
    # A follow-up's thread holds a comment alone; what stands ahead of it is the thread that it goes on from.
    begun = [thread for thread in run.threads(step) if thread.continues is None]
    pieces = [piece for thread in begun for piece in _pieces(thread.prompt.text, source)]
    assert pieces, f"{step} was shown nothing of {source} in run {run.row.number}"
    for piece in pieces:
        guards = _guards(piece)
        assert guards, f"{step} was shown {source} without a guard"
        told = "; ".join(guards)
        assert says in told, f"no guard of {source} in {step} says {says!r}; it was told: {told}"


def assert_stateless_start(run: OrchRun) -> None:
    """Every conversation began without an id of another, and went on only on ids of its own. A follow-up's goes on from
    the thread that it continues."""
    from orchestrator.ids import is_synthetic

    owners: dict[str, tuple[str, str | None]] = {}
    for name in run.graph.steps:
        for thread in run.threads(name):
            for at, call in enumerate(thread.calls):
                previous, where = call.sent.previous, f"call {call.sent.seq} of {name}"
                if at == 0 and thread.continues is None:
                    assert is_synthetic(previous), f"{where} begins on the response {previous}"
                elif not is_synthetic(previous):
                    owner = owners.get(previous)
                    own = (thread.id, thread.continues.id if thread.continues is not None else None)
                    assert owner in [(name, one) for one in own], (
                        f"{where} goes on from {previous}, which is not its own"
                    )
                if call.done is not None and call.done.response_id is not None:
                    owners[call.done.response_id] = (name, thread.id)


def _sent(thread: ThreadJournal) -> Iterator[tuple[str, str]]:
    """All that left in a conversation, with where it stood."""
    from orchestrator.values import OutputItem, TextItem

    yield "the system text", thread.prompt.system
    yield "the first request", thread.prompt.text
    own: list[Mapping[str, Any]] = []
    for call in thread.calls:
        for item in call.sent.items:
            where = f"call {call.sent.seq} ({call.sent.source})"
            if isinstance(item, OutputItem):
                if item.data not in own:
                    yield where, json.dumps(item.data, ensure_ascii=False)
            else:
                yield where, item.text if isinstance(item, TextItem) else item.output
        own += [item.data for item in call.done.items] if call.done is not None else []


def _holds(sent: str, text: str) -> bool:
    from orchestrator.frame import unescape

    written = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return any(form in reading for form in written for reading in (sent, unescape(sent)))


def _around(sent: str, text: str) -> str:
    at = max(sent.find(text), 0)
    return " ".join(sent[max(0, at - 60) : at + len(text) + 60].split())


def _pieces(prompt: str, source: str) -> Iterator[FramedArtifact | FramedQuote]:
    """The labelled pieces of a source in a request, read back from its text."""
    from orchestrator.frame import FramedArtifact, parse

    parsed = parse(prompt)
    for piece in (*parsed.artifacts, *parsed.task):
        if not isinstance(piece, str) and source == (piece.step if isinstance(piece, FramedArtifact) else piece.source):
            yield piece


def _guards(piece: FramedArtifact | FramedQuote) -> Sequence[str]:
    from orchestrator.frame import FramedArtifact

    if isinstance(piece, FramedArtifact):
        return [*piece.not_for, *([piece.guard] if piece.guard else [])]
    return [piece.not_for] if piece.not_for else []
