"""Summing up what a step reads and its contract does not let be sent whole (`overflow: summarise`).

It is done by the attempt that needs it, before the step's own thread begins: on a thread for each, with the calls, the
caps, the re-asks and the record that any thread has. A summary of the same value that the run, or one it was made from,
has already is taken from the record (S14): it is paid for once, however many steps and items read the value.

What does not fit the model's window is summed up in parts, and these together once more if they are still too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.bodies.asking import (
    Begin,
    StoreRecorder,
    Walk,
    answered,
    compose_off_loop,
    policy_of,
    recorded_thread,
    weight,
)
from orchestrator.bodies.switching import fallbacks_of
from orchestrator.chain import Chain, Verdict
from orchestrator.context.guards import check_access
from orchestrator.context.render import artifact_block
from orchestrator.context.select import Chosen
from orchestrator.context.summaries import (
    LEAST_PART,
    THREADS,
    figure_faults,
    may_summarise,
    parts,
    room,
    source_room,
    summary_contract,
    task,
    to_summarise,
)
from orchestrator.errors import OrchError
from orchestrator.graph import StepNode
from orchestrator.ids import digest, synthetic_thread_id
from orchestrator.output import feedback, judge
from orchestrator.providers.tokens import estimate
from orchestrator.store.records import Journal, ThreadJournal
from orchestrator.thread import Question
from orchestrator.values import CallRow, Context, Prompt, Reply, Snapshot, ThreadRecord
from orchestrator.workers import aside


@dataclass(frozen=True, slots=True)
class Summed:
    """What a step may look at, with the summaries it needs, and the calls of its own attempt that made them."""

    snapshot: Snapshot
    calls: tuple[CallRow, ...] = ()


async def with_summaries(walk: Walk, snapshot: Snapshot, begin: Begin, journal: Journal | None) -> Summed:
    """Sum up every read that is too large and may be. Raises what a step's own question raises; the attempt is begun
    before anything is sent."""
    if not may_summarise(walk.step):
        return Summed(snapshot)
    entries = await aside(weight(snapshot), to_summarise, walk.graph, walk.step, snapshot)
    recorded = [thread for thread in journal.threads if thread.sums_up] if journal is not None else []
    summing = _Summing(walk, begin, recorded)
    made = await _together(summing.whole(entry) for entry in entries)
    texts = {entry.read.name: text for entry, text in zip(entries, made, strict=True)}
    return Summed(replace(snapshot, summaries=texts), tuple(call for calls in summing.calls for call in calls))


async def _together(works: Iterable[Coroutine[Any, Any, str]]) -> Sequence[str]:
    """All of them at once; the first that fails stops the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task_ in tasks:
            task_.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


