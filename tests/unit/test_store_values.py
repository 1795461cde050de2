"""The store's small parts without a database: times, money, secrets, scoped statements."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.store.columns import from_micros, from_pico, to_micros, to_pico
from orchestrator.store.scrub import MASK, Scrubber
from orchestrator.store.sql import Sql, insert

KEY = 'sk-canary/7Q+"end='


def test_a_time_is_microseconds_in_utc() -> None:
    noon_in_paris = datetime(1970, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert to_micros(noon_in_paris) == 11 * 3600 * 1_000_000 + 5
    assert from_micros(to_micros(noon_in_paris)) == noon_in_paris
    assert from_micros(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        to_micros(datetime(2026, 1, 1))


@pytest.mark.parametrize("usd", ["0", "0.0114404", "0.000000000001", "9000000", "1.10"])
def test_money_is_exact(usd: str) -> None:
    assert from_pico(to_pico(Decimal(usd))) == Decimal(usd)


def test_money_below_a_pico_dollar_is_rounded_up() -> None:
    assert to_pico(Decimal("0.0000000000001")) == 1


def test_money_reads_without_trailing_zeros() -> None:
    assert str(from_pico(to_pico(Decimal("0.50")))) == "0.5"


@pytest.mark.parametrize("usd", ["NaN", "Infinity", "-0.01", "9000001"])
def test_money_that_cannot_be_kept_is_refused(usd: str) -> None:
    with pytest.raises(UsageError):
        to_pico(Decimal(usd))


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        json.dumps({"key": KEY}),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(b"user:" + KEY.encode()).decode(),
        base64.b64encode(b"me:" + KEY.encode() + b"!").decode(),
        base64.urlsafe_b64encode(b"x" + KEY.encode()).decode(),
    ],
)
def test_S29_a_key_is_removed_in_every_form_it_travels_in(form: str) -> None:
    scrubber = Scrubber([KEY])
    text = scrubber.text(f"before {form} after")
    assert KEY not in text
    assert MASK in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert scrubber.body(f"before {form} after".encode()) == text.encode()
    # What is left is what stood around the key, and the few bits a base64 digit shares with its neighbours.
    assert len(text) <= len(f"before {MASK} after") + len('{"key": ""}')


def _spelled(char: str, how: int) -> str:
    """A character as a URL or a JSON string may write it."""
    ways = [char, f"%{ord(char):02X}", f"%{ord(char):02x}", f"\\u{ord(char):04x}", f"\\u{ord(char):04X}"]
    ways += [f"\\\\u{ord(char):04x}", "\\/" if char == "/" else char]
    return ways[how % len(ways)]


@given(
    st.lists(st.integers(0, 6), min_size=len(KEY), max_size=len(KEY)), st.sampled_from(["", "\\", "%", "sk-", "\\u00"])
)
def test_S29_a_key_is_removed_however_its_characters_are_spelled(spelling: list[int], before: str) -> None:
    form = "".join(map(_spelled, KEY, spelling))
    text = Scrubber([KEY]).text(f"{before}{form} after")
    assert text in (f"{before}{MASK} after", f"{MASK} after")
    assert Scrubber([KEY]).body(f"{before}{form} after".encode()) == text.encode()


@pytest.mark.parametrize("piece", ["\\", "%", "\\\\u00", "%73%6b", "sk-", "sk-\\", KEY[:-1]], ids=repr)
def test_S29_looking_for_a_key_takes_time_in_proportion(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    begun = time.process_time()
    assert Scrubber([KEY]).text(text) == text
    assert time.process_time() - begun < 5


def test_S29_data_is_scrubbed_down_to_its_keys() -> None:
    data = {KEY: [KEY, 1, None, (f"a{KEY}",)], "b": {"c": KEY}}
    assert Scrubber([KEY]).data(data) == {MASK: [MASK, 1, None, (f"a{MASK}",)], "b": {"c": MASK}}


def test_S29_short_placeholders_are_no_secrets() -> None:
    """`none` and `test` stand in many texts, and are given as keys of servers that need none."""
    assert Scrubber(["none", "test", ""]).text("none of the tests") == "none of the tests"


def test_texts_become_storable_on_every_database() -> None:
    values = {"nul": "a\x00b", "half": "a\ud800b", "euro": "für 5 €", "body": b"a\x00b", "none": None, "count": 3}
    Scrubber([]).clean(values)
    assert values == {
        "nul": "a\N{REPLACEMENT CHARACTER}b",
        "half": "a\\ud800b",
        "euro": "für 5 €",
        "body": b"a\x00b",
        "none": None,
        "count": 3,
    }


def test_S29_texts_and_bodies_on_their_way_into_the_database_are_scrubbed() -> None:
    values = {"text": f"my {KEY}", "body": f"my {KEY}".encode()}
    Scrubber([KEY]).clean(values)
    assert values == {"text": f"my {MASK}", "body": f"my {MASK}".encode()}


def test_a_statement_says_whose_rows_it_means() -> None:
    """A query without a scope raises; it never means "all"."""
    with pytest.raises(ValueError, match="does not hold run inside the scope"):
        Sql("SELECT id FROM run WHERE id = :id")
    assert Sql("SELECT id FROM run r WHERE {scope:r}").text == (
        "SELECT id FROM run r WHERE r.tenant = :tenant AND r.account = :account AND r.subject = :subject"
    )


def test_an_insert_takes_its_scope_from_the_scope() -> None:
    assert insert("t", "a b").text.strip() == (
        "INSERT INTO t (tenant, account, subject, a, b) VALUES (:tenant, :account, :subject, :a, :b)"
    )
