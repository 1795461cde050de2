"""The plain loop: asyncio and sqlite3, one INSERT and one COMMIT for each step, and nothing else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from time import perf_counter

from benchmarks import work
from benchmarks.measure import Meter, Numbers


def chain(folder: Path, steps: int) -> Numbers:
    """Steps one after the other; each result is durable before the next step begins."""
    connection = _open(folder)
    with Meter(folder) as meter:
        asyncio.run(_chain(connection, steps))
        connection.close()
    return meter.numbers


def resume(folder: Path, steps: int) -> Numbers:
    """The rest of a chain whose process was killed."""
    with Meter(folder) as meter:
        connection = _open(folder)
        asyncio.run(_chain(connection, steps))
        connection.close()
    return meter.numbers | {"ran": len(work.done), "first": work.done[0]}


def fanout(folder: Path, steps: int) -> Numbers:
    """Independent steps, all at once: until the last result is durable."""
    connection = _open(folder)

    async def branch(name: str) -> None:
        _keep(connection, name, await work.branch())

    async def branches() -> None:
        await asyncio.gather(*(branch(f"s{number}") for number in range(steps)))

    with Meter(folder) as meter:
        asyncio.run(branches())
    connection.close()
    return meter.numbers


def commit(folder: Path, rows: int) -> Numbers:
    """What one COMMIT of a small row costs on this disk, in seconds."""
    connection = _open(folder)
    started = perf_counter()
    for number in range(rows):
        _keep(connection, str(number), {"number": number})
    return {"seconds": (perf_counter() - started) / rows}


async def _chain(connection: sqlite3.Connection, steps: int) -> None:
    rows = connection.execute("SELECT body FROM result ORDER BY rowid").fetchall()
    value = json.loads(rows[-1][0]) if rows else None
    for number in range(len(rows), steps):
        value = await work.step(**({"last": value} if value else {}))
        _keep(connection, f"s{number}", value)


def _keep(connection: sqlite3.Connection, name: str, value: dict[str, object]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO result (step, body) VALUES (?, ?)", (name, json.dumps(value).encode()))
    connection.execute("COMMIT")


def _open(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS result (step TEXT PRIMARY KEY, body BLOB NOT NULL)")
    return connection
