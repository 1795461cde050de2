"""Runs as a list: which there are, by status, tag and pipeline, what each has cost and what of it waits. No bodies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from orchestrator.store import runs
from orchestrator.store.columns import from_pico
from orchestrator.store.records import RunGlance
from orchestrator.store.sql import Sql, Tx

_FOUND = Sql(
    runs.RUN
    + "(:benches = 1 OR r.kind = 'run') AND (:status = '' OR r.status = :status)"
    + " AND (:pipeline = '' OR r.pipeline = :pipeline)"
    + " AND (:tag = '' OR r.tags LIKE :tag ESCAPE '!') ORDER BY r.number DESC LIMIT :limit"
)
_BETWEEN: Final = "r.number BETWEEN :first AND :last AND {scope:r}"
_COSTS = Sql(
    "SELECT s.run_id, SUM(CASE WHEN c.cost_usd IS NULL THEN 1 ELSE 0 END), SUM(c.cost_usd)"
    " FROM run r JOIN step s ON s.run_id = r.id JOIN attempt t ON t.step_id = s.id JOIN thread h ON h.attempt_id = t.id"
    f" JOIN call c ON c.thread_id = h.id WHERE {_BETWEEN} AND {{scope:s}} AND {{scope:t}} AND {{scope:h}}"
    " AND {scope:c} GROUP BY s.run_id"
)
_WAITING = Sql(
    "SELECT s.run_id, s.name, s.item FROM run r JOIN step s ON s.run_id = r.id JOIN attempt t ON t.id = s.attempt_id"
    f" WHERE t.state = 'waiting' AND {_BETWEEN} AND {{scope:s}} AND {{scope:t}} ORDER BY s.position, s.name, s.item"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a list is of; empty = whatever it is. With `benches` those too."""

    status: str = ""
    pipeline: str = ""
    tag: str = ""
    limit: int = 50
    benches: bool = False


def glances(tx: Tx, wanted: Wanted) -> tuple[RunGlance, ...]:
    """The newest that fit, newest first."""
    tag = f'%"{_escaped(wanted.tag)}"%' if wanted.tag else ""
    told = {"status": wanted.status, "pipeline": wanted.pipeline, "tag": tag, "benches": int(wanted.benches)}
    rows = tx.all(_FOUND, **told, limit=wanted.limit)
    found = [runs.run_row(row) for row in rows]
    if not found:
        return ()
    first, last = found[-1].number, found[0].number
    costs = {run: (int(unpriced), cost) for run, unpriced, cost in tx.all(_COSTS, first=first, last=last)}
    waiting = _waiting(tx, first, last)
    glances = []
    for run in found:
        unpriced, cost = costs.get(run.id, (0, 0))
        usd: Decimal | None = None if cost is None else from_pico(int(cost))
        glances.append(RunGlance(run, usd, unpriced > 0, tuple(waiting.get(run.id, ()))))
    return tuple(glances)


def _waiting(tx: Tx, first: int, last: int) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for run, name, item in tx.all(_WAITING, first=first, last=last):
        found[run].append(f"{name}/{item}" if item else name)
    return found


def _escaped(tag: str) -> str:
    """A tag inside a pattern: `_` stands for itself."""
    return tag.replace("!", "!!").replace("_", "!_").replace("%", "!%")
