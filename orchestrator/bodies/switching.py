"""Which models may stand in for a step's own, now that it is known what the thread will hold."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.attachments import kind_of
from orchestrator.bodies.asking import Walk, output_format
from orchestrator.context.guards import may_be_sent
from orchestrator.fallbacks import Candidate
from orchestrator.frame import escape
from orchestrator.graph import StepNode
from orchestrator.providers.base import Traits
from orchestrator.spec import Sensitivity
from orchestrator.thread import form_in_words
from orchestrator.values import Context


def fallbacks_of(walk: Walk, level: Sensitivity, context: Context) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """The fallbacks of the step's model, and of those that may not see what the thread holds, or cannot do with it, why
    (S21). `level` is the highest of all that it holds."""
    step, model = walk.step, walk.step.model
    assert model is not None
    found: list[Candidate] = []
    barred: list[str] = []
    for choice in model.fallbacks:
        provider = walk.services.providers.get(choice.provider)
        if not may_be_sent(level, provider.traits.may_see):
            barred.append(f"{choice.name}, which may see {provider.traits.may_see} at most; what is sent is {level}")
            continue
        lacking = _lacking(step, context, provider.traits)
        if lacking:
            barred.append(f"{choice.name}, which takes no {', '.join(lacking)}")
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
                edits=choice.edits,
            )
        )
    return tuple(found), tuple(barred)


def _lacking(step: StepNode, context: Context, traits: Traits) -> list[str]:
    """What a step needs of its provider and this one does not have: kinds of files, tools of its own."""
    files = {kind_of(block.attachment.media) for block in context.blocks if block.attachment is not None}
    return sorted({*files - traits.accepts, *(tool.name for tool in step.hosted if tool.name not in traits.hosted)})
