"""What `orch doctor` asks: is the database sound, do references lead somewhere, is each body what its hash says."""

from __future__ import annotations

from typing import Final

from sqlmodel import select

from orchestrator.ids import sha256
from orchestrator.store import content, json_text
from orchestrator.store import tables as t
from orchestrator.store.listings import Reading

_MOST: Final = 20


def problems(reading: Reading, damage: list[str]) -> tuple[str, ...]:
    """One sentence for each problem, the first twenty; none for a sound database. `damage` is what the database says of
    itself."""
    found = [*damage, *_bodies(reading)]
    return tuple(found[:_MOST])


def _bodies(reading: Reading) -> list[str]:
    session, present, wrong = reading.session, set[str](), list[str]()
    for key, body in session.exec(select(t.Content.sha256, t.Content.body).where(reading.of(t.Content))):
        present.add(key)
        if sha256(body) != key:
            wrong.append(f"the content {key[:12]} is not what it was when it was stored")
    missing = sorted(listed(reading) - present)
    return [*wrong, *(f"the content {key[:12]} is missing" for key in missing)]


def listed(reading: Reading) -> set[str]:
    """The hashes inside lists, which no foreign key watches over."""
    session, found = reading.session, set[str]()
    for parts in session.exec(select(t.Block.parts).where(reading.of(t.Block))):
        found.update(json_text.load(parts))
    calls = select(t.Call.items, t.Call.output_items, t.Call.follow, t.Call.tool_calls).where(reading.of(t.Call))
    for *lists, tool_calls in session.exec(calls):
        for references in lists:
            found |= content.hashes(references)
        found.update(arguments for _, _, arguments in json_text.load(tool_calls))
    return found
