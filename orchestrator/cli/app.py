"""The root of the command line: which commands exist, where they live, and how every ending becomes an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import click

from orchestrator.cli.interruption import is_interruption
from orchestrator.cli.options import State, shared_options, state_of
from orchestrator.cli.report import only_documents, report_bug, report_error
from orchestrator.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, OrchError, UsageError

EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_LOOKS: Final = frozenset({"-h", "--help", "--version"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that is imported when it is used; `help` stands here so that the list needs no import."""

    module: str
    attribute: str
    help: str


def _entry(module: str, attribute: str, text: str) -> Entry:
    return Entry(f"orchestrator.cli.{module}", attribute, text)


# In the order of a day's work; each help text is the first line of the command's own (tested).
COMMANDS: Final[Mapping[str, Entry]] = {
    "init": _entry("init", "init", "Make a new project that runs with sample answers."),
    "check": _entry("check", "check", "Find every fault of the project in one pass."),
    "plan": _entry("plan", "plan", "Show what would run, why, and what it would cost; nothing is sent."),
    "render": _entry("render", "render", "Print the exact text a step would send; nothing is sent."),
    "run": _entry("run", "run", "Run a pipeline."),
    "show": _entry("show", "show", "Show a run, or the artifact of a step."),
    "why": _entry("why", "why", "Explain what a step's model saw, and what it did not see."),
    "resume": _entry("run", "resume", "Go on with a run; finished steps are not repeated."),
    "diff": _entry("diff", "diff", "Show what differs between two versions of an artifact."),
    "history": _entry("history", "history", "List the versions of an artifact: by whom, from what, what changed."),
    "edit": _entry("edit", "edit", "Replace an artifact by a new version."),
    "restore": _entry("restore", "restore", "Make an earlier version of an artifact the current one again."),
    "pin": _entry("pin", "pin", "Keep fields of a step's value as they are when it runs again."),
    "import": _entry("import_", "import_", "Take a file as the new version of an input or a step's artifact."),
    "export": _entry("export", "export", "Write a run as a folder with a report, or one artifact as a file."),
    "revise": _entry("revise", "revise", "Have a finished step changed as you say: it goes on in its thread."),
    "refresh": _entry("refresh", "refresh", "Run what is stale again, in the same run."),
    "keep": _entry("refresh", "keep", "Accept a stale step's version as it is."),
    "bench": _entry("bench", "bench", "Run one step several times on a run's inputs, and compare what comes out."),
    "approve": _entry(
        "gates", "approve", "Approve what a gate shows, or the tool calls that a step asks about; the run then goes on."
    ),
    "reject": _entry(
        "gates", "reject", "Reject what a gate shows, with a comment; what is not good enough is made again."
    ),
    "inbox": _entry(
        "inbox",
        "inbox",
        "List what waits for a person, over all runs: gates, tools in doubt, tools to be allowed, conflicts.",
    ),
    "rerun": _entry("run", "rerun", "Run again from a step, as a new run that shares what is unchanged."),
    "compare": _entry(
        "compare", "compare", "Show what two runs, or two versions, differ in: inputs, values, prompts, model, cost."
    ),
    "cost": _entry("cost", "cost", "Show what calls have cost: of RUN, or of all runs; by step, model, day or run."),
    "runs": _entry("runs", "runs", "List the runs of this project; or cancel, tag or remove some."),
    "explain": _entry("explain", "explain", "Explain a code of orch check, such as P101; without one, list them all."),
    "schema": _entry("schema", "schema", "Print the JSON Schema of pipeline, step or artifact files."),
    "mcp": _entry("mcp", "mcp", "Show the MCP servers of this project, or pin what they say of their tools."),
    "trust": _entry("trust", "trust", "Show what this project executes and contacts, and agree to it."),
    "db": _entry("db", "db", "Check the database, back it up into a file, or clean it."),
    "doctor": _entry("doctor", "doctor", "Show settings with their origin, database, keys, hosts and versions."),
    "demo": _entry("demo", "demo", "Run the ten-step example with hand-written sample answers; no key is needed."),
}


class Root(click.Group):
    """The group `orch`: commands are looked up in `COMMANDS` and imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else "orch --help lists the commands."
            raise UsageError(f'there is no command "{args[0]}"', hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"orch {version('step-orchestrator')}")
        context.exit()


EPILOG = """\b
References: 12 or last, last~1; 12/tech-stack; 12/tech-stack@2 (version 2).
Exit codes: 0 done · 1 a step failed · 2 usage · 3 invalid project or setting · 4 waits for a person · 5 budget ·
6 provider · 7 refused by access or guard · 8 database · 70 bug · 130 interrupted (resumable)."""


def root() -> Root:
    """The command tree, made anew."""
    params = [
        *shared_options(),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Version."
        ),
    ]
    return Root(
        "orch",
        params=params,
        help="Multi-step LLM workflows: stateless at step boundaries, chained within.",
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; everything a user should read has been printed."""
    from orchestrator.cli.terminal import hide, lenient_streams

    lenient_streams()
    hide(())
    asks = not _LOOKS.isdisjoint(arguments)
    lines = "--jsonl" in arguments and not asks
    state = State(json=lines or ("--json" in arguments and not asks), jsonl=lines)
    try:
        with only_documents(lines=state.jsonl) if state.json else nullcontext():
            code = _invoke(arguments, state)
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):
            report_bug(error, state)
            return EXIT_BUG
        # Whoever read our output has left: stop quietly, and keep the interpreter from flushing into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.ENOSPC:
            return EXIT_BROKEN_PIPE
        return report_error(
            OrchError("the output cannot be written: the disk is full", hint="Free some space."), State()
        )


def _invoke(arguments: Sequence[str], state: State) -> int:
    # Not click's own main(): it would answer a closed pipe by itself, with another code.
    try:
        group = root()
        with group.make_context("orch", list(arguments), obj=state) as context:
            result: Any = group.invoke(context)
        return result if isinstance(result, int) else EXIT_OK
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return UsageError.exit_code
    except click.ClickException as error:
        return report_error(_usage(error), state)
    except click.Abort:
        return _interrupted(state)
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, state)


def _failed(error: Exception | KeyboardInterrupt, state: State) -> int:
    """Answer what ended a command. Raises an OSError again: it may be the output itself that is broken."""
    if is_interruption(error):
        return _interrupted(state)
    if isinstance(error, OrchError):
        return report_error(error, state)
    if isinstance(error, OSError):
        raise error
    report_bug(error, state)
    return EXIT_BUG


def _usage(error: click.ClickException) -> UsageError:
    """click's own complaints in the style of ours."""
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "orch"
    return UsageError(message[:1].lower() + message[1:], hint=f"{where} --help shows what it takes.")


def _interrupted(state: State) -> int:
    if state.run_number is None:
        click.echo("interrupted", err=True)
    else:
        number = state.run_number
        click.echo(f"run {number} is paused: {state.command(f'resume {number}')}", err=True)
    return EXIT_INTERRUPTED


__all__ = ["COMMANDS", "root", "run", "state_of"]
