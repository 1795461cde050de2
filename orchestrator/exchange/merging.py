"""Two versions that were made side by side from a third, brought together: what each has changed stands in the result.

The three are the `base`, the `head` (a person's) and the `draft` (what a step has made anew). What only one side has
changed is taken from that side, what both have changed alike is taken once, and what they have changed in different
ways is a conflict: nothing is guessed, and no value appears that none of the three had.

JSON data is compared field by field. The items of a list are told apart as in `diffing`, by a key of their own; a list
whose items have none is one value. A text is compared by its lines (diff3). Paths read as in `diffing`; a place in a
text is `L7`, its line in the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, Final, Literal

from orchestrator.exchange.diffing import ITEM_KEYS, WHOLE, Mark, below, item_place, keyed, same_scalar

Side = Literal["head", "draft"]
EVERY: Final = "*"
_MOST_PAIRS: Final = 4_000_000  # of equal lines: beyond it, matching them would take seconds


class Absent(Enum):
    """Stands where one of the three has nothing at all, which is not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class Conflict:
    """A place that both sides have changed, each in a way of its own. `ABSENT` stands for what is not there."""

    path: str
    base: Any
    head: Any
    draft: Any


@dataclass(frozen=True, slots=True)
class Merged:
    """The value, with one side's version at each conflict."""

    value: Any
    conflicts: tuple[Conflict, ...] = ()


def _head_stands(path: str) -> Side:
    return "head"


def merge(base: Any, head: Any, draft: Any, choose: Callable[[str], Side] = _head_stands) -> Merged:
    """Bring head and draft together; at each conflict, `choose` says by its path whose version stands there.

    `ABSENT` as base means that nothing is known of it: then all that differs is one conflict.
    """
    work = _Merge(choose)
    if isinstance(base, str) and isinstance(head, str) and isinstance(draft, str):
        value = "\n".join(work.lines(base.split("\n"), head.split("\n"), draft.split("\n")))
    else:
        value = work.value(base, head, draft, "")
    return Merged(value, tuple(work.conflicts))


def chooser(side: Side, fields: Sequence[str]) -> Callable[[str], Side]:
    """This side at the places that `fields` cover, the other side everywhere else."""
    other: Side = "draft" if side == "head" else "head"
    return lambda path: side if any(covers(name, path) for name in fields) else other


def covers(name: str, path: str) -> bool:
    """Whether a path is the named place or lies within it; `*` and `$` cover everything."""
    return name in (EVERY, WHOLE, path) or (path.startswith(name) and path[len(name)] in ".[")


def same(one: Any, other: Any) -> bool:
    """Whether nothing differs; an equal number (`1`, `1.0`) is the same, `true` and `1` are not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return same_scalar(one, other)


@dataclass
class _Merge:
    """A merge at work: the conflicts found so far."""

    choose: Callable[[str], Side]
    conflicts: list[Conflict] = field(default_factory=list)

    def value(self, base: Any, head: Any, draft: Any, path: str) -> Any:
        if same(head, draft) or same(base, draft):
            return head
        if same(base, head):
            return draft
        three = (base, head, draft)
        if all(isinstance(one, Mapping) for one in three):
            return self._fields(base, head, draft, path)
        key = _common_key(three) if all(isinstance(one, list) for one in three) else None
        if key is not None:
            return self._items(base, head, draft, path, key)
        return self._conflict(path or WHOLE, base, head, draft)

    def _conflict(self, path: str, base: Any, head: Any, draft: Any) -> Any:
        self.conflicts.append(Conflict(path, base, head, draft))
        return head if self.choose(path) == "head" else draft

    def _fields(
        self, base: Mapping[str, Any], head: Mapping[str, Any], draft: Mapping[str, Any], path: str
    ) -> dict[str, Any]:
        names = [*head, *(name for name in draft if name not in head)]
        merged = {name: self.value(*_three(name, base, head, draft), below(path, name)) for name in names}
        return {name: value for name, value in merged.items() if value is not ABSENT}

    def _items(self, base: list[Any], head: list[Any], draft: list[Any], path: str, key: str) -> list[Any]:
        was, ours, theirs = (keyed(items, key) or {} for items in (base, head, draft))
        order = _order([*was], [*ours], [*theirs])
        if order is None:  # both have put the items into an order, each its own
            return list(self._conflict(path or WHOLE, base, head, draft))
        merged = [self.value(*_three(mark, was, ours, theirs), item_place(path, key, mark)) for mark in order]
        return [value for value in merged if value is not ABSENT]

    def lines(self, base: list[str], head: list[str], draft: list[str]) -> list[str]:
        """A text's lines: what stands unchanged in all three divides it, each piece between is settled for itself."""
        merged: list[str] = []
        at = (0, 0, 0)
        for start, size in _unchanged(base, head, draft):
            merged += self._piece(base[at[0] : start[0]], head[at[1] : start[1]], draft[at[2] : start[2]], at[1])
            at = (start[0] + size, start[1] + size, start[2] + size)
            merged += base[start[0] : at[0]]
        return merged

    def _piece(self, base: list[str], head: list[str], draft: list[str], at: int) -> list[str]:
        if draft in (head, base):
            return head
        if head == base:
            return draft
        path = f"L{at + 1}"
        self.conflicts.append(Conflict(path, *("\n".join(lines) if lines else ABSENT for lines in (base, head, draft))))
        return head if self.choose(path) == "head" else draft


