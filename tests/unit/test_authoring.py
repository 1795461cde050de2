"""Python authoring: the same specs as YAML, the binding rules, faults at their lines, what works without a file."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

import orchestrator
from orchestrator import Ctx, Pipeline, Read, artifact
from orchestrator.errors import Diagnostic, InvalidProject, Place
from orchestrator.graph import Graph, build_graph, check_pipeline
from orchestrator.loading import load_pipeline
from orchestrator.project import Project, find_project
from orchestrator.python.declarations import kebab, mark_of
from orchestrator.python.slices import code_slice
from orchestrator.settings import load_settings
from orchestrator.thread import manifest
from orchestrator.trace.events import StepDone, StepReasked, typed
from orchestrator.values import Event, FromEarlier

HEAD = """
from typing import Annotated

from pydantic import BaseModel

from orchestrator import Ctx, Decision, Pipeline, Read, artifact


@artifact(about="How large the market is.", not_for="none")
class MarketSizing(BaseModel):
    customers: int
    note: str


@artifact(about="What vendors take.", not_for=["These are not the customer's budget."])
class VendorRates(BaseModel):
    weekly_usd: float


class Customers(BaseModel):
    customers: int


p = Pipeline("study")
p.input("idea", str, about="What the customer wants.")
p.input("customer-budget", float)


"""
SIZING = """
@p.step
async def market_sizing(ctx: Ctx, idea: str) -> MarketSizing:
    return await ctx.ask(MarketSizing, "Size it.")


"""


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("orchestrator.toml", 'user = "ana"\n')

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    @property
    def project(self) -> Project:
        return find_project(self.root)

    def settings(self) -> Any:
        return load_settings(self.project, {"HOME": str(self.root), "ORCH_MODEL": "scripted:answers"})

    def python(self, body: str) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
        path = self.write("study.py", HEAD + body)
        return check_pipeline(self.project, self.settings(), path)

    def graph(self, body: str) -> Graph:
        graph, found = self.python(body)
        assert graph is not None, found
        return graph

    def fault(self, body: str) -> Diagnostic:
        found = [diagnostic for diagnostic in self.python(body)[1] if diagnostic.level == "error"]
        assert len(found) == 1, found
        return found[0]

    def at(self, fault: Diagnostic) -> str:
        """The line that a fault points at."""
        assert fault.place is not None
        lines = (self.root / fault.place.file).read_text().splitlines()
        assert fault.source == lines[fault.place.line - 1]
        return fault.source.strip()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reads(graph: Graph, step: str) -> list[tuple[str, str]]:
    return [(read.name, read.kind) for read in graph.steps[step].reads]


def test_the_public_names() -> None:
    assert orchestrator.__all__ == [
        "Ctx",
        "Decision",
        "Input",
        "Pipeline",
        "Read",
        "Run",
        "Step",
        "Thread",
        "ToolError",
        "artifact",
        "tool",
    ]
    assert all(getattr(orchestrator, name).__name__ == name for name in orchestrator.__all__)


# --- one spec for both faces ------------------------------------------------------------------------------------------

SCHEMAS = '''
from pydantic import BaseModel

from orchestrator import artifact


@artifact(about="How large the market is.", not_for="none", max_tokens=500)
class MarketSizing(BaseModel):
    customers: int


@artifact(about="Rates, to compare.", not_for=["Not the customer's budget.", "No limit."], sensitivity="internal")
class VendorRates(BaseModel):
    weekly_usd: float
    low: float = 1.0


@artifact(about="The proposal.", not_for="none", tags=["topic:cost"], markdown=True)
class Proposal(str):
    pass


def lookup(what: str) -> str:
    """Look something up."""
    return what


def positive(value: VendorRates, **reads: object) -> str | None:
    return None if value.weekly_usd > 0 else "must be positive"
'''
PYTHON = """
from orchestrator import Pipeline, Read

from .schemas import MarketSizing, Proposal, VendorRates, lookup, positive

