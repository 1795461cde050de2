"""What people and services cost: weekly rates of one person by role (`rates.csv`), prices of services (`services.csv`).

All in US dollars, without taxes. Gathered by the agency; no customer said any of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from .schemas import Role, ServicePrice


class Rate(BaseModel):
    region: str
    supplier: str
    kind: Literal["agency", "vendor"]
    role: Role
    weekly_usd: int
    minimum_weeks: int
    quoted_on: str


def all_rates() -> list[Rate]:
    return [Rate.model_validate(row) for row in _rows("rates.csv")]


def service_prices(region: str) -> list[ServicePrice]:
    """Prices of services in a region; none where the table has no such region."""
    rows = [row for row in _rows("services.csv") if row.pop("region") == region]
    return [ServicePrice.model_validate(row) for row in rows]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
