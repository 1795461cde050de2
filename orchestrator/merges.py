"""Edits survive regeneration (S07): what a step has made anew is brought together with what a person has put there.

Pinned fields come first: there the draft takes the head's value. Then the person's changes and the draft's are merged
(`exchange.merging`), and the whole must hold under the contract and the step's checks. Where it does not, or both have
changed the same place, nothing is decided here: the step waits, with its draft beside the person's version.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from orchestrator.contracts import Contract
from orchestrator.exchange.diffing import WHOLE, blame, field_changes, line_of
from orchestrator.exchange.merging import ABSENT, EVERY, Merged, merge, same
from orchestrator.graph import StepNode
from orchestrator.output import run_checks
from orchestrator.spec import SENSITIVITY_RANK
from orchestrator.values import Artifact, ArtifactVersion, ErrorRecord, Event, FactBasis, Merge, NewArtifact, Present
from orchestrator.workers import run_stoppable

EDITED_MEANWHILE: Final = "edited_meanwhile"
_MOST_PATHS: Final = 5


@dataclass(frozen=True, slots=True)
class Edits:
    """Everything that a merge is made of, apart from the draft: what stands there, all versions, and how people name
    the place (`12/tech-stack`)."""

    step: StepNode
    present: Present
    versions: Sequence[ArtifactVersion]
    name: str

    @property
    def contract(self) -> Contract:
        return self.step.contract

    @property
    def fields(self) -> tuple[str, ...]:
        """The top-level fields in which the person's version differs from what it was made of; `$` for a text."""
        present = self.present
        if present.base is None:
            return (WHOLE,)
        found = field_changes(present.base.version, present.head.version)
        return (*found.changed, *found.added, *found.removed)

    @property
    def people(self) -> str:
        """Who has put these fields there: `ana`, `ana and ben`."""
        head = self.present.head.version
        blamed = blame(head, self.versions)
        named = [blamed[name] for name in self.fields if name in blamed and blamed[name].origin in ("person", "import")]
        line = [version for version in line_of(head, self.versions) if version.origin in ("person", "import")]
        return _list(dict.fromkeys(version.author for version in named or line)) or head.author


@dataclass(frozen=True, slots=True)
class Outcome:
    """A merge for the commit, and what is told of it: `notes` to people, `events` for the record.

    `draft` is what the step is held to have made: where it may not say anything, at pinned fields that nobody has
    edited, it says what it said before. So a pin that is taken off leaves nothing that would look like an edit.
    """

    draft: NewArtifact
    merge: Merge
    notes: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


async def bring_together(edits: Edits, draft: NewArtifact, reads: Mapping[str, Any]) -> Outcome:
    """Merge a draft with what a person has put there. `reads` are the step's, for its checks.

    Never raises for what the two hold; StepFailed where the contract or a check is itself broken.
    """
    present = edits.present
    decided_on = Merge(
        present.head.version.id, present.base.version.id if present.base else None, present.pins, artifact=draft
    )
    try:
        head, base, new = _values(edits, draft)
    except ValueError as error:
        unreadable = f"the edited version cannot be read under the contract as it is now ({error})"
        return Outcome(draft, replace(decided_on, error=_undecided(edits, unreadable)))
    kept = pinned(present.pins, head, new)
    with contextlib.suppress(ValueError):  # what breaks the contract even so is told below
        own = pinned(_unedited(present.pins, base, head), head, new)
        draft = assembled(edits.contract, present.head, draft, own.value)
    merged = await run_stoppable(merge, base, head, kept.value)
    if merged.conflicts:
        places = _list([conflict.path for conflict in merged.conflicts], most=_MOST_PATHS)
        differs = f"the new version differs there too: {places}"
        return Outcome(draft, replace(decided_on, error=_undecided(edits, differs)))
    reason: str | None
    if same(merged.value, head):
        merged = Merged(head)  # as it stands, to the byte
    try:
        artifact = assembled(edits.contract, present.head, draft, merged.value)
        reason = await _broken(edits.step, artifact, reads)
    except ValueError as error:
        artifact, reason = draft, f"it does not fit its contract {edits.contract.name}: {error}"
    if reason is not None:
        return Outcome(draft, replace(decided_on, error=_undecided(edits, f"together with the new version {reason}")))
    notes = tuple(_notes(edits, kept.fields))
    data = {
        "head": present.head.version.version,
        "people": edits.people,
        "step": draft.author,
        "edited": list(edits.fields),
        "pinned": {name: present.pins[name] for name in kept.fields},
    }
    told = (Event("step.merged", data=data), *(Event("step.note", data={"text": note}) for note in notes))
    return Outcome(draft, replace(decided_on, artifact=artifact), notes, told if notes else ())


def _unedited(pins: Iterable[str], base: Any, head: Any) -> list[str]:
    """The pinned fields that still are as the step made them."""
    names = list(pins)
    if EVERY in names and (same(base, head) or not isinstance(head, Mapping)):
        return [EVERY] if same(base, head) else []
    if not isinstance(base, Mapping) or not isinstance(head, Mapping):
        return []
    if EVERY in names:
        names = [*{**base, **head}]
    return [name for name in names if same(base.get(name, ABSENT), head.get(name, ABSENT))]


