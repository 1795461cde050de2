"""What a thread's recorded calls say: which of them count, what the thread holds, what comes next. Pure.

A chain keeps no state beside its calls. Whether the list was made a second ago or by a process that is dead since, it
says the same; so a resumed attempt is no special case. See `orchestrator.chain` for the table of moves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.values import CallRow, CallSource, Item, Prompt, TextItem, ToolOutput

# What a call contributes to the thread. All others are redone from their parent and leave no trace in the context.
TRANSCRIPT: Final = frozenset({"accepted", "tools", "reask", "rejected"})
KEPT_OF_RESULT: Final = 400  # characters of a tool's result in the short form of a thread
MARK_SIZE: Final = 100  # about what it takes to say so
REPLAY_REASONS: Final = frozenset({"chain_lost", "chain_unsupported", "unanswered_call"})


@dataclass(frozen=True, slots=True)
class Send:
    source: CallSource
    items: tuple[Item, ...]
    replay: str = ""  # why this call must be replayed; empty = as the endpoint allows
    compact: bool = False  # and with the results of tools cut that the model has been told before
    cap_factor: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    call: CallRow


def next_move(calls: Sequence[CallRow], opening: Sequence[Item], source: CallSource = "NEXT_STEP") -> Send | Answer:
    """What comes after these calls. One that is `accepted` or `rejected` ends a question; the next one opens then."""
    if not calls or has_ended(calls[-1]):
        return Send(source, tuple(opening))
    last = calls[-1]
    if last.done is not None and last.done.outcome == "tools":
        return Answer(last)
    if last.done is not None and last.done.outcome == "reask":
        return Send("REASK", last.done.follow)
    tries = turn(calls)
    reason = next((reason for call in tries if (reason := _replay_reason(call))), "")
    compact = any(map(is_too_long, tries))
    return Send(last.sent.source, last.sent.items, reason, compact, 2 if any(map(is_cut_off, tries)) else 1)


def has_ended(call: CallRow) -> bool:
    """Whether this call is the last of its question."""
    return call.done is not None and call.done.outcome in ("accepted", "rejected")


def question(calls: Sequence[CallRow]) -> tuple[CallRow, ...]:
    """The calls of the question under way: all after the last one that ended a question."""
    return tuple(calls[max((at + 1 for at, call in enumerate(calls) if has_ended(call)), default=0) :])


def standing(calls: Sequence[CallRow]) -> tuple[CallRow, ...]:
    """The calls that count: from the last one on that began the thread anew."""
    return tuple(calls[max((at for at, call in enumerate(calls) if call.sent.source == "REBUILD"), default=0) :])


def turn(calls: Sequence[CallRow]) -> tuple[CallRow, ...]:
    """The tries of the turn under way: all calls after the last one that the thread holds.

    What one of them has found out (the chain is lost, the cap too low) holds for those after it, also over a restart.
    """
    start = max((at + 1 for at, call in enumerate(calls) if in_transcript(call)), default=0)
    return tuple(calls[start:])


def is_cut_off(call: CallRow) -> bool:
    return call.done is not None and call.done.outcome == "cut_off"


def is_too_long(call: CallRow) -> bool:
    """Whether the vendor found the whole of it too long for the model's window."""
    return call.done is not None and call.done.outcome == "error" and call.done.reason == "too_long"


def was_compacted(calls: Sequence[CallRow]) -> bool:
    """Whether the thread has been sent in its short form already: a replay of it stays short."""
    return any(call.sent.rung == "compact" and in_transcript(call) for call in standing(calls))


def shortened(items: Sequence[Item]) -> tuple[Item, ...]:
    """The same with the results of tools cut to their beginning, and said so. Everything else stands as it was."""
    return tuple(_cut(item) if isinstance(item, ToolOutput) else item for item in items)


def _cut(result: ToolOutput) -> ToolOutput:
    if len(result.output) <= KEPT_OF_RESULT + MARK_SIZE:
        return result
    cut = len(result.output) - KEPT_OF_RESULT
    note = f"\n[{cut:,} more characters of this result are left out now: the conversation would be too long]"
    return replace(result, output=result.output[:KEPT_OF_RESULT] + note)


def _replay_reason(call: CallRow) -> str:
    if call.done is None:
        return ""
    if call.done.outcome == "discarded" or call.done.reason in REPLAY_REASONS:
        return call.done.reason
    return ""


def in_transcript(call: CallRow) -> bool:
    return call.done is not None and call.done.outcome in TRANSCRIPT


def transcript(calls: Sequence[CallRow]) -> tuple[Item, ...]:
    """Everything the thread holds: what was sent and answered, in order; what replay resends."""
    kept = [c for c in standing(calls) if in_transcript(c)]
    return tuple(item for c in kept if c.done for item in (*c.sent.items, *c.done.items))


def head(calls: Sequence[CallRow]) -> CallRow | None:
    """The call whose response the next one chains on: the last completed one; None where there is none."""
    for call in reversed(standing(calls)):
        if in_transcript(call) and call.done and call.done.response_id:
            return call
    return None


def ends_with(calls: Sequence[CallRow]) -> bytes | None:
    """The value that these calls ended with, as canonical bytes; None where they have not, or it was not kept."""
    last = calls[-1].done if calls else None
    return last.answer if last is not None and last.outcome == "accepted" else None


def last_input_tokens(calls: Sequence[CallRow]) -> int:
    kept = [c.done for c in reversed(standing(calls)) if in_transcript(c)]
    return next((done.usage.input_tokens for done in kept if done and done.usage), 0)


def count_reasks(calls: Sequence[CallRow]) -> int:
    return sum(1 for c in calls if c.done and c.done.outcome == "reask")


def prompt_item(prompt: Prompt) -> TextItem:
    """The message that opens a thread."""
    return TextItem(tuple(part for block in prompt.blocks for part in block.parts), prompt.files)


def file_tokens(items: Sequence[Item]) -> int:
    """What the files of some items weigh, beside their text."""
    return sum(file.tokens for item in items if isinstance(item, TextItem) for file in item.files)


def item_text(item: Item) -> str:
    """What an item weighs, as text."""
    if isinstance(item, TextItem):
        return item.text
    if isinstance(item, ToolOutput):
        return item.output
    return json.dumps(dict(item.data), ensure_ascii=False)
