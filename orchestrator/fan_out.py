"""From a list to the entries that a step is made for, and from the items back to one value. Pure.

A fan-out is known by keys, not by places: an entry's key is a field of it (or the entry itself), written as a name. So
an entry that is edited, moved or joined by others keeps its item, and whatever is done to one leaves the rest alone.
All that can be wrong with a list is found here, before anything is paid for any of its entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.contracts import Contract
from orchestrator.errors import Place, StepFailed
from orchestrator.expressions import ExpressionError
from orchestrator.graph import ForEach, Read, StepNode
from orchestrator.ids import digest, is_name, sha256
from orchestrator.values import ArtifactVersion

_SLUG: Final = 54  # leaves room for a mark and eight characters of a hash
_MOST_WORDS: Final = 200
_INDEX_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "string"}},
        "missing": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["items", "missing"],
    "additionalProperties": False,
}
INDEX: Final = Contract(
    name="index",
    about="Which items there are, and which are missing.",
    not_for=(),
    sensitivity="public",
    tags=(),
    max_tokens=None,
    form="json",
    schema=_INDEX_SCHEMA,
    model=None,
    fields=("items", "missing"),
    customer_fields=(),
    code={},
    digest=digest(["index", dict(_INDEX_SCHEMA)]),
    place=Place(""),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a list: its key, its canonical bytes, and how messages name it (`competitors[2]`)."""

    key: str
    body: bytes
    place: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries a step is made for, in the list's order. `left` counts those beyond `at_most` that were left out."""

    entries: tuple[Entry, ...]
    left: int = 0


# --- the entries ------------------------------------------------------------------------------------------------------


def expand(step: StepNode, value: Any) -> Entries:
    """The entries of the list in `value`: filtered, named, counted.

    Raises StepFailed for a value that holds no list there, an entry without a key, two of one key, and for more entries
    than there may be.
    """
    for_each = _of(step)
    at = ".".join((for_each.source, *for_each.path))
    found = [
        _entry(step, for_each, item, f"{at}[{index}]")
        for index, item in enumerate(_list(step, for_each, value))
        if _wanted(step, for_each, item, f"{at}[{index}]")
    ]
    _check_keys(step, found)
    return _counted(step, found, at)


def joined(step: StepNode, entries: Sequence[Entry]) -> Entries:
    """The same for entries that another step was made for: they have their keys, and are filtered and counted here."""
    for_each = _of(step)
    same = for_each.same or ""
    found = [
        entry
        for entry in entries
        if _wanted(step, for_each, for_each.entry.load(entry.body), f"the entry {entry.key} of {same}")
    ]
    return _counted(step, found, same)


def _of(step: StepNode) -> ForEach:
    assert step.for_each is not None
    return step.for_each


def _list(step: StepNode, for_each: ForEach, value: Any) -> list[Any]:
    """The list, empty where it is null or left out."""
    for part in for_each.path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None:
        return []
    if not isinstance(value, list):
        raise _fault(step, f"{for_each.list_name} is no list", "no_list", "edit it, or mend the step that makes it")
    return value


def _wanted(step: StepNode, for_each: ForEach, item: Any, place: str) -> bool:
    if for_each.where is None:
        return True
    values = {**(item if isinstance(item, Mapping) else {}), for_each.item: item}
    try:
        return bool(for_each.where.evaluate(values))
    except ExpressionError as error:
        hint = "write where so that it holds for a missing value too"
        raise _fault(step, f"{place}: where cannot be answered: {error.message}", "where", hint) from error


def _entry(step: StepNode, for_each: ForEach, item: Any, place: str) -> Entry:
    value = item
    for part in for_each.key:
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        what = ".".join(for_each.key)
        reason = f"{place} has no {what}, which is its key" if what else f"{place} is no text, and so no key"
        raise _fault(step, reason, "no_key", f"edit {for_each.source}: each entry needs a text or number of its own")
    return Entry(slug(str(value)), for_each.entry.encode(item), place)


def slug(text: str) -> str:
    """A key as references and files write it: itself if it is a name, else a name made of it and of its hash (S23)."""
    if is_name(text):
        return text
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG].strip("-")
    return f"{words or 'item'}-{sha256(text)[:8]}"


