"""Runs in a real database, for tests of the store: short ways to make one, and to take a step through its attempt."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, cast

from orchestrator.ids import digest, sha256, uuid7
from orchestrator.store import Store, open_store
from orchestrator.store.embedded import Embedded
from orchestrator.store.records import AdoptPlan, Claim, NewRun, NewStep
from orchestrator.values import (
    Block,
    Commit,
    CommitResult,
    Dispatch,
    DoneCall,
    ErrorRecord,
    Event,
    Item,
    Manifest,
    ManifestEntry,
    Merge,
    NewArtifact,
    Prompt,
    ReadRecord,
    RunRow,
    Scope,
    SentCall,
    TextItem,
    ThreadRecord,
    Usage,
)
from tests.database_kit import databases

T = TypeVar("T")
EDITED = ErrorRecord("edited_meanwhile", "edited by ana", None, 4)


class TestClock:
    """Stands still until it is told."""

    __test__ = False

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def file(folder: Path) -> Path:
    """The path that names the folder's database; on SQLite, its file."""
    return folder / ".orch" / "orch.db"


def url(folder: Path) -> str:
    return databases.url(file(folder))


def opened(folder: Path, scope: Scope | None = None, **more: Any) -> Store:
    return open_store(url(folder), scope or Scope(), **more)


def using(folder: Path, body: Callable[[Store], Coroutine[Any, Any, T]], scope: Scope | None = None, **more: Any) -> T:
    """Open the store, run the body, close it."""

    async def main() -> T:
        store = opened(folder, scope, **more)
        try:
            return await body(store)
        finally:
            await store.close()

    return asyncio.run(main())


def raw(folder: Path, sql: str, *values: object) -> list[Any]:
    """Run one statement on a connection of its own, as another program would."""
    return databases.raw(file(folder), sql, *values)


def write_cursor(store: Store) -> sqlite3.Cursor:
    """The cursor that writes, on SQLite: for what only it can say of its connection."""
    database = cast(Embedded, store._database)
    return cast(sqlite3.Cursor, database.connection._cursor)


def artifact(value: object = "v", *, author: str = "model", **fields: object) -> NewArtifact:
    return NewArtifact(
        contract="note",
        body=str(value).encode(),
        author=author,
        origin="model",
        sensitivity="internal",
        field_hashes={name: digest(field) for name, field in fields.items()},
    )


def steps(*lines: str) -> tuple[NewStep, ...]:
    """`steps("a", "b: a", "c: a b")`: names with the steps they wait for."""
    made = []
    for order, line in enumerate(lines):
        name, _, parents = line.partition(":")
        made.append(NewStep(name, None, "python", order, tuple(parents.split())))
    return tuple(made)


def new_run(*lines: str, **more: Any) -> NewRun:
    given: dict[str, Any] = {
        "pipeline": "demo",
        "file": "demo.yaml",
        "graph_digest": "d1",
        "graph_json": b"{}",
        "session": None,
        "message": None,
        "author": "customer",
        "inputs": {},
        "defaulted": frozenset(),
        "steps": steps(*lines),
    }
    return NewRun(**{**given, **more})


def plan(*lines: str) -> AdoptPlan:
    return AdoptPlan(steps(*lines), "d2", b"[]")


async def started(store: Store, *lines: str, **more: Any) -> tuple[str, RunRow, dict[str, Dispatch]]:
    """A worker, its new run, and the first dispatches by step."""
    worker = await store.register_worker()
    run, ready = await store.create_run(new_run(*lines, **more), worker)
    return worker, run, {dispatch.step: dispatch for dispatch in ready}


def manifest(*words: str) -> Manifest:
    return Manifest(tuple(ManifestEntry("read", word, sha256(word)) for word in words))


def claim(dispatch: Dispatch, worker: str, **more: Any) -> Claim:
    return Claim(dispatch, worker, more.pop("manifest", manifest("x")), **more)


async def reads_of(store: Store, run_id: str, *names: str) -> tuple[ReadRecord, ...]:
    """The read vector of a step that reads these now."""
    snapshot = await store.snapshot(run_id, names[0], None, names, 0)
    return tuple(
        ReadRecord(name, found.version.id, found.version.version, None, found.version.sha256)
        for name, found in snapshot.artifacts.items()
    )


async def commit_undecided(store: Store, commit: Commit) -> CommitResult:
    """Commit what a person has edited meanwhile, and leave the decision to them, as the engine does."""
    result = await store.commit(commit)
    assert result.outcome == "edited"
    assert result.present is not None
    seen = result.present
    merge = Merge(seen.head.version.id, seen.base.version.id if seen.base else None, seen.pins, commit.artifact)
    return await store.commit(replace(commit, merge=replace(merge, error=EDITED)))


async def finish(
    store: Store, worker: str, dispatch: Dispatch, value: object = "v", children: Sequence[str] = (), **more: Any
) -> CommitResult:
    """Claim and commit."""
    assert await store.claim(claim(dispatch, worker, **more))
    commit = Commit(dispatch, artifact(value), children=tuple(children), base_head=more.get("base_head"))
    return await store.commit(commit)


def prompt(*texts: str, system: str = "Be brief.") -> Prompt:
    blocks = tuple(Block("task", f"b{n}", (text,), "task", len(text)) for n, text in enumerate(texts))
    return Prompt(system, blocks, manifest("x"))


def thread(name: str = "main", *texts: str) -> ThreadRecord:
    return ThreadRecord(
        id=f"synthetic_s_{uuid7()}",
        name=name,
        provider="openai",
        model="m",
        base_url="https://a.test/v1",
        prompt=prompt(*(texts or ("Hello ", "world"))),
        settings={"max_output_tokens": 8000, "effort": None},
    )


def sent(thread_id: str, seq: int = 1, *items: Item, reserve: str | None = None, **more: Any) -> SentCall:
    given: dict[str, Any] = {
        "id": uuid7(),
        "thread_id": thread_id,
        "seq": seq,
        "source": "NEXT_STEP" if seq == 1 else "REASK",
        "previous": thread_id,
        "rung": "chain",
        "request_hash": sha256(f"{thread_id}{seq}"),
        "items": items or (TextItem(("hi",)),),
        "provider": "openai",
        "model": "m",
        "estimate_tokens": 7,
        "reserve_usd": None if reserve is None else Decimal(reserve),
    }
    return SentCall(**{**given, **more})


def done(call: SentCall, cost: str | None = None, usage: Usage | None = None, **more: Any) -> DoneCall:
    given: dict[str, Any] = {
        "call_id": call.id,
        "response_id": f"resp_{call.seq}",
        "status": "done",
        "outcome": "accepted",
        "usage": usage,
        "cost_usd": None if cost is None else Decimal(cost),
    }
    return DoneCall(**{**given, **more})


def event(kind: str, **data: object) -> Event:
    return Event(kind, data=data)
