"""The failure table's reactions, above the drivers: whole runs over real HTTP, for each vendor where the row applies.

For each: how the run ends and with which exit code, what is charged, what the user reads, and what a resume does. The
kinds behind the rows are in `tests/contract/test_failure_table.py`; models that stand in for others in `test_fallback`;
kills and cancels in `test_killed_calls` and `test_cancel`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.providers import retry
from orchestrator.values import CallRow
from tests.contract.failure_rows import CHAINED, ROWS, TRIED_AGAIN
from tests.contract.vendors import CHAT, EVERY, OPENAI, VENDORS, Vendor, error
from tests.strict_server import Answer, Fault, Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.over_http import (
    CALL,
    GOOD,
    PIPELINE,
    at,
    buying,
    commands,
    named,
    seen_here,
    shop,
    shopper,
    world,
)

BAD: dict[str, Any] = {"json": {"cost": 0}}
CAPPED = PIPELINE.replace('"${env:ORCH_MODEL}"', '"${env:ORCH_MODEL}", max_output_tokens: 100').replace(
    "steps:", "budget: {usd: 1.00}\nsteps:"
)
RUN = ("run", "--set", "idea=a house", "--yes")
TURNED_AWAY = {
    "429 rate",
    "503 loading",
    "529",
}  # too many requests: nothing was done, so nothing is billed


@dataclass
class Walked:
    """A shop at one vendor: its commands in this process, and what is to be asked of it afterwards."""

    folder: Path
    vendor: Vendor
    server: StrictServer
    env: dict[str, str]
    orch: Callable[..., str]

    def run(self, code: int = 0) -> str:
        return self.orch(*RUN, code=code)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.orch("show", "last", "--json"))["run"]
        return found

    def step(self, name: str) -> dict[str, Any]:
        [found] = [step for step in self.document()["steps"] if step["name"] == name]
        return dict(found)

    def bill(self) -> dict[str, Any]:
        total: dict[str, Any] = json.loads(self.orch("cost", "last", "--json"))["total"]
        return total

    def seen(self) -> Run:
        return seen_here(self.folder, self.env)

    def outcomes(self, step: str) -> list[tuple[str, str]]:
        """What each call of a step was for, and what became of it."""
        return [(call.sent.source, call.done.outcome if call.done else "sent") for call in self.seen().calls(step)]


Shop = Callable[..., Walked]


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shop]:
    """Makes a shop with a vendor, a price list and a cap; nobody waits between two tries."""
    monkeypatch.setattr(retry, "wait_exponential_jitter", lambda **_: lambda state: 0.0)
    with ExitStack() as stack:

        def make(vendor: Vendor, answer: Answer = shopper, *faults: Fault | None, **more: Any) -> Walked:
            server = stack.enter_context(vendor.stand_in(answer, **more))
            server.faults = list(faults)
            prices = f'[prices."{vendor.model}"]\ninput = 1\noutput = 2\n'
            folder = shop(tmp_path, CAPPED, prices + named(vendor, server), idempotent=False)
            env = at(server, vendor)
            return Walked(folder, vendor, server, env, commands(folder, env, monkeypatch, capsys))

        yield make


def cost(*seen: Seen) -> Decimal:
    """What the server's own count of these replies comes to: $1 a million tokens in, $2 out."""
    sum_ = 0
    for usage in (one.response["usage"] for one in seen):
        sum_ += usage.get("input_tokens", 0) + 2 * usage.get("output_tokens", 0)
        sum_ += usage.get("prompt_tokens", 0) + 2 * usage.get("completion_tokens", 0)
        sum_ += usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return Decimal(sum_) / 1_000_000


def worst(call: CallRow) -> Decimal:
    """The most that one try of a call may have cost (S31): what was estimated and a tenth, and all of the cap."""
    return (call.sent.estimate_tokens * Decimal("1.1") + 100 * 2) / 1_000_000


# --- what may pass ----------------------------------------------------------------------------------------------------

