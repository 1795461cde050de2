"""What the requests of many steps share, and how they grow. Nothing is timed, so one round says it all.

The texts a model would see come from the scripted provider's record; tokens are counted as the caps count them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks import ours, work
from benchmarks.measure import Numbers
from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.project import Project
from orchestrator.providers.registry import Providers
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.providers.tokens import estimate
from orchestrator.settings import Settings
from orchestrator.values import Item, Request

HEAD = """\
version: 1
pipeline: bench
inputs: {idea: {type: text, about: "What the customer wants."}}
models: {default: {use: "scripted:written"}}
artifacts: {note: {about: "A note on the idea.", not_for: none, schema: text}}
steps:
"""
TASK = "Say more about this, in a few lines."
IDEA = "A booking page for a yoga studio."


def growing(folder: Path, steps: int) -> Numbers:
    """Each step reads all before it: how much of what two neighbours both read lies in their common beginning."""
    seen = _seen(folder, steps, lambda number: range(number))
    shared = total = 0
    for number in range(1, steps - 1):
        common = _common(seen[number], seen[number + 1])
        read = [_reply(earlier) for earlier in range(number)]
        total += sum(map(estimate, read))
        shared += sum(estimate(text) for text in read if text in common)
    return {"shared": shared / total}


def declared(folder: Path, steps: int) -> Numbers:
    """Each step reads the two before it: all tokens sent, and what one chain through all steps would have sent."""
    seen = _seen(folder, steps, lambda number: range(max(0, number - 2), number))
    turn, history, chained = estimate(TASK), estimate(IDEA), 0
    for number in range(steps):
        history += turn
        chained += history
        history += estimate(_reply(number))
    return {"tokens": sum(map(estimate, seen)), "chained": chained}


class _Written(Providers):
    """Answers made up as they are asked for, by a provider that remembers the questions."""

    def __init__(self, project: Project, settings: Settings, provider: ScriptedProvider) -> None:
        super().__init__(project, settings)
        self.provider = provider

    def get(self, name: str) -> ScriptedProvider:
        return self.provider


def _answer(request: Request, items: tuple[Item, ...]) -> dict[str, str]:
    return {"text": _reply(int(request.step.removeprefix("s")))}


def _reply(number: int) -> str:
    return work.text(number)


def _seen(folder: Path, steps: int, reads: Callable[[int], Iterable[int]]) -> list[str]:
    """The whole text each step's model sees, in order."""
    ours.write(folder, HEAD, (_line(number, reads(number)) for number in range(steps)))
    project, settings, graph = ours.load(folder)
    provider = ScriptedProvider(_answer)

    async def go() -> None:
        async with engine.open_services(project, settings, providers=_Written(project, settings, provider)) as services:
            run = await engine.start_run(services, graph, RunOptions({"idea": IDEA}))
            assert run.status == "succeeded", run.error

    asyncio.run(go())
    order = {name: at for at, name in enumerate(graph.steps)}
    requests = sorted(provider.requests, key=lambda request: order[request.step])
    return [provider.effective_text(request) for request in requests]


def _line(number: int, reads: Iterable[int]) -> str:
    names = ", ".join(["idea", *(f"s{earlier}" for earlier in reads)])
    return f'  s{number}: {{reads: [{names}], produces: note, prompt: "{TASK}"}}'


def _common(one: str, other: str) -> str:
    end = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:end]
