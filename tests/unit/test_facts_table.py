"""The own-words check on hand-written cases: a field, the model's value, the customer's words, and whether it may stay.

Every row is decided by reading it as a person would: could the customer object "I never said that"?
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.facts.own_words import locate, take_apart
from orchestrator.facts.quantities import role_of

KEPT = [
    # amounts of money, in other forms
    ("customer_budget", "997 USD/week", "We can spend $997 a week."),
    ("customer_budget", "997 dollars per week", "We can spend $997 a week."),
    ("customer_budget", "$997/wk", "we pay 997 USD weekly"),
    ("customer_budget", "$997 per week", "a weekly budget of $997"),
    ("customer_budget", "12,000 EUR", "about 12k EUR in total"),
    ("customer_budget", "€12.000", "rund 12.000 Euro"),
    ("customer_budget", "12000 €", "Unser Budget: 12.000,00 €"),
    ("customer_budget", "EUR 2,500,000", "up to 2.5 million euros"),
    ("customer_budget", "$2.5m", "2.5 million dollars is what we raised"),
    ("customer_budget", "3,000 to 5,000 USD", "$3-5k, not more"),
    ("customer_budget", "USD 5000", "between 3 and 5 thousand dollars"),
    ("customer_budget", "CHF 1'997.50", "CHF 1997.50 is the limit"),
    ("customer_budget", "£40 per user per month", "We charge £40/user/month today"),
    ("customer_budget", "five thousand dollars", "$5,000"),
    ("customer_budget", 5000, "We have $5,000 for this"),
    ("customer_budget", 40000, "budget: 40,000"),
    ("customer_budget", 997, "our budget limit is 997 a week"),
    ("budget_usd", 40000, "40k USD at most"),
    ("weekly_budget", "$997", "$997 a week"),
    ("budget_usd_per_week", 997, "we can do 997 dollars a week"),
    ("monthly_fee", 49.5, "$49.50 monthly per member"),
    # counts, shares, durations
    ("members", 300, "We have about 300 active members"),
    ("members", "about 300", "We have about 300 members"),
    ("members", "300 members", "300 members, mostly in Berlin"),
    ("members", "300 members", "members: about 300"),
    ("member_count", 1200, "some 1,200 members"),
    ("team_size", 5, "we are a team of 5"),
    ("team_size", 5, "We are a team of five."),
    ("locations", 3, "three locations"),
    ("churn_rate", "25%", "a quarter leave, so 25 percent churn"),
    ("churn_rate", 0.25, "churn is 25 %"),
    ("churn_rate", 25, "churn is 25 %"),
    ("timeline", "12 weeks", "We need it in 12 weeks"),
    ("timeline", "10 to 12 weeks", "10-12 weeks"),
    ("timeline", "two weeks", "a 2-week trial"),
    ("timeline_weeks", 12, "a 12-week project"),
    ("opening_hours", "9 am to 5 pm", "open 09:00 to 17:00"),
    # dates
    ("launch_date", "2026-03-01", "We open on 1 March 2026."),
    ("launch_date", "2026-03-01", "We open on March 1st, 2026."),
    ("launch_date", "2026-03-01", "Eröffnung am 01.03.2026"),
    ("launch_date", "2026-03-01", "am 1. März 2026 eröffnen wir"),
    ("launch_date", "2026-03-01T00:00:00Z", "1 Mar 2026"),
    ("launch_date", "March 1, 2026", "2026-03-01"),
    ("launch_date", "March 2026", "by 1 March 2026"),
    ("launch_date", "2026-03", "in March 2026"),
    ("launch_date", "Q3 2026", "the third quarter of 2026"),
    ("launch_date", "1 March", "on March 1st"),
    ("launch_date", "2026-03-04", "03/04/2026"),
    ("launch_year", 2026, "We open in March 2026"),
    ("founded", 2019, "founded in 2019"),
    # names and phrases
    ("business", "yoga studio", "We run a Yoga Studio in Berlin"),
    ("business", "Yoga studios", "we own a yoga-studio"),
    ("business", "a small yoga studio in Berlin", "Berlin. We are a small yoga studio"),
    ("business", "yoga studio with 300 members", "We run a yoga studio. It has about 300 members."),
    ("contact", "Zoë Ünal", "ask zoe\u0308 u\u0308nal"),
    ("contact", "Anna O’Neill", "Anna O'Neill decides"),
    ("contact", "ＡＮＮＡ", "Anna decides"),
    ("contact", "anna@studio.example", "write to Anna@Studio.example"),
    ("contact", "+49 30 1234567", "call +49 30 1234567 any time"),
    ("company", "Müller & Söhne", "Wir sind die Müller&Söhne GmbH"),
    ("market", "US", "mostly in the US"),
    ("channel", "web_app", "It should be a web app"),
    ("business", "瑜伽馆", "我们经营一家瑜伽馆"),
    ("product", "B2B", "a b2b product"),
]

REFUSED = [
    # another number
    ("customer_budget", "$997/week", "We can spend $1,997 a week."),
    ("customer_budget", "$997/week", "We can spend $19970 a week."),
    ("customer_budget", "$997/week", "We can spend $99.7 a week."),
    ("customer_budget", "$997/week", "We want a booking app."),
    ("customer_budget", 997, "order 1997-997-1"),
    ("customer_budget", "12k EUR", "12 EUR"),
    ("customer_budget", 12000, "$12"),
    ("customer_budget", "$3-5k", "$3 to $5"),
    ("customer_budget", "$4,000", "$3-5k"),
    ("customer_budget", "-$5,000", "$5,000"),
    ("customer_budget", "2,000 EUR", "2.0 EUR"),
    ("version", "3.11", "3.11.2"),
    # another unit
    ("customer_budget", "$997", "997 people"),
    ("customer_budget", "$997", "€997"),
    ("customer_budget", "997 EUR", "997 dollars"),
    ("customer_budget", "$997", "$997 a week"),
    ("customer_budget", "$997/week", "$997"),
    ("customer_budget", "$997/week", "$997 a month"),
    ("customer_budget", 997, "997 people"),
    ("customer_budget", 12, "in 12 weeks"),
    ("customer_budget", "$5,000", "5000"),
    ("budget_eur", 5000, "$5,000"),
    ("monthly_budget", 997, "$997 a week"),
    ("members", 300, "$300"),
    ("members", 300, "in 300 days"),
    ("members", "300 members", "300 classes"),
    ("members", 300, "300"),
    ("timeline", "12 weeks", "12 months"),
    ("timeline", "3 months", "90 days"),
    ("amount", 997, "$997"),
    # more than was said
    ("launch_date", "2026-03-01", "in March 2026"),
    ("launch_date", "2026-03-01", "on March 1st"),
    ("launch_date", "2026-03-02", "1 March 2026"),
    ("launch_date", "2026-03-01", "in three months"),
    ("launch_date", "2027-03-01", "1 March 2026"),
    ("launch_date", "Q1 2026", "March 2026"),
    ("founded", 2019, "We have 2019 members"),
    ("business", "yoga studio chain", "We run a yoga studio"),
    ("business", "yoga studio with 500 members", "We run a yoga studio. It has about 300 members."),
    # other words
    ("business", "gym", "We run a yoga studio"),
    ("business", "art", "We start a party"),
    ("contact", "Ann", "Anna decides"),
    ("contact", "Anna Schmidt", "Anna and Peter decide. Schmidts is our supplier's rival."),
    ("market", "US", "contact us"),
    ("market", "IT", "it should work"),
    ("needs", "native app", "we do not want an app, native or not"),
    ("has_app", True, "yes, we have an app"),
    ("has_app", "yes", "yes, we have an app"),
    ("business", "the", "the studio"),
    ("business", "", "We run a yoga studio"),
]


def found(field: str, value: Any, text: str, *, labelled: bool = False) -> bool:
    return locate(value, take_apart(text), role_of(field), labelled=labelled) is not None


@pytest.mark.parametrize(("field", "value", "text"), KEPT)
def test_stays(field: str, value: Any, text: str) -> None:
    assert found(field, value, text)


@pytest.mark.parametrize(("field", "value", "text"), REFUSED)
def test_goes(field: str, value: Any, text: str) -> None:
    assert not found(field, value, text)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("customer_budget", 5000, "5000"),
        ("customer_budget", "5000 USD", "5000"),
        ("customer_budget", "$5,000", "about 5k"),
        ("members", "300 people", "300"),
        ("has_app", True, "yes, since May"),
        ("has_app", False, "No"),
        ("has_app", False, "false"),
        ("has_app", "yes", "true"),
        ("team_size", 5, "five"),
    ],
)
def test_the_answer_to_the_field_itself_needs_no_unit(field: str, value: Any, text: str) -> None:
    assert found(field, value, text, labelled=True)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("customer_budget", "$997", "997 people"),
        ("customer_budget", "$997", "€997"),
        ("customer_budget", "$997/week", "997"),
        ("customer_budget", 997, "1997"),
        ("has_app", True, "no"),
        ("has_app", True, "perhaps yes"),
    ],
)
def test_the_answer_to_the_field_itself_still_says_what_it_says(field: str, value: Any, text: str) -> None:
    assert not found(field, value, text, labelled=True)
