"""What the eight steps of examples/bid-strategy cost, asked in three ways, by the usage numbers of a strict server.

    as run          Orchestrator: each step begins anew with what it reads
    one chain       the same questions and answers, all in one chain: a step brings what was not said yet
    whole history   each step is told its task, then everything that was said before: what people do first

The server is that of the tests: it counts what a request brings with all that its chain holds, and what of it begins
as an earlier request began, in blocks of 128 tokens from 1,024 up; an output schema stands ahead of the text, as it
does at OpenAI, so that two schemas share nothing. All three ways are really sent. What it answers are the example's
sample answers, the same each time, without reasoning, and nobody edits anything: both in favour of the chain.

Money is counted at $2 per million tokens of input and $10 of output; cached input at the share that is named, and where
writing to the cache costs more, at a quarter more than input for all that was not in it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from benchmarks.measure import Numbers
from orchestrator import engine
from orchestrator.engine import RunOptions
from orchestrator.graph import build_graph
from orchestrator.money import Rates
from orchestrator.project import Project, find_project
from orchestrator.providers.base import Listener, Provider, no_listener
from orchestrator.providers.registry import Providers
from orchestrator.settings import Settings, load_settings
from orchestrator.spec import Structured
from orchestrator.store.records import ThreadJournal
from orchestrator.values import Reply, Request, Usage
from tests.strict_server import Seen, StrictServer

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "bid-strategy"
BRIEF: Final = "briefs/rail.json"
SHARES: Final = ("0.5", "0.25", "0.1")
WAYS: Final = ("run", "chain", "history")
CACHE_FROM: Final = 1024
PROVIDER: Final = """
[providers.strict]
kind = "openai"
base_url = "{url}"
chaining = "server"
structured = "{structured}"
"""


def native(folder: Path, size: int) -> Numbers:
    """The form of each answer asked for by its schema."""
    return _measured(folder, "native")


def prompt(folder: Path, size: int) -> Numbers:
    """The form of each answer asked for in words."""
    return _measured(folder, "prompt")


def _measured(folder: Path, structured: Structured) -> Numbers:
    run = _Run(folder / "run", structured)
    asyncio.run(run.go())
    found = {"run": run.usages, "chain": _again(run, history=False), "history": _again(run, history=True)}
    numbers: Numbers = {"calls": len(run.usages)}
    for way, usages in found.items():
        total = sum(usages, Usage())
        numbers[f"{way}.input"] = total.input_tokens
        numbers[f"{way}.cached"] = total.cached_tokens
        for share in SHARES:
            numbers[f"{way}.{share}"] = float(_dollars(usages, share))
        numbers[f"{way}.write"] = float(_dollars(usages, SHARES[-1], write="2.5"))
    return numbers


def _dollars(usages: Sequence[Usage], share: str, write: str = "2") -> Decimal:
    rates = Rates(Decimal(2), Decimal(share) * 2, Decimal(write), Decimal(10))
    return sum((rates.cost(usage if write == "2" else _written(usage)) for usage in usages), Decimal(0))


def _written(usage: Usage) -> Usage:
    """What of it goes into the cache anew: all that was not in it, where the request is long enough for one."""
    new = usage.input_tokens - usage.cached_tokens if usage.input_tokens >= CACHE_FROM else 0
    return Usage(usage.input_tokens, usage.cached_tokens, new, usage.output_tokens)


# --- as run -----------------------------------------------------------------------------------------------------------


class _Noting:
    """The driver of the server, which says which request is which step's."""

    def __init__(self, inner: Provider, notes: dict[bytes, Request]) -> None:
        self._inner = inner
        self._notes = notes

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        self._notes[self._inner.wire(request)] = request
        return await self._inner.respond(request, listener)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Providers(Providers):
    def __init__(self, project: Project, settings: Settings, notes: dict[bytes, Request]) -> None:
        super().__init__(project, settings)
        self._notes = notes

    def get(self, name: str) -> Provider:
        return _Noting(super().get(name), self._notes)


