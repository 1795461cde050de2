"""What a person decided at a gate: the value of every gate's artifact."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from orchestrator.spec import Decided


class Decision(BaseModel):
    """What was decided at a gate, the comment given with it (empty for none), and by whom."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: Decided
    comment: str
    by: str
