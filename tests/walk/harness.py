"""A small project on disk and a model with written answers, for walks through the real engine and the real store.

Each method of `House` opens everything anew on the same database, as a process of its own would, and closes it again;
what the vendor remembers lives in `house.provider` and outlives them. Before a resume the clock jumps past the lease of
a dead worker, so that a run whose "process" was stopped inside this one can be resumed without `--take-over`.

    house = House(tmp_path, PIPELINE, {"notes": [{"text": "…"}]}, files={"cost.py": "…"})
    run = asyncio.run(house.run({"idea": "a shop"}))
    assert run.status == "succeeded"
    assert run.text("notes") == "…"
    assert len(house.requests("notes")) == 1
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

import pytest

from orchestrator import edits, engine, forks, gates
from orchestrator.engine import RunOptions
from orchestrator.errors import StoreError
from orchestrator.graph import Graph, build_graph
from orchestrator.project import Project, find_project
from orchestrator.providers.base import Provider
from orchestrator.providers.registry import Providers
from orchestrator.providers.scripted import Script, ScriptedProvider
from orchestrator.settings import Settings, load_settings
from orchestrator.spec import Decided
from orchestrator.staleness import stale_reasons
from orchestrator.step import Services
from orchestrator.store.records import AttemptRow, EventRow, Journal, Shown, ToolRow
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    CallRow,
    Event,
    Request,
    RunRow,
    RunStatus,
    Scope,
    StepRow,
)
from tests.database_kit import databases

T = TypeVar("T")
LEASE = timedelta(seconds=31)


class Stopped(BaseException):
    """The process ends here: what the observer raises to stop the writer."""


class JumpingClock:
    """The system's clock, moved by hand."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def monotonic(self) -> float:
        return monotonic()


class OneProvider(Providers):
    """A project whose every model lives at one provider object, which is never closed: it is the vendor."""

    def __init__(self, project: Project, settings: Settings, provider: Provider) -> None:
        super().__init__(project, settings)
        self.provider = provider

    def get(self, name: str) -> Provider:
        return self.provider

    def offline(self, name: str) -> Provider:
        return self.provider


