"""The whole way: the real command in a process of its own, the real SDK, a strict server at the other end of a socket.

The server refuses what the vendor refuses and keeps each request's very bytes and what its model saw in effect. One
tool is called, one answer is rejected, and everything that must stay inside its step is planted with a word of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.graph import build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from tests import process_kit
from tests.strict_server import Fault, Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.harness import look

EXAMPLE = Path(__file__).parents[2] / "examples" / "discovery"
ANSWERS = {path.stem: json.loads(path.read_text("utf-8")) for path in (EXAMPLE / "sample_answers").glob("*.json")}
# The server knows a step by the name of its contract's form; the summary is plain text and has none.
STEPS = {"risk-register": "risks", "competitor-list": "competitive-analysis", "": "executive-summary"}
MODEL = "some-model"
KEY = "sk-CANARY-key-0123456789"
USUAL_CALLS = dict.fromkeys(ANSWERS, 1) | {"tech-stack": 2, "cost-estimate": 2}


def step_of(seen: Seen) -> str:
    return STEPS.get(seen.name, seen.name)


def canary(kind: str, step: str, turn: int) -> str:
    return f"CANARY-{kind}-{step}-{turn}"


def sealed(text: str) -> str:
    """Reasoning as it travels: encrypted, here in name only."""
    return base64.b64encode(text.encode()).decode()


def example_answer(seen: Seen) -> dict[str, Any]:
    """The example's own sample answers, with canaries in reasoning, tool arguments and the rejected draft."""
    step, turn = step_of(seen), seen.turn
    reply: dict[str, Any] = json.loads(json.dumps(ANSWERS[step][turn]))
    for call in reply.get("tool_calls", ()):
        call["arguments"]["role"] = canary("ARGUMENT", step, turn)
    if step == "cost-estimate" and turn == 0:
        reply["json"]["assumptions"].append(canary("DRAFT", step, turn))
    return reply | {"reasoning": canary("REASONING", step, turn)}


def sees_the_task(seen: Seen) -> dict[str, Any]:
    """As above where the conversation is all there; without it, nonsense that fits the schema."""
    if any("[Previous artifacts" in str(item.get("content")) for item in seen.effective):
        return example_answer(seen)
    reply: dict[str, Any] = json.loads(json.dumps(ANSWERS[step_of(seen)][-1]))
    reply["json"]["summary" if "summary" in reply["json"] else "outside_option"] = "NONSENSE"
    return reply


class Forgetful(StrictServer):
    """Forgets the reply that asked for a tool as soon as it has been given."""

    def respond(self, seen: Seen, fault: Fault) -> dict[str, Any]:
        response = super().respond(seen, fault)
        if step_of(seen) == "tech-stack" and seen.turn == 0:
            self.forget(response["id"])
        return response


@dataclass
class Finished:
    """What the command printed, and what the server saw."""

    code: int
    run: Mapping[str, Any]
    stderr: str
    server: StrictServer

    def of(self, step: str) -> list[Seen]:
        return [seen for seen in self.server.seen if step_of(seen) == step]


def orch_run(tmp_path: Path, server: StrictServer, config: str = "", key: str = "test") -> Finished:
    """`orch run discovery` on a copy of the example, as a user types it."""
    project = tmp_path / "discovery"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns(".orch", "__pycache__"))
    if config:
        (project / "orchestrator.toml").write_text(config, encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))}
    env = own | {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key, "ORCH_MODEL": f"openai:{MODEL}"}
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    asked = ("run", "discovery", "--input", "briefs/clinic.json", "--json", "--yes", "--trust")
    done = process_kit.run(tmp_path, "-C", str(project), *asked, env=env, timeout=240)
    assert done.stdout, done.stderr
    return Finished(done.returncode, json.loads(done.stdout)["run"], done.stderr, server)


