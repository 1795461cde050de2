"""S22: a template arranges slots; it can reach, change or lose nothing of what goes into them."""

from __future__ import annotations

import pytest

from orchestrator.errors import Place
from orchestrator.graph import Template
from orchestrator.templates import MAX_OUTPUT, Plain, Slot, TemplateFault, is_plain, place_of, render

INPUTS: dict[str, Plain | Slot] = {"region": "EU", "team-size": 3, "rush": True, "idea": Slot("block", "idea")}


def _refusal(slot: Slot) -> str | None:
    return None if slot.name in ("rates", "idea") else f"the step does not read {slot.name}"


def _render(text: str) -> tuple[str | Slot, ...]:
    template = Template("task.md.j2", text, "", Place("templates/task.md.j2"))
    return render(template, "tech-stack", INPUTS, _refusal)


BLOCK = Slot("block", "rates")
QUOTE = Slot("quote", "rates", "weekly_usd")


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Plan it.\n", ("Plan it.",)),
        ("{{ inputs.region }}: {{ inputs.team_size + 1 }} {{ inputs.rush }}", ("EU: 4 True",)),
        ("{% if inputs.team_size > 2 %}many{% endif %}", ("many",)),
        ("See\n{{ block('rates') }}\nnow", ("See\n", BLOCK, "\nnow")),
        ("{{ block('rates') }}", (BLOCK,)),
        ("{{ inputs.idea }}!", (Slot("block", "idea"), "!")),
        ("{{ quote('rates', 'weekly_usd') }} a week", (QUOTE, " a week")),
        ("{% for n in range(2) %}{{ quote('rates', 'weekly_usd') }}{% endfor %}", (QUOTE, QUOTE)),
        ("{% set b = block('rates') %}a{{ b }}", ("a", BLOCK)),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(block('rates')) }}", ("<", BLOCK, ">")),
        ("{% filter upper %}see {{ block('rates') }}{% endfilter %}", ("SEE ", BLOCK)),
        ("{% set all %}ab{{ block('rates') }}cd{% endset %}{{ all[::-1] }}", ("dc", BLOCK, "ba")),
        ('{% raw %}{"a": {{ 1 }}}{% endraw %} {"json": {"x": 1}}', ('{"a": {{ 1 }}} {"json": {"x": 1}}',)),
        ("{{ '{{ inputs.region }}' }}", ("{{ inputs.region }}",)),
    ],
)
def test_S22_text_and_slots_in_order(text: str, pieces: tuple[str | Slot, ...]) -> None:
    """Rendered once: what comes out is not looked at again."""
    assert _render(text) == pieces


