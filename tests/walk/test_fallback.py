"""A model that does not answer, and the one that stands in for it: over real HTTP, a strict server for each vendor.

The switch happens inside a thread. What the next model is shown is the whole of it in plain words; what belongs to the
first one alone (thoughts, seals, ids) stays with it. Every server refuses what its vendor refuses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.graph import build_graph
from orchestrator.plan import plan_new
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.trace.why import why_document
from orchestrator.trust import demands
from orchestrator.values import Event
from tests.strict_chat import ChatServer
from tests.strict_messages import MessagesServer
from tests.strict_server import Fault, Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.harness import StopAfter
from tests.walk.over_http import CALL, GOOD, opened, resume_here, run_here, shop, table

PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants.", sensitivity: SENSITIVITY}
models:
  default: {use: "one:first", fallback: [spare, last]}
  spare: {use: "two:second", max_output_tokens: 300}
  last: {use: "three:third", structured: prompt}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  price: {about: "What it costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer, minimum: 1}}, required: [cost], additionalProperties: false}}
steps:
  buy: {reads: [idea], produces: price, tools: ["work.py:order"], prompt: "Order it."}
  report: {reads: [buy], produces: note, prompt: "Report."}
outputs: [report]
"""
SAYS = {**CALL, "reasoning": "CANARY-thought", "text": "I order."}
NO_MONEY = Fault(status=429, body={"error": {"code": "insufficient_quota", "type": "billing_error", "message": "Pay."}})
BUSY = Fault(status=429, body="busy", headers={"retry-after": "60"})
KINDS: dict[str, tuple[str, type[StrictServer]]] = {
    "one": ("openai", StrictServer), "two": ("anthropic", MessagesServer), "three": ("chat", ChatServer),
}  # fmt: skip


def in_turn(*replies: dict[str, Any]) -> Callable[[Seen], dict[str, Any]]:
    left = iter(replies)
    return lambda seen: next(left)


@dataclass
class Shop:
    """A project with three providers of three kinds, each a server of its own."""

    folder: Path
    servers: dict[str, StrictServer] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)
    sensitivity: str = "internal"
    may_see: dict[str, str] = field(default_factory=dict)
    pipeline: str = PIPELINE
    config: str = ""

    def write(self) -> None:
        tables = [
            table(name, KINDS[name][0], server, f'may_see = "{self.may_see.get(name, "internal")}"\n')
            for name, server in self.servers.items()
        ]
        shop(self.folder, self.pipeline.replace("SENSITIVITY", self.sensitivity), "".join([*tables, self.config]))

    def run(self, observer: Callable[[str], None] | None = None) -> Run:
        self.write()
        return run_here(self.folder, {}, {"idea": "a house"}, listener=self.told.append, observer=observer)

    def resume(self) -> Run:
        return resume_here(self.folder, {}, listener=self.told.append)

    def plan(self) -> Any:
        async def go() -> Any:
            async with opened(self.folder, {}) as (services, graph):
                return await plan_new(services, graph, {"idea": "a house"})

        self.write()
        return asyncio.run(go())

    def asked(self, name: str) -> list[Seen]:
        return self.servers[name].seen

    def switches(self) -> list[tuple[str, str]]:
        return [(e.data["was"], e.data["now"]) for e in self.told if e.kind == "model.switched"]


Make = Callable[..., Shop]


@pytest.fixture(name="shop")
def made(tmp_path: Path) -> Iterator[Make]:
    """Makes a shop whose servers give these replies, one a request that is not a fault."""
    with ExitStack() as stack:

        def make(
            one: Sequence[dict[str, Any]] = (),
            two: Sequence[dict[str, Any]] = (),
            three: Sequence[dict[str, Any]] = (),
            **more: Any,
        ) -> Shop:
            replies = {"one": one, "two": two, "three": three}
            servers = {
                name: stack.enter_context(stand_in(in_turn(*replies[name]))) for name, (_, stand_in) in KINDS.items()
            }
            return Shop(tmp_path / "shop", servers, **more)

        yield make


def author(run: Run, step: str) -> str:
    return run.artifacts[step].version.author