@dataclass
class _Summing:
    """The summaries of one attempt. `recorded` are the threads for them that it has begun before."""

    walk: Walk
    begin: Begin
    recorded: Sequence[ThreadJournal]
    calls: list[list[CallRow]] = field(default_factory=list)

    async def whole(self, entry: Chosen) -> str:
        try:
            return await self._short(entry, entry.content, room(entry), THREADS + entry.read.name)
        except OrchError as error:
            error.message = f"{entry.read.name} was not summed up for {self.walk.step.name}: {error.message}"
            raise

    async def _short(self, entry: Chosen, content: str, limit: int, name: str) -> str:
        step = self.walk.step
        assert step.summariser is not None
        window = self.walk.services.prices.window(step.summariser.provider, step.summariser.model)
        fits = source_room(window, step.summariser.max_output_tokens, step.name, entry.read.name)
        pieces = (content,) if fits is None else await aside(len(content), parts, content, fits)
        if len(pieces) == 1:
            return await self._summary(entry, content, limit, name)
        each = max(LEAST_PART, limit // len(pieces))
        named = [(piece, f"{name}/part-{number}") for number, piece in enumerate(pieces, start=1)]
        made = "\n\n".join(await _together(self._summary(entry, piece, each, part) for piece, part in named))
        return made if estimate(made) <= limit else await self._short(entry, made, limit, name)

    async def _summary(self, entry: Chosen, content: str, limit: int, name: str) -> str:
        """One request's worth of text, summed up: out of the record, or asked for now."""
        services, run = self.walk.services, self.walk.run
        node = _node(self.walk.step, entry, limit)
        assert node.model is not None
        traits = services.providers.get(node.model.provider).traits
        block = artifact_block(replace(entry, content=content))
        check_access(node.name, (block,), traits.may_see, traits.name)
        window = services.prices.window(node.model.provider, node.model.model)
        context = Context((block,), (), (), block.sensitivity, window)
        prompt = await compose_off_loop(node, context, Snapshot({}), Question(task(limit)))
        prompt = replace(prompt, manifest=self.begin.claim.manifest)
        key = _key(node, traits.base_url, prompt)
        async with services.one_at_a_time(key):
            known = await services.store.answer(run.id, key)
            if known is None:
                known = await self._ask(replace(self.walk, step=node), context, prompt, name, key, content)
        return known.decode()

    async def _ask(self, walk: Walk, context: Context, prompt: Prompt, name: str, key: str, content: str) -> bytes:
        services, model = walk.services, walk.step.model
        assert model is not None
        await self.begin()
        provider = services.providers.get(model.provider)
        before = next((one for one in self.recorded if one.calls and one.calls[0].sent.ask == key), None)
        thread = (
            recorded_thread(before)
            if before is not None
            else ThreadRecord(
                id=synthetic_thread_id(walk.run.session_id),
                name=name,
                provider=provider.traits.name,
                model=model.model,
                base_url=provider.traits.base_url,
                prompt=prompt,
                settings={**model.settings, "summary": True},
            )
        )
        recorder = StoreRecorder(services.store, walk.dispatch, None, thread if before is None else None)
        fallbacks, barred = fallbacks_of(walk, context.sensitivity, context)
        chain = Chain(
            provider=provider,
            thread=thread,
            policy=policy_of(walk),
            check=_Check(walk.step, content),
            recorder=recorder,
            prices=services.prices,
            endpoints=services.endpoints,
            clock=services.clock,
            emit=services.listener,
            calls=list(before.calls) if before is not None else [],
            ask=key,
            fallbacks=fallbacks,
            barred=barred,
        )
        self.calls.append(chain.calls)
        return await answered(chain, recorder)


@dataclass(frozen=True, slots=True)
class _Check:
    """What makes a summary acceptable: text within its limit, and no figure that what it sums up does not hold."""

    step: StepNode
    content: str

    async def __call__(self, reply: Reply, calls: Sequence[CallRow]) -> Verdict:
        contract = self.step.contract
        judged = judge(reply, contract)
        faults = judged.faults or await aside(len(self.content), figure_faults, judged.value, self.content)
        if faults:
            return Verdict(faults=faults, feedback=feedback(faults, "text"))
        return Verdict(judged.value, contract.dump(judged.value))


def _node(step: StepNode, entry: Chosen, limit: int) -> StepNode:
    """The step as the question for a summary has it: one read, no tools, and nothing of its own task."""
    return replace(
        step,
        kind="llm",
        contract=summary_contract(entry.read.contract, limit),
        reads=(entry.read,),
        model=step.summariser,
        template=None,
        templates={},
        function=None,
        tools=(),
        hosted=(),
        checks=(),
        conversation=None,
        repeat=None,
        place=entry.read.contract.place,
    )


def _key(node: StepNode, base_url: str, prompt: Prompt) -> str:
    """What a summary is known by: all that is sent, and where."""
    assert node.model is not None
    texts = [prompt.system, *(block.text for block in prompt.blocks)]
    return digest(["summary", node.model.name, node.model.settings, base_url, node.contract.digest, texts])
