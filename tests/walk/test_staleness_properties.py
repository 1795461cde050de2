"""Random graphs, random edits: what is called stale is what a naive reading says, and a refresh is as good as a run.

The naive reading keeps no manifest. It remembers what each step was shown when it was made, whole values or fields, and
calls it stale when it would be shown something else now.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.frame import parse
from orchestrator.ids import sha256
from orchestrator.values import Item, Request, TextItem
from tests.walk.harness import House, Seen

Value = dict[str, str]
HEAD = """
version: 1
pipeline: random
inputs:
{inputs}
models:
  default: {{use: "${{env:ORCH_MODEL}}"}}
artifacts:
  pair:
    about: "Two words."
    not_for: none
    schema:
      type: object
      properties: {{a: {{type: string}}, b: {{type: string}}}}
      required: [a, b]
      additionalProperties: false
steps:
{steps}
"""


@dataclass(frozen=True)
class Reading:
    name: str
    field: str | None

    def of(self, values: Mapping[str, Value]) -> Value:
        value = values[self.name]
        return value if self.field is None else {self.field: value[self.field]}

    def yaml(self) -> str:
        return self.name if self.field is None else f"{{read: {self.name}, fields: [{self.field}]}}"


@dataclass(frozen=True)
class Pipeline:
    inputs: tuple[str, ...]
    steps: Mapping[str, tuple[Reading, ...]]

    def yaml(self) -> str:
        inputs = "\n".join(f'  {name}: {{type: pair, about: "Given."}}' for name in self.inputs)
        steps = "\n".join(
            f'  {name}: {{produces: pair, reads: [{", ".join(r.yaml() for r in reads)}], prompt: "Go on."}}'
            for name, reads in self.steps.items()
        )
        return HEAD.format(inputs=inputs, steps=steps)

    def made(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """What a run on these inputs makes."""
        values = dict(given)
        for name, reads in self.steps.items():
            values[name] = answer(name, {reading.name: reading.of(values) for reading in reads})
        return values


def answer(step: str, shown: Mapping[str, Value]) -> Value:
    """What the model says: `a` differs with all it is shown; `b` has two values, so that equal ones are common."""
    seed = sha256(json.dumps([step, dict(sorted(shown.items()))], sort_keys=True).encode())
    return {"a": seed[:8], "b": "low" if int(seed[8], 16) < 8 else "high"}


def model(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    opening = items[0]
    assert isinstance(opening, TextItem)
    shown = {artifact.step: json.loads(artifact.content) for artifact in parse(opening.text).artifacts}
    return {"json": answer(request.step, shown)}


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    inputs = tuple(f"in{n}" for n in range(draw(st.integers(1, 2))))
    names, steps = list(inputs), dict[str, tuple[Reading, ...]]()
    for n in range(draw(st.integers(2, 6))):
        above = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        steps[f"s{n}"] = tuple(Reading(name, draw(st.sampled_from([None, "a", "b"]))) for name in above)
        names.append(f"s{n}")
    return Pipeline(inputs, steps)


words = st.sampled_from(["red", "blue"])
pairs = st.fixed_dictionaries({"a": words, "b": words})


def values_of(seen: Seen) -> dict[str, Value]:
    return {name: seen.value(name) for name in seen.artifacts}


@settings(max_examples=20, deadline=None)
@given(pipelines(), st.data())
def test_what_is_stale_is_what_would_be_shown_something_else(pipeline: Pipeline, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder), pipeline.yaml(), model)
        given_values = {name: data.draw(pairs) for name in pipeline.inputs}
        values = values_of(asyncio.run(house.run(given_values)))
        assert values == pipeline.made(given_values)
        shown = {name: [reading.of(values) for reading in reads] for name, reads in pipeline.steps.items()}
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(list(values)))
            values[name] = data.draw(pairs)
            asyncio.run(house.edit(name, values[name]))
            now = {step: [reading.of(values) for reading in reads] for step, reads in pipeline.steps.items()}
            assert set(asyncio.run(house.stale())) == {step for step in shown if shown[step] != now[step]}


@settings(max_examples=20, deadline=None)
@given(pipelines(), st.data())
def test_refreshing_what_is_stale_equals_a_fresh_run_on_the_edited_inputs(
    pipeline: Pipeline, data: st.DataObject
) -> None:
    """And it asks for no step that is shown what it was shown before."""
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder), pipeline.yaml(), model)
        given_values = {name: data.draw(pairs) for name in pipeline.inputs}
        asyncio.run(house.run(given_values))
        before = pipeline.made(given_values)
        for name in data.draw(st.lists(st.sampled_from(pipeline.inputs), min_size=1, max_size=2, unique=True)):
            given_values[name] = data.draw(pairs)
            asyncio.run(house.edit(name, given_values[name]))
        with house.new_requests() as asked:
            seen = asyncio.run(house.refresh())
        fresh = pipeline.made(given_values)
        assert seen.status == "succeeded"
        assert values_of(seen) == fresh
        assert asyncio.run(house.stale()) == {}
        changed = {
            name
            for name, reads in pipeline.steps.items()
            if [reading.of(before) for reading in reads] != [reading.of(fresh) for reading in reads]
        }
        assert sorted(request.step for request in asked) == sorted(changed)
