"""Parsing Python text, also on interpreters whose parser is not re-entrant."""

from __future__ import annotations

import ast

import pytest

from orchestrator.syntax import expression_of, module_of


def test_a_parse_that_another_disturbed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """gh-106905: a finaliser that formats a traceback parses, too, and older interpreters count its depth as ours."""
    real, tries = ast.parse, []

    def disturbed_once(text: str, mode: str) -> ast.AST:
        tries.append(text)
        if len(tries) == 1:
            raise SystemError("AST constructor recursion depth mismatch (before=225, after=278)")
        return real(text, mode=mode)

    monkeypatch.setattr(ast, "parse", disturbed_once)
    assert ast.unparse(expression_of("a + 1")) == "a + 1"
    assert tries == ["a + 1", "a + 1"]


def test_another_system_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, mode: str) -> ast.AST:
        raise SystemError("something else")

    monkeypatch.setattr(ast, "parse", broken)
    with pytest.raises(SystemError, match="something else"):
        module_of("never_seen_before = 1")


def test_what_is_no_python_has_no_tree() -> None:
    assert module_of("def (:") is None
