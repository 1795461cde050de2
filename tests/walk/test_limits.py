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
        if self.flying >= self.at_once:
            self.refused += 1
            raise ProviderFailure("429, slow down", kind="rate_limit", retry_after=0.05)
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await asyncio.sleep(0.01)
            if self.breaks and self.asked % self.breaks == 0:
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
    assert vendor.broken > 0
    assert vendor.asked == 14 * 7 + vendor.broken
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
    """No hidden cap: all ninety-eight are under way at once."""
    vendor = Vendor(at_once=98, breaks=0)
    seen, house = walk(tmp_path, vendor, FREE)
    assert (seen.status, vendor.asked) == ("succeeded", 98)
    assert vendor.most > 40
    assert not [event for event in house.events if event.kind == "call.waiting"]
