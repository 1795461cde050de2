"""How an attempt begins: a ready one becomes running for exactly one holder of its newest token (S01).

What it was made from and what it read are written in the same transaction, and so is a model step's first request: a
step that is running is one whose inputs are on record.

A step that sends nothing may begin in the transaction that makes it ready: nothing can come between the two, the disk
is waited for once, and what it reads has just been written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.store import calls, json_text, runs
from orchestrator.store.records import Claim, Fenced, Starter
from orchestrator.store.runs import Locked
from orchestrator.store.snapshots import reading
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Dispatch, Manifest

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
_READ = insert("read", "attempt_id name artifact_id version fields hash")


def recorded(tx: Tx, attempt_id: str) -> Manifest | None:
    """What an attempt was made from; None for one that was never claimed."""
    row = tx.one(_MANIFEST, attempt=attempt_id)
    return json_text.load_manifest(row[0]) if row and row[0] else None


def claim(tx: Tx, claim: Claim) -> None:
    """Raises Fenced where the dispatch is late, BudgetExceeded where the first call would pass the cap."""
    _claim(tx, claim, runs.lock(tx, claim.dispatch.run_id, len(claim.events)))


def _claim(tx: Tx, claim: Claim, locked: Locked) -> None:
    dispatch = claim.dispatch
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
    _write_reads(tx, claim)
    runs.write_events(tx, dispatch.run_id, locked, claim.events, dispatch)
    if claim.thread is not None:
        calls.write_thread(tx, dispatch, claim.thread, row[0])
    if claim.sent is not None:
        calls.write_sent(tx, dispatch, claim.sent, claim.thread)


def begin(tx: Tx, locked: Locked, ready: Sequence[Dispatch], starter: Starter | None) -> tuple[Dispatch, ...]:
    """Claim at once those of a locked run's new dispatches that may begin so."""
    if starter is None or not ready or locked.status != "running":
        return tuple(ready)
    return tuple(_begun(tx, locked, dispatch, starter) for dispatch in ready)


def _begun(tx: Tx, locked: Locked, dispatch: Dispatch, starter: Starter) -> Dispatch:
    reads = starter.reads(dispatch.step)
    if reads is None:
        return dispatch
    snapshot = reading(tx, dispatch.run_id, dispatch.step, dispatch.item, reads)
    _claim(tx, starter.claim(dispatch, snapshot), locked)
    return replace(dispatch, snapshot=snapshot)


def _write_reads(tx: Tx, claim: Claim) -> None:
    """The read vector. An interrupted attempt goes on with what it would read now: equal values, maybe newer rows."""
    attempt = claim.dispatch.attempt_id
    if claim.dispatch.interrupted:
        tx.run(_FORGET_READS, attempt=attempt)
    rows = [
        {
            "attempt_id": attempt,
            "name": read.name,
            "artifact_id": read.artifact_id,
            "version": read.version,
            "fields": None if read.fields is None else json_text.dump(read.fields),
            "hash": read.hash,
        }
        for read in claim.reads
    ]
    tx.many(_READ, rows)
