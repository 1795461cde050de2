"""Task templates: Jinja arranges slots, and never holds what goes into them (S22).

A template decides where a block stands in the task, not what is in it. So a template is given exactly three names:

* `inputs.x`: a run input the step reads: a plain value if it is a one-line scalar up to 200 characters, else a slot;
* `block(name)`: the slot of a read, wrapper and guards included; it then leaves its default place;
* `quote(name, path)`: the slot of one value of a read, in a small labelled wrapper.

A slot is an object without content. Printing it puts ONE character out, from a private-use plane that nothing else
may use; all else that can be done to it (filters, slices, comparing, joining, `%r`, attributes) raises. One character
cannot be cut, reversed or changed in case, and content is filled in after Jinja is done, in one pass, never looked at
again: nothing in it can become template code or another slot. Slots are counted: one that was made and not printed,
or a `block` printed twice, is an error.

What a template may name is checked at load (`template_names`); this holds whatever a template does. Templates are the
project's own code, but they run in Jinja's sandbox, without anything random. A caller on an event loop renders in a
thread, with a time limit. A single operation cannot be stopped in its midst, so those that could take all time or
memory (`9 ** (9 ** 9)`, `"x" * n` with a customer's n) are bounded, and nothing is computed while a template is loaded.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, Final, Literal

from orchestrator.errors import Diagnostic, InvalidProject, Place
from orchestrator.ids import variable

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.runtime import Context

    from orchestrator.graph import Template

CODE: Final = "P214"
PLAIN_LIMIT: Final = 200
MAX_OUTPUT: Final = 1_000_000
MAX_BITS: Final = 100_000  # of a whole number that is computed
NAMES: Final = "inputs.x, block(name) and quote(name, path), with for_each item too"

_FIRST, _LAST = 0x100000, 0x10FFFD
_SLOT: Final = re.compile(f"([{chr(_FIRST)}-{chr(_LAST)}])")
_UNSENDABLE: Final = re.compile("[\ud800-\udfff\x00]")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the task: the whole block of a read, or one value of it by `path`."""

    kind: Literal["block", "quote"]
    name: str
    path: str = ""

    def __str__(self) -> str:
        return f'block("{self.name}")' if self.kind == "block" else f'quote("{self.name}", "{self.path}")'


Plain = str | int | float | bool


class TemplateFault(InvalidProject):
    """A template cannot be rendered as it stands; the diagnostic names it, the step and the line."""

    code = "template"

    def __init__(self, message: str, place: Place, hint: str | None = None) -> None:
        super().__init__((Diagnostic(CODE, message, place, hint),))


def is_plain(value: object) -> bool:
    """Whether an input's value may enter a template as it is: a number, a truth value, or one short line of text."""
    if isinstance(value, bool | int | float):
        return True
    one_line = isinstance(value, str) and len(value.splitlines()) <= 1 and not value.endswith(_LINE_ENDS)
    return one_line and isinstance(value, str) and len(value) <= PLAIN_LIMIT and not _SLOT.search(value)


_LINE_ENDS: Final = ("\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


def render(
    template: Template,
    step: str,
    inputs: Mapping[str, Plain | Slot],
    check: Callable[[Slot], str | None],
    item: Slot | None = None,
) -> tuple[str | Slot, ...]:
    """The template's own text and its slots, in order.

    `inputs` maps input names to a plain value (`is_plain`) or a block slot, `item` is what `{{ item }}` stands for.
    `check` says why a slot cannot be had, or None. Raises TemplateFault, at the template's line where Jinja knows it.
    """
    from jinja2 import TemplateError, TemplateSyntaxError

    if reserved := reserved_line(template.text):
        raise _fault(template, step, RESERVED, reserved)
    issue = _Issue(check)
    context = {
        "inputs": _Inputs(issue, {variable(name): value for name, value in inputs.items()}),
        "block": _Call("block", lambda name: issue.slot(Slot("block", name))),
        "quote": _Call("quote", lambda name, path: issue.slot(Slot("quote", name, path))),
    }
    if item is not None:
        context["item"] = issue.slot(item, owed=False, once=True)
    try:
        text = _bounded(_environment().from_string(template.text).generate(context))
    except TemplateSyntaxError as error:
        raise _fault(template, step, str(error.message), error.lineno) from error
    except _Misuse as error:
        raise _fault(template, step, error.reason, _line_of(error), error.hint) from error
    except TemplateError as error:
        raise _fault(template, step, str(error.message), _line_of(error), f"a template knows {NAMES}") from error
    except _ERRORS as error:
        raise _fault(template, step, f"{type(error).__name__}: {error}", _line_of(error)) from error
    reason = issue.reckon(text)
    if reason:
        raise _fault(template, step, reason, None, "print each slot once, as it is: {{ block(…) }}")
    return tuple(issue.issued[piece] if _SLOT.fullmatch(piece) else piece for piece in _SLOT.split(text) if piece)


_ERRORS: Final = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
    NameError,  # Jinja writes 1e400 as `inf`
    SyntaxError,  # the Python that Jinja makes of it is nested too deeply
)
RESERVED: Final = "it holds a character that is reserved for slots (U+100000 and above)"


