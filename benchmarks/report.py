"""The table, and the same as JSON: every round, on which machine, at which commit."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.suites import Line


def row(line: Line) -> str:
    """A line as a row of a Markdown table: the median, the smallest and largest round, plain beside it, the target."""
    middle = median(line.values)
    spread = f"{_number(min(line.values))} – {_number(max(line.values))}" if len(line.values) > 1 else ""
    plain = _number(median(line.plain)) if line.plain else ""
    return f"| {line.name} | {_number(middle)} {line.unit} | {spread} | {plain} | {_target(line, middle)} |"


HEADING = "| | median | rounds | plain loop | target |\n|---|---|---|---|---|"


def _target(line: Line, value: float) -> str:
    if line.target is None:
        return ""
    met = value >= line.target if line.least else value <= line.target
    return f"{'≥' if line.least else '≤'} {_number(line.target)}: {'met' if met else 'missed'}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.2f}"


def document(lines: Sequence[Line]) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "load": [round(value, 2) for value in os.getloadavg()],
        },
        "lines": [
            {
                "name": line.name.strip(),
                "unit": line.unit,
                "rounds": [_rounded(value) for value in line.values],
                "plain": None if line.plain is None else [_rounded(value) for value in line.plain],
                "target": line.target,
            }
            for line in lines
        ],
    }


def save(path: Path, lines: Sequence[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(lines), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
