"""The steps that need no model: reading the table of requirements, and adding up the judgements."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .schemas import Assessment, Matrix, Requirement, Requirements, Row

_ROW = re.compile(r"^\|\s*(R-\d+)\s*\|\s*(must|should)\s*\|\s*(.+?)\s*\|\s*$", re.MULTILINE)


def split(tender: str) -> Requirements:
    """Every row of the table. Raises ValueError where the tender has none."""
    rows = _ROW.findall(tender)
    if not rows:
        raise ValueError("the tender has no table with rows like | R-01 | must | text |")
    return Requirements(items=[Requirement(number=no.lower(), kind=kind, text=text) for no, kind, text in rows])


def matrix(requirements: Requirements, assessment: Mapping[str, Assessment], capacity_days: int) -> Matrix:
    """One row for each requirement, judged or not; a must that is not judged counts as not fulfilled."""
    rows = [_row(one, assessment.get(one.number)) for one in requirements.items]
    return Matrix(
        rows=rows,
        fulfilled=sum(row.verdict == "yes" for row in rows),
        partly=sum(row.verdict == "partly" for row in rows),
        missing=sum(row.verdict in ("no", None) for row in rows),
        excluded_by=[row.number for row in rows if row.kind == "must" and row.verdict in ("no", None)],
        late_musts=[row.number for row in rows if row.kind == "must" and row.verdict == "partly"],
        effort_days=sum(row.effort_days for row in rows),
        capacity_days=capacity_days,
    )


def _row(requirement: Requirement, found: Assessment | None) -> Row:
    return Row(
        number=requirement.number,
        kind=requirement.kind,
        verdict=found.verdict if found else None,
        effort_days=found.effort_days if found else 0,
    )
