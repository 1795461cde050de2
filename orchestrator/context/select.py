"""What may enter a step's first request: its declared reads, in one fixed order, and nothing that is not declared.

The order makes equal beginnings equal bytes: reads with contract guards only come first, in the pipeline's topological
order, then reads with a guard of this step's own. So steps that read more and more share a prefix, and with it the
provider's prompt cache. What only one item of a step reads, its entry for one, comes last, for the same reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.attachments import NotSendable, attached, is_text, placeholder
from orchestrator.errors import StepFailed, UsageError
from orchestrator.fan_out import INDEX, missing_line
from orchestrator.graph import Graph, Read, StepNode
from orchestrator.ids import canonical_json
from orchestrator.spec import MISSING
from orchestrator.values import Artifact, ArtifactVersion, Attachment, LeftOut, Message, Snapshot, Statement


@dataclass(frozen=True, slots=True)
class Chosen:
    """A read and the text that stands for it. `version` None = the read's own default; `default` = nobody gave it.
    `attachment`: the value is a file that goes beside the text; `summary`: it is too large, and summed up."""

    read: Read
    version: ArtifactVersion | None
    content: str
    default: bool
    attachment: Attachment | None = None
    summary: bool = False


def choose(graph: Graph, step: StepNode, snapshot: Snapshot) -> tuple[Chosen, ...]:
    """The step's reads in frame order. Raises UsageError for one that has no value yet and no default."""
    reads = sorted(
        step.reads,
        key=lambda read: (_of_one(read), read.guard is not None, read.kind == "entry", graph.rank[read.source]),
    )
    return tuple(
        entry
        for read in reads
        for entry in (_each(step, read, snapshot) if read.takes == "each" else [_chosen(step, read, snapshot)])
    )


def _of_one(read: Read) -> bool:
    """Whether only one item reads it."""
    return read.kind == "entry" or read.takes == "sibling"


def _each(step: StepNode, read: Read, snapshot: Snapshot) -> Iterator[Chosen]:
    """The items of a step by key, each a read of its own; ahead of them one line where some are missing."""
    index = snapshot.artifacts.get(read.name)
    if index is None:
        yield _chosen(step, read, snapshot)
        return
    items = snapshot.items.get(read.name, {})
    line = missing_line(json.loads(index.body), len(items))
    if line is not None:
        told = replace(read, contract=INDEX, fields=None, guard=None)
        yield Chosen(told, index.version, line, default=False)
    for key, artifact in sorted(items.items()):
        one = replace(read, name=f"{read.name}/{key}", alias=f"{read.alias}/{key}" if read.alias else "")
        yield _taken(step, one, artifact, default=False)


def _chosen(step: StepNode, read: Read, snapshot: Snapshot) -> Chosen:
    artifact = snapshot.artifacts.get(read.name)
    if artifact is None:
        if read.default is MISSING:
            raise UsageError(
                f"{step.name} reads {read.name}, which has no value yet",
                hint=f"run the pipeline as far as {read.name} first, or give the read a `default`",
                place=read.place,
            )
        return Chosen(read, None, default_text(read), default=True)
    unstated = _is_default(read.name, artifact.version, snapshot)
    return _taken(step, read, artifact, default=unstated)


def _taken(step: StepNode, read: Read, artifact: Artifact, *, default: bool) -> Chosen:
    """A value as it is sent: as text, or a file that is none beside it."""
    if read.contract.form != "file" or is_text(artifact.body):
        return Chosen(read, artifact.version, _content(read, artifact.body), default)
    try:
        attachment = attached(read.called, artifact.body)
    except NotSendable as error:
        raise StepFailed(
            f"{read.name} cannot be sent to a model by {step.name}: it is {error}; nothing was sent",
            hint=error.hint,
            code="not_sendable",
            place=read.place,
        ) from error
    return Chosen(read, artifact.version, placeholder(attachment), default, attachment)


def _is_default(name: str, version: ArtifactVersion, snapshot: Snapshot) -> bool:
    """Whether an input still holds its declared default: nobody gave it, and nobody has edited it since."""
    return version.origin == "input" and name in snapshot.defaulted


def default_text(read: Read) -> str:
    """The declared default as content: text as it is, anything else as canonical JSON."""
    return read.default if isinstance(read.default, str) else canonical_json(read.default).decode()


def _content(read: Read, body: bytes) -> str:
    """The stored bytes as text, or the read's fields of them, in the order they are stored in."""
    text = body.decode()
    if read.fields is None:
        return text
    value = json.loads(text)
    return canonical_json({name: value[name] for name in value if name in read.fields}).decode()


NOT_DECLARED: Final = "not declared: the step does not read it"


