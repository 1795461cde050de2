"""A8 where a thread does not travel whole: SIGKILL after its provider has summed it up, or after it was cut to fit.

Real processes, both vendors. The call that was under way is adopted or sent again as it was; the summary that is on
record goes back as it came, with nothing before it where the thread is sent anew; what was answered is charged once.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC, OPENAI, Vendor
from tests.strict_messages import INPUTS
from tests.strict_server import Fault, Json, Seen, StrictServer
from tests.walk.over_http import at, shop, started, typed
from tests.walk.test_vendor_context import project, reading

PAGES = "abc"
WORK = '''
from orchestrator import tool


@tool(idempotent=True)
def page(name: str) -> str:
    """A page of the book."""
    return f"page {name}: " + name * 6000
'''


def reader(seen: Seen) -> Json:
    """The page after the one that was read last, then the note; so that the same request gets the same reply."""
    last = json.dumps(seen.effective[-1])
    read = next((at for at, name in enumerate(PAGES) if f"page {name}: {name}" in last), -1)
    return {"text": "All is read."} if read + 1 == len(PAGES) else reading(PAGES[read + 1])


def billed(response: Json) -> int:
    """The input tokens of a response, by the server's own numbers: the summing up stands beside the sums."""
    usage = response["usage"]
    made = [part for part in usage.get("iterations", ()) if part["type"] == "compaction"]
    return sum(part.get(key, 0) for part in (usage, *made) for key in INPUTS)


def summaries(items: list[Json]) -> list[Json]:
    """The summaries among input items, or among the blocks of messages."""
    flat = [block for item in items for block in (item["content"] if isinstance(item.get("content"), list) else [item])]
    return [block for block in flat if block["type"] == "compaction"]


def sent_items(seen: Seen) -> list[Json]:
    items: list[Json] = seen.body.get("input") or seen.body.get("messages") or []
    return items


@dataclass(frozen=True)
class Walk:
    """The project, and its commands as a user types them."""

    folder: Path
    env: dict[str, str]
    server: StrictServer

    def killed_in_mid_stream(self, *, noted: bool) -> None:
        """SIGKILL while the server says no more; `noted`: not before the id of the reply is written down."""
        process = started(self.folder, self.env, "run", "--set", "idea=a book", "--yes")
        assert self.server.stalling.wait(60)
        until = time.monotonic() + 30
        while noted and not self.rows("SELECT 1 FROM call WHERE state = 'sent' AND created_id <> ''"):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL

    def rows(self, sql: str) -> list[Any]:
        with sqlite3.connect(f"file:{self.folder}/.orch/orch.db?mode=ro", uri=True) as database:
            return database.execute(sql).fetchall()

    def resumed(self) -> Json:
        code, out, err = typed(self.folder, self.env, "resume", "--take-over")
        assert code == 0, out + err
        found: Json = json.loads(typed(self.folder, self.env, "show", "last", "--json")[1])["run"]
        assert found["status"] == "succeeded"
        return found


@dataclass(frozen=True)
class Strike:
    """A kill in mid-stream of one request: the second makes the summary, the third is the one after it. `more` are
    lines of the provider; `forgotten`: the server knows none of its responses any more."""

    vendor: Vendor
    request: int
    more: str = ""
    adopted: bool = False
    forgotten: bool = False


