"""The rows around a run: finding it, locking it, its events, its budget, and the right to work on its steps.

Every transaction that changes a run begins with `lock`: an UPDATE of the run's row, which on SQLite is a formality
(one writer) and elsewhere the lock that keeps two siblings from missing each other's commit (S02). The same statement
numbers the events the transaction is about to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from orchestrator.errors import UsageError
from orchestrator.store import json_text
from orchestrator.store.columns import from_micros, from_pico, to_pico
from orchestrator.store.records import EventRow
from orchestrator.store.sql import Row, Sql, Tx, insert
from orchestrator.values import BudgetRow, Dispatch, Event, RunRow

RUN: Final = """
SELECT r.id, r.number, r.pipeline, r.status, r.parent_id, p.number, r.session_id, s.name, r.created_at, r.graph_digest,
       r.file, m.message, b.cap_usd, r.on_exceed, r.unpriced, r.author, r.tags, r.error, r.kind,
       r.models
FROM run r JOIN session s ON s.id = r.session_id JOIN budget b ON b.run_id = r.id
LEFT JOIN run p ON p.id = r.parent_id AND {scope:p}
LEFT JOIN message m ON m.run_id = r.id AND m.kind = 'run' AND {scope:m}
WHERE {scope:r} AND {scope:s} AND {scope:b} AND
"""
_BY_ID = Sql(RUN + "r.id = :ref")
_BY_NUMBER = Sql(RUN + "r.number = :ref")
_NEWEST = Sql(RUN + "r.kind = 'run' ORDER BY r.number DESC LIMIT :limit OFFSET :skip")
_NEWEST_OF_ALL = Sql(_NEWEST.text.replace("r.kind = 'run'", "r.number > 0"))
_LOCK = Sql(
    "UPDATE run SET last_event = last_event + :n WHERE id = :run AND {scope} RETURNING last_event, status, owner"
)
_EVENT = insert("event", "run_id seq at kind step item attempt data")
_EVENTS = Sql(
    "SELECT seq, at, kind, step, item, attempt, data FROM event WHERE run_id = :run AND seq > :after AND {scope}"
    " ORDER BY seq"
)
_BUDGET = Sql("SELECT cap_usd, spent_usd, reserved_usd FROM budget WHERE run_id = :run AND {scope}")
_TAGS = Sql("SELECT tags FROM run WHERE id = :run AND {scope}")
_SET_TAGS = Sql("UPDATE run SET tags = :tags WHERE id = :run AND {scope}")
_STATUS = Sql("SELECT status, owner FROM run WHERE id = :run AND {scope}")
_SET_CAP = Sql("UPDATE budget SET cap_usd = :cap WHERE run_id = :run AND {scope}")


def find(tx: Tx, ref: str | int) -> RunRow:
    """By id, number, `last` or `last~N`, which no bench is. Raises UsageError where this scope has no such run."""
    text = str(ref)
    back = re.fullmatch(r"last(?:~(\d{1,9}))?", text)
    if back is not None:
        row = tx.one(_NEWEST, limit=1, skip=int(back[1] or 0))
    elif re.fullmatch(r"\d{1,18}", text):
        row = tx.one(_BY_NUMBER, ref=int(text))
    else:
        row = tx.one(_BY_ID, ref=text)
    if row is None:
        raise UsageError(f"run {text} not found", hint="`orch runs` lists the runs of this project")
    return run_row(row)


def newest(tx: Tx, limit: int, *, benches: bool = False) -> tuple[RunRow, ...]:
    """The newest runs, newest first; with `benches` those too."""
    return tuple(run_row(row) for row in tx.all(_NEWEST_OF_ALL if benches else _NEWEST, limit=limit, skip=0))


def run_row(row: Row) -> RunRow:
    id_, number, pipeline, status, parent_id, parent_number, session_id, session, created_at, *rest = row
    graph_digest, file, message, cap, on_exceed, unpriced, author, tags, error, kind, models = rest
    return RunRow(
        id=id_,
        number=number,
        pipeline=pipeline,
        status=status,
        parent_id=parent_id,
        parent_number=parent_number,
        session_id=session_id,
        session=session,
        created_at=from_micros(created_at),
        graph_digest=graph_digest,
        file=file,
        message=message,
        cap_usd=_usd(cap),
        on_exceed=on_exceed,
        unpriced=unpriced,
        author=author,
        tags=tuple(json_text.load(tags)),
        error=json_text.load_error(error),
        kind=kind,
        models=json_text.load(models),
    )


def _usd(pico: int | None) -> Decimal | None:
    return None if pico is None else from_pico(pico)


@dataclass(frozen=True, slots=True)
class Locked:
    """A locked run: `last_event` is the newest number, those of this transaction's events included."""

    last_event: int
    status: str
    owner: str


