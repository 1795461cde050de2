"""`export`: a run as a folder of files with a report, or one artifact as a file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import StepRef, run_ref, step_ref
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, plural, show, visible
from orchestrator.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.exchange.exporting import Exported
    from orchestrator.graph import Graph
    from orchestrator.store import Store
    from orchestrator.values import Artifact, RunRow, StepRow

SCHEMA: Final = "orch.export/1"


@command("export")
@click.argument("reference", metavar="RUN|RUN/STEP[/ITEM][@N]", default="last")
@click.option("--to", metavar="PATH|-", help="A new folder for a run, a new file for an artifact; - is stdout.")
@click.option("--csv", "as_table", is_flag=True, help="An artifact that is a list of objects, as a table.")
def export(state: State, reference: str, to: str | None, as_table: bool) -> int:
    """Write a run as a folder with a report, or one artifact as a file.

    A run becomes one file per artifact, its lists of objects as CSV too, manifest.json, and report.html, which loads
    nothing. Nothing is overwritten.
    """
    from orchestrator.cli.session import drive, open_desk, reading

    step = step_ref(reference) if "/" in reference else None
    run = run_ref(reference) if step is None else step.run
    if step is None and (as_table or to == "-"):
        raise UsageError("a run is exported as a folder", hint=f"Name one of its artifacts: {reference}/STEP.")
    desk = open_desk(state)

    async def main() -> tuple[RunRow, dict[str, bytes], str | None]:
        async with reading(desk) as store:
            row = await store.run(run)
            if step is None:
                return row, *await _run(desk, store, row)
            return row, *await _artifact(desk, store, row, step, as_table)

    row, files, note = drive(main)
    if to == "-":
        _print_bytes(state, next(iter(files.values())))
        return 0
    if step is None:
        target = write_folder(Path(to or f"run-{row.number}"), files)
    else:
        [(name, body)] = files.items()
        target = write_new(Path(to or name), body)
        files = {target.name: body}
    _report(state, target, files, note)
    return 0


# --- what to write ----------------------------------------------------------------------------------------------------


async def _run(desk: Desk, store: Store, run: RunRow) -> tuple[dict[str, bytes], str | None]:
    """A run's files, and what to tell about them."""
    from orchestrator.cli.outcome import input_values, stale_by_step
    from orchestrator.exchange.exporting import run_files
    from orchestrator.spec import SENSITIVITY_RANK
    from orchestrator.trace.documents import run_document

    graph = desk.known_graph(run)
    steps = await store.steps(run.id)
    found = []
    for step in (step for step in steps if step.head is not None and not step.retired):
        earlier = [one.name for one in steps if one.order < step.order and one.item is None]
        found.append(await _exported(store, run, step, graph, earlier))
    inputs = await input_values(store, run, steps, graph)
    files = run_files(run_document(run, steps, inputs, stale_by_step(graph, steps)), found)
    levels = {one.artifact.version.sensitivity for one in found}
    highest = max(levels, key=lambda level: SENSITIVITY_RANK[level], default="internal")
    return files, f"the most sensitive of it is {highest}"


async def _exported(store: Store, run: RunRow, step: StepRow, graph: Graph | None, earlier: Sequence[str]) -> Exported:
    from orchestrator.exchange.exporting import Exported
    from orchestrator.trace.versions import History, history_document

    artifact = await store.artifact(run.id, step.name, step.item)
    versions = await store.versions(run.id, step.name, step.item)
    history = History(run.number, step.name, versions, artifact.version, {})
    parent = history.parent(artifact.version)
    return Exported(
        artifact,
        "input" if step.kind == "input" else "step",
        **_labelled(artifact, graph),
        parent=parent.version if parent else None,
        versions=history_document(history)["versions"],
        why=await _why(store, artifact, earlier),
    )


