"""What a new version of a step is held against, and what is written of a merge (S07).

A step is as it made itself where its head is what it made last. Where the two differ, a person has edited; then a
commit writes nothing until the engine, outside of any transaction, has merged the draft with what stands there, and
writes that only where it still stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.store import artifacts, json_text
from orchestrator.store.sql import Tx
from orchestrator.values import Commit, Present

if TYPE_CHECKING:
    from orchestrator.store.commits import Step


def pins(step: Step) -> dict[str, str]:
    """The pinned fields, with who pinned them."""
    return dict(json_text.load(step.pins))


def present(tx: Tx, step: Step, base: str | None) -> Present:
    """What a new version of this step has to be merged with."""
    head = step.standing
    assert head is not None
    return Present(artifacts.with_body(tx, head), None if base is None else artifacts.with_body(tx, base), pins(step))


def is_decided(commit: Commit, step: Step, begun_on: str | None, base: str | None) -> bool:
    """Whether nothing has to be merged here, or it was merged with what stands here now."""
    if commit.merge is not None:
        merge = commit.merge
        return (merge.head, merge.base, merge.pins) == (step.standing, base, pins(step))
    as_begun = step.head_id == begun_on == commit.base_head
    return step.standing is None or (as_begun and step.standing == base and not pins(step))


@dataclass(frozen=True, slots=True)
class New:
    """What a commit has come to: the new head with its number, the number of the last version that it wrote or found,
    and what the step itself made."""

    head: str
    version: int
    last: int
    made: str


def versions(tx: Tx, commit: Commit, step: Step) -> New:
    """One version where nothing had to be merged; else what the step made, as a draft, and the merged version after the
    person's. What equals a version that is there already is not written again."""
    dispatch, merge, version = commit.dispatch, commit.merge, step.next_version
    write = partial(artifacts.write, tx, dispatch.run_id, step.name, step.item)
    head = None if merge is None else artifacts.version_by_id(tx, merge.head)
    stays = merge is not None and head is not None and artifacts.is_body_of(tx, merge.artifact, head)
    if not stays and (merge is None or merge.artifact.body == commit.artifact.body):
        artifact_id = write(version, commit.artifact, step.standing, dispatch.attempt_id)
        return New(artifact_id, version, version, artifact_id)
    assert merge is not None
    assert head is not None
    known = [artifacts.version_by_id(tx, id_) for id_ in (merge.base, merge.head) if id_ is not None]
    made = next((one.id for one in known if artifacts.is_body_of(tx, commit.artifact, one)), None)
    if made is None:
        made = write(version, commit.artifact, merge.base, dispatch.attempt_id, draft=True)
        version += 1
    if stays:
        return New(head.id, head.version, version - 1, made)
    return New(write(version, merge.artifact, head.id, dispatch.attempt_id, merged_id=made), version, version, made)
