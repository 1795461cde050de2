"""What a notebook shows: a pipeline as its graph or its faults, a run as its graph with states, in safe HTML."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

SHOP = """
from orchestrator import Pipeline, Read, artifact

@artifact(about="How many there are.", not_for="none", markdown=True)
class Note(str):
    pass

@artifact(about="The text.", not_for="none", markdown=True)
class Letter(str):
    pass

p = Pipeline("shop", budget_usd="1.00")
idea = p.input("idea", str, about="What is wanted.")

@p.step
def note(idea: str) -> Note:
    return Note(idea.upper())

letter = p.llm("letter", produces=Letter, reads=[note], prompt="Write.")

broken = Pipeline("broken")
broken.llm("x", produces=Letter, reads=["<nothing>"], prompt="Write.")
"""
NAMED = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "answers").mkdir()
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n')
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "answers" / "letter.json").write_text(json.dumps([{"text": "Dear all."}]))
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("shop_of_a_user", tmp_path / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop_of_a_user"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["shop_of_a_user"]


def boxes(html: str | None) -> dict[str, str]:
    """The class of each step's box, by the step's name."""
    assert html is not None
    groups = ElementTree.fromstring(html).iter(f"{NAMED}g")
    found = {}
    for group in groups:
        name = next(text.text for text in group.iter(f"{NAMED}text") if text.get("class") == "name")
        found[name or ""] = (group.get("class") or "").removeprefix("node ")
    return found


def test_a_pipeline_is_its_graph(shop: ModuleType) -> None:
    assert boxes(shop.p._repr_html_()) == {"note": "plain", "letter": "plain"}


def test_a_faulty_pipeline_is_its_faults(shop: ModuleType) -> None:
    html = shop.broken._repr_html_()
    assert html.startswith("<pre>error[")
    assert "shop.py:" in html
    assert "&lt;nothing&gt;" in html
    assert "<nothing>" not in html


def test_a_run_is_its_graph_with_states_and_nothing_while_it_is_under_way(shop: ModuleType) -> None:
    async def main() -> tuple[str | None, str | None]:
        run = shop.p.start(idea="a shop")
        before = run._repr_html_()
        await run
        return before, run._repr_html_()

    before, after = asyncio.run(main())
    assert before is None
    assert boxes(after) == {"note": "succeeded", "letter": "succeeded"}


def test_a_failed_run_and_one_that_never_began(shop: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "answers" / "letter.json").unlink()
    assert boxes(shop.p.run(idea="a shop")._repr_html_()) == {"note": "succeeded", "letter": "failed"}

    async def main() -> str | None:
        run = shop.p.start()
        with pytest.raises(Exception, match="needs the input idea"):
            await run
        html: str | None = run._repr_html_()
        return html

    html = asyncio.run(main())
    assert html is not None
    assert html.startswith("<pre>UsageError: ")
