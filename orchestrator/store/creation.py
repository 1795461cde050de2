"""A run's first transaction: session, inputs, steps and the first dispatches, all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.ids import uuid7
from orchestrator.store import approvals, artifacts, earlier, json_text, messages, runs
from orchestrator.store.claims import NewAttempt, new_attempts
from orchestrator.store.columns import to_pico
from orchestrator.store.content import put
from orchestrator.store.records import NewRun, NewStep, Starter
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Dispatch, RunRow

_NUMBER = Sql("UPDATE subject SET last_run = last_run + 1 WHERE {scope} RETURNING last_run")
_RUN = insert(
    "run",
    "id number session_id parent_id kind until_message pipeline file status owner graph graph_digest author on_exceed"
    " unpriced models created_at",
)
_BUDGET = insert("budget", "run_id cap_usd")
STEP = insert(
    "step",
    "id run_id name item kind position children unmet released defaulted last_version attempt_id basis_id head_id"
    " made_id carried_id pins entry",
)
_PARENT_STEPS = Sql(
    "SELECT s.name, s.item, s.head_id, s.basis_id, s.made_id, s.carried_id, s.pins FROM step s"
    " WHERE s.run_id = :run AND {scope:s}"
)


def create(tx: Tx, new: NewRun, worker: str, starter: Starter | None) -> tuple[RunRow, tuple[Dispatch, ...]]:
    """Raises UsageError where the parent run or a shared artifact is not of this scope."""
    run_id = uuid7()
    number = tx.all(_NUMBER)[0][0]
    if new.parent_id is not None:
        runs.find(tx, new.parent_id)
    session_id = messages.session(tx, new.session, f"session-{number}")
    tx.run(
        _RUN,
        id=run_id,
        number=number,
        session_id=session_id,
        parent_id=new.parent_id,
        kind=new.kind,
        until_message=new.until_message,
        pipeline=new.pipeline,
        file=new.file,
        status="running",
        owner=worker,
        graph=put(tx, new.graph_json),
        graph_digest=new.graph_digest,
        author=new.author,
        on_exceed=new.on_exceed,
        unpriced=new.unpriced,
        models=json_text.dump(new.models),
        created_at=tx.now,
    )
    tx.run(_BUDGET, run_id=run_id, cap_usd=None if new.cap_usd is None else to_pico(new.cap_usd))
    if new.message is not None:
        messages.add(tx, session_id, "user", new.message, new.author, kind="run", run_id=run_id)
    ready = _steps(tx, run_id, new)
    return runs.find(tx, run_id), new_attempts(tx, ready, starter)


def _steps(tx: Tx, run_id: str, new: NewRun) -> list[NewAttempt]:
    """Write the steps; the first attempts of those that wait for nothing."""
    listed = {step.name for step in new.steps}
    inputs = [NewStep(name, None, "input", -1) for name in new.inputs if name not in listed]
    steps = (*inputs, *(earlier.taken(tx, run_id, step) for step in new.steps))
    parents = _parents(tx, new)
    heads = {(step.name, step.item or ""): step.head for step in steps}
    met = {step.name for step in steps if not step.item and (step.kind == "input" or step.head)}
    rows, ready = [], []
    for step, row in zip(steps, rows_of(tx, run_id, steps, met), strict=True):
        row["defaulted"] = int(step.name in new.defaulted)
        row.update(_inherited(step, parents.get((step.name, step.item or ""))))
        if step.kind == "gate" and step.head and not approvals.holds(tx, row["basis_id"], heads):
            raise UsageError(f"what {step.name} shows changed just now; no run was made", hint="try again")
        if step.kind == "input" and row["head_id"] is None and step.name in new.inputs:
            version = step.last_version + 1  # where it replaces the parent run's value, numbers go on
            row["head_id"] = artifacts.write(tx, run_id, step.name, "", version, new.inputs[step.name], None, None)
            row["last_version"] = version
        elif step.kind != "input" and not step.head and not row["unmet"] and (not step.item or new.kind == "bench"):
            # An item that is to be made again is dispatched by its step, when that looks at its list. The samples of a
            # bench have no such step: they are items, and all that there is to do.
            row["attempt_id"] = uuid7()
            ready.append(NewAttempt(Dispatch(run_id, step.name, step.item, row["attempt_id"], 1, 1), row["id"]))
        rows.append(row)
    tx.many(STEP, rows)
    return ready


def rows_of(tx: Tx, run_id: str, steps: Sequence[NewStep], met: set[str]) -> list[dict[str, Any]]:
    """Rows for new steps; `met` names those whose value stands already."""
    waiting_for = children_of(steps)
    return [
        {
            **new_row(run_id, step.name, step.item or "", step.kind, step.order),
            "children": json_text.dump(waiting_for.get(step.name, ())),
            "unmet": sum(parent not in met for parent in step.parents),
            "released": int(bool(step.head) if step.item else step.name in met),
            "last_version": step.last_version,
            "head_id": artifacts.version_by_id(tx, step.head).id if step.head else None,
            "entry": step.entry,
        }
        for step in steps
    ]


def new_row(run_id: str, name: str, item: str, kind: str, position: int) -> dict[str, Any]:
    """A step's row (see `STEP`) that waits for nothing, has nothing yet, and that nothing waits for."""
    empty = ("attempt_id", "basis_id", "head_id", "made_id", "carried_id", "entry")
    return {
        "id": uuid7(),
        "run_id": run_id,
        "name": name,
        "item": item,
        "kind": kind,
        "position": position,
        "children": "[]",
        "unmet": 0,
        "released": 0,
        "defaulted": 0,
        "last_version": 0,
        "pins": "{}",
        **dict.fromkeys(empty),
    }


def children_of(steps: Sequence[NewStep]) -> dict[str, list[str]]:
    """Who waits for whom, by name, in the steps' order; refuses a graph that names one step twice."""
    twice = [key for key, count in Counter((step.name, step.item) for step in steps).items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0][0]} stands twice in the run's steps")
    found: dict[str, list[str]] = {}
    for step in steps:
        for parent in step.parents:
            if step.name not in found.setdefault(parent, []):
                found[parent].append(step.name)
    return found


@dataclass(frozen=True, slots=True)
class _Parent:
    """A step of the parent run, as far as a child takes over from it."""

    head_id: str | None
    basis_id: str | None
    made_id: str | None
    carried_id: str | None
    pins: str


def _parents(tx: Tx, new: NewRun) -> dict[tuple[str, str], _Parent]:
    if new.parent_id is None:
        return {}
    return {(name, item): _Parent(*row) for name, item, *row in tx.all(_PARENT_STEPS, run=new.parent_id)}


def _inherited(step: NewStep, parent: _Parent | None) -> dict[str, Any]:
    """What a step has from the parent run: with a shared head, what that rests on; for a step that runs again, what a
    person has put there, to be merged with what will be made (S07). Pins always."""
    if parent is None or step.kind == "input":
        return {}
    if step.head is not None:
        same = step.head == parent.head_id
        rests_on = {"basis_id": parent.basis_id, "made_id": parent.made_id} if same else {}
        return {**rests_on, "pins": parent.pins}
    edited = parent.head_id if parent.head_id != parent.made_id or json_text.load(parent.pins) else None
    carried = edited or parent.carried_id
    return {"carried_id": carried, "made_id": parent.made_id if carried else None, "pins": parent.pins}
