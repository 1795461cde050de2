"""The JSON documents, whole: names once printed stay, money is text, the unknown is null (authoring-and-cli §5)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest

from orchestrator.store.records import AttemptRow, Journal, RunGlance, ThreadJournal
from orchestrator.trace.documents import (
    artifact_document,
    edit_document,
    host_names,
    plan_document,
    run_document,
    runs_document,
    usd,
)
from orchestrator.trace.why import is_used, request_text, why_document
from orchestrator.values import (
    Artifact,
    ArtifactVersion,
    Block,
    CallRow,
    CallSource,
    DoneCall,
    ErrorRecord,
    FactBasis,
    Item,
    LeftOut,
    Manifest,
    ManifestEntry,
    Prompt,
    ReadRecord,
    RunRow,
    SentCall,
    StepRow,
    StepStatus,
    TextItem,
    ToolOutput,
    Usage,
)

NOW = datetime(2026, 11, 30, 10, 42, tzinfo=UTC)


def version(number: int = 2, step: str = "rates", **more: Any) -> ArtifactVersion:
    values: dict[str, Any] = {
        "id": f"artifact-{step}-{number}",
        "run_id": "run-id",
        "step": step,
        "item": None,
        "contract": "vendor-rates",
        "version": number,
        "sha256": "ab12",
        "size": 10,
        "author": "ana",
        "origin": "person",
        "created_at": NOW,
        "parent_id": "artifact-rates-1",
        "sensitivity": "internal",
        "field_hashes": {},
    }
    return ArtifactVersion(**{**values, **more})


def step(name: str, status: StepStatus = "succeeded", **more: Any) -> StepRow:
    values: dict[str, Any] = {
        "name": name,
        "item": None,
        "kind": "llm",
        "order": 1,
        "status": status,
        "attempt": 1,
        "attempt_id": "a",
        "head": version(1, name),
        "draft": None,
        "inputs_hash": None,
        "manifest": None,
        "calls": 2,
        "reasks": 1,
        "usage": Usage(input_tokens=100, cached_tokens=40, output_tokens=7),
        "cost_usd": Decimal("0.0031"),
        "cost_partial": False,
        "seconds": 1.5,
        "error": None,
    }
    return StepRow(**{**values, **more})


RUN = RunRow(
    id="run-id",
    number=12,
    pipeline="discovery",
    status="failed",
    parent_id=None,
    parent_number=None,
    session_id="s-id",
    session="clinic",
    created_at=NOW,
    graph_digest="g",
    file="discovery.yaml",
    message=None,
    cap_usd=Decimal("4.00"),
    on_exceed="pause",
    unpriced="allow",
    author="ana",
)


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        (None, None),
        (Decimal("0.01140"), "0.0114"),
        (Decimal("4.00"), "4"),
        (Decimal("1E-7"), "0.0000001"),
        (Decimal("1E+2"), "100"),
        (Decimal("0.00"), "0"),
    ],
)
def test_money_is_an_exact_decimal_string(amount: Decimal | None, written: str | None) -> None:
    assert usd(amount) == written


def test_the_run_document() -> None:
    failed = step(
        "risks", "failed", head=None, calls=3, reasks=2, cost_usd=None, cost_partial=True,
        error=ErrorRecord("empty", "empty answer", "look at the model"),
    )  # fmt: skip
    steps = [step("idea", kind="input"), step("tech-stack"), failed]
    document = run_document(RUN, steps, {"idea": "x"}, {"tech-stack": ("rates v1→v2 (ana): weekly_usd",)})
    assert document == {
        "schema": "orch.run/1",
        "run": {
            "id": "run-id",
            "number": 12,
            "pipeline": "discovery",
            "status": "failed",
            "parent": None,
            "session": "clinic",
            "created_at": "2026-11-30T10:42:00Z",
            "inputs": {"idea": "x"},
            "usage": {"input_tokens": 200, "cached_tokens": 80, "output_tokens": 14},
            "cost_usd": "0.0031",
            "cost_partial": True,
            "cap_usd": "4",
            "error": None,
            "steps": [
                {
                    "name": "tech-stack",
                    "item": None,
                    "status": "succeeded",
                    "attempt": 1,
                    "stale": True,
                    "reasons": ["rates v1→v2 (ana): weekly_usd"],
                    "calls": 2,
                    "reasks": 1,
                    "version": 1,
                    "draft": None,
                    "pins": {},
                    "decision": None,
                    "cost_usd": "0.0031",
                    "cost_partial": False,
                    "error": None,
                },
                {
                    "name": "risks",
                    "item": None,
                    "status": "failed",
                    "attempt": 1,
                    "stale": False,
                    "reasons": [],
                    "calls": 3,
                    "reasks": 2,
                    "version": None,
                    "draft": None,
                    "pins": {},
                    "decision": None,
                    "cost_usd": None,
                    "cost_partial": True,
                    "error": {"code": "empty", "message": "empty answer", "hint": "look at the model"},
                },
            ],
        },
    }


def test_a_run_without_a_price_costs_null_and_not_zero() -> None:
    document = run_document(RUN, [step("a", cost_usd=None, cost_partial=True)], {}, {})
    assert document["run"]["cost_usd"] is None
    assert document["run"]["cost_partial"] is True


def test_costs_add_up_exactly() -> None:
    cents = [step(str(n), cost_usd=Decimal("0.1")) for n in range(3)]
    assert run_document(RUN, cents, {}, {})["run"]["cost_usd"] == "0.3"


def test_the_listing() -> None:
    child = replace(RUN, number=13, parent_id="run-id", parent_number=12, status="succeeded")
    glance = RunGlance(replace(child, tags=("launch",)), Decimal("0.0310"), True, ("review", "profile/acme"))
    assert runs_document([glance]) == {
        "schema": "orch.runs/1",
        "runs": [
            {
                "id": "run-id",
                "number": 13,
                "pipeline": "discovery",
                "status": "succeeded",
                "parent": 12,
                "kind": "run",
                "session": "clinic",
                "created_at": "2026-11-30T10:42:00Z",
                "tags": ["launch"],
                "cost_usd": "0.031",
                "cost_partial": True,
                "waits": ["review", "profile/acme"],
                "error": None,
            }
        ],
    }


def an_artifact() -> dict[str, Any]:
    facts = {"weekly_usd": FactBasis("stated", "997 a week", "idea")}
    made = Artifact(version(facts=facts, guards=("Not the budget.",)), b'{"weekly_usd": 997}')
    return artifact_document(
        made,
        {"weekly_usd": 997},
        run=12,
        about="Vendor rates.",
        not_for=("Not the customer's budget.",),
        parent=1,
        read_by=("tech-stack",),
        pins={"weekly_usd": "ana"},
        conflicts=[{"path": "weekly_usd", "base": 997, "head": 1200, "draft": 1100}],
    )


def test_the_artifact_document() -> None:
    assert an_artifact() == {
        "schema": "orch.artifact/1",
        "artifact": {
            "step": "rates",
            "item": None,
            "run": 12,
            "contract": "vendor-rates",
            "version": 2,
            "author": "ana",
            "origin": "person",
            "draft": False,
            "created_at": "2026-11-30T10:42:00Z",
            "about": "Vendor rates.",
            "not_for": ["Not the customer's budget."],
            "guards": ["Not the budget."],
            "sensitivity": "internal",
            "value": {"weekly_usd": 997},
            "facts": {"weekly_usd": {"basis": "stated", "quote": "997 a week", "source": "idea"}},
            "sha256": "ab12",
            "parent": 1,
            "read_by": ["tech-stack"],
            "pins": {"weekly_usd": "ana"},
            "conflicts": [{"path": "weekly_usd", "base": 997, "head": 1200, "draft": 1100}],
        },
    }


def test_an_edit_adds_what_became_stale_and_leaves_out_what_did_not() -> None:
    document = edit_document(an_artifact(), {"tech-stack": ("weekly_usd",), "risks": ()})
    assert document["schema"] == "orch.artifact/1"
    assert document["stale"] == [{"step": "tech-stack", "reasons": ["weekly_usd"]}]


@dataclass(frozen=True)
class Planned:
    name: str
    action: Literal["run", "reuse", "maybe", "ask", "skip"]
    reasons: tuple[str, ...]
    tokens_estimate: int | None
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None


@dataclass(frozen=True)
class Whole:
    steps: tuple[Planned, ...]
    hosts: tuple[str, ...]
    cost_low_usd: Decimal | None
    cost_high_usd: Decimal | None
    notes: tuple[str, ...] = ()


def test_the_plan_document() -> None:
    planned = Planned("a", "run", ("new",), 1200, Decimal("0.001"), Decimal("0.0200"))
    unpriced = Planned("b", "maybe", (), 7, None, None)
    plan = Whole((planned, unpriced), ("https://api.openai.com/v1", "scripted:x"), None, None, ("no price",))
    assert plan_document(plan) == {
        "schema": "orch.plan/1",
        "steps": [
            {
                "name": "a",
                "action": "run",
                "reasons": ["new"],
                "tokens_estimate": 1200,
                "cost_low_usd": "0.001",
                "cost_high_usd": "0.02",
            },
            {
                "name": "b",
                "action": "maybe",
                "reasons": [],
                "tokens_estimate": 7,
                "cost_low_usd": None,
                "cost_high_usd": None,
            },
        ],
        "hosts": ["api.openai.com"],
        "cost_low_usd": None,
        "cost_high_usd": None,
        "notes": ["no price"],
    }


def test_S29_hosts_are_named_without_user_path_and_repetition() -> None:
    urls = ["https://user:pass@models.example:8443/v1?key=x", "https://models.example:8443/v2", "scripted:answers", ""]
    assert host_names(urls) == ("models.example:8443",)


# --- why --------------------------------------------------------------------------------------------------------------

BODY = '{"weekly_usd": 997}'
RATES = Block(
    layer="artifact",
    source="rates",
    parts=('<artifact step="rates">\nAbout: Vendor rates.\n---\n', BODY, "\n</artifact>"),
    rule="reads, p.yaml:58:9",
    tokens=20,
    version=2,
    contract="vendor-rates",
    fields=("weekly_usd",),
    about="Vendor rates.",
    guards=("Not the budget.",),
)
TASK = Block(layer="task", source="tech-stack", parts=("Recommend in 997 words.",), rule="template", tokens=8)


def call(seq: int, source: CallSource, previous: str, items: tuple[Item, ...], done: DoneCall | None) -> CallRow:
    sent = SentCall(
        id=f"c{seq}", thread_id="synthetic_s_t", seq=seq, source=source, previous=previous, rung="chain",
        request_hash=f"hash{seq}", items=items, provider="openai", model="m", estimate_tokens=28,
    )  # fmt: skip
    return CallRow(sent, done)


def done(seq: int, outcome: Literal["accepted", "reask", "tools"], cost: str | None = "0.01") -> DoneCall:
    usage = Usage(input_tokens=30, cached_tokens=10, output_tokens=5)
    return DoneCall(
        f"c{seq}", f"resp_{seq}", "done", outcome, usage=usage, cost_usd=Decimal(cost) if cost else None, seconds=1.0
    )


def journal(*calls: CallRow) -> Journal:
    manifest = Manifest((ManifestEntry("read", "rates", "h"),))
    thread = ThreadJournal(
        id="synthetic_s_t",
        name="main",
        provider="openai",
        model="m",
        base_url="https://api.openai.com/v1",
        settings={},
        prompt=Prompt("You are careful.", (RATES, TASK), manifest),
        left_out=(LeftOut("conversation", "messages 1–14", "over 800 tokens", 900),),
        calls=calls,
    )
    attempt = AttemptRow("a", 1, 1, "succeeded", None, manifest.inputs_hash, 0, None, NOW, NOW)
    reads = (ReadRecord("rates", "artifact-rates-2", 2, ("weekly_usd",), "h"),)
    return Journal(attempt, manifest, reads, (thread,), ())


FIRST = call(1, "NEXT_STEP", "synthetic_s_t", (TextItem((RATES.text, TASK.text)),), done(1, "reask"))
SECOND = call(2, "REASK", "resp_1", (TextItem(("stack: name one.",)),), done(2, "accepted", None))


def test_R024_the_why_document() -> None:
    document = why_document(journal(FIRST, SECOND), "tech-stack", None, "A developer costs 997 USD a week.")
    thread = document["threads"][0]
    assert document["schema"] == "orch.why/1"
    assert (document["step"], document["item"], document["attempt"]) == ("tech-stack", None, 1)
    assert (thread["name"], thread["id"], thread["request_hash"]) == ("main", "synthetic_s_t", "hash1")
    assert thread["inputs_hash"] == Manifest((ManifestEntry("read", "rates", "h"),)).inputs_hash
    assert thread["calls"][0] == {
        "seq": 1,
        "source": "NEXT_STEP",
        "model": "openai:m",
        "previous_response_id": None,
        "response_id": "resp_1",
        "rung": "chain",
        "compacted": False,
        "outcome": "reask",
        "reason": "",
        "estimate_tokens": 28,
        "input_tokens": 30,
        "cached_tokens": 10,
        "output_tokens": 5,
        "most_input_tokens": None,
        "unexplained": None,
        "usage_estimated": False,
        "partial_text": None,
        "cost_usd": "0.01",
        "seconds": 1.0,
        "first_text_seconds": None,
    }
    assert thread["calls"][1]["previous_response_id"] == "resp_1"
    assert thread["calls"][1]["cost_usd"] is None
    assert document["blocks"][0] == {
        "layer": "artifact",
        "source": "rates",
        "version": 2,
        "contract": "vendor-rates",
        "fields": ["weekly_usd"],
        "rule": "reads, p.yaml:58:9",
        "about": "Vendor rates.",
        "guards": ["Not the budget."],
        "file": None,
        "tokens": 20,
        "used": True,
        "thread": "main",
        "continued": False,
    }
    assert document["left_out"] == [
        {"layer": "conversation", "source": "messages 1–14", "reason": "over 800 tokens", "tokens": 900}
    ]
    assert document["estimate_tokens"] == 28
    json.dumps(document)


def test_a_call_in_flight_when_the_process_ended_says_so() -> None:
    lost = call(1, "NEXT_STEP", "synthetic_s_t", (TextItem(("x",)),), None)
    shown = why_document(journal(lost), "tech-stack", None, None)["threads"][0]["calls"][0]
    assert shown["outcome"] == "sent"
    assert shown["input_tokens"] is None
    assert "in flight" in shown["reason"]


def test_the_request_text_is_what_was_sent_and_then_only_what_each_call_added() -> None:
    tool = call(2, "TOOL_RESULT", "resp_1", (ToolOutput("call_7", '{"rate": 5}'),), done(2, "accepted"))
    text = request_text(journal(FIRST, tool).threads)
    assert text == (
        "──── system ────\nYou are careful.\n\n"
        f"──── user ────\n{RATES.text}{TASK.text}\n\n"
        '──── call 2 · TOOL_RESULT · tool result call_7 ────\n{"rate": 5}'
    )


@pytest.mark.parametrize(
    ("output", "used"),
    [
        ("It costs 997 a week.", True),
        ("It costs 1,997 a week.", False),  # another number
        ("It costs 99 a week.", False),
        ("About: Vendor rates.", False),  # the label is not content
        ("", False),
    ],
)
def test_a_block_is_used_where_its_numbers_stand_in_the_output(output: str, used: bool) -> None:
    assert is_used(RATES, output) is used


def test_four_words_in_a_row_count_and_three_do_not() -> None:
    block = replace(RATES, parts=("<a>", "patients book their visits by phone", "</a>"))
    assert is_used(block, "Soon Patients book their visits online")
    assert not is_used(block, "Soon patients book their appointments by phone")


def test_the_task_is_never_counted_as_used() -> None:
    assert not is_used(TASK, "Recommend in 997 words.")
