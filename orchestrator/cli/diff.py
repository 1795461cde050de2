"""`diff`: what two versions of an artifact differ in, by path or line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import StepRef, is_run, step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.store import Store
    from orchestrator.trace.versions import Side
    from orchestrator.values import Artifact, RunRow


@command("diff")
@click.argument("old", metavar="RUN/STEP[@N]")
@click.argument("new", metavar="[RUN/STEP[@N]]", required=False)
def diff(state: State, old: str, new: str | None) -> int:
    """Show what differs between two versions of an artifact.

    With one reference, the version is compared with the one it was made from.
    """
    from orchestrator.cli.session import drive, open_desk, reading

    first, second = _ref(old), _ref(new) if new is not None else None
    desk = open_desk(state)

    async def main() -> tuple[Side, Side]:
        async with reading(desk) as store:
            if second is None:
                return await _made_from(desk, store, first)
            return await _side(desk, store, first), await _side(desk, store, second)

    _report(state, *drive(main))
    return 0


def _ref(text: str) -> StepRef:
    if is_run(text):
        hint = f"orch compare {text} OTHER compares whole runs; orch diff {text}/STEP OTHER/STEP one step of each."
        raise UsageError(f'"{text}" names a run, not the artifact of a step', hint=hint)
    return step_ref(text)


async def _side(desk: Desk, store: Store, ref: StepRef) -> Side:
    from orchestrator.cli.differences import side
    from orchestrator.cli.session import within

    run = await store.run(ref.run)
    ref = within(desk, run, ref)
    return side(run, await store.artifact(run.id, ref.step, ref.item, ref.version), desk.known_graph(run))


async def _made_from(desk: Desk, store: Store, ref: StepRef) -> tuple[Side, Side]:
    """A version and its parent. Raises UsageError for one that was made anew."""
    from orchestrator.cli.differences import side
    from orchestrator.cli.session import within

    run = await store.run(ref.run)
    ref = within(desk, run, ref)
    new = await store.artifact(run.id, ref.step, ref.item, ref.version)
    old = await _parent(store, run, new)
    if old is None:
        raise UsageError(
            f"{run.number}/{ref.label}@{new.version.version} was made anew: there is no version that it replaces",
            hint=f"Name the other one too: orch diff OTHER/{ref.label} {run.number}/{ref.label}.",
        )
    graph = desk.known_graph(run)
    return side(run, old, graph), side(run, new, graph)


async def _parent(store: Store, run: RunRow, new: Artifact) -> Artifact | None:
    version = new.version
    versions = await store.versions(run.id, version.step, version.item)
    parent = next((one for one in versions if one.id == version.parent_id), None)
    if parent is None:
        return None
    return await store.artifact(run.id, version.step, version.item, parent.version)


def _report(state: State, old: Side, new: Side) -> None:
    from rich.text import Text

    from orchestrator.cli.differences import print_changes
    from orchestrator.trace.versions import diff_document

    if state.json:
        print_document(diff_document(old, new))
        return
    out = console()
    by = visible(f"by {new.version.author} ({new.version.origin})", one_line=True)
    show(out, Text.assemble((f"{_name(old)} → {_name(new)}", "bold"), " · ", by))
    print_changes(out, old.value, new.value)


def _name(side: Side) -> str:
    return f"{side.run}/{side.version.label}@{side.version.version}"
