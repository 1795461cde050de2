"""R023's alarm: a provider that counts more input than was sent has something else before its model.

Over HTTP, at each kind of server: one that keeps its own conversation over the steps, and one with a prompt ahead. The
run goes on; `run`, `why` and `cost` say so. And nothing is said where a tokenizer makes more tokens than another, where
results of tools, cached parts, pictures, the provider's own searches and summaries are counted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC, OPENAI, VENDORS, Vendor
from tests.strict_server import Answer, Seen, StrictServer
from tests.walk.harness import Seen as Run
from tests.walk.over_http import at, commands, named, run_here, shop, table, typed
from tests.walk.test_files import PNG
from tests.walk.test_hosted_tools import messages, responses

HEAD = """
version: 1
pipeline: chain
inputs:
  idea: {type: text, about: "What it is about."}
models:
  default: {use: "${env:ORCH_MODEL}"MORE}
artifacts:
  note: {about: "A note.", not_for: none, schema: text}
steps:
"""
SCHEMA = "{type: object, properties: {word: {type: string}, text: {type: string}}, required: [word, text]"
THREE = (
    HEAD.replace("MORE", "").replace("schema: text", f"schema: {SCHEMA}, additionalProperties: false}}")
    + """
  one: {reads: [idea], produces: note, prompt: "Write."}
  two: {reads: [idea, {read: one, fields: [word]}], produces: note, prompt: "Write."}
  three: {reads: [idea, {read: two, fields: [word]}], produces: note, prompt: "Write."}
"""
)
LONG = "The reply of a step is its own. " * 750  # 24,000 characters
NOTE = {"json": {"word": "good", "text": LONG}}
TOOLS = HEAD.replace("MORE", "") + (
    '  study: {reads: [idea], produces: note, tools: ["look.py:look"], prompt: "Look it all up."}\n'
)
LOOK = '''
from orchestrator import tool


@tool(idempotent=True)
def look(page: int) -> str:
    """A page."""
    return f"page {page}: " + "es steht geschrieben, dass " * 200
'''
IDEA = {"idea": "eine Donaudampfschifffahrtsgesellschaft"}
HIDDEN: dict[str, list[dict[str, Any]]] = {
    "openai": [{"role": "system", "content": LONG}],
    "anthropic": [{"role": "user", "content": [{"type": "text", "text": LONG}]}],
    "local": [{"role": "system", "content": LONG}],
}


def told(run: Run) -> list[tuple[str | None, Mapping[str, Any]]]:
    return [(event.step, event.data) for event in run.events if event.kind == "input.unexplained"]


def project(folder: Path, vendor: Vendor, server: StrictServer, pipeline: str = THREE) -> dict[str, str]:
    shop(folder, pipeline, named(vendor, server))
    (folder / "look.py").write_text(LOOK, encoding="utf-8")
    return at(server, vendor)


def reading(page: int) -> dict[str, Any]:
    return {"reasoning": "Hm. " * 50, "tool_calls": [{"name": "look", "arguments": {"page": page}}]}


def reader(seen: Seen) -> dict[str, Any]:
    """Three pages, then the note, with thoughts between."""
    return reading(seen.turn) if seen.turn < 3 else {"text": "All is read."}


# --- it is told -------------------------------------------------------------------------------------------------------


@VENDORS
def test_R023_a_server_that_goes_on_from_steps_before_is_told_and_the_run_goes_on(
    tmp_path: Path, vendor: Vendor
) -> None:
    """The first step is clean. Each after it weighs what stands in the ones before, of which it read one word."""
    with vendor.stand_in(lambda seen: NOTE, remembers=True) as server:
        run = run_here(tmp_path, project(tmp_path, vendor, server), IDEA)
    assert run.status == "succeeded"
    found = told(run)
    assert [step for step, _ in found] == ["two", "three"]
    for step, data in found:
        [call] = run.calls(str(step))
        assert call.done is not None
        assert call.done.usage is not None
        assert (data["call"], data["seq"], data["grew"]) == (call.sent.id, 1, False)
        assert data["model"] == f"{vendor.name}:{vendor.model}"
        assert data["input_tokens"] == call.done.usage.input_tokens > len(LONG) / 4
        assert data["most_tokens"] == -(-7 * call.sent.estimate_tokens // 2) + 2000 < data["input_tokens"]


@VENDORS
def test_R023_a_prompt_that_a_gateway_puts_ahead_is_told_once_for_a_thread(tmp_path: Path, vendor: Vendor) -> None:
    """In the calls after the first the provider's own number is the measure, and nothing is added there."""
    with vendor.stand_in(reader, hidden=HIDDEN[vendor.name]) as server:
        run = run_here(tmp_path, project(tmp_path, vendor, server, TOOLS), IDEA)
    assert run.status == "succeeded"
    [(step, data)] = told(run)
    assert (step, data["seq"], data["grew"]) == ("study", 1, False)


