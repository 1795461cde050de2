"""`trust`, and the gate before every command that would execute a project's code or contact its hosts (S24).

The gate stands where a command opens its project, ahead of everything else: what the user has not agreed to is listed
and asked about on a terminal, and refused with exit code 7 where nobody can answer. `--trust` and ORCH_TRUST=1 agree
for one command and are not stored; the variable counts from the process environment only, never from a `.env`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document, print_error
from orchestrator.cli.terminal import console, excerpt, hide, show, visible
from orchestrator.errors import AccessRefused, ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.project import Project
    from orchestrator.settings import Settings
    from orchestrator.trust import Demand, Standing, TrustFile

SCHEMA: Final = "orch.trust/1"
TITLES: Final[Mapping[str, str]] = {
    "code": "executes",
    "host": "sends to",
    "key": "takes as key",
    "mcp": "starts",
    "database": "keeps runs in",
}
_YES: Final = ("1", "true", "yes")


@command("trust")
@click.option("--yes", "-y", is_flag=True, help="Agree without being asked.")
@click.option("--always", is_flag=True, help="Also to later changes: for a project that only you write.")
@click.option("--revoke", is_flag=True, help="Take your word back.")
def trust(state: State, yes: bool, always: bool, revoke: bool) -> int:
    """Show what this project executes and contacts, and agree to it.

    Lists its Python files, the hosts it chooses, and the environment variables it sends as keys. Nothing is executed
    or sent. Your word is kept by hash: what changes is asked about again.
    """
    from orchestrator.project import find_project
    from orchestrator.settings import load_settings
    from orchestrator.trust import TrustFile, standing

    project = find_project(Path.cwd())
    settings = load_settings(project, os.environ, db=state.db)
    hide(settings.secret_values())
    file = TrustFile.of(os.environ)
    if revoke:
        return _revoke(state, project, file)
    found = standing(project, settings, file)
    out = console(stderr=state.json)
    if not state.json:
        _print(out, project, found)
    if always or found.missing:
        if not (yes or state.trust):
            try:
                _ask(state, found, always=always)
            except AccessRefused as error:
                return _refused(state, project, found, error)
        _store(project, found.demands, file, by="trust", always=always)
        found = standing(project, settings, file)
        show(out, f"trusted, and kept in {file.path}")
    if state.json:
        print_document(document(project, found))
    return 0


def require_trust(state: State, project: Project, settings: Settings) -> Project:
    """The project, limited to the code its user has agreed to. Raises AccessRefused (exit 7) where they have not."""
    from orchestrator.trust import TrustFile, standing

    if state.trust or os.environ.get("ORCH_TRUST", "").lower() in _YES:
        return project
    file = TrustFile.of(os.environ)
    found = standing(project, settings, file)
    if found.missing:
        _ask(state, found, listed=False)
        _store(project, found.demands, file, by="asked")
    return project if found.why in ("always", "shipped") else replace(project, executable=found.executable)


def trust_made(target: Path, names: Iterable[str], by: str) -> None:
    """Trust files that a command of ours has just made in `target`. Where that cannot be kept, it is said: the project
    works all the same, and asks."""
    from orchestrator.project import find_project
    from orchestrator.trust import TrustFile, code_demand

    project = find_project(target)
    code = [code_demand(project, project.root / name) for name in names if name.endswith(".py")]
    _store(project, code, TrustFile.of(os.environ), by=by)


def stands(project: Project, settings: Settings) -> Standing:
    """How the project stands with its user, nothing asked."""
    from orchestrator.trust import TrustFile, standing

    return standing(project, settings, TrustFile.of(os.environ))


def in_words(found: Standing) -> str:
    """How a project stands, on one line."""
    if found.missing:
        return f"{'changed since it was trusted' if found.before else 'not trusted yet'}: {_sentence(found.missing)}"
    return {
        "shipped": "it ships with orch",
        "nothing": "it executes nothing and chooses no host or key",
        "always": "trusted, whatever changes",
    }.get(found.why or "", "trusted as it is now")


def document(project: Project, found: Standing) -> dict[str, Any]:
    """`orch.trust/1`: what the project demands, each with whether it is new to the user."""
    missing = set(found.missing)
    return {
        "schema": SCHEMA,
        "project": str(project.root),
        "trusted": not found.missing,
        "why": found.why,
        "demands": [
            {"kind": one.kind, "name": one.name, "note": one.note, "sha256": one.sha, "agreed": one not in missing}
            for one in found.demands
        ],
    }


def _refused(state: State, project: Project, found: Standing, error: AccessRefused) -> int:
    """Not agreed to: programs get the list all the same, and it is still exit code 7."""
    if not state.json:
        raise error
    print_document(document(project, found))
    print_error(error)
    return error.exit_code


def _revoke(state: State, project: Project, file: TrustFile) -> int:
    try:
        had = file.revoke(project.root)
    except OSError as error:
        raise ConfigError(f"{file.path} cannot be written: {error.strerror}", hint="Make it writable.") from error
    if state.json:
        print_document({"schema": SCHEMA, "project": str(project.root), "trusted": False, "revoked": had})
    else:
        show(console(), "not trusted any more" if had else "it was not trusted")
    return 0


def _ask(state: State, found: Standing, *, listed: bool = True, always: bool = False) -> None:
    """Ask on a terminal, ahead of it the list of what is new. Raises AccessRefused for a no, and where nobody can
    answer."""
    from orchestrator.cli.session import plain_interrupts

    changed = "has changed since you trusted it" if found.before else "is not trusted yet"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        wants = f": it {_sentence(found.missing)}" if found.missing else ""
        raise AccessRefused(
            f"this project {changed}{wants}; nothing was executed or sent",
            hint=f"Look at it, then: {state.command('trust --yes')}; or agree for one command with --trust, or "
            "ORCH_TRUST=1 in the environment.",
            code="untrusted",
        )
    if not listed:
        _list(console(stderr=True), found)
    question = "Trust this project, whatever changes in it?" if always else "Trust this project?"
    with plain_interrupts():
        if not click.confirm(question, default=False, err=True):
            raise AccessRefused(
                "not trusted: nothing was executed or sent",
                hint="Look at the files listed above; `orch trust` asks again.",
                code="untrusted",
            )


def _store(project: Project, agreed: Sequence[Demand], file: TrustFile, *, by: str, always: bool = False) -> None:
    """Keep the user's word; a home that cannot be written costs the memory of it, not the command."""
    try:
        file.agree(project.root, agreed, by=by, always=always)
    except (OSError, ConfigError) as error:
        reason = error.message if isinstance(error, ConfigError) else f"{file.path}: {(error.strerror or error)}"
        show(console(stderr=True), visible(f"note: trust in this project could not be kept ({reason})"))


