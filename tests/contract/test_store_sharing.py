"""In which runs a version is the current one, as far as one may know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.store import Store
from orchestrator.values import Scope
from tests.store_kit import artifact, finish, new_run, started, steps, using

pytestmark = pytest.mark.usefixtures("database")


async def fork(store: Store) -> tuple[str, str, str, str]:
    """A run whose step `a` its child shares; then the parent's is edited. The runs' ids, and both versions'."""
    worker, run, ready = await started(store, "a")
    await finish(store, worker, ready["a"], "one")
    one = (await store.artifact(run.id, "a")).version
    shared = tuple(replace(step, head=one.id, last_version=1) for step in steps("a"))
    child, _ = await store.create_run(new_run(steps=shared, parent_id=run.id), worker)
    two = await store.edit(run.id, "a", None, 1, artifact("two", author="ana"))
    return run.id, child.id, one.id, two.id


def test_R020_a_shared_version_names_the_runs_it_is_current_in(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        run, child, one, two = await fork(store)
        assert await store.head_in(run, "a") == {one: (2,), two: (1,)}
        assert await store.head_in(child, "a") == {one: (2,)}, "a fork never sees what its parent made after it"

    using(tmp_path, body)


def test_S16_nobody_else_learns_of_it(tmp_path: Path) -> None:
    async def make(store: Store) -> str:
        return (await fork(store))[0]

    run = using(tmp_path, make)

    async def look(store: Store) -> None:
        assert await store.head_in(run, "a") == {}

    for scope in (Scope("other"), Scope("-", "other"), Scope("-", "-", "other")):
        using(tmp_path, look, scope)
