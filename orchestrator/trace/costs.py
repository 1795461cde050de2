"""The documents of `orch cost` and `orch cost compare`, and what the comparison says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol

from orchestrator.trace.chaining import WAYS, Comparison, Way, Ways
from orchestrator.trace.documents import usd
from orchestrator.values import RunRow, Usage

SCHEMA: Final = "orch.cost/1"
COMPARED: Final = "orch.cost-compare/1"
_NAMES: Final = {"as_run": "this run", "one_chain": "one chain through all steps", "whole_history": "its whole history"}


class Billed(Protocol):
    """As much of a bill as a document needs."""

    @property
    def key(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def unknown(self) -> int: ...
    @property
    def cost_usd(self) -> Decimal | None: ...
    @property
    def charged_usd(self) -> Decimal: ...
    @property
    def lost_usd(self) -> Decimal: ...
    @property
    def held_usd(self) -> Decimal: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def estimated(self) -> int: ...


class Strange(Protocol):
    """A call whose provider counted more input than can have been sent, as far as a document needs it."""

    @property
    def run(self) -> int: ...
    @property
    def step(self) -> str: ...
    @property
    def told(self) -> Mapping[str, Any]: ...


def cost_document(
    by: str, run: RunRow | None, bills: Sequence[Billed], unexplained: Sequence[Strange] = ()
) -> dict[str, Any]:
    """`orch.cost/1`. `cost_usd` is what is known, null where nothing is; `cost_partial` says that it is not all.
    `unexplained` lists the calls whose provider counted more input than can have been sent."""
    known = [bill.cost_usd for bill in bills if bill.cost_usd is not None]
    return {
        "schema": SCHEMA,
        "run": None if run is None else {"id": run.id, "number": run.number, "pipeline": run.pipeline},
        "by": by,
        "rows": [{by: int(bill.key) if by == "run" else bill.key, **_numbers(bill)} for bill in bills],
        "total": {
            "calls": sum(bill.calls for bill in bills),
            "cost_usd": usd(sum(known, Decimal(0))) if known else None,
            "cost_partial": any(bill.unknown or bill.lost_usd for bill in bills),
            "charged_usd": usd(sum((bill.charged_usd for bill in bills), Decimal(0))),
            "lost_usd": usd(sum((bill.lost_usd for bill in bills), Decimal(0))),
            "held_usd": usd(sum((bill.held_usd for bill in bills), Decimal(0))),
            "usage": _usage(sum((bill.usage for bill in bills), Usage())),
            "estimated_calls": sum(bill.estimated for bill in bills),
        },
        "unexplained": [{"run": one.run, "step": one.step, **one.told} for one in unexplained],
    }


def _numbers(bill: Billed) -> dict[str, Any]:
    return {
        "calls": bill.calls,
        "cost_usd": usd(bill.cost_usd),
        "cost_partial": bill.unknown > 0 or bill.lost_usd > 0,
        "charged_usd": usd(bill.charged_usd),
        "lost_usd": usd(bill.lost_usd),
        "held_usd": usd(bill.held_usd),
        "usage": _usage(bill.usage),
        "estimated_calls": bill.estimated,
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }


def compare_document(run: RunRow, found: Comparison) -> dict[str, Any]:
    """`orch.cost-compare/1`."""
    return {
        "schema": COMPARED,
        "run": {"id": run.id, "number": run.number, "pipeline": run.pipeline},
        **_ways(found.run),
        "chain_is_cheaper": found.chain_is_cheaper if found.run.as_run.cost_usd is not None else None,
        "replaced_share": f"{found.replaced:.4f}",
        "unreported_calls": found.unreported,
        "said": list(said(found)),
        "steps": [{"name": step.name, **_ways(step)} for step in found.steps],
    }


def _ways(ways: Ways) -> dict[str, Any]:
    return {name: _way(getattr(ways, name)) for name in WAYS}


def _way(way: Way) -> dict[str, Any]:
    return {
        "input_tokens": way.input_tokens,
        "cached_tokens": way.cached_tokens,
        "output_tokens": way.output_tokens,
        "cost_usd": usd(way.cost_usd),
        "cost_partial": way.partial,
    }


def said(found: Comparison) -> tuple[str, ...]:
    """What the numbers say, plainly: also where a chain would have been the cheaper way."""
    lines = [_against(found, name) for name in WAYS[1:]]
    if found.run.as_run.cost_usd is None and found.run.as_run.input_tokens:
        lines = ["no price is known for the run's calls; give one under [prices] in the project file"]
    if found.replaced:
        lines.append(f"{found.replaced:.1%} of what the chain would have read had been replaced by then")
    if found.unreported:
        who = (
            "1 call reported no usage, and counts"
            if found.unreported == 1
            else f"{found.unreported} calls reported no usage, and count"
        )
        lines.append(f"{who} in none of these")
    return tuple(line for line in lines if line)


def _against(found: Comparison, name: str) -> str:
    here, there = found.run.as_run.cost_usd, getattr(found.run, name).cost_usd
    if here is None or there is None:
        return ""
    if not here or here == there:
        return f"{_NAMES[name]} would have cost {'the same' if here == there else 'more: this run was free'}"
    what, sign = ("cheaper", "less") if there < here else ("dearer", "more")
    return f"{_NAMES[name]} would have been {what}: {abs(there - here) / here:.0%} {sign}"
