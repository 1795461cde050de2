"""`orch cost`, whole: by step, model, day and run, and beside other ways of asking."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.walk.wrong import BRIEF, Desk, starter

PRICES = '\n[prices."sample_answers"]\ninput = "2.00"\ncached = "0.20"\noutput = "10.00"\n'


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The starter project after two runs, its written answers priced as a model's."""
    desk = starter(tmp_path, capsys, monkeypatch)
    file = desk.root / "orchestrator.toml"
    file.write_text(file.read_text() + PRICES)
    for _ in range(2):
        assert desk.orch("run", *BRIEF)[0] == 0
    return desk


def rows(document: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    return {row[document["by"]]: row for row in document["rows"]}


def test_what_a_run_has_cost_by_step_adds_up_to_what_the_run_says(desk: Desk) -> None:
    found = desk.document("cost", "1")
    run = desk.document("show", "1")["run"]
    assert (found["schema"], found["by"], found["run"]["number"]) == ("orch.cost/1", "step", 1)
    assert found["total"]["cost_usd"] == run["cost_usd"]
    assert found["total"]["charged_usd"] == run["cost_usd"]
    assert {name: row["cost_usd"] for name, row in rows(found).items()} == {
        step["name"]: step["cost_usd"] for step in run["steps"] if step["calls"]
    }
    usage = rows(found)["announcement"]["usage"]
    plain = usage["input_tokens"] - usage["cached_tokens"]
    exact = Decimal(plain * 2 + usage["output_tokens"] * 10) + usage["cached_tokens"] * Decimal("0.2")
    assert Decimal(rows(found)["announcement"]["cost_usd"]) == exact / 10**6


def test_all_runs_are_added_up_by_run_model_and_day(desk: Desk) -> None:
    by_run = desk.document("cost")
    assert list(rows(by_run)) == [1, 2]
    total = by_run["total"]["cost_usd"]
    assert sum(Decimal(row["cost_usd"]) for row in by_run["rows"]) == Decimal(total)
    by_model = desk.document("cost", "--by", "model")
    assert [(row["model"], row["cost_usd"]) for row in by_model["rows"]] == [("scripted:sample_answers", total)]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    by_day = desk.document("cost", "--by", "day", "--since", today, "--until", today)
    assert [(row["day"], row["cost_usd"]) for row in by_day["rows"]] == [(today, total)]
    assert desk.document("cost", "--until", "2020-01-01")["rows"] == []
    code, out, _ = desk.orch("cost", "--by", "day")
    assert code == 0
    assert out.startswith("all runs · ")
    assert today in out


def test_a_run_beside_one_chain_and_its_whole_history(desk: Desk) -> None:
    found = desk.document("cost", "compare", "1")
    run = desk.document("show", "1")["run"]
    assert found["schema"] == "orch.cost-compare/1"
    assert found["as_run"]["cost_usd"] == run["cost_usd"]
    assert found["as_run"]["input_tokens"] == run["usage"]["input_tokens"]
    steps = {step["name"]: step for step in found["steps"]}
    first = found["steps"][0]
    assert first["one_chain"]["input_tokens"] == first["as_run"]["input_tokens"]
    assert steps["announcement"]["one_chain"]["input_tokens"] > 0
    assert found["whole_history"]["cached_tokens"] == 0
    assert found["whole_history"]["input_tokens"] == found["one_chain"]["input_tokens"]
    for way in ("as_run", "one_chain", "whole_history"):
        assert Decimal(found[way]["cost_usd"]) == sum(Decimal(step[way]["cost_usd"]) for step in found["steps"])
    code, out, _ = desk.orch("cost", "compare")
    assert code == 0
    assert out.splitlines()[0].startswith("run 2 · ")
    assert ("cheaper" if found["chain_is_cheaper"] else "dearer") in out


def test_of_a_run_without_a_call_no_price_is_missed(desk: Desk) -> None:
    assert desk.orch("run", *BRIEF, "--cap", "0")[0] == 5
    code, out, _ = desk.orch("cost", "compare", "last")
    assert code == 0
    assert "no call was made" in out
    assert "price" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cost", "1", "2"), "cost takes one run, not 2"),
        (("cost", "compare", "1", "--by", "day"), "about one whole run"),
        (("cost", "--since", "yesterday"), "--since is no day: yesterday"),
        (("cost", "77"), "run 77 not found"),
    ],
)
def test_a_slip_is_named(desk: Desk, arguments: tuple[str, ...], says: str) -> None:
    code, _, err = desk.orch(*arguments)
    assert code == 2
    assert says in err
