"""How much a database holds, and how much a look at it loads: no more than there is to know."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from orchestrator import edits, engine
from orchestrator.retention import retain
from orchestrator.store import Store
from orchestrator.store.listing_runs import Wanted
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Commit, Event
from tests.database_kit import on
from tests.store_kit import artifact, claim, done, file, finish, sent, started, thread, using
from tests.walk.harness import House

KB = 1000
# Each value begins with a mark of its own, so that it is known again wherever it stands.
MARK = re.compile(rb"MARK-[a-z0-9-]+")


def text(mark: str, size: int = 20 * KB) -> str:
    """A text that nothing else repeats, with a mark of its own."""
    words = random.Random(mark)
    return f"MARK-{mark} " + "".join(words.choices("abcdefghij klmnopqrst", k=size - len(mark) - 6))


def chain(folder: Path, steps: int) -> House:
    """Python steps in a row, each of which makes 20 KB of its own from the idea and the step before it."""
    head = """
        version: 1
        pipeline: chain
        inputs:
          idea: {type: string, about: "What it is about."}
        artifacts:
          note: {about: "A working note.", not_for: none, schema: text}
        steps:
    """
    lines = ["          s0: {python: 'make.py:s0', reads: [idea], produces: note}"]
    functions = ["def s0(idea):\n    return make('s0', idea)\n"]
    for number in range(1, steps):
        reads = f"[idea, s{number - 1}]"
        lines.append(f"          s{number}: {{python: 'make.py:s{number}', reads: {reads}, produces: note}}")
        functions.append(f"def s{number}(idea, s{number - 1}):\n    return make('s{number}', idea)\n")
    code = (
        "from tests.walk.test_storage import text\n\n\ndef make(step, idea):\n    return text(f'{step}-{idea}')\n\n\n"
        + "\n\n".join(functions)
    )
    return House(folder, head.rstrip() + "\n" + "\n".join(lines) + "\n", {}, files={"make.py": code})


async def run_and_edit_each(house: House, steps: int) -> None:
    async with house.services() as (services, graph):
        run = await engine.start_run(services, graph, engine.RunOptions(inputs={"idea": "red"}))
        assert run.status == "succeeded", run.error
        for number in range(steps):
            name = f"s{number}"
            value = text(f"edited-{name}")
            await edits.edit_artifact(services, graph, run, name, value=value, base_version=1)


def size(house: House) -> int:
    """All files of the database."""
    return sum(path.stat().st_size for path in house.db.parent.glob(f"{house.db.name}*"))


def rows(house: House) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with closing(sqlite3.connect(house.db)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            yield from ((table, row) for row in connection.execute(f"SELECT * FROM {table}"))


def test_A13_a_database_holds_each_value_once_and_grows_with_what_there_is(tmp_path: Path) -> None:
    """200 steps × 20 KB, each edited once: at most three times the unique content, and no row with others' values."""
    sizes = {}
    for steps in (100, 200):
        house = chain(tmp_path / str(steps), steps)
        asyncio.run(run_and_edit_each(house, steps))
        sizes[steps] = size(house)
        assert sizes[steps] <= 3 * (steps * 2 * 20 * KB)
    assert sizes[200] <= 2.1 * sizes[100]

    seen: dict[bytes, int] = {}
    for table, row in rows(house):
        texts = [value if isinstance(value, bytes) else str(value).encode() for value in row]
        found = {mark for one in texts for mark in MARK.findall(one)}
        assert len(found) <= 1, f"a row of {table} holds several values"
        assert table == "content" or not found, f"a row of {table} holds a value"
        if table != "content":
            assert sum(map(len, texts)) < 10 * KB, f"a row of {table} is as large as a value"
        for mark in found:
            seen[mark] = seen.get(mark, 0) + 1
    assert seen == {
        **{f"MARK-s{number}-red".encode(): 1 for number in range(200)},
        **{f"MARK-edited-s{number}".encode(): 1 for number in range(200)},
    }


