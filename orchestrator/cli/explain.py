"""`explain`: what a code of `orch check` means, with a wrong and a right snippet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import State, command
from orchestrator.cli.report import print_document
from orchestrator.cli.terminal import console, show

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.explain import Explanation, Snippet

SCHEMA: Final = "orch.explain/1"


@command("explain")
@click.argument("code", required=False)
def explain(state: State, code: str | None) -> int:
    """Explain a code of orch check, such as P101; without one, list them all."""
    from orchestrator import explain as library

    found = [library.explain(code)] if code is not None else list(library.explanations().values())
    if state.json:
        print_document({"schema": SCHEMA, "codes": [_document(one) for one in found]})
    elif code is not None:
        _print(console(), found[0])
    else:
        for one in found:
            show(console(), f"{one.code}  {one.summary}")
    return 0


def _document(one: Explanation) -> dict[str, object]:
    def snippets(side: Sequence[Snippet]) -> list[dict[str, str | None]]:
        return [{"file": s.file, "language": s.language, "text": s.text} for s in side]

    return {
        "code": one.code,
        "summary": one.summary,
        "text": one.text,
        "wrong": snippets(one.wrong),
        "right": snippets(one.right),
    }


def _print(out: Console, one: Explanation) -> None:
    from rich.text import Text

    show(out, Text.assemble((one.code, "bold"), f"  {one.summary}"))
    for paragraph in one.text.split("\n\n"):
        show(out, "")
        show(out, paragraph)
    for title, style, side in (("Wrong", "red", one.wrong), ("Right", "green", one.right)):
        for snippet in side:
            show(out, "")
            show(out, Text.assemble((title, style), f", {snippet.file}:" if snippet.file else ":"))
            out.print(Text("\n".join(f"    {line}" for line in snippet.text.splitlines())), soft_wrap=True)