class Stopper:
    """An observer that counts the store's write moments and ends the process at one of them (1 = the first).

    On a server, where each moment costs more, only those after a write count: what is there before one begins is what
    was there after the one before.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.seen: list[str] = []
        self._gate = Lock()  # on a server, units begin on many threads

    def __call__(self, moment: str) -> None:
        if databases.server is not None and moment.endswith(":begin"):
            return
        with self._gate:
            self.seen.append(moment)
            if len(self.seen) == self.at:
                raise Stopped(moment)


class StopAfter:
    """An observer that ends the process at the nth moment of that name: `StopAfter("commit:committed", 3)`."""

    def __init__(self, moment: str, times: int = 1) -> None:
        self.moment = moment
        self.left = times
        self._gate = Lock()

    def __call__(self, moment: str) -> None:
        with self._gate:
            self.left -= moment == self.moment
            if not self.left:
                raise Stopped(moment)


@dataclass(frozen=True)
class Seen:
    """A run as the store holds it when a command has ended: read once, with everything a test may ask.

    Items are under `step/key`.
    """

    row: RunRow
    steps: Mapping[str, StepRow]
    artifacts: Mapping[str, Artifact]
    versions: Mapping[str, tuple[ArtifactVersion, ...]]
    attempts: Mapping[str, tuple[AttemptRow, ...]]
    journals: Mapping[str, tuple[Journal, ...]]
    events: tuple[EventRow, ...]

    @property
    def status(self) -> RunStatus:
        return self.row.status

    def body(self, step: str) -> bytes:
        return self.artifacts[step].body

    def text(self, step: str) -> str:
        return self.body(step).decode()

    def value(self, step: str) -> Any:
        return json.loads(self.body(step))

    def bodies(self) -> dict[str, bytes]:
        return {name: artifact.body for name, artifact in self.artifacts.items()}

    def calls(self, step: str) -> tuple[CallRow, ...]:
        """Every call of every attempt, in order."""
        return tuple(call for j in self.journals[step] for thread in j.threads for call in thread.calls)

    def tools(self, step: str) -> tuple[ToolRow, ...]:
        return tuple(tool for j in self.journals[step] for tool in j.tools)


@dataclass
class House:
    """One project, one database, one vendor. `script` is what `ScriptedProvider` takes, or a provider of your own.

    A folder that is a project already is used as it is; then `pipeline` is empty.
    """

    folder: Path
    pipeline: str
    script: Script | Provider
    files: Mapping[str, str] = field(default_factory=dict)
    database: str = "orch.db"
    model: str = "scripted:written"
    scope: Scope = field(default_factory=Scope)
    approver: str | None = None  # who approves each gate at once, as `orch run --yes` does
    clock: JumpingClock = field(default_factory=JumpingClock)
    events: list[Event] = field(default_factory=list)
    _opened: tuple[Project, Settings, Graph] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.pipeline:
            self.write("orchestrator.toml", 'user = "ana"\n')
            self.write("walk.yaml", self.pipeline)
        for name, text in self.files.items():
            self.write(name, text)
        written = isinstance(self.script, Mapping) or callable(self.script)
        self.provider: Any = ScriptedProvider(self.script) if written else self.script  # type: ignore[arg-type]

    def twin(self, script: Script | Provider, database: str) -> House:
        """The same project on another database, with another vendor."""
        twin = replace(self, script=script, database=database, pipeline="", files={}, events=[], clock=JumpingClock())
        twin._opened = self._opened
        return twin

    # --- the project

    def write(self, name: str, text: str) -> Path:
        """A file of the project; text may be indented with the test."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        self._opened = None
        return path

    @property
    def db(self) -> Path:
        """The path that names the database; on SQLite, its file."""
        return self.folder / ".orch" / self.database

    @property
    def url(self) -> str:
        return databases.url(self.db)

    def opened(self) -> tuple[Project, Settings, Graph]:
        """What a new process would read from disk; it is read again after each `write`."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> tuple[Project, Settings, Graph]:
        project = find_project(self.folder)
        settings = load_settings(project, {"ORCH_MODEL": self.model, "HOME": str(self.folder)})
        graph = build_graph(
            project,
            settings,
            project.pipeline("walk" if (self.folder / "walk.yaml").exists() else None),
            require_model=True,
        )
        return project, settings, graph

    def graph(self) -> Graph:
        return self.opened()[2]

    @asynccontextmanager
    async def services(self, observer: Callable[[str], None] | None = None) -> AsyncIterator[tuple[Services, Graph]]:
        """The engine's services on this house, as one process has them."""
        project, settings, graph = self.opened()
        async with engine.open_services(
            project,
            settings,
            db=self.url,
            scope=self.scope,
            listener=self.events.append,
            clock=self.clock,
            providers=OneProvider(project, settings, self.provider),
            observer=observer,
        ) as services:
            yield replace(services, approver=self.approver), graph

    # --- commands, each a process of its own

    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        observer: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Seen:
        """`orch run`. `options` are those of RunOptions."""
        async with self.services(observer) as (services, graph):
            row = await engine.start_run(services, graph, RunOptions(inputs=inputs or {}, **options))
            return await look(services, graph, row.id)

    async def resume(
        self,
        ref: str | int = "last",
        *,
        after: timedelta = LEASE,
        observer: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Seen:
        """`orch resume`, so long after. `options` are those of resume_run: cap_usd, take_over, tools, settle."""
        self.clock.offset += after
        async with self.services(observer) as (services, graph):
            row = await services.store.run(ref)
            row = await engine.resume_run(services, graph, row, **options)
            return await look(services, graph, row.id)

    async def refresh(
        self, ref: str | int = "last", *, observer: Callable[[str], None] | None = None, **options: Any
    ) -> Seen:
        """`orch refresh`. `options` are those of refresh_run: steps, force, take_over."""
        async with self.services(observer) as (services, graph):
            row = await engine.refresh_run(services, graph, await services.store.run(ref), **options)
            return await look(services, graph, row.id)

    async def keep(self, step: str, note: str = "fine as it is", *, ref: str | int = "last") -> ArtifactVersion:
        """`orch keep`."""
        async with self.services() as (services, graph):
            return await edits.keep_step(services, graph, await services.store.run(ref), step, note)

    async def stale(self, ref: str | int = "last") -> dict[str, tuple[str, ...]]:
        """What `orch show` calls stale, with the reasons."""
        async with self.services() as (services, graph):
            run = await services.store.run(ref)
            return dict(stale_reasons(graph, await services.store.steps(run.id)))

    async def shown(self, gate: str, *, ref: str | int = "last") -> Shown:
        """What a gate that waits shows: `orch show RUN/GATE`."""
        async with self.services() as (services, graph):
            return await gates.look_at(services, graph, await services.store.run(ref), gate)

    async def answer(
        self,
        gate: str,
        decision: Decided = "approve",
        comment: str = "",
        *,
        at: str | None = None,
        ref: str | int = "last",
        go_on: bool = True,
        observer: Callable[[str], None] | None = None,
    ) -> Seen:
        """`orch approve` or `orch reject`, for what stands now or for the digest `at`; then the run goes on."""
        async with self.services(observer) as (services, graph):
            run = await services.store.run(ref)
            shown = await gates.look_at(services, graph, run, gate)
            await gates.answer(services, graph, run, shown, decision, by="ben", comment=comment, at=at)
            if go_on:
                await engine.resume_run(services, graph, await services.store.run(run.id))
            return await look(services, graph, run.id)

    async def rerun(self, *steps: str, ref: str | int = "last", **options: Any) -> Seen:
        """`orch rerun --from …`; the child run. `options` are those of rerun: only, until, inputs."""
        async with self.services() as (services, graph):
            row = await forks.rerun(services, graph, await services.store.run(ref), steps, **options)
            return await look(services, graph, row.id)

    async def revise(
        self,
        name: str,
        comment: str,
        *,
        ref: str | int = "last",
        after: timedelta = LEASE,
        observer: Callable[[str], None] | None = None,
    ) -> Seen:
        """`orch revise`, so long after."""
        self.clock.offset += after
        async with self.services(observer) as (services, graph):
            row = await engine.revise(services, graph, await services.store.run(ref), name, comment)
            return await look(services, graph, row.id)

    async def edit(
        self, name: str, value: Any, *, item: str | None = None, base: int | None = None, ref: str | int = "last"
    ) -> ArtifactVersion:
        """`orch edit`; `base` is the version the person saw, by default the newest."""
        async with self.services() as (services, graph):
            run = await services.store.run(ref)
            if base is None:
                base = (await services.store.artifact(run.id, name, item)).version.version
            return await edits.edit_artifact(services, graph, run, name, item=item, value=value, base_version=base)

    async def look(self, ref: str | int = "last") -> Seen:
        """`orch show`, with everything."""
        async with self.services() as (services, graph):
            return await look(services, graph, (await services.store.run(ref)).id)

    async def runs(self) -> tuple[RunRow, ...]:
        async with self.services() as (services, _):
            return await services.store.runs()

    # --- what the vendor saw

    def requests(self, step: str | None = None) -> list[Request]:
        """The requests that left, of one step or of all, in order."""
        return [r for r in self.provider.requests if step is None or r.step == step]

    def wires(self, step: str | None = None) -> list[bytes]:
        """The same as the very bytes that were sent."""
        return [self.provider.wire(request) for request in self.requests(step)]

    def effective(self, request: Request) -> str:
        """All that the model saw with this request, as one text."""
        return str(self.provider.effective_text(request))

    def stopped(self, inputs: Mapping[str, Any], observer: Callable[[str], None], **options: Any) -> Seen:
        """Run until the observer ends the process; the run as it then is."""
        with pytest.raises(StoreError, match="writer has stopped"):
            asyncio.run(self.run(inputs, observer=observer, **options))
        return asyncio.run(self.look())

    @contextmanager
    def new_requests(self) -> Iterator[list[Request]]:
        """The requests that left inside the block."""
        before, found = len(self.provider.requests), list[Request]()
        yield found
        found.extend(self.provider.requests[before:])


async def look(services: Services, graph: Graph, run_id: str) -> Seen:
    """Everything about a run, from the store."""
    store = services.store
    steps = {row.label: row for row in await store.steps(run_id)}
    work = [row for row in steps.values() if row.name in graph.steps]
    attempts = {row.label: await store.attempts(run_id, row.name, row.item) for row in work}
    return Seen(
        row=await store.run(run_id),
        steps=steps,
        artifacts={name: await store.artifact(run_id, row.name, row.item) for name, row in steps.items() if row.head},
        versions={name: await store.versions(run_id, row.name, row.item) for name, row in steps.items()},
        attempts=attempts,
        journals={name: tuple([await store.journal(a.id) for a in rows]) for name, rows in attempts.items()},
        events=await store.events(run_id),
    )


def meanwhile(work: Coroutine[Any, Any, T]) -> T:
    """Do this in another thread, now, and wait: somebody else acts while a model, a tool or the store is busy."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


def numbers(versions: Sequence[ArtifactVersion]) -> list[int]:
    return [version.version for version in versions]


def check_no_gap(seen: Seen) -> None:
    """Versions count 1, 2, 3, …; the run's events too (S33)."""
    for name, versions in seen.versions.items():
        assert numbers(versions) == list(range(1, len(versions) + 1)), name
    assert [event.seq for event in seen.events] == list(range(1, len(seen.events) + 1))


def sql_edit(db: Path, run_id: str, step: str, text: str) -> None:
    """Give a step a new version from another process, by plain SQL, as any other program might (R018)."""
    program = [sys.executable, "-c", _SQL_EDIT, databases.url(db), run_id, step, text]
    subprocess.run(program, check=True, timeout=60)


_SQL_EDIT = """
import hashlib, sqlite3, sys, uuid
import psycopg
where, run, step, text = sys.argv[1:]
file = where.startswith("sqlite:///")
if file:
    db = sqlite3.connect(where.removeprefix("sqlite:///"), isolation_level=None, timeout=20)
else:
    db = psycopg.connect(where, autocommit=True)
def execute(sql, *values):
    db.execute(sql if file else sql.replace("?", "%s"), values)
execute("BEGIN IMMEDIATE" if file else "BEGIN")
body, new = text.encode(), str(uuid.uuid4())
sha = hashlib.sha256(body).hexdigest()
execute("INSERT INTO content (sha256, size, used_at, body, tenant, account, subject)"
        " VALUES (?, ?, 0, ?, '-', '-', '-')", sha, len(body), body)
execute("INSERT INTO artifact (id, run_id, step, item, type, version, content, size, author, origin, parent_id,"
        " sensitivity, created_at)"
        " SELECT ?, a.run_id, a.step, a.item, a.type, a.version + 1, ?, ?, 'sql', 'person', a.id, a.sensitivity, 0"
        " FROM step s JOIN artifact a ON a.id = s.head_id WHERE s.run_id = ? AND s.name = ?",
        new, sha, len(body), run, step)
execute("UPDATE step SET head_id = ? WHERE run_id = ? AND name = ?", new, run, step)
execute("COMMIT")
db.close()
"""
