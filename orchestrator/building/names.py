"""Paths that expressions use, looked up in the schemas of contracts."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.contracts import Contract, schemas
from orchestrator.ids import variable


def beyond(path: tuple[str, ...], contract: Contract, what: str) -> tuple[str, str | None] | None:
    """Why a path below a value leads nowhere, as (message, hint); None where it leads somewhere."""
    if not path:
        return None
    known = 0 if contract.schema is None else schemas.at_path(path, contract.schema, by_variable)
    if known == len(path):
        return None
    return f"{what} has no field {'.'.join(path[: known + 1])}", None


def by_variable(part: str, known: Mapping[str, object]) -> str | None:
    """The declared name that a part of a path stands for: `-` is written `_` there."""
    return part if part in known else next((name for name in known if variable(name) == part), None)
