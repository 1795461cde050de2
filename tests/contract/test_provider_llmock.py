"""The OpenAI driver against a mock server that is not ours: what it injects must come out as the same kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
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
        return "sk-test-key" if name == "OPENAI_API_KEY" else None

    def secret_values(self) -> tuple[str, ...]:
        return ()


@dataclass
class Project:
    root: Path = Path()


def send(llmock: LLMock, request: Request = REQUEST, *, tries: bool = False) -> Reply:
    async def go() -> Reply:
        spec = ProviderSpec(kind="openai", base_url=llmock.base_url("openai"))
        providers = Providers(Project(), Settings({"openai": spec}))
        provider = providers.get("openai")
        try:
            return await (respond(provider, request) if tries else provider.respond(request))
        finally:
            await providers.close()

    return asyncio.run(go())


def test_text_comes_back(llmock: LLMock) -> None:
    llmock.reply("a scripted answer")
    reply = send(llmock)
    assert (reply.status, reply.text) == ("completed", "a scripted answer")
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0


def test_a_tool_round_chains_on_the_reply(llmock: LLMock) -> None:
    llmock.call_tool("look", {"q": "rates"}).reply("done")
    tools = (ToolSpec("look", "Looks.", SCHEMA),)
    first = send(llmock, Request("gpt-x1", "synthetic_s_1", "", REQUEST.items, tools=tools))
    [call] = first.tool_calls
    assert (call.name, call.arguments.replace(" ", "")) == ("look", '{"q":"rates"}')
    second = send(llmock, Request("gpt-x1", first.id, "", (ToolOutput(call.call_id, "7"),), tools=tools))
    assert second.text == "done"
    bodies: list[Any] = [record.body for record in llmock.requests]
    assert "previous_response_id" not in bodies[0]
    assert bodies[1]["previous_response_id"] == first.id


FAULTS: dict[str, tuple[Callable[[LLMock], LLMock], str]] = {
    "429": (lambda mock: mock.rate_limit(retry_after=7), "rate_limit"),
    "400": (lambda mock: mock.fail(400), "bad_request"),
    "401": (lambda mock: mock.fail(401), "auth"),
    "500": (lambda mock: mock.fail(500), "overloaded"),
    "503": (lambda mock: mock.fail(503), "overloaded"),
    "529": (lambda mock: mock.fail(529), "overloaded"),
    "quota": (lambda mock: mock.fail(429, code="insufficient_quota"), "quota"),
    "too long": (lambda mock: mock.context_overflow(), "too_long"),
    "drop": (lambda mock: mock.disconnect(after_chunks=2), "connection"),
    "truncate": (lambda mock: mock.truncate(after_chunks=3), "connection"),
    "malformed": (lambda mock: mock.corrupt(after_chunks=2), "malformed"),
}


@pytest.mark.parametrize("row", FAULTS)
def test_injected_faults_have_the_right_kind(llmock: LLMock, row: str) -> None:
    inject, kind = FAULTS[row]
    inject(llmock)
    with pytest.raises(ProviderFailure) as caught:
        send(llmock)
    assert caught.value.kind == kind
    if row == "429":
        assert caught.value.retry_after == 7
    assert len(llmock.requests) == 1


def test_a_stall_is_a_timeout(llmock: LLMock) -> None:
    llmock.stall(after_chunks=1, seconds=1.0)
    with pytest.raises(ProviderFailure) as caught:
        send(llmock, Request("gpt-x1", "synthetic_s_1", "", REQUEST.items, timeout=0.3))
    assert caught.value.kind == "connection"


def test_a_rate_limit_is_waited_out_as_the_server_asked(llmock: LLMock) -> None:
    llmock.rate_limit(times=2, retry_after=0.1)
    assert send(llmock, tries=True).tries == 3
    llmock.assert_resilient()
