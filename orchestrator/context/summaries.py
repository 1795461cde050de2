"""A read that is larger than its contract allows, where that says `overflow: summarise`: what is asked for, what makes
an answer good, and what stands in the place of the whole. Pure.

A summary is asked for on a thread of its own, by the attempt that needs it, and is the same for every step that reads
the same value: nothing of the reading step is in it. It stands under the artifact's own label and guards. What a model
writes about figures is not believed: one that the whole does not hold is a fault, which the model is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from orchestrator.context.select import Chosen, choose
from orchestrator.contracts import Contract
from orchestrator.errors import StepFailed
from orchestrator.facts.dates import FoundDate, find_dates
from orchestrator.facts.quantities import Quantity, find_quantities
from orchestrator.facts.wording import fold
from orchestrator.graph import Graph, StepNode
from orchestrator.providers.tokens import estimate
from orchestrator.values import Fault, LeftOut, Snapshot

THREADS: Final = "summary/"  # what the names of their threads begin with
LEAST_PART: Final = 100  # tokens that the summary of one part may take, however many parts there are
FRAME_TOKENS: Final = 1_000  # what stands around the whole in the request
MOST_TOLD: Final = 8
SMALL: Final = 12  # whole numbers up to here count things, which a summary may do


def is_over(entry: Chosen) -> bool:
    """Whether a read is larger than its contract allows, and may be summed up: half a file is none."""
    contract = entry.read.contract
    limit = contract.max_tokens
    summed_up = contract.overflow == "summarise" and limit is not None and entry.attachment is None
    return summed_up and limit is not None and estimate(entry.content) > limit


def may_summarise(step: StepNode) -> bool:
    """Whether any read of a step can come to be summed up, by the contracts alone."""
    return any(read.contract.overflow == "summarise" for read in step.reads)


def to_summarise(graph: Graph, step: StepNode, snapshot: Snapshot) -> tuple[Chosen, ...]:
    """The reads of a step that are too large now, each as it is summed up: under its own name, without the reading
    step's guard."""
    return tuple(
        replace(entry, read=replace(entry.read, guard=None, alias=""))
        for entry in choose(graph, step, snapshot)
        if is_over(entry)
    )


def room(entry: Chosen) -> int:
    """The tokens that the summary itself may take: what the contract allows less the line that says what it is."""
    limit = entry.read.contract.max_tokens
    assert limit is not None
    return limit - estimate(_note(entry.content)) - 1


def summed_up(entry: Chosen, summary: str) -> tuple[Chosen, LeftOut]:
    """The read with its summary in its place, and the line of the ledger that says so."""
    contract, size = entry.read.contract, estimate(entry.content)
    content = _note(entry.content) + summary
    reason = f"over max_tokens of {contract.max_tokens:,}: the contract {contract.name} says overflow: summarise"
    left = LeftOut("artifact", f"the whole of {entry.read.name}", reason, size - estimate(content))
    return replace(entry, content=content, summary=True), left


def stand_in(entry: Chosen) -> str:
    """What is shown in a summary's place before there is one."""
    return f"[a summary of at most {room(entry):,} tokens stands here when the step runs]"


def _note(content: str) -> str:
    return f"[a summary; the whole has about {estimate(content):,} tokens]\n"


# --- asking for it ----------------------------------------------------------------------------------------------------


def summary_contract(contract: Contract, limit: int) -> Contract:
    """What an answer is judged by: text, within the limit, as sensitive as the whole."""
    return replace(
        contract,
        form="text",
        schema=None,
        model=None,
        fields=(),
        customer_fields=(),
        code={},
        max_tokens=limit,
        overflow="fail",
        digest=f"{contract.digest}/{limit}",
    )


def task(limit: int) -> str:
    """What the model is asked for. The words are fewer than the limit holds, as no model counts well."""
    return (
        f"Sum up the artifact above in at most {max(20, limit // 2):,} words, for readers who will not see the whole.\n"
        "Keep figures with their units and what they stand for, names, conditions, and what is left open, as they are "
        "written there. Add nothing that it does not say: no conclusions, and no figures that you have worked out.\n"
        "Answer with the summary alone, as plain text."
    )


