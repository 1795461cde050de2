"""`vendor_context` of a model alias: the provider sums up a thread that has grown, or leaves out old results of tools.

Both vendors over real HTTP, each with its own fields (reference of the providers, §1.6 and §2.7). What the provider has
done is an event of the run and stands in `why`; the estimates and, where the thread travels again, its items are those
from the summary on; the summing up is paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC, CHAT, OPENAI, Vendor
from tests.strict_messages import COMPACTS
from tests.strict_server import Seen, StrictServer
from tests.walk.over_http import at, commands, run_here, shop, table

PIPELINE = """
version: 1
pipeline: reading
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", vendor_context: {CONTEXT}}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  notes: {reads: [idea], produces: note, tools: ["work.py:page"], prompt: "Read the pages."}
outputs: [notes]
"""
WORK = """
from orchestrator import tool


@tool(idempotent=True)
def page(name: str) -> str:
    \"\"\"A page of the book.\"\"\"
    return f"page {name}: " + name * 6000
"""
PRICES = '[prices."*"]\ninput = 1\noutput = 2\n'
IDEA = {"idea": "a book"}
Orch = Callable[..., str]


def reader(pages: str) -> Callable[[Seen], dict[str, Any]]:
    """One page after the other, then the note; by the calls that there have been."""
    left = iter(pages)

    def answer(seen: Seen) -> dict[str, Any]:
        name = next(left, None)
        return {"text": "All is read."} if name is None else reading(name)

    return answer


def reading(name: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "page", "arguments": {"name": name}}]}


def project(folder: Path, vendor: Vendor, server: StrictServer, context: str, more: str = "") -> dict[str, str]:
    can = 'vendor_context = ["compact", "clear_tools"]\n' if vendor is not CHAT else ""
    key = f'api_key_env = "{vendor.key_env}"\n'
    provider = table(vendor.name, vendor.kind, server, key + can + more)
    shop(folder, PIPELINE.replace("CONTEXT", context), provider + PRICES)
    (folder / "work.py").write_text(WORK, encoding="utf-8")
    return {name: value for name, value in at(server, vendor).items() if not name.endswith("_BASE_URL")}


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC], ids=lambda vendor: vendor.name)
def test_a_thread_that_has_grown_is_summed_up_by_its_provider_and_goes_on(
    tmp_path: Path, vendor: Vendor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with vendor.stand_in(reader("ab")) as server:
        env = project(tmp_path, vendor, server, "compact_at: 1500")
        run = run_here(tmp_path, env, IDEA)
    assert (run.status, run.text("notes")) == ("succeeded", "All is read.")
    assert [seen.body["context_management"] for seen in server.seen] == [SENT[vendor.name]] * 3
    first, second, third = run.calls("notes")
    kinds = [[item.data["type"] for item in call.done.items] for call in (first, second) if call.done]
    assert ["compaction" in of_call for of_call in kinds] == [False, True]
    edited = [event.data for event in run.events if event.kind == "context.edited"]
    assert edited[0] == {"seq": 2, "what": ["summed up what stood before"]}
    assert third.sent.estimate_tokens < second.sent.estimate_tokens + 400, "page a is not counted again"
    why = commands(tmp_path, env, monkeypatch, capsys)("why", "last/notes")
    assert "summed up by the provider" in why


SENT: dict[str, Any] = {
    "openai": [{"type": "compaction", "compact_threshold": 1500}],
    "anthropic": {"edits": [{"type": COMPACTS, "trigger": {"type": "input_tokens", "value": 1500}}]},
}


def test_where_nothing_is_kept_the_thread_travels_from_the_summary_on(tmp_path: Path) -> None:
    """OpenAI without storage: what stands before the summary need not be sent again."""
    with OPENAI.stand_in(reader("ab")) as server:
        env = project(tmp_path, OPENAI, server, "compact_at: 1500", "store = false\n")
        run = run_here(tmp_path, env, IDEA)
    assert run.status == "succeeded"
    third = server.bodies[2]["input"]
    assert [item["type"] for item in third] == ["compaction", "function_call", "function_call_output"]
    [made] = [item.data for call in run.calls("notes")[1:2] if call.done for item in call.done.items[:1]]
    assert third[0] == made, "as it came"


def test_a_messages_api_gets_its_summary_back_as_it_came_and_the_summing_up_is_paid(tmp_path: Path) -> None:
    with ANTHROPIC.stand_in(reader("ab")) as server:
        env = project(tmp_path, ANTHROPIC, server, "compact_at: 1500")
        run = run_here(tmp_path, env, IDEA)
    assert {seen.headers["anthropic-beta"] for seen in server.seen} == {"compact-2026-01-12"}
    back = [block for turn in server.seen[2].body["messages"] for block in turn["content"]]
    [summary] = [block for block in back if block["type"] == "compaction"]
    assert (summary["content"], len(summary["encrypted_content"])) == ("They talked.", 40)
    usage = [call.done.usage for call in run.calls("notes") if call.done]
    assert usage[1] is not None
    # The server's numbers: the request had over 1,500 tokens when it was summed up, for 7; then 40 were read.
    assert usage[1].input_tokens > 1500 + 40
    assert usage[1].output_tokens > 7


def test_old_results_of_tools_are_left_out_by_a_messages_api_that_is_asked_to(tmp_path: Path) -> None:
    """The vendor keeps the newest three; the record keeps all."""
    with ANTHROPIC.stand_in(reader("abcde")) as server:
        env = project(tmp_path, ANTHROPIC, server, "clear_tools_at: 2000")
        run = run_here(tmp_path, env, IDEA)
    assert run.status == "succeeded"
    assert {seen.headers["anthropic-beta"] for seen in server.seen} == {"context-management-2025-06-27"}
    edited = [event.data["what"] for event in run.events if event.kind == "context.edited"]
    assert edited == [["left out 1 results of tools"], ["left out 2 results of tools"]]
    assert len([tool for tool in run.tools("notes") if tool.output and len(tool.output.output) > 6000]) == 5


@pytest.mark.parametrize(
    ("vendor", "context", "lacking"),
    [(CHAT, "compact_at: 5000", "compact_at"), (OPENAI, "compact_at: 5000, clear_tools_at: 5000", "clear_tools_at")],
    ids=["chat", "openai"],
)
def test_a_provider_without_such_a_way_is_named_before_anything_is_sent(
    tmp_path: Path,
    vendor: Vendor,
    context: str,
    lacking: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with vendor.stand_in(reader("")) as server:
        env = project(tmp_path, vendor, server, context)
        said = commands(tmp_path, env, monkeypatch, capsys)("run", "--set", "idea=a book", "--yes", code=3)
    assert f"notes lets its model's provider edit its thread, and {vendor.name} has no such way: {lacking}\n" in said
    assert f"take {lacking} from `vendor_context` of the model alias default" in said
    assert server.seen == []
