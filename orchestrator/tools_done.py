"""What the tools of a step have done already, in attempts that failed: a resume does not do it again.

A step that failed after a tool had acted on the world begins anew with `orch resume`, and its model, which sees what it
saw before, calls the tool again. The effect is there already, so the call is answered with what was recorded of it. A
tool that may be repeated runs again, and so does a call that ended in an error. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from orchestrator.store.records import ToolRow
from orchestrator.values import ToolCall


class DoneBefore:
    """The executions that earlier attempts have left, each to be had once: the same tool with the same arguments.

    `attempts` are the tool rows of attempts that failed right before, from the same inputs, one collection for each.
    Whatever a later attempt holds of a call is what the earlier ones had done and more, so the fullest of them counts.
    `own` is what the attempt at work has on record: that was had, or done, already.
    """

    def __init__(self, attempts: Sequence[Iterable[ToolRow]] = (), own: Iterable[ToolRow] = ()) -> None:
        self._left: dict[tuple[str, str], list[ToolRow]] = {}
        for rows in attempts:
            for key, found in _by_call(rows).items():
                if len(found) >= len(self._left.get(key, ())):
                    self._left[key] = found
        for key, found in _by_call(own).items():
            del self._left.get(key, [])[: len(found)]

    def take(self, calls: Collection[ToolCall]) -> Mapping[str, ToolRow]:
        """Which of these calls were answered before, by the id that the model gave now."""
        taken: dict[str, ToolRow] = {}
        for call in calls:
            left = self._left.get(_key(call))
            if left:
                taken[call.call_id] = left.pop(0)
        return taken


def _by_call(rows: Iterable[ToolRow]) -> dict[tuple[str, str], list[ToolRow]]:
    found: dict[tuple[str, str], list[ToolRow]] = {}
    for row in rows:
        if row.output is not None and not row.output.is_error:
            found.setdefault(_key(row.tool_call), []).append(row)
    return found


def _key(call: ToolCall) -> tuple[str, str]:
    """The tool and its arguments, however they are spelt."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except ValueError:
        return call.name, call.arguments