def test_a_switch_in_mid_step_brings_the_whole_thread_in_plain_words_and_says_so(shop: Make) -> None:
    """A tool was called at one vendor; its result goes to another, with all that led to it and no thought of the first.
    What comes then goes on there: a re-ask, and the cap of that model."""
    it = shop([SAYS], [{"json": {"cost": 0}}, GOOD, {"text": "done"}])
    it.servers["one"].faults = [None, BUSY]
    run = it.run()
    assert run.status == "succeeded"
    assert run.value("buy") == {"cost": 24}
    calls = run.calls("buy")
    assert [(c.sent.source, c.sent.provider, c.sent.model) for c in calls] == [
        ("NEXT_STEP", "one", "first"), ("TOOL_RESULT", "one", "first"),
        ("TOOL_RESULT", "two", "second"), ("REASK", "two", "second"),
    ]  # fmt: skip
    assert [c.done.outcome for c in calls if c.done] == ["tools", "error", "reask", "accepted"]
    assert (calls[1].done.reason if calls[1].done else "", calls[2].sent.rung) == ("rate_limit", "replay")
    first, second = it.asked("two")[:2]
    assert first.body["max_tokens"] == 300
    turns = first.effective
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    text, use = turns[1]["content"]
    assert (text["text"], use["name"], use["input"]) == ("I order.", "order", {"part": "door"})
    assert turns[2]["content"][0]["tool_use_id"] == use["id"]
    assert turns[2]["content"][0]["content"] == "door is ordered"
    assert b"CANARY" not in first.raw + second.raw
    assert second.effective[3]["content"] == first.response["content"], "its own turn goes back verbatim"
    assert author(run, "buy") == "two:second"
    assert it.switches()[0] == ("one:first", "two:second")
    [kept] = [event for event in run.events if event.kind == "model.switched" and event.step == "buy"]
    assert (kept.data["was"], kept.data["now"]) == ("one:first", "two:second")
    assert "busy" in kept.data["reason"]
    why = why_document(run.journals["buy"][0], "buy", None, None)
    assert [call["model"] for call in why["threads"][0]["calls"]] == ["one:first"] * 2 + ["two:second"] * 2


def test_a_thread_that_went_over_to_a_server_that_chains_chains_there(shop: Make) -> None:
    """The first call there begins on no id of the other vendor's; those after it, on its own."""
    pipeline = PIPELINE.replace('use: "one:first", fallback: [spare, last]', 'use: "two:second", fallback: [spare]')
    pipeline = pipeline.replace('use: "two:second", max', 'use: "one:first", max')
    it = shop([{"json": {"cost": 0}}, GOOD, {"text": "done"}], [SAYS], pipeline=pipeline)
    it.servers["two"].faults = [None, Fault(status=529, body="busy", headers={"retry-after": "60"})]
    run = it.run()
    assert run.value("buy") == {"cost": 24}
    first, second = it.asked("one")[:2]
    assert "previous_response_id" not in first.body
    assert [item.get("type", item.get("role")) for item in first.body["input"]] == [
        "user", "assistant", "function_call", "function_call_output",
    ]  # fmt: skip
    assert b"CANARY" not in first.raw
    assert second.body["previous_response_id"] == first.response["id"]
    assert [call.sent.rung for call in run.calls("buy")] == ["chain", "replay", "replay", "chain"]


def test_the_form_is_told_in_words_where_a_fallback_needs_them(shop: Make) -> None:
    """Both others have no money: the last one knows no forms, and is told of it once, in the thread that goes on."""
    it = shop([], [], [{"json": {"cost": 0}}, GOOD, {"text": "done"}])
    for name in ("one", "two"):
        it.servers[name].faults = [NO_MONEY] * 2
    run = it.run()
    assert run.value("buy") == {"cost": 24}
    one, two = it.asked("three")[:2]
    assert "response_format" not in one.body
    users = [message["content"] for message in two.body["messages"] if message["role"] == "user"]
    assert sum("Answer with one JSON document" in text for text in users) == 1
    assert '"cost"' in users[1]
    # The account of a host is looked at once; the second step meets the knowledge of it, and asks nobody in vain.
    assert [len(it.asked(name)) for name in ("one", "two")] == [1, 1]
    assert it.switches() == [("one:first", "two:second"), ("two:second", "three:third")] * 2
    switched = [event for event in run.events if event.kind == "model.switched"]
    assert [event.step for event in switched] == ["buy", "buy", "report", "report"], "kept also where nothing was sent"
    assert [c.sent.model for c in run.calls("report")] == ["third"]
    assert author(run, "report") == "three:third"


