"""Multi-step LLM workflows: stateless at step boundaries, chained within.

The public names. They are found when they are first used, so that importing the package (and `orch --help`) loads
neither pydantic nor an SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.tools import ToolError, tool

__all__ = ["ToolError", "tool"]

_HOMES = {"ToolError": "orchestrator.tools", "tool": "orchestrator.tools"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
