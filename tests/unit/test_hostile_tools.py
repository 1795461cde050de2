"""S25 attacked through tools and checks: whatever a model gives as arguments, whatever a function gives back or raises,
becomes text that can be kept and sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.graph import Check, Function
from orchestrator.output import feedback, run_checks
from orchestrator.tools import ToolError, ToolOutcome, build_tool, call_tool


def _giving(value: Any) -> Callable[..., Any]:
    def act(x: int = 0) -> Any:
        """Act."""
        if isinstance(value, BaseException):
            raise value
        return value

    return act


def _call(value: Any, arguments: str = "{}") -> ToolOutcome:
    outcome = asyncio.run(call_tool(build_tool("tools.py:act", _giving(value), "sha"), arguments))
    outcome.output.encode()
    for told in outcome.data.values():
        str(told).encode()
    return outcome


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "output", "is_error"),
    [
        ("name-\udcff.txt", "name-\\udcff.txt", False),
        (ToolError("no file \udcff"), "no file \\udcff", True),
        (ValueError("no file \ud800"), "act failed: ValueError: no file \\ud800", True),
        ("zażółć 🧘", "zażółć 🧘", False),
        (float("nan"), "numbers must be finite", True),
        ({"a": float("inf")}, "numbers must be finite", True),
        (10**5000, "digits", True),
        (ENDLESS, "Circular reference", True),
        (DEEP, "depth", True),
        (object(), "Unable to serialize", True),
        (b"\xff", "can't decode byte", True),
        ({"\ud800": 1}, "UnicodeEncodeError", True),
        (RecursionError("deep"), "act failed: RecursionError: deep", True),
        (MemoryError(), "act failed: MemoryError", True),
        (StopIteration(), "act failed: RuntimeError", True),
        (SystemExit(3), "act failed: SystemExit: 3", True),
    ],
    ids=range(16),
)
def test_S25_whatever_a_tool_gives_is_text_that_can_be_kept(value: Any, output: str, is_error: bool) -> None:
    """A name of a file that is not UTF-8 comes out of Python with half characters in it."""
    outcome = _call(value)
    assert output in outcome.output
    assert outcome.is_error is is_error


@given(
    st.text()
    | st.sampled_from(['{"x": 1e999}', '{"x": NaN}', '{"x": 1, "x": 2}', "[" * 9999, '{"x": ' + "9" * 9999 + "}"])
)
def test_S25_whatever_a_model_gives_as_arguments_is_an_answer(arguments: str) -> None:
    outcome = _call("fine", arguments)
    assert outcome.is_error or outcome.output == "fine"


def test_S25_what_a_check_says_can_be_sent() -> None:
    said = Check("named", None, Function("checks.py:named", "checks.py", "sha", lambda value: "no file \udcff"), None)
    faults = asyncio.run(run_checks([said], {}, {}))
    assert feedback(faults).encode().decode().count("no file \\udcff") == 1
