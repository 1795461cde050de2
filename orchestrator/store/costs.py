"""What calls have cost, added up in the database, and one run's calls with what each of them brought. No bodies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

from orchestrator.money import Price
from orchestrator.moves import TRANSCRIPT
from orchestrator.providers.tokens import of_bytes
from orchestrator.store import json_text
from orchestrator.store.columns import from_micros, from_pico
from orchestrator.store.sql import Sql, Tx
from orchestrator.unexplained import KIND as UNEXPLAINED
from orchestrator.values import Usage

By = Literal["step", "model", "day", "run"]
ToldInput = Mapping[str, Any]  # what an event about unexplained input says
_DAY: Final = 86_400_000_000
_KEYS: Final[dict[By, str]] = {
    "step": "s.name",
    "model": "c.provider || ':' || c.model",
    "day": f"c.sent_at / {_DAY}",
    "run": "r.number",
}
_CALLS: Final = "FROM run r JOIN step s ON s.run_id = r.id JOIN attempt t ON t.step_id = s.id"
_SCOPES: Final = "{scope:r} AND {scope:s} AND {scope:t}"
_BILLS: Final = {
    by: Sql(
        f"SELECT {key}, COUNT(*), SUM(CASE WHEN c.cost_usd IS NULL THEN 1 ELSE 0 END), SUM(c.cost_usd),"
        " SUM(CASE WHEN c.state = 'sent' THEN 0 ELSE COALESCE(c.charged_usd, 0) END), SUM(c.lost_usd),"
        " SUM(CASE WHEN c.state = 'sent' THEN COALESCE(c.reserved_usd, 0) ELSE 0 END), SUM(c.usage_estimated),"
        " SUM(c.input_tokens), SUM(c.cached_tokens), SUM(c.cache_write_tokens), SUM(c.output_tokens),"
        " SUM(c.reasoning_tokens)"
        f" {_CALLS} JOIN call c ON c.attempt_id = t.id WHERE (:run = '' OR r.id = :run) AND c.sent_at >= :since"
        f" AND c.sent_at < :until AND {_SCOPES} AND {{scope:c}} GROUP BY {key} ORDER BY {key}"
    )
    for by, key in _KEYS.items()
}
_ASKED = Sql(
    "SELECT c.thread_id, t.id, s.name, s.item, c.source, c.outcome, c.provider, c.model, c.sent_at, c.estimate_tokens,"
    " c.input_tokens, c.cached_tokens, c.cache_write_tokens, c.output_tokens, c.reasoning_tokens, c.cost_usd, c.price"
    f" {_CALLS} JOIN call c ON c.attempt_id = t.id WHERE r.id = :run AND {_SCOPES} AND {{scope:c}}"
    " ORDER BY c.sent_at, c.id"
)
_PIECES = Sql(
    f"SELECT b.thread_id, b.source, b.parts, b.tokens, b.artifact_id {_CALLS} JOIN thread h ON h.attempt_id = t.id"
    f" JOIN block b ON b.thread_id = h.id WHERE r.id = :run AND {_SCOPES} AND {{scope:h}} AND {{scope:b}}"
    " ORDER BY b.thread_id, b.position"
)
_SYSTEMS = Sql(
    f"SELECT h.id, w.size {_CALLS} JOIN thread h ON h.attempt_id = t.id JOIN content w ON w.sha256 = h.system"
    f" WHERE r.id = :run AND {_SCOPES} AND {{scope:h}} AND {{scope:w}}"
)
_UNEXPLAINED = Sql(
    "SELECT r.number, e.step, e.item, e.data FROM event e JOIN run r ON r.id = e.run_id WHERE e.kind = :kind"
    " AND (:run = '' OR r.id = :run) AND e.at >= :since AND e.at < :until AND {scope:e} AND {scope:r}"
    " ORDER BY r.number, e.seq"
)
_UNEXPLAINED_OF = Sql(
    "SELECT e.data FROM attempt t JOIN step s ON s.id = t.step_id JOIN event e ON e.run_id = s.run_id"
    " AND e.step = s.name AND COALESCE(e.item, '') = s.item AND e.attempt = t.number WHERE e.kind = :kind"
    " AND t.id = :attempt AND {scope:t} AND {scope:s} AND {scope:e}"
)
_NEWEST: Final = 20
_COUNTED = Sql(
    "SELECT estimate_tokens, input_tokens FROM call WHERE provider = :provider AND model = :model"
    " AND input_tokens IS NOT NULL AND usage_estimated = 0 AND state = 'done' AND {scope}"
    f" ORDER BY id DESC LIMIT {_NEWEST}"
)
_MADE = Sql("SELECT id, attempt_id, step, item, origin FROM artifact WHERE run_id = :run AND {scope}")


@dataclass(frozen=True, slots=True)
class Bill:
    """What the calls under one key have cost. `cost_usd` is what is known of it, of `unknown` calls nothing is;
    `charged_usd` is what the caps have lost, `lost_usd` of that for tries that failed and may have been billed;
    `held_usd` is reserved for calls that were never answered, or are not yet. Of `estimated` calls, given up in
    mid-stream, the usage is our estimate."""

    key: str
    calls: int
    unknown: int
    cost_usd: Decimal | None
    charged_usd: Decimal
    lost_usd: Decimal
    held_usd: Decimal
    usage: Usage
    estimated: int = 0


@dataclass(frozen=True, slots=True)
class Unexplained:
    """A call whose provider counted more input than can have been sent (R023), with what its event says."""

    run: int
    step: str
    told: ToldInput


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of the run. `stays`: it is part of its thread's conversation; `follows`: it asks on in an earlier
    one."""

    thread: str
    attempt: str
    step: str
    follows: bool
    stays: bool
    model: str
    at: float
    estimate: int
    usage: Usage | None
    cost_usd: Decimal | None
    price: Price | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a thread's first request: `key` is the artifact it shows, or what it says."""

    key: str
    source: str
    tokens: int
    is_artifact: bool


