"""A pipeline declared in Python, as the data a YAML file would hold: one compiler for both faces.

Parameters become reads, return types become contracts, objects become references (`file.py:name`) under which they are
found again without being loaded a second time. Everything else, names, types, guards, budgets, is then checked by the
code that checks YAML, and becomes the same `PipelineSpec`. What can only be wrong in Python is reported here, at the
line of the function or parameter: a parameter that nothing can be read for, a type that several steps make, a result
that is no artifact.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from orchestrator.bodies.ctx import Ctx
from orchestrator.decision import Decision
from orchestrator.errors import Diagnostic, Place
from orchestrator.faults import nearest
from orchestrator.ids import variable
from orchestrator.project import Project
from orchestrator.python.declarations import (
    Declarations,
    InputDeclaration,
    Read,
    Source,
    StepDeclaration,
    kebab,
    mark_of,
)
from orchestrator.python.functions import Bound, bind
from orchestrator.python.references import Found
from orchestrator.python.sources import found, function_places, keyword_places, text_of
from orchestrator.python.uses import used
from orchestrator.spec import MISSING, PathKey
from orchestrator.yaml_nodes import KEY, Document

# What `p.input` takes as a type, in the words of a pipeline file; and what a parameter that reads one may be.
INPUT_TYPES: Final[Mapping[Any, str]] = {str: "text", int: "integer", float: "number", bool: "boolean", bytes: "file"}
READ_AS: Final[Mapping[str, tuple[Any, ...]]] = {
    "text": (str,),
    "string": (str,),
    "integer": (int, float),
    "number": (float,),
    "boolean": (bool,),
    "file": (bytes,),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Python pipeline as a document, and the objects that its references stand for, those it uses among them."""

    document: Document
    live: Mapping[str, Found]
    others: tuple[Document, ...]
    pipelines: Mapping[str, Declarations] = field(default_factory=dict)


def compile_pipeline(project: Project, declared: Declarations, path: Path) -> Compiled:
    """The document of a pipeline. Raises nothing for what was declared: faults stand in the document."""
    return _Compiler(project, declared, path).compiled()


@dataclass(frozen=True, slots=True)
class _Param:
    """A parameter of a step function: what it is annotated with."""

    name: str
    type: Any
    read: Read
    place: Place


