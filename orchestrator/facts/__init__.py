"""Facts about the customer are the record's, not the model's.

Told not to, models still answer "what is the customer's budget?" with whatever budget-like figure stands in the
context; repeating the guard does not measurably help. What helps is code. So a field marked `fact_of: customer` is
checked against the customer's own words, and a value that is not in them becomes null. Where the value leaked into the
rest of the answer too, the model is told once that it is wrong and how to get out; never asked whether it was right.

The same record, read the other way, is the facts block ahead of a task: what the customer has said, and what they have
not. It says "not stated" only where that can be known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from orchestrator.contracts import Contract, schemas
from orchestrator.contracts.rules import show
from orchestrator.facts.own_words import Text, locate, stands_in, take_apart, truth_of
from orchestrator.facts.quantities import Quantity, Role, agrees, role_of
from orchestrator.facts.units import MONEY, MONEY_WORDS, TIME, TIME_WORDS
from orchestrator.facts.wording import means_null, quote
from orchestrator.graph import Read
from orchestrator.ids import canonical_json, variable
from orchestrator.values import Artifact, FactBasis, Fault, Statement

QUOTE_LENGTH: Final = 120
ONE_LINE: Final = 200
HEADING: Final = "[Known about the customer]"

Reads = Sequence[tuple[Read, Artifact]]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A value that the customer's words do not hold. `found_in` names the read it was taken from, if any holds it;
    `instead` is what the customer's own answer to this field says, where there is one (else null)."""

    path: str
    value: Any
    found_in: str | None = None
    instead: Any = None


@dataclass(frozen=True, slots=True)
class FactsResult:
    """The checked value; why each fact in it is believed, by dotted path (`components[0].owner`); what was dropped.

    `faults` asserts each dropped value that also stands in another text field. It is meant for one re-ask: after that
    the value is good without them. A null where the schema wants a value is a schema fault, and found by `faults` of
    the contract.
    """

    value: Any
    facts: Mapping[str, FactBasis] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    statement: Statement
    text: Text
    label: str


def check_facts(contract: Contract, value: Any, statements: Sequence[Statement], reads: Reads = ()) -> FactsResult:
    """Keep of each customer field what the customer's words hold; the rest becomes null. Never raises on JSON data.

    `statements` are the customer's words and the record, without inputs left at their default; `reads` are the step's
    other artifacts, only to say where a dropped value came from. A one-line statement with the field's own name (`-` =
    `_`) supplies the fact whatever its form, if the model's value is not in it. An entry of a list that is not found
    is taken out of the list.
    """
    marked = _marked(contract)
    if not marked:
        return FactsResult(value)  # taking the customer's words apart is not free
    check = _Check(statements)
    result = value
    for path, schema in marked.items():
        leaf = re.split(r"[.\]]", path.removesuffix("[]"))[-1]
        visit = partial(check.settle, leaf, _Shape.of(schema, contract.schema or {}))
        result = _rewrite(result, re.findall(r"\[\]|[^.\[\]]+", path), "", visit)
    sources = [_Source.of(*pair) for pair in reads] if check.dropped else []
    dropped = tuple(_traced(drop, sources) for drop in check.dropped)
    elsewhere = [take_apart(text) for text in _texts(value, "", tuple(marked))] if dropped else []
    faults = tuple(_assert(drop, sources) for drop in dropped if _leaked(drop, elsewhere))
    return FactsResult(result, check.facts, dropped, faults)


def _marked(contract: Contract) -> dict[str, schemas.Schema]:
    """The outermost marked fields: a field inside a marked one is checked with it."""
    if contract.form != "json" or contract.schema is None:
        return {}
    found = {path: schema for path, schema, _ in schemas.marked_fields(contract.schema)}
    return {path: schema for path, schema in found.items() if not any(_inside(path, other) for other in found)}


def _inside(path: str, other: str) -> bool:
    return path.startswith((f"{other}.", f"{other}["))


Visit = Callable[[str, Any], Any]


def _rewrite(value: Any, parts: Sequence[str], path: str, visit: Visit) -> Any:
    """A copy of JSON data with the parts at a path replaced; what the path does not fit stays as it is."""
    if not parts:
        return visit(path, value)
    head, rest = parts[0], parts[1:]
    if head == "[]":
        entries = value if isinstance(value, list) else ()
        changed = [_rewrite(entry, rest, f"{path}[{at}]", visit) for at, entry in enumerate(entries)]
        return changed if isinstance(value, list) else value
    if isinstance(value, dict) and head in value:
        return {**value, head: _rewrite(value[head], rest, f"{path}.{head}".lstrip("."), visit)}
    return value


