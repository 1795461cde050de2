"""The store as the engine sees it: async methods, values in and values out, everything inside one scope.

Each method that writes is one transaction, or its share of one: all of it is durable when the method returns, or none
of it happened. Each method that reads is one transaction. No session, row or connection leaves this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from sqlalchemy import Connection
from sqlmodel import Session

from orchestrator.errors import StoreError
from orchestrator.spec import Sensitivity
from orchestrator.store import (
    adoption,
    answers,
    approvals,
    artifacts,
    benches,
    calls,
    cancelling,
    claims,
    commits,
    costs,
    creation,
    earlier,
    fan_out,
    gates,
    listing_runs,
    messages,
    overview,
    redo,
    removal,
    runs,
    snapshots,
    tool_approvals,
    workers,
)
from orchestrator.store.database import Observer
from orchestrator.store.guard import WITHIN
from orchestrator.store.listings import Reading, attempts
from orchestrator.store.opening import Opened
from orchestrator.store.records import (
    AdoptPlan,
    Answer,
    Answered,
    AskedTools,
    AttemptRow,
    Claim,
    Edited,
    EventRow,
    Expanded,
    Fenced,
    Journal,
    Kept,
    Making,
    NewItem,
    NewRun,
    RunGlance,
    RunMark,
    Shown,
    Starter,
    ToolAnswer,
    ToolDecision,
    Undecided,
    WaitingRow,
)
from orchestrator.store.sql import Tx
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    BudgetRow,
    Commit,
    CommitResult,
    Cut,
    Dispatch,
    DoneCall,
    ErrorRecord,
    Event,
    FromEarlier,
    Manifest,
    Merge,
    Message,
    Mode,
    NewArtifact,
    RunRow,
    RunStatus,
    SentCall,
    Snapshot,
    StepRow,
    StepState,
    ThreadRecord,
    ToolCall,
    ToolOutput,
)

if TYPE_CHECKING:
    from orchestrator.store.garbage import Removed

T = TypeVar("T")


class Store:
    """A database opened with a scope. Every method raises StoreError where the database fails, and UsageError ("not
    found") for what does not exist or belongs to somebody else."""

    def __init__(self, opened: Opened, url: str, observer: Observer | None = None) -> None:
        self.scope: Final = opened.scope
        self.url: Final = url
        self._key = opened.hash_key
        self._database = opened.database
        self._threads = ThreadPoolExecutor(opened.database.connections, thread_name_prefix="orch-store")
        self._writer = opened.database.writing(self._threads, observer)

    async def close(self) -> None:
        """Commit what is queued and let go of the database."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._threads.shutdown()
        self._database.close()

    def secret_key(self) -> bytes:
        """A random key of this scope, kept in the database: for ids that must not reveal what they stand for (S14)."""
        return self._key

    # --- workers and runs ---

    async def register_worker(self) -> str:
        """Make this process known as a worker; its id, for `create_run`, `adopt_run` and `claim`."""
        return await self._write("register_worker", workers.register, durable=False)

    async def heartbeat(self, worker: str) -> None:
        """Say that the worker lives. A worker that has not for 30 seconds counts as dead."""
        await self._write("heartbeat", partial(workers.heartbeat, worker=worker), durable=False)

    async def create_run(
        self, new: NewRun, worker: str, starter: Starter | None = None
    ) -> tuple[RunRow, tuple[Dispatch, ...]]:
        """Start a run: session, message, inputs, steps and the first dispatches in one transaction.

        Dispatches that the starter begins are claimed in it too, and carry what they read.
        """
        return await self._write("create_run", partial(creation.create, new=new, worker=worker, starter=starter))

    async def run(self, ref: str | int) -> RunRow:
        """A run by id, number, `last` or `last~N`."""
        return await self._read(partial(runs.find, ref=ref))

    async def runs(self, limit: int = 50, *, benches: bool = False) -> tuple[RunRow, ...]:
        """The newest runs, newest first; with `benches` those too."""
        return await self._read(partial(runs.newest, limit=limit, benches=benches))

    async def glances(self, wanted: listing_runs.Wanted) -> tuple[RunGlance, ...]:
        """The newest runs that are wanted, newest first, each with what it cost and what of it waits."""
        return await self._read(partial(listing_runs.glances, wanted=wanted))

    async def is_owned(self, run_id: str, worker: str) -> bool:
        """Whether the run is still the worker's: neither cancelled nor taken over."""
        return await self._read(partial(runs.is_owned, run_id=run_id, worker=worker))

    async def cancel_run(self, run_id: str, by: str) -> tuple[str, ...]:
        """Stop a run, whoever works on it; the steps that were given up."""
        return await self._write("cancel_run", partial(cancelling.cancel, run_id=run_id, by=by))

    async def tag_run(self, run_id: str, add: Collection[str], remove: Collection[str] = ()) -> None:
        await self._write("tag_run", partial(runs.tag, run_id=run_id, add=add, remove=remove))

    async def run_marks(self) -> tuple[RunMark, ...]:
        """All runs, newest first, in short."""
        return await self._read(removal.marks)

    async def run_needs(self) -> Mapping[str, frozenset[str]]:
        """Which runs each run needs, because it was made from them or shares what they made; by id."""
        return await self._read(removal.needs)

    async def remove_run(self, run_id: str) -> None:
        """Remove a run with all that is only its own. Raises UsageError where another needs it, RunBusy for one that is
        worked on."""
        await self._write("remove_run", partial(removal.remove, run_id=run_id))

    async def steps(self, run_id: str) -> tuple[StepRow, ...]:
        """A run's inputs, then its steps, in order, with their sums; no bodies."""
        return await self._read(partial(overview.steps, run_id=run_id))

    async def states(self, run_id: str) -> tuple[StepState, ...]:
        """What the run's inputs and steps have come to, in order, with nothing of what they made."""
        return await self._read(partial(overview.states, run_id=run_id))

    async def bills(
        self, by: costs.By, run_id: str | None, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[costs.Bill, ...]:
        """What the calls of one run, or of all, have cost, added up; sent from `since` on and before `until`."""
        return await self._read(partial(costs.bills, by=by, run_id=run_id, since=since, until=until))

    async def unexplained(
        self, run_id: str | None, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[costs.Unexplained, ...]:
        """The calls of one run, or of all, whose provider counted more input than can have been sent (R023)."""
        return await self._read(partial(costs.unexplained, run_id=run_id, since=since, until=until))

    async def unexplained_of(self, attempt_id: str) -> Mapping[str, costs.ToldInput]:
        """The same of one attempt: what is told of each, by the call's id."""
        return await self._read(partial(costs.unexplained_of, attempt_id=attempt_id))

    async def counted(self, provider: str, model: str) -> tuple[tuple[int, int], ...]:
        """Of a model's newest calls, oldest first: the input tokens that were estimated, and those that it reported."""
        return await self._read(partial(costs.counted, provider=provider, model=model))

    async def recorded_calls(self, run_id: str) -> costs.Recorded:
        """A run's calls with what each brought, for asking what they would have cost otherwise. No bodies."""
        return await self._read(partial(costs.recorded, run_id=run_id))

    async def budget(self, run_id: str) -> BudgetRow:
        return await self._read(partial(runs.budget, run_id=run_id))

    async def adopt_run(
        self, run_id: str, worker: str, plan: AdoptPlan, *, take_over: bool = False
    ) -> tuple[Dispatch, ...]:
        """Take a run on and dispatch all that can go on. Raises RunBusy where another worker is alive on it."""
        work = partial(adoption.adopt, run_id=run_id, worker=worker, plan=plan, take_over=take_over)
        return await self._write("adopt_run", work)

    async def check_free(self, run_id: str, worker: str) -> None:
        """Raises RunBusy where another worker is alive on the run: ask before changing anything of it."""
        await self._read(partial(adoption.check_free, run_id=run_id, worker=worker))

    async def release_run(
        self,
        run_id: str,
        worker: str,
        status: RunStatus,
        error: ErrorRecord | None = None,
        *,
        unless_ready: bool = False,
    ) -> tuple[Dispatch, ...]:
        """End this worker's work on a run. Changes nothing where another worker has taken it.

        `unless_ready`: does not end it where an answer has just made something ready; gives that back.
        """
        work = partial(
            adoption.release, run_id=run_id, worker=worker, status=status, error=error, unless_ready=unless_ready
        )
        return await self._write("release_run", work)

    async def ready(self, run_id: str, worker: str) -> tuple[Dispatch, ...]:
        """What of this worker's run could begin now and has not been begun."""
        return await self._read(partial(adoption.ready, run_id=run_id, worker=worker))

    async def set_cap(self, run_id: str, cap: Decimal) -> None:
        await self._write("set_cap", partial(runs.set_cap, run_id=run_id, cap=cap))

    # --- one step ---

    async def snapshot(
        self,
        run_id: str,
        step: str,
        item: str | None,
        reads: Sequence[str],
        messages: int,
        redone_by: str | None = None,
        *,
        entry_of: str | None = None,
    ) -> Snapshot:
        """What the step may look at now, from one transaction. A read is `name`, `name/*` (all items) or `name/key`;
        `entry_of` names the list that the item's entry is from. `redone_by` is the attempt that looks, where somebody
        asked for it (its dispatch has a mode)."""
        work = partial(
            snapshots.snapshot,
            run_id=run_id,
            step=step,
            item=item,
            reads=reads,
            messages=messages,
            redone_by=redone_by,
            entry_of=entry_of,
        )
        return await self._read(work)

    async def claim(self, claim: Claim) -> bool:
        """Begin the attempt; False = the dispatch came too late, drop it. Raises BudgetExceeded, and then the attempt
        stays ready."""
        # Without a call nothing is paid for yet: a claim lost in a power cut is an attempt that begins again.
        return await self._fenced("claim", partial(claims.claim, claim=claim), durable=claim.sent is not None)

    async def manifest(self, attempt_id: str) -> Manifest | None:
        """What an attempt was made from; None for one that was never claimed."""
        return await self._read(partial(claims.recorded, attempt_id=attempt_id))

    async def open_thread(self, dispatch: Dispatch, thread: ThreadRecord, sent: SentCall) -> None:
        """A further thread of a running attempt, with its first call. Raises Fenced, BudgetExceeded."""
        await self._write("open_thread", partial(calls.open_thread, dispatch=dispatch, thread=thread, call=sent))

    async def sent(self, dispatch: Dispatch, call: SentCall) -> None:
        """Record a call that is about to leave, its worst case reserved. Raises Fenced, BudgetExceeded."""
        await self._write("sent", partial(calls.sent, dispatch=dispatch, call=call))

    async def again(self, dispatch: Dispatch, call: SentCall) -> None:
        """Hold the worst case of a further try beside that of the one before, which may have been billed. Raises
        Fenced, BudgetExceeded."""
        await self._write("again", partial(calls.again, dispatch=dispatch, call=call))

    async def created(self, call_id: str, response_id: str) -> None:
        """Note the response id seen first in the stream. Returns at once; it rides on the next commit."""
        self._writer.write_later("created", partial(calls.created, call_id=call_id, response_id=response_id))

    async def note(self, dispatch: Dispatch, events: Sequence[Event]) -> None:
        """Write down what happened to an attempt. Raises Fenced."""
        await self._write("note", partial(calls.note, dispatch=dispatch, events=events))

    async def cut(self, dispatch: Dispatch, call_id: str, cut: Cut) -> None:
        """Write down what a call that was given up in mid-stream had said, and may have used. Raises Fenced."""
        await self._write("cut", partial(calls.cut, dispatch=dispatch, call_id=call_id, cut=cut))

    async def done(self, dispatch: Dispatch, call: DoneCall, events: Sequence[Event] = ()) -> None:
        """Record a call's reply, or its failure, and settle what was reserved for it. Raises Fenced."""
        await self._write("done", partial(calls.done, dispatch=dispatch, call=call, events=events))

    async def tool_started(self, dispatch: Dispatch, call_id: str, tool_call: ToolCall) -> None:
        """Record that a tool is about to run (S09). Raises Fenced."""
        work = partial(calls.tool_started, dispatch=dispatch, call_id=call_id, call=tool_call)
        await self._write("tool_started", work)

    async def tools_asked(self, dispatch: Dispatch, call_id: str, tool_calls: Sequence[ToolCall]) -> None:
        """Record that these calls want a person's word before they run. Raises Fenced."""
        work = partial(tool_approvals.ask, dispatch=dispatch, call_id=call_id, tool_calls=tool_calls)
        await self._write("tools_asked", work)

    async def tool_finished(
        self, dispatch: Dispatch, call_id: str, tool_call_id: str, output: ToolOutput, whole: str | None = None
    ) -> None:
        """Record what the tool gave, and what of it the model is told. Raises Fenced."""
        tool_id = tool_call_id
        work = partial(
            calls.tool_finished, dispatch=dispatch, call_id=call_id, tool_id=tool_id, output=output, whole=whole
        )
        await self._write("tool_finished", work)

    async def effect_started(self, dispatch: Dispatch, key: str) -> None:
        """Record that a Python step is about to do something to the world (S11). Raises Fenced."""
        await self._write("effect_started", partial(calls.effect_started, dispatch=dispatch, key=key))

    async def effect_finished(self, dispatch: Dispatch, key: str, value: bytes) -> None:
        """Record that it is done, and what came of it. Raises Fenced."""
        await self._write("effect_finished", partial(calls.effect_finished, dispatch=dispatch, key=key, value=value))

    async def commit(self, commit: Commit, starter: Starter | None = None) -> CommitResult:
        """End an attempt with its artifact; see CommitResult for the outcomes, and `create_run` for the starter."""
        try:
            return await self._write("commit", partial(commits.commit, commit=commit, starter=starter))
        except Fenced:
            return CommitResult("fenced")
        except Edited as edited:
            return CommitResult("edited", present=edited.present)

    async def fail(
        self, dispatch: Dispatch, error: ErrorRecord, done: DoneCall | None = None, events: Sequence[Event] = ()
    ) -> bool:
        """End an attempt as failed; False where it is not ours any more."""
        work = partial(commits.end, dispatch=dispatch, state="failed", error=error, done=done, events=events)
        return await self._fenced("fail", work)

    async def fail_item(
        self, dispatch: Dispatch, error: ErrorRecord, done: DoneCall | None = None, events: Sequence[Event] = ()
    ) -> tuple[Dispatch, ...]:
        """End an item's attempt as failed; what can run now, where it was the last to end."""
        work = partial(commits.end, dispatch=dispatch, state="failed", error=error, done=done, events=events)
        try:
            return await self._write("fail_item", work)
        except Fenced:
            return ()

    async def items(self, run_id: str, step: str) -> tuple[StepRow, ...]:
        """The items of a step by key, without their sums; those that its list does not have any more too."""
        return await self._read(partial(overview.items, run_id=run_id, name=step))

    async def entries(self, run_id: str, step: str) -> Mapping[str, bytes]:
        """The entries that a step's items are made for, by key."""
        return await self._read(partial(snapshots.entries, run_id=run_id, name=step))

    async def expand(
        self, claim: Claim, kind: Literal["llm", "python"], items: Sequence[NewItem], *, retry: bool
    ) -> Expanded | None:
        """Claim a step's attempt and bring its list into the run: one row for each item, those that have work to do
        dispatched. `retry`: also those that have failed. None where the attempt is not ours any more."""
        work = partial(fan_out.expand, claim=claim, kind=kind, items=items, retry=retry)
        try:
            return await self._write("expand", work)
        except Fenced:
            return None

    async def wait(self, dispatch: Dispatch, error: ErrorRecord, events: Sequence[Event] = ()) -> bool:
        """Let an attempt wait for a person; False where it is not ours any more."""
        work = partial(commits.end, dispatch=dispatch, state="waiting", error=error, done=None, events=events)
        return await self._fenced("wait", work)

    async def restart(self, dispatch: Dispatch, reason: str) -> Dispatch | None:
        """Give up an attempt whose inputs changed, for a new one; None where it is not ours any more."""
        try:
            return await self._write("restart", partial(commits.restart, dispatch=dispatch, reason=reason))
        except Fenced:
            return None

    async def redo(
        self, run_id: str, step: str, item: str | None, mode: Mode, comment: str | None, author: str
    ) -> Dispatch:
        """Ask for a finished step to be made anew, with a person's word; see `store.redo`. Raises UsageError."""
        work = partial(redo.redo, run_id=run_id, name=step, item=item, mode=mode, comment=comment, author=author)
        return await self._write("redo", work)

    async def pass_by(
        self, claim: Claim, state: Literal["kept", "skipped"], starter: Starter | None = None
    ) -> tuple[Dispatch, ...] | None:
        """End an attempt with nothing made, because nothing changed for it or its `when` is false; what can run now.
        None where it is not ours any more."""
        try:
            return await self._write("pass_by", partial(commits.pass_by, claim=claim, state=state, starter=starter))
        except Fenced:
            return None

    async def cancel_attempt(self, dispatch: Dispatch) -> bool:
        """Cancel an attempt that has not ended; False where it has, or is not ours any more."""
        return await self._fenced("cancel_attempt", partial(commits.cancel, dispatch=dispatch))

    async def keep(self, run_id: str, kept: Kept) -> tuple[Dispatch, ...]:
        """Accept a step's version as it is, whatever it was made from; what can run now. Raises UsageError where it is
        another version by now, or under way."""
        return await self._write("keep", partial(answers.keep, run_id=run_id, kept=kept))

    async def settle(
        self,
        run_id: str,
        step: str,
        keep: Literal["head", "draft"],
        *,
        item: str | None = None,
        merge: Merge | None = None,
        by: str = "-",
    ) -> tuple[Dispatch, ...]:
        """Answer an edit conflict (S07), by one of the two versions or by what a person made of both; what can run
        now."""
        work = partial(answers.settle, run_id=run_id, name=step, item=item, keep=keep, merge=merge, by=by)
        return await self._write("settle", work)

    async def undecided(self, run_id: str, step: str, item: str | None = None) -> Undecided:
        """The draft that waits beside a person's version, and that version."""
        return await self._read(partial(answers.undecided, run_id=run_id, name=step, item=item))

    async def pin(
        self, run_id: str, step: str, fields: Sequence[str], by: str, *, item: str | None = None
    ) -> Mapping[str, str]:
        """Keep fields of a step's value as they are whenever it runs again; all its pins, with who set them."""
        return await self._write("pin", partial(answers.pin, run_id=run_id, name=step, item=item, fields=fields, by=by))

    async def unpin(
        self, run_id: str, step: str, fields: Sequence[str], by: str, *, item: str | None = None
    ) -> Mapping[str, str]:
        """Let these fields, or all where none is named, change again; the pins that are left."""
        return await self._write(
            "unpin", partial(answers.unpin, run_id=run_id, name=step, item=item, fields=fields, by=by)
        )

    async def ask(self, claim: Claim, error: ErrorRecord) -> bool:
        """Begin a gate's attempt and let it wait for a person; False = the dispatch came too late, drop it."""
        return await self._fenced("ask", partial(gates.ask, claim=claim, error=error))

    async def shown(self, run_id: str, gate: str, item: str | None, names: Sequence[str]) -> Shown:
        """What a gate that waits shows now, with bodies, from one transaction. Raises UsageError for one that does not
        wait."""
        return await self._read(partial(gates.shown, run_id=run_id, gate=gate, item=item, names=names))

    async def approved(self, run_id: str, gates: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """For each of these gates, the hashes of what it has approved, by name; nothing where it is shut."""
        return await self._read(partial(approvals.approved, run_id=run_id, gates=gates))

    async def waiting(self) -> tuple[WaitingRow, ...]:
        """All that waits for a person, over all runs; no bodies."""
        return await self._read(gates.waiting)

    async def decide(self, run_id: str, gate: str, item: str | None, answer: Answer) -> Answered:
        """Take an answer for exactly what was shown (S08). Raises UsageError where that has changed, or the gate does
        not wait; nothing is decided then."""
        return await self._write("decide", partial(gates.decide, run_id=run_id, gate=gate, item=item, answer=answer))

    async def asked_tools(self, run_id: str) -> tuple[AskedTools, ...]:
        """The steps of a run whose tool calls wait for a person's word."""
        return await self._read(partial(tool_approvals.asked, run_id=run_id))

    async def answer_tools(self, run_id: str, said: ToolAnswer) -> bool:
        """Take a word on tool calls; whether their steps can go on. Raises UsageError where they do not wait, or the
        person saw others; nothing is decided then."""
        return await self._write("answer_tools", partial(tool_approvals.answer, run_id=run_id, said=said))

    async def decide_tool(self, run_id: str, tool_call_id: str, decision: ToolDecision, output: str | None) -> None:
        """Say what became of an interrupted tool (S09): retry it, take this output, or tell the model."""
        work = partial(answers.decide_tool, run_id=run_id, tool_id=tool_call_id, decision=decision, output=output)
        await self._write("decide_tool", work)

    async def decide_effect(self, run_id: str, key: str, decision: ToolDecision, value: bytes | None) -> None:
        """Say what became of an interrupted effect of a Python step: do it again, or take this value as its result."""
        work = partial(answers.decide_effect, run_id=run_id, key=key, decision=decision, value=value)
        await self._write("decide_effect", work)

    # --- what was written down ---

    async def journal(self, attempt_id: str) -> Journal:
        """Everything an attempt recorded, with the texts as they were sent."""
        from orchestrator.store.journals import journal

        return await self._list(partial(journal, attempt_id=attempt_id))

    async def answer(self, run_id: str, ask: str) -> bytes | None:
        """What a question of this hash was answered with, in the run or in one that it was made from."""
        return await self._read(partial(calls.answer, run_id=run_id, ask=ask))

    async def attempts(self, run_id: str, step: str, item: str | None = None) -> tuple[AttemptRow, ...]:
        """All attempts of a step, oldest first."""
        return await self._list(partial(attempts, run_id=run_id, step=step, item=item))

    async def artifact(self, run_id: str, step: str, item: str | None = None, version: int | None = None) -> Artifact:
        """The current version of a step or input, or the one of that number, with its body."""
        return await self._read(partial(artifacts.find, run_id=run_id, step=step, item=item, version=version))

    async def versions(self, run_id: str, step: str, item: str | None = None) -> tuple[ArtifactVersion, ...]:
        """All versions of a step or input, oldest first; a child run's include those it started from."""
        return await self._read(partial(artifacts.history, run_id=run_id, step=step, item=item))

    async def head_in(self, run_id: str, step: str, item: str | None = None) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the runs that share each version as their current one, by the version's id."""
        return await self._read(partial(artifacts.head_in, run_id=run_id, step=step, item=item))

    async def readers(self, artifact_id: str) -> tuple[str, ...]:
        """The steps with an attempt that read this version."""
        return await self._read(partial(artifacts.readers, artifact_id=artifact_id))

    async def makings(self, artifact_ids: Collection[str]) -> Mapping[str, Making]:
        """The attempts behind these versions, by the version's id; nothing for what no attempt made."""
        from orchestrator.store.makings import makings

        return await self._list(partial(makings, artifact_ids=artifact_ids))

    async def texts(self, hashes: Collection[str]) -> Mapping[str, str]:
        """The texts of blocks, by the hashes that `makings` gives."""
        from orchestrator.store.makings import texts

        return await self._list(partial(texts, hashes=hashes))

    async def edit(
        self, run_id: str, step: str, item: str | None, base_version: int, new: NewArtifact
    ) -> ArtifactVersion:
        """A person's version on top of the one they saw; equal bytes make none. Raises UsageError if it changed
        meanwhile."""
        work = partial(answers.edit, run_id=run_id, name=step, item=item, base_version=base_version, new=new)
        return await self._write("edit", work)

    async def newest_earlier(self, run_id: str, wanted: Mapping[str, FromEarlier]) -> Mapping[str, ArtifactVersion]:
        """What a run would take from earlier runs if it started now, by the name it has there."""
        return await self._read(partial(earlier.newest, run_id=run_id, wanted=wanted)) if wanted else {}

    async def earlier_now(self, session: str | None, wanted: Mapping[str, FromEarlier]) -> Mapping[str, earlier.Taken]:
        """What a new run in this session (None = one of its own) would take from earlier runs."""
        return await self._read(partial(earlier.now, session=session, wanted=wanted)) if wanted else {}

    async def take_newest(self, run_id: str, wanted: Mapping[str, FromEarlier]) -> None:
        """Take from earlier runs what is newest there now; a running step keeps what it has read (S06)."""
        if wanted:
            await self._write("take_newest", partial(earlier.take_newest, run_id=run_id, wanted=wanted))

    async def made_from(self, run_id: str, step: str) -> benches.MadeFrom:
        """What a step's current version rests on: the very versions that were read."""
        return await self._read(partial(benches.made_from, run_id=run_id, step=step))

    async def promote(
        self, run_id: str, step: str, base: str, *, bench: str, item: str, new: NewArtifact, told: Event
    ) -> ArtifactVersion:
        """A bench's sample as the step's new version, on top of the version `base` (an id). Raises UsageError where
        that is no longer the head; equal bytes make none."""
        work = partial(benches.promote, run_id=run_id, step=step, base=base, bench=bench, item=item, new=new, told=told)
        return await self._write("promote", work)

    async def events(self, run_id: str, after: int = 0) -> tuple[EventRow, ...]:
        """A run's events in order, those after a number."""
        return await self._read(partial(runs.events_after, run_id=run_id, after=after))

    async def add_message(
        self,
        session: str,
        role: messages.Role,
        text: str,
        *,
        author: str = "-",
        step: str | None = None,
        sensitivity: Sensitivity = "internal",
    ) -> Message:
        """Add a line to a session's visible conversation; the session is made if it is new."""

        def work(tx: Tx) -> Message:
            session_id = messages.session(tx, session, session)
            return messages.add(tx, session_id, role, text, author, step=step, sensitivity=sensitivity)

        return await self._write("add_message", work)

    async def check(self) -> tuple[str, ...]:
        """Problems of the database, as sentences; none if it is sound."""
        from orchestrator.store.integrity import problems

        def look(reading: Reading) -> tuple[str, ...]:
            return problems(reading, self._database.damage(reading.session.connection()))

        return await self._list(look)

    async def back_up(self, target: Path) -> int:
        """Copy the whole database, all scopes, into a new file that its owner alone may read; its size in bytes.

        Raises UsageError where the file exists or the database is on a server, StoreError where it cannot be written.
        """
        return await self._in_thread(partial(self._database.copy_to, target))

    async def collect(self, grace: timedelta = timedelta(hours=24)) -> Removed:
        """Remove the scope's bodies that nothing refers to and nothing has for so long. The file keeps its size; what
        was freed is used again."""
        from orchestrator.store import garbage

        before = await self._read(lambda tx: tx.now - grace // timedelta(microseconds=1))
        found = await self._list(partial(garbage.unused, before=before))
        count = size = 0
        for start in range(0, len(found), garbage.AT_ONCE):
            some = found[start : start + garbage.AT_ONCE]
            removed = await self._write("collect", partial(garbage.remove, bodies=some, before=before))
            count, size = count + removed.bodies, size + removed.bytes
        return garbage.Removed(count, size)

    async def compact(self) -> tuple[int, int] | None:
        """Make the database's file as small as what is in it: its bytes before and after. Writing waits meanwhile.
        None on a server, which does so by itself."""
        return await self._in_thread(self._database.compact)

    # --- how ---

    async def _write(self, name: str, work: Callable[[Tx], T], *, durable: bool = True) -> T:
        return await self._writer.write(name, work, durable=durable)

    async def _fenced(self, name: str, work: Callable[[Tx], object], *, durable: bool = True) -> bool:
        try:
            await self._writer.write(name, work, durable=durable)
        except Fenced:
            return False
        return True

    async def _read(self, work: Callable[[Tx], T]) -> T:
        """One read transaction with fixed SQL."""
        return await self._in_thread(partial(self._database.read, work))

    async def _list(self, work: Callable[[Reading], T]) -> T:
        """One read transaction through the table classes."""

        def reading(connection: Connection) -> T:
            with Session(connection.execution_options(**{WITHIN: self.scope})) as session:
                return work(Reading(session, self.scope))

        return await self._in_thread(partial(self._database.browse, reading))

    async def _in_thread(self, reading: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, reading)
        except Exception as error:
            explained = self._database.explain(error)
            if isinstance(explained, StoreError) and explained is not error:
                raise explained from error
            raise
