"""What goes into the store and comes out of it, beyond the carriers that all hops share (`orchestrator.values`).

Values in, values out: nothing here knows a session, a connection or SQL, so that the engine can be read, and tested,
without a database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

from orchestrator.errors import UsageError
from orchestrator.ids import digest
from orchestrator.spec import AfterReject, Decided
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    AttemptState,
    CallRow,
    Dispatch,
    ErrorRecord,
    Event,
    FromEarlier,
    LeftOut,
    Manifest,
    Mode,
    NewArtifact,
    Present,
    Prompt,
    ReadRecord,
    RunKind,
    RunRow,
    SentCall,
    Snapshot,
    ThreadRecord,
    ToolCall,
    ToolOutput,
    Usage,
)

ToolDecision = Literal["retry", "done", "tell"]
Approval = Literal["approve", "reject"]


class Fenced(Exception):
    """This attempt is not ours any more (taken over, cancelled, or already ended): stop quietly, write nothing."""


class Edited(Exception):
    """A person has edited what this attempt has made anew: nothing is written until both have been merged (S07)."""

    def __init__(self, present: Present) -> None:
        super().__init__("edited by a person")
        self.present = present


@dataclass(frozen=True, slots=True)
class Undecided:
    """A draft that waits for a person's decision, and what it could not be merged with (S07)."""

    present: Present
    draft: Artifact


class RunBusy(UsageError):
    """Another live worker owns the run; the message names its host and process."""

    code = "run_busy"


@dataclass(frozen=True, slots=True)
class NewStep:
    """A row of a run's graph: a step, or an input (`kind` "input").

    `parents` are the steps it waits for. `head` shares an artifact of the parent run by its id: the step then counts
    as succeeded, and its next version is numbered after `last_version`. `earlier` finds the head among earlier runs. A
    step with items is of kind `map`; items stand in a list only where they are shared too, or made again beside shared
    ones, with the hash of their `entry`.
    """

    name: str
    item: str | None
    kind: Literal["input", "llm", "python", "map", "gate", "retired"]
    order: int
    parents: tuple[str, ...] = ()
    head: str | None = None
    last_version: int = 0
    earlier: FromEarlier | None = None
    entry: str | None = None


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item that a step's list has now, with its entry. `redo`: it is made of something else than what stands now."""

    key: str
    entry: bytes
    redo: bool = False


@dataclass(frozen=True, slots=True)
class Expanded:
    """A list brought into a run: what can run now, and how many of its items are not done."""

    ready: tuple[Dispatch, ...]
    open: int


@dataclass(frozen=True, slots=True)
class NewRun:
    """Everything a run starts from. `session` None = a session of its own; `defaulted` names inputs left at default.

    `inputs` become version 1 of their artifacts, unless `steps` shares a head for the same name. A bench sees its
    parent's message, and of the conversation what stood up to `until_message` (None = all of it). `models` as in
    `RunRow`.
    """

    pipeline: str
    file: str
    graph_digest: str
    graph_json: bytes
    session: str | None
    message: str | None
    author: str
    inputs: Mapping[str, NewArtifact]
    defaulted: frozenset[str]
    steps: tuple[NewStep, ...]
    cap_usd: Decimal | None = None
    on_exceed: Literal["pause", "fail"] = "pause"
    unpriced: Literal["refuse", "allow"] = "refuse"
    models: Mapping[str, str] = field(default_factory=dict)
    parent_id: str | None = None
    kind: RunKind = "run"
    until_message: int | None = None


