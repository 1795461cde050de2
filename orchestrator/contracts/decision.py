"""The contract of a gate's answer: built in, so that every pipeline that reads one knows its fields."""

from __future__ import annotations

from functools import cache
from typing import Final

from orchestrator.contracts import Contract, model_contract
from orchestrator.decision import Decision
from orchestrator.errors import Place
from orchestrator.spec import ContractSpec

NAME: Final = "decision"
ABOUT: Final = "A person's decision at a gate of this run: what they chose, and their comment in their own words."


@cache
def decision_contract() -> Contract:
    """The same object for every gate."""
    spec = ContractSpec.model_validate({"artifact": NAME, "about": ABOUT, "not_for": "none", "schema": "text"})
    return model_contract(spec, Decision, Place("the built-in contract of gates"))
