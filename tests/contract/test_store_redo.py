"""Asking for a finished step once more: the person's word, the attempt that begins with it, the thread it goes on from.

Design of follow-ups (S05) and of reviews: an attempt knows how it begins and on whose word, over restarts and failures.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.store import Store
from orchestrator.values import Commit, Dispatch, ErrorRecord, Mode, NewArtifact, OutputItem, Scope, TextItem
from tests.store_kit import (
    artifact,
    claim,
    done,
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

OOPS = ErrorRecord("oops", "it broke", "mend it")


async def _asked(store: Store, run_id: str, step: str = "a", mode: Mode = "follow_up") -> Dispatch:
    return await store.redo(run_id, step, None, mode, "shorter, please", "ana")


def test_a_finished_step_is_asked_for_with_a_persons_word(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a", message="go")
        await finish(store, worker, ready["a"], "first", ["b"])
        again = await _asked(store, run.id)
        assert (again.number, again.mode, again.interrupted) == (2, "follow_up", False)
        assert {row.name: row.status for row in await store.steps(run.id)} == {"a": "ready", "b": "ready"}
        assert (await store.artifact(run.id, "a")).body == b"first"

        own = await store.snapshot(run.id, "a", None, [], 10, redone_by=again.attempt_id)
        assert own.redo is not None
        assert own.redo.comment is not None
        assert (own.redo.mode, own.redo.comment.text, own.redo.author) == ("follow_up", "shorter, please", "ana")
        assert own.redo.draft is not None
        assert (own.redo.draft.body, own.redo.made_by) == (b"first", ready["a"].attempt_id)
        assert (own.conversation, own.conversation_total) == ((), 0), "its own comment stands elsewhere"

        other = await store.snapshot(run.id, "b", None, [], 10)
        assert other.redo is None
        assert [(line.role, line.text, line.step) for line in other.conversation] == [("user", "shorter, please", "a")]

    using(tmp_path, body)


def test_a_comment_is_as_confidential_as_what_it_is_about(tmp_path: Path) -> None:
    """S21: messages inherit the class of what produced them."""
    secret = NewArtifact("note", b"x", "model", "model", "confidential", {})

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", inputs={"brief": artifact()})
        with pytest.raises(UsageError, match="brief is an input"):
            await _asked(store, run.id, "brief")
        assert await store.claim(claim(ready["a"], worker))

        await store.commit(Commit(ready["a"], secret))
        again = await _asked(store, run.id)
        seen = await store.snapshot(run.id, "a", None, [], 0, redone_by=again.attempt_id)
        assert seen.redo is not None
        assert seen.redo.comment is not None
        assert seen.redo.comment.sensitivity == "confidential"

    using(tmp_path, body)


def test_what_has_not_come_to_an_end_is_not_asked_for_again(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        with pytest.raises(UsageError, match="b has not run yet"):
            await _asked(store, run.id, "b")
        with pytest.raises(UsageError, match="a is ready"):
            await _asked(store, run.id)
        assert await store.claim(claim(ready["a"], worker))
        with pytest.raises(UsageError, match="a is running"):
            await _asked(store, run.id)
        await store.wait(ready["a"], OOPS)
        with pytest.raises(UsageError, match="a waits for an answer"):
            await _asked(store, run.id)
        assert (await store.snapshot(run.id, "b", None, [], 10)).conversation == (), "a refusal says nothing"

    using(tmp_path, body)


def test_of_many_that_ask_at_once_one_is_heard(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"])
        results = await asyncio.gather(*(_asked(store, run.id) for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(result, Dispatch) for result in results) == 1
        assert sum(isinstance(result, UsageError) for result in results) == 7
        assert len(await store.attempts(run.id, "a")) == 2
        assert len((await store.snapshot(run.id, "a", None, [], 10)).conversation) == 1

    using(tmp_path, body)


def test_another_scope_cannot_ask(tmp_path: Path) -> None:
    async def body(store: Store) -> str:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"])
        return run.id

    run_id = using(tmp_path, body)

    async def stranger(store: Store) -> None:
        with pytest.raises(UsageError, match="not found"):
            await _asked(store, run_id)

    using(tmp_path, stranger, Scope(tenant="other"))


def test_the_word_is_kept_until_it_is_heeded(tmp_path: Path) -> None:
    """An attempt that failed, or was stopped because its inputs changed, is followed by one that is asked the same."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"])
        asked = await _asked(store, run.id)
        (taken,) = await store.adopt_run(run.id, worker, plan("a"))
        assert (taken.attempt_id, taken.mode, taken.interrupted) == (asked.attempt_id, "follow_up", False)
        assert await store.claim(claim(taken, worker))
        (resumed,) = await store.adopt_run(run.id, worker, plan("a"))
        assert (resumed.mode, resumed.interrupted) == ("follow_up", True)
        restarted = await store.restart(resumed, "its inputs changed")
        assert restarted is not None
        assert restarted.mode == "follow_up"
        assert await store.claim(claim(restarted, worker))
        await store.fail(restarted, OOPS)
        (last,) = await store.adopt_run(run.id, worker, plan("a"))
        assert (last.number, last.mode) == (4, "follow_up")
        seen = await store.snapshot(run.id, "a", None, [], 0, redone_by=last.attempt_id)
        assert seen.redo is not None
        assert seen.redo.comment is not None
        assert seen.redo.comment.text == "shorter, please"
        await finish(store, worker, last, base_head=seen.head.id if seen.head else None)
        assert (await _asked(store, run.id, mode="fresh")).mode == "fresh"
        assert [a.mode for a in await store.attempts(run.id, "a")] == ["", *["follow_up"] * 3, "fresh"]

    using(tmp_path, body)


