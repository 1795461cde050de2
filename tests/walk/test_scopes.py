"""Whole runs for several subjects in one database: the same project and inputs, and nothing of one reaches another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.values import Scope
from tests.database_kit import databases
from tests.walk.four_steps import STEPS, Echo, four_steps, made
from tests.walk.harness import House, StopAfter

pytestmark = pytest.mark.usefixtures("database")
SCOPES = [
    Scope("acme", "a1", "ana"),
    Scope("acme", "a1", "ben"),
    Scope("acme", "a2", "ana"),
    Scope("other", "a1", "ana"),
]


def houses(folder: Path) -> list[House]:
    """The same project and database, opened for four subjects; each has a vendor of its own to be listened to."""
    first, _ = four_steps(folder)
    first.opened()
    return [replace(first.twin(Echo(), "orch.db"), scope=scope, script=Echo()) for scope in SCOPES]


def _canary(scope: Scope) -> str:
    return f"canary of {scope.subject} of {scope.account} of {scope.tenant}"


def test_S14_S16_equal_runs_of_different_subjects_share_no_call_and_no_cache(tmp_path: Path) -> None:
    """A25: same session name, same inputs; each pays for its own calls, under a cache key of its own."""
    keys = set()
    for house in houses(tmp_path):
        seen = asyncio.run(house.run({"idea": "red"}, session="walk", message=_canary(house.scope)))
        assert seen.status == "succeeded"
        assert seen.row.number == 1
        assert {name: seen.text(name) for name in seen.artifacts} == made()
        assert [request.step for request in house.requests()] == list(STEPS)
        keys |= {request.cache_key for request in house.requests()}
        others = {_canary(scope) for scope in SCOPES} - {_canary(house.scope)}
        assert not any(canary in house.effective(request) for request in house.requests() for canary in others)
    assert len(keys) == len(SCOPES)
    query = "SELECT COUNT(*) FROM content WHERE body = ?"
    assert databases.raw(tmp_path / ".orch" / "orch.db", query, b"a(red)") == [(len(SCOPES),)]


def test_S16_whatever_is_asked_of_a_foreign_run_it_is_not_found(tmp_path: Path) -> None:
    ana, ben, *_ = houses(tmp_path)
    run = ana.stopped({"idea": "red"}, StopAfter("commit:committed", 2)).row
    for ask in (
        ben.look(run.id),
        ben.look(1),
        ben.look("last"),
        ben.resume(run.id, after=timedelta(hours=1), take_over=True),
        ben.rerun("a", ref=run.id),
        ben.edit("idea", "blue", ref=run.id),
    ):
        with pytest.raises(UsageError, match="not found"):
            asyncio.run(ask)
    assert ben.requests() == []
    assert asyncio.run(ben.runs()) == ()
    seen = asyncio.run(ana.resume())
    assert {name: seen.text(name) for name in seen.artifacts} == made()
