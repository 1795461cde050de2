"""`demo`: the real engine on the shipped ten-step example, answered by hand-written texts instead of a model.

It works on a copy outside the checkout, with a database of its own, so that what follows (show, why, edit, refresh) can
be tried freely and nothing of the user's is touched.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.terminal import console, show
from orchestrator.errors import EXIT_OK, EXIT_WAITING, ConfigError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.session import Desk

MODEL: Final = "scripted:sample_answers"
PIPELINE: Final = "discovery"
BRIEF: Final = "briefs/clinic.json"
FIRST_LINE: Final = (
    "Demo: the answers below are hand-written samples (sample_answers/); no model is called, nothing is paid."
)
# What the example's second sample answer answers: the words that send the numbers back.
REJECTION: Final = (
    "One way is missing: the phone provider's call-back queue, 89 USD a month. It calls back who hung up. Add it."
)
_AT_THE_GATE: Final = ("show last/review", "approve last/review", f'reject last/review -m "{REJECTION}"', "inbox")
_AT_THE_END: Final = (
    "show last",
    "show last/executive-summary",
    "why last/tech-stack",
    "why last/tech-stack --text",
    "edit last/cost-calculator --set weekly_usd=1200",
    "refresh last",
)
# The demo's own model and database; the user's settings must not lead it elsewhere.
_OWN: Final = ("ORCH_MODEL", "ORCH_MODEL_CHEAP", "ORCH_DB")


@command("demo")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--yes", "-y", is_flag=True, help="Approve at the gate, and go on to the end.")
def demo(state: State, folder: str | None, yes: bool) -> int:
    """Run the ten-step example with hand-written sample answers; no key is needed.

    It stops at a gate, as a run of your own would, until you approve or reject. The example is copied into DIR, by
    default a new temporary folder.
    """
    from orchestrator.cli.inputs import read_inputs
    from orchestrator.cli.run import start
    from orchestrator.cli.trust import trust_made
    from orchestrator.engine import RunOptions

    out = console(stderr=state.json)
    show(out, FIRST_LINE)
    target = copy_example(folder)
    trust_made(target, [str(path.relative_to(target)) for path in target.rglob("*.py")], by="demo")
    state.prefix = f"{_program()} -C {shlex.quote(str(target))}"
    state.db = None
    show(out, f"project: {target}")
    desk = demo_desk(state, target, os.environ)
    graph = desk.graph(PIPELINE, require_model=True)
    inputs = read_inputs(str(target / BRIEF), (), graph.inputs)
    code = start(desk, graph, RunOptions(inputs=inputs), ask=not yes, hints=False)
    _print_next(state, {EXIT_OK: _AT_THE_END, EXIT_WAITING: _AT_THE_GATE}.get(code, ()))
    return code


def _program() -> str:
    """How to call this program again from here: after `make demo` it is not on the PATH."""
    typed = sys.argv[0]
    return shlex.quote(typed) if Path(typed).name == "orch" and shutil.which("orch") is None else "orch"


def example_root() -> Path:
    """The shipped example: beside the shelves, in a checkout as in an installed package. Raises ConfigError."""
    from orchestrator.project import library_root

    root = library_root() / "examples" / PIPELINE
    if not root.is_dir():
        raise ConfigError(f"the example is missing from {root.parent}", hint="Install step-orchestrator again.")
    return root


def copy_example(folder: str | None) -> Path:
    """A copy of the example in an empty folder, set up for sample answers. Raises UsageError, ConfigError."""
    source = example_root()
    target = Path(folder).resolve() if folder else Path(tempfile.mkdtemp(prefix="orch-demo-"))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not an empty folder", hint="Name a new folder, or none for a temporary one.")
    try:
        shutil.copytree(
            source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".orch", "__pycache__", ".env", "*.pyc")
        )
        (target / ".env").write_text(f"ORCH_MODEL={MODEL}\n", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{target} cannot be written: {reason}", hint="Name a folder you can write to.") from error
    return target


def demo_desk(state: State, target: Path, environ: Mapping[str, str]) -> Desk:
    """The copy's project under the demo's own settings."""
    from orchestrator.cli.session import Desk
    from orchestrator.project import find_project
    from orchestrator.settings import load_settings

    project = find_project(target)
    environment = {**{name: value for name, value in environ.items() if name not in _OWN}, "ORCH_MODEL": MODEL}
    return Desk(state, project, load_settings(project, environment))


def _print_next(state: State, lines: Sequence[str]) -> None:
    out = console(stderr=state.json)
    for line in ("next:", *(f"  {state.command(line)}" for line in lines)) if lines else ():
        show(out, line)
