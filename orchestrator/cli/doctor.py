"""`doctor`: what this installation and project would use, and where each value comes from. Nothing is contacted."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, hide, show, visible
from orchestrator.errors import ConfigError, OrchError, StoreError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.project import Project
    from orchestrator.settings import Settings
    from orchestrator.trust import Standing

SCHEMA: Final = "orch.doctor/1"
PACKAGES: Final = (
    "step-orchestrator",
    "openai",
    "anthropic",
    "pydantic",
    "sqlmodel",
    "sqlalchemy",
    "alembic",
    "psycopg",
    "genai-prices",
)
# None: it was not looked at.
_EXISTS: Final = {True: "ok", False: "made by the first run", None: "not opened: the project is not trusted"}


@command("doctor")
def doctor(state: State) -> int:
    """Show settings with their origin, database, keys, hosts and versions.

    Secrets are shown as set or not set. Exit code 8 where the database is damaged or cannot be opened.
    """
    from orchestrator.cli.trust import in_words, stands
    from orchestrator.settings import load_settings

    project = _project()
    settings = load_settings(project, os.environ, db=state.db)
    hide(settings.secret_values())
    found = stands(project, settings) if project else None
    database = _database(state, settings, found)
    document = {
        "schema": SCHEMA,
        "project": str(project.root) if project else None,
        "trust": in_words(found) if found else None,
        "settings": [
            {"name": name, "value": setting.value, "origin": setting.origin, "secret": setting.secret}
            for name, setting in settings.table()
        ],
        "database": database,
        "hosts": _hosts(project, settings),
        "versions": _versions(),
    }
    if state.json:
        print_document(document)
    else:
        _print(console(), document)
    return StoreError.exit_code if database["problems"] else 0


def _project() -> Project | None:
    """The project here, or None outside of one: the settings of user and environment can be asked for anywhere."""
    from orchestrator.project import find_project

    try:
        return find_project(Path.cwd())
    except ConfigError as error:
        if error.place is not None:
            raise
        return None


def _hosts(project: Project | None, settings: Settings) -> list[str]:
    if project is None:
        return []
    from orchestrator.providers.registry import Providers

    return list(Providers(project, settings).hosts())


def _database(state: State, settings: Settings, found: Standing | None) -> dict[str, Any]:
    """The database's address and what is wrong with it; one that does not exist yet is not made, and one that a
    project has chosen without its user's word is not opened."""
    from orchestrator.cli.session import database_file, drive
    from orchestrator.settings import shown_url
    from orchestrator.store import open_store
    from orchestrator.values import Scope

    file = database_file(settings.db)
    about: dict[str, Any] = {"url": shown_url(settings.db), "exists": file is None or file.exists(), "problems": []}
    unasked = found is not None and any(one.kind == "database" for one in found.missing) and not state.trust
    if unasked:
        return {**about, "exists": None}
    if not about["exists"]:
        return about

    async def main() -> tuple[str, ...]:
        store = open_store(settings.db, Scope(state.tenant, state.account, state.subject), create=False)
        try:
            return await store.check()
        finally:
            await store.close()

    try:
        about["problems"] = list(drive(main))
    except OrchError as error:
        about |= {"exists": False} if error.code == "store_empty" else {"problems": [error.message]}
    return about


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version
    from sqlite3 import sqlite_version

    found = {"python": platform.python_version(), "sqlite": sqlite_version}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _print(out: Console, document: dict[str, Any]) -> None:
    from rich.text import Text

    def section(title: str, rows: list[tuple[str, str, str]]) -> None:
        show(out, Text(title, style="bold"))
        width = max((len(name) for name, _, _ in rows), default=0)
        for name, value, note in rows:
            origin = f"  ({visible(note, one_line=True)})" if note else ""
            said = f"  {visible(name, one_line=True):<{width}}  {visible(value, one_line=True)}"
            show(out, Text.assemble(said, (origin, "dim")))

    root = document["project"]
    trust = [("trust", document["trust"], "")] if root else []
    section("project", [("root", root or "none here: orch init DIR makes one", ""), *trust])
    section(
        "settings",
        [
            (row["name"], row["value"] or "not set", "" if row["origin"] == "not set" else row["origin"])
            for row in document["settings"]
        ],
    )
    database = document["database"]
    health = "; ".join(database["problems"]) or _EXISTS[database["exists"]]
    section("database", [("url", database["url"], ""), ("state", health, "")])
    section("hosts that can be contacted", [("", host, "") for host in document["hosts"]] or [("", "none", "")])
    section("versions", [(name, version, "") for name, version in document["versions"].items()])
    if sys.prefix == sys.base_prefix:
        show(out, Text("  not in a virtual environment", style="dim"))
