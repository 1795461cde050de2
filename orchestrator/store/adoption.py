"""Taking a run on (resume) and letting it go: who may, and what there is to do, from the states alone.

Nothing of the former process is trusted but its rows. Each attempt that is to go on gets a new token, so that whatever
the former process still does comes too late; the counters of unmet parents are computed anew, once, from what has
succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.store import json_text, workers
from orchestrator.store.claims import ORDINARY, Asked, new_attempt
from orchestrator.store.content import put
from orchestrator.store.creation import STEP, children_of, rows_of
from orchestrator.store.records import AdoptPlan, NewStep, RunBusy
from orchestrator.store.runs import lock
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import Dispatch, ErrorRecord, Mode, RunStatus

_OWNERS = Sql(
    "SELECT DISTINCT a.owner FROM step s JOIN attempt a ON a.id = s.attempt_id"
    " WHERE s.run_id = :run AND a.state = 'running' AND a.owner <> '' AND {scope:s} AND {scope:a}"
)
_STATES = Sql(
    "SELECT s.name, s.item, s.id, s.head_id, s.stale, s.due, a.id, a.state, a.number, a.token,"
    " a.manifest IS NOT NULL, a.mode, a.round, a.message_id"
    " FROM step s LEFT JOIN attempt a ON a.id = s.attempt_id AND {scope:a} WHERE s.run_id = :run AND {scope:s}"
)
_ADOPT_STEP = Sql(
    "UPDATE step SET kind = :kind, position = :position, children = :children, unmet = :unmet, released = :released,"
    " due = :due"
    " WHERE id = :id AND {scope}"
)
# An attempt that has begun goes on as running, so that its recorded thread can be taken up without a second claim. How
# long a process that did not let go of it worked on it, only that process's last sign of life tells (S32).
_SIGN = "(SELECT w.heartbeat_at FROM worker w WHERE w.id = attempt.owner AND {scope:w})"
GO_ON = Sql(
    f"UPDATE attempt SET running_us = running_us + CASE WHEN state = 'running' AND {_SIGN} > claimed_at"
    f" THEN {_SIGN} - claimed_at ELSE 0 END,"
    " token = token + 1, owner = :owner, state = 'running', claimed_at = :now WHERE id = :id AND {scope}"
    " RETURNING running_us"
)
AGAIN = Sql("UPDATE attempt SET token = token + 1 WHERE id = :id AND {scope}")
_ADOPT_RUN = Sql(
    "UPDATE run SET status = 'running', owner = :owner, error = NULL, graph = :graph, graph_digest = :digest"
    " WHERE id = :run AND {scope}"
)
_RELEASE_RUN = Sql(
    "UPDATE run SET status = :status, error = :error, owner = '' WHERE id = :run AND owner = :owner AND {scope}"
)
_LET_GO = Sql(
    "UPDATE attempt SET owner = '',"
    " running_us = running_us + CASE WHEN :now > claimed_at THEN :now - claimed_at ELSE 0 END"
    " WHERE state = 'running' AND owner = :owner AND {scope}"
    " AND id IN (SELECT s.attempt_id FROM step s WHERE s.run_id = :run AND {scope:s})"
)
_READY = Sql(
    "SELECT s.name, s.item, a.id, a.number, a.token, a.mode FROM run r"
    " JOIN step s ON s.run_id = r.id JOIN attempt a ON a.id = s.attempt_id"
    " WHERE r.id = :run AND r.owner = :owner AND r.status = 'running'"
    " AND s.unmet = 0 AND a.state = 'ready' AND a.claimed_token < a.token"
    " AND {scope:r} AND {scope:s} AND {scope:a} ORDER BY s.position, s.item"
)
_OWNER = Sql("SELECT owner FROM run WHERE id = :run AND {scope}")
_NUMBER = Sql("SELECT number FROM run WHERE id = :run AND {scope}")


@dataclass(frozen=True, slots=True)
class _State:
    """A step as it stands: its newest attempt, if it has one, and whether its value stands."""

    id: str
    head_id: str | None
    stale: int = 0
    due: int = 0
    attempt_id: str | None = None
    state: str | None = None
    number: int | None = None
    token: int | None = None
    begun: int = 0
    mode: Mode | None = None
    round: int | None = None
    message_id: str | None = None

    @property
    def asked(self) -> Asked:
        return Asked(self.mode or "", self.round or 0, self.message_id)

    @property
    def met(self) -> bool:
        done = self.state == "skipped" or (self.head_id is not None and self.state in (None, "succeeded", "kept"))
        return done and not self.due and not self.stale


_Key = tuple[str, str]


def check_free(tx: Tx, run_id: str, worker: str) -> None:
    """Raises RunBusy where another worker is alive on the run; changes nothing."""
    owner = tx.one(_OWNER, run=run_id)
    _refuse_busy(tx, run_id, worker, owner[0] if owner else "")


def adopt(tx: Tx, run_id: str, worker: str, plan: AdoptPlan, take_over: bool) -> tuple[Dispatch, ...]:
    """Make the run this worker's and dispatch all that can go on. Raises RunBusy where another worker is alive."""
    locked = lock(tx, run_id)
    if not take_over:
        _refuse_busy(tx, run_id, worker, locked.owner)
    states = {(row[0], row[1]): _State(*row[2:]) for row in tx.all(_STATES, run=run_id)}
    for key in {*plan.again, *plan.below} & states.keys():
        states[key] = replace(states[key], due=1)
    unmet = _bring_up_to_date(tx, run_id, plan, states)
    tx.run(_ADOPT_RUN, run=run_id, owner=worker, graph=put(tx, plan.graph_json), digest=plan.graph_digest)
    work = [step for step in plan.steps if step.kind != "input"]
    found = [_dispatch(tx, run_id, step, states[_key(step)], unmet[_key(step)], worker, plan) for step in work]
    found += [_item(tx, run_id, key, state, worker, plan) for key, state in _asked_for(plan, states)]
    return tuple(dispatch for dispatch in found if dispatch is not None)


