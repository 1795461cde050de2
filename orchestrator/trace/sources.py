"""The sources that a provider's own tools gave: pages that were found, read or cited, as its reply names them.

They are in the recorded output items, so nothing beside those is kept; both vendors' forms are read here. Addresses
come from the web by way of a vendor: they are shown to people as text, and never followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.values import CallRow

MOST = 200


@dataclass(frozen=True, slots=True)
class Source:
    """A page: `cited` where the answer refers to it, with the words of it that were quoted, if the vendor says so."""

    url: str
    title: str = ""
    cited: bool = False
    quote: str = ""


def sources_of(calls: Iterable[CallRow]) -> tuple[Source, ...]:
    """The sources of some calls, each address once, those that are cited first."""
    found: dict[str, Source] = {}
    for call in calls:
        for item in call.done.items if call.done else ():
            for source in _sources(item.data):
                known = found.get(source.url, source)
                found[source.url] = replace(
                    known,
                    title=known.title or source.title,
                    cited=known.cited or source.cited,
                    quote=known.quote or source.quote,
                )
    return tuple(sorted(found.values(), key=lambda source: not source.cited)[:MOST])


def searches_of(calls: Iterable[CallRow]) -> tuple[str, ...]:
    """What was searched for, in order."""
    items = (item.data for call in calls if call.done for item in call.done.items)
    return tuple(query for item in items for query in _queries(item))


def _queries(item: Mapping[str, Any]) -> Iterator[str]:
    told = item.get("action") if item.get("type") == "web_search_call" else None
    told = item.get("input") if item.get("type") == "server_tool_use" and item.get("name") == "web_search" else told
    if isinstance(told, Mapping):
        listed = told.get("queries")
        queries = listed if isinstance(listed, list) and listed else [told.get("query")]
        yield from (query for query in queries if isinstance(query, str) and query)


def _sources(item: Mapping[str, Any]) -> Iterator[Source]:
    kind = item.get("type")
    if kind == "message":
        for part in _maps(item.get("content")):
            yield from (_source(one, cited=True) for one in _maps(part.get("annotations")) if _is_url(one))
    elif kind == "web_search_call":
        action = item.get("action")
        if isinstance(action, Mapping):
            yield from (_source(one) for one in (action, *_maps(action.get("sources"))) if _is_url(one))
    elif kind == "web_search_tool_result":
        yield from (_source(one) for one in _maps(item.get("content")) if _is_url(one))
    elif kind == "web_fetch_tool_result":
        content = item.get("content")
        if isinstance(content, Mapping) and _is_url(content):
            inner = content.get("content")
            yield _source({**content, "title": inner.get("title") if isinstance(inner, Mapping) else ""})
    elif kind == "text":
        yield from (_source(one, cited=True) for one in _maps(item.get("citations")) if _is_url(one))


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _is_url(one: Mapping[str, Any]) -> bool:
    return isinstance(one.get("url"), str) and one["url"].startswith(("http://", "https://"))


def _source(one: Mapping[str, Any], *, cited: bool = False) -> Source:
    title, quote = one.get("title"), one.get("cited_text")
    return Source(
        one["url"][:2000],
        title[:300] if isinstance(title, str) else "",
        cited,
        quote[:300] if isinstance(quote, str) else "",
    )
