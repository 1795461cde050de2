"""Scopes on both databases: what bypasses an ORM's criteria is refused at the cursor, foreign ids are "not found", and
nothing that was made for one subject is used for another (S16, S20)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import and_, delete, func, insert, literal_column, select, text, update
from sqlalchemy.orm import aliased
from sqlmodel import Session

from orchestrator.errors import UsageError
from orchestrator.store import Store
from orchestrator.store import tables as t
from orchestrator.store.guard import Unscoped
from orchestrator.store.listings import Reading
from orchestrator.values import Commit, Scope, ToolCall
from tests.store_kit import artifact, claim, done, event, finish, raw, sent, started, thread, using

pytestmark = pytest.mark.usefixtures("database")
ANA, BEN = Scope("acme", "a1", "ana"), Scope("acme", "a1", "ben")
RUNS: Any = t.Run


def _held(reading: Reading, table: Any) -> Any:
    return reading.of(table)


BYPASSES: dict[str, Callable[[Reading], Any]] = {
    "a select of a class": lambda r: select(RUNS),
    "a select of a column": lambda r: select(RUNS.id),
    "a select from the table": lambda r: select(RUNS.__table__),
    "a count": lambda r: select(func.count(RUNS.id)),
    "a text": lambda r: text("SELECT id FROM run"),
    "a text that names somebody else": lambda r: text(
        "SELECT id FROM run WHERE tenant = 'acme' AND account = 'a1' AND subject = 'ana'"
    ),
    "a text that binds somebody else": lambda r: text(
        "SELECT id FROM run WHERE tenant = :tenant AND account = :account AND subject = :subject"
    ).bindparams(tenant="acme", account="a1", subject="ana"),
    "an alias": lambda r: select(aliased(RUNS)),
    "a join": lambda r: select(t.Step).join(RUNS, RUNS.id == t.Step.run_id).where(_held(r, t.Step)),
    "an outer join": lambda r: select(t.Step).outerjoin(RUNS, RUNS.id == t.Step.run_id).where(_held(r, t.Step)),
    "a subquery": lambda r: select(t.Step).where(_held(r, t.Step), t.Step.run_id.in_(select(RUNS.id))),  # type: ignore[attr-defined]
    "two columns of three": lambda r: select(RUNS).where(
        RUNS.tenant == r.scope.tenant, RUNS.account == r.scope.account
    ),
    "somebody else's scope": lambda r: select(RUNS).where(
        and_(RUNS.tenant == "acme", RUNS.account == "a1", RUNS.subject == "ana")
    ),
    "a literal": lambda r: select(RUNS).where(
        RUNS.tenant == r.scope.tenant, RUNS.account == r.scope.account, RUNS.subject == literal_column("'ana'")
    ),
    "a bulk update": lambda r: update(RUNS).values(status="failed"),
    "a bulk delete": lambda r: delete(RUNS),
    "a move": lambda r: update(RUNS).values(subject="ben").where(_held(r, RUNS)),
    "an insert": lambda r: insert(RUNS).values(id="x"),
}


@pytest.mark.parametrize("name", BYPASSES)
def test_S20_what_passes_by_the_criteria_is_refused_before_it_runs(tmp_path: Path, name: str) -> None:
    async def anas(store: Store) -> None:
        await started(store, "a")

    async def bens(store: Store) -> None:
        def bypass(reading: Reading) -> None:
            reading.session.execute(BYPASSES[name](reading)).all()

        with pytest.raises(Unscoped, match="refused"):
            await store._list(bypass)
        assert await store.runs() == ()

    using(tmp_path, anas, scope=ANA)
    using(tmp_path, bens, scope=BEN)


def test_S20_a_connection_without_a_scope_reads_nothing(tmp_path: Path) -> None:
    """A query without a scope raises, it never means "all"; a statement that holds its tables is none without one."""

    async def body(store: Store) -> None:
        def without(connection: Any) -> None:
            with Session(connection) as session:
                held = and_(RUNS.tenant == "-", RUNS.account == "-", RUNS.subject == "-")
                session.execute(select(RUNS).where(held)).all()

        await started(store, "a")
        with pytest.raises(Unscoped, match="no scope"):
            store._database.browse(without)

    using(tmp_path, body)


def test_S16_a_call_or_thread_of_somebody_else_is_not_found(tmp_path: Path) -> None:
    """Ids that Ben has heard of Ana's: he has a running attempt of his own, and still cannot write beside hers."""
    ids: dict[str, str] = {}

    async def anas(store: Store) -> None:
        worker, _, ready = await started(store, "a")
        opening = thread()
        call = sent(opening.id)
        await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        await store.tool_started(ready["a"], call.id, ToolCall("t1", "pay", "{}"))
        ids.update(call=call.id, thread=opening.id, attempt=ready["a"].attempt_id)

    async def bens(store: Store) -> None:
        worker, _, ready = await started(store, "a")
        opening = thread()
        own = sent(opening.id)
        await store.claim(claim(ready["a"], worker, thread=opening, sent=own))
        for ask in (
            store.tool_started(ready["a"], ids["call"], ToolCall("t1", "pay", "{}")),
            store.tool_started(ready["a"], ids["call"], ToolCall("t2", "pay", "{}")),
            store.sent(ready["a"], sent(ids["thread"], 2)),
            store.journal(ids["attempt"]),
        ):
            with pytest.raises(UsageError, match="not found"):
                await ask
        await store.created(ids["call"], "resp_of_ben")
        await store.done(ready["a"], done(sent(ids["thread"], id=ids["call"])))  # completes nothing of hers

    async def anas_again(store: Store) -> None:
        journal = await store.journal(ids["attempt"])
        (call,) = journal.threads[0].calls
        assert (call.done, call.response_id) == (None, None)
        assert [(tool.tool_call.call_id, tool.state) for tool in journal.tools] == [("t1", "started")]

    using(tmp_path, anas, scope=ANA)
    using(tmp_path, bens, scope=BEN)
    using(tmp_path, anas_again, scope=ANA)
    assert raw(tmp_path, "SELECT subject, tool_id FROM tool_call") == [("ana", "t1")]
    assert raw(tmp_path, "SELECT subject FROM call WHERE thread_id = ?", ids["thread"]) == [("ana",)]