@dataclass
class _Compiler:
    project: Project
    declared: Declarations
    path: Path
    live: dict[str, Found] = field(default_factory=dict)
    places: dict[PathKey, Place] = field(default_factory=dict)
    faults: list[Diagnostic] = field(default_factory=list)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    pipelines: dict[str, Declarations] = field(default_factory=dict)

    def compiled(self) -> Compiled:
        declared = self.declared
        self._place((), declared.place)
        data: dict[str, Any] = {"version": 1, "pipeline": declared.name, **declared.keys}
        for key in ("models", "defaults", "budget"):
            given = getattr(declared, key)
            data |= {key: dict(given)} if given else {}
        inputs = {entry.name: self._input(entry) for entry in self._once("inputs", "input", declared.inputs)}
        steps = {entry.name: self._step(entry) for entry in self._once("steps", "step", declared.steps)}
        data |= {"inputs": inputs} if inputs else {}
        data |= {"artifacts": self.artifacts} if self.artifacts else {}
        data["steps"] = steps
        data |= {"outputs": [_named(source) for source in declared.outputs]} if declared.outputs else {}
        return Compiled(self._document(data), self.live, self._others(), self.pipelines)

    def _document(self, data: dict[str, Any]) -> Document:
        file = self._shown(self.declared.place.file)
        text = self.texts.get(file, "")
        document = Document(file, text, text.splitlines(), data, self.places)
        document.diagnostics = [*(self._told(fault) for fault in self.declared.faults), *self.faults]
        return document

    def _others(self) -> tuple[Document, ...]:
        main = self._shown(self.declared.place.file)
        return tuple(Document(file, text, text.splitlines()) for file, text in self.texts.items() if file != main)

    def _once(self, section: str, what: str, entries: Sequence[Any]) -> Iterator[Any]:
        """The entries by name, each once, their places noted; of a cell that is run again the last."""
        if self.declared.file is None:
            entries = list({entry.name: entry for entry in entries}.values())
        seen: dict[str, Place] = {}
        for entry in entries:
            if entry.name in seen:
                hint = f"rename one of them; the first stands at {self._at(seen[entry.name])}"
                self._fault("P307", f"there are two {what}s {entry.name}", entry.place, hint)
                continue
            seen[entry.name] = entry.place
            self._place((section, entry.name), entry.place)
            self._place((section, entry.name, KEY), entry.place)
            for key, place in keyword_places(entry.place).items():
                self._place((section, entry.name, key), place)
            yield entry

    # --- places and faults

    def _shown(self, file: str) -> str:
        return self.project.display(Path(os.path.realpath(file))) if os.path.isfile(file) else file

    def _at(self, place: Place) -> Place:
        """A place as messages show it; its file's text is kept, for the line that a fault points at."""
        file = self._shown(place.file)
        if file not in self.texts:
            self.texts[file] = text_of(place.file)
        return Place(file, place.line, place.column)

    def _place(self, path: PathKey, place: Place) -> None:
        self.places[path] = self._at(place)

    def _fault(self, code: str, message: str, place: Place, hint: str | None = None) -> None:
        self.faults.append(self._told(Diagnostic(code, message, place, hint)))

    def _told(self, fault: Diagnostic) -> Diagnostic:
        if fault.place is None:
            return fault
        place = self._at(fault.place)
        lines = self.texts[place.file].splitlines()
        source = lines[place.line - 1] if 0 < place.line <= len(lines) else None
        return Diagnostic(fault.code, fault.message, place, fault.hint, source, fault.level)

    # --- contracts and inputs

    def _contract(self, cls: Any) -> str | None:
        """The contract name of an artifact type, the contract itself among the pipeline's; None for any other type."""
        mark = mark_of(cls)
        if mark is None:
            return None
        keys = dict(mark.keys)
        if "schema" not in keys:
            keys["schema"] = self._reference(cls)
        if self.artifacts.setdefault(mark.name, keys) != keys:
            self._fault("P307", f"two artifact types are called {mark.name}", mark.place, "give one of them a `name`")
        elif ("artifacts", mark.name) not in self.places:
            self._place(("artifacts", mark.name), mark.place)
            self._place(("artifacts", mark.name, KEY), mark.place)
        return mark.name

    def _reference(self, value: Any) -> str:
        """The reference under which a live object is found again."""
        reference = found(self.project, value, self.path)
        self.live[reference.ref] = reference
        return reference.ref

    def _input(self, entry: InputDeclaration) -> dict[str, Any]:
        words = _words(entry.type)
        if words:
            return {"type": "string", "enum": words, **entry.keys}
        kind = entry.type if isinstance(entry.type, str) else INPUT_TYPES.get(entry.type) or self._contract(entry.type)
        if kind is None:
            hint = "one of str, int, float, bool, bytes, a Literal of words, an @artifact class, or a contract's name"
            shown = _type_name(entry.type)
            self._fault("P302", f"input {entry.name}: {shown} is no type of an input", entry.place, hint)
            kind = "text"
        mark = mark_of(entry.type)
        said = {"about": mark.keys["about"]} if mark is not None else {}
        return {"type": kind, **said, **entry.keys}

    # --- steps

    def _step(self, entry: StepDeclaration) -> dict[str, Any]:
        data: dict[str, Any] = {}
        if entry.function is not None:
            self.places |= {("steps", entry.name, KEY): self._at(function_places(entry.function)[""])}
            data |= self._function(entry, entry.function)
        else:
            data |= {"reads": [_read_data(_as_read(read)) for read in entry.reads]} if entry.reads else {}
            data |= {} if "gate" in entry.keys else self._produces(entry.name, entry.produces, entry.place)
        data |= {"needs": [_named(source) for source in entry.needs]} if entry.needs else {}
        data |= {"tools": [self._tool(tool) for tool in entry.tools]} if entry.tools else {}
        data |= {"checks": [self._check(check) for check in entry.checks]} if entry.checks else {}
        return {**data, **entry.keys, **used(entry, self.pipelines)}

    def _function_ref(self, value: Any) -> Any:
        return self._reference(value) if callable(value) else value

    def _tool(self, tool: Any) -> Any:
        if not isinstance(tool, Mapping):
            return self._function_ref(tool)
        returns = tool.get("returns")
        contract = {"returns": self._contract(returns)} if isinstance(returns, type) else {}
        timed = {"timeout": duration(tool["timeout"])} if isinstance(tool.get("timeout"), int | float) else {}
        return {**tool, **contract, **timed, "tool": self._function_ref(tool.get("tool"))}

    def _check(self, check: Any) -> Any:
        return {"python": self._reference(check)} if callable(check) else check

    def _produces(self, step: str, produces: Any, place: Place) -> dict[str, Any]:
        """The `produces` of a step, left out where its contract is called like it."""
        if produces is None or isinstance(produces, str):
            name = produces
        else:
            name = self._contract(produces)
            if name is None:
                shown = _type_name(produces)
                hint = f'write @artifact(about="…", not_for=[…]) above {shown}'
                self._fault("P305", f"step {step} makes {shown}, which is no artifact type", place, hint)
                name = kebab(shown)
                self._stand_in(name)
        return {"produces": name} if name is not None and name != step else {}

    def _function(self, entry: StepDeclaration, function: Callable[..., Any]) -> dict[str, Any]:
        places = function_places(function)
        hints = self._hints(entry, function, places[""])
        if hints is None:  # as it is written, a ctx is seen all the same: what else is said of the step may be right
            given = inspect.signature(function).parameters.values()
            ctx = next((parameter.name for parameter in given if parameter.annotation in (Ctx, "Ctx")), None)
            self._stand_in(entry.name)
            return {"python": self._bound(function, ctx, [])}
        ctx = next((name for name, kind in hints.items() if kind is Ctx and name != "return"), None)
        reads: list[Any] = []
        bound: list[Bound] = []
        item = _item(entry)
        for param in self._params(entry, function, hints, places):
            if param.name == item:
                bound.append(Bound(param.name, param.name, _projection(param.type, None)))
                continue
            if param.read.select is not None:
                what = f"step {entry.name}: the parameter {param.name} is a selection, which has no one type"
                self._fault("P302", what, param.place, "read each by a parameter of its own, or use p.llm")
                continue
            if param.read.from_ is not None:
                self._earlier(entry, param, reads, bound)
                continue
            each = _values_of(param.type)
            name = self._source(entry, param if each is None else replace(param, type=each))
            if name is None:
                continue
            if not self._check_each(entry, param, name, each is not None):
                continue
            if each is not None:
                reads.append(_read_data(Read(name, guard=param.read.guard, default=param.read.default)))
                bound.append(Bound(variable(name), param.name, _each_converter(each)))
                continue
            read = param.read
            whole = Read(name, fields=read.fields, guard=read.guard, require=read.require, default=read.default)
            reads.append(_read_data(whole))
            bound.append(Bound(variable(name), param.name, self._converter(entry, param, name)))
        if ctx is not None and not inspect.iscoroutinefunction(function):
            self._fault("P304", f"step {entry.name} has a ctx and is not async", places[""], "write `async def`")
        data = {"python": self._bound(function, ctx, bound), **({"reads": reads} if reads else {})}
        return {**data, **self._result(entry, hints, places[""])}

    def _earlier(self, entry: StepDeclaration, param: _Param, reads: list[Any], bound: list[Bound]) -> None:
        """What an earlier run made, under the parameter's name; its type says the contract."""
        read, kind = param.read, param.type
        contract = self._contract(kind)
        if read.source is None or contract is None:
            what = f"step {entry.name}: the parameter {param.name} is read from an earlier run"
            wrong = "no step is named" if read.source is None else f"{_type_name(kind)} is no artifact type"
            hint = f'name the step, and let the type be what it made: Read("{entry.name}", from_="{read.from_}")'
            self._fault("P302", f"{what}, and {wrong}", param.place, hint)
            return
        name = read.as_ or kebab(param.name)
        reads.append({**_read_data(read), "as": name, "type": contract})
        bound.append(Bound(variable(name), param.name, _projection(kind, read.fields)))

    def _check_each(self, entry: StepDeclaration, param: _Param, name: str, each: bool) -> bool:
        """Whether one value or one for each key is wanted as there is. What a joined step reads of the other is one."""
        maker = next((step for step in self.declared.steps if step.name == name), None)
        many = maker is not None and "for_each" in maker.keys and "for_each" not in entry.keys
        if many == each:
            return True
        what = f"step {entry.name}: the parameter {param.name} is a {_type_name(param.type)}"
        kind = _type_name(param.type)
        if many:
            self._fault("P306", f"{what}, and {name} is one for each key", param.place, f"write Mapping[str, {kind}]")
        else:
            self._fault("P306", f"{what}, and {name} is one value", param.place, "let the type be what it reads")
        return False

    def _bound(self, function: Callable[..., Any], ctx: str | None, reads: Sequence[Bound]) -> str:
        """The reference of the function as the engine calls it."""
        reference = found(self.project, bind(function, ctx, reads), self.path)
        self.live[reference.ref] = reference
        return reference.ref

    def _stand_in(self, name: str) -> None:
        """A contract in place of one whose fault is reported, so that the rest can be checked."""
        self.artifacts.setdefault(name, {"about": "-", "not_for": "none", "schema": "text"})

    def _result(self, entry: StepDeclaration, hints: Mapping[str, Any], place: Place) -> dict[str, Any]:
        if "return" in hints:
            return self._produces(entry.name, hints["return"], place)
        hint = "write -> and the artifact type it returns"
        self._fault("P305", f"step {entry.name} does not say what it returns", place, hint)
        self._stand_in(entry.name)
        return {}

    def _hints(self, entry: StepDeclaration, function: Any, place: Place) -> dict[str, Any] | None:
        try:
            return typing.get_type_hints(function, localns=dict(entry.names), include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            hint = "import the types it names at the top of the file"
            self._fault("P304", f"step {entry.name} has an annotation that cannot be read: {error}", place, hint)
            return None

    def _params(
        self, entry: StepDeclaration, function: Any, hints: Mapping[str, Any], places: Mapping[str, Place]
    ) -> Iterator[_Param]:
        for parameter in inspect.signature(function).parameters.values():
            place = places.get(parameter.name, places[""])
            if hints.get(parameter.name) is Ctx:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                message = f"step {entry.name}: the parameter {parameter.name} cannot be given by name"
                self._fault("P304", message, place, "name every parameter: each is a read")
            elif parameter.name not in hints:
                message = f"step {entry.name}: the parameter {parameter.name} has no type"
                self._fault("P304", message, place, "its type says what it reads")
            else:
                kind, read = _split(hints[parameter.name])
                yield _Param(parameter.name, kind, read, place)

    # --- what a parameter reads

    def _source(self, entry: StepDeclaration, param: _Param) -> str | None:
        """The step or input that a parameter reads; None after a fault."""
        if param.read.source is not None:
            return param.read.source
        if param.type is Decision:
            return self._of_gate(entry, param)
        contract = self._contract(param.type)
        return self._of_type(entry, param, contract) if contract is not None else self._of_name(entry, param)

    def _of_type(self, entry: StepDeclaration, param: _Param, contract: str) -> str | None:
        makers = [s.name for s in self.declared.steps if s.name != entry.name and self._makes(s) == contract]
        makers = makers or [i.name for i in self.declared.inputs if self._makes(i) == contract]
        if len(makers) == 1:
            return makers[0]
        what = f"step {entry.name}: the parameter {param.name} is a {_type_name(param.type)}"
        if makers:
            meant = next((name for name in makers if variable(name) == param.name), makers[0])
            hint = f'say which: Annotated[{_type_name(param.type)}, Read("{meant}")]'
            self._fault("P303", f"{what}, which {_list(makers)} make", param.place, hint)
        else:
            self._fault("P302", f"{what}, which no step makes", param.place, "add a step that returns it, or an input")
        return None

    def _of_gate(self, entry: StepDeclaration, param: _Param) -> str | None:
        gates = [step.name for step in self.declared.steps if "gate" in step.keys]
        named = next((name for name in gates if variable(name) == param.name), None)
        if named is not None or len(gates) == 1:
            return named or gates[0]
        what = f"step {entry.name}: the parameter {param.name} is a Decision"
        if gates:
            hint = f'say which: Annotated[Decision, Read("{gates[0]}")]'
            self._fault("P303", f"{what}, which {_list(gates)} make", param.place, hint)
        else:
            self._fault("P302", f"{what}, and there is no gate", param.place, "add one: p.gate(…)")
        return None

    def _makes(self, entry: StepDeclaration | InputDeclaration) -> str | None:
        """The name of the contract that a step's or input's value has."""
        if isinstance(entry, InputDeclaration):
            kind = entry.type
        elif entry.function is None:
            own = None if "uses" in entry.keys else entry.name  # what a used pipeline makes, it says itself
            kind = own if entry.produces is None else entry.produces
        else:
            try:
                kind = typing.get_type_hints(entry.function, localns=dict(entry.names)).get("return")
            except (NameError, TypeError, AttributeError, SyntaxError):
                return None
        if isinstance(kind, str):
            return kind
        mark = mark_of(kind)
        return mark.name if mark is not None else None

    def _of_name(self, entry: StepDeclaration, param: _Param) -> str | None:
        names = [i.name for i in self.declared.inputs]
        named = next((name for name in names if variable(name) == param.name), None)
        if named is not None:
            return named
        message = f"step {entry.name}: the parameter {param.name} is no artifact, and there is no input of that name"
        steps = [s.name for s in self.declared.steps if variable(s.name) == param.name]
        if steps:
            hint = f'to read the step: Annotated[{_type_name(param.type)}, Read("{steps[0]}")]'
        elif any(nearest(param.name, [variable(name)]).startswith("Did you mean") for name in names):
            hint = nearest(param.name, [variable(name) for name in names])
        else:
            hint = f'declare it: p.input("{kebab(param.name)}", {_type_name(param.type)}, about="…")'
        self._fault("P302", message, param.place, hint)
        return None

    def _converter(self, entry: StepDeclaration, param: _Param, source: str) -> Callable[[Any], Any] | None:
        """How the value that is read becomes what the parameter wants; None: it is that already."""
        makers: list[StepDeclaration | InputDeclaration] = [*self.declared.steps, *self.declared.inputs]
        maker = next((entry for entry in makers if entry.name == source), None)
        given = maker.type if isinstance(maker, InputDeclaration) else None
        word = "string" if _words(given) else given if isinstance(given, str) else INPUT_TYPES.get(given)
        if word is not None and word in READ_AS:
            self._check_word(entry, param, source, word)
            return None
        if param.read.fields is not None:
            self._check_projection(entry, param, param.read.fields)
        elif maker is not None and mark_of(param.type) is not None:
            self._check_type(entry, param, maker)
        return _projection(param.type, param.read.fields)

    def _check_word(self, entry: StepDeclaration, param: _Param, source: str, word: str) -> None:
        if param.type not in (*READ_AS[word], Any, object) and not self._same_words(param, source):
            what = f"step {entry.name}: the parameter {param.name} is a {_type_name(param.type)}"
            hint = f"write {param.name}: {READ_AS[word][0].__name__}"
            self._fault("P306", f"{what}, and the input {source} is {word}", param.place, hint)

    def _same_words(self, param: _Param, source: str) -> bool:
        """Whether the parameter is a Literal that takes every word of the input."""
        given = next((entry.type for entry in self.declared.inputs if entry.name == source), None)
        taken = _words(param.type)
        return bool(taken) and bool(_words(given)) and set(_words(given)) <= set(taken)

    def _check_type(self, entry: StepDeclaration, param: _Param, maker: StepDeclaration | InputDeclaration) -> None:
        made = self._makes(maker)
        if made is not None and made != self._contract(param.type):
            what = f"step {entry.name}: the parameter {param.name} is a {_type_name(param.type)}"
            self._fault("P306", f"{what}, and {maker.name} is a {made}", param.place, "let the type be what it reads")

    def _check_projection(self, entry: StepDeclaration, param: _Param, fields: tuple[str, ...]) -> None:
        kind = param.type
        needs = [n for n, f in kind.model_fields.items() if f.is_required()] if _is_model(kind) else []
        lacking = [name for name in needs if name not in fields]
        if lacking or mark_of(kind) is not None:
            message = f"step {entry.name}: the parameter {param.name} takes the fields {_list(fields)} only"
            hint = f"give it a model of those fields; {_type_name(kind)} needs {_list(lacking or needs)}"
            self._fault("P306", message, param.place, hint)


# --- small questions --------------------------------------------------------------------------------------------------


def _split(hint: Any) -> tuple[Any, Read]:
    """A parameter's type, without `| None`, and its `Read`."""
    read = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Read)), None)
    kind = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    choices = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    if len(choices) == 1 and type(None) in typing.get_args(kind):
        kind = choices[0]
    return kind, read or Read()


