"""The document about two runs or two versions beside each other, `orch.compare/1`. Additions are allowed, renames are
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from orchestrator.exchange.comparing import (
    BlockChange,
    Half,
    Numbers,
    RunComparison,
    RunSide,
    StepComparison,
)
from orchestrator.exchange.diffing import Change, text_diff
from orchestrator.store.records import SentBlock
from orchestrator.trace.documents import moment, usd
from orchestrator.trace.versions import version_document
from orchestrator.values import RunRow

COMPARE: Final = "orch.compare/1"


def runs_comparison(found: RunComparison) -> dict[str, Any]:
    """Two runs. `shared` counts the steps of which both have the very same version."""
    return {
        "schema": COMPARE,
        "of": "runs",
        "old": _run(found.old),
        "new": _run(found.new),
        "equal": not found.differs,
        "differing": [one.label for one in (*found.inputs, *found.steps) if one.differs],
        "shared": found.counted("shared"),
        "inputs": [_step(one) for one in found.inputs],
        "steps": [_step(one) for one in found.steps],
    }


def versions_comparison(
    found: StepComparison, old: RunRow, new: RunRow, texts: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Two versions of one step, or of two; `texts` are those of the changed blocks, by the hashes of their parts."""
    return {
        "schema": COMPARE,
        "of": "versions",
        "old": {"run": old.number},
        "new": {"run": new.number},
        "equal": not found.differs,
        "differing": [found.label] if found.differs else [],
        "shared": int(found.artifact == "shared"),
        "inputs": [],
        "steps": [_step(found, texts)],
    }


def _run(side: RunSide) -> dict[str, Any]:
    run = side.run
    return {
        "run": run.number,
        "id": run.id,
        "pipeline": run.pipeline,
        "status": run.status,
        "parent": run.parent_number,
        "created_at": moment(run.created_at),
        **_numbers(side.total),
    }


def _step(one: StepComparison, texts: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "name": one.name,
        "item": one.item,
        "kind": one.kind,
        "differs": one.differs,
        "artifact": one.artifact,
        "old": _half(one.old),
        "new": _half(one.new),
        "changes": _changes(one.changes),
        "text": _text(one),
        "made_from": list(one.made_from),
        "prompt": [_block(change, texts) for change in one.prompt],
        "model": _changes(one.model),
    }


def _half(half: Half | None) -> dict[str, Any] | None:
    if half is None:
        return None
    return {
        "status": half.status or None,
        "version": version_document(half.version, None) if half.version else None,
        "models": models(half),
        **_numbers(half.numbers),
    }


def models(half: Half) -> list[str]:
    """The models that were asked, each once."""
    return list(dict.fromkeys(opening.model for opening in half.openings))


def _numbers(numbers: Numbers) -> dict[str, Any]:
    return {
        "calls": numbers.calls,
        "reasks": numbers.reasks,
        "usage": {
            "input_tokens": numbers.usage.input_tokens,
            "cached_tokens": numbers.usage.cached_tokens,
            "output_tokens": numbers.usage.output_tokens,
        },
        "cost_usd": usd(numbers.cost_usd),
        "cost_partial": numbers.cost_partial,
        "seconds": numbers.seconds,
    }


def _changes(changes: Iterable[Change]) -> list[dict[str, Any]]:
    return [{"kind": one.kind, "path": one.path, "old": one.old, "new": one.new} for one in changes]


def _text(one: StepComparison) -> list[str] | None:
    """The lines of a unified diff where both values are texts."""
    if one.old is None or one.new is None or one.artifact != "changed":
        return None
    old, new = one.old.value, one.new.value
    return list(text_diff(old, new)) if isinstance(old, str) and isinstance(new, str) else None


def _block(change: BlockChange, texts: Mapping[str, str] | None) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "thread": change.thread,
        "layer": change.layer,
        "source": change.source,
        "old": _sent(change.old),
        "new": _sent(change.new),
        "text": None if texts is None else list(block_diff(change, texts)),
    }


def block_diff(change: BlockChange, texts: Mapping[str, str], context: int = 1) -> Sequence[str]:
    """The changed lines of a block; all lines of one that came or went."""
    old, new = ("".join(texts[part] for part in block.parts) if block else "" for block in (change.old, change.new))
    return text_diff(old, new, context)


def _sent(block: SentBlock | None) -> dict[str, Any] | None:
    if block is None:
        return None
    return {"parts": list(block.parts), "tokens": block.tokens, "version": block.version}