@pytest.mark.parametrize(
    "expression",
    [
        "block('rates')|upper",
        "block('rates')|string",
        "block('rates')|trim",
        "block('rates')|e",
        "block('rates')|safe",
        "block('rates')|length",
        "block('rates')|list",
        "block('rates')|first",
        "block('rates')|replace('a', 'b')",
        "block('rates')|truncate(3)",
        "block('rates')|indent",
        "block('rates')|int",
        "block('rates')|tojson",
        "block('rates')|pprint",
        "block('rates')|attr('_mark')",
        "block('rates')|attr('content')",
        "[block('rates')]|map(attribute='_mark')|join",
        "[block('rates')]|map(attribute='content')|join",
        "[block('rates')]|map('upper')|join",
        "[block('rates')]|join",
        "[block('rates')]",
        "(block('rates'),)",
        "{'k': block('rates')}",
        "block('rates')[0]",
        "block('rates')[1:3]",
        "block('rates').content",
        "block('rates')._mark",
        "block('rates').__class__",
        "block('rates').__init__.__globals__",
        "'%r' % block('rates')",
        "'%s' % block('rates')",
        "'{0.x}'.format(block('rates'))",
        "'{0._mark}'.format(block('rates'))",
        "'{}'.format(block('rates'))",
        "'x' ~ block('rates')",
        "'x' + block('rates')",
        "block('rates') * 2",
        "block('rates') == block('rates')",
        "block('rates') in ['x']",
        "block('rates') or 'x'",
        "'x' if block('rates') else 'y'",
        "block('rates')()",
        "quote('rates', 'weekly_usd')|upper",
        "quote('rates', 'weekly_usd') + 1",
        "inputs.idea|upper",
        "inputs.idea[:10]",
        "inputs",
        "inputs|list",
        "inputs.items()",
        "inputs.__class__",
        "inputs._values",
        "inputs['_values']",
        "block",
        "block|string",
        "block.__globals__",
        "block.__call__",
        "quote",
        "inputs.region.upper",
        "inputs.region.__class__.__mro__",
        "inputs.region|attr('__class__')",
        "[1, 2]|random",
        "lipsum()",
        "self",
        "none",
        "rates",
        "artifacts",
        "config",
        "inputs.nothing",
        "block('nothing')",
        "quote('nothing', 'x')",
        "block()",
        "block('rates', 'x')",
        "block(name='rates')",
        "block(1)",
        "quote('rates')",
        "'\\U00100000'",
        "1 / 0",
    ],
)
def test_S22_everything_else_is_an_error_at_its_line(expression: str) -> None:
    """No filter, slice, join, format or attribute gets at a slot; no name but the three exists."""
    with pytest.raises(TemplateFault, match=r"the template task\.md\.j2 of step tech-stack: ") as caught:
        _render("first line\n{{ " + expression + " }}")
    assert caught.value.exit_code == 3
    assert caught.value.diagnostics[0].place in (Place("templates/task.md.j2", 2), Place("templates/task.md.j2"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ block('rates') }}{{ block('rates') }}", 'the block "rates" is placed twice'),
        ("{% set b = block('rates') %}{{ b }}{{ b }}", 'the block "rates" is placed twice'),
        ("{% set b = block('rates') %}none", 'block("rates") is made and then lost'),
        ("{% set q = quote('rates', 'a') %}none", 'quote("rates", "a") is made and then lost'),
        ("{% set all %}ab{{ block('rates') }}{% endset %}{{ all[:2] }}", 'block("rates") is made and then lost'),
        ("{{ '\\U0010fffd' }}", "a character that is reserved for slots"),
        ("{{ 'x' * 2000000 }}", f"longer than {MAX_OUTPUT:,} characters"),
        ("{% include 'other' %}", "no loader"),
        ("{% extends 'other' %}", "no loader"),
        ("{{ inputs.region", "unexpected end of template"),
        ("{% endfor %}", "unknown tag 'endfor'"),
    ],
)
def test_S22_slots_are_counted_and_faults_are_named(text: str, reason: str) -> None:
    with pytest.raises(TemplateFault) as caught:
        _render(text)
    assert reason in caught.value.message


def test_S22_an_input_may_stand_in_two_places_however_long_its_value_is() -> None:
    """Else a customer's 201st letter would make a run fail that went well with 200."""
    idea = Slot("block", "idea")
    assert _render("{{ inputs.idea }} and {{ inputs.idea }}") == (idea, " and ", idea)
    assert _render("{% for n in range(2) %}{{ inputs.idea }}{% endfor %}") == (idea, idea)
    assert _render("{{ inputs.idea }}: {{ block('idea') }}") == (idea, ": ", idea)


def test_S22_an_unused_input_block_is_not_lost() -> None:
    """Only what a template asks for by `block` or `quote` is owed; a question about an input is none."""
    assert _render("{% if inputs.idea is defined %}yes{% endif %}") == ("yes",)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("EU", True),
        ("", True),
        ("x" * 200, True),
        ("x" * 201, False),
        ("two\nlines", False),
        ("ends\n", False),
        ("two\u2028lines", False),
        ("a\rb", False),
        ("a slot \U00100000", False),
        (5, True),
        (5.5, True),
        (False, True),
        (None, False),
        (["EU"], False),
        ({"a": 1}, False),
    ],
)
def test_S22_plain_values_are_one_short_line(value: object, plain: bool) -> None:
    assert is_plain(value) is plain


def test_S22_the_same_template_gives_the_same_pieces() -> None:
    text = "{{ block('rates') }} {{ quote('rates', 'weekly_usd') }} {{ inputs.region }}"
    assert _render(text) == _render(text)


def test_the_place_of_an_inline_prompt_is_a_line_of_its_pipeline() -> None:
    inline = Template("tech-stack", "one\ntwo\n", "", Place("discovery.yaml", 40, 13))
    assert place_of(inline, 2) == Place("discovery.yaml", 42)
    assert place_of(Template("tech-stack", "one line", "", Place("discovery.yaml", 40, 13)), 1).line == 40
    with pytest.raises(TemplateFault, match=r"^the prompt of step tech-stack: 'nope' is undefined") as caught:
        render(Template("tech-stack", "one\n{{ nope }}\n", "", Place("d.yaml", 40, 13)), "tech-stack", {}, _refusal)
    assert str(caught.value.place) == "d.yaml:42"
