"""Which stored values have been held to which JSON Schema in this process, so that none is held to one twice.

A value that was made under a contract fits it; a contract may have changed since a value was made (A19). Only then, or
where another process made the value, there is something to look at.
"""

from __future__ import annotations

from typing import Final

from orchestrator.ids import sha256 as hash_of

_MOST: Final = 20_000
_KNOWN: dict[tuple[str, str], None] = {}


def note(contract: str, body: bytes) -> None:
    """These bytes fit the contract of this digest."""
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    _KNOWN[contract, hash_of(body)] = None


def known(contract: str, sha256: str) -> bool:
    """Whether the bytes with this hash are known to fit the contract of this digest."""
    return (contract, sha256) in _KNOWN
