"""Words, dates and numbers in running text, each against what a reader of the text would say stands there."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.facts.dates import CalendarDate, find_dates
from orchestrator.facts.own_words import locate, take_apart
from orchestrator.facts.quantities import Quantity, find_quantities, read_number, role_of
from orchestrator.facts.wording import fold, means_null, quote, singular, words

ROLE = role_of("customer_budget")


def only(text: str) -> Quantity:
    found = take_apart(text).quantities
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("digits", "values"),
    [
        ("997", ["997"]),
        ("1,997", ["1997"]),
        ("1.5", ["1.5"]),
        ("1,5", ["1.5"]),
        ("1,997.50", ["1997.50"]),
        ("1.997,50", ["1997.50"]),
        ("1.234.567", ["1234567"]),
        ("12,34,567", ["1234567"]),
        ("1'997.50", ["1997.50"]),
        ("0.997", ["0.997"]),
        ("1.997", ["1.997", "1997"]),
        ("3.11.2", []),
        ("5,6,7", []),
        ("1,2345,678", []),
        ("9" * 41, []),
    ],
)
def test_separators(digits: str, values: list[str]) -> None:
    assert read_number(digits) == tuple(Decimal(value) for value in values)


def test_money_has_no_third_decimal() -> None:
    assert read_number("1.997", money=True) == (Decimal(1997),)
    assert only("1.997 €").readings == (Decimal(1997),)


@pytest.mark.parametrize(
    ("text", "value", "unit", "per"),
    [
        ("$997 a week", 997, "USD", {"week"}),
        ("997 USD/week", 997, "USD", {"week"}),
        ("US$ 997 per user per month", 997, "USD", {"user", "month"}),
        ("997 Euro im Monat", 997, "EUR", {"month"}),
        ("5.000,- €", 5000, "EUR", set()),
        ("2,5 Mio. €", 2_500_000, "EUR", set()),
        ("two hundred thousand dollars", 200_000, "USD", set()),
        ("a dozen eggs", 12, None, set()),
        ("40h/week", 40, "hour", {"week"}),
        ("12-week", 12, "week", set()),
        ("25 %", 25, "percent", set()),
        ("-5 %", -5, "percent", set()),
        ("120000 p.a.", 120000, None, {"year"}),
        ("2:30 pm", 14 * 60 + 30, "clock", set()),
        ("0.5m EUR", 500_000, "EUR", set()),
        ("5 m", 5, None, set()),
    ],
)
def test_units(text: str, value: int, unit: str | None, per: set[str]) -> None:
    quantity = only(text)
    assert quantity.readings == (Decimal(value),)
    assert quantity.unit == unit
    assert quantity.per == frozenset(per)


@pytest.mark.parametrize(
    "text",
    ["24/7", "v2.0", "B2B", "3.11.2", "1st", "300members", "Q3", "no numbers", "3D", "not set one", "one of us"],
)
def test_what_is_part_of_a_name_is_no_number(text: str) -> None:
    assert take_apart(text).quantities == ()


@pytest.mark.parametrize(
    ("text", "low", "high", "unit"),
    [
        ("3-5k", 3000, 5000, None),
        ("$3 to 5k", 3000, 5000, "USD"),
        ("between 10 and 12 weeks", 10, 12, "week"),
        ("10–12 weeks", 10, 12, "week"),
        ("8k - 12k EUR", 8000, 12000, "EUR"),
        ("500-2k USD", 500, 2000, "USD"),  # 500k to 2k would run downwards
    ],
)
def test_ranges_share_scale_and_unit(text: str, low: int, high: int, unit: str | None) -> None:
    found = take_apart(text).quantities
    assert [q.readings for q in found] == [(Decimal(low),), (Decimal(high),)]
    assert [q.unit for q in found] == [unit, unit]


def test_the_words_beside_a_number_stop_at_another_number() -> None:
    five, three_hundred = take_apart("our team of 5 has 300 active members, mostly young").quantities
    assert five.before == ("team",)
    assert three_hundred.nouns == ("active", "member")
    assert "team" not in three_hundred.before


def test_dates_are_not_read_as_numbers() -> None:
    text = take_apart("between 2026-03-01 and March 5th, 2026 at most 7 people")
    assert [day.readings[0] for day in text.dates] == [CalendarDate(2026, 3, 1), CalendarDate(2026, 3, 5)]
    assert [q.readings for q in text.quantities] == [(Decimal(7),)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 March 2026", {(2026, 3, 1)}),
        ("the 1st of March 2026", {(2026, 3, 1)}),
        ("MARCH 1, 2026", {(2026, 3, 1)}),
        ("1. März 2026", {(2026, 3, 1)}),
        ("01.03.2026", {(2026, 3, 1)}),
        ("2026/03/01", {(2026, 3, 1)}),
        ("03/04/2026", {(2026, 3, 4), (2026, 4, 3)}),
        ("25/12/2026", {(2026, 12, 25)}),
        ("March 2026", {(2026, 3, None)}),
        ("2026-03", {(2026, 3, None)}),
        ("Dec 24", {(None, 12, 24)}),
        ("2026-03-01T14:30:00Z", {(2026, 3, 1)}),
        ("31 February 2026", set()),
        ("2026-13-01", set()),
        ("we may 5 times", set()),
        ("March 15k", set()),
        ("1997", set()),
    ],
)
def test_dates(text: str, expected: set[tuple[int | None, int | None, int | None]]) -> None:
    found = find_dates(text)
    assert {(r.year, r.month, r.day) for day in found for r in day.readings} == expected


def test_a_date_is_within_a_more_precise_one_only() -> None:
    month, day = CalendarDate(2026, 3), CalendarDate(2026, 3, 1)
    assert month.within(day)
    assert not day.within(month)


# --- words ------------------------------------------------------------------------------------------------------------


def test_folding_keeps_the_way_back() -> None:
    source = "Bei Cafe\u0301 ＵＮＡＬ\u00a0– seit\u200b 2019"
    folded = fold(source)
    assert folded.text == "Bei Café UNAL - seit 2019"
    start = folded.text.index("UNAL")
    low, high = folded.original(start, start + 4)
    assert source[low:high] == "ＵＮＡＬ"
    low, high = folded.original(4, 8)
    assert source[low:high] == "Cafe\u0301"


def test_numbers_and_signs_are_whole_words() -> None:
    assert [word.raw for word in words(fold("$1,997 for B2B-apps, 12 000 users: 瑜伽"))] == [
        *["$", "1,997", "for", "B2B", "apps", "12 000", "users", "瑜", "伽"]
    ]


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        *[("studios", "studio"), ("agencies", "agency"), ("classes", "class"), ("business", "business")],
        *[("boxes", "box"), ("bus", "bus"), ("us", "us"), ("analysis", "analysis")],
    ],
)
def test_plurals(plural: str, one: str) -> None:
    assert singular(plural) == one


@pytest.mark.parametrize(
    "text",
    [
        *["", "  ", "null", "None", "N/A", "n.a.", "unknown", "Not stated", "not stated.", "not yet decided", "-", "?"],
        *["TBD", "none given", "unspecified", "not specified by the customer", "No budget stated", "nicht angegeben"],
        *["The customer has not stated a budget", "customer did not specify", "not provided in the brief", "…"],
    ],
)
def test_words_for_null(text: str) -> None:
    assert means_null(text)


@pytest.mark.parametrize(
    "text",
    ["no", "0", "none of the above options fit", "not a gym", "NA", "unknown pleasures", "nobody", "false", "no app"],
)
def test_words_that_are_not_null(text: str) -> None:
    assert not means_null(text)


def test_a_quote_is_verbatim_and_short() -> None:
    source = "We run a studio. " + "word " * 40 + "and we can spend $997 a week on it, " + "word " * 40 + "end."
    folded = fold(source)
    start = folded.text.index("$997")
    said = quote(folded, (start, start + len("$997 a week")))
    assert said in source
    assert "$997 a week" in said
    assert len(said) <= 120
    assert source[source.index(said) - 1] == " "  # no word is cut


# --- properties -------------------------------------------------------------------------------------------------------

amounts = st.integers(1, 9_999_999)


def _dotted(amount: int) -> str:
    return f"{amount:,}".replace(",", ".")


def _writings(amount: int) -> list[str]:
    """One amount of dollars per week, as people write it."""
    grouped = f"{amount:,}"
    return [
        *(f"${grouped} a week", f"${amount}/week", f"{grouped} USD per week", f"{amount} dollars weekly"),
        *(
            f"USD {_dotted(amount)} per week",
            f"{_dotted(amount)},00 USD/wk",
            f"$ {grouped.replace(',', ' ')} each week",
        ),
        *(f"about {amount}.00 US dollars every week".replace("US ", ""), f"a weekly budget of ${amount}"),
    ]


@given(amounts, st.integers(0, 8), st.integers(0, 8), st.sampled_from(["We can spend {}.", "({})", "{} it is, not 3"]))
def test_any_writing_of_an_amount_is_found_in_any_other(amount: int, a: int, b: int, frame: str) -> None:
    value, said = _writings(amount)[a], frame.format(_writings(amount)[b])
    assert locate(value, take_apart(said), ROLE) is not None, (value, said)


@given(amounts, amounts, st.integers(0, 8), st.integers(0, 8))
def test_another_amount_is_never_found(one: int, other: int, a: int, b: int) -> None:
    if one != other:
        assert locate(_writings(one)[a], take_apart(f"We can spend {_writings(other)[b]}."), ROLE) is None


@given(
    st.integers(1, 999),
    st.sampled_from(["USD", "people", "weeks", "%"]),
    st.sampled_from(["EUR", "chairs", "days", "km"]),
)
def test_another_unit_is_never_found(number: int, mine: str, said: str) -> None:
    assert locate(f"{number} {mine}", take_apart(f"We said {number} {said}."), ROLE) is None


@given(st.decimals(0, 10**9, places=2, allow_nan=False))
def test_a_json_number_is_found_by_value(amount: Decimal) -> None:
    assert locate(float(amount), take_apart(f"our budget is {amount:,.2f} dollars"), ROLE) is not None


@given(st.dates(min_value=date(1950, 1, 1), max_value=date(2150, 1, 1)))
def test_any_writing_of_a_date_is_found_in_any_other(day: date) -> None:
    forms = [day.isoformat(), f"{day:%d.%m.%Y}", f"{day.day} {day:%B} {day.year}", f"{day:%B} {day.day}, {day.year}"]
    role = role_of("launch_date")
    for value in forms:
        for said in forms:
            assert locate(value, take_apart(f"We open on {said} at last."), role) is not None


@given(st.text())
def test_any_text_can_be_taken_apart(text: str) -> None:
    apart = take_apart(text)
    size = len(apart.folded.text)
    assert len(apart.folded.starts) == len(apart.folded.ends) == size
    assert all(0 <= q.start < q.end <= size for q in apart.quantities)
    assert all(apart.folded.original(w.start, w.end)[1] <= len(text) for w in apart.words)


@given(st.text(alphabet="0123456789.,' $€kmM%-/:th eur", max_size=80))
def test_any_mess_of_figures_can_be_read(text: str) -> None:
    assert all(q.readings for q in find_quantities(fold(text).text))


def test_long_digits_take_no_long_time() -> None:
    assert take_apart("1" * 100_000).quantities == ()
    assert take_apart("1 000" * 10_000 + "x").folded.text
    assert take_apart("1." * 50_000).quantities == ()
