"""The boundary between steps: each begins with nothing but what is recorded; inside, one chain.

Eight steps in a row, each reading the one before it and the vendor's rates. Everything that must stay inside a step is
planted with a word of its own, and looked for in all that any other step's model saw.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import InvalidProject
from orchestrator.frame import FramedArtifact, parse
from orchestrator.ids import is_synthetic
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.trace.why import why_document
from orchestrator.values import CallSource, Request
from tests.walk.harness import House, Seen

NAMES = [f"s{n}" for n in range(1, 9)]
HEAD = """
version: 1
pipeline: boundary
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  rates:
    about: "Vendor rates, gathered to compare costs."
    not_for: ["These are not the customer's budget."]
    schema: {type: object, properties: {weekly: {type: string}}, required: [weekly], additionalProperties: false}
  note: {about: "A working note.", not_for: ["Not a decision."], schema: {
    type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}}
steps:
  s1: {reads: [idea], produces: rates, tools: ["tools.py:look_up"], prompt: "Look the rates up."}
"""
PIPELINE = HEAD + "".join(
    f'  s{n}: {{reads: [s1, s{n - 1}], produces: note, prompt: "Take step {n}."}}\n'
    if n > 2
    else f'  s{n}: {{reads: [s1], produces: note, prompt: "Take step {n}."}}\n'
    for n in range(2, 9)
)
TOOLS = '''
from orchestrator import tool


@tool(idempotent=True)
def look_up(who: str) -> str:
    """The rate of a vendor."""
    return f"CANARY-RESULT: {who} takes 997 a week, which is between us"
'''
FIGURE = "$997/week"
CANARIES = ["CANARY-REASONING", "CANARY-ARGUMENT", "CANARY-RESULT", "CANARY-DRAFT", "CANARY-PROSE", "CANARY-RULE"]
SCRIPT: dict[str, list[Any]] = {
    "s1": [
        {
            "reasoning": "CANARY-REASONING",
            "text": "CANARY-PROSE: let me see.",
            "tool_calls": [{"name": "look_up", "arguments": {"who": "CANARY-ARGUMENT"}}],
        },
        {"json": {"weekly": 5, "CANARY-RULE": "CANARY-DRAFT"}},
        {"json": {"weekly": FIGURE}},
    ],
    **{name: [{"json": {"text": f"note of {name}"}}] for name in NAMES[1:]},
}


def house(folder: Path, script: Any = SCRIPT, pipeline: str = PIPELINE) -> House:
    return House(folder, pipeline, script, files={"tools.py": TOOLS})


def run(there: House, **options: Any) -> Seen:
    return asyncio.run(there.run({"idea": "a shop"}, **options))


def firsts(there: House) -> list[Request]:
    """The first request of each step, in order."""
    found: dict[str, Request] = {}
    for request in there.requests():
        found.setdefault(request.step, request)
    return list(found.values())


def opening(request: Request) -> str:
    """The user message a step begins with."""
    (item,) = request.items
    return item.text  # type: ignore[union-attr]


# --- a step begins with nothing ---------------------------------------------------------------------------------------


def test_R007_the_first_call_of_each_step_has_no_previous_response_id_at_all(tmp_path: Path) -> None:
    """Absent from the bytes: not null, not empty."""
    there = house(tmp_path)
    assert run(there).status == "succeeded"
    assert [request.step for request in firsts(there)] == NAMES
    for request in firsts(there):
        wire = there.provider.wire(request)
        assert b"previous_response_id" not in wire
        assert b"synthetic_" not in wire
        assert len(json.loads(wire)["input"]) == 1


def test_R008_threads_carry_synthetic_ids_made_from_the_session(tmp_path: Path) -> None:
    there = house(tmp_path)
    one = run(there)
    threads = {name: one.journals[name][0].threads[0].id for name in NAMES}
    assert len(set(threads.values())) == 8
    for thread in threads.values():
        assert is_synthetic(thread)
        assert thread.startswith(f"synthetic_{one.row.session_id}_")
    other = run(there)
    assert other.row.session_id != one.row.session_id
    assert set(threads.values()).isdisjoint(j[0].threads[0].id for j in other.journals.values())
    assert [is_synthetic(text) for text in ("resp_x", "xsynthetic_", "")] == [False, False, False]


def test_R009_the_id_alone_decides_whether_a_call_is_chained(tmp_path: Path) -> None:
    """(The same over HTTP: see the provider contract.)"""
    there = house(tmp_path)
    run(there)
    for request in there.requests():
        body = json.loads(there.provider.wire(request))
        assert body.get("previous_response_id", "absent") == (
            "absent" if is_synthetic(request.thread) else request.thread
        )


def test_R010_only_the_beginning_of_a_step_is_a_boundary(tmp_path: Path) -> None:
    there = house(tmp_path)
    seen = run(there)
    sources: list[CallSource] = [call.sent.source for call in seen.calls("s1")]
    assert sources == ["NEXT_STEP", "TOOL_RESULT", "REASK"]
    assert [is_synthetic(request.thread) for request in there.requests("s1")] == [True, False, False]
    for name in NAMES[1:]:
        assert [call.sent.source for call in seen.calls(name)] == ["NEXT_STEP"]


def test_R010_a_resumed_step_goes_on_in_its_chain(tmp_path: Path) -> None:
    class Dies(BaseException):
        pass

    def dying(request: Request, items: Any) -> Any:
        turn = sum(1 for r in there.requests("s1") if r.step == request.step)
        if request.step == "s1" and turn == 2:
            raise Dies
        return SCRIPT[request.step][turn - 1 if turn < 3 else turn - 2]

    there = house(tmp_path, ScriptedProvider(dying))
    with pytest.raises(Dies):
        run(there)
    seen = asyncio.run(there.resume())
    assert seen.status == "succeeded"
    first, interrupted, again, _ = there.requests("s1")
    assert not is_synthetic(interrupted.thread)
    assert (again.thread, again.items) == (interrupted.thread, interrupted.items)
    assert seen.steps["s1"].attempt == 1
    assert first.thread == seen.journals["s1"][0].threads[0].id


# --- what must not cross ----------------------------------------------------------------------------------------------


def test_R012_reasoning_tool_calls_and_drafts_stay_in_their_step(tmp_path: Path) -> None:
    there = house(tmp_path)
    seen = run(there)
    own = there.effective(there.requests("s1")[-1])
    sealed = base64.b64encode(b"CANARY-REASONING").decode()
    for canary in [*CANARIES[1:], sealed]:
        assert canary in own, "the canary was planted"
    for request in there.requests():
        if request.step != "s1":
            for canary in [*CANARIES, sealed]:
                assert canary not in there.effective(request)
    assert all(canary.encode() not in body for canary in CANARIES for body in seen.bodies().values())


def test_A1_a_step_inherits_no_prose_no_id_and_no_count_of_retries(tmp_path: Path) -> None:
    """Step 1 used up its re-asks; step 2 has all of its own, and so has a re-run of step 1."""
    script: dict[str, list[Any]] = {
        **SCRIPT,
        "s1": [{"text": "CANARY-7Q, I think."}, {"text": "CANARY-7Q, still."}, {"json": {"weekly": FIGURE}}],
        "s2": [{"text": "hm"}, {"text": "hm"}, {"json": {"text": "two"}}],
    }
    there = house(tmp_path, script)
    seen = run(there)
    assert seen.status == "succeeded"
    assert [seen.steps[name].reasks for name in ("s1", "s2", "s3")] == [2, 2, 0]
    (second, *_) = there.requests("s2")
    assert "CANARY-7Q" not in there.effective(second)
    assert is_synthetic(second.thread)
    with there.new_requests() as again:
        child = asyncio.run(there.rerun("s1"))
    first = again[0]
    assert first.step == "s1"
    assert is_synthetic(first.thread)
    assert "CANARY-7Q" not in there.effective(first)
    assert first.items == there.requests("s1")[0].items
    assert child.steps["s1"].reasks == 2
    assert child.status == "succeeded"


def test_an_id_is_never_used_outside_its_thread(tmp_path: Path) -> None:
    there = house(tmp_path)
    asyncio.run(there.run({"idea": "a shop"}, session="one"))
    seen = asyncio.run(there.run({"idea": "a shop"}, session="one"))
    asyncio.run(there.rerun("s1"))
    chained = [request.thread for request in there.requests() if not is_synthetic(request.thread)]
    assert len(chained) == len(set(chained)) == 3 * 2
    replies = {call.done.response_id for name in NAMES for call in seen.calls(name) if call.done}
    assert len(replies) == 10


# --- labels ahead of content ------------------------------------------------------------------------------------------


def artifact(request: Request, step: str) -> FramedArtifact:
    return next(found for found in parse(opening(request)).artifacts if found.step == step)


def test_R001_an_artifact_stands_in_its_wrapper_and_nowhere_else(tmp_path: Path) -> None:
    there = house(tmp_path)
    seen = run(there)
    for request in firsts(there)[1:]:
        text = opening(request)
        whole, rest = text.split('<artifact step="s1"')[1].split("</artifact>", 1)
        assert seen.text("s1") in whole
        assert FIGURE not in rest
        assert FIGURE not in text.split('<artifact step="s1"')[0]
        assert text.count(FIGURE) == 1


def test_R003_the_guard_travels_with_the_artifact_ahead_of_its_content_to_every_reader(tmp_path: Path) -> None:
    """Three steps later and seven: the label is the contract's, not the neighbour's."""
    there = house(tmp_path)
    run(there)
    for request in firsts(there)[1:]:
        found = artifact(request, "s1")
        assert found.about == "Vendor rates, gathered to compare costs."
        assert found.not_for == ("These are not the customer's budget.",)
        text = opening(request)
        assert text.index("Not for: These are not the customer's budget.") < text.index(FIGURE)
        assert (found.type, json.loads(found.content)) == ("rates", {"weekly": FIGURE})


def test_R024_the_trace_of_a_later_step_names_every_item_with_its_tokens_and_origin(tmp_path: Path) -> None:
    there = house(tmp_path)
    seen = run(there)
    document = why_document(seen.journals["s5"][0], "s5", None, seen.text("s5"), ["idea", "s1", "s2", "s3", "s4"])
    blocks = {block["source"]: block for block in document["blocks"] if block["layer"] == "artifact"}
    assert list(blocks) == ["heading", "s1", "s4"]
    for name in ("s1", "s4"):
        assert blocks[name]["tokens"] > 10
        assert blocks[name]["version"] == 1
        assert blocks[name]["rule"].startswith("reads, walk.yaml:")
        assert blocks[name]["guards"]
    left = {entry["source"]: entry["reason"] for entry in document["left_out"]}
    assert left.keys() == {"idea", "s2", "s3"}
    assert all("not declared" in reason for reason in left.values())
    assert document["reads"] == [{"source": "s1", "version": 1}, {"source": "s4", "version": 1}]
    counted = sum(block["tokens"] for block in document["blocks"])
    assert counted <= document["estimate_tokens"]
    assert document["threads"][0]["calls"][0]["input_tokens"] > 0


# --- refused before anything runs -------------------------------------------------------------------------------------


def refused(folder: Path, pipeline: str) -> InvalidProject:
    there = house(folder, pipeline=pipeline)
    with pytest.raises(InvalidProject) as caught:
        run(there)
    assert there.requests() == []
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ('    about: "Vendor rates, gathered to compare costs."\n', "", "about"),
        ('    not_for: ["These are not the customer\'s budget."]\n', "", "not_for"),
    ],
)
def test_R002_R025_an_artifact_without_both_halves_of_its_label_does_not_load(
    tmp_path: Path, old: str, new: str, missing: str
) -> None:
    assert old in PIPELINE
    first = refused(tmp_path, PIPELINE.replace(old, new)).diagnostics[0]
    assert missing in first.message
    assert "rates" in first.message
    assert str(first.place).startswith("walk.yaml:")


@pytest.mark.parametrize("key", ["raw: true", "previous_response_id: s1", "chain: s1"])
@pytest.mark.parametrize("where", ["step", "read"])
def test_R001_R025_raw_injection_and_chaining_across_steps_are_refused_with_a_hint(
    tmp_path: Path, key: str, where: str
) -> None:
    step = '  s8: {reads: [s1, s7], produces: note, prompt: "Take step 8."}\n'
    assert step in PIPELINE
    read = step.replace("s7]", f"{{read: s7, {key}}}]")
    wrong = step.replace("prompt:", f"{key}, prompt:") if where == "step" else read
    first = refused(tmp_path, PIPELINE.replace(step, wrong)).diagnostics[0]
    assert key.partition(":")[0] in first.message
    assert first.hint
    assert first.place is not None
    assert first.place.line > 1
