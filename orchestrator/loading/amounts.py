"""Amounts of dollars as a file writes them, read from the text, so that no cent passes through a float."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from orchestrator.faults import shown
from orchestrator.loading.spec_reader import SpecReader
from orchestrator.spec import PathKey

AMOUNTS: Final = ("usd", "per_call", "per_session", "max_usd")
_AMOUNT: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def amounts(reader: SpecReader, keys: dict[str, Any], path: PathKey) -> dict[str, Any]:
    """The keys that are amounts, as Decimals; what is none is reported and dropped."""
    for key in AMOUNTS:
        if key not in keys:
            continue
        written = reader.raw.get((*path, key), keys[key])
        if isinstance(written, str) and _AMOUNT.fullmatch(written):
            keys[key] = Decimal(written)
            continue
        given = shown(keys.pop(key), written if isinstance(written, str) else None)
        message = f"{key!r} must be an amount of dollars, not {given}"
        reader.report("P103", message, reader.place(*path, key), f'For example {key}: "4.00".')
        reader.drop((*path, key))
    return keys
