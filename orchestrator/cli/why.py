"""`why`: what a step's model saw, block by block, and what it did not see."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import StepRef, step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, excerpt, money, show, tokens, visible
from orchestrator.errors import OrchError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.store import Store
    from orchestrator.store.records import Journal
    from orchestrator.values import RunRow, StepRow


@command("why")
@click.argument("reference", metavar="RUN/STEP[/ITEM]")
@click.option("--text", is_flag=True, help="Print the exact text of every request.")
@click.option("--tool", metavar="CALL_ID", help="Print all that a tool gave, also what the model was not told.")
def why(state: State, reference: str, text: bool, tool: str | None) -> int:
    """Explain what a step's model saw, and what it did not see.

    Every block with the rule that chose it, its guards and tokens; every candidate left out, with the reason.
    """
    from orchestrator.cli.session import drive, open_desk, reading, within
    from orchestrator.trace.why import request_text, tool_text, why_document

    desk, named = open_desk(state), step_ref(reference)

    async def main() -> tuple[RunRow, Journal, dict[str, Any]]:
        async with reading(desk) as store:
            run = await store.run(named.run)
            ref = within(desk, run, named)
            steps = await store.steps(run.id)
            journal = await _journal(store, run, steps, ref)
            if ref.version is not None:
                await store.artifact(run.id, ref.step, ref.item, ref.version)
            told = await store.unexplained_of(journal.attempt.id)
            output, earlier = await _output(store, run, ref), _before(steps, ref)
            return run, journal, why_document(journal, ref.step, ref.item, output, earlier, told)

    run, journal, document = drive(main)
    whole = tool_text(journal.tools, tool) if tool is not None else None
    if tool is not None and whole is None:
        known = ", ".join(row.tool_call.call_id for row in journal.tools if row.output is not None) or "none"
        raise UsageError(f"no tool call {tool} has an answer in this attempt", hint=f"Those that have: {known}.")
    if state.json:
        more = {"text": request_text(journal.threads)} if text else {}
        print_document({**document, **more, **({"tool": whole} if whole is not None else {})})
    elif whole is not None:
        show(console(), visible(whole))
    elif text:
        show(console(), visible(request_text(journal.threads)))
    else:
        if document["state"] == "running" and run.status != "running":
            document = {**document, "state": "interrupted"}
        _print(console(), document, run.number)
    return 0


def _before(steps: Sequence[StepRow], ref: StepRef) -> list[str]:
    """The inputs and steps that stand before this one in the run."""
    own = next((row.order for row in steps if row.name == ref.step), 0)
    return [row.name for row in steps if row.order < own and row.item is None]


async def _journal(store: Store, run: RunRow, steps: Sequence[StepRow], ref: StepRef) -> Journal:
    """The newest attempt of the step; for an artifact shared from a parent run, the attempt that made it there."""
    found = {step.label: step for step in steps}
    step = found.get(ref.label)
    if step is None:
        known = ", ".join(name for name, row in found.items() if row.kind != "input" and row.item is None)
        raise UsageError(f'run {run.number} has no step "{ref.label}"', hint=f"Its steps: {known}.")
    if step.kind == "input":
        hint = f"orch show {run.number}/{ref.step} prints it."
        raise UsageError(f'"{ref.step}" is an input: nothing was asked for it', hint=hint)
    attempts = await store.attempts(run.id, ref.step, ref.item)
    if not attempts and step.head is not None:
        attempts = await store.attempts(step.head.run_id, ref.step, ref.item)
    if not attempts:
        raise UsageError(
            f'"{ref.label}" has not started in run {run.number}', hint=f"orch plan {run.number} says what will run."
        )
    return await _of_its_bench(store, run, ref, await store.journal(attempts[-1].id))


async def _of_its_bench(store: Store, run: RunRow, ref: StepRef, journal: Journal) -> Journal:
    """For a version that was promoted, what its sample saw; the run's own attempt only holds what it was made from."""
    told = [event for event in await store.events(run.id) if event.kind == "step.promoted" and event.step == ref.step]
    if journal.threads or ref.item or not told or told[-1].attempt != journal.attempt.number:
        return journal
    with contextlib.suppress(OrchError):  # the bench may have been removed since
        bench = await store.run(told[-1].data["bench"])
        return await store.journal((await store.attempts(bench.id, ref.step, told[-1].data["sample"]))[-1].id)
    return journal


async def _output(store: Store, run: RunRow, ref: StepRef) -> str | None:
    """The newest text the step itself made, in which its blocks are looked for; an edit is a person's use."""
    made = [v for v in await store.versions(run.id, ref.step, ref.item) if v.origin in ("model", "function")]
    if not made:
        return None
    newest = max(made, key=lambda version: version.version)
    return (await store.artifact(run.id, ref.step, ref.item, newest.version)).body.decode("utf-8", errors="replace")


