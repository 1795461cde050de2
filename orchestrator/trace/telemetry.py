"""A run as OpenTelemetry spans, by the GenAI semantic conventions: run, step, call, tool, each inside the one before.

The events that everybody hears give the run, its steps and its tools; the calls are seen where they happen, one span
for each try, so that what a vendor answered and how long it took are exact. What was said stays out of the spans unless
the conventions' own switch asks for it. Nothing here is loaded where spans are not wanted.

    run    invoke_workflow PIPELINE   INTERNAL
    step   invoke_agent STEP          INTERNAL  (a step in plain Python: `step STEP`, no operation of a model's)
    call   chat MODEL                 CLIENT
    tool   execute_tool TOOL          INTERNAL
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.ids import is_synthetic
from orchestrator.providers.base import Listener, Provider, StreamEvent, Traits, no_listener
from orchestrator.providers.registry import Providers
from orchestrator.settings import is_on
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Event, Item, OutputItem, Reply, Request, TextItem

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from orchestrator.providers.prices import Prices

SWITCH: Final = "ORCH_OTEL"
CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# The conventions' names of vendors, by the end of their hosts.
VENDORS: Final[Mapping[str, str]] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "api.x.ai": "x_ai",
}
_ENDS: Final = frozenset({"step.done", "step.failed", "step.waiting", "step.kept", "step.skipped", "step.repeat"})


@dataclass
class Telemetry:
    """The spans of the runs of one command, as they go on. `capture` puts what was said into them, without keys."""

    tracer: Tracer
    capture: bool = False
    scrubber: Scrubber = field(default_factory=lambda: Scrubber(()))
    close: Callable[[], None] = lambda: None
    _run: Span | None = field(default=None, init=False)
    _number: str = field(default="", init=False)
    _steps: dict[tuple[str, str | None], Span] = field(default_factory=dict, init=False)

    def hear(self, event: Event) -> None:
        """Take one event in."""
        key = (event.step or "", event.item)
        if event.kind in ("run.started", "bench.started"):
            self._run_started(event.data)
        elif event.kind == "run.done":
            self._run_done(event.data)
        elif event.kind == "step.started":
            self._step_started(key, event.data)
        elif event.kind in _ENDS:
            self._step_ended(key, event)
        elif event.kind == "tool.called":
            self._tool(key, event.data)

    def seen(self, providers: Providers) -> Providers:
        """The same providers, with their calls in spans."""
        return Traced(providers, self)

    def finish(self) -> None:
        """End what is still open, as it was left, and hand everything over."""
        for key in list(self._steps):
            self._steps.pop(key).end()
        if self._run is not None:
            self._run.end()
            self._run = None
        self.close()

    # --- run and steps

    def _run_started(self, data: Mapping[str, Any]) -> None:
        if self._run is not None:
            self._run.end()
        name, self._number = str(data.get("pipeline", "bench")), str(data.get("number", ""))
        self._run = self.tracer.start_span(f"invoke_workflow {name}")
        self._run.set_attribute("gen_ai.operation.name", "invoke_workflow")
        self._run.set_attribute("gen_ai.workflow.name", name)
        self._run.set_attribute("orchestrator.run.number", self._number)

    def _run_done(self, data: Mapping[str, Any]) -> None:
        if self._run is None:
            return
        status = str(data.get("status"))
        self._run.set_attribute("orchestrator.run.status", status)
        _set_cost(self._run, data)
        if status == "failed":
            _failed(self._run, status, str(data.get("error") or ""), told=self.capture)
        self._run.end()
        self._run = None

    def _step_started(self, key: tuple[str, str | None], data: Mapping[str, Any]) -> None:
        before = self._steps.pop(key, None)
        if before is not None:  # given up for a new attempt
            before.end()
        step, item = key
        asks = data.get("model") is not None
        span = self.tracer.start_span(f"{'invoke_agent' if asks else 'step'} {step}", context=_inside(self._run))
        if asks:
            span.set_attribute("gen_ai.operation.name", "invoke_agent")
            span.set_attribute("gen_ai.agent.name", step)
            span.set_attribute("gen_ai.conversation.id", self.conversation(*key))
        span.set_attribute("orchestrator.step.name", step)
        span.set_attribute("orchestrator.step.attempt", int(data.get("attempt", 1)))
        if item is not None:
            span.set_attribute("orchestrator.step.item", item)
        self._steps[key] = span

    def _step_ended(self, key: tuple[str, str | None], event: Event) -> None:
        span = self._steps.pop(key, None)
        if span is None:
            return
        span.set_attribute("orchestrator.step.status", event.kind.removeprefix("step."))
        for name in ("calls", "reasks"):
            if isinstance(event.data.get(name), int):
                span.set_attribute(f"orchestrator.step.{name}", event.data[name])
        for name in ("input_tokens", "output_tokens"):
            if isinstance(event.data.get(name), int):
                span.set_attribute(f"gen_ai.usage.{name}", event.data[name])
        _set_cost(span, event.data)
        if event.kind == "step.failed":
            _failed(span, str(event.data.get("code")), str(event.data.get("message")), told=self.capture)
        span.end()

    def _tool(self, key: tuple[str, str | None], data: Mapping[str, Any]) -> None:
        name, ended = str(data.get("name")), time.time_ns()
        begun = ended - int(float(data.get("seconds") or 0) * 1e9)
        span = self.tracer.start_span(f"execute_tool {name}", context=_inside(self._span(*key)), start_time=begun)
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", name)
        span.set_attribute("gen_ai.tool.type", "function")
        if data.get("id"):
            span.set_attribute("gen_ai.tool.call.id", str(data["id"]))
        if data.get("is_error"):
            _failed(span, "tool_error", "", told=False)
        span.end(end_time=ended)

    def _span(self, step: str, item: str | None) -> Span | None:
        return self._steps.get((step, item)) or self._run

    def conversation(self, step: str, item: str | None) -> str:
        """What the calls of one step have in common: `12/tech-stack`."""
        return f"{self._number}/{step}" + (f"/{item}" if item else "")

    # --- calls

    def call_span(self, request: Request, traits: Traits) -> Span:
        """The span of one try of a call, begun now."""
        from opentelemetry.trace import SpanKind

        parent = _inside(self._span(request.step, request.item))
        span = self.tracer.start_span(f"chat {request.model}", context=parent, kind=SpanKind.CLIENT)
        host = urlsplit(traits.base_url)
        known: dict[str, str | int | bool] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": vendor_of(traits),
            "gen_ai.request.model": request.model,
            "gen_ai.request.max_tokens": request.max_output_tokens,
            "gen_ai.request.stream": True,
            "gen_ai.output.type": "json" if request.output is not None else "text",
            "gen_ai.conversation.id": self.conversation(request.step, request.item),
            "orchestrator.call.number": request.call,
            "orchestrator.call.chained": not is_synthetic(request.thread),
        }
        if host.hostname:
            known["server.address"] = host.hostname
            known["server.port"] = host.port or (443 if host.scheme == "https" else 80)
        if not is_synthetic(request.thread):
            known["orchestrator.call.parent"] = request.thread
        if self.capture:
            known["gen_ai.system_instructions"] = self._said([{"type": "text", "content": request.system}])
            known["gen_ai.input.messages"] = self._said(map(_message, request.items))
        span.set_attributes(known)
        return span

    def call_ended(self, span: Span, reply: Reply) -> None:
        reason = reply.incomplete_reason or ("tool_calls" if reply.tool_calls else "stop")
        span.set_attribute("gen_ai.response.id", reply.id)
        span.set_attribute("gen_ai.response.finish_reasons", ["refusal" if reply.refusal is not None else reason])
        if reply.model:
            span.set_attribute("gen_ai.response.model", reply.model)
        usage = reply.usage
        if usage is not None:
            span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
            span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)
            span.set_attribute("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens)
        if self.capture:
            span.set_attribute("gen_ai.output.messages", self._said(map(_message, reply.items)))

    def call_failed(self, span: Span, error: BaseException) -> None:
        kind = error.kind if isinstance(error, ProviderFailure) else type(error).__name__
        _failed(span, kind or "error", str(error), told=self.capture)

    def _said(self, messages: Iterable[Any]) -> str:
        return json.dumps(self.scrubber.data(list(messages)), ensure_ascii=False)


def vendor_of(traits: Traits) -> str:
    """The conventions' name of whoever is at an address; for others, the project's own."""
    host = urlsplit(traits.base_url).hostname or ""
    return next((name for end, name in VENDORS.items() if host == end or host.endswith("." + end)), traits.name)


def _message(item: Item) -> dict[str, Any]:
    """An item as the conventions write messages; a vendor's own output verbatim."""
    if isinstance(item, TextItem):
        return {"role": "user", "parts": [{"type": "text", "content": item.text}]}
    if isinstance(item, OutputItem):
        return {"role": "assistant", "parts": [dict(item.data)]}
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": item.call_id, "response": item.output}]}


