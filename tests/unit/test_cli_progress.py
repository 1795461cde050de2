"""Progress and outcome: what a person reads while a run goes on and when it has ended, and the exit code."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

from orchestrator.cli.options import State
from orchestrator.cli.outcome import exit_code, next_commands
from orchestrator.cli.progress import Progress
from orchestrator.cli.terminal import console
from orchestrator.values import ErrorRecord, Event, RunRow, RunStatus, StepRow, StepStatus, Usage


def listening(*names: str) -> tuple[Progress, io.StringIO]:
    progress, file = Progress(State(), names), io.StringIO()
    progress.out = console(file=file, width=100)
    return progress, file


def event(kind: str, step: str | None = None, /, **data: Any) -> Event:
    return Event(kind, step, None, data)


def test_a_run_that_re_asks_is_told_in_a_line_per_step() -> None:
    progress, file = listening("market-sizing", "tech-stack")
    hosts = ["https://api.openai.com/v1"]
    events = [
        event("run.started", number=12, pipeline="discovery", hosts=hosts, cap_usd="4.00"),
        event("step.started", "tech-stack", attempt=1, kind="llm", model="m"),
        event("call.sent", "tech-stack", seq=1, source="NEXT_STEP", rung="chain", estimate_tokens=4000),
        event("call.text", "tech-stack", delta="never shown"),
        event("call.done", "tech-stack", seq=1, input_tokens=2000, output_tokens=400, cost_usd="0.01"),
        event("step.reask", "tech-stack", reasons=["$.budget: 997 is not the customer's"], number=1),
        event("call.sent", "tech-stack", seq=2, source="REASK", rung="chain", estimate_tokens=4000),
        event("call.done", "tech-stack", seq=2, input_tokens=2100, output_tokens=500, cost_usd="0.011"),
        event(
            "step.done", "tech-stack", version=1, calls=2, reasks=1, input_tokens=4100, output_tokens=900,
            cost_usd="0.021", cost_partial=False, seconds=9.8,
        ),
    ]  # fmt: skip
    for one in events:
        progress(one)
    assert file.getvalue().splitlines() == [
        "run 12 · discovery · cap $4.00 · sends to api.openai.com",
        "  ✓ tech-stack     2 calls  4.1k→0.9k    $0.021   9.8s  re-asked: $.budget: 997 is not the customer's",
    ]
    assert progress.spent == Decimal("0.021")
    assert progress.state.run_number == 12


def test_a_failed_step_tells_why_and_the_way_out() -> None:
    progress, file = listening("a")
    progress(event("step.started", "a"))
    progress(event("step.failed", "a", code="empty", message="empty answer after 2 re-asks", hint="try another model"))
    assert "✗ a" in file.getvalue()
    assert "empty answer after 2 re-asks" in file.getvalue()
    assert "hint: try another model" in file.getvalue()


def test_a_wait_before_a_retry_is_told_where_nothing_is_redrawn() -> None:
    progress, file = listening("a")
    progress(event("call.retry", "a", why="rate limited", wait=20.0))
    assert file.getvalue() == "    a: rate limited; trying again in 20s\n"


def on_a_terminal(*names: str) -> tuple[Progress, io.StringIO]:
    """Where the foot is redrawn: it is looked at by hand here, nothing redraws it."""
    progress, file = listening(*names)
    progress.out = Console(file=file, width=40, force_terminal=True, color_system=None)
    progress.live = Live(console=progress.out, auto_refresh=False)
    return progress, file


def foot(progress: Progress) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=40).print(progress._foot())
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_reply_under_way_is_read_at_the_foot_as_it_grows() -> None:
    progress, file = on_a_terminal("a")
    progress(event("step.started", "a", attempt=1, kind="llm", model="m"))
    progress(event("call.sent", "a", seq=1, source="NEXT_STEP", rung="chain", estimate_tokens=10))
    assert len(foot(progress)) == 2  # the step and the sum: nothing is said yet, and no token is counted
    assert "→" not in foot(progress)[0]
    for piece in ("# Rates", "\n\nThey rise by four per cent", " a year\x1b[2J"):
        progress(event("call.text", "a", delta=piece))
    assert foot(progress)[1] == "      …se by four per cent a year\\x1b[2J"
    progress(event("call.retry", "a", why="the line broke", wait=1.0))
    assert foot(progress)[1] == "      the line broke; trying again in 1s"
    progress(event("call.text", "a", delta="Again"))
    assert foot(progress)[1] == "      Again"
    progress(event("call.done", "a", seq=1, input_tokens=10, output_tokens=2, cost_usd="0.01"))
    assert len(foot(progress)) == 2
    assert "10→2" in foot(progress)[0]
    assert file.getvalue() == ""  # and none of it scrolls by


def test_another_model_and_changed_inputs_are_told_for_good_on_a_terminal_too() -> None:
    progress, file = on_a_terminal("a")
    progress(event("model.switched", "a", was="x:one", now="y:two", reason="503"))
    progress(event("step.moved", "a", inputs=["idea"], redo=True, stands=False))
    assert file.getvalue().split("\n")[:-1] == [
        "    a: x:one does not answer, y:two is ",
        "asked: 503",
        "    a: idea changed meanwhile: running ",
        "again",
    ]


def test_R023_input_that_was_not_sent_is_told_for_good_and_once_for_a_step_with_many_items() -> None:
    progress, file = on_a_terminal("a", "b")
    told = {"seq": 1, "model": "x:one", "input_tokens": 9000, "most_tokens": 2100, "grew": False}
    for step, item in (("a", "first"), ("a", "second"), ("b", None)):
        progress(Event("input.unexplained", step, item, told))
    text = " ".join(file.getvalue().split())
    assert [text.count(start) for start in ("! a/first: x:one counted 9,000", "! a/second", "! b: x:one")] == [1, 0, 1]


def test_what_keep_names_and_a_tool_did_not_give_is_told_once() -> None:
    progress, file = listening("a")
    for _ in range(2):
        progress(event("tool.called", "a", name="find", id="c", seconds=0, is_error=False, cut=0, missing=["nam"]))
    progress(event("step.done", "a", version=1, calls=1, seconds=1.0))
    assert file.getvalue().count("find gave nothing at nam, which its `keep` names") == 1


def test_a_wait_for_a_limit_is_told_where_nothing_is_redrawn() -> None:
    progress, file = listening("a")
    progress(event("call.waiting", "a", why='[limits."x:*"] is used up', wait=58.2))
    assert file.getvalue() == '    a: [limits."x:*"] is used up; about 58s\n'


def test_S27_what_a_model_wrote_reaches_progress_without_control_characters() -> None:
    progress, file = listening("a")
    progress(event("step.reask", "a", reasons=["\x1b[2J [red]boo[/red]\nnext"], number=1))
    progress(event("step.done", "a", version=1, calls=1, seconds=1.0))
    assert "\x1b" not in file.getvalue()
    assert "re-asked: \\x1b[2J [red]boo[/red] next" in file.getvalue()


def test_events_of_later_versions_are_ignored() -> None:
    progress, file = listening("a")
    progress(event("step.dreamt", "a", of="sheep"))
    assert file.getvalue() == ""


def test_a_reader_that_left_silences_the_progress_and_never_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    progress, _ = listening("a")
    progress.out = console(file=Closed())
    for _ in range(3):
        progress(event("step.done", "a", version=1, calls=1, seconds=1.0))
    assert progress.silent


def test_the_foot_of_a_terminal_shows_what_runs_and_what_was_spent() -> None:
    progress, _ = listening("alpha", "beta", "gamma")
    progress(event("step.started", "alpha"))
    progress(event("call.sent", "alpha"))
    progress(event("call.done", "alpha", input_tokens=1200, output_tokens=400, cost_usd="0.01"))
    progress(event("step.started", "beta"))
    progress(event("call.retry", "beta", why="429", wait=5.0))
    file = io.StringIO()
    Console(file=file, width=100, force_terminal=True, color_system=None).print(progress._foot())
    alpha, beta, waits, totals = file.getvalue().splitlines()
    assert alpha.split()[:4] == ["▸", "alpha", "1", "call"]
    assert beta.split()[:2] == ["▸", "beta"]
    assert waits.strip() == "429; trying again in 5s"
    assert totals.strip() == "$0.01 spent · 3 steps left"


# --- how it ended -----------------------------------------------------------------------------------------------------


def run(status: RunStatus, error: ErrorRecord | None = None) -> RunRow:
    return RunRow(
        id="r", number=12, pipeline="p", status=status, parent_id=None, parent_number=None, session_id="s", session="s",
        created_at=datetime(2026, 11, 30, tzinfo=UTC), graph_digest="g", file="p.yaml", message=None, cap_usd=None,
        on_exceed="pause", unpriced="allow", author="a", error=error,
    )  # fmt: skip


def step(name: str, status: StepStatus, error: ErrorRecord | None = None) -> StepRow:
    return StepRow(
        name=name, item=None, kind="llm", order=0, status=status, attempt=1, attempt_id="a", head=None, draft=None,
        inputs_hash=None, manifest=None, calls=0, reasks=0, usage=Usage(), cost_usd=None, cost_partial=False,
        seconds=0.0, error=error,
    )  # fmt: skip


SIX = ErrorRecord("x", "x", exit_code=6)


@pytest.mark.parametrize(
    ("row", "steps", "code"),
    [
        (run("succeeded"), [], 0),
        (run("waiting"), [], 4),
        (run("paused", ErrorRecord("budget", "cap", exit_code=5)), [], 5),
        (run("failed"), [step("a", "succeeded"), step("b", "failed", SIX)], 6),
        (
            run("failed", ErrorRecord("x", "x", exit_code=7)),
            [step("b", "failed", ErrorRecord("x", "x", exit_code=6))],
            7,
        ),
        (run("failed"), [], 1),
    ],
)
def test_the_exit_code_is_that_of_what_stopped_the_run(row: RunRow, steps: list[StepRow], code: int) -> None:
    assert exit_code(row, steps) == code


def test_the_next_commands_name_the_project_they_are_for() -> None:
    state = State(prefix="orch -C '/tmp/my demo'")
    steps = [step("a", "succeeded"), step("b", "failed")]
    assert next_commands(state, run("failed"), steps) == [
        "orch -C '/tmp/my demo' resume 12",
        "orch -C '/tmp/my demo' why 12/b",
        "orch -C '/tmp/my demo' show 12",
    ]
    assert next_commands(state, replace(run("succeeded"), number=3), steps)[0] == "orch -C '/tmp/my demo' show 3/b"
    child = replace(run("succeeded"), number=3, parent_number=1)
    assert next_commands(state, child, steps)[0] == "orch -C '/tmp/my demo' compare 1 3"
