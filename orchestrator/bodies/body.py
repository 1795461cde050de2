"""A step's Python body at work: its questions asked, its answers recalled, its effects done once.

The body is a function that may begin again from its first line at any time. What it has asked is in the attempt's
journal (`recalling`), so a question it asks again is answered from there without paying; one that was in flight is sent
again. Each question is put and checked exactly as a declarative step's (`asking`, `chain`); only the task and the form
of the answer differ from one to the next.

Some ends are not the body's to handle: the attempt was taken over, the cap is reached, a tool is in doubt, the database
fails. Whatever the body makes of such an error, the step ends with it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from orchestrator.answering import ToolInDoubt, ToolWaits
from orchestrator.bodies.asking import (
    StoreRecorder,
    Walk,
    answered,
    checker,
    compose_off_loop,
    off_loop,
    policy_of,
    recorded_thread,
)
from orchestrator.bodies.ctx import Ctx
from orchestrator.bodies.following import context_for
from orchestrator.bodies.quoting import guards_of, inherited
from orchestrator.bodies.recalling import Recalled, Recollection, further_key, opening_key
from orchestrator.bodies.switching import fallbacks_of
from orchestrator.chain import Chain
from orchestrator.context.guards import check_access, highest
from orchestrator.context.render import given_block
from orchestrator.contracts import Contract, class_contract
from orchestrator.errors import BudgetExceeded, OrchError, Place, StepFailed, StoreError
from orchestrator.graph import StepNode, Template
from orchestrator.ids import canonical_json, sha256, synthetic_thread_id, variable
from orchestrator.moves import prompt_item, transcript
from orchestrator.project import OutsideProject
from orchestrator.python.declarations import mark_of
from orchestrator.repeating import feedback
from orchestrator.spec import Sensitivity
from orchestrator.store.records import Fenced, Journal
from orchestrator.thread import Question, follow_up
from orchestrator.tools_done import DoneBefore
from orchestrator.values import (
    Block,
    CallRow,
    CallSource,
    Context,
    Item,
    Manifest,
    Snapshot,
    ThreadRecord,
)
from orchestrator.workers import aside, run_blocking

FATAL: Final = (Fenced, ToolWaits, BudgetExceeded, StoreError)
MAX_KEY: Final = 200


@dataclass
class BodyThread:
    """One thread of a body. Nothing of it exists until the first question is asked. `place` counts those without a
    name, in the order in which the body made them."""

    body: Body
    given_name: str | None
    place: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    record: ThreadRecord | None = None
    recalled: Recalled | None = None
    recorder: StoreRecorder | None = None
    context: Context | None = None
    calls: list[CallRow] = field(default_factory=list)
    skipped: int = 0

    @property
    def name(self) -> str | None:
        return self.given_name

    async def ask(self, output: type[Any], prompt: str | None, template: str | None, quotes: Mapping[str, Any]) -> Any:
        async with self.lock, self.body.asking():
            return await self.body.ask(self, output, prompt, template, quotes)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question on its way."""

    walk: Walk
    key: str
    opening: tuple[Item, ...]
    source: CallSource