def lock(tx: Tx, run_id: str, events: int = 0) -> Locked:
    """Take the run's lock and numbers for so many events. Raises UsageError for a run that is not of this scope."""
    row = tx.one(_LOCK, run=run_id, n=events)
    if row is None:
        raise UsageError(f"run {run_id} not found", hint="`orch runs` lists the runs of this project")
    return Locked(*row)


def write_events(
    tx: Tx, run_id: str, locked: Locked, events: Sequence[Event], dispatch: Dispatch | None = None
) -> None:
    """Write the events that `lock` has numbered. They belong to the dispatch's step where they name none."""
    if not events:
        return
    first = locked.last_event - len(events) + 1
    tx.many(_EVENT, [_event(tx, run_id, first + n, event, dispatch) for n, event in enumerate(events)])


def _event(tx: Tx, run_id: str, seq: int, event: Event, dispatch: Dispatch | None) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "seq": seq,
        "at": tx.now,
        "kind": event.kind,
        "step": event.step or (dispatch.step if dispatch else None),
        "item": event.item or (dispatch.item if dispatch else None),
        "attempt": dispatch.number if dispatch else None,
        "data": json_text.dump(event.data),
    }


def append_event(tx: Tx, dispatch: Dispatch, event: Event) -> None:
    """One more event, where a transaction finds out late that there is something to tell."""
    write_events(tx, dispatch.run_id, lock(tx, dispatch.run_id, 1), [event], dispatch)


def events_after(tx: Tx, run_id: str, after: int) -> tuple[EventRow, ...]:
    rows = tx.all(_EVENTS, run=run_id, after=after)
    return tuple(
        EventRow(seq, from_micros(at), kind, step, item, attempt, json_text.load(data))
        for seq, at, kind, step, item, attempt, data in rows
    )


def budget(tx: Tx, run_id: str) -> BudgetRow:
    row = tx.one(_BUDGET, run=run_id)
    if row is None:
        raise UsageError(f"run {run_id} not found", hint="`orch runs` lists the runs of this project")
    return BudgetRow(_usd(row[0]), from_pico(row[1]), from_pico(row[2]))


def set_cap(tx: Tx, run_id: str, cap: Decimal) -> None:
    lock(tx, run_id)
    tx.run(_SET_CAP, run=run_id, cap=to_pico(cap))


def tag(tx: Tx, run_id: str, add: Collection[str], remove: Collection[str]) -> None:
    """Put tags on a run and take others off; they are kept in order of the alphabet."""
    lock(tx, run_id)
    tags = {*json_text.load(tx.all(_TAGS, run=run_id)[0][0]), *add} - {*remove}
    tx.run(_SET_TAGS, run=run_id, tags=json_text.dump(sorted(tags)))


def is_owned(tx: Tx, run_id: str, worker: str) -> bool:
    """Whether the run is still the worker's to go on with: not cancelled, not taken over, not removed."""
    row = tx.one(_STATUS, run=run_id)
    return row == ("running", worker)
