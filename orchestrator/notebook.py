"""What a notebook shows of a pipeline and of a run: its graph, or in one `<pre>` what keeps it from being drawn."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidProject, OrchError

if TYPE_CHECKING:
    from orchestrator.python.doors import Doors
    from orchestrator.run_handle import Outcome


def pipeline_html(pipeline: Doors) -> str:
    """The graph as an SVG; for a pipeline with faults, all of them, each at its line."""
    from orchestrator.drawing import draw, picture_of

    try:
        return draw(picture_of(pipeline.graph()), "svg")
    except OrchError as error:
        return error_html(error)


def run_html(outcome: Outcome) -> str:
    """The graph of a run that has ended, with how each step stood then."""
    from orchestrator.drawing import draw, picture_of
    from orchestrator.staleness import stale_reasons

    rows = tuple(outcome.steps.values())
    stale = set(stale_reasons(outcome.graph, rows))
    # A step that ran alone is a run of its own, of a graph that has more.
    return draw(picture_of(outcome.graph, outcome.row, rows, stale, only=outcome.steps), "svg")


def error_html(error: BaseException) -> str:
    """The sentence and its way out, as text that runs nothing."""
    from orchestrator.diagnostics import format_diagnostic, ordered

    if isinstance(error, InvalidProject):
        text = "\n\n".join(format_diagnostic(diagnostic) for diagnostic in ordered(error.diagnostics))
    else:
        notes = getattr(error, "__notes__", ())
        text = "\n".join([f"{type(error).__name__}: {error}", *notes])
    return f"<pre>{escape(text)}</pre>"
