"""The failure table, row by row, over real HTTP and the vendors' own SDKs: what happens on the wire, its kind, and
whether it is tried again. What a run makes of them is in `tests/walk/test_failure_reactions.py`."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.retry import respond
from orchestrator.values import Reply, TextItem
from tests.contract.failure_rows import CHAINED, ROWS, TRIED_AGAIN
from tests.contract.vendors import EVERY, OPENAI, VENDORS, Vendor, error
from tests.strict_server import Fault


@pytest.mark.parametrize(
    ("vendor", "row"), [(v, row) for v in EVERY for row in ROWS[v.kind]], ids=lambda part: getattr(part, "kind", part)
)
def test_failure_table(vendor: Vendor, row: str) -> None:
    """Each row has its kind, after one request; it is tried again, as the very same request, only where that helps."""
    fault, kind = ROWS[vendor.kind][row]
    again = kind in TRIED_AGAIN
    waits: list[float] = []

    async def no_sleep(seconds: float) -> None:
        waits.append(seconds)

    async def go() -> Reply | ProviderFailure:
        providers = vendor.opened(server.base_url)
        provider = providers.get(vendor.name)
        try:
            with pytest.raises(ProviderFailure) as caught:
                await provider.respond(vendor.ask())
            assert (caught.value.kind, len(server.seen)) == (kind, 1), "one respond is one request: SDK retries are off"
            assert vendor.key not in f"{caught.value.message} {caught.value.hint}", "a key may stand in no message"
            server.faults = [fault]
            try:
                return await respond(provider, vendor.ask(), sleep=no_sleep)
            except ProviderFailure as failure:
                return failure
        finally:
            await providers.close()

    with vendor.server() as server:
        server.faults = [fault]
        ended = asyncio.run(go())
    if again:
        assert isinstance(ended, Reply)
        assert (ended.text, ended.tries, len(waits)) == ("reply 1", 2, 1)
    else:
        assert isinstance(ended, ProviderFailure)
        assert waits == []
    bodies = [seen.raw for seen in server.seen]
    assert len(bodies) == (3 if again else 2)
    assert len(set(bodies)) == 1, "a retry is the very same request"


# --- calls on an id ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", CHAINED)
def test_failure_table_of_chained_calls(row: str) -> None:
    """A server that does not look at the id does not find the call either that a tool's result answers."""
    fault, kind = CHAINED[row]
    with OPENAI.server() as server:
        [first] = OPENAI.send(server, OPENAI.ask())
        server.faults = [fault]
        assert OPENAI.failing(server, OPENAI.ask(first.id, TextItem(("more",)))).kind == kind


def test_the_same_words_say_nothing_about_the_chain_of_a_first_call() -> None:
    said = ["previous_response_id is not supported", "No tool call found for function call output."]
    with OPENAI.server() as server:
        for message in said:
            server.faults = [Fault(status=400, body=error(None, message))]
            assert OPENAI.failing(server, OPENAI.ask()).kind == "bad_request"


# --- how long to wait -------------------------------------------------------------------------------------------------


@VENDORS
def test_retry_after_is_honoured_by_the_servers_own_record(vendor: Vendor) -> None:
    """The same for 429 and for an overload; in milliseconds, in seconds; without a wish, after a wait of our own."""
    wishes = [(429, {"retry-after-ms": "250"}, 0.25), (529, {"retry-after": "0.3"}, 0.3)]

    async def go() -> None:
        providers = vendor.opened(server.base_url)
        provider = providers.get(vendor.name)
        for status, headers, _ in wishes:
            server.faults = [Fault(status=status, body="busy", headers=headers)]
            assert (await respond(provider, vendor.ask())).tries == 2
        await providers.close()

    with vendor.server() as server:
        asyncio.run(go())
    came = [seen.at for seen in server.seen]
    for (_, _, wait), refused_at, tried_at in zip(wishes, came[::2], came[1::2], strict=True):
        assert tried_at - refused_at >= wait


@VENDORS
@pytest.mark.parametrize("status", [429, 529])
def test_the_servers_wish_to_wait_is_passed_on(vendor: Vendor, status: int) -> None:
    wishes: list[tuple[dict[str, str], float | None]] = [
        ({"retry-after": "17"}, 17.0), ({"retry-after-ms": "40"}, 0.04), ({}, None),
    ]  # fmt: skip
    with vendor.server() as server:
        for headers, wait in wishes:
            server.faults = [Fault(status=status, body="busy", headers=headers)]
            assert vendor.failing(server, vendor.ask()).retry_after == wait
