"""Anthropic, the whole way: the real command, the real SDK, a strict Messages server at the other end of a socket.

The author's view is the same as on any vendor: the same artifacts from the same answers, the same words for what goes
wrong, the same going on after a kill. Below it every call of a thread brings the whole thread, and no other's.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.chain import MAX_TOOL_ROUNDS
from orchestrator.ids import is_synthetic
from tests.contract.vendors import ANTHROPIC
from tests.strict_messages import MessagesServer, form_of
from tests.strict_server import Fault, Seen
from tests.walk.harness import Seen as Run
from tests.walk.over_http import CALL, GOOD, PIPELINE, at, buying, run_here, seen_here, shop, shopper, started, typed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "discovery"
ANSWERS = {path.stem: json.loads(path.read_text("utf-8")) for path in (EXAMPLE / "sample_answers").glob("*.json")}
MODEL = "claude-sonnet-5-5"
KEY = ANTHROPIC.key
CAPPED = PIPELINE.replace('"${env:ORCH_MODEL}"', '"${env:ORCH_MODEL}", max_output_tokens: 100')


def environment(server: MessagesServer) -> dict[str, str]:
    return at(server, ANTHROPIC, MODEL)


def capped(folder: Path, config: str = "") -> Path:
    return shop(folder, CAPPED, config)


# --- the example ------------------------------------------------------------------------------------------------------


def step_of(seen: Seen) -> str:
    """This vendor's requests do not name their form: a step is known by the fields that it asks for."""
    schema = form_of(seen)
    if schema is None:
        return "executive-summary"
    fields = set(schema["properties"])
    return next(step for step, replies in ANSWERS.items() if set(replies[-1].get("json", ())) == fields)


def canary(kind: str, step: str, turn: int) -> str:
    return f"CANARY-{kind}-{step}-{turn}"


def example_answer(seen: Seen) -> dict[str, Any]:
    """The example's own sample answers, with canaries in thoughts, tool arguments and the rejected draft."""
    step, turn = step_of(seen), seen.turn
    reply: dict[str, Any] = json.loads(json.dumps(ANSWERS[step][turn]))
    for call in reply.get("tool_calls", ()):
        call["arguments"]["role"] = canary("ARGUMENT", step, turn)
    if step == "cost-estimate" and turn == 0:
        reply["json"]["assumptions"].append(canary("DRAFT", step, turn))
    return reply | {"reasoning": canary("REASONING", step, turn)}


def copied(tmp_path: Path) -> Path:
    project = tmp_path / "discovery"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns(".orch", "__pycache__"))
    return project


def of_the_scripted(folder: Path) -> dict[str, bytes]:
    """The artifacts of the example from the same answers without any vendor."""
    brief = json.loads((EXAMPLE / "briefs" / "clinic.json").read_text(encoding="utf-8"))
    return run_here(folder, {"ORCH_MODEL": "scripted:sample_answers"}, brief, approver="--yes").bodies()


@pytest.mark.slow
def test_the_example_over_the_messages_api_gives_the_same_artifacts(tmp_path: Path) -> None:
    """R007, R012 and A23 on this vendor: each thread alone in its requests, and every token on the bill, once."""
    project = copied(tmp_path)
    with MessagesServer(example_answer, key=KEY) as server:
        code, out, err = typed(
            project, environment(server), "run", "discovery", "--input", "briefs/clinic.json", "--json", "--yes"
        )
        assert code == 0, err
        shown = typed(project, environment(server), "why", "last/tech-stack")[1]
    run = json.loads(out)["run"]
    assert [seen.status for seen in server.seen] == [200] * 11
    usual = dict.fromkeys(ANSWERS, 1) | {"tech-stack": 2, "cost-estimate": 2}
    assert Counter(map(step_of, server.seen)) == Counter(usual)
    seen = seen_here(project, environment(server))
    wanted = of_the_scripted(copied(tmp_path / "other"))
    assert seen.bodies().keys() == wanted.keys()
    for step, body in wanted.items():
        assert seen.body(step) == body, step
    check_threads(server)
    check_bill(run, server)
    check_trace(seen, shown)
    for file in (project / ".orch").iterdir():
        assert KEY.encode() not in file.read_bytes()