p = Pipeline(
    "pair",
    description="A pair.",
    system="You are brief.",
    models={"default": {"use": "${env:ORCH_MODEL}", "effort": "low"}, "cheap": "scripted:answers"},
    budget_usd="4.00",
    on_exceed="fail",
    unpriced="allow",
    reasks=1,
    timeout="10m",
)
idea = p.input("idea", str, about="What the customer wants.")
p.input("region", "string", default="EU")
p.input("members", int, default=3)

market = p.llm("market-sizing", produces=MarketSizing, reads=[idea, "region"], template="size.md.j2")
rates = p.llm(
    "rates",
    produces=VendorRates,
    reads=[Read(market, fields=["customers"], guard="Only the number."), "members"],
    prompt="Find rates.",
    tools=[lookup],
    checks=["weekly_usd >= low", {"expr": "low > 0", "message": "low is positive"}, positive],
    model="cheap",
    conversation="off",
    call_timeout=30,
)
p.llm(
    "proposal",
    produces=Proposal,
    reads=[rates, idea],
    needs=[market],
    prompt="Propose.",
    description="The end.",
    conversation={"messages": 5, "tokens": 100},
    effort="high",
    max_output_tokens=100,
)
p.outputs("proposal", rates)
"""
YAML = """
version: 1
pipeline: pair
description: A pair.
system: You are brief.
models:
  default: {use: "${env:ORCH_MODEL}", effort: low}
  cheap: {use: "scripted:answers"}
budget: {usd: "4.00", on_exceed: fail, unpriced: allow}
defaults: {reasks: 1, timeout: 10m}
inputs:
  idea: {type: text, about: "What the customer wants."}
  region: {type: string, default: EU}
  members: {type: integer, default: 3}
artifacts:
  market-sizing:
    about: "How large the market is."
    not_for: none
    max_tokens: 500
    schema: "schemas.py:MarketSizing"
  vendor-rates:
    about: "Rates, to compare."
    not_for: ["Not the customer's budget.", "No limit."]
    sensitivity: internal
    schema: "schemas.py:VendorRates"
  proposal: {about: "The proposal.", not_for: none, tags: ["topic:cost"], schema: markdown}
steps:
  market-sizing:
    reads: [idea, region]
    template: size.md.j2
  rates:
    reads:
      - {read: market-sizing, fields: [customers], guard: "Only the number."}
      - members
    prompt: "Find rates."
    tools: ["schemas.py:lookup"]
    checks:
      - "weekly_usd >= low"
      - {expr: "low > 0", message: "low is positive"}
      - {python: "schemas.py:positive"}
    model: cheap
    conversation: off
    call_timeout: 30s
    produces: vendor-rates
  proposal:
    reads: [rates, idea]
    needs: [market-sizing]
    prompt: "Propose."
    description: The end.
    conversation: {messages: 5, tokens: 100}
    effort: high
    max_output_tokens: 100
outputs: [proposal, rates]
"""


def test_yaml_and_python_of_one_pipeline_are_one_spec_with_the_same_inputs_hashes(world: World) -> None:
    """Positions aside, the two faces cannot be told apart by anything that runs."""
    world.write("schemas.py", SCHEMAS)
    world.write("templates/size.md.j2", "Size {{ inputs.region }}")
    python, yaml = world.write("one.py", PYTHON), world.write("two.yaml", YAML)

    first, second = (load_pipeline(world.project, path) for path in (python, yaml))

    assert [d.message for d in (*first.diagnostics, *second.diagnostics)] == []
    assert first.spec == second.spec
    assert first.spec is not None
    assert second.spec is not None
    assert first.spec.model_dump_json(exclude_unset=True) == second.spec.model_dump_json(exclude_unset=True)
    graphs = [build_graph(world.project, world.settings(), path) for path in (python, yaml)]
    assert graphs[0].digest == graphs[1].digest
    for name in graphs[0].steps:
        hashes = [manifest(graph.steps[name], {}).inputs_hash for graph in graphs]
        assert hashes[0] == hashes[1], name
    assert [graph.rank for graph in graphs] == [graphs[0].rank] * 2


# --- binding ----------------------------------------------------------------------------------------------------------


def test_names_types_and_parameters_become_steps_contracts_and_reads(world: World) -> None:
    graph = world.graph(
        SIZING
        + """
