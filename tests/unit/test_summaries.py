"""What a summary may say, and how what is too large for one request is taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.context.summaries import figure_faults, parts, source_room, task, unfounded
from orchestrator.errors import StepFailed
from orchestrator.providers.tokens import estimate

SOURCE = """{"total_usd": 1200000, "share": 0.25, "per_week": "$997", "start": "2026-10-26", "team": "40 people"}"""


@pytest.mark.parametrize(
    "said",
    [
        "$1.2 million in all",
        "a share of 25%",
        "$997 a week, from 26 October 2026",
        "a team of 40 in 3 countries",  # a small number counts, and may be worked out
        "two or three vendors",
        "",
    ],
)
def test_what_the_source_holds_may_be_said_in_other_forms(said: str) -> None:
    assert unfounded(said, SOURCE) == ()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("$1.3 million in all", ("$1.3 million",)),
        ("$997 a week is $3,988 a month", ("$3,988",)),
        ("40 EUR", ()),  # the source names no unit for it
        ("997 EUR a week", ("997 EUR",)),
        ("a share of 26%", ("26%",)),
        ("$8 and $8 again", ("$8",)),
        ("19970 people", ("19970",)),
        ("from 27 October 2026", ("27 October 2026",)),
        ("in October 2026", ()),
        ("in 2026", ()),
        ("in 2027", ("2027",)),
    ],
)
def test_a_figure_that_is_not_there_or_in_another_unit_is_found(said: str, wrong: tuple[str, ...]) -> None:
    assert tuple(words.split(" a ")[0].removesuffix(" people") for words in unfounded(said, SOURCE)) == wrong


def test_the_model_is_told_which_figures_and_what_to_do() -> None:
    (fault,) = figure_faults("$8 and $9", SOURCE)
    assert fault.feedback == (
        'Check failed: the summary says "$8", "$9", which is not in what it sums up. '
        "Answer again without those figures, or with what is written there."
    )


@given(st.text(max_size=400), st.integers(min_value=4, max_value=60))
def test_parts_are_the_whole_in_pieces_that_fit(text: str, tokens: int) -> None:
    pieces = parts(text, tokens)
    assert "".join(pieces) == text
    assert all(estimate(piece) <= tokens for piece in pieces)


def test_parts_end_with_whole_lines_where_lines_are_not_too_long() -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    assert all(piece.endswith("\n") for piece in parts(text, 20))


def test_the_room_for_the_whole_is_the_window_less_the_reply_and_headroom() -> None:
    """Ten percent of headroom, a thousand tokens for what stands around it."""
    assert source_room(None, 8_000, "note", "log") is None
    assert source_room(12_000, 1_000, "note", "log") == 9_000
    with pytest.raises(StepFailed, match="the window of 2,000 tokens holds a reply of 1,000 and nothing beside it"):
        source_room(2_000, 1_000, "note", "log")


def test_the_task_asks_for_fewer_words_than_the_limit_holds() -> None:
    assert "in at most 1,000 words" in task(2_000)
    assert "in at most 20 words" in task(10)
