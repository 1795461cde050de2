"""What tools have done in attempts that failed (S09): each execution is had once, and none is invented."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from orchestrator.store.records import ToolRow
from orchestrator.tools_done import DoneBefore, is_in_doubt
from orchestrator.values import ToolCall, ToolOutput


def row(
    arguments: str,
    output: str | None = "ok",
    *,
    is_error: bool = False,
    tool: str = "t1",
    call: str = "c1",
    decision: Literal["tell", "done"] | None = None,
) -> ToolRow:
    asked = ToolCall(tool, "order", arguments)
    told = None if output is None else ToolOutput(tool, output, is_error)
    return ToolRow(call, asked, "done" if told else "started", told, decision)


def asks(arguments: str, call_id: str = "n1", name: str = "order") -> ToolCall:
    return ToolCall(call_id, name, arguments)


def test_S09_the_same_call_is_had_once_however_its_arguments_are_spelt() -> None:
    done = DoneBefore([[row('{"a": 1, "b": 2}', "first")]])
    taken = done.take([asks('{"b":2,"a":1}'), asks('{"a": 1, "b": 2}', "n2")])
    assert {key: one.output.output for key, one in taken.items() if one.output} == {"n1": "first"}
    assert done.take([asks('{"a": 1, "b": 2}')]) == {}


def outputs(taken: Mapping[str, ToolRow]) -> list[str | None]:
    return [None if one.output is None else one.output.output for one in taken.values()]


def test_S09_other_tools_other_arguments_and_errors_are_not_had() -> None:
    done = DoneBefore([[row("{}", "no", is_error=True), row('{"a": 1}'), row("not JSON")]])
    assert done.take([asks("{}"), asks('{"a": 2}'), asks('{"a": 1}', name="look")]) == {}
    assert list(done.take([asks("not JSON")])) == ["n1"]


def test_S09_what_was_under_way_when_the_attempt_failed_stays_in_doubt_until_somebody_says_what_became_of_it() -> None:
    """`tell` says that nobody knows: that still holds where the step begins anew."""
    under_way = row("{}", None)
    [found] = DoneBefore([[under_way]]).take([asks("{}")]).values()
    assert is_in_doubt(found)
    told = row("{}", "not known", is_error=True, decision="tell")
    [found] = DoneBefore([[under_way], [told]]).take([asks("{}"), asks("{}", "n2")]).values()
    assert is_in_doubt(found)
    for became in (row("{}", "came", decision="done"), row("{}", "came")):  # said so, or done once more
        done = DoneBefore([[under_way], [became]])
        assert outputs(done.take([asks("{}"), asks("{}", "n2")])) == ["came"]
    assert DoneBefore([[under_way]], own=[row("{}", None)]).take([asks("{}")]) == {}


def test_S09_what_was_done_for_an_answer_that_stands_is_used_up() -> None:
    """A Python step: the first attempt has one answer, and a question that failed; the second has that one too."""
    one, other = row("{}", "one", call="c1"), row("{}", "other", call="c2")
    assert outputs(DoneBefore([[one, other]], kept={"c1"}).take([asks("{}"), asks("{}", "n2")])) == ["other"]
    again = row("{}", "other", call="c3")  # it was told that
    assert DoneBefore([[one, other], [again]], kept={"c1", "c3"}).take([asks("{}")]) == {}
    # Not answered yet, it is still to be had once; and so is what the second attempt did for a question of its own.
    new = row("{}", "new", call="c4")
    done = DoneBefore([[one, other], [again, new]], kept={"c1"})
    assert outputs(done.take([asks("{}"), asks("{}", "n2"), asks("{}", "n3")])) == ["other", "new"]
    assert outputs(DoneBefore([[one], [new]], kept={"c1"}).take([asks("{}"), asks("{}", "n2")])) == ["new"]


def test_S09_what_was_done_for_an_answer_that_does_not_stand_any_more_is_to_be_had() -> None:
    one = row("{}", "one", call="c1")
    done = DoneBefore([[one]], kept={"c1"})
    done.give_back([one, row('{"a": 1}', "no", is_error=True)])
    assert outputs(done.take([asks("{}"), asks("{}", "n2"), asks('{"a": 1}', "n3")])) == ["one"]


def test_S09_a_later_attempt_that_was_told_the_same_has_done_nothing_more() -> None:
    """Twice in the record, once in the world; what it did beyond that counts."""
    assert len(DoneBefore([[row("{}")], [row("{}")]]).take([asks("{}"), asks("{}", "n2")])) == 1
    both = [row("{}"), row("{}", tool="t2")]
    assert len(DoneBefore([[row("{}")], both]).take([asks("{}"), asks("{}", "n2"), asks("{}", "n3")])) == 2


def test_S09_what_the_attempt_at_work_was_told_before_it_was_interrupted_is_used_up() -> None:
    assert DoneBefore([[row("{}")]], own=[row("{}")]).take([asks("{}")]) == {}