def _asked_for(plan: AdoptPlan, states: Mapping[_Key, _State]) -> list[tuple[_Key, _State]]:
    """Items that somebody asked for once more, of steps that have their value. All others are their collector's, which
    looks at each when it is entered."""
    done = {step.name for step in plan.steps if step.kind == "map" and states[_key(step)].met}
    return [
        (key, state)
        for key, state in states.items()
        if key[1] and key[0] in done and (state.state in ("ready", "running") or key in plan.again)
    ]


def _item(tx: Tx, run_id: str, key: _Key, state: _State, worker: str, plan: AdoptPlan) -> Dispatch | None:
    """What there is to do for an item that somebody asked for."""
    if state.state in ("ready", "running"):
        return _go_on(tx, run_id, key, state, worker)
    if state.state == "waiting":
        return None
    number = (state.number or 0) + 1
    return new_attempt(tx, run_id, state.id, *key, number, asked=Asked(plan.again[key]))


def _refuse_busy(tx: Tx, run_id: str, worker: str, owner: str) -> None:
    owners = {owner, *(name for (name,) in tx.all(_OWNERS, run=run_id))} - {"", worker}
    for other in sorted(owners):
        process = workers.living(tx, other)
        if process is not None:
            number = tx.all(_NUMBER, run=run_id)[0][0]
            raise RunBusy(
                f"run {number} is being worked on by process {process.pid} on {process.host}",
                hint=f"wait for it or stop it; or take the run from it: orch resume {number} --take-over",
            )