PASSES = {
    "openai": [
        "reset before headers", "reset in mid-stream", "ended without a terminal event", "malformed event", "200 empty",
        "429 rate", "500", "in-stream error, flat", "failed: server_error",
    ],
    "anthropic": [
        "reset before headers", "reset in mid-stream", "ended before its end was said", "malformed event", "200 empty",
        "429 rate", "529", "in-stream overload",
    ],
    "chat": ["reset in mid-stream", "ended in the text", "malformed event", "429 rate", "503 loading"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("vendor", "row"), [(v, row) for v in EVERY for row in PASSES[v.kind]], ids=lambda part: getattr(part, "kind", part)
)
def test_what_may_pass_is_tried_again_from_the_same_parent(walk: Shop, vendor: Vendor, row: str) -> None:
    """In mid-thread, as a tool's result is sent: the very same request again; the tool that acts has acted once. A try
    that the server may have billed is held against the caps, and what the run is said to have cost is then not all."""
    fault, kind = ROWS[vendor.kind][row]
    assert kind in TRIED_AGAIN
    it = walk(vendor, shopper, None, fault)
    said = it.run()
    first, failed, again, report = it.server.seen
    assert (failed.raw, world(it.folder)) == (again.raw, ["door"])
    assert said.count("trying again") == 1
    assert it.server.base_url.split("/")[2] in said
    assert it.outcomes("buy") == [("NEXT_STEP", "tools"), ("TOOL_RESULT", "accepted")]

    run, bill = it.document(), it.bill()
    known = cost(first, again, report)
    lost = Decimal(0) if row in TURNED_AWAY else worst(it.seen().calls("buy")[1])
    assert (run["status"], Decimal(run["cost_usd"]), run["cost_partial"]) == ("succeeded", known, lost > 0)
    assert (Decimal(bill["lost_usd"]), Decimal(bill["charged_usd"])) == (lost, known + lost)
    assert bill["cost_partial"] is (lost > 0)
    assert ("≥$" in said) is (lost > 0)

    it.orch("resume")
    assert len(it.server.seen) == 4, "nothing is left to do"


@VENDORS
def test_what_does_not_pass_is_given_up_after_five_tries_and_a_resume_goes_on_there(walk: Shop, vendor: Vendor) -> None:
    """The step before it keeps what it has; each of the five may have been billed, and is held against the caps."""
    it = walk(vendor, shopper, None, None, *[Fault(status=500, body="broken")] * 5)
    said = it.run(code=6)
    assert len(it.server.seen) == 7
    assert "(tried 5 times)" in said
    assert "hint: the provider is in trouble; try again later with `orch resume`" in said
    failed = it.step("report")
    assert (it.document()["status"], failed["status"], failed["error"]["code"]) == (
        "failed", "failed", "provider_overloaded",
    )  # fmt: skip
    assert failed["version"] is None
    [call] = it.seen().calls("report")
    assert Decimal(it.bill()["charged_usd"]) == cost(*it.server.seen[:2]) + 5 * worst(call)
    assert it.document()["cost_partial"] is True

    assert "done" in it.orch("resume")
    assert len(it.server.seen) == 8, "what was made is not asked for again"
    assert (it.step("buy")["version"], world(it.folder)) == (1, ["door"])


@VENDORS
def test_a_server_that_is_closed_for_longer_than_there_is_time_is_not_waited_for(walk: Shop, vendor: Vendor) -> None:
    """S32: the step fails at once and says until when; nothing is charged, and a resume goes on."""
    it = walk(vendor, shopper, None, None, Fault(status=429, body="slow down", headers={"retry-after": "86400"}))
    said = it.run(code=6)
    assert len(it.server.seen) == 3
    assert "rate limited until 20" in said
    assert "after that time" in said
    assert Decimal(it.bill()["charged_usd"]) == cost(*it.server.seen[:2])
    assert it.document()["cost_partial"] is False


# --- what does not pass -----------------------------------------------------------------------------------------------

FAILS = {
    "400 other": "did not accept the request: check base_url",
    "422": "did not accept the request: check base_url",
    "401": "check the key in {vendor.key_env}",
    "402": "the account is out of credit",
    "403": "check the key in {vendor.key_env}",
    "404 model": "check the model's name",
    "429 quota": "the account is out of credit",
    "429 spend limit": "the account is out of credit",
    "in-stream quota": "the account is out of credit",
    "in-stream no money": "the account is out of credit",
    "413": "",
    "400 policy": "the provider's policy refused this request",
    "failed: policy": "the provider's policy refused this request",
}


@pytest.mark.parametrize(
    ("vendor", "row"),
    [(v, row) for v in EVERY for row in FAILS if row in ROWS[v.kind]],
    ids=lambda part: getattr(part, "kind", part),
)
def test_what_cannot_pass_fails_at_once_and_says_what_to_do(walk: Shop, vendor: Vendor, row: str) -> None:
    """One request, exit code 6, no key in a word of it. What the server has refused before doing any work is not
    charged; what it may have worked on is. The step before it stands, and a resume asks for the failed one alone."""
    fault, kind = ROWS[vendor.kind][row]
    it = walk(vendor, shopper, None, None, fault)
    said = it.run(code=6)
    assert len(it.server.seen) == 3
    assert "trying again" not in said
    assert FAILS[row].format(vendor=vendor) in said
    assert vendor.key not in said
    failed = it.step("report")
    assert (it.document()["status"], failed["status"], failed["error"]["code"]) == (
        "failed", "failed", f"provider_{kind}",
    )  # fmt: skip
    [call] = it.seen().calls("report")
    lost = worst(call) if kind == "refused" else Decimal(0)
    assert Decimal(it.bill()["charged_usd"]) == cost(*it.server.seen[:2]) + lost
    assert it.document()["cost_partial"] is (lost > 0)

    if kind != "quota":  # an account is not asked again for a minute
        assert "done" in it.orch("resume")
        assert (len(it.server.seen), world(it.folder)) == (4, ["door"])


@VENDORS
def test_a_refusal_of_the_models_is_paid_for_and_not_argued_with(walk: Shop, vendor: Vendor) -> None:
    said: dict[str, Any] = {
        "openai": {"refusal": "I will not."},
        "anthropic": {"text": "I will not.", "stop_reason": "refusal"},
        "chat": {"refusal": "I will not."},
    }[vendor.kind]
    it = walk(vendor, buying(said, CALL, GOOD))
    told = it.run(code=1)
    assert "the model refused" in told
    assert "change the task or the model" in told
    [request] = it.server.seen
    assert Decimal(it.document()["cost_usd"]) == Decimal(it.bill()["charged_usd"]) == cost(request)
    assert it.step("buy")["error"]["code"] == "refused"
    assert "done" in it.orch("resume")


# --- the thread itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["400 lost", "404 lost", "404 lost, by text", "404 lost, bare"])
def test_a_lost_chain_is_rebuilt_once_by_replay_and_said_so(walk: Shop, row: str) -> None:
    """The refused call costs nothing; the next one brings the whole thread, and those after it chain on its reply."""
    it = walk(OPENAI, buying(CALL, BAD, GOOD), None, CHAINED[row][0])
    said = it.run()
    assert "thread rebuilt: chain_lost" in said
    assert it.outcomes("buy") == [
        ("NEXT_STEP", "tools"), ("TOOL_RESULT", "error"), ("TOOL_RESULT", "reask"), ("REASK", "accepted"),
    ]  # fmt: skip
    first, lost, whole, more, report = it.server.seen
    assert lost.body["previous_response_id"] == first.response["id"]
    assert "previous_response_id" not in whole.body
    assert whole.effective == [*first.effective, *first.response["output"], *lost.body["input"]]
    assert more.body["previous_response_id"] == whole.response["id"]
    assert world(it.folder) == ["door"]
    run = it.document()
    assert (Decimal(run["cost_usd"]), run["cost_partial"]) == (cost(first, whole, more, report), False)
    assert it.seen().calls("buy")[2].sent.rung == "replay"
    assert "replay of the whole thread" in it.orch("why", "1/buy")


@pytest.mark.parametrize("row", ["400 unknown parameter", "400 not supported", "500 not supported", "422 extra field"])
def test_a_server_that_knows_no_chain_is_told_everything_from_then_on(walk: Shop, row: str) -> None:
    it = walk(OPENAI, buying(CALL, BAD, GOOD), None, CHAINED[row][0])
    assert "thread rebuilt: chain_unsupported" in it.run()
    assert ["previous_response_id" in seen.body for seen in it.server.seen] == [False, True, False, False, False]
    assert world(it.folder) == ["door"]
    assert it.document()["cost_partial"] is False


def test_a_server_that_ignores_the_chain_and_misses_the_call_is_told_everything_from_then_on(walk: Shop) -> None:
    """It refuses a tool's result with "No tool call found …": its own words about items, none about the chain."""
    it = walk(OPENAI, buying(CALL, BAD, GOOD), ignore_chain=True, looks_at_items=True)
    said = it.run()
    assert [seen.status for seen in it.server.seen] == [200, 400, 200, 200, 200]
    assert ["previous_response_id" in seen.body for seen in it.server.seen] == [False, True, False, False, False]
    assert "thread rebuilt: chain_unsupported" in said
    assert it.document()["status"] == "succeeded"
    assert (it.seen().value("buy"), world(it.folder)) == ({"cost": 24}, ["door"])
    replayed = it.server.seen[2].effective
    assert [item.get("type", item.get("role")) for item in replayed] == [
        "user", "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    known = [seen for seen in it.server.seen if seen.status == 200]
    assert (Decimal(it.document()["cost_usd"]), it.document()["cost_partial"]) == (cost(*known), False)


MISSING = {"openai": "400 missing tool output", "anthropic": "400 missing result", "chat": "400 missing tool output"}


@VENDORS
def test_a_missed_tool_result_is_brought_with_the_whole_thread_where_it_was_not(walk: Shop, vendor: Vendor) -> None:
    """A chain is rebuilt. Where the whole thread was there already, to say it again cannot help: the step fails with
    the way out. The tool has acted once in either case."""
    it = walk(vendor, shopper, None, ROWS[vendor.kind][MISSING[vendor.kind]][0])
    if vendor is OPENAI:
        assert "thread rebuilt: unanswered_call" in it.run()
        assert it.outcomes("buy")[1:] == [("TOOL_RESULT", "error"), ("TOOL_RESULT", "accepted")]
    else:
        said = it.run(code=6)
        assert "hint: " in said
        assert it.step("buy")["error"]["code"] == "provider_unanswered_call"
        assert len(it.server.seen) == 2
    assert world(it.folder) == ["door"]
    assert it.document()["cost_partial"] is False


@VENDORS
def test_a_reply_that_was_cut_off_is_asked_for_once_more_with_room_then_it_is_an_error(
    walk: Shop, vendor: Vendor
) -> None:
    """Both are paid for; the half answer is in nothing that is sent. A second one ends the step with exit code 1."""
    long = {"json": {"cost": 24, "note": "x" * 1000}}
    it = walk(vendor, buying(long, long, CALL, GOOD))
    said = it.run(code=1)
    assert "cut off (max_output_tokens) at a cap of 200 output tokens" in said
    assert "raise max_output_tokens" in said
    one, two = it.server.seen
    caps = [next(body[key] for key in body if key.startswith("max_")) for body in (one.body, two.body)]
    assert caps == [100, 200]
    assert one.effective == two.effective
    assert Decimal(it.document()["cost_usd"]) == cost(one, two)
    assert it.step("buy")["version"] is None
    assert "done" in it.orch("resume")
    assert "xxx" not in json.dumps(it.server.seen[2].effective)


@VENDORS
def test_an_answer_that_stays_wrong_is_asked_for_twice_more_in_its_thread(walk: Shop, vendor: Vendor) -> None:
    it = walk(vendor, buying(BAD, BAD, BAD, CALL, GOOD))
    said = it.run(code=1)
    assert "not valid after 2 re-asks: $.cost must be at least 1" in said
    assert it.outcomes("buy") == [("NEXT_STEP", "reask"), ("REASK", "reask"), ("REASK", "rejected")]
    assert Decimal(it.document()["cost_usd"]) == Decimal(it.bill()["charged_usd"]) == cost(*it.server.seen)
    assert (it.step("buy")["version"], it.step("buy")["reasks"]) == (None, 2)
    assert "done" in it.orch("resume")


@VENDORS
def test_S09_what_a_tool_did_before_its_step_failed_is_not_done_again(walk: Shop, vendor: Vendor) -> None:
    """A resume begins the failed step anew, and its model calls the tool again: it is told what was recorded, also
    after a resume that fails in its turn."""
    wrong = ROWS[vendor.kind]["401"][0]
    it = walk(vendor, shopper, None, wrong, None, wrong)
    it.run(code=6)
    it.orch("resume", code=6)
    said = it.orch("resume")
    assert "order was done before the step failed, and is not done again" in said
    assert world(it.folder) == ["door"]
    [told] = [seen for seen in it.server.seen if seen.turn == 1]
    assert "door is ordered" in json.dumps(told.effective[-1])
    assert (it.document()["status"], it.seen().value("buy")) == ("succeeded", {"cost": 24})


TOO_LONG = {"openai": "400 too long, by code", "anthropic": "400 too long", "chat": "400 too long, llama.cpp"}


@VENDORS
def test_what_is_too_long_and_cannot_be_shorter_fails_and_costs_nothing(walk: Shop, vendor: Vendor) -> None:
    """R029: the vendor's word is passed on, and nothing is cut in silence. (With results of tools to cut: in
    `test_compact`.)"""
    it = walk(vendor, shopper, ROWS[vendor.kind][TOO_LONG[vendor.kind]][0])
    said = it.run(code=6)
    assert "the context is over the model's window: read fewer artifacts or fields" in said
    assert len(it.server.seen) == 1
    assert (it.bill()["charged_usd"], it.document()["cost_partial"]) == ("0", False)
    assert "done" in it.orch("resume")


def test_an_error_inside_a_200_is_no_reply(walk: Shop) -> None:
    """OpenAI's own shape of it, on both APIs: tried again, and given up with what the server said."""
    for vendor in (OPENAI, CHAT):
        it = walk(vendor, shopper, *[Fault(status=200, body=error("server_error", "It broke."))] * 5)
        said = it.run(code=6)
        assert "It broke." in said
        assert (len(it.server.seen), it.step("buy")["version"]) == (5, None)
