"""One code base on two databases: the same run is the same bytes on both; many at once disturb nobody; a connection
that dies while the model thinks is nothing (A20)."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.store import server as store_server
from orchestrator.values import Reply, Request
from tests.database_kit import databases, on
from tests.postgres_kit import Server
from tests.walk.four_steps import STEPS, Echo, four_steps, made
from tests.walk.harness import House, Seen, check_no_gap, look
from tests.walk.ten_steps import IDEA, TEXTS, ten_steps

ROOT: Final = Path(__file__).parents[2]
# What no two runs share: ids of the vendor's and of our rows, and the keyed hash that names the session.
OWN: Final = re.compile(r"\b(?:call|fc|rs|msg|resp)_[0-9A-Za-z._-]{8,}|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{22}")


# --- the same bytes ---------------------------------------------------------------------------------------------------


def _all_of(house: House, seen: Seen) -> dict[str, Any]:
    """Everything about a run that must not depend on where it is kept."""
    wires = [json.loads(wire) for wire in house.wires()]
    for wire in wires:
        wire.pop("prompt_cache_key", None)
    steps = seen.steps.values()
    threads = [thread for name in sorted(seen.journals) for j in seen.journals[name] for thread in j.threads]
    return {
        "requests": sorted(OWN.sub("…", json.dumps(wire, ensure_ascii=False)) for wire in wires),
        "artifacts": {n: (a.body, a.version.sha256, a.version.field_hashes) for n, a in seen.artifacts.items()},
        "order": [row.name for row in steps],
        "hashes": {row.name: row.inputs_hash for row in steps},
        "manifests": {row.name: row.manifest for row in steps},
        "sums": {row.name: (row.calls, row.reasks, row.usage, row.cost_usd) for row in steps},
        "prompts": [(t.prompt.system, t.prompt.text, t.settings, t.left_out) for t in threads],
        "facts": {n: (a.version.facts, a.version.guards, a.version.sensitivity) for n, a in seen.artifacts.items()},
        "events": Counter((event.kind, event.step) for event in seen.events),
    }


def test_R014_the_same_run_is_the_same_bytes_on_both_databases(tmp_path: Path, postgres: Server) -> None:
    """Requests, hashes, manifests, artifacts, prompts, sums and the order of everything, in a run with tools, re-asks
    and a child run after an edit."""
    found: list[list[dict[str, Any]]] = []
    for number, server in enumerate((None, postgres)):
        with databases.on(server):
            house = ten_steps(tmp_path / str(number))
            first = asyncio.run(house.run({"idea": IDEA}, session="walk", message="Please hurry: “now”.\x00"))
            asyncio.run(house.edit("left", "By Ana: the café shows classes. \N{GRINNING FACE}"))
            second = asyncio.run(house.rerun("stack"))
            assert {name: first.text(name) for name in TEXTS} == TEXTS
            found.append([_all_of(house, first), _all_of(house, second)])
    for on_sqlite, on_postgres in zip(*found, strict=True):
        for what, value in on_sqlite.items():
            assert on_postgres[what] == value, what


# --- A20: a connection that dies in mid-call --------------------------------------------------------------------------


class Sleeping(ScriptedProvider):
    """Answers when all runs have asked for the same step; while everybody sleeps, something happens."""

    def __init__(self, runs: int, meanwhile: Any) -> None:
        super().__init__(Echo())
        self._runs = runs
        self._meanwhile = meanwhile
        self._asked: Counter[str] = Counter()
        self._answered: dict[str, asyncio.Event] = {}

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        reply = await super().respond(request, listener)
        self._asked[request.step] += 1
        all_asked = self._answered.setdefault(request.step, asyncio.Event())
        if self._asked[request.step] == self._runs:
            await asyncio.sleep(0.1)  # the last one's notes have begun to be written by now
            await asyncio.to_thread(self._meanwhile)
            all_asked.set()
        await all_asked.wait()
        return reply


@pytest.mark.usefixtures("database")
@on("postgres")
def test_A20_no_connection_is_held_while_a_model_thinks_and_all_may_die(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool of two, twenty runs that wait for their models all at once; then the server ends every connection."""
    monkeypatch.setattr(store_server, "CONNECTIONS", 2)
    house, _ = four_steps(tmp_path)
    states: list[tuple[int, int]] = []

    def meanwhile() -> None:
        name = databases.name(house.db)
        ours = "FROM pg_stat_activity WHERE datname = %s AND application_name = 'orchestrator'"
        deadline, busy = time.monotonic() + 30, 1
        while busy and time.monotonic() < deadline:  # the last ones' notes may still be on their way
            ((open_now, busy),) = postgres.admin(
                "postgres", f"SELECT COUNT(*), COUNT(*) FILTER (WHERE state <> 'idle') {ours}", [name]
            )
        states.append((open_now, busy))
        postgres.admin("postgres", f"SELECT pg_terminate_backend(pid) {ours}", [name])

    provider = Sleeping(20, meanwhile)
    house.provider = provider

    async def main() -> list[Seen]:
        async with house.services() as (services, graph):
            runs = [engine.start_run(services, graph, RunOptions(inputs={"idea": f"red {n}"})) for n in range(20)]
            rows = await asyncio.gather(*runs)
            return [await look(services, graph, row.id) for row in rows]

    found = asyncio.run(main())
    assert len(states) == len(STEPS)
    assert all(1 <= open_now <= 2 and busy == 0 for open_now, busy in states), states
    for number, seen in enumerate(found):
        assert seen.status == "succeeded"
        assert {name: seen.text(name) for name in seen.artifacts} == made(f"red {number}")
        check_no_gap(seen)
        for name in STEPS:
            assert len(seen.versions[name]) == 1
            assert len(seen.calls(name)) == 1
    assert Counter(request.step for request in provider.requests) == dict.fromkeys(STEPS, 20)