def _print(out: Console, document: dict[str, Any], number: int) -> None:
    from rich.text import Text

    calls = [call for thread in document["threads"] for call in thread["calls"]]
    first = [thread["calls"][0] for thread in document["threads"] if thread["calls"]]
    reported = sum(call["input_tokens"] or 0 for call in first if not call["usage_estimated"])
    numbers = f"{tokens(document['estimate_tokens'])} tokens estimated"
    if reported:
        numbers += f", {tokens(reported)} by the provider"
    title = f"{number}/{document['step']}{'/' + document['item'] if document['item'] else ''}"
    how = {"follow_up": " · follow-up", "fresh": " · redone", "repeat": f" · visit {document['round'] + 1}"}
    state = f" · attempt {document['attempt']}{how.get(document['mode'], '')} · {document['state']} · "
    show(out, Text.assemble((title, "bold"), state, numbers if calls else "no model was called"))
    for thread in document["threads"]:
        _print_thread(out, thread)
    names = [thread["name"] for thread in document["threads"]]
    for name in dict.fromkeys(names):
        where = f" on {visible(name, one_line=True)}" if len(names) > 1 else ""
        blocks = [block for block in document["blocks"] if block["thread"] == name]
        before = [block for block in blocks if block["continued"]]
        _print_blocks(out, f"  sent before{where}, in the thread that this one goes on from", before)
        _print_blocks(out, f"  sent{where}", [block for block in blocks if not block["continued"]])
    if document["tools"]:
        show(out, "  tools")
    for tool in document["tools"]:
        show(out, f"    {visible(_tool_line(tool), one_line=True)}")
    if document["searches"]:
        show(out, f"  searched for: {visible('; '.join(document['searches']), one_line=True)}")
    if document["sources"]:
        show(out, "  sources")
    for source in document["sources"]:
        mark = "cited  " if source["cited"] else "       "
        title = f"  {excerpt(source['title'])}" if source["title"] else ""
        show(out, f"    {mark}{visible(source['url'] + title, one_line=True)}")
    if document["left_out"]:
        show(out, "  not sent")
        for left in document["left_out"]:
            show(out, f"    {visible(left['source'], one_line=True)}  ({visible(left['reason'], one_line=True)})")
    if not calls and document["reads"]:
        show(out, "  read")
        for read in document["reads"]:
            version = f"@{read['version']}" if read["version"] is not None else " (default)"
            show(out, f"    {visible(read['source'], one_line=True)}{version}")


def _tool_line(tool: dict[str, Any]) -> str:
    size = "" if tool["tokens"] is None else f"{tokens(tool['tokens'])} told"
    if tool["tokens"] != tool["whole_tokens"]:
        size += f" of {tokens(tool['whole_tokens'])}: --tool {tool['id']} prints all"
    said = {"approve": "allowed by a person", "reject": "refused by a person"}.get(tool["decision"] or "", "")
    state = (
        "error" if tool["is_error"] else {"asked": "waits for a person", "started": "no result"}.get(tool["state"], "")
    )
    notes = [note for note in (size, said, state) if note]
    return f"{tool['name']}({excerpt(tool['arguments'])})  {' · '.join(notes)}"


def _print_thread(out: Console, thread: dict[str, Any]) -> None:
    from decimal import Decimal

    show(out, f"  thread {visible(thread['name'], one_line=True)} · {visible(thread['model'], one_line=True)}")
    own = f"{thread['provider']}:{thread['model']}"
    for call in thread["calls"]:
        chained = f"on {call['previous_response_id']}" if call["previous_response_id"] else "starts from nothing"
        if call["rung"] != "chain":
            chained = f"{call['rung']} of the whole thread"
        if call["model"] != own:
            chained = f"{call['model']}, {chained}"
        if call["compacted"]:
            chained += ", summed up by the provider"
        usage = ""
        if call["input_tokens"] is not None:
            about = "about " if call["usage_estimated"] else ""
            usage = f"{about}{tokens(call['input_tokens'])}→{tokens(call['output_tokens'] or 0)}"
        cost = money(Decimal(call["cost_usd"])) if call["cost_usd"] is not None else "–"
        line = f"{call['seq']}  {call['source']:<11}  {chained}  {usage}  {cost}  {call['outcome']}"
        show(out, visible(line + (f": {excerpt(call['reason'])}" if call["reason"] else "")), indent=4)
        if call["unexplained"]:
            show(out, visible(f"! {call['unexplained']}"), indent=8)
        if call["partial_text"]:
            show(out, f"it had said: {excerpt(call['partial_text'])}", indent=8)


def _print_blocks(out: Console, title: str, blocks: Sequence[dict[str, Any]]) -> None:
    from rich.text import Text

    if blocks:
        show(out, title)
    for block in blocks:
        version = f"@{block['version']}" if block["version"] is not None else ""
        fields = f" .{', .'.join(block['fields'])}" if block["fields"] else ""
        name = visible(f"{block['source']}{version}{fields}", one_line=True)
        used = " · used in the output" if block["used"] else ""
        rule = visible(block["rule"], one_line=True)
        size = f"{tokens(block['tokens']):>6}  "
        show(out, Text.assemble(size, (name, "bold"), f"  {block['layer']} · {rule}{used}"), indent=4)
        if block["about"]:
            show(out, f"about: {visible(block['about'], one_line=True)}", indent=12)
        for guard in block["guards"]:
            show(out, f"guard sent: “{visible(guard, one_line=True)}”", indent=12)
