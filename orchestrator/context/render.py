"""From what was chosen to blocks: each piece of text with its source, its rule, its label and its tokens.

A block's parts are kept apart so that the body of an artifact is stored once, however many steps read it: wrapper,
body, closing tag. A block's tokens are those of its own text, so that the tokens of all blocks add up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from orchestrator.context.budget import message_name, turn_text
from orchestrator.context.guards import framed, highest, not_for, sensitivity_of
from orchestrator.context.select import Chosen
from orchestrator.contracts import Contract
from orchestrator.errors import Place
from orchestrator.frame import (
    FACTS_HEADING,
    FramedArtifact,
    FramedQuote,
    unescape,
    write_artifact,
    write_comment,
    write_facts,
    write_feedback,
    write_message,
    write_quote,
)
from orchestrator.ids import canonical_json
from orchestrator.providers.tokens import estimate
from orchestrator.spec import ConversationSpec, Sensitivity
from orchestrator.values import Artifact, Block, Layer, Message, Redo

WHOLE: Final = "$"  # the path of a quote that is the whole value
GIVEN: Final = "A value that this step works with."


def text_block(layer: Layer, source: str, rule: str, *parts: str, sensitivity: Sensitivity = "public") -> Block:
    """A block of our own or the customer's words, without a label."""
    return Block(layer, source, parts, rule, estimate("".join(parts)), sensitivity=sensitivity)


def artifact_block(chosen: Chosen) -> Block:
    """A read in its wrapper, as it stands in its default place: with a line break after the closing tag."""
    opening, body, closing = write_artifact(framed(chosen))
    read, version = chosen.read, chosen.version
    guards = (*not_for(chosen), *([read.guard] if read.guard is not None else []))
    return Block(
        layer="artifact",
        source=read.name,
        parts=(opening, body, closing + "\n"),
        rule=f"{_rule(chosen)}, {read.place}",
        tokens=estimate(opening + body + closing + "\n") + (chosen.attachment.tokens if chosen.attachment else 0),
        artifact_id=version.id if version else None,
        version=version.version if version else None,
        contract=read.contract.name,
        fields=read.fields,
        about=read.contract.about,
        guards=guards,
        sensitivity=sensitivity_of(chosen),
        attachment=chosen.attachment,
    )


def _rule(chosen: Chosen) -> str:
    read = chosen.read
    if chosen.version is None:
        rule = "default of the read"
    elif read.kind == "entry":
        rule = f"for_each: the entry of {read.of}"
    else:
        rule = "same" if read.takes == "sibling" else "reads"
    return f"{rule}, summed up" if chosen.summary else rule


def given_block(name: str, content: str, contract: Contract | None, guards: tuple[str, ...]) -> Block:
    """A value that a Python body gives to a question, in a wrapper like a read's: with its label, if it has one."""
    about = contract.about if contract is not None else GIVEN
    framed_value = FramedArtifact(name, contract.name if contract is not None else "value", about, guards, content)
    opening, body, closing = write_artifact(framed_value)
    return Block(
        layer="artifact",
        source=name,
        parts=(opening, body, closing + "\n"),
        rule="given to ask",
        tokens=estimate(opening + body + closing + "\n"),
        about=about,
        guards=guards,
        sensitivity=contract.sensitivity if contract is not None else "public",
    )


def turn_blocks(limits: ConversationSpec | None, messages: Iterable[Message]) -> Iterator[Block]:
    """One block for each message, so that the trace shows each with its tokens and the step it comes from (R024)."""
    if limits is None:
        return
    rule = f"conversation: newest {limits.messages} messages, at most {limits.tokens} tokens"
    for message in messages:
        text = turn_text(message)
        yield text_block("conversation", message_name(message), rule, text, sensitivity=message.sensitivity)


def facts_text_block(text: str, sensitivity: Sensitivity) -> Block:
    """What the record says about the customer; `text` is what `facts_block` wrote, with or without its heading."""
    lines = text.removeprefix(FACTS_HEADING)
    return text_block("facts", "facts", "facts about the customer", write_facts(lines), sensitivity=sensitivity)


