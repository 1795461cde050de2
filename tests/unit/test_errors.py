"""Errors as a script's author meets them: uncaught, in a traceback; and how their messages are written."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import orchestrator
from orchestrator.errors import Diagnostic, InvalidProject, OrchError, Place, StepFailed


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


# --- how messages are written -----------------------------------------------------------------------------------------


def _subclasses(kind: type[BaseException]) -> set[str]:
    return {kind.__name__}.union(*(_subclasses(below) for below in kind.__subclasses__()))


def _loaded_errors() -> set[str]:
    """The names of all error classes of the package, private ones too."""
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not module.name.endswith(("__main__", "env")) and ".versions" not in module.name:
            importlib.import_module(module.name)
    return _subclasses(OrchError)


def _end(node: ast.expr) -> str:
    """The literal text of a message, `{}` for each value in it; empty for what is put together elsewhere."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def _messages() -> Iterator[tuple[str, str]]:
    """Each message that is written where an error or a fault is made, with its place."""
    errors, root = _loaded_errors(), Path(orchestrator.__file__).parent
    # Where faults of a project's files are made: the code comes first, the message next.
    faults = {"Diagnostic", "report", "error", "_error", "_fault"}
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            coded = name in faults and len(node.args) > 1 and re.fullmatch(r"P\d+|CODE", _end(node.args[0]) or "CODE")
            if name in errors and node.args:
                yield f"{path.relative_to(root)}:{node.lineno}", _end(node.args[0])
            elif coded:
                yield f"{path.relative_to(root)}:{node.lineno}", _end(node.args[1])


def test_a_message_of_one_sentence_ends_without_a_full_stop() -> None:
    """One rule for all: it stands behind `error:`, in a table, or in the middle of another sentence."""
    found = dict(_messages())
    assert len(found) > 400, "the test sees what it looks for"
    one_sentence = {place: text for place, text in found.items() if not re.search(r"[.!?] [A-Z]", text)}
    assert {place: text for place, text in one_sentence.items() if text.endswith(".")} == {}
