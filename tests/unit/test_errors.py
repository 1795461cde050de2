"""Errors as a script's author meets them: uncaught, in a traceback."""

from __future__ import annotations

import traceback

from orchestrator.errors import Diagnostic, InvalidProject, Place, StepFailed


def shown(error: Exception) -> str:
    return "".join(traceback.format_exception_only(error))


def test_a_traceback_shows_the_place_and_the_way_out() -> None:
    error = StepFailed("notes has no answer", hint="run `orch resume`", place=Place("p.yaml", 3, 5))
    assert shown(error).splitlines()[-3:] == [
        "orchestrator.errors.StepFailed: notes has no answer",
        "--> p.yaml:3:5",
        "hint: run `orch resume`",
    ]
    assert shown(StepFailed("no more")).splitlines() == ["orchestrator.errors.StepFailed: no more"]


def test_a_traceback_shows_all_faults_of_a_project() -> None:
    error = InvalidProject(
        (
            Diagnostic("P302", "there is no input ide", Place("p.py", 4, 9), "Did you mean 'idea'?"),
            Diagnostic("P243", "no model is set", Place("p.py", 1), level="warning"),
            Diagnostic("P305", "step b does not say what it returns", Place("p.py", 8)),
        )
    )
    text = shown(error)
    assert "there is no input ide (and 1 more)\n--> p.py:4:9\nhint: Did you mean 'idea'?\n" in text
    assert "step b does not say what it returns\n--> p.py:8\n" in text
    assert "no model is set" not in text
