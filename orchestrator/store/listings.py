"""What people look at: a run's steps with their sums, and a step's attempts. Read through the table classes.

Listings load no bodies. Sums over calls are made by one grouped query, so that nothing has to be kept in step while a
run is hot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

from sqlalchemy import ColumnElement, and_, case, func
from sqlalchemy import select as select_columns
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from orchestrator.errors import UsageError
from orchestrator.store import json_text
from orchestrator.store import tables as t
from orchestrator.store.records import AttemptRow
from orchestrator.values import (
    ArtifactVersion,
    Scope,
    StepRow,
    Usage,
)

_CHUNK: Final = 500
_columns: Final[Any] = select_columns  # typed for classes; a mix of classes and columns is beyond its overloads
_Row = TypeVar("_Row", bound=t.Scoped)


@dataclass(frozen=True, slots=True)
class Reading:
    """A read transaction in a scope; `rows` is the only way to a table, and it never leaves the scope."""

    session: Session
    scope: Scope

    def of(self, table: type[Any]) -> ColumnElement[bool]:
        """The predicate that keeps a table, or an alias of one, inside the scope."""
        return and_(
            table.tenant == self.scope.tenant,
            table.account == self.scope.account,
            table.subject == self.scope.subject,
        )

    def rows(self, table: type[_Row]) -> SelectOfScalar[_Row]:
        return select(table).where(self.of(table))

    def bodies(self, hashes: Iterable[str]) -> Mapping[str, bytes]:
        wanted, found = sorted(set(hashes)), dict[str, bytes]()
        for start in range(0, len(wanted), _CHUNK):
            some = col(t.Content.sha256).in_(wanted[start : start + _CHUNK])
            query = select(t.Content.sha256, t.Content.body).where(self.of(t.Content), some)
            found.update(self.session.exec(query).all())  # a result has keys(), which update would take for a mapping
        return found


def steps(reading: Reading, run_id: str) -> tuple[StepRow, ...]:
    """Inputs, then steps, in order. Raises UsageError for a run that is not of this scope."""
    head, draft, basis = aliased(t.Artifact), aliased(t.Artifact), aliased(t.Attempt)
    query = (
        _columns(t.Step, t.Attempt, head, draft, basis.manifest, basis.inputs_hash)
        .join(t.Attempt, col(t.Attempt.id) == t.Step.attempt_id, isouter=True)
        .join(head, col(head.id) == t.Step.head_id, isouter=True)
        .join(draft, col(draft.id) == t.Step.draft_id, isouter=True)
        .join(basis, col(basis.id) == func.coalesce(t.Step.basis_id, t.Step.attempt_id), isouter=True)
        .where(reading.of(t.Step), t.Step.run_id == run_id)
        .order_by(case((col(t.Step.kind) == "input", 0), else_=1), col(t.Step.position), col(t.Step.name), t.Step.item)
    )
    rows = reading.session.exec(cast(Any, query)).all()
    if not rows and reading.session.exec(reading.rows(t.Run).where(t.Run.id == run_id)).first() is None:
        raise UsageError(f"run {run_id} not found", hint="`orch runs` lists the runs of this project")
    sums = _sums(reading, run_id)
    return tuple(_step_row(*row, sums=sums.get(row[0].id, _NOTHING)) for row in rows)


def _step_row(
    step: t.Step,
    attempt: t.Attempt | None,
    head: t.Artifact | None,
    draft: t.Artifact | None,
    manifest: str | None,
    inputs_hash: str | None,
    *,
    sums: _Sums,
) -> StepRow:
    status = attempt.state if attempt else "succeeded" if head else "pending"
    return StepRow(
        name=step.name,
        item=step.item or None,
        kind=cast(Any, step.kind),
        order=step.position,
        status=cast(Any, status),
        attempt=attempt.number if attempt else 0,
        attempt_id=attempt.id if attempt else None,
        head=version(head) if head else None,
        draft=version(draft) if draft else None,
        inputs_hash=inputs_hash,
        manifest=json_text.load_manifest(manifest) if manifest else None,
        calls=sums.calls,
        reasks=sums.reasks,
        usage=sums.usage,
        cost_usd=sums.cost_usd,
        cost_partial=sums.unpriced > 0,
        seconds=sums.seconds,
        error=json_text.load_error(attempt.error) if attempt else None,
        stale=bool(step.stale),
        defaulted=bool(step.defaulted),
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """What a step has cost so far, over all its attempts, failed ones too. `unpriced` counts calls of unknown cost."""

    calls: int = 0
    reasks: int = 0
    unpriced: int = 0
    cost_usd: Decimal | None = Decimal(0)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0


_NOTHING: Final = _Sums()
_USAGE: Final = (
    t.Call.input_tokens,
    t.Call.cached_tokens,
    t.Call.cache_write_tokens,
    t.Call.output_tokens,
    t.Call.reasoning_tokens,
)


def _sums(reading: Reading, run_id: str) -> Mapping[str, _Sums]:
    time = (
        select(t.Attempt.step_id, func.sum(t.Attempt.running_us))
        .join(t.Step, col(t.Step.id) == t.Attempt.step_id)
        .where(reading.of(t.Attempt), t.Step.run_id == run_id)
    )
    seconds = {
        step_id: int(micros) / 1e6 for step_id, micros in reading.session.exec(time.group_by(t.Attempt.step_id)).all()
    }
    money = (
        _columns(
            t.Attempt.step_id,
            func.count(col(t.Call.id)),
            func.sum(case((col(t.Call.source) == "REASK", 1), else_=0)),
            func.sum(case((col(t.Call.cost_usd).is_(None), 1), else_=0)),
            func.sum(col(t.Call.cost_usd)),
            *[func.sum(column) for column in _USAGE],
        )
        .join(t.Thread, col(t.Thread.id) == t.Call.thread_id)
        .join(t.Attempt, col(t.Attempt.id) == t.Thread.attempt_id)
        .join(t.Step, col(t.Step.id) == t.Attempt.step_id)
        .where(reading.of(t.Call), t.Step.run_id == run_id)
    )
    found = {step_id: _Sums(seconds=value) for step_id, value in seconds.items()}
    for step_id, calls, reasks, unpriced, cost, *usage in reading.session.exec(money.group_by(t.Attempt.step_id)).all():
        tokens = Usage(*(int(count or 0) for count in usage))
        found[step_id] = _Sums(calls, int(reasks), int(unpriced), cost, tokens, seconds.get(step_id, 0.0))
    return found


def version(row: t.Artifact) -> ArtifactVersion:
    return ArtifactVersion(
        id=row.id,
        run_id=row.run_id,
        step=row.step,
        item=row.item or None,
        contract=row.type,
        version=row.version,
        sha256=row.content,
        size=row.size,
        author=row.author,
        origin=cast(Any, row.origin),
        created_at=row.created_at,
        parent_id=row.parent_id,
        sensitivity=cast(Any, row.sensitivity),
        field_hashes=json_text.load(row.field_hashes),
        facts=json_text.load_facts(row.facts),
        guards=tuple(json_text.load(row.guards)),
        draft=bool(row.draft),
    )


def attempts(reading: Reading, run_id: str, step: str, item: str | None) -> tuple[AttemptRow, ...]:
    """All attempts of a step, oldest first. Raises UsageError for a step that the run does not have."""
    wanted = reading.rows(t.Step).where(t.Step.run_id == run_id, t.Step.name == step, t.Step.item == (item or ""))
    found = reading.session.exec(wanted).first()
    if found is None:
        raise UsageError(f"{step} not found in this run", hint="`orch show RUN` lists the steps of a run")
    rows = reading.rows(t.Attempt).where(t.Attempt.step_id == found.id).order_by(col(t.Attempt.number))
    return tuple(attempt_row(row) for row in reading.session.exec(rows))


def attempt_row(row: t.Attempt) -> AttemptRow:
    return AttemptRow(
        id=row.id,
        number=row.number,
        token=row.token,
        state=cast(Any, row.state),
        owner=row.owner or None,
        inputs_hash=row.inputs_hash,
        redo=row.redo,
        error=json_text.load_error(row.error),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
