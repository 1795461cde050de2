"""What a pipeline is, as declared: one set of pydantic models for YAML and Python alike.

Text enters here, so everything is strict: unknown keys are refused, shorthand is already normalised by the loader
(`reads: [a]` arrives as `[{read: a}]`), and each error can be placed by its path (`Places`). The models say nothing
about files or functions that exist; that is the graph's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.errors import Place

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EditKind = Literal["compact", "clear_tools"]
OnInputChange = Literal["redo", "ask", "keep"]
Structured = Literal["native", "prompt"]  # a form: sent as the vendor's own parameter, or written into the task
Overflow = Literal["fail", "truncate", "summarise"]  # what becomes of a value that is over its contract's max_tokens
Sensitivity = Literal["public", "internal", "confidential", "secret"]
SENSITIVITY_RANK: Final[Mapping[str, int]] = {"public": 0, "internal": 1, "confidential": 2, "secret": 3}
ManifestKind = Literal["definition", "template", "contract", "read", "label", "tools", "code", "model"]
STALE_ON: Final[tuple[ManifestKind, ...]] = ("read", "label", "contract")
Decided = Literal["approve", "reject", "stop"]
GateChoice = Literal["approve", "edit", "reject", "stop"]
OnTimeout = Literal["approve", "reject", "stop", "wait"]
AfterReject = Literal["pause", "fail", "go_on"]
SCALAR_INPUTS: Final = frozenset({"string", "integer", "number", "boolean"})
TEXT_SCHEMAS: Final = frozenset({"text", "markdown", "file"})

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: object) -> object:
    """`10m`, `30s`, `1.5h` → seconds. Raises ValueError for anything else."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError("write a duration as a number and a unit: 30s, 10m, 2h")
        return float(match[1]) * _UNIT_SECONDS[match[2]]
    raise ValueError("write a duration with its unit: 30s, 10m, 2h")


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(gt=0)]


class Missing:
    """Marks a default that was not given; `None` is a value."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, arbitrary_types_allowed=True)


class InputSpec(Strict):
    """A run's input: an artifact authored by the customer, version 1. `enum`: the words that a `string` may be."""

    type: str
    enum: tuple[str, ...] = ()
    about: str | None = None
    not_for: tuple[str, ...] | Literal["none"] = "none"
    default: Any = MISSING
    sensitivity: Sensitivity = "internal"


class ContractSpec(Strict):
    """An artifact type: its schema, what its value represents (`about`) and must not be used for (`not_for`)."""

    artifact: str
    about: str
    not_for: tuple[str, ...] | Literal["none"]
    schema_: str | dict[str, Any] = Field(alias="schema")
    sensitivity: Sensitivity = "internal"
    tags: tuple[str, ...] = ()
    max_tokens: int | None = Field(default=None, gt=0)
    overflow: Overflow = "fail"


class ReadSpec(Strict):
    """One declared read: a step or input by name, optionally some top-level fields only, with a guard of its own.

    `select` stands for a read of each step that it means; when a pipeline is built, these take its place. `from` reads
    what an earlier run made: under the name `as`, of the contract `type` (default: the read's own name). `require:
    approved` takes no version that the gates which show it have not approved.
    """

    read: str = ""
    select: str | None = None
    from_: Literal["session", "project"] | None = Field(default=None, alias="from")
    as_: str | None = Field(default=None, alias="as")
    type: str | None = None
    fields: tuple[str, ...] | None = None
    guard: str | None = None
    require: Literal["current", "approved"] = "current"
    default: Any = MISSING


class CheckSpec(Strict):
    """A rule on a step's output: an expression over its fields, or a Python function returning None or a message."""

    expr: str | None = None
    python: str | None = None
    message: str | None = None


class ConversationSpec(Strict):
    """How much of the session's visible conversation a step sees: newest first, whole messages, both caps."""

    messages: int = Field(default=30, ge=0)
    tokens: int = Field(default=800, ge=0)


class FeedbackSpec(Strict):
    """Feedback that is computed from a version and from what its step reads."""

    expr: str


