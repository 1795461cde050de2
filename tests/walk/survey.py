"""A pipeline with one Python body that asks much at once, and a vendor that answers by what it is asked.

Three topics are looked at side by side, each with a second question that quotes the first answer; beside them a named
thread is asked twice, and something is done to the world. Which reply comes first is the vendor's dice.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, Request, TextItem
from tests.walk.harness import House

TOPICS: Final = ("price", "speed", "risk")
LINES: Final = [*(f"{topic}: judged {topic}, which is seen {topic}" for topic in TOPICS), "in form"]
QUESTIONS: Final = 2 * len(TOPICS) + 2
IDEA: Final = {"idea": "a shop"}

PIPELINE: Final = """
import asyncio
from pathlib import Path

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, artifact


@artifact(about="What was found.", not_for="none")
class Findings(BaseModel):
    lines: list[str]


class Note(BaseModel):
    text: str


p = Pipeline("survey")
p.input("idea", str, about="What the customer wants.")


def tell() -> int:
    with (Path(__file__).parent / "world.txt").open("a") as world:
        return world.write("told\\n")


@p.step
async def survey(ctx: Ctx, idea: str) -> Findings:
    async def look(topic: str) -> str:
        found = await ctx.ask(Note, f"Look at {topic}.")
        judged = await ctx.ask(Note, f"Judge {topic}.", found=found)
        return f"{topic}: {judged.text}"

    async def talk() -> str:
        chat = ctx.thread("talk")
        await chat.ask(str, "Say something.")
        note = await chat.ask(Note, "Now in form.")
        assert await ctx.once("tell", tell, idempotent=True) == 5
        return note.text

    return Findings(lines=list(await asyncio.gather(*(look(t) for t in ("price", "speed", "risk")), talk())))
"""


def answer(question: str) -> dict[str, Any]:
    """The vendor's reply: it knows the question, and what it was told with it."""
    if found := re.search(r"Look at (\w+)\.", question):
        return {"json": {"text": f"seen {found[1]}"}}
    if found := re.search(r"Judge (\w+)\.", question):
        told = re.search(r'"text": "([^"]*)"', question)
        return {"json": {"text": f"judged {found[1]}, which is {told[1] if told else 'unknown'}"}}
    if "Now in form." in question:
        return {"json": {"text": "in form"}}
    return {"text": "something"}


class Vendor(ScriptedProvider):
    """Answers each question, after a time the dice decide; remembers what it was asked, in order."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self.dice = dice
        self.asked: list[str] = []
        super().__init__(self._reply)

    def _reply(self, request: Request, items: Sequence[Item]) -> dict[str, Any]:
        last = next(item for item in reversed(items) if isinstance(item, TextItem))
        question = re.findall(r"(?:Look at \w+|Judge \w+|Now in form|Say something)\.", last.text)[-1]
        self.asked.append(question)
        return {**answer(last.text), "delay": self.dice.uniform(0, 0.004) if self.dice else 0.0}


def survey_house(folder: Path, vendor: ScriptedProvider, pipeline: str = PIPELINE, **files: str) -> House:
    return House(folder, "", vendor, {"orchestrator.toml": 'user = "ana"\n', "survey.py": pipeline, **files})
