"""The carriers between hops: frozen, without behaviour beyond what follows from their own fields.

Reading order is the walk of one step: what the store holds (`Artifact`, `Message`), what is chosen from it
(`Block`, `LeftOut`, `Context`), what is sent (`Prompt`, `Item`, `Request`), what comes back (`Reply`, `Usage`),
what is wrong with it (`Fault`), and what is written down (`SentCall`, `DoneCall`, `Commit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from orchestrator.ids import digest, digest_of_plain
from orchestrator.money import NO_CAPS, Caps, Price
from orchestrator.spec import EditKind, Effort, ManifestKind, OnInputChange, Sensitivity


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


# --- what the store holds ---------------------------------------------------------------------------------------------

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


# --- what is chosen ---------------------------------------------------------------------------------------------------

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


# --- what is sent -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One recorded input of a step's first request. `note` is for people: the version, the file."""

    kind: ManifestKind
    name: str
    hash: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a step's first request was made from; its digest is the `inputs_hash` (S14)."""

    entries: tuple[ManifestEntry, ...]

    @property
    def inputs_hash(self) -> str:
        return digest_of_plain(sorted([e.kind, e.name, e.hash] for e in self.entries))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A composed thread start: `system` goes as instructions, the blocks' texts concatenated as the user message."""

    system: str
    blocks: tuple[Block, ...]
    manifest: Manifest

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks)

    @property
    def files(self) -> tuple[Attachment, ...]:
        """The files of its blocks, each once, however often its artifact is placed."""
        found = {block.attachment.name: block.attachment for block in self.blocks if block.attachment is not None}
        return tuple(found.values())

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class TextItem:
    """A user message. `parts` concatenated are its text; `files` stand ahead of it."""

    parts: tuple[str, ...]
    files: tuple[Attachment, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The answer to one tool call, matched by `call_id`."""

    call_id: str
    output: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class OutputItem:
    """One output item of the provider, verbatim, as it must be replayed (encrypted reasoning included)."""

    data: Mapping[str, Any]


Item = TextItem | ToolOutput | OutputItem


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function tool as the provider sees it. `parameters` is a JSON Schema, `strict` where the vendors' strict modes
    take it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = True


HostedName = Literal["web_search", "web_fetch"]


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that the provider itself runs. `max_uses`: in one call; `domains` are the only ones it may look at,
    `blocked` those that it may not; each also stands for what is below it."""

    name: HostedName
    max_uses: int
    domains: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest([self.name, self.max_uses, list(self.domains), list(self.blocked)])


@dataclass(frozen=True, slots=True)
class ContextEdits:
    """What the vendor may do to a thread that has grown, each from so many tokens of input on: `compact_at`, sum up
    what stands before; `clear_tools_at`, leave out old results of tools."""

    compact_at: int | None = None
    clear_tools_at: int | None = None

    @property
    def kinds(self) -> frozenset[EditKind]:
        said: dict[EditKind, int | None] = {"compact": self.compact_at, "clear_tools": self.clear_tools_at}
        return frozenset(kind for kind, tokens in said.items() if tokens is not None)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A JSON Schema the provider is asked to follow; the name is `[A-Za-z0-9_-]{1,64}`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, vendor-neutral. `thread` decides alone whether it is chained: synthetic → stateless, else on that id.

    When stateless, `items` holds everything; when chained, only what is new. Everything else is resent on each call.
    `background`: the vendor goes on with it while nobody listens.
    """

    model: str
    thread: str
    system: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...] = ()
    output: OutputFormat | None = None
    max_output_tokens: int = 8000
    effort: Effort | None = None
    timeout: float = 600.0
    cache_key: str | None = None
    background: bool = False
    step: str = ""
    call: int = 1
    thread_name: str = "main"
    item: str | None = None
    hosted: tuple[HostedTool, ...] = ()
    edits: ContextEdits | None = None


# --- what comes back --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls. `input_tokens` includes cached and cache-written ones, on every vendor.

    `web_searches` are the provider's own, which it charges by number.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.web_searches + other.web_searches,
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A terminal response. An `incomplete` one is never chained on; a `paused` one goes on, with nothing new, in the
    next call: the vendor's own tools took too long for one. `usage` None = not reported. `edited` says what the vendor
    has done to the thread, where it was asked to."""

    id: str
    status: Literal["completed", "incomplete", "paused"]
    text: str
    items: tuple[OutputItem, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    incomplete_reason: str | None = None
    previous: str | None = None
    usage: Usage | None = None
    model: str | None = None
    tries: int = 1
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an output: where, what stood there, which rule it breaks. `feedback` is what the model is
    told.
    """

    kind: Literal["empty", "not_json", "schema", "check", "customer_fact", "refusal", "too_large"]
    path: str
    message: str
    feedback: str
    value: Any = None


# --- what is written down ---------------------------------------------------------------------------------------------

CallSource = Literal["NEXT_STEP", "REASK", "TOOL_RESULT", "FOLLOW_UP", "REBUILD"]
Rung = Literal["chain", "replay", "compact"]


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A thread as minted: what replay must resend unchanged. Bodies go to the content table by hash.

    `continues` is the thread whose chain this one goes on from (a follow-up): replay sends that one's items first.
    """

    id: str
    name: str
    provider: str
    model: str
    base_url: str
    prompt: Prompt
    settings: Mapping[str, Any]
    left_out: tuple[LeftOut, ...] = ()
    continues: str | None = None


@dataclass(frozen=True, slots=True)
class SentCall:
    """Written before a request leaves. `items` are the thread's new items; `reserve` is charged until proven otherwise,
    and `price` is what it will be charged by. `waited` are the seconds it has waited for its turn, which are none of
    the step's.

    `ask` says which question of a Python step, or which summary, the call belongs to (a hash); else it is empty.
    """

    id: str
    thread_id: str
    seq: int
    source: CallSource
    previous: str
    rung: Rung
    request_hash: str
    items: tuple[Item, ...]
    provider: str
    model: str
    estimate_tokens: int
    reserve_usd: Decimal | None = None
    ask: str = ""
    price: Price | None = None
    caps: Caps = NO_CAPS
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class DoneCall:
    """Written after a reply. `outcome` says what became of it.

    `accepted`, `tools` and `reask` are part of the thread's transcript; `cut_off`, `discarded` and `error` are not: the
    next call redoes them from the same parent. `tool_calls` are what must be answered next, `follow` the items the next
    call will carry (a re-ask's feedback): both are recorded, so that a resumed attempt goes on without asking again.
    `first_text_seconds` is how long it took to the answer's first words, where it had any.
    `lost`: a try before the last may have been billed too; `cost_usd` is then not all that the call has cost.
    `answer` is the accepted value's canonical bytes where the step asks on: a Python step gets it back on resume (S11).
    """

    call_id: str
    response_id: str | None
    status: Literal["done", "failed"]
    outcome: Literal["accepted", "tools", "reask", "rejected", "cut_off", "discarded", "error"]
    items: tuple[OutputItem, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    follow: tuple[TextItem, ...] = ()
    answer: bytes | None = None
    reason: str = ""
    usage: Usage | None = None
    usage_estimated: bool = False
    cost_usd: Decimal | None = None
    lost: bool = False
    tries: int = 1
    seconds: float = 0.0
    first_text_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A call that was given up in mid-stream: what had been said by then, and what that may have used, by estimate."""

    text: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call as the store holds it, with its items: the thread's transcript is these in order of `seq`."""

    sent: SentCall
    done: DoneCall | None
    response_id: str | None = None
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One entry of an attempt's read vector. `artifact_id` None = the read's default was used."""

    name: str
    artifact_id: str | None
    version: int | None
    fields: tuple[str, ...] | None
    hash: str
    item: str | None = None


@dataclass(frozen=True, slots=True)
class NewArtifact:
    contract: str
    body: bytes
    author: str
    origin: Origin
    sensitivity: Sensitivity
    field_hashes: Mapping[str, str]
    facts: Mapping[str, FactBasis] = field(default_factory=dict)
    guards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A right to claim: one attempt of one step under one token, allocated by the transaction that made it ready.

    `mode` says how it begins, `ran_us` how long an interrupted attempt was worked on before, in microseconds.
    `snapshot` is what the step reads, where that very transaction has claimed it too; then it is running already.
    """

    run_id: str
    step: str
    item: str | None
    attempt_id: str
    number: int
    token: int
    interrupted: bool = False
    mode: Mode = ""
    ran_us: int = 0
    snapshot: Snapshot | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for people and for the trace. `kind` is a dotted word; `data` is JSON data."""

    kind: str
    step: str | None = None
    item: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Again:
    """A version that its step's loop does not take: the next visit has this `round`, or there is none (`error`)."""

    round: int
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a step: everything of it lands in ONE transaction, or nothing does.

    `children` are the steps that wait for this one; `base_head` is the head the attempt started from (S07).
    `shown_head`: that head was shown to the step as its current draft, so that what it made is a change of that, not
    of what it had made itself before. `merge` is given where a person has edited: see `Present`. `again` says that the
    version is not good yet. `on_moved` says what follows where what was read has been edited meanwhile (S06).
    """

    dispatch: Dispatch
    artifact: NewArtifact
    done: DoneCall | None = None
    children: tuple[str, ...] = ()
    base_head: str | None = None
    used: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    again: Again | None = None
    shown_head: bool = False
    merge: Merge | None = None
    on_moved: OnInputChange = "redo"


@dataclass(frozen=True, slots=True)
class Present:
    """What a draft has to be merged with: the `head` that a person has had a hand in, the `base` from which both that
    and the draft set out (None where it is not there any more), and the pinned fields with who pinned them."""

    head: Artifact
    base: Artifact | None
    pins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """What became of a draft and a person's version, and what it was decided on: another head, base or pins by then
    and nothing is written. `artifact` is the merged value; with an `error` a person has to decide."""

    head: str
    base: str | None
    pins: Mapping[str, str]
    artifact: NewArtifact
    error: ErrorRecord | None = None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """How a commit ended.

    `committed`; `moved`: an input changed meanwhile, the version is stale at birth (S06); `edited`: a person has edited
    this artifact, and nothing is written until the draft has been merged with what is `present` (S07); `conflict`: they
    could not be merged, the draft is kept but is not head; `fenced`: this attempt is not ours any more; `again`: one
    more visit of its loop follows; `exhausted`: none does, and the step has failed with this version.
    """

    outcome: Literal["committed", "moved", "edited", "conflict", "fenced", "again", "exhausted"]
    version: int | None = None
    artifact_id: str | None = None
    ready: tuple[Dispatch, ...] = ()
    moved: tuple[str, ...] = ()
    present: Present | None = None


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    code: str
    message: str
    hint: str | None = None
    exit_code: int = 1


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as stored. `number` counts per project database; `inputs` are the given values, JSON data. `models` are the
    steps that have another model in this run than the file says: an alias or `provider:model` each."""

    id: str
    number: int
    pipeline: str
    status: RunStatus
    parent_id: str | None
    parent_number: int | None
    session_id: str
    session: str
    created_at: datetime
    graph_digest: str
    file: str
    message: str | None
    cap_usd: Decimal | None
    on_exceed: Literal["pause", "fail"]
    unpriced: Literal["refuse", "allow"]
    author: str
    error: ErrorRecord | None = None
    tags: tuple[str, ...] = ()
    kind: RunKind = "run"
    models: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step (or input) of a run: its newest attempt's state, its head, and the sums over all its attempts.

    `stale`: an input moved while it ran (S06); `defaulted`: an input that was left at its declared default. `accepted`:
    the manifests its head rests on, the newest first: that of a person's word on it, that of the attempt that made it.
    `pins`: the fields that stay as they are when it runs again, with who said so.

    A step with items is a row of kind `map`, and so many rows with an `item`; `entry` is the hash of the list's entry
    that an item is made for. An item that the list does not have any more is of kind `retired`. `decision` is what was
    answered at a gate, as far as its value rests on that.
    """

    name: str
    item: str | None
    kind: Literal["input", "llm", "python", "map", "gate", "retired"]
    order: int
    status: StepStatus
    attempt: int
    attempt_id: str | None
    head: ArtifactVersion | None
    draft: ArtifactVersion | None
    inputs_hash: str | None
    manifest: Manifest | None
    calls: int
    reasks: int
    usage: Usage
    cost_usd: Decimal | None
    cost_partial: bool
    seconds: float
    error: ErrorRecord | None
    stale: bool = False
    defaulted: bool = False
    accepted: tuple[Manifest, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    entry: str | None = None
    decision: str = ""

    @property
    def label(self) -> str:
        """How people write it: `tech-stack`, `competitor-profile/acme`."""
        return f"{self.name}/{self.item}" if self.item else self.name

    @property
    def retired(self) -> bool:
        """Of an item: whether its list does not have it any more."""
        return self.kind == "retired"


def heads_of(rows: Sequence[StepRow]) -> Mapping[str, ArtifactVersion]:
    """The current versions of a run's steps and inputs by name; of items those that their step's index names, under
    `step/key`."""
    heads = {row.name: row.head for row in rows if row.item is None and row.head is not None}
    for row in rows:
        index = heads.get(row.name)
        if row.item is not None and row.head is not None and index is not None and row.item in index.field_hashes:
            heads[row.label] = row.head
    return heads


@dataclass(frozen=True, slots=True)
class StepState:
    """What a step has come to, without what it made: enough to say how a run ended. Fields as in StepRow."""

    name: str
    item: str | None
    kind: Literal["input", "llm", "python", "map", "gate", "retired"]
    status: StepStatus
    error: ErrorRecord | None
    stale: bool
    cost_usd: Decimal | None
    cost_partial: bool


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """Money of a run, exact. `spent` is settled, `reserved` belongs to calls in flight."""

    cap_usd: Decimal | None
    spent_usd: Decimal
    reserved_usd: Decimal