def reserved_line(text: str) -> int | None:
    """The line of a template's own text on which a character stands that only slots may use; None if none does."""
    found = _SLOT.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _bounded(pieces: Iterator[str]) -> str:
    out: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_OUTPUT:
            raise _Misuse(
                f"its text is longer than {MAX_OUTPUT:,} characters", "a loop may not end; long material is a block"
            )
        out.append(piece)
    return "".join(out)


# --- what a template holds in its hands -------------------------------------------------------------------------------


class _Misuse(Exception):
    """Something was done to a name of the template that it does not allow."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


@dataclass(slots=True)
class _Issue:
    """The slots of one rendering: which character stands for which, and which of them must be found again."""

    check: Callable[[Slot], str | None]
    issued: dict[str, Slot] = field(default_factory=dict)
    owed: list[str] = field(default_factory=list)
    once: list[str] = field(default_factory=list)

    def slot(self, slot: Slot, *, owed: bool = True, once: bool = False) -> _Piece:
        """`owed`: it must be found in the text; `once`: at most once, though a template need not print it at all."""
        reason = self.check(slot)
        if reason:
            raise _Misuse(reason)
        if _FIRST + len(self.issued) > _LAST:
            raise _Misuse("it makes too many slots")
        mark = chr(_FIRST + len(self.issued))
        self.issued[mark] = slot
        if owed:
            self.owed.append(mark)
        if once:
            self.once.append(mark)
        return _Piece(str(slot), mark)

    def reckon(self, text: str) -> str | None:
        """Why the slots found in the rendered text are not those that were made; None if they are."""
        found = Counter(_SLOT.findall(text))
        if not found.keys() <= self.issued.keys():
            return "it prints a character that is reserved for slots (U+100000 and above)"
        if _UNSENDABLE.search(text):
            return "it prints half a character or NUL, which cannot be sent"
        lost = next((mark for mark in self.owed if not found[mark]), None)
        if lost is not None:
            return f"{self.issued[lost]} is made and then lost"
        # Only `block` says "here, and once": an input may stand in two sentences, and may be a line in one run and a
        # block in the next, by what the customer wrote.
        asked = [self.issued[mark] for mark in found.elements() if mark in self.owed or mark in self.once]
        blocks = Counter(slot.name for slot in asked if slot.kind == "block")
        twice = next((name for name, times in blocks.items() if times > 1), None)
        return f'the block "{twice}" is placed twice' if twice else None


def _refuse(handle: Any, *_args: Any, **_kwargs: Any) -> Any:
    raise _Misuse(f"{handle._label} can only be {handle._use}", handle._hint)


_ACCESSES: Final = (
    "str repr format bytes bool len iter next reversed contains getitem call hash eq ne lt le gt ge add radd sub rsub "
    "mul rmul mod rmod truediv rtruediv floordiv rfloordiv pow rpow and or neg pos abs int float index round await "
    "html html_format enter reduce reduce_ex"
)
_Handle: Any = type(
    "_Handle",
    (),
    {f"__{name}__": _refuse for name in _ACCESSES.split()}
    | {"__slots__": (), "__getattr__": _refuse}
    | {"jinja_pass_arg": None, "unsafe_callable": False, "alters_data": False},
)


class _Piece(_Handle):  # type: ignore[misc]
    """A slot as a template holds it: it can be printed, and nothing else."""

    __slots__ = ("_label", "_mark")
    _use = "printed as it is"
    _hint = "write it alone in its braces, without filters, slices or joins: {{ block(…) }}"

    def __init__(self, label: str, mark: str) -> None:
        self._label, self._mark = label, mark


class _Call(_Handle):  # type: ignore[misc]
    """`block` or `quote`: it can be called with names written as text, and nothing else."""

    __slots__ = ("_label", "_make")
    _use = "called"
    _hint = 'write {{ block("name") }} or {{ quote("name", "path") }}'

    def __init__(self, label: str, make: Callable[..., _Piece]) -> None:
        self._label, self._make = label, make

    def __call__(self, *names: Any, **extra: Any) -> _Piece:
        wanted = 1 if self._label == "block" else 2
        if extra or len(names) != wanted or not all(type(name) is str for name in names):
            raise _Misuse(f"{self._label} takes {'a name' if wanted == 1 else 'a name and a path'} as text", self._hint)
        return self._make(*names)


class _Inputs(_Handle):  # type: ignore[misc]
    """`inputs`: the inputs the step reads, by name, and nothing else."""

    __slots__ = ("_issue", "_values")
    _label = "inputs"
    _use = "asked for an input by name"
    _hint = "write {{ inputs.name }}"

    def __init__(self, issue: _Issue, values: Mapping[str, Plain | Slot]) -> None:
        self._issue, self._values = issue, values

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: Any) -> Any:
        if name not in self._values:
            known = ", ".join(sorted(self._values)) or "no input"
            raise _Misuse(f"the step reads no input {name!r}", f"it reads {known}; add the input to the step's reads")
        value = self._values[name]
        return self._issue.slot(value, owed=False) if isinstance(value, Slot) else value


@functools.cache
def _environment() -> Environment:
    from jinja2 import StrictUndefined, Undefined, pass_context
    from jinja2.sandbox import SandboxedEnvironment

    class Bounded(SandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            _refuse_huge(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Context, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
            if isinstance(callee, BuiltinMethodType) and isinstance(callee.__self__, str):  # "x".ljust(n)
                _refuse_far((*args, *kwargs.values()))
            return super().call(context, callee, *args, **kwargs)

    @pass_context  # so that Jinja does not print, and so compute, constants while it compiles
    def printed(_context: Context, value: Any) -> Any:
        if isinstance(value, _Piece):
            return value._mark
        if isinstance(value, str | int | float):
            return value
        if isinstance(value, Undefined):
            return str(value)
        if isinstance(value, _Handle):
            _refuse(value)
        raise _Misuse(f"it prints {type(value).__name__}", "print text, numbers and slots only")

    environment = Bounded(undefined=StrictUndefined, finalize=printed, autoescape=False, optimized=False)
    del environment.globals["lipsum"]
    for name in ("random", "pprint"):
        del environment.filters[name]
    for name in ("batch", "center", "indent", "round", "slice", "truncate", "wordwrap"):
        environment.filters[name] = _near(environment.filters[name])
    return environment


# --- single operations that could take all time or memory -------------------------------------------------------------


_FORMAT: Final = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\d+|\*)?(?:\.(\d+|\*))?")


def _refuse_huge(operator: str, left: Any, right: Any) -> None:
    """Raises _Misuse for a product, power or format that is far longer than a template's text may be."""
    if operator == "%":
        if isinstance(left, str):
            found = _FORMAT.findall(left)
            _refuse_far(int(width) for widths in found for width in widths if width not in ("", "*"))
            if any("*" in widths for widths in found):
                _refuse_far(right if isinstance(right, tuple) else (right,))
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > MAX_BITS:
            raise _Misuse("it computes a number of more than 30,000 digits")
    elif operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
                _refuse_far([len(sequence) * times])


