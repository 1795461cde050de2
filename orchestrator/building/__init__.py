"""Specs → Graph: one pass over everything, that stops at nothing and reports each fault at its place.

Contracts first, then inputs, the names of the whole pipeline, each step by itself (`step_building`), and at last what
only the whole can say: the order, what nobody reads. A part that is faulty is left out and the rest is checked all the
same, so that an author sees the whole list at once; a graph comes out only when the list has no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.building.gates import Gates, check_approvals, check_redone, review_node, warn_ungated
from orchestrator.building.inlining import Group, inputs_of, linked, nodes_of
from orchestrator.building.models import Models, Unset
from orchestrator.building.uses import Chain, Uses, begun, group_of
from orchestrator.contracts import Contract, build_contract, contract_input, input_contract
from orchestrator.contracts.decision import decision_contract
from orchestrator.diagnostics import ordered
from orchestrator.errors import Diagnostic, InvalidProject, Place
from orchestrator.faults import nearest
from orchestrator.graph import ForEach, Gate, Graph, InputNode, StepNode, cycles, topological
from orchestrator.ids import digest, variable
from orchestrator.loading import Loaded, load_contract, load_pipeline
from orchestrator.project import OutsideProject, Project
from orchestrator.settings import Settings
from orchestrator.spec import MISSING, SCALAR_INPUTS, InputSpec, PathKey, PipelineSpec, Places

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding

BUILT_IN_TYPES = SCALAR_INPUTS | {"text", "file"}


def check(project: Project, settings: Settings, path: Path) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """See `graph.check_pipeline`."""
    return checked(project, settings, load_pipeline(project, path))


def checked(project: Project, settings: Settings, loaded: Loaded) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
    """Like `check`, of a pipeline that is read already."""
    graph, diagnostics, unset = built(project, settings, loaded)
    return graph, ordered([*diagnostics, *(alias.warning() for alias in unset)])


def build(project: Project, settings: Settings, path: Path, *, require_model: bool) -> Graph:
    """See `graph.build_graph`."""
    return finished(*built(project, settings, load_pipeline(project, path)), require_model=require_model)


def finished(
    graph: Graph | None, diagnostics: tuple[Diagnostic, ...], unset: tuple[Unset, ...], *, require_model: bool
) -> Graph:
    """The graph of `built`. Raises InvalidProject, and ConfigError for a model that is needed and not set."""
    if graph is None:
        raise InvalidProject(ordered(diagnostics))
    if require_model and unset:
        raise unset[0].error()
    return graph


def built(
    project: Project, settings: Settings, loaded: Loaded
) -> tuple[Graph | None, tuple[Diagnostic, ...], tuple[Unset, ...]]:
    """The graph of a pipeline that is read already, every diagnostic, and the model aliases that are not set."""
    if loaded.spec is None:
        return None, loaded.diagnostics, ()
    building = Building(project, settings, loaded, loaded.spec, begun(loaded, loaded.spec))
    graph = building.graph()
    return graph, tuple(building.found), tuple(building.models.unset.values())


class Building:
    """One pipeline on its way to a graph. `found` collects every diagnostic, those of loading first."""

    def __init__(self, project: Project, settings: Settings, loaded: Loaded, spec: PipelineSpec, chain: Chain) -> None:
        self.project = project
        self.mcp = settings.mcp
        self.loaded = loaded
        self.settings = settings
        self.spec = spec
        self.chain = chain
        self.places: Places = loaded.places
        self.found: list[Diagnostic] = list(loaded.diagnostics)
        self.models = Models.of(spec, settings, loaded.places, self.found.append)
        self.contracts: dict[str, Contract | None] = {}
        self.inputs: dict[str, InputNode] = {}
        self.steps: dict[str, StepNode] = {}
        self.groups: dict[str, Group] = {}
        self.gates = Gates(spec)
        steps = [*spec.steps, *self.gates.reviews.values()]
        self._kinds = {**dict.fromkeys(spec.inputs, "input"), **dict.fromkeys(steps, "step")}
        self._fan_outs: dict[str, ForEach | None] = {}

    def graph(self) -> Graph | None:
        from orchestrator.building.earlier import resolve_earlier
        from orchestrator.building.selects import resolve_selects
        from orchestrator.building.steps import StepBuilding

        for name in self.spec.artifacts:
            self.contract(name)
        self.uses = Uses(self)
        resolve_selects(self)
        resolve_earlier(self)
        self.uses.expand()
        self.gates = Gates(self.spec, self.uses.origin, self.uses.target)  # of the reads by name
        self._kinds |= dict.fromkeys(self.uses.outputs(), "step")
        self._build_inputs()
        self._check_names()
        for name, step in self.spec.steps.items():
            if step.with_ is not None:
                self._use(StepBuilding(self, name, step))
                continue
            node = StepBuilding(self, name, step).node()
            if node is not None:
                self.steps[name] = node
            if node is not None and name in self.gates.reviews:
                self.steps[self.gates.reviews[name]] = review_node(self, node)
        check_redone(self, self.steps)
        check_approvals(self)
        self.models.check_all()
        order = self._order()
        outputs = self._outputs()
        self._warn_unused(outputs)
        if not self.loaded.dropped:
            warn_ungated(self, outputs)
        if any(d.level == "error" for d in self.found):
            return None
        return _assemble(self, order, outputs)

    def _use(self, step: StepBuilding) -> None:
        """The steps of a used pipeline, still beside the others."""
        graph = self.uses.graphs.get(step.name)
        group = group_of(step, graph) if graph is not None else None
        if group is not None:
            self.groups[step.name] = group

    # --- reporting

    def error(
        self,
        code: str,
        message: str,
        place: Place,
        hint: str | None = None,
        *,
        source: str | None = None,
        warn: bool = False,
    ) -> None:
        line = source if source is not None else self.places.line(place)
        self.found.append(Diagnostic(code, message, place, hint, line, "warning" if warn else "error"))

    def of(self, *path: str | int) -> Place:
        return self.places.of(*path)

    def base(self, step: str, key: str) -> Path:
        """The file that the references under a step's key are relative to."""
        return self.loaded.base(step, key)

    def damaged(self, *path: str | int) -> bool:
        """Whether a part of the file was left out for a fault that is reported: what it lacks is no new fault."""
        return self.loaded.damaged(*path)

    # --- names

    def kinds(self) -> Mapping[str, str]:
        """Every name that can be read, with what it is. Steps and inputs share one name space."""
        return self._kinds

    def known_as_input(self, name: str) -> None:
        """A name that can be read although nobody declares it: an earlier run has made it."""
        self._kinds[name] = "input"

    def is_scalar(self, name: str) -> bool:
        """Whether a name is an input of a one-line type."""
        return name in self.spec.inputs and self.spec.inputs[name].type in SCALAR_INPUTS

    def has_items(self, name: str) -> bool:
        """Whether a step is made for each entry of a list, or an output is of one that is."""
        step = self.spec.steps.get(self.uses.origin(name))
        return step is not None and (step.for_each is not None or self.uses.has_items(name))

    def may_be_skipped(self, name: str) -> bool:
        """Whether a step has a `when`, or an output is of one that has."""
        step = self.spec.steps.get(self.uses.origin(name))
        return step is not None and (step.when is not None or self.uses.may_be_skipped(name))

    def for_each(self, name: str) -> ForEach | None:
        """A step's fan-out; None if it has none, or a faulty one (reported once)."""
        spec = self.spec.steps[name].for_each
        if spec is None:
            return None
        if name not in self._fan_outs:
            from orchestrator.building.fan_out import for_each_of
            from orchestrator.building.steps import StepBuilding

            self._fan_outs[name] = None  # while it is made: steps that are joined in a circle end here
            self._fan_outs[name] = for_each_of(StepBuilding(self, name, self.spec.steps[name]), spec)
        return self._fan_outs[name]

    def unknown(self, what: str, name: str, place: Place) -> None:
        """Report a name that is neither a step nor an input, unless its own fault is the cause."""
        if self.damaged("steps", name) or self.damaged("inputs", name):
            return
        inside = self.uses.explained(name)
        if inside is not None:
            self.error("P274", f"{what} {name}, and {inside}", place, "make it an output of that pipeline")
            return
        names = [*self.spec.inputs, *self.spec.steps, *self.uses.outputs()]
        near = next((known for known in names if variable(known) == variable(name)), None)
        hint = f"it is written {near}" if near else nearest(name, names)
        self.error("P201", f"{what} {name}, which is neither a step nor an input", place, hint)

    def _check_names(self) -> None:
        for name in self.spec.inputs:
            if name in self.spec.steps:
                self.error(
                    "P202",
                    f"{name} is an input and a step; both share one name space",
                    self.places.key("steps", name),
                    f"rename one of them; the input stands at {self.places.key('inputs', name)}",
                )
        seen: dict[str, tuple[str, str]] = {}
        steps = [*self.spec.steps, *self.gates.reviews.values()]
        for kind, names in (("inputs", list(self.spec.inputs)), ("steps", steps)):
            for name in names:
                before, where = seen.setdefault(variable(name), (name, kind))
                if before != name:
                    self.error(
                        "P202",
                        f"{name} and {before} differ only by - and _ (or .), and both are written {variable(name)}",
                        self.places.key(kind, name),
                        f"rename one of them; {before} stands at {self.places.key(where, before)}",
                    )

    # --- contracts

    def contract(self, name: str) -> Contract | None:
        """A contract by name: inline first, then the shelf. None if there is none, or it is faulty (reported once)."""
        if name not in self.contracts:
            self.contracts[name] = self._load_contract(name)
        return self.contracts[name]

    def source_contract(self, name: str, kind: str) -> Contract | None:
        """What a step or input holds; None where that is faulty (reported)."""
        if kind == "input":
            node = self.inputs.get(name)
            return node.contract if node is not None else None
        if self.uses.origin(name) in self.uses:
            return self.uses.contract(name)
        step = self.spec.steps.get(name)
        if step is None or step.gate is not None:
            return decision_contract()
        return self.contract(step.produces or name)

    def contract_names(self) -> list[str]:
        return sorted({*self.spec.artifacts, *self.project.shelf_names("artifacts")})

    def has_contract(self, name: str) -> bool:
        """Whether a contract of this name stands somewhere, faulty or not."""
        return name in self.spec.artifacts or self.damaged("artifacts", name) or self._shelved(name) is not None

    def _shelved(self, name: str) -> Path | None:
        try:
            return self.project.shelf("artifacts", name)
        except OutsideProject:
            return None

    def _load_contract(self, name: str) -> Contract | None:
        inline = self.spec.artifacts.get(name)
        if inline is not None:
            prefix: PathKey = ("artifacts", name)
            live = self.loaded.live
            contract, faults = build_contract(self.project, inline, self.places, self.loaded.path, prefix, live=live)
            self.found.extend(faults)
            return contract
        path = self._shelved(name)
        if path is None or self.damaged("artifacts", name):
            return None
        makers = [step for step, spec in self.spec.steps.items() if (spec.produces or step) == name]
        loaded, places, faults = load_contract(self.project, path, steps=makers)
        self.found.extend(faults)
        if loaded is None:
            return None
        contract, faults = build_contract(self.project, loaded, places, path)
        self.found.extend(faults)
        return contract

    # --- inputs

    def _build_inputs(self) -> None:
        for name, spec in self.spec.inputs.items():
            place = self.places.key("inputs", name)
            contract = self._input_contract(name, spec, place)
            if contract is None:
                continue
            self._check_default(name, spec, contract)
            self.inputs[name] = InputNode(name, contract, place, spec.default)

    def _input_contract(self, name: str, spec: InputSpec, place: Place) -> Contract | None:
        if spec.type in BUILT_IN_TYPES:
            return input_contract(name, spec, place)
        contract = self.contract(spec.type)
        if contract is not None:
            return contract_input(contract, spec, place)
        if not self.has_contract(spec.type):
            at = self.of("inputs", name, "type")
            known = [*sorted(BUILT_IN_TYPES), *self.contract_names()]
            self.error("P230", f"input {name}: there is no type or contract {spec.type}", at, nearest(spec.type, known))
        return None

    def _check_default(self, name: str, spec: InputSpec, contract: Contract) -> None:
        """Null means that nothing is stated, for every type; any other default must be a value of the type."""
        if spec.default is MISSING or spec.default is None:
            return
        for fault in contract.faults(spec.default):
            self.error(
                "P112", f"input {name}: its default does not fit {spec.type}: {fault.path} {fault.rule}",
                self.of("inputs", name, "default"),
            )  # fmt: skip

    # --- the whole

    def _order(self) -> tuple[str, ...]:
        parents = self.gates.parents
        for cycle in cycles(parents):
            way = " → ".join([*cycle, cycle[0]])
            self.error(
                "P203",
                f"these steps wait for each other: {way}",
                self.places.key("steps", cycle[0]),
                "each → reads or needs the next; take one of them out",
            )
        return topological(parents)

    def _outputs(self) -> tuple[str, ...]:
        """The declared outputs; without any, the steps that no other step waits for, gates aside."""
        for at, name in enumerate(self.spec.outputs):
            place = self.of("outputs", at)
            if name in self.spec.outputs[:at]:
                self.error("P204", f"outputs names {name} twice", place, "leave one out")
            elif name not in self.kinds():
                self.unknown("outputs names", name, place)
        if self.spec.outputs or self.damaged("outputs"):
            return self.spec.outputs
        gates = self.gates.shows
        awaited = {parent for name in self.spec.steps if name not in gates for parent in self.gates.awaited(name)}
        return tuple(name for name in self.spec.steps if name not in awaited and name not in gates)

    def _warn_unused(self, outputs: tuple[str, ...]) -> None:
        if self.loaded.dropped:
            return  # what was left out may be what uses it
        above = {name for step in self.spec.steps.values() for name in step.above}
        above |= {name for shown in self.gates.shows.values() for name in shown}
        read = {self.uses.origin(name) for name in above}
        outputs = tuple(self.uses.origin(name) for name in outputs)
        for name in self.spec.inputs:
            if name not in read and name not in outputs:
                place = self.places.key("inputs", name)
                self.error("P250", f"no step reads the input {name}", place, "read it, or leave it out", warn=True)
        for name in self.spec.steps:
            if name not in read and name not in outputs and name not in self.gates.shows:
                place = self.places.key("steps", name)
                self.error(
                    "P251",
                    f"no step reads {name}, and it is no output",
                    place,
                    "read it, or add it to outputs",
                    warn=True,
                )
        used = {step.produces or name for name, step in self.spec.steps.items() if step.with_ is None or step.produces}
        used |= {spec.type for spec in self.spec.inputs.values()}
        for name in self.spec.artifacts:
            if name not in used:
                place = self.places.key("artifacts", name)
                self.error(
                    "P252",
                    f"nothing has the contract {name}",
                    place,
                    "use it as `produces`, or leave it out",
                    warn=True,
                )


