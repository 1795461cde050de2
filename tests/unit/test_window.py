"""Whether a request fits its window (R028, R030): all five parts are in the count, and a reply that may come too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Listener, Traits, no_listener
from orchestrator.providers.window import Calibration, over_window
from orchestrator.values import Reply, Request, TextItem


class Counting:
    """A vendor that counts so, or does not."""

    traits = Traits("acme", "", "server")

    def __init__(self, counted: int | None = None) -> None:
        self.counted = counted
        self.asked = 0

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        raise AssertionError("nothing is sent")

    async def count(self, request: Request) -> int | None:
        self.asked += 1
        return self.counted

    async def give_up(self, *args: Any) -> None: ...

    async def retrieve(self, *args: Any, **more: Any) -> Any:
        raise AssertionError("nothing was sent")

    def wire(self, request: Request) -> bytes:
        return b""

    async def close(self) -> None: ...


class Record:
    """What calls were estimated and reported, and how often it was looked at."""

    def __init__(self, *calls: tuple[int, int]) -> None:
        self.calls = calls
        self.looked: list[tuple[str, str]] = []

    async def __call__(self, provider: str, model: str) -> tuple[tuple[int, int], ...]:
        self.looked.append((provider, model))
        return self.calls


def over(
    estimate: int,
    window: int | None,
    vendor: Counting | None = None,
    known: Calibration | None = None,
    record: Record | None = None,
) -> ProviderFailure | None:
    request = Request("m", "synthetic_s_1", "", (TextItem(("x",)),), max_output_tokens=100)
    given = (vendor or Counting(), request, estimate, window, known or Calibration(), record or Record())
    return asyncio.run(over_window(*given))


@pytest.mark.parametrize(("estimate", "fits"), [(1000, True), (1001, False)])
def test_R028_where_nobody_counts_the_estimate_decides_with_a_tenth_of_room_and_the_reply(
    estimate: int, fits: bool
) -> None:
    """1000 × 1.1 + 100 = 1200."""
    failure = over(estimate, 1200)
    assert (failure is None) is fits
    if failure is not None:
        assert failure.kind == "too_long"
        assert "by our estimate, with a tenth of room" in failure.message
        assert "over the window of 1,200; nothing was sent" in failure.message


def test_the_estimate_is_put_right_by_what_the_model_has_reported() -> None:
    known = Calibration()
    known.learn("acme", "m", 1000, 2000)
    assert known.tokens("acme", "m", 500) == 1000
    assert known.tokens("acme", "other", 500) == 500
    assert over(545, 1300, known=known) is None  # 1090 × 1.1 + 100
    assert over(546, 1300, known=known) is not None
    known.learn("acme", "m", 1000, 1000)
    assert known.tokens("acme", "m", 1000) == 1700  # 2 + 0.3 × (1 - 2)
    known.learn("acme", "m", 0, 1000)  # nothing can be learned of it
    assert known.tokens("acme", "m", 1000) == 1700


def test_R030_the_vendors_count_wins_and_is_asked_for_near_the_window_only() -> None:
    vendor = Counting(900)
    assert over(550, 1200, vendor) is None
    assert vendor.asked == 0
    assert over(5000, 1200, vendor) is None
    assert vendor.asked == 1
    failure = over(600, 1200, Counting(1101))
    assert failure is not None
    assert "1,101 tokens by the provider's count" in failure.message
    assert over(10**9, None) is None


def test_a_process_that_has_heard_nothing_yet_learns_from_the_record_once_and_only_near_the_window() -> None:
    record, known = Record((1000, 1000), (1000, 2000)), Calibration()
    assert over(275, 1200, known=known, record=record) is None  # even at a token for each byte it fits
    assert record.looked == []
    assert over(900, 1200, known=known, record=record) is not None  # 900 × 1.3, with a tenth and the reply
    assert known.tokens("acme", "m", 1000) == 1300  # the newest weighs 0.3
    assert over(700, 1200, known=known, record=record) is None
    assert record.looked == [("acme", "m")]
    nothing = Record()
    for _ in range(2):
        assert over(900, 1200, known=(known := Calibration()), record=nothing) is None
        assert over(900, 1200, known=known, record=nothing) is None
    assert len(nothing.looked) == 2
    heard, unread = Calibration(), Record((1000, 9000))
    heard.learn("acme", "m", 1000, 1000)
    assert over(900, 1200, known=heard, record=unread) is None
    assert unread.looked == []
