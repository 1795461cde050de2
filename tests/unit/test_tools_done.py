"""What tools have done in attempts that failed (S09): each execution is had once, and none is invented."""

from __future__ import annotations

from orchestrator.store.records import ToolRow
from orchestrator.tools_done import DoneBefore
from orchestrator.values import ToolCall, ToolOutput


def row(arguments: str, output: str | None = "ok", *, is_error: bool = False, tool: str = "t1") -> ToolRow:
    call = ToolCall(tool, "order", arguments)
    told = None if output is None else ToolOutput(tool, output, is_error)
    return ToolRow("c1", call, "done" if told else "started", told, None)


def asks(arguments: str, call_id: str = "n1", name: str = "order") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def test_S09_the_same_call_is_had_once_however_its_arguments_are_spelt() -> None:
    done = DoneBefore([[row('{"a": 1, "b": 2}', "first")]])
    taken = done.take([asks('{"b":2,"a":1}'), asks('{"a": 1, "b": 2}', "n2")])
    assert {key: one.output.output for key, one in taken.items() if one.output} == {"n1": "first"}
    assert done.take([asks('{"a": 1, "b": 2}')]) == {}


def test_S09_other_tools_other_arguments_errors_and_what_is_in_doubt_are_not_had() -> None:
    done = DoneBefore([[row("{}", "no", is_error=True), row('{"a": 1}', None), row("not JSON")]])
    assert done.take([asks("{}"), asks('{"a": 1}'), asks("{}", name="look")]) == {}
    assert list(done.take([asks("not JSON")])) == ["n1"]


def test_S09_a_later_attempt_that_was_told_the_same_has_done_nothing_more() -> None:
    """Twice in the record, once in the world; what it did beyond that counts."""
    assert len(DoneBefore([[row("{}")], [row("{}")]]).take([asks("{}"), asks("{}", "n2")])) == 1
    both = [row("{}"), row("{}", tool="t2")]
    assert len(DoneBefore([[row("{}")], both]).take([asks("{}"), asks("{}", "n2"), asks("{}", "n3")])) == 2


def test_S09_what_the_attempt_at_work_was_told_before_it_was_interrupted_is_used_up() -> None:
    assert DoneBefore([[row("{}")]], own=[row("{}")]).take([asks("{}")]) == {}
