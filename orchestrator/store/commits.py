"""How an attempt ends: in ONE transaction, decided by compare-and-set.

Everything that follows from the end stands in the same transaction: the version, the new head, the children that may
now run. Between claim and commit somebody may have edited: an input (then the new version is stale at birth and its
readers are not dispatched, S06), or this very artifact (then the two versions are merged, or both are kept, S07).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.errors import UsageError
from orchestrator.store import approvals, artifacts, calls, fan_out, json_text, runs
from orchestrator.store.claims import ORDINARY, Asked, new_attempt, write_reads
from orchestrator.store.merging import New, is_decided, present, versions
from orchestrator.store.records import Claim, Edited, Fenced, Starter
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Again, AttemptState, Commit, CommitResult, Dispatch, DoneCall, ErrorRecord, Event

_END_SET = """
UPDATE attempt SET state = :state, error = :error, ended_at = :now,
    running_us = running_us + CASE WHEN :now > claimed_at THEN :now - claimed_at ELSE 0 END
WHERE id = :attempt AND token = :token AND {scope}
"""
_ENDED = "RETURNING step_id, redo, base_head, mode, round, message_id"
_END = Sql(_END_SET + f"AND state = 'running' AND owner <> '' {_ENDED}")
_UNFINISHED = Sql(_END_SET + f"AND (state = 'ready' OR (state = 'running' AND owner <> '')) {_ENDED}")
SET_STATE = Sql("UPDATE attempt SET state = :state, error = :error WHERE id = :attempt AND {scope}")
_STEP = Sql(
    """
SELECT s.id, s.name, s.item, s.head_id, s.released, s.unmet, s.last_version, s.children, s.draft_id, s.attempt_id,
    s.made_id, s.carried_id, s.pins,
    (SELECT MAX(a.version) FROM artifact a WHERE a.run_id = s.run_id AND a.step = s.name AND a.item = s.item
        AND {scope:a})
FROM step s WHERE {scope:s} AND
"""
    + "s.id = :step"
)
_STEP_BY_NAME = Sql(_STEP.text.replace("s.id = :step", "s.run_id = :run AND s.name = :name AND s.item = :item"))
_NEW_HEAD = Sql(
    "UPDATE step SET head_id = :head, made_id = :made, draft_id = NULL, carried_id = NULL, basis_id = :basis,"
    " last_version = :version, stale = :stale, due = :due, released = :released WHERE id = :step AND {scope}"
)
_NEW_DRAFT = Sql(
    "UPDATE step SET draft_id = :draft, head_id = COALESCE(head_id, carried_id), carried_id = NULL,"
    " last_version = :version WHERE id = :step AND {scope}"
)
_NOTED = Sql(
    "UPDATE attempt SET manifest = :manifest, inputs_hash = :inputs_hash, base_head = :base"
    " WHERE id = :attempt AND {scope}"
)
_KEPT = Sql("UPDATE step SET stale = 0, due = 0, released = 1 WHERE id = :step AND {scope}")
_SKIPPED = Sql(
    "UPDATE step SET head_id = NULL, stale = 0, due = 0, released = 1, basis_id = :attempt,"
    " carried_id = CASE WHEN head_id <> COALESCE(made_id, '') OR pins <> '{}' THEN head_id ELSE carried_id END"
    " WHERE id = :step AND {scope}"
)
_RELEASE = Sql(
    "UPDATE step SET unmet = unmet - 1 WHERE run_id = :run AND name = :name AND item = '' AND {scope}"
    " RETURNING id, item, unmet, due, attempt_id, head_id"
)
ATTEMPT = Sql("SELECT state, number, token, redo, mode, round, message_id FROM attempt WHERE id = :attempt AND {scope}")
_COLLECTS = Sql("SELECT 1 FROM step WHERE id = :step AND kind = 'map' AND item = '' AND {scope}")
_RAISE = Sql("UPDATE attempt SET token = token + 1 WHERE id = :attempt AND {scope}")


@dataclass(frozen=True, slots=True)
class _Ended:
    """An attempt that this transaction has ended."""

    step_id: str
    redo: int
    base_head: str | None
    asked: Asked


def _end(tx: Tx, dispatch: Dispatch, state: AttemptState, error: ErrorRecord | None = None, sql: Sql = _END) -> _Ended:
    """Raises Fenced unless the dispatch still has the right to its attempt."""
    row = tx.one(
        sql,
        attempt=dispatch.attempt_id,
        token=dispatch.token,
        state=state,
        error=json_text.dump_error(error),
        now=tx.now,
    )
    if row is None:
        raise Fenced(f"{dispatch.step}: attempt {dispatch.number} was taken over or has ended")
    step_id, redo, base_head, *asked = row
    return _Ended(step_id, redo, base_head, Asked(*asked))


@dataclass(frozen=True, slots=True)
class Step:
    """A step's row as a commit needs it."""

    id: str
    name: str
    item: str
    head_id: str | None
    released: int
    unmet: int
    last_version: int
    children: str
    draft_id: str | None
    attempt_id: str | None
    made_id: str | None
    carried_id: str | None
    pins: str
    newest: int | None

    @property
    def next_version(self) -> int:
        """One after the last, also where a version was added past this counter."""
        return max(self.last_version, self.newest or 0) + 1

    @property
    def standing(self) -> str | None:
        """The version that what is made now is held against: the head, or the one carried over from the parent run."""
        return self.head_id or self.carried_id


