"""The doors of a pipeline in Python: start, run, resume, plan, one step alone; live events; the command line on it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator.cli import app
from orchestrator.errors import ConfigError, InvalidProject, StepFailed, UsageError
from orchestrator.trace.events import CallDone, CallSent, RunDone, RunEvent, RunStarted, StepDone

STUDY = '''
"""A study in five lines of logic."""

from typing import Annotated

from pydantic import BaseModel, Field

from orchestrator import Ctx, Pipeline, Read, artifact


@artifact(about="How large the market is.", not_for="none")
class MarketSizing(BaseModel):
    customers: int


@artifact(about="What vendors take.", not_for=["These are not the customer's budget."])
class VendorRates(BaseModel):
    weekly_usd: float


@artifact(about="What to build.", not_for="none")
class TechStack(BaseModel):
    components: list[str]
    budget: str | None = Field(default=None, json_schema_extra={"fact_of": "customer"})


@artifact(about="The proposal.", not_for="none", markdown=True)
class Proposal(str):
    pass


p = Pipeline("study", budget_usd="4.00")
idea = p.input("idea", str, about="What the customer wants.")
p.input("customer-budget", str, about="What they can spend.", default="not stated")


@p.step
async def market_sizing(ctx: Ctx, idea: str) -> MarketSizing:
    return await ctx.ask(MarketSizing, "Size it.")


@p.step
def vendor_rates(market: MarketSizing) -> VendorRates:
    return VendorRates(weekly_usd=market.customers * 2.5)


@p.step(reasks=0)
async def tech_stack(
    ctx: Ctx, idea: str, market: MarketSizing, rates: Annotated[VendorRates, Read(guard="No limit.")]
) -> TechStack:
    chat = ctx.thread()
    stack = await chat.ask(TechStack, "Choose.")
    return stack if stack.components else await chat.ask(TechStack, "Name one.")


proposal = p.llm("proposal", produces=Proposal, reads=[tech_stack, "customer-budget"], prompt="Propose.")

if __name__ == "__main__":
    run = p.run(idea="a shop")
    print(run.status, run.get(proposal))
'''
ANSWERS: dict[str, Any] = {
    "market-sizing": [{"json": {"customers": 400}}],
    "tech-stack": [{"json": {"components": [], "budget": None}}, {"json": {"components": ["forms"], "budget": None}}],
    "proposal": [{"text": "Build **forms**."}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "study"
    (root / "answers").mkdir(parents=True)
    (root / "orchestrator.toml").write_text('user = "ana"\n')
    (root / "study.py").write_text(STUDY)
    for name, replies in ANSWERS.items():
        (root / "answers" / f"{name}.json").write_text(json.dumps(replies))
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def study(folder: Path) -> Iterator[ModuleType]:
    """The pipeline's file, imported like any other module of a user's own program."""
    spec = importlib.util.spec_from_file_location("study_of_a_user", folder / "study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["study_of_a_user"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["study_of_a_user"]


def answer(folder: Path, step: str, *replies: Any) -> None:
    (folder / "answers" / f"{step}.json").write_text(json.dumps(replies))


# --- doors ------------------------------------------------------------------------------------------------------------


def test_the_sync_door_gives_typed_values(study: ModuleType) -> None:
    run = study.p.run(idea="a shop", customer_budget="$500")

    assert (run.status, run.number, run.error) == ("succeeded", 1, None)
    assert run.get(study.market_sizing) == study.MarketSizing(customers=400)
    assert run.get(study.vendor_rates).weekly_usd == 1000
    assert run.get(study.tech_stack).components == ["forms"]
    proposal = run.get(study.proposal)
    assert (type(proposal), proposal) == (study.Proposal, "Build **forms**.")
    assert run.get(study.idea) == "a shop"
    assert run.cost_usd == Decimal(0)


def test_a_step_is_benched_and_a_sample_taken_over(study: ModuleType, folder: Path) -> None:
    first = study.p.run(idea="a shop")
    answer(folder, "proposal", {"text": "Build it."})
    benched = asyncio.run(study.p.bench(first, study.proposal, 2, prompt="Propose in three words."))
    assert [sample.name for sample in benched.samples] == ["a-1", "a-2", "b-1", "b-2"]
    assert {sample.value for sample in benched.samples if sample.passed} == {"Build it."}
    assert (benched.run.kind, benched.run.parent_number, benched.base_value) == ("bench", 1, "Build **forms**.")
    assert asyncio.run(study.p.promote(benched.run.number, "b-1")) == 2

    async def now() -> Any:
        return (await study.p.resume(1)).get(study.proposal)

    assert asyncio.run(now()) == "Build it."
    with pytest.raises(UsageError, match="its Python body would run again and again"):
        asyncio.run(study.p.bench("1", "tech-stack"))
    with pytest.raises(UsageError, match="asks no model"):
        asyncio.run(study.p.bench(1, "vendor-rates"))
    with pytest.raises(UsageError, match='has no step "proposa"'):
        asyncio.run(study.p.bench(1, "proposa"))


def test_two_runs_are_compared(study: ModuleType, folder: Path) -> None:
    first = study.p.run(idea="a shop")
    answer(folder, "market-sizing", {"json": {"customers": 500}})
    second = study.p.run(idea="a shop")

    found = asyncio.run(study.p.compare(first, second))
    parts = {one.name: one for one in (*found.inputs, *found.steps)}
    assert {name for name, one in parts.items() if one.differs} == {"market-sizing", "vendor-rates", "tech-stack"}
    assert [(c.path, c.old, c.new) for c in parts["vendor-rates"].changes] == [("weekly_usd", 1000.0, 1250.0)]
    stack = parts["tech-stack"]
    assert stack.artifact == "equal", "it read other numbers and chose the same"
    assert sorted({change.source for change in stack.prompt}) == ["market-sizing", "vendor-rates"]
    assert not asyncio.run(study.p.compare("last", 2)).differs
    with pytest.raises(UsageError, match="run 9 not found"):
        asyncio.run(study.p.compare(1, 9))


def test_the_sync_door_works_inside_a_running_loop(study: ModuleType) -> None:
    """As in a notebook, whose cells run inside a loop."""

    async def cell() -> str:
        return str(study.p.run(idea="a shop").get(study.proposal))

    assert asyncio.run(cell()) == "Build **forms**."


def test_the_async_door_and_its_live_events(study: ModuleType) -> None:
    async def main() -> tuple[Any, list[RunEvent], bool]:
        run = study.p.start(idea="a shop")
        seen, live = list[RunEvent](), False
        async for event in run.events():
            seen.append(event)
            live = live or (isinstance(event, CallSent) and not run._task.done())
        await run
        assert [event async for event in run.events()] == seen, "they can be read again"
        return run, seen, live

    run, seen, live = asyncio.run(main())

    assert live, "an event is given while the run goes on"
    assert isinstance(seen[0], RunStarted)
    assert (seen[0].number, seen[0].pipeline, seen[0].cap_usd) == (run.number, "study", "4")
    assert isinstance(seen[-1], RunDone)
    assert seen[-1].status == "succeeded"
    done = {event.step: event for event in seen if isinstance(event, StepDone)}
    assert list(done) == ["market-sizing", "vendor-rates", "tech-stack", "proposal"]
    assert (done["tech-stack"].calls, done["tech-stack"].reasks) == (2, 0)
    calls = [event for event in seen if isinstance(event, CallDone) and event.step == "tech-stack"]
    assert [(event.seq, event.outcome) for event in calls] == [(1, "accepted"), (2, "accepted")]
    for event in calls:
        assert event.first_text_seconds is not None
        assert 0 <= event.first_text_seconds <= event.seconds


def test_a_failed_run_is_no_exception_until_its_value_is_wanted(study: ModuleType, folder: Path) -> None:
    answer(folder, "tech-stack", {"json": {"parts": 3}})

    run = study.p.run(idea="a shop")

    assert run.status == "failed"
    assert run.get(study.market_sizing).customers == 400
    with pytest.raises(StepFailed, match="tech-stack has no value: the output is still not valid"):
        run.get(study.tech_stack)
    with pytest.raises(StepFailed, match="proposal has no value"):
        run.get(study.proposal)

    answer(folder, "tech-stack", {"json": {"components": ["forms"], "budget": None}})

    async def again() -> Any:
        return await study.p.resume("last")

    resumed = asyncio.run(again())
    assert (resumed.number, resumed.status) == (run.number, "succeeded")
    assert resumed.get(study.proposal) == "Build **forms**."


def test_what_is_wrong_before_a_run_is_raised_by_every_door(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="needs the input idea"):
        study.p.run()
    with pytest.raises(UsageError, match="has no input 'ideas'"):
        study.p.run(ideas="x")
    with pytest.raises(UsageError, match="cap_usd 'much' is not an amount"):
        study.p.run(idea="x", cap_usd="much")
    with pytest.raises(UsageError, match="no event loop is running"):
        study.p.start(idea="x")
    monkeypatch.delenv("ORCH_MODEL")
    with pytest.raises(ConfigError, match="no model is set"):
        study.p.run(idea="x")
    study.p.chat("review")
    with pytest.raises(InvalidProject) as caught:
        study.p.run(idea="x")
    assert "p.chat is not available yet" in str(caught.value)


def test_a_plan_costs_nothing_and_says_what_a_body_leaves_open(study: ModuleType, folder: Path) -> None:
    async def main() -> Any:
        return await study.p.plan({"customer-budget": "none"}, idea="a shop")

    plan = asyncio.run(main())

    actions = {step.name: step.action for step in plan.steps}
    assert actions == dict.fromkeys(("market-sizing", "vendor-rates", "tech-stack", "proposal"), "run")
    by_name = {step.name: step for step in plan.steps}
    assert by_name["tech-stack"].reasons == ("its body decides how often it asks",)
    assert by_name["tech-stack"].cost_high_usd is None
    assert by_name["tech-stack"].tokens_estimate > by_name["market-sizing"].tokens_estimate


def test_the_snippet_of_the_readme_runs(folder: Path) -> None:
    """Docs are tested: the README's pipeline in Python, as it stands there, with written answers."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [snippet] = re.findall(r"```python\n(from typing import Annotated\n.*?)```", readme, re.DOTALL)
    (folder / "study.py").write_text(snippet)
    none, some = ({"components": names, "why": "small"} for names in ([], ["forms"]))
    answer(folder, "tech-stack", {"json": none}, {"json": some})
    env = {**os.environ, "ORCH_MODEL": "scripted:answers"}
    ran = subprocess.run(
        [sys.executable, "study.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "succeeded ['forms']\n", ran.stderr


# --- one step alone ---------------------------------------------------------------------------------------------------


def test_one_step_runs_alone_inside_other_code(study: ModuleType) -> None:
    market, rates = study.MarketSizing(customers=3), study.VendorRates(weekly_usd=997)

    async def main() -> Any:
        return await study.tech_stack.run("a shop", market, rates=rates)

    stack = asyncio.run(main())

    assert stack == study.TechStack(components=["forms"], budget=None)


def test_what_is_given_to_a_step_alone_is_no_word_of_the_customer(study: ModuleType, folder: Path) -> None:
    """R004: a vendor's rate that other code passes in is not what the customer said; their idea is."""
    leak = {"json": {"components": ["forms"], "budget": "997"}}
    answer(folder, "tech-stack", leak)
    market, rates = study.MarketSizing(customers=3), study.VendorRates(weekly_usd=997)

    def budget(idea: str) -> str | None:
        async def main() -> Any:
            return await study.tech_stack.run(idea=idea, market=market, rates=rates)

        found: str | None = asyncio.run(main()).budget
        return found

    assert budget("a shop") is None
    assert budget("a shop for $997") == "997"


def test_a_step_alone_needs_all_that_it_reads(study: ModuleType) -> None:
    async def alone(**values: Any) -> None:
        await study.vendor_rates.run(**values)

    with pytest.raises(UsageError, match="vendor-rates: market is not given"):
        asyncio.run(alone())
    with pytest.raises(UsageError, match="vendor-rates: it takes no rates"):
        asyncio.run(alone(market=study.MarketSizing(customers=1), rates=1))
    with pytest.raises(UsageError, match="vendor-rates: market"):
        asyncio.run(alone(market={"customers": "many"}))


# --- the command line -------------------------------------------------------------------------------------------------


Orch = Callable[..., tuple[int, str, str]]


@pytest.fixture
def orch(folder: Path, capsys: pytest.CaptureFixture[str]) -> Orch:
    """Runs a command line in this process; gives its exit code and what it printed."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = app.run(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def test_the_command_line_works_on_a_python_pipeline(orch: Orch) -> None:
    code, out, err = orch("check", "--trust")
    assert (code, err) == (0, "")
    assert "study  4 steps (3 with a model), 2 inputs  study.py" in out

    code, out, err = orch("run", "study", "--set", "idea=a shop", "--jsonl", "--trust")
    assert code == 0, err
    assert out.isascii()
    documents = [json.loads(line) for line in out.splitlines()]
    assert [d["schema"] for d in documents] == ["orch.event/1"] * (len(documents) - 1) + ["orch.run/1"]
    assert (documents[0]["event"], documents[-2]["event"]) == ("run.started", "run.done")
    assert documents[-1]["run"]["status"] == "succeeded"
    assert "tech-stack" in err, "text for people goes to stderr"

    why = json.loads(orch("why", "last/tech-stack", "--json", "--trust")[1])
    assert [call["source"] for thread in why["threads"] for call in thread["calls"]] == ["NEXT_STEP", "FOLLOW_UP"]
    edited = json.loads(orch("edit", "last/vendor-rates", "--set", "weekly_usd=1200", "--json", "--trust")[1])
    assert [entry["step"] for entry in edited["stale"]] == ["tech-stack"]
    shown = json.loads(orch("show", "last/vendor-rates", "--json", "--trust")[1])["artifact"]
    assert (shown["value"], shown["not_for"]) == ({"weekly_usd": 1200}, ["These are not the customer's budget."])

    code, out, err = orch("rerun", "last", "--from", "tech-stack", "--jsonl", "--trust")
    assert code == 0, err
    final = json.loads(out.splitlines()[-1])["run"]
    assert [(step["name"], step["calls"]) for step in final["steps"]] == [
        ("market-sizing", 0),
        ("vendor-rates", 0),
        ("tech-stack", 2),
        ("proposal", 1),
    ]


@pytest.mark.slow
def test_a_pipeline_file_is_a_script_too(folder: Path, orch: Orch) -> None:
    env = {**os.environ, "ORCH_MODEL": "scripted:answers"}
    ran = subprocess.run(
        [sys.executable, "study.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "succeeded Build **forms**.\n", ran.stderr
    shown = json.loads(orch("show", "last", "--json", "--trust")[1])["run"]
    assert (shown["pipeline"], shown["status"]) == ("study", "succeeded")
    assert not any(step["stale"] for step in shown["steps"]), "loaded by path it is the same code"


def test_events_as_lines_end_with_an_error_document_where_there_is_no_run(orch: Orch) -> None:
    code, out, _ = orch("run", "study", "--jsonl", "--trust")
    [line] = out.splitlines()
    assert code == 2
    assert json.loads(line)["error"]["code"] == "missing_input"