def _assemble(building: Building, order: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
    inputs = dict(building.inputs)
    steps, groups = _whole(building, order, inputs)
    children: dict[str, list[str]] = {name: [] for name in steps}
    for name, step in steps.items():
        for parent in step.parents:
            children[parent].append(name)
    outputs = tuple(building.uses.target(name) for name in outputs)
    rank = {name: at for at, name in enumerate([*inputs, *steps])}
    spec = building.spec
    return Graph(
        name=spec.pipeline,
        spec=spec,
        file=building.project.display(building.loaded.path),
        inputs=inputs,
        steps=steps,
        children={name: tuple(below) for name, below in children.items()},
        rank=rank,
        outputs=outputs,
        digest=digest(list(_digested(inputs, steps, outputs, spec))),
        warnings=ordered(d for d in building.found if d.level == "warning"),
        groups=groups,
        targets=_targets(building),
    )


def _targets(building: Building) -> dict[str, str]:
    """The steps whose values are those of used pipelines, at every depth."""
    found: dict[str, str] = {}
    for name, group in building.groups.items():
        found |= {group.full(inner): group.full(one) for inner, one in group.graph.targets.items()}
        found |= {name: building.uses.target(name)} if building.uses.target(name) != name else {}
    return found


def _whole(
    building: Building, order: tuple[str, ...], inputs: dict[str, InputNode]
) -> tuple[dict[str, StepNode], dict[str, tuple[str, ...]]]:
    """All steps in topological order, those of used pipelines among them, and which those are; what these take from
    earlier runs is added to the inputs."""
    nodes: dict[str, StepNode] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for name in order:
        group = building.groups.get(name)
        if group is None:
            nodes[name] = building.steps[name]
            continue
        nodes |= nodes_of(group)
        groups |= group.prefixed
        inputs |= inputs_of(group)
    if groups:
        top = {name: groups[name] for name in building.groups}
        nodes = linked(nodes, top, {name: building.uses.target(name) for name in top})
        nodes = {name: nodes[name] for name in topological({name: node.parents for name, node in nodes.items()})}
        groups = {name: tuple(one for one in nodes if one in names) for name, names in groups.items()}
    return {name: replace(node, order=at) for at, (name, node) in enumerate(nodes.items())}, groups


def _digested(
    inputs: Mapping[str, InputNode], steps: Mapping[str, StepNode], outputs: tuple[str, ...], spec: PipelineSpec
) -> Iterator[Any]:
    """What makes two graphs the same: whatever a run of them could do differently."""
    yield [spec.pipeline, spec.system, list(outputs), spec.budget.model_dump(mode="json") if spec.budget else None]
    for name, node in inputs.items():
        earlier = [node.earlier.source, node.earlier.step] if node.earlier is not None else []
        yield [name, node.contract.digest, None if node.default is MISSING else [node.default], *earlier]
    for name, step in steps.items():
        model = step.model
        yield [
            name,
            step.digest,
            step.contract.digest,
            dict(step.contract.code),
            step.template.sha if step.template else [template.sha for template in step.templates.values()] or None,
            step.function.sha if step.function else None,
            [[tool.spec.name, tool.sha, *tool.shape.described] for tool in step.tools]
            + [tool.digest for tool in step.hosted]
            + sorted(step.files.values()),
            [[c.label, c.message, c.function.sha if c.function else None] for c in step.checks],
            [[one.name, one.settings] for one in model.candidates] if model else None,
            [[r.name, list(r.fields) if r.fields is not None else None, r.guard, *r.approvers] for r in step.reads],
            _bounds(step.for_each),
            list(step.parents),
            [step.reasks, step.timeout, step.call_timeout, *([str(step.max_usd)] if step.max_usd is not None else [])],
            _policy(step.gate),
            *([[step.summariser.name, step.summariser.settings]] if len(step.models) > 1 and step.summariser else []),
            *([step.spec.on_input_change] if step.spec.on_input_change != "redo" else []),
            *([[read.name, read.called] for read in step.takes] if step.alias or step.hand else []),
        ]


def _bounds(for_each: ForEach | None) -> list[Any] | None:
    if for_each is None:
        return None
    where = for_each.where.text if for_each.where else None
    one = [for_each.item, for_each.list_name, list(for_each.key), where, for_each.at_most, for_each.over]
    return [*one, for_each.concurrency, for_each.on_error, for_each.same]


def _policy(gate: Gate | None) -> list[Any] | None:
    """What follows from a gate's answers; what it asks is in its step's digest."""
    if gate is None:
        return None
    return [gate.redo, gate.mode, gate.max_rounds, gate.then, gate.timeout, gate.on_timeout]
