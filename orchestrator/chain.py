"""The calls of one thread: ask, answer tools, check, re-ask, rebuild.

The chain is a small state machine over its own recorded calls. `next_move` looks at the list of calls and says what to
do next, whether the list was made a second ago or by a process that is dead since; so a resumed attempt is not a
special case, it is the same loop entered with a longer list.

    nothing yet                  → send the opening
    sent, no reply recorded      → the reply, if the provider has kept it; else send the same items again, from the
                                   same parent (the reply may be paid twice)
    reply with tool calls        → run them, send all results
    reply that was paused        → send nothing new, on the reply
    reply that failed a check    → send the feedback, on the reply's own id
    reply cut off                → send the same items again from the same parent, once, with a higher cap
    id unknown or ignored        → send everything again without an id (rung: replay), then chain on
    too long for the window      → the same, with the results of tools cut that were told before (rung: compact)
    no answer from this model    → send everything to the next one that may stand in for it, then go on there
    reply that was accepted      → the next question, on the reply's own id (a Python step asks on)

A thread may hold several questions, each with an output contract and re-asks of its own; a chain works on one of them,
over the calls of all. `REBUILD` begins the thread anew: its first call carries all that still counts, and what was
recorded before it is out.

Each call is written down before it leaves (`sent`) and after it came back (`done`); the last `done` is not written here
but carried to the commit, so that a one-call step costs two transactions.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Literal, Protocol

from orchestrator.answering import Answering, ToolRecorder
from orchestrator.clock import Clock
from orchestrator.errors import BudgetExceeded, OrchError, ProviderFailure, StepFailed
from orchestrator.fallbacks import FALLS_BACK, PATIENCE, Candidate, last_word, said_to, taken_up, with_form
from orchestrator.ids import is_synthetic, sha256, uuid7
from orchestrator.money import NO_CAPS, Caps, Price
from orchestrator.moves import (
    REPLAY_REASONS,
    Answer,
    Send,
    count_reasks,
    file_tokens,
    head,
    is_cut_off,
    item_text,
    last_input_tokens,
    next_move,
    prompt_item,
    question,
    shortened,
    turn,
    was_compacted,
)
from orchestrator.providers.base import RETRYABLE, Provider, StreamEvent, may_be_billed
from orchestrator.providers.endpoints import Endpoints
from orchestrator.providers.foreign import since_compaction
from orchestrator.providers.kept import Kept
from orchestrator.providers.limits import Admission
from orchestrator.providers.prices import Prices
from orchestrator.providers.retry import nothing, respond
from orchestrator.providers.tokens import estimate
from orchestrator.providers.window import over_window
from orchestrator.spec import Effort
from orchestrator.stopwatch import ran_out, untold
from orchestrator.store.records import ToolRow
from orchestrator.tools import Tool
from orchestrator.tools_done import DoneBefore
from orchestrator.unexplained import KIND as UNEXPLAINED
from orchestrator.unexplained import most_input
from orchestrator.values import (
    CallRow,
    CallSource,
    ContextEdits,
    Cut,
    DoneCall,
    Event,
    FactBasis,
    Fault,
    HostedTool,
    Item,
    OutputFormat,
    OutputItem,
    Reply,
    Request,
    Rung,
    SentCall,
    TextItem,
    ThreadRecord,
    ToolOutput,
    Usage,
)
from orchestrator.workers import aside

# A call that is reported to have cost more is not believed, and charged as it was reserved: a server may say anything.
MOST_USD: Final = Decimal(10_000)
MAX_TOOL_ROUNDS: Final = 100
LOOK_TOKENS: Final = 6_000  # what one search or page of the provider's brings along may weigh, where a cap reserves
WINDOW_FULL: Final = "model_context_window_exceeded"  # a vendor's name for a reply that no higher cap would complete


@dataclass(frozen=True, slots=True)
class Policy:
    """What every call of a thread carries, and how long and how often it may go on. Times are in seconds.

    `visit` counts those of the step's loop: written answers are a list for each.
    """

    model: str
    step: str
    max_output_tokens: int
    effort: Effort | None
    output: OutputFormat | None
    tools: tuple[Tool, ...]
    reasks: int
    call_timeout: float
    deadline: float
    cache_key: str | None
    unpriced: Literal["refuse", "allow"]
    capped: bool
    caps: Caps = NO_CAPS
    visit: int = 1
    item: str | None = None
    background: bool = False
    edits: ContextEdits | None = None
    hosted: tuple[HostedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the step makes of a reply: a value with its canonical bytes, or faults the model is told about."""

    value: Any = None
    body: bytes = b""
    facts: dict[str, FactBasis] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    feedback: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """An accepted reply. `done` is not written yet: it belongs into the commit's transaction."""

    verdict: Verdict
    done: DoneCall
    calls: tuple[CallRow, ...]


