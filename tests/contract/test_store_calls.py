"""Calls, money and tools: written before they act, read back as they were sent (S09, S13, S25, S31)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import BudgetExceeded, UsageError
from orchestrator.money import Price, Rates
from orchestrator.store import Store
from orchestrator.store.records import Fenced
from orchestrator.values import (
    Block,
    Commit,
    Dispatch,
    ErrorRecord,
    LeftOut,
    Manifest,
    ManifestEntry,
    OutputItem,
    Prompt,
    Scope,
    TextItem,
    ThreadRecord,
    ToolCall,
    ToolOutput,
    Usage,
)
from tests.database_kit import Kind, on
from tests.store_kit import (
    TestClock,
    artifact,
    claim,
    done,
    file,
    finish,
    manifest,
    new_run,
    plan,
    raw,
    reads_of,
    sent,
    started,
    thread,
    using,
)

pytestmark = pytest.mark.usefixtures("database")

DOUBT = ErrorRecord("tool_in_doubt", "crm may have run", "say what became of it", 4)


async def _open(store: Store, reserve: str | None = None, **more: Any) -> tuple[str, str, Dispatch, ThreadRecord, Any]:
    """A run with one step whose first call is under way."""
    worker, run, ready = await started(store, "a", **more)
    opening = thread()
    call = sent(opening.id, reserve=reserve)
    assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
    return worker, run.id, ready["a"], opening, call


# --- the journal ---


def test_S13_a_thread_is_read_back_as_it_was_minted(tmp_path: Path) -> None:
    """Blocks, parts, settings, what was left out: replay needs no template and no contract any more."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        await finish(store, worker, ready["a"], "value of a", children=("b",))
        (b,) = [d for d in await store.adopt_run(run.id, worker, plan("a", "b: a")) if d.step == "b"]
        source = (await store.artifact(run.id, "a")).version
        blocks = (
            Block(
                "artifact",
                "a",
                ('<artifact step="a">\n', "value of a", "\n</artifact>\n"),
                "reads, p.yaml:3:4",
                12,
                artifact_id=source.id,
                version=1,
                contract="note",
                fields=("x", "y"),
                about="What a says.",
                guards=("not the budget",),
                sensitivity="confidential",
            ),
            Block("task", "b", ("Say «ja» \U0001f600\r\n\ttwice.\x00",), "task", 3),
        )
        entries = (ManifestEntry("read", "a", "h1", "v1"), ManifestEntry("model", "m", "h2"))
        record = replace(
            thread(),
            prompt=Prompt("System ü.", blocks, Manifest(entries)),
            settings={"effort": "low", "temperature": 0.0, "z": 1, "a": [1, 2.5, None]},
            left_out=(LeftOut("conversation", "message 1", "over budget", 9),),
        )
        reads = await reads_of(store, run.id, "a")
        call = sent(record.id)
        await store.claim(claim(b, worker, manifest=Manifest(entries), thread=record, sent=call, reads=reads))
        journal = await store.journal(b.attempt_id)
        (seen,) = journal.threads
        assert (seen.prompt, seen.settings, seen.left_out) == (record.prompt, record.settings, record.left_out)
        assert list(seen.settings) == ["effort", "temperature", "z", "a"]
        assert (seen.id, seen.name, seen.provider, seen.base_url) == (record.id, "main", "openai", record.base_url)
        assert (journal.manifest, journal.reads, journal.base_head) == (Manifest(entries), reads, None)
        assert journal.attempt.inputs_hash == Manifest(entries).inputs_hash
        # The body of `a` is one row, though the artifact and the block both hold it.
        assert raw(tmp_path, "SELECT COUNT(*) FROM content WHERE body = ?", b"value of a") == [(1,)]

    using(tmp_path, body)


