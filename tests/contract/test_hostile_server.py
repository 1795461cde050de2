"""A server that is hostile, or broken in ways nobody foresaw: S12, S25, S29, S31 at the driver, over real HTTP.

Whatever it sends, a call ends with a reply that was looked at or with one ProviderFailure, and neither holds the key.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.registry import Providers
from orchestrator.spec import PriceSpec, ProviderSpec
from orchestrator.values import Reply, Request, TextItem
from tests.strict_server import Fault, StrictServer

KEY = 'sk-CANARY+/0123="456~abcdef'
EVIL = "\x1b[2J\x07\x9b\u202e\u2028\r\n\x00"


@dataclass
class Settings:
    providers: dict[str, ProviderSpec]
    prices: dict[str, PriceSpec] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return KEY if name == "OPENAI_API_KEY" else None

    def secret_values(self) -> tuple[str, ...]:
        return (KEY, "pw-CANARY-secret", "tk-CANARY-secret")


@dataclass
class Project:
    root: Path = Path()


@pytest.fixture
def server() -> Iterator[StrictServer]:
    with StrictServer(lambda seen: {"text": "fine"}, key=KEY) as running:
        yield running


def send(server: StrictServer, fault: Fault, url: str | None = None) -> Reply | ProviderFailure:
    """One call that meets the fault."""

    async def go() -> Reply | ProviderFailure:
        spec = ProviderSpec(kind="openai", base_url=url or server.base_url)
        providers = Providers(Project(), Settings({"openai": spec}))
        request = Request("some-model", "synthetic_s_1", "Be brief.", (TextItem(("hello",)),), timeout=20.0)
        try:
            return await providers.get("openai").respond(request)
        except ProviderFailure as failure:
            return failure
        finally:
            await providers.close()

    server.faults = [fault]
    return asyncio.run(go())


def message(**more: Any) -> dict[str, Any]:
    return {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", **more}]}]}


BROKEN = {
    "body nested for ever": Fault(status=400, body="[" * 100_000),
    "body of digits": Fault(status=400, body="9" * 100_000),
    "body no UTF-8": Fault(status=400, body=b"\xff\xfe\x00" + EVIL.encode()),
    "body of half characters": Fault(status=400, body='{"error": {"message": "\\ud800"}}'),
    "body a list": Fault(status=400, body="[1]"),
    "body null": Fault(status=400, body="null"),
    "body huge": Fault(status=400, body="x" * 3_000_000),
    "error of anything": Fault(status=400, body={"error": {"message": {"a": EVIL}, "code": [1], "type": 5}}),
    "unheard-of status": Fault(status=599, body=EVIL),
    "answer at once, nested": Fault(status=200, headers={"content-type": "application/json"}, body="[" * 100_000),
    "answer at once, digits": Fault(status=200, headers={"content-type": "application/json"}, body="9" * 10_000),
    "packed": Fault(
        status=200,
        headers={"content-type": "application/json", "content-encoding": "gzip"},
        body=gzip.compress(b"[" * 60_000_000),
    ),
    "id a number": Fault(response={"id": 5}),
    "id empty": Fault(response={"id": ""}),
    "id ours": Fault(response={"id": "synthetic_s_9"}),
    "id without end": Fault(response={"id": "r" * 1_000_000}),
    "id late ours": Fault(end={"id": "synthetic_s_9"}),
    "output a text": Fault(end={"output": "x"}),
    "output of null": Fault(end={"output": [None]}),
    "output without types": Fault(end={"output": [{"a": 1}]}),
    "output nested": Fault(end={"output": [{"type": "x", "y": json.loads("[" * 80 + "]" * 80)}]}),
    "half a character": Fault(end=message(text="\ud800")),
    "a call without a name": Fault(end={"output": [{"type": "function_call", "call_id": "a", "arguments": "{}"}]}),
    "two calls of one id": Fault(
        end={"output": [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}] * 2}
    ),
    "an error beside an answer": Fault(end={"error": {"message": EVIL}}),
    "a stream of junk": Fault(events=[{"type": 5}, {"type": "error", "message": EVIL, "code": 5}], events_end=True),
    "no response at the end": Fault(ending="response.completed", end={"output": 5}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_S25_what_a_broken_server_sends_is_one_failure(name: str, server: StrictServer) -> None:
    failure = send(server, BROKEN[name])
    assert isinstance(failure, ProviderFailure)
    assert failure.exit_code == 6
    assert failure.kind != "timeout", "it is read to its end, or given up, well within the time of a call"
    assert failure.message.isprintable()
    assert len(failure.message) < 700


ODD = {
    "id that moves a cursor": Fault(response={"id": f"resp{EVIL}"}),
    "model of anything": Fault(response={"model": {"a": 1}}),
    "text that is none": Fault(end=message(text=5)),
    "unknown items": Fault(end={"output": [{"type": EVIL, "x": 1}]}),
    "events of anything": Fault(
        events=[
            {"type": "response.output_text.delta", "delta": {"a": 1}, "output_index": []},
            {"type": "response.output_item.added", "output_index": "x", "item": 5},
            {"type": "response.output_item.done", "output_index": -1, "item": {"type": "message"}},
        ]
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_S25_what_is_odd_and_whole_is_a_reply(name: str, server: StrictServer) -> None:
    reply = send(server, ODD[name])
    assert isinstance(reply, Reply), reply
    assert reply.status == "completed"


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 2**40 + 1, "output_tokens": 1},
        {"input_tokens": 2**70, "output_tokens": 1},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": 1.0, "output_tokens": 1},
        {"input_tokens": "5", "output_tokens": 1},
        {"input_tokens": True, "output_tokens": 1},
        {"input_tokens": float("nan"), "output_tokens": 1},
        {"input_tokens": float("inf"), "output_tokens": 1},
        {"input_tokens": 5, "output_tokens": 2**41},
        {"input_tokens": 5, "output_tokens": None},
        {"input_tokens": 5, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 6}},
        {"input_tokens": 5, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 3}},
        {"input_tokens": 5, "output_tokens": 1, "input_tokens_details": [1]},
        [5, 1],
        "five",
        None,
        {},
    ],
    ids=str,
)
def test_S31_usage_that_no_honest_server_reports_is_unknown_and_not_free(usage: Any, server: StrictServer) -> None:
    """Unknown usage is charged as the call's reservation (`test_S31_unknown_usage_is_charged_in_full`)."""
    reply = send(server, Fault(response={"usage": usage}))
    assert isinstance(reply, Reply)
    assert reply.usage is None


