"""The drivers on the vendors' SDKs, each with the strict stand-in it talks to: what their tests have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Item, OutputFormat, Reply, Request, TextItem, ToolSpec
from tests.strict_chat import ChatServer
from tests.strict_messages import MessagesServer
from tests.strict_server import StrictServer

ROOT = Path(__file__).parents[2]
KEYS = {
    "OPENAI_API_KEY": "sk-canary-0123456789abcdef",
    "ANTHROPIC_API_KEY": "sk-ant-canary-0123456789abcdef",
    "LOCAL_KEY": "sk-local-canary-0123456789",
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
LOOK = ToolSpec("look", "Looks.", SCHEMA)


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    env: dict[str, str] = field(default_factory=lambda: dict(KEYS))
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.env.get(name) or None

    def secret_values(self) -> tuple[str, ...]:
        return ("pw-CANARY", "tk-CANARY")


@dataclass
class Project:
    root: Path = Path()


@dataclass(frozen=True)
class Vendor:
    """One kind of provider under the name `name`. Its key is in the environment unless a test says else."""

    kind: Any
    name: str
    key_env: str
    model: str
    stand_in: type[StrictServer]

    @property
    def key(self) -> str:
        return KEYS[self.key_env]

    def server(self) -> StrictServer:
        """A stand-in that counts its replies and lets in nobody without the key."""
        return self.stand_in(
            lambda seen: {"text": f"reply {seen.turn + 1}"}, key=self.key, models=frozenset({self.model})
        )

    def opened(self, base_url: str | None, env: dict[str, str] | None = None, **spec: Any) -> Providers:
        named = {"api_key_env": self.key_env} if self.kind == "chat" else {}
        provider = ProviderSpec(kind=self.kind, base_url=base_url, **{**named, **spec})
        settings = Settings({self.name: provider}) if env is None else Settings({self.name: provider}, env)
        return Providers(Project(), settings)

    def ask(self, thread: str = "synthetic_s_1", *items: Item, **more: Any) -> Request:
        given = items or (TextItem(("hel", "lo")),)
        return Request(self.model, thread, "Be brief.", given, **{"timeout": 20.0, **more})

    @property
    def full(self) -> Request:
        """A request with everything."""
        form = OutputFormat("form", SCHEMA)
        return self.ask(tools=(LOOK,), output=form, effort="medium", max_output_tokens=500, cache_key="k1")

    def send(
        self, server: StrictServer, *requests: Request, events: list[StreamEvent] | None = None, **spec: Any
    ) -> list[Reply]:
        """Each request once, on one provider."""

        async def go() -> list[Reply]:
            providers = self.opened(server.base_url, **spec)
            listen = (events if events is not None else []).append
            try:
                return [await providers.get(self.name).respond(request, listen) for request in requests]
            finally:
                await providers.close()

        return asyncio.run(go())

    def failing(self, server: StrictServer, request: Request, **spec: Any) -> ProviderFailure:
        with pytest.raises(ProviderFailure) as caught:
            self.send(server, request, **spec)
        assert self.key not in f"{caught.value.message} {caught.value.hint}", "a key may stand in no message"
        assert caught.value.exit_code == 6
        return caught.value


def after(request: Request, reply: Reply, *items: Item) -> Request:
    """The call after this one, where nothing is kept: with everything that was said."""
    return replace(request, items=(*request.items, *reply.items, *items))


OPENAI = Vendor("openai", "openai", "OPENAI_API_KEY", "gpt-x1", StrictServer)
ANTHROPIC = Vendor("anthropic", "anthropic", "ANTHROPIC_API_KEY", "claude-x1", MessagesServer)
CHAT = Vendor("chat", "local", "LOCAL_KEY", "llama-x1", ChatServer)
EVERY = (OPENAI, ANTHROPIC, CHAT)
VENDORS = pytest.mark.parametrize("vendor", EVERY, ids=lambda vendor: vendor.kind)


def error(code: str | None, message: str = "No.", type: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    """An error body as OpenAI writes it."""
    return {"error": {"message": message, "type": type, "code": code, "param": None, **more}}


def told(type: str, message: str = "No.", code: str | None = None) -> dict[str, Any]:
    """An error body as Anthropic writes it."""
    inner = {"type": type, "message": message} | ({"details": {"error_code": code}} if code else {})
    return {"type": "error", "error": inner, "request_id": "req_1"}