@VENDORS
def test_R023_what_is_put_in_between_the_calls_of_a_thread_is_told(tmp_path: Path, vendor: Vendor) -> None:
    def answer(seen: Seen) -> dict[str, Any]:
        if seen.turn == 0:  # for the calls that follow
            server.factor = 4.0
        return reader(seen)

    with vendor.stand_in(answer) as server:
        run = run_here(tmp_path, project(tmp_path, vendor, server, TOOLS), IDEA | {"idea": "idea " * 800})
    assert run.status == "succeeded"
    [(_, data)] = told(run)
    first, second = run.calls("study")[:2]
    assert first.done
    assert first.done.usage
    assert second.done
    assert second.done.usage
    assert (data["call"], data["grew"]) == (second.sent.id, True)
    assert first.done.usage.input_tokens < data["most_tokens"] < second.done.usage.input_tokens


def test_R023_run_why_and_cost_tell_it_with_cause_and_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = HEAD.replace("MORE", "") + '  one: {reads: [idea], produces: note, prompt: "Write."}\n'
    with OPENAI.stand_in(lambda seen: {"text": "short"}, hidden=HIDDEN["openai"]) as server:
        env = project(tmp_path, OPENAI, server, one)
        code, out, err = typed(tmp_path, env, "run", "--set", "idea=a shop", "--yes")
        assert code == 0, err
        orch = commands(tmp_path, env, monkeypatch, capsys)
        why, bill = json.loads(orch("why", "last/one", "--json")), json.loads(orch("cost", "last", "--json"))
        shown, costs, of_all = orch("why", "last/one"), orch("cost", "last"), orch("cost")
        said = orch("run", "--set", "idea=a shop", "--yes", "--jsonl").splitlines()
        lines = [json.loads(line) for line in said if line.startswith("{")]
        assert json.loads(orch("cost", "--until", "2020-01-01", "--json"))["unexplained"] == []
    [call] = why["threads"][0]["calls"]
    counted, most = server.seen[0].response["usage"]["input_tokens"], call["most_input_tokens"]
    words = (
        f"openai:gpt-x1 counted {counted:,} input tokens, and all that was sent makes {most:,} at most: "
        "something else stands before the model, such as a gateway's prompt or a conversation that the server keeps; "
        "look at where the provider openai leads"
    )
    assert call["unexplained"] == words
    assert f"! one: {words}" in " ".join(out.split())
    assert f"! {words}" in " ".join(shown.split())
    for text in (costs, of_all):
        assert f"! 1/one: {words}; `orch why 1/one --text` prints what was sent" in " ".join(text.split())
    [row] = bill["unexplained"]
    assert (row["run"], row["step"], row["input_tokens"], row["most_tokens"]) == (1, "one", counted, most)
    [event] = [line for line in lines if line.get("event") == "input.unexplained"]
    assert (event["step"], event["input_tokens"], event["grew"]) == ("one", counted, False)


# --- and not without reason -------------------------------------------------------------------------------------------