def _inside(parent: Span | None) -> Any:
    from opentelemetry.trace import set_span_in_context

    return None if parent is None else set_span_in_context(parent)


def _set_cost(span: Span, data: Mapping[str, Any]) -> None:
    """What it cost, where all of it is known: a part of a sum would be read as the whole."""
    if data.get("cost_partial"):
        span.set_attribute("orchestrator.cost_partial", True)
    elif data.get("cost_usd") is not None:
        span.set_attribute("orchestrator.cost_usd", float(str(data["cost_usd"])))


def _failed(span: Span, kind: str, message: str, *, told: bool) -> None:
    """A message may quote what was said: it goes along only where that may."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, message if told else None))


# --- where calls happen -----------------------------------------------------------------------------------------------


class Traced(Providers):
    """A project's providers, each of which has its calls in spans."""

    def __init__(self, inner: Providers, telemetry: Telemetry) -> None:
        self._inner = inner
        self._telemetry = telemetry

    def get(self, name: str) -> Provider:
        return TracedProvider(self._inner.get(name), self._telemetry)

    def offline(self, name: str) -> Provider:
        return self._inner.offline(name)

    def hosts(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        return self._inner.hosts(names)

    def prices(self) -> Prices:
        return self._inner.prices()

    async def close(self) -> None:
        await self._inner.close()


class TracedProvider:
    """One provider, each try of a call in a span that is the current one meanwhile: the transport's own go inside."""

    def __init__(self, inner: Provider, telemetry: Telemetry) -> None:
        self._inner = inner
        self._telemetry = telemetry

    @property
    def traits(self) -> Traits:
        return self._inner.traits

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        from opentelemetry.trace import use_span

        span, begun = self._telemetry.call_span(request, self.traits), time.monotonic()
        told = False

        def hear(event: StreamEvent) -> None:
            nonlocal told
            if event.kind == "text" and not told:
                told = True
                span.set_attribute("gen_ai.response.time_to_first_chunk", time.monotonic() - begun)
            listener(event)

        try:
            with use_span(span, record_exception=False, set_status_on_exception=False):
                reply = await self._inner.respond(request, hear)
            self._telemetry.call_ended(span, reply)
            return reply
        except BaseException as error:
            self._telemetry.call_failed(span, error)
            raise
        finally:
            span.end()

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        return await self._inner.retrieve(response_id, request, listener, after=after)

    async def give_up(self, response_id: str, request: Request) -> None:
        await self._inner.give_up(response_id, request)

    async def count(self, request: Request) -> int | None:
        return await self._inner.count(request)

    def wire(self, request: Request) -> bytes:
        return self._inner.wire(request)

    async def close(self) -> None:
        await self._inner.close()


# --- who takes the spans ----------------------------------------------------------------------------------------------


def opened(get: Callable[[str], str | None], secrets: Iterable[str]) -> Telemetry:
    """Telemetry to where this process sends its spans already, else by OTLP to where the standard variables say
    (OTEL_EXPORTER_OTLP_ENDPOINT …). Raises ConfigError where the extra is not installed."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise _not_installed() from error
    provider, close = trace.get_tracer_provider(), _nothing
    if isinstance(provider, trace.ProxyTracerProvider):  # nobody has set one up
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise _not_installed() from error
        name = os.environ.get("OTEL_SERVICE_NAME", "orchestrator")
        own = TracerProvider(resource=Resource.create({"service.name": name}))
        own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        provider, close = own, partial(_end, own, _Unsent.listening())
    return Telemetry(provider.get_tracer("orchestrator"), is_on(get(CONTENT)), Scrubber(secrets), close)


class _Unsent(logging.Handler):
    """What the exporter says of a collector that does not answer, once and at the end rather than at each try."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.why = ""
        self.lost = False

    @classmethod
    def listening(cls) -> _Unsent | None:
        """None where the process has logging of its own: what is said there is its business."""
        if logging.getLogger().handlers:
            return None
        made, logger = cls(), logging.getLogger("opentelemetry")
        logger.addHandler(made)
        logger.propagate = False
        return made

    def emit(self, record: logging.LogRecord) -> None:
        self.why = self.why or record.getMessage()
        self.lost = self.lost or record.levelno >= logging.ERROR


def _end(provider: Any, unsent: _Unsent | None) -> None:
    provider.shutdown()
    if unsent is None:
        return
    logger = logging.getLogger("opentelemetry")
    logger.removeHandler(unsent)
    logger.propagate = True
    if unsent.lost:
        told = "spans were not sent (OTEL_EXPORTER_OTLP_ENDPOINT says where to; unset %s to send none): %s"
        logging.getLogger(__name__).warning(told, SWITCH, unsent.why[:300])


def _nothing() -> None:
    """The process that set the exporter up ends it."""


def _not_installed() -> ConfigError:
    return ConfigError(
        f"{SWITCH} asks for OpenTelemetry spans, and the packages for them are not installed",
        hint=f"pip install 'step-orchestrator[otel]', or unset {SWITCH}",
    )
