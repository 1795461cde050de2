"""What is written down: threads and calls, events, the commit that ends a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.money import NO_CAPS, Caps, Price
from orchestrator.spec import OnInputChange, Sensitivity
from orchestrator.values.chosen import LeftOut
from orchestrator.values.replies import ToolCall, Usage
from orchestrator.values.requests import Item, OutputItem, Prompt, TextItem
from orchestrator.values.stored import Artifact, FactBasis, Mode, Origin, Snapshot

if TYPE_CHECKING:
    from orchestrator.values.runs import ErrorRecord


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
