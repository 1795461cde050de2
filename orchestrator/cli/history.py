"""`history`: every version of an artifact, from their rows alone; no value is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.exchange.diffing import FieldChanges
    from orchestrator.store import Store
    from orchestrator.trace.versions import History
    from orchestrator.values import ArtifactVersion, RunRow


@command("history")
@click.argument("reference", metavar="RUN/STEP")
@click.option("--blame", is_flag=True, help="Who last changed each field of the current version, instead.")
def history(state: State, reference: str, blame: bool) -> int:
    """List the versions of an artifact: by whom, from what, what changed.

    A version that other runs share is marked with their numbers.
    """
    from orchestrator.cli.session import drive, open_desk, reading, within
    from orchestrator.trace.versions import history_document

    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("a history is of all versions", hint=f"Leave out @{ref.version}.")
    desk = open_desk(state)

    async def main() -> History:
        async with reading(desk) as store:
            run = await store.run(ref.run)
            return await read_history(store, run, within(desk, run, ref).step, ref.item)

    found = drive(main)
    if state.json:
        print_document(history_document(found))
    elif blame:
        _print_blame(console(), found)
    else:
        _print(state, console(), found)
    return 0


async def read_history(store: Store, run: RunRow, step: str, item: str | None = None) -> History:
    """All versions of a step, an item or an input. Raises UsageError for one that the run does not have, or that has
    none yet."""
    from orchestrator.trace.versions import History

    label = f"{step}/{item}" if item else step
    row = next((row for row in await store.steps(run.id) if row.label == label), None)
    if row is None:
        raise UsageError(f"{label} not found in this run", hint=f"orch show {run.number} lists the steps of the run.")
    if row.head is None:
        raise UsageError(f"{label} has no version yet", hint=f"orch show {run.number} says how far the run is.")
    versions = await store.versions(run.id, step, item)
    waiting = row.draft.id if row.draft else None
    return History(run.number, step, versions, row.head, await store.head_in(run.id, step, item), waiting)


def _print(state: State, out: Console, history: History) -> None:
    from rich.text import Text

    name = f"{history.run}/{history.head.label}"
    show(out, Text.assemble((name, "bold"), f" · {history.head.contract}"))
    for version in reversed(history.versions):
        mark = "*" if version.id == history.head.id else " "
        show(out, Text.assemble(f"  {mark} ", (f"v{version.version}", "bold"), f"  {_told(history, version)}"))
    if len(history.versions) > 1:
        again = state.command(f"diff {name}@{history.versions[0].version} {name}@{history.versions[-1].version}")
        show(out, Text(f"  {again}", style="dim"))


def _told(history: History, version: ArtifactVersion) -> str:
    parent, equal = history.parent(version), history.equal_to(version)
    others = [number for number in history.head_in.get(version.id, ()) if number != history.run]
    parts = [
        version.created_at.astimezone().strftime("%Y-%m-%d %H:%M"),
        f"by {version.author} ({version.origin})",
        _made_of(parent, history.merged(version)),
        *([f"equal to v{equal.version}"] if equal else []),
        *([summary(changed)] if (changed := history.changed(version)) is not None else []),
        *(["a draft that waits for a decision"] if version.id == history.waiting else []),
        *(["a draft"] if version.draft and version.id != history.waiting else []),
        *([f"shared by run {', '.join(map(str, others))}"] if others else []),
    ]
    return visible(" · ".join(parts), one_line=True)


def _made_of(parent: ArtifactVersion | None, draft: ArtifactVersion | None) -> str:
    if parent is None:
        return "made anew"
    return f"from v{parent.version}" if draft is None else f"v{parent.version} merged with v{draft.version}"


def summary(changed: FieldChanges) -> str:
    """`weekly_usd changed, notes added`; names of fields are of the contract, so they need no more."""
    from orchestrator.exchange.diffing import WHOLE

    if changed.changed == (WHOLE,):
        return "changed"
    parts = (("changed", changed.changed), ("added", changed.added), ("removed", changed.removed))
    told = [f"{', '.join(names)} {word}" for word, names in parts if names]
    return ", ".join(told) or "no field changed"


def _print_blame(out: Console, history: History) -> None:
    from rich.text import Text

    from orchestrator.cli.lines import name_width

    show(out, Text.assemble((f"{history.run}/{history.head.label}@{history.head.version}", "bold")))
    blamed = history.blamed()
    width = name_width([*blamed])
    for field, version in blamed.items():
        when = version.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        both = " and ".join(f"v{one.version} by {one.author}" for one in history.mixed(version))
        made = f"v{version.version} by {version.author} ({version.origin}){f', of {both}' if both else ''}"
        who = visible(f"{made} · {when}", one_line=True)
        show(out, Text.assemble("  ", (f"{visible(field, one_line=True):<{width}}", "bold"), f"  {who}"))
