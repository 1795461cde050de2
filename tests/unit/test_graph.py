"""The pure questions about a graph, on random graphs: order, what is ready, what lies below, cycles."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contracts import input_contract
from orchestrator.errors import Place
from orchestrator.graph import Graph, InputNode, Read, StepNode, cycles, downstream, ready, topological, unmet
from orchestrator.spec import BudgetSpec, InputSpec, PipelineSpec, StepSpec

PLACE = Place("p.yaml")
CONTRACT = input_contract("x", InputSpec(type="text", about="x"), PLACE)


def step(name: str, order: int, parents: tuple[str, ...], inputs: tuple[str, ...]) -> StepNode:
    reads = tuple(Read(n, "input", CONTRACT, None, None, PLACE) for n in inputs)
    reads += tuple(Read(n, "step", CONTRACT, None, None, PLACE) for n in parents)
    fields: dict[str, Any] = dict.fromkeys(("template", "function", "model", "conversation"))
    return StepNode(
        name=name, kind="llm", order=order, spec=StepSpec(prompt="x"), contract=CONTRACT, reads=reads, parents=parents,
        tools=(), checks=(), reasks=2, timeout=1.0, call_timeout=1.0, digest="d", place=PLACE, **fields,
    )  # fmt: skip


def graph_of(parents: Mapping[str, tuple[str, ...]], inputs: Mapping[str, tuple[str, ...]] | None = None) -> Graph:
    inputs = inputs or {}
    order = topological(parents)
    steps = {name: step(name, at, parents[name], inputs.get(name, ())) for at, name in enumerate(order)}
    known = sorted({name for names in inputs.values() for name in names})
    spec = PipelineSpec(pipeline="p", steps={}, budget=BudgetSpec(usd=Decimal(1)))
    return Graph(
        name="p", spec=spec, file="p.yaml", inputs={n: InputNode(n, CONTRACT, PLACE) for n in known}, steps=steps,
        children={name: tuple(c for c in steps if name in parents[c]) for name in steps},
        rank={name: at for at, name in enumerate([*known, *steps])}, outputs=(), digest="g",
    )  # fmt: skip


@st.composite
def dags(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Parents of each step, declared in an order that has nothing to do with the topological one."""
    count = draw(st.integers(1, 12))
    names = [f"s{i}" for i in range(count)]
    parents = {
        name: tuple(sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=4)))) if at else ()
        for at, name in enumerate(names)
    }
    return {name: parents[name] for name in draw(st.permutations(names))}


@given(dags())
def test_every_step_comes_after_its_parents(parents: dict[str, tuple[str, ...]]) -> None:
    order = topological(parents)
    assert sorted(order) == sorted(parents)
    position = {name: at for at, name in enumerate(order)}
    assert all(position[parent] < position[name] for name, above in parents.items() for parent in above)


@given(dags())
def test_ties_go_by_declaration(parents: dict[str, tuple[str, ...]]) -> None:
    """At each place stands the first declared of all steps that could stand there."""
    done: list[str] = []
    for name in topological(parents):
        free = [n for n, above in parents.items() if n not in done and all(p in done for p in above)]
        assert name == free[0]
        done.append(name)


def test_order_is_declared_order_where_it_may_be() -> None:
    assert topological({"c": (), "a": ("b",), "b": ()}) == ("c", "b", "a")
    assert topological({"c": (), "b": ("c",), "a": ("c",)}) == ("c", "b", "a")


@given(dags(), st.randoms())
def test_a_run_in_any_order_starts_each_step_exactly_once(parents: dict[str, tuple[str, ...]], random: Any) -> None:
    """Each counter falls to zero exactly once; what is ready equals the naive recomputation at every moment."""
    graph = graph_of(parents)
    done: set[str] = set()
    started: set[str] = set()
    zero: list[str] = [name for name, count in unmet(graph, done).items() if count == 0]
    while len(done) < len(parents):
        now = ready(graph, done, started)
        naive = [n for n in graph.steps if n not in done | started and all(p in done for p in parents[n])]
        assert list(now) == naive
        assert now or started
        if now and (not started or random.random() < 0.5):
            started.add(random.choice(now))
            continue
        finished = random.choice(sorted(started))
        before = unmet(graph, done)
        started.remove(finished)
        done.add(finished)
        after = unmet(graph, done)
        assert all(after[n] == before[n] - (finished in parents[n]) for n in after)
        zero += [n for n in after if after[n] == 0 and before[n] > 0]
    assert sorted(zero) == sorted(parents)
    assert ready(graph, done, ()) == ()
    assert unmet(graph, done) == {}


@given(dags(), st.data())
def test_downstream_is_everything_that_can_be_reached(parents: dict[str, tuple[str, ...]], data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(sorted(parents)), max_size=3))
    below: set[str] = set()
    while True:
        grown = below | {n for n, above in parents.items() if (set(above) & (below | chosen))}
        if grown == below:
            break
        below = grown
    assert downstream(graph_of(parents), chosen) == below


def test_downstream_of_an_input_starts_at_its_readers() -> None:
    graph = graph_of({"a": (), "b": ("a",), "c": ()}, {"a": ("idea",), "c": ("other",)})
    assert downstream(graph, ["idea"]) == {"a", "b"}
    assert downstream(graph, ["a"]) == {"b"}
    assert downstream(graph, ["b"]) == frozenset()


@given(dags())
def test_a_graph_without_a_cycle_has_none(parents: dict[str, tuple[str, ...]]) -> None:
    assert cycles(parents) == ()


@given(dags(), st.data())
def test_a_cycle_is_named_whole(parents: dict[str, tuple[str, ...]], data: st.DataObject) -> None:
    """Closing any path to a circle: each named step waits for the next, the last for the first."""
    names = sorted(parents)
    low = data.draw(st.sampled_from(names))
    below = downstream(graph_of(parents), [low])
    if not below:
        return
    high = data.draw(st.sampled_from(sorted(below)))
    looped = {**parents, low: (*parents[low], high)}
    found = cycles(looped)
    assert len(found) == 1
    for at, name in enumerate(found[0]):
        assert found[0][(at + 1) % len(found[0])] in looped[name]
    assert low in found[0]
    assert len(set(found[0])) == len(found[0])


def test_two_separate_cycles_are_two() -> None:
    parents = {"a": ("b",), "b": ("a",), "below": ("a",), "c": ("d",), "d": ("e",), "e": ("c",), "free": ()}
    assert cycles(parents) == (("a", "b"), ("c", "d", "e"))
    assert topological(parents) == ("free",)