@dataclass(frozen=True, slots=True)
class Made:
    """Where an artifact came from: the attempt, the step (or item) it belongs to, and whether a model wrote it."""

    attempt: str
    step: str
    by_model: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run's calls in the order they left; by thread, what it began with and its system text's tokens; artifacts."""

    calls: tuple[Asked, ...]
    pieces: Mapping[str, tuple[Piece, ...]]
    systems: Mapping[str, int]
    made: Mapping[str, Made]


def bills(
    tx: Tx, by: By, run_id: str | None, since: datetime | None = None, until: datetime | None = None
) -> tuple[Bill, ...]:
    """Of one run, or of all; of calls that were sent from `since` on and before `until`. In order of their keys."""
    rows = tx.all(_BILLS[by], run=run_id or "", **_between(since, until))
    return tuple(_bill(by, *row) for row in rows)


def unexplained(
    tx: Tx, run_id: str | None, since: datetime | None = None, until: datetime | None = None
) -> tuple[Unexplained, ...]:
    """Of one run, or of all; told from `since` on and before `until`, in order."""
    rows = tx.all(_UNEXPLAINED, kind=UNEXPLAINED, run=run_id or "", **_between(since, until))
    return tuple(Unexplained(run, f"{step}/{item}" if item else step, json_text.load(d)) for run, step, item, d in rows)


def unexplained_of(tx: Tx, attempt_id: str) -> Mapping[str, ToldInput]:
    """Of one attempt: what the events say, by the call's id."""
    told = [json_text.load(data) for (data,) in tx.all(_UNEXPLAINED_OF, kind=UNEXPLAINED, attempt=attempt_id)]
    return {data["call"]: data for data in told}


def counted(tx: Tx, provider: str, model: str) -> tuple[tuple[int, int], ...]:
    """Of the newest calls of a model, oldest first: the tokens that were estimated, and those that were reported."""
    newest = tx.all(_COUNTED, provider=provider, model=model)
    return tuple((int(estimate), int(reported)) for estimate, reported in reversed(newest))


def _between(since: datetime | None, until: datetime | None) -> dict[str, int]:
    first, end = (None if at is None else int(at.timestamp() * 1_000_000) for at in (since, until))
    return {"since": first or 0, "until": 2**62 if end is None else end}


def _bill(by: By, key: Any, calls: int, unknown: Any, cost: Any, *rest: Any) -> Bill:
    charged, lost, held, estimated, *tokens = (int(value or 0) for value in rest)
    name = f"{datetime.fromtimestamp(key * 86400, UTC):%Y-%m-%d}" if by == "day" else str(key)
    usd = None if cost is None else from_pico(int(cost))
    return Bill(
        key=name,
        calls=calls,
        unknown=int(unknown),
        cost_usd=usd,
        charged_usd=from_pico(charged),
        lost_usd=from_pico(lost),
        held_usd=from_pico(held),
        usage=Usage(*tokens),
        estimated=estimated,
    )


def recorded(tx: Tx, run_id: str) -> Recorded:
    """One run's calls in the order in which they left, and what each thread began with."""
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for thread, source, parts, tokens, artifact in tx.all(_PIECES, run=run_id):
        pieces[thread].append(Piece(artifact or "/".join(json_text.load(parts)), source, tokens, artifact is not None))
    made = {
        artifact: Made(attempt or "", f"{step}/{item}" if item else step, origin == "model")
        for artifact, attempt, step, item, origin in tx.all(_MADE, run=run_id)
    }
    return Recorded(
        calls=tuple(_asked(*row) for row in tx.all(_ASKED, run=run_id)),
        pieces={thread: tuple(found) for thread, found in pieces.items()},
        systems={thread: of_bytes(size) for thread, size in tx.all(_SYSTEMS, run=run_id)},
        made=made,
    )


def _asked(
    thread: str, attempt: str, step: str, item: str, source: str, outcome: str | None, provider: str, model: str,
    sent_at: int, estimate: int, *rest: Any,
) -> Asked:  # fmt: skip
    *tokens, cost, price = rest
    return Asked(
        thread=thread,
        attempt=attempt,
        step=f"{step}/{item}" if item else step,
        follows=source == "FOLLOW_UP",
        stays=outcome in TRANSCRIPT,
        model=f"{provider}:{model}",
        at=from_micros(sent_at).timestamp(),
        estimate=estimate,
        usage=None if tokens[0] is None else Usage(*(count or 0 for count in tokens)),
        cost_usd=None if cost is None else from_pico(cost),
        price=Price.read(price) if price else None,
    )
