"""The selection language: each form on a small graph, random expressions against a naive reading, every refusal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.graph import Graph
from orchestrator.selection import MAX_NESTING, choose, parse, select
from orchestrator.values import StepRow, StepStatus
from tests.graph_kit import Part, dags, graph_of, row_of

#  idea → market → stack → estimate → report        market → rivals → estimate        (rates stands alone)
GRAPH = graph_of(
    {
        "market": Part(["idea"]),
        "rivals": Part(["market"], tags=["research"]),
        "rates": Part(["region"], kind="python", tags=["costs"]),
        "stack": Part(["market"]),
        "estimate": Part(["stack", "rivals"], tags=["costs", "final"]),
        "report": Part(needs=["estimate"], kind="python"),
    },
    ["idea", "region"],
)
ROWS = (
    row_of("idea", kind="input", status="succeeded"),
    row_of("market", cost="0.10"),
    row_of("rivals", "failed", cost="0.25"),
    row_of("rates"),
    row_of("stack", cost="0.100001"),
    row_of("estimate", "pending"),
    row_of("report", "pending"),
)
STALE = {"stack", "estimate"}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("market", "market"),
        ("step:market", "market"),
        ("market+", "market rivals stack estimate report"),
        ("+estimate", "market rivals stack estimate"),
        ("1+estimate", "rivals stack estimate"),
        ("market+1", "market rivals stack"),
        ("market+2", "market rivals stack estimate"),
        ("0+estimate+0", "estimate"),
        ("+stack+", "market stack estimate report"),
        ("1+stack+1", "market stack estimate"),
        ("1+step:stack", "market stack"),
        ("idea+", "market rivals stack estimate report"),
        ("idea+1", "market"),
        ("region+", "rates"),
        ("tag:costs", "rates estimate"),
        ("kind:python", "rates report"),
        ("status:failed", "rivals"),
        ("status:pending", "estimate report"),
        ("stale", "stack estimate"),
        ("cost-over:0.10", "rivals stack"),
        ("cost-over:0", "market rivals stack"),
        ("report market", "market report"),
        ("report or market", "market report"),
        ("kind:llm and tag:costs", "estimate"),
        ("not kind:llm", "rates report"),
        ("not market+", "rates"),
        ("not stale and kind:llm", "market rivals"),
        ("not (stale and kind:llm)", "market rivals rates report"),
        ("market or stack and tag:costs", "market"),
        ("(market or estimate) and tag:costs", "estimate"),
        ("(market estimate) and tag:costs", "estimate"),
        ("not not rates", "rates"),
        ("  market\n or\trates ", "market rates"),
    ],
)
def test_what_is_meant(text: str, chosen: str) -> None:
    assert set(select(text, GRAPH, ROWS, STALE)) == set(chosen.split())


def test_the_order_is_that_of_the_graph_and_each_step_comes_once() -> None:
    assert select("report market+ market", GRAPH) == ("market", "rivals", "stack", "estimate", "report")


ITEMS = [row_of("rivals", item="acme", cost="0.06"), row_of("rivals", "failed", item="bolt", cost="0.06")]
RETIRED = row_of("rivals", "failed", item="core", kind="retired")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("cost-over:0.10", ("rivals",)),
        ("cost-over:0.05", ("rivals", "rivals/acme", "rivals/bolt")),
        ("status:failed", ("rivals/bolt",)),
        ("status:succeeded", ("rivals/acme",)),
        ("rivals/acme", ("rivals/acme",)),
        ("rivals/acme market", ("market", "rivals/acme")),
        ("rivals/bolt and status:failed", ("rivals/bolt",)),
        ("stale", ("rivals/acme",)),
        ("rivals", ("rivals",)),
    ],
)
def test_items_are_chosen_by_themselves_and_add_up_in_their_step(text: str, chosen: tuple[str, ...]) -> None:
    assert select(text, GRAPH, [*ITEMS, RETIRED], {"rivals/acme"}) == chosen


def test_what_is_around_an_item_is_what_is_around_its_step() -> None:
    around = select("rivals+", GRAPH, ITEMS)
    assert select("rivals/acme+", GRAPH, ITEMS) == tuple("rivals/acme" if name == "rivals" else name for name in around)


@pytest.mark.parametrize(
    ("text", "rows", "message"),
    [
        ("rivals/core", [*ITEMS, RETIRED], 'rivals has no item "core"'),
        ("rivals/acme", None, '"rivals/acme" is an item, and shop is a pipeline, which has none'),
        ("market/acme", ITEMS, 'market has no item "acme"'),
        ("rivals/", ITEMS, '"rivals/" is not the name of a step'),
        ("rivals/a/b", ITEMS, '"rivals/a/b" is not the name of a step'),
    ],
)
def test_an_item_that_is_not_there_is_refused(text: str, rows: list[StepRow] | None, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        select(text, GRAPH, rows)


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        ("", 0, "the selection is empty", "Write step names"),
        (" \t", 0, "the selection is empty", "Write step names"),
        ("market and", 10, "a step was expected here, not the end", "Write step names"),
        ("and market", 0, 'a step was expected here, not "and"', "Write step names"),
        ("market or or rates", 10, 'a step was expected here, not "or"', "Write step names"),
        ("()", 1, 'a step was expected here, not ")"', "Write step names"),
        ("not", 3, "a step was expected here, not the end", "Write step names"),
        ("market and (stack", 11, 'this "(" is never closed', "Close it"),
        ("market) and stack", 6, 'this ")" was never opened', "open it"),
        ("market stack and tag:costs", 7, "can be read in two ways", 'Write "or" or "and"'),
        ("tag:costs and market stack", 21, "can be read in two ways", 'Write "or" or "and"'),
        ("market or markt", 10, 'shop has no step "markt"', 'Did you mean "market"?'),
        ("zzz", 0, 'shop has no step "zzz"', "Its steps: market,"),
        ("idea", 0, '"idea" is an input', "Write idea+"),
        ("+idea", 0, '"idea" is an input', "Write idea+"),
        ("Market", 0, '"Market" is not the name of a step', "Write step names"),
        ("market++", 0, '"market++" is not the name', "Write step names"),
        ("x+market", 0, '"x+market" is not the name', "Write step names"),
        ("step:", 0, '"step:" is not the name', "Write step names"),
        ("tags:costs", 0, 'there is no "tags:"', 'Did you mean "tag"?'),
        ("status: failed", 0, '"status:" has no value', "without a space"),
        ("status:fialed", 0, 'there is no status "fialed"', 'Did you mean "failed"?'),
        ("tag:cost", 0, 'no contract has the tag "cost"', 'Did you mean "costs"?'),
        ("not tag:zzz", 4, 'no contract has the tag "zzz"', "There is costs, final, research."),
        ("kind:lm", 0, 'no step is of the kind "lm"', 'Did you mean "llm"?'),
        ("cost-over:$1", 0, '"$1" is not an amount', "cost-over:0.10"),
        ("cost-over:-1", 0, '"-1" is not an amount', "cost-over:0.10"),
        ("cost-over:nan", 0, '"nan" is not an amount', "cost-over:0.10"),
        ("(" * 9_000, MAX_NESTING + 1, "nested more than", "shorter"),
        ("not " * 9_000 + "market", (MAX_NESTING + 1) * 4, "nested more than", "shorter"),
    ],
)
def test_a_fault_is_shown_with_its_place(text: str, at: int, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(text, GRAPH, ROWS)
    error = caught.value
    assert message in error.message
    assert error.hint
    assert hint in error.hint
    assert error.exit_code == 2
    assert error.place
    assert (error.place.line, error.place.column) == (1, at + 1)
    if text.strip():
        shown, caret = error.message.splitlines()[1:]
        assert caret.index("^") - 4 == at
        assert shown.startswith("    ")
        assert len(shown) == len(text) + 4


def test_control_characters_do_not_move_the_caret() -> None:
    with pytest.raises(UsageError) as caught:
        select("market \x1b[2J\n", GRAPH)
    assert caught.value.message.splitlines()[1] == "    market  [2J "
    assert caught.value.message.splitlines()[2] == " " * 11 + "^"


def test_nothing_matched_is_an_error_of_its_own() -> None:
    with pytest.raises(UsageError) as caught:
        select("stale and kind:python", GRAPH, ROWS, STALE)
    assert caught.value.exit_code == 2
    assert caught.value.code == "nothing_selected"
    assert caught.value.message == 'the selection "stale and kind:python" matches no step of shop'
    assert choose(parse("stale and kind:python"), GRAPH, ROWS, STALE) == ()


@pytest.mark.parametrize("text", ["stale", "status:failed", "cost-over:1"])
def test_a_pipeline_without_a_run_has_no_state(text: str) -> None:
    with pytest.raises(UsageError, match="asks about a run, and shop is a pipeline"):
        select(text, GRAPH)


def test_steps_called_like_words_are_reached_by_prefix() -> None:
    graph = graph_of({"stale": Part(), "and": Part(["stale"]), "1": Part(["and"])})
    with pytest.raises(UsageError, match='"stale" is a step here, and the word for stale steps') as caught:
        select("stale", graph, [])
    assert caught.value.hint == "Write step:stale for the step."
    assert select("step:stale", graph) == ("stale",)
    assert select("step:stale and step:stale", graph) == ("stale",)
    assert select("step:and+", graph) == ("and", "1")
    assert select("1+and", graph) == ("stale", "and")
    assert select("1+1", graph) == ("and", "1")
    assert select("step:1+1", graph) == ("1",)


# --- random expressions -----------------------------------------------------------------------------------------------

STATES: tuple[StepStatus, ...] = ("succeeded", "failed", "pending")


@dataclass(frozen=True)
class World:
    """A random pipeline with a run of it."""

    graph: Graph
    rows: tuple[StepRow, ...]
    stale: frozenset[str]


Meaning = Callable[[World, str], bool]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    graph = draw(dags())
    costs = st.one_of(st.none(), st.integers(0, 30).map(lambda cents: f"0.{cents:02}"))
    rows = tuple(row_of(name, draw(st.sampled_from(STATES)), draw(costs)) for name in graph.steps)
    return World(graph, rows, frozenset(draw(st.sets(st.sampled_from(list(graph.steps))))))


def above(graph: Graph, name: str, target: str, levels: int) -> bool:
    """Whether a way of at most so many edges leads from `name` up to `target`: every way is walked."""
    if name == target:
        return True
    if not levels or name in graph.inputs:
        return False
    up = {read.name for read in graph.steps[name].reads} | set(graph.steps[name].spec.needs)
    return any(above(graph, parent, target, levels - 1) for parent in up)


def row(world: World, name: str) -> StepRow:
    return next(row for row in world.rows if row.name == name)


@st.composite
def terms(draw: st.DrawFn, graph: Graph) -> tuple[str, Meaning]:
    """A term's text, and what it says of one step."""
    name = draw(st.sampled_from(list(graph.steps)))
    levels = draw(st.integers(0, 3))
    state, cents = draw(st.sampled_from(STATES)), draw(st.integers(0, 30))
    tags = {tag for step in graph.steps.values() for tag in step.contract.tags}
    kind = graph.steps[name].kind
    found: list[tuple[str, Meaning]] = [
        (name, lambda w, s: s == name),
        (f"{name}+", lambda w, s: above(w.graph, s, name, 99)),
        (f"+{name}", lambda w, s: above(w.graph, name, s, 99)),
        (f"{levels}+{name}", lambda w, s: above(w.graph, name, s, levels)),
        (f"{name}+{levels}", lambda w, s: above(w.graph, s, name, levels)),
        (f"+{name}+{levels}", lambda w, s: above(w.graph, s, name, levels) or above(w.graph, name, s, 99)),
        ("i0+", lambda w, s: above(w.graph, s, "i0", 99)),
        (f"kind:{kind}", lambda w, s: w.graph.steps[s].kind == kind),
        (f"status:{state}", lambda w, s: row(w, s).status == state),
        ("stale", lambda w, s: s in w.stale),
        (f"cost-over:0.{cents:02}", lambda w, s: (row(w, s).cost_usd or 0) > Decimal(cents) / 100),
    ]
    if "i0" not in graph.inputs:
        found.pop(6)
    if tags:
        tag = draw(st.sampled_from(sorted(tags)))
        found.append((f"tag:{tag}", lambda w, s: tag in w.graph.steps[s].contract.tags))
    return draw(st.sampled_from(found))