# --- one field --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a field's schema lets it be."""

    kinds: frozenset[str]
    nullable: bool
    free_text: bool
    options: tuple[Any, ...]

    @classmethod
    def of(cls, schema: schemas.Schema, root: schemas.Schema) -> _Shape:
        branches = schemas.branches(schema, root)
        kinds: set[str] = set()
        for branch in branches:
            kind = branch.get("type", ())
            kinds.update([kind] if isinstance(kind, str) else kind)
        options = tuple(option for branch in branches for option in _options(branch))
        ruled = any(key in branch for branch in branches for key in ("pattern", "format", "maxLength", "minLength"))
        nullable = schemas.accepts_null(schema, root)
        return cls(frozenset(kinds - {"null"}), nullable, not ruled and not options, options)


_ANY: Final = _Shape(frozenset(), nullable=True, free_text=False, options=())


def _options(branch: schemas.Schema) -> Sequence[Any]:
    return [branch["const"]] if "const" in branch else branch.get("enum") or ()


def _label(name: str) -> str:
    return variable(name).casefold().removeprefix("customer_")


class _Check:
    """Visits the marked fields; collects the facts believed and the values dropped."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        meant = [s for s in statements if not means_null(s.text)]
        self.said = [_Said(s, take_apart(s.text), _label(s.label or "")) for s in meant]
        self.facts: dict[str, FactBasis] = {}
        self.dropped: list[Dropped] = []

    def settle(self, name: str, shape: _Shape, path: str, value: Any) -> Any:
        """What becomes of a field's value. Inside objects and lists nothing is known of the shape."""
        if isinstance(value, dict):
            return {key: self.settle(key, _ANY, f"{path}.{key}", item) for key, item in value.items()}
        if isinstance(value, list):
            kept = self._entries(name, path, value)
            return None if value and not kept and shape.nullable else kept
        if value is None or (isinstance(value, str) and means_null(value)):
            return None
        basis = self.basis(name, value)
        if basis is None:
            value, basis = self._replaced(name, shape, path, value)
        if basis is not None:
            self.facts[path] = basis
        return value

    def _entries(self, name: str, path: str, value: Sequence[Any]) -> list[Any]:
        """The entries of a list that are found; an entry that is not cannot be null, so it is taken out."""
        kept: list[Any] = []
        for at, entry in enumerate(value):
            plain = not (entry is None or isinstance(entry, dict | list))
            if plain and means_null(str(entry)):
                continue
            if plain and self.basis(name, entry) is None:
                self.dropped.append(Dropped(f"{path}[{at}]", entry))
            else:
                kept.append(self.settle(name, _ANY, f"{path}[{len(kept)}]", entry))
        return kept

    def basis(self, name: str, value: Any) -> FactBasis | None:
        """Why a scalar is believed: the labelled statement first, then the others in order."""
        role, label = role_of(name), _label(name)
        for said in self._heard(label):
            span = locate(value, said.text, role, labelled=said.label == label)
            if span is not None:
                words = quote(said.text.folded, span, QUOTE_LENGTH)
                known = said.statement.kind == "record"
                return FactBasis("record" if known else "stated", words, said.statement.source)
        return None

    def _heard(self, label: str) -> list[_Said]:
        """The statements that may hold a field's fact.

        Where an input answers this very field, no other input does: a rival's price quoted in the brief is no budget
        of a customer who wrote "not set yet". What is said later in the conversation counts in any case.
        """
        answers = [said for said in self.said if said.label == label]
        others = [said for said in self.said if said.label != label and not said.statement.guarded]
        if any(said.statement.kind == "input" for said in answers):
            others = [said for said in others if said.statement.kind != "input"]
        return [*answers, *others]

    def _replaced(self, name: str, shape: _Shape, path: str, value: Any) -> tuple[Any, FactBasis | None]:
        """The customer's own one-line answer to this field, in the form the field takes; null where there is none."""
        instead = None
        if "[" not in path:
            answers = [s for s in self.said if s.label == _label(name) and _is_line(s.statement.text)]
            instead = _converted(answers[0], value, role_of(name), shape) if answers else None
        basis = None if instead is None else self.basis(name, instead)
        self.dropped.append(Dropped(path, value, instead=instead if basis else None))
        return (instead, basis) if basis else (None, None)


