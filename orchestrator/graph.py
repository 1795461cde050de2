"""Specs → frozen Graph: every authoring error surfaces here, all in one pass; then `ready()` is pure.

The graph is what a run executes. It holds nothing that a run could change, so it can be stored once by its digest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.contracts import Contract
from orchestrator.errors import Diagnostic, Place
from orchestrator.expressions import Expression
from orchestrator.spec import (
    MISSING,
    STALE_ON,
    AfterReject,
    ConversationSpec,
    Effort,
    GateChoice,
    ManifestKind,
    OnTimeout,
    PipelineSpec,
    StepSpec,
    Structured,
)
from orchestrator.tools import Tool
from orchestrator.values import ContextEdits, FromEarlier, HostedTool

if TYPE_CHECKING:
    from orchestrator.project import Project
    from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function of the project, loaded by path. `sha` is the hash of its code (the manifest's `code` entry).

    `ctx` is the keyword under which it gets the step's context, if it may ask a model.
    """

    ref: str
    file: str
    sha: str
    call: Callable[..., Any]
    ctx: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A task text: a file of the shelf or an inline prompt. `name` is the file as written, or the step for inline."""

    name: str
    text: str
    sha: str
    place: Place


@dataclass(frozen=True, slots=True)
class Check:
    """A rule on the output. `expr` is parsed once (`expressions.Expression`); `function` gets (value, **reads)."""

    label: str
    expr: Any | None
    function: Function | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """A step's loop: visits until `until` holds, at most `max_rounds` in all. Expressions are parsed."""

    until: Any
    max_rounds: int
    feedback: Any
    then: Literal["fail", "accept"]
    place: Place


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model a step calls, after step over alias over defaults. `provider` names a driver or `[providers.NAME]`.

    `fallbacks` are asked in its place, in this order, where it does not answer; they have none of their own.
    """

    alias: str
    provider: str
    model: str
    effort: Effort | None
    max_output_tokens: int
    structured: Structured = "native"
    fallbacks: tuple[ModelChoice, ...] = ()
    background: bool = False
    edits: ContextEdits | None = None

    @property
    def name(self) -> str:
        """How people write it."""
        return f"{self.provider}:{self.model}"

    @property
    def candidates(self) -> tuple[ModelChoice, ...]:
        """All that may be asked, in order."""
        return (self, *self.fallbacks)

    @property
    def settings(self) -> dict[str, Any]:
        """What its calls carry beside the model's name. What is as usual is left out where it came later."""
        unusual: dict[str, Any] = {} if self.structured == "native" else {"structured": self.structured}
        if self.edits is not None:
            unusual["edits"] = [self.edits.compact_at, self.edits.clear_tools_at]
        return {"effort": self.effort, "max_output_tokens": self.max_output_tokens, **unusual}


@dataclass(frozen=True, slots=True)
class Read:
    """A declared read, resolved: `contract` is what the source produces.

    A read of a step with `for_each` takes `each` of its items, or in a step joined with it the `sibling` under the same
    key; `entry` is the entry of a list that an item is made for: it is called by its own name, and `of` is the step or
    input that holds the list. `approvers` are the gates that must have approved the very version that is read.

    `alias` is what the step itself calls it, where that is another name than the run's: in a pipeline that is used as a
    step. `given` says that the step reads it as an input of its pipeline, `scalar` that this is of a one-line type.
    """

    name: str
    kind: Literal["step", "input", "entry"]
    contract: Contract
    fields: tuple[str, ...] | None
    guard: str | None
    place: Place
    default: Any = MISSING
    takes: Literal["one", "each", "sibling"] = "one"
    of: str = ""
    approvers: tuple[str, ...] = ()
    alias: str = ""
    given: bool = False
    scalar: bool = False

    @property
    def called(self) -> str:
        """Its name in the step's own words: in templates, in expressions, as a keyword of functions."""
        return self.alias or self.name

    @property
    def source(self) -> str:
        """The step or input it comes from."""
        return self.of or self.name


@dataclass(frozen=True, slots=True)
class Gate:
    """What a person is asked about the step's reads, and what their answer leads to. `reviews` is the step whose
    `review: required` made the gate. `timeout` is in seconds, None = it waits for ever."""

    ask: str
    choices: tuple[GateChoice, ...]
    redo: str | None
    mode: Literal["follow_up", "fresh"]
    max_rounds: int
    then: AfterReject
    timeout: float | None = None
    on_timeout: OnTimeout = "wait"
    reviews: str | None = None


@dataclass(frozen=True, slots=True)
class InputNode:
    """A run's input. `default` is MISSING where a value must be given. `earlier`: an earlier run made it."""

    name: str
    contract: Contract
    place: Place
    default: Any = MISSING
    earlier: FromEarlier | None = None


