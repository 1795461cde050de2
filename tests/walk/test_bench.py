"""A bench, end to end: one step again and again on the very versions it was made from, and the run is not touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import bench as benches
from orchestrator.building.variants import Variation
from orchestrator.edits import edit_artifact
from orchestrator.engine import resume_run
from orchestrator.errors import InvalidProject, StoreError, UsageError
from orchestrator.exchange.benching import Benched
from orchestrator.forks import rerun
from orchestrator.loading import load_pipeline
from orchestrator.plan import plan_run
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import ArtifactVersion, Item, Request, RunRow, Scope, TextItem
from tests.walk.four_steps import four_steps
from tests.walk.harness import House, Seen, StopAfter

pytestmark = pytest.mark.usefixtures("database")

PIPELINE = """
version: 1
pipeline: money
inputs:
  order: {type: text, about: "What was ordered."}
models:
  default: {use: "acme:priced", max_output_tokens: 1000}
artifacts:
  price: {about: "What the order costs.", not_for: none, schema: {
    type: object, properties: {cost: {type: integer}}, required: [cost], additionalProperties: false}}
  note: {about: "A note for the customer.", not_for: none, schema: text}
steps:
  price: {reads: [order], prompt: "What does it cost?", checks: ["cost < 100"]}
  letter: {reads: [price], produces: note, prompt: "Write the letter."}
"""
PRICES = """
user = "ana"
[providers.acme]
kind = "scripted"
[prices."priced"]
input = "2.00"
output = "10.00"
"""
USAGE = {"input_tokens": 1000, "output_tokens": 100, "cached_tokens": 0}  # $0.003 at these prices
LETTER = {"text": "It costs 24.", "usage": USAGE}


class Counting:
    """The model: each further thread for a price gets the next of these; sent back, 240 is mended, more is not."""

    def __init__(self, *costs: object) -> None:
        self.costs = list(costs)

    def __call__(self, request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
        if request.step == "letter":
            return LETTER
        if len(items) > 1:
            return {"json": {"cost": 24 if "cost = 240" in getattr(items[-1], "text", "") else 300}, "usage": USAGE}
        return {"json": {"cost": self.costs.pop(0)}, "usage": USAGE}


def money(folder: Path, *costs: object) -> House:
    provider = ScriptedProvider(Counting(*costs), name="acme")
    return House(folder, PIPELINE, provider, files={"orchestrator.toml": PRICES})


def make(
    house: House,
    step: str,
    samples: int = 2,
    *,
    ref: str | int = "last",
    cap: str | None = None,
    observer: Callable[[str], None] | None = None,
    with_effects: bool = False,
    **variation: Any,
) -> Benched:
    """`orch bench REF/STEP --n SAMPLES`."""

    async def main() -> Benched:
        async with house.services(observer) as (services, graph):
            loaded = load_pipeline(services.project, services.project.root / graph.file)
            run = await services.store.run(ref)
            prepared = await benches.prepare(
                services, loaded, graph, run, step, Variation(**variation), with_effects=with_effects
            )
            made = await benches.run_bench(services, prepared, samples, None if cap is None else Decimal(cap))
            return await benches.look(services.store, made, lambda artifact: artifact.body.decode())

    return asyncio.run(main())


def promoted(house: House, bench: int, sample: str) -> ArtifactVersion:
    async def main() -> ArtifactVersion:
        async with house.services() as (services, graph):
            done = await benches.promote(services, graph, await services.store.run(bench), sample)
            return done.new

    return asyncio.run(main())


def run_of(house: House, ref: str | int) -> RunRow:
    async def main() -> RunRow:
        async with house.services() as (services, _):
            return await services.store.run(ref)

    return asyncio.run(main())


def values(benched: Benched) -> dict[str, Any]:
    return {sample.name: sample.value for sample in benched.samples}


def shown(house: House, bench: int) -> set[str]:
    """The opening of each sample's request, as the store recorded it."""

    async def main() -> set[str]:
        async with house.services() as (services, _):
            run = await services.store.run(bench)
            rows = [row for row in await services.store.steps(run.id) if row.item is not None]
            journals = [await services.store.journal(row.attempt_id or "") for row in rows]
            return {thread.prompt.text for journal in journals for thread in journal.threads}

    return asyncio.run(main())


