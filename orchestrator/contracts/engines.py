"""Which engine runs a model's regular expressions.

Pydantic's own is linear by construction. Python's is not: `^(a+)+$` on forty letters of an answer would hold up the
whole process, inside one call that nothing could stop (S25).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def backtracks(model: type[BaseModel]) -> bool:
    """Whether a model, or one inside of it, has its patterns run by Python's engine."""
    waiting: list[Any] = [model.__pydantic_core_schema__]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Mapping):
            if part.get("regex_engine") == "python-re" or isinstance(part.get("pattern"), re.Pattern):
                return True
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return False