def check_threads(server: MessagesServer) -> None:
    """No id leaves, nothing of a step's inside is in what another's model saw, and its own turns are there verbatim."""
    for step in ANSWERS:
        requests = [seen for seen in server.seen if step_of(seen) == step]
        for kind in ("REASONING", "ARGUMENT", "DRAFT"):
            word = canary(kind, step, 0)
            for seen in server.seen:
                if word in json.dumps(seen.effective, ensure_ascii=False):
                    assert seen is requests[-1]
                    assert len(requests) == 2
        if len(requests) == 2:
            first, second = requests
            assert second.effective[1] == {"role": "assistant", "content": first.response["content"]}
            assert canary("REASONING", step, 0) in json.dumps(second.effective)
    for seen in server.seen:
        assert b"synthetic_" not in seen.raw
        assert b"previous" not in seen.raw.split(b'"messages"')[0]
        assert KEY.encode() not in seen.raw


def check_bill(run: Mapping[str, Any], server: MessagesServer) -> None:
    counted: Counter[str] = Counter()
    for seen in server.seen:
        usage = seen.response["usage"]
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        counted["input_tokens"] += usage["input_tokens"] + read + written
        counted["cached_tokens"] += read
        counted["output_tokens"] += usage["output_tokens"]
        assert bool(read or written) == (step_of(seen) == "tech-stack"), "only the step with tools pays for a cache"
    assert run["usage"] == counted
    assert counted["cached_tokens"] > 1000


def check_trace(seen: Run, shown: str) -> None:
    """To replay is the usual thing here: no chain was lost, and none is said to have been."""
    first, second = seen.calls("tech-stack")
    assert (first.sent.rung, second.sent.rung) == ("chain", "replay")
    assert is_synthetic(second.sent.previous)
    assert not [event for event in seen.events if event.kind in ("chain_rebuilt", "step.rebuilt")]
    assert "starts from nothing" in shown
    assert "replay of the whole thread" in shown
    assert "lost" not in shown


# --- one step at a time -----------------------------------------------------------------------------------------------


def shopping(folder: Path, *replies: dict[str, Any]) -> tuple[Run, MessagesServer]:
    with MessagesServer(buying(*replies)) as server:
        return run_here(capped(folder), environment(server), {"idea": "a house"}), server


def outcomes(run: Run) -> list[tuple[str, str]]:
    return [(call.sent.source, call.done.outcome if call.done else "sent") for call in run.calls("buy")]


def test_tools_and_a_reask_go_on_with_all_that_was_said(tmp_path: Path) -> None:
    run, server = shopping(tmp_path, CALL, {"reasoning": "Cheap.", "json": {"cost": 0}}, GOOD)
    assert run.status == "succeeded"
    assert run.value("buy") == {"cost": 24}
    assert outcomes(run) == [("NEXT_STEP", "tools"), ("TOOL_RESULT", "reask"), ("REASK", "accepted")]
    said = [seen.response["content"] for seen in server.seen]
    turns = server.seen[2].effective
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert [turns[1]["content"], turns[3]["content"]] == said[:2]
    assert "$.cost" in turns[4]["content"][0]["text"], "the bound that the grammar cannot hold is checked by us"
    sent = form_of(server.seen[0])
    assert sent is not None
    assert sent["properties"]["cost"] == {"type": "integer", "description": "{minimum: 1}"}


def test_a_turn_that_was_cut_off_is_asked_for_once_more_with_room(tmp_path: Path) -> None:
    run, server = shopping(tmp_path, {"text": '{"cost": 2', "status": "incomplete"}, GOOD)
    assert run.value("buy") == {"cost": 24}
    assert outcomes(run) == [("NEXT_STEP", "cut_off"), ("NEXT_STEP", "accepted")]
    one, two = server.bodies[:2]
    assert (one.pop("max_tokens"), two.pop("max_tokens")) == (100, 200)
    assert one == two, "nothing of the half answer is in it"


def test_a_full_window_is_a_named_failure_and_is_billed(tmp_path: Path) -> None:
    run, server = shopping(tmp_path, {"text": '{"cost": 2', "stop_reason": "model_context_window_exceeded"})
    error = run.steps["buy"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("provider_too_long", 6)
    assert "over the model's window" in error.message
    assert "read fewer artifacts" in (error.hint or "")
    assert len(server.seen) == 1
    [call] = run.calls("buy")
    assert call.done is not None
    assert call.done.cost_usd is not None
    assert call.done.cost_usd > 0


def test_a_refusal_is_not_argued_with_and_says_why(tmp_path: Path) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "This could harm."}
    run, server = shopping(tmp_path, {"text": "Well", "stop_reason": "refusal", "stop_details": details})
    error = run.steps["buy"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("refused", 1)
    assert "This could harm. (category: cyber)" in error.message
    assert len(server.seen) == 1


PAUSED = {
    "blocks": [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "doors"}}],
    "stop_reason": "pause_turn",
}


