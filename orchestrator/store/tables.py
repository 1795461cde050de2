"""The tables, one class each. Listings are read through these classes; hot writes name their columns in fixed SQL.

Three rules hold everywhere. Each row carries its scope (tenant, account, subject; `-` for none), and refers to the
subject it belongs to, so that one person's data can be found and removed. Bodies live once, in `content`, keyed by
scope and hash; every other table refers to them by hash. Order is a counter of the run or session, never a time (S33).

    subject ── session ── message
       │          └── run ── budget, event
       │               └── step ── attempt ── read, effect, thread ── block, call ── tool_call
       ├── spending
       └── content ← artifact (by hash; `step.head_id` says which version is current)

A row below a run says whose it is by its parent alone, and has no more indexes than its lookups need: each index is a
page more to write with every commit.

Lists and mappings are JSON in plain text columns, written and read here alone: a JSON type would reorder and renumber
them (S25). Flags are 0 or 1, because raw SQL writes those alike on every database.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Float,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    MetaData,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from orchestrator.store.columns import Label, Usd, UtcTime

SCOPE = ("tenant", "account", "subject")
_names = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=_names)


def _refers(columns: tuple[str, ...] | str, table: str, target: tuple[str, ...] | str = "id") -> ForeignKeyConstraint:
    own = (columns,) if isinstance(columns, str) else columns
    theirs = (target,) if isinstance(target, str) else target
    return ForeignKeyConstraint(own, [f"{table}.{name}" for name in theirs], ondelete="RESTRICT")


def _owned(*more: Any, lean: bool = False) -> tuple[Any, ...]:
    """Table arguments of a scoped table. `lean` keeps rows in their primary key's index: one page less per write, but
    only for short rows, since an index spills what is longer than a quarter of a page."""
    return (_refers(SCOPE, "subject", SCOPE), *more, {"sqlite_with_rowid": False} if lean else {})


def _body(*columns: str) -> ForeignKeyConstraint:
    return _refers((*SCOPE, *columns), "content", (*SCOPE, "sha256"))


class Table(SQLModel, registry=registry(metadata=metadata)):
    """Base with a registry of its own: a project may have SQLModel tables too, and ours must not mix with them."""


class Scoped(Table):
    tenant: str = Field(default="-", sa_type=Label, sa_column_kwargs={"server_default": "-"})
    account: str = Field(default="-", sa_type=Label, sa_column_kwargs={"server_default": "-"})
    subject: str = Field(default="-", sa_type=Label, sa_column_kwargs={"server_default": "-"})


def _key() -> Any:
    return Field(primary_key=True, sa_type=Label)


def _text(default: Any = ...) -> Any:
    return _column(Label, default)


def _count(default: Any = ...) -> Any:
    return _column(BigInteger, default)


def _column(kind: Any, default: Any) -> Any:
    """A column with the default on both sides, so that raw SQL may leave it out too; `...` makes it required."""
    if default is None or default is ...:
        return Field(default=default, sa_type=kind)
    literal = text(f"'{default}'" if isinstance(default, str) else str(default))
    return Field(default=default, sa_type=kind, sa_column_kwargs={"server_default": literal})


def _time() -> Any:
    return Field(default=None, sa_type=UtcTime)


class Subject(Table, table=True):
    """A scope that is known here. `hash_key` makes ids that do not reveal their origin; `last_run` numbers its runs."""

    __tablename__ = "subject"
    __table_args__ = ({"sqlite_with_rowid": False},)

    tenant: str = _key()
    account: str = _key()
    subject: str = _key()
    last_run: int = _count(0)
    hash_key: bytes = Field(sa_type=LargeBinary)
    created_at: datetime = Field(sa_type=UtcTime)


class Content(Table, table=True):
    """A body: canonical bytes under their hash, once per scope (S16). `used_at` is when it was last referred to."""

    __tablename__ = "content"
    __table_args__ = _owned()

    tenant: str = _key()
    account: str = _key()
    subject: str = _key()
    sha256: str = _key()
    size: int = _count()
    used_at: datetime = Field(sa_type=UtcTime)
    body: bytes = Field(sa_type=LargeBinary)


class Worker(Scoped, table=True):
    """A process that works on runs. It is alive while its heartbeat is young and its process exists."""

    __tablename__ = "worker"
    __table_args__ = _owned()

    id: str = _key()
    host: str = _text()
    boot_id: str = _text()
    pid: int = _count()
    started_at: datetime = Field(sa_type=UtcTime)
    heartbeat_at: datetime = Field(sa_type=UtcTime)


class Session(Scoped, table=True):
    """A customer's conversation: the runs and messages that belong together."""

    __tablename__ = "session"
    __table_args__ = _owned(UniqueConstraint(*SCOPE, "name"))

    id: str = _key()
    name: str = _text()
    last_message: int = _count(0)
    created_at: datetime = Field(sa_type=UtcTime)


