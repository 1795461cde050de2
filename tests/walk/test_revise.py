"""A finished step is made once more on a person's word (S05): on its thread where nothing has changed, else from the
present. What a model sees is asked of the vendor: the whole effective context of each request, not what was sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import frame
from orchestrator.errors import StoreError, UsageError
from orchestrator.ids import is_synthetic
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, OutputItem, Request, TextItem
from tests.walk.harness import House, Seen, Stopper

PIPELINE = """
version: 1
pipeline: letters
inputs:
  rate: {type: integer, about: "Dollars a week."}
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 1000}
artifacts:
  price: {about: "What the work costs.", not_for: ["Not the customer's budget."], schema: {
    type: object, properties: {usd: {type: integer}, note: {type: string}},
    required: [usd, note], additionalProperties: false}}
  letter: {about: "A letter.", not_for: none, schema: text}
  figure: {about: "A figure.", not_for: none, schema: {
    type: object, properties: {usd: {type: integer}}, required: [usd], additionalProperties: false}}
steps:
  price: {reads: [rate, idea], prompt: "Estimate the price of the work."}
  doubled: {reads: [price], produces: figure, python: "code.py:doubled"}
  letter: {reads: [price, doubled], prompt: "Write the letter."}
"""
CODE = """
def doubled(price):
    return {"usd": 2 * price["usd"]}
