"""What a step's model may see: select → guard → fit → blocks.

Three things enter, and no other: the declared reads, the session's visible conversation, and what the record says about
the customer. Each becomes a block that knows where it comes from, which rule chose it, what it must not be used for and
how many tokens it takes; everything that was a candidate and does not enter is left out by name, with the reason.

All of this is a pure function of one snapshot, so the same call shows a request before it is paid for and explains it
afterwards.
"""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.context.budget import check_window, fit_contracts, fit_conversation
from orchestrator.context.guards import check_access, check_files, check_tools, highest, tool_levels
from orchestrator.context.render import (
    artifact_block,
    comment_block,
    draft_block,
    facts_text_block,
    feedback_block,
    message_block,
    turn_blocks,
)
from orchestrator.context.select import choose, fields_left, statements
from orchestrator.facts import facts_block
from orchestrator.graph import Graph, StepNode
from orchestrator.repeating import feedback
from orchestrator.spec import Sensitivity
from orchestrator.values import Block, Context, Redo, Snapshot, Statement

__all__ = ["build_context"]


def build_context(
    graph: Graph,
    step: StepNode,
    snapshot: Snapshot,
    *,
    may_see: Sensitivity,
    provider_name: str,
    window: int | None,
    accepts: Collection[str] = ("image", "pdf"),
) -> Context:
    """The blocks of a step's first request in frame order, and what was left out.

    `may_see` is the highest sensitivity that `provider_name` may be sent; `window` the model's context in tokens, None
    where it is not known; `accepts` the kinds of files that it takes. Raises AccessRefused for a block the provider may
    not see, StepFailed for a read or a whole that is too large and for a file that is not taken, UsageError for a read
    that has no value yet. Nothing was sent then.
    """
    chosen = choose(graph, step, snapshot)
    shown, cut = fit_contracts(step, chosen, snapshot.summaries)
    turns, dropped = fit_conversation(step.conversation, snapshot.conversation, snapshot.conversation_total)
    artifacts = tuple(artifact_block(entry) for entry in shown)
    said = statements(graph, chosen, snapshot, turns)
    material = (*artifacts, *_draft(step, snapshot.redo), *turn_blocks(step.conversation, turns))
    sensitivity = highest(block.sensitivity for block in material)
    facts = _facts(step, said, sensitivity)
    message = (message_block(snapshot.message),) if snapshot.message else ()
    blocks = (*material, *facts, *_feedback(step, snapshot), *message, *_comment(step, snapshot.redo))
    check_access(step.name, blocks, may_see, provider_name)
    check_tools(step, may_see, provider_name)
    check_files(step, blocks, accepts, provider_name)
    check_window(step, step.system, blocks, window)
    return Context(
        blocks=blocks,
        left_out=(*fields_left(step), *cut, *dropped),
        statements=said,
        sensitivity=highest([*(block.sensitivity for block in blocks), *tool_levels(step)]),
        window=window,
    )


def shows_draft(step: StepNode, snapshot: Snapshot) -> bool:
    """Whether a person's word on the version that stands is what the step was asked for with, and it was shown that: by
    a draft among its blocks, or because its thread had ended with it. What it then makes is a change of that version.
    """
    redo = snapshot.redo
    return redo is not None and redo.draft is not None and redo.mode == "follow_up" and step.kind == "llm"


def _draft(step: StepNode, redo: Redo | None) -> tuple[Block, ...]:
    """The step's own version, where that is what is to be changed. A Python body looks at it by itself."""
    if redo is None or redo.draft is None or redo.mode not in ("follow_up", "repeat") or step.kind != "llm":
        return ()
    return (draft_block(step.called, step.contract, redo.draft),)


def _feedback(step: StepNode, snapshot: Snapshot) -> tuple[Block, ...]:
    """What the step's loop says of the version before, ahead of the task."""
    redo, repeat = snapshot.redo, step.repeat
    if redo is None or redo.draft is None or repeat is None or redo.mode != "repeat" or step.kind != "llm":
        return ()
    said = feedback(step, step.contract.load(redo.draft.body), snapshot)
    return (feedback_block(said, repeat.place, redo.draft),)


def _comment(step: StepNode, redo: Redo | None) -> tuple[Block, ...]:
    return (comment_block(redo),) if redo is not None and redo.comment is not None and step.kind == "llm" else ()


def _facts(step: StepNode, said: tuple[Statement, ...], sensitivity: Sensitivity) -> tuple[Block, ...]:
    text = facts_block(step.contract, said)
    return (facts_text_block(text, sensitivity),) if text else ()