def test_S21_a_fallback_that_may_not_see_what_is_sent_is_never_asked(shop: Make) -> None:
    """A confidential input, 429 at the first provider: the second may not see it, the third may. The plan says so."""
    it = shop([], [], [GOOD, {"text": "done"}], sensitivity="confidential")
    it.may_see = {"one": "confidential", "three": "confidential"}
    it.servers["one"].faults = [BUSY] * 2
    planned = {step.name: step.reasons for step in it.plan().steps}
    wanted = "could not fall back on two:second: idea is confidential, and two may see internal at most"
    assert wanted in planned["buy"]
    assert "two:second: buy is confidential" in " ".join(planned["report"]), "what is made of it is as confidential"
    run = it.run()
    assert run.status == "succeeded"
    assert it.asked("two") == []
    assert it.switches() == [("one:first", "three:third")] * 2


def test_S21_where_no_fallback_may_see_it_the_step_fails_and_says_who_was_not_asked(shop: Make) -> None:
    it = shop(sensitivity="confidential", may_see={"one": "confidential"})
    it.servers["one"].faults = [NO_MONEY]
    run = it.run()
    error = run.steps["buy"].error
    assert error is not None
    assert (error.code, error.exit_code) == ("provider_quota", 6)
    assert "not asked: two:second, which may see internal at most; what is sent is confidential" in (error.hint or "")
    assert it.asked("two") == it.asked("three") == []


def test_where_nobody_answers_the_last_failure_names_those_before_it(shop: Make) -> None:
    it = shop()
    it.servers["one"].faults = [BUSY]
    it.servers["two"].faults = [Fault(status=401, body={"error": {"type": "authentication_error", "message": "Who?"}})]
    it.servers["three"].faults = [NO_MONEY]
    run = it.run()
    error = run.steps["buy"].error
    assert error is not None
    assert error.code == "provider_quota"
    assert "asked before it: one:first (" in (error.hint or "")
    assert "two:second (" in (error.hint or "")
    assert [c.done.reason for c in run.calls("buy") if c.done] == ["rate_limit", "auth", "quota"]


def test_what_is_wrong_with_the_request_itself_is_asked_of_nobody_else(shop: Make) -> None:
    it = shop()
    it.servers["one"].faults = [Fault(status=400, body={"error": {"message": "No such thing.", "code": "x"}})]
    run = it.run()
    assert run.steps["buy"].error is not None
    assert it.asked("two") == []


def test_a_refusal_is_not_argued_with_but_another_model_may_see_it_differently(shop: Make) -> None:
    """The refused reply is paid for, and is no part of what the next one is shown."""
    it = shop([{"refusal": "CANARY: I will not."}, {"text": "done"}], [GOOD])
    run = it.run()
    assert run.value("buy") == {"cost": 24}
    refused, accepted = run.calls("buy")
    assert refused.done is not None
    assert (refused.done.outcome, refused.done.reason) == ("discarded", "refused")
    assert refused.done.usage is not None
    assert accepted.sent.provider == "two"
    assert b"CANARY" not in it.asked("two")[0].raw
    assert author(run, "report") == "one:first", "the next step begins with its own model again"


def test_a_request_over_one_window_goes_to_a_model_with_a_larger_one(shop: Make) -> None:
    """R030: the window is the model's; what is too long for one is no fault of the request."""
    it = shop([], [GOOD, {"text": "done"}])
    too_long = {"error": {"code": "context_length_exceeded", "message": "Too long."}}
    it.servers["one"].faults = [Fault(status=400, body=too_long)] * 2
    run = it.run()
    assert run.value("buy") == {"cost": 24}
    assert it.switches()[0] == ("one:first", "two:second")


def test_a_thread_that_was_interrupted_after_a_switch_goes_on_where_it_was(shop: Make) -> None:
    it = shop([SAYS, {"text": "done"}], [{"json": {"cost": 0}}, GOOD])
    it.servers["one"].faults = [None, BUSY]
    with pytest.raises(StoreError, match="writer has stopped"):
        it.run(StopAfter("done:committed", 3))  # the re-ask of the second model is recorded, and not sent
    before = len(it.asked("one"))
    run = it.resume()
    assert run.value("buy") == {"cost": 24}
    assert [c.sent.provider for c in run.calls("buy")] == ["one", "one", "two", "two"]
    assert len(it.asked("one")) == before + 1, "only the next step's"


