"""The sink for secrets: nothing that goes into the database holds a configured key (S29).

Exact values only, in the forms in which they travel: as they are, URL-quoted, inside a JSON string, and in base64 at
each of its three alignments (a key inside `user:key` is encoded differently from the key alone). Patterns for unknown
secrets are another matter and another place.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "[secret removed]"
SHORTEST: Final = 8  # shorter values ("none", "test") are placeholders for servers without keys, and words of texts


class Scrubber:
    """Replaces the given secrets in texts and bytes. Values below eight characters are not treated as secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        self._texts = tuple(sorted(forms, key=len, reverse=True))
        self._bytes = tuple(form.encode() for form in self._texts)

    def text(self, value: str) -> str:
        for form in self._texts:
            if form in value:
                value = value.replace(form, MASK)
        return value

    def body(self, value: bytes) -> bytes:
        for form in self._bytes:
            if form in value:
                value = value.replace(form, MASK.encode())
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
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _forms(secret: str) -> set[str]:
    coded = {part for encode in (base64.b64encode, base64.urlsafe_b64encode) for part in _base64(encode, secret)}
    return {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], *coded}


def _base64(encode: Any, secret: str) -> Iterable[str]:
    """The characters that every base64 text holding the secret contains, for each of the three alignments."""
    raw = secret.encode()
    for before in range(3):
        text = encode(b"\0" * before + raw).decode().rstrip("=")
        bits = 8 * (before + len(raw))
        yield text[-(-8 * before // 6) : bits // 6]