def not_declared(graph: Graph, step: StepNode) -> tuple[LeftOut, ...]:
    """What lies upstream of a step and is not sent, because the step does not read it: names only.

    It follows from the pipeline alone, so it is told where somebody asks and not stored with every thread: a long
    pipeline would store the square of its length.
    """
    read = {entry.source for entry in step.reads}
    names = sorted(_upstream(graph, step) - read, key=graph.rank.__getitem__)
    return tuple(LeftOut("artifact", name, NOT_DECLARED) for name in names)


def fields_left(step: StepNode) -> tuple[LeftOut, ...]:
    """The fields of what a step reads that it does not ask for."""
    return tuple(left for entry in step.reads for left in _fields_left(entry))


def _upstream(graph: Graph, step: StepNode) -> frozenset[str]:
    found: set[str] = set(graph.inputs)
    waiting = list(step.parents)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.steps[name].parents
    return frozenset(found)


def _fields_left(read: Read) -> Iterator[LeftOut]:
    if read.fields is not None:
        for name in read.contract.fields:
            if name not in read.fields:
                yield LeftOut("artifact", f"{read.name}.{name}", "not declared: not among the fields of the read")


# --- what the customer said -------------------------------------------------------------------------------------------


def statements(
    graph: Graph, chosen: Sequence[Chosen], snapshot: Snapshot, sent: Sequence[Message]
) -> tuple[Statement, ...]:
    """The customer's own words: inputs they gave (a default is nobody's word), their turns, the run's message.

    To these comes what is on record in the reads: customer facts that a person wrote into them, and facts found earlier
    in words that are not at hand any more.
    """
    read = {entry.read.source for entry in chosen}
    handed = _handed(graph, chosen)
    given = [
        Statement(
            name,
            artifact.body.decode("utf-8", "replace"),
            "input",
            handed.get(name, name),
            name in read or name in handed,
            _guarded(graph, name),
        )
        for name, artifact in snapshot.record.items()
        if not _is_earlier(graph, name)
        and not _is_default(name, artifact.version, snapshot)
        and artifact.version.origin != "import"
    ]
    turns = [
        Statement(f"message {turn.seq}", turn.text, "turn", None, turn in sent)
        for turn in snapshot.conversation
        if turn.role == "user"
    ]
    message = [Statement("message", snapshot.message, "turn", None, True)] if snapshot.message else []
    comment = snapshot.redo.comment if snapshot.redo else None
    asked = [Statement(f"message {comment.seq}", comment.text, "turn", None, True)] if comment else []
    said = (*given, *turns, *message, *asked)
    sources = {statement.source for statement in said}
    return (*said, *(record for entry in chosen for record in _on_record(entry, sources)))


def _is_earlier(graph: Graph, name: str) -> bool:
    """Whether an earlier run made it: then it is nobody's word in this one."""
    return name in graph.inputs and graph.inputs[name].earlier is not None


def _handed(graph: Graph, chosen: Sequence[Chosen]) -> dict[str, str]:
    """The run's inputs that a used pipeline is given as they are, by what the step calls them: the customer's own words
    are that there too, however many pipelines lie between."""
    found: dict[str, str] = {}
    for entry in chosen:
        node = graph.steps.get(entry.read.source)
        while node is not None and node.hand is not None and not node.hand.path and len(node.reads) == 1:
            source = node.reads[0].source
            if source in graph.inputs:
                found[source] = entry.read.called
            node = graph.steps.get(source)
    return found


def _guarded(graph: Graph, name: str) -> bool:
    """Whether an input says what it must not be used for: then it answers only the field of its own name."""
    return name in graph.inputs and bool(graph.inputs[name].contract.not_for)


def _on_record(entry: Chosen, sources: Collection[str]) -> Iterator[Statement]:
    contract, version = entry.read.contract, entry.version
    if version is None or not contract.customer_fields:
        return
    value = json.loads(entry.content)
    for pattern in contract.customer_fields:
        for path, found in _values(value, re.findall(r"\[\]|[^.\[\]]+", pattern), ""):
            basis = version.facts.get(path)
            if version.origin == "person" or (basis is not None and basis.source not in sources):
                label = re.split(r"[.\]]", path)[-1] or None
                yield Statement(entry.read.name, found, "record", label, True)


def _values(value: object, parts: Sequence[str], path: str) -> Iterator[tuple[str, str]]:
    """The known values at a path whose `[]` stands for every entry, with their own paths."""
    if not parts:
        if value is not None:
            yield path, value if isinstance(value, str) else canonical_json(value, indent=None).decode()
    elif parts[0] == "[]":
        for at, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, parts[1:], f"{path}[{at}]")
    elif isinstance(value, dict):
        yield from _values(value.get(parts[0]), parts[1:], f"{path}.{parts[0]}".lstrip("."))
