"""Rules on results. A check returns None, or the message the model is told when it is asked again."""

from __future__ import annotations

from typing import Any


def short_enough(value: str, most_words: int, **reads: Any) -> str | None:
    words = len(value.split())
    return None if words <= most_words else f"the text has {words} words; at most {most_words} are wanted"
