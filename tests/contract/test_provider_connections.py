"""The rim of every driver on an SDK: connections, time, cancelling, redirects, keys. The vendor makes no difference."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.registry import Providers
from orchestrator.spec import ProviderSpec
from orchestrator.values import Reply, Request
from tests.contract.vendors import EVERY, OPENAI, ROOT, VENDORS, Project, Settings, Vendor
from tests.strict_server import Fault


def once(providers: Providers, request: Request, name: str) -> Reply:
    async def go() -> Reply:
        try:
            return await providers.get(name).respond(request)
        finally:
            await providers.close()

    return asyncio.run(go())


@VENDORS
def test_nobody_listens(vendor: Vendor) -> None:
    with vendor.server() as gone:
        url = gone.base_url
    with pytest.raises(ProviderFailure, match=r"127\.0\.0\.1:\d+ \(\S+\): the connection failed") as caught:
        once(vendor.opened(url), vendor.ask(), vendor.name)
    assert caught.value.kind == "connection"


@VENDORS
@pytest.mark.parametrize("fault", [Fault(delay=30), Fault(stalled=3), Fault(trickle=0.1)], ids=["0", "3", "trickle"])
def test_silence_is_a_timeout(vendor: Vendor, fault: Fault) -> None:
    """Before the first word, in mid-stream, and where only comments come."""
    with vendor.server() as server:
        vendor.send(server, vendor.ask())  # loads the SDK, which is none of the server's time
        server.faults = [fault]
        failure = vendor.failing(server, vendor.ask(timeout=0.4))
        assert failure.kind == "connection"
        assert fault.trickle is None or "no complete reply within 0.4 s" in failure.message
        assert server.seen[1].disconnected.wait(5), "the connection is closed"


@VENDORS
def test_A24_fifty_cancels_in_a_row_leak_no_connection(vendor: Vendor) -> None:
    """In mid-stream and before the first word, in turn; then the pool serves as before."""
    kinds = [Fault(stalled=4), Fault(delay=30), Fault(stalled=0), Fault(trickle=0.05), Fault(stalled=1)]
    came = [threading.Event() for _ in range(50)]

    async def go() -> None:
        providers = vendor.opened(server.base_url)
        provider = providers.get(vendor.name)
        for number in range(50):
            told = asyncio.Queue[StreamEvent]()
            task = asyncio.create_task(provider.respond(vendor.ask(), told.put_nowait))
            if number % 5 == 0:
                while (await told.get()).kind != "text":
                    pass  # until half of an answer is there
            else:
                await asyncio.to_thread(came[number].wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for seen in server.seen:
            assert await asyncio.to_thread(seen.disconnected.wait, 10), "the server sees every one of them go"
        before = server.connections
        for _ in range(3):
            assert (await provider.respond(vendor.ask())).text == "reply 1"
        assert server.connections == before + 1, "and one new connection does for all that follows"
        await providers.close()

    with vendor.server() as server:
        server.faults = [kinds[n % 5] for n in range(50)]
        server.taken = lambda: came[len(server.seen) - 1].set() if len(server.seen) <= 50 else None
        asyncio.run(go())


@VENDORS
def test_A24_connections_are_used_again(vendor: Vendor) -> None:
    with vendor.server() as server:
        vendor.send(server, *[vendor.ask()] * 5)
        assert server.connections == 1


@VENDORS
def test_S24_a_redirect_is_not_followed(vendor: Vendor) -> None:
    with vendor.server() as server, vendor.stand_in(lambda seen: {"text": "stolen"}) as thief:
        for status in (301, 302, 307, 308):
            server.faults = [Fault(status=status, headers={"location": thief.base_url + thief.path}, body="")]
            failure = vendor.failing(server, vendor.ask())
            assert failure.kind == "bad_request"
            assert "redirects are not followed" in failure.message
        assert thief.seen == []


# --- keys -------------------------------------------------------------------------------------------------------------


@VENDORS
def test_without_a_key_one_can_look_but_not_send(vendor: Vendor) -> None:
    offline = vendor.opened("http://127.0.0.1:9/v1", env={}).offline(vendor.name)
    assert json.loads(offline.wire(vendor.full))["model"] == vendor.model
    with pytest.raises(ProviderFailure, match="there is no key") as caught:
        asyncio.run(offline.respond(vendor.full))
    assert caught.value.kind == "auth"


@VENDORS
def test_a_server_of_ones_own_needs_no_key_and_never_gets_the_vendors(vendor: Vendor) -> None:
    """Nor who pays at the vendor: its organisation and project are no business of another server."""
    with vendor.stand_in(lambda seen: {"text": "x"}) as server:
        spec = ProviderSpec(kind=vendor.kind, base_url=server.base_url)
        settings = Settings({"own": spec})
        settings.env |= {"OPENAI_ORG_ID": "org-CANARY", "OPENAI_PROJECT_ID": "proj-CANARY"}
        assert once(Providers(Project(), settings), vendor.ask(), "own").text == "x"
        [seen] = server.seen
    assert not [other.key for other in EVERY if other.key in str(seen.headers)]
    assert seen.headers["authorization"] != "Bearer ", "local servers want a key to be there"
    assert "CANARY" not in str(seen.headers)


@VENDORS
def test_S29_a_key_that_is_echoed_is_taken_out_of_a_reply(vendor: Vendor) -> None:
    """Also one that comes in pieces: only the whole text shows it."""
    with vendor.stand_in(lambda seen: {"text": f"your key is {vendor.key}"}) as server:
        [echoed] = vendor.send(server, vendor.ask())
    assert echoed.text == "your key is [secret removed]"
    assert vendor.key not in str(echoed)


def test_choosing_a_provider_loads_no_sdk() -> None:
    """Planning and rendering need a driver's `wire`, and must not pay a second for the vendor's package."""
    code = """
