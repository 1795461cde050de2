"""The vocabulary of quantities: words and signs for currencies, units, periods and scales, each with one name."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from orchestrator.facts.wording import word_list, word_set


def _table(rows: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, spellings in rows.items() for word in spellings.split()}


SIGNS: Final = {
    "us$": "USD", "a$": "AUD", "c$": "CAD", "ca$": "CAD", "nz$": "NZD", "hk$": "HKD", "s$": "SGD", "r$": "BRL",
    "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "₽": "RUB", "₺": "TRY", "₪": "ILS",
}  # fmt: skip

CURRENCIES: Final = _table(
    {
        "USD": "usd dollar dollars buck bucks usdollar",
        "EUR": "eur euro euros",
        "GBP": "gbp pound pounds quid sterling",
        "CHF": "chf sfr franken",
        "JPY": "jpy yen",
        "INR": "inr rupee rupees rs",
        "CAD": "cad",
        "AUD": "aud",
        "NZD": "nzd",
        "SGD": "sgd",
        "HKD": "hkd",
        "CNY": "cny rmb yuan",
        "SEK": "sek",
        "NOK": "nok",
        "DKK": "dkk",
        "PLN": "pln zloty",
        "CZK": "czk",
        "HUF": "huf",
        "TRY": "lira",
        "BRL": "brl reais",
        "MXN": "mxn",
        "ZAR": "zar rand",
        "AED": "aed",
        "KRW": "krw",
    }
)

PERIODS: Final = _table(
    {
        "second": "second seconds sec secs sekunde sekunden",
        "minute": "minute minutes min mins minuten",
        "hour": "hour hours hr hrs h stunde stunden std",
        "day": "day days d tag tage tagen",
        "week": "week weeks wk wks w woche wochen",
        "month": "month months mo mos mth mths monat monate monaten",
        "quarter": "quarter quarters quartal quartale",
        "year": "year years yr yrs y jahr jahre jahren annum",
        "sprint": "sprint sprints",
    }
)
"""A lone `m` is left out: minutes, months, metres and millions all write it."""

MEASURES: Final = _table(
    {
        "percent": "percent pct % prozent",
        "km": "km kilometer kilometers kilometre kilometres",
        "metre": "meter meters metre metres",
        "mile": "mile miles",
        "kg": "kg kilo kilos kilogram kilograms",
        "gram": "g gram grams",
        "tonne": "tonne tonnes ton tons",
        "litre": "l liter liters litre litres",
        "sqm": "sqm m² m2 qm",
        "sqft": "sqft",
        "kb": "kb kilobyte kilobytes",
        "mb": "mb megabyte megabytes",
        "gb": "gb gigabyte gigabytes",
        "tb": "tb terabyte terabytes",
    }
)

UNITS: Final[Mapping[str, str]] = CURRENCIES | PERIODS | MEASURES
MONEY: Final = frozenset(CURRENCIES.values()) | frozenset(SIGNS.values())
TIME: Final = frozenset(PERIODS.values())

ADVERBS: Final = {
    "hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "quarterly": "quarter", "yearly": "year",
    "annual": "year", "annually": "year", "stündlich": "hour", "täglich": "day", "wöchentlich": "week",
    "monatlich": "month", "jährlich": "year",
}  # fmt: skip

SCALES: Final[Mapping[str, Decimal]] = {
    word: Decimal(value)
    for value, spellings in {
        12: "dozen dutzend",
        100: "hundred hundert",
        1_000: "k thousand grand tsd tausend",
        100_000: "lakh lakhs",
        1_000_000: "m mm mn mio million millions millionen",
        10_000_000: "crore crores",
        1_000_000_000: "b bn billion billions mrd milliarde milliarden",
    }.items()
    for word in spellings.split()
}

_ONES: Final = word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS: Final = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN: Final = word_list("null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf")

NUMBER_WORDS: Final[Mapping[str, int]] = (
    {word: number for number, word in enumerate(_GERMAN) if number}
    | {word: number for number, word in enumerate(_ONES)}
    | {tens: 10 * number for number, tens in enumerate(_TENS, start=2)}
    | {
        f"{tens}{joint}{one}": 10 * number + unit
        for number, tens in enumerate(_TENS, start=2)
        for unit, one in enumerate(_ONES[1:10], start=1)
        for joint in ("-", " ")
    }
)

PERSONS: Final = word_set("person people folk head")

MONEY_WORDS: Final = word_set(
    "budget price cost spend spending fee revenue salary wage rate charge turnover income profit funding payment "
    "rent subscription money expense investment capital"
)
PERCENT_WORDS: Final = word_set("percent percentage pct share ratio margin discount rate growth")
DATE_WORDS: Final = word_set(
    "date day launch deadline year founded since start started end due opening opened birthday birth release "
    "established"
)
TIME_WORDS: Final = word_set(
    "january february march april june july august september october november december spring summer autumn winter "
    "monday tuesday wednesday thursday friday saturday sunday christmas easter soon asap tomorrow next season "
    "week month quarter year januar februar märz mai juni juli oktober dezember frühling sommer herbst bald sofort"
)
