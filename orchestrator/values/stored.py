"""What the store holds, and one snapshot of it that a step may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from orchestrator.spec import Sensitivity

if TYPE_CHECKING:
    from orchestrator.values.requests import Manifest


# `bench`: samples of one step on a run's inputs, made to be compared and no part of a conversation.
RunKind = Literal["run", "bench"]
RunStatus = Literal["running", "waiting", "paused", "succeeded", "failed", "cancelled"]
# How an attempt begins: anew if its inputs changed, anew in any case, in the thread before it, or as a loop's visit.
Mode = Literal["", "fresh", "follow_up", "repeat"]
AttemptState = Literal["ready", "running", "succeeded", "failed", "waiting", "cancelled", "kept", "skipped"]
StepStatus = Literal["pending", "ready", "running", "succeeded", "failed", "waiting", "cancelled", "skipped"]
Origin = Literal["model", "person", "function", "import", "input"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose data this is. `-` stands for none; a store is opened with a scope and sees nothing outside it."""

    tenant: str = "-"
    account: str = "-"
    subject: str = "-"


@dataclass(frozen=True, slots=True)
class FactBasis:
    """Why a customer fact is believed: `stated` by the customer or on `record`, the words found, and where."""

    basis: Literal["stated", "record"]
    quote: str
    source: str


@dataclass(frozen=True, slots=True)
class ArtifactVersion:
    """One version of a step's or input's value, without its body. `field_hashes` has one hash per top-level field.

    `parent_id` is the version it was made from; `merged_id` the draft that it takes in beside that (S07).
    """

    id: str
    run_id: str
    step: str
    item: str | None
    contract: str
    version: int
    sha256: str
    size: int
    author: str
    origin: Origin
    created_at: datetime
    parent_id: str | None
    sensitivity: Sensitivity
    field_hashes: Mapping[str, str]
    facts: Mapping[str, FactBasis] = field(default_factory=dict)
    guards: tuple[str, ...] = ()
    draft: bool = False
    merged_id: str | None = None

    @property
    def label(self) -> str:
        """What it is a version of, as people write it: `tech-stack`, `competitor-profile/acme`."""
        return f"{self.step}/{self.item}" if self.item else self.step


@dataclass(frozen=True, slots=True)
class Artifact:
    """A version with its body: canonical UTF-8 bytes (S25)."""

    version: ArtifactVersion
    body: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One visible line of the session's conversation. `seq` orders it within the session (S33)."""

    seq: int
    role: Literal["user", "assistant", "operator"]
    text: str
    step: str | None = None
    run_id: str | None = None
    sensitivity: Sensitivity = "internal"


@dataclass(frozen=True, slots=True)
class Redo:
    """What an attempt that makes a finished step anew was asked for with, and what it starts from.

    `comment` is the word of the person who asked (`author`); `draft` is the step's current version with its body, and
    `made_by` the attempt whose thread that version came from, whoever has edited it since.
    """

    mode: Mode
    round: int = 0
    comment: Message | None = None
    author: str = ""
    draft: Artifact | None = None
    made_by: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one step may look at, read in ONE transaction (S06): current heads with bodies, the conversation.

    `artifacts` holds the declared reads that exist, of a step with items its index; the items themselves, those that
    stand, are in `items`, by key. `entry` is the entry of a list that an item is made for. `record` holds every
    customer-authored input of the run, for the own-words check only (nothing of it is sent unless it is read); `head`
    is the step's own current version, if any, and `accepted` the manifests it rests on. `redo` is there for an attempt
    that somebody asked for. Its comment is no part of the conversation. `summaries` are there once they are made: of
    the reads that are too large and may be summed up, by name.
    """

    artifacts: Mapping[str, Artifact]
    conversation: tuple[Message, ...] = ()
    conversation_total: int = 0
    message: str | None = None
    record: Mapping[str, Artifact] = field(default_factory=dict)
    defaulted: frozenset[str] = frozenset()
    head: ArtifactVersion | None = None
    redo: Redo | None = None
    accepted: tuple[Manifest, ...] = ()
    items: Mapping[str, Mapping[str, Artifact]] = field(default_factory=dict)
    entry: Artifact | None = None
    summaries: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> Mapping[str, ArtifactVersion]:
        """The versions of the reads, by name; an item's is under `step/key`."""
        found = {name: artifact.version for name, artifact in self.artifacts.items()}
        for name, items in self.items.items():
            found |= {f"{name}/{key}": artifact.version for key, artifact in items.items()}
        return found


@dataclass(frozen=True, slots=True)
class FromEarlier:
    """What a run takes from an earlier one when it starts: the version of a step there, of this contract (S15).

    `session`: of the newest earlier run of the same session; `project`: of the newest that succeeded. `required`: a run
    without one does not start.
    """

    source: Literal["session", "project"]
    step: str
    contract: str
    required: bool = True
