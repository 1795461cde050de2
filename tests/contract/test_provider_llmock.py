"""The drivers against a mock server that is not ours: what it injects must come out as the same kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock

from orchestrator.errors import ProviderFailure
from orchestrator.providers.registry import Providers
from orchestrator.providers.retry import respond
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Reply, Request, TextItem, ToolOutput, ToolSpec

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False}
REQUEST = Request("gpt-x1", "synthetic_s_1", "Be brief.", (TextItem(("hello",)),), timeout=5)


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return "sk-test-key" if name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY") else None

    def secret_values(self) -> tuple[str, ...]:
        return ()


@dataclass
class Project:
    root: Path = Path()


@pytest.fixture(params=["openai", "anthropic"])
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def send(llmock: LLMock, vendor: str, request: Request = REQUEST, *, tries: bool = False) -> Reply:
    async def go() -> Reply:
        spec = ProviderSpec.model_validate({"kind": vendor, "base_url": llmock.base_url(vendor)})
        providers = Providers(Project(), Settings({vendor: spec}))
        provider = providers.get(vendor)
        try:
            return await (respond(provider, request) if tries else provider.respond(request))
        finally:
            await providers.close()

    return asyncio.run(go())


def test_text_comes_back(llmock: LLMock, vendor: str) -> None:
    llmock.reply("a scripted answer")
    reply = send(llmock, vendor)
    assert (reply.status, reply.text) == ("completed", "a scripted answer")
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0


def test_a_tool_round(llmock: LLMock, vendor: str) -> None:
    llmock.call_tool("look", {"q": "rates"}).reply("done")
    opening = replace(REQUEST, tools=(ToolSpec("look", "Looks.", SCHEMA),))
    first = send(llmock, vendor, opening)
    [call] = first.tool_calls
    assert (call.name, call.arguments.replace(" ", "")) == ("look", '{"q":"rates"}')
    answer = ToolOutput(call.call_id, "7")
    chained = replace(opening, thread=first.id, items=(answer,))
    replayed = replace(opening, items=(*opening.items, *first.items, answer))
    second = send(llmock, vendor, chained if vendor == "openai" else replayed)
    assert second.text == "done"
    bodies: list[Any] = [record.body for record in llmock.requests]
    assert [body.get("previous_response_id") for body in bodies] == [None, first.id if vendor == "openai" else None]


FAULTS: dict[str, tuple[Callable[[LLMock], LLMock], str]] = {
    "429": (lambda mock: mock.rate_limit(retry_after=7), "rate_limit"),
    "400": (lambda mock: mock.fail(400), "bad_request"),
    "401": (lambda mock: mock.fail(401), "auth"),
    "500": (lambda mock: mock.fail(500), "overloaded"),
    "503": (lambda mock: mock.fail(503), "overloaded"),
    "529": (lambda mock: mock.fail(529), "overloaded"),
    "quota": (
        lambda mock: mock.fail(429, code="insufficient_quota", message="Your credit balance is too low."),
        "quota",
    ),
    "too long": (lambda mock: mock.context_overflow(), "too_long"),
    "drop": (lambda mock: mock.disconnect(after_chunks=2), "connection"),
    "truncate": (lambda mock: mock.truncate(after_chunks=3), "connection"),
    "malformed": (lambda mock: mock.corrupt(after_chunks=3), "malformed"),
}


@pytest.mark.parametrize("row", FAULTS)
def test_injected_faults_have_the_right_kind(llmock: LLMock, vendor: str, row: str) -> None:
    inject, kind = FAULTS[row]
    inject(llmock)
    with pytest.raises(ProviderFailure) as caught:
        send(llmock, vendor)
    assert caught.value.kind == kind
    if row == "429":
        assert caught.value.retry_after == 7
    assert len(llmock.requests) == 1


def test_a_stall_is_a_timeout(llmock: LLMock, vendor: str) -> None:
    llmock.stall(after_chunks=1, seconds=1.0)
    with pytest.raises(ProviderFailure) as caught:
        send(llmock, vendor, replace(REQUEST, timeout=0.3))
    assert caught.value.kind == "connection"


def test_a_rate_limit_is_waited_out_as_the_server_asked(llmock: LLMock, vendor: str) -> None:
    llmock.rate_limit(times=2, retry_after=0.1)
    assert send(llmock, vendor, tries=True).tries == 3
    llmock.assert_resilient()
