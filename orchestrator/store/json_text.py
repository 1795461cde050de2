"""JSON in text columns: written once, read back as the very same values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.values import ErrorRecord, FactBasis, LeftOut, Manifest, ManifestEntry


def _plain(value: Any) -> Any:
    """Mappings and decimals that are not JSON's own."""
    return dict(value) if isinstance(value, Mapping) else str(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def dump(value: Any) -> str:
    """Compact JSON, key order kept. Raises ValueError for NaN and infinities."""
    return _encoder.encode(value)


def load(text: str) -> Any:
    return json.loads(text)


def names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def dump_manifest(manifest: Manifest) -> str:
    return dump([[e.kind, e.name, e.hash, e.note] for e in manifest.entries])


def load_manifest(text: str) -> Manifest:
    return Manifest(tuple(ManifestEntry(*entry) for entry in json.loads(text)))


def dump_error(error: ErrorRecord | None) -> str | None:
    return None if error is None else dump([error.code, error.message, error.hint, error.exit_code])


def load_error(text: str | None) -> ErrorRecord | None:
    return None if text is None else ErrorRecord(*json.loads(text))


def dump_left_out(left_out: tuple[LeftOut, ...]) -> str:
    return dump([[x.layer, x.source, x.reason, x.tokens] for x in left_out])


def load_left_out(text: str) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(*entry) for entry in json.loads(text))


def dump_facts(facts: Mapping[str, FactBasis]) -> str:
    return dump({path: [fact.basis, fact.quote, fact.source] for path, fact in facts.items()})


def load_facts(text: str) -> Mapping[str, FactBasis]:
    return {path: FactBasis(*fact) for path, fact in json.loads(text).items()}
