"""Multi-step LLM workflows: stateless at step boundaries, chained within.

The public names. They are found when they are first used, so that importing the package (and `orch --help`) loads
neither pydantic nor an SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.authoring import Input, Pipeline, Step
    from orchestrator.bodies.ctx import Ctx, Thread
    from orchestrator.decision import Decision
    from orchestrator.python.declarations import Read, artifact
    from orchestrator.run_handle import Run
    from orchestrator.tools import ToolError, tool

__all__ = ["Ctx", "Decision", "Input", "Pipeline", "Read", "Run", "Step", "Thread", "ToolError", "artifact", "tool"]

_HOMES = {
    "Ctx": "orchestrator.bodies.ctx",
    "Decision": "orchestrator.decision",
    "Input": "orchestrator.authoring",
    "Pipeline": "orchestrator.authoring",
    "Read": "orchestrator.python.declarations",
    "Run": "orchestrator.run_handle",
    "Step": "orchestrator.authoring",
    "Thread": "orchestrator.bodies.ctx",
    "ToolError": "orchestrator.tools",
    "artifact": "orchestrator.python.declarations",
    "tool": "orchestrator.tools",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
