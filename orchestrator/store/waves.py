"""A step is made again: what waits for it, directly or not, is looked at once more, each when its parents are done.

Nothing of what stands is taken away. A step of the wave finds out by itself whether anything has changed for it, so an
equal value stops the wave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.store import json_text
from orchestrator.store.approvals import hold_back
from orchestrator.store.sql import Sql, Tx

_STEPS = Sql(
    "SELECT s.name, s.children, s.released, s.due, s.stale, s.kind, a.state FROM step s"
    " LEFT JOIN attempt a ON a.id = s.attempt_id AND {scope:a} WHERE s.run_id = :run AND s.item = '' AND {scope:s}"
)
_LOOK_AGAIN = Sql(
    "UPDATE step SET due = 1, released = 0 WHERE run_id = :run AND name = :name AND item = '' AND {scope}"
)
_WAITS_FOR = Sql("UPDATE step SET unmet = :unmet WHERE run_id = :run AND name = :name AND item = '' AND {scope}")
INPUT: Final = "input"


def begin(tx: Tx, run_id: str, name: str) -> bool:
    """Let all that waits for this step wait for it again; whether the step itself waits for nothing.

    Raises UsageError while items of a step below are being made.
    """
    rows = {row[0]: row[1:] for row in tx.all(_STEPS, run=run_id)}
    children = {step: json_text.load(row[0]) for step, row in rows.items()}
    wave = {name} | _below(children, name)
    for step in sorted(wave):
        if rows[step][-2:] == ("map", "running"):  # its own count is that of its items
            raise UsageError(
                f"the items of {step} are being made", hint="wait until they are done", code="not_finished"
            )
    for step in wave:
        tx.run(_LOOK_AGAIN, run=run_id, name=step)
    met = {step for step, (_, *flags, kind, _) in rows.items() if kind == INPUT or flags == [1, 0, 0]}
    unmet = dict.fromkeys(rows, 0)
    for step, below in children.items():
        for child in below if step not in met - wave else ():
            unmet[child] += 1
    for step in wave:
        tx.run(_WAITS_FOR, run=run_id, name=step, unmet=unmet[step])
        if unmet[step]:
            hold_back(tx, run_id, step)
    return unmet[name] == 0


def _below(children: Mapping[str, list[str]], name: str) -> set[str]:
    found: set[str] = set()
    waiting = list(children[name])
    while waiting:
        step = waiting.pop()
        if step not in found:
            found.add(step)
            waiting += children.get(step, ())
    return found
