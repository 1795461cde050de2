"""Record a real run once, have it again without the vendor: over real HTTP, through the real SDKs and the command.

What is replayed is what was recorded, byte for byte in what it makes, at no cost and without a key. A request that was
not recorded is told with the step it is of and what in it differs.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.strict_messages import MessagesServer, form_of
from tests.strict_server import Seen, StrictServer

ROOT = Path(__file__).parents[2]
KEY = "sk-CANARY-key-0123456789"
PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  price: {about: "What it costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer, minimum: 1}}, required: [cost], additionalProperties: false}}
steps:
  buy: {reads: [idea], produces: price, tools: ["work.py:order"], prompt: "Order it."}
  report: {reads: [buy, idea], produces: note, prompt: "Report."}
outputs: [report]
"""
WORK = '''
from orchestrator import tool


@tool(idempotent=True)
def order(part: str) -> str:
    """Order a part."""
    return part + " is ordered"
'''
ANSWERS: list[dict[str, Any]] = [
    {"reasoning": "A door, then.", "tool_calls": [{"name": "order", "arguments": {"part": "door"}}]},
    {"json": {"cost": 0}},  # breaks its contract: asked again in the same conversation
    {"json": {"cost": 24}},
]


def answer(seen: Seen) -> dict[str, Any]:
    buying = form_of(seen) or seen.body.get("text")
    return dict(ANSWERS[seen.turn]) if buying else {"text": f"It costs 24. The key is {KEY}."}


@dataclass(frozen=True)
class Vendor:
    name: str
    serve: Callable[[Callable[[Seen], dict[str, Any]]], StrictServer]


VENDORS = [Vendor("openai", StrictServer), Vendor("anthropic", MessagesServer)]


def typed(folder: Path, env: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))}
    private = {"ORCH_TRUST": "1", "XDG_CONFIG_HOME": str(folder / "config"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder,
        env={**own, **private, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def run(folder: Path, env: dict[str, str], *arguments: str, idea: str = "a house") -> tuple[dict[str, Any], str]:
    code, out, err = typed(folder, env, "run", "--set", f"idea={idea}", "--yes", "--json", *arguments)
    document: dict[str, Any] = json.loads(out)
    return document, f"{code} {err}"


def made(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """What the last run made, as it is stored."""
    steps = {"buy": "cost", "report": ""}
    shown = {step: json.loads(typed(folder, env, "show", f"last/{step}", "--json")[1]) for step in steps}
    value = {step: document["artifact"]["value"] for step, document in shown.items()}
    return {"buy": str(value["buy"]["cost"]), "report": value["report"]}


@pytest.mark.slow
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_S29_a_recorded_run_is_had_again_offline(tmp_path: Path, vendor: Vendor) -> None:
    """Through both doors: the project's own models by --replay, and the folder as a model."""
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n', encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "work.py").write_text(WORK, encoding="utf-8")
    name = vendor.name.upper()
    real = {"ORCH_MODEL": f"{vendor.name}:a-model", f"{name}_API_KEY": KEY}
    with vendor.serve(answer) as server:
        env = real | {f"{name}_BASE_URL": server.base_url}
        first, said = run(tmp_path, env, "--record", "tape")
        assert first["run"]["status"] == "succeeded", said
        asked = len(server.seen)
        texts = made(tmp_path, env)
    assert texts["buy"] == "24"
    assert asked == 4, "tool call, its result, a re-ask, the report"
    files = sorted((tmp_path / "tape").rglob("*.json"))
    assert [file.parent.name for file in files] == ["buy"] * 3 + ["report"]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert KEY.encode() not in file.read_bytes(), "no key, whoever said it"
    for replayed in (
        {"ORCH_MODEL": f"{vendor.name}:a-model", f"{name}_BASE_URL": server.base_url},
        {"ORCH_MODEL": "replayed:tape"},
    ):
        flags = ["--replay", "tape"] if len(replayed) == 2 else []
        again, said = run(tmp_path, replayed, *flags)
        assert again["run"]["status"] == "succeeded", said
        assert (again["run"]["cost_usd"], again["run"]["cost_partial"]) == ("0", False), "nothing is paid for"
        assert again["run"]["usage"] == first["run"]["usage"]
        assert made(tmp_path, replayed) == texts
        steps = [[(s["name"], s["reasks"], s["version"]) for s in d["run"]["steps"]] for d in (first, again)]
        assert steps[0] == steps[1]
    other, said = run(tmp_path, real, "--replay", "tape", idea="a boat")
    assert other["run"]["status"] == "failed"
    assert "step buy: call 1 is not what was recorded in tape" in said
    assert "item 1: recorded “…" in said
    assert "a house" in said
    assert "a boat" in said