@p.step
def rates(market: MarketSizing, customer_budget: float) -> VendorRates:
    return VendorRates(weekly_usd=1)
"""
    )

    assert list(graph.steps) == ["market-sizing", "rates"]
    assert reads(graph, "market-sizing") == [("idea", "input")]
    assert reads(graph, "rates") == [("market-sizing", "step"), ("customer-budget", "input")]
    assert graph.steps["rates"].contract.name == "vendor-rates"
    assert graph.steps["rates"].contract.not_for == ("These are not the customer's budget.",)
    assert [step.asks for step in graph.steps.values()] == [True, False]
    assert [step.spec.python for step in graph.steps.values()] == ["study.py:market_sizing", "study.py:rates"]
    assert graph.inputs["customer-budget"].contract.name == "number"


def test_read_says_which_step_which_fields_and_a_guard(world: World) -> None:
    graph = world.graph(
        SIZING
        + """
second = p.llm("second", produces=MarketSizing, reads=["idea"], prompt="Again.")


@p.step
async def rates(
    ctx: Ctx,
    one: Annotated[MarketSizing, Read("second", guard="Not this one.")],
    two: Annotated[Customers, Read("market-sizing", fields=["customers"])],
) -> VendorRates:
    return VendorRates(weekly_usd=one.customers + two.customers)
"""
    )

    one, two = graph.steps["rates"].reads
    assert (one.name, one.guard, one.fields) == ("second", "Not this one.", None)
    assert (two.name, two.guard, two.fields) == ("market-sizing", None, ("customers",))


def test_an_input_of_an_artifact_type_is_read_by_its_type(world: World) -> None:
    graph = world.graph(
        """
p.input("sizes", MarketSizing, about="What the customer counted.")


@p.step
def rates(counted: MarketSizing, idea: str, customer_budget: float) -> VendorRates:
    return VendorRates(weekly_usd=1)
"""
    )
    assert reads(graph, "rates")[0] == ("sizes", "input")


def step(signature: str, body: str = "return VendorRates(weekly_usd=1)", decorator: str = "@p.step") -> str:
    return f"\n{decorator}\n{signature}\n    {body}\n"


EARLIER = """
@p.step
def rates(
    idea: str, last_rates: Annotated[VendorRates | None, Read("rates", from_="session", guard="Old.", default=None)]
) -> VendorRates:
    return VendorRates(weekly_usd=1)
