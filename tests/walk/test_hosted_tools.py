"""Tools that the provider runs: what is sent for them, their sources, and what they cost; over HTTP, with both SDKs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run
from orchestrator.errors import ConfigError
from orchestrator.plan import Plan, plan_new
from orchestrator.trace.sources import sources_of
from tests.strict_messages import MessagesServer
from tests.strict_server import Seen, StrictServer
from tests.walk.harness import House
from tests.walk.over_http import opened, run_here

PIPELINE = """
version: 1
pipeline: research
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 1000}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  find:
    reads: [idea]
    produces: note
    tools: [{tool: web_search, max_uses: 3, domains: [example.org]}]
    prompt: "Look it up."
budget: {usd: "CAP"}
outputs: [find]
"""
SETTINGS = """
user = "ana"
[providers.openai]
base_url = "URL"
hosted_tools = ["web_search"]
[providers.anthropic]
base_url = "URL"
hosted_tools = ["web_search"]
[prices."m-*"]
input = 1
output = 2
web_search = 10
"""
CITED = "https://example.org/rates"
FOUND = "https://example.org/other"


def responses(seen: Seen) -> dict[str, Any]:
    """A search, then the answer with what it cites."""
    pages = [{"type": "url", "url": url} for url in (CITED, FOUND)]
    action = {"type": "search", "query": "rates 2026", "queries": ["rates 2026"], "sources": pages}
    cites = {"type": "url_citation", "url": CITED, "title": "Rates", "start_index": 0, "end_index": 5}
    return {
        "items": [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}],
        "text": "Rates rise.",
        "annotations": [cites],
        "tool_usage": {"web_search": {"num_requests": 2}},
    }


def messages(seen: Seen) -> dict[str, Any]:
    pages = [
        {"type": "web_search_result", "url": url, "title": title, "encrypted_content": "x", "page_age": None}
        for url, title in ((CITED, "Rates"), (FOUND, "Other"))
    ]
    cites = {
        "type": "web_search_result_location",
        "url": CITED,
        "title": "Rates",
        "encrypted_index": "y",
        "cited_text": "Rates rose by 4 %.",
    }
    return {
        "blocks": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rates 2026"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": pages},
            {"type": "text", "text": "Rates rise.", "citations": [cites]},
        ],
        "usage": {"input_tokens": 500, "output_tokens": 20, "server_tool_use": {"web_search_requests": 2}},
    }


VENDORS: Mapping[str, tuple[type[StrictServer], Callable[[Seen], dict[str, Any]]]] = {
    "openai": (StrictServer, responses),
    "anthropic": (MessagesServer, messages),
}
IDEA = {"idea": "a shop"}
SENT: dict[str, dict[str, Any]] = {
    "openai": {
        "tools": [{"type": "web_search", "filters": {"allowed_domains": ["example.org"]}}],
        "max_tool_calls": 3,
        "include": ["web_search_call.action.sources"],
    },
    "anthropic": {
        "tools": [
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "allowed_domains": ["example.org"]}
        ]
    },
}


def project(folder: Path, url: str, cap: str = "1.00") -> dict[str, str]:
    (folder / "research.yaml").write_text(PIPELINE.replace("CAP", cap))
    (folder / "orchestrator.toml").write_text(SETTINGS.replace("URL", url))
    return {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "HOME": str(folder), "ORCH_TRUST": "1"}


def plan_here(folder: Path, env: Mapping[str, str], inputs: Mapping[str, Any]) -> Plan:
    async def go() -> Plan:
        async with opened(folder, env) as (services, graph):
            return await plan_new(services, graph, inputs)

    return asyncio.run(go())


@pytest.mark.parametrize("vendor", list(VENDORS))
def test_a_search_keeps_its_sources_and_is_paid_for(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fields are the vendor's; two searches at $10 a thousand are paid; `why` and the report name the pages."""
    kind, answer = VENDORS[vendor]
    with kind(answer) as server:
        env = project(tmp_path, server.base_url) | {"ORCH_MODEL": f"{vendor}:m-1"}
        seen = run_here(tmp_path, env, IDEA)
        (request,) = server.seen
    assert {key: request.body.get(key) for key in SENT[vendor]} == SENT[vendor]
    assert (seen.status, seen.text("find")) == ("succeeded", "Rates rise.")
    (call,) = seen.calls("find")
    assert call.done is not None
    usage = call.done.usage
    assert usage is not None
    assert usage.web_searches == 2
    assert call.done.cost_usd == (usage.input_tokens * 1 + usage.output_tokens * 2) / Decimal(1_000_000) + Decimal(
        "0.02"
    )

    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert orch_run(["why", "1/find", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["searches"] == ["rates 2026"]
    assert [(source["url"], source["cited"]) for source in document["sources"]] == [(CITED, True), (FOUND, False)]
    assert document["sources"][0]["title"] == "Rates"
    assert orch_run(["why", "1/find"]) == 0
    assert f"cited  {CITED} Rates" in capsys.readouterr().out
    assert orch_run(["export", "1", "--to", "out"]) == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert f"Rates ({CITED}, cited)" in report
    assert f'href="{CITED}' not in report


@pytest.mark.parametrize(("cap", "sent"), [("0.05", 0), ("0.06", 1)])
def test_S31_a_cap_reserves_for_every_search_that_may_be_made(tmp_path: Path, cap: str, sent: int) -> None:
    """Three searches are $0.03, and the 18,000 tokens that they may bring $0.0198: with the answer $0.052."""
    with StrictServer(responses) as server:
        env = project(tmp_path, server.base_url, cap) | {"ORCH_MODEL": "openai:m-1"}
        seen = run_here(tmp_path, env, IDEA)
        assert len(server.seen) == sent
        planned = [step.cost_high_usd for step in plan_here(tmp_path, env, IDEA).steps]
    # The plan's worst case holds the searches too: it is not below what the first call reserves.
    assert planned[0] is not None
    assert planned[0] > Decimal("0.052")
    assert seen.status == ("succeeded" if sent else "paused")


@pytest.mark.parametrize(
    ("tools", "what"),
    [
        (
            "[{tool: web_fetch}]",
            "find wants web_fetch, which openai at 127.0.0.1:[0-9]+ does not run; tools of its own: web_search",
        ),
        ("[{tool: web_search, blocked: [example.org]}]", "openai cannot leave domains out of web_search"),
    ],
)
def test_a_model_that_does_not_run_the_tool_is_refused_by_name(tmp_path: Path, tools: str, what: str) -> None:
    with StrictServer(responses) as server:
        env = project(tmp_path, server.base_url) | {"ORCH_MODEL": "openai:m-1"}
        path = tmp_path / "research.yaml"
        path.write_text(path.read_text().replace("[{tool: web_search, max_uses: 3, domains: [example.org]}]", tools))
        with pytest.raises(ConfigError, match=what):
            run_here(tmp_path, env, IDEA)
        assert server.seen == []


def test_written_answers_may_search_too(tmp_path: Path) -> None:
    """In a user's own tests: the same items, the same sources; without the tool on the step it is a fault."""
    search = {"query": "rates", "sources": [{"url": CITED, "title": "Rates"}, {"url": FOUND, "cited": False}]}
    replies: list[Any] = [{"text": "Rates rise.", "searches": [search]}]
    house = House(tmp_path, PIPELINE.replace("CAP", "1.00"), {"find": replies})
    seen = asyncio.run(house.run({"idea": "a shop"}))
    (call,) = seen.calls("find")
    assert call.done is not None
    assert call.done.usage is not None
    assert (seen.status, call.done.usage.web_searches, call.done.cost_usd) == ("succeeded", 1, Decimal(0))
    assert [source.url for source in sources_of([call]) if source.cited] == [CITED]
