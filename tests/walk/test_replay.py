"""Record a real run once, have it again without the vendor: over real HTTP, through the real SDKs and the command.

What is replayed is what was recorded, byte for byte in what it makes, at no cost and without a key. A request that was
not recorded is told with the step it is of and what in it differs.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC, OPENAI, Vendor
from tests.strict_server import Seen
from tests.walk.over_http import CALL, GOOD, PIPELINE, buys, shop, typed

ROOT = Path(__file__).parents[2]
KEY = "sk-CANARY-key-0123456789"
READING = PIPELINE.replace("report: {reads: [buy]", "report: {reads: [buy, idea]")
BAD: dict[str, Any] = {"json": {"cost": 0}}  # breaks its contract: asked again in the same conversation


def answer(seen: Seen) -> dict[str, Any]:
    return dict((CALL, BAD, GOOD)[seen.turn]) if buys(seen) else {"text": f"It costs 24. The key is {KEY}."}


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
@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_S29_a_recorded_run_is_had_again_offline(tmp_path: Path, vendor: Vendor) -> None:
    """Through both doors: the project's own models by --replay, and the folder as a model."""
    shop(tmp_path, READING)
    name = vendor.name.upper()
    real = {"ORCH_MODEL": f"{vendor.name}:a-model", f"{name}_API_KEY": KEY}
    with vendor.stand_in(answer) as server:
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
    # What goes on with a replay is a replay: no command that is printed sends anything.
    assert f"orch resume {other['run']['number']} --replay tape" in said
