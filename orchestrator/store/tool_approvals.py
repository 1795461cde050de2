"""Tool calls that wait for a person's word, and the word.

A call is allowed or refused as it stands: its name and arguments are recorded before anybody is asked, and stay as they
are. The digest of all calls that a step asks about lets a person say that these, and no others, are what they saw
(S08). A step goes on when none of its calls waits any more; a refusal is an answer to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.ids import uuid7
from orchestrator.store import runs
from orchestrator.store.calls import fence, own_call
from orchestrator.store.columns import from_micros
from orchestrator.store.content import Bodies, put
from orchestrator.store.json_text import dump_error, load_error
from orchestrator.store.records import AskedTool, AskedTools, ToolAnswer
from orchestrator.store.sql import Row, Sql, Tx, insert
from orchestrator.values import Dispatch, Event, ToolCall

NOT_ASKED: Final = "not_waiting"
ASKED_CHANGED: Final = "shown_changed"
SHORTEST_DIGEST: Final = 12

_ASK = insert(
    "tool_call",
    "id call_id tool_id name arguments state started_at",
    "ON CONFLICT (call_id, tool_id) DO NOTHING",
)
_ASKED = Sql(
    "SELECT t.id, t.tool_id, t.name, k.body, s.name, s.item, a.id, a.number, a.token, t.started_at, a.error"
    " FROM step s JOIN attempt a ON a.id = s.attempt_id JOIN call c ON c.attempt_id = a.id"
    " JOIN tool_call t ON t.call_id = c.id JOIN content k ON k.sha256 = t.arguments"
    " WHERE s.run_id = :run AND a.state = 'waiting' AND t.state = 'asked' AND t.decision IS NULL"
    " AND {scope:s} AND {scope:a} AND {scope:c} AND {scope:t} AND {scope:k} ORDER BY s.position, s.item, t.id"
)
_ALLOW = Sql("UPDATE tool_call SET decision = 'approve' WHERE id = :id AND {scope}")
_REFUSE = Sql(
    "UPDATE tool_call SET decision = 'reject', state = 'done', output = :output, is_error = 1, ended_at = :now"
    " WHERE id = :id AND {scope}"
)
_TELL = Sql("UPDATE attempt SET error = :error WHERE id = :attempt AND state = 'waiting' AND {scope}")
_RUN_TELLS = Sql("UPDATE run SET error = :error WHERE id = :run AND error = :was AND {scope}")
_READY = Sql("UPDATE attempt SET state = 'ready', error = NULL WHERE id = :attempt AND state = 'waiting' AND {scope}")


def ask(tx: Tx, dispatch: Dispatch, call_id: str, tool_calls: Sequence[ToolCall]) -> None:
    """Record that these calls want a person's word; one that is recorded already stays as it is. Raises Fenced."""
    fence(tx, dispatch)
    own_call(tx, dispatch, call_id)
    bodies = Bodies(tx)
    rows = [
        {
            "id": uuid7(),
            "call_id": call_id,
            "tool_id": call.call_id,
            "name": call.name,
            "arguments": bodies.add(call.arguments),
            "state": "asked",
            "started_at": tx.now,
        }
        for call in tool_calls
    ]
    bodies.write()
    tx.many(_ASK, rows)


def asked(tx: Tx, run_id: str) -> tuple[AskedTools, ...]:
    """The steps of a run whose calls wait for a word, each with its calls."""
    return tuple(_asked(rows) for rows in _by_attempt(tx, run_id).values())


def _by_attempt(tx: Tx, run_id: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in tx.all(_ASKED, run=run_id):
        found.setdefault(row[6], []).append(row)
    return found


def _asked(rows: Sequence[Row]) -> AskedTools:
    first = rows[0]
    calls = tuple(AskedTool(row[1], row[2], bytes(row[3]).decode()) for row in rows)
    return AskedTools(first[4], first[5] or None, first[6], from_micros(first[9]), calls)


def answer(tx: Tx, run_id: str, said: ToolAnswer) -> bool:
    """Take a word on calls; whether their steps can go on now. Raises UsageError where one of them does not wait, or
    the step asks about others than the person saw; nothing is decided then."""
    locked = runs.lock(tx, run_id, 1)
    waiting = _by_attempt(tx, run_id)
    rows = [row for found in waiting.values() for row in found if row[1] in said.calls]
    unknown = set(said.calls) - {row[1] for row in rows}
    if unknown or not rows:
        name = min(unknown, default="")
        hint = "`orch inbox` lists what waits for a person"
        raise UsageError(f"the tool call {name} does not wait for a word", hint=hint, code=NOT_ASKED)
    attempts = {row[6] for row in rows}
    for attempt in attempts:
        _compare(_asked(waiting[attempt]), said)
    for row in rows:
        _decide(tx, row[0], said)
    row = rows[0]
    dispatch = Dispatch(run_id, row[4], row[5] or None, row[6], row[7], row[8])
    told = {"decision": said.decision, "by": said.by, "comment": said.comment}
    data = {**told, "calls": [[row[1], row[2]] for row in rows]}
    runs.write_events(tx, run_id, locked, [Event("tool.answered", data=data)], dispatch)
    done = [attempt for attempt in attempts if all(row[1] in said.calls for row in waiting[attempt])]
    for attempt in done:
        tx.run(_READY, attempt=attempt)
    for attempt in attempts.difference(done):
        _asks_less(tx, run_id, waiting[attempt], said)
    return bool(done)


def wants(step: str, calls: Sequence[tuple[str, str]]) -> str:
    """What is said of a step that asks about calls: their names and arguments, each cut to a line."""
    names = [f"{name}({arguments})" for name, arguments in calls]
    return f"{step} wants to call {', '.join(name if len(name) <= 120 else f'{name[:119]}…' for name in names)}"


def _asks_less(tx: Tx, run_id: str, rows: Sequence[Row], said: ToolAnswer) -> None:
    """The step still waits, for the rest: what is told of it names no call that has its answer, nor what the run
    tells of it."""
    left = [(row[2], bytes(row[3]).decode()) for row in rows if row[1] not in said.calls]
    error = load_error(rows[0][10])
    if error is not None:
        label = f"{rows[0][4]}/{rows[0][5]}" if rows[0][5] else str(rows[0][4])
        now = dump_error(replace(error, message=wants(label, left)))
        tx.run(_TELL, attempt=rows[0][6], error=now)
        tx.run(_RUN_TELLS, run=run_id, was=rows[0][10], error=now)


def _compare(shown: AskedTools, said: ToolAnswer) -> None:
    if said.digest is None or (len(said.digest) >= SHORTEST_DIGEST and shown.digest.startswith(said.digest)):
        return
    raise UsageError(
        f"{shown.label} asks about other tool calls than you saw; nothing was decided",
        hint="look at what it asks now, and answer for that",
        code=ASKED_CHANGED,
    )


def _decide(tx: Tx, row_id: str, said: ToolAnswer) -> None:
    if said.decision == "approve":
        tx.run(_ALLOW, id=row_id)
        return
    words = f": {said.comment}" if said.comment else ""
    tx.run(_REFUSE, id=row_id, output=put(tx, f"A person refused this call{words}"), now=tx.now)


__all__ = ["ASKED_CHANGED", "NOT_ASKED", "answer", "ask", "asked", "wants"]
