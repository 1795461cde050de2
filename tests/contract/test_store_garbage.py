"""Bodies that nothing refers to go after a day; everything that any run can still show stays, forks above all."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ids import sha256
from orchestrator.store import Store
from orchestrator.store import tables as t
from orchestrator.store.garbage import AT_ONCE
from orchestrator.store.records import AdoptPlan
from orchestrator.values import Commit, OutputItem, Scope, TextItem, ToolCall, ToolOutput
from tests.store_kit import (
    TestClock,
    artifact,
    claim,
    done,
    new_run,
    raw,
    sent,
    started,
    steps,
    thread,
    using,
)

pytestmark = pytest.mark.usefixtures("database")
DAY = 24 * 3600.0


def contents(folder: Path) -> dict[str, bytes]:
    return {key: bytes(body) for key, body in raw(folder, "SELECT sha256, body FROM content")}


def mentioned(folder: Path) -> str:
    """Every value of every other table as one text: what a hash that is needed must stand in."""
    tables = [table.name for table in t.metadata.sorted_tables if table.name != "content"]
    return "\n".join(str(row) for table in tables for row in raw(folder, f"SELECT * FROM {table}"))


async def everything(store: Store) -> list[Any]:
    """All that can be read of all runs: rows, versions with their bodies, journals of all attempts."""
    seen: list[Any] = []
    for run in await store.runs():
        rows = await store.steps(run.id)
        seen += [run, rows, await store.events(run.id)]
        for row in rows:
            for version in await store.versions(run.id, row.name):
                seen.append(await store.artifact(run.id, row.name, None, version.version))
            attempts = await store.attempts(run.id, row.name) if row.kind != "input" else ()
            seen += [await store.journal(attempt.id) for attempt in attempts]
    return seen


class Life:
    """Random things that happen to a database; every text is new, every kind of reference is made."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.count = 0

    def text(self) -> str:
        self.count += 1
        return f"text {self.count} {self.random.random()}"

    async def run(self) -> None:
        """A run whose step calls a model, a tool, an effect, and is re-asked."""
        store = self.store
        inputs = {"x": artifact(self.text())}
        worker, _, ready = await started(
            store, "a", inputs=inputs, message=self.text(), graph_json=self.text().encode()
        )
        dispatch, opening = ready["a"], thread("main", self.text(), self.text())
        first = sent(opening.id, 1, TextItem((self.text(), self.text())))
        assert await store.claim(claim(dispatch, worker, thread=opening, sent=first))
        wish = ToolCall("call_1", "look", self.text())
        items = (OutputItem({"type": "message", "text": self.text()}),)
        await store.done(dispatch, done(first, outcome="tools", tool_calls=(wish,), items=items))
        await store.tool_started(dispatch, first.id, wish)
        output = ToolOutput("call_1", self.text())
        await store.tool_finished(dispatch, first.id, "call_1", output)
        second = sent(opening.id, 2, output)
        await store.sent(dispatch, second)
        follow, answer = (TextItem((self.text(),)),), self.text().encode()
        await store.done(dispatch, done(second, outcome="reask", follow=follow, answer=answer))
        await store.effect_started(dispatch, "mail")
        await store.effect_finished(dispatch, "mail", self.text().encode())
        if self.random.random() < 0.8:
            await store.commit(Commit(dispatch, artifact(self.text())))

    async def fork(self) -> None:
        """A child run that shares the input and the step of a run, then goes its own way, or the other does."""
        runs = await self.store.runs()
        run = self.random.choice(runs)
        rows = {row.name: row for row in await self.store.steps(run.id) if row.head is not None}
        if "a" not in rows:
            return
        shared = tuple(
            replace(step, kind="input" if step.name == "x" else step.kind, head=head.id, last_version=head.version)
            for step in steps("x", "a")
            if (head := rows[step.name].head) is not None
        )
        worker = await self.store.register_worker()
        graph = self.text().encode()
        await self.store.create_run(new_run(steps=shared, parent_id=run.id, graph_json=graph), worker)

    async def edit(self) -> None:
        run = self.random.choice(await self.store.runs())
        name = self.random.choice("ax")
        row = next(row for row in await self.store.steps(run.id) if row.name == name)
        if row.head is not None:
            await self.store.edit(run.id, name, None, row.head.version, artifact(self.text(), author="ana"))

    async def adopt(self) -> None:
        """A resume after the file changed: the run's graph is replaced, and the one before may be nobody's."""
        run = self.random.choice(await self.store.runs())
        worker = await self.store.register_worker()
        new = AdoptPlan(steps("a"), self.text(), self.text().encode())
        await self.store.adopt_run(run.id, worker, new, take_over=True)


