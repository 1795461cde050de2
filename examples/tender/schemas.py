"""What the steps of the tender pipeline produce."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["yes", "partly", "no"]


class Value(BaseModel):
    """Unknown fields are refused: a misspelt field in an edit is an error, not a silent nothing."""

    model_config = ConfigDict(extra="forbid")


class Requirement(Value):
    number: str = Field(description="As the tender numbers it, in small letters: r-01.")
    kind: Literal["must", "should"]
    text: str


class Requirements(Value):
    items: list[Requirement]


class Assessment(Value):
    verdict: Verdict = Field(description="Whether we fulfil it as we are today.")
    effort_days: int = Field(ge=0, description="Working days until it is fulfilled; 0 where nothing is to be built.")
    evidence: str = Field(description="What shows it, in one sentence.")


class Row(Value):
    number: str
    kind: Literal["must", "should"]
    verdict: Verdict | None = Field(description="Null where the judgement is missing.")
    effort_days: int


class Matrix(Value):
    rows: list[Row]
    fulfilled: int
    partly: int
    missing: int
    excluded_by: list[str] = Field(description="Must requirements that we do not fulfil.")
    late_musts: list[str] = Field(description="Must requirements that need work before go-live.")
    effort_days: int
    capacity_days: int


class Recommendation(Value):
    recommend: Literal["bid", "no-bid"]
    reasons: list[str]
    conditions: list[str] = Field(description="What must be true before the bid is handed in.")
