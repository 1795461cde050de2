"""Follow-ups at a vendor's own rules, over HTTP, and in processes that are killed (S05, S13)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator import edits, engine
from orchestrator.engine import RunOptions
from orchestrator.graph import Graph, build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.step import Services
from tests import process_kit
from tests.process_kit import Process
from tests.strict_messages import MessagesServer, form_of
from tests.strict_server import Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.harness import look

ROOT = Path(__file__).parents[2]
PIPELINE = """
version: 1
pipeline: price
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  price:
    about: "What the work costs."
    not_for: none
    schema: {type: object, properties: {note: {type: string}}, required: [note], additionalProperties: false}
  letter: {about: "A letter.", not_for: none, schema: text}
steps:
  price: {reads: [idea], prompt: "Estimate the price."}
  letter: {reads: [price], prompt: "Write."}
"""


# --- a strict server --------------------------------------------------------------------------------------------------


def by_turn(seen: Seen) -> dict[str, Any]:
    if not seen.name:
        return {"text": "A letter."}
    return {"json": {"note": f"ORIGINAL {seen.turn + 1}"}, "reasoning": f"THOUGHT {seen.turn + 1}"}


class Desk:
    """A project whose provider is this server; each command opens everything anew, as a process of its own would."""

    def __init__(self, folder: Path, server: StrictServer, more: str = "", kind: str = "openai") -> None:
        table = f'user = "ana"\n[providers.vendor]\nkind = "{kind}"\nbase_url = "{server.base_url}"\n{more}'
        (folder / "orchestrator.toml").write_text(table, encoding="utf-8")
        (folder / "price.yaml").write_text(PIPELINE, encoding="utf-8")
        self.folder = folder

    def do(self, work: Callable[[Services, Graph], Awaitable[Any]]) -> Run:
        async def go() -> Run:
            project = find_project(self.folder)
            settings = load_settings(project, {"ORCH_MODEL": "vendor:m", "HOME": str(self.folder)})
            graph = build_graph(project, settings, project.pipeline(None), require_model=True)
            db = f"sqlite:///{self.folder}/.orch/orch.db"
            async with engine.open_services(project, settings, db=db) as services:
                await work(services, graph)
                return await look(services, graph, (await services.store.run("last")).id)

        return asyncio.run(go())

    def run(self) -> Run:
        return self.do(lambda services, graph: engine.start_run(services, graph, RunOptions(inputs={"idea": "a shop"})))

    def revise(self, comment: str) -> Run:
        async def work(services: Services, graph: Graph) -> None:
            await engine.revise(services, graph, await services.store.run("last"), "price", comment)

        return self.do(work)

    def edit(self, value: Any) -> Run:
        async def work(services: Services, graph: Graph) -> None:
            run = await services.store.run("last")
            base = (await services.store.artifact(run.id, "price")).version.version
            await edits.edit_artifact(services, graph, run, "price", value=value, base_version=base)

        return self.do(work)


def of_price(server: StrictServer) -> list[Seen]:
    return [seen for seen in server.seen if seen.name == "price"]


def effective(seen: Seen) -> str:
    return json.dumps(seen.effective, ensure_ascii=False)


def test_S05_over_http_a_word_is_sent_on_the_last_reply_and_alone(tmp_path: Path) -> None:
    with StrictServer(by_turn) as server:
        desk = Desk(tmp_path, server)
        desk.run()
        run = desk.revise("first word")
        run = desk.revise("second word")
        first, second, third = of_price(server)
    assert "previous_response_id" not in first.body
    assert second.body["previous_response_id"] == first.response["id"]
    assert third.body["previous_response_id"] == second.response["id"]
    (item,) = third.body["input"]
    assert json.dumps("[Comment for this version]\nsecond word")[1:-1] in json.dumps(item)
    assert "first word" not in json.dumps(third.body["input"])
    assert effective(third).count("Estimate the price.") == 1
    for key in ("instructions", "text", "model", "store"):
        assert third.body.get(key) == first.body.get(key), f"{key} is sent again unchanged"
    assert run.value("price") == {"note": "ORIGINAL 3"}


def test_S05_over_http_an_edit_survives_and_nothing_of_the_old_value_is_seen(tmp_path: Path) -> None:
    with StrictServer(by_turn) as server:
        desk = Desk(tmp_path, server)
        desk.run()
        desk.edit({"note": "EDITED by ana"})
        run = desk.revise("add the towels")
        before, after = of_price(server)
    assert "previous_response_id" not in after.body
    assert "ORIGINAL" not in effective(after)
    assert "THOUGHT" not in effective(after)
    assert "EDITED by ana" in effective(after)
    assert "Current draft: edited by ana" in effective(after)
    assert effective(after).rindex("add the towels") > effective(after).rindex("EDITED by ana")
    assert [v.version for v in run.versions["price"]] == [1, 2, 3]
    assert before.effective != after.effective


@pytest.mark.parametrize("zdr", [False, True], ids=["forgotten", "zdr"])
def test_S13_over_http_a_lost_thread_is_sent_again_whole(tmp_path: Path, zdr: bool) -> None:
    with StrictServer(by_turn, zdr=zdr) as server:
        desk = Desk(tmp_path, server, "store = false\n" if zdr else "")
        desk.run()
        desk.revise("first word")
        if not zdr:
            server.forget(of_price(server)[-1].response["id"])
        run = desk.revise("second word")
        asked = of_price(server)[-1]
    assert asked.status == 200
    assert "previous_response_id" not in asked.body
    kinds = [item.get("type", "message") for item in asked.body["input"]]
    assert kinds == ["message", "reasoning", "message", "message", "reasoning", "message", "message"]
    assert asked.body["input"][0] == of_price(server)[0].body["input"][0], "the same bytes as at first"
    assert run.value("price") == {"note": "ORIGINAL 3"}
    assert run.journals["price"][-1].threads[0].calls[-1].sent.rung == "replay"


def test_S13_anthropic_is_sent_the_whole_thread_and_its_thoughts_as_they_were(tmp_path: Path) -> None:
    """It keeps no chain, so a follow-up brings every turn along, none of another step."""

    def answer(seen: Seen) -> dict[str, Any]:
        if form_of(seen) is None:
            return {"text": "A letter."}
        return {"json": {"note": f"ORIGINAL {seen.turn + 1}"}, "reasoning": f"THOUGHT {seen.turn + 1}"}

    with MessagesServer(answer) as server:
        desk = Desk(tmp_path, server, kind="anthropic")
        desk.run()
        desk.revise("first word")
        run = desk.revise("second word")
        first, _, third = [seen for seen in server.seen if form_of(seen) is not None]
    assert [message["role"] for message in third.body["messages"]] == ["user", "assistant"] * 2 + ["user"]
    said = json.dumps(third.body["messages"], ensure_ascii=False)
    assert said.count("Estimate the price.") == 1
    assert said.index("ORIGINAL 1") < said.index("first word") < said.index("ORIGINAL 2") < said.index("second word")
    assert [part["text"] for part in third.body["system"]] == [part["text"] for part in first.body["system"]]
    assert run.value("price") == {"note": "ORIGINAL 3"}
    assert [call.sent.source for call in run.calls("price")] == ["NEXT_STEP", "FOLLOW_UP", "FOLLOW_UP"]


# --- killed processes -------------------------------------------------------------------------------------------------

SECONDS = 60.0


def orch(folder: Path, *arguments: str) -> Process:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "ORCH_TRUST": "1"}
    env |= {"ORCH_MODEL": "scripted:answers", "ORCH_USER": "ana"}
    return process_kit.start(folder, *arguments, env=env, stderr=process_kit.STDOUT)


def done(process: Process) -> str:
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    return said


def wait_for(folder: Path, sql: str) -> None:
    """Until the database of a process at work says so."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        with closing(sqlite3.connect(f"file:{folder}/.orch/orch.db?mode=ro", uri=True, timeout=30)) as database:
            if database.execute(sql).fetchone()[0]:
                return
        time.sleep(0.02)
    raise AssertionError(f"it never came to {sql}")