@pytest.mark.parametrize("seed", range(4))
def test_R020_what_any_run_can_show_stays_and_all_else_goes(tmp_path: Path, seed: int) -> None:
    """Property: what is left is what a search for each hash through all other rows finds, and all reads as before."""
    clock = TestClock()

    async def body(store: Store) -> None:
        life = Life(store, seed)
        await life.run()
        for _ in range(12):
            await life.random.choice([life.run, life.fork, life.edit, life.adopt, life.adopt])()
        clock.move(DAY + 1)
        before, rows = await everything(store), mentioned(tmp_path)
        stored = contents(tmp_path)
        needed = {key for key in stored if key in rows}
        assert needed != set(stored), "the walk left something behind"
        removed = await store.collect()
        assert set(contents(tmp_path)) == needed
        assert removed.bodies == len(stored) - len(needed)
        assert removed.bytes == sum(len(stored[key]) for key in stored if key not in needed)
        assert await everything(store) == before
        assert await store.check() == ()
        assert await store.collect() == type(removed)(0, 0)

    using(tmp_path, body, clock=clock)


def orphan(folder: Path, text: str, at: int = 0, scope: Scope | None = None) -> str:
    scope = scope or Scope()
    values = (scope.tenant, scope.account, scope.subject, sha256(text), len(text), at, text.encode())
    raw(folder, "INSERT INTO content VALUES (?, ?, ?, ?, ?, ?, ?)", *values)
    return sha256(text)


def test_a_body_that_was_just_stored_is_left_for_a_day(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        await started(store, "a")
        key = orphan(tmp_path, "young", int(clock.time.timestamp() * 1_000_000))
        clock.move(DAY)
        assert (await store.collect()).bodies == 0
        clock.move(1)
        assert (await store.collect()).bytes == len("young")
        assert key not in contents(tmp_path)

    using(tmp_path, body, clock=clock)


def test_what_is_referred_to_between_the_look_and_the_removal_stays(tmp_path: Path) -> None:
    """Another process stores the same text and refers to it at the worst moment."""
    clock = TestClock()

    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a", inputs={"x": artifact("one")})
        key, gone = orphan(tmp_path, "two"), orphan(tmp_path, "three")
        write = store._write

        async def late(name: str, work: Any, **more: Any) -> Any:
            if name == "collect":
                await store.edit(run.id, "x", None, 1, artifact("two", author="ana"))
            return await write(name, work, **more)

        store._write = late  # type: ignore[method-assign]
        assert (await store.collect(timedelta(seconds=1))).bodies == 1
        assert key in contents(tmp_path)
        assert gone not in contents(tmp_path)
        assert (await store.artifact(run.id, "x")).body == b"two"
        assert await store.check() == ()

    using(tmp_path, body, clock=clock)


def test_S16_only_the_own_scope_is_cleaned(tmp_path: Path) -> None:
    other = Scope("other", "-", "-")
    clock = TestClock()
    using(tmp_path, lambda store: started(store, "a"), other, clock=clock)
    using(tmp_path, lambda store: started(store, "a"), clock=clock)
    mine, theirs = orphan(tmp_path, "same"), orphan(tmp_path, "same", scope=other)
    assert mine == theirs
    clock.move(2 * DAY)
    assert using(tmp_path, lambda store: store.collect(), clock=clock).bodies == 1
    assert raw(tmp_path, "SELECT tenant FROM content WHERE sha256 = ?", mine) == [("other",)]


def test_many_go_in_short_transactions(tmp_path: Path) -> None:
    clock = TestClock()
    seen: list[str] = []

    async def body(store: Store) -> None:
        await started(store, "a")
        for number in range(2 * AT_ONCE + 1):
            orphan(tmp_path, f"orphan {number}")
        clock.move(2 * DAY)
        assert (await store.collect()).bodies == 2 * AT_ONCE + 1

    using(tmp_path, body, clock=clock, observer=seen.append)
    assert seen.count("collect:committed") == 3
