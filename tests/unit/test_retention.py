"""Which runs stay and which go."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.runs import named
from orchestrator.retention import in_order, needed_by, needing, retain
from orchestrator.store.records import RunMark


def mark(number: int, pipeline: str = "demo", status: str = "succeeded", *tags: str) -> RunMark:
    return RunMark(f"r{number}", number, pipeline, status, tags)


def numbers(marks: tuple[RunMark, ...]) -> list[int]:
    return [one.number for one in marks]


def test_the_newest_of_each_pipeline_stay() -> None:
    runs = [mark(5), mark(4, "other"), mark(3), mark(2, "other"), mark(1)]
    found = retain(runs, {}, 1)
    assert found.kept == {"r5": "newest", "r4": "newest"}
    assert numbers(found.gone) == [3, 2, 1]
    assert numbers(retain(runs, {}, 2).gone) == [1]
    assert retain(runs, {}, 0).kept == {}


def test_a_bench_is_no_run_that_counts_and_stays_as_long_as_its_run() -> None:
    runs = [
        replace(mark(5), kind="bench"),
        replace(mark(4), kind="bench"),
        mark(3),
        replace(mark(2, "demo", "succeeded", "good"), kind="bench"),
        mark(1),
    ]
    needs = {"r5": frozenset({"r3"}), "r4": frozenset({"r1"}), "r2": frozenset({"r0"})}
    found = retain(runs, needs, 1)
    assert found.kept == {"r3": "newest", "r5": "bench", "r2": "tagged", "r0": "needed"}
    assert numbers(found.gone) == [4, 1], "a bench goes ahead of its run"


def test_tagged_and_unfinished_runs_stay() -> None:
    runs = [mark(5), mark(4, "demo", "succeeded", "good"), mark(3, "demo", "waiting"), mark(2, "demo", "failed")]
    found = retain(runs, {}, 1)
    assert found.kept == {"r5": "newest", "r4": "tagged", "r3": "unfinished"}
    assert numbers(found.gone) == [2]


def test_A13_what_a_kept_fork_was_made_from_stays_however_old() -> None:
    runs = [mark(number) for number in (9, 5, 4, 3, 2, 1)]
    found = retain(runs, {"r9": frozenset({"r3"}), "r3": frozenset({"r1"}), "r5": frozenset({"r4"})}, 1)
    assert found.kept == {"r9": "newest", "r3": "needed", "r1": "needed"}
    assert set(numbers(found.gone)) == {5, 4, 2}
    assert numbers(found.gone).index(5) < numbers(found.gone).index(4)


def test_a_child_goes_ahead_of_what_it_was_made_from() -> None:
    runs = [mark(3), mark(2), mark(1)]
    order = numbers(in_order(runs, {"r1": frozenset({"r3"}), "r3": frozenset({"r2"})}))
    assert order == [1, 3, 2]


def test_who_needs_whom_over_generations() -> None:
    needs = {"r3": frozenset({"r2"}), "r2": frozenset({"r1"}), "r5": frozenset({"r4"})}
    assert needed_by(["r3"], needs) == {"r2", "r1"}
    assert needing(["r1"], needs) == {"r2", "r3"}
    assert needing(["r1", "r3"], needs) == {"r2"}


RUNS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["succeeded", "failed", "running"]), st.booleans()), max_size=12
)


@given(RUNS, st.data(), st.integers(0, 3))
def test_nothing_that_stays_needs_what_goes(
    drawn: list[tuple[str, str, bool]], data: st.DataObject, newest: int
) -> None:
    runs = [
        mark(len(drawn) - place, pipeline, status, *(["t"] if tagged else []))
        for place, (pipeline, status, tagged) in enumerate(drawn)
    ]
    ids = [run.id for run in runs]
    needs = {
        run.id: frozenset(data.draw(st.sets(st.sampled_from(ids[place + 1 :]), max_size=2)))
        for place, run in enumerate(runs[:-1])
    }
    found = retain(runs, needs, newest)
    assert {*found.kept} | {run.id for run in found.gone} == set(ids)
    assert len(found.kept) + len(found.gone) == len(ids)
    for run_id in found.kept:
        assert needs.get(run_id, frozenset()) <= set(found.kept)
    for pipeline in "ab":
        of_it = [run.id for run in runs if run.pipeline == pipeline]
        assert set(of_it[:newest]) <= set(found.kept)
    left = [run.id for run in found.gone]
    for run_id in list(left):  # each can go: nothing that is still there needs it
        assert not any(run_id in needs.get(other, frozenset()) for other in [*left, *found.kept] if other != run_id)
        left.remove(run_id)


def test_numbers_are_drawn_together() -> None:
    assert named([mark(3)]) == "run 3"
    assert named([mark(3), mark(2)]) == "runs 2 and 3"
    assert named([mark(n) for n in (1, 3, 4, 5, 9)]) == "runs 1, 3–5 and 9"