import sys
from tests.contract.vendors import EVERY
for vendor in EVERY:
    providers = vendor.opened("http://localhost:1/v1")
    providers.get(vendor.name).wire(vendor.full), providers.hosts(), providers.prices()
print(sorted(n for n in ("openai", "httpx2", "anthropic", "genai_prices") if n in sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@VENDORS
def test_the_environment_of_the_process_is_not_asked(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{name}_API_KEY", "sk-of-the-process")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-process")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-process")
    with vendor.server() as server:
        vendor.send(server, vendor.ask())
        assert server.seen[0].headers["authorization"] == f"Bearer {vendor.key}"
        assert "of-the-process" not in str(server.seen[0].headers)
        with pytest.raises(ConfigError, match=f"{vendor.key_env} is not set"):
            vendor.opened(None if vendor is not EVERY[2] else server.base_url, env={}).get(vendor.name)


def test_the_organisation_and_project_go_to_the_vendor_itself() -> None:
    settings = Settings({"openai": ProviderSpec(kind="openai")})
    settings.env |= {"OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj-1"}
    client = Providers(Project(), settings).get("openai")._open(None)  # type: ignore[attr-defined]
    assert (client.organization, client.project) == ("org-1", "proj-1")
    assert OPENAI.key == client.api_key


@VENDORS
def test_a_wrong_path_is_shown_whole(vendor: Vendor) -> None:
    """The likeliest slips are a `/v1` too many or too few: the address that was asked for shows them."""
    with vendor.server() as server:
        wrong = f"{server.base_url}/v1" if vendor.kind == "anthropic" else server.base_url.removesuffix("/v1")
        with pytest.raises(ProviderFailure) as caught:
            once(vendor.opened(wrong), vendor.ask(), vendor.name)
        path = {"openai": "/responses", "chat": "/chat/completions", "anthropic": "/v1/messages"}[vendor.kind]
        assert f"API at {wrong}{path}: check base_url" in (caught.value.hint or "")
        assert ('kind = "chat"' in (caught.value.hint or "")) is (vendor.kind == "openai")
