"""Written answers: what a script may say, how it is read, and which reply is next.

A script is a list of replies in call order. Which one is next follows from the conversation, not from a counter: the
number of replies already in the thread says it, so a run that was killed and resumed goes on with the right one.
Replies that leave no trace in a thread (errors, cut-off replies) stand before the reply they delay; each is given once
per thread and process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from orchestrator.errors import ProviderFailure
from orchestrator.faults import explain_fault
from orchestrator.providers.base import FailureKind
from orchestrator.spec import MISSING, Strict
from orchestrator.values import Usage

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ScriptedCall(Strict):
    """A tool call. `arguments` is an object, or text taken as it is (to script arguments that are no JSON)."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


class ScriptedUsage(Strict):
    """Numbers that replace the computed ones, as they stand."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    web_searches: int | None = None

    def over(self, computed: Usage) -> Usage:
        given = self.model_dump(exclude_none=True)
        return Usage(**{name: given.get(name, getattr(computed, name)) for name in ScriptedUsage.model_fields})


class ScriptedSource(Strict):
    """A page that a search found; the answer cites it unless `cited` is false."""

    url: str
    title: str = ""
    cited: bool = True


class ScriptedSearch(Strict):
    """A search that the provider made on the way to its answer."""

    query: str
    sources: tuple[ScriptedSource, ...] = ()


class ScriptedReply(Strict):
    """One reply of a script: `text`, `json`, `tool_calls` (these with a text beside them, if wanted), `refusal`, or
    `error` (a kind of the failure table, `retry_after` in seconds).

    `reasoning` travels as an encrypted reasoning item; `status: incomplete` cuts the reply off; `delay` is in seconds,
    spent in the middle of the text; `usage: null` reports none. `searches` are those of the provider's own tool.
    """

    text: str | None = None
    json_: Any = Field(default=MISSING, alias="json")
    tool_calls: tuple[ScriptedCall, ...] = ()
    searches: tuple[ScriptedSearch, ...] = ()
    refusal: str | None = None
    reasoning: str | None = None
    status: Literal["completed", "incomplete"] = "completed"
    incomplete_reason: str = "max_output_tokens"
    usage: ScriptedUsage | None = ScriptedUsage()
    error: FailureKind | None = None
    message: str | None = None
    retry_after: float | None = Field(default=None, ge=0)
    delay: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _says_one_thing(self) -> ScriptedReply:
        given = {"text": self.text is not None, "json": self.json_ is not MISSING, "tool_calls": bool(self.tool_calls)}
        given |= {"refusal": self.refusal is not None, "error": self.error is not None}
        said = {name for name, there in given.items() if there}
        if not said:
            raise ValueError("a reply says one of: text, json, tool_calls, refusal, error")
        if len(said) > 1 and said not in ({"text", "tool_calls"}, {"json", "tool_calls"}):
            raise ValueError(f"a reply cannot say {' and '.join(sorted(said))} at once")
        texts = [self.answer, self.refusal, self.reasoning, *(call.name + call.text for call in self.tool_calls)]
        if any(_SURROGATE.search(text or "") for text in texts):
            raise ValueError("it holds a lone surrogate, which is no text")
        return self

    @property
    def leaves_trace(self) -> bool:
        """Whether the thread holds this reply afterwards."""
        return self.error is None and self.status == "completed"

    @property
    def answer(self) -> str:
        """The reply's text; `json` is written out."""
        if self.json_ is not MISSING:
            return json.dumps(self.json_, ensure_ascii=False)
        return self.text or ""


ReplyLike = ScriptedReply | Mapping[str, Any] | str
LARGEST_FILE: Final = 16_000_000


def parse(reply: ReplyLike, where: str) -> ScriptedReply:
    """A reply as written: an object, or a text alone. Raises ProviderFailure naming `where`."""
    if isinstance(reply, ScriptedReply):
        return reply
    try:
        return ScriptedReply.model_validate({"text": reply} if isinstance(reply, str) else reply)
    except ValidationError as error:
        raise broken(f"{where} is no reply: {_explained(error)}") from error


def _explained(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    at = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{at!r} is not one of its keys"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    return f"{at or 'it'} {explain_fault(first).text}"


def load(path: Path, shown: str) -> tuple[ScriptedReply, ...]:
    """The replies of a file. Raises ProviderFailure naming it: missing, unreadable, no JSON, no list of replies."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise broken(f"{shown} is larger than {LARGEST_FILE // 1_000_000} MB")
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise broken(f"there is no {shown}") from error
    except OSError as error:
        raise broken(f"{shown} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise broken(f"{shown} is no JSON: {error}") from error
    if not isinstance(data, list):
        raise broken(f"{shown} is no list of replies")
    return tuple(parse(reply, f"reply {number} of {shown}") for number, reply in enumerate(data, 1))


def broken(what: str) -> ProviderFailure:
    """A script that has no answer. Never retried, never filled in with an invented one."""
    return ProviderFailure(
        f"scripted answers: {what}",
        hint="a script is a JSON list of replies in call order, each with json, text or tool_calls; nothing is made up",
        kind="bad_request",
    )


def pick(replies: Sequence[ScriptedReply], turn: int, given: int) -> ScriptedReply | None:
    """The next reply of a thread that holds `turn` replies, after `given` that left no trace; None = used up."""
    start = 0
    for _ in range(turn):
        while start < len(replies) and not replies[start].leaves_trace:
            start += 1
        start += 1
    end = start
    while end < len(replies) and not replies[end].leaves_trace:
        end += 1
    index = min(start + given, end)
    return replies[index] if index < len(replies) else None