class ChainStopped(Exception):
    """The thread ended without an accepted reply; `done`, if any, belongs into the transaction that says so."""

    def __init__(self, error: OrchError, done: DoneCall | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.done = done


class Recorder(ToolRecorder, Protocol):
    """Where calls are written down; each method is one fenced transaction. `counted` reads: what was estimated of the
    newest calls of a model, and what was reported."""

    async def sent(self, call: SentCall) -> None: ...
    async def again(self, call: SentCall) -> None: ...
    def created(self, call_id: str, response_id: str) -> None: ...
    async def cut(self, call_id: str, cut: Cut) -> None: ...
    async def told(self, event: Event) -> None: ...
    async def counted(self, provider: str, model: str) -> Sequence[tuple[int, int]]: ...
    async def done(self, call: DoneCall, events: Sequence[Event]) -> None: ...


@dataclass
class _Timer:
    """How long a call takes, from when it leaves, and what is heard of it meanwhile."""

    clock: Clock
    started: float | None = None
    heard: list[str] = field(default_factory=list)  # what the try under way has said

    def start(self) -> None:
        self.started = self.clock.monotonic()

    def seconds(self) -> float:
        return 0.0 if self.started is None else self.clock.monotonic() - self.started


# --- the loop ---------------------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """One question on a thread at work. `calls` and `tool_rows` are what the journal holds; they grow as it goes on.

    `opening` are the items that ask, by default the thread's own prompt; `ask` names the question in the record;
    `skipped` counts recorded calls that no longer belong to the thread; `before` are the calls of the threads that this
    one goes on from, `done_before` is what tools have done in attempts that failed. `fallbacks` are the models left to
    ask where this one does not answer, `barred` those that may not be, and why.
    """

    provider: Provider
    thread: ThreadRecord
    policy: Policy
    check: Callable[[Reply, Sequence[CallRow]], Awaitable[Verdict]]
    recorder: Recorder
    prices: Prices
    endpoints: Endpoints
    clock: Clock
    emit: Callable[[Event], None]
    calls: list[CallRow] = field(default_factory=list)
    tool_rows: dict[tuple[str, str], ToolRow] = field(default_factory=dict)  # by call and by the id the model gave
    done_before: DoneBefore = field(default_factory=DoneBefore)
    source: CallSource = "NEXT_STEP"
    opening: tuple[Item, ...] = ()
    ask: str = ""
    skipped: int = 0
    _first_text: float | None = field(default=None, init=False)  # seconds from the call to its first word
    _lost: bool = field(default=False, init=False)  # a try before this one may have been billed
    before: tuple[CallRow, ...] = ()
    fallbacks: tuple[Candidate, ...] = ()
    barred: tuple[str, ...] = ()
    _form: str = field(default="", init=False)  # what the model is told of the form, where the task does not say it
    _tried: list[str] = field(default_factory=list, init=False)

    async def run(self) -> Finished:
        """Go on until a reply is accepted. Raises ChainStopped, ToolWaits, or what the recorder raises."""
        first, *left = taken_up((self._here, *self.fallbacks), self.calls)
        self._move_to(first, tuple(left))
        try:
            return await self._go_on()
        except ChainStopped as stopped:
            if stopped.done is not None:  # it is written with the step's end; what it cost is told now
                self._done_event(stopped.done)
            raise

    async def _go_on(self) -> Finished:
        opening = self.opening or (prompt_item(self.thread.prompt),)
        while True:
            move = next_move(self.calls, opening, self.source)
            if isinstance(move, Answer):
                move = Send("TOOL_RESULT", await self._answer_tools(move.call))
            kept = await self._kept(move)
            finished = await (self._weigh(*kept) if kept else self._call(move))
            if finished is not None:
                return finished

    async def _kept(self, move: Send) -> tuple[SentCall, Request, Reply, float] | None:
        """The reply to a call that was under way when its process ended, where the provider has kept it: it is paid
        for. None where there is no such call, or nothing to be had; it is sent again then."""
        last = self.calls[-1] if self.calls else None
        if last is None or last.done is not None or last.response_id is None or not self._here.made(last):
            return None
        sent, timer = last.sent, _Timer(self.clock)
        timer.start()
        request = replace(self._request(move)[0], thread=sent.previous, call=len(self.calls))
        kept = Kept(self.provider, last.response_id)
        try:
            reply = await respond(
                kept,
                request,
                self._listener(sent, timer),
                deadline=self.policy.deadline,
                clock=self.clock,
            )
        except ProviderFailure as failure:  # whatever it is, the same call meets it again, and says it
            if request.background and failure.kind in RETRYABLE:  # it may still be made
                await kept.forget(request)
            return None
        self._event("call.adopted", seq=sent.seq, response_id=reply.id)
        await self.recorder.told(Event("call.adopted", data={"seq": sent.seq, "response_id": reply.id}))
        return sent, request, reply, timer.seconds()

    async def _call(self, move: Send) -> Finished | None:
        move = replace(move, items=with_form(self._form, self._said(move), move.items))
        request, rung, sent = await aside(self._size(move), self._prepared, move)
        excess = await self._over_window(request, sent)
        if excess is not None and rung != "compact" and self._can_be_short(move):
            move = replace(move, compact=True)
            request, rung, sent = await aside(self._size(move), self._prepared, move)
            excess = await self._over_window(request, sent)
        if excess is not None:
            await self._elsewhere(excess, None)
            return None
        timer = _Timer(self.clock)

        async def begin() -> None:
            await self.recorder.sent(replace(sent, waited=untold()))
            self.calls.append(CallRow(sent, None))
            self._event("call.sent", seq=sent.seq, source=sent.source, rung=rung, estimate_tokens=sent.estimate_tokens)
            timer.start()

        async def again() -> None:
            await self.recorder.again(sent)
            self._lost = bool(sent.reserve_usd)

        self._lost = False
        kept = Kept(self.provider, again=again) if request.background else None
        try:
            reply = await respond(
                kept or self.provider,
                request,
                self._listener(sent, timer),
                deadline=self.policy.deadline,
                clock=self.clock,
                patience=PATIENCE if self.fallbacks else math.inf,
                admission=self._admission(sent, request),
                begin=begin,
                again=again if kept is None else nothing,  # to listen again costs nothing
            )
        except asyncio.CancelledError:
            if timer.started is not None:
                said = "".join(timer.heard)
                await self.recorder.cut(sent.id, Cut(said, Usage(sent.estimate_tokens, output_tokens=estimate(said))))
            if kept is not None and ran_out():  # stopped by a person, the answer is fetched when the run goes on
                await kept.forget(request)
            raise
        except BudgetExceeded as exceeded:
            if timer.started is None:  # it has not come to be sent; later, a further try may not be
                raise
            lost = DoneCall(sent.id, None, "failed", "error", reason=exceeded.code, seconds=timer.seconds())
            raise ChainStopped(exceeded, lost) from exceeded
        except ProviderFailure as failure:
            if timer.started is None:  # it has not come to be sent
                await self._elsewhere(failure, None)
                return None
            if kept is not None:
                await kept.forget(request)
            billed = may_be_billed(failure) or (kept is not None and kept.begun)
            await self._failed(sent, failure, timer.seconds(), billed)
            return None
        return await self._weigh(sent, request, reply, timer.seconds())

    async def _over_window(self, request: Request, sent: SentCall) -> ProviderFailure | None:
        window = self.prices.window(sent.provider, sent.model)
        known, recorded = self.endpoints.calibration, self.recorder.counted
        return await over_window(self.provider, request, sent.estimate_tokens, window, known, recorded)

    def _can_be_short(self, move: Send) -> bool:
        """Whether there are results of tools to cut that the model has been told before."""
        said = self._said(move)
        return shortened(said) != said

    def _size(self, move: Send) -> int:
        """About how much text this call brings or holds."""
        opening = sum(len(part) for block in self.thread.prompt.blocks for part in block.parts)
        return opening + sum(len(item.text) for item in move.items if isinstance(item, TextItem))

    def _prepared(self, move: Send) -> tuple[Request, Rung, SentCall]:
        """The request, and what is written down of it. Raises ChainStopped."""
        request, rung = self._request(move)
        return request, rung, self._sent(move, request, rung)

    def _admission(self, sent: SentCall, request: Request) -> Admission:
        weight = sent.estimate_tokens + request.max_output_tokens
        return self.endpoints.limits.admission(self.provider.traits, request.model, weight, request.timeout)

    def _held(self) -> tuple[CallRow, ...]:
        return (*self.before, *self.calls)

    def _said(self, move: Send) -> tuple[Item, ...]:
        """What stands ahead of a call's own items."""
        return () if move.source == "REBUILD" else said_to(self._here, self._held())

    def _request(self, move: Send) -> tuple[Request, Rung]:
        before = self._said(move)
        last = None if move.source == "REBUILD" else head(self._held())
        parent = last.done.response_id or "" if last is not None and last.done is not None else self.thread.id
        chained = (
            bool(move.items)  # a paused reply is gone on from with nothing new, which only a whole request can say
            and not move.replay
            and not move.compact
            and last is not None
            and self._here.made(last)
            and self.endpoints.mode(self.provider, self.policy.model) != "replay"
        )
        short = not chained and (move.compact or was_compacted(self._held()))
        before = shortened(before) if short else before
        policy = self.policy
        request = Request(
            model=policy.model,
            thread=parent if chained else self.thread.id,
            system=self.thread.prompt.system,
            items=move.items if chained else (*before, *move.items),
            tools=tuple(tool.spec for tool in policy.tools),
            hosted=policy.hosted,
            output=policy.output,
            max_output_tokens=policy.max_output_tokens * move.cap_factor,
            effort=policy.effort,
            timeout=policy.call_timeout,
            cache_key=policy.cache_key,
            step=policy.step,
            item=policy.item,
            background=policy.background,
            edits=policy.edits,
            call=len(self.calls) + 1,
            thread_name=self.thread.name if policy.visit == 1 else f"visit-{policy.visit}",
        )
        # One that begins with the thread's own prompt begins it, however the step came to that.
        begins = move.source != "REBUILD" or move.items == (prompt_item(self.thread.prompt),)
        fresh = is_synthetic(parent) and begins
        return request, "compact" if short else "chain" if chained or fresh else "replay"

    def _sent(self, move: Send, request: Request, rung: Rung) -> SentCall:
        said = self._said(move)
        whole = (*(shortened(said) if rung == "compact" else said), *move.items)
        tokens = self._estimate(whole if request.edits is None else since_compaction(whole))
        traits = self.provider.traits
        wire = self.provider.wire(request)
        price = self.prices.price(traits.name, request.model)
        return SentCall(
            id=uuid7(),
            thread_id=self.thread.id,
            seq=len(self.calls) + self.skipped + 1,
            source=move.source,
            previous=request.thread,
            rung=rung,
            request_hash=sha256(b"\n".join([traits.name.encode(), traits.base_url.encode(), wire])),
            items=move.items,
            provider=traits.name,
            model=request.model,
            estimate_tokens=tokens,
            reserve_usd=self._reserve(price, tokens, request.max_output_tokens),
            ask=self.ask,
            price=price,
            caps=self.policy.caps,
        )

    def _estimate(self, items: tuple[Item, ...]) -> int:
        """Tokens of the whole effective context, however little of it travels: that is what is billed."""
        tools = "".join(json.dumps(dict(tool.spec.parameters)) + tool.spec.description for tool in self.policy.tools)
        texts = (self.thread.prompt.system, tools, self._schema(), *map(item_text, items))
        return sum(estimate(text) for text in texts if text) + file_tokens(items)

    def _schema(self) -> str:
        return json.dumps(dict(self.policy.output.schema)) if self.policy.output else ""

    def _reserve(self, price: Price | None, tokens: int, max_output: int) -> Decimal | None:
        """The most the call may cost. Raises ChainStopped where that is not known, or is more than one call may."""
        name, cap = f"{self.provider.traits.name}:{self.policy.model}", self.policy.caps.call
        searches = sum(tool.max_uses for tool in self.policy.hosted)
        worst = price.worst(tokens + searches * LOOK_TOKENS, max_output, searches) if price is not None else None
        if worst is None and self.policy.capped and self.policy.unpriced == "refuse":
            what = "the price of its searches at" if price is not None else "the price of"
            raise _over(
                f"{what} {name} is not known, so the cap cannot be kept; nothing was sent",
                f'give its price under [prices."{self.policy.model}"] in the project file, '
                "or set budget.unpriced: allow",
            )
        if worst is not None and cap is not None and worst > cap:
            raise _over(
                f"the call could cost up to ${worst:f}, and the cap for one call is ${cap:f}; nothing was sent",
                "read less, lower max_output_tokens, use a cheaper model, or raise per_call of the budget",
            )
        return worst

    def _listener(self, sent: SentCall, timer: _Timer) -> Callable[[StreamEvent], None]:
        self._first_text = None

        def listen(event: StreamEvent) -> None:
            if event.kind == "created":
                self.recorder.created(sent.id, event.data)
            elif event.kind == "retry":
                self._first_text = None
                timer.heard.clear()
                self._event("call.retry", why=event.data, wait=event.wait)
            elif event.kind == "wait":
                self._event("call.waiting", why=event.data, wait=round(event.wait, 1))
            else:
                if self._first_text is None:
                    self._first_text = timer.seconds()
                timer.heard.append(event.data)
                self._event("call.text", delta=event.data)

        return listen

    # --- what came back

    async def _failed(self, sent: SentCall, failure: ProviderFailure, seconds: float, billed: bool) -> None:
        """A lost or unknown chain is rebuilt once; everything else ends the thread. `billed`: it may have been."""
        usage = None if billed else Usage()
        done = DoneCall(
            sent.id, None, "failed", "error", reason=failure.kind, usage=usage, seconds=seconds,
            cost_usd=Decimal(0) if usage else None, lost=self._lost, first_text_seconds=self._first_text,
        )  # fmt: skip
        if failure.kind == "too_long" and sent.rung != "compact" and self._can_be_short(Send(sent.source, sent.items)):
            await self._rebuild(done)
            return
        if failure.kind not in REPLAY_REASONS or sent.rung != "chain" or is_synthetic(sent.previous):
            await self._elsewhere(failure, done)
            return
        if failure.kind == "chain_unsupported":
            self.endpoints.learn(self.provider, self.policy.model, "replay")
        else:
            self.endpoints.lost(self.provider, self.policy.model)
        await self._rebuild(done)

    async def _weigh(self, sent: SentCall, request: Request, reply: Reply, seconds: float) -> Finished | None:
        usage = reply.usage
        if reply.edited:
            said = {"seq": sent.seq, "what": list(reply.edited)}
            self._event("context.edited", **said)
            await self.recorder.told(Event("context.edited", data=said))
        elif usage is not None:
            self.endpoints.calibration.learn(sent.provider, sent.model, sent.estimate_tokens, usage.input_tokens)
            await self._account(sent, usage)
        cost = sent.price.cost(usage) if usage and sent.price else None
        if cost is not None and cost > MOST_USD:
            usage = cost = None
        done = DoneCall(
            call_id=sent.id,
            response_id=reply.id,
            status="done",
            outcome="accepted",
            items=reply.items,
            usage=usage,
            cost_usd=cost,
            lost=self._lost,
            tries=reply.tries,
            seconds=seconds,
            first_text_seconds=self._first_text,
        )
        if not is_synthetic(request.thread):
            ignored = self._echo_fault(request, reply)
            if ignored:
                self.endpoints.learn(self.provider, self.policy.model, "replay")
                await self._rebuild(replace(done, outcome="discarded", reason=ignored))
                return None
            self.endpoints.learn(self.provider, self.policy.model, "server")
        if reply.status == "incomplete":
            await self._cut_off(done, request, reply)
            return None
        if reply.tool_calls or reply.status == "paused":  # paused: tools of the vendor's, nothing for us to answer
            await self._record(replace(done, outcome="tools", tool_calls=reply.tool_calls))
            return None
        return await self._judge(done, reply)

    async def _account(self, sent: SentCall, usage: Usage) -> None:
        """Say so where the provider counts more input than can have been sent (R023). The run goes on."""
        most = None if self.policy.hosted else most_input(self._held(), self._here.made, self._schema())
        if most is None or usage.input_tokens <= most.tokens:
            return
        told = {
            "seq": sent.seq,
            "model": f"{sent.provider}:{sent.model}",
            "input_tokens": usage.input_tokens,
            "most_tokens": most.tokens,
            "grew": most.grew,
        }
        self._event(UNEXPLAINED, **told)
        await self.recorder.told(Event(UNEXPLAINED, data={**told, "call": sent.id}))

    def _echo_fault(self, request: Request, reply: Reply) -> str:
        """Why this reply cannot have seen the chain (S12); empty if it has."""
        if reply.previous != request.thread:
            return "the server ignored previous_response_id"
        if reply.id == request.thread:
            return "the server answered under the id of the response before"
        # A provider that may sum the thread up counts fewer then: the echo alone has to do.
        before = last_input_tokens(self._held()[:-1]) if request.edits is None else 0
        if reply.usage is not None and before and reply.usage.input_tokens < before:
            return "the server counted fewer input tokens than the chain holds"
        return ""

    async def _cut_off(self, done: DoneCall, request: Request, reply: Reply) -> None:
        """One redo from the parent with a higher cap; a cut-off reply is never chained on and never repaired."""
        reason = reply.incomplete_reason or "unknown reason"
        done = replace(done, outcome="cut_off", reason=reason)
        if reason == WINDOW_FULL:
            failure = ProviderFailure(
                f"{request.model}: the context and the reply together are over the model's window",
                hint="read fewer artifacts or fields, or use another model",
                kind="too_long",
            )
            await self._elsewhere(failure, done)
            return
        if reason != "max_output_tokens" or any(map(is_cut_off, turn(self.calls))):
            raise ChainStopped(
                StepFailed(
                    f"the reply was cut off ({reason}) at a cap of {request.max_output_tokens} output tokens",
                    hint="raise max_output_tokens on the step or its model, or ask for less",
                    code="cut_off",
                ),
                done,
            )
        self._event("step.note", text=f"cut off at {request.max_output_tokens} tokens: asked again with more room")
        await self._record(done)

    async def _judge(self, done: DoneCall, reply: Reply) -> Finished | None:
        calls = question(self.calls)
        used = count_reasks(calls)
        try:
            verdict = await self.check(reply, calls)
        except OrchError as broken:  # the check's own fault: the reply was paid for all the same
            raise ChainStopped(broken, replace(done, outcome="rejected", reason=broken.message)) from broken
        for note in verdict.notes:
            self._event("step.note", text=note)
        if not verdict.faults:
            self._done_event(done)
            return Finished(verdict, done, tuple(self.calls))
        refused = any(f.kind == "refusal" for f in verdict.faults)
        if refused and self.fallbacks:
            await self._switch(
                f"it refused: {verdict.faults[0].message}", replace(done, outcome="discarded", reason="refused")
            )
            return None
        if refused or used >= self.policy.reasks:
            error = _rejected(verdict.faults, used, refused)
            raise ChainStopped(error, replace(done, outcome="rejected", reason=error.message))
        self._event("step.reask", reasons=[f.message for f in verdict.faults], number=used + 1)
        reason = "; ".join(f"{f.kind}: {f.message}" for f in verdict.faults)
        await self._record(replace(done, outcome="reask", follow=(TextItem((verdict.feedback,)),), reason=reason))
        return None

    # --- another model

    @property
    def _here(self) -> Candidate:
        """The model that is asked now."""
        policy = self.policy
        return Candidate(
            self.provider,
            policy.model,
            policy.effort,
            policy.max_output_tokens,
            policy.output,
            self._form,
            policy.background,
            policy.edits,
        )

    def _move_to(self, candidate: Candidate, left: tuple[Candidate, ...]) -> None:
        self.provider, self._form, self.fallbacks = candidate.provider, candidate.form, left
        self.policy = replace(
            self.policy,
            model=candidate.model,
            effort=candidate.effort,
            max_output_tokens=candidate.max_output_tokens,
            output=candidate.output,
            background=candidate.background,
            edits=candidate.edits,
        )

    async def _elsewhere(self, failure: ProviderFailure, done: DoneCall | None) -> None:
        """This model does not answer: ask the next. Raises ChainStopped where that cannot help, or there is none."""
        if failure.kind not in FALLS_BACK or not self.fallbacks:
            raise ChainStopped(last_word(failure, self._tried, self.barred), done) from failure
        await self._switch(failure.message, done)

    async def _switch(self, reason: str, done: DoneCall | None) -> None:
        """Go on at the next model, and say so; `done` ends the call that led to it, if one was sent."""
        was = self._here.name
        self._tried.append(f"{was} ({reason})")
        self._move_to(self.fallbacks[0], self.fallbacks[1:])
        told = {"was": was, "now": self._here.name, "reason": reason}
        self._event("model.switched", **told)
        event = Event("model.switched", data=told)
        await (self._record(done, event) if done is not None else self.recorder.told(event))

    async def _rebuild(self, done: DoneCall) -> None:
        """The chain does not hold: the next call brings everything along, and the trace says why."""
        self._event("step.rebuilt", reason=done.reason)
        seq = self.calls[-1].sent.seq
        await self._record(done, Event("chain_rebuilt", data={"reason": done.reason, "seq": seq}))

    async def _record(self, done: DoneCall, *events: Event) -> None:
        await self.recorder.done(done, events)
        self.calls[-1] = replace(self.calls[-1], done=done)
        self._done_event(done)

    def _done_event(self, done: DoneCall) -> None:
        usage = done.usage or Usage()
        self._event(
            "call.done",
            seq=self.calls[-1].sent.seq,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=None if done.cost_usd is None else str(done.cost_usd),
            seconds=round(done.seconds, 3),
            first_text_seconds=None if done.first_text_seconds is None else round(done.first_text_seconds, 3),
            outcome=done.outcome,
        )

    # --- tools

    async def _answer_tools(self, call: CallRow) -> tuple[ToolOutput, ...]:
        rounds = sum(1 for c in question(self.calls) if c.done and c.done.outcome == "tools")
        if rounds > MAX_TOOL_ROUNDS:
            raise ChainStopped(StepFailed(f"the model asked for tools {rounds} times without answering"), None)
        policy = self.policy
        answering = Answering(
            policy.step,
            policy.tools,
            policy.call_timeout,
            self.recorder,
            self.tool_rows,
            self.clock,
            self._event,
            self.done_before,
        )
        return await answering.answer(call)

    def _event(self, kind: str, **data: Any) -> None:
        thread = {} if self.thread.name == "main" else {"thread": self.thread.name}
        self.emit(Event(kind, self.policy.step, self.policy.item, {**data, **thread}))


def _rejected(faults: Sequence[Fault], reasks: int, refused: bool) -> StepFailed:
    if refused:
        return StepFailed(
            f"the model refused: {faults[0].message}", code="refused", hint="change the task or the model"
        )
    hint = "see the replies with `orch why`; mend the template, the contract or the check, then `orch resume`"
    if any(fault.kind == "too_large" for fault in faults):
        hint = "ask for less in the template, or raise max_tokens of the contract; then `orch resume`"
    what = "; ".join(fault.message for fault in faults[:3])
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return StepFailed(
        f"the output is still not valid after {reasks} re-ask{'' if reasks == 1 else 's'}: {what}{more}",
        hint=hint,
        code="invalid_output",
    )


def _over(message: str, hint: str) -> ChainStopped:
    return ChainStopped(BudgetExceeded(message, hint=hint), None)


__all__ = [
    "Chain",
    "ChainStopped",
    "Endpoints",
    "Finished",
    "OutputItem",
    "Policy",
    "Recorder",
    "Verdict",
]
