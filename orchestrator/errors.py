"""The error tree. Every error says what happened, where, and what to do; a user's mistake prints without a traceback.

    OrchError                   exit
    ├── UsageError                 2   wrong option or reference, nothing selected, the run is live elsewhere
    ├── InvalidProject             3   a pipeline, contract or template is wrong: carries every diagnostic of one pass
    ├── ConfigError                3   a model, key or setting is missing or wrong
    ├── BudgetExceeded             5   the cap would be passed by the next call
    ├── ProviderFailure            6   the provider refused, or failed after all tries
    ├── AccessRefused              7   sensitivity, tenant or trust forbids it; a guard was tripped
    ├── StoreError                 8   the database cannot be opened, read or written
    └── StepFailed                 1   a step ended without a valid artifact

Anything that is not an `OrchError` is a bug (exit 70) and prints its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_OK = 0
EXIT_WAITING = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of a project stands. Lines and columns count from 1; 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One authoring fault: `code` is stable (P101), `hint` says what to do, `source` is the line it stands on."""

    code: str
    message: str
    place: Place | None = None
    hint: str | None = None
    source: str | None = None
    level: str = "error"  # "error" | "warning"


class OrchError(Exception):
    """Base of all expected errors: `code` is a stable word for programs, `hint` the way out for people.

    Place and hint are notes as well, so that the traceback of a script that does not catch it shows them.
    """

    exit_code = 1
    code = "error"

    def __init__(
        self, message: str, *, hint: str | None = None, code: str | None = None, place: Place | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place
        if code is not None:
            self.code = code
        for note in _notes(place, hint):
            self.add_note(note)


def _notes(place: Place | None, hint: str | None) -> tuple[str, ...]:
    return tuple(note for note in (f"--> {place}" if place else "", f"hint: {hint}" if hint else "") if note)


class UsageError(OrchError):
    """A wrong option, an unknown reference, or a command that does not fit the state of the run."""

    exit_code = 2
    code = "usage"


class InvalidProject(OrchError):
    """All authoring faults of a project, found in one pass."""

    exit_code = 3
    code = "invalid_project"

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        errors = [d for d in diagnostics if d.level == "error"]
        first = errors[0] if errors else diagnostics[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(first.message + more, hint=first.hint, code=first.code, place=first.place)
        self.diagnostics = diagnostics
        for further in errors[1:]:
            self.add_note("\n".join([further.message, *_notes(further.place, further.hint)]))


class ConfigError(OrchError):
    """A setting is missing or wrong: no model, no key, an unreadable project file."""

    exit_code = 3
    code = "config"


class BudgetExceeded(OrchError):
    """The worst case of the next call would pass the cap; nothing was sent."""

    exit_code = 5
    code = "budget"


class ProviderFailure(OrchError):
    """The provider refused the request, or failed after all tries. `kind` is the row of the failure table; `unbilled`
    says that the request is known never to have reached what is paid for, although its kind does not tell."""

    exit_code = 6
    code = "provider"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        kind: str = "other",
        retry_after: float | None = None,
        unbilled: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, code=f"provider_{kind}")
        self.kind = kind
        self.retry_after = retry_after
        self.unbilled = unbilled


class AccessRefused(OrchError):
    """Sensitivity, tenant or trust forbids what was asked; nothing was sent."""

    exit_code = 7
    code = "access"


class StoreError(OrchError):
    """The database cannot be opened, read or written."""

    exit_code = 8
    code = "store"


class StepFailed(OrchError):
    """A step ended without a valid artifact, after its re-asks."""

    exit_code = 1
    code = "step_failed"
