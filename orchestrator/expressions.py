"""The small language of `expr`: a subset of Python over JSON data, parsed once, evaluated without `eval`.

What it has: comparisons (`== != < <= > >= in`, `not in`, `is None`), `and or not`, attributes, `len min max abs`,
literals and lists of them, and `+ - * /` on numbers. What it has not, it refuses while parsing, so that an expression
which loads can only fail on the values it meets: a null where a number is needed.

Two rules differ from Python, both on purpose. An attribute is a key of a JSON object, nothing else: no method or
private name of any object can be reached. And numbers are decimal, as they are written in JSON, so that
`0.1 + 0.2 == 0.3` holds and no correct answer is sent back over a rounding error.

A name is written with `_` where it is declared with `-`, since Python reads `tech-stack` as a subtraction.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from orchestrator.ids import variable
from orchestrator.syntax import expression_of

MAX_LENGTH: Final = 2000

_COMPARE: Final[Mapping[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda item, whole: item in whole),
    ast.NotIn: ("not in", lambda item, whole: item not in whole),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
}
_ARITHMETIC: Final[Mapping[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"len": len, "min": min, "max": max, "abs": abs}
_ALLOWED: Final = "comparisons, and/or/not, attributes, in, len, min, max, abs, literals and + - * /"
_JSON_WORDS: Final[Mapping[str, str]] = {"true": "True", "false": "False", "null": "None"}


class ExpressionError(ValueError):
    """An expression that cannot be read, or cannot be computed on the values it met. `column` counts from 1."""

    def __init__(self, message: str, *, hint: str | None = None, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.column = column


@dataclass(frozen=True, slots=True)
class NameUse:
    """One name an expression uses, with the attributes that follow it: `("tech_stack", "components")`."""

    path: tuple[str, ...]
    column: int


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. `names` are the variables it needs, `uses` every path in it, in order of appearance."""

    text: str
    tree: ast.expr
    uses: tuple[NameUse, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(use.path[0] for use in self.uses)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Its value over JSON data; keys of `values` may be written with `-` or `_`. What is absent is null.

        Raises ExpressionError where the values do not allow it, such as a null compared with `<`.
        """
        by_variable = {variable(name): value for name, value in values.items()}
        return _Evaluation(self.text, by_variable).of(self.tree)


def parse(text: str) -> Expression:
    """Read an expression. Raises ExpressionError naming what is not part of the language, with its column."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression is longer than {MAX_LENGTH} characters")
    try:
        tree = expression_of(text.strip())
    except SyntaxError as error:
        raise ExpressionError(
            f"`{text.strip()}` is not an expression: {error.msg}", hint=_syntax_hint(text), column=error.offset or 1
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"the expression cannot be read: {error}") from error
    _check(tree)
    return Expression(text.strip(), tree, tuple(_uses(tree)))


def dashed_name(expression: Expression, names: Collection[str]) -> str | None:
    """The declared name that the text writes with `-` (`tech-stack.components`), so that Python reads a subtraction."""
    segments = [
        ast.get_source_segment(expression.text, node) or ""
        for node in ast.walk(expression.tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    ]
    dashed = sorted((name for name in names if "-" in name), key=len, reverse=True)
    for name in dashed:
        pattern = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        if any(pattern.search(segment) for segment in segments):
            return name
    return None


def _syntax_hint(text: str) -> str | None:
    if re.search(r"[^=!<>]=[^=]", text):
        return "compare with `==`"
    if "&&" in text or "||" in text:
        return "write `and`, `or`"
    return None


# --- reading ----------------------------------------------------------------------------------------------------------


def _check(node: ast.expr) -> None:
    """Refuse every node outside the language, with a word on what to write instead."""
    match node:
        case ast.Constant(value=value):
            if not (value is None or isinstance(value, bool | int | float | str)):
                raise _refused(node, f"a {type(value).__name__} literal")
        case ast.Name(id=name):
            if name in _FUNCTIONS:
                raise ExpressionError(f"`{name}` is a function: write `{name}(…)`", column=node.col_offset + 1)
            if name in _JSON_WORDS:
                raise ExpressionError(
                    f"`{name}` is not known here", hint=f"write `{_JSON_WORDS[name]}`", column=node.col_offset + 1
                )
        case ast.Attribute(value=value):
            if _path(node) is None:
                raise _refused(node, "an attribute of something that is not a name")
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            _check_all(elements)
        case ast.BoolOp(values=values):
            _check_all(values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            _check(operand)
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) not in _ARITHMETIC:
                raise _refused(node, f"the operator {type(op).__name__}")
            _check_all([left, right])
        case ast.Compare(left=left, comparators=comparators):
            _check_compare(node)
            _check_all([left, *comparators])
        case ast.Call():
            _check_call(node)
        case _:
            raise _refused(node, _WORDS.get(type(node), f"`{ast.unparse(node)}`"))


def _check_all(nodes: Collection[ast.expr]) -> None:
    for node in nodes:
        _check(node)


def _check_compare(node: ast.Compare) -> None:
    """`is` compares with None and truth values only: JSON data has no identity."""
    for op, right in zip(node.ops, node.comparators, strict=True):
        constant = isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, bool))
        if isinstance(op, ast.Is | ast.IsNot) and not constant:
            raise ExpressionError(
                "`is` compares with None, True and False only", hint="write `==`", column=node.col_offset + 1
            )


