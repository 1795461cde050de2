"""What an attempt of a Python body asked before, found again (S11). Pure.

A body that begins again asks its questions again, but perhaps in another order, and perhaps not quite the same ones. So
a recorded thread is found by its name and by what its first question was, the nth such thread for the nth time; and on
a thread, a recorded question stands for the next one only if it is the same. Where it is not, the thread goes on from
what still counts: everything is sent anew (`REBUILD`), and what was recorded after that point is out.

A body that failed (the provider was away, a tool raised) and is resumed with the same inputs is a new attempt, but what
the failed one had answered is paid for and holds: its accepted answers are recalled in the same way. What came after
the last of them on a thread does not count; a further question on such a thread is asked on a thread of the new attempt
that goes on from it.

"The same" means the text without what is volatile (the conversation, the run's message, the facts that follow from
them): what was sent then is kept as it was sent, as in every step that resumes (S14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from orchestrator.contracts import Contract
from orchestrator.ids import digest
from orchestrator.moves import has_ended
from orchestrator.store.records import EffectRow, Journal, ThreadJournal
from orchestrator.values import CallRow, Prompt, TextItem

Calls = tuple[CallRow, ...]


def opening_key(prompt: Prompt, contract: Contract) -> str:
    """What a thread's first question is known by."""
    return digest([contract.digest, *(block.text for block in prompt.blocks if block.layer in ("artifact", "task"))])


def further_key(item: TextItem, contract: Contract) -> str:
    """What a further question on a thread is known by."""
    return digest([contract.digest, item.text])


def questions(calls: Sequence[CallRow]) -> list[Calls]:
    """A thread's calls by question: each ends with its accepted or rejected reply, or where another one begins."""
    found: list[list[CallRow]] = []
    for call in calls:
        if not found or has_ended(found[-1][-1]) or found[-1][-1].sent.ask != call.sent.ask:
            found.append([])
        found[-1].append(call)
    return [tuple(some) for some in found]


@dataclass
class Recalled:
    """A recorded thread while the body goes along it: the questions that have not been asked again yet."""

    journal: ThreadJournal
    left: list[Calls]
    own: bool = True  # else a thread of an attempt that failed, on which nothing more can be asked
    whole: bool = True  # else it ended in calls that do not count

    def take(self, key: str) -> Calls | None:
        """The recorded calls up to and with the question of this key, which is thereby asked; None where the thread
        went another way. A question that began the thread anew stands for itself, whatever was recorded before it."""
        for at, calls in enumerate(self.left):
            if calls[0].sent.ask == key and (at == 0 or calls[0].sent.source == "REBUILD"):
                taken = tuple(call for some in self.left[: at + 1] for call in some)
                del self.left[: at + 1]
                return taken
        return None

    def drop(self) -> Calls:
        """Give up what is left: the calls that do not stand any more."""
        dropped = tuple(call for calls in self.left for call in calls)
        self.left.clear()
        return dropped


def held(thread: ThreadJournal) -> Calls:
    """All calls that a recorded thread holds: what was accepted on the one it goes on from, then its own."""
    before = accepted(held(thread.continues)) if thread.continues is not None else ()
    return (*before, *thread.calls)


def accepted(calls: Calls) -> Calls:
    """The calls of a thread up to the last question before the first that has no accepted answer."""
    answered = takewhile(lambda some: some[-1].done is not None and some[-1].done.answer is not None, questions(calls))
    return tuple(call for some in answered for call in some)


def _origin(thread: ThreadJournal) -> str:
    return thread.id if thread.continues is None else _origin(thread.continues)


@dataclass
class Recollection:
    """What a body uses up: the journal of its attempt, and of those that failed right before it."""

    threads: list[Recalled] = field(default_factory=list)
    effects: Mapping[str, EffectRow] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, journal: Journal | None, failed: Sequence[Journal] = ()) -> Recollection:
        """`failed` are the journals of earlier attempts with the same inputs, oldest first."""
        newest = {_origin(thread): (thread, False) for earlier in failed for thread in earlier.own}
        newest |= {_origin(thread): (thread, True) for thread in (journal.own if journal else ())}
        threads = [found for thread, own in newest.values() if (found := _recalled(thread, own)).left]
        # An effect that a failed attempt left unfinished has failed with it; what was done is not done again.
        effects = {row.key: row for earlier in failed for row in earlier.effects if row.value is not None}
        effects |= {row.key: row for row in (journal.effects if journal else ())}
        return cls(threads, effects, {thread.journal.name for thread in threads})

    @property
    def calls(self) -> frozenset[str]:
        """The calls that stand, as far as the body asks for them again: their ids."""
        return frozenset(call.sent.id for thread in self.threads for calls in thread.left for call in calls)

    def find(self, name: str | None, key: str) -> Recalled | None:
        """The first recorded thread of that name (None: of no given name) that began with this question, used up."""
        for thread in self.threads:
            journal = thread.journal
            if given_name(journal.name, journal.settings) == name and thread.left[0][0].sent.ask == key:
                self.threads.remove(thread)
                return thread
        return None

    def number(self, place: int) -> str:
        """A name for a thread without one: its place among those of the body, or the next number that is free."""
        while str(place) in self.names:
            place += 1
        self.names.add(str(place))
        return str(place)


def _recalled(thread: ThreadJournal, own: bool) -> Recalled:
    calls = held(thread)
    kept = calls if own else accepted(calls)
    return Recalled(thread, questions(kept), own, len(kept) == len(calls))


def given_name(name: str, settings: Mapping[str, Any]) -> str | None:
    """The name that the body gave a recorded thread; None for one that was numbered."""
    return name if settings.get("named") else None