def test_S25_items_come_back_byte_for_byte(tmp_path: Path) -> None:
    verbatim = {
        "type": "reasoning",
        "id": "rs_1",
        "encrypted_content": "gAAA=",
        "n": 1.0,
        "é": ["\ud83d", None, "\x00"],
    }
    items = (
        TextItem(("part one, ", "", "part\ttwo")),
        ToolOutput("call_1", '{"rate": 997.50}', is_error=True),
        OutputItem(verbatim),
    )

    async def body(store: Store) -> None:
        _, _, dispatch, opening, first = await _open(store)
        answer = done(
            first,
            cost="0.0001",
            usage=Usage(10, 4, 1, 3, 2),
            outcome="tools",
            items=(OutputItem(verbatim),),
            tool_calls=(ToolCall("call_1", "rate", '{"of":"ü"}'),),
            follow=(TextItem(("again, ", "please")),),
            reason="asks a tool",
            tries=2,
            seconds=1.25,
            usage_estimated=True,
        )
        await store.done(dispatch, answer)
        dear, plain = Rates(*map(Decimal, ("4", "0.4", "5", "15"))), Rates(*map(Decimal, ("2", "0.20", "2.5", "1E+1")))
        second = replace(
            sent(opening.id, 2, *items, previous="resp_1", source="TOOL_RESULT", rung="replay"),
            price=Price('ours, "2026"', plain, ((272_000, dear),)),
        )
        await store.sent(dispatch, second)
        (seen,) = (await store.journal(dispatch.attempt_id)).threads
        assert seen.calls[1].sent == second
        assert seen.calls[1].done is None
        read_back = seen.calls[0].done
        assert read_back == answer
        (output,) = read_back.items
        assert list(output.data) == list(verbatim)
        assert repr(output.data) == repr(verbatim)

    using(tmp_path, body)


