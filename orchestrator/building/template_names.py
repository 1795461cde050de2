"""Which names a template uses, read off its syntax tree before anything runs.

In a template there are exactly `inputs.x`, `block(name)` and `quote(name, path)`, and each may name only what the step
reads. That is checked here, at load, for two reasons: an undeclared read would be a hidden input of the step, and an
artifact that is written into the text bare (`{{ cost_calculator }}`) would reach the model without its label, which is
how a vendor's rate once became a customer's budget (R025).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.contracts import schemas
from orchestrator.faults import nearest
from orchestrator.ids import variable

if TYPE_CHECKING:
    from jinja2 import nodes

    from orchestrator.graph import Read

SLOTS: Final = ("inputs", "block", "quote")
ITEM: Final = "item"
# Jinja's own helpers that stay in the sandbox; they hold no content.
HELPERS: Final = frozenset({"range", "dict", "cycler", "joiner", "namespace"})
INPUT_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "text"})


@dataclass(frozen=True, slots=True)
class TemplateFault:
    """One fault, on a line of the template (from 1)."""

    code: str
    message: str
    hint: str | None
    line: int


def template_faults(
    text: str,
    reads: Mapping[str, Read],
    others: Mapping[str, str],
    quotes: Collection[str] = (),
    item: str | None = None,
) -> tuple[TemplateFault, ...]:
    """What is wrong with a template of a step with these reads. `others` are the pipeline's names it does not read,
    `quotes` values that a Python body gives beside its reads, `item` what an entry is called in a step with for_each.
    """
    from jinja2 import TemplateSyntaxError

    from orchestrator.templates import RESERVED, _environment, reserved_line

    if line := reserved_line(text):
        return (TemplateFault("P214", f"the template cannot be used: {RESERVED}", None, line),)
    try:
        tree = _environment().parse(text)
        return _faults(text, tree, _Check(reads, others, frozenset(quotes), item))
    except TemplateSyntaxError as error:
        return (
            TemplateFault("P212", f"the template cannot be read: {error.message}", _braces_hint(text), error.lineno),
        )
    except RecursionError:
        return (TemplateFault("P212", "the template cannot be read: it is nested too deeply", _braces_hint(text), 1),)


def _faults(text: str, tree: nodes.Template, check: _Check) -> tuple[TemplateFault, ...]:
    from jinja2 import TemplateSyntaxError
    from jinja2.meta import TrackingCodeGenerator

    from orchestrator.templates import _environment

    faults = [*check.structure(tree), *check.slots(tree)]
    tracking = TrackingCodeGenerator(_environment())
    tracking.optimizer = None  # it would compute what is constant
    try:
        tracking.visit(tree)
        names = tracking.undeclared_identifiers - {*SLOTS, *HELPERS}
        if check.item is not None and ITEM in names:
            names -= {ITEM}
            faults += check.entry(tree)
    except TemplateSyntaxError as error:  # a filter or test that does not exist
        names = set()
        faults.append(TemplateFault("P212", f"the template cannot be used: {error.message}", None, error.lineno))
    faults += [check.unknown(name, _line_of(tree, name)) for name in sorted(names)]
    return tuple(sorted(faults, key=lambda fault: fault.line))


def _braces_hint(text: str) -> str | None:
    if re.search(r"\{\{|\{%|\{#", text):
        return "braces that are meant as text go between {% raw %} and {% endraw %}"
    return None


def _line_of(tree: nodes.Template, name: str) -> int:
    from jinja2 import nodes

    return min((node.lineno for node in tree.find_all(nodes.Name) if node.name == name), default=1)


@dataclass(frozen=True, slots=True)
class _Check:
    reads: Mapping[str, Read]
    others: Mapping[str, str]
    quotes: frozenset[str] = frozenset()
    item: str | None = None

    def structure(self, tree: nodes.Template) -> Iterator[TemplateFault]:
        """A template is one file: what it includes would be read, and hashed, by nobody."""
        from jinja2 import nodes

        for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            word = {"FromImport": "from … import"}.get(type(node).__name__, type(node).__name__.lower())
            yield TemplateFault(
                "P214",
                f"{{% {word} %}} is not available: a step's template is one file",
                "write its text here",
                node.lineno,
            )

    def unknown(self, name: str, line: int) -> TemplateFault:
        known = {variable(n): n for n in (*self.reads, *self.others)}
        if name == ITEM:
            message = "the template names item, which a step has only with for_each: it is the entry it is made for"
            return TemplateFault("P213", message, "write {{ block('NAME') }} for what the step reads", line)
        if name in known:
            read = known[name]
            where = "" if read in self.reads else f", and add {read} to the step's reads"
            return TemplateFault(
                "P215",
                f"the template names {name} bare: what stands there would reach the model without its label",
                f"write {{{{ block({read!r}) }}}}{where}",
                line,
            )
        return TemplateFault(
            "P213",
            f"the template names {name}, which does not exist there",
            "a template knows inputs.NAME, block('NAME') and quote('NAME', 'field'), and nothing else",
            line,
        )

    def entry(self, tree: nodes.Template) -> Iterator[TemplateFault]:
        """`item` is printed and nothing else: what is inside it is quoted by name."""
        from jinja2 import nodes

        for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Call)):
            inner: Any = getattr(node, "node", None)
            if isinstance(inner, nodes.Name) and inner.name == ITEM:
                part = getattr(node, "attr", None) or _constant(getattr(node, "arg", None)) or "FIELD"
                hint = f"write {{{{ item }}}}, or {{{{ quote({self.item!r}, {str(part)!r}) }}}}"
                yield TemplateFault("P214", "`item` stands for the whole entry and has no parts", hint, node.lineno)

    def slots(self, tree: nodes.Template) -> Iterator[TemplateFault]:
        from jinja2 import nodes

        taken: set[int] = set()
        for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Call)):
            inner: Any = getattr(node, "node", None)
            if not isinstance(inner, nodes.Name) or inner.name not in SLOTS:
                continue
            if isinstance(node, nodes.Call) and inner.name in ("block", "quote"):
                taken.add(id(inner))
                yield from self._slot(inner.name, node)
            elif not isinstance(node, nodes.Call) and inner.name == "inputs":
                taken.add(id(inner))
                yield from self._input(node)
        for name in tree.find_all(nodes.Name):
            if name.name in SLOTS and id(name) not in taken and name.ctx == "load":
                form = {"inputs": "inputs.NAME", "block": "block('NAME')", "quote": "quote('NAME', 'field')"}[name.name]
                yield TemplateFault(
                    "P214", f"`{name.name}` alone is nothing that can be written", f"write {form}", name.lineno
                )

    def _input(self, node: Any) -> Iterator[TemplateFault]:
        name = getattr(node, "attr", None) or _constant(getattr(node, "arg", None))
        inputs = {variable(read.name): read for read in self.reads.values() if read.kind == "input"}
        if not isinstance(name, str):
            yield TemplateFault("P214", "an input is named by a word: inputs.NAME", None, node.lineno)
        elif variable(name) not in inputs:
            yield self._unread_input(variable(name), sorted(inputs), node.lineno)
        elif name != variable(name):
            yield TemplateFault("P213", f"inputs[{name!r}] is written inputs.{variable(name)}", None, node.lineno)
        elif inputs[name].contract.name not in INPUT_TYPES:
            read = inputs[name]
            yield TemplateFault(
                "P214",
                f"inputs.{name} is a {read.contract.name}, not a line of text or a number",
                f"write {{{{ block({read.name!r}) }}}}",
                node.lineno,
            )

    def _unread_input(self, name: str, inputs: list[str], line: int) -> TemplateFault:
        others = {variable(other): other for other, kind in self.others.items() if kind == "input"}
        steps = {variable(n): n for n in (*self.reads, *(o for o, kind in self.others.items() if kind == "step"))}
        if name in others:
            hint = f"add {others[name]} to the step's reads"
            return TemplateFault("P213", f"the template names inputs.{name}, which the step does not read", hint, line)
        if name in steps:
            hint = f"write {{{{ block({steps[name]!r}) }}}}"
            return TemplateFault("P213", f"{steps[name]} is a step, not an input", hint, line)
        hint = nearest(name, [*inputs, *others])
        return TemplateFault("P213", f"the template names inputs.{name}, and there is no such input", hint, line)

    def _slot(self, kind: str, call: Any) -> Iterator[TemplateFault]:
        arguments = [_constant(argument) for argument in call.args]
        if call.kwargs or call.dyn_args or call.dyn_kwargs or len(arguments) != (1 if kind == "block" else 2):
            form = "block('NAME')" if kind == "block" else "quote('NAME', 'field')"
            yield TemplateFault("P214", f"{kind} is written {form}", None, call.lineno)
            return
        if any(not isinstance(argument, str) for argument in arguments):
            yield TemplateFault(
                "P214", f"{kind} takes names in quotes, so that they can be checked before a run", None, call.lineno
            )
            return
        name = arguments[0]
        if name in self.quotes:
            return
        if name not in self.reads:
            yield self._unread(kind, name, call.lineno)
        elif kind == "quote":
            yield from self._quoted(self.reads[name], arguments[1], call.lineno)

    def _unread(self, kind: str, name: str, line: int) -> TemplateFault:
        hint = f"add {name} to the step's reads" if name in self.others else nearest(name, [*self.reads])
        dashed = next((n for n in (*self.reads, *self.others) if variable(n) == variable(name)), None)
        if name not in self.others and dashed is not None:
            hint = f"it is written {kind}({dashed!r})"
        message = f"the template names {kind}({name!r}), " + (
            "which the step does not read" if name in self.others else "and the step reads nothing of that name"
        )
        return TemplateFault("P213", message, hint, line)

    def _quoted(self, read: Read, path: str, line: int) -> Iterator[TemplateFault]:
        contract = read.contract
        if read.takes == "each":
            message = f"{read.name} is one value for each key, so there is no single one to quote"
            yield TemplateFault("P214", message, f"write {{{{ block({read.name!r}) }}}}", line)
            return
        if contract.form != "json" or not contract.fields or contract.schema is None:
            yield TemplateFault(
                "P214", f"{read.name} has no fields to quote", f"write {{{{ block({read.name!r}) }}}}", line
            )
            return
        parts = tuple(part for part in re.split(r"[.\[\]]+", path.removeprefix("$")) if part)
        if not parts:
            yield TemplateFault("P214", f"quote({read.name!r}, {path!r}) names no field", None, line)
            return
        if read.fields is not None and parts[0] in contract.fields and parts[0] not in read.fields:
            hint = f"add {parts[0]} to the read's fields"
            yield TemplateFault("P213", f"the step does not read the field {parts[0]} of {read.name}", hint, line)
            return
        known = schemas.at_path(parts, contract.schema, _exact)
        if known < len(parts):
            names = list(contract.fields) if known == 0 else []
            near = nearest(parts[known], names) if names else None
            yield TemplateFault("P213", f"{read.name} has no field {'.'.join(parts[: known + 1])}", near, line)


def _exact(part: str, known: Mapping[str, Any]) -> str | None:
    return part if part in known else None


def _constant(node: Any) -> Any:
    return getattr(node, "value", None)