def message_block(text: str, sensitivity: Sensitivity = "internal") -> Block:
    """The run's message: the last thing the model reads."""
    return text_block("message", "message", "the run's message", write_message(text), sensitivity=sensitivity)


def draft_block(step: str, contract: Contract, draft: Artifact) -> Block:
    """The step's own current version, to be changed: in a wrapper like a read's, which says who has edited it."""
    version = draft.version
    by = f"edited by {version.author}" if version.origin in ("person", "import") else "as this step made it"
    guards = tuple(dict.fromkeys((*contract.not_for, *version.guards)))
    content = draft.body.decode("utf-8", "replace")
    framed_value = FramedArtifact(step, contract.name, contract.about, guards, content, draft=by)
    opening, body, closing = write_artifact(framed_value)
    return Block(
        layer="draft",
        source=step,
        parts=(opening, body, closing + "\n"),
        rule=f"current draft, {by}",
        tokens=estimate(opening + body + closing + "\n"),
        artifact_id=version.id,
        version=version.version,
        contract=contract.name,
        about=contract.about,
        guards=guards,
        sensitivity=highest((contract.sensitivity, version.sensitivity)),
    )


def feedback_block(text: str, place: Place, draft: Artifact) -> Block:
    """What is not good yet about the current version, as the step's loop says."""
    rule = f"feedback of repeat, {place}"
    return text_block("feedback", "repeat", rule, write_feedback(text), sensitivity=draft.version.sensitivity)


def comment_block(redo: Redo, *, alone: bool = False) -> Block:
    """What the person who asked for this attempt wants of it. `alone`: nothing stands ahead of it (a follow-up)."""
    assert redo.comment is not None
    text = write_comment(redo.comment.text)
    name = f"message {redo.comment.seq}"
    rule = f"comment by {redo.author}"
    text = text.lstrip("\n") if alone else text
    return text_block("comment", name, rule, text, sensitivity=redo.comment.sensitivity)


def placed(block: Block) -> Block:
    """An artifact's block where a template put it: without the line break of its default place."""
    parts = (*block.parts[:-1], block.parts[-1].removesuffix("\n"))
    beside = block.attachment.tokens if block.attachment is not None else 0
    return replace(block, parts=parts, tokens=estimate("".join(parts)) + beside)


# --- quotes -----------------------------------------------------------------------------------------------------------


def content_of(block: Block) -> str:
    """The text in an artifact's wrapper, as it was before it was escaped."""
    return unescape(block.parts[1])


def quoted(block: Block, path: str, rule: str, name: str) -> Block:
    """One value of an artifact's block as a quote that is labelled with this name. Raises ValueError where the path
    leads nowhere."""
    guards = " ".join(block.guards)
    content = content_of(block)
    value = content if path == WHOLE else shown(find(content, path))
    parts = write_quote(FramedQuote(name, path, guards, value))
    return replace(block, parts=parts, rule=rule, tokens=estimate("".join(parts)), fields=(path,), attachment=None)


def find(content: str, path: str) -> Any:
    """The value at a path (`field`, `field.part`, `field[0].part`) of JSON text. Raises ValueError."""
    try:
        value = json.loads(content)
    except ValueError:
        raise ValueError("it is text and has no fields") from None
    done = ""
    for part in path.removeprefix("$").replace("[", ".").replace("]", "").strip(".").split("."):
        value = _part(value, part, done)
        done = f"{done}.{part}" if done else part
    return value


def _part(value: Any, part: str, done: str) -> Any:
    where = done or "its value"
    if isinstance(value, dict):
        if part in value:
            return value[part]
        raise ValueError(f"{where} has no field {part!r} (it has {', '.join(value) or 'none'})")
    if isinstance(value, list):
        if part.isascii() and part.isdigit() and int(part) < len(value):
            return value[int(part)]
        raise ValueError(f"{where} is a list of {len(value)}, which has no entry {part!r}")
    raise ValueError(f"{where} is a single value and has no field {part!r}")


def shown(value: Any) -> str:
    """A value inside a sentence: text as it is, anything else as JSON on one line."""
    return value if isinstance(value, str) else canonical_json(value, indent=None).decode()