def test_A13_gc_makes_the_file_smaller_and_a_fork_keeps_all_it_shares(tmp_path: Path) -> None:
    house = chain(tmp_path, 10)
    for idea in ("red", "green", "blue", "black", "white"):
        assert asyncio.run(house.run({"idea": idea})).status == "succeeded"
    fork = asyncio.run(house.rerun("s9", ref=1))
    before = size(house)
    house.clock.offset += timedelta(hours=25)

    async def clean() -> list[int]:
        async with house.services() as (services, _):
            store = services.store
            found = retain(await store.run_marks(), await store.run_needs(), 1)
            for mark in found.gone:
                await store.remove_run(mark.id)
            await store.collect()
            await store.compact()
            assert await store.check() == ()
            return sorted(mark.number for mark in found.gone)

    assert asyncio.run(clean()) == [2, 3, 4, 5]
    assert before - size(house) > 4 * 10 * 20 * KB * 0.9
    assert size(house) <= 3 * (10 * 20 * KB)
    assert asyncio.run(house.look(fork.row.number)).bodies() == fork.bodies()
    assert asyncio.run(house.rerun("s5", ref=fork.row.number)).status == "succeeded"


# --- looking ----------------------------------------------------------------------------------------------------------


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every statement that is executed in the block, by whichever way."""
    seen: list[str] = []
    for name in ("one", "all"):
        monkeypatch.setattr(Tx, name, _recording(getattr(Tx, name), seen))

    def before(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", before)
        monkeypatch.undo()


def _recording(method: Any, seen: list[str]) -> Any:
    def call(self: Tx, sql: Sql, **values: Any) -> Any:
        seen.append(sql.text)
        return method(self, sql, **values)

    return call


async def five_hundred(store: Store) -> tuple[str, Sequence[str]]:
    """A run of 500 steps × 10 KB; some of them asked a model. Its id, and the steps' names."""
    names = [f"s{number}" for number in range(500)]
    worker, run, ready = await started(store, *names)
    for number, name in enumerate(names):
        value = text(name, 10 * KB)
        if number % 50:
            await finish(store, worker, ready[name], value)
            continue
        opening = thread("main", text(f"prompt-{name}", 10 * KB))
        call = sent(opening.id)
        assert await store.claim(claim(ready[name], worker, thread=opening, sent=call))
        await store.done(ready[name], done(call, "0.01"), [Event("step.note", data={"text": "asked"})])
        assert (await store.commit(Commit(ready[name], artifact(value)))).outcome == "committed"
    await store.release_run(run.id, worker, "succeeded")
    return run.id, names


@pytest.mark.usefixtures("database")
@on("sqlite")
def test_A14_looking_loads_no_bodies_and_leaves_the_database_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 steps × 10 KB; list, show and trace 50 times: nothing grows, no body is selected, memory stays small."""

    def files() -> int:
        return sum(path.stat().st_size for path in file(tmp_path).parent.glob(f"{file(tmp_path).name}*"))

    async def body(store: Store) -> None:
        run_id, names = await five_hundred(store)
        heads = [row.head.id for row in await store.steps(run_id) if row.head]
        assert len(heads) == 500
        before = files()
        with statements(monkeypatch) as seen:
            tracemalloc.start()
            for turn in range(50):
                assert len(await store.glances(Wanted())) == 1
                assert len(await store.runs()) == 1
                assert len(await store.steps(run_id)) == 500
                assert len(await store.states(run_id)) == 500
                name = names[turn * 10]
                await store.events(run_id)
                await store.attempts(run_id, name)
                await store.versions(run_id, name)
                if turn % 25 == 0:
                    assert len(await store.makings(heads)) == 500
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert len(seen) > 50 * 6
        assert [sql for sql in set(seen) if re.search(r"\bbody\b|\bc\.\*|FROM content", sql)] == []
        assert files() == before
        assert peak < 50 * 1000 * KB, "one copy of all bodies would be 5 MB, fifty would not fit"

    using(tmp_path, body)


@pytest.mark.usefixtures("database")
@on("sqlite")
def test_A14_the_watch_on_statements_sees_a_body_that_is_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"], "v")
        with statements(monkeypatch) as seen:
            await store.artifact(run.id, "a")
        assert any(re.search(r"\bbody\b", sql) for sql in seen)

    using(tmp_path, look)
