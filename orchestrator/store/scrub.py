"""The sink for secrets: nothing that goes into the database, a log or a terminal holds a configured key (S29).

Exact values only, in the forms in which they travel: as they are, in base64 at each of its three alignments (a key
inside `user:key` is encoded differently from the key alone), and with any of their characters written as a URL or a
JSON string inside of others may write them (`%2B`, `\\u002b`, `\\/`). Patterns for unknown secrets are another matter
and another place.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from orchestrator.ids import whole_characters

MASK: Final = "[secret removed]"
SHORTEST: Final = 8  # shorter values ("none", "test") are placeholders for servers without keys, and words of texts


class Scrubber:
    """Replaces the given secrets in texts and bytes. Values below eight characters are not treated as secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        chosen = sorted({secret for secret in secrets if len(secret) >= SHORTEST}, key=len, reverse=True)
        forms = {form for secret in chosen for form in (secret, *_base64(secret))}
        self._texts = tuple(sorted(forms, key=len, reverse=True))
        self._bytes = tuple(form.encode() for form in self._texts)
        self._secrets = chosen

    @cached_property
    def _written(self) -> tuple[re.Pattern[str], re.Pattern[bytes]]:
        """Made when a text first needs it: most commands print none that does, and it takes ten milliseconds."""
        pattern = "|".join(map(_written, self._secrets))
        return re.compile(pattern), re.compile(pattern.encode())

    def text(self, value: str) -> str:
        for form in self._texts:
            if form in value:
                value = value.replace(form, MASK)
        return self._written[0].sub(MASK, value) if self._texts and ("%" in value or "\\" in value) else value

    def body(self, value: bytes) -> bytes:
        for form in self._bytes:
            if form in value:
                value = value.replace(form, MASK.encode())
        return (
            self._written[1].sub(MASK.encode(), value) if self._bytes and (b"%" in value or b"\\" in value) else value
        )

    def data(self, value: Any) -> Any:
        """JSON data with every text in it scrubbed, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = map(self.data, value)
            return list(items) if isinstance(value, list) else tuple(items)
        return value

    def clean(self, values: dict[str, Any]) -> None:
        """Make each value one that may be stored: scrubbed, and as every database's text columns can hold it."""
        for name, value in values.items():  # dozens for each step: what needs nothing is passed over quickly
            if isinstance(value, str):
                if self._texts or not value.isascii() or "\x00" in value:
                    values[name] = storable(self.text(value))
            elif isinstance(value, bytes):
                values[name] = self.body(value)


def storable(text: str) -> str:
    """Text as every database can hold it: messages and errors may quote anything, but PostgreSQL refuses NUL, and UTF-8
    has no lone surrogates. Bodies keep both, as bytes."""
    if "\x00" in text:
        text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return whole_characters(text)


_ESCAPE: Final = r"\\\\{0,15}"  # bounded, so that a long run of backslashes takes no longer than other text


def _written(secret: str) -> str:
    """A pattern for the secret with each character plain, percent-encoded, or escaped as in a JSON string."""
    return "".join(f"(?:{'|'.join(_spellings(char))})" for char in secret)


def _spellings(char: str) -> Iterable[str]:
    yield re.escape(char)
    yield "".join(f"%(?i:{byte:02x})" for byte in char.encode())
    units = char.encode("utf-16-be").hex()
    yield "".join(rf"{_ESCAPE}u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    if char in '"\\/':
        yield _ESCAPE + re.escape(char)
    if char == " ":
        yield r"\+"


def _base64(secret: str) -> Iterable[str]:
    """The characters that every base64 text holding the secret contains, for each of the three alignments."""
    raw = secret.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            text = encode(b"\0" * before + raw).decode().rstrip("=")
            bits = 8 * (before + len(raw))
            yield text[-(-8 * before // 6) : bits // 6]
