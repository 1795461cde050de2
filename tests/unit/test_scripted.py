"""The scripted provider: what is written is said, what is not written is an error, and a vendor's rules hold."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import StreamEvent
from orchestrator.providers.retry import respond
from orchestrator.providers.script import ReplyLike, ScriptedReply
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, OutputFormat, Reply, Request, TextItem, ToolOutput, ToolSpec, Usage

STRICT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def ask(thread: str = "synthetic_s_1", *items: Item, step: str = "step", **more: Any) -> Request:
    return Request("answers", thread, "system", items or (TextItem(("hello",)),), step=step, **more)


def say(provider: ScriptedProvider, request: Request) -> Reply:
    return asyncio.run(provider.respond(request))


def kind_of(provider: ScriptedProvider, request: Request) -> str:
    with pytest.raises(ProviderFailure) as caught:
        say(provider, request)
    return caught.value.kind


def text(words: str) -> TextItem:
    return TextItem((words,))


# --- which reply is next ----------------------------------------------------------------------------------------------


def test_replies_come_in_the_order_of_the_thread() -> None:
    provider = ScriptedProvider({"step": ["one", "two", {"json": {"a": 3}}]})
    first = say(provider, ask())
    second = say(provider, ask(first.id, text("again")))
    third = say(provider, ask(second.id, text("again")))
    assert [reply.text for reply in (first, second, third)] == ["one", "two", '{"a": 3}']
    assert [reply.previous for reply in (first, second, third)] == [None, first.id, second.id]


def test_a_new_thread_starts_from_the_first_reply() -> None:
    provider = ScriptedProvider({"step": ["one", "two"]})
    assert say(provider, ask()).text == "one"
    assert say(provider, ask("synthetic_s_2")).text == "one"


def test_a_call_repeated_from_the_same_parent_gets_the_same_reply_under_a_new_id() -> None:
    provider = ScriptedProvider({"step": ["one", "two"]})
    first = say(provider, ask())
    again = ask(first.id, text("more"))
    replies = [say(provider, again), say(provider, again)]
    assert [reply.text for reply in replies] == ["two", "two"]
    assert replies[0].id != replies[1].id


def test_another_process_goes_on_where_the_first_stopped() -> None:
    """Nothing is counted in memory: the id, or the replayed items, say which reply is next."""
    script: dict[str, list[ReplyLike]] = {"step": [{"tool_calls": [{"name": "f", "arguments": {}}]}, "two", "three"]}
    first = say(ScriptedProvider(script), ask())
    answer = ToolOutput(first.tool_calls[0].call_id, "7")
    chained = say(ScriptedProvider(script), ask(first.id, answer))
    assert (chained.text, chained.previous) == ("two", first.id)
    assert say(ScriptedProvider(script), ask(chained.id, text("go on"))).text == "three"

    replayed = say(ScriptedProvider(script), ask("synthetic_s_1", text("hello"), *first.items, answer))
    assert replayed.text == "two"
    assert replayed.usage == chained.usage


def test_ids_can_be_made_to_die_with_their_process() -> None:
    first = say(ScriptedProvider({"step": ["one", "two"]}, durable=False), ask())
    after = ScriptedProvider({"step": ["one", "two"]}, durable=False)
    assert kind_of(after, ask(first.id, text("more"))) == "chain_lost"
    assert say(after, ask("synthetic_s_1", text("hello"), *first.items, text("more"))).text == "two"


def test_errors_and_cut_off_replies_stand_before_the_reply_they_delay() -> None:
    provider = ScriptedProvider(
        {
            "step": [
                "one",
                {"error": "rate_limit", "retry_after": 2},
                {"text": "tw", "status": "incomplete"},
                "two",
                {"error": "chain_lost"},
                "three",
            ]
        }
    )
    first = say(provider, ask())
    second = ask(first.id, text("more"))
    with pytest.raises(ProviderFailure) as caught:
        say(provider, second)
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 2)
    cut = say(provider, second)
    assert (cut.status, cut.incomplete_reason, cut.text) == ("incomplete", "max_output_tokens", "tw")
    done = say(provider, second)
    assert (done.status, done.text) == ("completed", "two")
    assert kind_of(provider, ask(done.id, text("more"))) == "chain_lost"
    replay = ask("synthetic_s_1", text("hello"), *first.items, text("more"), *done.items, text("more"))
    assert say(provider, replay).text == "three", "an error is given once, on whichever rung the call is made"


def test_scripted_errors_go_through_the_retry_policy() -> None:
    provider = ScriptedProvider({"step": [{"error": "overloaded", "retry_after": 0}] * 4 + ["five"]})
    reply = asyncio.run(respond(provider, ask()))
    assert (reply.text, reply.tries) == ("five", 5)


@pytest.mark.parametrize("used", [1, 2])
def test_a_script_that_is_used_up_is_an_error_that_names_the_step(used: int) -> None:
    provider = ScriptedProvider({"tech-stack": ["only one"]})
    reply = say(provider, ask(step="tech-stack"))
    for _ in range(used):
        with pytest.raises(ProviderFailure, match=r"step 'tech-stack' asks for reply 2; .* holds 1 reply") as caught:
            say(provider, ask(reply.id, text("more"), step="tech-stack"))
        assert (caught.value.kind, caught.value.exit_code) == ("bad_request", 6)


def test_a_step_without_a_script_is_an_error_that_names_it() -> None:
    with pytest.raises(ProviderFailure, match="no script for step 'other'"):
        say(ScriptedProvider({"step": ["one"]}), ask(step="other"))


def test_a_function_may_be_the_script() -> None:
    def script(request: Request, seen: tuple[Item, ...]) -> ReplyLike:
        return f"{request.step} has {len(seen)} items"

    provider = ScriptedProvider(script)
    first = say(provider, ask())
    assert first.text == "step has 1 items"
    assert say(provider, ask(first.id, text("more"))).text == "step has 3 items"


# --- files ------------------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / "answers" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_folder_of_files_is_a_script(tmp_path: Path) -> None:
    write(tmp_path, "step.json", [{"json": {"a": "ä"}}, {"text": "two"}])
    provider = ScriptedProvider(root=tmp_path)
    first = say(provider, ask())
    assert first.text == '{"a": "ä"}'
    assert say(provider, ask(first.id, text("more"))).text == "two"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, r"there is no answers/step\.json \(step 'step'\)"),
        ("[{", r"answers/step\.json \(step 'step'\) is no JSON"),
        ({"text": "x"}, "is no list of replies"),
        ([{"txt": "x"}], r"reply 1 of answers/step\.json .* is no reply: 'txt' is not one of its keys"),
        ([{"text": "x"}, {}], "reply 2 .* says one of"),
        ([{"text": "x", "json": 1}], "cannot say json and text at once"),
        ([{"error": "boom"}], "is no reply: error"),
        ([], r"asks for reply 1; answers/step\.json \(step 'step'\) holds 0 replies"),
    ],
)
def test_a_faulty_file_is_one_clear_error(tmp_path: Path, content: Any, what: str) -> None:
    if content is not None:
        write(tmp_path, "step.json", content)
    with pytest.raises(ProviderFailure, match=what) as caught:
        say(ScriptedProvider(root=tmp_path), ask())
    assert caught.value.kind == "bad_request", "never retried"


def test_a_relative_folder_may_not_leave_the_project(tmp_path: Path) -> None:
    write(tmp_path, "step.json", ["secret"])
    inner = tmp_path / "project"
    inner.mkdir()
    with pytest.raises(ProviderFailure, match="outside the project"):
        say(ScriptedProvider(root=inner), replace(ask(), model="../answers"))


# --- the vendor's rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread", ["resp_1", "", "resp_" + "0" * 50, "xsynthetic_s_1", "resp_zz"])
def test_an_id_that_was_never_given_is_lost(thread: str) -> None:
    assert kind_of(ScriptedProvider({"step": ["one"]}), ask(thread)) == "chain_lost"


def test_forgotten_ids_are_lost_and_their_children_are_not() -> None:
    provider = ScriptedProvider({"step": ["one", "two", "three"]})
    first = say(provider, ask())
    second = say(provider, ask(first.id, text("more")))
    provider.forget(first.id)
    assert kind_of(provider, ask(first.id, text("more"))) == "chain_lost"
    assert say(provider, ask(second.id, text("more"))).text == "three"


def test_every_tool_call_must_be_answered_in_the_next_request() -> None:
    calls = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "not json"}]
    provider = ScriptedProvider({"step": [{"tool_calls": calls, "text": "let me look"}, "done"]})
    first = say(provider, ask())
    one, two = first.tool_calls
    assert [(call.name, call.arguments) for call in (one, two)] == [("f", '{"a": 1}'), ("g", "not json")]
    assert first.text == "", "words beside tool calls are commentary, not the answer"
    both = (ToolOutput(one.call_id, "1"), ToolOutput(two.call_id, "2"))
    assert kind_of(provider, ask(first.id, text("hm"))) == "unanswered_call"
    assert kind_of(provider, ask(first.id, both[0])) == "unanswered_call"
    assert kind_of(provider, ask("synthetic_s_1", text("hello"), *first.items, both[0])) == "unanswered_call"
    assert kind_of(provider, ask(first.id, *both, ToolOutput("call_9", "?"))) == "bad_request"
    assert say(provider, ask(first.id, *both)).text == "done"


def test_ids_are_refused_where_nothing_is_stored() -> None:
    provider = ScriptedProvider({"step": [{"text": "one", "reasoning": "hm"}, "two"]}, zdr=True)
    assert (provider.traits.stores, provider.traits.chaining) == (False, "replay")
    first = say(provider, ask())
    assert kind_of(provider, ask(first.id, text("more"))) == "chain_lost"
    assert first.items[0].data["encrypted_content"]
    assert say(provider, ask("synthetic_s_1", text("hello"), *first.items, text("more"))).text == "two"


def test_a_server_that_ignores_the_field_answers_without_the_history() -> None:
    provider = ScriptedProvider({"step": ["one", "two"]}, ignores_chain=True)
    assert provider.traits.chaining == "auto"
    first = say(provider, ask())
    second = say(provider, ask(first.id, text("more")))
    assert (second.previous, second.text) == (None, "one")
    assert provider.effective(provider.requests[1]) == (text("more"),)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"required": []}, "'required' must include every key in properties; missing a"),
        ({"additionalProperties": True}, "'additionalProperties' is required"),
        ({"type": "array"}, "must have type 'object'"),
        (
            {"properties": {"a": {"anyOf": [{"type": "object", "properties": {}}]}}},
            "'additionalProperties' is required",
        ),
    ],
)
def test_schemas_must_be_strict(change: dict[str, Any], what: str) -> None:
    provider = ScriptedProvider({"step": ["one"]})
    schema = {**STRICT, **change}
    for request in (ask(output=OutputFormat("form", schema)), ask(tools=(ToolSpec("f", "", schema),))):
        with pytest.raises(ProviderFailure, match=what) as caught:
            say(provider, request)
        assert caught.value.kind == "bad_request"
    say(provider, ask(output=OutputFormat("form", STRICT), tools=(ToolSpec("f", "", STRICT),)))


def test_R029_a_prompt_over_the_window_is_refused() -> None:
    provider = ScriptedProvider({"step": ["one"]}, window=100)
    assert kind_of(provider, ask("synthetic_s_1", text("x" * 400))) == "too_long"
    say(provider, ask())


# --- what comes back --------------------------------------------------------------------------------------------------


def test_the_id_is_told_before_the_text_and_looks_like_a_vendors() -> None:
    events: list[StreamEvent] = []
    reply = asyncio.run(ScriptedProvider({"step": ["some text"]}).respond(ask(), events.append))
    assert events[0] == StreamEvent("created", reply.id)
    assert "".join(event.data for event in events[1:]) == "some text"
    assert {event.kind for event in events[1:]} == {"text"}
    assert reply.id.startswith("resp_")
    assert len(reply.id) == 55


def test_a_refusal_is_no_text() -> None:
    reply = say(ScriptedProvider({"step": [{"refusal": "I will not."}]}), ask())
    assert (reply.status, reply.text, reply.refusal) == ("completed", "", "I will not.")


def test_usage_grows_with_the_effective_context_and_its_old_part_is_cached() -> None:
    provider = ScriptedProvider({"step": ["a" * 70, "b"]})
    long = ask("synthetic_s_1", text("x" * 7000))
    first = say(provider, long)
    second = say(provider, replace(ask(first.id, text("y" * 700)), system=long.system))
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.cached_tokens == 0
    assert first.usage.output_tokens == 20  # 70 bytes
    assert first.usage.input_tokens >= 2000
    assert second.usage.input_tokens > first.usage.input_tokens + 200
    assert second.usage.cached_tokens == first.usage.input_tokens // 128 * 128


def test_a_short_context_is_not_cached() -> None:
    provider = ScriptedProvider({"step": ["one", "two"]})
    first = say(provider, ask("synthetic_s_1", text("x" * 3000)))
    assert first.usage is not None
    assert 800 < first.usage.input_tokens < 1024
    usage = say(provider, ask(first.id, text("more"))).usage
    assert usage is not None
    assert usage.cached_tokens == 0


def test_reasoning_is_output_too() -> None:
    usage = say(ScriptedProvider({"step": [{"text": "a" * 35, "reasoning": "b" * 350}]}), ask()).usage
    assert usage is not None
    assert (usage.output_tokens, usage.reasoning_tokens) == (110, 100)


def test_usage_can_be_written_or_withheld() -> None:
    given = {"input_tokens": 9637, "cached_tokens": 4352, "output_tokens": 0}
    provider = ScriptedProvider({"step": [{"text": "x", "usage": given}, {"text": "y", "usage": None}]})
    first = say(provider, ask())
    assert first.usage == Usage(input_tokens=9637, cached_tokens=4352)
    assert say(provider, ask(first.id, text("more"))).usage is None


def test_the_effective_context_can_be_searched() -> None:
    provider = ScriptedProvider({"step": [{"text": "CANARY-1", "reasoning": "CANARY-2"}, "two"]})
    first = say(provider, ask())
    chained = ask(first.id, text("more"))
    say(provider, chained)
    seen = provider.effective_text(chained)
    assert provider.requests == [ask(), chained]
    assert [word in seen for word in ("system", "hello", "CANARY-1", "more")] == [True] * 4
    assert "CANARY-1" not in provider.effective_text(ask("synthetic_s_2"))


def test_A24_a_cancelled_call_stores_nothing() -> None:
    async def cancel() -> tuple[ScriptedProvider, list[StreamEvent]]:
        provider = ScriptedProvider({"step": [{"text": "0123456789", "delay": 60}]})
        events: list[StreamEvent] = []
        half = asyncio.Event()

        def listen(event: StreamEvent) -> None:
            events.append(event)
            if event.kind == "text":
                half.set()

        task = asyncio.create_task(provider.respond(ask(), listen))
        await half.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return provider, events

    provider, events = asyncio.run(cancel())
    assert [event.data for event in events[1:]] == ["0123"]
    assert provider.effective(ask(events[0].data, text("more"))) == (text("more"),)


def test_a_delay_over_the_timeout_is_a_lost_connection() -> None:
    provider = ScriptedProvider({"step": [ScriptedReply(text="x", delay=5)]})
    with pytest.raises(ProviderFailure, match=r"no complete reply within 0\.01 s") as caught:
        say(provider, ask(timeout=0.01))
    assert caught.value.kind == "connection"
