"""How a step that is made once more begins: on the thread that made its version, or anew from the present (S05).

A follow-up is worth its name only where the model would go on from what stands now. Its thread remembers what was sent
and answered then. So before anything is sent, the thread is compared with the present: what it was made from, what it
ended with, and where. Where all of that still holds, only the person's word is sent, on the thread's last reply.
Otherwise the old thread would undo what has happened since (an edit, a newer input), and the step begins on a fresh
thread: the present inputs, the current version as a draft that says who has edited it, and the person's word last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.bodies.asking import Walk, new_thread, recorded_thread, weight
from orchestrator.context import build_context
from orchestrator.context.budget import check_window
from orchestrator.context.guards import check_access, highest
from orchestrator.context.render import comment_block, text_block
from orchestrator.errors import StepFailed
from orchestrator.graph import StepNode
from orchestrator.ids import synthetic_thread_id
from orchestrator.moves import ends_with, item_text, transcript
from orchestrator.providers.base import Provider
from orchestrator.store.records import ThreadJournal
from orchestrator.thread import explain
from orchestrator.values import (
    Block,
    CallRow,
    CallSource,
    Context,
    LeftOut,
    Manifest,
    Prompt,
    Redo,
    Snapshot,
    ThreadRecord,
)
from orchestrator.workers import aside

NO_THREAD: Final = "the current version came from no thread of this run"


@dataclass(frozen=True, slots=True)
class Opening:
    """A thread that is about to begin: what its first call is, and the calls of the threads it goes on from. `why` says
    why a follow-up is none."""

    thread: ThreadRecord
    context: Context
    source: CallSource = "NEXT_STEP"
    before: tuple[CallRow, ...] = ()
    why: str = ""


async def context_for(walk: Walk, provider: Provider, snapshot: Snapshot) -> Context:
    """What the step's model may see, for this provider. Raises what `build_context` raises."""
    return await aside(weight(snapshot), _context_of, walk, provider, snapshot)


def _context_of(walk: Walk, provider: Provider, snapshot: Snapshot) -> Context:
    model = walk.step.model
    assert model is not None
    return build_context(
        walk.graph,
        walk.step,
        snapshot,
        may_see=provider.traits.may_see,
        provider_name=provider.traits.name,
        accepts=provider.traits.accepts,
        window=walk.services.prices.window(model.provider, model.model),
    )


async def opening(walk: Walk, provider: Provider, snapshot: Snapshot, now: Manifest) -> Opening:
    """The thread that this attempt begins. Raises what selecting and composing raise; nothing was sent then."""
    redo = snapshot.redo
    if redo is None or redo.mode != "follow_up":
        context = await context_for(walk, provider, snapshot)
        return Opening(await new_thread(walk, provider, context, snapshot), context)
    former = await _former(walk, redo)
    why = NO_THREAD if former is None else unlike(walk.step, redo, former, provider, now)
    if former is not None and not why:
        found = await aside(weight(snapshot), _followed, walk, provider, snapshot, former, now)
        if isinstance(found, Opening):
            return found
        why = found
    context = await context_for(walk, provider, snapshot)
    left = LeftOut("conversation", "the thread that made the current version", why)
    context = replace(context, left_out=(*context.left_out, left))
    return Opening(await new_thread(walk, provider, context, snapshot), context, "REBUILD", why=why)


async def taken_up(walk: Walk, provider: Provider, snapshot: Snapshot, recorded: ThreadJournal) -> Opening:
    """A thread that has begun already, in a process before this one."""
    if recorded.continues is None:
        return Opening(recorded_thread(recorded), await context_for(walk, provider, snapshot))
    context = await aside(weight(snapshot), _context_beside, walk, provider, snapshot, _blocks(recorded))
    return Opening(recorded_thread(recorded), context, before=recorded.before)


async def _former(walk: Walk, redo: Redo) -> ThreadJournal | None:
    """The thread that the current version came from, whoever has edited it since; none of another run."""
    store, dispatch = walk.services.store, walk.dispatch
    own = await store.attempts(dispatch.run_id, dispatch.step, dispatch.item)
    if redo.made_by not in {attempt.id for attempt in own}:
        return None
    return (await store.journal(redo.made_by or "")).main


def unlike(step: StepNode, redo: Redo, former: ThreadJournal, provider: Provider, now: Manifest) -> str:
    """Why a thread does not lead to the present, in one sentence; empty where it does. Pure."""
    draft, model = redo.draft, step.model
    assert draft is not None
    assert model is not None
    if redo.comment is None:
        return "nothing was said that could be sent"
    there = (former.provider, former.model, former.base_url)
    here = (provider.traits.name, model.model, provider.traits.base_url)
    if there != here:
        return f"it was made by {former.provider}:{former.model}" + (" elsewhere" if there[:2] == here[:2] else "")
    changed = explain(former.prompt.manifest, now)
    if changed:
        return "; ".join(changed)
    if ends_with(former.calls) != draft.body:
        edited = draft.version.origin in ("person", "import")
        return f"edited by {draft.version.author}" if edited else "the current version is not its last answer"
    return ""


def _followed(
    walk: Walk, provider: Provider, snapshot: Snapshot, former: ThreadJournal, now: Manifest
) -> Opening | str:
    """The old thread with the comment on its last reply; or why that cannot be sent."""
    redo, step = snapshot.redo, walk.step
    assert redo is not None
    block = comment_block(redo, alone=True)
    sent = (*_blocks(former), block)
    check_access(step.name, sent, provider.traits.may_see, provider.traits.name)
    context = _context_beside(walk, provider, snapshot, sent)
    held = (*former.before, *former.calls)
    answers = text_block("conversation", "the thread", "follow-up", *(item_text(item) for item in transcript(held)))
    try:
        check_window(step, former.prompt.system, (answers, block), context.window)
    except StepFailed:
        return "the whole of it would not fit the model's window any more"
    thread = ThreadRecord(
        id=synthetic_thread_id(walk.run.session_id),
        name=former.name,
        provider=former.provider,
        model=former.model,
        base_url=former.base_url,
        prompt=Prompt(former.prompt.system, (block,), now),
        settings=former.settings,
        continues=former.id,
    )
    return Opening(thread, context, "FOLLOW_UP", held)


def _context_beside(walk: Walk, provider: Provider, snapshot: Snapshot, sent: Sequence[Block]) -> Context:
    """The context by which a follow-up's answers are checked: what was sent before counts for how confidential they
    are, and the current version need not be shown, since it is what the thread ends with."""
    redo = snapshot.redo
    if redo is None:
        return _context_of(walk, provider, snapshot)
    context = _context_of(walk, provider, replace(snapshot, redo=replace(redo, mode="fresh")))
    made = [redo.draft.version.sensitivity] if redo.draft else []
    return replace(context, sensitivity=highest((context.sensitivity, *made, *(b.sensitivity for b in sent))))


def _blocks(thread: ThreadJournal) -> tuple[Block, ...]:
    earlier = _blocks(thread.continues) if thread.continues else ()
    return (*earlier, *thread.prompt.blocks)
