"""A8 on both vendors, real processes: SIGKILL while a call is under way, or between a tool and its result.

What was finished is not done again. A reply that the vendor has kept is fetched and adopted; where there is none to be
had (the vendor keeps none, it has forgotten it, nothing had come back yet), the very same call is sent again from the
same parent. A tool that acts on the world is never repeated without a word.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC, OPENAI, Vendor
from tests.process_kit import Process
from tests.strict_server import Fault, Seen, StrictServer
from tests.walk.over_http import PIPELINE, at, buys, shop, shopper, started, typed, world

LONG = PIPELINE.replace('"${env:ORCH_MODEL}"', '"${env:ORCH_MODEL}", background: BACKGROUND').replace(
    "artifacts:", "budget: {usd: 5.00, unpriced: allow}\nartifacts:"
)


def told(vendor: Vendor, seen: Seen) -> str:
    """The result of the tool, as the request brought it."""
    last = seen.effective[-1]
    return str(last["output"] if vendor is OPENAI else last["content"][0]["content"])


@dataclass
class Shop:
    """The project, and its commands as a user types them."""

    folder: Path
    vendor: Vendor
    server: StrictServer

    @classmethod
    def made(cls, folder: Path, vendor: Vendor, server: StrictServer, *, idempotent: bool, background: bool) -> Shop:
        shop(folder, LONG.replace("BACKGROUND", str(background).lower()), idempotent=idempotent)
        return cls(folder, vendor, server)

    def started(self, *arguments: str) -> Process:
        return started(self.folder, at(self.server, self.vendor), *arguments)

    def typed(self, *arguments: str) -> tuple[int, str]:
        code, out, err = typed(self.folder, at(self.server, self.vendor), *arguments)
        return code, out + err

    def run_until_killed_in_mid_stream(self, *, noted: bool) -> None:
        """SIGKILL while the server says no more; `noted`: not before the id of the reply is written down."""
        process = self.started("run", "--set", "idea=a house", "--yes")
        assert self.server.stalling.wait(60)
        until = time.monotonic() + 30
        while noted and not any(self.rows("SELECT created_id FROM call WHERE state = 'sent' AND created_id <> ''")):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL

    def rows(self, sql: str) -> list[Any]:
        with sqlite3.connect(f"file:{self.folder}/.orch/orch.db?mode=ro", uri=True) as database:
            return database.execute(sql).fetchall()

    def calls(self) -> list[tuple[str, str]]:
        """Of the step that buys: what each call was for, and what became of it."""
        return self.rows(
            "SELECT c.source, COALESCE(c.outcome, c.state) FROM call c JOIN attempt a ON a.id = c.attempt_id"
            " JOIN step s ON s.id = a.step_id WHERE s.name = 'buy' ORDER BY c.seq"
        )

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.typed("show", "last", "--json")[1])["run"]
        return found


@dataclass(frozen=True)
class Strike:
    """A kill in mid-stream of one request, so many events into the reply; what the resume finds, and asks for."""

    vendor: Vendor
    request: int
    events: int = 4
    forgotten: bool = False
    background: bool = False
    adopted: bool = False


STRIKES = {
    "openai, first call": Strike(OPENAI, 1, adopted=True),
    "openai, tool result": Strike(OPENAI, 2, adopted=True),
    "openai, before a word came back": Strike(OPENAI, 1, events=0),
    "openai, forgotten": Strike(OPENAI, 2, forgotten=True),
    "openai, in the background": Strike(OPENAI, 2, background=True, adopted=True),
    "anthropic, first call": Strike(ANTHROPIC, 1),
    "anthropic, tool result": Strike(ANTHROPIC, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STRIKES)
def test_A8_SIGKILL_in_mid_stream(tmp_path: Path, case: str) -> None:
    """What was answered is adopted where it can be had; otherwise one call is paid twice, and nothing else."""
    strike = STRIKES[case]
    with strike.vendor.stand_in(shopper) as server:
        server.faults = [None] * (strike.request - 1) + [Fault(stalled=strike.events, stall_seconds=60)]
        shop = Shop.made(tmp_path, strike.vendor, server, idempotent=False, background=strike.background)
        shop.run_until_killed_in_mid_stream(noted=strike.events > 0 and strike.vendor is OPENAI)
        before = len(server.seen)
        assert before == strike.request
        if strike.forgotten:
            server.forget(server.seen[-1].response["id"])
        server.unfinished = 1 if strike.background else 0
        code, said = shop.typed("resume", "--take-over")
        document = shop.document()
        step = next(step for step in document["steps"] if step["name"] == "buy")
    assert code == 0, said
    assert world(tmp_path) == ["door"], "the tool ran once"
    asked = [seen.raw for seen in server.seen if buys(seen)]
    assert len(asked) == (2 if strike.adopted else 3)
    if not strike.adopted:
        assert asked[strike.request] == asked[strike.request - 1], "the same call, byte for byte"
    kinds = [("NEXT_STEP", "tools"), ("TOOL_RESULT", "accepted")]
    unread = [] if strike.adopted else [(kinds[strike.request - 1][0], "sent")]
    assert shop.calls() == [*kinds[: strike.request - 1], *unread, *kinds[strike.request - 1 :]]
    assert (step["version"], document["cost_partial"]) == (1, True)
    assert ("fetched, not paid again" in said) is strike.adopted
    notes = shop.rows("SELECT data FROM event WHERE kind = 'call.adopted'")
    assert len(notes) == int(strike.adopted)
    id_asked_for = [] if strike.events == 0 or strike.vendor is ANTHROPIC else [server.seen[before - 1].response["id"]]
    paths = [f"/v1/responses/{response}" for response in id_asked_for]
    paths += [f"{path}?stream=true" for path in paths if strike.background]
    assert server.asked_for == paths
    if strike.adopted:  # every token that the server counted is on the bill, once
        counted = sum(seen.response["usage"]["input_tokens"] for seen in server.seen)
        assert document["usage"]["input_tokens"] == counted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vendor", "idempotent"),
    [(OPENAI, True), (OPENAI, False), (ANTHROPIC, False)],
    ids=["openai, repeatable", "openai, acts", "anthropic, acts"],
)
def test_A8_SIGKILL_between_a_tool_and_its_result(tmp_path: Path, vendor: Vendor, idempotent: bool) -> None:
    """S09: a repeatable tool runs again; one that acts waits for a word, and after `tell` the model is told."""
    (tmp_path / "trap").touch()
    with vendor.stand_in(shopper) as server:
        shop = Shop.made(tmp_path, vendor, server, idempotent=idempotent, background=False)
        assert shop.typed("run", "--set", "idea=a house", "--yes")[0] == -signal.SIGKILL
        code, said = shop.typed("resume", "--take-over")
        if not idempotent:
            [[call_id]] = shop.rows("SELECT tool_id FROM tool_call")
            assert (code, len(server.seen)) == (4, 1)
            assert f"--tool {call_id}=" in said
            code, said = shop.typed("resume", "--tool", f"{call_id}=tell")
    assert code == 0, said
    assert world(tmp_path) == (["door", "door"] if idempotent else ["door"])
    assert [seen.status for seen in server.seen] == [200] * 3, "nothing that the vendor would refuse"
    assert told(vendor, server.seen[1]) == (
        "door is ordered" if idempotent else "interrupted: whether this took effect is not known"
    )
    assert shop.calls() == [("NEXT_STEP", "tools"), ("TOOL_RESULT", "accepted")]