def test_a_paused_turn_goes_on_in_a_call_of_its_own(tmp_path: Path) -> None:
    """Each is written down and paid for; the second brings the half turn back and not a word from us."""
    found = {"blocks": [{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}], **GOOD}
    run, server = shopping(tmp_path, PAUSED, found)
    assert run.value("buy") == {"cost": 24}
    assert outcomes(run) == [("NEXT_STEP", "tools"), ("TOOL_RESULT", "accepted")]
    assert [turn["role"] for turn in server.seen[1].effective] == ["user", "assistant"]
    assert server.seen[1].effective[1]["content"] == PAUSED["blocks"]


def test_a_turn_that_pauses_for_ever_ends(tmp_path: Path) -> None:
    run, server = shopping(tmp_path, *[PAUSED] * 200)
    assert run.status == "failed"
    assert len(server.seen) == MAX_TOOL_ROUNDS + 1


class Counting(MessagesServer):
    """Says when it is asked that a text has so many times more tokens than anybody would think."""

    def __init__(self, times: int) -> None:
        super().__init__(shopper)
        self.times = times
        self.counts: list[int] = []

    def __enter__(self) -> Counting:
        super().__enter__()
        return self

    def beside(self, path: str, raw: bytes, headers: dict[str, str]) -> dict[str, Any]:
        self.counts.append(self.times * super().beside(path, raw, headers)["input_tokens"])
        return {"input_tokens": self.counts[-1]}


@pytest.mark.parametrize(
    ("context", "times", "asked", "fits"),
    [(100_000, 4, 0, True), (600, 1, 2, True), (600, 4, 1, False)],
    ids=["far from it", "near", "over"],
)
def test_R028_R030_near_the_window_the_vendor_is_asked_before_anything_is_paid(
    tmp_path: Path, context: int, times: int, asked: int, fits: bool
) -> None:
    folder = capped(tmp_path, f'[prices."{MODEL}"]\ninput = 1\noutput = 1\ncontext = {context}\n')
    with Counting(times) as server:
        run = run_here(folder, environment(server), {"idea": "a house"})
    assert (run.status == "succeeded") is fits
    assert len(server.counts) == asked
    if not fits:
        assert server.seen == []
        error = run.steps["buy"].error
        assert error is not None
        assert (error.code, error.exit_code) == ("provider_too_long", 6)
        assert f"has {server.counts[0]:,} tokens by the provider's count" in error.message
        assert f"over the window of {context:,}; nothing was sent" in error.message
        assert run.calls("buy") == ()


# --- stopped ----------------------------------------------------------------------------------------------------------


def struck(folder: Path, server: MessagesServer, sign: signal.Signals) -> int:
    """A run that gets a signal while a reply stands still half said; its exit code."""
    process = started(folder, environment(server), "run", "--set", "idea=a house", "--yes")
    assert server.stalling.wait(60)
    process.send_signal(sign)
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.slow
def test_A24_a_run_that_is_stopped_in_mid_stream_keeps_no_half_artifact_and_its_cost_is_flagged(tmp_path: Path) -> None:
    folder = capped(tmp_path)
    with MessagesServer(buying(GOOD, GOOD)) as server:
        server.faults = [Fault(stalled=4, stall_seconds=60)]
        assert struck(folder, server, signal.SIGINT) == 130
        assert server.seen[0].disconnected.wait(10), "the connection is closed"
        document = json.loads(typed(folder, environment(server), "show", "last", "--json")[1])["run"]
        assert document["status"] == "paused"
        assert seen_here(folder, environment(server)).artifacts.keys() == {"idea"}
        [step] = [step for step in document["steps"] if step["name"] == "buy"]
        assert (step["version"], step["calls"]) == (None, 1)
        assert document["cost_partial"] is True
        assert typed(folder, environment(server), "resume")[0] == 0
        run = seen_here(folder, environment(server))
    assert run.value("buy") == {"cost": 24}
    assert server.seen[0].raw == server.seen[1].raw