def test_S16_the_same_names_and_bytes_at_once_stay_apart(tmp_path: Path) -> None:
    """Two subjects with runs of the same session name, inputs and answers, interleaved: each finds its own."""
    import asyncio

    from tests.store_kit import opened

    async def main() -> None:
        stores = {"ana": opened(tmp_path, ANA), "ben": opened(tmp_path, BEN)}

        async def work(name: str) -> None:
            store = stores[name]
            for number in range(1, 11):
                worker, run, ready = await started(
                    store, "a", session="s", message=f"canary of {name}", inputs={"x": artifact("same")}
                )
                assert run.number == number
                await finish(store, worker, ready["a"], "same")
                seen = await store.snapshot(run.id, "a", None, ("x",), 30)
                assert {line.text for line in seen.conversation} <= {f"canary of {name}"}
                assert seen.message == f"canary of {name}"
                assert seen.conversation_total == number - 1

        await asyncio.gather(*(work(name) for name in stores))
        for store in stores.values():
            await store.close()

    asyncio.run(main())
    rows = raw(tmp_path, "SELECT subject, COUNT(*) FROM content WHERE body = ? GROUP BY subject", b"same")
    assert sorted(rows) == [("ana", 1), ("ben", 1)]


def test_S25_ids_with_nul_or_half_a_character_are_not_found_rather_than_a_crash(tmp_path: Path) -> None:
    """What a terminal can be given: PostgreSQL refuses NUL in text, and UTF-8 has no lone surrogates."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        for odd in ("a\x00", "\x00", "a\ud800", "\N{REPLACEMENT CHARACTER}"):
            for ask in (
                store.run(odd),
                store.steps(odd),
                store.attempts(run.id, odd),
                store.attempts(odd, "a"),
                store.journal(odd),
                store.artifact(run.id, odd),
                store.budget(odd),
            ):
                with pytest.raises(UsageError, match="not found"):
                    await ask
            assert await store.events(odd) == ()
        await store.claim(claim(ready["a"], worker, events=(event("e", text="a\x00b\ud800c"),)))
        await store.commit(Commit(ready["a"], artifact("a\x00b")))
        (seen,) = await store.events(run.id)
        assert seen.data == {"text": "a\x00b\ud800c"}  # JSON has escapes for both
        assert (await store.artifact(run.id, "a")).body == b"a\x00b"
        message = await store.add_message("s\x00", "user", "a\x00b\ud800c")
        assert message.seq == 1
        again = (await started(store, "a", session="s\x00"))[1]
        shown = (await store.snapshot(again.id, "a", None, (), 5)).conversation
        assert [line.text for line in shown] == ["a\N{REPLACEMENT CHARACTER}b\\ud800c"]
        assert again.session == "s\N{REPLACEMENT CHARACTER}"

    using(tmp_path, body)
