"""What a model is told of a tool's result: its contract ahead of it, the parts that are wanted, and no more than fits.

One result can outweigh twenty turns of a conversation, and it is paid for again with every later call of the thread. So
a tool may name the parts of its result that are worth telling (`keep`), and there is always a limit. What was left out
is never left out silently: a cut says so in the text that the model reads, and the whole stands in the record.

A result under a contract is told like any other artifact: in a wrapper that its content cannot close, with what it is
and what it must not be used for ahead of it. Guards follow the value, wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.contracts import Contract
from orchestrator.frame import FramedArtifact, write_artifact
from orchestrator.ids import canonical_json, whole_characters
from orchestrator.providers.tokens import estimate, of_bytes

DEFAULT_TOKENS: Final = 20_000
_LEAST_KEPT: Final = 40  # characters of a result that is cut, however small the limit


class ResultFault(Exception):
    """A result that its contract does not allow: the fault of the tool's author, said to the model as an error."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a tool's result is told: `keep` are paths into it (all of it, where there are none), `max_tokens` the limit,
    `returns` the contract of the whole."""

    keep: tuple[str, ...] = ()
    max_tokens: int = DEFAULT_TOKENS
    returns: Contract | None = None

    @property
    def described(self) -> list[Any]:
        """What of it changes what a model reads; empty for the shape that tools have by default."""
        contract = self.returns.digest if self.returns is not None else None
        said = [list(self.keep), self.max_tokens, contract]
        return [] if said == [[], DEFAULT_TOKENS, None] else said


@dataclass(frozen=True, slots=True)
class Told:
    """`text` is for the model; `whole` is the result as it was, where the text does not hold all of it. `missing` are
    the paths of `keep` that lead nowhere, `cut` how many characters were left out at the end."""

    text: str
    whole: str | None = None
    missing: tuple[str, ...] = ()
    cut: int = 0


def tell(result: Any, shape: Shape, tool: str) -> Told:
    """A result as the model reads it. Raises ResultFault for one that breaks its contract, ValueError for one that is
    no JSON data."""
    from pydantic_core import to_jsonable_python

    contract = shape.returns
    data = to_jsonable_python(result) if contract is None else _under_contract(result, contract, tool)
    whole = _written(data)
    kept, missing = (data, ()) if isinstance(data, str) else _project(data, shape.keep)
    text = _written(kept)
    short = _cut(text, shape.max_tokens)
    cut = len(text) - len(short)
    said = short + (_note(len(text), cut) if cut else "")
    told = said if shape.returns is None else _framed(said, shape.returns, tool)
    return Told(told, whole if cut or text != whole else None, missing, cut)


def _under_contract(result: Any, contract: Contract, tool: str) -> Any:
    try:
        data = contract.normalise(result)
        faults = contract.faults(data)
    except ValueError as error:
        raise ResultFault(f"{tool} gave no valid {contract.name}: {error}") from error
    if faults:
        first = faults[0]
        raise ResultFault(f"{tool} gave no valid {contract.name}: {first.path} {first.rule}, got {first.value!r}")
    excess = contract.too_large(contract.encode(data))
    if excess is not None:
        raise ResultFault(f"what {tool} gave is {excess}")
    return data


def _framed(text: str, contract: Contract, tool: str) -> str:
    return "".join(write_artifact(FramedArtifact(tool, contract.name, contract.about, contract.not_for, text)))


def _written(data: Any) -> str:
    """Text as it is, everything else as one line of canonical JSON."""
    return whole_characters(data) if isinstance(data, str) else canonical_json(data, indent=None).decode()


# --- the parts that are wanted ----------------------------------------------------------------------------------------

_Tree = dict[str, Any]


def _project(data: Any, keep: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """The parts at these paths, each where it stood; a path leads through every entry of a list. And the paths that
    lead nowhere: of data that could hold them, since an empty list has nothing to keep."""
    if not keep:
        return data, ()
    tree: _Tree = {}
    for path in keep:
        at = tree
        for part in path.split("."):
            at = at.setdefault(part, {})
    missing = tuple(path for path in keep if not any(_leads(data, path.split("."))))
    return _kept(data, tree), missing


def _kept(data: Any, tree: _Tree) -> Any:
    if not tree:
        return data
    if isinstance(data, list):
        return [_kept(entry, tree) for entry in data]
    if isinstance(data, Mapping):
        return {name: _kept(data[name], below) for name, below in tree.items() if name in data}
    return data


def _leads(data: Any, path: Sequence[str]) -> Iterator[bool]:
    if not path or data == [] or data is None:
        yield True
    elif isinstance(data, list):
        for entry in data:
            yield from _leads(entry, path)
    elif isinstance(data, Mapping) and path[0] in data:
        yield from _leads(data[path[0]], path[1:])


# --- no more than fits ------------------------------------------------------------------------------------------------


def _cut(text: str, most: int) -> str:
    """The beginning of a text that is within so many tokens, by the one count that is the same everywhere."""
    if of_bytes(len(text.encode())) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if estimate(text[:middle]) <= most else (low, middle - 1)
    return text[: max(low, _LEAST_KEPT)]


def _note(length: int, cut: int) -> str:
    return f"\n[cut here: {cut:,} of {length:,} characters are left out; ask for less at a time to see them]"
