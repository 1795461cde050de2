from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.providers.tokens import estimate


def test_counts_utf8_bytes_not_characters() -> None:
    assert estimate("abcdefg") == 2  # 7 / 3.5
    assert estimate("abcdefgh") == 3  # 8 / 3.5 = 2.29, rounded up
    assert estimate("é") == 1  # 2 bytes
    assert estimate("日本語日本語日") == 6  # 21 bytes
    assert estimate("日本語日本語日".encode()) == 6


def test_nothing_weighs_nothing_and_anything_at_least_one() -> None:
    assert estimate("") == 0
    assert estimate("a") == 1


def test_a_lone_surrogate_is_counted_not_a_crash() -> None:
    assert estimate("\ud800") == 1


@given(st.text(max_size=2000))
def test_is_exactly_bytes_over_three_and_a_half_rounded_up(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert estimate(text) == math.ceil(size * 2 / 7)
