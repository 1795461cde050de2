"""Pipelines that steps use: their graphs, the names their outputs are read by, what may be said of such a step.

A used pipeline is built by itself, as it would be if it ran alone: its own names, templates, functions, contracts,
models and instructions. So every fault of it is found in its own file and in its own words, and its steps are made of
the same as when it runs alone. To the pipeline that uses it, it is one step until everything is checked; then its steps
take that step's place (`inlining`). Outside, only its outputs have names: `study` where it has one, `study.NAME` each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.building.handing import condition, given
from orchestrator.building.inlining import Group, fanned
from orchestrator.contracts import Contract
from orchestrator.errors import Place
from orchestrator.faults import nearest
from orchestrator.graph import Graph, InputNode, StepNode
from orchestrator.ids import is_name, variable
from orchestrator.loading import Loaded, load_declared, load_pipeline
from orchestrator.loading.bindings import PipelineSource
from orchestrator.spec import MISSING, PipelineSpec, ReadSpec, StepSpec

if TYPE_CHECKING:
    from orchestrator.building import Building
    from orchestrator.building.steps import StepBuilding

# What a step that uses a pipeline may have beside `uses` and `with`.
USE_KEYS: Final = frozenset(
    {"uses", "with_", "description", "for_each", "when", "reads", "needs", "ungated", "produces"}
)


@dataclass(frozen=True, slots=True)
class Chain:
    """The pipelines that are being built, each used by the one before it: their files and names."""

    files: tuple[str, ...]
    names: tuple[str, ...]

    def and_(self, file: str, name: str) -> Chain:
        return Chain((*self.files, file), (*self.names, name))

    def back_to(self, file: str) -> str:
        """The way from a pipeline back to itself, as people read it."""
        names = self.names[self.files.index(file) :]
        return " → ".join((*names, names[0]))


def begun(loaded: Loaded, spec: PipelineSpec) -> Chain:
    """The chain of a pipeline that nobody uses."""
    return Chain((os.path.realpath(loaded.path),), (spec.pipeline,))


class Uses:
    """The used pipelines of one pipeline, by the step that uses them. A faulty one is None: its faults are reported."""

    def __init__(self, building: Building) -> None:
        self.building = building
        self.graphs: dict[str, Graph | None] = {}
        for name, source in building.loaded.pipelines.items():
            if name in building.spec.steps:
                self.graphs[name] = _graph(building, name, source)

    def __contains__(self, name: str) -> bool:
        return name in self.graphs

    # --- names

    def outputs(self) -> Mapping[str, str]:
        """The outputs by the names they have outside, each with the step that it belongs to."""
        return {
            f"{name}.{one}": name for name, graph in self.graphs.items() for one in (graph.outputs if graph else ())
        }

    def origin(self, text: str) -> str:
        """The step or input that a name, or a path in its value, belongs to: for an output the step it is one of."""
        if text in self.building.kinds():
            return self.outputs().get(text, text)
        name, _ = self.split(text)
        return self.outputs().get(name, name)

    def target(self, name: str) -> str:
        """The step of the run that a name stands for."""
        graph = self.graphs.get(name)
        return f"{name}.{graph.outputs[0]}" if graph is not None and len(graph.outputs) == 1 else name

    def split(self, text: str) -> tuple[str, str]:
        """A name and the path behind it: `study.plan.goals` is `goals` of the output `study.plan`."""
        known = [name for name in self.outputs() if text == name or text.startswith(f"{name}.")]
        if known:
            found = max(known, key=len)
            return found, text[len(found) + 1 :]
        name, _, rest = text.partition(".")
        return name, rest

    def output(self, name: str) -> StepNode | InputNode | None:
        """What stands behind an output in its own pipeline; None for a name that is no output, or a faulty pipeline."""
        target = self.target(name)
        step = self.outputs().get(target, "")
        graph = self.graphs.get(step)
        one = target[len(step) + 1 :]
        return None if graph is None else graph.steps.get(one) or graph.inputs.get(one)

    def contract(self, name: str) -> Contract | None:
        node = self.output(name)
        return node.contract if node is not None else None

    def has_items(self, name: str) -> bool:
        """Whether an output is one value for each key, in its own pipeline already."""
        node = self.output(name)
        return isinstance(node, StepNode) and node.for_each is not None

    def may_be_skipped(self, name: str) -> bool:
        node = self.output(name)
        return isinstance(node, StepNode) and bool(node.when or node.only_if)

    def explained(self, name: str) -> str | None:
        """What to write instead of a name that looks like a step inside a used pipeline; None for any other name."""
        step, dot, one = name.partition(".")
        graph = self.graphs.get(step)
        if graph is None or not dot:
            return None
        what = "none of its outputs" if one in graph.steps else "nothing in it"
        known = ", ".join(f"{step}.{output}" for output in graph.outputs)
        return f"{one} is {what}: {step} uses {graph.name}, of which is read {known}"

    # --- reads of all that a pipeline gives

    def expand(self) -> None:
        """Put one read of each output in place of a read of a pipeline that has several, places and all."""
        building = self.building
        several = {name: graph.outputs for name, graph in self.graphs.items() if graph and len(graph.outputs) > 1}
        if not several:
            return
        steps = dict(building.spec.steps)
        for name, step in steps.items():
            found = [(at, one) for at, read in enumerate(step.reads) for one in self._reads(name, read, at, several)]
            changes: dict[str, object] = {}
            if len(found) > len(step.reads):
                building.places = building.places.with_entries([at for at, _ in found], "steps", name, "reads")
                changes["reads"] = tuple(one for _, one in found)
            if step.gate is not None:
                shows = [(at, one) for at, shown in enumerate(step.gate.shows) for one in _names(shown, several)]
                places = [at for at, _ in shows]
                building.places = building.places.with_entries(places, "steps", name, "gate", "shows")
                changes["gate"] = step.gate.model_copy(update={"shows": tuple(one for _, one in shows)})
            steps[name] = step.model_copy(update=changes)
        outputs = [(at, one) for at, output in enumerate(building.spec.outputs) for one in _names(output, several)]
        building.places = building.places.with_entries([at for at, _ in outputs], "outputs")
        building.spec = building.spec.model_copy(update={"steps": steps, "outputs": tuple(one for _, one in outputs)})

    def _reads(self, step: str, read: ReadSpec, at: int, several: Mapping[str, tuple[str, ...]]) -> Iterator[ReadSpec]:
        if read.read not in several:
            yield read
            return
        if read.fields is not None:
            names = list(_names(read.read, several))
            place = self.building.of("steps", step, "reads", at, "fields")
            message = f"step {step}: {read.read} has several outputs, and fields are of one"
            self.building.error("P274", message, place, f"read {names[0]}, or another of {', '.join(names)}")
        for one in _names(read.read, several):
            yield read.model_copy(update={"read": one, "fields": None})


def _names(name: str, several: Mapping[str, tuple[str, ...]]) -> Sequence[str]:
    return [f"{name}.{output}" for output in several[name]] if name in several else [name]


# --- the graph of a used pipeline -------------------------------------------------------------------------------------


def _graph(building: Building, name: str, source: PipelineSource) -> Graph | None:
    place = building.of("steps", name, "uses")
    file = _file(building, source)
    if file in building.chain.files:
        way = building.chain.back_to(file)
        if way.count("→") == 1:
            building.error("P271", f"step {name}: the pipeline uses itself: {way}", place, "use another pipeline")
        else:
            hint = "take one of these uses out"
            building.error("P271", f"step {name}: these pipelines use each other: {way}", place, hint)
        return None
    loaded = _loaded(building, source)
    graph = None if loaded.spec is None else _built(building, loaded, loaded.spec, file)
    known = set(building.found)
    building.found += [fault for fault in (loaded.diagnostics if loaded.spec is None else ()) if fault not in known]
    if graph is not None:
        _check_budget(building, name, graph, place)
    return graph


def _file(building: Building, source: PipelineSource) -> str:
    if isinstance(source, Path):
        return os.path.realpath(source)
    return os.path.realpath(source.file) if source.file is not None else f"notebook:{source.name}"


def _loaded(building: Building, source: PipelineSource) -> Loaded:
    if isinstance(source, Path):
        return load_pipeline(building.project, source)
    path = Path(os.path.realpath(source.file)) if source.file is not None else building.loaded.path
    return load_declared(building.project, source, path)


def _built(building: Building, loaded: Loaded, spec: PipelineSpec, file: str) -> Graph | None:
    """A pipeline that names no models has those of the one that uses it."""
    from orchestrator.building import Building as Another

    building.models.check_all()  # what is wrong with these is said at their own place, before anybody borrows them
    chain = building.chain.and_(file, spec.pipeline)
    inner = Another(building.project, building.settings, loaded, spec, chain)
    if not spec.models and building.spec.models:
        inner.models = building.models.lent(spec, inner.places, inner.found.append)
    graph = inner.graph()
    known = set(building.found)
    building.found += [fault for fault in inner.found if fault not in known]
    building.models.unset |= inner.models.unset
    return graph


def _check_budget(building: Building, name: str, graph: Graph, place: Place) -> None:
    """A run has one cap, its own pipeline's: where there is none, a used pipeline's own would be missed in silence."""
    if graph.spec.budget is not None and building.spec.budget is None:
        hint = f"give {building.spec.pipeline} a budget of its own; that of {graph.name} is for when it runs alone"
        message = (
            f"step {name}: {graph.name} has a budget, which does not hold here, and {building.spec.pipeline} has none"
        )
        building.error("P276", message, place, hint, warn=True)


# --- what may be said of such a step ----------------------------------------------------------------------------------


def check_keys(building: Building, name: str, spec: StepSpec, graph: Graph) -> None:
    """Report keys that would have to be said of the steps inside."""
    for key in StepSpec.model_fields:
        said = key in spec.model_fields_set and getattr(spec, key) not in ((), None)
        if not said or key in USE_KEYS:
            continue
        hint = f"say it in {graph.file}, of the steps there"
        if key == "review":
            hint = f"write a gate that shows {name}"
        message = f"step {name}: {key} has no meaning on a step that uses a pipeline"
        building.error("P272", message, building.places.key("steps", name, key), hint)
    made = [node.contract.name for one in graph.outputs if (node := graph.steps.get(one) or graph.inputs.get(one))]
    if spec.produces is not None and made != [spec.produces]:
        message = f"step {name} is said to make {spec.produces}, and {graph.name} makes {', '.join(made) or 'nothing'}"
        building.error("P275", message, building.of("steps", name, "produces"), "leave produces out, or mend it")
    if spec.reads and spec.when is None:
        hint = "what the pipeline is to see, its inputs are given: write it under `with`"
        message = f"step {name}: what a step that uses a pipeline reads, only its `when` looks at, and it has none"
        building.error("P272", message, building.places.key("steps", name, "reads"), hint)


def check_inputs(building: Building, name: str, spec: StepSpec, graph: Graph) -> None:
    """Report inputs that there are not, and those that must be given and are not."""
    given = spec.with_ or {}
    known = [one.name for one in graph.inputs.values() if one.earlier is None]
    for one in given:
        if one not in known:
            place = building.places.key("steps", name, "with", one)
            hint = nearest(one, known) if known else f"{graph.name} takes none"
            building.error("P273", f"step {name}: {graph.name} has no input {one}", place, hint)
    if building.damaged("steps", name, "with"):
        return
    lacking = [one for one in known if one not in given and graph.inputs[one].default is MISSING]
    if lacking:
        place = building.places.key("steps", name, "with") if given else building.places.key("steps", name, "uses")
        hint = f"with: {{{', '.join(f'{one}: …' for one in lacking)}}}"
        what = f"the input{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
        building.error("P273", f"step {name}: {graph.name} needs {what}", place, hint)


# --- its steps --------------------------------------------------------------------------------------------------------


def group_of(step: StepBuilding, graph: Graph) -> Group | None:
    """The used pipeline with what it is given; None after a fault in its fan-out."""
    building, name, spec = step.building, step.name, step.spec
    check_keys(building, name, spec, graph)
    check_inputs(building, name, spec, graph)
    step._check_needs()
    for_each = building.for_each(name)
    if spec.for_each is not None and for_each is None:
        return None
    nodes = given(step, graph)
    group = Group(name, graph, nodes, condition(step, nodes), for_each, building.gates.parents[name])
    _check_names(building, group)
    if for_each is not None:
        _check_fan_out(building, group)
    return group


def _check_names(building: Building, group: Group) -> None:
    """Each step of the run has a name of its own, that references can be written with."""
    place = building.places.key("steps", group.name)
    seen = set(building.gates.shows)
    for name in group.prefixed[group.name]:
        if name in seen:
            hint = f"rename it in {group.graph.file}, or this step here"
            message = f"step {group.name}: two things are called {name} in the run"
            building.error("P202", message, place, hint)
        elif not is_name(name):
            message = f"step {group.name}: {name} is too long a name for a step of the run (64 at most)"
            building.error("P106", message, place, "give the step a shorter name")
        seen.add(name)


def _check_fan_out(building: Building, group: Group) -> None:
    """What is done for each entry gives something for each, and is no list, and no branch, by itself again."""
    name, graph, many = group.name, group.graph, fanned(group)
    place = building.of("steps", name, "for_each")
    item = building.spec.steps[name].for_each
    if not many:
        hint = f"with: {{INPUT: {item.item if item else 'item'}}}, or a field of it"
        building.error(
            "P277", f"step {name}: no input is given the entry, so it would do the same each time", place, hint
        )
        return
    for node in graph.steps.values():
        full = group.full(node.name)
        if node.for_each is not None and any(group.full(read.source) in many for read in node.reads):
            message = (
                f"step {name}: {node.name} of {graph.name} has a for_each itself, on what differs from entry to entry"
            )
            building.error("P277", message, place, "make the inner list one list of all entries first")
        elif node.when is not None and _asks_of_entry(group, node, many):
            message = f"step {name}: {node.name} of {graph.name} has a when on what differs from entry to entry"
            building.error(
                "P277", message, place, "choose the entries with `where`, or let a prompt say what not to do"
            )
        elif node.gate is not None and node.gate.redo is not None and group.full(node.gate.redo) in many:
            message = f"step {name}: a rejection at {node.name} of {graph.name} would not say which entry to redo"
            building.error("P277", message, place, f"take redo out of {full}; `orch revise` makes one item again")
    for output in graph.outputs:
        if group.full(output) not in many and graph.steps.get(output) is not None:
            message = f"step {name}: the output {output} of {graph.name} does not depend on the entry"
            building.error("P277", message, place, "make it another step's, outside of the for_each")


def _asks_of_entry(group: Group, node: StepNode, many: frozenset[str]) -> bool:
    heads = {use.path[0] for use in node.when.uses} if node.when is not None else set()
    return any(variable(read.called) in heads and group.full(read.source) in many for read in node.reads)