def check_done(finished: Finished, calls: Mapping[str, int]) -> None:
    """The run is whole, each step asked as often as it should, and every token the server counted is on the bill."""
    assert finished.code == 0, finished.stderr
    assert finished.run["status"] == "succeeded"
    assert Counter(step_of(seen) for seen in finished.server.seen if seen.status == 200) == Counter(calls)
    rows = {row["name"]: row for row in finished.run["steps"]}
    assert {name: rows[name]["reasks"] for name in rows if rows[name]["reasks"]} == {"cost-estimate": 1}
    counted: Counter[str] = Counter()
    for seen in finished.server.seen:
        usage = seen.response.get("usage", {})
        counted["input_tokens"] += usage.get("input_tokens", 0)
        counted["cached_tokens"] += usage.get("input_tokens_details", {}).get("cached_tokens", 0)
        counted["output_tokens"] += usage.get("output_tokens", 0)
    assert finished.run["usage"] == counted


def check_canaries(finished: Finished) -> None:
    """Nothing of a step's inside is in what any other step's model saw; and it was there to be seen in its own."""
    planted = [("REASONING", "tech-stack", 0), ("ARGUMENT", "tech-stack", 0), ("DRAFT", "cost-estimate", 0)]
    planted += [("REASONING", step, 0) for step in ANSWERS]
    for kind, step, turn in planted:
        word = canary(kind, step, turn)
        found = {step_of(seen) for seen in finished.server.seen if _holds(seen, word)}
        assert found == ({step} if finished.of(step)[-1].turn > 0 else set()), word


def _holds(seen: Seen, word: str) -> bool:
    text = json.dumps(seen.effective, ensure_ascii=False)
    return word in text or sealed(word) in text


def chained(seen: Seen) -> bool:
    return b"previous_response_id" in seen.raw


@pytest.mark.slow
def test_R007_R011_the_example_over_http_begins_each_step_anew_and_chains_inside(tmp_path: Path) -> None:
    """R012's canaries too."""
    with StrictServer(example_answer, key=KEY) as server:
        finished = orch_run(tmp_path, server, key=KEY)
    check_done(finished, USUAL_CALLS)
    check_canaries(finished)
    assert all(seen.status == 200 for seen in server.seen)
    assert sum(not chained(seen) for seen in server.seen) == 9
    for step in ANSWERS:
        before: Seen | None = None
        for seen in finished.of(step):
            assert chained(seen) is (before is not None)
            if before is not None:
                assert seen.body["previous_response_id"] == before.response["id"]
                assert len(seen.body["input"]) == 1
            before = seen
    for seen in server.seen:
        assert b"synthetic_" not in seen.raw
        assert seen.body["model"] == MODEL
        assert "store" not in seen.body
        assert KEY.encode() not in seen.raw
    for file in (tmp_path / "discovery" / ".orch").iterdir():
        assert KEY.encode() not in file.read_bytes()
    (asked,) = [seen for seen in finished.of("cost-estimate") if chained(seen)]
    (feedback,) = asked.body["input"]
    assert "total_high" in feedback["content"]


@pytest.mark.slow
def test_S12_over_http_a_server_that_ignores_the_chain_is_found_out_by_its_echo(tmp_path: Path) -> None:
    with StrictServer(sees_the_task, ignore_chain=True) as server:
        finished = orch_run(tmp_path, server)
    check_done(finished, USUAL_CALLS | {"tech-stack": 3})
    check_canaries(finished)
    (tried,) = [seen for seen in server.seen if chained(seen)]
    assert step_of(tried) == "tech-stack"
    for seen in server.seen:
        assert "NONSENSE" not in json.dumps(seen.effective)
    # After that it is told everything each time.
    again = finished.of("cost-estimate")[1]
    assert [item.get("role", item.get("type")) for item in again.body["input"]] == [
        "user", "reasoning", "assistant", "user",
    ]  # fmt: skip


