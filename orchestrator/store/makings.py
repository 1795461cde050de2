"""How versions came to be, for many of them at once: the attempts behind them, what those were first sent, what they
cost. By hashes alone: a block is told by the hashes of its parts, and no text is loaded for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar

from sqlmodel import select

from orchestrator.store import json_text
from orchestrator.store import tables as t
from orchestrator.store.listings import Reading
from orchestrator.store.records import Making, Opening, SentBlock
from orchestrator.values import Usage

_CHUNK: Final = 500
_Row = TypeVar("_Row")


def makings(reading: Reading, artifact_ids: Collection[str]) -> Mapping[str, Making]:
    """By the version's id; a version that no attempt made, as an input is, has none."""
    made_by = dict(_rows(reading, artifact_ids, t.Artifact, t.Artifact.id, t.Artifact.id, t.Artifact.attempt_id))
    attempt_ids = {attempt for attempt in made_by.values() if attempt}
    openings, calls = _openings(reading, attempt_ids), _calls(reading, attempt_ids)
    columns = (t.Attempt.id, t.Attempt.number, t.Attempt.manifest, t.Attempt.running_us)
    attempts = {
        attempt: Making(
            attempt_id=attempt,
            attempt=number,
            manifest=json_text.load_manifest(manifest) if manifest else None,
            openings=openings.get(attempt, ()),
            seconds=int(micros) / 1e6,
            **_sums(calls.get(attempt, ())),
        )
        for attempt, number, manifest, micros in _rows(reading, attempt_ids, t.Attempt, t.Attempt.id, *columns)
    }
    return {artifact: attempts[attempt] for artifact, attempt in made_by.items() if attempt in attempts}


def _rows(reading: Reading, keys: Collection[str], table: type[Any], key: Any, *columns: Any) -> Iterator[Any]:
    """The columns of the rows whose key is one of these, in parts that every database takes."""
    wanted = sorted(keys)
    for start in range(0, len(wanted), _CHUNK):
        some = key.in_(wanted[start : start + _CHUNK])
        yield from reading.session.exec(select(*columns).where(reading.of(table), some))


def _openings(reading: Reading, attempt_ids: Collection[str]) -> Mapping[str, tuple[Opening, ...]]:
    """The threads of each attempt in order, each with what its first request was put together from."""
    columns = (t.Thread.attempt_id, t.Thread.position, t.Thread.id, t.Thread.name, t.Thread.provider, t.Thread.model)
    more = (t.Thread.settings, t.Thread.system)
    threads = sorted(_rows(reading, attempt_ids, t.Thread, t.Thread.attempt_id, *columns, *more))
    blocks = _blocks(reading, [thread for _, _, thread, *_ in threads])
    found: dict[str, list[Opening]] = defaultdict(list)
    for attempt, _, thread, name, provider, model, settings, system in threads:
        first = (SentBlock("system", "system", (system,), 0),)  # its tokens are counted nowhere
        opening = Opening(name, f"{provider}:{model}", json_text.load(settings), (*first, *blocks.get(thread, ())))
        found[attempt].append(opening)
    return {attempt: tuple(some) for attempt, some in found.items()}


def _blocks(reading: Reading, thread_ids: Collection[str]) -> Mapping[str, Sequence[SentBlock]]:
    key, place = t.Block.thread_id, t.Block.position
    columns = (key, place, t.Block.layer, t.Block.source, t.Block.parts, t.Block.tokens, t.Block.version)
    found: dict[str, list[SentBlock]] = defaultdict(list)
    for thread, _, layer, source, parts, tokens, version in sorted(
        _rows(reading, thread_ids, t.Block, key, *columns), key=lambda row: (row[0], row[1])
    ):
        found[thread].append(SentBlock(layer, source, tuple(json_text.load(parts)), tokens, version))
    return found


def _calls(reading: Reading, attempt_ids: Collection[str]) -> Mapping[str, Sequence[Any]]:
    key = t.Call.attempt_id
    counted = (t.Call.input_tokens, t.Call.cached_tokens, t.Call.output_tokens)
    columns = (key, t.Call.source, *counted, t.Call.cost_usd, t.Call.lost_usd)
    return _grouped(_rows(reading, attempt_ids, t.Call, key, *columns))


def _grouped(rows: Iterable[Sequence[_Row]]) -> Mapping[Any, Sequence[Sequence[_Row]]]:
    found: dict[Any, list[Sequence[_Row]]] = defaultdict(list)
    for first, *rest in rows:
        found[first].append(rest)
    return found


def _sums(calls: Sequence[Any]) -> dict[str, Any]:
    costs = [cost for *_, cost, _ in calls]
    known = [cost for cost in costs if cost is not None]
    return {
        "calls": len(calls),
        "reasks": sum(source == "REASK" for source, *_ in calls),
        "usage": sum((Usage(i or 0, cached or 0, 0, out or 0) for _, i, cached, out, _, _ in calls), Usage()),
        "cost_usd": sum(known, Decimal(0)) if known or not costs else None,
        "cost_partial": None in costs or any(lost for *_, lost in calls),
    }


def texts(reading: Reading, hashes: Iterable[str]) -> Mapping[str, str]:
    """Texts of blocks by the hashes of their parts."""
    return {key: body.decode() for key, body in reading.bodies(hashes).items()}