@dataclass
class _Run:
    """One run of the example on a strict server. `asked` are its requests in their order, `threads` is what each of its
    conversations began with, `made` the versions that models wrote as declared steps."""

    folder: Path
    structured: Structured
    notes: dict[bytes, Request] = field(default_factory=dict)
    asked: list[tuple[Request, Seen]] = field(default_factory=list)
    threads: dict[str, ThreadJournal] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns(".orch", "__pycache__"))

    @property
    def usages(self) -> list[Usage]:
        return [_usage(seen.response) for _, seen in self.asked]

    async def go(self) -> None:
        with StrictServer(self.answer) as server:
            file = self.folder / "orchestrator.toml"
            told = PROVIDER.format(url=server.base_url, structured=self.structured)
            file.write_text(file.read_text(encoding="utf-8") + told, encoding="utf-8")
            project = find_project(self.folder)
            settings = load_settings(project, {"ORCH_MODEL": "strict:bench", "HOME": str(self.folder)})
            graph = build_graph(project, settings, project.pipeline("bid-strategy"), require_model=True)
            inputs = json.loads((self.folder / BRIEF).read_text(encoding="utf-8"))
            providers = _Providers(project, settings, self.notes)
            async with engine.open_services(project, settings, providers=providers) as services:
                row = await engine.start_run(services, graph, RunOptions(inputs))
                assert row.status == "succeeded", row.error
                for step in graph.steps:
                    for attempt in await services.store.attempts(row.id, step, None):
                        journal = await services.store.journal(attempt.id)
                        self.threads |= {thread.id: thread for thread in journal.threads}
                        if graph.steps[step].kind == "llm":
                            self.made |= {version.id for version in await services.store.versions(row.id, step)}

    def answer(self, seen: Seen) -> dict[str, Any]:
        request = self.notes[seen.raw]
        self.asked.append((request, seen))
        replies = json.loads((self.folder / "sample_answers" / f"{request.step}.json").read_text(encoding="utf-8"))
        self.counts[request.step] += 1
        reply: dict[str, Any] = replies[self.counts[request.step] - 1]
        if request.output is None and "json" in reply:  # asked for in words, it comes as text
            return {"text": json.dumps(reply["json"], ensure_ascii=False)}
        return reply


# --- the same otherwise -----------------------------------------------------------------------------------------------


def _again(run: _Run, *, history: bool) -> list[Usage]:
    """The same questions and answers on another such server, in one chain; or each with all that was said before it."""
    first = {request.step: place for place, (request, _) in reversed([*enumerate(run.asked)])}
    asked = sorted(run.asked, key=lambda one: first[one[0].step])  # one conversation takes one step after the other
    answers = iter([seen for _, seen in asked])

    def answer(seen: Seen) -> dict[str, Any]:
        output = next(answers).response["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        if calls:
            return {"tool_calls": [{"name": c["name"], "arguments": json.loads(c["arguments"])} for c in calls]}
        return {"text": output[-1]["content"][0]["text"]}

    said: set[str] = set()
    items: list[dict[str, Any]] = []
    usages, previous = [], None
    with StrictServer(answer) as server:
        for request, seen in asked:
            body = {key: value for key, value in seen.body.items() if key != "previous_response_id"}
            new = _new(run, request, seen, said, items)
            if history:
                body["input"] = _told(items, new)
            else:
                body |= {"input": new, **({"previous_response_id": previous} if previous else {})}
            response = _post(server.base_url, {**body, "stream": False})
            previous = response["id"]
            items += [*new, *response["output"]]
            usages.append(_usage(response))
    return usages


def _new(
    run: _Run, request: Request, seen: Seen, said: set[str], items: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What this request brings to the one conversation: of a step's opening the blocks that were not said yet, else
    what it brought as run, tool results under the ids of the calls they answer here."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = iter(calls[len(calls) - sum(item.get("type") == "function_call_output" for item in seen.body["input"]) :])
    thread = run.threads.get(request.thread)
    if thread is None:  # it goes on in its chain
        given = [item for item in seen.body["input"] if isinstance(item, dict)]
        return [
            {**item, "call_id": next(results)} if item.get("type") == "function_call_output" else item for item in given
        ]
    parts: list[str] = []
    for block in thread.prompt.blocks:
        key = block.artifact_id or "".join(block.parts)
        if key not in said and block.artifact_id not in run.made:
            parts += block.parts
        said.add(key)
    return [{"role": "user", "content": "".join(parts)}]


def _told(items: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The task, then all that was said before, as one message."""
    task = "\n".join(_text(item) for item in new)
    before = "\n\n".join(_text(item) for item in items)
    return [{"role": "user", "content": f"{task}\n\nEverything that was said before:\n{before}" if items else task}]


def _text(item: dict[str, Any]) -> str:
    content = item.get("content", item.get("output", item.get("arguments", "")))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _post(base_url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer none"}
    sent = HttpRequest(f"{base_url}/responses", json.dumps(body).encode(), headers)
    with urlopen(sent, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def _usage(response: dict[str, Any]) -> Usage:
    usage = response["usage"]
    return Usage(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], 0, usage["output_tokens"])
