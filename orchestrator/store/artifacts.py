"""Versions of artifacts: written once, never changed in place; a step's head says which one is current.

A child run shares versions of its parent by reference, so a step's history is its own versions plus, behind them, the
chain of those they were made from. It never includes what the parent made after the fork.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import UsageError
from orchestrator.ids import sha256, uuid7
from orchestrator.store import json_text
from orchestrator.store.columns import from_micros
from orchestrator.store.content import Bodies
from orchestrator.store.sql import Row, Sql, Tx, insert
from orchestrator.values import Artifact, ArtifactVersion, NewArtifact

_INSERT = insert(
    "artifact",
    "id run_id step item type version content size author origin parent_id attempt_id sensitivity field_hashes facts"
    " guards draft created_at",
)
COLUMNS: Final = (
    "a.id, a.run_id, a.step, a.item, a.type, a.version, a.content, a.size, a.author, a.origin, a.created_at,"
    " a.parent_id, a.sensitivity, a.field_hashes, a.facts, a.guards, a.draft"
)
COLUMN_COUNT: Final = 17
_BY_ID = Sql(f"SELECT {COLUMNS} FROM artifact a WHERE a.id = :id AND {{scope:a}}")
_WITH_BODY = Sql(
    f"SELECT {COLUMNS}, c.body FROM artifact a JOIN content c ON c.sha256 = a.content"
    " WHERE a.id = :id AND {scope:a} AND {scope:c}"
)
_CHAIN: Final = """
WITH RECURSIVE chain (id) AS (
    SELECT a.id FROM artifact a WHERE a.run_id = :run AND a.step = :step AND a.item = :item AND {scope:a}
    UNION SELECT s.head_id FROM step s
        WHERE s.run_id = :run AND s.name = :step AND s.item = :item AND s.head_id IS NOT NULL AND {scope:s}
    UNION SELECT a.parent_id FROM artifact a JOIN chain ON chain.id = a.id
        WHERE a.parent_id IS NOT NULL AND {scope:a}
)
"""
_HISTORY = Sql(
    f"{_CHAIN} SELECT {COLUMNS} FROM artifact a JOIN chain ON chain.id = a.id"
    " WHERE {scope:a} ORDER BY a.version, a.id"
)
_HEAD_IN = Sql(
    f"{_CHAIN} SELECT s.head_id, r.number FROM chain JOIN step s ON s.head_id = chain.id JOIN run r ON r.id = s.run_id"
    " WHERE {scope:s} AND {scope:r} ORDER BY r.number"
)
_HEAD = Sql("SELECT head_id, draft_id FROM step WHERE run_id = :run AND name = :step AND item = :item AND {scope}")
_READERS = Sql(
    "SELECT DISTINCT s.name FROM read r JOIN attempt t ON t.id = r.attempt_id JOIN step s ON s.id = t.step_id"
    " WHERE r.artifact_id = :artifact AND {scope:r} AND {scope:t} AND {scope:s} ORDER BY s.name"
)
_MOVED = Sql(
    "SELECT r.name, r.item, r.fields, r.artifact_id, s.head_id FROM read r"
    " JOIN step s ON s.run_id = :run AND s.name = r.name AND s.item = r.item"
    " WHERE r.attempt_id = :attempt AND COALESCE(s.head_id, '') <> COALESCE(r.artifact_id, '')"
    " AND {scope:r} AND {scope:s} ORDER BY r.name, r.item"
)
_EDITED = Sql(
    "UPDATE step SET head_id = :head, last_version = :version, stale = 0, defaulted = 0 WHERE id = :step AND {scope}"
)
_MADE_BY = Sql("SELECT attempt_id FROM artifact WHERE id = :id AND {scope}")


def version_row(row: Row) -> ArtifactVersion:
    """A version from the columns of `COLUMNS`."""
    id_, run_id, step, item, type_, version, content, size, author, origin, created_at, parent_id, *rest = row
    sensitivity, field_hashes, facts, guards, draft = rest
    return ArtifactVersion(
        id=id_,
        run_id=run_id,
        step=step,
        item=item or None,
        contract=type_,
        version=version,
        sha256=content,
        size=size,
        author=author,
        origin=origin,
        created_at=from_micros(created_at),
        parent_id=parent_id,
        sensitivity=sensitivity,
        field_hashes=json_text.load(field_hashes),
        facts=json_text.load_facts(facts),
        guards=tuple(json_text.load(guards)),
        draft=bool(draft),
    )


def write(
    tx: Tx,
    run_id: str,
    step: str,
    item: str,
    version: int,
    new: NewArtifact,
    parent_id: str | None,
    attempt_id: str | None,
    *,
    draft: bool = False,
) -> str:
    """Store a version with its body; its id."""
    bodies = Bodies(tx)
    content = bodies.add(new.body)
    size = bodies.size(content)
    bodies.write()
    artifact_id = uuid7()
    tx.run(
        _INSERT,
        id=artifact_id,
        run_id=run_id,
        step=step,
        item=item,
        type=new.contract,
        version=version,
        content=content,
        size=size,
        author=new.author,
        origin=new.origin,
        parent_id=parent_id,
        attempt_id=attempt_id,
        sensitivity=new.sensitivity,
        field_hashes=json_text.dump(new.field_hashes),
        facts=json_text.dump_facts(new.facts),
        guards=json_text.dump(new.guards),
        draft=int(draft),
        created_at=tx.now,
    )
    return artifact_id


def edited(tx: Tx, run_id: str, step_id: str, version: int, head: ArtifactVersion, new: NewArtifact) -> ArtifactVersion:
    """A person's version after `head`; equal bytes make none (S29)."""
    if sha256(tx.scrubber.body(new.body)) == head.sha256:
        return head
    made_by = tx.all(_MADE_BY, id=head.id)[0][0]
    artifact_id = write(tx, run_id, head.step, head.item or "", version, new, head.id, made_by)
    tx.run(_EDITED, step=step_id, head=artifact_id, version=version)
    return version_by_id(tx, artifact_id)


