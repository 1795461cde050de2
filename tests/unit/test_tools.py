"""Function tools: what the model is told, and that no call of it can break a thread."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import orchestrator
from orchestrator import ToolError, tool
from orchestrator.tools import Tool, ToolFault, ToolOutcome, build_tool, call_tool


class Team(BaseModel):
    size: int = Field(ge=1)
    lead: str | None = None


@tool(idempotent=True)
def lookup_rates(region: Literal["EU", "UK"], weeks: Annotated[int, Field(ge=1, description="How long.")] = 4) -> Any:
    """Weekly rates of a region.

    Use it once per region.
    """
    return {"region": region, "weeks": weeks}


def call(function: Callable[..., Any], arguments: object, **options: float) -> ToolOutcome:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return asyncio.run(call_tool(build_tool("t.py:f", function, "sha"), text, **options))


# --- what the model is told


def test_schema_is_strict_and_holds_the_docstring() -> None:
    made = build_tool("tools.py:lookup_rates", lookup_rates, "abc")
    assert made.spec.name == "lookup_rates"
    assert made.spec.description == "Weekly rates of a region.\n\nUse it once per region."
    assert made.spec.parameters == {
        "type": "object",
        "properties": {
            "region": {"type": "string", "enum": ["EU", "UK"]},
            "weeks": {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                "description": "How long.",
            },
        },
        "required": ["region", "weeks"],
        "additionalProperties": False,
    }
    assert (made.ref, made.sha, made.idempotent) == ("tools.py:lookup_rates", "abc", True)


def test_not_idempotent_unless_declared() -> None:
    """S09: repeating a tool that did not say so is never assumed to be safe."""

    def plain(x: int) -> int:
        """Doc."""
        return x

    @tool
    def bare(x: int) -> int:
        """Doc."""
        return x

    assert build_tool("r", plain, "s").idempotent is False
    assert build_tool("r", bare, "s").idempotent is False
    assert bare(3) == 3


def test_what_cannot_be_a_tool_says_why() -> None:
    def no_doc(x: int) -> int:
        return x

    def no_type(x):  # type: ignore[no-untyped-def]
        """Doc."""

    def stars(*values: int) -> None:
        """Doc."""

    def keywords(**values: int) -> None:
        """Doc."""

    def positional(x: int, /) -> None:
        """Doc."""

    def unreadable(x: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Doc."""

    def not_json(x: threading.Lock) -> None:
        """Doc."""

    def free_form(options: dict[str, int]) -> None:
        """Doc."""

    for function, word in (
        (no_doc, "no docstring"),
        (no_type, "the parameter x has no type"),
        (stars, "takes *values"),
        (keywords, "takes **values"),
        (positional, "positional-only"),
        (unreadable, "annotation that cannot be read"),
        (not_json, "JSON cannot carry"),
        (free_form, "options is a free-form object"),
        (Team, "not a function"),
        ("text", "not a function"),
    ):
        with pytest.raises(ToolFault) as caught:
            build_tool("tools.py:f", function, "s")  # type: ignore[arg-type]
        assert word in caught.value.message
        assert caught.value.hint


# --- what a call gives


def test_arguments_arrive_as_the_declared_types() -> None:
    seen: list[Any] = []

    def hire(team: Team, start: date, copy: int = 1, schema: str = "x") -> str:
        """Doc."""
        seen.extend([team, start, copy, schema])
        return "ok"

    outcome = call(hire, {"team": {"size": 3, "lead": None}, "start": "2026-11-30", "copy": None, "schema": "y"})
    assert outcome == ToolOutcome("ok", False, {"tool": "hire"})
    assert seen == [Team(size=3), date(2026, 11, 30), 1, "y"]


def test_null_for_an_optional_parameter_means_left_out() -> None:
    """The strict form made the model write it."""
    assert call(lookup_rates, {"region": "EU", "weeks": None}).output == '{"region": "EU", "weeks": 4}'
    assert call(lookup_rates, {"region": "EU"}).output == '{"region": "EU", "weeks": 4}'


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"region": "US"}, ["region must be one of 'EU' or 'UK'", 'got "US"']),
        ({"region": "EU", "weeks": "soon"}, ["weeks must be a whole number", 'got "soon"']),
        ({"region": "EU", "weeks": 0}, ["weeks must be at least 1", "got 0"]),
        ({}, ["region is required"]),
        ({"region": "EU", "month": 3}, ["month is not a field", "got 3"]),
        ('{"region": ', ["not valid JSON"]),
        ('{"region": "EU", "region": "UK"}', ["'region' stands twice"]),
        ('{"region": NaN}', ["NaN is not a JSON number"]),
        ("[" * 100_000, ["nested deeper than 64"]),
        ("[1]", ["one JSON object", "got [1]"]),
        ('{"region": "\\ud800"}', ["lone surrogate"]),
    ],
)
def test_bad_arguments_are_answered_with_parameter_value_and_rule(arguments: object, parts: list[str]) -> None:
    outcome = call(lookup_rates, arguments)
    assert outcome.is_error
    assert all(part in outcome.output for part in parts), outcome.output
    assert outcome.data["error"] == "arguments"