@dataclass(frozen=True, slots=True)
class AdoptPlan:
    """The graph as it is now: steps the run does not have yet are added, the others keep what they have.

    `again` are finished steps (and items) that get a new attempt, each with how it begins; `below` those that wait for
    them and are looked at once more when these are done. Both are empty where a run just goes on.
    """

    steps: tuple[NewStep, ...]
    graph_digest: str
    graph_json: bytes
    again: Mapping[tuple[str, str], Mode] = field(default_factory=dict)
    below: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """The beginning of an attempt, from ONE snapshot: what it was made from (`manifest`), what it read, and the head
    it started from. `thread` and `sent` are given by a model step, whose first request leaves right after."""

    dispatch: Dispatch
    worker: str
    manifest: Manifest
    reads: tuple[ReadRecord, ...] = ()
    base_head: str | None = None
    thread: ThreadRecord | None = None
    sent: SentCall | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A person's word that a version (`head`) stands, though it would now be made from something else (`manifest`)."""

    step: str
    item: str | None
    head: str
    manifest: Manifest
    reads: tuple[ReadRecord, ...]
    author: str
    note: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A gate that waits, and all that it shows now, read in one transaction.

    `heads` are the current versions by name (`step`, or `step/item`); an answer is for exactly these. `since` is when
    it began to wait, `rejected` how often it was rejected since it was last approved.
    """

    gate: str
    item: str | None
    attempt_id: str
    number: int
    since: datetime
    heads: Mapping[str, Artifact]
    rejected: int
    error: ErrorRecord | None

    @property
    def digest(self) -> str:
        """What an answer must carry: it stands for this asking, and for the very bytes of all that is shown (S08)."""
        return shown_digest(self.attempt_id, {name: head.version.sha256 for name, head in self.heads.items()})


def shown_digest(attempt_id: str, heads: Mapping[str, str]) -> str:
    """`heads` are the hashes of the bodies by name."""
    return digest([attempt_id, sorted(heads.items())])


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A step of some run that waits for a person. Of a gate: the versions it shows now, by name, and their digest. Of a
    step that asks about tool calls: those, and theirs."""

    run_id: str
    number: int
    pipeline: str
    step: str
    item: str | None
    kind: Literal["llm", "python", "gate"]
    since: datetime
    code: str
    message: str
    hint: str | None
    shows: Mapping[str, ArtifactVersion]
    digest: str = ""
    calls: tuple[AskedTool, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.step}/{self.item}" if self.item else self.step


@dataclass(frozen=True, slots=True)
class Redo:
    """The step that a rejection makes again, how, and how many times at most before `then` of the answer holds."""

    step: str
    item: str | None
    mode: Literal["follow_up", "fresh"]
    max_rounds: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision at a gate, for what stands under `digest` (or begins with it). `artifact` is it as a value.

    `manifest` and `reads` are what the gate rests on if this is approved, from one snapshot. `waited_us`: only where
    the gate has waited so long (an answer that its timeout gives).
    """

    decision: Decided
    comment: str
    by: str
    digest: str
    artifact: NewArtifact
    manifest: Manifest
    reads: tuple[ReadRecord, ...]
    redo: Redo | None = None
    then: AfterReject = "pause"
    waited_us: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer has led to: the version of the decision, what can run now, and the step that is made again.

    `opened`: the gate is open. `ended`: it was the end of the run, or of the gate; to go on would be to ask again.
    """

    version: int
    ready: tuple[Dispatch, ...] = ()
    redone: str | None = None
    opened: bool = False
    ended: bool = False


