"""What people say about a step: which of two versions stands, what became of a tool, and a version of their own."""

from __future__ import annotations

from typing import Final, Literal

from orchestrator.errors import UsageError
from orchestrator.store import approvals, artifacts, json_text, runs
from orchestrator.store.claims import Asked, new_attempt
from orchestrator.store.commits import ATTEMPT, SET_STATE, accept, named_step, pass_locked
from orchestrator.store.content import put
from orchestrator.store.records import Claim, Kept, ToolDecision
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import ArtifactVersion, Dispatch, Event, NewArtifact

CHANGED_MEANWHILE: Final = "changed_meanwhile"
_UNDRAFT = Sql("UPDATE artifact SET draft = 0 WHERE id = :artifact AND {scope}")
_RESTS_ON = Sql("UPDATE step SET basis_id = :attempt WHERE id = :step AND {scope}")
_TOOLS = Sql(
    "SELECT t.id, a.id FROM step s JOIN attempt a ON a.id = s.attempt_id JOIN thread h ON h.attempt_id = a.id"
    " JOIN call c ON c.thread_id = h.id JOIN tool_call t ON t.call_id = c.id WHERE s.run_id = :run"
    " AND t.tool_id = :tool AND t.state <> 'done' AND a.state IN ('waiting', 'ready')"
    " AND {scope:s} AND {scope:a} AND {scope:h} AND {scope:c} AND {scope:t}"
)
_DECIDE = Sql("UPDATE tool_call SET decision = :decision, state = :state, output = :output WHERE id = :id AND {scope}")
_EFFECTS = Sql(
    "SELECT a.id FROM step s JOIN attempt a ON a.id = s.attempt_id JOIN effect e ON e.attempt_id = a.id"
    " WHERE s.run_id = :run AND e.key = :key AND e.state <> 'done' AND a.state IN ('waiting', 'ready')"
    " AND {scope:s} AND {scope:a} AND {scope:e}"
)
_DECIDE_EFFECT = Sql(
    "UPDATE effect SET decision = :decision, state = :state, value = :value"
    " WHERE attempt_id = :attempt AND key = :key AND {scope}"
)
_ANSWERED = Sql(
    "UPDATE attempt SET state = 'ready', error = NULL WHERE id = :attempt AND state = 'waiting' AND {scope}"
)


def keep(tx: Tx, run_id: str, kept: Kept) -> tuple[Dispatch, ...]:
    """A person accepts a version as it is: from now on it rests on what is there now."""
    locked = runs.lock(tx, run_id, 1)
    step = named_step(tx, run_id, kept.step, kept.item)
    if step.head_id != kept.head:
        message = f"{kept.step} changed meanwhile; nothing was written"
        raise UsageError(message, hint="look at the newer version", code=CHANGED_MEANWHILE)
    state, number = tx.all(ATTEMPT, attempt=step.attempt_id)[0][:2] if step.attempt_id else ("succeeded", 0)
    if state in ("ready", "running", "waiting"):
        raise UsageError(f"{kept.step} is {state}", hint="`orch show RUN` shows what it waits for")
    dispatch = new_attempt(tx, run_id, step.id, step.name, step.item, number + 1)
    told = Event("step.kept", data={"by": kept.author, "note": kept.note})
    claim = Claim(dispatch, "", kept.manifest, kept.reads, kept.head, events=(told,))
    ready = pass_locked(tx, locked, claim, "kept")
    tx.run(_RESTS_ON, step=step.id, attempt=dispatch.attempt_id)
    return ready


def settle(tx: Tx, run_id: str, name: str, keep: Literal["head", "draft"]) -> tuple[Dispatch, ...]:
    """Answer a conflict (S07): the draft becomes the head, or the head stays. Either way the step has succeeded."""
    runs.lock(tx, run_id)
    step = named_step(tx, run_id, name, None)
    if step.draft_id is None or step.attempt_id is None:
        raise UsageError(f"{name} has no draft that waits for a decision", hint="`orch show RUN` shows what waits")
    _, number, token, redo, *asked = tx.all(ATTEMPT, attempt=step.attempt_id)[0]
    dispatch = Dispatch(run_id, name, None, step.attempt_id, number, token)
    tx.run(SET_STATE, attempt=step.attempt_id, state="succeeded", error=None)
    moved: tuple[str, ...] = ()
    if keep == "draft":
        tx.run(_UNDRAFT, artifact=step.draft_id)
        moved = artifacts.moved(tx, run_id, step.attempt_id)
    head = step.draft_id if keep == "draft" else step.head_id
    if head is None:
        raise UsageError(f"{name} has no version besides its draft", hint="keep the draft")
    children = json_text.load(step.children)
    return accept(tx, dispatch, step, head, step.last_version, moved, children, redo, Asked(*asked))


def decide_tool(tx: Tx, run_id: str, tool_id: str, decision: ToolDecision, output: str | None) -> None:
    """Say what became of an interrupted tool (S09); its attempt may then go on."""
    runs.lock(tx, run_id)
    rows = tx.all(_TOOLS, run=run_id, tool=tool_id)
    if not rows:
        raise UsageError(f"tool call {tool_id} does not wait for a decision", hint="`orch show RUN` shows what waits")
    if len(rows) > 1:
        raise UsageError(f"tool call {tool_id} waits in more than one step", hint="answer the steps one by one")
    tool, attempt = rows[0]
    done = decision == "done"
    tx.run(
        _DECIDE,
        id=tool,
        decision=decision,
        state="done" if done else "started",
        output=put(tx, output or "") if done else None,
    )
    tx.run(_ANSWERED, attempt=attempt)


def decide_effect(tx: Tx, run_id: str, key: str, decision: ToolDecision, value: bytes | None) -> None:
    """Say what became of an interrupted effect; the attempt that waits for the word may then go on."""
    runs.lock(tx, run_id)
    rows = tx.all(_EFFECTS, run=run_id, key=key)
    if not rows:
        raise UsageError(f"effect {key} does not wait for a decision", hint="`orch show RUN` shows what waits")
    if len(rows) > 1:
        raise UsageError(f"effect {key} waits in more than one step", hint="give each effect a key of its own")
    done = decision == "done"
    tx.run(
        _DECIDE_EFFECT,
        attempt=rows[0][0],
        key=key,
        decision=decision,
        state="done" if done else "started",
        value=put(tx, value or b"null") if done else None,
    )
    tx.run(_ANSWERED, attempt=rows[0][0])


def edit(tx: Tx, run_id: str, name: str, item: str | None, base_version: int, new: NewArtifact) -> ArtifactVersion:
    """A person's version on top of the one they saw. Raises UsageError where that is no longer the head."""
    runs.lock(tx, run_id)
    step = named_step(tx, run_id, name, item)
    head = artifacts.version_by_id(tx, step.head_id) if step.head_id else None
    if head is None:
        raise UsageError(f"{name} has no version yet", hint="a step is edited after it has run")
    if head.version != base_version:
        raise UsageError(
            f"{name} changed meanwhile: it is at version {head.version}, not {base_version}; nothing was written",
            hint="look at the newer version and edit that",
            code=CHANGED_MEANWHILE,
        )
    edited = artifacts.edited(tx, run_id, step.id, step.next_version, head, new)
    if edited.id != head.id:
        approvals.expire(tx, run_id, name, step.item, edited.id)
    return edited
