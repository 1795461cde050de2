"""Money in the store, on both databases: what was spent by step, model, day and run, and caps over runs (S31)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import BudgetExceeded
from orchestrator.money import Caps
from orchestrator.store import Store
from orchestrator.values import Cut, Event, Usage
from tests.store_kit import TestClock, claim, done, opened, sent, started, thread, using

pytestmark = pytest.mark.usefixtures("database")

USAGE = Usage(1000, 200, 0, 50)


async def run_with_call(store: Store, caps: Caps, *, reserve: str = "0.50", session: str | None = None) -> Any:
    """A run with one step whose first call is under way."""
    worker, run, ready = await started(store, "a", session=session)
    opening = thread()
    call = sent(opening.id, reserve=reserve, caps=caps)
    assert await store.claim(claim(ready["a"], worker, thread=opening, sent=call))
    return run, ready["a"], call


def test_S31_what_was_spent_is_added_up_by_every_key_and_what_is_held_is_told_apart(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        one, dispatch, call = await run_with_call(store, Caps())
        await store.again(dispatch, call)
        await store.done(dispatch, done(call, cost="0.10", usage=USAGE))
        day = clock.now()
        clock.move(86400)
        two, given_up, cut_off = await run_with_call(store, Caps())
        await store.cut(given_up, cut_off.id, Cut("It", Usage(input_tokens=7, output_tokens=1)))
        for by, keys in (
            ("run", [str(one.number), str(two.number)]),
            ("day", [f"{day:%Y-%m-%d}", f"{day + timedelta(days=1):%Y-%m-%d}"]),
        ):
            first, second = await store.bills(by, None)  # type: ignore[arg-type]
            assert [first.key, second.key] == keys
            assert (first.cost_usd, first.charged_usd, first.lost_usd) == (
                Decimal("0.1"),
                Decimal("0.6"),  # the reply, and the try before it that may have been billed
                Decimal("0.5"),
            )
            assert (first.usage, first.held_usd, first.unknown) == (USAGE, Decimal(0), 0)
            assert (second.cost_usd, second.held_usd, second.unknown) == (None, Decimal("0.5"), 1)
            assert (first.estimated, second.estimated) == (0, 1)
            assert (second.usage.input_tokens, second.usage.output_tokens) == (7, 1)
        for by, key in (("step", "a"), ("model", "openai:m")):
            (bill,) = await store.bills(by, None)  # type: ignore[arg-type]
            assert (bill.key, bill.calls, bill.cost_usd) == (key, 2, Decimal("0.1"))
        assert len(await store.bills("run", one.id)) == 1
        assert await store.bills("run", None, until=day) == ()
        recorded = await store.recorded_calls(one.id)
        (asked,) = recorded.calls
        assert (asked.step, asked.usage, asked.cost_usd, asked.stays) == ("a", USAGE, Decimal("0.1"), True)
        assert recorded.systems[asked.thread] > 0
        assert recorded.pieces[asked.thread]

    using(tmp_path, body, clock=clock)


@pytest.mark.parametrize(
    ("caps", "says"),
    [(Caps(day=Decimal("1.20")), "the cap for the day"), (Caps(session=Decimal("1.20")), "the cap for session s")],
)
def test_S31_runs_side_by_side_never_hold_more_than_the_cap_they_share(tmp_path: Path, caps: Caps, says: str) -> None:
    """Eight at once, each on a connection of its own, of half a dollar each: the cap holds two."""

    async def body(first: Store) -> None:
        stores = [first, *(opened(tmp_path) for _ in range(7))]

        async def one(store: Store) -> str:
            try:
                await run_with_call(store, caps, session="s")
            except BudgetExceeded as exceeded:
                return exceeded.message
            return ""

        try:
            await one(first)  # the session is made
            said = await asyncio.gather(*(one(store) for store in stores))
        finally:
            for store in stores[1:]:
                await store.close()
        assert said.count("") == 1
        assert all(says in message and "nothing was sent" in message for message in said if message)
        assert sum(bill.held_usd for bill in await first.bills("run", None)) == 1

    using(tmp_path, body)


def test_R023_input_that_was_not_sent_is_found_by_run_by_day_and_by_attempt(tmp_path: Path) -> None:
    clock = TestClock()

    async def body(store: Store) -> None:
        one, dispatch, call = await run_with_call(store, Caps())
        two, other, _ = await run_with_call(store, Caps())
        told = {"call": call.id, "input_tokens": 9000, "most_tokens": 2100, "grew": False}
        await store.note(dispatch, (Event("input.unexplained", data=told), Event("step.note", data={"text": "x"})))
        [found] = await store.unexplained(None)
        assert (found.run, found.step, found.told) == (one.number, "a", told)
        assert await store.unexplained(one.id) == (found,)
        assert await store.unexplained(two.id) == ()
        assert await store.unexplained(None, until=clock.now()) == ()
        assert await store.unexplained_of(dispatch.attempt_id) == {call.id: told}
        assert await store.unexplained_of(other.attempt_id) == {}

    using(tmp_path, body, clock=clock)


def test_what_a_models_newest_calls_were_estimated_and_reported_is_there_oldest_first(tmp_path: Path) -> None:
    """Of this model, as far as it has reported something; a call under way has not."""

    async def body(store: Store) -> None:
        for reported in range(1, 23):
            _, dispatch, call = await run_with_call(store, Caps())
            await store.done(dispatch, done(call, cost="0.10", usage=Usage(reported * 100, 0, 0, 50)))
        _, _, under_way = await run_with_call(store, Caps())
        estimate = under_way.estimate_tokens
        assert await store.counted("openai", "m") == tuple((estimate, n * 100) for n in range(3, 23))
        assert await store.counted("openai", "other") == ()

    using(tmp_path, body)
