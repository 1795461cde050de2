"""`explanations.md`, read: for each diagnostic code why it is one, a wrong snippet and a right one.

The page is written for people and is read as it is: a heading is a code, a fenced block is a snippet, its info string
says which (`yaml wrong`) and, where it is not the pipeline, of which file (`python right code.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.diagnostics import CODES
from orchestrator.errors import UsageError

PAGE: Final = Path(__file__).with_name("explanations.md")
_HEADING: Final = re.compile(r"^## (?P<code>P\d{3})\n", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(?P<info>[^\n]+)\n(?P<body>.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """`language` is that of the fence; `file` is None for a part of a pipeline; `text` ends in a line end."""

    language: str
    file: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`summary` is the code's line in `CODES`, `text` some paragraphs."""

    code: str
    summary: str
    text: str
    wrong: tuple[Snippet, ...]
    right: tuple[Snippet, ...]


def explain(code: str) -> Explanation:
    """The explanation of a code, written in any case and with or without `error[…]`. Raises UsageError."""
    match = re.search(r"p\d{3}(?!\d)", code.lower())
    wanted = match[0].upper() if match else code
    found = explanations().get(wanted)
    if found is None:
        raise UsageError(f"there is no code {wanted!r}", hint="orch explain lists them all.")
    return found


@cache
def explanations() -> Mapping[str, Explanation]:
    """Every explanation by its code, in the order of `CODES`."""
    page = PAGE.read_text(encoding="utf-8")
    parts = _HEADING.split(page)
    by_code = {code: _explanation(code, body) for code, body in zip(parts[1::2], parts[2::2], strict=True)}
    return {code: by_code[code] for code in CODES if code in by_code}


def _explanation(code: str, body: str) -> Explanation:
    blocks: dict[str, list[Snippet]] = {"wrong": [], "right": []}
    for block in _BLOCK.finditer(body):
        language, side, *file = block["info"].split()
        blocks[side].append(Snippet(language, file[0] if file else None, block["body"]))
    text = _BLOCK.sub("", body).strip()
    text = re.sub(r"\n{3,}", "\n\n", text)
    return Explanation(code, CODES[code], text, tuple(blocks["wrong"]), tuple(blocks["right"]))


def skeleton() -> str:
    """The pipeline whose sections stand in where a snippet leaves them out."""
    block = next(b for b in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if b["info"] == "yaml skeleton")
    return block["body"]