@st.composite
def expressions(draw: st.DrawFn, graph: Graph, depth: int = 3) -> tuple[str, Meaning]:
    """Text without a parenthesis more than needed; `or` binds loosest, so only below an `and` or `not` it gets one."""
    form = draw(st.sampled_from(["term", "and", "or", "list", "not"])) if depth else "term"
    if form == "term":
        return draw(terms(graph))
    left, says_left = draw(expressions(graph, depth - 1))
    right, says_right = draw(expressions(graph, depth - 1))
    match form:
        case "and":
            return f"{wrapped(left)} and {wrapped(right)}", lambda w, s: says_left(w, s) and says_right(w, s)
        case "or":
            return f"({left}) or ({right})", lambda w, s: says_left(w, s) or says_right(w, s)
        case "list":
            return f"({left}) ({right})", lambda w, s: says_left(w, s) or says_right(w, s)
        case _:
            return f"not ({left})", lambda w, s: not says_left(w, s)


def wrapped(text: str) -> str:
    return f"({text})" if " " in text else text


@given(st.data())
def test_random_expressions_mean_what_a_naive_reading_says(data: st.DataObject) -> None:
    world = data.draw(worlds())
    text, says = data.draw(expressions(world.graph))
    naive = tuple(name for name in world.graph.steps if says(world, name))
    assert choose(parse(text), world.graph, world.rows, world.stale) == naive


@given(st.data())
def test_binding_without_parentheses(data: st.DataObject) -> None:
    """`not` binds closer than `and`, `and` closer than `or`."""
    world = data.draw(worlds())
    (a, b, c) = (data.draw(terms(world.graph)) for _ in range(3))
    chosen = choose(parse(f"{a[0]} or not {b[0]} and {c[0]}"), world.graph, world.rows, world.stale)
    naive = [s for s in world.graph.steps if a[1](world, s) or ((not b[1](world, s)) and c[1](world, s))]
    assert list(chosen) == naive


@given(st.text(alphabet="ab1+:() \tstaleornd", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        chosen = choose(parse(text), GRAPH, ROWS)
    except UsageError:
        return
    assert set(chosen) <= GRAPH.steps.keys()
