"""What is chosen for a request: blocks with their source and their rule, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from orchestrator.spec import Sensitivity

Layer = Literal["system", "artifact", "draft", "conversation", "facts", "feedback", "task", "message", "comment"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes to a model beside the text: `name` is the artifact's, `tokens` about what it weighs."""

    name: str
    media: str
    body: bytes = field(repr=False)
    tokens: int


@dataclass(frozen=True, slots=True)
class Block:
    """One labelled piece of a composed thread.

    `parts` concatenated are its text; they are kept apart so that an artifact's body is stored once, however many
    steps read it. `rule` says why it is here ("reads, discovery.yaml:58:15").
    """

    layer: Layer
    source: str
    parts: tuple[str, ...]
    rule: str
    tokens: int
    artifact_id: str | None = None
    version: int | None = None
    contract: str | None = None
    fields: tuple[str, ...] | None = None
    about: str | None = None
    guards: tuple[str, ...] = ()
    sensitivity: Sensitivity = "internal"
    attachment: Attachment | None = None

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that was not sent, and why: `over budget`, `older than the last 30`, `not declared`, …"""

    layer: Layer
    source: str
    reason: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """Words of the customer (or of the record) that a customer fact may be found in. `label` names the fact, if known.

    `guarded`: an input that says what it must not be used for (an agency's notes, a price list). It answers the field
    of its own name and no other.
    """

    source: str
    text: str
    kind: Literal["input", "turn", "record"] = "input"
    label: str | None = None
    sent: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """The outcome of select → guard → fit: blocks taken in frame order, and what was refused or dropped.

    `window` is the model's context in tokens, None where it is not known: the composed whole must fit it too.
    """

    blocks: tuple[Block, ...]
    left_out: tuple[LeftOut, ...] = ()
    statements: tuple[Statement, ...] = ()
    sensitivity: Sensitivity = "internal"
    window: int | None = None
