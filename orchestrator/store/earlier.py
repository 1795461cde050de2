"""What a run takes from earlier runs: found when it starts, kept as the head of a row of its own (S15).

From then on it is read like an input, by reference; a newer version elsewhere changes nothing by itself. It is looked
for again only to say that there is one, and when a person refreshes the run. A later run of the run's own pipeline does
not count as newer: it may have been made from this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import artifacts, runs
from orchestrator.store.records import NewStep
from orchestrator.store.sql import Row, Sql, Tx
from orchestrator.values import ArtifactVersion, Event, FromEarlier

_NEWEST: Final = (
    "SELECT s.head_id, r.number FROM run r JOIN step s ON s.run_id = r.id JOIN artifact a ON a.id = s.head_id"
    " WHERE r.kind = 'run' AND s.name = :step AND s.item = '' AND s.kind <> 'input' AND a.type = :contract"
    " AND {scope:r} AND {scope:s} AND {scope:a}"
)
_ORDER: Final = " ORDER BY r.number DESC LIMIT 1"
_OLDER: Final = " AND (r.number < :number OR r.pipeline <> :pipeline) AND r.id <> :run"
_OF_SESSION: Final = " AND r.session_id = :session"
_SUCCEEDED: Final = " AND r.status = 'succeeded'"
_FOR_RUN: Final = {
    "session": Sql(_NEWEST + _OLDER + _OF_SESSION + _ORDER),
    "project": Sql(_NEWEST + _OLDER + _SUCCEEDED + _ORDER),
}
_NOW: Final = {
    "session": Sql(_NEWEST + _OF_SESSION + _ORDER),
    "project": Sql(_NEWEST + _SUCCEEDED + _ORDER),
}
_RUN = Sql("SELECT number, pipeline, session_id FROM run WHERE id = :run AND {scope}")
_SESSION = Sql("SELECT id FROM session WHERE name = :name AND {scope}")
_MOVE = Sql(
    "UPDATE step SET head_id = :head WHERE run_id = :run AND name = :name AND item = '' AND kind = 'input' AND {scope}"
    " AND COALESCE(head_id, '') <> :head"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """A version and the number of the run it was found in."""

    run: int
    version: ArtifactVersion


def taken(tx: Tx, run_id: str, step: NewStep) -> NewStep:
    """The row with what it takes from an earlier run; as it is where it takes nothing, or has it already (a fork).

    Raises UsageError where there is none and it is required.
    """
    if step.earlier is None or step.head is not None:
        return step
    wanted = step.earlier
    found = _of_run(tx, run_id, wanted)
    if found is None and wanted.required:
        where = "of this session" if wanted.source == "session" else "that succeeded"
        raise UsageError(
            f"{step.name} is taken from an earlier run, and no run {where} has {wanted.step} as {wanted.contract}",
            hint="run what makes it first, or give the read a `default`",
            code="nothing_earlier",
        )
    if found is None:
        return step
    return replace(step, head=found[0], last_version=artifacts.version_by_id(tx, found[0]).version)


def newest(tx: Tx, run_id: str, wanted: Mapping[str, FromEarlier]) -> Mapping[str, ArtifactVersion]:
    found = {name: _of_run(tx, run_id, earlier) for name, earlier in wanted.items()}
    return {name: artifacts.version_by_id(tx, row[0]) for name, row in found.items() if row is not None}


def now(tx: Tx, session: str | None, wanted: Mapping[str, FromEarlier]) -> Mapping[str, Taken]:
    row = tx.one(_SESSION, name=session) if session is not None else None
    found = {}
    for name, earlier in wanted.items():
        told = {"session": row[0] if row else ""} if earlier.source == "session" else {}
        one = tx.one(_NOW[earlier.source], step=earlier.step, contract=earlier.contract, **told)
        if one is not None:
            found[name] = Taken(one[1], artifacts.version_by_id(tx, one[0]))
    return found


def take_newest(tx: Tx, run_id: str, wanted: Mapping[str, FromEarlier]) -> None:
    runs.lock(tx, run_id)
    for name, earlier in wanted.items():
        found = _of_run(tx, run_id, earlier)
        if found is not None and tx.run(_MOVE, run=run_id, name=name, head=found[0]):
            told = Event("earlier.moved", name, data={"run": found[1]})
            runs.write_events(tx, run_id, runs.lock(tx, run_id, 1), [told])


def _of_run(tx: Tx, run_id: str, earlier: FromEarlier) -> Row | None:
    number, pipeline, session = tx.all(_RUN, run=run_id)[0]
    told = {"session": session} if earlier.source == "session" else {}
    return tx.one(
        _FOR_RUN[earlier.source],
        step=earlier.step,
        contract=earlier.contract,
        number=number,
        pipeline=pipeline,
        run=run_id,
        **told,
    )
