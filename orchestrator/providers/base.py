"""The seam to a model vendor: one request in, one terminal reply out, faults as `ProviderFailure` with a kind.

A driver makes exactly one attempt per `respond`; retries are one policy for all drivers (`providers.retry`). Chaining,
re-asks and rebuilding are the chain's business, and so is checking the echo of the previous id (S12): the driver only
reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from orchestrator.errors import ProviderFailure
from orchestrator.spec import EditKind, Sensitivity
from orchestrator.values import Reply, Request

FailureKind = Literal[
    "connection",  # refused, reset, timed out before or in the reply, truncated stream: retry from the same parent
    "rate_limit",  # 429 with or without Retry-After: wait, retry
    "overloaded",  # 5xx, 529, in-stream server errors: retry
    "malformed",  # a 200 that is no reply: retry, then fail
    "chain_lost",  # previous_response_not_found: rebuild by replay, once
    "chain_unsupported",  # the server does not know the field: replay for the rest of the process
    "unanswered_call",  # "No tool output found …": answer all ids, else rebuild
    "too_long",  # over the context window
    "quota",  # no money left: never retried
    "auth",  # 401, 403: the key
    "model",  # 404 model
    "refused",  # policy
    "bad_request",  # any other 4xx: our fault or the user's
    "no_time",  # the step's time was used up before a try could begin; nothing was sent
    "unavailable",  # the host is given a rest, or is closed until a time it named; nothing was sent
    "over_limit",  # larger than a limit of the project file allows in a minute; nothing was sent
]
RETRYABLE: Final = frozenset({"connection", "rate_limit", "overloaded", "malformed"})
# Failures for which the provider said no before doing the work: nothing was billed. After the others we cannot know.
UNBILLED: Final = frozenset(
    {
        "auth",
        "model",
        "quota",
        "bad_request",
        "too_long",
        "no_time",
        "rate_limit",
        "chain_lost",
        "chain_unsupported",
        "unanswered_call",
        "unavailable",
        "over_limit",
    }
)


def may_be_billed(failure: ProviderFailure) -> bool:
    """Whether a try that ended so may have cost something."""
    return failure.kind not in UNBILLED and not failure.unbilled


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Something seen before the reply is complete: `created` (its id), `text` (a delta), `retry` (why; wait in s),
    `wait` (for its turn: why, and about how long in s).

    `sequence` is the event's place in the vendor's stream, where it says so: from there it can be read on."""

    kind: Literal["created", "text", "retry", "wait"]
    data: str
    wait: float = 0.0
    sequence: int | None = None


Listener = Callable[[StreamEvent], None]


def no_listener(event: StreamEvent) -> None:
    """Ignore stream events."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the chain must know about an endpoint.

    `chaining`: server = ids are known to work; replay = never send one; auto = try, check the echo, remember.
    `stores`: False = ZDR. `may_see`: the highest sensitivity that may be sent there. `background`: a call can go on
    there while nobody listens. `hosted`: the tools that it runs itself; `hosted_can`: what these can beside the common
    (`blocked`: leave domains out). `accepts`: the kinds of files that models there take.
    `edits`: what it can do to a thread that has grown.
    """

    name: str
    base_url: str
    chaining: Literal["auto", "server", "replay"]
    stores: bool = True
    may_see: Sensitivity = "internal"
    background: bool = False
    hosted: frozenset[str] = frozenset()
    hosted_can: frozenset[str] = frozenset()
    accepts: frozenset[str] = frozenset()
    edits: frozenset[EditKind] = frozenset()


class Provider(Protocol):
    @property
    def traits(self) -> Traits: ...

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        """Send one request and wait for its terminal reply. Raises ProviderFailure (kind: FailureKind).

        Cancellation closes the connection and propagates.
        """
        ...

    async def retrieve(
        self, response_id: str, request: Request, listener: Listener = no_listener, *, after: int | None = None
    ) -> Reply | None:
        """The reply to a request that was sent before and begun under this id; None where the vendor has none to give.

        One that is still being made in the background is waited for, from the event `after` on. Raises ProviderFailure
        where the vendor could not be asked.
        """
        ...

    async def give_up(self, response_id: str, request: Request) -> None:
        """Say that nobody will ask for the answer that is being made under this id in the background, where the vendor
        lets itself be told. It is a courtesy to the bill: whatever comes of it, nothing is raised but cancellation."""
        ...

    async def count(self, request: Request) -> int | None:
        """The tokens that this request would bring, exactly and without charge, where the vendor counts for us; None
        where it does not, or did not answer. Cancellation propagates."""
        ...

    def wire(self, request: Request) -> bytes:
        """The exact body that `respond` would send, for the request hash and for `render`; pure."""
        ...

    async def close(self) -> None: ...
