"""`init`: a new project that runs at once, with sample answers in place of a model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, plural, show
from orchestrator.errors import ConfigError, UsageError

SCHEMA: Final = "orch.init/1"
BRIEF: Final = "briefs/launch.json"
# Dot files travel under plain names: a `.gitignore` inside the package would act on the package itself.
_RENAMED: Final = {"gitignore": ".gitignore", "env": ".env"}


@command("init")
@click.argument("folder", metavar="DIR", default=".")
def init(state: State, folder: str) -> int:
    """Make a new project that runs with sample answers.

    Never overwrites a file.
    """
    from rich.text import Text

    from orchestrator.cli.schema import write_schemas
    from orchestrator.cli.trust import trust_made
    from orchestrator.loading.file_schemas import FILE_KINDS

    target = Path(folder)
    made = copy_starter(target)
    trust_made(target, made, by="init")
    made += write_schemas(target, FILE_KINDS)
    if state.json:
        print_document({"schema": SCHEMA, "project": str(target.resolve()), "files": made})
        return 0
    out = console()
    where = "" if target == Path() else f" -C {shlex.quote(folder)}"
    show(out, f"made {plural(len(made), 'file')} in {target}")
    for name in made:
        show(out, Text(f"  {name}", style="dim"))
    show(out, "next:")
    for line in (
        "check",
        "plan --input briefs/launch.json",
        "run --input briefs/launch.json",
        "show last/announcement",
    ):
        show(out, f"  {state.prefix}{where} {line}")
    show(out, "The answers are samples from sample_answers/. For a model, put ORCH_MODEL=openai:MODEL into .env.")
    return 0


def starter_root() -> Path:
    """The folder of the starter project's files inside the package."""
    return Path(__file__).resolve().parent.parent / "starter"


def starter_files() -> dict[str, Path]:
    """The starter's files by their name in a project, sorted."""
    root = starter_root()
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(root)
            found[str(name.with_name(_RENAMED.get(name.name, name.name)))] = path
    return found


def copy_starter(target: Path) -> list[str]:
    """Copy the starter into `target`, all or nothing as far as existing files go. Returns the names made.

    Raises UsageError where a file or a project is already there, ConfigError where nothing can be written.
    """
    files = starter_files()
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is a file, not a folder", hint="Name a new or empty folder.")
    present = [name for name in files if (target / name).exists() or (target / name).is_symlink()]
    if present:
        already = f"{target} already has {', '.join(present)}"
        raise UsageError(already, hint="Name a new or empty folder: nothing is overwritten.")
    try:
        for name, source in files.items():
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            destination.write_bytes(source.read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{target} cannot be written: {reason}", hint="Name a folder you can write to.") from error
    return list(files)
