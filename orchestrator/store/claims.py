"""How an attempt begins: a ready one becomes running for exactly one holder of its newest token (S01).

What it was made from and what it read are written in the same transaction, and so is a model step's first request: a
step that is running is one whose inputs are on record.

A step that sends nothing may begin in the transaction that makes it ready: its attempt is running from the start.
Nothing can come between the two, the disk is waited for once, and what it reads has just been written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.ids import uuid7
from orchestrator.store import calls, json_text, runs
from orchestrator.store.records import Claim, Fenced, Starter
from orchestrator.store.snapshots import reading
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Dispatch, Manifest, Mode

_CLAIM = Sql(
    """
UPDATE attempt SET state = 'running', owner = :worker, claimed_token = token, claimed_at = :now,
    started_at = COALESCE(started_at, :now), inputs_hash = COALESCE(inputs_hash, :inputs_hash),
    base_head = CASE WHEN manifest IS NULL THEN :base ELSE base_head END, manifest = COALESCE(manifest, :manifest)
WHERE id = :attempt AND token = :token AND claimed_token < :token
    AND (state = 'ready' OR (state = 'running' AND owner = :worker)) AND {scope} RETURNING manifest
"""
)
_MANIFEST = Sql("SELECT manifest FROM attempt WHERE id = :attempt AND {scope}")
_FORGET_READS = Sql("DELETE FROM read WHERE attempt_id = :attempt AND {scope}")
_NEW = insert(
    "attempt",
    "id step_id number token claimed_token state owner redo mode round message_id started_at claimed_at"
    " inputs_hash base_head manifest",
)
_NEWEST = Sql("UPDATE step SET attempt_id = :attempt WHERE id = :step AND {scope}")
_READ = insert("read", "attempt_id name item artifact_id version fields hash")


def recorded(tx: Tx, attempt_id: str) -> Manifest | None:
    """What an attempt was made from; None for one that was never claimed."""
    row = tx.one(_MANIFEST, attempt=attempt_id)
    return json_text.load_manifest(row[0]) if row and row[0] else None


def claim(tx: Tx, claim: Claim) -> None:
    """Raises Fenced where the dispatch is late, BudgetExceeded where the first call would pass the cap."""
    dispatch = claim.dispatch
    locked = runs.lock(tx, dispatch.run_id, len(claim.events))
    row = locked.status == "running" and tx.one(
        _CLAIM,
        attempt=dispatch.attempt_id,
        token=dispatch.token,
        worker=claim.worker,
        now=tx.now,
        manifest=json_text.dump_manifest(claim.manifest),
        inputs_hash=claim.manifest.inputs_hash,
        base=claim.base_head,
    )
    if not row:
        raise Fenced(f"{dispatch.step}: this dispatch is late")
    write_reads(tx, claim)
    runs.write_events(tx, dispatch.run_id, locked, claim.events, dispatch)
    if claim.thread is not None:
        calls.write_thread(tx, dispatch, claim.thread, row[0])
    if claim.sent is not None:
        calls.write_sent(tx, dispatch, claim.sent, claim.thread)


@dataclass(frozen=True, slots=True)
class Asked:
    """How an attempt begins, and on whose word: see `tables.Attempt`. One that is made because the one before it was
    stopped, or failed, is asked for the same."""

    mode: Mode = ""
    round: int = 0
    message_id: str | None = None


ORDINARY: Final = Asked()


def new_attempt(
    tx: Tx,
    run_id: str,
    step_id: str,
    name: str,
    item: str,
    number: int,
    *,
    redo: int = 0,
    asked: Asked = ORDINARY,
    starter: Starter | None = None,
) -> Dispatch:
    """An attempt of the step, now its newest, with the right (token 1) to claim it; or claimed, if the starter will."""
    dispatch = Dispatch(run_id, name, item or None, uuid7(), number, 1, mode=asked.mode)
    (dispatch,) = new_attempts(tx, [NewAttempt(dispatch, step_id, redo, asked)], starter)
    tx.run(_NEWEST, attempt=dispatch.attempt_id, step=step_id)
    return dispatch


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt that is to be; `redo` as in AttemptRow."""

    dispatch: Dispatch
    step_id: str
    redo: int = 0
    asked: Asked = ORDINARY


def new_attempts(tx: Tx, new: Sequence[NewAttempt], starter: Starter | None) -> tuple[Dispatch, ...]:
    """The rows of new attempts, written together: ready, or running from the start where the starter begins them."""
    begun = [_begun(tx, one.dispatch, one.redo, starter) for one in new]
    tx.many(_NEW, [_row(tx, one, claim) for one, (_, claim) in zip(new, begun, strict=True)])
    tx.many(_READ, [read for _, claim in begun if claim for read in _reads(claim)])
    return tuple(dispatch for dispatch, _ in begun)


def _begun(tx: Tx, dispatch: Dispatch, redo: int, starter: Starter | None) -> tuple[Dispatch, Claim | None]:
    reads = starter.reads(dispatch.step) if starter else None
    if starter is None or reads is None:
        return dispatch, None
    seen = reading(tx, dispatch.run_id, dispatch.step, dispatch.item, reads)
    if seen.head is not None and not redo:  # whether there is anything to do is for the step to say
        return dispatch, None
    return replace(dispatch, snapshot=seen), starter.claim(dispatch, seen)


def _row(tx: Tx, new: NewAttempt, claim: Claim | None) -> dict[str, Any]:
    return {
        "id": new.dispatch.attempt_id,
        "step_id": new.step_id,
        "number": new.dispatch.number,
        "token": new.dispatch.token,
        "claimed_token": new.dispatch.token if claim else 0,
        "state": "running" if claim else "ready",
        "owner": claim.worker if claim else "",
        "redo": new.redo,
        "mode": new.asked.mode,
        "round": new.asked.round,
        "message_id": new.asked.message_id,
        "started_at": tx.now if claim else None,
        "claimed_at": tx.now if claim else None,
        "inputs_hash": claim.manifest.inputs_hash if claim else None,
        "base_head": claim.base_head if claim else None,
        "manifest": json_text.dump_manifest(claim.manifest) if claim else None,
    }


def write_reads(tx: Tx, claim: Claim) -> None:
    """The read vector. An interrupted attempt goes on with what it would read now: equal values, maybe newer rows."""
    if claim.dispatch.interrupted:
        tx.run(_FORGET_READS, attempt=claim.dispatch.attempt_id)
    tx.many(_READ, _reads(claim))


def _reads(claim: Claim) -> list[dict[str, Any]]:
    return [
        {
            "attempt_id": claim.dispatch.attempt_id,
            "name": read.name,
            "item": read.item or "",
            "artifact_id": read.artifact_id,
            "version": read.version,
            "fields": None if read.fields is None else json_text.dump(read.fields),
            "hash": read.hash,
        }
        for read in claim.reads
    ]
