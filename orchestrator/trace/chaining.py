"""What a run would have cost as one chain through all its steps, or with its whole history in each request. Pure.

Both are computed from what was recorded: the tokens that the provider reported for each call, the sizes of the blocks
that each step was sent, and the price of each call. Only what would have been different is different:

    as run          each step begins anew with what it reads; cached is what the provider says was cached
    one chain       a step's request brings what the conversation does not hold yet: its task, and what was edited or
                    came from elsewhere; all that was said before is read again, at the cached price
    whole history   the same, without the cache: each request is composed anew

In favour of the chain, the cache is taken to hold for all that was said before: over a change of output schema, for
five minutes since the last call, for the same model, in blocks of 128 tokens from 1,024 up. Where writing to the cache
costs more than plain input, what is new in it is written. What the model answers is taken to be the same.

A chain also carries what was replaced. That share is counted, since it is not money: a model reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from orchestrator.store.costs import Asked, Recorded
from orchestrator.values import Usage

CACHE_SECONDS: Final = 300.0
CACHE_FROM: Final = 1024
CACHE_BLOCK: Final = 128


@dataclass(frozen=True, slots=True)
class Way:
    """What one way of asking takes. `cost_usd` None: no price is known; `partial`: of some calls none is."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal | None = None
    partial: bool = False

    def plus(self, usage: Usage, cost: Decimal | None) -> Way:
        known = self.cost_usd if cost is None else (self.cost_usd or Decimal(0)) + cost
        return Way(
            self.input_tokens + usage.input_tokens,
            self.cached_tokens + usage.cached_tokens,
            self.output_tokens + usage.output_tokens,
            known,
            self.partial or cost is None,
        )


@dataclass(frozen=True, slots=True)
class Ways:
    """A step, or all of a run, asked in the three ways."""

    name: str
    as_run: Way = Way()
    one_chain: Way = Way()
    whole_history: Way = Way()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The run and its steps, in the order of their first calls. `unreported` calls left no usage, and are in none of
    the ways; `replaced` is the share of what the chain would have read that had been replaced by then."""

    run: Ways
    steps: tuple[Ways, ...]
    unreported: int
    replaced: Decimal

    @property
    def chain_is_cheaper(self) -> bool:
        return _cost(self.run.one_chain) < _cost(self.run.as_run)


def _cost(way: Way) -> Decimal:
    return way.cost_usd or Decimal(0)


@dataclass
class _Conversation:
    """The one chain, as far as it has come: what it holds, and the last call on it."""

    tokens: int = 0
    said: set[str] = field(default_factory=set)
    held: dict[str, tuple[str, int]] = field(default_factory=dict)  # by step: the version that was said, and its tokens
    replaced: int = 0
    last_model: str = ""
    last_at: float = 0.0

    def cached(self, call: Asked, known: int) -> int:
        """How much of what was said before this call may be read from the cache."""
        if call.model != self.last_model or call.at - self.last_at > CACHE_SECONDS or known < CACHE_FROM:
            return 0
        return known - known % CACHE_BLOCK


def compare(recorded: Recorded) -> Comparison:
    """The three ways to ask what a run has asked."""
    chain = _Conversation()
    steps: dict[str, Ways] = {}
    carried = read = unreported = 0
    for calls in _by_thread(recorded.calls):
        told = [call for call in calls if call.usage is not None]
        unreported += len(calls) - len(told)
        if not told:
            continue
        offset, fixed = _opened(chain, recorded, told[0])
        name = told[0].step
        for call in told:
            assert call.usage is not None
            tokens = max(0, call.usage.input_tokens + offset)
            known = min(chain.tokens, tokens)
            chained = _usage(call, tokens, chain.cached(call, known))
            plain = Usage(tokens, 0, 0, call.usage.output_tokens)
            ways = steps.get(name, Ways(name))
            steps[name] = Ways(
                name,
                ways.as_run.plus(call.usage, call.cost_usd),
                ways.one_chain.plus(chained, _priced(call, chained)),
                ways.whole_history.plus(plain, _priced(call, plain)),
            )
            carried, read = carried + chain.replaced, read + tokens
            chain.last_model, chain.last_at = call.model, call.at
            if call.stays:
                chain.tokens = tokens - fixed + call.usage.output_tokens
        _closed(chain, recorded, told[-1])
    total = _sum(tuple(steps.values()))
    share = Decimal(carried) / read if read else Decimal(0)
    return Comparison(total, tuple(steps.values()), unreported, share)


def _by_thread(calls: Sequence[Asked]) -> list[list[Asked]]:
    """The calls of each thread together, threads in the order of their first calls: a chain is one line."""
    threads: dict[str, list[Asked]] = {}
    for call in calls:
        threads.setdefault(call.thread, []).append(call)
    return list(threads.values())


def _opened(chain: _Conversation, recorded: Recorded, first: Asked) -> tuple[int, int]:
    """What is added to the tokens of the thread's calls where they stand in the chain, and what of each request is no
    part of the conversation: tools and the output schema."""
    assert first.usage is not None
    pieces = recorded.pieces.get(first.thread, ())
    system = recorded.systems.get(first.thread, 0)
    ratio = Decimal(first.usage.input_tokens) / first.estimate if first.estimate else Decimal(1)
    fixed = 0 if first.follows else max(0, first.estimate - system - sum(piece.tokens for piece in pieces))
    new = sum(piece.tokens for piece in pieces if piece.key not in chain.said)
    for piece in pieces:
        made = recorded.made.get(piece.key)
        step = made.step if made is not None else piece.source
        if piece.is_artifact and chain.held.get(step, (piece.key, 0))[0] != piece.key:
            chain.replaced += chain.held[step][1]
        if piece.is_artifact:
            chain.held[step] = (piece.key, piece.tokens)
        chain.said.add(piece.key)
    brought = new + fixed + (0 if chain.tokens else system)
    return chain.tokens + round(ratio * brought) - first.usage.input_tokens, round(ratio * fixed)


def _closed(chain: _Conversation, recorded: Recorded, last: Asked) -> None:
    """What the thread has come to is said from now on."""
    assert last.usage is not None
    for key, made in recorded.made.items():
        if made.by_model and made.attempt == last.attempt:
            before = chain.held.get(made.step)
            if before is not None and before[0] != key:
                chain.replaced += before[1]
            chain.said.add(key)
            chain.held[made.step] = (key, last.usage.output_tokens)


def _usage(call: Asked, tokens: int, cached: int) -> Usage:
    assert call.usage is not None
    rates = call.price.rates if call.price is not None else None
    written = tokens - cached if rates is not None and rates.cache_write > rates.input else 0
    return Usage(tokens, cached, written, call.usage.output_tokens)


def _priced(call: Asked, usage: Usage) -> Decimal | None:
    return call.price.cost(usage) if call.price is not None else None


def _sum(steps: Sequence[Ways]) -> Ways:
    total = Ways("")
    for step in steps:
        total = Ways("", *(_both(getattr(total, way), getattr(step, way)) for way in WAYS))
    return total


WAYS: Final = ("as_run", "one_chain", "whole_history")


def _both(one: Way, other: Way) -> Way:
    known = [way.cost_usd for way in (one, other) if way.cost_usd is not None]
    return Way(
        one.input_tokens + other.input_tokens,
        one.cached_tokens + other.cached_tokens,
        one.output_tokens + other.output_tokens,
        sum(known, Decimal(0)) if known else None,
        one.partial or other.partial,
    )