def _refuse_far(values: Iterable[Any]) -> None:
    """Raises _Misuse where a width, a length or a number of digits is beyond all use."""
    if any(isinstance(value, int) and abs(value) > MAX_OUTPUT for value in values):
        raise _Misuse(f"it asks for text longer than {MAX_OUTPUT:,} characters")


def _near(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes widths and counts, kept from those beyond all use. The value itself may be any number."""

    @functools.wraps(filter_)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _refuse_far((*args[1:], *kwargs.values()))
        return filter_(*args, **kwargs)

    return bounded


# --- faults and their places ------------------------------------------------------------------------------------------


def _fault(template: Template, step: str, reason: str, line: int | None, hint: str | None = None) -> TemplateFault:
    return TemplateFault(_message(template, step, reason), place_of(template, line), hint)


def _message(template: Template, step: str, reason: str) -> str:
    name = "the prompt" if template.name == step else f"the template {template.name}"
    return f"{name} of step {step}: {reason}"


def place_of(template: Template, line: int | None) -> Place:
    """A line of the template, counted from 1, as a place in its file. An inline block text begins below its key."""
    place = template.place
    if line is None:
        return place
    if place.line <= 1:
        return Place(place.file, line)
    return Place(place.file, place.line + line) if "\n" in template.text else place


def _line_of(error: BaseException) -> int | None:
    """The innermost template line of a traceback that Jinja has rewritten."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
