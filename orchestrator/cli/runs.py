"""`runs`: which runs there are, and what is done with a whole run: cancel it, tag it, remove it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click

from orchestrator.cli.lines import MARKS, name_width
from orchestrator.cli.options import State, group
from orchestrator.cli.refs import run_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, excerpt, money, plural, show, visible
from orchestrator.errors import UsageError
from orchestrator.ids import is_name
from orchestrator.values import RunStatus

if TYPE_CHECKING:
    from orchestrator.store import Store
    from orchestrator.store.listing_runs import Wanted
    from orchestrator.store.records import RunGlance, RunMark
    from orchestrator.values import RunRow

F = TypeVar("F", bound=Callable[..., Any])
REMOVED: Final = "orch.removed/1"
_FILTERS: Final = (
    click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most."),
    click.option("--pipeline", default="", metavar="NAME", help="Only runs of this pipeline."),
    click.option("--tag", default="", metavar="TAG", help="Only runs with this tag."),
    click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs that stand so."),
    click.option("--all", "benches", is_flag=True, help="Benches too."),
)


def _filters(function: F) -> F:
    for option in _FILTERS:
        function = option(function)
    return function


# --- ls ---------------------------------------------------------------------------------------------------------------


@group("runs")
@_filters
def runs(state: State, limit: int, pipeline: str, tag: str, status: str | None, benches: bool) -> int:
    """List the runs of this project; or cancel, tag or remove some.

    Newest first, with what each has cost and what of it waits for you. `orch runs` is short for `orch runs ls`.
    """
    invoked = click.get_current_context().invoked_subcommand
    return 0 if invoked else _list(state, limit, pipeline, tag, status, benches)


@runs.command("ls")
@_filters
def ls(state: State, limit: int, pipeline: str, tag: str, status: str | None, benches: bool) -> int:
    """List the runs of this project, newest first."""
    return _list(state, limit, pipeline, tag, status, benches)


def _list(state: State, limit: int, pipeline: str, tag: str, status: str | None, benches: bool) -> int:
    from orchestrator.cli.session import NoRuns, drive, open_desk, reading
    from orchestrator.store.listing_runs import Wanted
    from orchestrator.trace.documents import runs_document

    desk = open_desk(state)
    wanted = Wanted(status or "", pipeline, tag, limit, benches)

    async def main() -> tuple[RunGlance, ...]:
        async with reading(desk) as store:
            return await store.glances(wanted)

    found: tuple[RunGlance, ...] = ()
    with contextlib.suppress(NoRuns):
        found = drive(main)
    if state.json:
        print_document(runs_document(found))
    else:
        _print_runs(state, found, wanted)
    return 0


def _print_runs(state: State, found: Sequence[RunGlance], wanted: Wanted) -> None:
    from rich.text import Text

    out = console()
    if not found and (wanted.status or wanted.pipeline or wanted.tag):
        show(out, "no run is like that")
    elif not found:
        show(out, f"no runs yet: {state.command('run')} makes the first one")
    width = max((len(str(one.run.number)) for one in found), default=0)
    names = name_width([one.run.pipeline for one in found])
    for one in found:
        run = one.run
        mark, style = MARKS.get(run.status, ("·", ""))
        cost = money(one.cost_usd, partial=one.cost_partial and one.cost_usd is not None)
        line = (
            f" {run.number:>{width}}  {excerpt(run.pipeline, 32):<{names}}  {run.status:<9}  {_moment(run)}  {cost:<8}"
        )
        show(out, Text.assemble("  ", (mark, style), line.rstrip(), (_beside(one), "dim")))
    if len(found) == wanted.limit:
        show(out, Text(f"  the newest {plural(wanted.limit, 'run')}; --limit shows more", style="dim"))


def _beside(one: RunGlance) -> str:
    """Where the run came from, what waits, its tags, what stopped it."""
    run = one.run
    parts = [
        f"{'bench of' if run.kind == 'bench' else 'from'} {run.parent_number}" if run.parent_number is not None else "",
        f"waits: {visible(', '.join(one.waiting), one_line=True)}" if one.waiting else "",
        " ".join(f"[{tag}]" for tag in run.tags),
        excerpt(run.error.message, 100) if run.error else "",
    ]
    return "".join(f"  {part}" for part in parts if part)


def _moment(run: RunRow) -> str:
    return run.created_at.astimezone().strftime("%Y-%m-%d %H:%M")


# --- cancel -----------------------------------------------------------------------------------------------------------


@runs.command("cancel")
@click.argument("reference", metavar="RUN")
def cancel(state: State, reference: str) -> int:
    """Stop a run, wherever it is worked on.

    What is finished stays. A step that was under way is given up, also one that waits for you; orch resume begins it
    anew. The process that works on the run stops within ten seconds, and what it still gets is not taken.
    """
    from orchestrator.cli.session import drive, open_desk, reading
    from orchestrator.trace.documents import cancelled_document

    desk = open_desk(state)

    async def main() -> tuple[RunRow, tuple[str, ...]]:
        async with reading(desk) as store:
            run = await store.run(run_ref(reference))
            stopped = await store.cancel_run(run.id, desk.settings.user)
            return await store.run(run.id), stopped

    run, stopped = drive(main)
    if state.json:
        print_document(cancelled_document(run, stopped))
        return 0
    out = console()
    what = f"given up: {visible(', '.join(stopped), one_line=True)}" if stopped else "no step was under way"
    show(out, f"run {run.number} is cancelled; {what}")
    show(out, f"  {state.command(f'resume {run.number}')}")
    return 0


# --- tag --------------------------------------------------------------------------------------------------------------


@runs.command("tag")
@click.argument("reference", metavar="RUN")
@click.argument("names", metavar="[TAG…]", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag off; may be given more than once.")
def tag(state: State, reference: str, names: tuple[str, ...], remove: tuple[str, ...]) -> int:
    """Put tags on a run, or take them off.

    A tagged run is kept whatever `orch db gc --keep` removes, and `orch runs --tag` finds it. Without a tag, shows what
    the run has.
    """
    from orchestrator.cli.session import drive, open_desk, reading
    from orchestrator.trace.documents import tags_document

    for name in (*names, *remove):
        if not is_name(name):
            raise UsageError(f'"{name}" cannot be a tag', hint="A tag is of a-z, 0-9, - _ and ., 64 at most.")
    desk = open_desk(state)

    async def main() -> RunRow:
        async with reading(desk) as store:
            run = await store.run(run_ref(reference))
            if names or remove:
                await store.tag_run(run.id, names, remove)
            return await store.run(run.id)

    run = drive(main)
    if state.json:
        print_document(tags_document(run))
    else:
        show(console(), f"run {run.number}: {', '.join(run.tags) or 'no tags'}")
    return 0


# --- rm ---------------------------------------------------------------------------------------------------------------


@runs.command("rm")
@click.argument("references", metavar="RUN…", nargs=-1, required=True)
@click.option("--with-children", is_flag=True, help="Also every run that was made from one of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(state: State, references: tuple[str, ...], with_children: bool, yes: bool) -> int:
    """Remove runs with all that is only theirs.

    A run that another one was made from is needed by it and refused, unless --with-children removes that one too. A
    run that is worked on is refused. The texts themselves go with the next orch db gc.
    """
    from orchestrator.cli.session import drive, open_desk, reading

    desk = open_desk(state)
    wanted = [run_ref(reference) for reference in references]

    async def look() -> tuple[RunMark, ...]:
        async with reading(desk) as store:
            return await _chosen(store, wanted, with_children)

    chosen = drive(look)
    confirm_removal(state, chosen, yes)

    async def main() -> None:
        async with reading(desk) as store:
            for mark in chosen:
                await store.remove_run(mark.id)

    drive(main)
    if state.json:
        print_document({"schema": REMOVED, "removed": [mark.number for mark in chosen]})
    else:
        show(console(), f"removed: {named(chosen)}; {state.command('db gc')} removes the texts that nothing refers to")
    return 0


async def _chosen(store: Store, references: Sequence[str], with_children: bool) -> tuple[RunMark, ...]:
    """What is to go, in an order in which it can. Raises UsageError for a run that one that stays needs."""
    from orchestrator.retention import in_order, needing

    marks = {mark.id: mark for mark in await store.run_marks()}
    needs = await store.run_needs()
    asked = {(await store.run(reference)).id for reference in references}
    others = needing(asked, needs)
    if others and not with_children:
        numbers = sorted(marks[one].number for one in others)
        raise UsageError(
            f"needed by {named([marks[one] for one in others])}: {'it was' if len(numbers) == 1 else 'they were'}"
            " made from what would be removed",
            hint="Remove them too: --with-children.",
            code="run_needed",
        )
    return in_order([marks[one] for one in asked | others], needs)


def named(marks: Sequence[RunMark]) -> str:
    """`run 3`, `runs 3–5 and 7`: numbers in order, neighbours drawn together."""
    numbers = sorted(mark.number for mark in marks)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    words = [word for span in spans for word in ([f"{span[0]}–{span[-1]}"] if len(span) > 2 else map(str, span))]
    listed = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
    return f"run{'s' if len(numbers) > 1 else ''} {listed}"


def confirm_removal(state: State, marks: Sequence[RunMark], yes: bool, question: str = "") -> None:
    """Ask before runs go for good. Raises UsageError where nobody can answer, Abort for a no."""
    from orchestrator.cli.session import plain_interrupts

    if yes or not marks:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{named(marks)} would be removed for good", hint="Say so: --yes.", code="unconfirmed")
    with plain_interrupts():
        asked = question or f"Remove {named(marks)} for good?"
        if not click.confirm(asked, default=False, err=True):
            raise UsageError("nothing was removed", hint="The runs are as they were.", code="unconfirmed")
