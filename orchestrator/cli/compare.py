"""`compare`: two runs, or two versions, beside each other: what went in, what was sent, what came out, what it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import StepRef, is_run, run_ref, step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, duration, excerpt, money, plural, show, tokens, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.cli.session import Desk
    from orchestrator.exchange.comparing import BlockChange, Numbers, RunComparison, StepComparison
    from orchestrator.exchange.diffing import Change
    from orchestrator.store import Store
    from orchestrator.values import Artifact, ArtifactVersion, RunRow

SOME: Final = 6  # lines of a value's changes that a comparison of whole runs shows for one step
_FORMS: Final = (
    "Write two runs, 12 13, or a step of each: 12/tech-stack@1 12/tech-stack@2, 12/tech-stack 13/tech-stack."
)


@command("compare")
@click.argument("old", metavar="RUN|RUN/STEP[@N]")
@click.argument("new", metavar="RUN|RUN/STEP[@N]")
def compare(state: State, old: str, new: str) -> int:
    """Show what two runs, or two versions, differ in: inputs, values, prompts, model, cost.

    A run that shares a version with the other is said to share it. Of a step's prompt, the blocks of its first request
    are compared. With two steps, the changed lines of each block are shown too.
    """
    from orchestrator.cli.session import drive, open_desk, reading

    if is_run(old) != is_run(new):
        raise UsageError("a run and a step cannot be compared", hint=_FORMS)
    desk = open_desk(state)

    async def main() -> None:
        async with reading(desk) as store:
            if is_run(old):
                await _runs(desk, store, run_ref(old), run_ref(new))
            else:
                await _versions(desk, store, step_ref(old), step_ref(new))

    drive(main)
    return 0


def _values(desk: Desk, *runs: RunRow) -> Callable[[RunRow, Artifact], Any]:
    """Bodies as values, each under the pipeline of its run as it is declared now."""
    from orchestrator.exchange.reading import value_of

    graphs = {run.id: desk.known_graph(run) for run in runs}
    return lambda run, artifact: value_of(artifact, graphs[run.id])


async def _runs(desk: Desk, store: Store, old: str, new: str) -> None:
    from orchestrator.exchange.gathering import compared_runs
    from orchestrator.trace.comparisons import runs_comparison

    before, after = await store.run(old), await store.run(new)
    found = await compared_runs(store, before, after, _values(desk, before, after))
    if desk.state.json:
        print_document(runs_comparison(found))
    else:
        _print_runs(desk.state, console(), found)


async def _versions(desk: Desk, store: Store, old: StepRef, new: StepRef) -> None:
    from orchestrator.exchange.gathering import block_texts, compared_versions
    from orchestrator.trace.comparisons import versions_comparison

    before, after = await _version(store, old), await _version(store, new)
    rows = await store.steps(after[0].id)
    kind = next(row.kind for row in rows if (row.name, row.item) == (new.step, None))
    found = await compared_versions(store, before, after, kind, _values(desk, before[0], after[0]))
    texts = await block_texts(store, found.prompt)
    if desk.state.json:
        print_document(versions_comparison(found, before[0], after[0], texts))
    else:
        _print_versions(console(), found, before, after, texts)


async def _version(store: Store, ref: StepRef) -> tuple[RunRow, ArtifactVersion]:
    run = await store.run(ref.run)
    return run, (await store.artifact(run.id, ref.step, ref.item, ref.version)).version


# --- two runs ---------------------------------------------------------------------------------------------------------


def _print_runs(state: State, out: Console, found: RunComparison) -> None:
    from rich.text import Text

    old, new = found.old.run, found.new.run
    show(out, Text.assemble((f"run {old.number} → run {new.number}", "bold"), f" · {_glance(found)}"))
    for line in _about(found):
        show(out, Text(f"  {line}", style="dim"))
    for title, all_of in (("inputs", found.inputs), ("steps", found.steps)):
        apart = [one for one in all_of if one.differs]
        if apart:
            show(out, f"  {title}")
        for one in apart:
            _print_step(out, one, most=SOME, indent=4)
            label = visible(one.label, one_line=True)
            if _lines(one) > SOME:
                more = state.command(f"compare {old.number}/{label} {new.number}/{label}")
                show(out, Text(f"all of it: {more}", style="dim"), indent=6)
    for word in ("shared", "equal"):
        names = [one.label for one in (*found.inputs, *found.steps) if one.artifact == word and not one.differs]
        if names:
            show(out, Text.assemble("  ", ("=", "green"), f" {word}: {visible(', '.join(names), one_line=True)}"))


def _glance(found: RunComparison) -> str:
    """All of it in one line: how much differs, how much is shared, and the money."""
    if found.differs:
        parts = [(sum(one.differs for one in all_of), len(all_of)) for all_of in (found.inputs, found.steps)]
        told = [
            f"{count} of {plural(of, noun)}"
            for (count, of), noun in zip(parts, ("input", "step"), strict=True)
            if count
        ]
        alone = sum(count for count, _ in parts) == 1
        values = sum(one.artifact in ("changed", "added", "removed") for one in (*found.inputs, *found.steps))
        words = [f"{' and '.join(told)} {'differs' if alone else 'differ'}", f"{plural(values, 'value')} changed"]
    else:
        words = ["no difference"]
    shared = found.counted("shared")
    old, new = found.old.total, found.new.total
    words += [f"{plural(shared, 'step')} shared"] if shared else []
    return " · ".join([*words, f"{_money(old)} → {_money(new)}"])


def _about(found: RunComparison) -> list[str]:
    """What the two are to each other, where it matters."""
    old, new = found.old.run, found.new.run
    lines = []
    if old.id == new.id:
        lines.append("one and the same run")
    elif new.parent_id == old.id or old.parent_id == new.id:
        child, parent = (new, old) if new.parent_id == old.id else (old, new)
        lines.append(f"run {child.number} was made from run {parent.number}: what is shared was not paid again")
    if old.pipeline != new.pipeline:
        lines.append(visible(f"two pipelines: {old.pipeline} and {new.pipeline}", one_line=True))
    if old.status != new.status:
        lines.append(f"{old.status} → {new.status}")
    return lines


# --- two versions -----------------------------------------------------------------------------------------------------


def _print_versions(
    out: Console,
    found: StepComparison,
    old: tuple[RunRow, ArtifactVersion],
    new: tuple[RunRow, ArtifactVersion],
    texts: Mapping[str, str],
) -> None:
    from rich.text import Text

    names = [visible(f"{run.number}/{version.label}@{version.version}", one_line=True) for run, version in (old, new)]
    show(out, Text.assemble((" → ".join(names), "bold"), f" · {', '.join(_apart(found)) or 'no difference'}"))
    for name, (_, version) in zip(names, (old, new), strict=True):
        by = visible(f"{name} by {version.author} ({version.origin})", one_line=True)
        show(out, Text(by, style="dim"), indent=2)
    _print_below(out, found, None, 2, texts)


def _apart(one: StepComparison) -> list[str]:
    """What differs, in single words."""
    words = {"changed": "another value", "equal": "the same value", "shared": "the very same version"}
    return [
        *([words[one.artifact]] if one.artifact in words else []),
        *([f"{plural(len(one.prompt), 'block')} of the prompt"] if one.prompt else []),
        *(["model"] if one.model else []),
    ]


# --- one step ---------------------------------------------------------------------------------------------------------


def _print_step(out: Console, one: StepComparison, *, most: int, indent: int) -> None:
    from rich.text import Text

    from orchestrator.cli.differences import MARKS

    kind = "added" if one.old is None else "removed" if one.new is None else one.artifact
    mark, style = MARKS.get(kind, ("~", "yellow"))
    head = Text.assemble((mark, style), " ", (visible(one.label, one_line=True), "bold"), f"  {_standing(one)}")
    show(out, head, indent=indent)
    _print_below(out, one, most, indent + 2, None)


def _standing(one: StepComparison) -> str:
    """`@1 → @2`, what came or went, and how it ended where that differs."""
    if one.old is None or one.new is None:
        return f"only in the {'new' if one.old is None else 'old'} run"
    words = {"equal": "the same value", "none": "no value in either"}
    versions = [f"@{half.version.version}" if half.version else "no value" for half in (one.old, one.new)]
    status = f" · {one.old.status} → {one.new.status}" if one.old.status != one.new.status else ""
    return (words.get(one.artifact) or " → ".join(versions)) + status


def _print_below(
    out: Console, one: StepComparison, most: int | None, indent: int, texts: Mapping[str, str] | None
) -> None:
    from orchestrator.cli.differences import print_changes

    if one.old is None or one.new is None:
        return
    took = _took(one.old.numbers, one.new.numbers)
    if took:
        show(out, f"took: {took}", indent=indent)
    if one.made_from:
        show(out, f"made from: {visible('; '.join(one.made_from), one_line=True)}", indent=indent)
    for change in one.model:
        show(out, f"{visible(change.path, one_line=True)}: {_told(change)}", indent=indent)
    if one.prompt:
        show(out, f"prompt: {_unchanged(one)}", indent=indent)
    for block in one.prompt:
        _print_block(out, block, indent + 2, texts)
    if one.artifact == "changed":
        show(out, "value:", indent=indent)
        print_changes(out, one.old.value, one.new.value, indent=indent + 2, most=most)


def _lines(one: StepComparison) -> int:
    from orchestrator.cli.differences import change_lines

    if one.artifact != "changed" or one.old is None or one.new is None:
        return 0
    return change_lines(one.old.value, one.new.value)


def _told(change: Change) -> str:
    old, new = ("–" if value is None else excerpt(str(value)) for value in (change.old, change.new))
    return f"{old} → {new}"


def _unchanged(one: StepComparison) -> str:
    assert one.new is not None
    blocks = sum(len(opening.blocks) for opening in one.new.openings)
    same = blocks - sum(block.new is not None for block in one.prompt)
    return f"{plural(same, 'block')} the same" if all(b.kind != "reordered" for b in one.prompt) else "another order"


def _print_block(out: Console, block: BlockChange, indent: int, texts: Mapping[str, str] | None) -> None:
    from rich.text import Text

    from orchestrator.cli.differences import MARKS, diff_line
    from orchestrator.trace.comparisons import block_diff

    if block.kind == "reordered":
        return
    mark, style = MARKS[block.kind]
    sizes = " → ".join(dict.fromkeys(tokens(one.tokens) for one in (block.old, block.new) if one is not None))
    where = "" if block.thread == "main" else f" on {block.thread}"
    size = "" if block.layer == "system" else f" · {sizes} tokens"
    name = visible(block.source, one_line=True)
    show(out, Text.assemble((mark, style), " ", (name, "bold"), f"  {block.layer}{where}{size}"), indent=indent)
    for line in block_diff(block, texts) if texts is not None else ():
        show(out, diff_line(line), indent=indent + 4)


def _took(old: Numbers, new: Numbers) -> str:
    """What differs of calls, tokens and cost; the time, which always does, only beside those."""
    pairs: Sequence[tuple[str, str, str]] = (
        ("calls", str(old.calls), str(new.calls)),
        ("re-asks", str(old.reasks), str(new.reasks)),
        ("tokens in", tokens(old.usage.input_tokens), tokens(new.usage.input_tokens)),
        ("out", tokens(old.usage.output_tokens), tokens(new.usage.output_tokens)),
        ("cost", _money(old), _money(new)),
    )
    apart = [f"{word} {was} → {now}" for word, was, now in pairs if was != now]
    times = duration(old.seconds), duration(new.seconds)
    return " · ".join([*apart, *([f"time {times[0]} → {times[1]}"] if apart and times[0] != times[1] else [])])


def _money(numbers: Numbers) -> str:
    cost = numbers.cost_usd if numbers.calls else Decimal(0)
    return money(cost, partial=numbers.cost_partial and cost is not None)