def _step(tx: Tx, step_id: str) -> Step:
    return Step(*tx.all(_STEP, step=step_id)[0])


def named_step(tx: Tx, run_id: str, step: str, item: str | None) -> Step:
    """Raises UsageError for a step or input that the run does not have."""
    row = tx.one(_STEP_BY_NAME, run=run_id, name=step, item=item or "")
    if row is None:
        raise UsageError(f"{step} not found in this run", hint="`orch show RUN` lists the steps of a run")
    return Step(*row)


def commit(tx: Tx, commit: Commit, starter: Starter | None) -> CommitResult:
    """The end of a step, whichever of the outcomes it has, and the beginning of what follows. Raises Fenced, and Edited
    where the version has to be merged with a person's first."""
    dispatch = commit.dispatch
    locked = runs.lock(tx, dispatch.run_id, len(commit.events))
    refused = commit.again.error if commit.again is not None else None
    ended = _end(tx, dispatch, "succeeded" if refused is None else "failed", refused)
    if commit.done is not None:
        calls.write_done(tx, dispatch, commit.done)
    runs.write_events(tx, dispatch.run_id, locked, commit.events, dispatch)
    step = _step(tx, ended.step_id)
    base = ended.base_head if commit.shown_head else step.made_id
    if not is_decided(commit, step, ended.base_head, base):
        raise Edited(present(tx, step, base))
    if commit.merge is not None and commit.merge.error is not None:
        return _conflict(tx, commit, step, commit.merge.error)
    new = versions(tx, commit, step)
    moved = artifacts.moved(tx, dispatch.run_id, dispatch.attempt_id)
    if commit.again is not None:
        return _not_good_yet(tx, dispatch, step, new, ended, commit.again, moved)
    starter = starter if locked.status == "running" else None
    ready = accept(
        tx,
        dispatch,
        step,
        new.head,
        new.last,
        moved,
        commit.children,
        ended.redo if commit.on_moved == "redo" else 1,
        ended.asked,
        starter,
        made=new.made,
        stands=commit.on_moved == "keep",
    )
    return CommitResult("moved" if moved else "committed", new.version, new.head, ready, moved)


def _not_good_yet(
    tx: Tx,
    dispatch: Dispatch,
    step: Step,
    new: New,
    ended: _Ended,
    again: Again,
    moved: tuple[str, ...],
) -> CommitResult:
    """A visit of a loop that another one follows, in the same transaction; or the last, whose version stays."""
    tx.run(
        _NEW_HEAD,
        step=step.id,
        head=new.head,
        made=new.made,
        basis=dispatch.attempt_id,
        version=max(new.last, step.last_version),
        stale=int(bool(moved) and again.error is not None),
        due=0,
        released=step.released,
    )
    if again.error is not None:
        ready = fan_out.item_failed(tx, dispatch, step.id) if step.item else ()
        return CommitResult("exhausted", new.version, new.head, ready)
    asked = Asked("repeat", again.round, ended.asked.message_id)
    number = dispatch.number + 1
    next_one = new_attempt(tx, dispatch.run_id, step.id, step.name, step.item, number, redo=ended.redo, asked=asked)
    return CommitResult("again", new.version, new.head, (next_one,))


