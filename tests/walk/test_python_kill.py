"""S11 with real processes: SIGKILL while a Python body asks side by side, and a resume in another process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import CallRow
from tests import process_kit
from tests.process_kit import Process
from tests.walk.harness import House, Seen

SEED = 20261202
ANSWERS = (0, 1, 2, 4)  # of the six that it asks for, so many are on record when a process is killed, or some more
REPLY_SECONDS = 0.12
ROOT = Path(__file__).parents[2]
TOPICS = ("price", "speed", "risk")
PIPELINE = """
import asyncio

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, artifact


class Note(BaseModel):
    text: str


@artifact(about="What was found.", not_for="none")
class Findings(BaseModel):
    lines: list[str]


p = Pipeline("survey")
p.input("idea", str, about="What the customer wants.")


@p.step
async def survey(ctx: Ctx, idea: str) -> Findings:
    async def look(topic: str) -> str:
        chat = ctx.thread(topic)
        first = await chat.ask(Note, f"Look at {topic}.")
        second = await chat.ask(Note, "And then?")
        return f"{first.text} {second.text}"

    return Findings(lines=list(await asyncio.gather(*(look(topic) for topic in ("price", "speed", "risk")))))
"""


def survey(folder: Path, dice: random.Random) -> House:
    files = {"orchestrator.toml": 'user = "ana"\n', "survey.py": PIPELINE}
    for topic in TOPICS:
        delays = [REPLY_SECONDS * dice.uniform(0.2, 1.8) for _ in range(2)]
        replies = [{"json": {"text": f"{topic} {n}"}, "delay": delay} for n, delay in enumerate(delays, 1)]
        files[f"answers/survey/{topic}.json"] = json.dumps(replies)
    return House(folder, "", ScriptedProvider(root=folder), files, model="scripted:answers")


def start(folder: Path, *arguments: str) -> Process:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "ORCH_TRUST": "1"}
    env |= {"ORCH_MODEL": "scripted:answers"}
    return process_kit.start(folder, *arguments, env=env, stderr=process_kit.STDOUT)


def wait_for(house: House, answers: int) -> None:
    """Until all that is asked first has been sent, and so many answers are on record."""
    deadline = time.monotonic() + 60
    counted = "SELECT COUNT(*), COUNT(*) FILTER (WHERE state = 'done') FROM call"
    with closing(sqlite3.connect(f"file:{house.db}?mode=ro", uri=True, timeout=30)) as database:
        while True:
            sent, done = database.execute(counted).fetchone()
            if sent >= len(TOPICS) and done >= answers:
                return
            assert time.monotonic() < deadline
            time.sleep(0.005)


def by_question(seen: Seen) -> dict[tuple[str, str], list[CallRow]]:
    """The calls of each thread's questions."""
    found: dict[tuple[str, str], list[CallRow]] = {}
    for journal in seen.journals["survey"]:
        for thread in journal.threads:
            for call in thread.calls:
                found.setdefault((thread.name, call.sent.ask), []).append(call)
    return found


@pytest.mark.slow
def test_S11_a_killed_body_goes_on_and_pays_only_what_was_in_flight(tmp_path: Path) -> None:
    dice, cut = random.Random(SEED), Counter[int]()
    for number in ANSWERS:
        house = survey(tmp_path / str(number), dice)
        process = start(house.folder, "run", "survey", "--set", "idea=a shop", "--yes")
        assert process.stdout is not None
        process.stdout.readline()
        wait_for(house, number)
        process.kill()
        process.communicate(timeout=60)
        before = asyncio.run(house.look())
        answered = {key for key, calls in by_question(before).items() if any(call.done for call in calls)}

        output, _ = (resumed := start(house.folder, "resume")).communicate(timeout=60)

        assert resumed.returncode == 0, f"{output}\nkilled after {number} answers, seed {SEED}"
        seen = asyncio.run(house.look())
        assert seen.value("survey") == {"lines": [f"{topic} 1 {topic} 2" for topic in TOPICS]}
        assert len(seen.attempts["survey"]) == 1
        questions = by_question(seen)
        assert len(questions) == 2 * len(TOPICS)
        for key, calls in questions.items():
            assert sum(call.done is not None for call in calls) == 1, "each question has one answer"
            if key in answered:
                assert len(calls) == len(by_question(before)[key]), "an answer on record was asked for again"
        cut[len(answered)] += 1
    assert min(cut) < 2 * len(TOPICS), f"every process had ended when it was to be killed: {cut}"