class RepeatSpec(Strict):
    """A step that is visited until its rule holds: at most so many times, each time told what is not good yet."""

    until: str
    max_rounds: int = Field(default=3, ge=2, le=20)
    feedback: str | FeedbackSpec | None = None
    then: Literal["fail", "accept"] = "fail"


class VendorContextSpec(Strict):
    """What the provider may do to a step's own thread once a request of it has so many tokens."""

    compact_at: int | None = Field(default=None, ge=1000)
    clear_tools_at: int | None = Field(default=None, ge=1000)


class ModelSpec(Strict):
    """A model alias: `use` is `provider:model`, with the parameters every call on it carries. `fallback` are aliases
    that are asked in its place, in this order, where it does not answer."""

    use: str
    effort: Effort | None = None
    max_output_tokens: int | None = Field(default=None, gt=0)
    structured: Structured | None = None
    fallback: tuple[str, ...] = ()
    background: bool = False
    vendor_context: VendorContextSpec | None = None


class DefaultsSpec(Strict):
    model: str = "default"
    reasks: int = Field(default=2, ge=0, le=20)
    timeout: Seconds = 3600.0
    call_timeout: Seconds = 600.0
    max_output_tokens: int | None = Field(default=None, gt=0)
    effort: Effort | None = None
    max_usd: Decimal | None = Field(default=None, ge=0)
    stale_on: tuple[ManifestKind, ...] = STALE_ON


class BudgetSpec(Strict):
    """The run's cap, and caps of one call and of the runs of a session. They reserve: a call whose worst case would
    pass one of them is not sent."""

    usd: Decimal = Field(ge=0)
    per_call: Decimal | None = Field(default=None, ge=0)
    per_session: Decimal | None = Field(default=None, ge=0)
    on_exceed: Literal["pause", "fail"] = "pause"
    unpriced: Literal["refuse", "allow"] = "refuse"


class ForEachSpec(Strict):
    """One step done once for each entry of a list: `in` names the list, `key` the field that names an entry.

    `same` takes the entries and keys of another such step instead of a list of its own.
    """

    item: str = "item"
    in_: str | None = Field(default=None, alias="in")
    key: str | None = None
    where: str | None = None
    at_most: int = Field(default=100, ge=1, le=10_000)
    over: Literal["fail", "take_first"] = "fail"
    concurrency: int | None = Field(default=None, ge=1)
    on_error: Literal["fail", "collect"] = "fail"
    same: str | None = None

    @property
    def source(self) -> str | None:
        """The step or input that its entries come from: the one that holds the list, or the one it is joined with."""
        return self.same or (self.in_.partition(".")[0] if self.in_ else None)


class OnRejectSpec(Strict):
    """What a rejection leads to: `redo` is made again, at most `max_rounds` times; where nothing is redone, `then`."""

    redo: str | None = None
    mode: Literal["follow_up", "fresh"] = "follow_up"
    max_rounds: int = Field(default=3, ge=1, le=100)
    then: AfterReject = "pause"


class GateTimeoutSpec(Strict):
    """What happens at a gate that nobody has answered for so long."""

    after: Seconds
    then: OnTimeout


class GateSpec(Strict):
    """A question to a person about what other steps made. The answer is the step's artifact (contract `decision`)."""

    ask: str
    shows: tuple[str, ...]
    choices: tuple[GateChoice, ...] = ("approve", "edit", "reject", "stop")
    on_reject: OnRejectSpec = OnRejectSpec()
    timeout: GateTimeoutSpec | None = None


class ToolUse(Strict):
    """A tool as one step uses it: a function `file.py:name` and what of its declaration is other here, or a tool that
    the provider runs (`web_search`, `web_fetch`).

    `approval: required` = a person allows each call before it runs; `returns` is the contract of what it gives; `keep`
    are the paths of its result that the model is told, `max_tokens` the most of it. A provider's tool has none of
    these; it is used `max_uses` times in a call at most, on these `domains` only or on all but those `blocked`.
    """

    tool: str
    approval: Literal["required"] | None = None
    timeout: Seconds | None = None
    returns: str | None = None
    keep: tuple[str, ...] | None = None
    max_tokens: int | None = Field(default=None, ge=50)
    max_uses: int | None = Field(default=None, ge=1, le=100)
    domains: tuple[str, ...] | None = None
    blocked: tuple[str, ...] | None = None


