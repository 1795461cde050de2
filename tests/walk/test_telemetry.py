"""Runs as OpenTelemetry spans: by the conventions' names, each inside the one before, and without what was said.

The attribute names are those of the GenAI semantic conventions (`gen_ai.*`, `error.type`, `server.*`); the spans are
read from the SDK's own in-memory exporter, and once from what really leaves the process over OTLP.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orchestrator.engine import RunOptions, open_services, start_run
from orchestrator.graph import build_graph
from orchestrator.project import find_project
from orchestrator.providers.base import Traits
from orchestrator.settings import load_settings
from orchestrator.store.scrub import Scrubber
from orchestrator.trace import telemetry
from tests.strict_server import Fault, Seen, StrictServer
from tests.walk.over_http import typed

ROOT = Path(__file__).parents[2]
KEY = "sk-CANARY-key-0123456789"
PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 500}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  price: {about: "What it costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer, minimum: 1}}, required: [cost], additionalProperties: false}}
steps:
  size: {python: "work.py:size", reads: [idea], produces: note}
  buy: {reads: [idea, size], produces: price, tools: ["work.py:order"], prompt: "Order it."}
  report: {reads: [buy], produces: note, prompt: "Report."}
outputs: [report]
"""
WORK = '''
from orchestrator import tool


@tool(idempotent=True)
def order(part: str) -> str:
    """Order a part."""
    return part + " is ordered"


def size(idea: str) -> str:
    return "large"
'''
CALL = {"tool_calls": [{"name": "order", "arguments": {"part": "SECRET-PART"}}]}


def answer(seen: Seen) -> dict[str, Any]:
    if seen.name != "price":
        return {"text": f"SECRET-TEXT {KEY}"}
    return (CALL, {"json": {"cost": 24}})[seen.turn]


def shop(folder: Path) -> Path:
    (folder / "orchestrator.toml").write_text('user = "ana"\n', encoding="utf-8")
    (folder / "shop.yaml").write_text(PIPELINE, encoding="utf-8")
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    return folder


def spans_of(
    folder: Path, server: StrictServer, monkeypatch: pytest.MonkeyPatch, *, capture: bool = False
) -> dict[str, list[ReadableSpan]]:
    """One run in this process; its spans by name, in the order in which they ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = telemetry.Telemetry(provider.get_tracer("test"), capture, Scrubber([KEY]))
    monkeypatch.setattr(telemetry, "opened", lambda get, secrets: made)

    async def go() -> None:
        project = find_project(shop(folder))
        env = {"ORCH_MODEL": "openai:a-model", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        settings = load_settings(project, {**env, "HOME": str(folder), "ORCH_OTEL": "1"})
        graph = build_graph(project, settings, project.pipeline(None), require_model=True)
        async with open_services(project, settings, db=f"sqlite:///{folder}/orch.db") as services:
            await start_run(services, graph, RunOptions(inputs={"idea": "SECRET-IDEA"}))

    asyncio.run(go())
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_run_step_call_and_tool_are_spans_by_the_conventions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StrictServer(answer) as server:
        spans = spans_of(tmp_path, server, monkeypatch)
        port = int(server.base_url.split(":")[2].split("/")[0])
        bodies = server.seen
    assert {name: len(some) for name, some in spans.items()} == {
        "invoke_workflow shop": 1,
        "step size": 1,
        "invoke_agent buy": 1,
        "invoke_agent report": 1,
        "chat a-model": 3,
        "execute_tool order": 1,
    }
    [run], [size] = spans["invoke_workflow shop"], spans["step size"]
    [buy], [report], [tool] = spans["invoke_agent buy"], spans["invoke_agent report"], spans["execute_tool order"]
    first, second, third = spans["chat a-model"]
    assert [parent(span) for span in (run, size, buy, report)] == [None, own(run), own(run), own(run)]
    assert [parent(span) for span in (first, tool, second, third)] == [own(buy), own(buy), own(buy), own(report)]
    kinds = {span.kind for span in (run, size, buy, report, tool)}
    assert (kinds, {span.kind for span in (first, second, third)}) == ({SpanKind.INTERNAL}, {SpanKind.CLIENT})
    assert attributes(run) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "shop",
        "orchestrator.run.number": "1",
        "orchestrator.run.status": "succeeded",
        "orchestrator.cost_partial": True,
    }
    assert attributes(buy)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(buy)["gen_ai.agent.name"] == "buy"
    assert "gen_ai.operation.name" not in attributes(size), "no model has part in it"
    usage = bodies[1].response["usage"]
    assert attributes(second) | {"gen_ai.response.time_to_first_chunk": 0} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "a-model",
        "gen_ai.request.max_tokens": 500,
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "json",
        "gen_ai.conversation.id": "1/buy",
        "gen_ai.response.id": bodies[1].response["id"],
        "gen_ai.response.model": "a-model",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0,
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": port,
        "orchestrator.call.number": 2,
        "orchestrator.call.chained": True,
        "orchestrator.call.parent": bodies[0].response["id"],
    }
    assert attributes(first)["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert attributes(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "order",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": bodies[0].response["output"][0]["call_id"],
    }
    assert first.start_time is not None
    assert buy.start_time is not None
    assert buy.start_time <= first.start_time
    said = json.dumps([[span.name, attributes(span)] for some in spans.values() for span in some])
    assert "SECRET" not in said, "what was said is in no span unless it is asked for"


def test_what_was_said_is_in_the_spans_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S29: configured keys are not, whoever said them."""
    with StrictServer(answer) as server:
        spans = spans_of(tmp_path, server, monkeypatch, capture=True)
    first, second, third = map(attributes, spans["chat a-model"])
    [asked] = json.loads(first["gen_ai.input.messages"])
    assert asked["role"] == "user"
    assert "SECRET-IDEA" in asked["parts"][0]["content"]
    [result] = json.loads(second["gen_ai.input.messages"])
    assert result["parts"][0]["response"] == "SECRET-PART is ordered"
    assert json.loads(first["gen_ai.system_instructions"])[0]["content"].startswith("How to read")
    [told] = json.loads(third["gen_ai.output.messages"])
    assert told["parts"][0]["content"][0]["text"] == "SECRET-TEXT [secret removed]"
    assert KEY not in json.dumps([first, second, third])