def _is_line(text: str) -> bool:
    return len(text) <= ONE_LINE and len(text.strip().splitlines()) == 1


def _converted(said: _Said, value: Any, role: Role, shape: _Shape) -> Any:
    """A statement as a value of the field: one of its options, a number in the right unit, yes or no, or its words."""
    text = said.statement.text.strip()
    if role.kinds and not (said.text.quantities or said.text.dates):
        return None  # "We have not set one yet" is no budget
    if shape.options:
        return next(
            (option for option in shape.options if isinstance(option, str) and _keys(option) == _keys(text)), None
        )
    if "boolean" in shape.kinds and truth_of(said.text) is not None:
        return truth_of(said.text)
    numeric = shape.kinds & {"number", "integer"}
    if numeric and (isinstance(value, int | float) or "string" not in shape.kinds):
        return _only_number(said.text, role, whole="number" not in numeric)
    return text if "string" in shape.kinds and shape.free_text else None


def _keys(text: str) -> list[str]:
    return [word.key for word in take_apart(text).words]


def _only_number(text: Text, role: Role, *, whole: bool) -> int | float | None:
    """The number of a statement that has one, with one meaning."""
    if len(text.quantities) != 1 or len(text.quantities[0].readings) != 1:
        return None
    said = text.quantities[0]
    if not agrees(Quantity(said.readings), said, role, labelled=True):
        return None
    amount = said.readings[0]
    if amount == amount.to_integral_value():
        return int(amount)
    return None if whole else float(amount)


# --- where a dropped value came from ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    guards: tuple[str, ...]
    text: Text

    @classmethod
    def of(cls, read: Read, artifact: Artifact) -> _Source:
        """A read as the model saw it: only its declared fields."""
        guards = (*read.contract.not_for, *([read.guard] if read.guard else []))
        text = artifact.body.decode("utf-8", "replace")
        if read.fields and read.contract.form == "json":
            value = read.contract.load(artifact.body)
            text = canonical_json({name: value[name] for name in read.fields if name in value}).decode()
        return cls(read.name, guards, take_apart(text))


def _traced(drop: Dropped, sources: Sequence[_Source]) -> Dropped:
    """Name the read that holds the value: with matching units first, then with units left out."""
    role = _role_at(drop.path)
    for lenient in (False, True):
        for source in sources:
            if stands_in(drop.value, source.text, role, lenient=lenient):
                return Dropped(drop.path, drop.value, source.name, drop.instead)
    return drop


def _role_at(path: str) -> Role:
    return role_of(re.sub(r"\[\d+\]", "", path).rsplit(".", 1)[-1])


def _texts(value: Any, path: str, marked: Sequence[str]) -> Iterator[str]:
    """The texts of an output outside its customer fields."""
    if path in marked:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}".lstrip("."), marked)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, f"{path}[]", marked)


def _leaked(drop: Dropped, elsewhere: Sequence[Text]) -> bool:
    role = _role_at(drop.path)
    return any(stands_in(drop.value, text, role) for text in elsewhere)


def _assert(drop: Dropped, sources: Sequence[_Source]) -> Fault:
    """The fault that says the value is wrong, where it came from, and the way out. Wording is measured: keep it."""
    shown = show(drop.value) if isinstance(drop.value, str) else f'"{show(drop.value)}"'
    source = next((source for source in sources if source.name == drop.found_in), None)
    guards = " ".join(source.guards) if source else ""
    if source is None:
        origin, short = "The customer has not stated that value.", ", which the customer has not stated"
    elif guards:
        origin = f"That value comes from {source.name}: {_ended(guards)}"
        short = f" from {source.name} ({show(guards)})"
    else:
        origin, short = f"That value comes from {source.name}.", f" from {source.name}"
    stated = f" The customer stated: {show(drop.instead)}." if drop.instead is not None else ""
    return Fault(
        kind="customer_fact",
        path=f"$.{drop.path}",
        message=f"{drop.path} used {shown}{short}",
        feedback=f'Check failed: "{drop.path}" contains {shown}. {origin}{stated} Answer again in the same form; '
        "if the customer has not stated it, use null.",
        value=drop.value,
    )


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


# --- what the model is told -------------------------------------------------------------------------------------------


