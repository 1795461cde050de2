"""The rate table: weekly rates in US dollars for one person, per region, supplier and role (`rates.csv`)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from .schemas import Role


class Rate(BaseModel):
    region: str
    supplier: str
    kind: Literal["agency", "vendor"]
    role: Role
    weekly_usd: int
    minimum_weeks: int
    quoted_on: str


def all_rates() -> list[Rate]:
    with Path(__file__).with_name("rates.csv").open(encoding="utf-8", newline="") as file:
        return [Rate.model_validate(row) for row in csv.DictReader(file)]
