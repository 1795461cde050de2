"""Which steps are meant: one small language for the command line, pipeline files, the page and Python.

    tech-stack                 the step                     tag:costs          whose contract has the tag
    tech-stack+                and all that wait for it     kind:llm           of that kind
    +tech-stack                and all it waits for         status:failed      in that state
    1+tech-stack+2             one level up, two down       stale              no longer made of what stands now
    idea+                      all that an input reaches    cost-over:0.10     that cost more, in US dollars
    competitor-profile/acme    one item of a step with for_each
    study                      all steps of a pipeline that is used as a step; study.* means the same

Terms are joined with `and`, `or`, `not` and parentheses; `not` binds closest, then `and`, then `or`. Terms side by side
are a list: `a b` is `a or b`. Beside an `and` a list could be read in two ways, so there it is refused. A step that is
called like a word of the language is written `step:stale`.

Parsing knows no pipeline; choosing knows no text. Both are pure, and every error shows the place in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any, Final, NoReturn, Protocol, get_args

from orchestrator.errors import Place, UsageError
from orchestrator.ids import is_name
from orchestrator.values import StepRow, StepStatus

MAX_NESTING: Final = 50
FORMS: Final = (
    "Write step names, name+ (and all below), +name (and all above), tag:T, status:failed, stale, kind:llm,"
    " cost-over:0.10, joined with and, or, not, ( )."
)
_STATUSES: Final[tuple[str, ...]] = get_args(StepStatus)
_WORDS: Final = ("and", "or", "not")
_KEYS: Final = ("tag", "status", "kind", "cost-over", "step")
_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
_NAMED: Final = re.compile(
    r"(?:(?P<above>\d{0,9})(?P<up>\+))?(?:step:)?(?P<name>[^+]+)(?:(?P<down>\+)(?P<below>\d{0,9}))?"
)
_ALL: Final = 10**9  # more levels than any pipeline has


@dataclass(frozen=True, slots=True)
class Named:
    """A step or input, with so many levels above and below it."""

    at: int
    name: str
    above: int = 0
    below: int = 0


@dataclass(frozen=True, slots=True)
class Having:
    """`key:value`; `stale` is a key without a value."""

    at: int
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    term: Term


@dataclass(frozen=True, slots=True)
class Joined:
    """Two or more terms: all of them (`and`), or any (`or`)."""

    every: bool
    terms: tuple[Term, ...]


class Declared(Protocol):
    """A step as far as a selection asks about it: that of a graph, or one that is only declared yet."""

    @property
    def kind(self) -> str: ...
    @property
    def parents(self) -> Sequence[str]: ...
    @property
    def reads(self) -> Sequence[Any]: ...
    @property
    def contract(self) -> Any: ...


class Selectable(Protocol):
    """A pipeline as far as a selection asks about it."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def steps(self) -> Mapping[str, Declared]: ...
    @property
    def groups(self) -> Mapping[str, Sequence[str]]: ...


