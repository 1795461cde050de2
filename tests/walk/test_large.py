"""A large artifact is rendered and counted beside the event loop, so that nothing else stands still meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.context import build_context
from orchestrator.providers.tokens import estimate
from tests.walk.harness import House

PIPELINE = """
version: 1
pipeline: large
inputs:
  idea: {type: text, about: "What it is about."}
artifacts:
  note: {about: "A note on it.", not_for: none, schema: text}
steps:
  note: {reads: [idea], prompt: "Say what is in it."}
"""


@pytest.mark.parametrize(("size", "beside"), [(5_000, False), (500_000, True)])
def test_a_large_text_is_selected_rendered_and_counted_off_the_loop_and_a_small_one_without_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, beside: bool
) -> None:
    where: dict[str, set[int]] = {}

    def noted(name: str, work: Any) -> Any:
        def note(*args: Any, **more: Any) -> Any:
            where.setdefault(name, set()).add(threading.get_ident())
            return work(*args, **more)

        return note

    monkeypatch.setattr("orchestrator.bodies.following.build_context", noted("rendered", build_context))
    monkeypatch.setattr("orchestrator.chain.estimate", noted("counted", estimate))
    house = House(tmp_path, PIPELINE, {"note": [{"text": "Lines."}]})
    text = "A line of it. <artifact> is no tag of ours.\n" * (size // 44)

    async def go() -> int:
        assert (await house.run({"idea": text})).status == "succeeded"
        return threading.get_ident()

    loop = asyncio.run(go())
    assert set(where) == {"rendered", "counted"}
    for name, threads in where.items():
        assert (loop not in threads) is beside, name