def _conflict(tx: Tx, commit: Commit, step: Step, error: ErrorRecord) -> CommitResult:
    """What a person has put there and what was made cannot both stand: theirs does, ours waits beside it (S07)."""
    dispatch, version = commit.dispatch, step.next_version
    base = commit.merge.base if commit.merge is not None else None
    draft = artifacts.write(
        tx, dispatch.run_id, step.name, step.item, version, commit.artifact, base, dispatch.attempt_id, draft=True
    )
    tx.run(_NEW_DRAFT, step=step.id, draft=draft, version=version)
    tx.run(SET_STATE, attempt=dispatch.attempt_id, state="waiting", error=json_text.dump_error(error))
    runs.append_event(tx, dispatch, Event("step.waiting", data={"code": error.code, "message": error.message}))
    return CommitResult("conflict", version, draft)


def accept(
    tx: Tx,
    dispatch: Dispatch,
    step: Step,
    head: str,
    version: int,
    moved: tuple[str, ...],
    children: Sequence[str],
    redo: int,
    asked: Asked = ORDINARY,
    starter: Starter | None = None,
    *,
    made: str | None = None,
    stands: bool = False,
) -> tuple[Dispatch, ...]:
    """Make a version the head, and dispatch what follows from that: the children, or once more this step itself.

    `made` is what the step itself made, where the head is a merge of that with a person's version. Where a parent is
    being made again meanwhile (or a gate asks again), the version is current and the step not done: it is looked at
    once more when that is. With `stands`, it is done although what it read has moved.
    """
    if step.head_id is not None and step.head_id != head:
        approvals.expire(tx, dispatch.run_id, step.name, step.item, head)
    if moved and stands:
        _tell_moved(tx, dispatch, moved, stands=True)
        moved = ()
    done = not moved and not step.unmet
    tx.run(
        _NEW_HEAD,
        step=step.id,
        head=head,
        made=made or head,
        basis=dispatch.attempt_id,
        version=max(version, step.last_version),
        stale=int(bool(moved)),
        due=int(step.unmet > 0),
        released=int(step.released or done),
    )
    if not moved and step.item:
        return () if step.released else fan_out.count_down(tx, dispatch.run_id, step.name)
    if not moved:
        return () if step.released or not done else _release(tx, dispatch.run_id, children, starter)
    _tell_moved(tx, dispatch, moved, redo=redo == 0)
    if redo:
        return ()
    number, starter = dispatch.number + 1, None if step.unmet else starter
    again = new_attempt(
        tx, dispatch.run_id, step.id, step.name, step.item, number, redo=1, asked=asked, starter=starter
    )
    return () if step.unmet else (again,)


def _tell_moved(tx: Tx, dispatch: Dispatch, moved: Sequence[str], *, redo: bool = False, stands: bool = False) -> None:
    told = {"inputs": list(moved), "redo": redo, "stands": stands}
    runs.append_event(tx, dispatch, Event("step.moved", data=told))


def _release(tx: Tx, run_id: str, children: Sequence[str], starter: Starter | None) -> tuple[Dispatch, ...]:
    """Count this parent as met in each child, once, and dispatch those that wait for nothing else."""
    ready: list[Dispatch] = []
    for name in children:
        for step_id, item, unmet, due, attempt_id, head_id in tx.all(_RELEASE, run=run_id, name=name):
            found = unmet == 0 and _start(tx, run_id, step_id, name, item, attempt_id, head_id, due, starter)
            if found:
                ready.append(found)
    return tuple(ready)


