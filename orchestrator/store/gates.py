"""Gates: how one begins to wait, how it is answered, and how an approval expires.

An answer is for exactly what the person saw. It carries the digest of all that the gate showed, and is taken in one
transaction that compares it with what stands now (S08): an edit that is a moment quicker makes it void. It is for one
asking: each time a gate asks it is a new attempt, whose id is in the digest, so an answer that is given twice is
refused the second time (A10). Nothing is held while a gate waits; what an answer makes ready, the run's owner picks up.

An approval is of bytes. When what it was for changes, the gate is shut again: what waits for it and has not begun waits
on, and a gate that finds the approved bytes back in their place opens without asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import claims, json_text, messages, runs, tool_approvals, waves
from orchestrator.store.artifacts import COLUMNS, version_row, write
from orchestrator.store.columns import from_micros
from orchestrator.store.commits import Step, accept, named_step
from orchestrator.store.records import Answer, Answered, Claim, Redo, Shown, WaitingRow, shown_digest
from orchestrator.store.redo import redo
from orchestrator.store.snapshots import reading
from orchestrator.store.sql import Row, Sql, Tx
from orchestrator.values import ArtifactVersion, AttemptState, Dispatch, ErrorRecord, Event

NOT_WAITING: Final = "not_waiting"
SHOWN_CHANGED: Final = "shown_changed"
TOO_EARLY: Final = "too_early"
SHORTEST_DIGEST: Final = 12

_WAIT = Sql("UPDATE attempt SET state = 'waiting', owner = '', error = :error WHERE id = :attempt AND {scope}")
_ASKED = Sql(
    "SELECT a.state, a.number, a.token, a.started_at, a.error, a.decision, s.unmet, s.kind FROM step s"
    " LEFT JOIN attempt a ON a.id = s.attempt_id AND {scope:a} WHERE s.id = :step AND {scope:s}"
)
_HEADS = Sql(
    "SELECT s.item, s.head_id, a.content, a.field_hashes FROM step s"
    " LEFT JOIN artifact a ON a.id = s.head_id AND {scope:a}"
    " WHERE s.run_id = :run AND s.name = :name AND {scope:s} ORDER BY s.item"
)
_REJECTED = Sql(
    "SELECT COUNT(*) FROM attempt a WHERE a.step_id = :step AND a.decision = 'reject' AND {scope:a}"
    " AND a.number > COALESCE((SELECT MAX(b.number) FROM attempt b WHERE b.step_id = :step"
    " AND b.decision = 'approve' AND {scope:b}), 0)"
)
_DECIDED = Sql(
    "UPDATE attempt SET decision = :decision, manifest = :manifest, inputs_hash = :inputs_hash"
    " WHERE id = :attempt AND {scope}"
)
_ENDED = Sql("UPDATE attempt SET state = :state, error = :error, ended_at = :now WHERE id = :attempt AND {scope}")
_SESSION = Sql("SELECT session_id FROM run WHERE id = :run AND {scope}")
_REJECTED_HEAD = Sql(
    "UPDATE step SET head_id = :head, basis_id = :basis, last_version = :version, stale = 0, released = 0"
    " WHERE id = :step AND {scope}"
)
_STOP = Sql("UPDATE run SET status = 'cancelled', error = :error WHERE id = :run AND {scope}")
_FAIL = Sql("UPDATE run SET status = 'failed', error = :error WHERE id = :run AND owner = '' AND {scope}")
_ASK_ON = Sql(
    "UPDATE attempt SET state = 'waiting', error = :error, claimed_token = token, started_at = :now, claimed_at = :now"
    " WHERE id = :attempt AND {scope}"
)


WAITING = Sql(
    "SELECT r.id, r.number, r.pipeline, s.name, s.item, s.kind, a.started_at, a.error, a.id"
    # Joined so, SQLite begins with the few attempts that wait, by their index, and not with all runs there are.
    " FROM attempt a CROSS JOIN step s CROSS JOIN run r"
    " WHERE a.state = 'waiting' AND s.id = a.step_id AND s.attempt_id = a.id AND r.id = s.run_id AND s.unmet = 0"
    " AND {scope:a} AND {scope:s} AND {scope:r}"
    " ORDER BY r.number, s.position, s.item"
)
_SHOWN_BY = Sql("SELECT DISTINCT name FROM read WHERE attempt_id = :attempt AND {scope} ORDER BY name")
_VERSIONS = Sql(
    f"SELECT {COLUMNS} FROM step s JOIN artifact a ON a.id = s.head_id"
    " WHERE s.run_id = :run AND s.name = :name AND {scope:s} AND {scope:a} ORDER BY s.item"
)


def ask(tx: Tx, claim: Claim, error: ErrorRecord) -> None:
    """Begin a gate's attempt, and let it wait for a person. Raises Fenced where the dispatch is late."""
    claims.claim(tx, claim)
    tx.run(_WAIT, attempt=claim.dispatch.attempt_id, error=json_text.dump_error(error))


