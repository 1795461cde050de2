"""S08 in the store: an answer is taken for exactly what was shown, whoever writes at the same time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.ids import digest, sha256
from orchestrator.store import Store
from orchestrator.store.records import Answer, NewStep, Redo, Shown
from orchestrator.values import Dispatch, ErrorRecord, Manifest, ManifestEntry, NewArtifact, ReadRecord, RunRow
from tests.database_kit import Kind
from tests.store_kit import artifact, claim, finish, new_run, opened, reads_of, using

pytestmark = pytest.mark.usefixtures("database")

ASKS = ErrorRecord("gate", "look waits for you", None, 4)


def gated(*shows: str, readers: Sequence[str] = ("after",)) -> tuple[NewStep, ...]:
    """Steps that a gate `look` shows, and what waits for the gate."""
    made = [NewStep(name, None, "python", at) for at, name in enumerate(shows)]
    gate = NewStep("look", None, "gate", len(made), tuple(shows))
    return (*made, gate, *(NewStep(name, None, "python", 9, ("look",)) for name in readers))


@dataclass
class Desk:
    """A run whose gate waits."""

    store: Store
    worker: str
    run: RunRow
    shows: tuple[str, ...]

    async def shown(self) -> Shown:
        return await self.store.shown(self.run.id, "look", None, self.shows)

    async def statuses(self) -> dict[str, str]:
        return {row.name: row.status for row in await self.store.steps(self.run.id)}


def answer(shown: Shown, decision: Any = "approve", **more: Any) -> Answer:
    """What the engine would make of a decision about this."""
    entries = tuple(ManifestEntry("read", name, head.version.sha256) for name, head in shown.heads.items())
    reads = tuple(
        ReadRecord(name, head.version.id, head.version.version, None, head.version.sha256)
        for name, head in shown.heads.items()
    )
    given: dict[str, Any] = {
        "decision": decision,
        "comment": "",
        "by": "ben",
        "digest": shown.digest,
        "artifact": decided(decision),
        "manifest": Manifest(entries),
        "reads": reads,
    }
    return Answer(**{**given, **more})


def decided(decision: str) -> NewArtifact:
    return NewArtifact("decision", decision.encode(), "ben", "person", "internal", {"decision": digest(decision)})


async def waiting(store: Store, *shows: str, **more: Any) -> Desk:
    worker = await store.register_worker()
    run, ready = await store.create_run(new_run(steps=gated(*shows, **more)), worker)
    gate: Dispatch | None = None
    for dispatch in ready:
        result = await finish(store, worker, dispatch, f"{dispatch.step} 1", ("look",))
        gate = result.ready[0] if result.ready else gate
    assert gate is not None
    assert await store.ask(claim(gate, worker, reads=await reads_of(store, run.id, *shows)), ASKS)
    await store.release_run(run.id, worker, "waiting", ASKS)
    return Desk(store, worker, run, shows)


def test_an_answer_is_taken_once_and_makes_ready_what_waits(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        desk = await waiting(store, "a", "b", readers=("x", "y"))
        shown = await desk.shown()
        answered = await store.decide(desk.run.id, "look", None, answer(shown))
        assert {dispatch.step for dispatch in answered.ready} == {"x", "y"}
        assert await desk.statuses() == {
            "a": "succeeded",
            "b": "succeeded",
            "look": "succeeded",
            "x": "ready",
            "y": "ready",
        }
        with pytest.raises(UsageError, match="has been answered: approve"):
            await store.decide(desk.run.id, "look", None, answer(shown))
        assert [version.version for version in await store.versions(desk.run.id, "look")] == [1]
        approved = await store.approved(desk.run.id, ["look", "none"])
        assert approved == {"look": {"a": sha256("a 1"), "b": sha256("b 1")}, "none": {}}

    using(tmp_path, body)


def test_S08_the_digest_is_of_all_that_is_shown_and_of_this_asking(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        desk = await waiting(store, "a", "b")
        other = await waiting(store, "a", "b")
        shown, same = await desk.shown(), await other.shown()
        assert shown.digest != same.digest, "the same bytes at another gate are another question"
        with pytest.raises(UsageError, match="changed meanwhile"):
            await store.decide(other.run.id, "look", None, answer(same, digest=shown.digest))
        await store.edit(desk.run.id, "b", None, 1, artifact("b 2"))
        with pytest.raises(UsageError, match="changed meanwhile"):
            await store.decide(desk.run.id, "look", None, answer(shown))
        await store.edit(desk.run.id, "b", None, 2, artifact("b 1"))
        assert (await desk.shown()).digest == shown.digest, "the bytes that were seen are back"
        with pytest.raises(UsageError, match="changed meanwhile"):
            await store.decide(desk.run.id, "look", None, answer(shown))  # its read vector names the version before
        await store.decide(desk.run.id, "look", None, answer(await desk.shown(), digest=shown.digest))

    using(tmp_path, body)


def test_an_expired_approval_holds_back_what_was_ready(tmp_path: Path) -> None:
    """A dispatch that a process has in its hands already comes too late."""

    async def body(store: Store) -> None:
        desk = await waiting(store, "a")
        (ready,) = (await store.decide(desk.run.id, "look", None, answer(await desk.shown()))).ready
        await store.edit(desk.run.id, "a", None, 1, artifact("a 2"))
        assert await store.approved(desk.run.id, ["look"]) == {"look": {}}
        assert not await store.claim(claim(ready, desk.worker))
        assert (await desk.statuses())["after"] == "ready"

    using(tmp_path, body)


@pytest.mark.slow
def test_S08_A17_approve_against_edit_a_thousand_times(tmp_path: Path, database: Kind) -> None:
    """S08: two processes' worth of stores, a barrier, and every time one of two truths: the approval is of the bytes
    that were shown and stands, or the edit came first and nothing was approved. A thousand times on SQLite, where
    getting ready is cheap; what a server may do in another order shows in fewer."""
    rounds, unseen = {"sqlite": 1000, "postgres": 240}[database], []
    codes: set[str] = set()

    def contend(index: int) -> None:
        async def body() -> None:
            store = opened(tmp_path)
            pause = random.Random(index)
            try:
                for at, (run, shown) in enumerate(known):
                    barrier.wait()
                    await asyncio.sleep(pause.random() * 0.0005)
                    try:
                        if index == 0:
                            await store.decide(run, "look", None, answer(shown))
                        else:
                            await store.edit(run, "a", None, 1, artifact(f"edit {at}"))
                        outcomes[index].append(True)
                    except UsageError as error:
                        codes.add(error.code)
                        outcomes[index].append(False)
            finally:
                await store.close()

        asyncio.run(body())

    async def prepared(store: Store) -> tuple[str, Shown]:
        desk = await waiting(store, "a", readers=())
        return desk.run.id, await desk.shown()

    async def before(store: Store) -> list[tuple[str, Shown]]:
        together = 20  # they share transactions, or the server's processes
        return [
            found
            for _ in range(rounds // together)
            for found in await asyncio.gather(*(prepared(store) for _ in range(together)))
        ]

    known = using(tmp_path, before)
    barrier = threading.Barrier(2)
    outcomes: list[list[bool]] = [[], []]
    threads = [threading.Thread(target=contend, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def after(store: Store) -> None:
        for (run, shown), taken in zip(known, outcomes[0], strict=True):
            states = {row.name: row for row in await store.steps(run)}
            events = [event.data["shows"] for event in await store.events(run) if event.kind == "gate.answered"]
            assert len(events) == int(taken)
            if taken and events != [{"a": 1}]:
                unseen.append(run)
            # Approved, then edited: the approval has expired. Edited first: it was never given.
            assert await store.approved(run, ["look"]) == {"look": {}}
            assert states["look"].status == ("succeeded" if taken else "waiting")
            assert shown.heads["a"].body == b"a 1"

    using(tmp_path, after)
    assert (unseen, codes) == ([], {"shown_changed"})
    assert outcomes[1] == [True] * rounds
    assert 0 < sum(outcomes[0]) < rounds, "both orders have happened"


def test_A17_three_answers_at_once_release_their_join_once(tmp_path: Path) -> None:
    """A17, S02: three gates answered from three connections at the same moment."""

    async def body() -> None:
        names = ("a", "b", "c")
        made = [NewStep(name, None, "python", at) for at, name in enumerate(names)]
        gates = [NewStep(f"g{name}", None, "gate", 3 + at, (name,)) for at, name in enumerate(names)]
        join = NewStep("join", None, "python", 9, tuple(gate.name for gate in gates))
        stores = [opened(tmp_path) for _ in names]
        try:
            for _ in range(25):
                store = stores[0]
                worker = await store.register_worker()
                run, ready = await store.create_run(new_run(steps=(*made, *gates, join)), worker)
                for dispatch in ready:
                    (gate,) = (await finish(store, worker, dispatch, "v", (f"g{dispatch.step}",))).ready
                    assert await store.ask(claim(gate, worker), ASKS)
                shown = [await store.shown(run.id, f"g{name}", None, [name]) for name in names]
                answers = await asyncio.gather(
                    *(
                        other.decide(run.id, one.gate, None, answer(one))
                        for other, one in zip(stores, shown, strict=True)
                    )
                )
                assert [dispatch.step for one in answers for dispatch in one.ready] == ["join"]
        finally:
            for store in stores:
                await store.close()

    asyncio.run(body())


def test_a_rejection_and_its_redo_are_one_transaction(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        desk = await waiting(store, "a")
        redo = Redo("a", None, "fresh", 1)
        shown = await desk.shown()
        answered = await store.decide(desk.run.id, "look", None, answer(shown, "reject", comment="No.", redo=redo))
        assert [(ready.step, ready.mode) for ready in answered.ready] == [("a", "fresh")]
        assert answered.redone == "a"
        statuses = await desk.statuses()
        assert (statuses["a"], statuses["look"], statuses["after"]) == ("ready", "succeeded", "pending")
        with pytest.raises(UsageError, match="has been answered: reject"):
            await store.decide(desk.run.id, "look", None, answer(shown, "reject", redo=redo))

    using(tmp_path, body)


def test_what_waits_is_listed_over_all_runs_without_bodies(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        desks = [await waiting(store, "a", "b") for _ in range(2)]
        rows = await store.waiting()
        assert [(row.number, row.label, row.kind, row.code) for row in rows] == [
            (1, "look", "gate", "gate"),
            (2, "look", "gate", "gate"),
        ]
        assert [{name: head.version for name, head in row.shows.items()} for row in rows] == [{"a": 1, "b": 1}] * 2
        assert [row.digest for row in rows] == [(await desk.shown()).digest for desk in desks]
        await store.decide(desks[0].run.id, "look", None, answer(await desks[0].shown()))
        assert [row.number for row in await store.waiting()] == [2]

    using(tmp_path, body)