async def _why(store: Store, artifact: Artifact, earlier: Sequence[str]) -> Mapping[str, Any] | None:
    """What the model behind a version saw; None where none was asked."""
    from orchestrator.trace.why import why_document

    version = artifact.version
    making = (await store.makings([version.id])).get(version.id)
    if making is None or not making.openings:
        return None
    made = version.origin in ("model", "function")
    output = artifact.body.decode("utf-8", errors="replace") if made else None
    journal, told = await store.journal(making.attempt_id), await store.unexplained_of(making.attempt_id)
    return why_document(journal, version.step, version.item, output, earlier, told)


def _labelled(artifact: Artifact, graph: Graph | None) -> dict[str, Any]:
    """The value with its form and label, as the contract says them now; without the contract as what it looks like."""
    from orchestrator.cli.show import contract_of
    from orchestrator.exchange.reading import value_of

    contract, value = contract_of(graph, artifact), value_of(artifact, graph)
    if contract is None or contract.name != artifact.version.contract:
        return {"value": value, "form": "text" if isinstance(value, str) else "json"}
    return {"value": value, "form": contract.form, "about": contract.about, "not_for": contract.not_for}


async def _artifact(
    desk: Desk, store: Store, run: RunRow, ref: StepRef, as_table: bool
) -> tuple[dict[str, bytes], str | None]:
    from orchestrator.cli.session import within
    from orchestrator.exchange.exporting import slug, suffix, tables

    ref = within(desk, run, ref)
    artifact = await store.artifact(run.id, ref.step, ref.item, ref.version)
    said = _labelled(artifact, desk.known_graph(run))
    if not as_table:
        return {f"{slug(ref.item or ref.step)}{suffix(said['form'], artifact.body)}": artifact.body}, None
    found = dict(tables(said["value"]))
    if len(found) != 1:
        what = f"{len(found)} lists of objects ({', '.join(found)})" if found else "no list of objects"
        raise UsageError(
            f"{ref.label} holds {what}, which is not one table",
            hint=f"{desk.state.command(f'export {run.number}')} writes each list as a table.",
        )
    return {f"{slug(ref.item or ref.step)}.csv": next(iter(found.values()))}, None


# --- writing ----------------------------------------------------------------------------------------------------------


def write_folder(target: Path, files: Mapping[str, bytes]) -> Path:
    """Make a folder with these files, whole or not at all, for its user only. Raises UsageError, ConfigError."""
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise UsageError(f"{target} is there already", hint="Name a new folder: --to DIR. Nothing is overwritten.")
    made = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=".export-"))  # 0700
        for name, body in files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        if target.exists():
            target.rmdir()
        made.rename(target)
    except OSError as error:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        raise _unwritable(target, error) from error
    return target


def write_new(target: Path, body: bytes) -> Path:
    """A file that was not there, for its user only. Raises UsageError, ConfigError."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
        except OSError:
            target.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        hint = "Name a new file: --to FILE. Nothing is overwritten."
        raise UsageError(f"{target} is there already", hint=hint) from error
    except OSError as error:
        raise _unwritable(target, error) from error
    return target


def _unwritable(target: Path, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    return ConfigError(f"{target} cannot be written: {reason}", hint="Name a place you can write to: --to PATH.")


def _print_bytes(state: State, body: bytes) -> None:
    """The bytes themselves into a pipe or file; on a terminal with dangerous characters spelled out."""
    if state.json:
        raise UsageError("--to - prints the artifact itself", hint="Leave out --json, or name a file.")
    if sys.stdout.isatty():
        show(console(), visible(body.decode("utf-8", errors="replace")))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)


def _report(state: State, target: Path, files: Mapping[str, bytes], note: str | None) -> None:
    from rich.text import Text

    from orchestrator.ids import sha256

    if state.json:
        listed = [{"path": name, "size": len(body), "sha256": sha256(body)} for name, body in files.items()]
        print_document({"schema": SCHEMA, "to": str(target), "files": listed})
        return
    out = console()
    if note is None:
        show(out, Text.assemble("wrote ", (visible(str(target)), "bold")))
        return
    show(out, Text.assemble("wrote ", (visible(str(target)), "bold"), f": {plural(len(files), 'file')}; {note}"))
    for name in files:
        show(out, Text(f"  {name}", style="dim"))
