"""`schema`: the JSON Schemas of the files people write, for editors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show
from orchestrator.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from orchestrator.loading.file_schemas import FileKind

SCHEMA: Final = "orch.schema/1"


@command("schema")
@click.argument("kind", required=False, type=click.Choice(["pipeline", "step", "artifact"]))
@click.option("--write", is_flag=True, help="Write them into .orch/ of this project, where editors find them.")
def schema(state: State, kind: FileKind | None, write: bool) -> int:
    """Print the JSON Schema of pipeline, step or artifact files.

    With --write, into .orch/KIND.schema.json: all three, or the one named. A file whose first line is
    `# yaml-language-server: $schema=.orch/pipeline.schema.json` (the path from that file) is then checked as it is
    typed. Executes nothing of the project.
    """
    from orchestrator.loading.file_schemas import FILE_KINDS

    kinds = (kind,) if kind is not None else FILE_KINDS
    if write:
        return _write(state, kinds)
    if kind is None:
        raise UsageError("which kind of file?", hint="orch schema pipeline, step or artifact; --write writes all.")
    sys.stdout.write(schema_text(kind))
    return 0


def schema_text(kind: FileKind) -> str:
    """A schema as a file holds it."""
    from orchestrator.loading.file_schemas import file_schema

    return json.dumps(file_schema(kind), ensure_ascii=True, indent=2) + "\n"


def write_schemas(root: Path, kinds: tuple[FileKind, ...]) -> list[str]:
    """Write schemas into the project's `.orch`, and return their names in the project. Raises ConfigError."""
    from orchestrator.files import private_folder, replace_file

    try:
        folder = private_folder(root / ".orch")
        for kind in kinds:
            replace_file(folder / f"{kind}.schema.json", schema_text(kind).encode("ascii"))
    except OSError as error:
        raise ConfigError(
            f"{root / '.orch'} cannot be written: {(error.strerror or str(error)).lower()}",
            hint="Make the folder writable.",
        ) from error
    return [f".orch/{kind}.schema.json" for kind in kinds]


def _write(state: State, kinds: tuple[FileKind, ...]) -> int:
    from orchestrator.project import find_project

    project = find_project(Path.cwd())
    names = write_schemas(project.root, kinds)
    if state.json:
        print_document({"schema": SCHEMA, "project": str(project.root), "files": names})
        return 0
    out = console()
    for name in names:
        show(out, f"  {name}")
    show(out, f"An editor uses one where a file begins with: # yaml-language-server: $schema={names[0]}")
    return 0
