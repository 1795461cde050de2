"""Where a model does not answer, another one is asked: which, when, and what it is shown of what was said.

An alias may name others that stand in for it, on any provider. The switch is made inside the thread, where the call
failed, and is no secret: it is an event, the trace names the model of each call, and the artifact's author is the model
that made it. There is nothing to chain on at the other model, so it is sent the whole thread, in words that every
vendor takes (`providers.foreign`). Once switched, a thread stays switched.

A provider that may not see what the thread holds is never asked, however the others fare (S21).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import ProviderFailure
from orchestrator.moves import in_transcript, standing
from orchestrator.providers.base import Provider
from orchestrator.providers.foreign import portable
from orchestrator.spec import Effort
from orchestrator.values import CallRow, ContextEdits, Item, OutputFormat, TextItem

# Failures that say something about this model or its host, and nothing about another.
FALLS_BACK: Final = frozenset(
    {"connection", "overloaded", "rate_limit", "malformed", "quota", "auth", "model", "too_long", "refused"}
    | {"unavailable", "over_limit"}
)
PATIENCE: Final = 20.0  # the longest wait that a host may ask for where there is another one to ask


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model with what its calls carry. `form` is what it is told of the answer's form where no parameter says it and
    the thread's own task does not either; empty where that is not needed."""

    provider: Provider
    model: str
    effort: Effort | None
    max_output_tokens: int
    output: OutputFormat | None
    form: str = ""
    background: bool = False
    edits: ContextEdits | None = None

    @property
    def name(self) -> str:
        return f"{self.provider.traits.name}:{self.model}"

    def made(self, call: CallRow) -> bool:
        """Whether this model was asked in a call."""
        return (call.sent.provider, call.sent.model) == (self.provider.traits.name, self.model)


def taken_up(candidates: Sequence[Candidate], calls: Sequence[CallRow]) -> tuple[Candidate, ...]:
    """The candidates that are left, the one to ask first: a thread stays with the model of its last call."""
    if calls:
        for at, candidate in enumerate(candidates):
            if candidate.made(calls[-1]):
                return tuple(candidates[at:])
    return tuple(candidates)


def said_to(candidate: Candidate, calls: Sequence[CallRow]) -> tuple[Item, ...]:
    """All that a thread holds, as this model may be shown it: its own turns verbatim, those of others in words."""
    items: list[Item] = []
    for call in standing(calls):
        if in_transcript(call) and call.done is not None:
            theirs = call.done.items
            items += [*call.sent.items, *(theirs if candidate.made(call) else portable(theirs))]
    return tuple(items)


def with_form(form: str, before: Iterable[Item], items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The items of a call, with what its model is to be told of the form, once in a thread."""
    told = TextItem((form,))
    return items if not form or told in (*before, *items) else (*items, told)


def last_word(failure: ProviderFailure, tried: Sequence[str], barred: Sequence[str]) -> ProviderFailure:
    """The failure of the last model there was, saying which were asked before it, and which were not and why."""
    notes = [f"asked before it: {'; '.join(tried)}"] if tried else []
    notes += [f"not asked: {'; '.join(barred)}"] if barred else []
    if not notes:
        return failure
    hint = "; ".join([*([failure.hint] if failure.hint else []), *notes])
    return _rehinted(failure, hint)


def _rehinted(failure: ProviderFailure, hint: str) -> ProviderFailure:
    return ProviderFailure(
        failure.message, hint=hint, kind=failure.kind, retry_after=failure.retry_after, unbilled=failure.unbilled
    )