class Run(Scoped, table=True):
    """One execution of a pipeline. `last_event` numbers its events; every change touches it first (S02).

    `kind` "bench": samples of one step of the parent run, which sees that run's message, and of the conversation what
    stood up to `until_message`.
    """

    __tablename__ = "run"
    __table_args__ = _owned(
        _refers("session_id", "session"),
        _refers("parent_id", "run"),
        _body("graph"),
        UniqueConstraint(*SCOPE, "number"),
    )

    id: str = _key()
    number: int = _count()
    session_id: str = _text()
    parent_id: str | None = _text(None)
    kind: str = _text("run")
    until_message: int | None = _count(None)
    pipeline: str = _text()
    file: str = _text()
    status: str = _text()
    owner: str = _text("")
    graph: str = _text()
    graph_digest: str = _text()
    author: str = _text()
    on_exceed: str = _text()
    unpriced: str = _text()
    models: str = _text("{}")
    tags: str = _text("[]")
    error: str | None = _text(None)
    last_event: int = _count(0)
    created_at: datetime = Field(sa_type=UtcTime)


class Message(Scoped, table=True):
    """One visible line of a conversation (R015). `kind` "run" is the message a run was started with."""

    __tablename__ = "message"
    __table_args__ = _owned(
        _refers("session_id", "session"),
        _refers("run_id", "run"),
        UniqueConstraint("session_id", "seq"),
        Index(None, "run_id"),
    )

    id: str = _key()
    session_id: str = _text()
    seq: int = _count()
    kind: str = _text("turn")
    role: str = _text()
    message: str = _text()
    run_id: str | None = _text(None)
    step: str | None = _text(None)
    author: str = _text()
    sensitivity: str = _text("internal")
    created_at: datetime = Field(sa_type=UtcTime)


class Step(Scoped, table=True):
    """A step or input of a run. Its state is its newest attempt's.

    `head_id` is its current version, `draft_id` one that waits for a decision (S07), `basis_id` the attempt whose
    manifest the head rests on. `unmet` counts the parents that have not succeeded; `released` is 1 once this step has
    been taken off its children's counts. `stale` marks a version whose inputs had moved before it was committed (S06).
    `due` is 1 while something above it runs again, so that it must be looked at once more.

    `made_id` is what the step itself made last, as far as the head takes account of it: where the two differ, a person
    has edited, and the next version is merged with theirs (S07). `carried_id` is a parent run's version that a step of
    this run is to be merged with, when it has run. `pins` maps the top-level fields that stay as they are, whatever a
    new draft says (`*` is the whole), to who said so.

    A step with items is one row of kind `map`, the collector, whose `unmet` then counts the items that are not done,
    and a row for each `item`. `entry` is the body of the list's entry that an item is made for; an item without one is
    retired: the list does not have it any more.
    """

    __tablename__ = "step"
    __table_args__ = _owned(
        _refers("run_id", "run"),
        _refers("head_id", "artifact"),
        _refers("draft_id", "artifact"),
        _refers("made_id", "artifact"),
        _refers("carried_id", "artifact"),
        _body("entry"),
        UniqueConstraint("run_id", "name", "item"),
        Index(None, "run_id", "kind"),
    )

    id: str = _key()
    run_id: str = _text()
    name: str = _text()
    item: str = _text("")
    kind: str = _text()
    position: int = _count()
    children: str = _text("[]")
    unmet: int = _count(0)
    released: int = _count(0)
    stale: int = _count(0)
    due: int = _count(0)
    defaulted: int = _count(0)
    last_version: int = _count(0)
    attempt_id: str | None = _text(None)
    basis_id: str | None = _text(None)
    head_id: str | None = _text(None)
    draft_id: str | None = _text(None)
    made_id: str | None = _text(None)
    carried_id: str | None = _text(None)
    entry: str | None = _text(None)
    pins: str = _text("{}")


_WAITS: Final = text("state = 'waiting'")
_ASKS: Final = text("ask <> ''")