def test_A9_a_revise_that_is_killed_with_its_call_in_flight_is_gone_on_with(tmp_path: Path) -> None:
    """Three rounds, each in a process of its own, the second killed: three versions, and one call paid twice."""
    replies = [{"json": {"note": f"round {n}"}, "delay": 3.0 if n == 2 else 0.0} for n in range(4)]
    (tmp_path / "orchestrator.toml").write_text("", encoding="utf-8")
    (tmp_path / "price.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "price.json").write_text(json.dumps(replies), encoding="utf-8")
    (tmp_path / "answers" / "letter.json").write_text(json.dumps(["A letter."]), encoding="utf-8")
    done(orch(tmp_path, "run", "--set", "idea=a shop", "--yes"))
    done(orch(tmp_path, "revise", "1/price", "one"))
    killed = orch(tmp_path, "revise", "1/price", "two")
    flying = "SELECT COUNT(*) FROM call c JOIN attempt a ON a.id = c.attempt_id WHERE a.number = 3 AND c.state = 'sent'"
    wait_for(tmp_path, flying)
    killed.kill()
    killed.communicate(timeout=SECONDS)
    assert killed.returncode < 0
    done(orch(tmp_path, "resume", "1"))
    done(orch(tmp_path, "revise", "1/price", "three"))
    history = json.loads(done(orch(tmp_path, "history", "1/price", "--json")))
    assert [version["version"] for version in history["versions"]] == [1, 2, 3, 4]
    assert "round 3" in done(orch(tmp_path, "show", "1/price"))
    with closing(sqlite3.connect(tmp_path / ".orch" / "orch.db")) as database:
        rows = database.execute(
            "SELECT a.number, a.state, a.mode, c.source, c.state FROM attempt a JOIN call c ON c.attempt_id = a.id"
            " JOIN step s ON s.id = a.step_id WHERE s.name = 'price' ORDER BY a.number, c.seq"
        ).fetchall()
    assert rows == [
        (1, "succeeded", "", "NEXT_STEP", "done"),
        (2, "succeeded", "follow_up", "FOLLOW_UP", "done"),
        (3, "succeeded", "follow_up", "FOLLOW_UP", "sent"),
        (3, "succeeded", "follow_up", "FOLLOW_UP", "done"),
        (4, "succeeded", "follow_up", "FOLLOW_UP", "done"),
    ]
