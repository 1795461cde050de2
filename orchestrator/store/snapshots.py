"""What one step may look at, read in one transaction: the present, whoever changed it last (R018, S06)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import json_text
from orchestrator.store.artifacts import COLUMN_COUNT, COLUMNS, version_row
from orchestrator.store.sql import Row, Sql, Tx
from orchestrator.values import Artifact, ArtifactVersion, Manifest, Message, Redo, Snapshot

EVERY: Final = "*"
_RUN = Sql(
    "SELECT r.session_id, m.seq, m.message, s.last_message FROM run r JOIN session s ON s.id = r.session_id"
    " LEFT JOIN message m ON m.run_id = r.id AND m.kind = 'run' AND {scope:m}"
    " WHERE r.id = :run AND {scope:r} AND {scope:s}"
)
_JOINED: Final = (
    " FROM step s JOIN artifact a ON a.id = s.head_id JOIN content c ON c.sha256 = a.content"
    " WHERE s.run_id = :run AND {scope:s} AND {scope:a} AND {scope:c}"
)
_INPUTS = Sql(f"SELECT {COLUMNS}, c.body, s.defaulted {_JOINED} AND s.kind = 'input' ORDER BY s.position, s.name")
_HEAD_WITH_BODY = Sql(f"SELECT {COLUMNS}, c.body {_JOINED} AND s.name = :name AND s.item = :item")
_HEAD = Sql(
    f"SELECT {COLUMNS} FROM step s JOIN artifact a ON a.id = s.head_id WHERE s.run_id = :run AND s.name = :name"
    " AND s.item = :item AND {scope:s} AND {scope:a}"
)
_ACCEPTED = Sql(
    "SELECT b.manifest, CASE WHEN m.id <> b.id THEN m.manifest END FROM step s"
    " LEFT JOIN attempt b ON b.id = s.basis_id AND {scope:b}"
    " LEFT JOIN artifact a ON a.id = s.head_id AND {scope:a}"
    " LEFT JOIN attempt m ON m.id = a.attempt_id AND {scope:m}"
    " WHERE s.run_id = :run AND s.name = :name AND s.item = :item AND {scope:s}"
)
_ITEMS = Sql(
    f"SELECT {COLUMNS}, c.body FROM step s JOIN artifact a ON a.id = s.head_id JOIN content c ON c.sha256 = a.content"
    " WHERE s.run_id = :run AND s.name = :name AND s.item <> '' AND s.entry IS NOT NULL"
    " AND {scope:s} AND {scope:a} AND {scope:c} ORDER BY s.item"
)
_ENTRY = Sql(
    "SELECT c.sha256, c.body FROM step s JOIN content c ON c.sha256 = s.entry"
    " WHERE s.run_id = :run AND s.name = :name AND s.item = :item AND {scope:s} AND {scope:c}"
)
_ENTRIES = Sql(
    "SELECT s.item, c.body FROM step s JOIN content c ON c.sha256 = s.entry"
    " WHERE s.run_id = :run AND s.name = :name AND s.item <> '' AND {scope:s} AND {scope:c} ORDER BY s.item"
)
_MESSAGES = Sql(
    "SELECT seq, role, message, step, run_id, sensitivity FROM message"
    " WHERE session_id = :session AND seq <> :own AND seq <> :comment AND {scope} ORDER BY seq DESC LIMIT :limit"
)
_ASKED = Sql(
    "SELECT t.mode, t.round, m.author, m.seq, m.role, m.message, m.step, m.run_id, m.sensitivity FROM attempt t"
    " LEFT JOIN message m ON m.id = t.message_id AND {scope:m} WHERE t.id = :attempt AND {scope:t}"
)
_DRAFT = Sql(f"SELECT {COLUMNS}, c.body, a.attempt_id {_JOINED} AND s.name = :name AND s.item = :item")


def snapshot(
    tx: Tx,
    run_id: str,
    step: str,
    item: str | None,
    reads: Sequence[str],
    messages: int,
    redone_by: str | None = None,
    entry_of: str | None = None,
) -> Snapshot:
    """The heads of the declared reads, the inputs, and the newest `messages` lines besides the run's own message.

    A read is `name`, all items of a step `name/*`, one of them `name/key`. `entry_of` names the list of the item's
    entry. `redone_by` is the attempt that looks, where it was asked for: it is also told with what, and what there is
    to change.
    """
    run = tx.one(_RUN, run=run_id)
    if run is None:
        raise UsageError(f"run {run_id} not found", hint="`orch runs` lists the runs of this project")
    session_id, own, message, last = run
    inputs = tx.all(_INPUTS, run=run_id)
    record = {row[2]: _artifact(row) for row in inputs}
    head = _head(tx, run_id, step, item)
    redo = _redo(tx, run_id, step, item, redone_by) if redone_by is not None else None
    comment = redo.comment.seq if redo and redo.comment else 0
    told = {"session": session_id, "own": own or 0, "comment": comment, "limit": messages}
    lines = tx.all(_MESSAGES, **told) if messages and last else []
    artifacts = _artifacts(tx, run_id, reads, record)
    return Snapshot(
        artifacts=artifacts,
        items=_items(tx, run_id, reads, artifacts),
        entry=_entry(tx, run_id, step, item, entry_of) if item and entry_of else None,
        conversation=tuple(Message(*line) for line in reversed(lines)),
        conversation_total=last - (own is not None) - (comment > 0),
        message=message,
        record=record,
        defaulted=frozenset(row[2] for row in inputs if row[-1]),
        head=head,
        accepted=_accepted(tx, run_id, step, item) if head else (),
        redo=redo,
    )


def _redo(tx: Tx, run_id: str, step: str, item: str | None, attempt_id: str) -> Redo | None:
    asked = tx.one(_ASKED, attempt=attempt_id)
    if asked is None:
        return None
    mode, round_, author, *message = asked
    draft = tx.one(_DRAFT, run=run_id, name=step, item=item or "")
    return Redo(
        mode=mode,
        round=round_,
        comment=Message(*message) if author is not None else None,
        author=author or "",
        draft=_artifact(draft) if draft else None,
        made_by=draft[-1] if draft else None,
    )


def reading(tx: Tx, run_id: str, step: str, item: str | None, reads: Sequence[str]) -> Snapshot:
    """The same for a step that asks nobody: the heads of its reads, and nothing that only a model would be told."""
    found = _artifacts(tx, run_id, reads, {})
    return Snapshot(found, head=_head(tx, run_id, step, item), items=_items(tx, run_id, reads, found))


def _artifacts(tx: Tx, run_id: str, reads: Sequence[str], known: Mapping[str, Artifact]) -> dict[str, Artifact]:
    found: dict[str, Artifact] = {}
    for read in reads:
        name, _, key = read.partition("/")
        artifact = known.get(name) or _read(tx, run_id, name, "" if key == EVERY else key)
        if artifact is not None:
            found[name] = artifact
    return found


def _items(
    tx: Tx, run_id: str, reads: Sequence[str], indexes: Mapping[str, Artifact]
) -> dict[str, dict[str, Artifact]]:
    """The items of each step that is read whole: those that its index names, as they are now."""
    names = [name for name, _, key in (read.partition("/") for read in reads) if key == EVERY and name in indexes]
    return {
        name: {
            row[3]: _artifact(row)
            for row in tx.all(_ITEMS, run=run_id, name=name)
            if row[3] in indexes[name].version.field_hashes
        }
        for name in names
    }


def _entry(tx: Tx, run_id: str, step: str, item: str, source: str) -> Artifact | None:
    """The entry as an artifact: its own bytes, as a part of the list's current version."""
    row = tx.one(_ENTRY, run=run_id, name=step, item=item)
    whole = _head(tx, run_id, source, None)
    if row is None or whole is None:
        return None
    body = bytes(row[1])
    return Artifact(replace(whole, sha256=row[0], size=len(body), field_hashes={}, facts={}), body)


def entries(tx: Tx, run_id: str, name: str) -> dict[str, bytes]:
    """The entries of a step's items, by key."""
    return {item: bytes(body) for item, body in tx.all(_ENTRIES, run=run_id, name=name)}


def _head(tx: Tx, run_id: str, step: str, item: str | None) -> ArtifactVersion | None:
    row = tx.one(_HEAD, run=run_id, name=step, item=item or "")
    return version_row(row) if row else None


def _accepted(tx: Tx, run_id: str, step: str, item: str | None) -> tuple[Manifest, ...]:
    """The manifests that the step's head rests on, the newest first."""
    found = tx.one(_ACCEPTED, run=run_id, name=step, item=item or "") or ()
    return tuple(json_text.load_manifest(one) for one in found if one)


def _read(tx: Tx, run_id: str, name: str, item: str) -> Artifact | None:
    row = tx.one(_HEAD_WITH_BODY, run=run_id, name=name, item=item)
    return _artifact(row) if row else None


def _artifact(row: Row) -> Artifact:
    return Artifact(version_row(row[:COLUMN_COUNT]), bytes(row[COLUMN_COUNT]))
