"""Errors, printed: one sentence, the place where it stands, the way out. With `--json` also as a document on stdout."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.cli.terminal import console, plural, show, visible, without_secrets
from orchestrator.errors import Diagnostic, InvalidProject, OrchError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.options import State
    from orchestrator.values import Event


def print_document(document: Mapping[str, Any]) -> None:
    """The one document of a `--json` command: ASCII only, so that no terminal or pipe can misread it (S27).

    With `--jsonl` it is one line, like each of the documents before it.
    """
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, indent=_indent)
    _documents().write(without_secrets(text) + "\n")


class EventLines:
    """A listener for the engine's events: one line of JSON each, as they come. A reader that has left silences it."""

    def __init__(self) -> None:
        self.silent = False

    def __call__(self, event: Event) -> None:
        from orchestrator.trace.events import typed

        try:
            if not self.silent:
                print_document(typed(event).document())
        except OSError:
            self.silent = True


@contextmanager
def only_documents(*, lines: bool = False) -> Iterator[None]:
    """In the block stdout carries documents and nothing else: what a project's own code prints, or a program that it
    starts, goes to stderr. `lines`: each document is one line."""
    global _document_stream, _indent
    _indent = None if lines else 2
    real, descriptor = sys.stdout, _descriptor()
    keep = None if descriptor is None else os.dup(descriptor)
    if descriptor is not None:
        real.flush()
        os.dup2(2, descriptor)
    _document_stream = real if keep is None else _Descriptor(keep)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout, _document_stream, _indent = real, None, 2
        if descriptor is not None and keep is not None:
            os.dup2(keep, descriptor)
            os.close(keep)


class _Sink(Protocol):
    def write(self, text: str, /) -> object: ...


class _Descriptor:
    """Writes at once and keeps nothing back, so that a reader that has left is noticed here and never again."""

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, text: str, /) -> None:
        data = text.encode("ascii")
        while data:
            data = data[os.write(self._number, data) :]


_document_stream: _Sink | None = None
_indent: int | None = 2


def _documents() -> _Sink:
    return sys.stdout if _document_stream is None else _document_stream


def _descriptor() -> int | None:
    """The number of the real stdout; None where it is closed, or somebody has put another stream in its place."""
    try:
        return sys.stdout.fileno() if sys.__stdout__ is not None and sys.stdout is sys.__stdout__ else None
    except (OSError, ValueError):
        return None


class Refused(UsageError):
    """A command refused for something that can be shown: `beside` are further members of the error's document."""

    def __init__(self, message: str, *, hint: str | None, code: str, beside: Mapping[str, Any]) -> None:
        super().__init__(message, hint=hint, code=code)
        self.beside = beside


def error_document(error: OrchError) -> dict[str, Any]:
    """`{"error": {code, message, file, line, column, hint}}`; all faults of an invalid project stand beside it."""
    place = error.place
    body: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "file": place.file if place else None,
        "line": place.line or None if place else None,
        "column": place.column or None if place else None,
        "hint": error.hint,
    }
    document: dict[str, Any] = {"error": body}
    if isinstance(error, InvalidProject):
        document["diagnostics"] = [diagnostic_document(d) for d in error.diagnostics]
    if isinstance(error, Refused):
        document |= error.beside
    return document


def diagnostic_document(diagnostic: Diagnostic) -> dict[str, Any]:
    place = diagnostic.place
    return {
        "code": diagnostic.code,
        "level": diagnostic.level,
        "message": diagnostic.message,
        "file": place.file if place else None,
        "line": place.line or None if place else None,
        "column": place.column or None if place else None,
        "hint": diagnostic.hint,
    }


def report_error(error: OrchError, state: State) -> int:
    """Print an expected error for people, with `--json` its document too, and return its exit code."""
    if state.json:
        print_document(error_document(error))
    if isinstance(error, InvalidProject):
        print_diagnostics(error.diagnostics)
    else:
        print_error(error)
    return error.exit_code


def print_error(error: OrchError) -> None:
    """`error: …`, the place, `hint: …` on stderr."""
    from rich.text import Text

    out = console(stderr=True)
    show(out, Text.assemble(("error: ", "bold red"), visible(error.message)))
    if error.place is not None:
        show(out, Text(f"  --> {visible(str(error.place), one_line=True)}", style="dim"))
    if error.hint:
        show(out, Text.assemble(("hint: ", "bold"), visible(error.hint)))


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    """Every fault with its line and caret on stderr, and how many there are."""
    from rich.text import Text

    from orchestrator.diagnostics import format_diagnostic, ordered

    out = console(stderr=True)
    for diagnostic in ordered(diagnostics):
        text = Text(without_secrets(format_diagnostic(diagnostic)))
        text.stylize("bold red" if diagnostic.level == "error" else "yellow", 0, text.plain.index(":") + 1)
        out.print(text, soft_wrap=True)
        out.print()
    errors = sum(diagnostic.level == "error" for diagnostic in ordered(diagnostics))
    warnings = len(ordered(diagnostics)) - errors
    show(out, ", ".join(plural(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n))


def report_bug(error: BaseException, state: State) -> None:
    """Anything unexpected is our fault: say so, and give the traceback that a bug report needs."""
    document = {"code": "bug", "message": f"{type(error).__name__}: {error}"}
    if state.json:
        print_document({"error": {**document, "file": None, "line": None, "column": None, "hint": None}})
    sys.stderr.write(visible("".join(traceback.format_exception(error))))
    sys.stderr.write("error: this is a bug in orch, sorry: what was committed is safe, the traceback says where\n")
