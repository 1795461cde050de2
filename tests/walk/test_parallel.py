"""Steps that wait for nothing run at once; one that fails takes only those with it that hang on it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Reply, Request
from tests.walk.harness import House, Seen, check_no_gap

#   a   b   c
#    \ / \ / \
#     d   e   f      g = d + e + f
PIPELINE = """
version: 1
pipeline: parallel
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  a: {reads: [idea], produces: note, prompt: "Say a."}
  b: {reads: [idea], produces: note, prompt: "Say b."}
  c: {reads: [idea], produces: note, prompt: "Say c."}
  d: {reads: [a, b], produces: note, prompt: "Say d."}
  e: {reads: [b, c], produces: note, prompt: "Say e."}
  f: {reads: [c], produces: note, prompt: "Say f."}
  g: {reads: [d, e, f], produces: note, prompt: "Say g."}
"""
IDEA = {"idea": "a shop"}


class Barrier(ScriptedProvider):
    """Answers the named steps only once all of them have asked; waiting for ever is a failure of the test."""

    def __init__(self, script: Any, *groups: Collection[str]) -> None:
        super().__init__(script)
        self.groups = [set(group) for group in groups]
        self.came = asyncio.Condition()

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        for group in self.groups:
            if request.step in group:
                await self.wait(group, request.step)
        return await super().respond(request, listener)

    async def wait(self, group: set[str], step: str) -> None:
        async with asyncio.timeout(20), self.came:
            group.discard(step)
            self.came.notify_all()
            await self.came.wait_for(lambda: not group)


def said(request: Request, items: Any) -> dict[str, Any]:
    return {"text": f"said {request.step}"}


def run(there: House) -> Seen:
    return asyncio.run(there.run(IDEA))


def statuses(seen: Seen) -> dict[str, str]:
    return {name: row.status for name, row in seen.steps.items() if row.kind == "llm"}


def asked(there: House) -> list[str]:
    return [request.step for request in there.requests()]


def test_steps_that_wait_for_nothing_are_asked_at_the_same_time(tmp_path: Path) -> None:
    there = House(tmp_path, PIPELINE, Barrier(said, "abc", "de"))
    seen = run(there)
    assert seen.status == "succeeded"
    assert sorted(asked(there)) == list("abcdefg")
    assert asked(there)[-1] == "g"
    check_no_gap(seen)


def test_a_step_starts_as_soon_as_what_it_reads_is_there_and_not_a_level_later(tmp_path: Path) -> None:
    """`f` reads `c` alone: it is answered while `a` and `b` still wait, or nobody is."""
    there = House(tmp_path, PIPELINE, Barrier(said, "abf"))
    assert run(there).status == "succeeded"


def test_blocking_functions_run_at_once_too(tmp_path: Path) -> None:
    """Twelve of them, more than the loop's own executor has threads on this machine."""
    names = [f"p{n}" for n in range(12)]
    steps = "".join(f'  {name}: {{reads: [idea], python: "work.py:meet", produces: note}}\n' for name in names)
    pipeline = PIPELINE.partition("steps:\n")[0] + "steps:\n" + steps
    work = """
        import threading

        ALL = threading.Barrier(12)


        def meet(idea):
            return f"place {ALL.wait(timeout=20)}"
    """
    there = House(tmp_path, pipeline, said, files={"work.py": work})
    seen = run(there)
    assert seen.status == "succeeded"
    assert {seen.text(name) for name in names} == {f"place {n}" for n in range(12)}


def test_the_siblings_of_a_failed_step_are_kept_and_what_hangs_on_it_waits(tmp_path: Path) -> None:
    """`b` fails while `a` and `c` are in flight; they end, `f` runs after `c`, and nothing else does."""
    broken = {"b"}

    def answer(request: Request, items: Any) -> dict[str, Any]:
        return {"error": "bad_request", "message": "no"} if request.step in broken else said(request, items)

    there = House(tmp_path, PIPELINE, Barrier(answer, "abc"))
    seen = run(there)
    assert statuses(seen) == {
        "a": "succeeded", "b": "failed", "c": "succeeded", "d": "pending",
        "e": "pending", "f": "succeeded", "g": "pending",
    }  # fmt: skip
    assert seen.status == "failed"
    assert seen.row.error == seen.steps["b"].error
    assert seen.row.error is not None
    assert seen.row.error.exit_code == 6
    broken.clear()
    kept = seen.bodies()
    with there.new_requests() as again:
        seen = asyncio.run(there.resume())
    assert seen.status == "succeeded"
    assert sorted(request.step for request in again) == ["b", "d", "e", "g"]
    assert {name: body for name, body in seen.bodies().items() if name in kept} == kept
    assert seen.steps["b"].attempt == 2
    assert seen.row.error is None
    check_no_gap(seen)


def test_two_failures_are_two_failures_and_a_resume_runs_both(tmp_path: Path) -> None:
    broken = {"a", "c"}

    def answer(request: Request, items: Any) -> dict[str, Any]:
        return {"error": "auth", "message": "no key"} if request.step in broken else said(request, items)

    there = House(tmp_path, PIPELINE, answer)
    seen = run(there)
    assert [name for name, status in statuses(seen).items() if status == "failed"] == ["a", "c"]
    broken.remove("a")
    seen = asyncio.run(there.resume())
    assert statuses(seen) == {
        "a": "succeeded", "b": "succeeded", "c": "failed", "d": "succeeded",
        "e": "pending", "f": "pending", "g": "pending",
    }  # fmt: skip
    broken.clear()
    assert asyncio.run(there.resume()).status == "succeeded"
    assert sorted(asked(there)) == sorted("aabcccdefg")


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    there = House(tmp_path, PIPELINE, said)
    run(there)
    with there.new_requests() as again:
        seen = asyncio.run(there.resume())
    assert again == []
    assert seen.status == "succeeded"
    assert all(row.attempt == 1 for row in seen.steps.values() if row.kind == "llm")