def shown(tx: Tx, run_id: str, gate: str, item: str | None, names: Sequence[str]) -> Shown:
    """The gate as it waits now, with the bodies of what it shows. Raises UsageError for one that does not wait."""
    step = named_step(tx, run_id, gate, item)
    number, _, since, error = _waiting(tx, step)
    seen = reading(tx, run_id, gate, item, names)
    items = {f"{name}/{key}": one for name, found in seen.items.items() for key, one in found.items()}
    return Shown(
        gate=gate,
        item=item,
        attempt_id=str(step.attempt_id),
        number=number,
        since=from_micros(since),
        heads={**seen.artifacts, **items},
        rejected=_rejections(tx, step),
        error=json_text.load_error(error),
    )


def waiting(tx: Tx) -> tuple[WaitingRow, ...]:
    """All that waits for a person, over all runs, by number and order of the steps; no bodies."""
    return tuple(_waiting_row(tx, row) for row in tx.all(WAITING))


def _waiting_row(tx: Tx, row: Row) -> WaitingRow:
    run_id, number, pipeline, step, item, kind, since, error, attempt_id = row
    said = json_text.load_error(error) or ErrorRecord("waiting", f"{step} waits")
    names = tx.all(_SHOWN_BY, attempt=attempt_id) if kind == "gate" else []
    shows: dict[str, ArtifactVersion] = {}
    for head in (version_row(head) for (name,) in names for head in tx.all(_VERSIONS, run=run_id, name=name)):
        if head.item is None or head.item in shows[head.step].field_hashes:  # an index comes ahead of its items
            shows[f"{head.step}/{head.item}" if head.item else head.step] = head
    asked = next((one for one in tool_approvals.asked(tx, run_id) if one.attempt_id == attempt_id), None)
    return WaitingRow(
        run_id=run_id,
        number=number,
        pipeline=pipeline,
        step=step,
        item=item or None,
        kind=kind,
        since=from_micros(since),
        code=said.code,
        message=said.message,
        hint=said.hint,
        shows=shows,
        digest=shown_digest(attempt_id, {name: head.sha256 for name, head in shows.items()})
        if names
        else asked.digest
        if asked
        else "",
        calls=asked.calls if asked else (),
    )


def _waiting(tx: Tx, step: Step) -> tuple[int, int, int, str | None]:
    """Number, token, begin and reason of the attempt that waits. Raises UsageError where there is nothing to answer."""
    state, number, token, since, error, decision, unmet, kind = tx.all(_ASKED, step=step.id)[0]
    if kind != "gate":
        raise UsageError(f"{step.name} is no gate", hint="`orch inbox` lists what waits for a person", code=NOT_WAITING)
    if state != "waiting":
        what = f"has been answered: {decision}" if decision else "does not ask anything yet"
        raise UsageError(f"{step.name} {what}", hint="`orch inbox` lists what waits for a person", code=NOT_WAITING)
    if unmet:
        hint = "`orch show RUN` shows how far it is; the gate then asks about the new version"
        raise UsageError(f"what {step.name} shows is being made again", hint=hint, code=NOT_WAITING)
    return number, token, since, error


def _rejections(tx: Tx, step: Step) -> int:
    return int(tx.all(_REJECTED, step=step.id)[0][0])


def decide(tx: Tx, run_id: str, gate: str, item: str | None, answer: Answer) -> Answered:
    """Take an answer. Raises UsageError where the gate does not wait, or shows something else than was answered for."""
    locked = runs.lock(tx, run_id, 1)
    step = named_step(tx, run_id, gate, item)
    number, token, since, _ = _waiting(tx, step)
    if tx.now - since < answer.waited_us:
        raise UsageError(f"{gate} has not waited long enough", code=TOO_EARLY)
    _compare(tx, run_id, step, answer)
    dispatch = Dispatch(run_id, gate, item, str(step.attempt_id), number, token)
    rejected = _rejections(tx, step)
    again = answer.redo if answer.decision == "reject" and answer.redo and rejected < answer.redo.max_rounds else None
    _record(tx, dispatch, answer, again, locked)
    version = step.next_version
    head = write(tx, run_id, step.name, step.item, version, answer.artifact, step.head_id, step.attempt_id)
    if answer.decision == "approve" or (answer.decision == "reject" and not again and answer.then == "go_on"):
        _end(tx, dispatch, "succeeded", None)
        ready = accept(tx, dispatch, step, head, version, (), json_text.load(step.children), 0)
        return Answered(version, ready, opened=True)
    tx.run(_REJECTED_HEAD, step=step.id, head=head, basis=step.attempt_id, version=version)
    if answer.decision == "stop":
        _stop(tx, dispatch, answer)
        return Answered(version, ended=True)
    if again is not None:
        return Answered(version, _make_again(tx, dispatch, answer, again, rejected + 1), again.step)
    _stay_shut(tx, dispatch, step, answer, rejected)
    return Answered(version, ended=answer.then == "fail")