Term = Named | Having | Not | Joined


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection and its text, for messages."""

    text: str
    term: Term


# --- choosing ---------------------------------------------------------------------------------------------------------


def select(
    text: str, graph: Selectable, rows: Sequence[StepRow] | None = None, stale: Collection[str] = ()
) -> tuple[str, ...]:
    """The steps that a selection means, in topological order, and after each its items that are meant by themselves, as
    `step/key`. Raises UsageError where it means none.

    `rows` are those of a run (None: there is no run, so states and costs are not known), `stale` the names of its steps
    that are stale.
    """
    selection = parse(text)
    chosen = choose(selection, graph, rows, stale)
    if not chosen:
        raise UsageError(
            f'the selection "{" ".join(text.split())}" matches no step of {graph.name}',
            hint=f"Its steps: {', '.join(graph.steps)}.",
            code="nothing_selected",
        )
    return chosen


def choose(
    selection: Selection, graph: Selectable, rows: Sequence[StepRow] | None = None, stale: Collection[str] = ()
) -> tuple[str, ...]:
    """The same, without an error where nothing matches. Raises UsageError for words that the pipeline cannot answer."""
    chosen = _Choice(selection.text, graph, rows, frozenset(stale)).of(selection.term)
    items = [row.label for row in rows or () if row.item is not None and row.label in chosen]
    return tuple(
        found
        for name in graph.steps
        for found in (*([name] if name in chosen else []), *(item for item in items if item.startswith(f"{name}/")))
    )


class _Choice:
    """One pipeline, maybe one run, asked term by term."""

    def __init__(self, text: str, graph: Selectable, rows: Sequence[StepRow] | None, stale: frozenset[str]) -> None:
        self.text = text
        self.graph = graph
        self.rows = None if rows is None else [row for row in rows if row.name in graph.steps and not row.retired]
        self.stale = stale
        self.items = frozenset(row.label for row in self.rows or () if row.item is not None)
        self.every = frozenset(graph.steps) | self.items
        self.parents = {name: step.parents for name, step in graph.steps.items()}
        self.children = _children(graph)

    def of(self, term: Term) -> frozenset[str]:
        match term:
            case Named():
                return self._named(term)
            case Having():
                return self._having(term)
            case Not():
                return self.every - self.of(term.term)
            case Joined(every=True):
                return frozenset.intersection(*(self.of(part) for part in term.terms))
            case Joined():
                return frozenset.union(*(self.of(part) for part in term.terms))

    def _named(self, term: Named) -> frozenset[str]:
        name = term.name
        if "/" in name:
            return self._item(term)
        if name in self.graph.inputs and name not in self.graph.steps:
            if not term.below:
                message = f'"{name}" is an input, and inputs are not run'
                _refuse(self.text, term.at, message, f"Write {name}+ for the steps that it reaches.")
            return _reach([name], self.children, term.below) - {name}
        inside = self._group(name)
        if inside:
            return _reach(inside, self.parents, term.above) | _reach(inside, self.children, term.below)
        if name not in self.graph.steps:
            known = [*self.graph.steps, *self.graph.groups, *self.graph.inputs]
            hint = f"Its steps: {', '.join(self.graph.steps)}."
            _refuse(self.text, term.at, f'{self.graph.name} has no step "{name}"', _near(name, known, hint))
        return _reach([name], self.parents, term.above) | _reach([name], self.children, term.below)

    def _group(self, name: str) -> Sequence[str]:
        """The steps of a used pipeline, by the name of the step that uses it; none for any other name."""
        return self.graph.groups.get(name.removesuffix(".*"), ()) if name not in self.graph.steps else ()

    def _item(self, term: Named) -> frozenset[str]:
        """One item, and the steps around its step."""
        step, _, key = term.name.partition("/")
        around = self._named(Named(term.at, step, term.above, term.below)) - {step}
        if self.rows is None:
            message = f'"{term.name}" is an item, and {self.graph.name} is a pipeline, which has none'
            _refuse(self.text, term.at, message, "Name a run, as 12 or last.")
        if term.name not in self.items:
            keys = [row.item for row in self.rows if row.name == step and row.item]
            hint = f"Its items: {', '.join(keys[:20])}." if keys else f"{step} has no items."
            _refuse(self.text, term.at, f'{step} has no item "{key}"', _near(key, keys, hint))
        return around | {term.name}

    def _having(self, term: Having) -> frozenset[str]:
        steps = self.graph.steps
        match term.key:
            case "stale":
                if "stale" in steps:
                    message = '"stale" is a step here, and the word for stale steps'
                    _refuse(self.text, term.at, message, "Write step:stale for the step.")
                self._run(term)
                return self.stale & self.every
            case "tag":
                self._known(term, {tag for step in steps.values() for tag in step.contract.tags}, "no contract has")
                return frozenset(name for name, step in steps.items() if term.value in step.contract.tags)
            case "kind":
                self._known(term, {step.kind for step in steps.values()}, "no step is of")
                return frozenset(name for name, step in steps.items() if step.kind == term.value)
            case "status":
                return frozenset(row.label for row in self._run(term) if row.status == term.value)
            case _:
                return self._dearer(term)

    def _dearer(self, term: Having) -> frozenset[str]:
        cost: dict[str, Decimal] = {}
        for row in self._run(term):
            for name in dict.fromkeys((row.name, row.label)):  # an item's cost is also its step's
                cost[name] = cost.get(name, Decimal(0)) + (row.cost_usd or Decimal(0))
        return frozenset(name for name, spent in cost.items() if spent > Decimal(term.value))

    def _run(self, term: Having) -> Sequence[StepRow]:
        if self.rows is None:
            message = f'"{term.key}" asks about a run, and {self.graph.name} is a pipeline'
            _refuse(self.text, term.at, message, "Name a run, as 12 or last.")
        return self.rows

    def _known(self, term: Having, known: Iterable[str], none: str) -> None:
        """A word that nothing here has is a slip of the pen rather than an empty set."""
        words = sorted(known)
        if term.value not in words:
            hint = f"There is {', '.join(words)}." if words else "No contract has a tag: add tags: to its file."
            _refuse(self.text, term.at, f'{none} the {term.key} "{term.value}"', _near(term.value, words, hint))


def _children(graph: Selectable) -> Mapping[str, Sequence[str]]:
    """What waits for each step or reads each input."""
    children: dict[str, list[str]] = {name: [] for name in (*graph.inputs, *graph.steps)}
    for step_name, step in graph.steps.items():
        inputs = [read.name for read in step.reads if read.kind == "input"]
        for name in dict.fromkeys((*step.parents, *inputs)):
            children[name].append(step_name)
    return children


def _reach(start: Iterable[str], edges: Mapping[str, Sequence[str]], levels: int) -> frozenset[str]:
    """All that is at most so many edges away, the start included."""
    seen, level = set(start), set(start)
    while level and levels:
        level = {name for here in level for name in edges[here]} - seen
        seen |= level
        levels -= 1
    return frozenset(seen)


# --- parsing ----------------------------------------------------------------------------------------------------------


def parse(text: str) -> Selection:
    """Raises UsageError with the place of the first fault."""
    return Selection(text, _Parser(text).whole())


class _Parser:
    """Recursive descent over words and parentheses; how deep it goes is bounded."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
        self.next = 0
        self.depth = 0

    @property
    def word(self) -> str:
        """The word that comes next; empty at the end."""
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    @property
    def at(self) -> int:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text.rstrip())

    def whole(self) -> Term:
        if not self.tokens:
            _refuse(self.text, 0, "the selection is empty", FORMS)
        term = self._any()
        if self.word:
            self._fail('this ")" was never opened', "Leave it out, or open it with (.")
        return term

    def _any(self) -> Term:
        """`a or b`, and the list `a b`."""
        terms, listed = [self._every()], 0
        while self.word and self.word != ")":
            if self.word == "or":
                self.next += 1
            else:
                listed = self.next
            terms.append(self._every())
            if listed and any(isinstance(term, Joined) and term.every for term in terms):
                self.next = listed
                self._fail("a list beside an and can be read in two ways", 'Write "or" or "and" here.')
        return terms[0] if len(terms) == 1 else Joined(False, tuple(terms))

    def _every(self) -> Term:
        terms = [self._one()]
        while self.word == "and":
            self.next += 1
            terms.append(self._one())
        return terms[0] if len(terms) == 1 else Joined(True, tuple(terms))

    def _one(self) -> Term:
        if self.word == "not":
            return Not(self._deeper(self._one))
        if self.word == "(":
            return self._group()
        if not self.word or self.word == ")" or self.word in _WORDS:
            found = f'"{self.word}"' if self.word else "the end"
            self._fail(f"a step was expected here, not {found}", FORMS)
        return self._term()

    def _group(self) -> Term:
        opened = self.at
        term = self._deeper(self._any)
        if self.word != ")":
            _refuse(self.text, opened, 'this "(" is never closed', "Close it with ).")
        self.next += 1
        # So that a list beside it does not count it as an `and` without parentheses.
        return Joined(False, (term,))

    def _deeper(self, rule: Callable[[], Term]) -> Term:
        self.next += 1
        self.depth += 1
        if self.depth > MAX_NESTING:
            self._fail(f"this is nested more than {MAX_NESTING} deep", "Write it shorter.")
        term = rule()
        self.depth -= 1
        return term

    def _term(self) -> Term:
        word, at = self.word, self.at
        self.next += 1
        if word == "stale":
            return Having(at, "stale")
        key, colon, value = word.partition(":")
        if colon and not key.endswith("step"):
            return self._having(at, key, value)
        match = _NAMED.fullmatch(word)
        if match is None or not _is_reference(match["name"]):
            _refuse(self.text, at, f'"{word}" is not the name of a step', FORMS)
        return Named(at, match["name"], _levels(match["up"], match["above"]), _levels(match["down"], match["below"]))

    def _having(self, at: int, key: str, value: str) -> Having:
        if key not in _KEYS:
            _refuse(self.text, at, f'there is no "{key}:"', _near(key, _KEYS, FORMS))
        if not value:
            _refuse(self.text, at, f'"{key}:" has no value', "Write it without a space, as tag:costs.")
        if key == "status" and value not in _STATUSES:
            hint = _near(value, _STATUSES, f"There is {', '.join(_STATUSES)}.")
            _refuse(self.text, at, f'there is no status "{value}"', hint)
        if key == "cost-over" and not _is_amount(value):
            _refuse(self.text, at, f'"{value}" is not an amount of dollars', "Write cost-over:0.10.")
        return Having(at, key, value)

    def _fail(self, message: str, hint: str) -> NoReturn:
        _refuse(self.text, self.at, message, hint)


def _is_reference(text: str) -> bool:
    """A name, or of an item two; of all steps of a used pipeline `name.*`."""
    step, slash, key = text.partition("/")
    return is_name(step if slash else step.removesuffix(".*")) and (not slash or is_name(key))


def _levels(plus: str | None, count: str | None) -> int:
    """`+` alone is all levels."""
    if not plus:
        return 0
    return int(count) if count else _ALL


def _is_amount(text: str) -> bool:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return False
    return amount.is_finite() and amount >= 0


def _near(word: str, known: Iterable[str], otherwise: str) -> str:
    near = get_close_matches(word, list(known), n=1)
    return f'Did you mean "{near[0]}"?' if near else otherwise


def _shown(text: str) -> str:
    """Character for character, so that a caret below it stands right."""
    return "".join(char if char.isprintable() else " " for char in text)


def _refuse(text: str, at: int, message: str, hint: str) -> NoReturn:
    """The text with a caret stands below the message."""
    drawn = f"{message}\n    {_shown(text)}\n    {' ' * at}^" if text.strip() else message
    raise UsageError(drawn, hint=hint, code="selection", place=Place("selection", 1, at + 1))
