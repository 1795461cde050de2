"""Function tools: a typed Python function becomes a strict JSON Schema, and a model's call becomes a checked call of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.values import ToolSpec


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a step: what the model is told (`spec`), what runs (`call`), whether repeating it is safe (S09)."""

    ref: str
    spec: ToolSpec
    call: Callable[..., Any]
    idempotent: bool
    sha: str
