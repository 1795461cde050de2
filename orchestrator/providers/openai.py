"""The driver for OpenAI's Responses API and for servers that speak it, on the vendor's own SDK.

The SDK carries the bytes and nothing more. Its retries are off (ours know the deadline), its redirects are off (a
cross-origin 307 would take the whole prompt along, S24), its models are not used (they accept any shape), and the
body is handed over ready-made, so that the hash that was recorded is the hash of what is sent (S14). Every call
streams: the response's id is known before the answer is, and long answers need no long silence.

A reply counts only when a terminal event says so. A stream that just ends was cut off, whatever it had said by then.

A server may echo the key: in an error, an answer, a header. It is taken out of what it says before anything else looks
at that, or cuts a piece of it for a message; a piece of a key is found by nobody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.clock import Clock, SystemClock
from orchestrator.contracts.schemas import MAX_JSON_BYTES
from orchestrator.errors import ProviderFailure
from orchestrator.ids import is_synthetic
from orchestrator.providers import openai_wire
from orchestrator.providers.base import Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.logs import scrubbed_logs
from orchestrator.providers.openai_wire import Dialect, Ending, malformed
from orchestrator.providers.retry import retry_after
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

CONNECT_SECONDS: Final = 20.0
ENDINGS: Final[Mapping[str, Ending]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


class OpenAIProvider:
    """One endpoint at `base_url`. `key` is sent as a bearer token; it and other `secrets` are removed from every
    message, log and reply. `key_env` names it in hints. Without a key the driver can say what it would send, and
    nothing else."""

    def __init__(
        self,
        traits: Traits,
        dialect: Dialect,
        *,
        base_url: str,
        host: str,
        key: str,
        key_env: str,
        secrets: Sequence[str] = (),
        organization: str | None = None,
        project: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._traits = traits
        self._dialect = dialect
        self._base_url = base_url
        self._key = key
        self._scrubber = Scrubber([key, *secrets])
        self._logs = ExitStack()
        self._key_env = key_env
        self._host = host
        self._account = (organization, project)
        self._clock = clock or SystemClock()
        self._opened: AsyncOpenAI | None = None

    @property
    def traits(self) -> Traits:
        return self._traits

    def wire(self, request: Request) -> bytes:
        """The exact body that `respond` sends."""
        return openai_wire.wire(request, self._dialect)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
        self._logs.close()

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """One try. Raises ProviderFailure; cancellation closes the connection and propagates."""
        content = self.wire(request)
        if not self._key:
            raise self._failure("there is no key", "auth", request)
        try:
            async with asyncio.timeout(request.timeout):
                return await self._exchange(content, request.timeout, listener)
        except ProviderFailure as failure:
            raise self._failure(failure.message, failure.kind, request, failure.retry_after) from failure
        except TimeoutError as error:
            what = f"no complete reply within {request.timeout:g} s"
            raise self._failure(what, "connection", request) from error
        except Exception as error:
            known = self._known(error, request)
            if known is None:
                raise
            raise known from error

    async def _exchange(self, content: bytes, timeout: float, listener: Listener) -> Reply:
        import httpx2
        from openai import AsyncStream

        stream = await self._client().post(
            "/responses",
            cast_to=object,
            content=content,
            options={
                "timeout": httpx2.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
                "security": {"bearer_auth": True},
            },
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with stream:
            kind = stream.response.headers.get("content-type", "text/event-stream")
            if "text/event-stream" not in kind:
                reply = _whole(await _body(stream.response), kind, self._scrubber.data)
                listener(StreamEvent("created", reply.id))
                return reply
            return await _Reading(listener, self._scrubber.data).to_the_end(stream)

    def _client(self) -> AsyncOpenAI:
        """The SDK's client, opened at the first call: importing it takes a second, and it belongs to the event loop."""
        if self._opened is None:
            import httpx2
            from openai import AsyncOpenAI

            organization, project = self._account
            self._opened = AsyncOpenAI(
                api_key=self._key,
                base_url=self._base_url,
                organization=organization,
                project=project,
                max_retries=0,
                http_client=httpx2.AsyncClient(follow_redirects=False),
            )
            self._logs.enter_context(scrubbed_logs(self._scrubber, ("openai", "httpx2", "httpcore2")))
        return self._opened

    # --- failures

    def _known(self, error: Exception, request: Request) -> ProviderFailure | None:
        """What the SDK's and the transport's exceptions mean; None for what is a bug of ours."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._refused(error.response, request)
        if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            what = f"{type(cause).__name__}: {cause}" if cause and str(cause) else type(cause or error).__name__
            return self._failure(f"the connection failed: {what}", "connection", request)
        if isinstance(error, openai.APIError):
            inner = openai_wire.failed(
                self._scrubber.data(error.body or error.message), "the stream broke off", unknown="overloaded"
            )
            return self._failure(inner.message, inner.kind, request)
        if isinstance(error, ValueError | RecursionError):  # no JSON, no UTF-8, a number or a nesting without end
            return self._failure(f"the reply is malformed: {error}", "malformed", request)
        return None

    def _refused(self, response: Any, request: Request) -> ProviderFailure:
        """An answer with a status that is no success."""
        try:
            document: object = response.json()
        except (ValueError, RecursionError):
            document = response.text
        error = openai_wire.error_of(self._scrubber.data(document))
        kind = openai_wire.refusal_kind(response.status_code, error, chained=not is_synthetic(request.thread))
        wait = retry_after(response.headers, self._clock.now()) if kind in ("rate_limit", "overloaded") else None
        what = f"{response.status_code}, {openai_wire.words(error)}"
        if 300 <= response.status_code < 400:
            what = f"{response.status_code}, it redirects elsewhere, and redirects are not followed"
        return self._failure(what, kind, request, wait)

    def _failure(self, what: str, kind: str, request: Request, wait: float | None = None) -> ProviderFailure:
        message = f"{self._host} ({request.model}): {self._scrubber.text(what)}"
        return ProviderFailure(message, hint=self._hint(kind, request), kind=kind, retry_after=wait)

    def _hint(self, kind: str, request: Request) -> str | None:
        hints = {
            "auth": f"check the key in {self._key_env}, and that it may use {request.model}",
            "model": "check the model's name: ORCH_MODEL, or `models` in the pipeline",
            "quota": "the account is out of credit: add some at the provider, then `orch resume`",
            "too_long": "the context is over the model's window: read fewer artifacts or fields, or use another model",
            "refused": "the provider's policy refused this request; change the task or the model",
            "connection": f"check the network and that {self._host} is up, then `orch resume`",
            "overloaded": "the provider is in trouble; try again later with `orch resume`",
            "rate_limit": "wait, then `orch resume`",
            "malformed": f"{self._host} does not answer as a Responses API: check base_url",
            "bad_request": f"{self._host} did not accept the request: check base_url and the model's parameters",
        }
        return hints.get(kind)


class _Reading:
    """One stream, read up to its terminal event."""

    def __init__(self, listener: Listener, clean: Callable[[Any], Any]) -> None:
        self._listener = listener
        self._clean = clean
        self._id = ""
        self._items: dict[int, Mapping[str, Any]] = {}
        self._commentary: set[int] = set()

    async def to_the_end(self, stream: AsyncStream[object]) -> Reply:
        async for event in stream:
            if not isinstance(event, Mapping):
                raise malformed("an event is no object")
            reply = self._see(self._clean(event))
            if reply is not None:
                await _drain(stream)
                return reply
        what = "after the response had begun" if self._id else "before anything was said"
        raise ProviderFailure(f"truncated stream: it ended {what}, without a terminal event", kind="connection")

    def _see(self, event: Mapping[str, Any]) -> Reply | None:
        kind = str(event.get("type"))
        if kind in ENDINGS:
            items = [self._items[index] for index in sorted(self._items)]
            reply = openai_wire.reply(event.get("response"), ENDINGS[kind], items)
            self._created(reply.id)
            return reply
        if kind == "error":
            raise openai_wire.failed(event, "the stream broke off", unknown="overloaded")
        if kind == "response.created":
            self._created(openai_wire.response_id(event.get("response")))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(event, done=kind.endswith("done"))
        elif kind == "response.output_text.delta":
            index, delta = event.get("output_index"), event.get("delta")
            if isinstance(delta, str) and not (isinstance(index, int) and index in self._commentary):
                self._listener(StreamEvent("text", delta))
        return None

    def _created(self, found: str) -> None:
        """Report the id once, as soon as it is known."""
        if found != self._id:
            self._id = found
            self._listener(StreamEvent("created", found))

    def _item(self, event: Mapping[str, Any], *, done: bool) -> None:
        index, item = event.get("output_index"), event.get("item")
        if not isinstance(index, int) or not isinstance(item, Mapping):
            return
        if item.get("phase") not in (None, "final_answer"):
            self._commentary.add(index)
        if done:
            self._items[index] = item


async def _drain(stream: AsyncStream[object]) -> None:
    """Read the stream's last bytes, so that the connection can serve the next call; what they say matters no more."""
    with suppress(TimeoutError, ValueError, OSError):
        async with asyncio.timeout(0.1):
            await _exhaust(stream)


