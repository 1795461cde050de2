"""Our own tables: what a week of our people costs us, partners, references, and what was once awarded to whom.

All amounts are pounds without tax. No buyer said any of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from .contracts import Capability, Region, Role, Sector

US = "Fernhill Studio"
_FOLDER = Path(__file__).parents[1] / "tables"


class Rate(BaseModel):
    role: Role
    weekly_gbp: int


class Partner(BaseModel):
    name: str
    capability: Capability
    region: Region
    proof: str
    weekly_gbp: int
    free_from: str


class Reference(BaseModel):
    id: str
    client: str
    sector: Sector
    delivered: int
    what: str
    result: str
    may_be_named: bool


class PastAward(BaseModel):
    buyer: str
    sector: Sector
    year: int
    winner: str
    what: str
    value_gbp: int
    months: int


def weekly_rates() -> dict[Role, int]:
    """What a week of one person costs us, by role."""
    return {rate.role: rate.weekly_gbp for rate in map(Rate.model_validate, _rows("rates"))}


def all_partners() -> list[Partner]:
    return [Partner.model_validate(row) for row in _rows("partners")]


def all_references() -> list[Reference]:
    return [Reference.model_validate(row) for row in _rows("references")]


def all_awards() -> list[PastAward]:
    return [PastAward.model_validate(row) for row in _rows("awards")]


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (_FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
