"""Usage as vendors report it, brought to one convention: `input_tokens` includes cached and written tokens.

OpenAI counts cached and written tokens inside `input_tokens`; Anthropic counts them beside it. Getting this wrong
prices cached tokens twice or not at all. The numbers come from a server, so they are checked before money is computed
from them (S31): whatever is not a plain count in 0…2⁴⁰, or does not add up, makes the whole report unknown. An unknown
usage is charged as its reservation; it is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.values import Usage

LARGEST: Final = 2**40


class _Hostile(ValueError):
    """A number that no honest server reports."""


def openai_usage(report: object, searches: object = 0) -> Usage | None:
    """The usage of a Responses reply, which tells its searches elsewhere. None = not reported or not believed."""
    return _checked(lambda report: _openai(report, searches), report)


def chat_usage(report: object) -> Usage | None:
    """The usage of a chat completion: the same convention as a Responses reply, under other names. None as above."""
    return _checked(_chat, report)


def anthropic_usage(report: object) -> Usage | None:
    """The usage of a Messages reply: reads and writes are added to `input_tokens`. None as above."""
    return _checked(_anthropic, report)


def _checked(read: Any, report: object) -> Usage | None:
    if not isinstance(report, Mapping):
        return None
    try:
        usage: Usage = read(report)
    except _Hostile:
        return None
    fits = usage.cached_tokens + usage.cache_write_tokens <= usage.input_tokens <= LARGEST
    return usage if fits else None


def _openai(report: Mapping[str, Any], searches: object) -> Usage:
    inputs, outputs = _details(report, "input_tokens_details"), _details(report, "output_tokens_details")
    return Usage(
        input_tokens=_count(report, "input_tokens"),
        cached_tokens=_count(inputs, "cached_tokens", 0),
        cache_write_tokens=_count(inputs, "cache_write_tokens", 0),
        output_tokens=_count(report, "output_tokens"),
        reasoning_tokens=_count(outputs, "reasoning_tokens", 0),
        web_searches=_count({"searches": searches}, "searches", 0),
    )


def _chat(report: Mapping[str, Any]) -> Usage:
    inputs, outputs = _details(report, "prompt_tokens_details"), _details(report, "completion_tokens_details")
    return Usage(
        input_tokens=_count(report, "prompt_tokens"),
        cached_tokens=_count(inputs, "cached_tokens", 0),
        cache_write_tokens=_count(inputs, "cache_write_tokens", 0),
        output_tokens=_count(report, "completion_tokens"),
        reasoning_tokens=_count(outputs, "reasoning_tokens", 0),
    )


def _anthropic(report: Mapping[str, Any]) -> Usage:
    parts = [report, *_compactions(report)]
    read = sum(_count(part, "cache_read_input_tokens", 0) for part in parts)
    written = sum(_count(part, "cache_creation_input_tokens", 0) for part in parts)
    return Usage(
        input_tokens=sum(_count(part, "input_tokens") for part in parts) + read + written,
        cached_tokens=read,
        cache_write_tokens=written,
        output_tokens=sum(_count(part, "output_tokens") for part in parts),
        reasoning_tokens=_count(_details(report, "output_tokens_details"), "thinking_tokens", 0),
        web_searches=_count(_details(report, "server_tool_use"), "web_search_requests", 0),
    )


def _compactions(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The summaries that the vendor made on the way: billed, and not in the sums beside them (providers' §2.4)."""
    iterations = report.get("iterations")
    found = iterations if isinstance(iterations, list) else []
    if not all(isinstance(one, Mapping) for one in found):
        raise _Hostile("iterations")
    return [one for one in found if one.get("type") == "compaction"]


def _details(report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = report.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _Hostile(key)
    return value


def _count(report: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = report.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise _Hostile(key)
    return value