# --- the key ----------------------------------------------------------------------------------------------------------


def coded(key: str) -> dict[str, str]:
    """The key as a server may echo it."""
    packed = {n: base64.b64encode(b"x" * n + key.encode()).decode() for n in range(3)}
    return {
        "plain": key,
        "quoted": quote(key, safe=""),
        "percent": "".join(f"%{byte:02x}" for byte in key.encode()),
        "json": json.dumps(key)[1:-1],
        "unicode": "".join(f"\\u{ord(char):04x}" for char in key),
        "mixed": "".join(char if at % 2 else f"\\u{ord(char):04X}" for at, char in enumerate(key)),
        **{f"base64 at {n}": text for n, text in packed.items()},
        "base64 of a URL": base64.urlsafe_b64encode(b"user:" + key.encode()).decode(),
    }


# The middle of each form, so that what is looked for does not hang on how a neighbour changes the ends.
LEAKS = {name: text[8:-8] for name, text in coded(KEY).items()}
ALL = " and ".join(coded(KEY).values())
ECHOES = {
    "error": Fault(status=401, body={"error": {"message": ALL, "code": "invalid_api_key"}}),
    "error at the cut": Fault(status=400, body={"error": {"message": "x" * 385 + KEY}}),
    "error text": Fault(status=500, body=f"<html>{ALL}"),
    "error in the stream": Fault(events=[{"type": "error", "message": ALL}], events_end=True),
    "answer": Fault(end=message(text=ALL)),
    "answer in JSON": Fault(end=message(text=json.dumps({"headline": ALL, ALL: [ALL]}))),
    "refusal": Fault(end={"output": [{"type": "message", "content": [{"type": "refusal", "refusal": ALL}]}]}),
    "reasoning": Fault(
        end={"output": [{"type": "reasoning", "summary": [{"text": ALL}]}, *message(text="a")["output"]]}
    ),
    "tool call": Fault(
        end={"output": [{"type": "function_call", "call_id": "a", "name": KEY, "arguments": json.dumps({"a": ALL})}]}
    ),
    "at once": Fault(whole=True, response=message(text=ALL)),
}


@pytest.mark.parametrize("name", ECHOES)
def test_S29_an_echoed_key_is_in_nothing_that_a_call_gives(name: str, server: StrictServer) -> None:
    found = send(server, ECHOES[name])
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}", "it was really used"
    said = (
        f"{found.message} {found.hint}"
        if isinstance(found, ProviderFailure)
        else repr(found) + json.dumps([dict(item.data) for item in found.items])
    )
    assert [form for form, text in LEAKS.items() if text in said] == []
    assert KEY[:15] not in said, "nor a piece of it"
    assert isinstance(found, ProviderFailure) or "[secret removed]" in said


@pytest.mark.parametrize("where", ["x-request-id", "x-echo"])
def test_S29_no_logger_writes_the_key_or_what_an_address_keeps_secret(
    where: str, server: StrictServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Every library at its most talkative, as an application may set it; a server that echoes the key in a header."""
    caplog.set_level(logging.DEBUG)
    url = server.base_url.replace("://", "://me:pw-CANARY-secret@") + "?token=tk-CANARY-secret"
    for address in (server.base_url, url):
        send(server, Fault(status=400, headers={where: KEY}, body={"error": {"message": ALL}}), address)
    assert any(record.name.startswith("openai") for record in caplog.records)
    assert any(record.name.startswith("httpx2") for record in caplog.records)
    assert [form for form, text in LEAKS.items() if text in caplog.text] == []
    assert "CANARY-secret" not in caplog.text


def test_S29_a_traceback_in_a_log_holds_no_key(caplog: pytest.LogCaptureFixture) -> None:
    from orchestrator.providers.logs import scrubbed_logs
    from orchestrator.store.scrub import Scrubber

    logger = logging.getLogger("openai._base_client")
    caplog.set_level(logging.DEBUG)
    before = len(logger.filters)
    with scrubbed_logs(Scrubber([KEY]), ("openai",)):
        try:
            raise ValueError(f"Illegal header value b'Bearer {KEY}'")
        except ValueError:
            logger.debug("failed with %s", KEY, exc_info=True)
        logger.debug("arguments that do not fit %s %s", KEY)
    assert "Illegal header value" in caplog.text
    assert KEY not in caplog.text
    assert len(logger.filters) == before