async def _exhaust(stream: AsyncIterator[object]) -> None:
    from openai import APIError

    with suppress(APIError):
        async for _ in stream:
            pass


async def _body(response: Any) -> bytes:
    """A body up to the size that is read of JSON anywhere, unpacked: a few kilobytes can be packed gigabytes."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_JSON_BYTES:
            raise malformed(f"it is longer than {MAX_JSON_BYTES:,} bytes")
    return bytes(content)


def _whole(content: bytes, kind: str, clean: Callable[[Any], Any]) -> Reply:
    """A 200 that is no stream: some servers answer at once. Only a whole response counts."""
    try:
        document = clean(json.loads(content))
    except ValueError as error:
        raise malformed(f"no event stream but {kind or 'no content type'}") from error
    if not isinstance(document, Mapping):
        raise malformed("no event stream, and no response either")
    if document.get("error"):
        raise malformed(f"an error with a good status: {openai_wire.words(openai_wire.error_of(document))}")
    ending = ENDINGS.get(f"response.{document.get('status')}")
    if document.get("object") != "response" or ending is None:
        raise malformed("no event stream, and no response with an end")
    return openai_wire.reply(document, ending)


def dialect_for(traits: Traits, host: str) -> Dialect:
    """What an endpoint takes, by its traits; cache keys only where the host is known to be OpenAI's."""
    chains = traits.stores and traits.chaining != "replay"
    return Dialect(chains=chains, stores=traits.stores, caches=host == OPENAI_HOST or host.endswith("." + OPENAI_HOST))


OPENAI_HOST: Final = "api.openai.com"


def detect_chaining(traits: Traits, host: str) -> Traits:
    """`auto` settled by the host where it is known: OpenAI, Azure and xAI chain, OpenRouter refuses to."""
    if not traits.stores:
        return replace(traits, chaining="replay")
    if traits.chaining != "auto":
        return traits
    if host in (OPENAI_HOST, "api.x.ai") or host.endswith((".api.openai.com", ".openai.azure.com")):
        return replace(traits, chaining="server")
    return replace(traits, chaining="replay") if host == "openrouter.ai" else traits
