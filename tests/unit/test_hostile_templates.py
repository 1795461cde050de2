"""S22 attacked: templates that never end, that want all memory, that are nested without end, that steal a slot's place.

A template is the project's own code, but what it computes with may be a customer's number, and a mistake in one must
stay one error of one step.
"""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import templates
from orchestrator.building.template_names import template_faults
from orchestrator.errors import Place
from orchestrator.graph import Template
from orchestrator.templates import Plain, Slot, TemplateFault, render
from orchestrator.workers import run_stoppable

INPUTS: dict[str, Plain | Slot] = {"region": "EU", "count": 10**12, "code": 0x100000, "idea": Slot("block", "idea")}
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}" + (
    "{% endfor %}" * 2
)


def _render(text: str) -> tuple[str | Slot, ...]:
    template = Template("task.md.j2", text, "", Place("templates/task.md.j2"))
    return render(template, "plan", INPUTS, lambda slot: None if slot.name in ("rates", "idea") else "not read")


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** (9 ** 9)",
        "2 ** inputs.count",
        "'x' * inputs.count",
        "inputs.count * 'x'",
        "[1] * inputs.count",
        "(10 ** 9999) * (10 ** 99999)",
        "'%2000000d' % 1",
        "'%.2000000f' % 1",
        "'%(a)2000000d' % {'a': 1}",
        "'%*d' % (inputs.count, 1)",
        "'{:{}}'.format(1, inputs.count)",
        "'x'.ljust(inputs.count)",
        "'x'.zfill(inputs.count)",
        "'x'|center(inputs.count)",
        "'x'|indent(inputs.count)",
        "'x'|indent(width=inputs.count)",
        "5|round(-inputs.count)",
        "5|round(inputs.count, 'floor')",
        "[1]|batch(inputs.count, ' ')|list",
        "[1]|slice(inputs.count)|list",
        "range(inputs.count)|list",
        "(10 ** 5000)|string",
        "1e400",
        "'\\ud800'",
        "'\\x00'",
    ],
)
def test_S22_no_single_operation_takes_all_time_or_memory(expression: str) -> None:
    """Each is refused, and not carried out: an operation inside one C function could be stopped by nobody."""
    with pytest.raises(TemplateFault):
        _render("{{ " + expression + " }}")


def test_S22_a_template_makes_no_text_without_end() -> None:
    """Each piece is small, and a loop makes ten thousand of them: it is given up on the way."""
    with pytest.raises(TemplateFault, match="longer than 1,000,000 characters"):
        _render("{% for a in range(10000) %}{{ 'x' * 1000 }}{% endfor %}")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("{{ 2 ** 10 }} {{ 'ab' * 3 }} {{ 7 * 6 }} {{ 2 ** -1 }} {{ 2.5 ** 2 }}", "1024 ababab 42 0.5 6.25"),
        ("{{ '%d of 2000000 %s' % (5000000, 'users') }}", "5000000 of 2000000 users"),
        ("{{ '%(n)05d' % {'n': 5000000} }} {{ 5000000 % 7 }}", "5000000 5"),
        ("{{ 5000000.25|round(1) }} {{ 'a'|center(5) }} {{ 'a'.ljust(3) }}.", "5000000.2   a   a  ."),
        ("{{ inputs.count }} {{ inputs.count + 1 }}", "1000000000000 1000000000001"),
    ],
)
def test_S22_what_is_bounded_still_computes(text: str, made: str) -> None:
    assert _render(text) == (made,)


