"""A24 for both vendors: a run that is cancelled in mid-stream leaves no half artifact, no open connection, no free try.

Over HTTP and the vendors' SDKs, in this process: the command line's Ctrl-C for one vendor is in `test_anthropic`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.trace.why import why_document
from orchestrator.values import Event
from tests.contract.vendors import ANTHROPIC, OPENAI, Vendor
from tests.strict_server import Fault, StrictServer
from tests.walk.harness import Seen, check_no_gap, look
from tests.walk.over_http import at, opened, resume_here, run_here, typed

PIPELINE = """
version: 1
pipeline: note
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 500}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  write: {reads: [idea], produces: note, prompt: "Write it."}
budget: {usd: "1.00"}
outputs: [write]
"""
WORDS = "a note of some length, in several words"


@pytest.mark.parametrize("events", [0, 5], ids=["before the first word", "half said"])
@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_A24_a_cancelled_call_leaves_nothing_half_done_and_is_charged(
    tmp_path: Path, vendor: Vendor, events: int
) -> None:
    """What the cancelled call may have cost stays held against the cap, and is estimated; what it had said is in the
    trace, and nowhere else. The step then ends as if nothing had been."""
    with vendor.stand_in(lambda seen: {"text": WORDS}) as server:
        (tmp_path / "note.yaml").write_text(PIPELINE)
        prices = '[prices."m-*"]\ninput = 1\noutput = 2\n'
        (tmp_path / "orchestrator.toml").write_text('user = "ana"\n' + prices)
        server.faults = [Fault(stalled=events, stall_seconds=60)]
        cancelled, resumed = asyncio.run(cancelled_and_resumed(tmp_path, vendor, server, words=events > 0))
        assert server.seen[0].disconnected.wait(10), "the connection is closed"
    assert cancelled.status == "paused"
    assert cancelled.artifacts.keys() == {"idea"}
    (call,) = cancelled.calls("write")
    assert call.done is None
    assert call.cut is not None
    assert WORDS.startswith(call.cut.text)
    assert 0 < len(call.cut.text) < len(WORDS) if events else call.cut.text == ""
    assert call.cut.usage.input_tokens == call.sent.estimate_tokens
    assert (call.cut.usage.output_tokens > 0) is bool(events)
    [told] = why_document(cancelled.journals["write"][0], "write", None, None)["threads"][0]["calls"]
    assert (told["outcome"], told["usage_estimated"], told["partial_text"]) == ("sent", True, call.cut.text)
    assert cancelled.steps["write"].cost_partial
    assert call.sent.reserve_usd is not None
    assert call.sent.reserve_usd > 0
    assert (resumed.status, resumed.text("write")) == ("succeeded", WORDS)
    assert len(resumed.versions["write"]) == 1
    check_no_gap(resumed)


async def cancelled_and_resumed(
    folder: Path, vendor: Vendor, server: StrictServer, *, words: bool
) -> tuple[Seen, Seen]:
    said = asyncio.Event()

    def hear(event: Event) -> None:
        if event.kind == "call.text":
            said.set()

    async with opened(folder, at(server, vendor, "m-1"), listener=hear) as (services, graph):
        task = asyncio.create_task(engine.start_run(services, graph, RunOptions(inputs={"idea": "a shop"})))
        assert await asyncio.to_thread(server.stalling.wait, 30)
        if words:
            await asyncio.wait_for(said.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        run = await services.store.run("last")
        cancelled = await look(services, graph, run.id)
        await engine.resume_run(services, graph, run)
        return cancelled, await look(services, graph, run.id)


def test_why_calls_an_estimate_no_count_of_the_provider_and_a_stopped_step_not_running(tmp_path: Path) -> None:
    (tmp_path / "note.yaml").write_text(PIPELINE)
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n[prices."m-*"]\ninput = 1\noutput = 2\n')
    with OPENAI.stand_in(lambda seen: {"text": WORDS}) as server:
        server.faults = [Fault(stalled=5, stall_seconds=60)]
        env = at(server, OPENAI, "m-1")

        async def stop() -> None:
            async with opened(tmp_path, env) as (services, graph):
                task = asyncio.create_task(engine.start_run(services, graph, RunOptions(inputs={"idea": "a shop"})))
                assert await asyncio.to_thread(server.stalling.wait, 30)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(stop())
        code, out, err = typed(tmp_path, env, "why", "last/write")
        _, bill, _ = typed(tmp_path, env, "cost", "last")
    assert code == 0, err
    assert "the tokens of 1 call given up in mid-stream are an estimate" in bill
    first = out.splitlines()[0]
    assert "attempt 1 · interrupted · " in first
    assert "by the provider" not in first


@pytest.mark.parametrize("by", ["its time", "a person"])
def test_a_background_call_is_stopped_at_the_vendor_when_nobody_will_ask_for_it(tmp_path: Path, by: str) -> None:
    """One that ran out of its step's time is: the next attempt asks anew. One that a person has stopped goes on there,
    and is fetched when the run is resumed."""
    timed = "write: {timeout: 3s, reads" if by == "its time" else "write: {reads"
    pipeline = PIPELINE.replace("write: {reads", timed).replace("max_output_tokens: 500", "background: true")
    with StrictServer(lambda seen: {"text": WORDS}) as server:
        (tmp_path / "note.yaml").write_text(pipeline)
        (tmp_path / "orchestrator.toml").write_text('user = "ana"\n[prices."m-*"]\ninput = 1\noutput = 2\n')
        server.faults = [Fault(stalled=5, stall_seconds=60)]
        if by == "its time":
            run = run_here(tmp_path, at(server, OPENAI, "m-1"), {"idea": "a shop"})
            assert run.status == "failed"
            assert run.steps["write"].cost_partial
            assert server.stopped == [server.seen[0].response["id"]]
            run, asked = resume_here(tmp_path, at(server, OPENAI, "m-1")), 2
        else:
            _, run = asyncio.run(cancelled_and_resumed(tmp_path, OPENAI, server, words=True))
            asked = 1
            assert server.stopped == []
    assert (run.status, run.text("write"), len(server.seen)) == ("succeeded", WORDS, asked)
