"""The JSON documents of the command line, one function per schema.

They are a promise to programs: a name once printed stays, additions are allowed. Money is a decimal string, never a
float; what is not known is null, never zero. Everything here is pure: rows in, JSON data out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from orchestrator.drawing.picture import Picture
from orchestrator.values import Artifact, ArtifactVersion, ErrorRecord, FactBasis, RunRow, StepRow, Usage

if TYPE_CHECKING:
    from orchestrator.store.records import RunGlance

RUN = "orch.run/1"
RUNS = "orch.runs/1"
CANCELLED = "orch.cancelled/1"
TAGS = "orch.tags/1"
ARTIFACT = "orch.artifact/1"
WHY = "orch.why/1"
PLAN = "orch.plan/1"
GRAPH = "orch.graph/1"
INBOX = "orch.inbox/1"

Reasons = Mapping[str, Sequence[str]]


class PlannedStep(Protocol):
    """A step of a plan, as far as its document needs it."""

    @property
    def name(self) -> str: ...
    @property
    def action(self) -> Literal["run", "reuse", "maybe", "ask", "skip"]: ...
    @property
    def reasons(self) -> tuple[str, ...]: ...
    @property
    def tokens_estimate(self) -> int | None: ...
    @property
    def cost_low_usd(self) -> Decimal | None: ...
    @property
    def cost_high_usd(self) -> Decimal | None: ...


class AskedCall(Protocol):
    """A tool call that a person is asked about."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


