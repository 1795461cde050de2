"""What people say about a step: which of two versions stands, what stays pinned, what became of a tool, and a version
of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from orchestrator.errors import UsageError
from orchestrator.store import approvals, artifacts, json_text, runs
from orchestrator.store.claims import Asked, new_attempt
from orchestrator.store.commits import ATTEMPT, SET_STATE, Step, accept, named_step, pass_locked
from orchestrator.store.content import put
from orchestrator.store.merging import pins, present
from orchestrator.store.records import Claim, Kept, ToolDecision, Undecided
from orchestrator.store.sql import Sql, Tx
from orchestrator.values import ArtifactVersion, Dispatch, Event, Merge, NewArtifact

CHANGED_MEANWHILE: Final = "changed_meanwhile"
_UNDRAFT = Sql("UPDATE artifact SET draft = 0 WHERE id = :artifact AND {scope}")
_RESTS_ON = Sql("UPDATE step SET basis_id = :attempt WHERE id = :step AND {scope}")
_PIN = Sql("UPDATE step SET pins = :pins WHERE id = :step AND {scope}")
_TOOLS = Sql(
    "SELECT t.id, a.id FROM step s JOIN attempt a ON a.id = s.attempt_id JOIN thread h ON h.attempt_id = a.id"
    " JOIN call c ON c.thread_id = h.id JOIN tool_call t ON t.call_id = c.id WHERE s.run_id = :run"
    " AND t.tool_id = :tool AND t.state = 'started' AND a.state IN ('waiting', 'ready')"
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


def settle(
    tx: Tx, run_id: str, name: str, item: str | None, keep: Literal["head", "draft"], merge: Merge | None, by: str
) -> tuple[Dispatch, ...]:
    """Answer a conflict (S07): the draft becomes the head, or the head stays, or both were brought together by a person
    (`merge`). In each case the step has succeeded. Raises UsageError where nothing waits, or something has changed."""
    locked = runs.lock(tx, run_id, 1)
    step = named_step(tx, run_id, name, item)
    dispatch = _waiting(tx, run_id, step)
    draft = artifacts.version_by_id(tx, step.draft_id or "")
    if merge is not None and (merge.head, merge.base, merge.pins) != (step.head_id, draft.parent_id, pins(step)):
        raise _changed(f"{name} changed meanwhile; nothing was decided", "look at it again, and decide")
    head, version = _settled(tx, run_id, step, keep, merge)
    runs.write_events(tx, run_id, locked, [_told(keep, by, version, draft.version)], dispatch)
    moved = () if head == step.head_id else artifacts.moved(tx, run_id, dispatch.attempt_id)
    return _end_wait(tx, dispatch, step, head, max(version, step.last_version), moved)


def _waiting(tx: Tx, run_id: str, step: Step) -> Dispatch:
    """The attempt whose draft waits for a decision. Raises UsageError where none does."""
    if step.draft_id is None or step.attempt_id is None:
        raise UsageError(f"{step.name} has no draft that waits for a decision", hint="`orch show RUN` shows what waits")
    _, number, token, *_ = tx.all(ATTEMPT, attempt=step.attempt_id)[0]
    return Dispatch(run_id, step.name, step.item or None, step.attempt_id, number, token)


def _settled(tx: Tx, run_id: str, step: Step, keep: Literal["head", "draft"], merge: Merge | None) -> tuple[str, int]:
    """The version that stands from now on, and its number."""
    assert step.draft_id is not None
    draft = artifacts.version_by_id(tx, step.draft_id)
    head = artifacts.version_by_id(tx, step.head_id) if step.head_id else None
    if merge is not None and head is not None and not artifacts.is_body_of(tx, merge.artifact, draft):
        if artifacts.is_body_of(tx, merge.artifact, head):
            return head.id, head.version
        version, name, item = step.next_version, step.name, step.item
        new = artifacts.write(
            tx, run_id, name, item, version, merge.artifact, head.id, step.attempt_id, merged_id=draft.id
        )
        return new, version
    if merge is None and keep == "head":
        if head is None:
            raise UsageError(f"{step.name} has no version besides its draft", hint="keep the draft")
        return head.id, head.version
    tx.run(_UNDRAFT, artifact=draft.id)
    return draft.id, draft.version


def _told(kept: str, by: str, version: int, draft: int) -> Event:
    return Event("step.settled", data={"kept": kept, "by": by, "version": version, "draft": draft})


def _end_wait(
    tx: Tx, dispatch: Dispatch, step: Step, head: str, version: int, moved: tuple[str, ...]
) -> tuple[Dispatch, ...]:
    *_, redo, mode, round_, message_id = tx.all(ATTEMPT, attempt=dispatch.attempt_id)[0]
    tx.run(SET_STATE, attempt=dispatch.attempt_id, state="succeeded", error=None)
    children = json_text.load(step.children)
    asked = Asked(mode, round_, message_id)
    return accept(tx, dispatch, step, head, version, moved, children, redo, asked, made=step.draft_id)


def _changed(message: str, hint: str) -> UsageError:
    return UsageError(message, hint=hint, code=CHANGED_MEANWHILE)


def undecided(tx: Tx, run_id: str, name: str, item: str | None) -> Undecided:
    """A draft that waits, and what it is to be merged with. Raises UsageError where none waits."""
    step = named_step(tx, run_id, name, item)
    _waiting(tx, run_id, step)
    draft = artifacts.with_body(tx, step.draft_id or "")
    return Undecided(present(tx, step, draft.version.parent_id), draft)


def pin(tx: Tx, run_id: str, name: str, item: str | None, fields: Sequence[str], by: str) -> Mapping[str, str]:
    """Keep these fields as they are whenever the step runs again; the pins it then has. Raises UsageError where it has
    no version yet."""
    runs.lock(tx, run_id)
    step = named_step(tx, run_id, name, item)
    if step.standing is None:
        raise UsageError(f"{name} has no version yet", hint="what a step has made can be pinned")
    before = pins(step)
    return _pinned(tx, run_id, step, before, {**dict.fromkeys(fields, by), **before}, by)


def unpin(tx: Tx, run_id: str, name: str, item: str | None, fields: Sequence[str], by: str) -> Mapping[str, str]:
    """Let these fields, or all where none is named, change again; the pins that are left. Raises UsageError for a field
    that is not pinned."""
    runs.lock(tx, run_id)
    step = named_step(tx, run_id, name, item)
    before = pins(step)
    for field in fields or before:
        if field not in before:
            raise UsageError(f"{name} has no pin on {field}", hint=f"pinned: {', '.join(before) or 'nothing'}")
    after = {field: who for field, who in before.items() if fields and field not in fields}
    return _pinned(tx, run_id, step, before, after, by)


def _pinned(
    tx: Tx, run_id: str, step: Step, before: Mapping[str, str], after: Mapping[str, str], by: str
) -> Mapping[str, str]:
    if before != after:
        tx.run(_PIN, step=step.id, pins=json_text.dump(after))
        data = {"by": by, "added": [*(after.keys() - before.keys())], "removed": [*(before.keys() - after.keys())]}
        event = Event("step.pinned", step.name, step.item or None, data)
        runs.write_events(tx, run_id, runs.lock(tx, run_id, 1), [event])
    return after


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
    made = artifacts.edited(tx, run_id, step.id, step.next_version, head, new)
    if made.id != head.id:
        approvals.expire(tx, run_id, name, step.item, made.id)
    if step.draft_id is not None and made.id != head.id:
        # Whoever edits beside a draft has decided: their version stands, the draft stays in the history.
        dispatch, draft = _waiting(tx, run_id, step), artifacts.version_by_id(tx, step.draft_id)
        told = _told("edit", new.author, made.version, draft.version)
        runs.write_events(tx, run_id, runs.lock(tx, run_id, 1), [told], dispatch)
        _end_wait(tx, dispatch, step, made.id, made.version, ())
    return made
