"""A strict reader of YAML: data with the place of every part, or faults that name a place. It never guesses.

PyYAML composes the nodes; what a plain scalar means is decided here, by the core schema of YAML 1.2: `no`, `off` and
`2026-11-30` are text, `1e3` is a number, and what readers understand differently (`08`) is refused. So are duplicate
keys, tabs, tags, directives, several documents, recursive aliases, and texts that are cut by `#` or a comma where a
guard was meant. Size, depth and the expansion of aliases are bounded (S25), whatever stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from yaml.composer import Composer
from yaml.error import MarkedYAMLError
from yaml.events import AliasEvent, DocumentStartEvent, Event, StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from orchestrator.errors import Diagnostic, Place
from orchestrator.spec import PathKey
from orchestrator.yaml_syntax import GUARD_KEYS, cut_by_comma, cut_by_hash, explain_syntax

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 64
MAX_NODES: Final = 50_000
MAX_TEXT: Final = 4 * MAX_BYTES
MAX_DIGITS: Final = 64
MAX_FAULTS: Final = 500
KEY: Final = "\x00key"  # the last part of a path that means a mapping's key; no text of a file holds NUL

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LINE_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_Mark = Any  # PyYAML's mark, of which there are two classes without a common base
# Data of the user's own: nothing in it is a guard, whatever its keys are called.
_OPAQUE = frozenset({"schema", "default", "with"})
_NAMED_PARTS = frozenset({"steps", "inputs", "artifacts", "models"})


@dataclass(slots=True)
class Document:
    """What a file holds: `data`, the place of each value and key by path, and the faults found while reading.

    `raw` keeps the text of numbers and words as written; `data` is None where nothing could be read.
    """

    file: str
    text: str = ""
    lines: list[str] = field(default_factory=list)
    data: Any = None
    places: dict[PathKey, Place] = field(default_factory=dict)
    raw: dict[PathKey, str] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def report(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        if len(self.diagnostics) == MAX_FAULTS:
            code, message, hint = "P012", f"the file has more faults than these {MAX_FAULTS}", "Mend these first."
        elif len(self.diagnostics) > MAX_FAULTS:
            return
        source = self.lines[place.line - 1] if 0 < place.line <= len(self.lines) else None
        self.diagnostics.append(Diagnostic(code, message, place, hint, source))


def read_yaml(body: bytes, file: str) -> Document:
    """The data of a YAML file. Never raises for what the bytes hold; `file` is the name used in places."""
    document = Document(file)
    text = _decoded(body, document)
    if text is None:
        return document
    composer = _Composer(document, text)
    try:
        root = composer.root()
        if root is not None:
            document.data = _Builder(document).value(root, ())
            if document.data is None and not document.diagnostics:
                document.report("P004", "the file is empty", Place(file, 1, 1))
    except MarkedYAMLError as error:
        fault = explain_syntax(error, document.lines)
        document.report(fault.code, fault.message, Place(file, fault.line, fault.column), fault.hint)
    except _Refused as refused:
        document.report(refused.code, refused.message, _place(file, refused.mark), refused.hint)
    except (ValueError, OverflowError):
        # An escape for a character beyond Unicode ("\UFFFFFFFF") is the parser's own ValueError.
        message, hint = "this escape names a character that does not exist", "Use single quotes if it is meant as text."
        document.report("P006", message, _place(file, composer.get_mark()), hint)
    return document


class _Refused(Exception):
    """Reading stops here: a limit is passed, or what stands here has no meaning for us."""

    def __init__(self, code: str, message: str, mark: _Mark, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.mark, self.hint = code, message, mark, hint


def _place(file: str, mark: _Mark) -> Place:
    return Place(file, mark.line + 1, mark.column + 1) if mark is not None else Place(file)


def _decoded(body: bytes, document: Document) -> str | None:
    """The text of the bytes, without a byte order mark; None after a fault."""
    whole = Place(document.file)
    if len(body) > MAX_BYTES:
        document.report("P002", f"the file is larger than {MAX_BYTES:,} bytes", whole, "Move long texts to templates.")
        return None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _offset(document.file, body[: error.start].decode("utf-8", "replace"))
        document.report("P003", "the file is not UTF-8 text", place, "Save it as UTF-8.")
        return None
    document.text, document.lines = text, text.splitlines()
    bad = Reader.NON_PRINTABLE.search(text)
    if bad is not None:
        message = f"a control character (U+{ord(bad[0]):04X}) stands here"
        document.report("P003", message, _offset(document.file, text[: bad.start()]), "Remove it.")
        return None
    return text


def _offset(file: str, before: str) -> Place:
    """The place right behind a text."""
    breaks = list(_LINE_BREAK.finditer(before))
    return Place(file, len(breaks) + 1, len(before) - (breaks[-1].end() if breaks else 0) + 1)


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without any resolver: one document, no tags, bounded depth."""

    def __init__(self, document: Document, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.document = document
        self.depth = 0
        self.nodes = 0

    def root(self) -> Node | None:
        """The only document's root node; None after a fault."""
        self.get_event()  # type: ignore[no-untyped-call]
        if self.check_event(StreamEndEvent):
            self.document.report("P004", "the file is empty", Place(self.document.file, 1, 1))
            return None
        start = self.next_event()
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            raise _Refused("P009", "directives are not used here", start.start_mark, "Remove the lines before '---'.")
        node = self.compose_document()
        if not self.check_event(StreamEndEvent):
            mark = self.next_event().start_mark
            raise _Refused("P009", "a second document begins here", mark, "Keep one document in a file.")
        return node

    def next_event(self) -> Event:
        event: Event = self.peek_event()  # type: ignore[no-untyped-call]
        return event

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.next_event()
        mark = event.start_mark
        if self.depth >= MAX_DEPTH:
            raise _Refused("P012", f"this is nested deeper than {MAX_DEPTH} levels", mark, "Nest less.")
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _Refused("P012", f"the file holds more than {MAX_NODES:,} values", mark, "Split it.")
        if not isinstance(event, AliasEvent) and getattr(event, "tag", None) is not None:
            message, hint = "'!' begins a tag, and tags are not used here", "Quote the value if it is meant as text."
            self.document.report("P010", message, _place(self.document.file, mark), hint)
        self.depth += 1
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Builder:
    """Nodes → data: scalars get their type, mappings their unique keys, every part its place."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.lines = document.lines
        self.nodes = 0
        self.chars = 0
        self.open: list[Node] = []

    def value(self, node: Node, path: PathKey) -> Any:
        self.document.places[path] = _place(self.document.file, node.start_mark)
        self.nodes += 1
        if self.nodes > MAX_NODES or self.chars > MAX_TEXT:
            message, hint = "the file holds too much, each use of an alias counted", "Split it; use fewer aliases."
            raise _Refused("P012", message, node.start_mark, hint)
        if isinstance(node, ScalarNode):
            return self.scalar(node, path)
        if any(node is parent for parent in self.open):
            raise _Refused("P011", "this alias stands inside of what it refers to", node.start_mark, "Write it out.")
        if len(self.open) >= MAX_DEPTH:
            raise _Refused("P012", f"this is nested deeper than {MAX_DEPTH} levels", node.start_mark, "Nest less.")
        self.open.append(node)
        result: Any
        if isinstance(node, MappingNode):
            result = self.mapping(node, path)
        else:
            assert isinstance(node, SequenceNode)
            result = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            self.guard_entries(node, path)
        self.open.pop()
        return result

    def mapping(self, node: MappingNode, path: PathKey) -> dict[str, Any]:
        result: dict[str, Any] = {}
        previous: tuple[str, Node] | None = None
        cut: list[str] = []
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key is None:
                continue
            if previous is not None and node.flow_style and self.is_cut(previous, key_node, value_node, path):
                cut.append(key)
                continue
            self.report_cut(previous, cut, path)
            previous, cut = (key, value_node), []
            if key in result:
                self.duplicate(key, key_node, path)
                continue
            self.document.places[(*path, key, KEY)] = _place(self.document.file, key_node.start_mark)
            result[key] = self.value(value_node, (*path, key))
            if key in GUARD_KEYS and isinstance(value_node, ScalarNode):
                self.guard_text(key, value_node, path)
        self.report_cut(previous, cut, path)
        return result

    def key(self, node: Node) -> str | None:
        """A mapping's key; anything but text is refused, because readers disagree about `1:` and `true:`."""
        place, key = _place(self.document.file, node.start_mark), None
        if isinstance(node, ScalarNode):
            key = node.value if node.style is not None else self.plain(node.value, place)
        if not isinstance(key, str):
            hint = f'Quote it: "{node.value}"' if isinstance(node, ScalarNode) and node.value else "Write a text."
            self.document.report("P014", "a key must be text", place, hint)
            return None
        return self.clean(key, place)

    def duplicate(self, key: str, node: Node, path: PathKey) -> None:
        first = self.document.places[(*path, key, KEY)]
        place = _place(self.document.file, node.start_mark)
        message = f"the key {key!r} stands here a second time; the first is at {first}"
        self.document.report("P008", message, place, "Keep one of the two.")

    def scalar(self, node: ScalarNode, path: PathKey) -> Any:
        self.chars += len(node.value)
        place = self.document.places[path]
        if node.style is not None:
            return self.clean(node.value, place)
        value = self.plain(node.value, place)
        if not isinstance(value, str):
            self.document.raw[path] = node.value
        return value

    def plain(self, text: str, place: Place) -> Any:
        """What a scalar without quotes means, by the core schema of YAML 1.2, less what cannot be trusted."""
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _LEADING_ZERO.fullmatch(text) or _NOT_FINITE.fullmatch(text):
            return self.no_number(text, place)
        is_int = _INT.fullmatch(text) is not None
        if not is_int and _FLOAT.fullmatch(text) is None:
            return text
        if len(text) > MAX_DIGITS:
            return self.no_number(text, place)
        if is_int:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        value = float(text)
        return value if abs(value) != float("inf") else self.no_number(text, place)

    def no_number(self, text: str, place: Place) -> str:
        hint = f'Quote it if it is text: "{text}"; else write a plain number.'
        self.document.report("P013", f"{_short(text)} is not a number that every reader understands alike", place, hint)
        return text

    def clean(self, text: str, place: Place) -> str:
        """Text that UTF-8 can hold: half of a surrogate pair, written as an escape, is refused."""
        if _SURROGATE.search(text) is None and "\x00" not in text:
            return text
        message = "an escape in this text names half a character or NUL"
        self.document.report("P003", message, place, "Write the character itself.")
        return _SURROGATE.sub("\ufffd", text).replace("\x00", "\ufffd")

    # --- texts that were meant whole ---

    def guard_entries(self, node: SequenceNode, path: PathKey) -> None:
        if path and path[-1] == "not_for":
            for item in node.value:
                if isinstance(item, ScalarNode):
                    self.guard_text("not_for", item, path[:-1])

    def guard_text(self, key: str, node: ScalarNode, path: PathKey) -> None:
        """Reports a comment right behind a guard that is not quoted: the rest of the guard, as likely as not."""
        if node.style is not None or _is_opaque(path):
            return
        line = self.lines[node.end_mark.line] if node.end_mark.line < len(self.lines) else ""
        rest = re.match(r"[ \t]*#\s*(?P<rest>.*?)\s*$", line[node.end_mark.column :])
        if rest is not None and rest["rest"]:
            message, hint = cut_by_hash(key, rest["rest"])
            self.document.report("P015", message, _place(self.document.file, node.start_mark), hint)

    def is_cut(self, previous: tuple[str, Node], key_node: Node, value_node: Node, path: PathKey) -> bool:
        """Whether a key of a flow mapping is the tail of the guard before it: no `:`, right after a plain guard."""
        key, guard = previous
        plain = isinstance(guard, ScalarNode) and guard.style is None and bool(guard.value)
        bare = isinstance(value_node, ScalarNode) and value_node.style is None and not value_node.value
        # A bare key has no `:`; its empty value then stands right behind the key itself.
        bare = bare and value_node.start_mark.index == key_node.end_mark.index
        return key in GUARD_KEYS and plain and bare and not _is_opaque(path)

    def report_cut(self, previous: tuple[str, Node] | None, cut: list[str], path: PathKey) -> None:
        if previous is not None and cut:
            message, hint = cut_by_comma(previous[0], ", ".join(cut))
            self.document.report("P016", message, self.document.places[(*path, previous[0])], hint)


def _is_opaque(path: PathKey) -> bool:
    """Whether a path lies in data of the user's own (a JSON Schema, a default, an extra)."""
    return any(part in _OPAQUE or part.startswith("x-") for part in _fixed_keys(path))


def _fixed_keys(path: PathKey) -> Iterator[str]:
    """The parts of a path that are keys of ours, and not names the user chose (a step may be called `default`)."""
    for index, part in enumerate(path):
        if isinstance(part, str) and not (index and path[index - 1] in _NAMED_PARTS):
            yield part


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


__all__ = ["KEY", "MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "read_yaml"]
