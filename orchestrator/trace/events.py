"""What happens in a run, as typed values for programs: what `run.events()` gives, and `--jsonl` prints.

Each kind of event is a class, so that a type checker knows its fields; `kind` is its stable word. Additions of kinds
and of fields are allowed, renames are not. Money is a decimal text, null where it is not known. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from orchestrator.values import Event

SCHEMA: Final = "orch.event/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened. `step` is None where it concerns the run; `thread` names one of a Python step's."""

    KIND: ClassVar[str] = ""
    kind: str
    step: str | None = None
    item: str | None = None
    thread: str | None = None
    data: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """The event as JSON data: `{"schema": "orch.event/1", "event": kind, "step", "item", …its fields}`."""
        head = {"schema": SCHEMA, "event": self.kind, "step": self.step, "item": self.item}
        return {**head, **self.data}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    KIND: ClassVar[str] = "run.started"
    number: int
    pipeline: str
    hosts: list[str]
    cap_usd: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDone(RunEvent):
    """The run has come to rest: `status` is succeeded, failed, waiting or paused."""

    KIND: ClassVar[str] = "run.done"
    status: str
    cost_usd: str | None
    cost_partial: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWaiting(RunEvent):
    """Another process holds the database; this one goes on waiting for it, up to so many seconds."""

    KIND: ClassVar[str] = "store.waiting"
    message: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchStarted(RunEvent):
    """Samples of a step are made on the inputs of `run`; each is an item of the step."""

    KIND: ClassVar[str] = "bench.started"
    number: int
    run: int
    samples: int
    cap_usd: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPromoted(RunEvent):
    """A sample of a bench became the step's new version."""

    KIND: ClassVar[str] = "step.promoted"
    bench: int
    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(RunEvent):
    KIND: ClassVar[str] = "step.started"
    attempt: int
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone(RunEvent):
    """A step has its value; the sums are over all its calls."""

    KIND: ClassVar[str] = "step.done"
    version: int | None
    calls: int
    reasks: int
    input_tokens: int
    output_tokens: int
    cost_usd: str | None
    cost_partial: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRepeated(RunEvent):
    """A visit of a loop has made a version that is not good yet, and another one follows: visit `round` of `of`."""

    KIND: ClassVar[str] = "step.repeat"
    version: int | None
    round: int
    of: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(RunEvent):
    KIND: ClassVar[str] = "step.failed"
    code: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWaiting(RunEvent):
    """A person has to decide something; `hint` says how."""

    KIND: ClassVar[str] = "step.waiting"
    code: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateAnswered(RunEvent):
    """A gate was answered from here: `decision` is approve, reject or stop."""

    KIND: ClassVar[str] = "gate.answered"
    decision: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReasked(RunEvent):
    """An answer failed its checks and the model is told why."""

    KIND: ClassVar[str] = "step.reask"
    reasons: list[str]
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepItems(RunEvent):
    """A step's list is known: so many items it has, and so many of them are not done."""

    KIND: ClassVar[str] = "step.items"
    items: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote(RunEvent):
    KIND: ClassVar[str] = "step.note"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRebuilt(RunEvent):
    """A thread did not hold, or its inputs changed: it begins anew."""

    KIND: ClassVar[str] = "step.rebuilt"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSwitched(RunEvent):
    """A model did not answer: the thread goes on at the next one that stands in for it."""

    KIND: ClassVar[str] = "model.switched"
    was: str
    now: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMoved(RunEvent):
    """Somebody edited what the step had read; `redo`: it runs once more; `stands`: its readers go on with what it made
    (`on_input_change: keep`)."""

    KIND: ClassVar[str] = "step.moved"
    inputs: list[str]
    redo: bool
    stands: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKept(RunEvent):
    """Nothing of what the step was made from has changed: its version stands, nothing was paid."""

    KIND: ClassVar[str] = "step.kept"
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(RunEvent):
    """Its `when` is false: it makes nothing, and its readers use their defaults."""

    KIND: ClassVar[str] = "step.skipped"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSent(RunEvent):
    KIND: ClassVar[str] = "call.sent"
    seq: int
    source: str
    rung: str
    estimate_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText(RunEvent):
    """A piece of a reply, as it comes."""

    KIND: ClassVar[str] = "call.text"
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetried(RunEvent):
    KIND: ClassVar[str] = "call.retry"
    why: str
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWaiting(RunEvent):
    """A call waits for its turn: a limit of the project file, or of the provider's."""

    KIND: ClassVar[str] = "call.waiting"
    why: str
    wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAdopted(RunEvent):
    """The reply to a call that an interrupted process had sent was fetched from the provider: it is not paid again."""

    KIND: ClassVar[str] = "call.adopted"
    seq: int
    response_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEdited(RunEvent):
    """The provider has shortened the thread as it was asked to (`vendor_context`): `what` it did to it."""

    KIND: ClassVar[str] = "context.edited"
    seq: int
    what: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUnexplained(RunEvent):
    """The provider (`model`) counted more input tokens than can have been sent: something else stands before the
    model. `grew`: `most_tokens` is told by the call before, else by what was sent."""

    KIND: ClassVar[str] = "input.unexplained"
    seq: int
    model: str
    input_tokens: int
    most_tokens: int
    grew: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDone(RunEvent):
    """A reply is there. `first_text_seconds`: from the call, tries included, to the first word; None = no text."""

    KIND: ClassVar[str] = "call.done"
    seq: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: str | None
    seconds: float
    first_text_seconds: float | None
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRecalled(RunEvent):
    """A Python step asked what it had asked before: answered from the record, nothing was sent or paid."""

    KIND: ClassVar[str] = "ask.recalled"
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(RunEvent):
    """`cut`: how many characters of the result the model was not told; `missing`: paths of `keep` that led nowhere."""

    KIND: ClassVar[str] = "tool.called"
    name: str
    seconds: float
    is_error: bool
    id: str = ""
    cut: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecalled(RunEvent):
    """An attempt that failed has done this already: its result is told, and nothing is done again."""

    KIND: ClassVar[str] = "tool.recalled"
    name: str
    id: str


_KINDS: Final[Mapping[str, type[RunEvent]]] = {
    cls.KIND: cls
    for cls in (
        RunStarted,
        RunDone,
        StoreWaiting,
        BenchStarted,
        StepPromoted,
        StepStarted,
        StepDone,
        StepRepeated,
        StepFailed,
        StepWaiting,
        GateAnswered,
        StepReasked,
        StepItems,
        StepNote,
        StepRebuilt,
        StepMoved,
        StepKept,
        StepSkipped,
        CallSent,
        CallText,
        CallRetried,
        CallWaiting,
        CallAdopted,
        ContextEdited,
        InputUnexplained,
        CallDone,
        AskRecalled,
        ToolCalled,
        ToolRecalled,
    )
}


def typed(event: Event) -> RunEvent:
    """The event as its class; a plain RunEvent for a kind, or a shape of one, that has none."""
    thread = event.data.get("thread")
    common: dict[str, Any] = {"kind": event.kind, "step": event.step, "item": event.item, "thread": thread}
    common["data"] = dict(event.data)
    cls = _KINDS.get(event.kind)
    own = [field.name for field in fields(cls) if field.name not in common] if cls is not None else []
    if cls is None or any(name not in event.data for name in own):
        return RunEvent(**common)
    return cls(**common, **{name: event.data[name] for name in own})
