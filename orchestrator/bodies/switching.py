"""Which models may stand in for a step's own, now that it is known what the thread will hold."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.bodies.asking import Walk, output_format
from orchestrator.context.guards import may_be_sent
from orchestrator.fallbacks import Candidate
from orchestrator.frame import escape
from orchestrator.spec import Sensitivity
from orchestrator.thread import form_in_words


def fallbacks_of(walk: Walk, level: Sensitivity) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """The fallbacks of the step's model, and of those that may not see what the thread holds, why (S21). `level` is the
    highest of all that it holds."""
    step, model = walk.step, walk.step.model
    assert model is not None
    found: list[Candidate] = []
    barred: list[str] = []
    for choice in model.fallbacks:
        provider = walk.services.providers.get(choice.provider)
        if not may_be_sent(level, provider.traits.may_see):
            barred.append(f"{choice.name}, which may see {provider.traits.may_see} at most; what is sent is {level}")
            continue
        unsaid = choice.structured == "prompt" and model.structured == "native"
        found.append(
            Candidate(
                provider=provider,
                model=choice.model,
                effort=choice.effort,
                max_output_tokens=choice.max_output_tokens,
                output=output_format(replace(step, model=choice)),
                form=escape(form_in_words(step.contract)) if unsaid else "",
                background=choice.background,
            )
        )
    return tuple(found), tuple(barred)