STRIKES = {
    "openai, summing up": Strike(OPENAI, 2, adopted=True),
    "openai, after it": Strike(OPENAI, 3, adopted=True),
    "openai, after it, forgotten": Strike(OPENAI, 3, forgotten=True),
    "openai keeps nothing, summing up": Strike(OPENAI, 2, "store = false\n"),
    "openai keeps nothing, after it": Strike(OPENAI, 3, "store = false\n"),
    "anthropic, summing up": Strike(ANTHROPIC, 2),
    "anthropic, after it": Strike(ANTHROPIC, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STRIKES)
def test_A8_SIGKILL_in_a_thread_that_its_provider_sums_up(tmp_path: Path, case: str) -> None:
    strike = STRIKES[case]
    with strike.vendor.stand_in(reader) as server:
        server.faults = [None] * (strike.request - 1) + [Fault(stalled=4, stall_seconds=60)]
        env = project(tmp_path, strike.vendor, server, "compact_at: 1500", strike.more)
        (tmp_path / "work.py").write_text(WORK, encoding="utf-8")
        walk = Walk(tmp_path, env, server)
        walk.killed_in_mid_stream(noted=strike.vendor is OPENAI)
        assert len(server.seen) == strike.request
        kept = server.seen[: strike.request] if strike.adopted else server.seen[: strike.request - 1]
        if strike.forgotten:
            for seen in server.seen:
                server.forget(seen.response["id"])
        document = walk.resumed()
    again = server.seen[strike.request :]
    # What the killed call brought is brought again, byte for byte, unless the server has kept the answer, or its parent
    # is not to be had any more: then the thread is sent anew.
    if not strike.adopted:
        assert again[0].raw == server.seen[strike.request - 1].raw
    if strike.forgotten:
        assert (again[0].status, "previous_response_id" in again[1].body) == (400, False)
    answered = [*kept, *(seen for seen in again if seen.status == 200)]
    assert len(answered) == len(PAGES) + 1
    assert [bool(summaries(output(seen))) for seen in answered] == [False, True, True, True]
    check_summaries(strike, answered)
    assert document["usage"]["input_tokens"] == sum(billed(seen.response) for seen in answered)
    told = walk.rows("SELECT data FROM event WHERE kind = 'context.edited' ORDER BY seq")
    assert len(told) == 3, "each once"
    assert [(name,) for name in PAGES] == walk.rows(
        "SELECT CAST(substr(c.body, 6, 1) AS TEXT) FROM tool_call t JOIN content c ON c.sha256 = t.output ORDER BY t.id"
    )


def output(seen: Seen) -> list[Json]:
    items: list[Json] = seen.response.get("output") or seen.response.get("content") or []
    return items


def check_summaries(strike: Strike, answered: list[Seen]) -> None:
    """Each request that brings the thread along brings the newest summary that was recorded, as it came; at OpenAI it
    is the first item, and nothing stands before it."""
    for before, seen in pairwise(answered[1:]):
        if "previous_response_id" in seen.body:
            continue
        [newest] = summaries(output(before))
        items = sent_items(seen)
        assert summaries(items)[-1] == newest
        if strike.vendor is OPENAI:
            assert (items[0], len(summaries(items))) == (newest, 1)


@pytest.mark.slow
@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_A8_SIGKILL_in_a_thread_that_was_cut_to_fit(tmp_path: Path, vendor: Vendor) -> None:
    """The third call is too long for the window; it was sent once more in its short form, and the process died."""
    with vendor.stand_in(reader, window=3000) as server:
        server.faults = [None, None, None, Fault(stalled=4, stall_seconds=60)]
        shop(tmp_path, PIPELINE_OF_NOTES)
        (tmp_path / "work.py").write_text(WORK, encoding="utf-8")
        walk = Walk(tmp_path, at(server, vendor), server)
        walk.killed_in_mid_stream(noted=vendor is OPENAI)
        assert [seen.status for seen in server.seen] == [200, 200, 400, 200]
        document = walk.resumed()
    again = server.seen[4:]
    short = [seen for seen in server.seen[3:] if "previous_response_id" not in seen.body and seen.status == 200]
    for seen in short:
        assert "more characters of this result are left out now" in seen.raw.decode()
    if vendor is ANTHROPIC:
        assert again[0].raw == server.seen[3].raw, "in its short form, without being refused first"
    answered = [
        seen for seen in (server.seen if vendor is OPENAI else [*server.seen[:3], *again]) if seen.status == 200
    ]
    assert len(answered) == len(PAGES) + 1
    assert document["usage"]["input_tokens"] == sum(billed(seen.response) for seen in answered)
    rungs = [rung for (rung,) in walk.rows("SELECT rung FROM call WHERE outcome IS NOT NULL ORDER BY seq")]
    assert rungs[3] == "compact"


PIPELINE_OF_NOTES = """
version: 1
pipeline: reading
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 200}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  notes: {reads: [idea], produces: note, tools: ["work.py:page"], prompt: "Read the pages."}
outputs: [notes]
"""
