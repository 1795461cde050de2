"""A19: the pipeline file and its models change between two parts of a run.

Nothing becomes None or a dict on the way, nothing is refused that still holds, and what does not hold is named before
anything is paid for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from tests.walk.harness import House, StopAfter

pytestmark = pytest.mark.usefixtures("database")

SCHEMAS = """
from pydantic import BaseModel

class Market(BaseModel):
    tam_usd: int
    region: str
"""
PIPELINE = """
version: 1
pipeline: study
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  market: {about: "The market.", not_for: none, schema: "schemas.py:Market"}
  note: {about: "A note.", not_for: none, schema: text}
steps:
  market: {reads: [idea], prompt: "Size it."}
  rivals: {reads: [idea], produces: note, prompt: "Who else?"}
  sizes: {reads: [market], produces: note, python: "sizes.py:sizes"}
  report: {reads: [market, rivals, sizes], produces: note, prompt: "Sum up."}
outputs: [report]
"""
SIZES = """
def sizes(market):
    return f"{type(market).__name__}: {market.tam_usd}"
"""
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "market": [{"json": {"tam_usd": 40, "region": "EU"}}, {"json": {"tam_usd": 41, "region": "EU"}}],
    "rivals": [{"text": "Nobody."}, {"text": "Somebody."}],
    "report": [{"text": "Good."}, {"text": "Better."}],
}


def stopped(folder: Path, pipeline: str = PIPELINE, files: Mapping[str, str] | None = None) -> House:
    """A run whose process ended when the first three steps were done."""
    own = {"schemas.py": SCHEMAS, "sizes.py": SIZES, **(files or {})}
    there = House(folder, pipeline, ANSWERS, files=own)
    seen = there.stopped({"idea": "a kiosk"}, StopAfter("commit:committed", 3))
    assert {name for name, row in seen.steps.items() if row.status == "succeeded"} == {
        "idea", "market", "rivals", "sizes",
    }  # fmt: skip
    return there


def asked(there: House) -> list[str]:
    """Which steps were asked for, in order; the two that do not wait for each other by name."""
    found = [request.step for request in there.requests()]
    return [*sorted(found[:2]), *found[2:]]


def test_A19_a_renamed_model_class_changes_nothing_that_was_made(tmp_path: Path) -> None:
    there = stopped(tmp_path)
    there.write("schemas.py", SCHEMAS.replace("class Market", "class Sizing"))
    there.write("walk.yaml", PIPELINE.replace("schemas.py:Market", "schemas.py:Sizing"))
    seen = asyncio.run(there.resume())
    assert seen.status == "succeeded"
    assert asked(there) == ["market", "rivals", "report"]
    assert '"tam_usd": 40' in there.effective(there.requests("report")[0])


def test_A19_a_changed_template_is_told_and_redone_where_that_is_asked_for(tmp_path: Path) -> None:
    there = stopped(tmp_path)
    there.write("walk.yaml", PIPELINE.replace('"Who else?"', '"Who else, by size?"'))
    seen = asyncio.run(there.resume())
    assert (seen.status, asked(there)) == ("succeeded", ["market", "rivals", "report"])
    assert asyncio.run(there.stale()) == {}
    careful = PIPELINE.replace('"Who else?"', '"Who else, by size?", stale_on: [read, template]')
    there.write("walk.yaml", careful)
    assert asyncio.run(there.stale()) == {"rivals": ("template changed: rivals",)}
    asyncio.run(there.refresh())
    assert asked(there) == ["market", "rivals", "report", "rivals"]  # which says the same, so the report stands


@pytest.mark.parametrize("again", ["resume", "refresh"])
def test_A19_a_deleted_step_is_named_before_any_call(tmp_path: Path, again: str) -> None:
    there = stopped(tmp_path)
    without = PIPELINE.replace('  rivals: {reads: [idea], produces: note, prompt: "Who else?"}\n', "")
    there.write("walk.yaml", without.replace("[market, rivals, sizes]", "[market, sizes]"))
    with pytest.raises(UsageError, match=r"has rivals, which walk\.yaml does not have any more"):
        asyncio.run(getattr(there, again)())
    assert asked(there) == ["market", "rivals"]


INLINE = """{type: object, properties: {tam_usd: {type: integer}, region: {type: string}},
    required: [tam_usd, region], additionalProperties: false}"""


@pytest.mark.parametrize("form", ["pydantic", "inline"])
def test_A19_a_new_required_field_is_named_and_the_step_that_lacks_it_is_stale(tmp_path: Path, form: str) -> None:
    """Its readers are not asked about a value that is none of its contract any more; as much where the contract is a
    JSON Schema in the pipeline's file."""
    before = PIPELINE if form == "pydantic" else PIPELINE.replace('"schemas.py:Market"', INLINE)
    files = {"sizes.py": SIZES.replace("market.tam_usd", "40")}
    there = stopped(tmp_path, before, files)
    if form == "pydantic":
        there.write("schemas.py", SCHEMAS + "    growth_percent: int\n")
    else:
        grown = INLINE.replace("region: {", "growth_percent: {type: integer}, region: {").replace(
            "[tam_usd, region]", "[tam_usd, growth_percent, region]"
        )
        there.write("walk.yaml", PIPELINE.replace('"schemas.py:Market"', grown))
    assert "market" in asyncio.run(there.stale())
    seen = asyncio.run(there.resume())
    error = seen.steps["report"].error
    assert seen.status == "failed"
    assert error is not None
    assert "growth_percent" in error.message
    assert "market" in error.message
    assert asked(there) == ["market", "rivals"]
