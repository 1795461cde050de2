"""`edit`: a person's new version of an artifact, from values, a file, or an editor.

The text of a refused edit is never lost: it stays in a private file whose path is told.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.refs import StepRef, step_ref
from orchestrator.cli.terminal import console, show, visible
from orchestrator.errors import ConfigError, OrchError, UsageError
from orchestrator.files import keep_private, private_folder

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk
    from orchestrator.contracts import Contract
    from orchestrator.graph import Graph
    from orchestrator.step import Services
    from orchestrator.values import Artifact, ArtifactVersion, RunRow, StepRow


@command("edit")
@click.argument("reference", metavar="RUN/STEP")
@click.option("--set", "assignments", metavar="PATH=VALUE", multiple=True, help="One value: a.b=1, items.0.name=x.")
@click.option("--file", "-f", metavar="FILE", help="The whole new value.")
@click.option(
    "--base", type=click.IntRange(1), metavar="N", help="Refuse if version N is not the current one any more."
)
def edit(state: State, reference: str, assignments: tuple[str, ...], file: str | None, base: int | None) -> int:
    """Replace an artifact by a new version.

    With neither --set nor --file, $VISUAL or $EDITOR opens. The value is checked against its contract; an unchanged
    one makes no version. Where somebody else was quicker, nothing is written, and what they changed is shown.
    """
    ref = step_ref(reference)
    if ref.version is not None:
        raise UsageError("only the current version can be edited", hint=f"Leave out @{ref.version}.")
    if assignments and file is not None:
        raise UsageError("--set and --file exclude each other", hint="Use one of them.")
    on_artifact(state, ref, lambda job: job.carry_out(assignments, file, base))
    return 0


def on_artifact(state: State, ref: StepRef, work: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
    """Do this with the current version of a step's or input's value."""
    from orchestrator.cli.session import drive, find_run, open_desk, services
    from orchestrator.edits import check_editable

    desk = open_desk(state)
    run = find_run(desk, ref.run)
    graph = desk.graph_of(run)
    step = graph.target(ref.step)
    check_editable(graph, run, step, ref.item)

    async def main() -> None:
        async with services(desk) as opened:
            artifact = await opened.store.artifact(run.id, step, ref.item)
            await work(Job(desk, opened, graph, run, artifact))

    drive(main)


@dataclass(frozen=True, slots=True)
class Job:
    """One edit: the artifact as it stands, and what it takes to replace it."""

    desk: Desk
    services: Services
    graph: Graph
    run: RunRow
    old: Artifact

    @property
    def step(self) -> str:
        return self.old.version.step

    @property
    def item(self) -> str | None:
        return self.old.version.item

    @property
    def name(self) -> str:
        """What is edited, as people write it."""
        return self.old.version.label

    @property
    def contract(self) -> Contract:
        node = self.graph.steps.get(self.step) or self.graph.inputs.get(self.step)
        if node is None:
            raise UsageError(f"{self.graph.file} does not have {self.step} any more", hint="Put it back to edit it.")
        return node.contract

    def value(self, artifact: Artifact) -> Any:
        """A version's value under the contract as it is now. Raises UsageError where it has another form by now."""
        try:
            return self.contract.load(artifact.body)
        except ValueError as error:
            name = f"{self.name}@{artifact.version.version}"
            raise UsageError(
                f"{name} cannot be read under its contract {self.contract.name} as it is now: {error}",
                hint=f"The contract stands in {self.contract.place}. Write a new version: edit --file.",
            ) from error

    async def carry_out(self, assignments: Sequence[str], file: str | None, base: int | None) -> None:
        base = base or self.old.version.version
        if assignments:
            await self.put(with_values(self.contract, self.value(self.old), assignments), base)
        elif file is not None:
            await self.put(parse(self.contract, _read(file), file), base)
        else:
            await self._by_editor(base)

    async def put(
        self,
        value: Any,
        base: int,
        *,
        origin: Literal["person", "import"] = "person",
        restored: ArtifactVersion | None = None,
    ) -> None:
        """Make this the new version and say what follows. Raises UsageError where `base` is not the head any more."""
        from orchestrator.edits import edit_artifact
        from orchestrator.store.answers import CHANGED_MEANWHILE

        try:
            new = await edit_artifact(
                self.services,
                self.graph,
                self.run,
                self.step,
                item=self.item,
                value=value,
                base_version=base,
                origin=origin,
                restored=restored,
            )
        except UsageError as error:
            if error.code == CHANGED_MEANWHILE:
                raise await self._refused(error, base) from error
            raise
        await self.report(new)

    async def _refused(self, error: UsageError, base: int) -> OrchError:
        """Where somebody was quicker: what they changed goes to stderr, and beside the error of a document."""
        from rich.text import Text

        from orchestrator.cli.differences import print_changes, side
        from orchestrator.cli.report import Refused
        from orchestrator.trace.versions import diff_document

        store, out = self.services.store, console(stderr=True)
        seen = side(self.run, await store.artifact(self.run.id, self.step, self.item, base), self.graph)
        now = side(self.run, await store.artifact(self.run.id, self.step, self.item), self.graph)
        name = f"{self.run.number}/{self.name}"
        by = visible(f"by {now.version.author} meanwhile", one_line=True)
        show(out, Text.assemble((name, "bold"), f"  v{base} → v{now.version.version} {by}"))
        print_changes(out, seen.value, now.value)
        again = self.desk.state.command(f"diff {name}@{base} {name}@{now.version.version}")
        hint = f"See what changed ({again}), and edit the current version."
        return Refused(error.message, hint=hint, code=error.code, beside={"diff": diff_document(seen, now)})

    async def _by_editor(self, base: int) -> None:
        path = draft_file(
            self.desk.project.root, f"{self.run.number}-{self.name.replace('/', '-')}", _suffix(self.contract)
        )
        path.write_bytes(self.old.body)
        try:
            call_editor(os.environ, path)  # never from a project's .env: it is a program to start
            await self.put(parse(self.contract, _read(str(path)), str(path)), base)
        except OrchError as error:
            if _kept(path, self.old.body):
                again = f"edit {self.run.number}/{self.name} --file {shlex.quote(str(path))}"
                kept = f"Your text is kept: {self.desk.state.command(again)}"
                error.hint = f"{error.hint} {kept}" if error.hint else kept
            raise
        path.unlink(missing_ok=True)

    async def report(self, new: ArtifactVersion) -> None:
        """Say what the new version is, what became stale by it, and what to do about that."""
        from orchestrator.cli.outcome import stale_by_step
        from orchestrator.cli.report import print_document
        from orchestrator.cli.show import artifact_json
        from orchestrator.trace.documents import edit_document

        store = self.services.store
        steps = await store.steps(self.run.id)
        reasons = stale_by_step(self.graph, steps)
        if self.desk.state.json:
            artifact = await store.artifact(self.run.id, self.step, self.item)
            print_document(edit_document(await artifact_json(store, self.run, artifact, self.graph), reasons))
        else:
            work = [
                step.label for step in steps if step.kind != "input" and step.label != self.name and not step.retired
            ]
            _print(self, new, reasons, work, await self._cost_to_redo(steps) if reasons else "")

    async def _cost_to_redo(self, steps: Sequence[StepRow]) -> str:
        """From what is stale alone, to what everything below it would cost at worst; empty where no model is set. What
        the run has never come to is not done again."""
        from orchestrator.cli.terminal import cost_range
        from orchestrator.plan import part_of, plan_run

        done = {step.name for step in steps if step.head is not None}
        try:
            plan = await plan_run(self.services, self.graph, await self.services.store.run(self.run.id))
            again = part_of(self.services, self.graph, plan, done)
        except ConfigError:
            return ""
        return cost_range(again.cost_low_usd, again.cost_high_usd)


