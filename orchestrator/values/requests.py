"""What is sent: the manifest of what it was made from, the items of a thread, one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.ids import digest, digest_of_plain
from orchestrator.spec import EditKind, Effort, ManifestKind
from orchestrator.values.chosen import Attachment, Block


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One recorded input of a step's first request. `note` is for people: the version, the file."""

    kind: ManifestKind
    name: str
    hash: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a step's first request was made from; its digest is the `inputs_hash` (S14)."""

    entries: tuple[ManifestEntry, ...]

    @property
    def inputs_hash(self) -> str:
        return digest_of_plain(sorted([e.kind, e.name, e.hash] for e in self.entries))


@dataclass(frozen=True, slots=True)
class Prompt:
    """A composed thread start: `system` goes as instructions, the blocks' texts concatenated as the user message."""

    system: str
    blocks: tuple[Block, ...]
    manifest: Manifest

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks)

    @property
    def files(self) -> tuple[Attachment, ...]:
        """The files of its blocks, each once, however often its artifact is placed."""
        found = {block.attachment.name: block.attachment for block in self.blocks if block.attachment is not None}
        return tuple(found.values())

    @property
    def tokens(self) -> int:
        return sum(block.tokens for block in self.blocks)


@dataclass(frozen=True, slots=True)
class TextItem:
    """A user message. `parts` concatenated are its text; `files` stand ahead of it."""

    parts: tuple[str, ...]
    files: tuple[Attachment, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The answer to one tool call, matched by `call_id`."""

    call_id: str
    output: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class OutputItem:
    """One output item of the provider, verbatim, as it must be replayed (encrypted reasoning included)."""

    data: Mapping[str, Any]


Item = TextItem | ToolOutput | OutputItem


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function tool as the provider sees it. `parameters` is a JSON Schema, `strict` where the vendors' strict modes
    take it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = True


HostedName = Literal["web_search", "web_fetch"]


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that the provider itself runs. `max_uses`: in one call; `domains` are the only ones it may look at,
    `blocked` those that it may not; each also stands for what is below it."""

    name: HostedName
    max_uses: int
    domains: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest([self.name, self.max_uses, list(self.domains), list(self.blocked)])


@dataclass(frozen=True, slots=True)
class ContextEdits:
    """What the vendor may do to a thread that has grown, each from so many tokens of input on: `compact_at`, sum up
    what stands before; `clear_tools_at`, leave out old results of tools."""

    compact_at: int | None = None
    clear_tools_at: int | None = None

    @property
    def kinds(self) -> frozenset[EditKind]:
        said: dict[EditKind, int | None] = {"compact": self.compact_at, "clear_tools": self.clear_tools_at}
        return frozenset(kind for kind, tokens in said.items() if tokens is not None)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A JSON Schema the provider is asked to follow; the name is `[A-Za-z0-9_-]{1,64}`."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, vendor-neutral. `thread` decides alone whether it is chained: synthetic → stateless, else on that id.

    When stateless, `items` holds everything; when chained, only what is new. Everything else is resent on each call.
    `background`: the vendor goes on with it while nobody listens.
    """

    model: str
    thread: str
    system: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...] = ()
    output: OutputFormat | None = None
    max_output_tokens: int = 8000
    effort: Effort | None = None
    timeout: float = 600.0
    cache_key: str | None = None
    background: bool = False
    step: str = ""
    call: int = 1
    thread_name: str = "main"
    item: str | None = None
    hosted: tuple[HostedTool, ...] = ()
    edits: ContextEdits | None = None
