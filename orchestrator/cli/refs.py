"""References as people write them: `12`, `#12`, `last`, `last~1`, `12/tech-stack`, `12/tech-stack@2`, and of an item
`12/competitor-profile/acme`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.ids import is_name

_RUN = re.compile(r"#?(\d{1,18})|(last(?:~\d{1,9})?)")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
FORMS = "Write 12, last or last~1; 12/tech-stack; 12/tech-stack@2; 12/competitor-profile/acme."


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step of a run, or an item of one; `version` None = the current one."""

    run: str
    step: str
    version: int | None = None
    item: str | None = None

    @property
    def label(self) -> str:
        """The step as people write it: `tech-stack`, `competitor-profile/acme`."""
        return f"{self.step}/{self.item}" if self.item else self.step


def is_run(text: str) -> bool:
    """True where the text names a run rather than a pipeline."""
    return _RUN.fullmatch(text) is not None or _ID.fullmatch(text) is not None


def run_ref(text: str) -> str:
    """What the store understands: a number, `last~1`, or an id. Raises UsageError."""
    match = _RUN.fullmatch(text)
    if match is not None:
        return match[1] or match[2]
    if _ID.fullmatch(text):
        return text
    raise UsageError(f'"{text}" names no run', hint=FORMS)


def step_ref(text: str) -> StepRef:
    """`RUN/STEP`, `RUN/STEP/ITEM`, and with `@N` a version. Raises UsageError."""
    run, slash, rest = text.partition("/")
    if not slash:
        raise UsageError(f'"{text}" names no step', hint=f"Write the run and the step: last/{text}. {FORMS}")
    name, at, version = rest.partition("@")
    step, inside, item = name.partition("/")
    if not is_name(step) or "/" in item:
        raise UsageError(f'"{rest}" is not the name of a step', hint=FORMS)
    if inside and not is_name(item):
        raise UsageError(f'"{item}" is not the key of an item', hint=f"Write 12/{step}/KEY.")
    if at and not re.fullmatch(r"v?[1-9]\d{0,8}", version):
        raise UsageError(f'"@{version}" is not a version', hint="Versions count from 1: 12/tech-stack@2.")
    return StepRef(run_ref(run), step, int(version.removeprefix("v")) if at else None, item or None)