def _print(
    job: Job, new: ArtifactVersion, reasons: Mapping[str, Sequence[str]], others: Sequence[str], cost: str
) -> None:
    """`cost` is what it takes to run the stale steps again, as far as that is known."""
    from rich.text import Text

    from orchestrator.cli.outcome import keep_command

    out, old, number = console(), job.old.version, job.run.number
    title = (f"{number}/{new.label}", "bold")
    if new.version == old.version:
        show(out, Text.assemble(title, f"  unchanged: still v{old.version}"))
        return
    author = visible(new.author, one_line=True)
    show(out, Text.assemble(title, f"  v{old.version} → v{new.version} by {author} · contract ok"))
    for step, why in reasons.items():
        show(out, Text.assemble("  stale: ", (step, "yellow"), f"  {visible('; '.join(why), one_line=True)}"))
    show(out, f"  not stale: {sum(step not in reasons for step in others)}")
    state = job.desk.state
    todo = {"undo": state.command(f"restore {number}/{new.label}@{old.version}")}
    if reasons:
        gates = [step.name for step in job.graph.steps.values() if step.gate is not None]
        keep = keep_command(state, number, reasons, gates)
        todo = {f"redo {cost}".rstrip(): state.command(f"refresh {number}"), **({"keep": keep} if keep else {}), **todo}
    for word, what in todo.items():
        show(out, Text(f"  {word}: {what}", style="dim"))


# --- values -----------------------------------------------------------------------------------------------------------


def parse(contract: Contract, data: bytes, name: str) -> Any:
    """A file's bytes as a value of this contract's form. Raises UsageError with the place of a JSON mistake."""
    from orchestrator.cli.inputs import parse_json

    if contract.form == "file":
        return data
    text = decoded(data, name)
    return parse_json(text, name) if contract.form == "json" else text