def _check_keys(step: StepNode, found: Sequence[Entry]) -> None:
    seen: dict[str, str] = {}
    for entry in found:
        if entry.key in seen:
            raise _fault(
                step,
                f"{seen[entry.key]} and {entry.place} have the same key, {entry.key}; nothing was sent",
                "same_key",
                f"edit {_of(step).source}, or choose another `key`: one entry, one key",
            )
        seen[entry.key] = entry.place


def _counted(step: StepNode, found: Sequence[Entry], what: str) -> Entries:
    for_each = _of(step)
    over = len(found) - for_each.at_most
    if over > 0 and for_each.over == "fail":
        raise _fault(
            step,
            f"{what} has {len(found)} entries, and at_most is {for_each.at_most}; nothing was sent",
            "too_many",
            "raise at_most, narrow it with where, or write over: take_first",
        )
    return Entries(tuple(found[: for_each.at_most]), max(over, 0))


def _fault(step: StepNode, message: str, code: str, hint: str) -> StepFailed:
    place = step.for_each.place if step.for_each else step.place
    return StepFailed(f"{step.name}: {message}", hint=hint, code=code, place=place)


# --- the step as its collector sees it --------------------------------------------------------------------------------


def collector(step: StepNode) -> StepNode:
    """The step as what makes its items: it reads the list (or what the joined step made) and all that items read.

    So whatever makes an item stale makes the collector stale too, which then looks at each.
    """
    for_each = _of(step)
    taken: dict[str, Read] = {}
    for read in (_collected(read, for_each) for read in step.reads):
        taken[read.name] = _merged(taken[read.name], read) if read.name in taken else read
    if for_each.same is not None and for_each.same not in taken:
        # Its keys are those of the other, also where an item takes nothing of the other's value.
        taken[for_each.same] = Read(for_each.same, "step", INDEX, (), None, for_each.place, takes="each")
    said = [for_each.list_name, list(for_each.key), for_each.where.text if for_each.where else None, for_each.same]
    bounds = [for_each.at_most, for_each.over, for_each.on_error]
    made = digest([step.digest, said, bounds])
    return replace(step, reads=tuple(taken.values()), digest=made, for_each=None)


def _collected(read: Read, for_each: ForEach) -> Read:
    if read.takes == "sibling":
        return replace(read, takes="each")
    if read.kind == "entry":
        return Read(for_each.source, for_each.source_kind, for_each.whole, for_each.path[:1], None, read.place)
    return read


def _merged(declared: Read, listed: Read) -> Read:
    """The one read of a step that reads its list itself too."""
    if declared.fields is None or listed.fields is None:
        return replace(declared, fields=None)
    return replace(declared, fields=tuple(dict.fromkeys((*declared.fields, *listed.fields))))


def item_heads(
    step: StepNode, key: str, entry: str, versions: Mapping[str, ArtifactVersion]
) -> dict[str, ArtifactVersion]:
    """The versions that one item reads, by name: its sibling's, and its entry as a part of the list's.

    `entry` is the entry's hash; `versions` are all there are, those of items under `step/key`.
    """
    heads = dict(versions) if any(read.takes == "each" for read in step.reads) else {}
    for read in step.takes:
        found = versions.get(f"{read.name}/{key}" if read.takes == "sibling" else read.source)
        if found is not None and read.kind == "entry":
            heads[read.name] = replace(found, sha256=entry, field_hashes={})
        elif found is not None:
            heads[read.name] = found
    return heads


# --- the index --------------------------------------------------------------------------------------------------------


def index_of(items: Sequence[str], missing: Mapping[str, str]) -> bytes:
    """The collector's own value: the keys there are, and why others are missing. It holds nothing of the items.

    Its version names the keys among its `field_hashes`, so that listings know them without a body.
    """
    told = {key: _words(missing[key]) for key in sorted(missing)}
    return INDEX.dump({"items": sorted(items), "missing": told})


def _words(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_WORDS else f"{line[: _MOST_WORDS - 1]}…"


def missing_line(index: Mapping[str, Any], there: int) -> str | None:
    """What a reader is told ahead of the items: how many there are and which are missing; None where none is."""
    missing: Mapping[str, str] = index["missing"]
    if not missing:
        return None if there else "0 items: the list is empty, or nothing of it was wanted."
    told = "; ".join(f"{key} ({reason})" for key, reason in missing.items())
    return f"{there} of {there + len(missing)} items. Missing: {told}"
