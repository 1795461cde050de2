"""What fits: hard limits, whole pieces, and a line in the ledger for everything that is dropped.

The conversation is cut to its budget, newest first. Declared reads are cut or summed up only where their contract says
so, and then the reader is told. Otherwise one that is larger than its contract allows, or than the model's window, is
an error before anything is paid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.context.select import Chosen
from orchestrator.context.summaries import is_over, summed_up
from orchestrator.errors import StepFailed
from orchestrator.frame import Turn, write_turn
from orchestrator.graph import StepNode
from orchestrator.ids import canonical_json
from orchestrator.providers.tokens import estimate
from orchestrator.spec import ConversationSpec
from orchestrator.values import Block, LeftOut, Message


def fit_conversation(
    limits: ConversationSpec | None, messages: tuple[Message, ...], total: int
) -> tuple[tuple[Message, ...], tuple[LeftOut, ...]]:
    """The newest messages that fit both caps, in their order, and what was dropped with the reason.

    `total` counts the session's messages, of which `messages` are the newest. The first message that does not fit ends
    the block: a conversation with a hole in it would mean something else.
    """
    unseen = total - len(messages)
    if limits is None:
        return (), (*_unseen(unseen, "conversation: off"), *(_dropped(m, "conversation: off") for m in messages))
    recent = messages[len(messages) - limits.messages :] if limits.messages < len(messages) else messages
    kept = len(recent) - _fitting(recent, limits.tokens)
    old = f"older than the last {limits.messages}"
    over = f"over the conversation budget of {limits.tokens} tokens"
    dropped = _unseen(unseen, old)
    dropped += [_dropped(message, old) for message in messages[: len(messages) - len(recent)]]
    dropped += [_dropped(message, over) for message in recent[:kept]]
    return recent[kept:], tuple(dropped)


def _fitting(messages: tuple[Message, ...], limit: int) -> int:
    """How many messages, counted from the newest, fit the limit together."""
    used = 0
    for count, message in enumerate(reversed(messages)):
        used += estimate(turn_text(message))
        if used > limit:
            return count
    return len(messages)


def turn_text(message: Message) -> str:
    """A message as its line of the frame."""
    return write_turn(Turn(message.role, message.text, message.step))


def message_name(message: Message) -> str:
    """How the trace names a message: its number in the session, who wrote it, and in which step."""
    return f"message {message.seq} ({message.role}{f', {message.step}' if message.step else ''})"


def message_number(name: str) -> int | None:
    """The number in a name that `message_name` made; None for what names no single message."""
    found = re.match(r"message (\d+) \(", name)
    return int(found[1]) if found else None


def _unseen(count: int, reason: str) -> list[LeftOut]:
    """One line for messages that were not even loaded."""
    return [LeftOut("conversation", f"{count} earlier messages", reason)] if count > 0 else []


def _dropped(message: Message, reason: str) -> LeftOut:
    return LeftOut("conversation", message_name(message), reason, estimate(turn_text(message)))


def fit_contracts(
    step: StepNode, chosen: Iterable[Chosen], summaries: Mapping[str, str]
) -> tuple[tuple[Chosen, ...], tuple[LeftOut, ...]]:
    """The reads as large as their contracts allow, and what was left out for that. `summaries` are of those that are to
    be summed up, by the read's name. Raises StepFailed for the first one that is larger and has to be sent whole."""
    fitting: list[Chosen] = []
    dropped: list[LeftOut] = []
    for entry in chosen:
        limit = entry.read.contract.max_tokens
        size = entry.attachment.tokens if entry.attachment is not None else estimate(entry.content)
        if limit is not None and size > limit:
            entry, left = _shortened(step, entry, size, limit, summaries)
            dropped.append(left)
        fitting.append(entry)
    return tuple(fitting), tuple(dropped)


def _shortened(
    step: StepNode, entry: Chosen, size: int, limit: int, summaries: Mapping[str, str]
) -> tuple[Chosen, LeftOut]:
    """A read that is too large, in the way that its contract says; half a file is none."""
    read, contract = entry.read, entry.read.contract
    if is_over(entry):
        return summed_up(entry, summaries[read.name])
    if contract.overflow == "truncate" and entry.attachment is None:
        kept = beginning(entry.content, limit)
        over = f"over max_tokens of {limit:,}: the contract {contract.name} says overflow: truncate"
        left = LeftOut("artifact", f"the rest of {read.name}", over, size - estimate(kept))
        return replace(entry, content=kept), left
    raise StepFailed(
        f"{read.name} is too large for {step.name}: about {size:,} tokens, and its contract "
        f"{contract.name} allows {limit:,} (max_tokens); nothing was sent",
        hint="read fewer fields of it, shorten it with `orch edit`, let it be cut or summed up (overflow: truncate or "
        f"summarise), or raise max_tokens in {contract.place}",
        code="too_large",
        place=read.place,
    )


def beginning(text: str, limit: int) -> str:
    """The beginning of a text, in so many tokens with the line that says that it is one: whole lines, unless they are
    very long, and never half a character."""
    note = f"\n[cut here: of about {estimate(text):,} tokens, the first {limit:,} at most are shown]"
    room = max(0, limit * 7 // 2 - len(note.encode()))
    kept = text.encode()[:room].decode("utf-8", "ignore")
    line = kept.rfind("\n")
    return (kept[:line] if line > len(kept) // 2 else kept) + note


def check_window(step: StepNode, system: str, blocks: Iterable[Block], window: int | None) -> None:
    """Raises StepFailed if the request and the reply to come pass the window.

    The request is system, blocks, tools and output schema, plus 10 % since its tokens are an estimate.
    """
    if window is None or step.model is None:
        return
    sent = tuple(blocks)
    counted = estimate(system) + sum(block.tokens for block in sent) + _definitions(step)
    need = -(-counted * 11 // 10) + step.model.max_output_tokens
    if need > window:
        largest = max(sent, key=lambda block: block.tokens, default=None)
        part = f"; the largest part is {largest.source} with {largest.tokens:,}" if largest else ""
        raise StepFailed(
            f"{step.name} does not fit the window of {step.model.provider}:{step.model.model}: about {need:,} tokens "
            f"with the reply of {step.model.max_output_tokens:,}, and the window is {window:,}{part}; nothing was sent",
            hint="read fewer steps or only some `fields` of them, lower max_output_tokens, or use a model with a "
            "larger window",
            code="too_large",
            place=step.place,
        )


def _definitions(step: StepNode) -> int:
    """Tokens of what travels beside the text: tool definitions, and the output schema where it is not in the task."""
    tools = [[tool.spec.name, tool.spec.description, dict(tool.spec.parameters)] for tool in step.tools]
    native = step.model is None or step.model.structured == "native"
    schema = step.contract.sent_schema() if native else None
    return sum(estimate(canonical_json(part, indent=None)) for part in (*tools, *([schema] if schema else [])))