def test_no_arguments_at_all() -> None:
    def now() -> str:
        """Doc."""
        return "12:00"

    assert call(now, "").output == "12:00"


def test_tool_error_goes_to_the_model_as_it_is() -> None:
    def rates(region: str) -> None:
        """Doc."""
        raise ToolError(f"no rates for {region}; regions are EU and UK")

    outcome = call(rates, {"region": "US"})
    assert (outcome.is_error, outcome.output) == (True, "no rates for US; regions are EU and UK")
    assert outcome.data == {"tool": "rates", "error": "ToolError", "message": outcome.output}


def test_any_other_exception_is_named_without_a_traceback() -> None:
    def rates(region: str) -> None:
        """Doc."""
        raise KeyError("secret path")

    outcome = call(rates, {"region": "US"})
    assert (outcome.is_error, outcome.output) == (True, "rates failed: KeyError: 'secret path'")
    assert "Traceback" not in outcome.output
    assert "test_tools" not in outcome.output
    assert outcome.data["error"] == "KeyError"


def test_results_are_canonical_json_and_text_stays_text() -> None:
    def give(kind: str) -> Any:
        """Doc."""
        return {
            "text": "two\nlines",
            "none": None,
            "model": [Team(size=2)],
            "float": {"b": 2.0, "a": 1.5},
            "date": date(2026, 11, 30),
            "nan": float("nan"),
            "object": object(),
        }[kind]

    assert call(give, {"kind": "text"}).output == "two\nlines"
    assert call(give, {"kind": "none"}).output == "null"
    assert call(give, {"kind": "model"}).output == '[{"size": 2, "lead": null}]'
    assert call(give, {"kind": "float"}).output == '{"b": 2, "a": 1.5}'
    assert call(give, {"kind": "date"}).output == "2026-11-30"
    for kind in ("nan", "object"):
        outcome = call(give, {"kind": kind})
        assert outcome.is_error
        assert outcome.output.startswith("give failed: ")


def test_sync_tools_run_off_the_loop_with_their_context() -> None:
    mark = contextvars.ContextVar("mark", default="unset")
    threads: list[int] = []

    def where() -> str:
        """Doc."""
        threads.append(threading.get_ident())
        return mark.get()

    async def body() -> ToolOutcome:
        mark.set("set")
        return await call_tool(build_tool("r", where, "s"), "{}")

    assert asyncio.run(body()).output == "set"
    assert threads != [threading.get_ident()]


def test_async_tools_are_awaited() -> None:
    async def wait(text: str) -> str:
        """Doc."""
        await asyncio.sleep(0)
        return text

    assert call(wait, {"text": "done"}).output == "done"


def test_timeout_is_an_answer_and_says_that_it_may_have_happened() -> None:
    async def slow() -> None:
        """Doc."""
        await asyncio.sleep(3600)  # far longer than a test may take

    outcome = call(slow, {}, timeout=0.05)
    assert outcome.is_error
    assert outcome.output == "slow did not answer within 0.05 s; it may still have taken effect."
    assert outcome.data["error"] == "timeout"


def test_a_tools_own_timeout_error_is_not_ours() -> None:
    async def fails() -> None:
        """Doc."""
        raise TimeoutError("upstream")

    assert call(fails, {}).output == "fails failed: TimeoutError: upstream"


def test_cancellation_passes_through() -> None:
    started = asyncio.Event()

    async def slow() -> None:
        """Doc."""
        started.set()
        await asyncio.sleep(30)

    async def body() -> None:
        task = asyncio.create_task(call_tool(build_tool("r", slow, "s"), "{}"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())


# --- the public names


def test_public_names() -> None:
    assert orchestrator.__all__ == sorted(orchestrator.__all__)
    assert orchestrator.tool is tool
    assert {"ToolError", "tool"} <= set(dir(orchestrator))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = orchestrator.nothing_here
    assert Tool.__module__ == "orchestrator.tools"


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("pydantic", "jsonschema", "sqlalchemy", "openai", "jinja2")
    code = f"import sys, orchestrator; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
