"""Steps that begin in the very transaction that makes them ready: claimed there, or not at all (S01, S06)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.records import Claim
from orchestrator.values import Commit, Dispatch, ReadRecord, Snapshot
from tests.store_kit import artifact, claim, manifest, new_run, opened, raw, using

pytestmark = pytest.mark.usefixtures("database")


@dataclass(frozen=True)
class Plain:
    """Begins the steps that it has reads for; the manifest names what was seen."""

    worker: str
    known: dict[str, list[str]]

    def reads(self, step: str) -> Sequence[str] | None:
        return self.known.get(step)

    def claim(self, dispatch: Dispatch, snapshot: Snapshot) -> Claim:
        reads = tuple(
            ReadRecord(name, found.version.id, found.version.version, None, found.version.sha256)
            for name, found in snapshot.artifacts.items()
        )
        seen = manifest(*(found.body.decode() for found in snapshot.artifacts.values()))
        base = snapshot.head.id if snapshot.head else None
        return Claim(dispatch, self.worker, seen, reads, base)


def _states(folder: Path) -> dict[str, str]:
    return dict(raw(folder, "SELECT s.name, a.state FROM step s JOIN attempt a ON a.id = s.attempt_id"))


def test_S01_what_has_begun_cannot_be_claimed_again(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker = await store.register_worker()
        plain = Plain(worker, {"a": [], "b": ["a"]})
        _, (a, c) = await store.create_run(new_run("a", "b: a", "c"), worker, plain)
        assert _states(tmp_path) == {"a": "running", "c": "ready"}
        assert a.snapshot is not None
        assert c.snapshot is None, "it claims for itself"
        assert not await store.claim(claim(a, worker))
        assert await store.claim(claim(c, worker))
        (b,) = (await store.commit(Commit(a, artifact("first"), children=("b",)), plain)).ready
        assert _states(tmp_path)["b"] == "running"
        assert not await store.claim(claim(b, worker))
        assert (await store.commit(Commit(b, artifact("second")), plain)).outcome == "committed"

    using(tmp_path, body)


def test_S06_it_reads_what_its_parent_has_just_written_and_that_is_on_record(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker = await store.register_worker()
        plain = Plain(worker, {"a": [], "b": ["a"]})
        run, (a,) = await store.create_run(new_run("a", "b: a"), worker, plain)
        result = await store.commit(Commit(a, artifact("first"), children=("b",)), plain)
        (b,) = result.ready
        assert b.snapshot is not None
        assert b.snapshot.artifacts["a"].body == b"first"
        journal = await store.journal(b.attempt_id)
        assert [(read.name, read.artifact_id, read.version) for read in journal.reads] == [("a", result.artifact_id, 1)]
        assert journal.manifest == manifest("first") == await store.manifest(b.attempt_id)
        # An edit before its end is noticed as for any other step; what begins again begins at once too.
        await store.edit(run.id, "a", None, 1, artifact("edited", author="ana"))
        moved = await store.commit(Commit(b, artifact("second")), plain)
        assert (moved.outcome, moved.moved) == ("moved", ("a",))
        (again,) = moved.ready
        assert again.snapshot is not None
        assert again.snapshot.artifacts["a"].body == b"edited"
        last = await store.commit(Commit(again, artifact("third"), base_head=moved.artifact_id), plain)
        assert last.outcome == "committed"

    using(tmp_path, body)


def test_a_step_of_a_run_that_was_ended_meanwhile_does_not_begin_and_its_parent_is_kept(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker = await store.register_worker()
        plain = Plain(worker, {"a": [], "b": ["a"]})
        _, (a,) = await store.create_run(new_run("a", "b: a"), worker, plain)
        raw(tmp_path, "UPDATE run SET status = 'paused'")
        result = await store.commit(Commit(a, artifact(), children=("b",)), plain)
        assert result.outcome == "committed"
        assert [dispatch.snapshot for dispatch in result.ready] == [None]
        assert _states(tmp_path) == {"a": "succeeded", "b": "ready"}

    using(tmp_path, body)


@pytest.mark.parametrize("moment", ["commit:begin", "commit:committed"])
def test_S03_the_end_of_one_step_and_the_beginning_of_the_next_are_one(tmp_path: Path, moment: str) -> None:
    def observer(seen: str) -> None:
        if seen == moment:
            raise SystemExit

    async def main() -> None:
        store = opened(tmp_path, observer=observer)
        worker = await store.register_worker()
        plain = Plain(worker, {"a": [], "b": ["a"]})
        _, (a,) = await store.create_run(new_run("a", "b: a"), worker, plain)
        with pytest.raises(StoreError):
            await store.commit(Commit(a, artifact(), children=("b",)), plain)
        await store.close()

    asyncio.run(main())
    ended = {"a": "succeeded", "b": "running"}
    assert _states(tmp_path) == ({"a": "running"} if moment == "commit:begin" else ended)
