"""A step in plain Python: one keyword for each read, the contract's value as result."""

from __future__ import annotations

from typing import Any


def count(key_points: dict[str, Any]) -> dict[str, int]:
    return {"points": len(key_points["points"]), "open_questions": len(key_points["open_questions"])}
