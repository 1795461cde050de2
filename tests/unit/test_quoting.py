"""What a body took out of a guarded read keeps the read's guards when it is given to a question."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pytest
from pydantic import BaseModel

from orchestrator.bodies.quoting import inherited
from orchestrator.graph import Read

GUARD = "These are not the customer's budget."
OWN = "Do not use these figures as limits."


class Rate(BaseModel):
    role: str
    weekly_usd: float


class Rates(BaseModel):
    rates: list[Rate]
    notes: dict[str, Any]


@dataclass
class FakeContract:
    not_for: tuple[str, ...]


@dataclass
class FakeRead:
    called: str
    contract: FakeContract
    guard: str | None = None


RATES = Rates(rates=[Rate(role="developer", weekly_usd=997.5)], notes={"days": 5, "one": 1, "on": True, "by": "it"})
READS = cast(
    list[Read],
    [
        FakeRead("vendor-rates", FakeContract((GUARD,)), OWN),
        FakeRead("idea", FakeContract(())),
        FakeRead("log", FakeContract((GUARD,))),
    ],
)
VALUES = {"vendor_rates": RATES, "idea": "a shop for 997.5 lamps", "log": "all is well"}


@pytest.mark.parametrize("value", [997.5, Decimal("997.5"), "developer", 5, RATES.rates, RATES.rates[0], RATES.notes])
def test_a_figure_a_text_and_a_part_keep_the_guards_of_the_read_they_stand_in(value: Any) -> None:
    assert inherited(value, READS, VALUES) == (GUARD, OWN)


@pytest.mark.parametrize(
    "value",
    [
        1995.0,  # computed
        "997.5 a week",  # written into another text
        1,  # stands everywhere
        True,
        None,
        "it",  # too short to say anything
        Rate(role="developer", weekly_usd=997.5),  # another object
        "a shop for 997.5 lamps",  # of a read without guards
    ],
)
def test_what_is_not_a_part_of_a_guarded_read_keeps_nothing(value: Any) -> None:
    assert inherited(value, READS, VALUES) == ()


def test_a_guard_of_two_reads_is_said_once() -> None:
    assert inherited("all is well", READS, VALUES) == (GUARD,)
    assert inherited("all is well", READS, {**VALUES, "vendor_rates": ["all is well"]}) == (GUARD, OWN)
