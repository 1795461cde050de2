"""`with:` and `when:` of a step that uses a pipeline, as steps of the run: what each input is given, what it waits for.

Whatever can be known before a run is checked here: that what is given exists, that it is of the input's type, that one
value is given and not one for each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from orchestrator.building import fan_out
from orchestrator.building.conditions import when_of
from orchestrator.contracts import Contract, input_contract, schemas
from orchestrator.errors import Place
from orchestrator.expressions import Expression
from orchestrator.faults import nearest
from orchestrator.graph import Graph, Hand, InputNode, Read, StepNode
from orchestrator.ids import digest, variable
from orchestrator.spec import MISSING, BindSpec, InputSpec, ManifestKind, StepSpec

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding

CONDITION: Final = "when"
ALL_KINDS: Final[frozenset[ManifestKind]] = frozenset(get_args(ManifestKind))


def given(step: StepBuilding, graph: Graph) -> tuple[StepNode, ...]:
    """For each input of the used pipeline the step that makes its value; faults are reported."""
    nodes = [_given(step, node) for node in graph.inputs.values() if node.earlier is None]
    return tuple(node for node in nodes if node is not None)


def _given(step: StepBuilding, node: InputNode) -> StepNode | None:
    bind = (step.spec.with_ or {}).get(node.name)
    if bind is None:
        return None if node.default is MISSING else _fixed(step, node, node.default, node.place)
    place = step.of("with", node.name)
    if bind.value is not MISSING:
        for fault in node.contract.faults(bind.value):
            message = f"the value of {node.name} does not fit {node.contract.name}: {fault.path} {fault.rule}"
            step.error("P275", message, place, f"the input stands at {node.place}")
        return _fixed(step, node, bind.value, place)
    found = _source(step, node, bind, place)
    if found is None:
        return None
    read, path = found
    made = digest({"from": list(path), "input": node.name})
    return _node(step, node.name, node.contract, (read,), Hand(path=path), made, place)


def _fixed(step: StepBuilding, node: InputNode, value: Any, place: Place) -> StepNode:
    return _node(step, node.name, node.contract, (), Hand(value=value), digest({"value": value}), place)


def _node(
    step: StepBuilding,
    name: str,
    contract: Contract,
    reads: tuple[Read, ...],
    hand: Hand,
    made: str,
    place: Place,
) -> StepNode:
    """A step that costs nothing. Its names are those of the pipeline that uses; they are looked up with the whole."""
    defaults = step.building.spec.defaults
    return StepNode(
        name=f"{step.name}.{name}",
        kind="python",
        order=0,
        spec=StepSpec(),
        contract=contract,
        reads=reads,
        parents=step.building.gates.parents[step.name],
        template=None,
        function=None,
        tools=(),
        checks=(),
        model=None,
        conversation=None,
        reasks=0,
        timeout=defaults.timeout,
        call_timeout=defaults.call_timeout,
        digest=made,
        place=place,
        stale_on=ALL_KINDS,
        hand=hand,
    )


# --- what an input is given -------------------------------------------------------------------------------------------


def _source(step: StepBuilding, node: InputNode, bind: BindSpec, place: Place) -> tuple[Read, tuple[str, ...]] | None:
    """The read that an input is given, and the path in its value; None after a fault."""
    building, for_each = step.building, step.spec.for_each
    name, rest = building.uses.split(bind.read)
    path = tuple(part for part in rest.split(".") if part)
    if for_each is not None and name == for_each.item:
        listed = building.for_each(step.name)
        if listed is None:
            return None
        read = Read(name, "entry", listed.entry, None, bind.guard, place, of=listed.source)
        return (read, path) if _fits(step, node, listed.entry, bind.read, path, place) else None
    kind = building.kinds().get(name)
    if name == step.name or kind is None:
        if name == step.name:
            step.error("P203", f"{node.name} is given its own value", place, "name another step")
        else:
            building.unknown(f"step {step.name}: {node.name} is given", name, place)
        return None
    contract = building.source_contract(name, kind)
    if contract is None:
        return None
    takes = fan_out.takes(building, step.name, name)
    if takes == "each":
        message = f"{node.name} is given {name}, which is one value for each key, and an input takes one"
        step.error("P275", message, place, "give it what a step makes of them all")
        return None
    if building.may_be_skipped(name) and bind.default is MISSING and takes != "sibling":
        message = f"{name} may be skipped (it has a `when`), and {node.name} has no default here"
        step.error("P209", message, place, f"write {{read: {bind.read}, default: …}}, a value for {node.name}")
        return None
    if bind.default is not MISSING:
        for fault in node.contract.faults(bind.default):
            step.error("P208", f"the default of {node.name} does not fit: {fault.path} {fault.rule}", place)
    if not _fits(step, node, contract, bind.read, path, place):
        return None
    step_or_input: Any = "step" if kind == "step" else "input"
    fields = path[:1] or None
    read = Read(name, step_or_input, contract, fields, bind.guard, place, default=bind.default, takes=takes)
    return read, path


def _fits(
    step: StepBuilding, node: InputNode, contract: Contract, text: str, path: tuple[str, ...], place: Place
) -> bool:
    """Whether what is given can be of the input's type; reports where it cannot."""
    schema: Mapping[str, Any] = contract.schema or {}
    for at, part in enumerate(path):
        known = schemas.properties(schema, contract.schema or {})
        if part not in known:
            if contract.form == "json" and known == {} and at:
                return True  # a free-form object: what it holds, the run sees
            where = ".".join((*text.split(".")[: len(text.split(".")) - len(path) + at],))
            hint = nearest(part, list(known)) if known else "name it without a field"
            step.error("P275", f"{node.name} is given {text}, and {where} has no field {part}", place, hint)
            return False
        schema = known[part]
    whole = not path
    why = _misfit(node.contract, contract, schema, whole)
    if why:
        wanted = f"takes {_form(node.contract)}"
        message = f"{node.name} of the pipeline {wanted}, and {text} is {why}"
        step.error("P275", message, place, f"the input stands at {node.place}")
    return not why


