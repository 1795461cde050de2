"""What comes back from a provider, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.values.requests import OutputItem


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls. `input_tokens` includes cached and cache-written ones, on every vendor.

    `web_searches` are the provider's own, which it charges by number.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.web_searches + other.web_searches,
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A terminal response. An `incomplete` one is never chained on; a `paused` one goes on, with nothing new, in the
    next call: the vendor's own tools took too long for one. `usage` None = not reported. `edited` says what the vendor
    has done to the thread, where it was asked to."""

    id: str
    status: Literal["completed", "incomplete", "paused"]
    text: str
    items: tuple[OutputItem, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    incomplete_reason: str | None = None
    previous: str | None = None
    usage: Usage | None = None
    model: str | None = None
    tries: int = 1
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an output: where, what stood there, which rule it breaks. `feedback` is what the model is
    told.
    """

    kind: Literal["empty", "not_json", "schema", "check", "customer_fact", "refusal", "too_large"]
    path: str
    message: str
    feedback: str
    value: Any = None