def test_the_opening_message_is_stored_once_and_read_back_whole(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, _, ready = await started(store, "a")
        opening = thread("main", "x" * 5000, "y" * 5000)
        call = sent(opening.id, 1, TextItem((opening.prompt.text,)))
        await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        (seen,) = (await store.journal(ready["a"].attempt_id)).threads
        assert seen.calls[0].sent.items == (TextItem(("x" * 5000, "y" * 5000)),)
        assert raw(tmp_path, "SELECT COUNT(*) FROM content WHERE size >= 5000") == [(2,)]

    using(tmp_path, body)


def test_threads_of_one_attempt_keep_their_order_and_their_calls(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, _, dispatch, first, _ = await _open(store)
        other = replace(thread("aside", "Other"), prompt=replace(thread().prompt, manifest=manifest("other")))
        await store.open_thread(dispatch, other, sent(other.id))
        await store.sent(dispatch, sent(first.id, 2))
        seen = (await store.journal(dispatch.attempt_id)).threads
        assert [(t.name, [c.sent.seq for c in t.calls]) for t in seen] == [("main", [1, 2]), ("aside", [1])]
        assert [t.prompt.manifest for t in seen] == [manifest("x"), manifest("other")]

    using(tmp_path, body)


@on("sqlite")
def test_the_id_seen_at_the_start_of_a_stream_is_kept_without_waiting(tmp_path: Path) -> None:
    """It rides on the next commit, costs none of its own, and is there for a call that never ended."""
    seen: list[str] = []

    async def body(store: Store) -> None:
        _, _, dispatch, opening, call = await _open(store)
        await store.created(call.id, "resp_early")
        await store.sent(dispatch, sent(opening.id, 2))
        (found,) = (await store.journal(dispatch.attempt_id)).threads
        assert [(c.done, c.response_id) for c in found.calls] == [(None, "resp_early"), (None, None)]
        await store.done(dispatch, done(call, response_id="resp_final"))
        (found,) = (await store.journal(dispatch.attempt_id)).threads
        assert found.calls[0].response_id == "resp_final"

    using(tmp_path, body, observer=seen.append)
    together = ["created:begin", "sent:begin", "created:committed", "sent:committed"]
    assert seen[-6:] == [*together, "done:begin", "done:committed"]


def test_a_lazy_note_is_committed_alone_after_a_moment(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, _, dispatch, _, call = await _open(store)
        await store.created(call.id, "resp_early")
        for _ in range(100):
            (found,) = (await store.journal(dispatch.attempt_id)).threads
            if found.calls[0].response_id == "resp_early":
                return
            await asyncio.sleep(0.05)
        raise AssertionError("never committed")

    using(tmp_path, body)


def test_S14_an_answer_is_found_in_its_run_and_in_the_runs_made_from_it_only(tmp_path: Path) -> None:
    """By the hash of its question: in the run itself and its descendants; in no other run, and in no other scope."""
    words = "Kurz, ü.".encode()

    async def body(store: Store) -> str:
        worker, run, ready = await started(store, "a")
        opening = thread()
        call = sent(opening.id, ask="the summary")
        assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
        assert await store.answer(run.id, "the summary") is None
        await store.done(ready["a"], done(call, answer=words), ())
        assert await store.answer(run.id, "the summary") == words
        assert await store.answer(run.id, "another") is None
        child, _ = await store.create_run(new_run("a", parent_id=run.id), worker)
        grandchild, _ = await store.create_run(new_run("a", parent_id=child.id), worker)
        other, _ = await store.create_run(new_run("a"), worker)
        found = [await store.answer(row.id, "the summary") for row in (child, grandchild, other)]
        assert found == [words, words, None]
        return run.id

    run_id = using(tmp_path, body)
    assert using(tmp_path, lambda store: store.answer(run_id, "the summary"), Scope(subject="ben")) is None


def test_foreign_and_unknown_attempts_are_not_found(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run, _ = await started(store, "a")
        with pytest.raises(UsageError, match="not found"):
            await store.journal("nothing")
        with pytest.raises(UsageError, match="not found"):
            await store.attempts(run.id, "nothing")
        with pytest.raises(UsageError, match="not found"):
            await store.steps("nothing")

    using(tmp_path, body)


# --- sums ---


def test_A23_cost_and_tokens_add_up_over_failed_and_rejected_tries(tmp_path: Path) -> None:
    """Three calls of 9637 tokens, 4352 of them cached, at $0.0114404 each; two were rejected, all are charged."""

    async def body(store: Store) -> None:
        _, run_id, dispatch, opening, call = await _open(store)
        usage = Usage(9637, 4352, 0, 100, 40)
        for seq, outcome in ((1, "reask"), (2, "reask"), (3, "rejected")):
            if seq > 1:
                call = sent(opening.id, seq)
                await store.sent(dispatch, call)
            answer = done(call, "0.0114404", usage, outcome=outcome)
            if seq < 3:
                await store.done(dispatch, answer)
        assert await store.fail(dispatch, ErrorRecord("invalid", "no valid answer"), answer)
        (row,) = await store.steps(run_id)
        assert (row.status, row.calls, row.reasks) == ("failed", 3, 2)
        assert row.cost_usd == Decimal("0.0343212")
        assert not row.cost_partial
        assert row.usage == Usage(28911, 13056, 0, 300, 120)
        assert (await store.budget(run_id)).spent_usd == Decimal("0.0343212")

    using(tmp_path, body)


def test_A23_an_unknown_price_is_partial_and_never_zero(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run_id, dispatch, opening, call = await _open(store)
        await store.done(dispatch, done(call, None, Usage(10, 0, 0, 5, 0)))
        (row,) = await store.steps(run_id)
        assert (row.cost_usd, row.cost_partial) == (None, True)
        second = sent(opening.id, 2)
        await store.sent(dispatch, second)
        await store.done(dispatch, done(second, "0.25", Usage(1)))
        (row,) = await store.steps(run_id)
        assert (row.cost_usd, row.cost_partial) == (Decimal("0.25"), True)

    using(tmp_path, body)


def test_a_step_without_calls_costs_nothing(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"])
        (row,) = await store.steps(run.id)
        assert (row.calls, row.cost_usd, row.cost_partial, row.usage) == (0, Decimal(0), False, Usage())

    using(tmp_path, body)


def test_done_and_artifact_are_one_transaction(tmp_path: Path) -> None:
    seen: list[str] = []

    async def body(store: Store) -> None:
        _, run_id, dispatch, _, call = await _open(store)
        seen.clear()
        result = await store.commit(Commit(dispatch, artifact(), done=done(call, "0.5", Usage(1))))
        assert result.outcome == "committed"
        (row,) = await store.steps(run_id)
        assert (row.status, row.cost_usd) == ("succeeded", Decimal("0.5"))

    using(tmp_path, body, observer=seen.append)
    assert seen == ["commit:begin", "commit:committed"]


# --- S31: the cap ---


def test_S31_fifty_at_once_never_pass_the_cap(tmp_path: Path) -> None:
    """A cap of $1 and fifty calls of at most $0.03: thirty-three fit, whoever comes first."""

    async def body(store: Store) -> None:
        names = [f"s{n}" for n in range(50)]
        worker, run, ready = await started(store, *names, cap_usd=Decimal("1.00"))

        async def begin(name: str) -> bool:
            opening = thread()
            try:
                return await store.claim(
                    claim(ready[name], worker, thread=opening, sent=sent(opening.id, reserve="0.03"))
                )
            except BudgetExceeded:
                return False

        sent_off = await asyncio.gather(*map(begin, names))
        assert sum(sent_off) == 33
        money = await store.budget(run.id)
        assert (money.spent_usd, money.reserved_usd) == (Decimal(0), Decimal("0.99"))
        states = [row.status for row in await store.steps(run.id)]
        assert (states.count("running"), states.count("ready")) == (33, 17)
        assert raw(tmp_path, "SELECT COUNT(*) FROM call") == [(33,)]
        assert raw(tmp_path, "SELECT COUNT(*) FROM thread") == [(33,)]

    using(tmp_path, body)


def test_S31_a_refused_call_says_what_is_spent_and_how_to_go_on(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run_id, dispatch, opening, call = await _open(store, "0.60", cap_usd=Decimal("1"))
        await store.done(dispatch, done(call, "0.55", Usage(1)))
        with pytest.raises(BudgetExceeded) as error:
            await store.sent(dispatch, sent(opening.id, 2, reserve="0.5"))
        assert (error.value.exit_code, error.value.hint) == (5, "raise the cap and go on: orch resume 1 --cap USD")
        for amount in ("$0.5;", "$0.55 is spent", "cap is $1;"):
            assert amount in error.value.message
        assert raw(tmp_path, "SELECT COUNT(*) FROM call") == [(1,)]
        await store.set_cap(run_id, Decimal("1.05"))
        await store.sent(dispatch, sent(opening.id, 2, reserve="0.5"))

    using(tmp_path, body)


@pytest.mark.parametrize(
    ("cost", "usage", "spent"),
    [
        ("0.2", Usage(1), "0.2"),  # known: what it cost
        (None, None, "0.5"),  # nothing reported: the reservation, until proven otherwise
        (None, Usage(1), "0"),  # reported but unpriced: not known, not zero; the cap cannot count it
        ("0", Usage(), "0"),  # proven free
    ],
)
def test_S31_a_reply_settles_what_was_reserved(
    tmp_path: Path, cost: str | None, usage: Usage | None, spent: str
) -> None:
    async def body(store: Store) -> None:
        _, run_id, dispatch, _, call = await _open(store, "0.5", cap_usd=Decimal(1))
        answer = done(call, cost, usage)
        await store.done(dispatch, answer)
        await store.done(dispatch, answer)  # said twice, settled once
        money = await store.budget(run_id)
        assert (money.spent_usd, money.reserved_usd) == (Decimal(spent), Decimal(0))

    using(tmp_path, body)


def test_S31_a_call_that_never_answered_stays_charged(tmp_path: Path) -> None:
    """A crash between reserve and settle: its money is not free for others after the resume."""

    async def crash(store: Store) -> None:
        await _open(store, "0.7", cap_usd=Decimal(1))

    async def after(store: Store) -> None:
        run = await store.run("last")
        worker = await store.register_worker()
        (dispatch,) = await store.adopt_run(run.id, worker, plan("a"), take_over=True)
        (seen,) = (await store.journal(dispatch.attempt_id)).threads
        with pytest.raises(BudgetExceeded, match=r"\$0.7 is held"):
            await store.sent(dispatch, sent(seen.id, 2, reserve="0.4"))
        (row,) = await store.steps(run.id)
        assert row.cost_partial
        assert (await store.budget(run.id)).reserved_usd == Decimal("0.7")

    using(tmp_path, crash)
    using(tmp_path, after)


# --- S09: tools ---


def test_S09_a_tool_is_on_record_before_it_runs(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, _, dispatch, _, call = await _open(store)
        tool = ToolCall("call_1", "crm", '{"id": 7}')
        await store.tool_started(dispatch, call.id, tool)
        (row,) = (await store.journal(dispatch.attempt_id)).tools
        assert (row.call_id, row.tool_call, row.state, row.output, row.decision) == (
            call.id,
            tool,
            "started",
            None,
            None,
        )
        await store.tool_finished(dispatch, call.id, "call_1", ToolOutput("call_1", "ok ü", is_error=True))
        (row,) = (await store.journal(dispatch.attempt_id)).tools
        assert (row.state, row.output) == ("done", ToolOutput("call_1", "ok ü", is_error=True))

    using(tmp_path, body)


def test_S09_a_zombie_starts_no_tool(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run_id, dispatch, _, call = await _open(store)
        await store.adopt_run(run_id, worker, plan("a"))
        with pytest.raises(Fenced):
            await store.tool_started(dispatch, call.id, ToolCall("call_1", "crm", "{}"))
        assert (await store.journal(dispatch.attempt_id)).tools == ()

    using(tmp_path, body)


@pytest.mark.parametrize(
    ("decision", "output", "state", "text"),
    [("retry", None, "started", None), ("done", '{"ok": 1}', "done", '{"ok": 1}'), ("tell", None, "started", None)],
)
def test_S09_a_person_says_what_became_of_a_tool(
    tmp_path: Path, decision: Any, output: str | None, state: str, text: str | None
) -> None:
    async def body(store: Store) -> None:
        worker, run_id, dispatch, opening, call = await _open(store)
        await store.tool_started(dispatch, call.id, ToolCall("call_1", "crm", "{}"))
        assert await store.wait(dispatch, DOUBT)
        (row,) = await store.steps(run_id)
        assert (row.status, row.error) == ("waiting", DOUBT)
        assert await store.adopt_run(run_id, worker, plan("a")) == ()
        await store.decide_tool(run_id, "call_1", decision, output)
        (tool,) = (await store.journal(dispatch.attempt_id)).tools
        assert (tool.decision, tool.state, tool.output and tool.output.output) == (decision, state, text)
        # The same attempt goes on, on its recorded thread.
        (again,) = await store.adopt_run(run_id, worker, plan("a"))
        assert (again.attempt_id, again.interrupted) == (dispatch.attempt_id, True)
        await store.sent(again, sent(opening.id, 2))

    using(tmp_path, body)


def test_S32_running_time_adds_up_over_resumes_and_neither_waits_nor_gaps_count(tmp_path: Path) -> None:
    """S32: let go of, killed, waiting for a person, killed again: what lies between is nobody's running time."""
    clock = TestClock()

    async def body(store: Store) -> None:
        worker, run_id, dispatch, _, call = await _open(store)
        clock.move(100)
        await store.release_run(run_id, worker, "paused")
        clock.move(5_000)
        killed = await store.register_worker()
        (again,) = await store.adopt_run(run_id, killed, plan("a"))
        assert again.ran_us == 100_000_000
        clock.move(30)
        await store.heartbeat(killed)
        clock.move(6_000)  # it was dead for most of this; its last sign of life is what is known
        other = await store.register_worker()
        (again,) = await store.adopt_run(run_id, other, plan("a"))
        assert again.ran_us == 130_000_000
        clock.move(8)
        await store.tool_started(again, call.id, ToolCall("call_1", "crm", "{}"))
        assert await store.wait(again, DOUBT)
        clock.move(7_000)
        await store.decide_tool(run_id, "call_1", "retry", None)
        (again,) = await store.adopt_run(run_id, other, plan("a"))
        assert (again.attempt_id, again.ran_us) == (dispatch.attempt_id, 138_000_000)
        clock.move(2)
        assert await store.fail(again, DOUBT)
        assert (await store.steps(run_id))[0].seconds == 140.0
        (new,) = await store.adopt_run(run_id, other, plan("a"))
        assert (new.number, new.ran_us) == (dispatch.number + 1, 0), "a new attempt has all its time"

    using(tmp_path, body, clock=clock)


def test_S09_only_a_tool_that_waits_can_be_decided(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        _, run_id, dispatch, _, call = await _open(store)
        await store.tool_started(dispatch, call.id, ToolCall("call_1", "crm", "{}"))
        for tool in ("call_1", "call_2"):
            with pytest.raises(UsageError, match="does not wait"):
                await store.decide_tool(run_id, tool, "retry", None)

    using(tmp_path, body)


# --- size ---


def test_bodies_are_stored_once_and_the_database_grows_with_them(tmp_path: Path, database: Kind) -> None:
    """Forty steps of 20 KB that each read all former ones: the database stays below three times the unique content."""

    async def body(store: Store) -> None:
        count, size = 40, 20_000
        names = [f"s{n}" for n in range(count)]
        worker, run, ready = await started(
            store, *[f"{name}: {' '.join(names[n - 1 : n])}" for n, name in enumerate(names)]
        )
        texts: list[str] = []
        dispatch = ready["s0"]
        for n, name in enumerate(names):
            opening = thread("main", *texts, f"task {n}") if texts else thread("main", "task 0")
            await store.claim(
                claim(dispatch, worker, thread=opening, sent=sent(opening.id, 1, TextItem((opening.prompt.text,))))
            )
            texts.append(f"{n:05}" * (size // 5))
            result = await store.commit(Commit(dispatch, artifact(texts[-1]), children=tuple(names[n + 1 : n + 2])))
            dispatch = result.ready[0] if result.ready else dispatch
            assert result.outcome == "committed", name
        assert [row.status for row in await store.steps(run.id)] == ["succeeded"] * count

    using(tmp_path, body, synchronous="NORMAL")
    stored = raw(tmp_path, "SELECT SUM(size) FROM content")[0][0]
    assert 40 * 20_000 < stored < 3 * 40 * 20_000
    if database == "sqlite":
        assert file(tmp_path).stat().st_size < 3 * 40 * 20_000