def output_lines(contract: Contract) -> tuple[str, ...]:
    """One line per customer field, for the task's output description: its type, and what null means."""
    if contract.form != "json" or contract.schema is None:
        return ()
    root = contract.schema
    return tuple(_output_line(path, schema, root, must) for path, schema, must in schemas.marked_fields(root))


def _output_line(path: str, schema: schemas.Schema, root: schemas.Schema, must: bool) -> str:
    what = _type_words(schema, root)
    if must:
        return f'"{path}": {what}; as the customer stated it'
    return f'"{path}": {what} or null; null when the customer has not stated it'


def _type_words(schema: schemas.Schema, root: schemas.Schema) -> str:
    shape = _Shape.of(schema, root)
    options = [show(option) for option in shape.options if option is not None]
    if options:
        return " or ".join(options)
    items = next((b["items"] for b in schemas.branches(schema, root) if isinstance(b.get("items"), Mapping)), None)
    inner = f"list of {_type_words(items, root)}" if items is not None else "list"
    return " or ".join(inner if kind == "array" else kind for kind in sorted(shape.kinds)) or "value"


def facts_block(contract: Contract, statements: Sequence[Statement]) -> str | None:
    """What is known about the customer, for the place right ahead of the task; None where the output asks for nothing.

    Only words that the step sends anyway (`sent`) are repeated. A label stands under "not stated" only where no
    statement, sent or not, could hold it; where a free text might, neither is claimed.
    """
    marked = _marked(contract)
    if not marked:
        return None
    asked = {_label(path) for path in marked}
    known = [
        s
        for s in statements
        if s.label and _is_line(s.text) and not means_null(s.text) and (not s.guarded or _label(s.label) in asked)
    ]
    lines = [
        _known_line("Stated by the customer", [s for s in known if s.sent and s.kind != "record"]),
        _known_line("On record", [s for s in known if s.sent and s.kind == "record"]),
        _missing_line(contract, marked, statements),
    ]
    told = [line for line in lines if line]
    return "\n".join([HEADING, *told]) if told else None


def _known_line(title: str, statements: Sequence[Statement]) -> str:
    said = [f"{_spoken(s.label or '')}: {' '.join(s.text.split())}" for s in statements]
    return f"{title}: {'; '.join(dict.fromkeys(said))}" if said else ""


def _spoken(name: str) -> str:
    return _label(name).replace("_", " ")


def _missing_line(contract: Contract, marked: Mapping[str, schemas.Schema], statements: Sequence[Statement]) -> str:
    texts = [(s, take_apart(s.text)) for s in statements if not means_null(s.text)]
    missing: list[str] = []
    for path, schema in marked.items():
        name = re.split(r"[.\]]", path)[-1]
        shape = _Shape.of(schema, contract.schema or {})
        if "[]" not in path and not any(_may_hold(name, shape, s, text) for s, text in texts):
            missing.append(_spoken(name))
    return f"Not stated by the customer: {', '.join(dict.fromkeys(missing))}" if missing else ""


def _may_hold(name: str, shape: _Shape, statement: Statement, text: Text) -> bool:
    """Whether a statement may answer a field: by its label, a word of the field's name, or a figure of the right kind.

    A short labelled line answers its own label; a free text may hold anything that is not a figure or a date.
    """
    role = role_of(name)
    if _label(statement.label or "") == _label(name):
        return True
    if statement.guarded:
        return False
    if role.words & {word.key for word in text.words}:
        return True
    short = bool(statement.label) and _is_line(statement.text) and len(text.words) <= 5
    if "money" in role.kinds:
        return any(_may_be_money(quantity, short=short) for quantity in text.quantities)
    if "date" in role.kinds:
        return bool(text.dates) or (not short and _may_be_time(text))
    if "percent" in role.kinds:
        return any(quantity.unit == "percent" for quantity in text.quantities)
    if shape.kinds and shape.kinds <= {"number", "integer"}:
        return not short and bool(text.quantities)
    return not short and bool(text.words)


def _may_be_money(quantity: Quantity, *, short: bool) -> bool:
    """In a currency; or, in a free text, a number of nothing ("40k for it")."""
    if quantity.unit is None:
        return not short and (not quantity.nouns or bool(MONEY_WORDS & quantity.beside))
    return quantity.unit in MONEY


def _may_be_time(text: Text) -> bool:
    """A period, a year, or a word that tells a time without a figure."""
    told = any(quantity.unit in TIME or not (quantity.unit or quantity.nouns) for quantity in text.quantities)
    return told or any(word.key in TIME_WORDS for word in text.words)
