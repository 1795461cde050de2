"""Gates as the engine sees them: how one begins to wait, what it shows, and how an answer is given.

A person, a command, a page and a timeout all answer in the same way: look at what the gate shows (`look_at`), decide
for exactly that (`answer`). The look carries a digest of all that is shown, the answer gives it back, and the store
compares in one transaction (S08).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from orchestrator.bodies.asking import (
    Services,
    Walk,
    addresses,
    claim_of,
    manifest_now,
    pass_by,
    reads_of,
    take_snapshot,
)
from orchestrator.contracts.decision import decision_contract
from orchestrator.decision import Decision
from orchestrator.errors import UsageError
from orchestrator.graph import Gate, Graph, StepNode
from orchestrator.spec import SENSITIVITY_RANK, Decided
from orchestrator.staleness import holds
from orchestrator.store.gates import NOT_WAITING, SHOWN_CHANGED, TOO_EARLY
from orchestrator.store.records import Answer, Answered, Fenced, Redo, Shown
from orchestrator.values import Artifact, Dispatch, ErrorRecord, Event, Manifest, NewArtifact, RunRow, Snapshot

WAITS: Final = "gate"
TIMEOUT: Final = "timeout"
NOBODY_ANSWERED: Final = "Nobody answered in time."


async def gate_step(walk: Walk) -> tuple[Dispatch, ...]:
    """A gate that is reached: open, where the very bytes were approved before; else it waits for a person."""
    snapshot = await take_snapshot(walk)
    now = manifest_now(walk.step, snapshot)
    opened = await _open_already(walk, snapshot, now)
    if opened is None and not snapshot.artifacts:
        told = {"reason": "what it shows was skipped"}
        opened = await pass_by(walk, claim_of(walk, snapshot, now), "skipped", told)
    if opened is not None:
        return opened
    error = ErrorRecord(WAITS, f"{walk.step.name} waits for you: {_gate(walk.step).ask}", None, 4)
    if not await walk.services.store.ask(claim_of(walk, snapshot, now), error):
        raise Fenced
    if walk.services.approver is not None:
        return await _approve_now(walk.services, walk.graph, walk.run, walk.step.name, walk.dispatch.item)
    walk.emit("step.waiting", code=error.code, message=error.message, hint=None)
    return ()


async def _open_already(walk: Walk, snapshot: Snapshot, now: Manifest) -> tuple[Dispatch, ...] | None:
    """An approval holds as long as the bytes it was given for; a rejection never opens a gate by itself."""
    step, store = walk.step, walk.services.store
    if walk.dispatch.mode or snapshot.head is None or not holds(step, snapshot.accepted, now):
        return None
    body = (await store.artifact(walk.run.id, step.name, walk.dispatch.item)).body
    if step.contract.load(body)["decision"] != "approve":
        return None
    return await pass_by(walk, claim_of(walk, snapshot, now), "kept", {"version": snapshot.head.version})


async def _approve_now(
    services: Services, graph: Graph, run: RunRow, gate: str, item: str | None
) -> tuple[Dispatch, ...]:
    """The answer that was given before the question (`--yes`): for whatever stands, which is looked at here."""
    assert services.approver is not None
    while True:
        shown = await look_at(services, graph, run, gate, item)
        try:
            answered = await answer(services, graph, run, shown, "approve", by=services.approver)
        except UsageError as error:
            if error.code == SHOWN_CHANGED:
                continue
            if error.code == NOT_WAITING:  # somebody was quicker
                return ()
            raise
        return answered.ready


def _gate(step: StepNode) -> Gate:
    assert step.gate is not None
    return step.gate


def gate_node(graph: Graph, name: str) -> StepNode:
    """The gate of that name, or the review of the step of that name. Raises UsageError where the pipeline has none."""
    for candidate in (name, f"{name}.review"):
        node = graph.steps.get(candidate)
        if node is not None and node.gate is not None:
            return node
    gates = [step.name for step in graph.steps.values() if step.gate is not None]
    hint = f"its gates: {', '.join(gates)}" if gates else f"{graph.name} has no gates"
    raise UsageError(f"{graph.name} has no gate {name}", hint=hint)


async def look_at(services: Services, graph: Graph, run: RunRow, name: str, item: str | None = None) -> Shown:
    """What a gate that waits shows now. Raises UsageError where it does not wait."""
    node = gate_node(graph, name)
    return await services.store.shown(run.id, node.name, item, addresses(node, None))


async def answer(
    services: Services,
    graph: Graph,
    run: RunRow,
    shown: Shown,
    decision: Decided,
    *,
    by: str,
    comment: str = "",
    at: str | None = None,
    waited: timedelta = timedelta(),
) -> Answered:
    """Decide at a gate for what was `shown`, or for what has the digest `at` (its first 12 characters are enough).

    What is ready then is begun by whoever works on the run. Raises UsageError where the gate does not wait, does not
    offer the decision, or shows something else by now; nothing is decided then.
    """
    node = gate_node(graph, shown.gate)
    gate = _gate(node)
    if decision not in gate.choices:
        raise UsageError(f"{node.name} does not offer to {decision}", hint=f"its choices: {', '.join(gate.choices)}")
    comment = comment.strip()
    if decision == "reject" and not comment:
        raise UsageError("a rejection says what is wrong", hint="give a comment: it is what the next attempt goes by")
    given = _answer(node, shown, decision, by, comment, at, waited)
    answered = await services.store.decide(run.id, node.name, shown.item, given)
    services.listener(Event("gate.answered", node.name, shown.item, {"decision": decision, "by": by}))
    return answered


def _answer(
    node: StepNode, shown: Shown, decision: Decided, by: str, comment: str, at: str | None, waited: timedelta
) -> Answer:
    gate, contract = _gate(node), decision_contract()
    snapshot = _snapshot(shown)
    now = manifest_now(node, snapshot)
    body = contract.dump(Decision(decision=decision, comment=comment, by=by))
    levels = [contract.sensitivity, *(head.version.sensitivity for head in shown.heads.values())]
    return Answer(
        decision=decision,
        comment=comment,
        by=by,
        digest=shown.digest if at is None else at,
        artifact=NewArtifact(
            contract=contract.name,
            body=body,
            author=by,
            origin="person",
            sensitivity=max(levels, key=lambda level: SENSITIVITY_RANK[level]),
            field_hashes=contract.field_hashes(body),
        ),
        manifest=now,
        reads=reads_of(node, None, snapshot, now),
        redo=None if gate.redo is None else Redo(gate.redo, shown.item, gate.mode, gate.max_rounds),
        then=gate.then,
        waited_us=waited // timedelta(microseconds=1),
    )


def may_be_late(graph: Graph) -> bool:
    """Whether any gate is decided where nobody answers."""
    return any(node.gate is not None and node.gate.on_timeout != "wait" for node in graph.steps.values())


def _snapshot(shown: Shown) -> Snapshot:
    """What was shown, as a step that reads it would be given it."""
    items: dict[str, dict[str, Artifact]] = {}
    for label, head in shown.heads.items():
        name, slash, key = label.partition("/")
        if slash:
            items.setdefault(name, {})[key] = head
    return Snapshot({label: head for label, head in shown.heads.items() if "/" not in label}, items=items)


async def answer_due(services: Services, graph: Graph, run: RunRow) -> tuple[str, ...]:
    """Decide at the gates that have waited as long as they may, by the database's clock; their names. With an approver
    none waits: those that asked before it was there (in a process that has ended) are approved here.

    A gate that was rejected and stays shut has its answer: no timeout opens it.
    """
    if services.approver is None and not may_be_late(graph):
        return ()
    states = await services.store.states(run.id)
    asking = [state for state in states if state.status == "waiting" and state.error and state.error.code == WAITS]
    if services.approver is not None:
        for state in asking:
            await _approve_now(services, graph, run, state.name, state.item)
        return tuple(state.name for state in asking)
    names = {state.name for state in asking}
    gates = [node for node in graph.steps.values() if node.name in names and node.gate is not None]
    return tuple([node.name for node in gates if await _answer_late(services, graph, run, node)])


async def _answer_late(services: Services, graph: Graph, run: RunRow, node: StepNode) -> bool:
    gate = _gate(node)
    if gate.on_timeout == "wait" or gate.timeout is None:
        return False
    try:
        shown = await look_at(services, graph, run, node.name)
        waited = timedelta(seconds=gate.timeout)
        await answer(services, graph, run, shown, gate.on_timeout, by=TIMEOUT, comment=NOBODY_ANSWERED, waited=waited)
    except UsageError as error:
        if error.code in (TOO_EARLY, NOT_WAITING, SHOWN_CHANGED):
            return False  # not yet, or somebody was quicker
        raise
    return True
