"""The models that the steps of one run have of their own, beside what its file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.building.models import Models
from orchestrator.errors import Diagnostic, UsageError
from orchestrator.faults import nearest
from orchestrator.graph import Graph, ModelChoice, StepNode
from orchestrator.settings import Settings
from orchestrator.spec import ModelSpec, Places, StepSpec


def with_models(graph: Graph, settings: Settings, models: Mapping[str, str]) -> Graph:
    """The graph with another model for these steps: an alias of the pipeline, or `provider:model`. Steps that the file
    does not have any more are passed over. Raises UsageError for a model that is none."""
    steps = {
        name: replace(graph.steps[name], model=choice(graph, settings, graph.steps[name], text))
        for name, text in models.items()
        if name in graph.steps
    }
    return replace(graph, steps={**graph.steps, **steps}) if steps else graph


def choice(graph: Graph, settings: Settings, node: StepNode, text: str) -> ModelChoice:
    """This model for a step. What the step says for itself holds for it too. One named outright keeps the step's limit
    of output; the effort of the step's alias does not go over, as it is another model's. Raises UsageError."""
    declared, found = graph.spec.steps.get(node.name, StepSpec()), list[Diagnostic]()
    spec = graph.spec
    if ":" in text:
        spec = spec.model_copy(update={"models": {text: ModelSpec(use=text)}})
    models = Models.of(spec, settings, Places(graph.file), found.append)
    chosen = models.choose(node.name, declared.model_copy(update={"model": text}))
    if text in models.unset:
        raise models.unset[text].error()
    if chosen is None:
        message = found[0].message if found else f"{text} is no model"
        known = nearest(text, [*graph.spec.models, "provider:model"])
        raise UsageError(message.removeprefix(f"model alias {text}: "), hint=found[0].hint if found else known)
    if ":" in text and node.model is not None:
        chosen = replace(chosen, max_output_tokens=node.model.max_output_tokens)
    return chosen