@pytest.mark.slow
def test_A5_over_http_a_forgotten_reply_costs_one_replay_and_later_threads_chain(tmp_path: Path) -> None:
    with Forgetful(example_answer) as server:
        finished = orch_run(tmp_path, server)
    check_done(finished, USUAL_CALLS)
    check_canaries(finished)
    (lost,) = [seen for seen in server.seen if seen.status == 400]
    first, also_lost, replayed = finished.of("tech-stack")
    assert also_lost is lost
    assert lost.body["previous_response_id"] == first.response["id"]
    assert not chained(replayed)
    kinds = [item.get("type", "message") for item in replayed.body["input"]]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    assert replayed.body["input"][0] == first.body["input"][0]
    assert replayed.body["input"][-1:] == lost.body["input"]
    assert [chained(seen) for seen in finished.of("cost-estimate")] == [False, True]


@pytest.mark.slow
def test_A6_over_http_without_storage_no_id_leaves_and_reasoning_travels_sealed(tmp_path: Path) -> None:
    """Said once, in the project file."""
    with StrictServer(example_answer, zdr=True) as server:
        finished = orch_run(tmp_path, server, "[providers.openai]\nstore = false\n")
    check_done(finished, USUAL_CALLS)
    check_canaries(finished)
    for seen in server.seen:
        assert not chained(seen)
        assert seen.body["store"] is False
        assert seen.body["include"] == ["reasoning.encrypted_content"]
        assert not any(item.get("type") == "item_reference" for item in seen.body["input"])
    for step in ("tech-stack", "cost-estimate"):
        again = finished.of(step)[1]
        (thought,) = [item for item in again.body["input"] if item.get("type") == "reasoning"]
        assert thought["encrypted_content"] == sealed(canary("REASONING", step, 0))


# --- the same in this process -----------------------------------------------------------------------------------------

TWICE = """
version: 1
pipeline: twice
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  say: {reads: [idea], produces: note, prompt: "Say it."}
"""


def run_here(folder: Path, model: str, servers: Mapping[str, StrictServer]) -> Run:
    """One run on a project whose providers are these servers, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    table = '[providers.{}]\nkind = "openai"\nbase_url = "{}"\n'
    tables = "".join(table.format(name, server.base_url) for name, server in servers.items())
    (folder / "orchestrator.toml").write_text(tables, encoding="utf-8")
    (folder / "twice.yaml").write_text(TWICE, encoding="utf-8")

    async def go() -> Run:
        project = find_project(folder)
        settings = load_settings(project, {"ORCH_MODEL": model, "HOME": str(folder)})
        graph = build_graph(project, settings, project.pipeline(None), require_model=True)
        async with engine.open_services(project, settings, db=f"sqlite:///{folder}/.orch/orch.db") as services:
            row = await engine.start_run(services, graph, RunOptions(inputs={"idea": "a shop"}))
            return await look(services, graph, row.id)

    return asyncio.run(go())


def hashes(run: Run) -> tuple[str, str | None]:
    assert run.status == "succeeded"
    return run.calls("say")[0].sent.request_hash, run.steps["say"].inputs_hash


def test_S14_the_same_bytes_to_two_addresses_are_two_requests(tmp_path: Path) -> None:
    """And where the provider's name differs too, the inputs differ: a step made by one is not the other's."""
    with StrictServer() as one, StrictServer() as two:
        first = hashes(run_here(tmp_path / "a", "one:same", {"one": one, "two": two}))
        again = hashes(run_here(tmp_path / "b", "one:same", {"one": one, "two": two}))
        moved = hashes(run_here(tmp_path / "c", "one:same", {"one": two}))
        other = hashes(run_here(tmp_path / "d", "two:same", {"one": one, "two": two}))
    assert len({seen.raw for seen in [*one.seen, *two.seen]}) == 1
    assert (len(one.seen), len(two.seen)) == (2, 2)
    assert first == again
    assert first[0] != moved[0]
    assert first[1] == moved[1]
    assert first[0] != other[0]
    assert first[1] != other[1]
