"""What Python authors declare, as plain records with the place of each: the other face of a pipeline file.

Nothing is decided here. A declaration keeps what was written and the line it stands on; `python_pipelines` turns all of
them into the same data that a YAML file holds, so that both faces are checked by the same code and become the same
`PipelineSpec`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, Final, Generic, Literal, TypeVar

from orchestrator.errors import Diagnostic, Place
from orchestrator.spec import MISSING, Overflow

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_MARK: Final = "__orchestrator_artifact__"


# --- artifacts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArtifactMark:
    """What `@artifact` says of a class: the keys of a contract file."""

    name: str
    keys: Mapping[str, Any]
    place: Place


def artifact(
    *,
    about: str,
    not_for: Sequence[str] | Literal["none"],
    name: str | None = None,
    sensitivity: str | None = None,
    tags: Sequence[str] = (),
    max_tokens: int | None = None,
    overflow: Overflow | None = None,
    markdown: bool = False,
) -> Callable[[type[R]], type[R]]:
    """Declare a class as an artifact type: what its values represent, and what they must not be used for.

    The class is a pydantic model, or derives from `str` for text (`markdown` says that it is Markdown). Its contract is
    called like the class, `VendorRates` → `vendor-rates`, unless `name` says otherwise. `overflow` says what becomes of
    a value over `max_tokens`: it is refused (`fail`), or readers are shown its beginning (`truncate`) or a summary
    (`summarise`). The class stays as it is.
    """
    keys: dict[str, Any] = {"about": about, "not_for": not_for if not_for == "none" else list(not_for)}
    keys |= {"sensitivity": sensitivity} if sensitivity is not None else {}
    keys |= {"tags": list(tags)} if tags else {}
    keys |= {"max_tokens": max_tokens} if max_tokens is not None else {}
    keys |= {"overflow": overflow} if overflow is not None else {}
    place = caller()

    def mark(cls: type[R]) -> type[R]:
        schema = {"schema": "markdown" if markdown else "text"} if issubclass(cls, str) else {}
        setattr(cls, _MARK, ArtifactMark(name or kebab(cls.__name__), {**keys, **schema}, place))
        return cls

    return mark


def mark_of(cls: Any) -> ArtifactMark | None:
    """What `@artifact` said of this very class; a subclass is another type and says it for itself."""
    found = vars(cls).get(_MARK) if isinstance(cls, type) else None
    return found if isinstance(found, ArtifactMark) else None


def kebab(name: str) -> str:
    """`VendorRates` → `vendor-rates`, `market_sizing` → `market-sizing`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return words.replace("_", "-").strip("-").lower()


# --- what a step reads ------------------------------------------------------------------------------------------------


class Source(Generic[R_co]):
    """Something that can be read: a step or an input of a pipeline. `R_co` is the type of its value."""

    name: str

    def value_type(self) -> Any:
        """The class of its values as the author declared it; None where that is a contract's name."""
        return None


class Read:
    """How a parameter is read: `Annotated[VendorRates, Read(guard="…")]`.

    `source` names the step or input, where the parameter's type does not say it. `fields` takes some top-level fields
    only; the parameter's type is then a model of those fields. `guard` says what the value must not be used for in this
    step. `require="approved"` takes no version that the gates showing it have not approved. `default` stands in for a
    value that does not exist. `from_` reads what an earlier run made, of the same `"session"` or of the `"project"`:
    `source` is the step there, and `as_` the name it has here (default: the parameter's). `select` stands for a read of
    each step that a selection means (`"tag:costs"`), in the `reads` of `p.llm`; what it reads has no one type, so a
    function's parameter cannot be one.
    """

    __slots__ = ("as_", "default", "fields", "from_", "guard", "require", "select", "source")

    def __init__(
        self,
        source: str | Source[Any] | None = None,
        *,
        fields: Sequence[str] | None = None,
        guard: str | None = None,
        require: Literal["current", "approved"] | None = None,
        default: Any = MISSING,
        from_: Literal["session", "project"] | None = None,
        as_: str | None = None,
        select: str | None = None,
    ) -> None:
        self.source = source if source is None or isinstance(source, str) else source.name
        self.fields = None if fields is None else tuple(fields)
        self.guard = guard
        self.require = require
        self.default = default
        self.from_ = from_
        self.as_ = as_
        self.select = select


# --- a pipeline -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputDeclaration:
    """`p.input(…)`: `type` is a Python type or one of the words of a pipeline file."""

    name: str
    type: Any
    keys: Mapping[str, Any]
    place: Place


@dataclass(frozen=True, slots=True)
class StepDeclaration:
    """`@p.step` (then there is a `function`) or `p.llm(…)`. `reads` and `produces` are given for the latter only.

    `names` are the local names at a function that is defined inside another one: its annotations may use them.
    """

    name: str
    place: Place
    keys: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    reads: tuple[Any, ...] = ()
    needs: tuple[Any, ...] = ()
    produces: Any = None
    tools: tuple[Any, ...] = ()
    checks: tuple[Any, ...] = ()
    names: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Declarations:
    """All that one `Pipeline` object was told, in order. `file` is None where no file holds it (a notebook)."""

    name: str
    place: Place
    file: Path | None
    keys: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] = field(default_factory=dict)
    inputs: list[InputDeclaration] = field(default_factory=list)
    steps: list[StepDeclaration] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    faults: list[Diagnostic] = field(default_factory=list)


class Declared:
    """Base of `Pipeline`: whatever has declarations, without the doors to a run."""

    declarations: Declarations


def amount(usd: str | int | Decimal) -> str:
    """An amount of dollars as a pipeline file writes it; floats are refused by its type, so no cent is lost."""
    return str(usd)


# --- where something was written --------------------------------------------------------------------------------------

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_OURS: Final = frozenset({_PACKAGE, *(os.path.join(_PACKAGE, folder) for folder in ("python", "bodies"))})


def caller() -> Place:
    """The line of the author's code that is being executed: the nearest frame outside the files of this package."""
    frame = author()
    return Place(frame.f_code.co_filename, frame.f_lineno)


def author() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) in _OURS:
        frame = frame.f_back
    return frame


def file_of(place: Place) -> Path | None:
    """The file of a place; None where none holds it: a notebook's cell, a prompt."""
    path = Path(os.path.realpath(place.file))
    return path if path.suffix == ".py" and path.is_file() else None
