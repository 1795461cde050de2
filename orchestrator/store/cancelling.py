"""A run is stopped by somebody who need not be its owner: in one transaction, against which a commit comes too late.

Every attempt of it that has not ended becomes `cancelled`, so that nobody can claim it, and what its holder still wants
to write is fenced (S01). The owner finds out by that, or by looking; it is not waited for. A step that was under way
begins anew when the run is resumed: half an answer is no answer.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import EXIT_INTERRUPTED, UsageError
from orchestrator.store import json_text, runs
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import ErrorRecord, Event

_OPEN: Final = ("running", "waiting", "paused")
_RUN = Sql("UPDATE run SET status = 'cancelled', owner = '', error = :error WHERE id = :run AND {scope}")
_STEPS = Sql(
    "SELECT s.name, s.item FROM step s JOIN attempt t ON t.id = s.attempt_id WHERE s.run_id = :run"
    " AND t.state IN ('ready', 'running', 'waiting') AND {scope:s} AND {scope:t} ORDER BY s.position, s.name, s.item"
)
_ATTEMPTS = Sql(
    "UPDATE attempt SET state = 'cancelled', ended_at = :now, running_us = running_us"
    " + CASE WHEN state = 'running' AND owner <> '' AND :now > claimed_at THEN :now - claimed_at ELSE 0 END"
    " WHERE state IN ('ready', 'running', 'waiting') AND {scope}"
    " AND id IN (SELECT s.attempt_id FROM step s WHERE s.run_id = :run AND {scope:s})"
)


def cancel(tx: Tx, run_id: str, by: str) -> tuple[str, ...]:
    """The steps that were stopped. Raises UsageError for a run in which nothing is left to stop."""
    locked = runs.lock(tx, run_id, 1)
    run = runs.find(tx, run_id)
    if run.status not in _OPEN:
        ended = {"cancelled": "is cancelled already", "failed": "has failed"}.get(run.status, "has ended")
        raise UsageError(
            f"run {run.number} {ended}: there is nothing to cancel", hint=f"orch show {run.number} shows what it made"
        )
    stopped = tuple(f"{name}/{item}" if item else name for name, item in tx.all(_STEPS, run=run_id))
    error = ErrorRecord("cancelled", f"cancelled by {by}", f"orch resume {run.number} goes on", EXIT_INTERRUPTED)
    tx.run(_ATTEMPTS, run=run_id, now=tx.now)
    tx.run(_RUN, run=run_id, error=json_text.dump_error(error))
    runs.write_events(tx, run_id, locked, [Event("run.cancelled", data={"by": by, "steps": list(stopped)})])
    return stopped
