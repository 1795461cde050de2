"""The benchmarks run and count what they say they count; how fast this machine is decides nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import tokens
from benchmarks.report import row
from benchmarks.suites import Line, Rounds

ROOT = Path(__file__).parents[2]


def _round(seconds: float) -> dict[int, dict[str, float]]:
    return {10: {"seconds": seconds}}


def test_a_ratio_is_taken_within_its_round() -> None:
    """A busy second round slows both sides; the ratio does not see it."""
    rounds = Rounds(ours=[_round(3), _round(30)], plain=[_round(1), _round(10)])
    line = rounds.against("chain", 10, "seconds", 2.5)
    assert line.values == [3, 3]
    assert row(line) == "| chain | 3 × | 3 – 3 |  | ≤ 2.50: missed |"


def test_a_line_shows_the_median_the_extremes_and_the_plain_loop() -> None:
    line = Line("memory", "MB", [4.0, 2.5, 9.0], 10, [1.0, 1.0, 2.0])
    assert row(line) == "| memory | 4 MB | 2.50 – 9 | 1 | ≤ 10: met |"
    assert row(Line("shared", "%", [95.0], 90, least=True)) == "| shared | 95 % |  |  | ≥ 90: met |"


@pytest.mark.slow
def test_a_short_measurement_of_chains_prints_its_table_and_keeps_each_round(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    command = [sys.executable, "-m", "benchmarks", "chain", "resume", "--quick", "--rounds", "1", "--save", str(kept)]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=200).stdout
    document = json.loads(kept.read_text(encoding="utf-8"))
    names = [line["name"] for line in document["lines"]]
    assert all(f"| {name} |" in printed for name in names)
    assert {name.split()[0] for name in names} >= {"T1", "T2", "T3", "T4", "T5", "T9"}
    again = next(line for line in document["lines"] if line["name"] == "T9 committed steps that ran again")
    assert again["rounds"] == [0], "the steps that a killed process had committed"
    database = next(line for line in document["lines"] if line["name"].startswith("T3 database"))
    assert 1 < database["rounds"][0] < 4, "times what was stored"


@pytest.mark.slow
def test_R021_the_three_ways_of_asking_are_counted_by_the_server_and_priced_from_its_counts(tmp_path: Path) -> None:
    """By hand, at $2 and $10 per million, cached input at a tenth: output is the same in all three ways."""
    found = tokens.prompt(tmp_path, 0)
    assert found["calls"] == 11
    assert found["run.input"] < found["chain.input"]
    assert found["history.cached"] == 0
    outputs = set()
    for way in tokens.WAYS:
        read, cached = found[f"{way}.input"], found[f"{way}.cached"]
        outputs.add(round((found[f"{way}.0.1"] - (2 * (read - cached) + 0.2 * cached) / 1e6) * 1e5))
        assert found[f"{way}.0.5"] - found[f"{way}.0.1"] == pytest.approx(cached * 0.8 / 1e6)
        assert found[f"{way}.write"] >= found[f"{way}.0.1"]
    assert len(outputs) == 1