"""
INPUTS = {"rate": 100, "idea": "a yoga shop"}


def answers(request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
    """Each version of the price names how many of its kind the thread held before; the letter says what it was told."""
    turns = sum(isinstance(item, OutputItem) for item in seen)
    if request.step == "letter":
        return {"text": f"Letter {turns + 1}."}
    comments = [item.text.rpartition("[Comment for this version]\n")[2] for item in seen if isinstance(item, TextItem)]
    asked = comments[-1] if "[Comment" in _texts(seen) else "nothing"
    return {"json": {"usd": 400 + turns, "note": f"ORIGINAL-{turns + 1}: {asked}"}}


def _texts(items: tuple[Item, ...]) -> str:
    return "\n".join(item.text for item in items if isinstance(item, TextItem))


def house(folder: Path, **provider: Any) -> House:
    return House(folder, PIPELINE, ScriptedProvider(answers, **provider), files={"code.py": CODE})


def started(there: House) -> Seen:
    run = asyncio.run(there.run(INPUTS))
    assert run.status == "succeeded"
    return run


def revise(there: House, step: str = "price", comment: str = "say it shorter") -> tuple[Seen, list[Request]]:
    with there.new_requests() as asked:
        run = asyncio.run(there.revise(step, comment))
    return run, asked


def only(request: Request) -> str:
    """The one text that a request sends."""
    (item,) = request.items
    assert isinstance(item, TextItem)
    return item.text


def test_revise_goes_on_in_the_thread_that_made_the_version(tmp_path: Path) -> None:
    there = house(tmp_path)
    before = started(there)
    run, (asked,) = revise(there)
    assert run.status == "succeeded"
    assert asked.thread == before.calls("price")[-1].response_id
    assert only(asked) == "[Comment for this version]\nsay it shorter"
    assert asked.system == there.requests("price")[0].system
    assert there.effective(asked).count("Estimate the price of the work.") == 1
    assert run.value("price") == {"usd": 401, "note": "ORIGINAL-2: say it shorter"}
    assert [(v.version, v.origin, v.author) for v in run.versions["price"]] == [
        (1, "model", "scripted:written"),
        (2, "model", "scripted:written"),
    ]


def test_a_follow_up_is_a_thread_of_its_own_that_continues_another(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    run, _ = revise(there)
    first, second = (journal.threads[0] for journal in run.journals["price"])
    assert second.continues is not None
    assert second.continues.id == first.id
    assert second.id != first.id
    assert is_synthetic(second.id)
    assert [call.sent.source for call in second.calls] == ["FOLLOW_UP"]
    assert [attempt.mode for attempt in run.attempts["price"]] == ["", "follow_up"]
    assert run.steps["price"].manifest == run.journals["price"][0].manifest


def test_nothing_but_the_step_itself_is_made_anew_and_its_readers_become_stale(tmp_path: Path) -> None:
    from orchestrator.staleness import stale_reasons

    there = house(tmp_path)
    started(there)
    run, asked = revise(there)
    assert [request.step for request in asked] == ["price"]
    assert run.artifacts["letter"].version.version == 1
    reasons = stale_reasons(there.graph(), tuple(run.steps.values()))
    assert {step for step, why in reasons.items() if why} == {"doubled", "letter"}


def test_the_word_stands_in_the_conversation_that_later_steps_see(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    revise(there, comment="mention the yoga mats")
    _, (asked,) = revise(there, "letter", "and the towels")
    # What the letter read has changed, so it was composed from the present: the earlier word is part of that.
    told = frame.parse(only(asked))
    assert told.turns == (frame.Turn("user", "mention the yoga mats", "price"),)
    assert told.comment == "and the towels"


@pytest.mark.usefixtures("database")
def test_S05_an_edit_survives_what_is_said_after_it(tmp_path: Path) -> None:
    there = house(tmp_path)
    before = started(there)
    asyncio.run(there.edit("price", {"usd": 777, "note": "EDITED by hand"}))
    run, (asked,) = revise(there)
    assert is_synthetic(asked.thread)
    assert asked.thread != before.journals["price"][0].threads[0].id
    seen = there.effective(asked)
    assert "ORIGINAL" not in seen, "the value that was edited away came back"
    assert "EDITED by hand" in seen
    told = frame.parse(only(asked))
    (draft,) = [artifact for artifact in told.artifacts if artifact.draft is not None]
    assert (draft.step, draft.type, draft.draft) == ("price", "price", "edited by ana")
    assert draft.not_for == ("Not the customer's budget.",)
    assert json.loads(draft.content) == {"usd": 777, "note": "EDITED by hand"}
    assert told.comment == "say it shorter"
    assert only(asked).endswith("[Comment for this version]\nsay it shorter")
    (call,) = run.journals["price"][-1].threads[0].calls
    assert (call.sent.source, call.sent.rung) == ("REBUILD", "chain")
    assert run.artifacts["price"].version.version == 3
    rebuilt = [event.data["reason"] for event in run.events if event.kind == "step.rebuilt"]
    assert rebuilt == ["edited by ana"]


def test_S05_a_changed_input_is_seen_and_the_old_one_is_not(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    asyncio.run(there.edit("idea", "a climbing hall"))
    run, (asked,) = revise(there)
    seen = there.effective(asked)
    assert "a climbing hall" in seen
    assert "a yoga shop" not in seen
    (draft,) = [artifact for artifact in frame.parse(only(asked)).artifacts if artifact.draft is not None]
    assert draft.draft == "as this step made it"
    (reason,) = [event.data["reason"] for event in run.events if event.kind == "step.rebuilt"]
    assert reason == "idea v1→v2 (ana)"
    left = [entry for entry in run.journals["price"][-1].threads[0].left_out if entry.layer == "conversation"]
    assert [(entry.source, entry.reason) for entry in left] == [
        ("the thread that made the current version", "idea v1→v2 (ana)")
    ]


def test_S05_an_edit_that_was_taken_back_leaves_the_thread_good(tmp_path: Path) -> None:
    """What counts is the value that stands, not how often it was written."""
    there = house(tmp_path)
    before = started(there)
    first = before.value("price")
    asyncio.run(there.edit("price", {"usd": 777, "note": "EDITED"}))
    asyncio.run(there.edit("price", first))
    _, (asked,) = revise(there)
    assert asked.thread == before.calls("price")[-1].response_id


def test_S05_an_earlier_version_that_was_restored_is_not_what_the_newest_thread_ended_with(tmp_path: Path) -> None:
    there = house(tmp_path)
    before = started(there)
    revise(there, comment="MAKE IT LONGER")
    asyncio.run(there.edit("price", before.value("price")))
    _, (asked,) = revise(there, comment="shorter")
    seen = there.effective(asked)
    assert "ORIGINAL-2" not in seen
    assert "ORIGINAL-1" in seen


def test_S05_another_model_begins_anew(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    there.model = "scripted:other"
    there._opened = None
    run, (asked,) = revise(there)
    assert is_synthetic(asked.thread)
    (reason,) = [event.data["reason"] for event in run.events if event.kind == "step.rebuilt"]
    assert reason == "it was made by scripted:written"


def test_S14_the_same_model_at_another_address_begins_anew(tmp_path: Path) -> None:
    """Its id would mean nothing there, and the manifest does not know addresses."""
    from dataclasses import replace

    there = house(tmp_path)
    started(there)
    there.provider._traits = replace(there.provider.traits, base_url="https://elsewhere.test/v1")
    run, (asked,) = revise(there)
    assert is_synthetic(asked.thread)
    (reason,) = [event.data["reason"] for event in run.events if event.kind == "step.rebuilt"]
    assert reason == "it was made by scripted:written elsewhere"


def test_S05_a_thread_of_the_parent_run_is_not_gone_on_with(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    child = asyncio.run(there.rerun("letter"))
    assert child.row.parent_number == 1
    run, (asked,) = revise(there)
    assert is_synthetic(asked.thread)
    assert "ORIGINAL-1" in there.effective(asked)
    assert run.artifacts["price"].version.run_id == child.row.id


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("rounds", [3])
def test_A9_so_many_rounds_are_so_many_calls_each_in_a_process_of_its_own(tmp_path: Path, rounds: int) -> None:
    there = house(tmp_path)
    started(there)
    for number in range(rounds):
        run, asked = revise(there, comment=f"round {number + 1}")
        assert len(asked) == 1
        assert run.value("price")["note"] == f"ORIGINAL-{number + 2}: round {number + 1}"
    assert len(there.requests("price")) == 1 + rounds
    assert [v.version for v in run.versions["price"]] == [1, 2, 3, 4]
    last = there.effective(asked[0])
    assert [last.count(f"round {n}\n") or last.count(f"round {n}") > 0 for n in (1, 2, 3)]
    assert last.count("Estimate the price of the work.") == 1


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("how", ["lost", "zdr", "replay"])
def test_S13_where_the_id_is_gone_everything_is_sent_again_as_it_was(tmp_path: Path, how: str) -> None:
    """Threads are lists of hashes: what the parents sent and were answered, then one's own, not rendered again."""
    ways: dict[str, dict[str, Any]] = {"lost": {}, "zdr": {"zdr": True}, "replay": {"chaining": "replay"}}
    provider = ways[how]
    there = house(tmp_path, **provider)
    started(there)
    revise(there, comment="first word")
    there.write("walk.yaml", PIPELINE)  # a new process reads it again; nothing of it is rendered for the old parts
    if how == "lost":
        there.provider.forget(there_last(there))
    run, asked = revise(there, comment="second word")
    assert len(asked) == (2 if how == "lost" else 1)
    sent = asked[-1].items
    first = there.requests("price")[0].items[0]
    assert isinstance(sent[0], TextItem)
    assert isinstance(first, TextItem)
    assert sent[0].text == first.text
    assert [type(item).__name__ for item in sent] == ["TextItem", "OutputItem", "TextItem", "OutputItem", "TextItem"]
    assert [item.text for item in sent[2:] if isinstance(item, TextItem)] == [
        "[Comment for this version]\nfirst word",
        "[Comment for this version]\nsecond word",
    ]
    assert run.value("price")["note"] == "ORIGINAL-3: second word"
    assert run.journals["price"][-1].threads[0].calls[-1].sent.rung == "replay"


