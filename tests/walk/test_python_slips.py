"""Small mistakes of people who write their first pipeline in Python, and what they are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator import Pipeline
from orchestrator.errors import InvalidProject
from tests.walk.harness import House

HEAD = """
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, Read, artifact

p = Pipeline("notes")
p.input("idea", str, about="What the customer wants.")


@artifact(about="What was found.", not_for="none")
class Notes(BaseModel):
    text: str


@artifact(about="The people it takes.", not_for=["Not a plan."])
class Effort(BaseModel):
    weeks: int

"""


def house(folder: Path, body: str) -> House:
    return House(folder, "", {"notes": []}, {"orchestrator.toml": "", "notes.py": HEAD + body})


# A coroutine that is thrown away would warn, and warnings are errors here.
def test_a_forgotten_await_is_called_that(tmp_path: Path) -> None:
    notes = house(
        tmp_path, "@p.step\nasync def notes(ctx: Ctx, idea: str) -> Notes:\n    return ctx.ask(Notes, 'Go')\n"
    )
    seen = asyncio.run(notes.run({"idea": "a shop"}))
    error = seen.steps["notes"].error
    assert error is not None
    assert error.message == "notes.py:notes returned a coroutine, not what comes of it"
    assert error.hint == "write `return await ctx.ask(…)`"
    assert notes.requests() == []


TWO = """
p.input("more", Effort, about="Of the others.")
p.input("effort", Effort)


@p.step
def notes(more: Annotated[Effort, Read("more")], effort: Annotated[Effort, Read("effort")]) -> Notes:
    return Notes(text=f"{more.weeks} and {effort.weeks}")
"""


def test_an_input_of_an_artifact_type_says_what_the_type_says(tmp_path: Path) -> None:
    found = house(tmp_path, TWO).graph().inputs
    assert (found["effort"].contract.about, found["more"].contract.about) == ("The people it takes.", "Of the others.")
    assert found["effort"].contract.not_for == ("Not a plan.",)


def test_of_two_makers_of_a_type_the_one_called_like_the_parameter_is_proposed(tmp_path: Path) -> None:
    notes = house(tmp_path, TWO.replace('Annotated[Effort, Read("effort")]', "Effort"))
    with pytest.raises(InvalidProject, match="which more and effort make") as said:
        notes.graph()
    assert said.value.hint == 'say which: Annotated[Effort, Read("effort")]'


def test_a_cap_without_an_amount_is_named_as_python_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    p = Pipeline("notes", unpriced="allow", per_call_usd=1)
    p.llm("notes", produces="notes", prompt="Go.")
    wrong = "per_call_usd and unpriced are about a budget: budget_usd is missing"
    with pytest.raises(InvalidProject, match=wrong) as said:
        p.run()
    assert said.value.hint == 'for example Pipeline(…, budget_usd="4.00")'
    assert said.value.__context__ is None, "not from the search for a running loop"
