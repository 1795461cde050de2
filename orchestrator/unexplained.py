"""Does the provider count more input than was sent? Then something else stands before the model (R023). Pure.

A step's first request holds all that its model is to know. Where a gateway puts a prompt of its own ahead of it, or a
server goes on from a conversation that it keeps, the model knows more, and what that is no trace can say. The number of
input tokens tells that it is there. How many there may be follows from what was sent, with no assumption about the
model's tokenizer: none makes more tokens than a text has bytes. Those for Claude make up to 2.4 times as many as
OpenAI's of the same text (reference of the providers, §5), which is still well below. A vendor puts some words around
tools, forms and turns (530 tokens for tools at most, as far as they are documented); these have an allowance.

Within a thread the provider's own number for the call before is the measure, so that what was there is known exactly:
a call may add that call's reply and its own items, nothing else; another question of a Python step its form too.

Nothing is said where the input is not ours to count: files, whose weight only the vendor knows; tools that it runs
itself, whose results are in the same number; a thread that it has just summed up, which is in there twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from orchestrator.moves import head, item_text, standing
from orchestrator.providers.tokens import estimate
from orchestrator.values import CallRow, Item, TextItem

KIND: Final = "input.unexplained"
BYTES: Final = Fraction(7, 2)  # in a token, as it is estimated
FRAMING: Final = 2_000  # tokens of a request that are the vendor's own words
TURN: Final = 500  # of them in one turn more


@dataclass(frozen=True, slots=True)
class Most:
    """How many input tokens a call can have at most; `grew`: told by the call before it."""

    tokens: int
    grew: bool


def most_input(calls: Sequence[CallRow], made_here: Callable[[CallRow], bool], form: str) -> Most | None:
    """Of the last of a thread's calls, which has just been answered; `made_here` tells whether the same model was
    asked, `form` is the form that this call asks for. None where it cannot be told."""
    count = standing(calls)
    sent = count[-1].sent
    before = head(count[:-1])
    if before is None or before.done is None or not made_here(before):
        held = [item for call in count for item in call.sent.items]
        return None if _files(held) else Most(_bytes(sent.estimate_tokens) + FRAMING, grew=False)
    if before.done.usage is None or _files(sent.items):
        return None
    said = max(before.done.usage.output_tokens, _most(before.done.items))
    new = _most(sent.items) + (_bytes(estimate(form)) if sent.ask != before.sent.ask else 0)
    return Most(before.done.usage.input_tokens + said + new + TURN, grew=True)


def _most(items: Sequence[Item]) -> int:
    return _bytes(sum(estimate(item_text(item)) for item in items))


def _bytes(estimated: int) -> int:
    return math.ceil(estimated * BYTES)


def _files(items: Sequence[Item]) -> bool:
    return any(isinstance(item, TextItem) and item.files for item in items)


def said(told: Mapping[str, Any]) -> str:
    """What an event of this kind says to people: cause, and what to do."""
    what = "the call before it with all that is new" if told["grew"] else "all that was sent"
    provider = str(told["model"]).partition(":")[0]
    return (
        f"{told['model']} counted {told['input_tokens']:,} input tokens, and {what} makes {told['most_tokens']:,} at "
        "most: something else stands before the model, such as a gateway's prompt or a conversation that the server "
        f"keeps; look at where the provider {provider} leads"
    )
