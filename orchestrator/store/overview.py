"""A run's steps at a glance: each with its state, its versions and its sums over all attempts; no bodies.

Every run ends with this look at itself and every resume begins with it, so it is fixed SQL: to have the same joins put
together through the table classes takes a tenth of a second, each time a process does so first.

Sums over calls are made by one grouped query, so that nothing has to be kept in step while a run is hot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, cast

from orchestrator.store import json_text, runs
from orchestrator.store.artifacts import COLUMN_COUNT, COLUMNS, version_row
from orchestrator.store.columns import from_pico
from orchestrator.store.sql import Row, Sql, Tx
from orchestrator.values import StepRow, StepState, StepStatus, Usage

_OWN: Final = 17  # columns ahead of the head's
_DRAFT: Final = COLUMNS.replace("a.", "d.")
_ORDER: Final = "CASE WHEN s.kind = 'input' THEN 0 ELSE 1 END, s.position, s.name, s.item"
_STEPS = Sql(
    "SELECT s.id, s.name, s.item, s.kind, s.position, s.stale, s.defaulted, s.pins, s.entry, t.id, t.state, t.number,"
    " t.error,"
    f" b.manifest, b.inputs_hash, CASE WHEN m.id <> b.id THEN m.manifest END, b.decision, {COLUMNS}, {_DRAFT}"
    " FROM step s"
    " LEFT JOIN attempt t ON t.id = s.attempt_id AND {scope:t}"
    " LEFT JOIN attempt b ON b.id = COALESCE(s.basis_id, s.attempt_id) AND {scope:b}"
    " LEFT JOIN artifact a ON a.id = s.head_id AND {scope:a}"
    " LEFT JOIN attempt m ON m.id = a.attempt_id AND {scope:m}"
    " LEFT JOIN artifact d ON d.id = s.draft_id AND {scope:d}"
    f" WHERE s.run_id = :run AND {{scope:s}} ORDER BY {_ORDER}"
)
_ITEMS = Sql(_STEPS.text.replace("WHERE s.run_id = :run", "WHERE s.run_id = :run AND s.name = :name AND s.item <> ''"))
_STATES = Sql(
    "SELECT s.id, s.name, s.item, s.kind, s.stale, CASE WHEN s.kind = 'input' THEN s.id ELSE s.head_id END, t.state,"
    " t.error FROM step s"
    " LEFT JOIN attempt t ON t.id = s.attempt_id AND {scope:t}"
    f" WHERE s.run_id = :run AND {{scope:s}} ORDER BY {_ORDER}"
)
_TIMES = Sql(
    "SELECT t.step_id, SUM(t.running_us) FROM attempt t JOIN step s ON s.id = t.step_id"
    " WHERE s.run_id = :run AND {scope:s} AND {scope:t} GROUP BY t.step_id"
)
_CALLS = Sql(
    "SELECT t.step_id, COUNT(*), SUM(CASE WHEN c.source = 'REASK' THEN 1 ELSE 0 END),"
    " SUM(CASE WHEN c.cost_usd IS NULL OR c.lost_usd > 0 THEN 1 ELSE 0 END),"
    " SUM(c.cost_usd), SUM(c.input_tokens), SUM(c.cached_tokens),"
    " SUM(c.cache_write_tokens), SUM(c.output_tokens), SUM(c.reasoning_tokens)"
    " FROM step s JOIN attempt t ON t.step_id = s.id JOIN thread h ON h.attempt_id = t.id"
    " JOIN call c ON c.thread_id = h.id"
    " WHERE s.run_id = :run AND {scope:s} AND {scope:t} AND {scope:h} AND {scope:c} GROUP BY t.step_id"
)


def steps(tx: Tx, run_id: str) -> tuple[StepRow, ...]:
    """Inputs, then steps, in order. Raises UsageError for a run that is not of this scope."""
    rows = tx.all(_STEPS, run=run_id)
    if not rows:
        runs.find(tx, run_id)
    sums = _sums(tx, run_id)
    return tuple(_step_row(row, sums.get(row[0], _NOTHING)) for row in rows)


def items(tx: Tx, run_id: str, name: str) -> tuple[StepRow, ...]:
    """The items of one step by key, retired ones too, without their sums."""
    return tuple(_step_row(row, _NOTHING) for row in tx.all(_ITEMS, run=run_id, name=name))


def states(tx: Tx, run_id: str) -> tuple[StepState, ...]:
    """What each input and step has come to, in order."""
    sums = _sums(tx, run_id)
    return tuple(
        StepState(
            name=name,
            item=item or None,
            kind=kind,
            status=status(state, head),
            error=json_text.load_error(error),
            stale=bool(stale),
            cost_usd=sums.get(step_id, _NOTHING).cost_usd,
            cost_partial=sums.get(step_id, _NOTHING).unpriced > 0,
        )
        for step_id, name, item, kind, stale, head, state, error in tx.all(_STATES, run=run_id)
    )


def status(state: str | None, head: str | None) -> StepStatus:
    """What people see of a step: its newest attempt's state, where a version that was kept is one that stands."""
    if state is None:
        return "succeeded" if head else "pending"
    return "succeeded" if state == "kept" else cast(StepStatus, state)


def _step_row(row: Row, sums: _Sums) -> StepRow:
    _, name, item, kind, position, stale, defaulted, pins, entry, attempt_id, *rest = row[:_OWN]
    state, number, error, basis, inputs_hash, made, decision = rest
    head, draft = row[_OWN : _OWN + COLUMN_COUNT], row[_OWN + COLUMN_COUNT :]
    accepted = tuple(json_text.load_manifest(one) for one in (basis, made) if one)
    return StepRow(
        name=name,
        item=item or None,
        kind=kind,
        order=position,
        status="succeeded" if kind == "input" else status(state, head[0]),
        attempt=number or 0,
        attempt_id=attempt_id,
        head=version_row(head) if head[0] else None,
        draft=version_row(draft) if draft[0] else None,
        inputs_hash=inputs_hash,
        manifest=accepted[0] if basis else None,
        calls=sums.calls,
        reasks=sums.reasks,
        usage=sums.usage,
        cost_usd=sums.cost_usd,
        cost_partial=sums.unpriced > 0,
        seconds=sums.seconds,
        error=json_text.load_error(error),
        stale=bool(stale),
        defaulted=bool(defaulted),
        accepted=accepted,
        pins=json_text.load(pins),
        entry=entry,
        decision=decision or "",
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """What a step has cost so far, over all its attempts, failed ones too. `unpriced` counts calls of which not all
    of the cost is known: they have no price, or a try before the last may have been billed."""

    calls: int = 0
    reasks: int = 0
    unpriced: int = 0
    cost_usd: Decimal | None = Decimal(0)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0


_NOTHING: Final = _Sums()


def _sums(tx: Tx, run_id: str) -> Mapping[str, _Sums]:
    seconds = {step_id: int(micros) / 1e6 for step_id, micros in tx.all(_TIMES, run=run_id)}
    found = {step_id: _Sums(seconds=value) for step_id, value in seconds.items()}
    for step_id, calls, reasks, unpriced, cost, *tokens in tx.all(_CALLS, run=run_id):
        usage = Usage(*(int(count or 0) for count in tokens))
        usd = None if cost is None else from_pico(int(cost))
        found[step_id] = _Sums(calls, int(reasks), int(unpriced), usd, usage, seconds.get(step_id, 0.0))
    return found
