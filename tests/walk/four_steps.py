"""Four steps in a row whose model answers with what it was shown: `b(a(red))` came from `a(red)`, that from `red`.

So an artifact's text says by itself which versions it was made from.

    idea ── a ── b ── c ── d      (d reads idea, a and c)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from orchestrator.frame import parse
from orchestrator.values import Item, Request, TextItem
from tests.walk.harness import House

STEPS: Final = ("a", "b", "c", "d")
PIPELINE: Final = """
version: 1
pipeline: four-steps
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  a: {reads: [idea], produces: note, prompt: "Write a."}
  b: {reads: [a], produces: note, prompt: "Write b."}
  c: {reads: [b], produces: note, prompt: "Write c."}
  d: {reads: [idea, a, c], produces: note, prompt: "Write d."}
outputs: [d]
"""


class Echo:
    """The model. `during("b", work)` does that work while it thinks about its next answer for b.

    `says` are answers that do not depend on what it is shown; `delay` is how long it thinks about a step, in seconds.
    """

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.delay: dict[str, float] = {}
        self._work: dict[str, list[Callable[[], Any]]] = {}

    def during(self, step: str, *work: Callable[[], Any]) -> None:
        """One piece of work for each of the step's next requests."""
        self._work.setdefault(step, []).extend(work)

    def __call__(self, request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
        if self._work.get(request.step):
            self._work[request.step].pop(0)()
        if request.step in self.says:
            return {"text": self.says[request.step]}
        opening = items[0]
        assert isinstance(opening, TextItem)
        shown = [artifact.content for artifact in parse(opening.text).artifacts]
        return {"text": f"{request.step}({', '.join(shown)})", "delay": self.delay.get(request.step, 0)}


def made(idea: str = "red", a: str | None = None) -> dict[str, str]:
    """What all four must say for an idea, or from an edited `a` on."""
    a = a or f"a({idea})"
    b = f"b({a})"
    return {"idea": idea, "a": a, "b": b, "c": f"c({b})", "d": f"d({idea}, {a}, c({b}))"}


def four_steps(folder: Path, of_a: str = "") -> tuple[House, Echo]:
    """`of_a` are further keys of the first step."""
    model = Echo()
    return House(folder, PIPELINE.replace('prompt: "Write a."', f'prompt: "Write a."{of_a}'), model), model