class BindSpec(Strict):
    """What one input of a used pipeline is given: a step or input, a field of one (`read: plan.goals`), or a fixed
    value. `guard` goes with it to whoever reads it there; `default` stands where the step made nothing."""

    read: str = ""
    guard: str | None = None
    default: Any = MISSING
    value: Any = MISSING


class StepSpec(Strict):
    """One step: it makes one artifact, named like the step, under the contract `produces`; with `for_each` one for each
    entry of a list.

    One that uses another pipeline has `with`, be it empty: what that pipeline's inputs are given.
    """

    uses: str | None = None
    with_: dict[str, BindSpec] | None = Field(default=None, alias="with")
    description: str | None = None
    template: str | None = None
    prompt: str | None = None
    python: str | None = None
    gate: GateSpec | None = None
    reads: tuple[ReadSpec, ...] = ()
    needs: tuple[str, ...] = ()
    for_each: ForEachSpec | None = None
    produces: str | None = None
    checks: tuple[CheckSpec, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    files: tuple[str, ...] = ()
    conversation: ConversationSpec | Literal["off"] = ConversationSpec()
    repeat: RepeatSpec | None = None
    model: str | None = None
    effort: Effort | None = None
    max_output_tokens: int | None = Field(default=None, gt=0)
    structured: Structured | None = None
    reasks: int | None = Field(default=None, ge=0, le=20)
    timeout: Seconds | None = None
    call_timeout: Seconds | None = None
    max_usd: Decimal | None = Field(default=None, ge=0)
    stale_on: tuple[ManifestKind, ...] | None = None
    on_input_change: OnInputChange = "redo"
    when: str | None = None
    review: Literal["required"] | None = None
    ungated: str | None = None

    @property
    def above(self) -> tuple[str, ...]:
        """The steps and inputs it names, each once: what it reads, what its entries come from, what it waits for."""
        source = self.for_each.source if self.for_each else None
        bound = [bind.read for bind in (self.with_ or {}).values() if bind.read]
        reads = [*(read.read for read in self.reads), *bound]
        return tuple(dict.fromkeys([*reads, *([source] if source else []), *self.needs]))


class PipelineSpec(Strict):
    """A whole pipeline. `steps` keeps its declaration order: it breaks ties in the topological order."""

    version: Literal[1] = 1
    pipeline: str
    description: str | None = None
    inputs: dict[str, InputSpec] = Field(default_factory=dict)
    artifacts: dict[str, ContractSpec] = Field(default_factory=dict)
    models: dict[str, ModelSpec] = Field(default_factory=dict)
    defaults: DefaultsSpec = DefaultsSpec()
    budget: BudgetSpec | None = None
    system: str = ""
    steps: dict[str, StepSpec]
    outputs: tuple[str, ...] = ()


PathKey = tuple[str | int, ...]


class Places:
    """Where each part of a spec stands, by its path: `("steps", "tech-stack", "reads", 0)` → file:line:column.

    `of` falls back to the nearest enclosing part that has a place, so an error about something left out points at
    what should have held it.
    """

    def __init__(
        self,
        file: str,
        places: Mapping[PathKey, Place] | None = None,
        text: str = "",
        others: Mapping[str, str] | None = None,
    ) -> None:
        """`text` is the content of `file`; `others` that of further files its parts come from (`uses:`), by name."""
        self.file = file
        self._places = dict(places or {})
        self._lines = {name: content.splitlines() for name, content in {**(others or {}), file: text}.items()}

    def of(self, *path: str | int) -> Place:
        for end in range(len(path), -1, -1):
            found = self._places.get(path[:end])
            if found is not None:
                return found
        return Place(self.file)

    def key(self, *path: str | int) -> Place:
        """The place of a mapping's key rather than of its value; falls back to `of`."""
        return self._places.get((*path, "\x00key")) or self.of(*path)

    def with_entries(self, origins: Sequence[int], *path: str | int) -> Places:
        """A copy for a list at `path` that was put together anew: its entry n stands where entry `origins[n]` stood."""
        depth = len(path)
        kept, inside = dict[PathKey, Place](), dict[int, dict[PathKey, Place]]()
        for key, place in self._places.items():
            if key[:depth] == path and len(key) > depth and isinstance(key[depth], int):
                inside.setdefault(int(key[depth]), {})[key[depth + 1 :]] = place
            else:
                kept[key] = place
        kept.update(
            {(*path, at, *rest): place for at, old in enumerate(origins) for rest, place in inside.get(old, {}).items()}
        )
        copy = Places(self.file, kept)
        copy._lines = self._lines
        return copy

    def with_text(self, file: str, text: str, *path: str | int) -> Places:
        """A copy in which the part at `path` stands at the beginning of another text."""
        copy = Places(self.file, {**self._places, path: Place(file, 1, 1)})
        copy._lines = {**self._lines, file: text.splitlines()}
        return copy

    def line(self, place: Place) -> str | None:
        """The text of the line a place stands on, if it is in a file known here."""
        lines = self._lines.get(place.file, [])
        return lines[place.line - 1] if 0 < place.line <= len(lines) else None


class ProviderSpec(Strict):
    """`[providers.NAME]` of the project file. `kind` is what the server speaks: OpenAI's Responses API, its older chat
    completions, Anthropic's Messages API; or written or recorded answers. `store = false` is ZDR: no id is ever sent,
    reasoning travels sealed. `structured` is how its models are asked for a form, unless a model or a step says else.
    `hosted_tools`: what it runs itself, `vendor_context`: what it can do to a long thread, where the host does not say.
    """

    kind: Literal["openai", "chat", "anthropic", "scripted", "replayed"] | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    chaining: Literal["auto", "server", "replay"] = "auto"
    store: bool | None = None
    may_see: Sensitivity = "internal"
    structured: Structured | None = None
    hosted_tools: tuple[Literal["web_search", "web_fetch"], ...] | None = None
    accepts: tuple[Literal["image", "pdf"], ...] | None = None
    vendor_context: tuple[EditKind, ...] | None = None

    @property
    def sends(self) -> bool:
        """Whether anything leaves this machine, or at least this process."""
        return self.kind not in ("scripted", "replayed")


class McpSpec(Strict):
    """`[mcp.NAME]` of the project file: a server of tools, started by `command` or reached at `url`.

    `allow` are the tools that may be used; `env` the variables that the child process is given beside PATH and HOME;
    `token_env` the one that is sent as a bearer token. `idempotent` tools may be repeated after an interruption;
    `approval` tools (or `all`) run when a person has allowed the call.
    """

    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    url: str | None = None
    allow: tuple[str, ...] = Field(min_length=1)
    env: tuple[str, ...] = ()
    token_env: str | None = None
    idempotent: tuple[str, ...] = ()
    approval: tuple[str, ...] | Literal["all"] = ()
    timeout: Seconds | None = None


class PriceSpec(Strict):
    """`[prices."MODEL-GLOB"]` of the project file, in US dollars per million tokens.

    `cached` and `cache_write` left out mean the price of plain input. `web_search` is for a thousand searches of the
    provider's own. `context` is the model's window in tokens.
    """

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    cache_write: Decimal | None = Field(default=None, ge=0)
    web_search: Decimal | None = Field(default=None, ge=0)
    context: int | None = Field(default=None, gt=0)


class LimitSpec(Strict):
    """`[limits."GLOB"]` of the project file, by provider, model or `provider:model`: what may be under way at once, and
    what may go out in any minute."""

    concurrency: int | None = Field(default=None, gt=0)
    requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)


class ProjectBudgetSpec(Strict):
    """`[budget]` of the project file or the user's: caps in USD over all pipelines, beside those of a pipeline."""

    per_call: Decimal | None = Field(default=None, ge=0)
    per_session: Decimal | None = Field(default=None, ge=0)
    per_day: Decimal | None = Field(default=None, ge=0)
