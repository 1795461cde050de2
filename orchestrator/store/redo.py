"""Asking for a finished step once more: a person's word, kept in the session, and an attempt that begins with it.

Nothing else is set. The version that stands stays current until the attempt has made another; the steps that read it
are then stale by their manifests, as after an edit.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import UsageError
from orchestrator.ids import uuid7
from orchestrator.spec import SENSITIVITY_RANK
from orchestrator.store import artifacts, messages, runs
from orchestrator.store.claims import Asked, new_attempt
from orchestrator.store.commits import ATTEMPT, Step, named_step
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Dispatch, Event, Mode

FINISHED: Final = ("succeeded", "kept", "failed")
_KIND = Sql("SELECT kind FROM step WHERE id = :step AND {scope}")
_SESSION = Sql("SELECT session_id FROM run WHERE id = :run AND {scope}")


def redo(
    tx: Tx,
    run_id: str,
    name: str,
    item: str | None,
    mode: Mode,
    comment: str | None,
    author: str,
    *,
    round: int = 0,
) -> Dispatch:
    """A new attempt of a finished step, and the comment as a line of the session's conversation, in one transaction.

    `mode` says how it begins (see `tables.Attempt`), `round` which visit of a review it belongs to. May be part of a
    larger transaction on the run. Raises UsageError unless the step's newest attempt has ended with a result, or
    failed: of two that ask at once, one is refused.
    """
    locked = runs.lock(tx, run_id, 1)
    step = named_step(tx, run_id, name, item)
    if tx.all(_KIND, step=step.id)[0][0] == "input":
        raise UsageError(f"{name} is an input: nothing makes it", hint="`orch edit` gives it another value")
    number = _last_number(tx, step)
    message_id = uuid7() if comment is not None else None
    seq = None if comment is None else _say(tx, run_id, step, comment, author, message_id)
    dispatch = new_attempt(tx, run_id, step.id, step.name, step.item, number + 1, asked=Asked(mode, round, message_id))
    event = Event("step.redo", data={"mode": mode, "by": author, "round": round, "message": seq})
    runs.write_events(tx, run_id, locked, [event], dispatch)
    return dispatch


def _last_number(tx: Tx, step: Step) -> int:
    """The number of the newest attempt; 0 where the version that stands is shared from the parent run. Raises
    UsageError for a step that has not come to an end."""
    if step.attempt_id is None:
        if step.head_id is None:
            raise UsageError(f"{step.name} has not run yet", hint="`orch resume` runs it", code="not_finished")
        return 0
    state, number, *_ = tx.all(ATTEMPT, attempt=step.attempt_id)[0]
    if state not in FINISHED:
        what, hint = _unfinished(state)
        raise UsageError(f"{step.name} {what}", hint=hint, code="not_finished")
    return int(number)


def _unfinished(state: str) -> tuple[str, str]:
    if state == "waiting":
        return "waits for an answer", "answer that first: `orch show RUN` says what it waits for"
    if state == "cancelled":
        return "was cancelled", "`orch resume` runs it again"
    if state == "skipped":
        return "was skipped", "its `when` was false: change what that reads"
    return f"is {state}", "wait until it is done, or go on with it: `orch resume`"


def _say(tx: Tx, run_id: str, step: Step, comment: str, author: str, message_id: str | None) -> int:
    """The comment, as confidential as what it is about (S21); its number in the session."""
    head = artifacts.version_by_id(tx, step.head_id) if step.head_id else None
    levels = ("internal", *([head.sensitivity] if head else []))
    said = messages.add(
        tx,
        tx.all(_SESSION, run=run_id)[0][0],
        "user",
        comment,
        author,
        kind="comment",
        run_id=run_id,
        step=step.name,
        sensitivity=max(levels, key=lambda level: SENSITIVITY_RANK[level]),
        message_id=message_id,
    )
    return said.seq