"""


def test_a_function_reads_what_an_earlier_run_made_like_a_pipeline_file(world: World) -> None:
    """The same input that nobody gives as `{read: rates, from: session, as: last-rates, type: vendor-rates}` makes."""
    step = world.graph(EARLIER)
    node = step.inputs["last-rates"]
    assert (node.contract.name, node.earlier) == (
        "vendor-rates", FromEarlier("session", "rates", "vendor-rates", required=False),
    )  # fmt: skip
    assert reads(step, "rates") == [("idea", "input"), ("last-rates", "input")]
    assert step.steps["rates"].reads[1].guard == "Old."
    asked = '\np.llm("rates", produces=VendorRates, prompt="x", reads=[Read("rates", from_="project", as_="old")])\n'
    assert world.graph(asked).inputs["old"].earlier == FromEarlier("project", "rates", "vendor-rates")
    fault = world.fault(EARLIER.replace('Read("rates", ', "Read("))
    assert (fault.code, "no step is named" in fault.message) == ("P302", True)


def test_a_selection_stands_for_the_steps_it_means_like_in_a_pipeline_file(world: World) -> None:
    made = step("def rates(idea: str) -> VendorRates:")
    read = 'Read(select="kind:python", guard="Old.")'
    asked = f'\np.llm("report", produces=VendorRates, prompt="x", reads=["idea", {read}])\n'
    graph = world.graph(made + asked)
    assert reads(graph, "report") == [("idea", "input"), ("rates", "step")]
    assert graph.steps["report"].reads[1].guard == "Old."
    fault = world.fault(made + asked.replace("kind:python", "tag:nothing"))
    assert (fault.code, "the selection 'tag:nothing'" in fault.message) == ("P207", True), fault.message
    of_function = step('def total(every: Annotated[VendorRates, Read(select="rates")]) -> VendorRates:')
    fault = world.fault(made + of_function)
    assert (fault.code, "which has no one type" in fault.message) == ("P302", True)
    assert world.fault(made + asked.replace("Read(select", 'Read("rates", select')).code.startswith("P")


CHOICE = '\nfrom typing import Literal\n\np.input("tone", Literal["dry", "warm"], default="dry")\n'
OTHER_CHOICE = CHOICE.replace('["dry", "warm"], default="dry"', "[1, 2], about='A tone.'")
FAULTS = [
    ("P302", step("def rates(idee: str) -> VendorRates:"), "def rates(idee: str)", "'idea'"),
    ("P302", step("def rates(market: MarketSizing) -> VendorRates:"), "def rates(market", "returns it"),
    ("P302", step("def rates(when: str) -> VendorRates:"), "def rates(when", 'p.input("when", str, about="…")'),
    ("P302", OTHER_CHOICE + step("def rates(idea: str) -> VendorRates:"), "p.input(", "a Literal of words"),
    ("P306", CHOICE + step("def rates(tone: Literal['dry']) -> VendorRates:"), "def rates(tone", "tone: str"),
    ("P112", CHOICE.replace('"dry")', '"wet")') + step("def rates(idea: str) -> VendorRates:"), "p.input(", ""),
    ("P303", SIZING * 2 + step("def rates(m: MarketSizing) -> VendorRates:"), "", "Read("),
    ("P304", step("def rates(idea) -> VendorRates:"), "def rates(idea)", "type says what it reads"),
    ("P304", step("def rates(*, idea: str, **rest: str) -> VendorRates:"), "def rates(", "every parameter"),
    ("P304", step("def rates(ctx: Ctx, idea: str) -> VendorRates:"), "def rates(ctx", "async def"),
    ("P304", step("def rates(idea: 'Nowhere') -> VendorRates:"), "def rates(idea", "import"),
    ("P305", step("def rates(idea: str):"), "def rates(idea: str):", "artifact type it returns"),
    ("P305", step("def rates(idea: str) -> Customers:"), "def rates(idea", "@artifact"),
    ("P305", '\np.llm("rates", produces=Customers, reads=["idea"], prompt="x")\n', "p.llm(", "@artifact"),
    ("P306", step("def rates(idea: int) -> VendorRates:"), "def rates(idea: int)", "idea: str"),
    ("P307", step("def rates(idea: str) -> VendorRates:") * 2, "@p.step", "rename"),
    ("P150", '\np.chat("review")\n' + step("def rates(idea: str) -> VendorRates:"), "p.chat(", "for now"),
    ("P201", '\np.gate("review", ask="Good?", shows=["idee"])\n', "p.gate(", "idea"),
    ("P302", step("def rates(idea: str, review: Decision) -> VendorRates:"), "def rates(idea", "p.gate("),
    ("P101", '\np.llm("rates", produces=VendorRates, reads=["idea"], prompt="x", reask=1)\n', "p.llm(", "reasks"),
    ("P201", '\np.llm("rates", produces=VendorRates, reads=["idee"], prompt="x")\n', "p.llm(", "idea"),
    ("P106", '\np.llm("Rates!", produces=VendorRates, reads=["idea"], prompt="x")\n', "p.llm(", "rates"),
    ("P227", step("def rates(idea: str) -> VendorRates:", decorator='@p.step(effort="low")'), "@p.step", "ctx"),
]


@pytest.mark.parametrize("kind", ["str", "Literal['dry', 'warm']", "Literal['dry', 'warm', 'loud']"])
def test_a_choice_of_words_is_an_input_of_one_line_that_takes_no_other(world: World, kind: str) -> None:
    graph, found = world.python(CHOICE + step(f"def rates(tone: {kind}) -> VendorRates:"))
    assert [one for one in found if one.level == "error"] == []
    assert graph is not None
    tone = graph.inputs["tone"]
    assert (graph.spec.inputs["tone"].type, tone.contract.form, tone.default) == ("string", "text", "dry")
    assert tone.contract.faults("warm") == ()
    assert [fault.rule for fault in tone.contract.faults("wet")] == ["must be one of dry, warm"]


@pytest.mark.parametrize(("code", "body", "line", "hint"), FAULTS)
def test_each_fault_stands_at_its_line_with_a_way_out(world: World, code: str, body: str, line: str, hint: str) -> None:
    if code == "P303":
        body = body.replace("market_sizing", "other", 1)
    fault = world.fault(body)

    assert fault.code == code, fault
    assert line in world.at(fault)
    assert fault.place is not None
    assert fault.place.file == "study.py"
    assert hint in (fault.hint or ""), fault.hint


@pytest.mark.parametrize(
    ("code", "parameter"), [("P304", "idea: 'Nowhere'"), ("P302", "idee: str"), ("P304", "idea"), ("P306", "idea: int")]
)
def test_another_fault_of_a_step_that_asks_makes_no_false_one_about_its_model(
    world: World, code: str, parameter: str
) -> None:
    signature = f"async def rates(ctx: Ctx, {parameter}) -> VendorRates:"
    _, found = world.python(step(signature, decorator='@p.step(effort="low", reasks=1)'))
    assert [d.code for d in found if d.level == "error"] == [code]


def test_a_read_of_another_type_or_of_too_few_fields_is_a_fault(world: World) -> None:
    wrong = step('def rates(m: Annotated[VendorRates, Read("market-sizing")]) -> VendorRates:')
    assert world.fault(SIZING + wrong).code == "P306"
    few = step('def rates(m: Annotated[Customers, Read("market-sizing", fields=["note"])]) -> VendorRates:')
    fault = world.fault(SIZING + few)
    assert (fault.code, "customers" in (fault.hint or "")) == ("P306", True)


def test_all_faults_come_in_one_pass(world: World) -> None:
    _, found = world.python(
        step("def rates(idee: str) -> VendorRates:")
        + step("def other(idea: str) -> Customers:")
        + '\np.chat("profiles")\n'
    )
    assert {d.code for d in found if d.level == "error"} == {"P302", "P305", "P150"}


def test_templates_that_a_body_names_are_checked_before_a_run(world: World) -> None:
    world.write("templates/a.md.j2", "{{ block('idea') }} {{ quote('given', 'x') }} {{ block('customer-budget') }}")
    body = step(
        "async def rates(ctx: Ctx, idea: str) -> VendorRates:",
        'return await ctx.ask(VendorRates, template="a.md.j2", given=idea)',
    )
    fault = world.fault(body)
    assert (fault.code, fault.place and fault.place.file) == ("P213", "templates/a.md.j2")
    assert "customer-budget" in fault.message

    missing = world.fault(body.replace("a.md.j2", "none.md.j2"))
    assert missing.code == "P211"
    assert 'template="none.md.j2"' in world.at(missing)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_pipeline_file_is_found_by_its_text_and_not_executed_for_that(world: World) -> None:
    marker = world.root / "executed"
    touch = f"\nopen({str(marker)!r}, 'w').close()\n"
    world.write("study.py", HEAD + SIZING + touch)
    world.write("pipelines/second.py", 'from orchestrator import Pipeline\nq: Pipeline = Pipeline(\n    "two"\n)\n')
    world.write("helper.py", "def build(): ...\n" + touch)
    world.write("learning.py", 'from sklearn.pipeline import Pipeline\nm = Pipeline([("a", 1)])\n' + touch)

    project = world.project
    assert [path.name for path in project.pipelines()] == ["study.py", "second.py"]
    assert project.pipeline("two").name == "second.py"
    assert project.pipeline("study").name == "study.py"
    assert not marker.exists()


def test_a_file_with_two_pipelines_or_that_fails_says_so(world: World) -> None:
    path = world.write("study.py", HEAD + SIZING + '\nq = Pipeline("other")\n')
    assert [d.code for d in load_pipeline(world.project, path).diagnostics] == ["P301"]

    path = world.write("study.py", HEAD + "\n1 / 0\n")
    [fault] = load_pipeline(world.project, path).diagnostics
    assert (fault.code, fault.source) == ("P223", "1 / 0")

    path = world.write("study.py", HEAD + SIZING + '\np.run(idea="x", customer_budget=1.0)\n')
    [fault] = load_pipeline(world.project, path).diagnostics
    assert "starts a run whenever it is read" in fault.message


def test_a_contract_of_the_shelf_may_be_a_python_file(world: World) -> None:
    world.write(
        "artifacts/vendor_rates.py",
        """
        from pydantic import BaseModel

        from orchestrator import artifact

        @artifact(about="Rates.", not_for=["No budget."])
        class VendorRates(BaseModel):
            weekly_usd: float
        """,
    )
    path = world.write(
        "study.yaml",
        """
        version: 1
        pipeline: study
        inputs:
          idea: {type: text, about: "The idea."}
        steps:
          vendor-rates: {reads: [idea], prompt: "Find them."}
        """,
    )
    graph = build_graph(world.project, world.settings(), path)
    contract = graph.steps["vendor-rates"].contract
    assert (contract.about, contract.not_for, contract.fields) == ("Rates.", ("No budget.",), ("weekly_usd",))


# --- without a file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Executes source as a notebook does: in `__main__`-like globals, its text known to linecache by a made-up name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")

    def execute(source: str, name: str = "<cell-1>", *, known: bool = True) -> dict[str, Any]:
        if known:
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), space)
        return space

    yield execute
    for name in ("<cell-1>", "<cell-2>"):
        linecache.cache.pop(name, None)


@pytest.mark.parametrize("known", [True, False])
def test_a_pipeline_in_a_notebook_has_no_file_and_works(cell: Any, known: bool) -> None:
    graph = cell(HEAD + SIZING, known=known)["p"].graph()

    step = graph.steps["market-sizing"]
    assert step.function is not None
    assert step.function.ref == "notebook:market_sizing"
    changed = cell(HEAD + SIZING.replace("Size it.", "Count it."), known=known)["p"].graph().steps["market-sizing"]
    same = cell(HEAD + SIZING, known=known)["p"].graph().steps["market-sizing"]
    assert manifest(step, {}).inputs_hash == manifest(same, {}).inputs_hash
    assert manifest(step, {}).inputs_hash != manifest(changed, {}).inputs_hash


def test_faults_in_a_notebook_point_into_the_cell(cell: Any) -> None:
    space = cell(HEAD + step("def rates(idee: str) -> VendorRates:"), "<cell-2>")
    with pytest.raises(InvalidProject) as caught:
        space["p"].graph()
    [fault] = [diagnostic for diagnostic in caught.value.diagnostics if diagnostic.level == "error"]
    assert fault.source == "def rates(idee: str) -> VendorRates:"
    assert str(fault.place).startswith("<cell-2>:")


def test_a_cell_that_is_run_again_replaces_its_step(cell: Any) -> None:
    space = cell(HEAD + SIZING)
    again = "@p.step\nasync def market_sizing(ctx: Ctx, idea: str) -> MarketSizing:\n    raise NotImplementedError\n"
    linecache.cache["<cell-2>"] = (len(again), None, again.splitlines(keepends=True), "<cell-2>")
    exec(compile(again, "<cell-2>", "exec"), space)

    graph = space["p"].graph()

    assert list(graph.steps) == ["market-sizing"]
    assert graph.steps["market-sizing"].questions == 1
    assert str(graph.steps["market-sizing"].place).startswith("<cell-2>:2")


def test_types_of_an_enclosing_function_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")

    @artifact(about="What was found.", not_for="none")
    class Found(BaseModel):
        text: str

    q = Pipeline("local")
    q.input("idea", str, about="The idea.")

    @q.step
    async def first(ctx: Ctx, idea: str) -> Found:
        return await ctx.ask(Found, "Look.")

    @q.step
    def second(found: Annotated[Found, Read("first")]) -> Found:
        return found

    graph = q.graph()
    assert reads(graph, "second") == [("first", "step")]
    assert q.check() == ()
    assert (first.name, second.value_type()) == ("first", Found)


# --- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("VendorRates", "vendor-rates"),
        ("market_sizing", "market-sizing"),
        ("SWOT", "swot"),
        ("HTTPCaps", "http-caps"),
    ],
)
def test_names_become_kebab(name: str, expected: str) -> None:
    assert kebab(name) == expected


def test_a_mark_is_not_inherited() -> None:
    @artifact(about="A.", not_for="none", name="first")
    class First(BaseModel):
        x: int

    class Second(First):
        y: int

    found = mark_of(First)
    assert found is not None
    assert (found.name, mark_of(Second)) == ("first", None)
    line = inspect.getsourcelines(First)[1]
    assert found.place in (Place(__file__, line), Place(__file__, line + 1))


FILE = """
import os
from .near import helper
LIMIT = 3
def used() -> int: return LIMIT
def unused(): return os.sep
p = Pipeline("x")
p.input("idea", str, about="x")
@p.step(tools=[unused])
def first(): return used() + helper()
@p.step
def second(): return 1
if __name__ == "__main__":
    p.run()