class Starter(Protocol):
    """Which steps begin in the very transaction that makes them ready, and with what claim.

    It is asked inside that transaction, so it must be quick, pure, and never fail. The snapshot holds what the step
    reads and its own head; a step that is told more than that (inputs, conversation) claims for itself.
    """

    def reads(self, step: str) -> Sequence[str] | None:
        """What the step reads, by name; None for one that claims for itself, when it has something to send."""
        ...

    def claim(self, dispatch: Dispatch, snapshot: Snapshot) -> Claim: ...


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as stored. `redo` is 1 for the one automatic repetition after an input moved (S06). `mode` says how
    it begins; `round` counts the visits of a review or a loop, from 0."""

    id: str
    number: int
    token: int
    state: AttemptState
    owner: str | None
    inputs_hash: str | None
    redo: int
    error: ErrorRecord | None
    started_at: datetime | None
    ended_at: datetime | None
    mode: Mode = ""
    round: int = 0


@dataclass(frozen=True, slots=True)
class ThreadJournal:
    """A thread as recorded: replay sends these very texts again, nothing is rendered anew (S13). `continues` is the
    thread before it, of an earlier attempt, whose items it holds ahead of its own."""

    id: str
    name: str
    provider: str
    model: str
    base_url: str
    settings: Mapping[str, Any]
    prompt: Prompt
    left_out: tuple[LeftOut, ...]
    calls: tuple[CallRow, ...]
    continues: ThreadJournal | None = None

    @property
    def sums_up(self) -> bool:
        """Whether it is none of the step's own: it sums up what the step reads."""
        return bool(self.settings.get("summary"))

    @property
    def before(self) -> tuple[CallRow, ...]:
        """The calls of the threads that this one goes on from, oldest first."""
        earlier = self.continues
        return () if earlier is None else (*earlier.before, *earlier.calls)


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One execution of a tool. `call_id` is the model call whose reply asked for it; `started` without an output means
    that its effect is unknown, and `decision` is what a person said about that (S09). `asked`: it has not begun, since
    a person has to allow it. `whole` is its result where the model was told less."""

    call_id: str
    tool_call: ToolCall
    state: Literal["asked", "started", "done"]
    output: ToolOutput | None
    decision: ToolDecision | Approval | None
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class AskedTool:
    """A tool call that waits for a person: the id the model gave it, and what it would do."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AskedTools:
    """The calls of one step that wait for a person's word, since `since`."""

    step: str
    item: str | None
    attempt_id: str
    since: datetime
    calls: tuple[AskedTool, ...]

    @property
    def label(self) -> str:
        return f"{self.step}/{self.item}" if self.item else self.step

    @property
    def digest(self) -> str:
        """Of exactly these calls of this attempt: what a person saw who answers."""
        return digest([self.attempt_id, [[call.id, call.name, call.arguments] for call in self.calls]])


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A person's word on tool calls, by their ids. `digest`: of all the calls that their step asked about, as the
    person saw them; None where they were named one by one."""

    calls: frozenset[str]
    decision: Approval
    by: str
    comment: str = ""
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One effect of a Python step. `started` without a value means that nobody knows whether it happened; `decision` is
    what a person said about that."""

    key: str
    state: Literal["started", "done"]
    value: bytes | None
    decision: ToolDecision | None


@dataclass(frozen=True, slots=True)
class Journal:
    """All that an attempt wrote down, enough to go on with it in another process. `base_head` is the head it started
    from; `manifest` is None for an attempt that was never claimed."""

    attempt: AttemptRow
    manifest: Manifest | None
    reads: tuple[ReadRecord, ...]
    threads: tuple[ThreadJournal, ...]
    tools: tuple[ToolRow, ...]
    base_head: str | None = None
    effects: tuple[EffectRow, ...] = ()

    @property
    def own(self) -> tuple[ThreadJournal, ...]:
        """The threads of the step itself, without those that sum up what it reads."""
        return tuple(thread for thread in self.threads if not thread.sums_up)

    @property
    def main(self) -> ThreadJournal | None:
        """The first thread of the step itself; None where none has begun."""
        return next(iter(self.own), None)


@dataclass(frozen=True, slots=True)
class RunGlance:
    """A run in a list: what its calls have cost, those with a known price, and the steps that wait for a person."""

    run: RunRow
    cost_usd: Decimal | None = Decimal(0)
    cost_partial: bool = False
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunMark:
    """As much of a run as it takes to say whether it may go."""

    id: str
    number: int
    pipeline: str
    status: str
    tags: tuple[str, ...] = ()
    kind: RunKind = "run"


@dataclass(frozen=True, slots=True)
class SentBlock:
    """A block of a first request, told by the hashes of its parts. `layer` "system" is the system text."""

    layer: str
    source: str
    parts: tuple[str, ...]
    tokens: int
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What a thread began with, without its texts. `model` is `provider:model`."""

    thread: str
    model: str
    settings: Mapping[str, Any]
    blocks: tuple[SentBlock, ...]


@dataclass(frozen=True, slots=True)
class Making:
    """The attempt behind a version: what it was made from, how its threads began, and the sums over its calls."""

    attempt_id: str
    attempt: int
    manifest: Manifest | None
    openings: tuple[Opening, ...] = ()
    calls: int = 0
    reasks: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: Decimal | None = Decimal(0)
    cost_partial: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as stored. `seq` is the run's own count and alone gives the order (S33); `attempt` is its number."""

    seq: int
    at: datetime
    kind: str
    step: str | None
    item: str | None
    attempt: int | None
    data: Mapping[str, Any] = field(default_factory=dict)
