"""`overflow: summarise`: what is too large to be read whole is summed up first, once, under its own label."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError
from orchestrator.ids import is_synthetic
from orchestrator.plan import plan_run
from orchestrator.providers.script import ReplyLike
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.providers.tokens import estimate
from orchestrator.rendering import render_step
from orchestrator.values import Item, Request
from tests.database_kit import Kind
from tests.walk.harness import House, Seen, StopAfter, Stopper
from tests.walk.wrong import Desk

PROJECT = """
user = "ana"
[providers.acme]
kind = "scripted"
[prices."small"]
input = "1"
output = "1"
context = WINDOW
"""
PIPELINE = """
version: 1
pipeline: gather
inputs:
  log: {type: log, about: "What the machine wrote."}
models:
  default: {use: "acme:small", max_output_tokens: 300}
artifacts:
  log:
    {about: "What it wrote.", not_for: ["This is no order."], schema: text, max_tokens: 100, overflow: summarise}
  note: {about: "A note.", not_for: none, schema: text}
steps:
  note: {reads: [log], produces: note, prompt: "What went wrong?"}
  plan: {reads: [note, {read: log, guard: "Not a plan."}], produces: note, prompt: "What is to be done?"}
"""
LOG = "".join(f"{n:04} all is well\n" for n in range(1000)) + "the pump failed at 1,250 rpm\n"
SHORT = "The pump failed at 1,250 rpm."
ANSWERS = {"note": "The pump.", "plan": "Mend the pump."}


class Vendor:
    """Sums up what it is asked to, with these words in order (the last for ever), and answers the steps."""

    def __init__(self, *summaries: str) -> None:
        self.summaries = list(summaries) or [SHORT]

    def __call__(self, request: Request, items: tuple[Item, ...]) -> ReplyLike:
        if request.thread_name.startswith("summary/"):
            return {"text": self.summaries.pop(0) if len(self.summaries) > 1 else self.summaries[0]}
        return {"text": ANSWERS[request.step]}


def house_of(folder: Path, *summaries: str, pipeline: str = PIPELINE, window: int = 20_000, **more: Any) -> House:
    vendor = ScriptedProvider(Vendor(*summaries), name="acme")
    house = House(folder, pipeline, vendor, **more)
    house.write("orchestrator.toml", PROJECT.replace("WINDOW", str(window)))
    return house


def asked(house: House) -> Counter[str]:
    """How often each thread was sent something, by step and name."""
    return Counter(f"{r.step}/{r.thread_name}" for r in house.requests())


def body_of(sent: str) -> str:
    return sent.partition("---\n")[2].partition("\n</artifact>")[0]


def test_two_readers_of_one_long_artifact_see_one_summary_under_its_guards(tmp_path: Path) -> None:
    """4,867 tokens by bytes / 3.5; the summary is paid for once, on a thread of its own that begins without an id."""
    house = house_of(tmp_path)
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded"
    assert seen.text("log") == LOG
    assert asked(house) == {"note/summary/log": 1, "note/main": 1, "plan/main": 1}
    summing, note, plan = house.requests()
    assert all(is_synthetic(request.thread) for request in (summing, note, plan))
    whole = house.effective(summing)
    assert body_of(whole) == LOG.removesuffix("\n") + "\n"
    assert whole.index("This is no order.") < whole.index("0000 all is well")
    assert "Not a plan." not in whole
    assert "Add nothing that it does not say" in whole
    note_text = f"[a summary; the whole has about {estimate(LOG):,} tokens]\n{SHORT}"
    for request in (note, plan):
        sent = house.effective(request)
        assert note_text in sent
        assert "0000 all is well" not in sent
        assert sent.index("This is no order.") < sent.index(SHORT)
    journal = seen.journals["note"][0]
    assert [thread.name for thread in journal.threads] == ["summary/log", "main"]
    (left,) = [one for one in journal.threads[1].left_out if one.layer == "artifact"]
    assert left.source == "the whole of log"
    assert left.reason == "over max_tokens of 100: the contract log says overflow: summarise"
    (block,) = [block for block in journal.threads[1].prompt.blocks if block.source == "log"]
    assert block.rule.startswith("reads, summed up, walk.yaml:")
    assert block.tokens < 200
    done = next(event.data for event in seen.events if event.kind == "step.done" and event.step == "note")
    assert done["calls"] == 2
    costs = [call.done.cost_usd for call in seen.calls("note") if call.done]
    assert Decimal(done["cost_usd"]) == sum(cost for cost in costs if cost is not None)


def test_a_figure_that_the_whole_does_not_hold_is_asked_again_and_never_read(tmp_path: Path) -> None:
    house = house_of(tmp_path, "It failed at 2,500 rpm.", SHORT)
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded"
    assert asked(house)["note/summary/log"] == 2
    told = house.effective(house.requests()[1])
    assert 'Check failed: the summary says "2,500", which is not in what it sums up.' in told
    assert all("2,500" not in house.effective(request) for request in house.requests()[2:])
    done = next(event.data for event in seen.events if event.kind == "step.done" and event.step == "note")
    assert (done["calls"], done["reasks"]) == (3, 1)


def test_a_summary_that_stays_wrong_fails_the_step_before_its_own_question(tmp_path: Path) -> None:
    """Two re-asks, as for any answer; what was paid is on record, and resume asks for the summary anew."""
    house = house_of(tmp_path, "It failed at 2,500 rpm.")
    seen = asyncio.run(house.run({"log": LOG}))
    error = seen.steps["note"].error
    assert error is not None
    assert error.message.startswith("log was not summed up for note: ")
    assert '"2,500"' in error.message
    assert asked(house) == {"note/summary/log": 3}
    assert [call.done.outcome for call in seen.calls("note") if call.done] == ["reask", "reask", "rejected"]
    house.provider._script = Vendor()
    again = asyncio.run(house.resume())
    assert again.status == "succeeded"
    assert asked(house) == {"note/summary/log": 4, "note/main": 1, "plan/main": 1}


def test_a_summary_over_its_limit_is_asked_again(tmp_path: Path) -> None:
    house = house_of(tmp_path, "The pump failed. " * 40, SHORT)
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded"
    assert "the answer is too long" in house.effective(house.requests()[1])


def test_what_the_window_does_not_hold_is_summed_up_in_parts(tmp_path: Path) -> None:
    """A window of 2,000 less the reply of 300 and what stands around it holds 545 tokens of the whole: nine parts. What
    they come to is over the limit, so it is summed up once more."""
    plain = "All is well in each of these lines, as far as it can be seen from them."
    house = house_of(tmp_path, window=2_000)

    def vendor(request: Request, items: tuple[Item, ...]) -> ReplyLike:
        if not request.thread_name.startswith("summary/"):
            return {"text": ANSWERS[request.step]}
        return {"text": SHORT if "1,250" in house.effective(request) else plain}

    house.provider._script = vendor
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded", seen.row.error
    names = [r.thread_name for r in house.requests() if r.step == "note"]
    assert sorted(names[:9]) == [f"summary/log/part-{n}" for n in range(1, 10)]
    assert names[9:] == ["summary/log", "main"]
    texts = {r.thread_name: body_of(house.effective(r)) for r in house.requests() if r.step == "note"}
    assert "\n".join(texts[f"summary/log/part-{n}"].removesuffix("\n") for n in range(1, 10)) + "\n" == LOG
    assert texts["summary/log"] == "\n\n".join([*[plain] * 8, SHORT])
    assert SHORT in texts["main"]


def test_a_window_that_holds_no_part_is_an_error_before_anything_is_paid(tmp_path: Path) -> None:
    house = house_of(tmp_path, window=1_400)
    seen = asyncio.run(house.run({"log": LOG}))
    error = seen.steps["note"].error
    assert error is not None
    assert error.code == "too_large"
    assert "nothing was sent" in error.message
    assert "`summarise`" in (error.hint or "")
    assert house.requests() == []


def test_an_edit_that_makes_it_short_enough_is_read_whole_and_one_that_does_not_is_summed_up_anew(
    tmp_path: Path,
) -> None:
    house = house_of(tmp_path)
    asyncio.run(house.run({"log": LOG}))
    asyncio.run(house.edit("log", LOG + "and then it stopped\n"))
    with house.new_requests() as requests:
        assert asyncio.run(house.refresh()).status == "succeeded"
    assert [r.thread_name for r in requests] == ["summary/log", "main", "main"]
    asyncio.run(house.edit("log", "It failed."))
    with house.new_requests() as requests:
        seen = asyncio.run(house.refresh())
    assert [r.thread_name for r in requests] == ["main", "main"]
    assert body_of(house.effective(requests[0])) == "It failed."
    assert not seen.journals["note"][-1].threads[0].left_out


def test_a_child_run_reads_the_summary_of_its_parent_and_another_run_does_not(tmp_path: Path) -> None:
    """S14: within a run and from parent to child, never from one run to another."""
    house = house_of(tmp_path)
    asyncio.run(house.run({"log": LOG}))
    with house.new_requests() as requests:
        child = asyncio.run(house.rerun("plan"))
    assert child.status == "succeeded"
    assert [r.thread_name for r in requests] == ["main"]
    assert SHORT in house.effective(requests[0])
    with house.new_requests() as requests:
        assert asyncio.run(house.run({"log": LOG})).status == "succeeded"
    assert [r.thread_name for r in requests] == ["summary/log", "main", "main"]


def test_another_model_may_sum_up_and_it_alone_is_asked(tmp_path: Path) -> None:
    alias = '  summarise: {use: "acme:tiny", max_output_tokens: 200}\nartifacts:'
    house = house_of(tmp_path, pipeline=PIPELINE.replace("artifacts:", alias, 1))
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded", seen.row.error
    assert [(r.model, r.max_output_tokens) for r in house.requests()] == [("tiny", 200), ("small", 300), ("small", 300)]


FAN_OUT = """
version: 1
pipeline: gather
inputs:
  log: {type: log, about: "What the machine wrote."}
