"""The end of runs: which ones need which, and the removal of one with all that is only its own.

A run needs another where a row of it refers to one of the other: a fork its parent, a shared version the run it was
made in, a version the attempt behind it. What is needed is never removed: the look for it and the removal are one
transaction, and behind it every foreign key restricts. Texts stay: `garbage` removes what nothing refers to any more.

What was said in a session belongs to the session. It goes with the last run of a session that nothing else was said in.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import json_text, runs, workers
from orchestrator.store.records import RunBusy, RunMark
from orchestrator.store.sql import Sql, Tx

_MARKS = Sql(
    "SELECT r.id, r.number, r.pipeline, r.status, r.tags, r.kind FROM run r WHERE {scope:r} ORDER BY r.number DESC"
)
_OF_ATTEMPT: Final = "JOIN attempt t ON t.id = {attempt} JOIN step s ON s.id = t.step_id"
_OTHER: Final = "JOIN attempt u ON u.id = {attempt} JOIN step o ON o.id = u.step_id"
_ATTEMPT: Final = "{scope:t} AND {scope:s}"
_OTHERS: Final = "{scope:u} AND {scope:o}"
# (the run that needs, the run that is needed): one line for each kind of reference that can lead to another run.
_PAIRS: Final = (
    "SELECT r.id, r.parent_id FROM run r WHERE r.parent_id IS NOT NULL AND {scope:r}",
    *(
        f"SELECT s.run_id, a.run_id FROM step s JOIN artifact a ON a.id = s.{column} WHERE {{scope:s}} AND {{scope:a}}"
        for column in ("head_id", "draft_id")
    ),
    f"SELECT s.run_id, o.run_id FROM step s {_OTHER.format(attempt='s.basis_id')} WHERE {{scope:s}} AND {_OTHERS}",
    "SELECT a.run_id, b.run_id FROM artifact a JOIN artifact b ON b.id = a.parent_id WHERE {scope:a} AND {scope:b}",
    f"SELECT a.run_id, o.run_id FROM artifact a {_OTHER.format(attempt='a.attempt_id')}"
    f" WHERE {{scope:a}} AND {_OTHERS}",
    f"SELECT s.run_id, a.run_id FROM read d {_OF_ATTEMPT.format(attempt='d.attempt_id')}"
    f" JOIN artifact a ON a.id = d.artifact_id WHERE {{scope:d}} AND {_ATTEMPT} AND {{scope:a}}",
    f"SELECT s.run_id, a.run_id FROM block d JOIN thread h ON h.id = d.thread_id"
    f" {_OF_ATTEMPT.format(attempt='h.attempt_id')} JOIN artifact a ON a.id = d.artifact_id"
    f" WHERE {{scope:d}} AND {{scope:h}} AND {_ATTEMPT} AND {{scope:a}}",
    f"SELECT s.run_id, o.run_id FROM thread h {_OF_ATTEMPT.format(attempt='h.attempt_id')}"
    f" JOIN thread c ON c.id = h.continues {_OTHER.format(attempt='c.attempt_id')}"
    f" WHERE {{scope:h}} AND {_ATTEMPT} AND {{scope:c}} AND {_OTHERS}",
    "SELECT s.run_id, m.run_id FROM attempt t JOIN step s ON s.id = t.step_id JOIN message m ON m.id = t.message_id"
    f" WHERE m.run_id IS NOT NULL AND {_ATTEMPT} AND {{scope:m}}",
)
_NEEDS: Final = tuple(Sql(pair) for pair in _PAIRS)

_STEPS: Final = "(SELECT s.id FROM step s WHERE s.run_id = :run AND {scope:s})"
_ATTEMPTS: Final = (
    "(SELECT t.id FROM attempt t JOIN step s ON s.id = t.step_id WHERE s.run_id = :run AND {scope:t} AND {scope:s})"
)
_THREADS: Final = (
    "(SELECT h.id FROM thread h JOIN attempt t ON t.id = h.attempt_id JOIN step s ON s.id = t.step_id"
    " WHERE s.run_id = :run AND {scope:h} AND {scope:t} AND {scope:s})"
)
_CALLS: Final = (
    "(SELECT c.id FROM call c JOIN thread h ON h.id = c.thread_id JOIN attempt t ON t.id = h.attempt_id"
    " JOIN step s ON s.id = t.step_id WHERE s.run_id = :run AND {scope:c} AND {scope:h} AND {scope:t} AND {scope:s})"
)
# From the leaves to the root. References inside a table are let go first: a row may stand before the one it refers to.
_REMOVE: Final = tuple(
    Sql(statement)
    for statement in (
        "UPDATE step SET head_id = NULL, draft_id = NULL, attempt_id = NULL WHERE run_id = :run AND {scope}",
        f"DELETE FROM tool_call WHERE call_id IN {_CALLS} AND {{scope}}",
        f"DELETE FROM call WHERE thread_id IN {_THREADS} AND {{scope}}",
        f"DELETE FROM block WHERE thread_id IN {_THREADS} AND {{scope}}",
        f"UPDATE thread SET continues = NULL WHERE attempt_id IN {_ATTEMPTS} AND {{scope}}",
        f"DELETE FROM thread WHERE attempt_id IN {_ATTEMPTS} AND {{scope}}",
        f"DELETE FROM read WHERE attempt_id IN {_ATTEMPTS} AND {{scope}}",
        f"DELETE FROM effect WHERE attempt_id IN {_ATTEMPTS} AND {{scope}}",
        f"DELETE FROM attempt WHERE step_id IN {_STEPS} AND {{scope}}",
        "UPDATE artifact SET parent_id = NULL WHERE run_id = :run AND {scope}",
        "DELETE FROM artifact WHERE run_id = :run AND {scope}",
        "DELETE FROM step WHERE run_id = :run AND {scope}",
        "DELETE FROM event WHERE run_id = :run AND {scope}",
        "DELETE FROM budget WHERE run_id = :run AND {scope}",
    )
)
_OTHER_RUNS = Sql("SELECT COUNT(*) FROM run WHERE session_id = :session AND id <> :run AND {scope}")
_OWN_MESSAGES = Sql("DELETE FROM message WHERE run_id = :run AND {scope}")
_LEAVE_MESSAGES = Sql("UPDATE message SET run_id = NULL, kind = 'turn' WHERE run_id = :run AND {scope}")
_MESSAGES = Sql("SELECT COUNT(*) FROM message WHERE session_id = :session AND {scope}")
_RUN = Sql("DELETE FROM run WHERE id = :run AND {scope}")
_SESSION = Sql("DELETE FROM session WHERE id = :session AND {scope}")


def marks(tx: Tx) -> tuple[RunMark, ...]:
    """All runs, newest first, as far as it takes to say which of them may go."""
    return tuple(
        RunMark(run_id, number, pipeline, status, tuple(json_text.load(tags)), kind)
        for run_id, number, pipeline, status, tags, kind in tx.all(_MARKS)
    )


def needs(tx: Tx) -> dict[str, frozenset[str]]:
    """For each run that needs others: which."""
    found: dict[str, set[str]] = {}
    for sql in _NEEDS:
        for run, needed in tx.all(sql):
            if run != needed:
                found.setdefault(run, set()).add(needed)
    return {run: frozenset(others) for run, others in found.items()}


def remove(tx: Tx, run_id: str) -> None:
    """Raises UsageError where another run needs it, RunBusy where a process works on it."""
    locked = runs.lock(tx, run_id)
    run = runs.find(tx, run_id)
    process = workers.living(tx, locked.owner) if locked.owner else None
    if process is not None:
        raise RunBusy(
            f"run {run.number} is being worked on by process {process.pid} on {process.host}",
            hint=f"orch runs cancel {run.number} stops it",
        )
    by = sorted(one for one, others in needs(tx).items() if run_id in others)
    if by:
        raise UsageError(
            f"run {run.number} is needed by run {', '.join(str(runs.find(tx, one).number) for one in by)}",
            hint="remove that one too: --with-children",
            code="run_needed",
        )
    for sql in _REMOVE:
        tx.run(sql, run=run_id)
    alone = not tx.all(_OTHER_RUNS, session=run.session_id, run=run_id)[0][0]
    tx.run(_OWN_MESSAGES if alone else _LEAVE_MESSAGES, run=run_id)
    tx.run(_RUN, run=run_id)
    if alone and not tx.all(_MESSAGES, session=run.session_id)[0][0]:
        tx.run(_SESSION, session=run.session_id)
