"""From plain data to spec models, with every fault placed and the rest kept.

A part with a fault loses the faulty key (or entry), is remembered in `dropped`, and goes on: so one pass finds all
errors of a file, and later checks can tell "was wrong" from "was never there". Nothing is converted on the way: `"2"`
is no number and `5` is no text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from orchestrator.errors import Diagnostic, Place
from orchestrator.faults import explain_fault, nearest, shown
from orchestrator.spec import ContractSpec, PathKey, PipelineSpec, Places, ReadSpec, StepSpec, Strict
from orchestrator.yaml_nodes import KEY, Document
from orchestrator.yaml_syntax import GUARD_KEYS, made_mapping

Spec = TypeVar("Spec", bound=Strict)
NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")

# Keys of the design that this version does not have yet: known words deserve a better answer than "unknown key".
LATER: Final[Mapping[type[Strict], frozenset[str]]] = {
    PipelineSpec: frozenset({"memory"}),
    ContractSpec: frozenset({"tripwires"}),
    StepSpec: frozenset({"recall", "memory", "chat"})
    | {"require", "fallback", "updates", "tripwires", "select", "from"},
}
_PLANNED: Final = frozenset().union(*LATER.values())
_CHAIN = "A step's first request is rebuilt from what the database holds; declare a read for what it needs."
REFUSED: Final[Mapping[str, str]] = {
    "raw": "Content is never injected without its label; declare a read, and place it with {{ block('name') }}.",
    "previous_response_id": _CHAIN,
    "chain": _CHAIN,
}
_NO_RAW: Final = frozenset({StepSpec, ReadSpec})
_ANY_VALUE: Final = frozenset({"default", "value"})


class SpecReader:
    """Reads the parts of one document (and of step definitions grafted into it) into models."""

    def __init__(self, document: Document) -> None:
        self.file = document.file
        self.content = document.text
        self.places: dict[PathKey, Place] = dict(document.places)
        self.raw: dict[PathKey, str] = dict(document.raw)
        self.others: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {document.file: document.lines}
        self.diagnostics: list[Diagnostic] = list(document.diagnostics)
        self.dropped: set[PathKey] = set()

    # --- reporting ---

    def located(self) -> Places:
        """The places of all parts as they stand now."""
        return Places(self.file, self.places, self.content, self.others)

    def report(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        lines = self.lines.get(place.file, [])
        source = lines[place.line - 1] if 0 < place.line <= len(lines) else None
        self.diagnostics.append(Diagnostic(code, message, place, hint, source))

    def place(self, *path: str | int) -> Place:
        return self._nearest(path, whole=False)

    def key_place(self, *path: str | int) -> Place:
        return self._nearest(path, whole=True)

    def _nearest(self, path: PathKey, *, whole: bool) -> Place:
        """The place of a part (its key where `whole`), else of the nearest part around it, by its key."""
        for end in range(len(path), 0, -1):
            found = None if whole or end < len(path) else self.places.get(path)
            found = found or self.places.get((*path[:end], KEY)) or self.places.get(path[:end])
            if found is not None:
                return found
        return self.places.get((), Place(self.file))

    def drop(self, path: PathKey) -> None:
        self.dropped.add(path)

    # --- plain parts ---

    def mapping(self, value: object, path: PathKey, what: str) -> dict[str, Any] | None:
        """The value if it is a mapping; else a fault. `what` names it in the message."""
        if isinstance(value, dict):
            return value
        hint = "Write `key: value` lines under it." if value is None else None
        self.report("P103", f"{what} must be a mapping, not {shown(value)}", self.place(*path), hint)
        self.drop(path)
        return None

    def sequence(self, value: object, path: PathKey, what: str) -> list[Any] | None:
        """The value if it is a list; else a fault, with the list to write for a single entry."""
        if isinstance(value, list):
            return value
        hint = f"Write it as a list: [{value}]" if isinstance(value, str) else None
        hint = "Leave the key out, or write []." if value is None else hint
        self.report("P103", f"{what} must be a list, not {shown(value)}", self.place(*path), hint)
        self.drop(path)
        return None

    def text(self, value: object, path: PathKey, what: str) -> str | None:
        """The value if it is text that says something; else a fault."""
        if isinstance(value, str) and value.strip():
            return value
        key = self._guard_key(path)
        if isinstance(value, dict) and key:
            whole = ", ".join(f"{k}: {v}" for k, v in value.items())
            message, way_out = made_mapping(key, whole)
            self.report("P017", message, self.place(*path), way_out)
        else:
            raw = self.raw.get(path)
            hint = f'Quote it if it is text: "{raw}"' if raw is not None and value is not None else None
            given = shown(value, raw)
            wrong = "is empty" if value is None or isinstance(value, str) else f"must be text, not {given}"
            self.report("P103", f"{what} {wrong}", self.place(*path), hint)
        self.drop(path)
        return None

    def texts(self, value: object, path: PathKey, what: str) -> tuple[str, ...]:
        """The entries of a list of texts that are right; the others are reported and dropped."""
        entries = self.sequence(value, path, what)
        found = [(i, self.text(v, (*path, i), f"an entry of {what}")) for i, v in enumerate(entries or [])]
        kept = [(i, text) for i, text in found if text is not None]
        self.keep_entries(path, [i for i, _ in kept], len(found))
        return tuple(text for _, text in kept)

    def name(self, name: str, place: Place, what: str) -> bool:
        """Whether a name the user chose is allowed; reports where it is not."""
        if NAME.fullmatch(name):
            return True
        proposal = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:64]
        hint = f"For example {proposal!r}." if NAME.fullmatch(proposal) else None
        message = (
            f"{name!r} cannot be the name of {what}: use small letters, digits, '-' and '_', a letter first, "
            "at most 64 in all"
        )
        self.report("P106", message, place, hint)
        return False

    # --- models ---

    def keys(self, data: Mapping[str, Any], path: PathKey, model: type[Strict], what: str) -> dict[str, Any]:
        """The keys the model knows; `x-` extras vanish, later, refused and unknown ones are reported."""
        known = [field.alias or name for name, field in model.model_fields.items()]
        later = LATER.get(model, frozenset())
        kept: dict[str, Any] = {}
        for key, value in data.items():
            if key in known:
                kept[key] = value
            elif not key.startswith("x-"):
                self._unknown(key, (*path, key), known, later, model, what)
                self.drop((*path, key))
        return kept

    def _unknown(
        self, key: str, path: PathKey, known: Sequence[str], later: frozenset[str], model: type[Strict], what: str
    ) -> None:
        place = self.key_place(*path)
        if key in REFUSED and model in _NO_RAW:
            self.report("P151", f"{key!r} is refused in {what}", place, REFUSED[key])
        elif key in later:
            self.report("P150", f"{key!r} in {what} is not available yet", place, "Remove the key for now.")
        elif key == "<<":
            self.report("P101", "merge keys (<<) are not used here", place, "Write the keys out.")
        else:
            near = get_close_matches(key, [*known, *later], n=1)
            hint = f"Did you mean {near[0]!r}?" if near else nearest(key, known)
            self.report("P101", f"{key!r} is not a key of {what}", place, hint)

    def model(self, model: type[Spec], data: Mapping[str, Any], path: PathKey, what: str) -> Spec | None:
        """The model of data whose keys are known. Faulty optional keys are dropped; None where a required one is."""
        data = {key: self._filled(key, value, (*path, key)) for key, value in data.items()}
        data = {key: value for key, value in data.items() if value is not _FAULTY}
        for _ in range(len(data) + 1):
            try:
                return model.model_validate(data, strict=True)
            except ValidationError as error:
                lost = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]}
                self._explain(error, path, what)
                if not lost & data.keys():
                    break
                data = {key: value for key, value in data.items() if key not in lost}
        self.drop(path)
        return None

    def _filled(self, key: str, value: Any, path: PathKey) -> Any:
        """A key that is there must say something: `reads:` with nothing behind it is a mistake."""
        if key in _ANY_VALUE or not (value is None or (isinstance(value, str) and not value.strip())):
            return value
        self.report("P103", f"{key!r} is empty", self.key_place(*path), "Give it a value, or leave it out.")
        self.drop(path)
        return _FAULTY

    def _explain(self, error: ValidationError, path: PathKey, what: str) -> None:
        for fault in error.errors(include_url=False):
            loc = self._real(path, tuple(fault["loc"]))
            key = str(fault["loc"][0]) if fault["loc"] else what
            if fault["type"] == "missing":
                if loc not in self.dropped and not self._planned(path):
                    self.report("P102", f"{key!r} is missing in {what}", self.key_place(*path))
                continue
            text = explain_fault(fault, self.raw.get(loc))
            self.report("P103", f"{key!r} {text.text}", self.place(*loc), text.hint)
            self.drop((*path, fault["loc"][0]) if fault["loc"] else path)

    def _planned(self, path: PathKey) -> bool:
        """Whether the part has a key of a later version: what it lacks, that key may stand for."""
        return any(part[:-1] == path and part[-1] in _PLANNED for part in self.dropped if part)

    def _real(self, path: PathKey, loc: tuple[str | int, ...]) -> PathKey:
        """pydantic's location as a path of the document: names of union branches are left out."""
        found = path
        for part in loc:
            if (*found, part) in self.places:
                found = (*found, part)
        return found if found != path else (*path, *loc[:1])

    def _guard_key(self, path: PathKey) -> str | None:
        return next((str(part) for part in reversed(path) if part in GUARD_KEYS), None)

    # --- moving places ---

    def keep_entries(self, path: PathKey, kept: Sequence[int], count: int) -> None:
        """Entries of a list were dropped: the places of the others move up with them."""
        if len(kept) == count:
            return
        moved = {old: new for new, old in enumerate(kept)}
        depth = len(path)

        def target(place: PathKey) -> PathKey | None:
            inside = len(place) > depth and place[:depth] == path and isinstance(place[depth], int)
            if not inside:
                return place
            new = moved.get(int(place[depth]))
            return None if new is None else (*path, new, *place[depth + 1 :])

        self.places = {new: at for old, at in self.places.items() if (new := target(old)) is not None}
        self.raw = {new: text for old, text in self.raw.items() if (new := target(old)) is not None}

    def include(self, document: Document) -> None:
        """Makes the text of a further file known, for the lines that faults point at."""
        self.others[document.file] = document.text
        self.lines[document.file] = document.lines

    def graft(self, document: Document, keys: Sequence[str], path: PathKey) -> None:
        """The named keys of another document become keys at `path`; their places stay in their own file."""
        self.include(document)
        for old in [place for place in self.places if len(place) > len(path) and place[: len(path)] == path]:
            if old[len(path)] in keys:
                del self.places[old]
        for old, place in document.places.items():
            if old and old[0] in keys:
                self.places[(*path, *old)] = place
        self.raw.update({(*path, *old): text for old, text in document.raw.items() if old and old[0] in keys})


_FAULTY: Final = object()

__all__ = ["LATER", "NAME", "REFUSED", "SpecReader"]
