"""One step, from what is declared to a node that needs no looking up any more: reads, task, functions, checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestrator.bodies.scan import AskCall, asks_in
from orchestrator.building import fan_out
from orchestrator.building.conditions import check_defaults, when_of
from orchestrator.building.data_files import files_of
from orchestrator.building.gates import gate_node
from orchestrator.building.names import by_variable
from orchestrator.building.repeats import repeat_of
from orchestrator.building.template_names import template_faults
from orchestrator.building.tools import hosted_of, tools_of
from orchestrator.contracts import Contract, schemas
from orchestrator.contracts.sent_schema import unsendable
from orchestrator.errors import Place
from orchestrator.expressions import Expression, ExpressionError, NameUse, dashed_name, parse
from orchestrator.faults import nearest
from orchestrator.graph import Check, Function, Read, StepNode, Template
from orchestrator.ids import digest, sha256, variable
from orchestrator.project import OutsideProject
from orchestrator.python.functions import SignatureFault, check_check_function, check_step_function, context_parameter
from orchestrator.python.references import Found, ReferenceFault, load_reference, looked_at
from orchestrator.spec import MISSING, CheckSpec, ReadSpec, StepSpec

if TYPE_CHECKING:
    from orchestrator.building import Building

TASKS: Final = ("template", "prompt", "python", "gate")
_OTHER_KINDS: Final = ("gate", "uses")  # where one of these is faulty, task and contract are not missed
# Keys that say something about calls to a model, which a Python step does not make.
MODEL_KEYS: Final = (
    "tools",
    "conversation",
    "model",
    "effort",
    "max_output_tokens",
    "structured",
    "reasks",
    "call_timeout",
    "max_usd",
)


class StepBuilding:
    def __init__(self, building: Building, name: str, spec: StepSpec) -> None:
        self.building = building
        self.name = name
        self.spec = spec
        self.kind: Literal["llm", "python"] = "python" if spec.python is not None else "llm"

    def node(self) -> StepNode | None:
        """The node, without its order; None if any part that it needs is missing (and reported)."""
        if self.spec.gate is not None:
            self._check_needs()
            self._check_task(None)
            return gate_node(self.building, self.name, self.spec, self.spec.gate)
        for_each = self.building.for_each(self.name)
        reads = self._reads()
        reads = fan_out.reads_of(self, for_each, reads) if for_each is not None else reads
        function = self._function(reads)
        asks = self.kind == "llm" or (function is not None and function.ctx is not None)
        contract = self._contract()
        self._check_needs()
        self._check_task(function)
        template = self._template(reads)
        asked = asks_in(function.call) if function is not None and asks else ()
        templates = self._body_templates(function, asked, reads) if function is not None else {}
        tools = tools_of(self)
        checks = self._checks(contract)
        repeat = repeat_of(self, contract, reads, asks or self._damaged("python") or function is None)
        own = tuple(read for read in reads if read.kind != "entry" and read.takes != "sibling")  # see `where`
        when = when_of(self, own)
        check_defaults(self, reads)
        model = self.building.models.choose(self.name, self.spec) if asks else None
        if contract is None or (template is None and function is None) or (self.spec.for_each and for_each is None):
            return None
        self._check_facts(contract, reads)
        spec, defaults = self.spec, self.building.spec.defaults
        return StepNode(
            name=self.name,
            kind=self.kind,
            order=0,
            spec=spec,
            contract=contract,
            reads=reads,
            parents=self.building.gates.parents[self.name],
            template=template,
            function=function,
            tools=tools,
            hosted=hosted_of(self),
            files=files_of(self),
            checks=checks,
            model=model,
            conversation=None if spec.conversation == "off" or not asks else spec.conversation,
            reasks=defaults.reasks if spec.reasks is None else spec.reasks,
            timeout=spec.timeout or defaults.timeout,
            call_timeout=spec.call_timeout or defaults.call_timeout,
            digest=self._digest(checks, asks),
            place=self.building.places.key("steps", self.name),
            templates=templates,
            questions=max(1, len(asked)),
            repeat=repeat,
            when=when,
            stale_on=frozenset(defaults.stale_on if spec.stale_on is None else spec.stale_on),
            for_each=for_each,
            max_usd=defaults.max_usd if spec.max_usd is None else spec.max_usd,
            system=self.building.spec.system,
            summarise=self.building.models.summarise() if asks else None,
        )

    def _digest(self, checks: tuple[Check, ...], asks: bool) -> str:
        """Of the definition alone: what is sent or demanded and has no entry of its own in the manifest."""
        spec = self.spec
        conversation = spec.conversation if spec.conversation == "off" else spec.conversation.model_dump()
        defaults = {r.read: r.default for r in spec.reads if r.default is not MISSING}
        looped = {"repeat": spec.repeat.model_dump(mode="json")} if spec.repeat is not None else {}
        conditional = {"when": spec.when} if spec.when is not None else {}
        return digest(
            {
                "system": self.building.spec.system,
                "kind": self.kind,
                "conversation": conversation if asks else None,
                "checks": [[check.label, check.message] for check in checks],
                "defaults": defaults,
                **looped,
                **conditional,
            }
        )

    # --- helpers

    def of(self, *path: str | int) -> Place:
        return self.building.of("steps", self.name, *path)

    def error(self, code: str, message: str, place: Place, hint: str | None = None, source: str | None = None) -> None:
        self.building.error(code, f"step {self.name}: {message}", place, hint, source=source)

    def _damaged(self, *path: str | int) -> bool:
        return self.building.damaged("steps", self.name, *path)

    def _names(self) -> list[str]:
        """The names of all that it reads, as functions get them."""
        names = [spec.read for spec in self.spec.reads]
        return names if self.spec.for_each is None else list(fan_out.names_of(self.spec.for_each, names))

    # --- the contract

    def _contract(self) -> Contract | None:
        name = self.spec.produces or self.name
        place = self.of("produces") if self.spec.produces else self.building.places.key("steps", self.name)
        contract = self.building.contract(name)
        if contract is None:
            self._no_contract(name, place)
            return None
        if self.kind == "llm":
            self._check_sendable(contract, place)
        return contract

    def _no_contract(self, name: str, place: Place) -> None:
        if self.building.has_contract(name) or self._damaged("produces"):
            return
        if self.spec.produces is None and any(self._damaged(key) for key in _OTHER_KINDS):
            return
        hint = f"write artifacts/{name}.yaml, or an inline contract under `artifacts:`"
        near = nearest(name, self.building.contract_names())
        if near.startswith("Did you mean"):
            hint = f"{near} Else {hint}"
        why = "" if self.spec.produces else " (a step without `produces` has the contract of its own name)"
        self.error("P230", f"there is no contract {name}{why}", place, hint)

    def _check_sendable(self, contract: Contract, place: Place) -> None:
        if contract.form == "file":
            self.error("P235", "a model cannot write a file", place, "use a contract with `schema: text` or a model")
        for path, reason in unsendable(contract.schema or {}):
            self.error(
                "P234",
                f"its contract {contract.name} cannot be asked of a model: {path} is {reason}",
                place,
                "declare what it holds; for a dict, a list of objects with a key and a value",
            )

    def _check_facts(self, contract: Contract, reads: tuple[Read, ...]) -> None:
        """A fact about the customer that must have a value needs a source that can have one."""
        if contract.schema is None or self._damaged("reads"):
            return
        supplied = {variable(read.name) for read in reads if read.kind == "input"}
        for read in reads:
            tops = read.contract.customer_fields
            supplied |= {_last(path) for path in tops if read.fields is None or _first(path) in read.fields}
        for path, _, required in schemas.marked_fields(contract.schema):
            if required and _last(path) not in supplied:
                self.error(
                    "P236",
                    f"{contract.name}.{path} is a required fact about the customer, and nothing it reads can hold it",
                    self.of("reads"),
                    "let it be null (`float | None`), or read an input, or a customer field, of the same name",
                )

    # --- reads and needs

    def _reads(self) -> tuple[Read, ...]:
        reads: list[Read] = []
        for at, spec in enumerate(self.spec.reads):
            place = self.of("reads", at)
            if spec.read in (read.read for read in self.spec.reads[:at]):
                self.error("P204", f"it reads {spec.read} twice", place, "leave one out; fields of one read are a list")
                continue
            read = self._read(spec, at, place)
            if read is not None:
                reads.append(read)
        return tuple(reads)

    def _read(self, spec: ReadSpec, at: int, place: Place) -> Read | None:
        if spec.read == self.name:
            self.error("P203", "it reads itself", place, "a step reads what other steps made")
            return None
        kind = self.building.kinds().get(spec.read)
        if kind is None:
            self.building.unknown(f"step {self.name} reads", spec.read, place)
            return None
        contract = self.building.source_contract(spec.read, kind)
        if contract is None:
            return None
        self._check_fields(spec, contract, at)
        takes = fan_out.takes(self.building, self.name, spec.read)
        self._check_read_default(spec, contract, at, takes == "each")
        approved = spec.require == "approved"
        return Read(
            name=spec.read,
            kind="step" if kind == "step" else "input",
            contract=contract,
            fields=spec.fields,
            guard=spec.guard,
            place=place,
            default=spec.default,
            takes=takes,
            approvers=self.building.gates.approvers(self.name, spec.read) if approved else (),
            given=kind == "input",
            scalar=self.building.is_scalar(spec.read),
        )

    def _check_fields(self, spec: ReadSpec, contract: Contract, at: int) -> None:
        if spec.fields is None:
            return
        place = self.of("reads", at, "fields")
        if not contract.fields:
            self.error(
                "P206",
                f"{spec.read} is {_form(contract)}, it has no fields",
                place,
                "read it whole: leave `fields` out",
            )
        for index, field in enumerate(spec.fields if contract.fields else ()):
            here = self.of("reads", at, "fields", index)
            if field in spec.fields[:index]:
                self.error("P204", f"fields names {field} twice", here, "leave one out")
            elif field not in contract.fields:
                hint = nearest(field, list(contract.fields))
                if field.split(".")[0] in contract.fields:
                    hint = f"fields are whole top-level properties: {field.split('.')[0]}"
                self.error("P205", f"{spec.read} has no field {field}", here, hint)

    def _check_read_default(self, spec: ReadSpec, contract: Contract, at: int, each: bool) -> None:
        if spec.default is MISSING or spec.default is None:
            return
        if each and spec.default != {}:
            place, hint = self.of("reads", at, "default"), "write default: {}"
            self.error("P208", f"{spec.read} is one value for each key; its default is none of them", place, hint)
        for fault in () if each else contract.faults(spec.default):
            self.error(
                "P208",
                f"the default of {spec.read} does not fit {contract.name}: {fault.path} {fault.rule}",
                self.of("reads", at, "default"),
            )

    def _check_needs(self) -> None:
        for at, name in enumerate(self.spec.needs):
            place = self.of("needs", at)
            if name == self.name:
                self.error("P203", "it needs itself", place, "a step waits for other steps")
            elif name in self.spec.needs[:at]:
                self.error("P204", f"it needs {name} twice", place, "leave one out")
            elif name not in self.building.kinds():
                self.building.unknown(f"step {self.name} needs", name, place)

    # --- the task

    def _check_task(self, function: Function | None) -> None:
        given = [key for key in TASKS if getattr(self.spec, key) is not None]
        place = self.building.places.key("steps", self.name)
        if not given and not any(self._damaged(key) for key in (*TASKS, *_OTHER_KINDS)):
            hint = "give it one of template: FILE, prompt: |, python: FILE.py:FUNCTION, gate:"
            self.error("P210", "it has no task", place, hint)
        elif len(given) > 1:
            self.error(
                "P210", f"it has {' and '.join(given)}; a step has one task", self.of(given[-1]), "keep one of them"
            )
        if self.kind == "python" and function is not None and function.ctx is None:
            for key in MODEL_KEYS:
                if key in self.spec.model_fields_set:
                    hint = f"leave {key} out, or give the function a parameter `ctx: Ctx` to ask a model with"
                    message = f"a Python step without a ctx makes no model call, so {key} has no meaning"
                    self.error("P227", message, self.of(key), hint)

    def _template(self, reads: tuple[Read, ...]) -> Template | None:
        if self.spec.template is not None:
            base = self.building.base(self.name, "template")
            return self._file_template(self.spec.template, reads, base, self.of("template"))
        if self.spec.prompt is not None:
            return self._inline_template(self.spec.prompt, reads)
        return None

    def _file_template(
        self, ref: str, reads: tuple[Read, ...], base: Path, place: Place, quotes: frozenset[str] | None = frozenset()
    ) -> Template | None:
        """`quotes` are values that a body gives beside the reads; None where they are not known."""
        building = self.building
        try:
            path = building.project.resolve(ref, base, "templates")
        except OutsideProject:
            self.error(
                "P211", f"the template {ref} leads out of the project", place, "keep it inside the project's folder"
            )
            return None
        if path is None:
            places = ", ".join(looked_at(building.project, ref, base, "templates"))
            near = nearest(Path(ref).name, list(building.project.shelf_names("templates")))
            hint = f"looked at {places}." + (f" {near}" if near.startswith("Did you mean") else "")
            self.error("P211", f"there is no template {ref}", place, hint)
            return None
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = (
                "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error.strerror}"
            )
            self.error("P211", f"the template {ref} {reason}", place, "save it as UTF-8 text that you may read")
            return None
        where = Place(building.project.display(path), 1)
        lines = dict(enumerate(text.splitlines(), 1))
        self._check_template(text, reads, lambda line: (Place(where.file, line), lines.get(line)), quotes)
        return Template(ref, text, sha256(text), where)

    def _inline_template(self, text: str, reads: tuple[Read, ...]) -> Template:
        places, start = self.building.places, self.of("prompt")
        block = re.search(r"(?:^|[:\s])[|>][-+\d]*\s*(?:#.*)?$", places.line(start) or "") is not None
        first = start.line + (1 if block else 0)

        def where(line: int) -> tuple[Place, str | None]:
            place = Place(start.file, first + line - 1)
            return place, places.line(place)

        self._check_template(text, reads, where)
        return Template(self.name, text, sha256(text), start)

    def _check_template(
        self, text: str, reads: tuple[Read, ...], where: Any, quotes: frozenset[str] | None = frozenset()
    ) -> None:
        by_name = {read.name: read for read in reads}
        others = {n: kind for n, kind in self.building.kinds().items() if n not in by_name and n != self.name}
        incomplete = self._damaged("reads") or len(by_name) < len(set(self._names()))
        incomplete = incomplete or quotes is None
        item = self.spec.for_each.item if self.spec.for_each else None
        for fault in template_faults(text, by_name, others, quotes or frozenset(), item):
            if incomplete and fault.code in ("P213", "P215"):
                continue  # what it names may be the read that is faulty itself
            place, source = where(fault.line)
            self.error(fault.code, fault.message, place, fault.hint, source)

    # --- functions

    def load(self, ref: str, key: str, place: Place) -> Found | None:
        """What a reference under one of the step's keys leads to; None where it leads nowhere (reported)."""
        live = self.building.loaded.live.get(ref)
        try:
            return live or load_reference(self.building.project, ref, self.building.base(self.name, key), "steps")
        except ReferenceFault as fault:
            self.error(fault.code, fault.message, place, fault.hint)
            return None

    def _reads_in_doubt(self) -> bool:
        """Whether a read is faulty itself: whether a function takes it is then no question."""
        known = self.building.kinds()
        return self._damaged("reads") or any(r.read not in known or r.read == self.name for r in self.spec.reads)

    def _function(self, reads: tuple[Read, ...]) -> Function | None:
        if self.spec.python is None:
            return None
        place = self.of("python")
        found = self.load(self.spec.python, "python", place)
        if found is None or self._reads_in_doubt():
            return None
        try:
            check_step_function(_function_name(found.ref), found.value, self._names())
        except SignatureFault as fault:
            self.error("P224", fault.message, place, fault.hint)
            return None
        return Function(found.ref, found.file, found.sha, found.value, context_parameter(found.value))

    def _body_templates(
        self, function: Function, asked: Sequence[AskCall], reads: tuple[Read, ...]
    ) -> dict[str, Template]:
        """The templates that a body names in its text, checked as a declarative step's is."""
        templates: dict[str, Template] = {}
        base = self.building.project.root / function.file
        for ask in asked:
            place = self._ask_place(ask.line, function)
            if ask.prompt is not None and re.search(r"\{\{|\{%", ask.prompt):
                hint = "a text given to ask is sent as it stands; put it into a file of templates/ and name that"
                self.error("P308", "a question holds template marks that nothing will render", place, hint)
            if ask.template is not None and ask.template not in templates:
                found = self._file_template(ask.template, reads, base, place, ask.quotes)
                templates |= {ask.template: found} if found is not None else {}
        return templates

    def _ask_place(self, line: int, function: Function) -> Place:
        known = (self.building.project.root / function.file).is_file()
        return Place(function.file, line) if known else self.of("python")

    # --- checks

    def _checks(self, contract: Contract | None) -> tuple[Check, ...]:
        found = [self._check(spec, at, contract) for at, spec in enumerate(self.spec.checks)]
        return tuple(check for check in found if check is not None)

    def _check(self, spec: CheckSpec, at: int, contract: Contract | None) -> Check | None:
        if spec.python is not None:
            return self._python_check(spec.python, spec.message, at)
        return self._expression_check(spec.expr or "", spec.message, at, contract)

    def _python_check(self, ref: str, message: str | None, at: int) -> Check | None:
        place = self.of("checks", at, "python")
        found = self.load(ref, "checks", place)
        if found is None or self._reads_in_doubt():
            return None
        try:
            check_check_function(_function_name(ref), found.value, self._names())
        except SignatureFault as fault:
            self.error("P224", fault.message, place, fault.hint)
            return None
        return Check(ref, None, Function(ref, found.file, found.sha, found.value), message)

    def _expression_check(self, text: str, message: str | None, at: int, contract: Contract | None) -> Check | None:
        place = self.of("checks", at, "expr")
        try:
            expression = parse(text)
        except ExpressionError as fault:
            self.error("P229", f"the check {text!r}: {fault.message}", place, fault.hint)
            return None
        if contract is not None:
            self._check_expression_names(expression, contract, place)
        return Check(expression.text, expression, None, message)

    def _check_expression_names(self, expression: Expression, contract: Contract, place: Place) -> None:
        if not contract.fields or contract.schema is None:
            self.error(
                "P229",
                f"the check {expression.text!r} names fields, and {contract.name} is {_form(contract)}",
                place,
                "write a Python check: it gets the whole value",
            )
            return
        dashed = dashed_name(expression, [*contract.fields, *self.building.kinds()])
        if dashed is not None:
            hint = f"write {variable(dashed)}"
            self.error("P229", f"{dashed} is read as a subtraction in {expression.text!r}", place, hint)
            return
        for use in expression.uses:
            self._check_use(use, contract, contract.schema, place)

    def _check_use(self, use: NameUse, contract: Contract, schema: Mapping[str, Any], place: Place) -> None:
        known = schemas.at_path(use.path, schema, by_variable)
        if known == len(use.path):
            return
        name = ".".join(use.path[: known + 1])
        hint = nearest(name, [variable(field) for field in contract.fields]) if known == 0 else None
        if known == 0 and any(variable(n) == use.path[0] for n in self.building.kinds()):
            hint = "expr sees the fields of the output only; a Python check gets the reads too"
        self.error("P229", f"the output {contract.name} has no field {name}", place, hint)


def _function_name(ref: str) -> str:
    return ref.rpartition(":")[2]


def _form(contract: Contract) -> str:
    return {"text": "text", "markdown": "Markdown", "file": "a file"}.get(contract.form, f"a {contract.name}")


def _first(path: str) -> str:
    return path.split(".")[0].removesuffix("[]")


def _last(path: str) -> str:
    return variable(path.split(".")[-1].removesuffix("[]"))
