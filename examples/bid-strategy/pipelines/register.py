"""The register of bids, a CSV file beside the tables: an effect on the world, so it has to survive being repeated."""

from __future__ import annotations

import csv
from pathlib import Path

REGISTER = Path(__file__).parents[1] / "bid_register.csv"
COLUMNS = ("run", "buyer", "title", "decision", "price_gbp")


def enter(run: int, buyer: str, title: str, decision: str, price_gbp: int | None, *, file: Path = REGISTER) -> int:
    """Enter a decision, one line for each run: a second one of the same run takes the place of the first.

    Returns the number of lines.
    """
    rows = []
    if file.exists():
        with file.open(encoding="utf-8", newline="") as old:
            rows = [row for row in csv.DictReader(old) if row["run"] != str(run)]
    price = "" if price_gbp is None else str(price_gbp)
    rows.append({"run": str(run), "buyer": buyer, "title": title, "decision": decision, "price_gbp": price})
    with file.open("w", encoding="utf-8", newline="") as new:
        writer = csv.DictWriter(new, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)
