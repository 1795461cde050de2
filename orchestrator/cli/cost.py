"""`cost`: what calls have cost, by step, model, day or run; and what a run would have cost if it had been asked
otherwise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import run_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, excerpt, money, plural, show, tokens, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.store.costs import Bill, By, Unexplained
    from orchestrator.trace.chaining import Comparison
    from orchestrator.values import RunRow

_BY: Final = ("step", "model", "day", "run")
_FEW: Final = 5  # of the calls that something is told about
_WAYS: Final = (("as run", "as_run"), ("as one chain", "one_chain"), ("as whole history", "whole_history"))


@command("cost")
@click.argument("words", metavar="[compare] [RUN]", nargs=-1)
@click.option("--by", type=click.Choice(_BY), help="What is added up; default: step for a run, run for all.")
@click.option("--since", metavar="DAY", help="Only calls sent on this UTC day or later: 2026-11-30.")
@click.option("--until", metavar="DAY", help="Only calls sent on this UTC day or earlier.")
def cost(state: State, words: tuple[str, ...], by: By | None, since: str | None, until: str | None) -> int:
    """Show what calls have cost: of RUN, or of all runs; by step, model, day or run.

    `orch cost compare RUN` says what the run would have cost as one chain through all steps, and with its whole history
    in each request, computed from the usage that was recorded.
    """
    comparing = words[:1] == ("compare",)
    rest = words[1:] if comparing else words
    if len(rest) > 1:
        raise UsageError(f"cost takes one run, not {len(rest)}", hint="orch cost 12, or orch cost compare 12")
    if not comparing:
        return _bills(state, rest[0] if rest else None, by, _day(since, "--since"), _day(until, "--until", end=True))
    if by or since or until:
        raise UsageError("cost compare is about one whole run", hint="leave out --by, --since and --until")
    return _compare(state, rest[0] if rest else "last")


def _day(text: str | None, option: str, *, end: bool = False) -> datetime | None:
    """The beginning of a UTC day, or its end."""
    from datetime import timedelta

    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise UsageError(f"{option} is no day: {text}", hint="write it like 2026-11-30") from error
    return day + timedelta(days=1) if end else day


def _bills(state: State, reference: str | None, by: By | None, since: datetime | None, until: datetime | None) -> int:
    from orchestrator.cli.session import drive, open_desk, reading
    from orchestrator.trace.costs import cost_document

    desk = open_desk(state)
    chosen: By = by or ("step" if reference is not None else "run")

    async def main() -> tuple[RunRow | None, tuple[Bill, ...], tuple[Unexplained, ...]]:
        async with reading(desk) as store:
            run = await store.run(run_ref(reference)) if reference is not None else None
            of = run.id if run else None
            bills = await store.bills(chosen, of, since, until)
            return run, bills, await store.unexplained(of, since, until)

    run, bills, unexplained = drive(main)
    document = cost_document(chosen, run, bills, unexplained)
    if state.json:
        print_document(document)
        return 0
    _print_bills(run, bills, document["total"])
    _print_unexplained(unexplained)
    return 0


def _print_unexplained(found: tuple[Unexplained, ...]) -> None:
    from rich.text import Text

    from orchestrator.unexplained import said

    out = console()
    for one in found[:_FEW]:
        where = f"{one.run}/{one.step}"
        line = f"  ! {where}: {said(one.told)}; `orch why {where} --text` prints what was sent"
        show(out, Text(visible(line, one_line=True), style="yellow"))
    if len(found) > _FEW:
        more = plural(len(found) - _FEW, "call")
        show(out, Text(f"  ! {more} more with input that was not sent: --json lists them", style="yellow"))


def _print_bills(run: RunRow | None, bills: tuple[Bill, ...], total: dict[str, Any]) -> None:
    from decimal import Decimal

    from rich.text import Text

    out = console()
    known = None if total["cost_usd"] is None else Decimal(total["cost_usd"])
    spent = money(known, partial=total["cost_partial"])
    whose = f"run {run.number} · {run.pipeline}" if run is not None else "all runs"
    show(out, Text(visible(f"{whose} · {plural(total['calls'], 'call')} · {spent}", one_line=True), style="bold"))
    width = max((len(excerpt(bill.key, 40)) for bill in bills), default=0)
    for bill in bills:
        used = bill.usage
        cached = f" ({tokens(used.cached_tokens)} cached)" if used.cached_tokens else ""
        size = f"{tokens(used.input_tokens)}→{tokens(used.output_tokens)}{cached}"
        line = f"  {excerpt(bill.key, 40):<{width}}  {plural(bill.calls, 'call'):<9}  {size:<26}  "
        show(out, Text(f"{line}{money(bill.cost_usd, partial=bill.unknown > 0 or bill.lost_usd > 0)}"))
    for key, why in (
        ("lost_usd", "more is counted against the caps for tries that failed and may have been billed"),
        ("held_usd", "is held for calls that have not been answered"),
    ):
        if Decimal(total[key]):
            show(out, Text(f"  {money(Decimal(total[key]))} {why}", style="dim"))
    if total["estimated_calls"]:
        of = plural(total["estimated_calls"], "call")
        show(out, Text(f"  the tokens of {of} given up in mid-stream are an estimate", style="dim"))
    if not bills:
        show(out, Text("  no call was made", style="dim"))


def _compare(state: State, reference: str) -> int:
    from orchestrator.cli.session import drive, open_desk, reading
    from orchestrator.trace.chaining import compare
    from orchestrator.trace.costs import compare_document

    desk = open_desk(state)

    async def main() -> tuple[RunRow, Comparison]:
        async with reading(desk) as store:
            run = await store.run(run_ref(reference))
            return run, compare(await store.recorded_calls(run.id))

    run, found = drive(main)
    if state.json:
        print_document(compare_document(run, found))
    else:
        _print_comparison(run, found)
    return 0


def _print_comparison(run: RunRow, found: Comparison) -> None:
    from rich.text import Text

    from orchestrator.trace.costs import said

    out = console()
    show(out, Text(visible(f"run {run.number} · {run.pipeline}", one_line=True), style="bold"))
    for label, name in _WAYS:
        way = getattr(found.run, name)
        size = f"{tokens(way.input_tokens)} in, {tokens(way.cached_tokens)} of it cached"
        show(out, Text(f"  {label:<16}  {size:<34}  {money(way.cost_usd, partial=way.partial)}"))
    for line in said(found):
        show(out, Text(f"  {line}"))
    if not found.steps:
        show(out, Text("  no call was made", style="dim"))
        return
    width = max(len(excerpt(step.name, 32)) for step in found.steps)
    show(out, Text(f"  {'':<{width}}  {'as run':>10}  {'one chain':>10}  {'history':>10}", style="dim"))
    for step in found.steps:
        prices = "  ".join(f"{money(getattr(step, name).cost_usd):>10}" for _, name in _WAYS)
        show(out, Text(f"  {excerpt(step.name, 32):<{width}}  {prices}"))