def _three(
    name: Any, base: Mapping[Any, Any], head: Mapping[Any, Any], draft: Mapping[Any, Any]
) -> tuple[Any, Any, Any]:
    return base.get(name, ABSENT), head.get(name, ABSENT), draft.get(name, ABSENT)


# --- lists ------------------------------------------------------------------------------------------------------------


def _common_key(three: Sequence[list[Any]]) -> str | None:
    """The field that tells the items of all three lists apart; None where there is none."""
    return next((key for key in ITEM_KEYS if all(keyed(items, key) is not None for items in three)), None)


def _order(base: list[Mark], head: list[Mark], draft: list[Mark]) -> list[Mark] | None:
    """The items of both sides in one order: that of the side which has changed it, the other's new ones behind what
    they follow there. None where both have changed it, in different ways."""
    kept = set(base) & set(head) & set(draft)
    before, ours, theirs = ([mark for mark in marks if mark in kept] for marks in (base, head, draft))
    if before not in (ours, theirs) and ours != theirs:
        return None
    order, other = (list(head), draft) if before == theirs else (list(draft), head)
    known, own = set(order), set(order) - set(base) - set(other)
    for place, mark in enumerate(other):
        if mark not in known:
            at = order.index(other[place - 1]) + 1 if place else 0
            while at < len(order) and order[at] in own:
                at += 1
            order.insert(at, mark)
            known.add(mark)
    return order


# --- lines ------------------------------------------------------------------------------------------------------------


def _unchanged(base: list[str], head: list[str], draft: list[str]) -> Iterator[tuple[tuple[int, int, int], int]]:
    """Runs of lines that stand in all three, in order: where each begins there, and its length; an empty one at the
    end."""
    ours, theirs = _matches(base, head), _matches(base, draft)
    one = other = 0
    while one < len(ours) and other < len(theirs):
        (at, in_head, size), (also_at, in_draft, also_size) = ours[one], theirs[other]
        start, end = max(at, also_at), min(at + size, also_at + also_size)
        if start < end:
            yield (start, in_head + start - at, in_draft + start - also_at), end - start
        if at + size < also_at + also_size:
            one += 1
        else:
            other += 1
    yield (len(base), len(head), len(draft)), 0


def _matches(base: list[str], side: list[str]) -> list[tuple[int, int, int]]:
    """Runs of lines that stand in both, in order: where each begins in either, and its length."""
    front = 0
    while front < min(len(base), len(side)) and base[front] == side[front]:
        front += 1
    back = 0
    while back < min(len(base), len(side)) - front and base[-1 - back] == side[-1 - back]:
        back += 1
    old, new = base[front : len(base) - back], side[front : len(side) - back]
    counts = Counter(new)
    if sum(counts[line] for line in old) > _MOST_PAIRS:
        found = []
    else:
        found = [tuple(match) for match in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()]
    middle = [(front + at, front + there, size) for at, there, size in found if size]
    ends = [(0, 0, front)] if front else []
    return [*ends, *middle, *([(len(base) - back, len(side) - back, back)] if back else [])]