# --- what a sample sees -----------------------------------------------------------------------------------------------


def test_samples_read_the_versions_that_the_runs_own_was_made_from_whatever_was_edited_since(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    before = asyncio.run(house.run({"idea": "red"}))
    asyncio.run(house.edit("a", "green"))
    asyncio.run(house.edit("idea", "blue"))
    benched = make(house, "d")
    assert (
        values(benched)
        == {"a-1": before.text("d"), "a-2": before.text("d")}
        == {
            "a-1": "d(red, a(red), c(b(a(red))))",
            "a-2": "d(red, a(red), c(b(a(red))))",
        }
    )
    assert [total.same for total in benched.sums()] == [2]
    sent = {request.thread for request in house.requests("d")}
    assert len(sent) == 3, "each sample is a thread of its own"


def test_a_bench_changes_nothing_of_the_run(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    before = asyncio.run(house.run({"idea": "red"}, session="ana", message="Make it red."))
    benched = make(house, "b", 3)
    after = asyncio.run(house.look(before.row.number))
    assert after == before, "rows, artifacts, attempts, events and journals"
    assert run_of(house, "last") == before.row, "no bench is the last run"
    assert [row.number for row in asyncio.run(house.runs())] == [1]
    assert benched.run.kind == "bench"
    assert (benched.run.parent_number, benched.run.number) == (1, 2)
    again = asyncio.run(house.run({"idea": "red"}, session="ana"))
    (opening,) = [request.items[0] for request in house.requests("a")[-1:]]
    assert isinstance(opening, TextItem)
    assert opening.text.count("Make it red.") == 1, "a bench adds no message to the session's conversation"
    assert again.status == "succeeded"


def test_samples_see_the_conversation_as_it_was_with_the_runs_own_message(tmp_path: Path) -> None:
    """The conversation is no part of the manifest, and part of what was sent all the same."""
    house, _ = four_steps(tmp_path)

    async def say(text: str) -> None:
        async with house.services() as (services, _):
            await services.store.add_message("ana", "user", text)

    asyncio.run(say("I like red."))
    run = asyncio.run(house.run({"idea": "red"}, session="ana", message="Make it red."))
    (own,) = [thread.prompt.text for journal in run.journals["a"] for thread in journal.threads]
    assert "I like red." in own
    assert own.rstrip().endswith("Make it red.")
    asyncio.run(say("No, blue."))
    assert shown(house, make(house, "a").run.number) == {own}


def test_a_step_that_was_shown_no_conversation_is_shown_none_of_what_came_later(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    run = asyncio.run(house.run({"idea": "red"}, session="ana"))

    async def say() -> None:
        async with house.services() as (services, _):
            await services.store.add_message("ana", "user", "No, blue.")

    asyncio.run(say())
    (own,) = [thread.prompt.text for journal in run.journals["a"] for thread in journal.threads]
    assert shown(house, make(house, "a").run.number) == {own}


def test_an_input_left_at_its_default_is_still_nobodys_word(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace('"What was ordered."}', '"What was ordered.", default: "one lamp"}')
    house = House(tmp_path, pipeline, ScriptedProvider(Counting(1, 2), name="acme"), {"orchestrator.toml": PRICES})
    asyncio.run(house.run())
    asyncio.run(house.edit("order", "two lamps"))

    async def main() -> frozenset[str]:
        async with house.services() as (services, graph):
            loaded = load_pipeline(services.project, services.project.root / graph.file)
            run = await services.store.run("last")
            return (await benches.prepare(services, loaded, graph, run, "price")).defaulted

    assert asyncio.run(main()) == {"order"}


# --- variants ---------------------------------------------------------------------------------------------------------


def test_another_prompt_and_model_stand_beside_the_step_as_it_is(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 24, 30, 24, 30)
    asyncio.run(house.run({"order": "two lamps"}))
    benched = make(house, "price", prompt=("short.md", "Name the price."), model="acme:cheaper")
    requests = house.requests("price")[1:]
    assert sorted(request.model for request in requests) == ["cheaper", "cheaper", "priced", "priced"]
    tasks = {request.model: request.items[0] for request in requests}
    assert "Name the price." in getattr(tasks["cheaper"], "text", "")
    assert "What does it cost?" in getattr(tasks["priced"], "text", "")
    a, b = benched.variants
    assert (a.changes, a.model, a.task) == ((), "acme:priced", "price")
    assert (b.model, b.task) == ("acme:cheaper", "short.md")
    assert "template changed: price → short.md" in b.changes
    assert any(change.startswith("model changed: acme:priced") for change in b.changes)


def test_a_pipeline_that_changed_since_the_run_is_told_of_variant_a(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 25)
    asyncio.run(house.run({"order": "two lamps"}))
    house.write("walk.yaml", PIPELINE.replace("What does it cost?", "And the price?"))
    (a,) = make(house, "price", 1).variants
    assert a.changes == ("template changed: price",)


def test_a_template_that_names_what_the_step_does_not_read_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    house = money(tmp_path, 24)
    asyncio.run(house.run({"order": "two lamps"}))
    with pytest.raises(InvalidProject) as raised:
        make(house, "price", prompt=("short.md", "One line.\n{{ block('letter') }}"))
    (fault,) = raised.value.diagnostics
    assert fault.place is not None
    assert (fault.code, fault.place.file, fault.place.line) == ("P213", "short.md", 2)
    with pytest.raises(InvalidProject, match="no template nix"):
        make(house, "price", template="nix.md")
    with pytest.raises(UsageError, match="there is no provider foo"):
        make(house, "price", model="foo:x")
    with pytest.raises(UsageError, match="one task"):
        make(house, "price", template="x.md", prompt=("y.md", "Y"))
    assert len(house.requests()) == 2
    assert run_of(house, "last").number == 1, "no bench was made"


# --- money ------------------------------------------------------------------------------------------------------------


def test_every_sample_is_paid_from_one_budget_and_on_the_bill_of_the_bench_alone(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 24, 240, 25, 300)
    run = asyncio.run(house.run({"order": "two lamps"}))
    assert run.steps["price"].cost_usd == Decimal("0.003")
    benched = make(house, "price", 4)
    (total,) = benched.sums()
    assert (total.samples, total.passed, total.at_once, total.reasks) == (4, 3, 2, 3)
    assert sorted(json.loads(s.value)["cost"] for s in benched.samples if s.passed) == [24, 24, 25]
    (failed,) = [sample for sample in benched.samples if not sample.passed]
    assert failed.error is not None
    assert failed.error.code == "invalid_output"
    assert len(failed.faults) == 3
    assert total.cost_usd == 7 * Decimal("0.003")
    assert benched.run.status == "succeeded", "a sample that fails is a result"
    assert asyncio.run(house.look(1)).steps["price"].cost_usd == Decimal("0.003")


def test_a_cap_stops_a_bench_and_keeps_what_was_made(tmp_path: Path) -> None:
    """A call's worst case: about 140 tokens × 1.1 × $2/M + 1000 × $10/M = $0.0103; what it costs is $0.003."""
    house = money(tmp_path, *[24] * 20)
    asyncio.run(house.run({"order": "two lamps"}))
    benched = make(house, "price", 10, cap="0.02")
    made = [sample for sample in benched.samples if sample.passed]
    assert benched.run.status == "paused"
    assert benched.run.error is not None
    assert (benched.run.error.code, benched.run.error.exit_code) == ("budget", 5)
    assert 1 <= len(made) < 10
    assert sum(sample.cost_usd or 0 for sample in benched.samples) <= Decimal("0.02")
    assert len(house.requests("price")) == 1 + len(made)
    assert {sample.status for sample in benched.samples if not sample.passed} <= {"ready", "cancelled"}


def test_what_a_bench_may_cost_at_most_is_told_before_it_begins(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 24)
    asyncio.run(house.run({"order": "two lamps"}))

    async def main() -> tuple[Any, Any]:
        async with house.services() as (services, graph):
            loaded = load_pipeline(services.project, services.project.root / graph.file)
            run = await services.store.run("last")
            alone = await benches.prepare(services, loaded, graph, run, "price")
            both = await benches.prepare(services, loaded, graph, run, "price", Variation(model="acme:priced"))
            return benches.plan_bench(services, alone, 3), benches.plan_bench(services, both, 3)

    one, two = asyncio.run(main())
    assert len(one.steps) == 3
    each = one.steps[0].cost_high_usd
    assert each is not None
    assert one.cost_high_usd == 3 * each
    assert two.cost_high_usd == 6 * each
    assert len(house.requests()) == 2, "nothing was sent for it"


# --- what is refused --------------------------------------------------------------------------------------------------


TOOLED = PIPELINE.replace('prompt: "What does it cost?"', 'prompt: "What does it cost?", tools: ["tools.py:book"]')
TOOLS = '''
from orchestrator import tool

@tool(idempotent={again})
def book(what: str) -> str:
    """Book it."""
    return "booked"
'''


@pytest.mark.parametrize("again", [True, False])
def test_S09_a_step_whose_tool_acts_on_the_world_is_benched_only_when_that_is_wanted(
    tmp_path: Path, again: bool
) -> None:
    files = {"orchestrator.toml": PRICES, "tools.py": TOOLS.format(again=again)}
    house = House(tmp_path, TOOLED, ScriptedProvider(Counting(24, 24, 24), name="acme"), files)
    asyncio.run(house.run({"order": "two lamps"}))
    if again:
        assert make(house, "price", 1).run.status == "succeeded"
        return
    with pytest.raises(UsageError, match="its tool book would run again and again") as raised:
        make(house, "price", 1)
    assert raised.value.code == "effects"
    assert len(house.requests("price")) == 1
    assert make(house, "price", 1, with_effects=True).run.status == "succeeded"


def test_a_bench_is_looked_at_and_nothing_of_it_goes_on(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    asyncio.run(house.run({"idea": "red"}))
    number = make(house, "b", 1).run.number

    async def main() -> None:
        async with house.services() as (services, graph):
            bench = await services.store.run(number)
            for work in (
                resume_run(services, graph, bench),
                rerun(services, graph, bench, ["b"]),
                edit_artifact(services, graph, bench, "b", value="x", base_version=1),
            ):
                with pytest.raises(UsageError, match=f"run {number} is a bench of run 1"):
                    await work

    asyncio.run(main())
    with pytest.raises(UsageError, match="is a bench itself"):
        make(house, "b", ref=number)


def test_a_step_is_benched_once_it_has_what_it_reads(tmp_path: Path) -> None:
    house, model = four_steps(tmp_path)
    model.during("b", lambda: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError):
        asyncio.run(house.run({"idea": "red"}))
    with pytest.raises(UsageError, match="c reads b, which has no value in run 1"):
        make(house, "c")
    benched = make(house, "b", 1)
    assert values(benched) == {"a-1": "b(a(red))"}, "the run has made no b, and all that b reads is there"
    assert benched.base is None


def test_somebody_elses_run_is_not_benched(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    run = asyncio.run(house.run({"idea": "red"}))
    house.scope = Scope(subject="bob")
    for ref in (1, run.row.id):
        with pytest.raises(UsageError, match="not found"):
            make(house, "b", ref=ref)


# --- taking a sample over ---------------------------------------------------------------------------------------------


def test_a_promoted_sample_is_the_models_new_version_and_what_reads_it_is_stale(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 30, 31)
    before = asyncio.run(house.run({"order": "two lamps"}))
    benched = make(house, "price", 1, prompt=("short.md", "Name the price."))
    number = benched.run.number
    value = {sample.name: sample.value for sample in benched.samples}["b-1"]
    new = promoted(house, number, "b-1")
    seen = asyncio.run(house.look(1))
    assert seen.text("price") == value
    assert (new.version, new.author, new.origin) == (2, "acme:priced", "model")
    assert new.parent_id == before.artifacts["price"].version.id
    assert new.run_id == before.row.id
    (told,) = [event for event in seen.events if event.kind == "step.promoted"]
    assert (told.step, dict(told.data)) == ("price", {"bench": number, "sample": "b-1"})
    assert [event.seq for event in seen.events] == list(range(1, len(seen.events) + 1))

    async def plan() -> dict[str, tuple[str, tuple[str, ...]]]:
        async with house.services() as (services, graph):
            planned = await plan_run(services, graph, await services.store.run(1))
            return {step.name: (step.action, step.reasons) for step in planned.steps}

    found = asyncio.run(plan())
    assert found["letter"] == ("run", ("price v1→v2 (acme:priced): cost",))
    assert found["price"] == ("reuse", ("kept although template changed: short.md → price",))
    assert len(house.requests()) == 4, "the run's two steps and two samples"


def test_S07_a_sample_does_not_replace_a_version_that_it_was_not_compared_with(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 30)
    asyncio.run(house.run({"order": "two lamps"}))
    number = make(house, "price", 1).run.number
    asyncio.run(house.edit("price", {"cost": 50}))
    with pytest.raises(UsageError, match="changed since this bench") as raised:
        promoted(house, number, "a-1")
    assert raised.value.code == "changed_meanwhile"
    seen = asyncio.run(house.look(1))
    assert seen.value("price") == {"cost": 50}
    assert not [event for event in seen.events if event.kind == "step.promoted"]


def test_a_sample_of_equal_bytes_makes_no_version(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 24)
    before = asyncio.run(house.run({"order": "two lamps"}))
    number = make(house, "price", 1).run.number
    assert promoted(house, number, "a-1").version == 1
    assert asyncio.run(house.look(1)) == before


def test_a_sample_is_held_to_the_contract_as_it_is_now(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 30)
    asyncio.run(house.run({"order": "two lamps"}))
    number = make(house, "price", 1).run.number
    house.write("walk.yaml", PIPELINE.replace("type: integer", "type: string"))
    with pytest.raises(UsageError, match="does not fit price as it is now"):
        promoted(house, number, "a-1")


def test_only_a_sample_that_passed_is_promoted(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 300)
    asyncio.run(house.run({"order": "two lamps"}))
    number = make(house, "price", 1).run.number
    with pytest.raises(UsageError, match="a-1 has no value: failed"):
        promoted(house, number, "a-1")
    with pytest.raises(UsageError, match="no sample b-7"):
        promoted(house, number, "b-7")


def test_a_fork_of_the_run_keeps_a_promoted_version(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 30)
    asyncio.run(house.run({"order": "two lamps"}))
    promoted(house, make(house, "price", 1).run.number, "a-1")
    child: Seen = asyncio.run(house.rerun("letter"))
    assert child.value("price") == {"cost": 30}
    assert child.status == "succeeded"


def test_a_step_that_repeats_itself_makes_all_its_visits_for_each_sample(tmp_path: Path) -> None:
    repeat = 'repeat: {until: "cost < 50", max_rounds: 2, feedback: "Cheaper."}'
    pipeline = PIPELINE.replace('checks: ["cost < 100"]', repeat)
    provider = ScriptedProvider(Counting(24, 60, 30), name="acme")
    house = House(tmp_path, pipeline, provider, files={"orchestrator.toml": PRICES})
    asyncio.run(house.run({"order": "two lamps"}))
    benched = make(house, "price", 1)
    assert [json.loads(value) for value in values(benched).values()] == [{"cost": 30}]
    assert [(sample.calls, sample.cost_usd) for sample in benched.samples] == [(2, Decimal("0.006"))]


def test_a_run_needs_nothing_of_its_benches_and_outlives_them(tmp_path: Path) -> None:
    house = money(tmp_path, 24, 30)
    asyncio.run(house.run({"order": "two lamps"}))
    promoted(house, make(house, "price", 1).run.number, "a-1")

    async def main() -> None:
        async with house.services() as (services, _):
            store = services.store
            run, bench = await store.run(1), await store.run(2)
            with pytest.raises(UsageError, match="run 1 is needed by run 2"):
                await store.remove_run(run.id)
            await store.remove_run(bench.id)

    asyncio.run(main())
    assert asyncio.run(house.look(1)).value("price") == {"cost": 30}
    assert asyncio.run(house.rerun("letter")).status == "succeeded"


# --- interrupted ------------------------------------------------------------------------------------------------------


def test_a_bench_whose_process_died_shows_what_was_made(tmp_path: Path) -> None:
    house, _ = four_steps(tmp_path)
    before = asyncio.run(house.run({"idea": "red"}))
    with pytest.raises(StoreError):
        make(house, "b", 8, observer=StopAfter("commit:committed"))

    async def main() -> Benched:
        async with house.services() as (services, _):
            bench = (await services.store.runs(benches=True))[0]
            return await benches.look(services.store, bench, lambda artifact: artifact.body.decode())

    benched = asyncio.run(main())
    made = [sample.value for sample in benched.samples if sample.passed]
    assert set(made) == {"b(a(red))"}
    assert len(made) < len(benched.samples) == 8
    assert asyncio.run(house.look(1)) == before
