"""How a model is asked for a form: by its vendor's own parameter, or in the task's words. What it makes is the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.graph import build_graph
from orchestrator.project import find_project
from orchestrator.settings import load_settings
from orchestrator.values import Request
from tests.walk.harness import House, Seen

PIPELINE = """
version: 1
pipeline: orders
inputs:
  order: {type: text, about: "What was ordered."}
models:
  default: {use: "${env:ORCH_MODEL}", structured: prompt}
  usual: {use: "${env:ORCH_MODEL}", structured: native}
artifacts:
  price: {about: "What the order costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer}, currency: {type: string}},
    required: [cost, currency], additionalProperties: false}}
  note: {about: "A note for the customer.", not_for: none, schema: text}
steps:
  price: {reads: [order], prompt: "Estimate the cost of this order."}
  letter: {reads: [price], produces: note, prompt: "Write the letter."}
"""
GOOD = {"cost": 24, "currency": "USD"}
SENT = (
    '{"additionalProperties": false, "properties": {"cost": {"type": "integer"}, "currency": {"type": "string"}}, '
    '"required": ["cost", "currency"], "type": "object"}'
)


def ran(folder: Path, pipeline: str, *replies: Any) -> tuple[Seen, list[Request]]:
    house = House(folder, pipeline, {"price": list(replies), "letter": [{"text": "It costs 24 USD."}]})
    seen = asyncio.run(house.run({"order": "two lamps"}))
    return seen, house.requests()


def text(request: Request) -> str:
    return "".join(item.text for item in request.items if hasattr(item, "text"))


def test_in_words_the_task_ends_with_the_form_and_no_parameter_is_sent(tmp_path: Path) -> None:
    seen, (price, letter) = ran(tmp_path, PIPELINE, {"json": GOOD})
    assert seen.status == "succeeded"
    assert seen.value("price") == GOOD
    assert price.output is None
    task, _, form = text(price).partition("Answer with one JSON document and nothing else")
    assert "Estimate the cost of this order." in task
    words = form.partition("It follows this JSON Schema:\n")[2]
    assert json.loads(words) == json.loads(SENT)
    assert letter.output is None
    assert "JSON" not in text(letter), "a text has no form to ask for"
    block = next(block for block in seen.journals["price"][0].threads[0].prompt.blocks if block.source == "form")
    assert "structured: prompt" in block.rule, "the trace says why it stands there"


def test_what_comes_back_is_held_to_the_same_contract(tmp_path: Path) -> None:
    """A fence around the whole is taken off; anything else around it is asked for again, and so is a wrong value."""
    replies = [
        {"text": f"Here you are: {json.dumps(GOOD)}"},
        {"text": json.dumps(GOOD | {"cost": "24"})},
        {"text": f"```json\n{json.dumps(GOOD)}\n```"},
    ]
    seen, requests = ran(tmp_path, PIPELINE, *replies)
    assert seen.value("price") == GOOD
    assert [call.sent.source for call in seen.calls("price")] == ["NEXT_STEP", "REASK", "REASK"]
    assert "not valid JSON" in text(requests[1])
    assert "$.cost" in text(requests[2])


def test_a_step_says_else_than_its_model_and_a_model_else_than_its_provider(tmp_path: Path) -> None:
    """Step over alias over provider; left out everywhere, the vendor's parameter."""

    def chosen(name: str, model: str = "", step: str = "", provider: str = "") -> str:
        folder = tmp_path / name
        folder.mkdir()
        table = f'[providers.scripted]\nstructured = "{provider}"\n' if provider else 'user = "ana"\n'
        (folder / "orchestrator.toml").write_text(table, encoding="utf-8")
        alias = '{use: "${env:ORCH_MODEL}"' + (f", structured: {model}" if model else "") + "}"
        said = PIPELINE.replace('{use: "${env:ORCH_MODEL}", structured: prompt}', alias)
        said = said.replace('order."}', f'order.", structured: {step}}}') if step else said
        (folder / "walk.yaml").write_text(said, encoding="utf-8")
        project = find_project(folder)
        settings = load_settings(project, {"ORCH_MODEL": "scripted:x", "HOME": str(folder)})
        graph = build_graph(project, settings, project.pipeline(None), require_model=True)
        found = graph.steps["price"].model
        assert found is not None
        return found.structured

    assert chosen("a") == "native"
    assert chosen("b", provider="prompt") == "prompt"
    assert chosen("c", provider="prompt", model="native") == "native"
    assert chosen("d", model="native", step="prompt") == "prompt"


@pytest.mark.parametrize("which", ["model", "text"])
def test_another_way_of_asking_is_another_input(tmp_path: Path, which: str) -> None:
    """What was made by the one counts as made by another model for the other; a text is asked for in one way only, and
    still its model has changed."""
    step = "price" if which == "model" else "letter"
    one, _ = ran(tmp_path / "a", PIPELINE, {"json": GOOD})
    two, requests = ran(tmp_path / "b", PIPELINE.replace("structured: prompt", "structured: native"), {"json": GOOD})
    assert requests[0].output is not None
    assert one.steps[step].inputs_hash != two.steps[step].inputs_hash


def test_T13_steps_with_different_forms_share_all_ahead_of_their_tasks(tmp_path: Path) -> None:
    """As a native parameter the form comes first in what a vendor's cache compares; in words it comes last."""
    from orchestrator.providers.openai_wire import Dialect, body

    house = House(tmp_path, PIPELINE.replace("reads: [price], produces: note", "reads: [order], produces: note"),
                  {"price": [{"json": GOOD}], "letter": [{"text": "x"}]})  # fmt: skip
    asyncio.run(house.run({"order": "two lamps"}))
    price, letter = (body(request, Dialect()) for request in house.requests())
    fixed = ("model", "instructions", "tools", "text")
    assert [price.get(name) for name in fixed] == [letter.get(name) for name in fixed]
    one, two = price["input"][0]["content"], letter["input"][0]["content"]
    shared = next(at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    assert "two lamps" in one[:shared]
