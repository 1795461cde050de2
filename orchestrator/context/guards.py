"""Labels ahead of content, and who may see it.

Scope (what a value must not be used for) and access (who may see it at all) are two things. Scope travels as text with
the artifact wherever it is read (R003). Access is checked on every block after selection, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from orchestrator.attachments import MOST_IN_ALL, kind_of
from orchestrator.context.select import Chosen
from orchestrator.errors import AccessRefused, StepFailed
from orchestrator.frame import FramedArtifact
from orchestrator.graph import StepNode
from orchestrator.spec import SENSITIVITY_RANK, Sensitivity
from orchestrator.values import Block


def framed(chosen: Chosen) -> FramedArtifact:
    """The read under its label: the contract's guards, those its version inherited, the reading step's own."""
    contract = chosen.read.contract
    return FramedArtifact(
        step=chosen.read.called,
        type=contract.name,
        about=contract.about,
        not_for=not_for(chosen),
        content=chosen.content,
        guard=chosen.read.guard,
        default=chosen.default,
    )


def not_for(chosen: Chosen) -> tuple[str, ...]:
    """The guards of a value, each once: its contract's, then those that came with its figures."""
    inherited = chosen.version.guards if chosen.version else ()
    return tuple(dict.fromkeys((*chosen.read.contract.not_for, *inherited)))


def sensitivity_of(chosen: Chosen) -> Sensitivity:
    """The higher of what the contract says now and what the version was made under."""
    said = [chosen.read.contract.sensitivity, *([chosen.version.sensitivity] if chosen.version else [])]
    return highest(said)


def highest(levels: Iterable[Sensitivity]) -> Sensitivity:
    """The most sensitive of the levels; `public` for none."""
    return max(levels, key=lambda level: SENSITIVITY_RANK[level], default="public")


def may_be_sent(level: Sensitivity, may_see: Sensitivity) -> bool:
    """Whether something of this level may go to a provider that may see so much."""
    return SENSITIVITY_RANK[level] <= SENSITIVITY_RANK[may_see]


def check_access(step: str, blocks: Iterable[Block], may_see: Sensitivity, provider_name: str) -> None:
    """Raises AccessRefused for the first block that the provider may not see."""
    for block in blocks:
        if not may_be_sent(block.sensitivity, may_see):
            raise AccessRefused(
                f"{step} would send {_name(block)}, which is {block.sensitivity}, to {provider_name}, "
                f"which may see {may_see} at most; nothing was sent",
                hint=_way_out(step, block, provider_name),
                code="sensitivity",
            )


def tool_levels(step: StepNode) -> list[Sensitivity]:
    """How sensitive what its tools give is, where they say so by a contract."""
    return [tool.shape.returns.sensitivity for tool in step.tools if tool.shape.returns is not None]


def check_tools(step: StepNode, may_see: Sensitivity, provider_name: str) -> None:
    """Raises AccessRefused for the first tool whose results the provider may not see: before it is ever called."""
    for tool in step.tools:
        contract = tool.shape.returns
        if contract is not None and not may_be_sent(contract.sensitivity, may_see):
            raise AccessRefused(
                f"{step.name} would send what {tool.spec.name} gives, which is {contract.sensitivity}, to "
                f"{provider_name}, which may see {may_see} at most; nothing was sent",
                hint=f'take the tool out of {step.name}, or set may_see = "{contract.sensitivity}" under '
                f"[providers.{provider_name}] in the project file",
                code="sensitivity",
            )


def check_files(step: StepNode, blocks: Iterable[Block], accepts: Collection[str], provider_name: str) -> None:
    """Raises StepFailed for the first file that the step's model does not take, and for more than one request holds."""
    files = [block.attachment for block in blocks if block.attachment is not None]
    model = f"{provider_name}:{step.model.model}" if step.model is not None else provider_name
    for file in files:
        if kind_of(file.media) not in accepts:
            known = ", ".join(sorted(accepts)) or "neither images nor documents"
            raise StepFailed(
                f"{step.name} would send {file.name} ({file.media}) to {model}, which takes {known}; nothing was sent",
                hint=f"give {step.name} another model; a server that takes them is told by accepts under "
                f"[providers.{provider_name}] in the project file",
                code="not_sendable",
            )
    size = sum(len(file.body) for file in files)
    if size > MOST_IN_ALL:
        raise StepFailed(
            f"the files that {step.name} reads hold {size:,} bytes together, and a request {MOST_IN_ALL:,} at most "
            f"({', '.join(file.name for file in files)}); nothing was sent",
            hint="read fewer of them in one step, or give smaller ones",
            code="not_sendable",
        )


def _name(block: Block) -> str:
    own = {"message": "the run's message", "draft": "its own current version", "comment": "the comment"}
    return own.get(block.layer, block.source)


def _way_out(step: str, block: Block, provider_name: str) -> str:
    allow = f'set may_see = "{block.sensitivity}" under [providers.{provider_name}] in the project file'
    other = {
        "conversation": f"give {step} `conversation: off`",
        "artifact": f"take {block.source} out of the reads of {step}",
    }.get(block.layer, f"give {step} a model that may see it")
    return f"{other}, or {allow}"