def _projection(kind: Any, fields: tuple[str, ...] | None) -> Callable[[Any], Any]:
    """The value, or its fields, as a model of the author's; JSON data where the parameter is no model."""

    def convert(value: Any) -> Any:
        if value is None or (isinstance(kind, type) and isinstance(value, kind)):
            return value
        data = value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
        if fields is not None and isinstance(data, dict):
            data = {name: data[name] for name in fields if name in data}
        if _is_model(kind):
            return kind.model_validate(data)
        return kind(data) if isinstance(kind, type) and issubclass(kind, str) and isinstance(data, str) else data

    return convert


def _item(entry: StepDeclaration) -> str | None:
    """The parameter that takes the entry, in a function that is called for each of a list."""
    for_each = entry.keys.get("for_each")
    return variable(str(for_each.get("item", "item"))) if isinstance(for_each, Mapping) else None


def _values_of(kind: Any) -> Any:
    """`T` of `Mapping[str, T]` or `dict[str, T]`, where T is an artifact type; else None."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) in (Mapping, dict) and len(args) == 2 and args[0] is str and mark_of(args[1]):
        return args[1]
    return None


def _each_converter(kind: Any) -> Callable[[Any], Any]:
    one = _projection(kind, None)
    return lambda values: {key: one(value) for key, value in values.items()}


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _as_read(read: Any) -> Read:
    return read if isinstance(read, Read) else Read(read)


def _named(source: Any) -> Any:
    return source.name if isinstance(source, Source) else source


def _words(kind: Any) -> list[str]:
    """The words of a `Literal` of words; empty for any other type."""
    words = list(typing.get_args(kind)) if typing.get_origin(kind) is typing.Literal else []
    return words if all(isinstance(word, str) for word in words) else []


def _read_data(read: Read) -> Any:
    data: dict[str, Any] = {} if read.source is None and read.select is not None else {"read": read.source}
    data |= {"select": read.select} if read.select is not None else {}
    data |= {"fields": list(read.fields)} if read.fields is not None else {}
    data |= {"guard": read.guard} if read.guard is not None else {}
    data |= {"require": read.require} if read.require is not None else {}
    data |= {"default": read.default} if read.default is not MISSING else {}
    data |= {"from": read.from_} if read.from_ is not None else {}
    data |= {"as": read.as_} if read.as_ is not None else {}
    return data


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"


def duration(value: str | float) -> str:
    """A time as a pipeline file writes it; a number is seconds."""
    return value if isinstance(value, str) else f"{Decimal(str(value)):f}s"
