"""Authoring faults for people: the sentence, the place, the line with a caret, the way out.

`CODES` is the one table of code numbers. A number is never used again for something else: people search for it.
P0xx the file and its YAML · P1xx keys and values · P2xx the graph · P3xx what is declared in Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

from orchestrator.errors import Diagnostic

CODES: Final[Mapping[str, str]] = {
    "P001": "The file cannot be read: it is missing, a folder, not readable, or outside the project.",
    "P002": "The file is larger than a pipeline, step or contract can be (1 MB).",
    "P003": "The file is not clean UTF-8 text: a byte or character in it stands for no text.",
    "P004": "The file is empty, or holds comments only.",
    "P005": "The file must be one mapping: lines of `key: value`.",
    "P006": "The YAML cannot be read: a quote, a bracket, a colon or the indentation is wrong.",
    "P007": "A tab stands where YAML needs spaces. Tabs are allowed inside quoted and block text only.",
    "P008": "The same key stands twice in one mapping; which one is meant cannot be known.",
    "P009": "The file holds more than one YAML document, or a `%` directive.",
    "P010": "YAML tags (`!name`) are not used here. Text that begins with `!` is to be quoted.",
    "P011": "An alias (`*name`) refers to nothing or to itself, or an anchor (`&name`) is given twice.",
    "P012": "The file is nested too deep, or too large once its aliases are written out.",
    "P013": "A value looks like a number but is none that every reader understands alike, such as 08 or .inf.",
    "P014": "A key must be text; numbers, true, false, null, lists and mappings as keys are to be quoted.",
    "P015": "Text after ` #` is a comment in YAML: it was cut from a guard, about, ask or message that is not quoted.",
    "P016": "In `{…}` a comma ends a value: text was cut from a guard, about, ask or message that is not quoted.",
    "P017": "`: ` in text that is not quoted makes a mapping of a guard, about, ask or message.",
    "P101": "The key is not known here. Own extras are allowed under keys that begin with `x-`.",
    "P102": "A key that must be given is missing.",
    "P103": "A value has the wrong type, is out of range, or is not one of the words allowed.",
    "P104": "A contract must say what its value represents (`about`) and must not be used for (`not_for`, or `none`).",
    "P105": "An input of type text, file or a contract must say what it represents (`about`).",
    "P106": "A name is not allowed: names begin with a small letter and hold small letters, digits, `-` and `_`.",
    "P107": "`uses` names a step definition that is neither beside the file nor on the shelf steps/.",
    "P108": "A reference leaves the project and the library, directly or through a symbolic link.",
    "P109": "A step definition file holds the keys of one step, and does not use another definition.",
    "P110": "A contract or step definition has one name under `artifact` or `step` and another in its place.",
    "P111": "`${env:NAME}` works in a model's `use` and in a provider's `base_url` only.",
    "P112": "An input's default is not of the input's type.",
    "P113": "Two pipeline files of the project declare the same name.",
    "P150": "The key or value is planned and not available in this version.",
    "P151": "The key would break a rule: content is never injected without its label, and steps never chain.",
    "P201": "A read, a need or an output names neither a step nor an input.",
    "P202": "Two names clash: an input and a step of one name, or names that differ only by `-` and `_`.",
    "P203": "Steps wait for each other in a circle, or a step for itself.",
    "P204": "The same name stands twice in one list.",
    "P205": "A read asks for a field that its source's contract does not have.",
    "P206": "A read asks for fields of a value that has none, such as a text.",
    "P207": "A `select:` read means no step, or cannot be understood.",
    "P208": "A default of a read is no value of its source's contract.",
    "P209": "A read of a step that may be skipped has no default.",
    "P210": "A step has exactly one task: template, prompt, python or gate.",
    "P211": "The template's file is missing, not readable, or outside the project.",
    "P212": "The template cannot be read by Jinja.",
    "P213": "The template names something that the step does not read, or that does not exist.",
    "P214": "The template uses a name in a way that cannot be: inputs.NAME, block('NAME'), quote('NAME', 'field').",
    "P215": "The template names an artifact bare. It would reach the model without its label: use block('NAME').",
    "P219": "A read `from` an earlier run cannot be: its name is taken, or its contract is not known.",
    "P221": "A reference to Python is written file.py:name.",
    "P222": "The Python or data file is missing, or outside the project.",
    "P223": "The Python file fails when it is loaded, or has no such name.",
    "P224": "A step or check function does not take what it will be given, or is no function.",
    "P225": "A function cannot be a tool: it needs a docstring and a type for each parameter.",
    "P226": "Two tools of a step have the same name.",
    "P227": "A Python step makes no model call; keys about the call have no meaning on it.",
    "P228": "A `repeat` cannot work: its rule names nothing that is there, or the step makes the same each time.",
    "P229": "An expression cannot be read, or names what is no field of the output, or of an entry.",
    "P230": "There is no contract of this name.",
    "P231": "A contract's `about` or `not_for` says nothing.",
    "P232": "An inline JSON Schema is not valid, or uses what contracts do not support.",
    "P233": "A contract's `schema` leads to nothing that can be a schema.",
    "P234": "A model cannot be asked for this contract, since the strict form has no words for part of it.",
    "P235": "A model cannot write a file.",
    "P236": "A required fact about the customer has no source; it would be invented.",
    "P237": "A step's `when` cannot be read, or names what the step does not read.",
    "P238": "A tool has a key that its kind does not have, or a domain that is none.",
    "P239": "A tool of an MCP server cannot be used: the server is not declared, the tool not allowed or not pinned.",
    "P240": "There is no model alias of this name.",
    "P241": "A model is written provider:model.",
    "P242": "There is no provider of this name.",
    "P243": "The variable that names the model is not set; it is needed to run, not to check.",
    "P244": "A provider cannot be used as its settings stand, or does not do what a step wants of its model.",
    "P250": "No step reads this input.",
    "P251": "Nothing reads this step's artifact, and it is no output.",
    "P252": "Nothing uses this contract.",
    "P260": "for_each: `in` names no list.",
    "P261": "for_each: nothing names an entry, or what does is no text and no whole number.",
    "P262": "for_each: `same` names no other step with for_each, or stands beside keys that it replaces.",
    "P263": "for_each: `item` is the name of something else.",
    "P270": "`with` gives inputs to a used pipeline, and this step uses none.",
    "P271": "Pipelines use each other in a circle, or one uses itself.",
    "P272": "A key that would have to be said of the steps inside a used pipeline.",
    "P273": "A used pipeline is not given an input that it needs, or one that it does not have.",
    "P274": "A name from inside a used pipeline that is none of its outputs, or fields of several outputs.",
    "P275": "An input of a used pipeline is given what cannot be of its type.",
    "P276": "The budget of a used pipeline does not hold here, and this one has none.",
    "P277": "A pipeline is used for each entry of a list in a way that gives nothing for each.",
    "P280": "A gate asks a person; keys about a task, a model or reads have no meaning on it.",
    "P281": "A gate cannot be answered: it shows nothing, has no approve, or its timeout decides what is no choice.",
    "P282": "A rejection can redo a step that the gate waits for, and that asks a model.",
    "P283": "A read requires an approval, and no gate ahead of the step gives one.",
    "P284": "An output waits for no gate, although the pipeline has some.",
    "P301": "A Python pipeline file assigns exactly one Pipeline.",
    "P302": "A parameter of a step names nothing to read: no artifact type that a step makes, and no input.",
    "P303": 'Several steps make the artifact type of a parameter; Read("step-name") says which is read.',
    "P304": "A step function cannot be called: its parameters need names and types, and with a ctx it is async.",
    "P305": "A step returns an artifact type: a class with @artifact, which says what it is and is not for.",
    "P306": "A parameter's type is not what it reads.",
    "P307": "A step, an input or an artifact type is declared twice.",
    "P308": "The text given to `ask` is sent as it stands; template marks in it mean nothing.",
}

_WIDTH: Final = 110
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """Text safe to print: control, bidi and zero-width characters as escapes, so that nothing hides or moves (S27)."""
    return _UNSAFE.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", text)


def format_diagnostic(diagnostic: Diagnostic) -> str:
    """One fault as plain text: `error[P101]: …`, `--> file:line:column`, the line, a caret, the hint."""
    lines = [f"{diagnostic.level}[{diagnostic.code}]: {visible(diagnostic.message)}"]
    place = diagnostic.place
    if place is not None:
        lines.append(f"  --> {visible(str(place))}")
    if place is not None and place.line and diagnostic.source is not None:
        number, pad = str(place.line), " " * len(str(place.line))
        text, caret = _pointed(diagnostic.source, place.column)
        lines.append(f" {number} | {text}")
        if place.column:
            lines.append(f" {pad} | {' ' * caret}^")
    if diagnostic.hint:
        lines.append(f"  hint: {visible(diagnostic.hint)}")
    return "\n".join(lines)


def format_diagnostics(diagnostics: Iterable[Diagnostic]) -> str:
    """All faults, errors before warnings, each kind in the order of its places; an empty line between two."""
    return "\n\n".join(format_diagnostic(d) for d in ordered(diagnostics))


def ordered(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Errors first, then by file and place; a fault found twice (a step definition used twice) stands once."""

    def rank(diagnostic: Diagnostic) -> tuple[bool, str, int, int]:
        place = diagnostic.place
        where = (place.file, place.line, place.column) if place else ("", 0, 0)
        return (diagnostic.level != "error", *where)

    return tuple(sorted(dict.fromkeys(diagnostics), key=rank))


def _pointed(source: str, column: int) -> tuple[str, int]:
    """The line as shown, and how many cells stand before the caret. A long line is cut to what is around it."""
    start = max(0, column - _WIDTH // 2) if len(source) > _WIDTH else 0
    before = _shown(source[start : max(column - 1, 0)])
    after = _shown(source[max(column - 1, start) : start + _WIDTH])
    left, right = "…" if start else "", "…" if len(source) > start + _WIDTH else ""
    return f"{left}{before}{after}{right}", _cells(left + before)


def _shown(text: str) -> str:
    return visible(text.replace("\t", " "))


def _cells(text: str) -> int:
    """How many cells of a terminal a text takes: wide characters two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