@pytest.mark.parametrize(
    "text", ["{{ 2 ** 9 }}", "{{ 'x'|center(9) }}", "{{ 'x'|indent(2) }}", "{{ 'x'.ljust(9) }}", "{{ 'x' * 9 }}"]
)
def test_S22_looking_at_a_template_computes_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation that could take all time is counted; Jinja would compute them all while it compiles."""
    computed: list[object] = []
    monkeypatch.setattr(templates, "_refuse_huge", lambda *operands: computed.append(operands))
    monkeypatch.setattr(templates, "_refuse_far", lambda values: computed.append(values))
    assert template_faults(text, {}, {}) == ()
    assert computed == []
    _render(text)
    assert computed, "rendering it does compute, and is seen"


def test_S22_looking_at_a_template_that_never_ends_ends() -> None:
    assert template_faults(ENDLESS, {}, {}) == ()


DEEP = [
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "{{ 1" + "+1" * 20000 + " }}",
    "{{ 'x'" + "|upper" * 5000 + " }}",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "{{" * 100_000,
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_S22_a_template_nested_without_end_is_a_fault_with_a_place(text: str) -> None:
    (fault,) = template_faults(text, {}, {})
    assert (fault.code, fault.line) == ("P212", 1)
    with pytest.raises(TemplateFault):
        _render(text)


def test_S22_loops_nested_too_deeply_for_python_are_a_fault() -> None:
    with pytest.raises(TemplateFault, match="nested"):
        _render("{% for a in range(2) %}" * 25 + "{% endfor %}" * 25)


@pytest.mark.parametrize("text", ["a\n\U00100000", "\n\U0010fffd{{ quote('rates', 'x') }}", "\n{# \U00100001 #}"])
def test_S22_only_slots_use_their_characters(text: str) -> None:
    """Written into the template by hand, the character of a slot would make a second one."""
    (fault,) = template_faults(text, {}, {})
    assert (fault.code, fault.line) == ("P214", 2)
    with pytest.raises(TemplateFault, match="reserved for slots") as caught:
        _render(text)
    assert caught.value.diagnostics[0].place == Place("templates/task.md.j2", 2)


def test_S22_a_computed_character_is_never_another_slot() -> None:
    with pytest.raises(TemplateFault, match="reserved for slots"):
        _render("{{ '%c' % inputs.code }}")
    with pytest.raises(TemplateFault, match="placed twice"):
        _render("{{ '%c' % inputs.code }}{{ block('rates') }}")


CAGES = ["namespace(x={})", "dict(x={})", "cycler({})", "joiner({})", "[{}]", "({}, 1)", "{{'k': {}}}"]
LEAKS = [
    "{}",
    "{}|string",
    "{}|tojson",
    "{}|urlencode",
    "'%s' % ({},)",
    "'{{}}'.format({})",
    "{}|list",
    "{}|items|list",
]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("cage", CAGES)
def test_S22_a_slot_inside_of_something_else_cannot_be_written_either(cage: str, leak: str) -> None:
    with pytest.raises(TemplateFault):
        _render("{{ " + leak.format(cage.format("block('rates')")) + " }}")


ATOMS = [
    "block('rates')",
    "quote('rates', 'a')",
    "inputs.idea",
    "inputs.region",
    "inputs",
    "block",
    "1",
    "'x'",
    "ns",
    "loop",
]
ATOMS += ["range(3)", "dict(a=1)", "self", "caller", "cycler(1)", "joiner()", "none", "'{0.x}'", "'%r'"]
FILTERS = [
    "upper",
    "string",
    "list",
    "join",
    "first",
    "last",
    "tojson",
    "attr('_mark')",
    "map('upper')",
    "map(attribute='x')",
]
FILTERS += [
    "length",
    "sort",
    "sum",
    "reverse",
    "replace('a', 'b')",
    "format(1)",
    "default('d')",
    "items",
    "unique",
    "e",
    "safe",
]
FILTERS += [
    "groupby('x')",
    "batch(2)",
    "slice(2)",
    "xmlattr",
    "urlize",
    "forceescape",
    "int",
    "round",
    "trim",
    "wordwrap(5)",
]
BINARY = ["+", "~", "*", "%", "==", "<", "in", "and", "or", "-", "/", "//", "**", "is sameas", "is in"]
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(FILTERS)).map(lambda p: f"({p[0]})|{p[1]}"),
        st.tuples(inner, st.sampled_from(BINARY), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, st.sampled_from([".x", ".__class__", "['_mark']", "[0]", "[1:]", "()", ".format(1)"])).map(
            "".join
        ),
        inner.map(lambda x: f"[{x}]"),
        inner.map(lambda x: f"dict(a={x})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    ),
    max_leaves=5,
)
SHAPES = ["{{{{ {} }}}}", "{{% set ns = {} %}}{{{{ ns }}}}", "{{% for x in {} %}}{{{{ x }}}}{{% endfor %}}"]
SHAPES += [
    "{{% filter upper %}}{{{{ {} }}}}{{% endfilter %}}",
    "{{% macro m(x) %}}{{{{ x }}}}{{% endmacro %}}{{{{ m({}) }}}}",
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SHAPES), expressions)
def test_S22_whatever_a_template_does_slots_come_out_whole_or_not_at_all(shape: str, expression: str) -> None:
    """Text and slots, or a TemplateFault: never another error, never a trace of a slot's inside in the text."""
    text = shape.format(expression)
    template_faults(text, {}, {})
    try:
        pieces = _render(text)
    except TemplateFault:
        return
    written = "".join(piece for piece in pieces if isinstance(piece, str))
    assert not any(ord(char) >= 0x100000 for char in written)
    assert "_Piece" not in written
    blocks = [piece.name for piece in pieces if isinstance(piece, Slot) and piece.kind == "block"]
    assert len(blocks) == len(set(blocks))


def test_S22_a_template_that_never_ends_is_stopped() -> None:
    """Not only is its step given up: its thread ends, else it would use a core for as long as the process lives."""
    seen: list[threading.Thread] = []

    def work() -> object:
        seen.append(threading.current_thread())
        return _render(ENDLESS)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_stoppable(work), 0.2)

    asyncio.run(main())
    seen[0].join(timeout=60)
    assert not seen[0].is_alive()
