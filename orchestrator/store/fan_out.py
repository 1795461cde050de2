"""Items of a step in a run: one row for each key of its list, and one count of those that are not done.

The collector, the step's own row, stays running while its items are worked on. Its `unmet` counts them: each item that
ends takes itself off, once (`released`), and the last one dispatches the collector again. So the end of an item costs
one statement more than that of a step, however many there are.

Bringing a list in (`expand`) may be done any number of times. It looks at what is there and does what is missing, so a
resume and a list that was edited are no special cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.ids import uuid7
from orchestrator.store import claims
from orchestrator.store.adoption import AGAIN, GO_ON
from orchestrator.store.claims import Asked, NewAttempt, new_attempts
from orchestrator.store.content import Bodies
from orchestrator.store.creation import STEP
from orchestrator.store.records import Claim, Expanded, NewItem
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Dispatch, Mode

_COLLECTOR = Sql("SELECT id, position FROM step WHERE attempt_id = :attempt AND {scope}")
_ITEMS = Sql(
    "SELECT s.item, s.id, s.entry, s.head_id, s.stale, s.released, a.id, a.state, a.number, a.token, a.owner,"
    " a.manifest IS NOT NULL, a.mode FROM step s LEFT JOIN attempt a ON a.id = s.attempt_id AND {scope:a}"
    " WHERE s.run_id = :run AND s.name = :name AND s.item <> '' AND {scope:s}"
)
_OPEN = Sql("UPDATE step SET unmet = :open WHERE id = :step AND {scope}")
_ITEM = Sql(
    "UPDATE step SET entry = :entry, released = :released, kind = :kind, position = :position"
    " WHERE id = :id AND {scope}"
)
_NEWEST = Sql("UPDATE step SET attempt_id = :attempt WHERE id = :id AND {scope}")
_CANCEL = Sql("UPDATE attempt SET state = 'cancelled', token = token + 1 WHERE id = :attempt AND {scope}")
_RELEASED = Sql("UPDATE step SET released = 1 WHERE id = :step AND released = 0 AND {scope}")
_COUNT_DOWN = Sql(
    "UPDATE step SET unmet = unmet - 1 WHERE run_id = :run AND name = :name AND item = '' AND {scope}"
    " RETURNING unmet, attempt_id"
)
_RAISE = Sql(
    "UPDATE attempt SET token = token + 1 WHERE id = :attempt AND state = 'running' AND {scope} RETURNING number, token"
)


@dataclass(frozen=True, slots=True)
class _Row:
    """An item as it stands."""

    id: str
    entry: str | None
    head_id: str | None
    stale: int
    released: int
    attempt_id: str | None
    state: str | None
    number: int | None
    token: int | None
    owner: str | None
    begun: int
    mode: Mode | None

    def is_done(self, redo: bool, retry: bool) -> bool:
        """Whether it counts as met: it has its value, or has failed and is not tried again."""
        if self.state == "failed" and not redo:
            return not retry
        return self.head_id is not None and self.state in (None, "succeeded", "kept") and not self.stale and not redo


# The states in which an attempt is over, so that more work is a new attempt.
_OVER: Final = frozenset({None, "succeeded", "kept", "skipped", "failed", "cancelled"})


def expand(tx: Tx, claim: Claim, kind: str, items: Sequence[NewItem], retry: bool) -> Expanded:
    """See `Store.expand`. Raises Fenced."""
    claims.claim(tx, claim)
    dispatch = claim.dispatch
    collector, position = tx.all(_COLLECTOR, attempt=dispatch.attempt_id)[0]
    rows = {item: _Row(*rest) for item, *rest in tx.all(_ITEMS, run=dispatch.run_id, name=dispatch.step)}
    work = _Work(tx, dispatch, claim.worker, kind, position)
    entries = work.entries(items)
    for item in items:
        row = rows.pop(item.key, None)
        if row is None:
            work.add(item.key, entries[item.key])
        else:
            work.bring_up_to_date(item, row, entries[item.key], retry)
    for row in rows.values():
        work.retire(row)
    ready = work.write()
    tx.run(_OPEN, step=collector, open=work.open)
    return Expanded(ready, work.open)


class _Work:
    """What one expansion writes, collected so that many rows are few statements."""

    def __init__(self, tx: Tx, dispatch: Dispatch, worker: str, kind: str, position: int) -> None:
        self.tx = tx
        self.dispatch = dispatch
        self.worker = worker
        self.kind = kind
        self.position = position
        self.open = 0
        self.steps: list[dict[str, Any]] = []
        self.changed: list[dict[str, Any]] = []
        self.attempts: list[NewAttempt] = []
        self.newest: list[dict[str, Any]] = []
        self.ready: list[Dispatch] = []

    def entries(self, items: Sequence[NewItem]) -> dict[str, str]:
        """The hash of each entry, its body stored."""
        bodies = Bodies(self.tx)
        found = {item.key: bodies.add(item.entry) for item in items}
        bodies.write()
        return found

    def add(self, key: str, entry: str) -> None:
        step_id, dispatch = uuid7(), self._attempt(key, 1)
        self.attempts.append(NewAttempt(dispatch, step_id))
        self.ready.append(dispatch)
        self.open += 1
        self.steps.append(
            {
                "id": step_id,
                "run_id": self.dispatch.run_id,
                "name": self.dispatch.step,
                "item": key,
                "kind": self.kind,
                "position": self.position,
                "children": "[]",
                "unmet": 0,
                "released": 0,
                "defaulted": 0,
                "last_version": 0,
                "attempt_id": dispatch.attempt_id,
                "basis_id": None,
                "head_id": None,
                "entry": entry,
            }
        )

    def bring_up_to_date(self, item: NewItem, row: _Row, entry: str, retry: bool) -> None:
        done = row.is_done(item.redo, retry)
        self._change(row, entry, int(done))
        if done:
            return
        self.open += 1
        if row.state in _OVER:
            dispatch = self._attempt(item.key, (row.number or 0) + 1)
            self.attempts.append(NewAttempt(dispatch, row.id, asked=Asked(dispatch.mode)))
            self.newest.append({"id": row.id, "attempt": dispatch.attempt_id})
            self.ready.append(dispatch)
        elif row.state != "waiting" and not (row.state == "running" and row.owner == self.worker):
            self.ready.append(self._go_on(item.key, row))

    def retire(self, row: _Row) -> None:
        """An item that the list does not have any more: it keeps its versions, and nobody reads them."""
        if row.entry is not None:
            gone = {"entry": None, "released": 1, "kind": "retired"}
            self.changed.append({"id": row.id, "position": self.position, **gone})
        if row.state not in _OVER:
            self.tx.run(_CANCEL, attempt=row.attempt_id)

    def write(self) -> tuple[Dispatch, ...]:
        """In this order: a row refers to its newest attempt by id alone, an attempt to its row by a foreign key."""
        self.tx.many(STEP, self.steps)
        self.tx.many(_ITEM, self.changed)
        new_attempts(self.tx, self.attempts, None)
        self.tx.many(_NEWEST, self.newest)
        return tuple(self.ready)

    def _change(self, row: _Row, entry: str, released: int) -> None:
        if (row.entry, row.released) != (entry, released):
            about = {"kind": self.kind, "position": self.position}
            self.changed.append({"id": row.id, "entry": entry, "released": released, **about})

    def _attempt(self, key: str, number: int) -> Dispatch:
        """An attempt that begins as its collector was asked to: as usual, or anew in any case."""
        return Dispatch(self.dispatch.run_id, self.dispatch.step, key, uuid7(), number, 1, mode=self.dispatch.mode)

    def _go_on(self, key: str, row: _Row) -> Dispatch:
        """An attempt that a former process has begun, or was about to, under a new token."""
        interrupted, ran = row.state == "running" or bool(row.begun), 0
        if interrupted:
            (ran,) = self.tx.all(GO_ON, id=row.attempt_id, owner=self.worker, now=self.tx.now)[0]
        else:
            self.tx.run(AGAIN, id=row.attempt_id)
        attempt, number, token = str(row.attempt_id), row.number or 1, (row.token or 0) + 1
        step, mode = self.dispatch.step, row.mode or ""
        return Dispatch(self.dispatch.run_id, step, key, attempt, number, token, interrupted, mode, int(ran))


def item_failed(tx: Tx, dispatch: Dispatch, step_id: str) -> tuple[Dispatch, ...]:
    """An item that has failed is done too: what that means for the step, its collector decides when all are."""
    counted = tx.run(_RELEASED, step=step_id)
    return count_down(tx, dispatch.run_id, dispatch.step) if counted else ()


def count_down(tx: Tx, run_id: str, step: str) -> tuple[Dispatch, ...]:
    """One item less to wait for; the collector's dispatch, if it was the last."""
    row = tx.one(_COUNT_DOWN, run=run_id, name=step)
    return () if row is None or row[0] > 0 or row[1] is None else collected(tx, run_id, step, row[1])


def collected(tx: Tx, run_id: str, step: str, attempt_id: str) -> tuple[Dispatch, ...]:
    """The dispatch of a collector that waits for nothing any more; none for an attempt that is not under way."""
    raised = tx.one(_RAISE, attempt=attempt_id)
    return (Dispatch(run_id, step, None, attempt_id, raised[0], raised[1], interrupted=True),) if raised else ()
