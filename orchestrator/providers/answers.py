"""What is common to the answers of all vendors: ids, errors in words, and what to call an answer that is none.

They come from a server that may be broken, old or hostile; nothing of theirs is believed before it was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.errors import ProviderFailure
from orchestrator.ids import SYNTHETIC_PREFIX

LONGEST_ID: Final = 1000


def response_id(response: object) -> str:
    """The response's id. Raises ProviderFailure where there is none, one that looks like ours (S12), or one without
    end: it is kept and sent with each call."""
    found = response.get("id") if isinstance(response, Mapping) else None
    if not isinstance(found, str) or not found:
        raise malformed("the response has no id")
    if len(found) > LONGEST_ID:
        raise malformed(f"the response's id has {len(found):,} characters")
    if found.startswith(SYNTHETIC_PREFIX):
        raise malformed(f"the response's id starts with {SYNTHETIC_PREFIX}, which only our own threads may")
    return found


def malformed(what: str) -> ProviderFailure:
    """A reply with a good status that is no reply."""
    return ProviderFailure(f"the reply is malformed: {what}", kind="malformed")


def error_of(document: object) -> object:
    """The error object of an error body: `{"error": {…}}`, `{"error": "…"}`, `{"detail": …}` or the body itself."""
    if isinstance(document, Mapping):
        inner = document.get("error", document.get("detail"))
        if isinstance(inner, Mapping):
            return {"error_type": document.get("error_type"), **inner}
        return document if inner is None else {"message": str(inner), "code": document.get("code")}
    return document


def field_of(error: object, key: str) -> str:
    """A field of an error object as text; empty where there is none."""
    value = error.get(key) if isinstance(error, Mapping) else None
    return str(value) if value is not None else ""


def words(error: object) -> str:
    """An error in words: its message, else its code, else itself; one line, 400 characters at most."""
    text = field_of(error, "message") or field_of(error, "code") or field_of(error, "type")
    if not text:
        text = str(error) if error else "no reason given"
    printable = "".join(ch if ch.isprintable() else " " for ch in text)
    return " ".join(printable.split())[:400]


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
