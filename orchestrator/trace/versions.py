"""The documents about versions: what differs between two (`orch.diff/1`), and all that a step has had
(`orch.history/1`). Additions are allowed, renames are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.exchange.diffing import FieldChanges, blame, changes, field_changes, text_diff
from orchestrator.trace.documents import moment
from orchestrator.values import ArtifactVersion

DIFF: Final = "orch.diff/1"
HISTORY: Final = "orch.history/1"


@dataclass(frozen=True, slots=True)
class Side:
    """One of two versions that are compared: `value` is JSON data or text, `run` the number of the run it stands in."""

    run: int
    version: ArtifactVersion
    value: Any


def version_document(version: ArtifactVersion, parent: int | None) -> dict[str, Any]:
    """A version without its value, as each of these documents tells it. `parent` is the number it was made from."""
    return {
        "version": version.version,
        "contract": version.contract,
        "author": version.author,
        "origin": version.origin,
        "draft": version.draft,
        "created_at": moment(version.created_at),
        "parent": parent,
        "sensitivity": version.sensitivity,
        "size": version.size,
        "sha256": version.sha256,
    }


def diff_document(old: Side, new: Side) -> dict[str, Any]:
    """`orch.diff/1`. `text` holds the lines of a unified diff where both are texts, else null."""
    both_text = isinstance(old.value, str) and isinstance(new.value, str)
    found = changes(old.value, new.value)
    return {
        "schema": DIFF,
        "old": _side(old),
        "new": _side(new),
        "equal": not found,
        "changes": [
            {"kind": change.kind, "path": change.path, "old": change.old, "new": change.new} for change in found
        ],
        "text": list(text_diff(old.value, new.value)) if both_text else None,
    }


def _side(side: Side) -> dict[str, Any]:
    version = side.version
    return {
        "run": side.run,
        "step": version.step,
        "item": version.item,
        "version": version.version,
        "contract": version.contract,
        "author": version.author,
        "origin": version.origin,
        "draft": version.draft,
        "created_at": moment(version.created_at),
        "sha256": version.sha256,
    }


@dataclass(frozen=True, slots=True)
class History:
    """All versions of one step or input that a run knows of, oldest first; no bodies.

    `head_in` says in which runs, by number, a version is the current one; `waiting` is the id of the draft that waits
    for a decision.
    """

    run: int
    step: str
    versions: Sequence[ArtifactVersion]
    head: ArtifactVersion
    head_in: Mapping[str, Sequence[int]]
    waiting: str | None = None

    def parent(self, version: ArtifactVersion) -> ArtifactVersion | None:
        return next((one for one in self.versions if one.id == version.parent_id), None)

    def merged(self, version: ArtifactVersion) -> ArtifactVersion | None:
        """The draft that was merged into a version, beside the one it was made from."""
        return next((one for one in self.versions if one.id == version.merged_id), None)

    def changed(self, version: ArtifactVersion) -> FieldChanges | None:
        """What a version changed of the one it was made from; None where it was made anew."""
        parent = self.parent(version)
        return None if parent is None else field_changes(parent, version)

    def equal_to(self, version: ArtifactVersion) -> ArtifactVersion | None:
        """The first earlier version of the same bytes: what a restored version restored."""
        first = next(one for one in self.versions if one.sha256 == version.sha256)
        return None if first.id == version.id else first

    def blamed(self) -> Mapping[str, ArtifactVersion]:
        """For each top-level field of the current version, the version that last changed it."""
        return blame(self.head, self.versions)

    def mixed(self, version: ArtifactVersion) -> tuple[ArtifactVersion, ...]:
        """The two versions that a blamed one has made a field of, where it was a merge; else none."""
        draft, parent = self.merged(version), self.parent(version)
        return (parent, draft) if parent is not None and draft is not None else ()


def history_document(history: History) -> dict[str, Any]:
    """`orch.history/1`. `changed` is null for what was made anew; `merged` is the draft that a version takes in.

    `blame` names who last changed each field; its `merged` names both versions that a field was brought together from.
    """
    return {
        "schema": HISTORY,
        "run": history.run,
        "step": history.step,
        "item": history.head.item,
        "head": history.head.version,
        "versions": [_version(history, version) for version in history.versions],
        "blame": {
            field: {**_named(version), "merged": [_named(one) for one in history.mixed(version)]}
            for field, version in history.blamed().items()
        },
    }


def _named(version: ArtifactVersion) -> dict[str, Any]:
    return {"version": version.version, "author": version.author, "origin": version.origin}


def _version(history: History, version: ArtifactVersion) -> dict[str, Any]:
    parent, equal, changed = history.parent(version), history.equal_to(version), history.changed(version)
    merged = history.merged(version)
    return {
        **version_document(version, parent.version if parent else None),
        "merged": merged.version if merged else None,
        "waiting": version.id == history.waiting,
        "current": version.id == history.head.id,
        "changed": None if changed is None else _changed(changed),
        "equal_to": equal.version if equal else None,
        "head_in": list(history.head_in.get(version.id, ())),
    }


def _changed(changed: FieldChanges) -> dict[str, list[str]]:
    return {"added": list(changed.added), "removed": list(changed.removed), "changed": list(changed.changed)}