# --- A20: many processes on one database ------------------------------------------------------------------------------

BUSY: Final = """
import asyncio, sys
from pathlib import Path
from orchestrator import edits, engine
from orchestrator.engine import RunOptions
from tests.database_kit import databases
from tests.walk.four_steps import STEPS, four_steps, made
from tests.walk.harness import look

async def main(folder, url, each, lanes):
    house, _ = four_steps(Path(folder))
    type(house).url = property(lambda self: url)
    async with house.services() as (services, graph):
        async def lane(number):
            for turn in range(each):
                idea = f"{sys.argv[1]} {number} {turn}"
                row = await engine.start_run(services, graph, RunOptions(inputs={"idea": idea}, session="one"))
                seen = await look(services, graph, row.id)
                assert seen.status == "succeeded", seen.row.error
                assert {n: seen.text(n) for n in seen.artifacts} == made(idea)
                edited = await edits.edit_artifact(
                    services, graph, seen.row, "a", value="by ana", base_version=1)
                assert edited.version == 2
        await asyncio.gather(*(lane(number) for number in range(lanes)))

asyncio.run(main(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("database", "each"), [("sqlite", 12), ("postgres", 3)], indirect=["database"])
def test_A20_two_processes_with_eight_runs_each_disturb_nobody(tmp_path: Path, each: int) -> None:
    """Eight lanes in each, so many runs in a lane one after the other. No error reaches a user, no text of one run is
    in another, and numbers are without gaps, in one session too."""
    house, _ = four_steps(tmp_path)
    house.opened()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUSY, name, str(tmp_path), house.url, str(each), "8"],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    told = [process.communicate(timeout=240)[1] for process in processes]
    assert [(process.returncode, err) for process, err in zip(processes, told, strict=True)] == [(0, ""), (0, "")]
    done = 2 * 8 * each
    numbers = databases.raw(house.db, "SELECT number FROM run ORDER BY number")
    assert [number for (number,) in numbers] == list(range(1, done + 1))
    versions = databases.raw(
        house.db, "SELECT step, version, COUNT(*) FROM artifact GROUP BY step, version ORDER BY 1, 2"
    )
    once = [(name, 1, done) for name in ("a", "b", "c", "d", "idea")]
    assert versions == sorted([*once, ("a", 2, done)])
    assert databases.raw(house.db, "SELECT COUNT(*) FROM session WHERE name = 'one'") == [(1,)]
