"""What the tools of a step have done already, in attempts that failed: a resume does not do it again.

A step that failed after a tool had acted on the world begins anew with `orch resume`, and its model, which sees what it
saw before, calls the tool again. The effect is there already, so the call is answered with what was recorded of it. A
Python step goes on with the answers that it has; what was done for those is not to be had again, what was done for a
question that has none is. A tool that was under way when the attempt failed (it ran into the step's timeout, or another
question of the body failed) may have acted: such a call is in doubt, in the later attempt as in its own. A tool that
may be repeated runs again, and so does a call that ended in an error. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from orchestrator.store.records import ToolRow
from orchestrator.values import ToolCall

_Key = tuple[str, str]


class DoneBefore:
    """The executions that earlier attempts have left, each to be had once: the same tool with the same arguments.

    `attempts` are the tool rows of attempts that failed right before, from the same inputs, one collection for each,
    oldest first; `kept` the calls in them whose answers stand. `own` is what the attempt at work has on record.

    Whatever is left is had by the next call of its kind. So a row for which there was something left at its time has
    done nothing more: it was told that, or it is what a person said of it. In an attempt that failed it leaves the same
    again; for an answer that stands, or in the attempt at work, it has used that up.
    """

    def __init__(
        self,
        attempts: Sequence[Iterable[ToolRow]] = (),
        own: Iterable[ToolRow] = (),
        kept: Collection[str] = frozenset(),
    ) -> None:
        self._left: dict[_Key, list[ToolRow]] = {}
        for rows in attempts:
            self._go_along([(row, row.call_id in kept) for row in rows])
        self._go_along([(row, True) for row in own])

    def _go_along(self, rows: Iterable[tuple[ToolRow, bool]]) -> None:
        """One attempt: its rows, and which of them have used up what was left."""
        there = {key: list(left) for key, left in self._left.items()}
        for row, used in rows:
            if not _counts(row):
                continue
            key = _key(row.tool_call)
            left, before = self._left.setdefault(key, []), there.get(key)
            if before:
                left.remove(before.pop(0))
            if not used:
                left.append(row)

    def give_back(self, rows: Iterable[ToolRow]) -> None:
        """What was done for answers that do not stand any more."""
        for row in filter(_counts, rows):
            self._left.setdefault(_key(row.tool_call), []).append(row)

    def take(self, calls: Collection[ToolCall]) -> Mapping[str, ToolRow]:
        """Which of these calls were made before, by the id that the model gave now. See `is_in_doubt`."""
        taken: dict[str, ToolRow] = {}
        for call in calls:
            left = self._left.get(_key(call))
            if left:
                taken[call.call_id] = left.pop(0)
        return taken


def is_in_doubt(row: ToolRow) -> bool:
    """Whether nobody knows if this execution took effect."""
    return row.state == "started" or row.decision == "tell"


def _counts(row: ToolRow) -> bool:
    return is_in_doubt(row) or (row.output is not None and not row.output.is_error)


def _key(call: ToolCall) -> _Key:
    """The tool and its arguments, however they are spelt."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.name, call.arguments