def there_last(there: House) -> str:
    seen = asyncio.run(there.look())
    return seen.calls("price")[-1].response_id or ""


def test_a_re_ask_of_a_follow_up_chains_on(tmp_path: Path) -> None:
    replies: list[Any] = [
        {"json": {"usd": 1, "note": "a"}},
        {"json": {"usd": 2}},
        {"json": {"usd": 3, "note": "c"}},
    ]
    there = House(tmp_path, PIPELINE, {"price": replies, "letter": [{"text": "L"}]}, files={"code.py": CODE})
    before = started(there)
    run, asked = revise(there)
    assert run.value("price") == {"usd": 3, "note": "c"}
    calls = run.journals["price"][-1].threads[0].calls
    assert [call.sent.source for call in calls] == ["FOLLOW_UP", "REASK"]
    assert [request.thread for request in asked] == [before.calls("price")[0].response_id, calls[0].response_id]
    assert (run.steps["price"].calls, run.steps["price"].reasks) == (3, 1)


def test_a_fresh_redo_sees_the_word_and_not_the_old_version(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    asyncio.run(redo(there, "price", "fresh", "think of the towels"))
    with there.new_requests() as found:
        run = asyncio.run(there.resume())
    (asked,) = found
    assert is_synthetic(asked.thread)
    assert "ORIGINAL" not in there.effective(asked)
    told = frame.parse(only(asked))
    assert told.comment == "think of the towels"
    assert all(artifact.draft is None for artifact in told.artifacts)
    assert run.artifacts["price"].version.version == 2
    assert [call.sent.source for call in run.journals["price"][-1].threads[0].calls] == ["NEXT_STEP"]


async def redo(there: House, step: str, mode: Any, comment: str) -> None:
    """What a gate does in its own transaction."""
    async with there.services() as (services, _):
        run = await services.store.run("last")
        await services.store.redo(run.id, step, None, mode, comment, "ana")


BODY = """
from orchestrator import Ctx, Pipeline, artifact


@artifact(about="A plan.", not_for="none")
class Plan(str):
    pass


p = Pipeline("plans")
p.input("idea", str, about="What the customer wants.")


@p.step
async def plan(ctx: Ctx, idea: str) -> Plan:
    return await ctx.ask(Plan, f"Plan it. Asked for: {ctx.comment}")
"""


def test_a_python_body_is_told_the_word_and_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.toml").write_text('user = "ana"\n')
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "plans.py").write_text(BODY)

    def answer(request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
        return {"text": only(request).partition("Asked for: ")[2]}

    there = House(tmp_path, "", answer)
    run = asyncio.run(there.run({"idea": "a shop"}))
    assert run.text("plan") == "None"
    run, (asked,) = revise(there, "plan", "cheaper")
    assert run.text("plan") == "cheaper"
    assert is_synthetic(asked.thread)
    assert [attempt.mode for attempt in run.attempts["plan"]] == ["", "fresh"]


def test_what_cannot_be_revised_is_refused_and_says_nothing(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    for step, comment, message in (
        ("doubled", "more", "doubled is plain Python"),
        ("nothing", "more", 'has no step "nothing"'),
        ("price", "  ", "the comment is empty"),
    ):
        with pytest.raises(UsageError, match=message):
            asyncio.run(there.revise(step, comment))
    asyncio.run(redo(there, "price", "follow_up", "once"))
    with pytest.raises(UsageError, match="price is ready"):
        asyncio.run(there.revise("price", "twice"))
    run, asked = asyncio.run(there.resume()), there.requests("price")[1:]
    assert run.value("price")["note"] == "ORIGINAL-2: once"
    assert len(asked) == 1


def test_a_revise_that_was_stopped_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    """At every moment of every write: one more version, on the same thread, and only a call in flight is paid twice."""
    stops = Stopper()
    whole = house(tmp_path / "whole")
    started(whole)
    asyncio.run(whole.revise("price", "say it shorter", observer=stops))
    moments = len(stops.seen)
    assert moments > 6
    for at in range(1, moments + 1):
        there = house(tmp_path / f"at-{at}")
        before = started(there)
        with pytest.raises(StoreError), there.new_requests():
            asyncio.run(there.revise("price", "say it shorter", observer=Stopper(at)))
        attempts = asyncio.run(there.look()).attempts["price"]
        if len(attempts) == 1:
            continue  # nothing was written yet: the person says it again
        run = asyncio.run(there.resume())
        assert run.status == "succeeded", stops.seen[at - 1]
        assert run.value("price") == {"usd": 401, "note": "ORIGINAL-2: say it shorter"}, stops.seen[at - 1]
        assert [v.version for v in run.versions["price"]] == [1, 2]
        assert len(there.requests("price")) in (2, 3)
        assert {request.thread for request in there.requests("price")[1:]} == {before.calls("price")[-1].response_id}
        (again,) = [entry for entry in run.attempts["price"] if entry.mode]
        assert again.state == "succeeded"


FACTS = """
version: 1
pipeline: offers
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}", max_output_tokens: 1000}
artifacts:
  offer: {about: "An offer.", not_for: none, schema: {
    type: object, properties: {text: {type: string}, budget: {type: [string, "null"], fact_of: customer}},
    required: [text, budget], additionalProperties: false}}
steps:
  offer: {reads: [idea], prompt: "Make an offer."}
"""


def test_what_a_comment_says_of_the_customer_is_the_customer_s_word(tmp_path: Path) -> None:
    replies: list[Any] = [
        {"json": {"text": "an offer", "budget": None}},
        {"json": {"text": "a better offer", "budget": "4,200 USD"}},
    ]
    there = House(tmp_path, FACTS, {"offer": replies})
    run = asyncio.run(there.run({"idea": "a shop"}))
    assert run.value("offer")["budget"] is None
    run = asyncio.run(there.revise("offer", "they can spend 4,200 USD"))
    assert run.value("offer")["budget"] == "4,200 USD"
    basis = run.artifacts["offer"].version.facts["budget"]
    assert (basis.basis, basis.source) == ("stated", "message 1")
    assert run.steps["offer"].reasks == 0


def test_a_thread_that_outgrows_the_window_begins_anew(tmp_path: Path) -> None:
    """The old thread holds every version; the present holds one."""

    def long_answers(request: Request, seen: tuple[Item, ...]) -> dict[str, Any]:
        turns = sum(isinstance(item, OutputItem) for item in seen)
        return {"text": f"Version {turns + 1} " + "of many words " * 150}

    text = '  offer: {about: "An offer.", not_for: none, schema: text}\n'
    pipeline = FACTS[: FACTS.index("  offer: {about")] + text + FACTS[FACTS.index("steps:") :]
    there = House(tmp_path, pipeline, long_answers)
    there.write("orchestrator.toml", 'user = "ana"\n[prices."written"]\ninput = 0\noutput = 0\ncontext = 2500\n')
    asyncio.run(there.run({"idea": "a shop"}))
    sources = []
    for number in range(2):
        run, _ = revise(there, "offer", f"word {number}")
        sources.append(run.journals["offer"][-1].threads[0].calls[0].sent.source)
    assert sources == ["FOLLOW_UP", "REBUILD"]
    (reason,) = {event.data["reason"] for event in run.events if event.kind == "step.rebuilt"}
    assert reason == "the whole of it would not fit the model's window any more"


def test_S21_a_follow_up_is_as_confidential_as_the_thread_it_goes_on_from(tmp_path: Path) -> None:
    """What the old thread was told still stands in it, whatever the present says of that."""
    there = House(tmp_path, PIPELINE, ScriptedProvider(answers, may_see="confidential"), files={"code.py": CODE})

    async def talk() -> None:
        async with there.services() as (services, _):
            await services.store.add_message("talk", "user", "between us", sensitivity="confidential")

    asyncio.run(talk())
    first = asyncio.run(there.run(INPUTS, session="talk"))
    assert first.artifacts["price"].version.sensitivity == "confidential"
    there.write("walk.yaml", PIPELINE)
    run, _ = revise(there)
    assert run.artifacts["price"].version.sensitivity == "confidential"
    # And a provider that may no longer see it is not sent it again, on no path.
    there.provider._traits = there.provider.traits.__class__("scripted", "", "server", may_see="internal")
    run, asked = revise(there)
    assert asked == []
    error = run.steps["price"].error
    assert error is not None
    assert error.code == "sensitivity"


def test_a_refresh_makes_the_readers_of_a_revised_step_anew_and_stops_at_equal_values(tmp_path: Path) -> None:
    there = house(tmp_path)
    started(there)
    revise(there)
    with there.new_requests() as asked:
        run = asyncio.run(there.refresh())
    assert [request.step for request in asked] == ["letter"]
    assert run.value("doubled") == {"usd": 802}
    assert run.artifacts["price"].version.version == 2, "what somebody asked for is not made anew"
    assert not any(row.stale for row in run.steps.values())
