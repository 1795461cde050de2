"""Whether a graph's models can be asked for what its steps want of them: told before anything is sent.

Needs no key and no connection: what a provider can do is known from its settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from orchestrator.bodies.asking import Services
from orchestrator.errors import ConfigError
from orchestrator.graph import Graph, ModelChoice, StepNode
from orchestrator.providers.base import Traits
from orchestrator.providers.registry import Providers
from orchestrator.values import HostedTool


def check_models(services: Services, graph: Graph, *, with_key: bool = True) -> tuple[str, ...]:
    """Every provider the graph needs can be opened; gives the base URLs it sends to. Raises ConfigError.

    `with_key=False` is for looking only: what would be sent can be shown without a key.
    """
    opened = services.providers.get if with_key else services.providers.offline
    hosts: dict[str, None] = {}
    for step in graph.steps.values():
        if step.asks:
            if step.model is None:
                raise ConfigError(
                    f"{step.name} has no model",
                    hint="set ORCH_MODEL=provider:model, for instance ORCH_MODEL=openai:gpt-6-luna",
                )
            for model, tools in _may_ask(step):
                traits = opened(model.provider).traits
                for fault in _unfit(step, model, traits, tools):
                    raise fault
                hosts[traits.base_url] = None
    return tuple(hosts)


def model_faults(providers: Providers, graph: Graph) -> Iterator[tuple[StepNode | None, ConfigError]]:
    """All for which `check_models` would refuse the graph without a key, as far as its models are known: each with its
    step, or without one where the provider itself cannot be opened."""
    for step in graph.steps.values():
        for model, tools in _may_ask(step) if step.asks else ():
            try:
                traits = providers.offline(model.provider).traits
            except ConfigError as fault:
                yield None, fault
            else:
                yield from ((step, fault) for fault in _unfit(step, model, traits, tools))


def _may_ask(step: StepNode) -> Iterator[tuple[ModelChoice, Sequence[HostedTool]]]:
    """Each model that may be asked, and what it is to run itself: one that only sums up has no tools."""
    for chosen in step.models:
        for model in chosen.candidates:
            yield model, step.hosted if chosen is step.model else ()


def _unfit(step: StepNode, model: ModelChoice, traits: Traits, tools: Sequence[HostedTool]) -> Iterator[ConfigError]:
    """What a step wants of a model that its provider does not do."""
    if model.background and not traits.background:
        yield ConfigError(
            f"{step.name} calls its model in the background, and {traits.name} keeps no answers",
            hint=f"take `background` from the model alias {model.alias}, or use a provider that stores",
        )
    lacking = model.edits.kinds - traits.edits if model.edits is not None else frozenset()
    if lacking:
        keys = ", ".join(f"{kind}_at" for kind in sorted(lacking))
        yield ConfigError(
            f"{step.name} lets its model's provider edit its thread, and {traits.name} has no such way: {keys}",
            hint=f"take {keys} from `vendor_context` of the model alias {model.alias}, or use another provider",
        )
    for tool in tools:
        if tool.name not in traits.hosted:
            known = ", ".join(sorted(traits.hosted)) or "none"
            where = f"{traits.name} at {urlsplit(traits.base_url).netloc or 'no host'}"
            yield ConfigError(
                f"{step.name} wants {tool.name}, which {where} does not run; tools of its own: {known}",
                hint=f"give {step.name} another model or a function of yours as its tool; a server that has it is told "
                f"by hosted_tools under [providers.{traits.name}] in the project file",
            )
        elif tool.blocked and "blocked" not in traits.hosted_can:
            yield ConfigError(
                f"{step.name}: {traits.name} cannot leave domains out of {tool.name}",
                hint="name the `domains` that it may look at instead",
            )
