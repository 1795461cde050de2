"""What has been approved, and until when: an approval is of bytes, and ends when they change.

Then its gate is shut again. What waits for it and has not begun waits on, also where a process has it in its hands
already; what is under way ends, and is looked at again once the gate is open. Where the run is live the gate asks at
once. Finding the approved bytes back in their place, it opens without asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.store import json_text, runs
from orchestrator.store.artifacts import same
from orchestrator.store.claims import new_attempt
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Event

_RESTING_ON: Final = (
    " FROM step s JOIN attempt b ON b.id = s.basis_id JOIN read r ON r.attempt_id = b.id"
    " WHERE s.run_id = :run AND s.kind = 'gate' AND {scope:s} AND {scope:b} AND {scope:r}"
)
_ANSWERED = Sql(
    "SELECT s.id, s.name, s.item, s.children, s.unmet, s.attempt_id, r.artifact_id"
    f"{_RESTING_ON} AND s.released = 1 AND r.name = :name AND r.item = :item"
)
_APPROVED = Sql(
    f"SELECT r.name, r.item, r.artifact_id{_RESTING_ON}"
    " AND s.released = 1 AND b.decision = 'approve' AND s.name = :gate"
)
_READ = Sql("SELECT name, item, artifact_id FROM read WHERE attempt_id = :attempt AND {scope}")
_CONTENT = Sql("SELECT content FROM artifact WHERE id = :id AND {scope}")
_NUMBER = Sql("SELECT number FROM attempt WHERE id = :id AND {scope}")
_SHUT = Sql("UPDATE step SET due = 1, released = 0 WHERE id = :step AND {scope}")
_WAIT = Sql("UPDATE step SET unmet = unmet + 1 WHERE run_id = :run AND name = :name AND {scope}")
_HOLD_BACK = Sql(
    "UPDATE attempt SET token = token + 1 WHERE state = 'ready' AND {scope} AND id IN"
    " (SELECT s.attempt_id FROM step s WHERE s.run_id = :run AND s.name = :name AND {scope:s})"
)


def approved(tx: Tx, run_id: str, gates: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """For each of these gates that is open by an approval, the hashes of what was approved, by name."""
    found: dict[str, dict[str, str]] = {}
    for gate in gates:
        rows = tx.all(_APPROVED, run=run_id, gate=gate)
        found[gate] = {
            f"{name}/{item}" if item else name: tx.all(_CONTENT, id=artifact)[0][0]
            for name, item, artifact in rows
            if artifact is not None
        }
    return found


def holds(tx: Tx, basis: str | None, heads: Mapping[tuple[str, str], str | None]) -> bool:
    """Whether an answered attempt was for these very values: then a child run may share the answer (S15)."""
    read = tx.all(_READ, attempt=basis) if basis is not None else []
    return bool(read) and all(
        was == heads.get((name, item)) or same(tx, None, was, heads.get((name, item))) for name, item, was in read
    )


def expire(tx: Tx, run_id: str, name: str, item: str, head: str) -> None:
    """A version became the current one: shut the gates that were answered for another. The run is locked already."""
    for gate, gate_name, gate_item, children, unmet, attempt, artifact in tx.all(
        _ANSWERED, run=run_id, name=name, item=item
    ):
        if artifact is not None and same(tx, None, artifact, head):
            continue
        tx.run(_SHUT, step=gate)
        for child in json_text.load(children):
            tx.run(_WAIT, run=run_id, name=child)
            hold_back(tx, run_id, child)
        locked = runs.lock(tx, run_id, 1)
        event = Event("gate.expired", gate_name, gate_item or None, {"changed": name})
        runs.write_events(tx, run_id, locked, [event])
        if locked.status == "running" and not unmet:
            number = tx.all(_NUMBER, id=attempt)[0][0] if attempt else 0
            new_attempt(tx, run_id, gate, gate_name, gate_item, number + 1)


def hold_back(tx: Tx, run_id: str, name: str) -> None:
    """Take back the right to begin what is ready and has not begun; it is given anew when its parents are done."""
    tx.run(_HOLD_BACK, run=run_id, name=name)
