"""What one step may look at, read in one transaction: the present, whoever changed it last (R018, S06)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store.artifacts import COLUMN_COUNT, COLUMNS, version_row
from orchestrator.store.sql import Row, Sql, Tx
from orchestrator.values import Artifact, Message, Snapshot

_RUN = Sql(
    "SELECT r.session_id, m.seq, m.message, s.last_message FROM run r JOIN session s ON s.id = r.session_id"
    " LEFT JOIN message m ON m.run_id = r.id AND m.kind = 'run' WHERE r.id = :run AND {scope:r} AND {scope:s}"
)
_JOINED: Final = (
    " FROM step s JOIN artifact a ON a.id = s.head_id JOIN content c ON c.tenant = a.tenant AND c.account = a.account"
    " AND c.subject = a.subject AND c.sha256 = a.content WHERE s.run_id = :run AND {scope:s} AND {scope:a}"
)
_INPUTS = Sql(f"SELECT {COLUMNS}, c.body, s.defaulted {_JOINED} AND s.kind = 'input' ORDER BY s.position, s.name")
_HEAD_WITH_BODY = Sql(f"SELECT {COLUMNS}, c.body {_JOINED} AND s.name = :name AND s.item = :item")
_HEAD = Sql(
    f"SELECT {COLUMNS} FROM step s JOIN artifact a ON a.id = s.head_id WHERE s.run_id = :run AND s.name = :name"
    " AND s.item = :item AND {scope:s} AND {scope:a}"
)
_MESSAGES = Sql(
    "SELECT seq, role, message, step, run_id, sensitivity FROM message"
    " WHERE session_id = :session AND seq <> :own AND {scope} ORDER BY seq DESC LIMIT :limit"
)


class Present:
    """A run as one transaction sees it. What is the same for all its steps is read once."""

    def __init__(self, tx: Tx, run_id: str) -> None:
        """Raises UsageError for a run that is not of this scope."""
        run = tx.one(_RUN, run=run_id)
        if run is None:
            raise UsageError(f"run {run_id} not found", hint="`orch runs` lists the runs of this project")
        self._tx = tx
        self._run_id = run_id
        self._session_id, self._own, self._message, self._last = run
        inputs = tx.all(_INPUTS, run=run_id)
        self._record = {row[2]: _artifact(row) for row in inputs}
        self._defaulted = frozenset(row[2] for row in inputs if row[-1])

    def snapshot(self, step: str, item: str | None, reads: Sequence[str], messages: int = 0) -> Snapshot:
        """The heads of the declared reads, the inputs, the newest `messages` lines besides the run's own message."""
        head = self._tx.one(_HEAD, run=self._run_id, name=step, item=item or "")
        return Snapshot(
            artifacts={name: found for name in reads if (found := self._record.get(name) or self._head(name))},
            conversation=self._conversation(messages),
            conversation_total=self._last - (self._own is not None),
            message=self._message,
            record=self._record,
            defaulted=self._defaulted,
            head=version_row(head) if head else None,
        )

    def _head(self, name: str) -> Artifact | None:
        row = self._tx.one(_HEAD_WITH_BODY, run=self._run_id, name=name, item="")
        return _artifact(row) if row else None

    def _conversation(self, messages: int) -> tuple[Message, ...]:
        if not messages or not self._last:
            return ()
        lines = self._tx.all(_MESSAGES, session=self._session_id, own=self._own or 0, limit=messages)
        return tuple(Message(*line) for line in reversed(lines))


def _artifact(row: Row) -> Artifact:
    return Artifact(version_row(row[:COLUMN_COUNT]), bytes(row[COLUMN_COUNT]))
