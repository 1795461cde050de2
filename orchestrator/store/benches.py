"""What a bench takes from a run, and what it may give back: the versions one step was made from, and a new version.

A bench is a run of its own (`kind` "bench") below the run it looks at: it shares that run's versions by reference, has
a budget, attempts, threads and calls like any other, and writes nothing into its parent. Only `promote` does that, when
a person has chosen a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import artifacts, json_text, runs
from orchestrator.store.answers import CHANGED_MEANWHILE
from orchestrator.store.claims import new_attempt, recorded
from orchestrator.store.commits import ATTEMPT, named_step, pass_locked
from orchestrator.store.records import Claim
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import ArtifactVersion, Event, Manifest, NewArtifact, ReadRecord

_MADE_FROM = Sql(
    "SELECT COALESCE(s.basis_id, s.attempt_id) FROM step s"
    " WHERE s.run_id = :run AND s.name = :name AND s.item = '' AND {scope:s}"
)
_READ: Final = Sql(
    "SELECT r.name, r.artifact_id FROM read r WHERE r.attempt_id = :attempt AND r.item = '' AND {scope:r}"
)
_CONVERSATION = Sql(
    "SELECT b.source FROM block b JOIN thread h ON h.id = b.thread_id"
    " WHERE h.attempt_id = :attempt AND b.layer = 'conversation' AND {scope:b} AND {scope:h}"
)
_THREADS = Sql("SELECT COUNT(*) FROM thread WHERE attempt_id = :attempt AND {scope}")
_SAMPLE = Sql(
    "SELECT a.id, a.attempt_id FROM step s JOIN artifact a ON a.id = s.head_id"
    " WHERE s.run_id = :bench AND s.name = :name AND s.item = :item AND {scope:s} AND {scope:a}"
)
_VECTOR = Sql(
    "SELECT r.name, r.artifact_id, r.version, r.fields, r.hash FROM read r"
    " WHERE r.attempt_id = :attempt AND r.item = '' AND {scope:r}"
)
_PROMOTED = Sql(
    "UPDATE step SET head_id = :head, basis_id = :basis, last_version = :version WHERE id = :step AND {scope}"
)


@dataclass(frozen=True, slots=True)
class MadeFrom:
    """What a step's current version rests on: the ids of the versions that were read, by name (None = its default), and
    the conversation lines that were sent with it, as the trace names them (None = nothing was sent yet)."""

    reads: dict[str, str | None]
    conversation: tuple[str, ...] | None


def made_from(tx: Tx, run_id: str, step: str) -> MadeFrom:
    """The read vector of the attempt a step's version rests on; empty where it has not run yet.

    Raises UsageError for a step that the run does not have.
    """
    row = tx.one(_MADE_FROM, run=run_id, name=step)
    if row is None:
        raise UsageError(f"{step} not found in this run", hint="`orch show RUN` lists the steps of a run")
    (attempt,) = row
    if attempt is None:
        return MadeFrom({}, None)
    lines = tuple(source for (source,) in tx.all(_CONVERSATION, attempt=attempt))
    begun = tx.all(_THREADS, attempt=attempt)[0][0]
    return MadeFrom(dict(tx.all(_READ, attempt=attempt)), lines if begun else None)


def promote(
    tx: Tx, run_id: str, step: str, base: str, bench: str, item: str, new: NewArtifact, told: Event
) -> ArtifactVersion:
    """A sample as the step's new version, on top of the one it was compared with; equal bytes make none.

    It gets an attempt of the run's own, with what the sample was made from: so the run needs nothing of the bench, and
    says of a version that was made with another template just that. Raises UsageError where the step has another
    version by now, or is under way.
    """
    runs.lock(tx, run_id)
    row = named_step(tx, run_id, step, None)
    sample = tx.one(_SAMPLE, bench=bench, name=step, item=item)
    if sample is None:
        raise UsageError(f"{step}/{item} has no version", hint="`orch bench BENCH` shows the samples of a bench")
    if row.head_id != base:
        raise UsageError(
            f"{step} changed since this bench: it has another version by now; nothing was written",
            hint=f"look at it with `orch history`, and bench that: orch bench RUN/{step}",
            code=CHANGED_MEANWHILE,
        )
    head = artifacts.version_by_id(tx, base)
    if artifacts.version_by_id(tx, sample[0]).sha256 == head.sha256:
        return head
    state, number = tx.all(ATTEMPT, attempt=row.attempt_id)[0][:2] if row.attempt_id else ("succeeded", 0)
    if state in ("ready", "running", "waiting"):
        raise UsageError(f"{step} is {state}", hint="`orch show RUN` shows what it waits for")
    attempt = new_attempt(tx, run_id, row.id, step, "", number + 1)
    reads = [
        ReadRecord(name, artifact, version, json_text.names(fields), value)
        for name, artifact, version, fields, value in tx.all(_VECTOR, attempt=sample[1])
    ]
    manifest = recorded(tx, sample[1]) or Manifest(())
    pass_locked(tx, runs.lock(tx, run_id, 1), Claim(attempt, "", manifest, tuple(reads), base, events=(told,)), "kept")
    version = row.next_version
    artifact_id = artifacts.write(tx, run_id, step, "", version, new, base, attempt.attempt_id)
    tx.run(_PROMOTED, step=row.id, head=artifact_id, basis=attempt.attempt_id, version=version)
    return artifacts.version_by_id(tx, artifact_id)
