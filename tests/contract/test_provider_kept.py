"""What was answered while nobody listened, over real HTTP and the real SDK: fetched by its id, or heard to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.kept import Kept
from orchestrator.providers.retry import respond
from orchestrator.values import Reply, Request
from tests.contract.vendors import OPENAI
from tests.strict_server import Fault, StrictServer

opened, ask, send = OPENAI.opened, OPENAI.ask, OPENAI.send


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with OPENAI.server() as running:
        yield running


def kept(server: StrictServer, response_id: str, request: Request, events: list[StreamEvent] | None = None) -> Any:
    """What the driver can still get of a response: the reply, None, or its failure."""

    async def go() -> Reply | None:
        providers = opened(server.base_url)
        try:
            return await providers.get("openai").retrieve(
                response_id, request, (events if events is not None else []).append
            )
        finally:
            await providers.close()

    return asyncio.run(go())


def test_a_reply_that_nobody_has_read_to_its_end_is_fetched_by_its_id(server: StrictServer) -> None:
    """Usage, items and the parent's id are those of the reply itself: what is adopted is what would have come."""
    [first] = send(server, ask())
    [second] = send(server, ask(first.id))
    fetched = kept(server, second.id, ask(first.id))
    assert fetched == second
    assert fetched.previous == first.id
    assert server.asked_for == [f"/v1/responses/{second.id}"]
    assert len(server.seen) == 2, "nothing was asked of a model again"


@pytest.mark.parametrize("state", ["gone", "failed", "running", "another's"])
def test_what_cannot_be_had_any_more_is_none(server: StrictServer, state: str) -> None:
    """A response in the foreground that nobody listens to is not waited for: who knows whether it is still made."""
    [reply] = send(server, ask())
    if state == "gone":
        server.forget(reply.id)
    if state == "failed":
        server._responses[reply.id] |= {"status": "failed", "error": {"code": "server_error", "message": "oh"}}
    if state == "running":
        server.unfinished = 1
    if state == "another's":
        server._responses[reply.id] |= {"id": "resp_another"}
    assert kept(server, reply.id, ask()) is None
    assert len(server.asked_for) == 1


def test_an_id_is_one_part_of_a_path(server: StrictServer) -> None:
    assert kept(server, "../models?x=1", ask()) is None
    assert server.asked_for == ["/v1/responses/..%2Fmodels%3Fx%3D1"]


def test_a_server_in_trouble_is_no_answer(server: StrictServer) -> None:
    """It can be asked again; that nothing was kept it has not said."""
    with StrictServer() as away:
        base_url = away.base_url

    async def go() -> None:
        providers = opened(base_url)
        try:
            await providers.get("openai").retrieve("resp_1", ask())
        finally:
            await providers.close()

    with pytest.raises(ProviderFailure) as caught:
        asyncio.run(go())
    assert caught.value.kind == "connection"


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_a_background_reply_is_asked_for_once_and_heard_from_where_the_line_broke(
    server: StrictServer, cut: int
) -> None:
    """`starting_after` is the number of the last event that was heard of; every word is told once."""
    server.faults = [Fault(cut=cut)]
    events: list[StreamEvent] = []

    async def go() -> Reply:
        providers = opened(server.base_url)
        try:
            return await respond(Kept(providers.get("openai")), ask(background=True), events.append, sleep=no_wait)
        finally:
            await providers.close()

    reply = asyncio.run(go())
    assert (reply.text, reply.tries) == ("reply 1", 2)
    assert [body["background"] for body in server.bodies] == [True], "sent once, paid once"
    assert "".join(event.data for event in events if event.kind == "text") == "reply 1"
    [path] = server.asked_for
    assert path.startswith(f"/v1/responses/{reply.id}?stream=true&starting_after=")
    heard = max(n for n, event in enumerate(stream_of(server)) if n < cut and event in ("created", "text"))
    assert path.endswith(f"={heard}")


async def no_wait(seconds: float) -> None:
    """The policy's waits are tested elsewhere."""


def stream_of(server: StrictServer) -> list[str]:
    """The events of the answer as the driver tells of them."""
    told = {"response.created": "created", "response.output_text.delta": "text"}
    return [told.get(str(event["type"]), "other") for event in server.script(server.seen[0].response, Fault())]


def test_a_background_reply_still_being_made_is_followed_to_its_end(server: StrictServer) -> None:
    """By another process, which has heard nothing of it yet: it hears all."""
    [reply] = send(server, ask(background=True))
    server.unfinished = 1
    events: list[StreamEvent] = []
    assert kept(server, reply.id, ask(background=True), events) == reply
    assert server.asked_for == [f"/v1/responses/{reply.id}", f"/v1/responses/{reply.id}?stream=true"]
    assert "".join(event.data for event in events if event.kind == "text") == "reply 1"


def test_a_background_reply_that_failed_is_asked_for_anew(server: StrictServer, monkeypatch: Any) -> None:
    server.faults = [Fault(cut=2)]
    whole = server.retrieve
    failed = {"status": "failed", "error": {"code": "server_error", "message": "oh"}}
    monkeypatch.setattr(server, "retrieve", lambda *asked: whole(*asked) | failed)

    async def go() -> Reply:
        providers = opened(server.base_url)
        try:
            return await respond(Kept(providers.get("openai")), ask(background=True), sleep=no_wait)
        finally:
            await providers.close()

    reply = asyncio.run(go())
    assert (reply.text, reply.tries, len(server.seen)) == ("reply 1", 3, 2)
    assert reply.id == server.seen[1].response["id"]
