"""What two runs or versions differ in, from their rows alone."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.exchange.comparing import (
    BlockChange,
    Half,
    Numbers,
    RunSide,
    StepComparison,
    compare_halves,
    compare_runs,
    total,
)
from orchestrator.exchange.diffing import Change
from orchestrator.ids import digest
from orchestrator.store.records import Opening, SentBlock
from orchestrator.trace.comparisons import runs_comparison, versions_comparison
from orchestrator.values import ArtifactVersion, Manifest, ManifestEntry, RunRow, StepRow, Usage

NOW = datetime(2026, 11, 30, 10, 40, tzinfo=UTC)


def version(name: str, value: Any, number: int = 1, id: str | None = None) -> ArtifactVersion:
    return ArtifactVersion(
        id=id or f"{name}-{number}-{digest(value)}",
        run_id="run",
        step=name,
        item=None,
        contract="note",
        version=number,
        sha256=digest(value),
        size=1,
        author="ana",
        origin="person",
        created_at=NOW,
        parent_id=None,
        sensitivity="internal",
        field_hashes={},
    )


def half(value: Any = None, name: str = "a", **more: Any) -> Half:
    """A side with that value; None = it has none yet."""
    id = more.pop("id", None)
    found = None if value is None else version(name, value, more.pop("number", 1), id)
    return Half(more.pop("status", "succeeded"), found, value=value, **more)


def compared(old: Half | None, new: Half | None) -> StepComparison:
    return compare_halves("a", None, "llm", old, new)


def opening(*blocks: tuple[str, str, str], thread: str = "main", model: str = "p:m", **settings: Any) -> Opening:
    return Opening(
        thread, model, settings, tuple(SentBlock(layer, source, (text,), 1) for layer, source, text in blocks)
    )


def run(number: int, **more: Any) -> RunRow:
    values: dict[str, Any] = {
        "id": f"run-{number}",
        "number": number,
        "pipeline": "demo",
        "status": "succeeded",
        "parent_id": None,
        "parent_number": None,
        "session_id": "s",
        "session": "s",
        "created_at": NOW,
        "graph_digest": "d",
        "file": "demo.yaml",
        "message": None,
        "cap_usd": None,
        "on_exceed": "pause",
        "unpriced": "refuse",
        "author": "ana",
    }
    return RunRow(**{**values, **more})


def row(name: str, kind: Any = "llm") -> StepRow:
    cost = Decimal(0)
    return StepRow(
        name, None, kind, 0, "succeeded", 1, "t", None, None, None, None, 1, 0, Usage(), cost, False, 0.0, None
    )


def side(number: int, /, _run: dict[str, Any] | None = None, **halves: Half) -> RunSide:
    """A run of these steps; those whose name begins with `in_` are inputs."""
    steps: dict[tuple[str, str | None], tuple[StepRow, Half]] = {
        (name, None): (row(name, "input" if name.startswith("in_") else "llm"), one) for name, one in halves.items()
    }
    return RunSide(run(number, **(_run or {})), steps)


@pytest.mark.parametrize(
    ("old", "new", "artifact", "differs"),
    [
        (half("v", id="x"), half("v", id="x"), "shared", False),
        (half("v", number=1), half("v", number=2), "equal", False),
        (half({"a": 1, "b": 2}, number=1), half({"b": 2, "a": 1.0}, number=2), "equal", False),
        (half("v"), half("w"), "changed", True),
        (half("v"), half(), "removed", True),
        (half(), half("v"), "added", True),
        (half(), half(), "none", False),
        (half(status="failed"), half(status="pending"), "none", True),
        (half("v"), None, "removed", True),
        (None, half("v"), "added", True),
        (None, half(), "none", True),
    ],
)
def test_how_two_sides_stand(old: Half | None, new: Half | None, artifact: str, differs: bool) -> None:
    found = compared(old, new)
    assert (found.artifact, found.differs) == (artifact, differs)


def test_values_are_told_by_path() -> None:
    assert compared(half({"a": 1, "b": [1]}), half({"a": 2, "b": [1]})).changes == (Change("changed", "a", 1, 2),)


def test_why_two_versions_were_made_differently() -> None:
    old, new = (Manifest((ManifestEntry("template", "t.j2", sha), ManifestEntry("contract", "c", "1"))) for sha in "ab")
    found = compared(half("v", number=1, manifest=old), half("v", number=2, manifest=new))
    assert found.artifact == "equal"
    assert found.made_from == ("template changed: t.j2",)
    assert found.differs, "the same value from another template is told"
    assert compared(half("v", manifest=old), half("w", manifest=old)).made_from == ()


def test_blocks_of_the_first_requests_by_their_hashes() -> None:
    old = opening(("system", "system", "be brief"), ("artifact", "idea", "a shop"), ("task", "t.j2", "Write."))
    new = opening(("system", "system", "be brief"), ("artifact", "idea", "a bar"), ("facts", "facts", "none"))
    found = compared(half("v", openings=(old,)), half("w", openings=(new,))).prompt
    assert [(one.kind, one.layer, one.source) for one in found] == [
        ("changed", "artifact", "idea"),
        ("removed", "task", "t.j2"),
        ("added", "facts", "facts"),
    ]
    assert (found[0].old, found[0].new) == (old.blocks[1], new.blocks[1])


def test_a_source_that_stands_twice_counts_by_its_order() -> None:
    old = opening(("artifact", "idea", "one"), ("artifact", "idea", "two"))
    new = opening(("artifact", "idea", "one"), ("artifact", "idea", "three"))
    [found] = compared(half("v", openings=(old,)), half("w", openings=(new,))).prompt
    assert (found.old, found.new) == (old.blocks[1], new.blocks[1])


def test_another_order_of_the_same_blocks_is_told() -> None:
    old, new = (opening(*blocks) for blocks in ([("task", "x", "1"), ("task", "y", "2")],) * 2)
    turned = opening(("task", "y", "2"), ("task", "x", "1"))
    assert compared(half("v", openings=(old,)), half("w", openings=(new,))).prompt == ()
    assert compared(half("v", openings=(old,)), half("w", openings=(turned,))).prompt == (
        BlockChange("reordered", "main", "", ""),
    )


def test_threads_are_compared_by_name_and_order() -> None:
    text = ("task", "t", "1")
    old = (opening(text, thread="draft"), opening(text, thread="check"), opening(text, thread="check"))
    new = (opening(text, thread="draft"), opening(text, thread="check"), opening(("task", "t", "2"), thread="check"))
    assert [(one.kind, one.thread) for one in compared(half("v", openings=old), half("w", openings=new)).prompt] == [
        ("changed", "check")
    ]
    more = (*old, opening(text, thread="last"))
    assert [(one.kind, one.thread) for one in compared(half("v", openings=old), half("w", openings=more)).prompt] == [
        ("added", "last")
    ]


def test_model_and_settings_by_path() -> None:
    old, new = opening(effort="low", max_output_tokens=10), opening(model="p:n", effort="low", max_output_tokens=20)
    found = compared(half("v", openings=(old,)), half("v", number=2, openings=(new,)))
    assert found.model == (Change("changed", "model", "p:m", "p:n"), Change("changed", "max_output_tokens", 10, 20))
    assert found.differs


def test_what_is_shared_is_not_looked_at_again() -> None:
    """A fork's step shares the version; that its own row says another cost is no difference."""
    paid = Numbers(2, 1, Usage(10, 0, 0, 5), Decimal("0.01"))
    found = compared(half("v", id="x", numbers=paid, openings=(opening(("task", "t", "1")),)), half("v", id="x"))
    assert (found.artifact, found.prompt, found.differs) == ("shared", (), False)


