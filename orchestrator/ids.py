"""Identity: time-ordered ids for rows, hashes for content, one canonical form for values.

An id says which row; a hash says which bytes. Equal values give equal bytes (`canonical_json`), so that a hash can
stand for a value in manifests, staleness tests and the content table. Non-finite numbers and lone surrogates have no
canonical form and are refused here, once, for everything that is stored or sent (S25).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import time
from typing import Any

SYNTHETIC_PREFIX = "synthetic_"
MAX_DEPTH = 64
MAX_DIGITS = 4000  # of a number; Python itself refuses to read or write more than 4,300, in words that help nobody
_TOO_LONG = 10**MAX_DIGITS


def uuid7() -> str:
    """A UUIDv7 (RFC 9562 §5.7): Unix milliseconds, their fraction in 12 bits (§6.2, method 3), then random.

    Sorts by creation, roughly: rows made one after the other are neighbours in an index.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    value = milliseconds << 80 | 0x7 << 76 | (rest << 12) // 1_000_000 << 64 | int.from_bytes(os.urandom(8), "big")
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def synthetic_thread_id(session: str) -> str:
    """The id of a thread that the provider has never seen: `synthetic_<session>_<uuid7>` (R008)."""
    return f"{SYNTHETIC_PREFIX}{session}_{uuid7()}"


def is_synthetic(thread_id: str) -> bool:
    """True for ids minted here, false for a provider's; alone decides whether a call is chained (R009)."""
    return thread_id.startswith(SYNTHETIC_PREFIX)


def sha256(data: bytes | str) -> str:
    """Hex SHA-256 of bytes, or of a text's UTF-8."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def keyed_hash(key: bytes, *parts: str) -> str:
    """Hex HMAC-SHA-256 of the parts, for ids that must not reveal what they stand for."""
    return hmac.new(key, "\x1f".join(parts).encode(), hashlib.sha256).hexdigest()


def canonical_json(value: Any, *, indent: int | None = 2) -> bytes:
    """JSON data as UTF-8 bytes: equal values, equal bytes. Keys keep their order: sort or order them by schema first.

    Raises ValueError for what JSON cannot hold, or no reader takes: NaN, infinities, lone surrogates, nesting deeper
    than 64, whole numbers of more than 4,000 digits.
    """
    return json.dumps(_plain(value, 0), ensure_ascii=False, allow_nan=False, indent=indent).encode("utf-8")


def require_json(value: Any) -> None:
    """Raises ValueError for what `canonical_json` refuses."""
    _plain(value, 0)


def digest(value: Any) -> str:
    """Hash of JSON data whose key order does not matter."""
    return digest_of_plain(_plain(value, 0))


def digest_of_plain(value: Any) -> str:
    """The same of data made here, which holds nothing that JSON refuses and no number: it is not gone through first."""
    return sha256(json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")))


def _plain(value: Any, depth: int) -> Any:
    """Integral floats become ints (997.0 and 997 are one value); everything else is checked and kept."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError("text holds a lone surrogate") from error
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("numbers must be finite")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {_key(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, depth + 1) for v in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= _TOO_LONG:
            raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
        return value
    raise ValueError(f"{type(value).__name__} is not JSON data")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"keys must be text, not {type(key).__name__}")
    return str(_plain(key, 0))


def whole_characters(text: str) -> str:
    """The text as UTF-8 can hold it: half a character, as names of files may have one, is spelled out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """Names of steps, inputs, contracts and keys: `[a-z0-9._-]`, 64 at most, no leading mark."""
    return NAME.fullmatch(text) is not None


def variable(name: str) -> str:
    """The name as templates, expressions and functions write it: `tech-stack` → `tech_stack`."""
    return name.replace("-", "_").replace(".", "_")
