"""A run's first transaction: session, inputs, steps and the first dispatches, all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.ids import uuid7
from orchestrator.store import approvals, artifacts, json_text, messages, runs
from orchestrator.store.claims import NewAttempt, new_attempts
from orchestrator.store.columns import to_pico
from orchestrator.store.content import put
from orchestrator.store.records import NewRun, NewStep, Starter
from orchestrator.store.sql import Sql, Tx, insert
from orchestrator.values import Dispatch, RunRow

_NUMBER = Sql("UPDATE subject SET last_run = last_run + 1 WHERE {scope} RETURNING last_run")
_RUN = insert(
    "run",
    "id number session_id parent_id pipeline file status owner graph graph_digest author on_exceed unpriced created_at",
)
_BUDGET = insert("budget", "run_id cap_usd")
STEP = insert(
    "step",
    "id run_id name item kind position children unmet released defaulted last_version attempt_id basis_id head_id"
    " entry",
)
_PARENT_STEPS = Sql("SELECT s.name, s.item, s.head_id, s.basis_id FROM step s WHERE s.run_id = :run AND {scope:s}")


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
        pipeline=new.pipeline,
        file=new.file,
        status="running",
        owner=worker,
        graph=put(tx, new.graph_json),
        graph_digest=new.graph_digest,
        author=new.author,
        on_exceed=new.on_exceed,
        unpriced=new.unpriced,
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
    steps = (*inputs, *new.steps)
    basis = _bases(tx, new)
    heads = {(step.name, step.item or ""): step.head for step in steps}
    met = {step.name for step in steps if step.kind == "input" or step.head}
    rows, ready = [], []
    for step, row in zip(steps, rows_of(tx, run_id, steps, met), strict=True):
        row["defaulted"] = int(step.name in new.defaulted)
        row["basis_id"] = basis.get((step.name, step.item or "", step.head))
        if step.kind == "gate" and step.head and not approvals.holds(tx, row["basis_id"], heads):
            raise UsageError(f"what {step.name} shows changed just now; no run was made", hint="try again")
        if step.kind == "input" and row["head_id"] is None and step.name in new.inputs:
            row["head_id"] = artifacts.write(tx, run_id, step.name, "", 1, new.inputs[step.name], None, None)
            row["last_version"] = 1
        elif step.kind != "input" and not step.head and not row["unmet"]:
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
            "id": uuid7(),
            "run_id": run_id,
            "name": step.name,
            "item": step.item or "",
            "kind": step.kind,
            "position": step.order,
            "children": json_text.dump(() if step.item else waiting_for.get(step.name, ())),
            "unmet": sum(parent not in met for parent in step.parents),
            "released": int(step.name in met),
            "defaulted": 0,
            "last_version": step.last_version,
            "attempt_id": None,
            "basis_id": None,
            "head_id": artifacts.version_by_id(tx, step.head).id if step.head else None,
            "entry": step.entry,
        }
        for step in steps
    ]


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


def _bases(tx: Tx, new: NewRun) -> dict[tuple[str, str, str | None], str | None]:
    """For heads shared from the parent run: the attempts whose manifests they rest on."""
    if new.parent_id is None:
        return {}
    return {(name, item, head): basis for name, item, head, basis in tx.all(_PARENT_STEPS, run=new.parent_id)}
