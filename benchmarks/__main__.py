"""`python -m benchmarks [NAME …] [--quick] [--rounds N] [--save FILE]`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.report import HEADING, row, save
from benchmarks.suites import FULL, QUICK, SUITES, Line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Orchestrator beside a plain loop.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(SUITES)}; all if none is given")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    parser.add_argument("--rounds", type=int, help="how many rounds")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep every round as JSON")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SUITES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(SUITES)}")
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = replace(size, rounds=options.rounds)
    lines: list[Line] = []
    print(HEADING)
    for name in options.names or SUITES:
        for line in SUITES[name](size):
            print(row(line), flush=True)
            lines.append(line)
    if options.save:
        save(options.save, lines)


main()
