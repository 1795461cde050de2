"""Many calls at once against a vendor that limits them: all are made, few are refused, none is lost (S32)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Reply, Request
from tests.walk.harness import House

LIMITED = 'user = "ana"\n[providers.acme]\nkind = "scripted"\n[limits."acme:*"]\nconcurrency = 10\n'
FREE = LIMITED.partition("[limits")[0]
COMPANIES = [f"company-{n}" for n in range(14)]
PIPELINE = (
    """
version: 1
pipeline: many
inputs:
  brief: {type: brief}
models:
  default: {use: "acme:small", max_output_tokens: 100}
artifacts:
  brief: {about: "Whom to look at.", not_for: none, schema: {type: object, properties: {
    companies: {type: array, items: {type: string}}}, required: [companies], additionalProperties: false}}
  note: {about: "A note on one company.", not_for: none, schema: text}
steps:
"""
    + "".join(
        f"  look-{n}:\n    for_each: {{item: company, in: brief.companies}}\n    produces: note\n"
        f'    prompt: "Look at it from side {n}. {{{{ item }}}}"\n'
        for n in range(7)
    )
).replace("brief: {type: brief}", 'brief: {type: brief, about: "The companies."}')


class Vendor(ScriptedProvider):
    """Answers ten at once and refuses the others, as its own record shows; each twentieth request breaks down."""

    def __init__(self, *, at_once: int = 10, breaks: int = 20) -> None:
        super().__init__(lambda request, items: {"text": "Looked."}, name="acme")
        self.at_once, self.breaks = at_once, breaks
        self.flying = self.most = self.asked = self.refused = self.broken = 0

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        self.asked += 1
        number = self.asked
        if self.flying >= self.at_once:
            self.refused += 1
            raise ProviderFailure("429, slow down", kind="rate_limit", retry_after=0.05)
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(0.01)
            if self.breaks and number % self.breaks == 0:
                self.broken += 1
                raise ProviderFailure("500, it broke", kind="overloaded", retry_after=0.0)
            return await super().respond(request, listener)
        finally:
            self.flying -= 1


def walk(folder: Path, vendor: ScriptedProvider, project: str = LIMITED) -> Any:
    house = House(folder, PIPELINE, vendor, files={"orchestrator.toml": project})
    return asyncio.run(house.run({"brief": {"companies": COMPANIES}})), house


def test_S32_a_fan_out_of_14_by_7_is_98_calls_and_one_more_for_each_that_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    vendor = Vendor()
    seen, _ = walk(tmp_path / "p", vendor)
    assert seen.status == "succeeded"
    assert vendor.most == 10  # all that is allowed is used
    assert vendor.refused == 0
    assert vendor.broken == 5  # the 20th, 40th, 60th, 80th and 100th
    assert vendor.asked == 14 * 7 + 5
    assert sum(step.calls for step in seen.steps.values() if step.item) == 98
    (ledger,) = (tmp_path / ".local/share/orchestrator/limits").iterdir()
    assert '"held":{},"waiting":{}' in ledger.read_text()
    assert "company" not in ledger.read_text()


def test_S32_an_account_without_money_is_asked_once_by_those_in_flight_and_by_nobody_after(tmp_path: Path) -> None:
    class Broke(Vendor):
        async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
            self.asked += 1
            await asyncio.sleep(0.01)
            raise ProviderFailure("429, insufficient_quota", kind="quota")

    vendor = Broke()
    seen, _ = walk(tmp_path / "p", vendor, LIMITED)
    assert seen.status == "failed"
    assert vendor.asked <= 10  # those that were on their way; none of them twice
    assert seen.row.error.exit_code == 6


def test_S32_a_shut_host_is_not_asked_ninety_eight_times_five(tmp_path: Path) -> None:
    class Shut(Vendor):
        async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
            self.asked += 1
            await asyncio.sleep(0)
            raise ProviderFailure("refused", kind="connection", retry_after=0.0, unbilled=True)

    vendor = Shut()
    seen, _ = walk(tmp_path / "p", vendor, LIMITED)
    assert vendor.asked <= 20  # ten that failed, at most nine on their way then, and one that went ahead
    assert seen.status == "failed"
    messages = [step.error.message for step in seen.steps.values() if step.error is not None]
    assert any("is not asked until" in message for message in messages)
    assert seen.row.cap_usd is None
    assert {step.cost_usd for step in seen.steps.values()} <= {None, 0}


def test_without_limits_nothing_is_held_back(tmp_path: Path) -> None:
    """No hidden cap: each answers only when all ninety-eight are under way."""

    class Gathering(Vendor):
        there = asyncio.Event()

        async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
            self.flying += 1
            if self.flying == 98:
                self.there.set()
            await asyncio.wait_for(self.there.wait(), 60)
            return await ScriptedProvider.respond(self, request, listener)

    vendor = Gathering()
    seen, house = walk(tmp_path, vendor, FREE)
    assert (seen.status, vendor.flying) == ("succeeded", 98)
    assert not [event for event in house.events if event.kind == "call.waiting"]


SLOW = """
version: 1
pipeline: slow
inputs:
  idea: {type: text, about: "What it is about."}
models:
  default: {use: "acme:small", max_output_tokens: 100}
artifacts:
  note: {about: "A note.", not_for: none, schema: text}
defaults: {timeout: 1500ms}
steps:
  one: {reads: [idea], produces: note, prompt: "Say it.", checks: [{python: "work.py:long"}]}
  two: {reads: [idea], produces: note, prompt: "Say it."}
  three: {reads: [idea], produces: note, prompt: "Say it."}
  four: {reads: [idea], produces: note, prompt: "Say it."}
"""
LONG = "def long(value, **reads):\n    return None if len(value) > 5 else 'say more'\n"


def test_S32_a_wait_for_a_turn_is_no_running_time_of_a_step_neither_now_nor_on_record(tmp_path: Path) -> None:
    """One call at a time, three of which take longer together than a step may: the last ones wait, and are not stopped.
    The first is asked again, and waits for the others in the midst of its attempt."""

    class Slow(ScriptedProvider):
        pause = 0.0

        async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
            await asyncio.sleep(0.0 if request.step == "one" else self.pause)
            return await super().respond(request, listener)

    said = {"text": "It is said."}
    script: dict[str, list[Any]] = {"one": [{"text": "No."}, said], "two": [said], "three": [said], "four": [said]}
    house = House(tmp_path / "p", SLOW, Slow(script, name="acme"))
    house.write("work.py", LONG)
    house.write("orchestrator.toml", LIMITED.replace("= 10", "= 1"))
    asyncio.run(house.run({"idea": "a shop"}))  # what is loaded on first use is loaded now
    house.provider = Slow(script, name="acme")
    house.provider.pause = 0.7
    seen = asyncio.run(house.run({"idea": "a shop"}))
    assert seen.status == "succeeded", [step.error for step in seen.steps.values()]
    assert len(house.requests()) == 5
    assert all(seen.steps[name].seconds < 1.4 for name in ("one", "two", "three", "four"))
