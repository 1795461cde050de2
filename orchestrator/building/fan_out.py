"""A step's `for_each`, from what is declared to what a run needs: where the list stands, what an entry of it is, what
names it. Everything that can be known before the list exists is checked here; what only the list can say (two entries
of one key, too many of them) is checked by `orchestrator.fan_out` before anything is paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestrator.contracts import Contract, schemas
from orchestrator.expressions import Expression, ExpressionError, dashed_name, parse
from orchestrator.faults import nearest
from orchestrator.graph import ForEach, Read
from orchestrator.ids import digest, variable
from orchestrator.spec import ForEachSpec

if TYPE_CHECKING:
    from orchestrator.building import Building
    from orchestrator.building.steps import StepBuilding

_KEY_TYPES: Final = frozenset({"string", "integer"})


def takes(building: Building, reader: str, source: str) -> Literal["one", "each", "sibling"]:
    """What a step takes of another that it reads: its value, all of its items, or the one of the same key."""
    theirs = family(building, source)
    if theirs is None:
        return "one"
    return "sibling" if theirs == family(building, reader) else "each"


def family(building: Building, name: str) -> str | None:
    """The step whose entries a fan-out is made for: itself, or the first of those it is joined with; None for a step
    that is none."""
    if building.uses.has_items(name):
        return building.uses.target(name)  # of a used pipeline: nothing here is joined with it
    name = building.uses.origin(name)
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        spec = building.spec.steps[name].for_each if name in building.spec.steps else None
        if spec is None:
            return None
        if spec.same is None:
            return name
        name = spec.same
    return None  # steps that are joined in a circle wait for each other: reported by the order


def reads_of(step: StepBuilding, for_each: ForEach, declared: Sequence[Read]) -> tuple[Read, ...]:
    """What an item reads: what the step declares, what the joined step made of the same entry, and its entry."""
    reads = list(declared)
    same = for_each.same
    if same is not None and same not in {read.name for read in declared}:
        contract = step.building.source_contract(same, "step")
        if contract is not None:
            reads.append(Read(same, "step", contract, None, None, for_each.place, takes="sibling"))
    return (*reads, Read(for_each.item, "entry", for_each.entry, None, None, for_each.place, of=for_each.source))


def names_of(spec: ForEachSpec, declared: Sequence[str]) -> tuple[str, ...]:
    """The names of all that an item reads."""
    joined = [spec.same] if spec.same is not None and spec.same not in declared else []
    return (*declared, *joined, spec.item)


def for_each_of(step: StepBuilding, spec: ForEachSpec) -> ForEach | None:
    """None where there is a fault, which is reported."""
    return _FanOut(step, spec).built()


class _FanOut:
    def __init__(self, step: StepBuilding, spec: ForEachSpec) -> None:
        self.step = step
        self.building = step.building
        self.spec = spec

    def built(self) -> ForEach | None:
        self._check_item()
        found = self._joined() if self.spec.same is not None else self._listed()
        if found is None:
            return None
        where = self._where(found.entry)
        return replace(found, item=self.spec.item, where=where)

    def _error(self, code: str, message: str, key: str, hint: str | None = None) -> None:
        self.step.error(code, message, self.step.of("for_each", key), hint)

    def _check_item(self) -> None:
        """Its name stands beside those of the step's reads: in templates, as a keyword of functions."""
        item = self.spec.item
        known = {variable(name): name for name in (*self.building.kinds(), "inputs", "block", "quote")}
        if variable(item) in known:
            hint = "give it a name of its own, as item: competitor"
            self._error("P263", f"its entries are called {item}, and so is something else", "item", hint)

    # --- the list

    def _listed(self) -> ForEach | None:
        spec = self.spec
        if spec.in_ is None:
            return None  # reported with the file
        source, rest = self.building.uses.split(spec.in_)
        kind = self.building.kinds().get(source)
        if kind is None:
            self.building.unknown(f"the list of step {self.step.name} is in", source, self.step.of("for_each", "in"))
            return None
        if source == self.step.name:
            self._error("P203", "its list is its own value", "in", "a list is made by another step, or given")
            return None
        if kind == "step" and self.building.has_items(source):
            hint = f"write same: {source}, to go on with its entries"
            self._error("P260", f"{source} is made for each entry of a list, it is no list itself", "in", hint)
            return None
        whole = self.step.building.source_contract(source, kind)
        if whole is None:
            return None
        path = tuple(part for part in rest.split(".") if part)
        entry = self._entry(whole, source, path)
        if entry is None:
            return None
        return ForEach(
            item=spec.item,
            source=source,
            source_kind="input" if kind == "input" else "step",
            path=path,
            key=self._key(entry),
            where=None,
            at_most=spec.at_most,
            over=spec.over,
            concurrency=spec.concurrency,
            on_error=spec.on_error,
            same=None,
            entry=entry,
            whole=whole,
            place=self.step.of("for_each"),
        )

    def _entry(self, whole: Contract, source: str, path: tuple[str, ...]) -> Contract | None:
        """The contract of one entry: what the list's says, of the form that the list's schema gives its entries."""
        if whole.schema is None or not whole.fields:
            hint = "a list stands in a field of a step or input whose contract has a schema"
            self._error("P260", f"{source} is {_form(whole)} and holds no list", "in", hint)
            return None
        schema: Mapping[str, Any] = whole.schema
        for at, part in enumerate(path):
            known = schemas.properties(schema, whole.schema)
            if part not in known:
                where = ".".join((source, *path[:at]))
                hint = nearest(part, list(known)) if known else "name a field that holds a list"
                self._error("P260", f"{where} has no field {part}", "in", hint)
                return None
            schema = known[part]
        entries = [b["items"] for b in schemas.branches(schema, whole.schema) if isinstance(b.get("items"), Mapping)]
        if not entries:
            lists = [name for name, known in schemas.properties(schema, whole.schema).items() if "items" in known]
            hint = f"write in: {'.'.join((source, *path, lists[0]))}" if lists else "name a field that holds a list"
            self._error("P260", f"{'.'.join((source, *path))} is no list whose entries are described", "in", hint)
            return None
        return _entry_contract(whole, entries[0], path)

    def _key(self, entry: Contract) -> tuple[str, ...]:
        """The field that names an entry; none where an entry is a text or a number itself."""
        key = self.spec.key
        if entry.form == "text" or (
            entry.schema is not None and not entry.fields and _types(entry.schema) <= _KEY_TYPES
        ):
            if key is not None:
                self._error("P261", f"its entries are no objects, so they have no {key}", "key", "leave key out")
            return ()
        if key is None:
            hint = (
                f"write key: {_likely(entry)}" if entry.fields else "let the entries be texts, or objects with a name"
            )
            self._error("P261", "nothing says which field names an entry: key is missing", "key", hint)
            return ()
        path = tuple(key.split("."))
        schema: Mapping[str, Any] = entry.schema or {}
        for part in path:
            known = schemas.properties(schema, entry.schema or {})
            if part not in known:
                self._error("P261", f"its entries have no field {key}", "key", nearest(key, list(entry.fields)))
                return ()
            schema = known[part]
        if not any(_types(branch) & _KEY_TYPES for branch in schemas.branches(schema, entry.schema or {})):
            self._error("P261", f"{key} is neither a text nor a whole number, so it names no entry", "key")
        return path

    # --- the entries of another

    def _joined(self) -> ForEach | None:
        spec, same = self.spec, self.spec.same
        assert same is not None
        for key in ("in", "key"):
            if getattr(spec, "in_" if key == "in" else key) is not None:
                self._error("P262", f"with same its entries and keys are those of {same}", key, f"leave {key} out")
        other = self.building.spec.steps.get(same)
        if other is None or other.for_each is None or same == self.step.name:
            if other is None and same not in self.building.kinds():
                self.building.unknown(f"step {self.step.name} is joined with", same, self.step.of("for_each", "same"))
            elif not self.building.damaged("steps", same):
                self._error("P262", f"{same} is no other step with for_each", "same", "write in: STEP.FIELD for a list")
            return None
        root = family(self.building, same)
        found = self.building.for_each(root) if root is not None else None
        if found is None:
            return None
        return replace(
            found,
            at_most=spec.at_most if "at_most" in spec.model_fields_set else found.at_most,
            over=spec.over,
            concurrency=spec.concurrency,
            on_error=spec.on_error,
            same=same,
            place=self.step.of("for_each"),
        )

    # --- which entries

    def _where(self, entry: Contract) -> Expression | None:
        if self.spec.where is None:
            return None
        try:
            expression = parse(self.spec.where)
        except ExpressionError as fault:
            self._error("P229", f"where {self.spec.where!r}: {fault.message}", "where", fault.hint)
            return None
        dashed = dashed_name(expression, [*entry.fields, self.spec.item])
        if dashed is not None:
            message = f"{dashed} is read as a subtraction in where {expression.text!r}"
            self._error("P229", message, "where", f"write {variable(dashed)}")
            return None
        for use in expression.uses:
            path = use.path[1:] if use.path[0] == variable(self.spec.item) else use.path
            known = schemas.at_path(path, entry.schema or {}, _by_variable) if path else 0
            if known < len(path) or (path and entry.schema is None):
                hint = nearest(path[known], [variable(field) for field in entry.fields]) if entry.fields else None
                message = f"where {expression.text!r}: an entry has no field {'.'.join(path[: known + 1])}"
                self._error("P229", message, "where", hint)
        return expression


def _entry_contract(whole: Contract, items: Mapping[str, Any], path: tuple[str, ...]) -> Contract:
    root = whole.schema or {}
    schema = {**schemas.resolve(items, root), **({"$defs": root["$defs"]} if "$defs" in root else {})}
    text = schema.get("type") == "string"
    return replace(
        whole,
        about=f"One entry of {'.'.join(path) or 'the list'}. {whole.about}",
        max_tokens=None,
        form="text" if text else "json",
        schema=None if text else schema,
        model=None,
        fields=() if text else tuple(schemas.properties(schema, schema)),
        customer_fields=() if text else schemas.customer_fields(schema),
        digest=digest([whole.digest, list(path)]),
    )


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type")
    return set(kinds) if isinstance(kinds, list) else {kinds} if isinstance(kinds, str) else set()


def _likely(entry: Contract) -> str:
    return next((name for name in ("key", "slug", "id", "name") if name in entry.fields), entry.fields[0])


def _form(contract: Contract) -> str:
    return {"text": "text", "markdown": "Markdown", "file": "a file"}.get(contract.form, f"a {contract.name}")


def _by_variable(part: str, known: Mapping[str, Any]) -> str | None:
    return part if part in known else next((name for name in known if variable(name) == part), None)
