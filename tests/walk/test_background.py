"""A call in the background whose line breaks: what it costs, when it is given up, and what a resume does then.

To listen again to an answer that is still being made is not to ask again, and is not charged. Where all tries have
failed, nobody will ask for it any more: it is stopped at the vendor, and may have cost all that was reserved for it.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.values import CallRow
from tests.contract.vendors import OPENAI
from tests.strict_server import Fault, StrictServer
from tests.walk.harness import Seen
from tests.walk.over_http import at, opened, resume_here, run_here
from tests.walk.test_cancel import cancelled_and_resumed

PIPELINE = """
version: 1
pipeline: note
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", background: true, max_output_tokens: 500}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  write: {reads: [idea], produces: note, prompt: "Write it."}
budget: {usd: "1.00"}
outputs: [write]
"""
WORDS = "a note of some length, in several words"
IDEA = {"idea": "a shop"}
CUT = Fault(cut=4)
NONE = Decimal(0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "note.yaml").write_text(PIPELINE)
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n[prices."m-*"]\ninput = 1\noutput = 2\n')
    return tmp_path


def written(seen: Any) -> dict[str, Any]:
    return {"text": WORDS}


def cost(server: StrictServer, number: int) -> Decimal:
    """Of one of its responses, by its own count."""
    usage = server.seen[number].response["usage"]
    return (Decimal(usage["input_tokens"]) + 2 * Decimal(usage["output_tokens"])) / 1_000_000


def money(folder: Path, server: StrictServer) -> tuple[Decimal, Decimal, Decimal]:
    """What the calls have cost as far as it is known, what the cap has lost, and what of that for tries that failed."""

    async def go() -> tuple[Decimal, Decimal, Decimal]:
        async with opened(folder, at(server, OPENAI, "m-1")) as (services, _):
            [bill] = await services.store.bills("run", None)
            return bill.cost_usd or Decimal(0), bill.charged_usd, bill.lost_usd

    return asyncio.run(go())


def reserved(call: CallRow) -> Decimal:
    assert call.sent.reserve_usd is not None
    return call.sent.reserve_usd


def check_done(run: Seen) -> None:
    assert (run.status, run.text("write")) == ("succeeded", WORDS)


def test_S31_to_listen_again_is_not_to_ask_again_and_is_not_charged(project: Path) -> None:
    """The line breaks, then the server is not there twice; the answer is paid for once, and the cost is complete."""
    with StrictServer(written) as server:
        server.faults, server.refusing = [CUT], [503, 503]
        run = run_here(project, at(server, OPENAI, "m-1"), IDEA)
        check_done(run)
        assert len(server.seen) == 1, "asked once"
        assert money(project, server) == (cost(server, 0), cost(server, 0), NONE)
    assert run.steps["write"].cost_partial is False
    [call] = run.calls("write")
    assert call.done is not None
    assert call.done.tries == 4
    assert server.stopped == []


def test_S31_an_answer_that_is_not_to_be_had_any_more_is_asked_for_anew_and_both_are_charged(project: Path) -> None:
    with StrictServer(written) as server:
        server.faults, server.refusing = [CUT], [404]
        run = run_here(project, at(server, OPENAI, "m-1"), IDEA)
        check_done(run)
        [call] = run.calls("write")
        first = reserved(call) / 2  # it stands there for both
        assert money(project, server) == (cost(server, 1), cost(server, 1) + first, first)
    assert run.steps["write"].cost_partial is True
    assert len(server.seen) == 2


@pytest.mark.parametrize("can_be_stopped", [True, False])
def test_a_background_call_that_is_given_up_is_stopped_charged_and_asked_anew_by_a_resume(
    project: Path, can_be_stopped: bool
) -> None:
    """Five tries: the answer begins, the line breaks, and four times the server does not let it be heard."""
    with StrictServer(written) as server:
        server.faults, server.refusing = [CUT], [503] * 4
        if not can_be_stopped:
            server.beside = unavailable  # type: ignore[method-assign]
        run = run_here(project, at(server, OPENAI, "m-1"), IDEA)
        assert run.status == "failed"
        error = run.steps["write"].error
        assert error is not None
        assert (error.code, "tried 5 times" in error.message) == ("provider_overloaded", True)
        begun = server.seen[0].response["id"]
        assert server.stopped == ([begun] if can_be_stopped else [])
        [call] = run.calls("write")
        assert call.done is not None
        assert (call.done.outcome, call.done.usage, call.done.cost_usd) == ("error", None, None)
        assert run.steps["write"].cost_partial is True
        # Once, and not for each time that it was listened to; nobody knows what of it was billed.
        assert money(project, server) == (NONE, reserved(call), NONE)

        run = resume_here(project, at(server, OPENAI, "m-1"))
        check_done(run)
        assert len(server.seen) == 2
        assert server.seen[1].raw == server.seen[0].raw, "the same first request, on a thread of its own"
        assert money(project, server) == (cost(server, 1), cost(server, 1) + reserved(call), NONE)
        assert all(begun not in path for path in server.asked_for), "what was stopped is not asked for"
    assert [attempt.state for attempt in run.attempts["write"]] == ["failed", "succeeded"]
    assert run.steps["write"].cost_partial is True


def test_an_answer_that_cannot_be_fetched_by_a_resume_is_stopped_before_it_is_asked_for_anew(project: Path) -> None:
    """A person stopped the run in mid-stream; the answer went on, and the server does not let it be heard."""
    with StrictServer(written) as server:
        server.faults, server.refusing = [Fault(stalled=5, stall_seconds=60)], [503] * 5
        cancelled, run = asyncio.run(cancelled_and_resumed(project, OPENAI, server, words=True))
        check_done(run)
        assert server.stopped == [server.seen[0].response["id"]]
        assert len(server.seen) == 2
        [call] = cancelled.calls("write")
        known, charged, lost = money(project, server)
    assert (known, lost) == (cost(server, 1), NONE)
    assert charged == known, "what the first may have cost stays held"
    assert run.steps["write"].cost_partial is True
    assert reserved(call) > 0


def unavailable(path: str, raw: bytes, headers: dict[str, str]) -> dict[str, Any]:
    raise OSError("gone")
