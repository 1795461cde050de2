"""Gates in a pipeline: who waits for whom, what each asks, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.contracts.decision import decision_contract
from orchestrator.decision import Decision
from orchestrator.graph import Gate, Graph
from tests.unit.test_graph_check import World

NOTE: dict[str, Any] = {"prompt": "Write.", "reads": ["idea"], "produces": "note"}
ASK: dict[str, Any] = {"ask": "Good enough?", "shows": ["draft"]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path.resolve())


def draft(**keys: Any) -> dict[str, Any]:
    """A draft, a gate that shows it, and a letter that waits for the gate."""
    letter = {**NOTE, "reads": ["idea", "region"], "needs": ["look"]}
    return {"draft": NOTE, "look": {"gate": {**ASK, **keys}}, "letter": letter}


def gate_of(graph: Graph, name: str) -> Gate:
    gate = graph.steps[name].gate
    assert gate is not None
    return gate


def test_a_gate_reads_what_it_shows_and_others_wait_for_it(world: World) -> None:
    on_reject = {"redo": "draft", "mode": "fresh", "max_rounds": 2, "then": "fail"}
    graph = world.graph(draft(on_reject=on_reject, timeout={"after": "3d", "then": "reject"}))
    look = graph.steps["look"]
    assert (look.kind, look.parents, look.asks, look.contract.name) == ("gate", ("draft",), False, "decision")
    assert [(read.name, read.kind) for read in look.reads] == [("draft", "step")]
    assert graph.steps["letter"].parents == ("look",)
    assert gate_of(graph, "look") == Gate(
        "Good enough?", ("approve", "edit", "reject", "stop"), "draft", "fresh", 2, "fail", 259_200.0, "reject"
    )
    assert graph.outputs == ("letter",)
    assert graph.warnings == ()


def test_without_more_a_rejection_keeps_the_gate_shut_and_nobody_decides_but_a_person(world: World) -> None:
    gate = gate_of(world.graph(draft()), "look")
    assert (gate.redo, gate.then, gate.timeout, gate.on_timeout) == (None, "pause", None, "wait")


def test_a_review_is_a_gate_that_every_reader_waits_for(world: World) -> None:
    steps = {
        "draft": {**NOTE, "review": "required"},
        "reader": {**NOTE, "reads": ["draft"]},
        "needer": {**NOTE, "needs": ["draft"]},
        "look": {"gate": {"ask": "And all of it?", "shows": ["draft", "reader"]}},
    }
    graph = world.graph(steps)
    assert list(graph.steps) == ["draft", "draft.review", "reader", "needer", "look"]
    assert graph.steps["draft.review"].parents == ("draft",)
    assert graph.steps["reader"].parents == ("draft", "draft.review")
    assert graph.steps["needer"].parents == ("draft", "draft.review")
    assert graph.steps["look"].parents == ("draft", "draft.review", "reader")
    assert graph.children["draft"] == ("draft.review", "reader", "needer", "look")
    gate = gate_of(graph, "draft.review")
    assert (gate.reviews, gate.redo, gate.mode, gate.then) == ("draft", "draft", "follow_up", "pause")
    assert str(graph.steps["draft.review"].place).startswith("p.yaml:")
    assert graph.outputs == ("reader", "needer")


def test_a_review_of_plain_python_redoes_nothing(world: World) -> None:
    steps = {"rates": {"python": "code.py:calculate", "reads": ["idea"], "produces": "rates", "review": "required"}}
    assert gate_of(world.graph(steps), "rates.review").redo is None


def test_a_decision_can_be_read(world: World) -> None:
    steps = draft()
    steps["letter"] = {**NOTE, "reads": ["look", "draft"], "prompt": "{{ quote('look', 'comment') }}"}
    graph = world.graph(steps)
    read = graph.steps["letter"].reads[0]
    assert (read.name, read.contract.fields) == ("look", ("decision", "comment", "by"))
    value = decision_contract().instance(b'{"decision": "approve", "comment": "", "by": "ana"}')
    assert value == Decision(decision="approve", comment="", by="ana")


def test_a_read_that_requires_approval_waits_for_the_gates_ahead_of_it(world: World) -> None:
    steps = {
        "draft": NOTE,
        "look": {"gate": ASK},
        "sign": {"gate": {"ask": "Sign?", "shows": ["draft", "letter"]}},
        "letter": {**NOTE, "reads": [APPROVED]},
    }
    graph = world.graph(steps)
    assert graph.steps["letter"].reads[0].approvers == ("look",)
    assert graph.steps["letter"].parents == ("draft", "look")
    assert graph.steps["sign"].parents == ("draft", "letter")


def test_what_a_gate_asks_is_in_its_digest_and_what_follows_in_the_graphs(world: World) -> None:
    base = world.graph(draft())
    other = world.graph(draft(ask="Really?"))
    assert other.steps["look"].digest != base.steps["look"].digest
    policy = world.graph(draft(on_reject={"redo": "draft"}))
    assert policy.steps["look"].digest == base.steps["look"].digest
    assert policy.digest != base.digest


APPROVED = {"read": "draft", "require": "approved"}


def plain(**keys: Any) -> dict[str, Any]:
    """The same, where a function makes what is shown."""
    return {**draft(shows=["rates"], **keys), "rates": {"python": "code.py:calculate", "reads": ["idea"]}}


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("P201", draft(shows=["drafts"]), "shows drafts"),
    ("P201", draft(shows=["drafts"], on_reject={"redo": "draft"}), "shows drafts"),
    ("P203", draft(shows=["look"]), "shows itself"),
    ("P204", draft(shows=["draft", "draft"]), "twice"),
    ("P204", draft(choices=["approve", "edit", "edit"]), "twice"),
    ("P210", {**draft(), "look": {"gate": ASK, "prompt": "Write."}}, "prompt and gate"),
    ("P280", {**draft(), "look": {"gate": ASK, "produces": "note"}}, "produces has no meaning"),
    ("P280", {**draft(), "look": {"gate": ASK, "review": "required"}}, "review has no meaning"),
    ("P281", draft(shows=[]), "shows nothing"),
    ("P281", draft(choices=["edit", "reject"]), "approve is no choice"),
    ("P281", draft(choices=["approve"], timeout={"after": "1h", "then": "stop"}), "decides stop"),
    ("P282", draft(on_reject={"redo": "idea"}), "an input"),
    ("P282", draft(on_reject={"redo": "letter"}), "no step that it waits for"),
    ("P201", draft(on_reject={"redo": "nothing"}), "nothing"),
    ("P282", plain(on_reject={"redo": "rates"}), "make the same again"),
    ("P283", {"draft": NOTE, "letter": {**NOTE, "reads": [APPROVED]}}, "never approved"),
    ("P202", {"draft": {**NOTE, "review": "required"}, "draft-review": NOTE}, "draft_review"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "steps", "says"), FAULTS)
def test_what_cannot_be_meant_is_refused(world: World, code: str, steps: dict[str, Any], says: str) -> None:
    fault = world.only(steps)
    assert (fault.code, says in fault.message) == (code, True), fault
    assert fault.hint


def test_an_output_that_no_gate_stands_ahead_of_is_a_warning(world: World) -> None:
    steps = {**draft(), "side": NOTE}
    _, found = world.check(steps)
    assert [(d.code, d.level) for d in found] == [("P284", "warning")]
    assert "the output side" in found[0].message
    _, found = world.check({**steps, "side": {**NOTE, "ungated": "A list for ourselves."}})
    assert found == ()
    both = {**NOTE, "reads": ["idea", "region"]}
    _, found = world.check({"draft": both, "look": {"gate": ASK}}, outputs=["draft"])
    assert found == (), "a gate that shows the output is behind it, and is enough"
    _, found = world.check({"draft": both})
    assert found == (), "a pipeline without gates is not asked for one"


def test_a_text_of_a_gate_that_yaml_has_cut_is_told(world: World) -> None:
    text = "pipeline: p\nsteps:\n  draft: {prompt: Write., produces: note}\n  look:\n    gate:\n"
    found = world.errors(text + "      ask: Is # 3 right?\n      shows: [draft]\n")
    assert [fault.code for fault in found] == ["P015"]
