"""Gates of a pipeline: who waits for whose approval, and each gate's node.

A gate is a step whose work a person does. `review: required` on a step makes a gate behind it, `STEP.review`, which all
that read the step wait for; no other name has a dot, so it can meet none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from orchestrator.building import fan_out
from orchestrator.contracts.decision import decision_contract
from orchestrator.errors import Place
from orchestrator.graph import Gate, Read, StepNode
from orchestrator.ids import digest
from orchestrator.spec import GateSpec, OnRejectSpec, PipelineSpec, StepSpec

if TYPE_CHECKING:
    from orchestrator.building import Building

# What a gate may have beside `gate` itself.
GATE_KEYS: Final = frozenset({"uses", "description", "gate", "needs"})


def review_of(step: str) -> str:
    """The name of the gate that `review: required` makes."""
    return f"{step}.review"


class Gates:
    """Which gates a pipeline has, declared and implied, and what every step waits for because of them."""

    def __init__(
        self,
        spec: PipelineSpec,
        origin: Callable[[str], str] = lambda name: name,
        target: Callable[[str], str] = lambda name: name,
    ) -> None:
        """`origin` and `target` look up what outputs of used pipelines stand for (see `Uses`)."""
        self.spec = spec
        self._origin = origin
        self._target = target
        self.reviews = {
            name: review_of(name) for name, step in spec.steps.items() if step.review == "required" and not step.gate
        }
        self.shows: Mapping[str, tuple[str, ...]] = {
            **{name: step.gate.shows for name, step in spec.steps.items() if step.gate is not None},
            **{gate: (step,) for step, gate in self.reviews.items()},
        }

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """For each step and gate, in declared order, the steps it waits for; itself left out."""
        found = {name: list(above) for name, above in self._declared.items()}
        for name, step in self.spec.steps.items():
            for read in step.reads:
                if read.require == "approved":
                    found[name] += self.approvers(name, read.read)
        return {name: tuple(dict.fromkeys(above)) for name, above in found.items()}

    @cached_property
    def _declared(self) -> Mapping[str, tuple[str, ...]]:
        """The same without what `require: approved` adds."""
        known = {*self.spec.steps, *self.reviews.values()}
        found: dict[str, tuple[str, ...]] = {}
        for name, step in self.spec.steps.items():
            above = [*step.above, *(step.gate.shows if step.gate else ())]
            above = [self._origin(name) for name in above]
            waits = [gate for parent in above for gate in (parent, self.reviews.get(parent)) if gate is not None]
            found[name] = tuple(parent for parent in dict.fromkeys(waits) if parent in known and parent != name)
            if name in self.reviews:
                found[self.reviews[name]] = (name,)
        return found

    def approvers(self, reader: str, source: str) -> tuple[str, ...]:
        """The gates that show a step or input, and that do not wait for this reader themselves."""
        wanted = self._target(source)
        return tuple(
            gate
            for gate, shown in self.shows.items()
            if wanted in map(self._target, shown) and not self._waits(gate, reader)
        )

    def awaited(self, name: str) -> frozenset[str]:
        """The steps that one waits for, itself or through gates."""
        return self.above(name) if self.shows else frozenset(self._declared[name])

    def _waits(self, gate: str, step: str) -> bool:
        return step == gate or step in self.above(gate)

    def above(self, name: str) -> frozenset[str]:
        """All steps that one waits for, directly or not."""
        seen: set[str] = set()
        waiting = list(self._declared.get(name, ()))
        while waiting:
            step = waiting.pop()
            if step not in seen:
                seen.add(step)
                waiting += self._declared.get(step, ())
        return frozenset(seen)


# --- nodes ------------------------------------------------------------------------------------------------------------


def gate_node(building: Building, name: str, spec: StepSpec, gate: GateSpec) -> StepNode | None:
    """The node of a declared gate, without its order; None where it shows nothing that there is (reported)."""
    _check_keys(building, name, spec)
    _check_choices(building, name, gate)
    _check_redo(building, name, gate)
    reads = _shown(building, name, gate)
    if not reads:
        return None
    on_reject = gate.on_reject
    made = Gate(
        ask=gate.ask.strip(),
        choices=gate.choices,
        redo=on_reject.redo,
        mode=on_reject.mode,
        max_rounds=on_reject.max_rounds,
        then=on_reject.then,
        timeout=gate.timeout.after if gate.timeout else None,
        on_timeout=gate.timeout.then if gate.timeout else "wait",
    )
    return _node(building, name, spec, made, reads, building.places.key("steps", name))


def review_node(building: Building, step: StepNode) -> StepNode:
    """The gate behind a step with `review: required`. A rejection goes on in the step's thread where it has one; a body
    in Python begins anew, and a function that asks nobody would only make the same again."""
    name = review_of(step.name)
    made = Gate(
        ask=f"Is {step.name} good enough to go on with?",
        choices=("approve", "edit", "reject", "stop"),
        redo=step.name if step.asks and step.for_each is None else None,
        mode="follow_up" if step.kind == "llm" else "fresh",
        max_rounds=OnRejectSpec.model_fields["max_rounds"].default,
        then="pause",
        reviews=step.name,
    )
    place = building.of("steps", step.name, "review")
    gate = GateSpec(ask=made.ask, shows=(step.name,), on_reject=OnRejectSpec(redo=made.redo, mode=made.mode))
    takes = fan_out.takes(building, name, step.name)
    read = Read(step.name, "step", step.contract, None, None, place, takes=takes)
    return _node(building, name, StepSpec(gate=gate), made, (read,), place)


def _node(building: Building, name: str, spec: StepSpec, gate: Gate, reads: tuple[Read, ...], place: Place) -> StepNode:
    defaults = building.spec.defaults
    return StepNode(
        name=name,
        kind="gate",
        order=0,
        spec=spec,
        contract=decision_contract(),
        reads=reads,
        parents=building.gates.parents[name],
        template=None,
        function=None,
        tools=(),
        checks=(),
        model=None,
        conversation=None,
        reasks=0,
        timeout=defaults.timeout,
        call_timeout=defaults.call_timeout,
        digest=digest({"kind": "gate", "ask": gate.ask, "choices": list(gate.choices)}),
        place=place,
        gate=gate,
    )


def _shown(building: Building, name: str, gate: GateSpec) -> tuple[Read, ...]:
    """What the gate shows, as reads; unknown names, and an empty list, are reported."""
    if not gate.shows and not building.damaged("steps", name, "gate", "shows"):
        hint = "name the steps and inputs that the person is to judge"
        building.error("P281", f"step {name}: the gate shows nothing", building.of("steps", name, "gate"), hint)
    reads: list[Read] = []
    for at, source in enumerate(gate.shows):
        place = building.of("steps", name, "gate", "shows", at)
        kind = building.kinds().get(source)
        if source == name:
            building.error("P203", f"step {name}: it shows itself", place, "a gate shows what other steps made")
        elif source in gate.shows[:at]:
            building.error("P204", f"step {name}: it shows {source} twice", place, "leave one out")
        elif kind is None:
            building.unknown(f"step {name} shows", source, place)
        else:
            contract = building.source_contract(source, kind)
            if contract is not None:
                known: Literal["step", "input"] = "step" if kind == "step" else "input"
                takes = fan_out.takes(building, name, source)
                reads.append(Read(source, known, contract, None, None, place, takes=takes))
    return tuple(reads)


# --- faults -----------------------------------------------------------------------------------------------------------


def _check_keys(building: Building, name: str, spec: StepSpec) -> None:
    for key in StepSpec.model_fields:
        said = key in spec.model_fields_set and getattr(spec, key) not in ((), None)
        if said and key not in GATE_KEYS and key not in ("template", "prompt", "python"):
            hint = "what a gate reads stands under `shows`" if key == "reads" else f"leave {key} out"
            message = f"step {name}: {key} has no meaning on a gate"
            building.error("P280", message, building.places.key("steps", name, key), hint)


def _check_choices(building: Building, name: str, gate: GateSpec) -> None:
    place = building.of("steps", name, "gate", "choices")
    for at, choice in enumerate(gate.choices):
        if choice in gate.choices[:at]:
            building.error("P204", f"step {name}: choices names {choice} twice", place, "leave one out")
    if "approve" not in gate.choices and not building.damaged("steps", name, "gate", "choices"):
        hint = "add approve to its choices"
        building.error("P281", f"step {name}: nobody could pass the gate: approve is no choice", place, hint)
    if gate.timeout is not None and gate.timeout.then not in (*gate.choices, "wait"):
        then = gate.timeout.then
        message = f"step {name}: the timeout decides {then}, which is not among the gate's choices"
        at_then = building.of("steps", name, "gate", "timeout", "then")
        building.error("P281", message, at_then, f"add {then} to choices, or take another word")


def _check_redo(building: Building, name: str, gate: GateSpec) -> None:
    redo, place = gate.on_reject.redo, building.of("steps", name, "gate", "on_reject", "redo")
    if redo is None:
        return
    if redo not in building.kinds():
        building.unknown(f"step {name}: a rejection redoes", redo, place)
        return
    step = building.spec.steps.get(redo)
    made = redo not in building.uses or isinstance(building.uses.output(redo), StepNode)
    unclear = any(shown not in building.kinds() for shown in gate.shows)  # told already; it may be meant by redo
    if unclear and step is not None and step.gate is None and made:
        return
    if step is None or step.gate is not None or not made or redo not in building.gates.above(name):
        what = "an input" if redo in building.spec.inputs else "no step that it waits for"
        what = "a pipeline with several outputs" if not made else what
        hint = "name a step that the gate shows, or one above it"
        building.error("P282", f"step {name}: a rejection redoes {redo}, which is {what}", place, hint)


def _redone(building: Building, steps: Mapping[str, StepNode], gate: Gate | None) -> StepNode | None:
    """The step that a rejection makes again: of a used pipeline the one that makes its output."""
    if gate is None or gate.redo is None:
        return None
    if gate.redo not in building.uses:
        return steps.get(gate.redo)
    node = building.uses.output(gate.redo)
    if not isinstance(node, StepNode) or node.gate is not None:
        return None
    return replace(node, name=gate.redo, for_each=building.for_each(gate.redo) or node.for_each)


def check_redone(building: Building, steps: Mapping[str, StepNode]) -> None:
    """A step in Python has no conversation to go on with, and one that asks no model would make the same again."""
    for name, node in steps.items():
        redone = _redone(building, steps, node.gate)
        if redone is None or node.gate is None:
            continue
        if redone.for_each is not None:
            place = building.of("steps", name, "gate", "on_reject", "redo")
            hint = "leave redo out; `orch revise RUN/STEP/KEY` makes one item again, and the gate asks about that"
            message = f"step {name}: {redone.name} is made for each entry of a list, and a rejection does not say which"
            building.error("P282", message, place, hint)
        if redone.kind != "python":
            continue
        if not redone.asks:
            place = building.of("steps", name, "gate", "on_reject", "redo")
            message = f"step {name}: {redone.name} is a plain Python step, and would make the same again"
            building.error("P282", message, place, "redo a step that asks a model; a person can edit this one")
        elif node.gate.mode == "follow_up":
            place = building.of("steps", name, "gate", "on_reject", "mode")
            message = f"step {name}: {redone.name} is a Python step and has no conversation of its own to follow up"
            building.error("P282", message, place, "write mode: fresh")


def check_approvals(building: Building) -> None:
    """Whoever requires an approval must be given one."""
    for name, step in building.spec.steps.items():
        for at, read in enumerate(step.reads):
            if read.require != "approved" or read.read not in building.kinds() or read.read == name:
                continue
            if not building.gates.approvers(name, read.read):
                place = building.of("steps", name, "reads", at, "require")
                message = f"step {name}: no gate ahead of it shows {read.read}, so it is never approved"
                hint = f"let a gate show {read.read}, or write review: required on it"
                building.error("P283", message, place, hint)


def warn_ungated(building: Building, outputs: tuple[str, ...]) -> None:
    """Where a pipeline has gates, an output that waits for none may have been forgotten."""
    gates = building.gates
    for name in outputs if gates.shows else ():
        step = building.spec.steps.get(name)
        if step is None or step.gate is not None or step.ungated is not None:
            continue
        shown = any(name in names for names in gates.shows.values())
        if not shown and gates.above(name).isdisjoint(gates.shows):
            place = building.places.key("steps", name)
            hint = 'let it wait for one (needs), or say why it need not: ungated: "…"'
            building.error("P284", f"the output {name} waits for no gate", place, hint, warn=True)
