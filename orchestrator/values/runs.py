"""Runs and their steps as they are listed, and how one of them failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal

from orchestrator.values.replies import Usage
from orchestrator.values.requests import Manifest
from orchestrator.values.stored import ArtifactVersion, RunKind, RunStatus, StepStatus


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