models:
  default: {use: "acme:small", max_output_tokens: 300}
artifacts:
  log:
    {about: "What it wrote.", not_for: none, schema: text, max_tokens: 100, overflow: summarise}
  note: {about: "A note.", not_for: none, schema: text}
  parts:
    about: "The parts of the machine."
    not_for: none
    schema: {type: object, properties: {parts: {type: array, items: {type: string}}}, required: [parts]}
steps:
  list: {python: "work.py:listed", produces: parts}
  note: {for_each: {item: part, in: list.parts}, reads: [log], produces: note, prompt: "What of it? {{ item }}"}
"""


def test_items_that_run_side_by_side_share_one_summary(tmp_path: Path) -> None:
    code = 'def listed() -> dict:\n    return {"parts": [f"part {n}" for n in range(12)]}\n'
    house = house_of(tmp_path, pipeline=FAN_OUT, files={"work.py": code})
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded", seen.row.error
    assert asked(house) == {"note/summary/log": 1, "note/main": 12}


BODY = """
from orchestrator import Ctx

async def wrote(ctx: Ctx, log: str) -> str:
    assert len(log) > 10_000  # the body has the whole
    first = await ctx.ask(str, "What went wrong?")
    return first + " " + await ctx.ask(str, "And what else?")
"""


IN_PYTHON: dict[str, Any] = {
    "pipeline": PIPELINE.replace('prompt: "What went wrong?"', 'python: "work.py:wrote"'),
    "files": {"work.py": BODY},
}


def test_a_python_body_asks_over_the_summary_and_has_the_whole(tmp_path: Path) -> None:
    house = house_of(tmp_path, **IN_PYTHON)
    seen = asyncio.run(house.run({"log": LOG}))
    assert seen.status == "succeeded", seen.row.error
    assert asked(house) == {"note/summary/log": 1, "note/1": 1, "note/2": 1, "plan/main": 1}
    assert all(SHORT in house.effective(r) for r in house.requests()[1:3])


def check_sweep(base: Seen, seen: Seen, house: House, stop: int) -> None:
    assert seen.status == "succeeded", (stop, seen.row.error)
    assert seen.bodies() == base.bodies(), stop
    # Only the call in flight may be paid twice, and the summary never once it is on record.
    assert all(count <= 2 for count in asked(house).values()), (stop, asked(house))
    assert sum(asked(house).values()) <= len(set(asked(house))) + 1, (stop, asked(house))


@pytest.mark.parametrize("step", [{}, IN_PYTHON], ids=["declared", "in Python"])
def test_a_stop_at_every_moment_of_the_store_loses_no_summary(
    database: Kind, tmp_path: Path, step: dict[str, Any]
) -> None:
    whole = house_of(tmp_path / "whole", **step)
    stopper = Stopper()
    base = asyncio.run(whole.run({"log": LOG}, observer=stopper))
    for stop in range(1, len(stopper.seen) + 1):
        house = house_of(tmp_path / str(stop), **step)
        with suppress(StoreError):
            asyncio.run(house.run({"log": LOG}, observer=Stopper(stop)))
        if asyncio.run(house.runs()):
            check_sweep(base, asyncio.run(house.resume()), house, stop)


def test_a_summary_under_way_when_the_process_died_is_gone_on_with(tmp_path: Path) -> None:
    """Its thread is on record with a call that has no reply: that call is sent again, on the same thread."""
    house = house_of(tmp_path)
    stopped = house.stopped({"log": LOG}, StopAfter("open_thread:committed", 1))
    (thread,) = stopped.journals["note"][0].threads
    assert thread.name == "summary/log"
    seen = asyncio.run(house.resume())
    assert seen.status == "succeeded"
    threads = [thread for journal in seen.journals["note"] for thread in journal.threads]
    assert [one.id for one in threads if one.name == "summary/log"] == [thread.id]


def test_plan_and_render_say_that_it_is_summed_up_and_call_nothing(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    stopped = house.stopped({"log": LOG}, StopAfter("create_run:committed"))

    async def look() -> tuple[Any, Any]:
        async with house.services() as (services, graph):
            run = await services.store.run("last")
            return await plan_run(services, graph, run), await render_step(services, graph, "note", run=run)

    plan, rendered = asyncio.run(look())
    assert stopped.status in ("ready", "running", "paused")
    (step, after) = plan.steps
    assert f"log is summed up first: about {estimate(LOG):,} tokens, at most 100 are read" in step.reasons
    # one dollar a million tokens: the summary's input and 100 tokens of output, then the step's own small prompt
    assert step.cost_low_usd > Decimal(estimate(LOG) + 100) / 1_000_000
    assert step.tokens_estimate < 400
    assert after.cost_low_usd < step.cost_low_usd / 2  # it is summed up once
    assert after.reasons == ()
    assert after.cost_high_usd > Decimal(3 * estimate(LOG)) / 1_000_000
    assert "[a summary of at most" in rendered.prompt.text
    assert "0000 all is well" not in rendered.prompt.text
    assert house.requests() == []


def test_a_plan_is_never_more_at_the_least_than_the_step_may_cost(tmp_path: Path) -> None:
    cheap = PIPELINE.replace('produces: note, prompt: "What went', 'max_usd: 0.001, produces: note, prompt: "What went')
    house = house_of(tmp_path, pipeline=cheap)
    house.stopped({"log": LOG}, StopAfter("create_run:committed"))

    async def look() -> Any:
        async with house.services() as (services, graph):
            return (await plan_run(services, graph, await services.store.run("last"))).steps[0]

    step = asyncio.run(look())
    assert (step.cost_low_usd, step.cost_high_usd) == (Decimal("0.001"), Decimal("0.001"))


def test_a_cap_that_the_summary_would_pass_pauses_the_run_before_it_is_sent(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    assert asyncio.run(house.run({"log": LOG}, cap_usd=Decimal("0.001"))).status == "paused"
    assert house.requests() == []
    seen = asyncio.run(house.resume(cap_usd=Decimal("1")))
    assert seen.status == "succeeded", seen.row.error


def test_S21_what_the_summariser_may_not_see_is_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model that sums up is under `may_see` as every other; `plan` says so before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_TRUST", "1")
    desk = Desk(tmp_path, capsys)
    near, far = (f'[providers.{name}]\nkind = "scripted"\n' for name in ("near", "far"))
    desk.write("orchestrator.toml", f'user = "ana"\n{near}may_see = "confidential"\n{far}')
    other = '  summarise: {use: "far:answers"}\nartifacts:'
    text = PIPELINE.replace("acme:small", "near:answers").replace("artifacts:", other, 1)
    desk.write("gather.yaml", text.replace("max_tokens: 100", "sensitivity: confidential, max_tokens: 100"))
    code, out, err = desk.orch("plan", "gather", "--set", f"log={LOG}")
    assert code == 0, err
    assert "could not have far:answers sum up what is too large" in " ".join(out.split())
    code, out, err = desk.orch("run", "gather", "--set", f"log={LOG}", "--yes")
    assert code == 7
    refused = "would send log, which is confidential, to far, which may see internal at most; nothing was sent"
    assert refused in " ".join((out + err).split())