def _compare(tx: Tx, run_id: str, step: Step, answer: Answer) -> None:
    """Raises UsageError unless the answer is for what stands now: these bytes, and these very versions."""
    heads: dict[str, str] = {}
    ids: dict[tuple[str, str], str | None] = {}
    for name in dict.fromkeys(read.name for read in answer.reads):
        index: frozenset[str] = frozenset()
        for item, head, content, fields in tx.all(_HEADS, run=run_id, name=name):
            index = index if item or fields is None else frozenset(json_text.load(fields))
            if head is not None and (not item or item in index):
                ids[name, item] = head
                heads[f"{name}/{item}" if item else name] = content
    same = all(ids.get((read.name, read.item or "")) == read.artifact_id for read in answer.reads)
    digest = shown_digest(str(step.attempt_id), heads)
    if not (same and len(answer.digest) >= SHORTEST_DIGEST and digest.startswith(answer.digest)):
        raise UsageError(
            f"what {step.name} shows changed meanwhile; nothing was decided",
            hint="look at what stands now, and answer for that",
            code=SHOWN_CHANGED,
        )


def _record(tx: Tx, dispatch: Dispatch, answer: Answer, again: Redo | None, locked: runs.Locked) -> None:
    """What was decided, and for what: the gate's manifest and reads are those of this moment."""
    tx.run(
        _DECIDED,
        attempt=dispatch.attempt_id,
        decision=answer.decision,
        manifest=json_text.dump_manifest(answer.manifest),
        inputs_hash=answer.manifest.inputs_hash,
    )
    claims.write_reads(tx, Claim(replace(dispatch, interrupted=True), "", answer.manifest, answer.reads))
    data = {
        "decision": answer.decision,
        "by": answer.by,
        "shows": {read.name: read.version for read in answer.reads},
        "redo": again.step if again else None,
    }
    runs.write_events(tx, dispatch.run_id, locked, [Event("gate.answered", data=data)], dispatch)
    if answer.comment and again is None:
        session = tx.all(_SESSION, run=dispatch.run_id)[0][0]
        level = answer.artifact.sensitivity
        messages.add(
            tx, session, "user", answer.comment, answer.by, kind="comment", run_id=dispatch.run_id, step=dispatch.step,
            sensitivity=level,
        )  # fmt: skip


def _end(tx: Tx, dispatch: Dispatch, state: AttemptState, error: ErrorRecord | None) -> None:
    tx.run(_ENDED, attempt=dispatch.attempt_id, state=state, error=json_text.dump_error(error), now=tx.now)


def _make_again(tx: Tx, dispatch: Dispatch, answer: Answer, again: Redo, visit: int) -> tuple[Dispatch, ...]:
    """The step that was not good enough gets another attempt; all below it, this gate included, waits for that."""
    _end(tx, dispatch, "succeeded", None)
    ready = redo(
        tx, dispatch.run_id, again.step, again.item, again.mode, answer.comment or None, answer.by, round=visit
    )
    return (ready,) if waves.begin(tx, dispatch.run_id, again.step) else ()


def _stay_shut(tx: Tx, dispatch: Dispatch, step: Step, answer: Answer, rejected: int) -> None:
    """Nothing is made again (any more): the step fails, or the gate goes on asking, so that a person may edit what it
    shows, or change their mind."""
    words = f": {answer.comment}" if answer.comment else ""
    rounds = f" after {rejected} {'round' if rejected == 1 else 'rounds'}" if rejected else ""
    message = f"{dispatch.step} was rejected by {answer.by}{rounds}{words}"
    error = ErrorRecord("rejected", message, "edit what it shows and approve it, or stop the run", 4)
    if answer.then == "fail":
        error = replace(error, hint="`orch resume` asks again", exit_code=1)
        _end(tx, dispatch, "failed", error)
        tx.run(_FAIL, run=dispatch.run_id, error=json_text.dump_error(error))
        return
    _end(tx, dispatch, "succeeded", None)
    number = dispatch.number + 1
    asked = claims.new_attempt(tx, dispatch.run_id, step.id, step.name, step.item, number)
    claims.write_reads(tx, Claim(replace(asked, interrupted=True), "", answer.manifest, answer.reads))
    tx.run(_ASK_ON, attempt=asked.attempt_id, error=json_text.dump_error(error), now=tx.now)


def _stop(tx: Tx, dispatch: Dispatch, answer: Answer) -> None:
    """The run ends here: nothing of it begins any more, what is under way is kept."""
    words = f": {answer.comment}" if answer.comment else ""
    error = ErrorRecord("stopped", f"stopped at {dispatch.step} by {answer.by}{words}", "`orch resume` asks again", 1)
    _end(tx, dispatch, "cancelled", error)
    tx.run(_STOP, run=dispatch.run_id, error=json_text.dump_error(error))