def test_money_alone_is_no_difference() -> None:
    paid = Numbers(2, 1, Usage(10, 0, 0, 5), Decimal("0.01"))
    assert not compared(half("v", numbers=paid), half("v", number=2)).differs


def test_two_runs_in_the_order_of_the_new_one() -> None:
    old = side(1, in_x=half("x", "in_x"), a=half("a", "a"), gone=half("g", "gone"), b=half("b", "b"))
    new = side(2, in_x=half("y", "in_x"), a=half("a", "a"), b=half("b2", "b"), more=half("m", "more"))
    found = compare_runs(old, new)
    assert [(one.name, one.artifact) for one in found.inputs] == [("in_x", "changed")]
    assert [(one.name, one.artifact) for one in found.steps] == [
        ("a", "shared"),
        ("gone", "removed"),
        ("b", "changed"),
        ("more", "added"),
    ]
    assert (found.differs, found.counted("shared")) == (True, 1)
    assert not compare_runs(old, old).differs


def test_sums_know_what_they_do_not_know() -> None:
    one, unpriced = Numbers(1, 0, Usage(1), Decimal("0.5")), Numbers(1, 1, Usage(2), None, True)
    assert total([one, unpriced]) == Numbers(2, 1, Usage(3), Decimal("0.5"), True)
    assert total([unpriced]).cost_usd is None
    assert total([]).cost_usd == 0