def decoded(data: bytes, name: str) -> str:
    """A file's bytes as text, without a byte order mark. Raises UsageError with the first byte that is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from error


def with_values(contract: Contract, value: Any, assignments: Sequence[str]) -> Any:
    """A copy of the value with `a.b.0=…` assigned. A value is JSON where it reads as JSON and the schema does not ask
    for text there. Raises UsageError where the path leads nowhere."""
    import copy

    if contract.form != "json":
        raise UsageError("a text has no fields that --set could change", hint="Use --file, or the editor.")
    value = copy.deepcopy(value)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise UsageError(f'--set "{assignment}" has no value', hint="Write --set path=value, as a.b=1.")
        keys = path.removeprefix("$.").replace("[", ".").replace("]", "").split(".")
        target = value
        for depth, key in enumerate(keys[:-1]):
            target = _child(target, key, ".".join(keys[: depth + 1]))
        _assign(target, keys[-1], path, _value(contract, keys, text))
    return value


def _child(target: Any, key: str, path: str) -> Any:
    if isinstance(target, dict) and key in target:
        return target[key]
    if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
        return target[int(key)]
    raise _no_place(target, key, path)


def _assign(target: Any, key: str, path: str, new: Any) -> None:
    """Assign to a field or list place; one past the end of a list appends."""
    if isinstance(target, dict):
        near = get_close_matches(key, target, n=1)
        if key not in target and near:
            raise _no_place(target, key, path)
        target[key] = new
    elif isinstance(target, list) and key.isdecimal() and int(key) <= len(target):
        target[int(key) : int(key) + 1] = [new]
    else:
        raise _no_place(target, key, path)


def _no_place(target: Any, key: str, path: str) -> UsageError:
    if isinstance(target, dict):
        near = get_close_matches(key, target, n=1)
        hint = f'Did you mean "{near[0]}"?' if near else f"There is: {', '.join(target)}."
    elif isinstance(target, list):
        hint = f"It is a list of {len(target)}; places count from 0."
    else:
        hint = "There is a single value; set it as a whole."
    return UsageError(f"--set {path}: there is no {key}", hint=hint)


def _value(contract: Contract, keys: Sequence[str], text: str) -> Any:
    from orchestrator.cli.inputs import parse_json

    if _wants_text(contract.schema or {}, keys):
        return text
    try:
        return parse_json(text, "the value")
    except UsageError:
        return text


def _wants_text(schema: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether the schema says that only text can stand at the path; unknown turns of a schema answer no."""
    node: Any = schema
    for key in keys:
        node = _referred(schema, node)
        inner = node.get("items") if key.isdecimal() and "items" in node else node.get("properties", {}).get(key)
        if not isinstance(inner, Mapping):
            return False
        node = inner
    return bool(_referred(schema, node).get("type") == "string")


def _referred(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    ref = node.get("$ref")
    if not isinstance(ref, str):
        return node
    found = schema.get("$defs", {}).get(ref.rpartition("/")[2], {})
    return found if isinstance(found, Mapping) else {}


# --- files and the editor ---------------------------------------------------------------------------------------------


def _read(file: str) -> bytes:
    from orchestrator.cli.inputs import read_bytes

    return read_bytes(file)


def _suffix(contract: Contract) -> str:
    return {"json": ".json", "markdown": ".md"}.get(contract.form, ".txt")


def draft_file(root: Path, name: str, suffix: str) -> Path:
    """A new empty private file (0600 in a 0700 folder) below the project's `.orch`. Raises ConfigError."""
    folder = root / ".orch" / "edits"
    try:
        private_folder(folder.parent)
        private_folder(folder, ignored=False)
        for count in range(1, 1000):
            path = folder / (f"{name}{suffix}" if count == 1 else f"{name}-{count}{suffix}")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return path
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}", hint="Use --file or --set.") from error
    raise ConfigError(f"{folder} is full of kept edits", hint="Remove those you do not need.")


def _kept(path: Path, original: bytes) -> bool:
    """Whether a refused edit left a text worth keeping; it stays private, however the editor has written it."""
    try:
        if path.read_bytes() == original:
            path.unlink()
            return False
        keep_private(path)
    except OSError:  # the editor took the file away, or put something else there
        return False
    return True


def call_editor(environment: Mapping[str, str], path: Path) -> None:
    """Open the user's editor on the file and wait for it: its words as arguments, never through a shell."""
    words = environment.get("VISUAL") or environment.get("EDITOR")
    if not words:
        raise UsageError("no editor is set", hint="Set $EDITOR, or use --set or --file.")
    try:
        done = subprocess.run([*shlex.split(words), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f'the editor "{words}" cannot be started: {error}', hint="Set $EDITOR to a program."
        ) from error
    if done.returncode != 0:
        raise UsageError(f"the editor ended with {done.returncode}: nothing was changed")
