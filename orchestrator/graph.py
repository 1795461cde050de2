"""Specs → frozen Graph: every authoring error surfaces here, all in one pass; then `ready()` is pure.

The graph is what a run executes. It holds nothing that a run could change, so it can be stored once by its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.contracts import Contract
from orchestrator.errors import Diagnostic, Place
from orchestrator.spec import MISSING, ConversationSpec, Effort, PipelineSpec, StepSpec
from orchestrator.tools import Tool


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function of the project, loaded by path. `sha` is the hash of its file (the manifest's `code` entry)."""

    ref: str
    file: str
    sha: str
    call: Callable[..., Any]


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
class ModelChoice:
    """The model a step calls, after step over alias over defaults. `provider` names a driver or `[providers.NAME]`."""

    alias: str
    provider: str
    model: str
    effort: Effort | None
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Read:
    """A declared read, resolved: `contract` is what the source produces."""

    name: str
    kind: Literal["step", "input"]
    contract: Contract
    fields: tuple[str, ...] | None
    guard: str | None
    place: Place
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class InputNode:
    """A run's input. `default` is MISSING where a value must be given."""

    name: str
    contract: Contract
    place: Place
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class StepNode:
    """One step, complete: nothing about it needs looking up any more. `order` is its topological position.

    `parents` are the steps it waits for (reads and needs, inputs excluded); `digest` covers its definition only, with
    template, contract, code and model as separate entries of the manifest.
    """

    name: str
    kind: Literal["llm", "python"]
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


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline ready to run. `steps` is in topological order, ties by declaration; `children` is the reverse of
    `parents`; `rank` orders sources in the frame: inputs first, then steps."""

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