BLOCKS = st.lists(st.tuples(st.sampled_from(["artifact", "task"]), st.sampled_from("ab"), st.sampled_from("12")))


@given(BLOCKS, BLOCKS)
def test_two_prompts_differ_exactly_where_something_is_reported(
    old: list[tuple[str, str, str]], new: list[tuple[str, str, str]]
) -> None:
    found = compared(half("v", openings=(opening(*old),)), half("v", number=2, openings=(opening(*new),))).prompt
    assert bool(found) == (old != new)
    gone = sum(one.new is None for one in found if one.kind != "reordered")
    came = sum(one.old is None for one in found if one.kind != "reordered")
    assert len(old) - gone + came == len(new)


def test_the_document_of_two_runs() -> None:
    numbers = Numbers(1, 0, Usage(10, 2, 0, 5), Decimal("0.0100"), seconds=1.5)
    old = side(1, in_x=half("x", "in_x"), a=half("old", "a", numbers=numbers), b=half("b", "b"))
    new = side(2, {"parent_id": "run-1", "parent_number": 1}, in_x=half("x", "in_x"), a=half("new"), b=half("b", "b"))
    found = runs_comparison(compare_runs(old, new))
    assert {name: found[name] for name in ("schema", "of", "equal", "differing", "shared")} == {
        "schema": "orch.compare/1",
        "of": "runs",
        "equal": False,
        "differing": ["a"],
        "shared": 1,
    }
    took = {
        "calls": 1,
        "reasks": 0,
        "usage": {"input_tokens": 10, "cached_tokens": 2, "output_tokens": 5},
        "cost_usd": "0.01",
        "cost_partial": False,
        "seconds": 1.5,
    }
    assert found["old"] == {
        "run": 1,
        "id": "run-1",
        "pipeline": "demo",
        "status": "succeeded",
        "parent": None,
        "created_at": "2026-11-30T10:40:00Z",
        **took,
    }
    assert (found["new"]["run"], found["new"]["parent"]) == (2, 1)
    [a, b] = found["steps"]
    assert [one["artifact"] for one in found["inputs"]] == ["shared"]
    assert set(a) == {
        *(
            "name",
            "item",
            "kind",
            "differs",
            "artifact",
            "old",
            "new",
            "changes",
            "text",
            "made_from",
            "prompt",
            "model",
        )
    }
    assert a["changes"] == [{"kind": "changed", "path": "$", "old": "old", "new": "new"}]
    assert a["text"] == ["@@ -1 +1 @@", "-old", "+new"]
    assert a["old"]["version"]["version"] == 1
    assert {name: a["old"][name] for name in took} == took
    assert (b["differs"], b["artifact"], b["text"]) == (False, "shared", None)


def test_the_document_of_two_versions_has_the_changed_lines() -> None:
    texts = {"h1": "one\ntwo\n", "h2": "one\n2\n"}
    old, new = (
        Half("", version("a", value), openings=(Opening("main", "p:m", {}, (SentBlock("task", "t", (part,), 3),)),))
        for value, part in (("v", "h1"), ("w", "h2"))
    )
    found = versions_comparison(compare_halves("a", None, "llm", old, new), run(1), run(2), texts)
    assert (found["of"], found["old"], found["new"]) == ("versions", {"run": 1}, {"run": 2})
    assert found["steps"][0]["old"]["models"] == ["p:m"]
    assert found["steps"][0]["prompt"] == [
        {
            "kind": "changed",
            "thread": "main",
            "layer": "task",
            "source": "t",
            "old": {"parts": ["h1"], "tokens": 3, "version": None},
            "new": {"parts": ["h2"], "tokens": 3, "version": None},
            "text": ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " "],
        }
    ]
