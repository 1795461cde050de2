"""`bench`: one step again and again on a run's inputs, as it is and made differently, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command, plain_text, tape_options
from orchestrator.cli.refs import run_ref, step_ref
from orchestrator.cli.run import confirm, events_option, money_option
from orchestrator.cli.terminal import console, duration, excerpt, money, plural, show, show_line, spent, tokens, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.building.variants import Variation
    from orchestrator.cli.session import Desk
    from orchestrator.exchange.benching import Benched, Sample, Together, Variant
    from orchestrator.store import Store
    from orchestrator.values import RunRow

_COLUMN: Final = 40  # characters of a variant
_PLACES: Final = 3


@command("bench")
@click.argument("reference", metavar="RUN/STEP|BENCH")
@click.option("--n", "samples", type=click.IntRange(1, 200), default=5, show_default=True, help="Samples per variant.")
@click.option("--template", metavar="FILE", help="Try this template beside the step's own.")
@click.option("--prompt", metavar="FILE|-", help="Try the text of this file as the task; - reads stdin.")
@click.option("--model", metavar="ALIAS|PROVIDER:MODEL", help="Try this model.")
@click.option("--cap", metavar="USD", help="The most this bench may cost; default: the pipeline's budget.")
@click.option("--with-effects", is_flag=True, help="Run a step whose tools or Python may act on the world.")
@click.option("--promote", metavar="SAMPLE", help="Of a BENCH: make this sample the run's new version, as b-2.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before the first paid call.")
@tape_options
@events_option
def bench(
    state: State,
    reference: str,
    samples: int,
    template: str | None,
    prompt: str | None,
    model: str | None,
    cap: str | None,
    with_effects: bool,
    promote: str | None,
    yes: bool,
) -> int:
    """Run one step several times on a run's inputs, and compare what comes out.

    The step reads the very versions that the run's own version was made from; the run is not touched. With --template,
    --prompt or --model, variant a is the step as it is and b what is tried. BENCH is a bench's number: shown again.
    """
    for option, value in (("--template", template), ("--model", model), ("--promote", promote)):
        plain_text(option, value)
    if "/" not in reference:
        _only_looking(template, prompt, model, cap)
        return _show(state, reference) if promote is None else _promote(state, reference, promote)
    if promote is not None:
        hint = f"Look at the samples first: {state.command(f'bench {reference}')} prints the command that takes one."
        raise UsageError("--promote takes a sample of a bench", hint=hint)
    variation = _variation(template, prompt, model)
    return _make(state, reference, samples, variation, money_option("--cap", cap), with_effects, ask=not yes)


def _only_looking(*options: str | None) -> None:
    if any(option is not None for option in options):
        raise UsageError("a bench that is made already takes no options", hint="Write RUN/STEP to make a new one.")


def _variation(template: str | None, prompt: str | None, model: str | None) -> Variation:
    from orchestrator.building.variants import Variation
    from orchestrator.cli.edit import decoded
    from orchestrator.cli.inputs import read_bytes

    if prompt is None:
        return Variation(template, None, model)
    text = decoded(read_bytes(prompt), prompt)
    if not text.strip():
        raise UsageError(f"{prompt} is empty", hint="Write the task into it.")
    return Variation(template, ("stdin" if prompt == "-" else Path(prompt).name, text), model)


# --- making one -------------------------------------------------------------------------------------------------------


def _make(
    state: State, reference: str, samples: int, variation: Variation, cap: Decimal | None, effects: bool, *, ask: bool
) -> int:
    from orchestrator.bench import cap_of, look, plan_bench, prepare, run_bench
    from orchestrator.cli.progress import Progress
    from orchestrator.cli.report import EventLines
    from orchestrator.cli.session import drive, find_run, open_desk, services
    from orchestrator.exchange.reading import value_of
    from orchestrator.loading import load_pipeline
    from orchestrator.preconditions import known_step

    ref = step_ref(reference)
    if ref.item is not None:
        raise UsageError("a bench is of a whole step", hint=f"Write {ref.run}/{ref.step}.")
    if ref.version is not None:
        raise UsageError("a bench starts from the current version", hint=f"Leave out @{ref.version}.")
    desk = open_desk(state)
    run = find_run(desk, ref.run)
    graph = desk.graph_of(run, require_model=variation.model is None)
    ref = replace(ref, step=known_step(graph, ref.step).name)
    loaded = load_pipeline(desk.project, desk.project.root / graph.file)
    names = [f"{ref.step}/{variant}-{number}" for variant in "ab" for number in range(1, samples + 1)]
    progress = Progress(state, names[: samples * (2 if variation else 1)])
    lines = [EventLines()] if state.jsonl else []

    async def main() -> Benched:
        async with services(desk, lambda event: _all(event, [progress, *lines])) as opened:
            prepared = await prepare(opened, loaded, graph, run, ref.step, variation or None, with_effects=effects)
            confirm(state, plan_bench(opened, prepared, samples), cap_of(prepared, cap), ask=ask)
            with progress:
                made = await run_bench(opened, prepared, samples, cap)
            return await look(opened.store, made, lambda artifact: value_of(artifact, graph))

    benched = drive(main, on_stop=progress.stop_asked)
    return report(state, benched)


def _all(event: Any, listeners: Sequence[Any]) -> None:
    for listener in listeners:
        listener(event)


# --- one that is made -------------------------------------------------------------------------------------------------


def _show(state: State, reference: str) -> int:
    from orchestrator.cli.session import drive, open_desk, reading

    desk = open_desk(state)

    async def main() -> Benched:
        async with reading(desk) as store:
            return await benched_of(desk, store, await store.run(run_ref(reference)))

    return report(state, drive(main))


async def benched_of(desk: Desk, store: Store, run: RunRow) -> Benched:
    """What a bench came to, its values read as the pipeline says now."""
    from orchestrator.bench import look
    from orchestrator.exchange.reading import value_of

    graph = desk.known_graph(run)
    return await look(store, run, lambda artifact: value_of(artifact, graph))


def _promote(state: State, reference: str, sample: str) -> int:
    from orchestrator.bench import promote
    from orchestrator.cli.edit import Job
    from orchestrator.cli.session import drive, find_run, open_desk, services

    desk = open_desk(state)
    found = find_run(desk, run_ref(reference))
    if found.kind != "bench":
        hint = f"{state.command(f'bench {found.number}/STEP')} makes one."
        raise UsageError(f"run {found.number} is no bench", hint=hint)
    graph = desk.graph_of(found)

    async def main() -> None:
        async with services(desk) as opened:
            done = await promote(opened, graph, found, sample)
            old = await opened.store.artifact(done.run.id, done.old.step, None, done.old.version)
            await Job(desk, opened, graph, done.run, old).report(done.new)

    drive(main)
    return 0


# --- the comparison ---------------------------------------------------------------------------------------------------


def report(state: State, benched: Benched) -> int:
    """The comparison, for people or as its document; the exit code."""
    from orchestrator.cli.report import print_document
    from orchestrator.trace.benches import bench_document

    if state.json:
        print_document(bench_document(benched))
    else:
        _print(state, benched)
    return benched.run.error.exit_code if benched.run.error is not None else 0


def _print(state: State, benched: Benched) -> None:
    from rich.text import Text

    out, run, sums = console(), benched.run, benched.sums()
    title = f"{run.parent_number}/{benched.step}{f'@{benched.base.version}' if benched.base else ''}"
    costs = [total.cost_usd for total in sums if total.cost_usd is not None]
    partial = any(total.cost_partial for total in sums)
    parts = [title, run.status, spent(sum(costs, Decimal(0)) if costs else None, partial)]
    show(out, Text.assemble((f"bench {run.number}", "bold"), f" · {visible(' · '.join(parts), one_line=True)}"))
    _print_sums(out, benched, sums)
    show(out, "")
    for sample in benched.samples:
        _print_sample(out, benched, sample)
    _print_differences(out, benched)
    if run.error is not None:
        show(out, Text(f"  {visible(run.error.message)}", style="red"))
        show(out, f"  hint: {visible(run.error.hint or '')}")
    for hint in _next(state, benched):
        show(out, Text(f"  {hint}", style="dim"))


def _print_sums(out: Console, benched: Benched, sums: Sequence[Together]) -> None:
    """One column for each variant, one line for each figure."""
    from rich.text import Text

    version = f"same as @{benched.base.version}" if benched.base else "same as the run's"
    names = [
        "",
        "model",
        "checks passed",
        "re-asks",
        "distinct values",
        *([version] if benched.base else []),
        "tokens per sample",
        "cost per sample",
        "seconds per sample",
    ]
    columns = [_column(v, t, benched) for v, t in zip(benched.variants, sums, strict=True)]
    widths = [max(len(cell) for cell in column) for column in columns]
    width = max(len(name) for name in names)
    for at, name in enumerate(names):
        cells = "   ".join(f"{column[at]:<{size}}" for column, size in zip(columns, widths, strict=True))
        show_line(out, Text(f"  {name:<{width}}   {cells}".rstrip(), style="bold" if at == 0 else ""))
    for variant in benched.variants:
        against = "a" if variant.name != "a" else f"the run's version @{benched.base.version}" if benched.base else ""
        for change in variant.changes:
            line = f"{variant.name} against {against}: {visible(change, one_line=True)}"
            show(out, Text(f"  {line}", style="dim"))


def _column(variant: Variant, total: Together, benched: Benched) -> list[str]:
    ended = max(total.ended, 1)
    usage, cost = total.usage, total.cost_usd
    each = None if cost is None else cost / ended
    at_once = f" ({total.at_once} at once)" if total.passed else ""
    return [
        excerpt(f"{variant.name}  {variant.task or 'as it is'}", _COLUMN),
        excerpt(variant.model or "–", _COLUMN),
        f"{total.passed} of {total.samples}{at_once}",
        str(total.reasks),
        str(total.distinct),
        *([str(total.same)] if benched.base else []),
        f"{tokens(usage.input_tokens // ended)}→{tokens(usage.output_tokens // ended)}",
        money(each, partial=total.cost_partial),
        duration(total.seconds / ended),
    ]


def _print_sample(out: Console, benched: Benched, sample: Sample) -> None:
    from rich.text import Text

    from orchestrator.cli.lines import MARKS

    mark, style = MARKS.get(sample.status, ("·", ""))
    text = Text.assemble("  ", (mark, style), f" {sample.name}  {_came_to(benched, sample)}")
    show_line(out, text)
    for fault in sample.faults:
        show(out, Text(f"sent back: {visible(fault, one_line=True)}", style="dim"), indent=6)
    if sample.error is not None:
        show(out, Text(visible(sample.error.message, one_line=True), style="red"), indent=6)


def _came_to(benched: Benched, sample: Sample) -> str:
    """What became of a sample, in a few words."""
    if not sample.passed:
        return sample.status if sample.ended else "not made"
    if benched.base is None:
        return _excerpt(sample.value)
    found = benched.changed(sample)
    if not found:
        return f"same as @{benched.base.version}"
    if isinstance(sample.value, str) and isinstance(benched.base_value, str):
        return _lines(benched.base_value, sample.value)
    places = ", ".join(visible(change.path, one_line=True) for change in found[:_PLACES])
    more = f", and {len(found) - _PLACES} more" if len(found) > _PLACES else ""
    return f"{plural(len(found), 'difference')}: {places}{more}"


def _lines(old: str, new: str) -> str:
    from orchestrator.exchange.diffing import text_diff

    marks = [line[:1] for line in text_diff(old, new)]
    return f"{plural(marks.count('+'), 'line')} added, {marks.count('-')} removed"


def _print_differences(out: Console, benched: Benched) -> None:
    """Where samples differ, with what they have there: the most frequent value of each variant first."""
    from rich.text import Text

    found = [one for one in benched.differences() if not _is_long(one.base)]
    if not found or isinstance(benched.base_value, str):
        return
    show(out, "")
    show(out, Text("  where they differ", style="bold"))
    for one in found[:20]:
        base = f"  @{benched.base.version} {_excerpt(one.base)}" if benched.base else ""
        show_line(out, Text(f"  {visible(one.path, one_line=True)}{base}"))
        for variant, counted in one.values.items():
            told = " · ".join(f"{_excerpt(value)} ×{count}" for value, count in counted[:4])
            more = f" · and {len(counted) - 4} more" if len(counted) > 4 else ""
            show_line(out, Text(f"    {variant}  {told}{more}"))
    if len(found) > 20:
        show(out, Text(f"  and {len(found) - 20} places more: --json has them all", style="dim"))


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and value.count("\n") > 2


def _excerpt(value: Any) -> str:
    from orchestrator.exchange.benching import Mark

    if isinstance(value, Mark):
        return value.text
    return excerpt(json.dumps(value, ensure_ascii=False), 60)


def _next(state: State, benched: Benched) -> list[str]:
    """The commands that go on from here: see one, take one."""
    chosen = next((s for s in reversed(benched.samples) if s.passed and benched.changed(s)), None)
    name = f"{benched.run.number}/{benched.step}"
    if chosen is None:
        seen = next(iter(benched.samples), None)
        return [state.command(f"why {name}/{seen.name}")] if seen is not None else []
    compared = f"{benched.run.parent_number}/{benched.step} {name}/{chosen.name}"
    return [
        state.command(f"diff {compared}"),
        state.command(f"why {name}/{chosen.name}"),
        state.command(f"bench {benched.run.number} --promote {chosen.name}"),
    ]