@VENDORS
def test_R023_a_tokenizer_that_makes_many_tokens_is_no_reason(tmp_path: Path, vendor: Vendor) -> None:
    """2.37 times as many as OpenAI's, the most that was measured for Claude, in each call of a thread with tools,
    thoughts and their replay; and three steps beside each other whose beginnings are cached."""
    with vendor.stand_in(reader, factor=2.37) as server:
        run = run_here(tmp_path / "a", project(tmp_path / "a", vendor, server, TOOLS), {"idea": "wörtlich " * 2000})
    assert (run.status, len(run.calls("study")), told(run)) == ("succeeded", 4, [])
    with vendor.stand_in(lambda seen: NOTE, factor=2.37) as server:
        run = run_here(tmp_path / "b", project(tmp_path / "b", vendor, server), {"idea": "wörtlich " * 2000})
    assert (run.status, told(run)) == ("succeeded", [])


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_R023_the_providers_own_searches_are_no_reason(tmp_path: Path, vendor: Vendor) -> None:
    """What they found is in the same number, and nobody can say how much it was."""
    answer: Answer = responses if vendor is OPENAI else messages
    pipeline = HEAD.replace("MORE", "") + (
        "  find: {reads: [idea], produces: note, tools: [{tool: web_search, max_uses: 3}], prompt: Look it up.}\n"
    )
    found = {"input_tokens": 90_000, "output_tokens": 20}

    def searched(seen: Seen) -> dict[str, Any]:
        return {**answer(seen), "usage": found}

    with vendor.stand_in(searched) as server:
        extra = f'api_key_env = "{vendor.key_env}"\nhosted_tools = ["web_search"]\n'
        shop(tmp_path, pipeline, table(vendor.name, vendor.kind, server, extra))
        run = run_here(tmp_path, at(server, vendor), IDEA)
    [call] = run.calls("find")
    assert call.done
    assert call.done.usage
    assert call.done.usage.input_tokens == 90_000
    assert (run.status, told(run)) == ("succeeded", [])


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_R023_a_thread_that_was_summed_up_is_no_reason(tmp_path: Path, vendor: Vendor) -> None:
    """The summing up is billed beside the answer, and what follows is counted from the summary on."""
    pipeline = TOOLS.replace('"${env:ORCH_MODEL}"', '"${env:ORCH_MODEL}", vendor_context: {compact_at: 1500}')
    said = iter([reading(page) for page in range(3)])
    with vendor.stand_in(lambda seen: next(said, {"text": "All is read."})) as server:
        extra = f'api_key_env = "{vendor.key_env}"\nvendor_context = ["compact"]\n'
        project(tmp_path, vendor, server, pipeline)
        shop(tmp_path, pipeline, table(vendor.name, vendor.kind, server, extra))
        run = run_here(tmp_path, at(server, vendor), {"idea": "a long idea " * 700})
    assert run.status == "succeeded"
    assert any(event.kind == "context.edited" for event in run.events)
    assert told(run) == []


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_R023_a_picture_weighs_what_its_vendor_says(tmp_path: Path, vendor: Vendor) -> None:
    pipeline = HEAD.replace("MORE", "").replace("{type: text, about", "{type: file, about") + (
        '  see: {reads: [idea], produces: note, prompt: "What is it?"}\n'
    )

    def heavy(seen: Seen) -> dict[str, Any]:
        return {"text": "A dot.", "usage": {"input_tokens": 37_000, "output_tokens": 3}}

    with vendor.stand_in(heavy) as server:
        extra = f'api_key_env = "{vendor.key_env}"\naccepts = ["image"]\n'
        shop(tmp_path, pipeline, table(vendor.name, vendor.kind, server, extra))
        (tmp_path / "dot.png").write_bytes(PNG)
        env = {name: value for name, value in at(server, vendor).items() if not name.endswith("_BASE_URL")}
        code, out, err = typed(tmp_path, env, "run", "--set", "idea=@dot.png", "--yes")
    assert code == 0, err
    assert base64.b64encode(PNG).decode() in json.dumps(server.seen[0].body), "the picture was sent"
    assert "counted" not in out


FORMS = """
from pydantic import BaseModel, create_model

from orchestrator import Ctx, Pipeline, artifact

Small = create_model("Small", word=(str, ...))
Large = create_model("Large", **{f"a_field_with_quite_a_long_name_{n}": (str, ...) for n in range(90)})


@artifact(about="What was said.", not_for="none")
class Said(BaseModel):
    word: str


p = Pipeline("chain")
p.input("idea", str, about="What it is about.")


@p.step
async def talk(ctx: Ctx, idea: str) -> Said:
    chat = ctx.thread("talk")
    small = await chat.ask(Small, "A word.")
    await chat.ask(Large, "Now all of it.")
    return Said(word=small.word)
"""


@VENDORS
def test_R023_a_question_that_asks_for_a_larger_form_is_no_reason(tmp_path: Path, vendor: Vendor) -> None:
    """The form is a part of each request, and another question of the thread has another one."""

    def answer(seen: Seen) -> dict[str, Any]:
        form = json.loads(seen.raw)
        names = [name for name in (f"a_field_with_quite_a_long_name_{n}" for n in range(90)) if name in str(form)]
        return {"json": dict.fromkeys(names, "x") if names else {"word": "yes"}}

    with vendor.stand_in(answer, factor=2.37) as server:
        project(tmp_path, vendor, server)
        (tmp_path / "chain.py").write_text(FORMS, encoding="utf-8")
        (tmp_path / "shop.yaml").unlink()
        run = run_here(tmp_path, at(server, vendor), IDEA)
    assert (run.status, len(run.calls("talk")), told(run)) == ("succeeded", 2, [])
    first, second = (call.done.usage.input_tokens for call in run.calls("talk") if call.done and call.done.usage)
    assert second > first + 1000
