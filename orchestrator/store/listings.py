"""What is read through the table classes: a step's attempts here, one attempt's journal in `journals`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from sqlalchemy import ColumnElement, and_
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from orchestrator.errors import UsageError
from orchestrator.store import json_text
from orchestrator.store import tables as t
from orchestrator.store.records import AttemptRow
from orchestrator.values import Scope

_CHUNK: Final = 500
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
        mode=cast(Any, row.mode),
        round=row.round,
    )
