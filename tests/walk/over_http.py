"""Walks over real HTTP: a project on disk whose models live at strict servers, run in this process or as commands.

A shop buys and reports: the first step calls a tool and answers in a form, the second writes text about it.

    with OPENAI.stand_in(shopper) as server:
        env = at(server, OPENAI)
        shop(tmp_path)
        run = run_here(tmp_path, env, {"idea": "a house"})           # the run as the store has it
        code, out, err = typed(tmp_path, env, "show", "last")        # a process, as a user has it
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.cli.app import run as orch_run
from orchestrator.engine import RunOptions
from orchestrator.graph import Graph, build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.step import Services
from tests import process_kit
from tests.contract.vendors import CHAT, Vendor
from tests.strict_messages import form_of as messages_form
from tests.strict_server import Answer, Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.harness import look

ROOT = Path(__file__).parents[2]
PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  price: {about: "What it costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer, minimum: 1}}, required: [cost], additionalProperties: false}}
steps:
  buy: {reads: [idea], produces: price, tools: ["work.py:order"], prompt: "Order it."}
  report: {reads: [buy], produces: note, prompt: "Report."}
outputs: [report]
"""
WORK = '''
import os
import signal
from pathlib import Path

from orchestrator import tool

HERE = Path(__file__).parent


@tool(idempotent=IDEMPOTENT)
def order(part: str) -> str:
    """Order a part."""
    with (HERE / "world.txt").open("a") as world:
        world.write(part + "\\n")
    if (HERE / "trap").exists():
        (HERE / "trap").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return part + " is ordered"
'''
CALL: dict[str, Any] = {
    "reasoning": "A door, then.",
    "tool_calls": [{"name": "order", "arguments": {"part": "door"}}],
}
GOOD: dict[str, Any] = {"json": {"cost": 24}}
DONE: dict[str, Any] = {"text": "done"}


# --- the project ------------------------------------------------------------------------------------------------------


def shop(folder: Path, pipeline: str = PIPELINE, config: str = "", *, idempotent: bool = True) -> Path:
    """The project's files; its providers are known by the environment (`at`), or by tables in `config`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orchestrator.toml").write_text(f'user = "ana"\n{config}', encoding="utf-8")
    (folder / "shop.yaml").write_text(pipeline, encoding="utf-8")
    (folder / "work.py").write_text(WORK.replace("IDEMPOTENT", str(idempotent)), encoding="utf-8")
    return folder


def world(folder: Path) -> list[str]:
    """What the tool has done, in order."""
    path = folder / "world.txt"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def table(name: str, kind: str, server: StrictServer, more: str = "") -> str:
    """A provider's lines in the project file."""
    return f'[providers.{name}]\nkind = "{kind}"\nbase_url = "{server.base_url}"\n{more}'


def named(vendor: Vendor, server: StrictServer) -> str:
    """What a project file has to say of a vendor that is not known by name."""
    return table(vendor.name, vendor.kind, server, f'api_key_env = "{vendor.key_env}"\n') if vendor is CHAT else ""


def at(server: StrictServer, vendor: Vendor, model: str = "") -> dict[str, str]:
    """The variables under which the project's model is one of this server's, and its key is known."""
    url = {} if vendor is CHAT else {f"{vendor.name.upper()}_BASE_URL": server.base_url}
    return {**url, vendor.key_env: vendor.key, "ORCH_MODEL": f"{vendor.name}:{model or vendor.model}"}


def buys(seen: Seen) -> bool:
    """Whether a request is of the step that buys: the one that asks for a form."""
    return bool(messages_form(seen) or seen.body.get("text") or seen.body.get("response_format"))


def shopper(seen: Seen) -> dict[str, Any]:
    """By what the thread holds, so that the same request gets the same reply."""
    return (CALL, GOOD)[seen.turn] if buys(seen) else DONE


def buying(*replies: Mapping[str, Any]) -> Answer:
    """Written replies for the step that buys, by the requests that it has made; the other says "done"."""
    left = iter(replies)
    return lambda seen: dict(next(left)) if buys(seen) else DONE


# --- in this process --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def opened(folder: Path, env: Mapping[str, str], **options: Any) -> AsyncIterator[tuple[Services, Graph]]:
    """What a command has open in this project. `options` are those of open_services."""
    project = find_project(folder)
    settings = load_settings(project, {"HOME": str(folder), **env})
    graph = build_graph(project, settings, project.pipeline(None), require_model=True)
    database = f"sqlite:///{folder}/.orch/orch.db"
    async with engine.open_services(project, settings, **{"db": database, **options}) as services:
        yield services, graph


def run_here(
    folder: Path, env: Mapping[str, str], inputs: Mapping[str, Any], *, approver: str | None = None, **options: Any
) -> Run:
    """`orch run`. `options` are those of open_services."""

    async def go() -> Run:
        async with opened(folder, env, **options) as (services, graph):
            approving = replace(services, approver=approver)
            row = await engine.start_run(approving, graph, RunOptions(inputs=inputs))
            return await look(services, graph, row.id)

    return asyncio.run(go())


def resume_here(folder: Path, env: Mapping[str, str], **options: Any) -> Run:
    """`orch resume --take-over` of the newest run."""

    async def go() -> Run:
        async with opened(folder, env, **options) as (services, graph):
            row = await engine.resume_run(services, graph, await services.store.run("last"), take_over=True)
            return await look(services, graph, row.id)

    return asyncio.run(go())


def seen_here(folder: Path, env: Mapping[str, str]) -> Run:
    """The newest run as it is."""

    async def go() -> Run:
        async with opened(folder, env) as (services, graph):
            return await look(services, graph, (await services.store.run("last")).id)

    return asyncio.run(go())


# --- as commands ------------------------------------------------------------------------------------------------------


def environment(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Of a process that knows this checkout, what is given, and nothing of the developer's settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))}
    private = {"ORCH_TRUST": "1", "XDG_CONFIG_HOME": str(folder / "config"), "PYTHONPATH": str(ROOT)}
    return {**own, **private, **env}


def started(folder: Path, env: Mapping[str, str], *arguments: str) -> process_kit.Process:
    """A command, as a user types it in the project's folder."""
    return process_kit.start(folder, *arguments, env=environment(folder, env))


def typed(folder: Path, env: Mapping[str, str], *arguments: str) -> tuple[int, str, str]:
    """The same to its end: exit code, output, and what was said beside it."""
    process = started(folder, env, *arguments)
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    return process.returncode, out, err


def commands(
    folder: Path, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The same in this process, which is quicker: a command must end with `code`; what it prints. With --json that is
    the document alone."""
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    private = {"ORCH_TRUST": "1", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    for name, value in {**private, **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)

    def orch(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        given = orch_run(arguments)
        out, err = capsys.readouterr()
        assert given == code, out + err
        assert "Traceback" not in out + err
        return out if "--json" in arguments else out + err

    return orch
