"""The pytest plug-in, used as a user uses it; and each of its assertions made to fail."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, artifact
from orchestrator.cli.init import copy_starter
from orchestrator.errors import InvalidProject, UsageError
from orchestrator.testing import (
    OrchProject,
    OrchRun,
    ProjectFactory,
    ScriptedFactory,
    assert_guarded,
    assert_not_in_context,
    assert_stateless_start,
)

pytest_plugins = ["pytester"]
README = Path(__file__).resolve().parents[2] / "README.md"

FILES = {
    "walk.yaml": """
        pipeline: walk
        inputs:
          idea: {type: text, about: "What the customer wants."}
        artifacts:
          rates:
            about: "Vendor rates."
            not_for: ["Not the customer's budget."]
            schema:
              type: object
              properties: {weekly_usd: {type: number}}
              required: [weekly_usd]
              additionalProperties: false
          stack: {about: "What to build it with.", not_for: none, schema: text}
          report: {about: "The report.", not_for: none, schema: text}
        steps:
          rates: {prompt: "What does it cost?", reads: [idea]}
          stack:
            prompt: "Recommend, knowing {{ quote('rates', 'weekly_usd') }}."
            reads: [rates]
            checks: [{python: "checks.py:no_rate"}]
          report: {prompt: "Report: {{ block('stack') }}", reads: [stack]}
        """,
    "checks.py": """
        def no_rate(value, rates):
            return "leave the rate out" if "997" in value else None
        """,
}
RATES = {"json": {"weekly_usd": 997}}
ANSWERS: dict[str, Any] = {
    "rates": [{**RATES, "reasoning": "canary-of-the-reasoning"}],
    "stack": [{"text": "Django for 997, draft-canary"}, {"text": 'Django, "simple"'}],
    "report": [{"text": "Use Django."}],
}


@pytest.fixture
def run(orch_project: ProjectFactory, orch_scripted: ScriptedFactory) -> OrchRun:
    return orch_project(FILES).run(inputs={"idea": "a shop"}, model=orch_scripted(ANSWERS))


# --- as a user has it -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_readmes_example_is_a_test_that_passes(pytester: pytest.Pytester) -> None:
    """In a project of `orch init`, the fixtures found by themselves, warnings as errors."""
    copy_starter(pytester.path)
    (example,) = re.findall(r"```python\n(from orchestrator\.testing .*?)```", README.read_text("utf-8"), re.DOTALL)
    pytester.makepyfile(test_launch=example)
    done = pytester.runpytest_subprocess("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:llmock")
    done.assert_outcomes(passed=1)
    assert not (pytester.path / ".orch" / "orch.db").exists()


def test_the_plugin_loads_nothing_but_pytest() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules)\nimport orchestrator.testing\n"
        "print([name for name in set(sys.modules) - before if name.split('.')[0] != 'orchestrator'])\n"
        "print([name for name in sys.modules if name.startswith('orchestrator.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['orchestrator.testing']"]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_can_be_asked_for_what_happened(run: OrchRun) -> None:
    assert run.status == "succeeded"
    assert run.error is None
    assert run.value("idea") == "a shop"
    assert run.value("rates") == {"weekly_usd": 997}
    assert run.value("stack") == 'Django, "simple"'
    assert [call.sent.source for call in run.calls("stack")] == ["NEXT_STEP", "REASK"]
    assert "What does it cost?" in run.prompt("rates")
    with pytest.raises(AssertionError, match="has no 'stak'; it has idea, rates, stack, report"):
        run.value("stak")


def test_edit_and_rerun_and_resume_are_the_commands(
    orch_project: ProjectFactory, orch_scripted: ScriptedFactory
) -> None:
    project = orch_project(FILES)
    model = orch_scripted({"rates": [RATES], "stack": [{"error": "quota"}]})
    failed = project.run(inputs={"idea": "a shop"}, model=model)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "provider_quota"
    done = project.resume(failed, model=orch_scripted({"stack": [{"text": "A."}], "report": [{"text": "R."}]}))
    assert (done.status, done.row.number) == ("succeeded", failed.row.number)
    assert len(done.calls("rates")) == 1
    edited = project.edit(done, "stack", "B.")
    assert edited.value("stack") == "B."
    again = project.rerun(edited, "report", model=orch_scripted({"report": [{"text": "R2."}]}))
    assert again.value("report") == "R2."
    assert "B." in again.prompt("report")
    assert again.row.parent_number == done.row.number


def test_revise_is_the_command_and_goes_on_from_its_own_thread(
    orch_project: ProjectFactory, orch_scripted: ScriptedFactory
) -> None:
    project = orch_project(FILES)
    answers: dict[str, Any] = {
        "rates": [RATES, {"json": {"weekly_usd": 998}}],
        "stack": [{"text": "A."}],
        "report": [{"text": "R."}],
    }
    run = project.run(inputs={"idea": "a shop"}, model=orch_scripted(answers))
    revised = project.revise(run, "rates", "one more")
    assert revised.value("rates") == {"weekly_usd": 998}
    assert revised.calls("rates")[1].sent.source == "FOLLOW_UP"
    assert_stateless_start(revised)
    # A follow-up that went on from what another step was answered (its thread stands earlier in the record).
    stack = revised.calls("stack")[0].done
    assert stack is not None
    first, second = revised.journals["rates"]
    (thread,) = second.threads
    sent = replace(thread.calls[0].sent, previous=stack.response_id or "")
    stolen = replace(second, threads=(replace(thread, calls=(replace(thread.calls[0], sent=sent),)),))
    graph = replace(revised.graph, steps=dict(reversed(list(revised.graph.steps.items()))))
    foreign = replace(revised, graph=graph, journals={**revised.journals, "rates": (first, stolen)})
    with pytest.raises(AssertionError, match=r"call 1 of rates goes on from .* not its own"):
        assert_stateless_start(foreign)


def test_a_project_of_ones_own_is_left_as_it_is(
    tmp_path: Path, orch_project: ProjectFactory, orch_scripted: ScriptedFactory
) -> None:
    copy_starter(tmp_path / "own")
    before = sorted(path for path in (tmp_path / "own").rglob("*"))
    points = {"headline": "A", "points": [{"what": "a", "gain": "b"}], "open_questions": []}
    model = orch_scripted({"key-points": [{"json": points}], "announcement": [{"text": "A."}]})
    run = orch_project(tmp_path / "own").run("launch", {"notes": "a"}, model=model)
    assert run.status == "succeeded"
    assert [path for path in sorted((tmp_path / "own").rglob("*")) if "__pycache__" not in path.parts] == before
    assert (tmp_path / "orch.db").exists()


def test_it_works_where_a_loop_is_running(orch_project: ProjectFactory, orch_scripted: ScriptedFactory) -> None:
    async def inside() -> str:
        return orch_project(FILES).run(inputs={"idea": "a shop"}, model=orch_scripted(ANSWERS)).status

    assert asyncio.run(inside()) == "succeeded"


def test_what_a_developer_has_set_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, orch_project: ProjectFactory, orch_scripted: ScriptedFactory
) -> None:
    (tmp_path / "config" / "orchestrator").mkdir(parents=True)
    (tmp_path / "config" / "orchestrator" / "config.toml").write_text("nonsense = 1\n", encoding="utf-8")
    for name, value in {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "ORCH_DB": "nonsense",
        "ORCH_MODEL": "nonsense",
    }.items():
        monkeypatch.setenv(name, value)
    run = orch_project(FILES).run(inputs={"idea": "a shop"}, model=orch_scripted(ANSWERS))
    assert run.status == "succeeded"


def test_mistakes_are_the_librarys_errors(orch_project: ProjectFactory, orch_scripted: ScriptedFactory) -> None:
    project = orch_project(FILES)
    with pytest.raises(UsageError, match="idea"):
        project.run(model=orch_scripted(ANSWERS))
    project.write("walk.yaml", "pipeline: walk\nsteps: {a: {promt: Do.}}\n")
    with pytest.raises(InvalidProject):
        project.run(model=orch_scripted(ANSWERS))


p = Pipeline("in-python")
p.input("idea", str, about="What the customer wants.")


@artifact(about="Vendor rates.", not_for=["Not the customer's budget."])
class Rates(BaseModel):
    weekly_usd: float


@artifact(about="Advice.", not_for="none")
class Advice(str):
    """Text."""


@p.step
async def rates(ctx: Ctx, idea: str) -> Rates:
    return await ctx.ask(Rates, "What does it cost?")


@p.step
async def advice(ctx: Ctx, rates: Rates) -> Advice:
    chat = ctx.thread()
    first = await chat.ask(Advice, "Recommend.")
    return first if rates.weekly_usd < 1 else await chat.ask(Advice, "Shorter.")


def test_a_pipeline_of_ones_own_code_is_run_as_it_is(
    orch_project: ProjectFactory, orch_scripted: ScriptedFactory
) -> None:
    answers: dict[str, Any] = {"rates": [RATES], "advice": [{"text": "A long one."}, {"text": "Short."}]}
    run = orch_project().run(p, {"idea": "a shop"}, model=orch_scripted(answers))
    assert run.status == "succeeded", run.error
    assert run.value(advice) == run.value("advice") == "Short."
    assert run.value(rates) == {"weekly_usd": 997}
    assert [call.sent.source for call in run.calls("advice")] == ["NEXT_STEP", "FOLLOW_UP"]
    assert_guarded(run, "advice", "rates", says="budget")
    assert_not_in_context(run, "a shop", step="advice")
    assert_stateless_start(run)
    again = orch_project().rerun(run, "advice", model=orch_scripted({"advice": [{"text": "B"}, {"text": "C"}]}))
    assert again.value(advice) == "C"


# --- assertions -------------------------------------------------------------------------------------------------------


def test_what_did_not_cross_is_not_in_context(run: OrchRun) -> None:
    assert_not_in_context(run, "canary-of-the-reasoning")
    assert_not_in_context(run, "draft-canary")
    assert_not_in_context(run, "997", step="report")
    assert_not_in_context(run, "a shop", step="stack")


@pytest.mark.parametrize(
    ("text", "step", "where"),
    [
        ("997", None, "sent to stack, in the first request"),
        ("a shop", "rates", "the first request"),
        ('Django, "simple"', "report", "the first request"),
        ("leave the rate out", "stack", r"call 2 \(REASK\)"),
        ("Recommend, knowing", "stack", "the first request"),
    ],
)
def test_what_was_sent_is_found(text: str, step: str | None, where: str, run: OrchRun) -> None:
    with pytest.raises(AssertionError, match=where):
        assert_not_in_context(run, text, step=step)


def test_json_and_the_frame_hide_nothing(orch_project: ProjectFactory, orch_scripted: ScriptedFactory) -> None:
    files = {
        "walk.yaml": FILES["walk.yaml"].replace("{type: number}", "{type: string}"),
        "checks.py": FILES["checks.py"],
    }
    value = 'says "no"\nto </artifact> in Zürich'
    model = orch_scripted({**ANSWERS, "rates": [{"json": {"weekly_usd": value}}]})
    run = orch_project(files).run(inputs={"idea": "a shop"}, model=model)
    with pytest.raises(AssertionError, match="was sent to stack"):
        assert_not_in_context(run, value, step="stack")


def test_an_empty_text_is_a_mistake(run: OrchRun) -> None:
    with pytest.raises(AssertionError, match="every context"):
        assert_not_in_context(run, " ")


def test_guards_are_read_back_from_what_was_sent(run: OrchRun) -> None:
    assert_guarded(run, "stack", "rates")
    assert_guarded(run, "stack", "rates", says="customer's budget")
    with pytest.raises(AssertionError, match="no guard of rates in stack says 'prices'; it was told: Not the customer"):
        assert_guarded(run, "stack", "rates", says="prices")
    with pytest.raises(AssertionError, match="report was shown stack without a guard"):
        assert_guarded(run, "report", "stack")
    with pytest.raises(AssertionError, match="report was shown nothing of rates"):
        assert_guarded(run, "report", "rates")


def changed(run: OrchRun, step: str, **previous: str) -> OrchRun:
    """The run with other previous ids in the calls of a step: `first` and `second`."""
    from dataclasses import replace

    (journal,) = run.journals[step]
    (thread,) = journal.threads
    calls = list(thread.calls)
    for at, name in enumerate(("first", "second")):
        if name in previous:
            calls[at] = replace(calls[at], sent=replace(calls[at].sent, previous=previous[name]))
    journals: Mapping[str, Any] = {
        **run.journals,
        step: (replace(journal, threads=(replace(thread, calls=tuple(calls)),)),),
    }
    return replace(run, journals=journals)


def test_a_stateless_start_is_one_without_anybody_elses_id(run: OrchRun) -> None:
    assert_stateless_start(run)
    rates = run.calls("rates")[0].done
    assert rates is not None
    assert rates.response_id is not None
    with pytest.raises(AssertionError, match=f"call 1 of stack begins on the response {rates.response_id}"):
        assert_stateless_start(changed(run, "stack", first=rates.response_id))
    with pytest.raises(AssertionError, match=r"call 2 of stack goes on from .* not its own"):
        assert_stateless_start(changed(run, "stack", second=rates.response_id))


def test_a_test_projects_name_begins_no_test() -> None:
    """pytest would collect classes that begin with Test."""
    assert not any(cls.__name__.startswith("Test") for cls in (OrchProject, OrchRun))
