"""What differs between two versions: of a text line by line, of JSON data path by path.

A path reads as people write it: `tech.components[slug=api].price`. The items of a list are told apart by a key of their
own (`slug`, `key`, `id`, `name`) where every item has one and no two share it, so that an item put in front does not
make all behind it look changed; else by position. The whole value is `$`.

Two values differ exactly where something is reported: an equal number (`1`, `1.0`) is no change, `true` and `1` are
two values, and the order of a list counts.

Who changed what (`blame`) needs no values: each version carries a hash of each of its top-level fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Final, Literal

from orchestrator.values import ArtifactVersion

WHOLE: Final = "$"
ITEM_KEYS: Final = ("slug", "key", "id", "name")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BARE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
Mark = tuple[bool, Any]
Kind = Literal["added", "removed", "changed", "reordered"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `old` is None for what was added, `new` for what was removed.

    `reordered`: a list whose items stay but stand in another order; `old` and `new` are then the items' keys.
    """

    kind: Kind
    path: str
    old: Any = None
    new: Any = None


def changes(old: Any, new: Any) -> tuple[Change, ...]:
    """Everything that differs between two values, JSON data or text, in the order of the values."""
    return tuple(_compare(old, new, ""))


def _compare(old: Any, new: Any, path: str) -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _fields(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        key = item_key(old, new)
        yield from _places(old, new, path) if key is None else _items(old, new, path, key)
    elif not same_scalar(old, new):
        yield Change("changed", path or WHOLE, old, new)


def same_scalar(old: Any, new: Any) -> bool:
    """Whether two values that are no lists or objects count as equal: 1 and 1.0 do, 1 and true do not."""
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def _fields(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    for name in [*old, *(name for name in new if name not in old)]:
        place = below(path, name)
        if name not in new:
            yield Change("removed", place, old=old[name])
        elif name not in old:
            yield Change("added", place, new=new[name])
        else:
            yield from _compare(old[name], new[name], place)


def below(path: str, name: str) -> str:
    """The path of a field."""
    if not _PLAIN.fullmatch(name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _places(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Change]:
    for place, (was, now) in enumerate(zip(old, new, strict=False)):
        yield from _compare(was, now, f"{path}[{place}]")
    for place in range(len(new), len(old)):
        yield Change("removed", f"{path}[{place}]", old=old[place])
    for place in range(len(old), len(new)):
        yield Change("added", f"{path}[{place}]", new=new[place])


def item_key(old: Sequence[Any], new: Sequence[Any]) -> str | None:
    """The field that tells the items of both lists apart, and that at least one item kept; None = go by position."""
    for key in ITEM_KEYS:
        before, after = keyed(old, key), keyed(new, key)
        if before is not None and after is not None and not before.keys().isdisjoint(after):
            return key
    return None


def keyed(items: Sequence[Any], key: str) -> dict[Mark, Any] | None:
    """The items by key; None where one has none, or two share it. A text is never the same key as a number."""
    found = {}
    for item in items:
        value = item.get(key) if isinstance(item, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, str | int):
            return None
        found[isinstance(value, str), value] = item
    return found if len(found) == len(items) else None


def _items(old: Sequence[Any], new: Sequence[Any], path: str, key: str) -> Iterator[Change]:
    before, after = keyed(old, key) or {}, keyed(new, key) or {}
    for mark in [*before, *(mark for mark in after if mark not in before)]:
        place = item_place(path, key, mark)
        if mark not in after:
            yield Change("removed", place, old=before[mark])
        elif mark not in before:
            yield Change("added", place, new=after[mark])
        else:
            yield from _compare(before[mark], after[mark], place)
    was, now = [mark for mark in before if mark in after], [mark for mark in after if mark in before]
    if was != now:
        yield Change("reordered", path or WHOLE, [mark[1] for mark in before], [mark[1] for mark in after])


def item_place(path: str, key: str, mark: Mark) -> str:
    """The path of an item of a list whose items are told apart by a key."""
    value = mark[1]
    bare = isinstance(value, str) and _BARE.fullmatch(value) and not value.isdecimal()
    return f"{path}[{key}={value if bare else json.dumps(value, ensure_ascii=False)}]"


# --- texts ------------------------------------------------------------------------------------------------------------


def text_diff(old: str, new: str, context: int = 3) -> tuple[str, ...]:
    """The lines of a unified diff, hunk by hunk, without a file header; none for equal texts.

    A line end at the very end counts: it shows as an empty line added or removed.
    """
    return tuple(unified_diff(old.split("\n"), new.split("\n"), n=context, lineterm=""))[2:]


# --- versions, by their hashes alone ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """The top-level fields in which a version differs from another; `$` where it has no fields to compare."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def field_changes(old: ArtifactVersion, new: ArtifactVersion) -> FieldChanges:
    """What differs between two versions, from the hashes that stand on their rows: no body is needed."""
    if old.sha256 == new.sha256:
        return FieldChanges()
    before, after = old.field_hashes, new.field_hashes
    if not before or not after:
        return FieldChanges(changed=(WHOLE,))
    found = FieldChanges(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name in before and before[name] != after[name]),
    )
    return found or FieldChanges(changed=(WHOLE,))  # the same fields in another order: other bytes all the same


def line_of(head: ArtifactVersion, versions: Iterable[ArtifactVersion]) -> tuple[ArtifactVersion, ...]:
    """The head, what it was made from, what that was made from, and so on."""
    by_id = {version.id: version for version in versions}
    line = [head]
    while (parent := by_id.pop(line[-1].parent_id or "", None)) is not None:
        line.append(parent)
    return tuple(line)


def blame(head: ArtifactVersion, versions: Iterable[ArtifactVersion]) -> Mapping[str, ArtifactVersion]:
    """For each top-level field of the head, the version that last gave it its present value; `$` where it has none.

    In a version that a draft was merged into, what is neither its parent's nor the draft's is its own.
    """
    by_id = {version.id: version for version in versions}
    names = list(head.field_hashes) or [WHOLE]
    return {name: _origin(head, by_id, name) for name in names}


def _origin(version: ArtifactVersion, by_id: Mapping[str, ArtifactVersion], name: str) -> ArtifactVersion:
    """The first of the line that has this version's value, without a break, down to either of what was merged."""

    def value(one: ArtifactVersion) -> str | None:
        return one.sha256 if name == WHOLE else one.field_hashes.get(name)

    seen = {version.id}
    while True:
        before = [by_id.get(parent or "") for parent in (version.parent_id, version.merged_id)]
        alike = next((one for one in before if one and one.id not in seen and value(one) == value(version)), None)
        if alike is None:
            return version
        seen.add(alike.id)
        version = alike