@dataclass(frozen=True, slots=True)
class ForEach:
    """A step's fan-out: once for each entry of the list at `path` in the value of `source`, a step or an input.

    `entry` is the contract of one entry, `whole` the one of the value that holds the list; `key` the path of the field
    that names an entry (empty: the entry itself is its name). With `same` the entries are those of that step.
    """

    item: str
    source: str
    source_kind: Literal["step", "input"]
    path: tuple[str, ...]
    key: tuple[str, ...]
    where: Any | None
    at_most: int
    over: Literal["fail", "take_first"]
    concurrency: int | None
    on_error: Literal["fail", "collect"]
    same: str | None
    entry: Contract
    whole: Contract
    place: Place

    @property
    def list_name(self) -> str:
        """The list as people write it: `competitive-analysis.competitors`."""
        return ".".join((self.source, *self.path))


@dataclass(frozen=True, slots=True)
class Hand:
    """What a step does that gives a used pipeline something of the one that uses it: the value it reads, or the one at
    `path` in it; else the fixed `value`; else, for a pipeline with a `when`, whether that holds."""

    path: tuple[str, ...] = ()
    value: Any = MISSING
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class StepNode:
    """One step, complete: nothing about it needs looking up any more. `order` is its topological position.

    `parents` are the steps it waits for (reads and needs, inputs excluded); `digest` covers its definition only, with
    template, contract, code and model as separate entries of the manifest. `templates` are those that a Python body
    names in its text, by name; `questions` is how often that text asks, at least once. `stale_on` are the entries of
    its manifest that make it stale when they change. `gate` is what a step of kind gate asks a person; its reads are
    what it shows. `system` are its pipeline's instructions.

    With `for_each` it is what each item is made by: contract, reads and task are an item's.

    A step of a pipeline that is used as a step has its own name there as `alias`. `only_if` are reads of conditions:
    it is done where all of them are true, and does not see them otherwise. `hand` is there for what such a pipeline is
    given: its value keeps the guards of what it is taken from.

    `summarise` is the model of the alias of that name, where the pipeline has one.
    """

    name: str
    kind: Literal["llm", "python", "gate"]
    order: int
    spec: StepSpec
    contract: Contract
    reads: tuple[Read, ...]
    parents: tuple[str, ...]
    template: Template | None
    function: Function | None
    tools: tuple[Tool, ...]
    checks: tuple[Check, ...]
    model: ModelChoice | None
    conversation: ConversationSpec | None
    reasks: int
    timeout: float
    call_timeout: float
    digest: str
    place: Place
    templates: Mapping[str, Template] = field(default_factory=dict)
    questions: int = 1
    repeat: Repeat | None = None
    when: Expression | None = None
    stale_on: frozenset[ManifestKind] = frozenset(STALE_ON)
    for_each: ForEach | None = None
    gate: Gate | None = None
    max_usd: Decimal | None = None
    system: str = ""
    alias: str = ""
    only_if: tuple[Read, ...] = ()
    hand: Hand | None = None

    @property
    def called(self) -> str:
        """Its name in its own pipeline."""
        return self.alias or self.name

    @property
    def takes(self) -> tuple[Read, ...]:
        """All that it is made from: what it reads, and the conditions it waits for."""
        return (*self.reads, *self.only_if)

    hosted: tuple[HostedTool, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    summarise: ModelChoice | None = None

    @property
    def summariser(self) -> ModelChoice | None:
        """The model that sums up what is too large for the step; None where nothing can be."""
        if self.model is None or all(read.contract.overflow != "summarise" for read in self.reads):
            return None
        return self.summarise or self.model

    @property
    def models(self) -> tuple[ModelChoice, ...]:
        """Every model that the step may ask, without its fallbacks: its own, and another one that sums up for it."""
        other = self.summariser
        return tuple(model for model in (self.model, other if other is not self.model else None) if model is not None)

    @property
    def asks(self) -> bool:
        """Whether it may call its model: a declarative step, or a Python body that has a context."""
        return self.kind == "llm" or (self.function is not None and self.function.ctx is not None)


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline ready to run. `steps` is in topological order, ties by declaration; `children` is the reverse of
    `parents`; `rank` orders sources in the frame: inputs first, then steps.

    `groups` are the steps that stand for a used pipeline, by the step that uses it; `targets` names the one whose value
    is that step's, where there is one."""

    name: str
    spec: PipelineSpec
    file: str
    inputs: Mapping[str, InputNode]
    steps: Mapping[str, StepNode]
    children: Mapping[str, tuple[str, ...]]
    rank: Mapping[str, int]
    outputs: tuple[str, ...]
    digest: str
    warnings: tuple[Diagnostic, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)

    def target(self, name: str) -> str:
        """The step that a name stands for: of a used pipeline that with its value, else the name itself."""
        return self.targets.get(name, name)


# --- specs → graph ----------------------------------------------------------------------------------------------------


def check_pipeline(project: Project, settings: Settings, path: Path) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """Everything that is wrong with a pipeline file, in one pass, and its graph if nothing is.

    A model that is not set is a warning here, since a pipeline can be checked without one. Runs the project's Python
    files that the pipeline names.
    """
    from orchestrator.building import check

    return check(project, settings, path)


def build_graph(project: Project, settings: Settings, path: Path, *, require_model: bool = False) -> Graph:
    """The graph of a pipeline file. Raises InvalidProject with every fault; ConfigError for a model that is not set,
    if the caller is about to need one (`require_model`)."""
    from orchestrator.building import build

    return build(project, settings, path, require_model=require_model)


# --- pure questions about a graph -------------------------------------------------------------------------------------


def unmet(graph: Graph, done: Collection[str]) -> Mapping[str, int]:
    """For each step that is not done, how many of the steps it waits for are not done either."""
    return {
        name: sum(1 for parent in step.parents if parent not in done)
        for name, step in graph.steps.items()
        if name not in done
    }


def ready(graph: Graph, done: Collection[str], started: Collection[str] = ()) -> tuple[str, ...]:
    """The steps that can start now, in topological order: not done, not started, waiting for nothing."""
    return tuple(name for name, count in unmet(graph, done).items() if count == 0 and name not in started)


def downstream(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Every step below the given steps and inputs, by reads and needs. The given ones only if below another."""
    wanted = set(names)
    waiting = [child for name in wanted for child in graph.children.get(name, ())]
    waiting += [step.name for step in graph.steps.values() if any(r.source in wanted for r in step.takes)]
    below: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in below:
            below.add(name)
            waiting.extend(graph.children.get(name, ()))
    return frozenset(below)


def upstream(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Every step that the given steps wait for, by reads and needs. The given ones only if above another."""
    waiting = [parent for name in names for parent in graph.steps[name].parents]
    above: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in above:
            above.add(name)
            waiting.extend(graph.steps[name].parents)
    return frozenset(above)


def topological(parents: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The keys in an order in which each comes after its parents, ties by the order of the mapping.

    What lies on a cycle, or below one, is left out. Parents that are no keys are ignored.
    """
    position = {name: at for at, name in enumerate(parents)}
    missing = {name: sum(1 for parent in set(above) if parent in position) for name, above in parents.items()}
    below: dict[str, list[str]] = {name: [] for name in parents}
    for name, above in parents.items():
        for parent in set(above):
            if parent in position:
                below[parent].append(name)
    free = [position[name] for name, count in missing.items() if count == 0]
    heapq.heapify(free)
    names, ordered = tuple(parents), []
    while free:
        name = names[heapq.heappop(free)]
        ordered.append(name)
        for child in below[name]:
            missing[child] -= 1
            if missing[child] == 0:
                heapq.heappush(free, position[child])
    return tuple(ordered)


def cycles(parents: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """One whole cycle for each knot of steps that wait for each other, as the names in waiting order."""
    left = set(parents) - set(topological(parents))
    found: list[tuple[str, ...]] = []
    for start in parents:
        if start not in left:
            continue
        cycle = _cycle_from(start, parents, left)
        if cycle:
            found.append(cycle)
            left -= _knot(start, parents, left)
    return tuple(found)


def _cycle_from(start: str, parents: Mapping[str, Sequence[str]], left: Collection[str]) -> tuple[str, ...]:
    """The shortest way from `start` over its parents back to it; empty if there is none."""
    came_from: dict[str, str] = {}
    level = [start]
    while level:
        following: list[str] = []
        for name in level:
            for parent in parents[name]:
                if parent == start:
                    return _way(start, name, came_from)
                if parent in left and parent not in came_from:
                    came_from[parent] = name
                    following.append(parent)
        level = following
    return ()


def _way(start: str, end: str, came_from: Mapping[str, str]) -> tuple[str, ...]:
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return tuple(reversed(way))


def _knot(start: str, parents: Mapping[str, Sequence[str]], left: Collection[str]) -> set[str]:
    """The steps that `start` waits for and that wait for `start`, itself included."""
    above = _reach(start, {name: [p for p in parents[name] if p in left] for name in left})
    children: dict[str, list[str]] = {name: [] for name in left}
    for name in left:
        for parent in parents[name]:
            if parent in left:
                children[parent].append(name)
    return {start} | (above & _reach(start, children))


def _reach(start: str, edges: Mapping[str, Sequence[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return seen
