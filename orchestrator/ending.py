"""How a step ends: the one transaction that says so, and what its loop, its readers and people are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.answering import ToolUnapproved
from orchestrator.bodies.asking import (
    AtOnce,
    Walk,
)
from orchestrator.context import shows_draft
from orchestrator.errors import BudgetExceeded, OrchError
from orchestrator.merges import Edits, Outcome, bring_together
from orchestrator.reads import read_values
from orchestrator.repeating import Visit, visited
from orchestrator.values import (
    Again,
    Commit,
    CommitResult,
    Dispatch,
    DoneCall,
    ErrorRecord,
    Event,
    NewArtifact,
    Snapshot,
    Usage,
)


async def commit_step(
    walk: Walk,
    snapshot: Snapshot,
    artifact: NewArtifact,
    done: DoneCall | None,
    base_head: str | None,
    calls: Sequence[DoneCall],
    reasks: int,
    notes: Sequence[str] = (),
) -> tuple[Dispatch, ...]:
    usage = sum((c.usage for c in calls if c.usage), Usage())
    costs = [c.cost_usd for c in calls]
    summary = {
        "calls": len(calls),
        "reasks": reasks,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": str(sum(c for c in costs if c is not None)) if any(c is not None for c in costs) else None,
        "cost_partial": None in costs or any(c.lost for c in calls),
        "seconds": round(sum(c.seconds for c in calls), 3),
    }
    commit = Commit(
        dispatch=walk.dispatch,
        artifact=artifact,
        done=done,
        children=() if walk.dispatch.item else walk.graph.children[walk.step.name],
        base_head=base_head,
        events=tuple(Event("step.note", data={"text": note}) for note in notes),
        shown_head=shows_draft(walk.step, snapshot),
        on_moved=walk.step.spec.on_input_change,
    )
    ending = _ending(walk, snapshot, artifact, summary)
    starter = AtOnce(walk.graph, walk.services.worker)
    result = await walk.services.store.commit(ending.of(commit), starter)
    while result.present is not None:  # edited by a person: merged with what stands there now, until it still does
        versions = await walk.services.store.versions(walk.run.id, walk.step.name, walk.dispatch.item)
        edits = Edits(walk.step, result.present, versions, walk.place)
        merged = await bring_together(edits, artifact, read_values(walk.step, snapshot))
        ending = replace(_ending(walk, snapshot, merged.merge.artifact, summary), merged=merged)
        result = await walk.services.store.commit(ending.of(commit), starter)
    return _after_commit(walk, result, ending, summary)


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a step is about to end: the event that says so, what is told, what its loop makes of the value, and what the
    value was merged from."""

    end: Event
    notes: tuple[str, ...] = ()
    again: Again | None = None
    merged: Outcome | None = None

    def of(self, commit: Commit) -> Commit:
        """The commit that ends it so."""
        told = tuple(Event("step.note", data={"text": note}) for note in self.notes)
        if self.merged is None:
            return replace(commit, events=(*commit.events, *told, self.end), again=self.again)
        return replace(
            commit,
            artifact=self.merged.draft,
            merge=self.merged.merge,
            events=(*commit.events, *self.merged.events, *told, self.end),
            again=self.again,
        )


def _ending(walk: Walk, snapshot: Snapshot, artifact: NewArtifact, summary: Mapping[str, Any]) -> _Ending:
    """How a step ends that has come to this value."""
    value = walk.step.contract.load(artifact.body) if walk.step.repeat is not None else None
    visit = visited(walk.step, value, snapshot)
    again, end = _after_visit(walk, visit, summary)
    late = visit is not None and bool(visit.why) and again is None
    notes = (f"accepted after {visit.number} visits, although {visit.why}",) if late and visit is not None else ()
    return _Ending(end, notes, again)


def _after_visit(walk: Walk, visit: Visit | None, summary: Mapping[str, Any]) -> tuple[Again | None, Event]:
    """What the step's loop makes of this visit, and the event that says how it ended."""
    repeat = walk.step.repeat
    if visit is None or repeat is None or not visit.why or (visit.is_last and repeat.then == "accept"):
        return None, Event("step.done", data=summary)
    if not visit.is_last:
        told = {"round": visit.number, "of": visit.of, "reason": visit.why}
        return Again(visit.number), Event("step.repeat", data={**summary, **told})
    error = ErrorRecord(
        "not_good_enough",
        f"after {visit.of} visits {visit.why}",
        f"the last version is kept: edit it, or raise max_rounds ({repeat.place}); `orch resume` visits once more",
    )
    return Again(visit.number - 1, error), Event("step.failed", data=_told(error))


def _told(error: ErrorRecord) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "hint": error.hint}


def _after_commit(
    walk: Walk, result: CommitResult, ending: _Ending, summary: Mapping[str, Any]
) -> tuple[Dispatch, ...]:
    merged = ending.merged
    if result.outcome not in ("fenced", "conflict"):
        for note in (*ending.notes, *(merged.notes if merged else ())):
            walk.emit("step.note", text=note)
    if result.outcome in ("again", "exhausted"):
        walk.emit(ending.end.kind, version=result.version, **ending.end.data)
    if result.outcome in ("committed", "moved"):
        walk.emit("step.done", version=result.version, **summary)
    if result.outcome == "moved":
        stands = walk.step.spec.on_input_change == "keep"
        walk.emit("step.moved", inputs=list(result.moved), redo=bool(result.ready) and not stands, stands=stands)
    if result.outcome == "conflict" and merged is not None and merged.merge.error is not None:
        walk.emit("step.waiting", **_told(merged.merge.error))
    return result.ready


async def fail_step(walk: Walk, error: OrchError, done: DoneCall | None) -> tuple[Dispatch, ...]:
    if isinstance(error, BudgetExceeded) and walk.run.on_exceed == "pause":
        if done is not None:
            await walk.services.store.done(walk.dispatch, done)
        raise error
    ready: tuple[Dispatch, ...] = ()
    if walk.dispatch.item is not None:
        ready = await walk.services.store.fail_item(walk.dispatch, error_record(error), done)
    else:
        await walk.services.store.fail(walk.dispatch, error_record(error), done)
    walk.emit("step.failed", code=error.code, message=error.message, hint=error.hint)
    return ready


async def let_wait(walk: Walk, error: OrchError) -> tuple[Dispatch, ...]:
    if isinstance(error, ToolUnapproved):
        error.hint = f'orch approve {walk.place} | orch reject {walk.place} -m "…"'
    await walk.services.store.wait(walk.dispatch, error_record(error))
    walk.emit("step.waiting", code=error.code, message=error.message, hint=error.hint)
    return ()


def error_record(error: OrchError) -> ErrorRecord:
    return ErrorRecord(error.code, error.message, error.hint, error.exit_code)
