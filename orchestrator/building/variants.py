"""A step made in another way: with another template, prompt or model, checked like the pipeline it belongs to.

Nothing on disk changes. The pipeline is built anew with the one step replaced, so whatever would be wrong with it as a
part of the file is found here too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.building import built, finished
from orchestrator.building.choices import choice
from orchestrator.errors import UsageError
from orchestrator.graph import Graph, StepNode
from orchestrator.loading import Loaded
from orchestrator.project import Project
from orchestrator.settings import Settings
from orchestrator.spec import StepSpec


@dataclass(frozen=True, slots=True)
class Variation:
    """What is different: `template` a file of the shelf, `prompt` a text with the name it goes by, `model` an alias or
    `provider:model`. None leaves it as it is declared."""

    template: str | None = None
    prompt: tuple[str, str] | None = None
    model: str | None = None

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.template, self.prompt, self.model))


def varied(project: Project, settings: Settings, loaded: Loaded, step: str, variation: Variation) -> Graph:
    """The pipeline with the step made differently. Raises InvalidProject with every fault of a template or prompt,
    UsageError for a model that is none, or a task given to a step that has its own in Python."""
    assert loaded.spec is not None
    if step not in loaded.spec.steps:
        uses = step.partition(".")[0]
        raise UsageError(
            f"{step} belongs to the pipeline that {uses} uses, and is made differently only where that runs itself",
            hint=f"change it in the file of that pipeline; see `uses` of {uses}",
            code="used_pipeline",
        )
    changed = _task(loaded, step, loaded.spec.steps[step], variation)
    named = variation.model is not None and ":" not in variation.model
    if named and variation.model is not None:
        changed = _with_step(_placed(changed, step, "model", variation.model), step, {"model": variation.model})
    graph = finished(*built(project, settings, changed), require_model=not variation.model or named)
    node = _named(graph.steps[step], variation)
    if variation.model is not None and not named:
        node = replace(node, model=choice(graph, settings, node, variation.model))
    return replace(graph, steps={**graph.steps, step: node})


def _task(loaded: Loaded, step: str, spec: StepSpec, variation: Variation) -> Loaded:
    if variation.template is None and variation.prompt is None:
        return loaded
    if variation.template is not None and variation.prompt is not None:
        raise UsageError("a step has one task", hint="give it another template or another prompt, not both")
    if spec.python is not None:
        hint = f"its questions stand in {spec.python}; another model can be tried all the same"
        raise UsageError(f"{step} is made by a Python function, so it has no template to replace", hint=hint)
    if variation.prompt is not None:
        name, text = variation.prompt
        placed = replace(loaded, places=loaded.places.with_text(name, text, "steps", step, "prompt"))
        return _with_step(placed, step, {"prompt": text, "template": None})
    ref = variation.template or ""
    changed = _with_step(_placed(loaded, step, "template", ref), step, {"template": _from_here(ref), "prompt": None})
    return replace(changed, bases={**loaded.bases, (step, "template"): loaded.path})


def _placed(loaded: Loaded, step: str, key: str, text: str) -> Loaded:
    """A fault of what was typed stands where it was typed."""
    return replace(loaded, places=loaded.places.with_text(f"--{key}", text, "steps", step, key))


def _with_step(loaded: Loaded, step: str, changes: dict[str, Any]) -> Loaded:
    assert loaded.spec is not None
    steps = {**loaded.spec.steps, step: loaded.spec.steps[step].model_copy(update=changes)}
    return replace(loaded, spec=loaded.spec.model_copy(update={"steps": steps}))


def _from_here(ref: str) -> str:
    """A file that stands where the user is comes before the shelf."""
    here = Path(ref).resolve()
    return str(here) if here.is_file() else ref


def _named(node: StepNode, variation: Variation) -> StepNode:
    """The task under the name the user gave it: this is how plans and traces speak of it."""
    name = variation.prompt[0] if variation.prompt is not None else variation.template
    if name is None or node.template is None:
        return node
    return replace(node, template=replace(node.template, name=name))
