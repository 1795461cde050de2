"""A run as Python code holds it: awaited to its end, followed while it is under way, asked for its values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import StepFailed, UsageError
from orchestrator.python.declarations import Source
from orchestrator.spec import Decided
from orchestrator.trace.events import RunEvent, typed
from orchestrator.values import Artifact, Event, RunRow, RunStatus, StepRow

Work = Callable[["Services", "Graph"], Awaitable[RunRow]]

if TYPE_CHECKING:
    from orchestrator.graph import Graph
    from orchestrator.step import Services

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that has ended: its rows, and its values by step and input; those of items under `step/key`."""

    graph: Graph
    row: RunRow
    steps: Mapping[str, StepRow]
    artifacts: Mapping[str, Artifact]


async def outcome_of(services: Services, graph: Graph, row: RunRow) -> Outcome:
    store = services.store
    steps = {step.label: step for step in await store.steps(row.id)}
    there = [step for step in steps.values() if step.head is not None and not step.retired]
    made = {step.label: await store.artifact(row.id, step.name, step.item) for step in there}
    return Outcome(graph, await store.run(row.id), steps, made)


class Run:
    """A run under way or ended. Awaiting it gives itself, ended."""

    def __init__(
        self,
        main: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Outcome]],
        further: Callable[[Work], Run],
    ) -> None:
        """`further` goes on with the run by doing some more work on it: another handle."""
        self._further = further
        self._events: list[RunEvent] = []
        self._news = asyncio.Event()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "no event loop is running", hint="await it inside async code; p.run(…) is for code that is not async"
            ) from None
        self._task = loop.create_task(main(self._hear))
        self._task.add_done_callback(lambda task: self._news.set())

    def _hear(self, event: Event) -> None:
        self._events.append(typed(event))
        self._news.set()

    def __await__(self) -> Generator[Any, None, Run]:
        yield from self._task.__await__()
        return self

    async def events(self) -> AsyncIterator[RunEvent]:
        """What happens in this run, from its beginning and live until it has ended: see `orchestrator.trace.events`.

        Ends quietly however the run ends; await the run to learn of an error.
        """
        told = 0
        while True:
            while told < len(self._events):
                told += 1
                yield self._events[told - 1]
            if self._task.done():
                return
            self._news.clear()
            await self._news.wait()

    def revise(self, step: Source[Any] | str, comment: str) -> Run:
        """Have a finished step changed as a person asks, and go on with the run; see `orch revise`.

        Gives another handle on the same run: await it, or, outside async code, use it at once. Raises UsageError for a
        step that calls no model, has no version, or has not come to an end.
        """
        from orchestrator.engine import revise

        run_id, name = self.id, step if isinstance(step, str) else step.name

        async def work(services: Services, graph: Graph) -> RunRow:
            return await revise(services, graph, await services.store.run(run_id), name, comment)

        return self._further(work)

    def approve(self, gate: Source[Any] | str, comment: str = "") -> Run:
        """Approve what a gate shows, as this handle has seen it, and go on with the run; see `orch approve`.

        Gives another handle on the same run, as `revise` does. That raises UsageError where the gate does not wait, or
        shows something else by now: then nothing is decided.
        """
        return self._decided(gate, "approve", comment)

    def reject(self, gate: Source[Any] | str, comment: str, *, stop: bool = False) -> Run:
        """Reject what a gate shows, as this handle has seen it: what is not good enough is made again, and the gate
        asks again. `stop` ends the run instead. Raises as `approve` does."""
        return self._decided(gate, "stop" if stop else "reject", comment)

    def _decided(self, gate: Source[Any] | str, decision: Decided, comment: str) -> Run:
        from orchestrator.engine import decide

        outcome = self._outcome()
        name = gate if isinstance(gate, str) else gate.name
        at = _digest(outcome, name)

        async def work(services: Services, graph: Graph) -> RunRow:
            run = await services.store.run(outcome.row.id)
            return await decide(services, graph, run, name, decision, comment=comment, at=at)

        return self._further(work)

    def _outcome(self) -> Outcome:
        if not self._task.done():
            raise UsageError("this run has not ended", hint="await it first: run = await p.start(…)")
        return self._task.result()

    def _repr_html_(self) -> str | None:
        """For notebooks: the graph with its states, or what stopped the run; None while it is under way."""
        from orchestrator.notebook import error_html, run_html

        if not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return run_html(self._task.result()) if error is None else error_html(error)

    @property
    def number(self) -> int:
        """Its number in the project, as the command line says it."""
        return self._outcome().row.number

    @property
    def id(self) -> str:
        return self._outcome().row.id

    @property
    def status(self) -> RunStatus:
        """`succeeded`, `failed`, `waiting` for a person, or `paused` (over budget, interrupted): `p.resume` goes on."""
        return self._outcome().row.status

    @property
    def error(self) -> str | None:
        """What stopped it, in one sentence."""
        error = self._outcome().row.error
        return error.message if error is not None else None

    @property
    def cost_usd(self) -> Decimal | None:
        """What it has cost so far in US dollars, as far as prices are known; None where none is."""
        costs = [step.cost_usd for step in self._outcome().steps.values() if step.cost_usd is not None]
        return sum(costs, Decimal(0)) if costs else None

    def get(self, source: Source[R]) -> R:
        """The current value of a step or input, as its declared type.

        Raises StepFailed where there is none, with what stopped the step or the run.
        """
        outcome = self._outcome()
        name = outcome.graph.target(source.name)
        found = outcome.artifacts.get(name)
        if found is None:
            raise _missing(outcome, name)
        node = outcome.graph.steps.get(name) or outcome.graph.inputs[name]
        kind = source.value_type()
        text = isinstance(kind, type) and issubclass(kind, str)

        def value(artifact: Artifact) -> Any:
            read = node.contract.instance(artifact.body)
            return kind(read) if text else read

        if getattr(node, "for_each", None) is None:
            typed: R = value(found)
            return typed
        items: Any = {key: value(outcome.artifacts[f"{name}/{key}"]) for key in found.version.field_hashes}
        each: R = items
        return each


def _digest(outcome: Outcome, name: str) -> str:
    """The digest of what a gate shows in this outcome. Raises UsageError where the pipeline has no such gate."""
    from orchestrator.gates import gate_node
    from orchestrator.store.records import shown_digest

    node = gate_node(outcome.graph, name)
    found = outcome.artifacts
    seen = {read.name: found[read.name] for read in node.reads if read.name in found}
    each = [read.name for read in node.reads if read.takes == "each" and read.name in found]
    labels = [f"{one}/{key}" for one in each for key in found[one].version.field_hashes]
    seen |= {label: found[label] for label in labels if label in found}
    hashes = {source: artifact.version.sha256 for source, artifact in seen.items()}
    return shown_digest(outcome.steps[node.name].attempt_id or "", hashes)


def _missing(outcome: Outcome, name: str) -> Exception:
    step = outcome.steps.get(name)
    if step is None:
        return UsageError(f"{outcome.graph.name} has no step or input {name}")
    error = step.error or outcome.row.error
    because = f": {error.message}" if error is not None else ""
    hint = error.hint if error is not None else f"run {outcome.row.number} is {outcome.row.status}"
    return StepFailed(f"{name} has no value{because}", hint=hint, code=error.code if error is not None else None)
