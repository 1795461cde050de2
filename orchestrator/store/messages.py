"""Sessions and their visible conversation, numbered per session (S33)."""

from __future__ import annotations

from typing import Literal

from orchestrator.ids import uuid7
from orchestrator.spec import Sensitivity
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Message

Role = Literal["user", "assistant", "operator"]

_NEW = insert("session", "id name created_at", "ON CONFLICT (tenant, account, subject, name) DO NOTHING")
_BY_NAME = Sql("SELECT id FROM session WHERE name = :name AND {scope}")
_COUNT = Sql("UPDATE session SET last_message = last_message + 1 WHERE id = :id AND {scope} RETURNING last_message")
_ADD = insert("message", "id session_id seq kind role message run_id step author sensitivity created_at")


def session(tx: Tx, name: str | None, unnamed: str) -> str:
    """The id of the session of that name, made if it is new. No name = a session of its own, called `unnamed`."""
    session_id = uuid7()
    if tx.run(_NEW, id=session_id, name=name or unnamed, created_at=tx.now):
        return session_id
    if name is not None:
        return str(tx.all(_BY_NAME, name=name)[0][0])
    tx.run(_NEW, id=session_id, name=session_id, created_at=tx.now)  # somebody uses that name already
    return session_id


def add(
    tx: Tx,
    session_id: str,
    role: Role,
    text: str,
    author: str,
    *,
    kind: str = "turn",
    run_id: str | None = None,
    step: str | None = None,
    sensitivity: Sensitivity = "internal",
    message_id: str | None = None,
) -> Message:
    """One more line; `message_id` is given by whoever will refer to it."""
    seq = tx.all(_COUNT, id=session_id)[0][0]
    tx.run(
        _ADD,
        id=message_id or uuid7(),
        session_id=session_id,
        seq=seq,
        kind=kind,
        role=role,
        message=text,
        run_id=run_id,
        step=step,
        author=author,
        sensitivity=sensitivity,
        created_at=tx.now,
    )
    return Message(seq, role, text, step, run_id, sensitivity)