def parts(text: str, tokens: int) -> tuple[str, ...]:
    """A text in pieces of at most so many tokens: of whole lines, as far as they go, and of whole characters."""
    data, size, found, at = text.encode(), tokens * 7 // 2, list[str](), 0
    while len(data) - at > size:
        end = at + size
        line = data.rfind(b"\n", at + size // 2, end) + 1
        if line:
            end = line
        while data[end] & 0xC0 == 0x80:  # within a character
            end -= 1
        found.append(data[at:end].decode())
        at = end
    return (*found, data[at:].decode())


def source_room(window: int | None, reply: int, step: str, read: str) -> int | None:
    """The tokens of the whole that one request may hold; None where that is not known. Raises StepFailed for a window
    that holds none."""
    if window is None:
        return None
    left = (window - reply) * 10 // 11 - FRAME_TOKENS
    if left < 2 * LEAST_PART:
        raise StepFailed(
            f"{read} cannot be summed up for {step}: the window of {window:,} tokens holds a reply of {reply:,} and "
            "nothing beside it; nothing was sent",
            hint="lower max_output_tokens of the model alias, or name a model with a larger window as the alias "
            "`summarise`",
            code="too_large",
        )
    return left


# --- judging it -------------------------------------------------------------------------------------------------------


def figure_faults(summary: str, source: str) -> tuple[Fault, ...]:
    """One fault for the figures in a summary that what it sums up does not hold; none where all are there."""
    wrong = unfounded(summary, source)
    if not wrong:
        return ()
    shown = ", ".join(f'"{text}"' for text in wrong[:MOST_TOLD])
    which = "that figure" if len(wrong) == 1 else "those figures"
    message = f"the summary says {shown}, which is not in what it sums up"
    told = f"Check failed: {message}. Answer again without {which}, or with what is written there."
    return (Fault("check", "$", message, told, wrong[0]),)


def unfounded(summary: str, source: str) -> tuple[str, ...]:
    """The figures and dates of a text that are not in its source, as they are written: another number, or the same one
    in another unit. A percentage may stand in the source as a ratio, and small whole numbers may count."""
    said, mine = _Figures.of(source), _Figures.of(summary)
    checked = (quantity for quantity in mine.quantities if not _counts(quantity, mine.text))
    wrong = [(date.start, date.end) for date in mine.dates if not any(date.agrees(other) for other in said.dates)]
    wrong += [(quantity.start, quantity.end) for quantity in checked if not _is_said(quantity, said)]
    return tuple(dict.fromkeys(" ".join(mine.text[start:end].split()) for start, end in sorted(wrong)))


@dataclass(frozen=True, slots=True)
class _Figures:
    """A folded text with its dates and numbers; `by_value` are these by each way to read them."""

    text: str
    dates: tuple[FoundDate, ...]
    quantities: tuple[Quantity, ...]
    by_value: Mapping[Decimal, Sequence[Quantity]]
    years: frozenset[int]

    @classmethod
    def of(cls, text: str) -> _Figures:
        folded = fold(text).text
        dates = find_dates(folded)
        quantities = find_quantities(folded, [(date.start, date.end) for date in dates])
        by_value: dict[Decimal, list[Quantity]] = defaultdict(list)
        for quantity in quantities:
            for reading in quantity.readings:
                by_value[reading].append(quantity)
        return cls(folded, dates, quantities, by_value, frozenset().union(*(date.years for date in dates)))


def _counts(quantity: Quantity, text: str) -> bool:
    """Whether it is no figure to be found again: a number in words, or one that counts a few things."""
    if not any(char.isdigit() for char in text[quantity.start : quantity.end]):
        return True
    small = all(0 <= reading <= SMALL and reading == int(reading) for reading in quantity.readings)
    return small and quantity.unit is None and not quantity.per


def _is_said(quantity: Quantity, said: _Figures) -> bool:
    for reading in quantity.readings:
        if any(_units_fit(quantity, other) for other in said.by_value.get(reading, ())):
            return True
        ratios = said.by_value.get(reading / 100, ()) if quantity.unit == "percent" else ()
        if any(other.unit is None for other in ratios):
            return True
    return quantity.unit is None and bool(said.years & set(quantity.readings))


def _units_fit(one: Quantity, other: Quantity) -> bool:
    return one.unit is None or other.unit is None or one.unit == other.unit