class Waiting(Protocol):
    """What waits for a person, as far as its document needs it."""

    @property
    def number(self) -> int: ...
    @property
    def pipeline(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def item(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def since(self) -> datetime: ...
    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def shows(self) -> Mapping[str, ArtifactVersion]: ...
    @property
    def calls(self) -> Sequence[AskedCall]: ...
    @property
    def digest(self) -> str: ...


class Plan(Protocol):
    """A plan, as far as its document needs it."""

    @property
    def steps(self) -> Sequence[PlannedStep]: ...
    @property
    def hosts(self) -> tuple[str, ...]: ...
    @property
    def cost_low_usd(self) -> Decimal | None: ...
    @property
    def cost_high_usd(self) -> Decimal | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def usd(amount: Decimal | None) -> str | None:
    """An exact decimal string without exponent; null where nothing is priced."""
    if amount is None:
        return None
    return f"{amount.normalize():f}" if amount else "0"


def total_usage(steps: Sequence[StepRow]) -> Usage:
    return sum((step.usage for step in steps), Usage())


def total_cost(steps: Sequence[StepRow]) -> tuple[Decimal | None, bool]:
    """The sum of what is priced (None where nothing is), and whether a part of it is unknown."""
    known = [step.cost_usd for step in steps if step.cost_usd is not None]
    partial = any(step.cost_partial for step in steps)
    return (sum(known, Decimal(0)) if known else None), partial


def is_stale(step: StepRow, reasons: Reasons) -> bool:
    """True where the step's result no longer belongs to the current inputs."""
    return step.stale or bool(reasons.get(step.label))


def run_document(run: RunRow, steps: Sequence[StepRow], inputs: Mapping[str, Any], reasons: Reasons) -> dict[str, Any]:
    """`orch.run/1`. `inputs` are the current input values; `reasons` say why a step is stale, by step, or by
    `step/item`. An item that its list does not have any more is left out of the steps, not of the sums."""
    work = [step for step in steps if step.kind != "input"]
    cost, partial = total_cost(work)
    usage = total_usage(work)
    return {
        "schema": RUN,
        "run": {
            "id": run.id,
            "number": run.number,
            "pipeline": run.pipeline,
            "status": run.status,
            "parent": run.parent_number,
            "session": run.session,
            "created_at": moment(run.created_at),
            "inputs": dict(inputs),
            "usage": {
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.cached_tokens,
                "output_tokens": usage.output_tokens,
            },
            "cost_usd": usd(cost),
            "cost_partial": partial,
            "cap_usd": usd(run.cap_usd),
            "error": _error(run.error),
            "steps": [_step(step, reasons) for step in work if not step.retired],
        },
    }


def _step(step: StepRow, reasons: Reasons) -> dict[str, Any]:
    return {
        "name": step.name,
        "item": step.item,
        "status": step.status,
        "attempt": step.attempt,
        "stale": is_stale(step, reasons),
        "reasons": list(reasons.get(step.label, ())),
        "calls": step.calls,
        "reasks": step.reasks,
        "version": step.head.version if step.head else None,
        "draft": step.draft.version if step.draft else None,
        "pins": dict(step.pins),
        "decision": step.decision or None,
        "cost_usd": usd(step.cost_usd),
        "cost_partial": step.cost_partial,
        "error": _error(step.error),
    }


def _error(error: ErrorRecord | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"code": error.code, "message": error.message, "hint": error.hint}


def runs_document(glances: Sequence[RunGlance]) -> dict[str, Any]:
    """`orch.runs/1`: the listing, newest first; no step, no body. `waits` names the steps that wait for a person."""
    return {
        "schema": RUNS,
        "runs": [
            {
                "id": one.run.id,
                "number": one.run.number,
                "pipeline": one.run.pipeline,
                "status": one.run.status,
                "parent": one.run.parent_number,
                "kind": one.run.kind,
                "session": one.run.session,
                "created_at": moment(one.run.created_at),
                "tags": list(one.run.tags),
                "cost_usd": usd(one.cost_usd),
                "cost_partial": one.cost_partial,
                "waits": list(one.waiting),
                "error": _error(one.run.error),
            }
            for one in glances
        ],
    }


def cancelled_document(run: RunRow, steps: Sequence[str]) -> dict[str, Any]:
    """`orch.cancelled/1`: the run as it is now, and the steps that were given up."""
    return {"schema": CANCELLED, "run": run.number, "id": run.id, "status": run.status, "steps": list(steps)}


def tags_document(run: RunRow) -> dict[str, Any]:
    """`orch.tags/1`."""
    return {"schema": TAGS, "run": run.number, "id": run.id, "tags": list(run.tags)}


def artifact_document(
    artifact: Artifact,
    value: Any,
    *,
    run: int,
    about: str | None,
    not_for: Sequence[str],
    parent: int | None,
    read_by: Sequence[str],
    pins: Mapping[str, str],
    conflicts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """`orch.artifact/1`. `value` is JSON data or text; `about` is null where the contract can no longer be loaded."""
    version = artifact.version
    return {
        "schema": ARTIFACT,
        "artifact": {
            "step": version.step,
            "item": version.item,
            "run": run,
            "contract": version.contract,
            "version": version.version,
            "author": version.author,
            "origin": version.origin,
            "draft": version.draft,
            "created_at": moment(version.created_at),
            "about": about,
            "not_for": list(not_for),
            "guards": list(version.guards),
            "sensitivity": version.sensitivity,
            "value": value,
            "facts": {path: _basis(basis) for path, basis in version.facts.items()},
            "sha256": version.sha256,
            "parent": parent,
            "read_by": list(read_by),
            "pins": dict(pins),
            "conflicts": list(conflicts),
        },
    }


def _basis(basis: FactBasis) -> dict[str, str]:
    return {"basis": basis.basis, "quote": basis.quote, "source": basis.source}


def edit_document(artifact: dict[str, Any], reasons: Reasons) -> dict[str, Any]:
    """The new artifact's document, plus what became stale and why."""
    stale = [{"step": step, "reasons": list(why)} for step, why in reasons.items() if why]
    return {**artifact, "stale": stale}


def host_names(urls: Iterable[str]) -> tuple[str, ...]:
    """The hosts of base URLs: no scheme, path or user; what is no web address contacts no host."""
    found = [urlsplit(url) for url in urls if url.startswith(("http://", "https://"))]
    return tuple(dict.fromkeys(url.netloc.rpartition("@")[2] for url in found))


def plan_document(plan: Plan) -> dict[str, Any]:
    """`orch.plan/1`."""
    return {
        "schema": PLAN,
        "steps": [
            {
                "name": step.name,
                "action": step.action,
                "reasons": list(step.reasons),
                "tokens_estimate": step.tokens_estimate,
                "cost_low_usd": usd(step.cost_low_usd),
                "cost_high_usd": usd(step.cost_high_usd),
            }
            for step in plan.steps
        ],
        "hosts": list(host_names(plan.hosts)),
        "cost_low_usd": usd(plan.cost_low_usd),
        "cost_high_usd": usd(plan.cost_high_usd),
        "notes": list(plan.notes),
    }


def inbox_document(waiting: Iterable[tuple[Waiting, Sequence[str]]], decided: Sequence[str] = ()) -> dict[str, Any]:
    """`orch.inbox/1`: what waits, each with the commands that answer it; `digest` is null where
    nothing is to be approved, `calls` are the tool calls that a step asks about.
    `decided` says what timeouts have decided just now."""
    return {
        "schema": INBOX,
        "waiting": [
            {
                "run": row.number,
                "pipeline": row.pipeline,
                "step": row.step,
                "item": row.item,
                "kind": row.kind,
                "code": row.code,
                "message": row.message,
                "hint": row.hint,
                "since": moment(row.since),
                "shows": [
                    {"name": name, "version": head.version, "author": head.author, "sha256": head.sha256}
                    for name, head in row.shows.items()
                ],
                "calls": [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in row.calls],
                "digest": row.digest or None,
                "commands": list(commands),
            }
            for row, commands in waiting
        ],
        "decided": list(decided),
    }


def graph_document(picture: Picture, form: str, text: str) -> dict[str, Any]:
    """`orch.graph/1`: what waits for what and how it stands, and the drawing itself. `run` and `state` are null for a
    pipeline; a step's `state` is its status, or stale."""
    return {
        "schema": GRAPH,
        "graph": {
            "pipeline": picture.pipeline,
            "run": picture.run,
            "inputs": list(picture.inputs),
            "steps": [
                {
                    "name": node.name,
                    "kind": node.kind,
                    "reads": [*node.inputs, *node.reads],
                    "needs": list(node.needs),
                    "state": node.state,
                    "cost_usd": usd(node.cost_usd),
                }
                for node in picture.steps
            ],
        },
        "format": form,
        "text": text,
    }


def moment(time: datetime) -> str:
    """ISO 8601 in UTC."""
    return time.isoformat().replace("+00:00", "Z")