class Attempt(Scoped, table=True):
    """One execution of a step. `token` is the right to it, raised by each dispatch, `claimed_token` the last used.

    `running_us` adds up the time it was worked on, without the gaps between a crash and its resume. `mode` says how it
    begins: anew if its inputs changed (empty), `fresh` in any case, as a `follow_up` in the thread before it, or as a
    further visit of a loop (`repeat`). `message_id` is the person's word that asked for it, `round` counts the visits
    of a review or a loop. `decision` is what was answered where a gate asked.
    """

    __tablename__ = "attempt"
    __table_args__ = _owned(
        _refers("step_id", "step"),
        _refers("message_id", "message"),
        UniqueConstraint("step_id", "number"),
        # Only of the few that wait for a person: what a step writes does not touch it.
        Index("ix_attempt_waiting", "step_id", sqlite_where=_WAITS, postgresql_where=_WAITS),
    )

    id: str = _key()
    step_id: str = _text()
    number: int = _count()
    token: int = _count()
    claimed_token: int = _count(0)
    state: str = _text()
    owner: str = _text("")
    redo: int = _count(0)
    mode: str = _text("")
    round: int = _count(0)
    message_id: str | None = _text(None)
    decision: str = _text("")
    inputs_hash: str | None = _text(None)
    base_head: str | None = _text(None)
    error: str | None = _text(None)
    running_us: int = _count(0)
    started_at: datetime | None = _time()
    claimed_at: datetime | None = _time()
    ended_at: datetime | None = _time()
    manifest: str | None = _text(None)


class Artifact(Scoped, table=True):
    """One version of a step's or input's value (R015): `type` is its contract, `content` the hash of its body.

    `attempt_id` is the attempt it came from; a person's edit keeps that of the version it changed. `merged_id` is the
    draft that was merged with the parent into this version.
    """

    __tablename__ = "artifact"
    __table_args__ = _owned(
        _refers("run_id", "run"),
        _refers("parent_id", "artifact"),
        _refers("merged_id", "artifact"),
        _body("content"),
        UniqueConstraint("run_id", "step", "item", "version"),
    )

    id: str = _key()
    run_id: str = _text()
    step: str = _text()
    item: str = _text("")
    type: str = _text()
    version: int = _count()
    content: str = _text()
    size: int = _count()
    author: str = _text()
    origin: str = _text()
    parent_id: str | None = _text(None)
    attempt_id: str | None = _text(None)
    sensitivity: str = _text("internal")
    field_hashes: str = _text("{}")
    facts: str = _text("{}")
    guards: str = _text("[]")
    draft: int = _count(0)
    merged_id: str | None = _text(None)
    created_at: datetime = Field(sa_type=UtcTime)


class Read(Scoped, table=True):
    """One entry of an attempt's read vector (S06). `artifact_id` NULL: the read's default was used."""

    __tablename__ = "read"
    __table_args__ = _owned(
        _refers("attempt_id", "attempt"), _refers("artifact_id", "artifact"), Index(None, "artifact_id"), lean=True
    )

    attempt_id: str = _key()
    name: str = _key()
    item: str = Field(default="", primary_key=True, sa_type=Label, sa_column_kwargs={"server_default": text("('')")})
    artifact_id: str | None = _text(None)
    version: int | None = _count(None)
    fields: str | None = _text(None)
    hash: str = _text()


class Thread(Scoped, table=True):
    """One conversation of an attempt, as minted. `manifest` is set only where it differs from the attempt's.

    `continues` names the earlier thread that a follow-up goes on from.
    """

    __tablename__ = "thread"
    __table_args__ = _owned(
        _refers("attempt_id", "attempt"),
        _refers("continues", "thread"),
        _body("system"),
        UniqueConstraint("attempt_id", "position"),
    )

    id: str = _key()
    attempt_id: str = _text()
    position: int = _count()
    name: str = _text()
    continues: str | None = _text(None)
    provider: str = _text()
    model: str = _text()
    base_url: str = _text()
    settings: str = _text("{}")
    system: str = _text()
    left_out: str = _text("[]")
    manifest: str | None = _text(None)


class Block(Scoped, table=True):
    """One labelled piece of a thread's first request. `parts` are hashes of content rows, in order (S13)."""

    __tablename__ = "block"
    __table_args__ = _owned(_refers("thread_id", "thread"), _refers("artifact_id", "artifact"), _body("attached"))

    thread_id: str = _key()
    position: int = Field(primary_key=True, sa_type=BigInteger)
    layer: str = _text()
    source: str = _text()
    parts: str = _text("[]")
    rule: str = _text()
    tokens: int = _count(0)
    artifact_id: str | None = _text(None)
    version: int | None = _count(None)
    contract: str | None = _text(None)
    fields: str | None = _text(None)
    about: str | None = _text(None)
    guards: str = _text("[]")
    sensitivity: str = _text("internal")
    attached: str | None = _text(None)
    media: str | None = _text(None)
    file_name: str | None = _text(None)


