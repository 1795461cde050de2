"""Which runs go and which stay: pure decisions over what the store tells of them.

A run stays that is among the newest of its pipeline, has a tag, or is needed by one that stays: a fork never loses what
it shares. A run that has not ended, because it is worked on or waits for somebody, is nobody's to remove unasked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.store.records import RunMark

Needs = Mapping[str, frozenset[str]]
Reason = Literal["newest", "tagged", "unfinished", "needed", "bench"]
UNFINISHED: Final = ("running", "waiting", "paused")


@dataclass(frozen=True, slots=True)
class Retention:
    """What stays, each run with the first reason for it, and what goes, in an order in which each can go."""

    kept: Mapping[str, Reason]
    gone: tuple[RunMark, ...]


def retain(marks: Sequence[RunMark], needs: Needs, newest: int) -> Retention:
    """Keep so many of each pipeline, and what else must stay. `marks` are all runs, newest first.

    A bench is not counted: it stays as long as the run it looks at.
    """
    kept: dict[str, Reason] = {}
    seen: Counter[str] = Counter()
    for run in marks:
        if run.kind == "bench":
            if run.tags or run.status == "running":
                kept[run.id] = "tagged" if run.tags else "unfinished"
            continue
        seen[run.pipeline] += 1
        if seen[run.pipeline] <= newest:
            kept[run.id] = "newest"
        elif run.tags:
            kept[run.id] = "tagged"
        elif run.status in UNFINISHED:
            kept[run.id] = "unfinished"
    for run_id in needed_by(kept, needs):
        kept.setdefault(run_id, "needed")
    benches = [run.id for run in marks if run.kind == "bench" and run.id not in kept]
    kept |= {bench: "bench" for bench in benches if needs.get(bench, frozenset()) - {bench} <= kept.keys()}
    return Retention(kept, in_order([run for run in marks if run.id not in kept], needs))


def needed_by(runs: Collection[str], needs: Needs) -> frozenset[str]:
    """All that these runs need, and what that needs, and so on; these themselves are not counted."""
    found: set[str] = set()
    left = list(runs)
    while left:
        more = needs.get(left.pop(), frozenset()) - found
        found |= more
        left += more
    return frozenset(found - set(runs))


def needing(runs: Collection[str], needs: Needs) -> frozenset[str]:
    """All that need one of these runs, and what needs those, and so on."""
    backwards: dict[str, set[str]] = {}
    for run, others in needs.items():
        for other in others:
            backwards.setdefault(other, set()).add(run)
    return needed_by(runs, {run: frozenset(others) for run, others in backwards.items()})


def in_order(runs: Sequence[RunMark], needs: Needs) -> tuple[RunMark, ...]:
    """The same runs, each ahead of those it needs."""
    left = {run.id: run for run in runs}
    found: list[RunMark] = []
    while left:
        wanted = frozenset[str]().union(*(needs.get(run, frozenset()) - {run} for run in left))
        free = [run for run in left.values() if run.id not in wanted]
        for run in free or list(left.values()):  # in a circle none can go first: the store will say so
            del left[run.id]
            found.append(run)
    return tuple(found)