class Body:
    """One attempt of one Python body; what stands behind its `Ctx`."""

    def __init__(
        self,
        walk: Walk,
        snapshot: Snapshot,
        now: Manifest,
        values: Mapping[str, Any],
        journal: Journal | None,
        failed: Sequence[Journal] = (),
    ) -> None:
        """`values` are what the function is given of its reads."""
        assert walk.step.model is not None
        self.walk = walk
        self.snapshot = snapshot
        self.now = now
        self.past = Recollection.of(journal, failed)
        self.provider = walk.services.providers.get(walk.step.model.provider)
        own = journal.tools if journal else ()
        self.tool_rows = {(row.call_id, row.tool_call.call_id): row for row in own}
        self.done_before = DoneBefore([earlier.tools for earlier in failed], own, self.past.calls)
        self._tools = [row for earlier in failed for row in earlier.tools] + list(own)
        self.threads: list[BodyThread] = []
        self.sensitivities: list[Sensitivity] = []
        self._values = values
        self._contracts: dict[type[Any], Contract] = {}
        self._effects: dict[str, asyncio.Future[Any]] = {}
        self._active: Counter[asyncio.Task[Any]] = Counter()
        self._halt: BaseException | None = None
        self._deadline = walk.services.clock.monotonic() + walk.seconds_left

    @property
    def step(self) -> str:
        return self.walk.step.name

    @property
    def run(self) -> int:
        return self.walk.run.number

    @property
    def comment(self) -> str | None:
        redo = self.snapshot.redo
        return redo.comment.text if redo is not None and redo.comment is not None else None

    @property
    def feedback(self) -> str | None:
        redo, step = self.snapshot.redo, self.walk.step
        if redo is None or redo.draft is None or redo.mode != "repeat" or step.repeat is None:
            return None
        return feedback(step, step.contract.load(redo.draft.body), self.snapshot)

    @property
    def draft(self) -> Any:
        redo = self.snapshot.redo
        return self.walk.step.contract.instance(redo.draft.body) if redo is not None and redo.draft else None

    async def call(self) -> Any:
        """What the body returns. Questions that it left under way are stopped with it."""
        function = self.walk.step.function
        assert function is not None
        assert function.ctx is not None
        try:
            value = await function.call(**{function.ctx: Ctx(self)}, **self._values)
        except (OrchError, Fenced):
            self._raise_halt()
            raise
        except (Exception, SystemExit) as error:
            self._raise_halt()
            raise StepFailed(
                f"{function.ref} raised {type(error).__name__}: {error}",
                hint=f"mend {function.file}; `orch resume` runs the step again. With the same code and inputs it keeps"
                f" the answers it has; orch rerun {self.run} --from {self.step} asks anew",
                code="function_raised",
            ) from error
        finally:
            await self._stop_rest()
        self._raise_halt()
        return _awaited(function.ref, value)

    def _raise_halt(self) -> None:
        if self._halt is not None:
            raise self._halt

    async def _stop_rest(self) -> None:
        rest = [task for task, count in self._active.items() if count and task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    # --- asking

    def open(self, name: str | None) -> BodyThread:
        place = 1 + sum(thread.given_name is None for thread in self.threads)
        thread = BodyThread(self, name, place)
        self.threads.append(thread)
        return thread

    def asking(self) -> _Asking:
        """Around each question: who is asking, and whether anybody still may."""
        return _Asking(self)

    async def ask(
        self, thread: BodyThread, output: type[Any], prompt: str | None, template: str | None, given: Mapping[str, Any]
    ) -> Any:
        contract = self._contract(output)
        question = self._question(prompt, template, given)
        node = self._node(contract, template)
        asked = await self._asked(thread, node, question)
        body = await self._answer(thread, asked)
        value = await aside(len(body), contract.instance, body)
        return output(value) if issubclass(output, str) else value

    def _contract(self, output: Any) -> Contract:
        step = self.walk.step
        mark = mark_of(output)
        if output is step.contract.model or (mark is not None and mark.name == step.contract.name):
            return step.contract
        if output not in self._contracts:
            try:
                if not (isinstance(output, type) and issubclass(output, BaseModel | str)):
                    raise ValueError("it is neither a pydantic model nor str")
                self._contracts[output] = class_contract(output, step.place)
            except ValueError as error:
                name = getattr(output, "__name__", output)
                raise StepFailed(
                    f"{step.name} asks for {name}, which no model can be asked for: {error}",
                    hint="ask for a pydantic model of plain fields, an artifact type, or str",
                    code="unsendable",
                    place=step.place,
                ) from error
        return self._contracts[output]

    def _question(self, prompt: str | None, template: str | None, given: Mapping[str, Any]) -> Question:
        if (prompt is None) == (template is None):
            raise StepFailed(
                f"{self.step} asks with {'both a text and a template' if prompt else 'neither a text nor a template'}",
                hint='write ask(Type, "…") or ask(Type, template="task.md.j2")',
                code="no_task",
                place=self.walk.step.place,
            )
        return Question(prompt, {name: self._given(name, value) for name, value in given.items()})

    def _given(self, name: str, value: Any) -> Block:
        """A value of the body's as a labelled block: a read keeps its label and guards, an artifact type its own, and
        what was taken out of a read keeps its guards."""
        for read in self.walk.step.reads:
            if value is not None and self._values.get(variable(read.called)) is value:
                return given_block(name, _text(name, value), read.contract, guards_of(read))
        mark = mark_of(type(value))
        contract = class_contract(type(value), self.walk.step.place) if mark is not None else None
        guards = inherited(value, self.walk.step.reads, self._values) if contract is None else contract.not_for
        return given_block(name, _text(name, value), contract, guards)

    def _node(self, contract: Contract, template: str | None) -> StepNode:
        """The step as this one question has it. Its checks are about its own contract."""
        step = self.walk.step
        checks = step.checks if contract is step.contract else ()
        chosen = self._template(template) if template is not None else None
        return replace(step, contract=contract, checks=checks, template=chosen, templates={})

    def _template(self, ref: str) -> Template:
        step = self.walk.step
        if ref in step.templates:
            return step.templates[ref]
        project = self.walk.services.project
        function = step.function
        assert function is not None
        try:
            path = project.resolve(ref, project.root / function.file, "templates")
            text = path.read_text(encoding="utf-8") if path is not None else None
        except (OutsideProject, OSError, UnicodeDecodeError):
            path = text = None
        if path is None or text is None:
            raise StepFailed(
                f"{step.name} asks with the template {ref}, which is not in the project or cannot be read",
                hint="put it on the shelf templates/, as UTF-8 text",
                code="no_template",
                place=step.place,
            )
        return Template(ref, text, sha256(text), Place(project.display(path), 1))

    async def _asked(self, thread: BodyThread, node: StepNode, question: Question) -> _Asked:
        walk = replace(self.walk, step=node)
        check_access(node.name, question.given.values(), self.provider.traits.may_see, self.provider.traits.name)
        if thread.record is None:
            return await self._first(thread, walk, question)
        assert thread.context is not None
        self.sensitivities += [block.sensitivity for block in question.given.values()]
        item = await off_loop(node, follow_up, node, thread.context, question)
        return _Asked(walk, further_key(item, node.contract), (item,), "FOLLOW_UP")

    async def _first(self, thread: BodyThread, walk: Walk, question: Question) -> _Asked:
        """The thread with its first question: as recorded, if it was asked before, else new."""
        step, traits = walk.step, self.provider.traits
        assert step.model is not None
        context = await context_for(walk, self.provider, self.snapshot)
        composed = await compose_off_loop(step, context, self.snapshot, question)
        prompt = replace(composed, manifest=self.now)
        key = opening_key(prompt, step.contract)
        self.sensitivities += [context.sensitivity, *(block.sensitivity for block in question.given.values())]
        thread.context = context
        thread.recalled = self.past.find(thread.given_name, key)
        if thread.recalled is not None:
            thread.record = recorded_thread(thread.recalled.journal)
        else:
            settings = step.model.settings
            thread.record = ThreadRecord(
                id=synthetic_thread_id(walk.run.session_id),
                name=thread.given_name or self.past.number(thread.place),
                provider=traits.name,
                model=step.model.model,
                base_url=traits.base_url,
                prompt=prompt,
                settings={**settings, "named": True} if thread.given_name is not None else settings,
                left_out=context.left_out,
            )
        fresh = thread.record if thread.recalled is None else None
        thread.recorder = StoreRecorder(walk.services.store, walk.dispatch, None, fresh)
        return _Asked(walk, key, (prompt_item(thread.record.prompt),), "NEXT_STEP")

    async def _answer(self, thread: BodyThread, asked: _Asked) -> bytes:
        """The accepted answer's canonical bytes: out of the record, or asked for now."""
        if thread.recalled is not None and thread.recalled.left:
            taken = thread.recalled.take(asked.key)
            if taken is None:
                # The body asks something else than before: what was recorded from here on does not count any more.
                asked = replace(asked, opening=(*transcript(thread.calls), *asked.opening), source="REBUILD")
                self._drop(thread, thread.recalled)
            else:
                thread.calls += taken
                done = taken[-1].done
                if done is not None and done.outcome == "rejected":
                    raise StepFailed(done.reason, code="invalid_output")
                if done is not None and done.answer is not None:
                    self.walk.emit("ask.recalled", seq=taken[-1].sent.seq, **_named(thread))
                    return done.answer
        if thread.recalled is not None and not thread.recalled.own:
            asked = self._continued(thread, thread.recalled, asked)
        return await self._ask_now(thread, asked)

    def _drop(self, thread: BodyThread, recalled: Recalled) -> None:
        """Go on without what is left on record of a thread. What tools did for it is done all the same."""
        dropped = recalled.drop()
        thread.skipped += sum(call.sent.thread_id == recalled.journal.id for call in dropped)
        ids = {call.sent.id for call in dropped}
        self.done_before.give_back(row for row in self._tools if row.call_id in ids)

    def _continued(self, thread: BodyThread, recalled: Recalled, asked: _Asked) -> _Asked:
        """A thread of an attempt that failed, gone on with: a thread of this attempt, with a record of its own."""
        assert thread.record is not None
        own = replace(
            thread.record,
            id=synthetic_thread_id(self.walk.run.session_id),
            prompt=replace(thread.record.prompt, blocks=()),  # it stands on the thread that this one goes on from
            continues=recalled.journal.id,
        )
        thread.record, thread.recalled, thread.skipped = own, None, 0
        thread.recorder = StoreRecorder(self.walk.services.store, self.walk.dispatch, None, own)
        if recalled.whole or asked.source == "REBUILD":
            return asked
        return replace(asked, opening=(*transcript(thread.calls), *asked.opening), source="REBUILD")

    async def _ask_now(self, thread: BodyThread, asked: _Asked) -> bytes:
        assert thread.record is not None
        assert thread.recorder is not None
        assert thread.context is not None
        services = asked.walk.services
        fallbacks, barred = fallbacks_of(asked.walk, highest(self.sensitivities), thread.context)
        elsewhere = sum(call.sent.thread_id != thread.record.id for call in thread.calls)
        chain = Chain(
            provider=self.provider,
            thread=thread.record,
            policy=replace(policy_of(asked.walk), deadline=self._deadline),
            check=await checker(asked.walk, thread.context, self.snapshot),
            recorder=thread.recorder,
            prices=services.prices,
            endpoints=services.endpoints,
            clock=services.clock,
            emit=services.listener,
            calls=thread.calls,
            tool_rows=self.tool_rows,
            done_before=self.done_before,
            source=asked.source,
            opening=asked.opening,
            ask=asked.key,
            skipped=thread.skipped - elsewhere,
            fallbacks=fallbacks,
            barred=barred,
        )
        return await answered(chain, thread.recorder)

    # --- effects

    async def once(self, key: str, effect: Callable[[], Any], idempotent: bool) -> Any:
        """The effect's result; two at once with one key are one."""
        async with self.asking():
            if key in self._effects:
                return json.loads(await asyncio.shield(self._effects[key]))
            future = self._effects[key] = asyncio.get_running_loop().create_future()
            try:
                body = await self._once(key, effect, idempotent)
            except BaseException as error:
                del self._effects[key]
                future.set_exception(error if isinstance(error, Exception) else StepFailed(f"{key} was stopped"))
                future.exception()  # seen: whoever waits for it gets it too
                raise
            future.set_result(body)
            return json.loads(body)

    async def _once(self, key: str, effect: Callable[[], Any], idempotent: bool) -> bytes:
        if not key.strip() or len(key) > MAX_KEY or "=" in key or not key.isprintable():
            raise StepFailed(
                f"{self.step}: {key[:40]!r} cannot be the key of an effect",
                hint=f"a key is one line of at most {MAX_KEY} characters, without =",
                code="effect_key",
            )
        row = self.past.effects.get(key)
        if row is not None and row.value is not None:
            return row.value
        if row is not None and not idempotent and row.decision != "retry":
            raise ToolInDoubt(
                f"the effect {key} of {self.step} was interrupted; whether it happened is not known",
                hint=f"look, then say: orch resume --tool once:{key}=retry | =done:JSON",
            )
        store, dispatch = self.walk.services.store, self.walk.dispatch
        await store.effect_started(dispatch, key)
        result = await effect() if inspect.iscoroutinefunction(effect) else await run_blocking(effect)
        result = await result if inspect.isawaitable(result) else result
        try:
            body = canonical_json(result, indent=None)
        except ValueError as error:
            raise StepFailed(
                f"{self.step}: the effect {key} gave what cannot be kept: {error}",
                hint="let it return JSON data: text, numbers, lists, dicts, None",
                code="effect_result",
            ) from error
        await store.effect_finished(dispatch, key, body)
        return body


@dataclass
class _Asking:
    """A question or effect under way: refused once the step has come to an end, remembered until it is over."""

    body: Body

    async def __aenter__(self) -> None:
        self.body._raise_halt()
        task = asyncio.current_task()
        assert task is not None
        self.body._active[task] += 1

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.body._active[task] -= 1
        if isinstance(error, FATAL) and self.body._halt is None:
            self.body._halt = error


def _awaited(ref: str, value: Any) -> Any:
    """What a body returned; a coroutine is an `await` that was forgotten, and would otherwise be no JSON data."""
    if not inspect.iscoroutine(value):
        return value
    value.close()
    raise StepFailed(
        f"{ref} returned a coroutine, not what comes of it",
        hint="write `return await ctx.ask(…)`",
        code="invalid_output",
    )


def calls_of(threads: Sequence[BodyThread]) -> list[CallRow]:
    """All calls of a body's threads that count."""
    return [call for thread in threads for call in thread.calls]


def _named(thread: BodyThread) -> dict[str, str]:
    return {"thread": thread.record.name} if thread.record is not None else {}


def _text(name: str, value: Any) -> str:
    """A given value as text: text as it is, models and JSON data as JSON."""
    if isinstance(value, str):
        return value
    data = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
    try:
        return canonical_json(data).decode()
    except ValueError as error:
        raise StepFailed(
            f"the value {name} that is given to ask is no text, model or JSON data: {error}", code="no_quote"
        ) from error