def _start(
    tx: Tx,
    run_id: str,
    step_id: str,
    name: str,
    item: str,
    attempt_id: str | None,
    head_id: str | None,
    due: int,
    starter: Starter | None,
) -> Dispatch | None:
    """A dispatch for a step whose parents are all met, if it has work to do. One that is done and due says itself
    whether anything has changed for it."""
    if attempt_id is None:
        return None if head_id and not due else new_attempt(tx, run_id, step_id, name, item, 1, starter=starter)
    state, number, token, _, *rest = tx.all(ATTEMPT, attempt=attempt_id)[0]
    asked = Asked(*rest)
    if state == "ready":
        tx.run(_RAISE, attempt=attempt_id)
        return Dispatch(run_id, name, item or None, attempt_id, number, token + 1, mode=asked.mode)
    if state in ("failed", "cancelled"):
        return new_attempt(tx, run_id, step_id, name, item, number + 1, asked=asked, starter=starter)
    if state == "running" and tx.one(_COLLECTS, step=step_id):
        return next(iter(fan_out.collected(tx, run_id, name, attempt_id)), None)  # its items ended while it was held
    if due and state in ("succeeded", "kept", "skipped"):
        return new_attempt(tx, run_id, step_id, name, item, number + 1, starter=starter)
    return None


def end(
    tx: Tx,
    dispatch: Dispatch,
    state: Literal["failed", "waiting"],
    error: ErrorRecord,
    done: DoneCall | None,
    events: Sequence[Event],
) -> tuple[Dispatch, ...]:
    """An attempt ends without a version: `failed`, or `waiting` for a person; also one that never began because its
    first call was refused. What its collector may do then, where it is the last item to end. Raises Fenced."""
    locked = runs.lock(tx, dispatch.run_id, len(events))
    ended = _end(tx, dispatch, state, error, _UNFINISHED)
    if done is not None:
        calls.write_done(tx, dispatch, done)
    runs.write_events(tx, dispatch.run_id, locked, events, dispatch)
    failed_item = dispatch.item is not None and state == "failed"
    return fan_out.item_failed(tx, dispatch, ended.step_id) if failed_item else ()


def cancel(tx: Tx, dispatch: Dispatch) -> None:
    runs.lock(tx, dispatch.run_id)
    _end(tx, dispatch, "cancelled", sql=_UNFINISHED)


def restart(tx: Tx, dispatch: Dispatch, reason: str) -> Dispatch:
    """Give up an attempt whose inputs are no longer what it was made from, for a new one. Raises Fenced."""
    locked = runs.lock(tx, dispatch.run_id, 1)
    ended = _end(tx, dispatch, "cancelled", ErrorRecord("restarted", reason), _UNFINISHED)
    runs.write_events(tx, dispatch.run_id, locked, [Event("step.restarted", data={"reason": reason})], dispatch)
    step = _step(tx, ended.step_id)
    number = dispatch.number + 1
    return new_attempt(tx, dispatch.run_id, step.id, step.name, step.item, number, redo=ended.redo, asked=ended.asked)


def pass_by(tx: Tx, claim: Claim, state: Literal["kept", "skipped"], starter: Starter | None) -> tuple[Dispatch, ...]:
    """An attempt ends with nothing made: what the step rests on did not change (`kept`), or its `when` is false
    (`skipped`: it has no version then). What waits for it goes on. Raises Fenced."""
    locked = runs.lock(tx, claim.dispatch.run_id, len(claim.events))
    if locked.status != "running":
        raise Fenced(f"{claim.dispatch.step}: this dispatch is late")
    return pass_locked(tx, locked, claim, state, starter)


def pass_locked(
    tx: Tx, locked: runs.Locked, claim: Claim, state: Literal["kept", "skipped"], starter: Starter | None = None
) -> tuple[Dispatch, ...]:
    """The same, in a transaction that holds the run's lock."""
    dispatch = claim.dispatch
    why = next((str(event.data["reason"]) for event in claim.events if state == "skipped"), None)
    ended = _end(tx, dispatch, state, ErrorRecord("skipped", why, None, 0) if why else None, _UNFINISHED)
    tx.run(
        _NOTED,
        attempt=dispatch.attempt_id,
        manifest=json_text.dump_manifest(claim.manifest),
        inputs_hash=claim.manifest.inputs_hash,
        base=claim.base_head,
    )
    write_reads(tx, claim)
    runs.write_events(tx, dispatch.run_id, locked, claim.events, dispatch)
    step = _step(tx, ended.step_id)
    tx.run(_KEPT if state == "kept" else _SKIPPED, step=step.id, attempt=dispatch.attempt_id)
    if step.item:
        return () if step.released else fan_out.count_down(tx, dispatch.run_id, step.name)
    return () if step.released else _release(tx, dispatch.run_id, json_text.load(step.children), starter)