# --- words ------------------------------------------------------------------------------------------------------------


def _print(out: Console, project: Project, found: Standing) -> None:
    """All that the project demands, for `orch trust`."""
    show(out, visible(str(project.root), one_line=True))
    if not found.demands:
        show(out, "  executes nothing and chooses no host or key: there is nothing to trust")
        return
    _print_rows(out, found.demands, set(found.missing) if found.before else set())
    if not found.missing:
        show(out, f"  {'it ships with orch' if found.why == 'shipped' else 'trusted already'}")


def _list(out: Console, found: Standing) -> None:
    """What the user has not agreed to, ahead of the question."""
    head = "This project has changed since you trusted it. New:" if found.before else "This project is not trusted yet:"
    show(out, head)
    _print_rows(out, found.missing, set())


def _print_rows(out: Console, rows: Sequence[Demand], new: set[Demand]) -> None:
    from rich.text import Text

    width = max(len(title) for title in TITLES.values())
    for row in rows:
        note = f"  ({visible(row.note, one_line=True)})" if row.note else ""
        line = Text.assemble(f"  {TITLES[row.kind]:<{width}}  ", (excerpt(row.name, 120), "bold"), note)
        show(out, line.append("  new", "yellow") if row in new else line)


def _sentence(missing: Sequence[Demand]) -> str:
    """`executes a.py and b.py, sends to host, takes as key NAME`."""
    parts = []
    for kind, title in TITLES.items():
        names = list(dict.fromkeys(excerpt(one.name, 60) for one in missing if one.kind == kind))
        if names:
            shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
            parts.append(f"{title} {' and '.join(filter(None, [', '.join(shown[:-1]), shown[-1]]))}")
    return ", ".join(parts)
