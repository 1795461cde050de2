"""Recorded exchanges with a model as files: one for each request, with every reply that was given to it.

A request is known by what it says, not by when it was made: model, system text, items, tools, form of the answer and
limits, and the reply it goes on from. What differs between two runs of the same (the thread's own id, the cache key,
times) is no part of that. Files are JSON, for people too: they can be read, compared and kept beside the tests. Keys
are taken out before anything is hashed or written (S29).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.files import replace_file
from orchestrator.ids import canonical_json, digest, is_synthetic, sha256
from orchestrator.spec import Strict
from orchestrator.values import Reply, Request, TextItem

FORMAT: Final = 1
LARGEST_FILE: Final = 64_000_000
# What is no part of the question that is asked: how it is sent, and where it belongs.
ASIDE: Final = frozenset({"timeout", "cache_key", "background", "step", "call", "thread_name", "item"})
# Failures that say something about the request itself, and that a conversation goes on from: they are recorded too.
TELLING: Final = frozenset({"chain_lost", "chain_unsupported", "unanswered_call", "too_long", "refused", "bad_request"})
_REPLY: Final = TypeAdapter(Reply)


class Told(Strict):
    """What came back: a reply, or a failure that says something about the request."""

    reply: dict[str, Any] | None = None
    failure: dict[str, str | None] | None = None

    @classmethod
    def of(cls, outcome: Reply | ProviderFailure) -> Told:
        if isinstance(outcome, Reply):
            return cls(reply=_REPLY.dump_python(outcome, mode="json"))
        return cls(failure={"kind": outcome.kind, "message": outcome.message, "hint": outcome.hint})

    def outcome(self) -> Reply | ProviderFailure:
        """The same as it came. Raises ValueError for what is none."""
        if self.failure is not None:
            kind, message = self.failure.get("kind"), self.failure.get("message")
            return ProviderFailure(message or "", hint=self.failure.get("hint"), kind=kind or "bad_request")
        return _REPLY.validate_python(self.reply)


class Recording(Strict):
    """One file. `request` is what `question` makes of it; `step`, `item`, `thread` and `call` say where it was asked
    first, `chaining` and `stores` how the provider was spoken to."""

    format: Literal[1] = FORMAT
    step: str
    item: str | None = None
    thread: str = "main"
    call: int = 1
    provider: str
    chaining: Literal["auto", "server", "replay"]
    stores: bool
    request: dict[str, Any]
    told: list[Told] = Field(min_length=1)

    @property
    def label(self) -> str:
        """How people name where it was asked."""
        item = f"/{self.item}" if self.item else ""
        return f"{self.step}{item}" + (f", thread {self.thread}" if self.thread not in ("main", "1") else "")


def question(request: Request) -> dict[str, Any]:
    """A request as JSON data, without what is no part of what it asks. The thread is that of the reply it goes on
    from; null where it begins."""
    asked = {part.name: plain(getattr(request, part.name)) for part in fields(request) if part.name not in ASIDE}
    if request.edits is None:  # came later: what was recorded without it is found as before
        del asked["edits"]
    return {**asked, "thread": None if is_synthetic(request.thread) else request.thread}


def plain(value: Any) -> Any:
    """Values of the request's carriers as JSON data; bytes by their hash."""
    if isinstance(value, TextItem):
        return {"text": value.text, **({"files": plain(value.files)} if value.files else {})}
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, bytes):
        return {"sha256": sha256(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def key_of(asked: Mapping[str, Any]) -> str:
    """What a request is found by."""
    return digest(dict(asked))


def path_of(folder: Path, recording: Recording, key: str) -> Path:
    """Where a recording is kept: by its step and item, in the order of the calls."""
    place = folder / recording.step / recording.item if recording.item else folder / recording.step
    return place / f"{recording.call:02d}-{key[:16]}.json"


def write(path: Path, recording: Recording) -> None:
    """One recording, whole or not at all, for its user only. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, canonical_json(recording.model_dump(mode="json", exclude_none=True)) + b"\n")


@dataclass
class Cassette:
    """All recordings of a folder, by what was asked. Read once, when it is first needed."""

    folder: Path
    shown: str
    by_key: dict[str, Recording] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, shown: str) -> Cassette:
        """Raises ConfigError: no such folder, nothing in it, a file that is no recording."""
        if not folder.is_dir():
            raise ConfigError(
                f"there is no folder {shown} with recordings", hint="orch run … --record DIR makes one from a real run"
            )
        cassette = cls(folder, shown)
        for path in sorted(folder.rglob("*.json")):
            recording = _read(path, f"{shown}/{path.relative_to(folder)}")
            cassette.by_key[key_of(recording.request)] = recording
        if not cassette.by_key:
            raise ConfigError(f"{shown} holds no recordings", hint="orch run … --record DIR makes them from a real run")
        return cassette

    @property
    def models(self) -> list[str]:
        """The models that were recorded."""
        return sorted({str(recording.request.get("model")) for recording in self.by_key.values()})

    @property
    def chains(self) -> bool:
        """Whether any of it was said to a provider that is sent ids."""
        return any(recording.stores and recording.chaining != "replay" for recording in self.by_key.values())

    def near(self, request: Request, asked: Mapping[str, Any]) -> Recording | None:
        """The recording that is most like a request that has none: of its step, its thread and its call if possible."""

        def unlike(recording: Recording) -> tuple[bool, bool, bool, int]:
            return (
                recording.item != request.item,
                recording.thread != request.thread_name,
                recording.call != request.call,
                len(list(differences(recording.request, asked))),
            )

        return min((r for r in self.by_key.values() if r.step == request.step), key=unlike, default=None)


def _read(path: Path, shown: str) -> Recording:
    hint = "take the file away, or record again: orch run … --record DIR"
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{shown} is larger than {LARGEST_FILE // 1_000_000} MB", hint=hint)
        recording = Recording.model_validate(json.loads(path.read_bytes()))
        for told in recording.told:
            told.outcome()
        return recording
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror}", hint=hint) from error
    except ValidationError as error:
        at = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise ConfigError(f"{shown} is no recording of format {FORMAT}: see {at or 'the file'}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{shown} is no JSON: {error}", hint=hint) from error


# --- what differs -----------------------------------------------------------------------------------------------------

AROUND: Final = 24  # characters shown on each side of where two texts part
_NAMES: Final = {"system": "the system text", "output": "the form of the answer", "thread": "the reply it goes on from"}


def differences(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """What is not the same in two requests, part by part, in words."""
    for name in {**recorded, **asked}:
        before, now = recorded.get(name), asked.get(name)
        if before == now:
            continue
        if name == "items":
            yield from _items(before or [], now or [])
        else:
            yield _NAMES.get(name, name) + _change(before, now)


def _items(recorded: Sequence[Any], asked: Sequence[Any]) -> Iterator[str]:
    for number, (before, now) in enumerate(zip(recorded, asked, strict=False), 1):
        if before != now:
            yield f"item {number}{_change(_text(before), _text(now))}"
    if len(recorded) != len(asked):
        yield f"items: {len(recorded)} recorded, {len(asked)} asked"


def _text(item: Any) -> Any:
    return item.get("text", item.get("output", item)) if isinstance(item, Mapping) else item


def _change(before: Any, now: Any) -> str:
    one, other = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in (before, now))
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f": recorded “{_excerpt(one, at)}”, asked “{_excerpt(other, at)}”"


def _excerpt(text: str, at: int) -> str:
    start, end = max(0, at - AROUND), at + AROUND
    cut = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"