class Call(Scoped, table=True):
    """One request to a provider, written twice: before it leaves and after its reply.

    `created_id` is the response id seen first in the stream; `reserved_usd` is held against the cap until the reply,
    then `charged_usd` is what the cap lost, known (`cost_usd`) or not; `lost_usd` of it is for tries that failed and
    may have been billed. `price` is what was known of it when the call left. Items are lists of references to content.
    `ask` says which question of a Python step, or which summary, a call belongs to; `answer` is the value that was
    answered with (S11).
    """

    __tablename__ = "call"
    __table_args__ = _owned(
        _refers("attempt_id", "attempt"),
        _refers("thread_id", "thread"),
        _body("answer"),
        UniqueConstraint("thread_id", "seq"),
        Index("ix_call_ask", "ask", sqlite_where=_ASKS, postgresql_where=_ASKS),
    )

    id: str = _key()
    attempt_id: str = _text()
    thread_id: str = _text()
    seq: int = _count()
    source: str = _text()
    previous: str = _text()
    rung: str = _text()
    request_hash: str = _text()
    items: str = _text("[]")
    ask: str = _text("")
    provider: str = _text()
    model: str = _text()
    estimate_tokens: int = _count()
    reserved_usd: Decimal | None = Field(default=None, sa_type=Usd)
    lost_usd: Decimal = _column(Usd, 0)
    sent_at: datetime = Field(sa_type=UtcTime)
    state: str = _text("sent")
    created_id: str | None = _text(None)
    response_id: str | None = _text(None)
    outcome: str | None = _text(None)
    reason: str = _text("")
    output_items: str = _text("[]")
    tool_calls: str = _text("[]")
    follow: str = _text("[]")
    answer: str | None = _text(None)
    input_tokens: int | None = _count(None)
    cached_tokens: int | None = _count(None)
    cache_write_tokens: int | None = _count(None)
    output_tokens: int | None = _count(None)
    reasoning_tokens: int | None = _count(None)
    web_searches: int | None = _count(None)
    usage_estimated: int = _count(0)
    cost_usd: Decimal | None = Field(default=None, sa_type=Usd)
    charged_usd: Decimal | None = Field(default=None, sa_type=Usd)
    price: str | None = _text(None)
    tries: int = _count(1)
    seconds: float = _column(Float, 0.0)
    first_text_seconds: float | None = Field(default=None, sa_type=Float)
    done_at: datetime | None = _time()


class ToolCall(Scoped, table=True):
    """One execution of a tool: the row precedes the effect (S09). Arguments and output are hashes of content rows."""

    __tablename__ = "tool_call"
    __table_args__ = _owned(
        _refers("call_id", "call"),
        _body("arguments"),
        _body("output"),
        _body("whole"),
        UniqueConstraint("call_id", "tool_id"),
    )

    id: str = _key()
    call_id: str = _text()
    tool_id: str = _text()
    name: str = _text()
    arguments: str = _text()
    state: str = _text("started")
    output: str | None = _text(None)
    whole: str | None = _text(None)
    is_error: int = _count(0)
    decision: str | None = _text(None)
    started_at: datetime = Field(sa_type=UtcTime)
    ended_at: datetime | None = _time()


class Effect(Scoped, table=True):
    """Something a Python step does to the world once: the row precedes it, as a tool's does (S11, S09)."""

    __tablename__ = "effect"
    __table_args__ = _owned(_refers("attempt_id", "attempt"), _body("value"), lean=True)

    attempt_id: str = _key()
    key: str = _key()
    state: str = _text("started")
    value: str | None = _text(None)
    decision: str | None = _text(None)
    started_at: datetime = Field(sa_type=UtcTime)
    ended_at: datetime | None = _time()


class Event(Scoped, table=True):
    """Something that happened in a run; `seq` alone gives the order (S33)."""

    __tablename__ = "event"
    __table_args__ = _owned(_refers("run_id", "run"), lean=True)

    run_id: str = _key()
    seq: int = Field(primary_key=True, sa_type=BigInteger)
    at: datetime = Field(sa_type=UtcTime)
    kind: str = _text()
    step: str | None = _text(None)
    item: str | None = _text(None)
    attempt: int | None = _count(None)
    data: str = _text("{}")


class Budget(Scoped, table=True):
    """A run's money. `cap_usd` NULL = no cap; `reserved_usd` belongs to calls in flight or never answered (S31)."""

    __tablename__ = "budget"
    __table_args__ = _owned(_refers("run_id", "run"), lean=True)

    run_id: str = _key()
    cap_usd: Decimal | None = Field(default=None, sa_type=Usd)
    spent_usd: Decimal = _column(Usd, 0)
    reserved_usd: Decimal = _column(Usd, 0)


class Spending(Scoped, table=True):
    """What a scope has spent on a UTC day, and holds for calls in flight (S31)."""

    __tablename__ = "spending"
    __table_args__ = _owned(lean=True)

    tenant: str = _key()
    account: str = _key()
    subject: str = _key()
    day: str = _key()
    spent_usd: Decimal = _column(Usd, 0)
    reserved_usd: Decimal = _column(Usd, 0)