def test_each_try_is_a_span_and_a_failure_has_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a failure may quote what was said, and stays out too."""
    broken = {"error": {"code": "invalid_prompt", "message": "SECRET-REASON"}}
    with StrictServer(answer) as server:
        server.faults = [Fault(drop=True), None, Fault(status=400, body=broken)]
        spans = spans_of(tmp_path, server, monkeypatch)
    lost, _, refused = spans["chat a-model"]
    for span, kind in ((lost, "connection"), (refused, "refused")):
        assert attributes(span)["error.type"] == kind
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    [buy], [run] = spans["invoke_agent buy"], spans["invoke_workflow shop"]
    assert attributes(buy)["orchestrator.step.status"] == "failed"
    assert attributes(buy)["error.type"] == "provider_refused"
    assert (attributes(run)["orchestrator.run.status"], run.status.status_code) == ("failed", StatusCode.ERROR)
    assert "SECRET" not in json.dumps([attributes(span) for some in spans.values() for span in some])


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://x.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://api.x.ai/v1", "x_ai"),
        ("http://localhost:11434/v1", "work"),
        ("https://notapi.openai.com.example/v1", "work"),
    ],
)
def test_vendors_have_the_conventions_names(url: str, name: str) -> None:
    assert telemetry.vendor_of(Traits("work", url, "auto")) == name


@pytest.mark.slow
def test_spans_leave_over_OTLP_when_the_switch_is_on(tmp_path: Path) -> None:
    """The command itself, with the standard variables, at the end of its run."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    taken: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    shop(tmp_path)
    own_env = {k: v for k, v in os.environ.items() if not k.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_", "OTEL_"))}
    with StrictServer(answer) as server:
        env = {"ORCH_MODEL": "openai:a-model", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        env |= {"ORCH_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}"}
        env |= {"ORCH_TRUST": "1", "XDG_CONFIG_HOME": str(tmp_path / "config"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "run", "--set", "idea=a house", "--yes"],
            cwd=tmp_path,
            env=own_env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    collector.shutdown()
    collector.server_close()
    assert done.returncode == 0, done.stderr
    assert {path for path, _ in taken} == {"/v1/traces"}
    names: list[str] = []
    for _, body in taken:
        assert KEY.encode() not in body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attribute = {a.key: a.value.string_value for a in resource.resource.attributes}
            assert attribute["service.name"] == "orchestrator"
            names += [span.name for scope in resource.scope_spans for span in scope.spans]
    assert sorted(names) == sorted(
        ["invoke_workflow shop", "step size", "invoke_agent buy", "invoke_agent report", "execute_tool order"]
        + ["chat a-model"] * 3
    )


@pytest.mark.slow
def test_a_collector_that_is_away_is_told_in_one_line_and_harms_nothing(tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound and not listening: nothing answers there
        nobody.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        shop(tmp_path)
        with StrictServer(answer) as server:
            env = {"ORCH_MODEL": "openai:a-model", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
            env |= {"ORCH_OTEL": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": away, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
            code, out, err = typed(tmp_path, env, "run", "--set", "idea=a house", "--yes")
    assert code == 0, err
    assert "succeeded" in out
    (line,) = [line for line in err.splitlines() if "spans" in line]
    assert line.startswith("spans were not sent (OTEL_EXPORTER_OTLP_ENDPOINT says where to; unset ORCH_OTEL to send")
    assert "Traceback" not in err