"""


@pytest.mark.parametrize(
    ("change", "first", "second"),
    [
        (("LIMIT = 3", "LIMIT = 4"), True, False),
        (("return os.sep", "return os.linesep"), False, False),
        (("return 1", "return 2"), False, True),
        (("used() + helper()", "used() - helper()"), True, False),
        (('about="x"', 'about="y"'), False, False),
        (("    p.run()", "    p.run(1)"), False, False),
        (("import os", "import os\nprint('loaded')"), True, True),
    ],
)
def test_an_object_depends_on_what_it_uses(change: tuple[str, str], first: bool, second: bool) -> None:
    def sha(text: str, name: str) -> str:
        found = code_slice(text, name)
        assert found is not None
        return found.sha

    changed = FILE.replace(*change)
    assert changed != FILE
    assert (sha(FILE, "first") != sha(changed, "first")) is first
    assert (sha(FILE, "second") != sha(changed, "second")) is second


def test_imports_count_for_those_who_use_them_and_lookups_by_text_for_the_whole_file() -> None:
    first, second = code_slice(FILE, "first"), code_slice(FILE, "second")
    assert first is not None
    assert second is not None
    assert ([node.module for node in first.imports], list(second.imports)) == (["near"], [])
    assert code_slice(FILE.replace("return 1", "return globals()['LIMIT']"), "second") is None
    assert code_slice(FILE.replace("import os", "from os import *"), "second") is None
    assert code_slice(FILE, "nobody") is None


def test_events_are_typed_and_print_as_json_data() -> None:
    data: Mapping[str, Any] = {
        "version": 1,
        "calls": 2,
        "reasks": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cost_usd": "0.01",
        "cost_partial": False,
        "seconds": 1.5,
    }
    done = typed(Event("step.done", "rates", None, data))
    assert isinstance(done, StepDone)
    assert (done.step, done.calls, done.cost_usd) == ("rates", 2, "0.01")
    assert done.document() == {"schema": "orch.event/1", "event": "step.done", "step": "rates", "item": None, **data}
    reasked = typed(Event("step.reask", "rates", None, {"reasons": ["no"], "number": 1, "thread": "2"}))
    assert isinstance(reasked, StepReasked)
    assert (reasked.reasons, reasked.thread) == (["no"], "2")
    other = typed(Event("something.new", None, None, {"a": 1}))
    assert (other.kind, other.data) == ("something.new", {"a": 1})
