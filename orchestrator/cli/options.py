"""Options that every command takes, before or after its name, and the state they fill."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from orchestrator.cli.terminal import visible
from orchestrator.errors import UsageError

# The commands that may ask models, and so take --record and --replay.
GOES_ON = frozenset({"run", "resume", "approve", "reject", "refresh", "rerun", "revise", "bench"})


@dataclass(slots=True)
class State:
    """What the command line said for the whole command; `prefix` is how to address this project in printed commands.

    `json`: documents on stdout, text for people on stderr; `jsonl`: one line each, events too.
    """

    json: bool = False
    jsonl: bool = False
    db: str | None = None
    tenant: str = "-"
    account: str = "-"
    subject: str = "-"
    trust: bool = False
    prefix: str = "orch"
    run_number: int | None = None
    record: str | None = None
    replay: str | None = None

    def command(self, text: str) -> str:
        """A command the user can paste, for the project and database this one ran on; safe to print (S27).

        One that goes on with a run that is recorded or replayed does so too: a replay leads to no paid call.
        """
        going_on = text.split(" ", 1)[0] in GOES_ON
        tapes = (("--record", self.record), ("--replay", self.replay)) if going_on else ()
        taped = "".join(f" {name} {shlex.quote(folder)}" for name, folder in tapes if folder is not None)
        return visible(f"{self.prefix} {text}{taped}")


def state_of(context: click.Context) -> State:
    """The state of this invocation; made by the root group."""
    return context.ensure_object(State)


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        setattr(state_of(context), parameter.name, value)


def plain_text(name: str, value: str | None) -> None:
    """Raises UsageError for a value that says nothing (an unset variable, mostly) or holds bytes that are no text."""
    if value is None:
        return
    if not value.strip():
        raise UsageError(f"{name} is empty", hint=f"Give {name} a value, or leave it out.")
    if not _is_text(value):
        raise UsageError(f"{name} is not UTF-8 text", hint="Type it anew, or check where it comes from.")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scope(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    plain_text(f"--{parameter.name}", value)
    _store(context, parameter, value)


def _enter(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """`-C` acts first: from here on every relative path is from that folder, as with git and make."""
    if value is None:
        return
    try:
        os.chdir(value)
    except OSError as error:
        raise UsageError(f"-C {value}: {(error.strerror or str(error)).lower()}", hint="Give a folder.") from error
    state = state_of(context)
    state.prefix += f" -C {shlex.quote(value)}"


def _database(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from orchestrator.settings import url_secrets

        state = state_of(context)
        state.db = value
        if not any(url_secrets(value)):  # a server's URL may hold a password, which no hint may repeat
            state.prefix += f" --db {shlex.quote(value)}"


def tape_options(function: Callable[..., int]) -> Callable[..., int]:
    """--record and --replay, for the commands that call models."""

    def keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        plain_text(f"--{parameter.name}", value)
        if value is not None and parameter.name is not None:
            setattr(state_of(context), parameter.name, value)

    def option(name: str, text: str) -> Callable[..., Callable[..., int]]:
        return click.option(name, metavar="DIR", expose_value=False, callback=keep, help=text)

    recorded = option("--record", "Write down what the models answer, to have it again.")
    return recorded(option("--replay", "Answer from recordings: nothing is sent or paid.")(function))


def shared_options() -> list[click.Parameter]:
    """Fresh option objects for one command. None means not given, so that a later place never undoes an earlier one."""

    def option(*names: str, callback: Callable[..., None] = _store, **more: Any) -> click.Option:
        return click.Option(names, callback=callback, expose_value=False, **more)

    return [
        option("-C", "directory", callback=_enter, is_eager=True, metavar="DIR", help="Work in DIR (acts first)."),
        option(
            "--db", callback=_database, metavar="URL", help="Database: postgresql://… or sqlite:///… (.orch/orch.db)."
        ),
        option("--json", is_flag=True, default=None, help="One JSON document on stdout."),
        option("--tenant", callback=_scope, metavar="ID", hidden=True, help="Whose data: tenant."),
        option("--account", callback=_scope, metavar="ID", hidden=True, help="Whose data: account."),
        option("--subject", callback=_scope, metavar="ID", hidden=True, help="Whose data: subject."),
        option("--trust", is_flag=True, default=None, help="Trust this project's code and hosts."),
    ]


class Command(click.Command):
    """A command that also takes the shared options. Returns its exit code; None is 0."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += shared_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click does not say it of an option without its value
            raise


def command(name: str) -> Callable[[Callable[..., int | None]], Command]:
    """Declare a command whose first argument is the `State`."""

    def decorate(function: Callable[..., int | None]) -> Command:
        return click.command(name, cls=Command)(_with_state(function))

    return decorate


class Group(click.Group):
    """Commands under one noun, which takes the shared options too and may do something by itself."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += shared_options()

    def command(self, name: str) -> Callable[[Callable[..., int | None]], Command]:  # type: ignore[override]
        """Declare a command of this noun, as `command` does."""

        def decorate(function: Callable[..., int | None]) -> Command:
            made = command(name)(function)
            self.add_command(made)
            return made

        return decorate

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            hint = f"There are {', '.join(self.commands)}."
            raise UsageError(f'there is no command "{self.name} {args[0]}"', hint=hint)
        return super().resolve_command(ctx, args)


def group(name: str) -> Callable[[Callable[..., int | None]], Group]:
    """Declare a noun. Its function runs ahead of each of its commands, and alone where none is named."""

    def decorate(function: Callable[..., int | None]) -> Group:
        made = click.group(name, cls=Group, invoke_without_command=True)(_with_state(function))
        assert isinstance(made, Group)
        return made

    return decorate


def _with_state(function: Callable[..., int | None]) -> Callable[..., int | None]:
    from functools import wraps

    @wraps(function)
    def call(*args: Any, **values: Any) -> int | None:
        return function(state_of(click.get_current_context()), *args, **values)

    return call