BODY = """
from pydantic import BaseModel
from orchestrator import Ctx

class Price(BaseModel):
    cost: int

async def ask(ctx: Ctx, idea: str) -> Price:
    thread = ctx.thread()
    await thread.ask(Price, "What does it cost?")
    return await thread.ask(Price, "And with a roof?")
"""


def test_a_body_in_python_falls_back_too_and_its_thread_stays_there(shop: Make) -> None:
    pipeline = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "one:first", fallback: [spare]}
  spare: {use: "two:second"}
artifacts:
  price: {about: "What it costs.", not_for: none, schema: "body.py:Price"}
steps:
  buy: {reads: [idea], produces: price, python: "body.py:ask"}
"""
    it = shop([{"json": {"cost": 1}}], [{"json": {"cost": 2}}], pipeline=pipeline)
    it.servers["one"].faults = [None, BUSY]
    it.folder.mkdir(parents=True)
    (it.folder / "body.py").write_text(BODY, encoding="utf-8")
    run = it.run()
    assert run.value("buy") == {"cost": 2}
    assert [(c.sent.source, c.sent.provider) for c in run.calls("buy")] == [
        ("NEXT_STEP", "one"), ("FOLLOW_UP", "one"), ("FOLLOW_UP", "two"),
    ]  # fmt: skip
    assert [json.loads(it.asked("two")[0].effective[1]["content"][0]["text"])] == [{"cost": 1}]


def test_S24_the_hosts_of_fallbacks_are_asked_about_like_all_others(shop: Make) -> None:
    it = shop()
    it.write()
    project = find_project(it.folder)
    hosts = {
        one.name for one in demands(project, load_settings(project, {"HOME": str(it.folder)})) if one.kind == "host"
    }
    assert hosts == {server.base_url.split("/v1")[0] for server in it.servers.values()}
    assert {step.name for step in it.plan().steps} == {"buy", "report"}
    assert len(it.plan().hosts) == 3, "the plan names every host that may be sent to"


def test_S31_the_worst_case_of_a_plan_is_that_of_the_dearest_model_that_may_be_asked(shop: Make) -> None:
    """A dear spare is in it, with its own cap on the reply. Where the price of one is not known none is told, and none
    where tools decide how often the model is asked; the plan says so."""
    capped = PIPELINE.replace("[spare, last]", "[spare, last], max_output_tokens: 300")
    with_tools, capped = capped, capped.replace('tools: ["work.py:order"], ', "")
    it = shop(pipeline=capped.replace("structured: prompt", "structured: prompt, max_output_tokens: 300"))
    prices = "[prices.{}]\ninput = 1\noutput = {}\n"

    def worst(*tables: tuple[str, int]) -> Decimal | None:
        it.config = "".join(prices.format(model, output) for model, output in tables)
        [buy] = [step for step in it.plan().steps if step.name == "buy"]
        found: Decimal | None = buy.cost_high_usd
        return found

    cheap = worst(("first", 2), ("second", 1), ("third", 1))
    dear = worst(("first", 2), ("second", 102), ("third", 1))
    assert cheap is not None
    assert dear is not None
    # Three askings, the re-asks among them, each with a reply of up to 300 tokens at $102 a million instead of $2.
    assert dear - cheap == 3 * 300 * Decimal(100) / 1_000_000
    assert worst(("first", 2), ("second", 1)) is None
    assert it.plan().steps[0].reasons == ("no price is known for three:third, which may be asked in its place",)
    it.pipeline = with_tools
    assert worst(("first", 2), ("second", 1), ("third", 1)) is None
    assert it.plan().steps[0].reasons == ("its model decides how often it calls its tools",)


@pytest.mark.parametrize(
    ("fallback", "message"),
    [("[spair]", "there is no model alias spair"), ("[default]", "model alias default falls back on itself")],
)
def test_a_fallback_that_is_none_is_a_fault_with_its_place(shop: Make, fallback: str, message: str) -> None:
    from orchestrator.errors import InvalidProject

    it = shop(pipeline=PIPELINE.replace("fallback: [spare, last]", f"fallback: {fallback}"))
    it.write()
    project = find_project(it.folder)
    with pytest.raises(InvalidProject, match=message) as caught:
        build_graph(project, load_settings(project, {"HOME": str(it.folder)}), project.pipeline(None))
    assert str(caught.value.place).startswith("shop.yaml:7:")