def _bring_up_to_date(tx: Tx, run_id: str, plan: AdoptPlan, states: dict[_Key, _State]) -> Mapping[_Key, int]:
    """Add the steps that are new, recount what each step waits for; the counts, by step."""
    pending = {step.name for step in plan.steps if not _is_met(step, states)}
    met = {step.name for step in plan.steps} - pending
    children = children_of(plan.steps)
    unmet = {_key(step): sum(parent not in met for parent in step.parents) for step in plan.steps}
    new = [step for step in plan.steps if _key(step) not in states]
    rows = [{**row, "children": json_text.dump(children.get(row["name"], ()))} for row in rows_of(tx, run_id, new, met)]
    tx.many(STEP, rows)
    tx.many(
        _ADOPT_STEP,
        [
            {
                "id": states[_key(step)].id,
                "kind": step.kind,
                "position": step.order,
                "children": json_text.dump(children.get(step.name, ())),
                "unmet": unmet[_key(step)],
                "released": int(step.name in met),
                "due": states[_key(step)].due,
            }
            for step in plan.steps
            if _key(step) in states
        ],
    )
    for row in rows:
        states[row["name"], row["item"]] = _State(row["id"], row["head_id"])
    return unmet


def _key(step: NewStep) -> _Key:
    return step.name, step.item or ""


def _is_met(step: NewStep, states: Mapping[_Key, _State]) -> bool:
    state = states.get(_key(step))
    return step.head is not None or step.kind == "input" if state is None else state.met


def _dispatch(
    tx: Tx, run_id: str, step: NewStep, state: _State, unmet: int, worker: str, plan: AdoptPlan
) -> Dispatch | None:
    """What there is to do for one step, if anything."""
    interrupted = state.state == "running" or (state.state == "ready" and bool(state.begun))
    if interrupted or (state.state == "ready" and not unmet):
        return _go_on(tx, run_id, _key(step), state, worker)
    if state.state in ("waiting", "ready"):
        return None
    number = (state.number or 0) + 1
    if _key(step) in plan.again:
        # The attempt is made now, so that how it is to begin is on record; it runs when what it reads is done.
        asked = Asked(plan.again[_key(step)])
        again = new_attempt(tx, run_id, state.id, step.name, step.item or "", number, asked=asked)
        return None if unmet else again
    if unmet or state.met:
        return None
    asked = state.asked if state.state in ("failed", "cancelled") else ORDINARY
    return new_attempt(tx, run_id, state.id, step.name, step.item or "", number, asked=asked)


def _go_on(tx: Tx, run_id: str, key: _Key, state: _State, worker: str) -> Dispatch:
    """The right to an attempt that is ready, or that a former process has begun."""
    name, item = key
    interrupted = state.state == "running" or bool(state.begun)
    number, token, mode, ran = state.number or 1, (state.token or 0) + 1, state.asked.mode, 0
    if interrupted:
        (ran,) = tx.all(GO_ON, id=state.attempt_id, owner=worker, now=tx.now)[0]
    else:
        tx.run(AGAIN, id=state.attempt_id)
    attempt = str(state.attempt_id)
    return Dispatch(run_id, name, item or None, attempt, number, token, interrupted, mode, int(ran))


def release(
    tx: Tx, run_id: str, worker: str, status: RunStatus, error: ErrorRecord | None, unless_ready: bool
) -> tuple[Dispatch, ...]:
    """End this worker's work on the run; nothing happens where the run is no longer its own.

    `unless_ready`: where somebody's answer has just made something ready, that is given back and nothing ends.
    """
    lock(tx, run_id)
    found = ready(tx, run_id, worker) if unless_ready else ()
    if not found and tx.run(_RELEASE_RUN, run=run_id, owner=worker, status=status, error=json_text.dump_error(error)):
        tx.run(_LET_GO, run=run_id, owner=worker, now=tx.now)
    return found


def ready(tx: Tx, run_id: str, worker: str) -> tuple[Dispatch, ...]:
    """What of the worker's run waits for nothing and was not begun: what a commit gave it, or what an answer made
    ready."""
    return tuple(
        Dispatch(run_id, name, item or None, attempt, number, token, mode=mode)
        for name, item, attempt, number, token, mode in tx.all(_READY, run=run_id, owner=worker)
    )
