"""A gate over a step with items: it shows each of them, and an approval is of all their bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.values import Item, Request
from tests.walk.harness import House

pytestmark = pytest.mark.usefixtures("database")

PIPELINE = """
version: 1
pipeline: items
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
  rivals:
    about: "Rivals."
    not_for: none
    schema: {type: object, properties: {found: {type: array, items: {type: string}}}, required: [found],
             additionalProperties: false}
steps:
  rivals: {reads: [idea], prompt: "Who?"}
  profile: {for_each: {in: rivals.found}, produces: note, prompt: "{{ item }}", review: required}
  letter: {reads: [{read: profile, require: approved}], produces: note, prompt: "Write it."}
outputs: [letter]
"""


def model(request: Request, items: tuple[Item, ...]) -> dict[str, str]:
    if request.step == "rivals":
        return {"text": json.dumps({"found": ["acme", "beta"]})}
    return {"text": f"{request.step} {len(items)}"}


def test_S08_a_gate_shows_every_item_and_an_edit_of_one_makes_the_answer_void(tmp_path: Path) -> None:
    house = House(tmp_path, PIPELINE, model)
    seen = asyncio.run(house.run({"idea": "red"}))
    assert seen.status == "waiting"
    shown = asyncio.run(house.shown("profile"))
    assert sorted(shown.heads) == ["profile", "profile/acme", "profile/beta"]

    async def edit(value: str) -> None:
        from orchestrator import edits

        async with house.services() as (services, graph):
            run = await services.store.run("last")
            head = (await services.store.artifact(run.id, "profile", "beta")).version.version
            await edits.edit_artifact(services, graph, run, "profile", value=value, base_version=head, item="beta")

    asyncio.run(edit("mine"))
    with pytest.raises(UsageError, match="changed meanwhile"):
        asyncio.run(house.answer("profile", at=shown.digest))
    seen = asyncio.run(house.answer("profile"))
    assert seen.status == "succeeded"
    asyncio.run(edit("other"))
    assert set(asyncio.run(house.stale())) >= {"profile.review", "letter"}
    seen = asyncio.run(house.refresh())
    assert (seen.status, seen.steps["profile.review"].status) == ("waiting", "waiting")
    assert asyncio.run(house.answer("profile")).status == "succeeded"