def test_an_input_that_moves_meanwhile_does_not_lose_the_word(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a", "b: a")
        made = await finish(store, worker, ready["a"], "first", ["b"])
        (b,) = made.ready
        await finish(store, worker, b, reads=await reads_of(store, run.id, "a"))
        asked = await _asked(store, run.id, "b")
        head = (await store.artifact(run.id, "b")).version.id
        assert await store.claim(claim(asked, worker, reads=await reads_of(store, run.id, "a"), base_head=head))
        await store.edit(run.id, "a", None, 1, artifact("second", author="ana"))

        result = await store.commit(Commit(asked, artifact("new"), base_head=head))
        assert result.outcome == "moved"
        assert [(d.step, d.mode) for d in result.ready] == [("b", "follow_up")]

    using(tmp_path, body)


def test_a_shared_version_can_be_asked_for_anew(tmp_path: Path) -> None:
    """A child run has no attempt of a step whose version it shares."""

    async def body(store: Store) -> None:

        worker, run, ready = await started(store, "a")
        made = await finish(store, worker, ready["a"])
        (step,) = new_run("a").steps
        shared = replace(step, head=made.artifact_id, last_version=1)
        child, none = await store.create_run(new_run(parent_id=run.id, steps=(shared,)), worker)
        assert none == ()
        asked = await _asked(store, child.id)
        assert asked.number == 1
        seen = await store.snapshot(child.id, "a", None, [], 0, redone_by=asked.attempt_id)
        assert seen.redo is not None
        assert seen.redo.draft is not None
        assert (seen.redo.draft.version.run_id, seen.redo.made_by) == (run.id, ready["a"].attempt_id)

    using(tmp_path, body)


def test_a_thread_remembers_the_threads_it_goes_on_from(tmp_path: Path) -> None:
    """S13: what a follow-up's replay must resend first is on record, to the byte, over any number of follow-ups."""

    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        dispatch, continues, head = ready["a"], None, None
        for number in range(3):
            opened = replace(thread("main", f"question {number}"), continues=continues)
            call = sent(opened.id, 1, TextItem((f"question {number}",)))
            assert await store.claim(
                claim(dispatch, worker, manifest=manifest("x"), thread=opened, sent=call, base_head=head)
            )
            reply = done(call, items=(OutputItem({"text": f"answer {number}"}),))
            result = await store.commit(Commit(dispatch, artifact(number), done=reply, base_head=head))
            continues, head = opened.id, result.artifact_id
            if number < 2:
                dispatch = await _asked(store, run.id)
        journal = await store.journal(dispatch.attempt_id)
        (last,) = journal.threads
        said = [(call.sent.items[0], call.done.items[0]) for call in last.before if call.done]
        assert said == [(TextItem((f"question {n}",)), OutputItem({"text": f"answer {n}"})) for n in range(2)]
        assert len(last.calls) == 1
        assert last.prompt.text == "question 2"
        assert last.continues is not None
        assert last.continues.continues is not None
        assert last.continues.continues.continues is None
        assert await store.check() == ()

    using(tmp_path, body)


def test_what_an_attempt_is_asked_for_stands_in_its_row(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        worker, run, ready = await started(store, "a")
        await finish(store, worker, ready["a"])
        await store.redo(run.id, "a", None, "fresh", None, "ana")
        event = (await store.events(run.id))[-1]
        assert (event.kind, event.step, event.attempt) == ("step.redo", "a", 2)
        assert event.data == {"mode": "fresh", "by": "ana", "round": 0, "message": None}

    using(tmp_path, body)
    rows = raw(tmp_path, "SELECT number, mode, round, message_id FROM attempt ORDER BY number")
    assert [tuple(row) for row in rows] == [(1, "", 0, None), (2, "fresh", 0, None)]
