"""What a bench takes from a run, and what it may give back: the versions one step was made from, and a new version.

A bench is a run of its own (`kind` "bench") below the run it looks at: it shares that run's versions by reference, has
a budget, attempts, threads and calls like any other, and writes nothing into its parent. Only `promote` does that, when
a person has chosen a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import artifacts, runs
from orchestrator.store.answers import CHANGED_MEANWHILE
from orchestrator.store.commits import named_step
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import ArtifactVersion, Event, NewArtifact

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
_PROMOTED = Sql(
    "UPDATE step SET head_id = :head, basis_id = :basis, last_version = :version, stale = 0"
    " WHERE id = :step AND {scope}"
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

    The version rests on what the sample was made from, so that a run made with another template says so. Raises
    UsageError where the step has another version by now.
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
    version = row.next_version
    artifact_id = artifacts.write(tx, run_id, step, "", version, new, base, sample[1])
    tx.run(_PROMOTED, step=row.id, head=artifact_id, basis=sample[1], version=version)
    runs.write_events(tx, run_id, runs.lock(tx, run_id, 1), [told])
    return artifacts.version_by_id(tx, artifact_id)