def _misfit(wanted: Contract, source: Contract, schema: Mapping[str, Any], whole: bool) -> str:
    """What a source is, where that can be no value of an input; empty where it can."""
    if wanted.form == "file":
        return "" if whole and source.form != "json" else _kind(source, schema, whole)
    if whole and source.form != "json":
        text = source.form in ("text", "markdown")
        return "" if text and wanted.form in ("text", "markdown") else _kind(source, schema, whole)
    types = _types(schema, source.schema or {})
    if wanted.form in ("text", "markdown"):
        return "" if not types or "string" in types else _kind(source, schema, whole)
    needed = _types(wanted.schema or {}, wanted.schema or {})
    if types and needed and not types & (needed | ({"integer"} if "number" in needed else set())):
        return _kind(source, schema, whole)
    return _lacking(wanted, source, schema)


def _lacking(wanted: Contract, source: Contract, schema: Mapping[str, Any]) -> str:
    """For objects: the required fields that the source has not, or that are of another kind there."""
    root = wanted.schema or {}
    have = schemas.properties(schema, source.schema or {})
    theirs = schemas.properties(root, root)
    required = [name for branch in schemas.branches(root, root) for name in branch.get("required") or ()]
    lacking = [name for name in required if have and name not in have]
    if lacking:
        return f"{_form(source)} without {', '.join(dict.fromkeys(lacking))}"
    for name in required:
        if name in have and name in theirs:
            mine, other = _types(theirs[name], root), _types(have[name], source.schema or {})
            if mine and other and not other & (mine | ({"integer"} if "number" in mine else set())):
                return f"{_form(source)}, whose {name} is {' or '.join(sorted(other))}"
    return ""


def _types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    """The types that a schema names; empty where it leaves them open."""
    found: set[str] = set()
    for branch in schemas.branches(schema, root):
        kinds = branch.get("type")
        if isinstance(kinds, str | list):
            found |= {kinds} if isinstance(kinds, str) else set(kinds)
        elif "enum" in branch or "const" in branch:
            values = branch.get("enum", [branch.get("const")])
            found |= {"string" if isinstance(value, str) else "other" for value in values}
        else:
            return set()
    return found - {"null"} if found != {"null"} else found


def _kind(source: Contract, schema: Mapping[str, Any], whole: bool) -> str:
    if whole:
        return _form(source)
    return " or ".join(sorted(_types(schema, source.schema or {}))) or "something else"


def _form(contract: Contract) -> str:
    words = {"text": "text", "markdown": "Markdown", "file": "a file"}
    plain = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    return words.get(contract.form) or plain.get(contract.name, f"a {contract.name}")


# --- what the whole waits for -----------------------------------------------------------------------------------------


def condition(step: StepBuilding, nodes: tuple[StepNode, ...]) -> StepNode | None:
    """The step that says whether the used pipeline is wanted: its `when`. None where there is none, or a faulty one."""
    if step.spec.when is None:
        return None
    own = [read for node in nodes for read in node.reads if read.kind != "entry" and read.takes == "one"]
    whole = [_whole(read) for read in own]
    reads = {read.name: read for read in [*whole, *step._reads()]}
    when = when_of(step, tuple(reads.values()))
    if when is None:
        return None
    used = tuple(read for read in reads.values() if variable(read.name) in _heads(when))
    contract = input_contract(
        CONDITION, InputSpec(type="boolean", about=f"Whether {step.name} is done."), step.of("when")
    )
    made = digest({"when": when.text})
    return _node(step, CONDITION, contract, used, Hand(condition=when), made, step.of("when"))


def _whole(read: Read) -> Read:
    return replace(read, fields=None, guard=None)


def _heads(expression: Expression) -> set[str]:
    return {use.path[0] for use in expression.uses}