def _check_call(node: ast.Call) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in _FUNCTIONS:
        raise _refused(node, f"`{name}(…)`")
    if node.keywords or not node.args or (name in ("len", "abs") and len(node.args) != 1):
        raise ExpressionError(f"`{name}` takes {_ARITY[name]}", column=node.col_offset + 1)
    _check_all(node.args)


_ARITY: Final = {"len": "one value", "abs": "one number", "min": "a list, or several", "max": "a list, or several"}
_WORDS: Final[Mapping[type[ast.expr], str]] = {
    ast.Subscript: "an index `[…]`",
    ast.GeneratorExp: "a generator",
    ast.ListComp: "a comprehension",
    ast.IfExp: "`if … else`",
    ast.Lambda: "a lambda",
    ast.Dict: "a `{…}` literal",
    ast.JoinedStr: "an f-string",
}


def _refused(node: ast.expr, what: str) -> ExpressionError:
    return ExpressionError(
        f"{what} is not part of the expression language",
        hint=f"it has {_ALLOWED}; for more write a Python check",
        column=node.col_offset + 1,
    )


def _path(node: ast.expr) -> tuple[str, ...] | None:
    """`a.b.c` as its parts; None for anything else."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        head = _path(node.value)
        return (*head, node.attr) if head else None
    return None


def _uses(node: ast.AST) -> list[NameUse]:
    if isinstance(node, ast.Name | ast.Attribute):
        path = _path(node)
        return [NameUse(path, node.col_offset + 1)] if path else []
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    return [use for child in children for use in _uses(child)]


# --- computing --------------------------------------------------------------------------------------------------------


class _Evaluation:
    def __init__(self, text: str, values: Mapping[str, Any]) -> None:
        self.text = text
        self.values = values

    def of(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return _exact(value)
            case ast.Name() | ast.Attribute():
                return self._lookup(node)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.of(element) for element in elements]
            case ast.BoolOp(op=op, values=operands):
                return self._bool(isinstance(op, ast.And), operands)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.of(operand)
            case ast.UnaryOp(operand=operand):
                return -self._number(operand, "-")
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(left, op, right)
            case ast.Compare():
                return self._compare(node)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(name, args)
        raise AssertionError(f"{type(node).__name__} passed the check")  # pragma: no cover

    def _lookup(self, node: ast.Name | ast.Attribute) -> Any:
        """A path through JSON objects. A key that is absent is null, as an optional field is."""
        path = _path(node) or ()
        value = self.values.get(path[0])
        for at, attribute in enumerate(path[1:], start=1):
            if not isinstance(value, Mapping):
                what = "null" if value is None else f"not an object but {_describe(value)}"
                raise ExpressionError(f"`{'.'.join(path[:at])}` is {what}, so it has no `{attribute}`")
            value = _member(value, attribute)
        return _exact(value)

    def _bool(self, conjunction: bool, operands: list[ast.expr]) -> Any:
        value: Any = None
        for operand in operands:
            value = self.of(operand)
            if bool(value) != conjunction:
                break
        return value

    def _number(self, node: ast.expr, sign: str) -> Any:
        value = self.of(node)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise ExpressionError(f"`{ast.unparse(node)}` is {_describe(value)}, and `{sign}` needs a number")
        return value

    def _arithmetic(self, left: ast.expr, op: ast.operator, right: ast.expr) -> Any:
        sign, function = _ARITHMETIC[type(op)]
        a, b = self._number(left, sign), self._number(right, sign)
        try:
            return function(Decimal(a), Decimal(b))
        except (ZeroDivisionError, InvalidOperation) as error:
            raise ExpressionError(f"`{ast.unparse(right)}` is 0, so nothing can be divided by it") from error
        except ArithmeticError as error:
            raise ExpressionError(f"`{self.text}` grows too large to compute") from error

    def _compare(self, node: ast.Compare) -> bool:
        left_node, left = node.left, self.of(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.of(right_node)
            sign, function = _COMPARE[type(op)]
            try:
                holds = function(left, right)
            except TypeError as error:
                raise ExpressionError(
                    f"`{ast.unparse(left_node)}` is {_describe(left)} and `{ast.unparse(right_node)}` is "
                    f"{_describe(right)}: `{sign}` cannot compare them"
                ) from error
            if not holds:
                return False
            left_node, left = right_node, right
        return True

    def _call(self, name: str, args: list[ast.expr]) -> Any:
        values = [self.of(arg) for arg in args]
        shown = f"`{name}({', '.join(ast.unparse(arg) for arg in args)})`"
        try:
            return _FUNCTIONS[name](*values)
        except (TypeError, ValueError) as error:
            kinds = ", ".join(_describe(value) for value in values)
            raise ExpressionError(f"{shown} cannot be computed on {kinds}") from error


def _member(value: Mapping[str, Any], attribute: str) -> Any:
    if attribute in value:
        return value[attribute]
    return next((v for k, v in value.items() if variable(k) == attribute), None)


def _exact(value: Any) -> Any:
    """Floats as the decimals they are written as, in lists and objects too."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _exact(item) for key, item in value.items()}
    return value


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else "a text"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, Mapping) else type(value).__name__
