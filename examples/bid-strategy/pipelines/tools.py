"""The one tool: a look into the table of partners. It only reads, so repeating it is harmless."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrator import ToolError, tool

from .contracts import Capability, Region
from .tables import all_partners


class FoundPartner(BaseModel):
    """A partner as the model sees it. No rate: the choice is by fit, and `pricing-position` does the sums."""

    name: str
    proof: str
    free_from: str


@tool(idempotent=True)
def find_partners(capability: Capability, region: Region) -> list[FoundPartner]:
    """Partners who can do what we cannot, in one region. An empty table is an answer too: then nobody is known.

    Args:
        capability: What is needed.
        region: Where the work is.
    """
    known = [partner for partner in all_partners() if partner.capability == capability]
    found = [partner for partner in known if partner.region == region]
    if not found:
        elsewhere = ", ".join(sorted({partner.region for partner in known})) or "nowhere"
        raise ToolError(f"No partner for {capability} in {region}; we know some in: {elsewhere}. Leave it open.")
    return [FoundPartner(name=each.name, proof=each.proof, free_from=each.free_from) for each in found]
