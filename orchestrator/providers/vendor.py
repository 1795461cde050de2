"""What the drivers on the vendors' own SDKs share: one try, its time, and what an SDK's exceptions mean.

The SDKs carry the bytes and nothing more. Their retries are off (ours know the deadline), their redirects are off (a
cross-origin 307 would take the whole prompt along, S24), their models are not used (they accept any shape), and the
body is handed over ready-made, so that the hash that was recorded is the hash of what is sent (S14). Every call
streams: the response's id is known before the answer is, and long answers need no long silence.

A reply counts only when its end says so. A stream that just ends was cut off, whatever it had said by then.

A server may echo the key: in an error, an answer, a header. It is taken out of what it says before anything else looks
at that, or cuts a piece of it for a message; a piece of a key is found by nobody.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, ClassVar, Final, TypeVar

from orchestrator.clock import Clock, SystemClock
from orchestrator.contracts.schemas import MAX_JSON_BYTES
from orchestrator.errors import ProviderFailure
from orchestrator.providers.answers import error_of, malformed, words
from orchestrator.providers.base import FailureKind, Listener, StreamEvent, Traits, no_listener
from orchestrator.providers.logs import scrubbed_logs
from orchestrator.providers.retry import retry_after
from orchestrator.store.scrub import Scrubber
from orchestrator.values import Reply, Request

T = TypeVar("T")
CONNECT_SECONDS: Final = 20.0
EVENTS: Final = "text/event-stream"
TURNED_AWAY: Final = frozenset({503, 529})  # too much to do: the request was not begun


class VendorProvider(ABC):
    """One endpoint at `base_url`. `key` is sent as a bearer token; it and other `secrets` are removed from every
    message, log and reply. `key_env` names it in hints. Without a key the driver can say what it would send, and
    nothing else."""

    api: ClassVar[str]  # what the endpoint speaks, for hints
    package: ClassVar[str]  # the SDK's, for its logs
    path: ClassVar[str]

    def __init__(
        self,
        traits: Traits,
        *,
        base_url: str,
        host: str,
        key: str,
        key_env: str,
        secrets: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._traits = traits
        self._base_url = base_url
        self._key = key
        self._scrubber = Scrubber([key, *secrets])
        self._logs = ExitStack()
        self._key_env = key_env
        self._host = host
        self._clock = clock or SystemClock()
        self._opened: Any = None

    @property
    def traits(self) -> Traits:
        return self._traits

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
        self._logs.close()

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """One try. Raises ProviderFailure; cancellation closes the connection and propagates."""
        content = self.wire(request)
        return await self._tried(request, lambda client: self._exchange(client, content, request, listener))

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        """Nothing, unless a vendor keeps what it has answered."""
        return None

    async def _tried(self, request: Request, work: Callable[[Any], Awaitable[T]]) -> T:
        """Something done with the open client, in the request's time. Raises ProviderFailure."""
        if not self._key:
            raise self._failure("there is no key", "auth", request)
        client = self._client()  # the first time this loads the SDK, which is none of the server's time
        try:
            async with asyncio.timeout(request.timeout):
                return await work(client)
        except ProviderFailure as failure:
            raise self._failure(
                failure.message, failure.kind, request, failure.retry_after, unbilled=failure.unbilled
            ) from failure
        except TimeoutError as error:
            what = f"no complete reply within {request.timeout:g} s"
            raise self._failure(what, "connection", request) from error
        except Exception as error:
            known = self._known(error, request)
            if known is None:
                raise
            raise known from error

    async def give_up(self, response_id: str, request: Request) -> None:
        """Nothing, unless a vendor answers in the background."""
        return

    async def count(self, request: Request) -> int | None:
        return None

    # --- what a vendor has of its own

    @abstractmethod
    def wire(self, request: Request) -> bytes:
        """The exact body that `respond` sends."""

    @abstractmethod
    def _sdk(self) -> Any:
        """The SDK's package. Importing it takes a second, so only the first call does."""

    @abstractmethod
    def _open(self, http: Any) -> Any:
        """The SDK's client over this HTTP client."""

    @abstractmethod
    async def _read(self, stream: Any, listener: Listener) -> Reply:
        """One stream, up to its end."""

    @abstractmethod
    def _whole(self, document: Mapping[str, Any]) -> Reply:
        """A 200 that is no stream: some servers answer at once. Only a whole response counts."""

    @abstractmethod
    def _refusal_kind(self, status: int, error: object, request: Request) -> FailureKind:
        """Which row of the failure table an HTTP error is."""

    @abstractmethod
    def _broken_off(self, error: object) -> ProviderFailure:
        """What an error inside a stream means."""

    def _missing(self) -> str:
        """What to do where the address has nothing at the path: the whole of it shows a part that is twice or not
        there."""
        return f"there is no {self.api} at {self.traits.base_url.rstrip('/')}{self.path}: check base_url"

    # --- one exchange

    async def _exchange(self, client: Any, content: bytes, request: Request, listener: Listener) -> Reply:
        stream = await client.post(
            self.path,
            cast_to=object,
            content=content,
            options={**self._options(timeouts(request.timeout)), "headers": self._headers(request)},
            stream=True,
            stream_cls=self._sdk().AsyncStream[object],
        )
        async with stream:
            kind = stream.response.headers.get("content-type", EVENTS)
            if EVENTS in kind:
                reply = await self._read(stream, listener)
                await self._drain(stream)
                return reply
            document = self._document(await whole_body(stream.response), kind)
            if document.get("error"):
                raise malformed(f"an error with a good status: {words(error_of(document))}")
            reply = self._whole(document)
            listener(StreamEvent("created", reply.id))
            return reply

    def _headers(self, request: Request) -> dict[str, str]:
        """What a request needs said beside its body."""
        return {}

    def _options(self, timeout: Any) -> dict[str, Any]:
        return {"timeout": timeout}

    def _client(self) -> Any:
        """The SDK's client, opened at the first call: it belongs to the event loop."""
        if self._opened is None:
            import httpx2

            self._sdk()
            self._opened = self._open(httpx2.AsyncClient(follow_redirects=False))
            self._logs.enter_context(scrubbed_logs(self._scrubber, (self.package, "httpx2", "httpcore2")))
        return self._opened

    def _document(self, content: bytes, kind: str) -> Mapping[str, Any]:
        """An answer that is no stream, as JSON without secrets. Raises ProviderFailure."""
        try:
            document = self._scrubber.data(json.loads(content))
        except ValueError as error:
            raise malformed(f"no event stream but {kind or 'no content type'}") from error
        if not isinstance(document, Mapping):
            raise malformed("no event stream, and no response either")
        return document

    async def _drain(self, stream: Any) -> None:
        """Read the stream's last bytes, so that the connection can serve the next call; what they say matters no
        more."""
        with suppress(TimeoutError, ValueError, OSError, self._sdk().APIError):
            async with asyncio.timeout(0.1):
                async for _ in stream:
                    pass

    # --- failures

    def _known(self, error: Exception, request: Request) -> ProviderFailure | None:
        """What the SDK's and the transport's exceptions mean; None for what is a bug of ours."""
        import httpx2

        sdk = self._sdk()
        if isinstance(error, sdk.APIStatusError) and error.response.status_code >= 300:
            return self._refused(error.response, request)
        if isinstance(error, (sdk.APIConnectionError, httpx2.HTTPError)):
            cause = error.__cause__ if isinstance(error, sdk.APIConnectionError) else error
            what = f"{type(cause).__name__}: {cause}" if cause and str(cause) else type(cause or error).__name__
            unsent = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            return self._failure(f"the connection failed: {what}", "connection", request, unbilled=unsent)
        if isinstance(error, sdk.APIError):
            inner = self._broken_off(self._scrubber.data(error.body or error.message))
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
        error = error_of(self._scrubber.data(document))
        kind = self._refusal_kind(response.status_code, error, request)
        wait = retry_after(response.headers, self._clock.now()) if kind in ("rate_limit", "overloaded") else None
        what = f"{response.status_code}, {words(error)}"
        hint = self._missing() if response.status_code == 404 and kind == "bad_request" else None
        if 300 <= response.status_code < 400:
            what = f"{response.status_code}, it redirects elsewhere, and redirects are not followed"
        return self._failure(what, kind, request, wait, hint, unbilled=response.status_code in TURNED_AWAY)

    def _failure(
        self,
        what: str,
        kind: str,
        request: Request,
        wait: float | None = None,
        hint: str | None = None,
        *,
        unbilled: bool = False,
    ) -> ProviderFailure:
        message = f"{self._host} ({request.model}): {self._scrubber.text(what)}"
        return ProviderFailure(
            message, hint=hint or self._hint(kind, request), kind=kind, retry_after=wait, unbilled=unbilled
        )

    def _hint(self, kind: str, request: Request) -> str | None:
        hints = {
            "auth": f"check the key in {self._key_env}, and that it may use {request.model}",
            "model": "check the model's name: ORCH_MODEL, or `models` in the pipeline",
            "quota": "the account is out of credit: add some at the provider, then `orch resume`",
            "too_long": "the context is over the model's window: read fewer artifacts or fields, or use another model",
            "unanswered_call": "the conversation is not what the server expects: `orch resume` begins the step anew",
            "refused": "the provider's policy refused this request; change the task or the model",
            "connection": f"check the network and that {self._host} is up, then `orch resume`",
            "overloaded": "the provider is in trouble; try again later with `orch resume`",
            "rate_limit": "wait, then `orch resume`",
            "malformed": f"{self._host} does not answer as a {self.api}: check base_url",
            "bad_request": f"{self._host} did not accept the request: check base_url and the model's parameters",
        }
        return hints.get(kind)


async def events(stream: AsyncIterator[object], scrubber: Scrubber) -> AsyncIterator[Mapping[str, Any]]:
    """A stream's events as JSON objects without secrets. Raises ProviderFailure for anything else."""
    async for event in stream:
        if not isinstance(event, Mapping):
            raise malformed("an event is no object")
        yield scrubber.data(event)


def truncated(begun: bool) -> ProviderFailure:
    """A stream that just ended."""
    what = "after the response had begun" if begun else "before anything was said"
    return ProviderFailure(f"truncated stream: it ended {what}, without a terminal event", kind="connection")


def timeouts(seconds: float) -> Any:
    """The transport's limits for something that may take so long."""
    import httpx2

    return httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


async def whole_body(response: Any) -> bytes:
    """A body up to the size that is read of JSON anywhere, unpacked: a few kilobytes can be packed gigabytes."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_JSON_BYTES:
            raise malformed(f"it is longer than {MAX_JSON_BYTES:,} bytes")
    return bytes(content)