def _values(edits: Edits, draft: NewArtifact) -> tuple[Any, Any, Any]:
    """The three values. A base that cannot be read any more is as good as none; raises ValueError for such a head."""
    contract, present = edits.contract, edits.present
    base: Any = ABSENT
    if present.base is not None:
        try:
            base = contract.load(present.base.body)
        except ValueError:
            base = ABSENT
    return contract.load(present.head.body), base, contract.load(draft.body)


@dataclass(frozen=True, slots=True)
class Pinned:
    """A draft in which the pinned fields are the head's; `fields` are those where the draft had said otherwise."""

    value: Any
    fields: tuple[str, ...] = ()


def pinned(pins: Iterable[str], head: Any, draft: Any) -> Pinned:
    """The draft, with each pinned field as it stands in the head: also left out where it is left out there."""
    if EVERY in pins:
        return Pinned(draft) if same(head, draft) else Pinned(head, (EVERY,))
    if not isinstance(head, Mapping) or not isinstance(draft, Mapping):
        return Pinned(draft)
    moved = tuple(name for name in pins if not same(head.get(name, ABSENT), draft.get(name, ABSENT)))
    value = {name: head.get(name, ABSENT) if name in moved else field for name, field in draft.items()}
    value.update({name: head.get(name, ABSENT) for name in moved if name not in draft})
    return Pinned({name: field for name, field in value.items() if field is not ABSENT}, moved)


def assembled(contract: Contract, head: Artifact, draft: NewArtifact, value: Any) -> NewArtifact:
    """A merged value as an artifact: the draft's author, the stricter label of the two, and each customer fact with the
    basis it has where its value comes from. Raises ValueError where the value breaks the contract."""
    data = contract.normalise(value)
    body = contract.encode(data)
    if body == draft.body:
        return draft
    version = head.version
    return replace(
        draft,
        body=body,
        sensitivity=max(version.sensitivity, draft.sensitivity, key=lambda level: SENSITIVITY_RANK[level]),
        field_hashes=contract.field_hashes(body),
        facts=dict(_facts(data, (contract.load(draft.body), draft.facts), (contract.load(head.body), version.facts))),
        guards=tuple(dict.fromkeys((*version.guards, *draft.guards))),
    )


def _facts(value: Any, *sources: tuple[Any, Mapping[str, FactBasis]]) -> Iterable[tuple[str, FactBasis]]:
    for origin, facts in sources:
        for path, basis in facts.items():
            found = _at(value, path)
            if found is not ABSENT and same(found, _at(origin, path)):
                yield path, basis


def _at(value: Any, path: str) -> Any:
    """What stands at a path like `budget.lines[0].usd`."""
    for name, place in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        if name and isinstance(value, Mapping) and name in value:
            value = value[name]
        elif place and isinstance(value, list) and int(place) < len(value):
            value = value[int(place)]
        else:
            return ABSENT
    return value


async def _broken(step: StepNode, artifact: NewArtifact, reads: Mapping[str, Any]) -> str | None:
    """What a merged value breaks that each of the two, alone, may hold to."""
    excess = step.contract.too_large(artifact.body)
    if excess is not None:
        return f"it is {excess}"
    if not step.checks:
        return None
    problems = await run_checks(step.checks, step.contract.load(artifact.body), reads, contract=step.contract)
    return f"it fails a check: {problems[0].message}" if problems else None


# --- what is told -----------------------------------------------------------------------------------------------------


def _undecided(edits: Edits, reason: str) -> ErrorRecord:
    run, _, step = edits.name.partition("/")
    hint = (
        f"orch show {edits.name} shows both; orch resume {run} --settle {step}=head keeps the edit, =draft takes the"
        " new version, =draft:FIELD,… takes it there and keeps the edit elsewhere"
    )
    message = f"{step} was edited by {edits.people}, and {reason}; both versions are kept"
    return ErrorRecord(EDITED_MEANWHILE, message, hint, 4)


def _notes(edits: Edits, kept: Sequence[str]) -> Iterable[str]:
    by: dict[str, list[str]] = {}
    for name in kept:
        by.setdefault(edits.present.pins[name], []).append("all of it" if name == EVERY else name)
    for person, names in by.items():
        yield f"kept {_list(names)} as pinned by {person}"
    edited = [name for name in edits.fields if name not in kept] if EVERY not in kept else []
    if edited:
        what = f": {_list(edited)}" if edited != [WHOLE] else ""
        yield f"kept what {edits.people} edited in v{edits.present.head.version.version}{what}"


def _list(names: Iterable[str], most: int = 20) -> str:
    """`a`, `a and b`, `a, b and c`."""
    found = [*names]
    if len(found) > most:
        found = [*found[:most], f"{len(found) - most} more"]
    return " and ".join(filter(None, [", ".join(found[:-1]), *found[-1:]]))