def version_by_id(tx: Tx, artifact_id: str) -> ArtifactVersion:
    """Raises UsageError for an artifact that is not of this scope."""
    row = tx.one(_BY_ID, id=artifact_id)
    if row is None:
        raise UsageError(f"artifact {artifact_id} not found")
    return version_row(row)


def moved(tx: Tx, run_id: str, attempt_id: str) -> tuple[str, ...]:
    """The reads whose value is no longer the one the attempt read (S06), by name. Only what was read counts: another
    version with the same bytes, or with the same read fields, is the same value."""
    rows = tx.all(_MOVED, run=run_id, attempt=attempt_id)
    return tuple(
        f"{name}/{item}" if item else name
        for name, item, fields, was, now in rows
        if not same(tx, json_text.names(fields), was, now)
    )


def same(tx: Tx, fields: tuple[str, ...] | None, was: str | None, now: str | None) -> bool:
    """Whether two versions are one value to whoever reads these fields (None: the whole), labels included."""
    if was is None or now is None:
        return False
    old, new = version_by_id(tx, was), version_by_id(tx, now)
    if (old.guards, old.sensitivity) != (new.guards, new.sensitivity):
        return False
    if old.sha256 == new.sha256:
        return True
    return fields is not None and all(
        name in old.field_hashes and old.field_hashes[name] == new.field_hashes.get(name) for name in fields
    )


def history(tx: Tx, run_id: str, step: str, item: str | None) -> tuple[ArtifactVersion, ...]:
    """All versions this run knows of, oldest first."""
    return tuple(version_row(row) for row in tx.all(_HISTORY, run=run_id, step=step, item=item or ""))


def head_in(tx: Tx, run_id: str, step: str, item: str | None) -> dict[str, tuple[int, ...]]:
    """The numbers of the runs in which each of these versions is the current one, by the version's id."""
    found: dict[str, tuple[int, ...]] = {}
    for version, number in tx.all(_HEAD_IN, run=run_id, step=step, item=item or ""):
        found[version] = (*found.get(version, ()), number)
    return found


def find(tx: Tx, run_id: str, step: str, item: str | None, version: int | None) -> Artifact:
    """The head, or the version of that number. Raises UsageError for what this run does not have."""
    heads = tx.one(_HEAD, run=run_id, step=step, item=item or "")
    label = f"{step}/{item}" if item else step
    if heads is None:
        raise UsageError(f"{label} not found in this run", hint="`orch show RUN` lists the steps of a run")
    wanted = heads[0] if version is None else _numbered(tx, run_id, step, item, version)
    row = wanted and tx.one(_WITH_BODY, id=wanted)
    if not row:
        which = "no version yet" if version is None else f"no version {version}"
        raise UsageError(f"{label} has {which}", hint="`orch show RUN` lists the versions there are")
    return Artifact(version_row(row[:COLUMN_COUNT]), bytes(row[COLUMN_COUNT]))


def _numbered(tx: Tx, run_id: str, step: str, item: str | None, version: int) -> str | None:
    """Where a fork has renumbered, its own version comes before an ancestor's of the same number."""
    found = [v for v in history(tx, run_id, step, item) if v.version == version]
    return min(found, key=lambda v: v.run_id != run_id).id if found else None


def readers(tx: Tx, artifact_id: str) -> tuple[str, ...]:
    return tuple(name for (name,) in tx.all(_READERS, artifact=artifact_id))
