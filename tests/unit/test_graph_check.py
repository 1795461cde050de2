"""Every authoring fault of a pipeline in one pass, each with its code, its place and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import ConfigError, Diagnostic, InvalidProject
from orchestrator.graph import Graph, build_graph, check_pipeline
from orchestrator.project import Project
from orchestrator.settings import Settings, load_settings

CONTRACTS: dict[str, dict[str, Any]] = {
    "rates": {
        "artifact": "rates",
        "about": "Vendor rates, gathered to compare costs.",
        "not_for": ["These are not the customer's budget."],
        "schema": {
            "type": "object",
            "properties": {
                "weekly_usd": {"type": "number"},
                "by-role": {"type": "array", "items": {"$ref": "#/$defs/r"}},
            },
            "required": ["weekly_usd"],
            "$defs": {"r": {"type": "object", "properties": {"usd": {"type": "number"}}, "required": ["usd"]}},
        },
    },
    "stack": {
        "artifact": "stack",
        "about": "A recommendation.",
        "not_for": "none",
        "schema": {
            "type": "object",
            "properties": {
                "components": {"type": "array", "items": {"type": "string"}},
                "low": {"type": "number"},
                "high": {"type": "number"},
                "tech-lead": {"type": "string"},
            },
            "required": ["components"],
        },
    },
    "note": {"artifact": "note", "about": "A note.", "not_for": "none", "schema": "markdown"},
}

FUNCTIONS = '''
from .helper import USD

def calculate(idea):
    return {"weekly_usd": USD}

def with_more(idea, region, *, limit=3):
    return {}

def check(value, **reads):
    return None

def check_named(value, rates, idea=None):
    return None

def lookup(region: str) -> float:
    """The weekly rate of a region."""
    return 1.0

not_a_function = 3
'''


class World:
    """A project on disk; `check` writes a pipeline and checks it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("orchestrator.toml", "")
        self.write("code.py", FUNCTIONS)
        self.write("helper.py", "USD = 1\n")
        for name, data in CONTRACTS.items():
            self.write(f"artifacts/{name}.yaml", yaml.safe_dump(data, sort_keys=False))
        self.environ = {"ORCH_MODEL": "scripted:answers", "HOME": str(root)}

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def project(self) -> Project:
        return Project(self.root, self.root / "orchestrator.toml", {})

    @property
    def settings(self) -> Settings:
        return load_settings(self.project, self.environ)

    def pipeline(self, steps: Mapping[str, Any] | str, **keys: Any) -> Path:
        if isinstance(steps, str):
            return self.write("p.yaml", steps)
        inputs = {"idea": {"type": "text", "about": "An idea."}, "region": {"type": "string", "default": "EU"}}
        data = {"version": 1, "pipeline": "p", "inputs": inputs, **keys, "steps": steps}
        return self.write("p.yaml", yaml.safe_dump(data, sort_keys=False, width=10_000))

    def check(self, steps: Mapping[str, Any] | str, **keys: Any) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
        return check_pipeline(self.project, self.settings, self.pipeline(steps, **keys))

    def errors(self, steps: Mapping[str, Any] | str, **keys: Any) -> list[Diagnostic]:
        graph, found = self.check(steps, **keys)
        errors = [d for d in found if d.level == "error"]
        assert (graph is None) == bool(errors), found
        return errors

    def only(self, steps: Mapping[str, Any] | str, **keys: Any) -> Diagnostic:
        errors = self.errors(steps, **keys)
        assert len(errors) == 1, errors
        return errors[0]

    def graph(self, steps: Mapping[str, Any], **keys: Any) -> Graph:
        return build_graph(self.project, self.settings, self.pipeline(steps, **keys))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path.resolve())


RATES = {"python": "code.py:calculate", "reads": ["idea"], "produces": "rates"}
STACK = {"prompt": "Recommend.", "reads": ["idea", "rates"], "produces": "stack"}
BOTH = {"rates": RATES, "tech-stack": STACK}


def stack(**keys: Any) -> dict[str, Any]:
    return {"rates": RATES, "tech-stack": {**STACK, **keys}}


# --- a good graph


def test_a_good_pipeline_becomes_a_complete_graph(world: World) -> None:
    world.write("templates/stack.md.j2", "For {{ inputs.region }}.\n{{ block('rates') }}\n")
    steps = {
        "tech-stack": {
            "template": "stack.md.j2",
            "reads": ["idea", "region", {"read": "rates", "fields": ["weekly_usd"], "guard": "Not a budget."}],
            "produces": "stack",
            "tools": ["code.py:lookup"],
            "checks": ["low <= high", {"python": "code.py:check", "message": "odd"}],
            "timeout": "2m",
            "conversation": "off",
        },
        "rates": RATES,
    }
    graph = world.graph(steps, defaults={"reasks": 1})
    assert list(graph.steps) == ["rates", "tech-stack"]
    assert dict(graph.rank) == {"idea": 0, "region": 1, "rates": 2, "tech-stack": 3}
    assert dict(graph.children) == {"rates": ("tech-stack",), "tech-stack": ()}
    assert graph.outputs == ("tech-stack",)
    rates, made = graph.steps["rates"], graph.steps["tech-stack"]
    assert (rates.kind, rates.model, rates.order, rates.parents) == ("python", None, 0, ())
    assert rates.function is not None
    assert rates.function.call(idea="x") == {"weekly_usd": 1}
    assert (made.kind, made.order, made.parents, made.conversation) == ("llm", 1, ("rates",), None)
    assert made.template is not None
    assert made.template.text == "For {{ inputs.region }}.\n{{ block('rates') }}\n"
    assert (made.reasks, made.timeout, made.call_timeout) == (1, 120.0, 600.0)
    assert [t.spec.name for t in made.tools] == ["lookup"]
    assert [c.label for c in made.checks] == ["low <= high", "code.py:check"]
    read = made.reads[2]
    assert (read.kind, read.fields, read.guard) == ("step", ("weekly_usd",), "Not a budget.")
    assert read.contract.not_for == ("These are not the customer's budget.",)
    assert str(read.place).startswith("p.yaml:")
    assert graph.warnings == ()


def test_digests_follow_what_can_change_a_run(world: World) -> None:
    base = world.graph(BOTH)
    assert world.graph(BOTH).digest == base.digest
    for other in (
        world.graph(stack(prompt="Recommend!")),
        world.graph(stack(checks=["low <= high"])),
        world.graph(stack(max_output_tokens=9)),
        world.graph(BOTH, system="Be short."),
        world.graph(stack(reads=["idea", {"read": "rates", "guard": "No."}])),
    ):
        assert other.digest != base.digest
    assert world.graph(stack(prompt="Recommend!")).steps["tech-stack"].digest == base.steps["tech-stack"].digest
    assert world.graph(BOTH, system="Be short.").steps["tech-stack"].digest != base.steps["tech-stack"].digest
    before = base.steps["rates"].function
    world.write("helper.py", "USD = 22\n")
    after = world.graph(BOTH).steps["rates"].function
    assert before is not None
    assert after is not None
    assert before.sha != after.sha, "a change in a file that it imports is a change of its code"


def test_a_step_definition_brings_its_own_files(world: World) -> None:
    world.write(
        "steps/recommend.yaml", "step: recommend\nprompt: |\n  Recommend.\n  {{ block('nope') }}\nproduces: stack\n"
    )
    fault = world.only({"rates": RATES, "tech-stack": {"uses": "recommend", "reads": ["rates"]}})
    assert (fault.code, str(fault.place), fault.source) == ("P213", "steps/recommend.yaml:4", "  {{ block('nope') }}")


# --- one pass


def test_all_faults_in_one_pass_with_their_places(world: World) -> None:
    text = """\
version: 1
pipeline: p
inputs:
  idea: {type: text, about: "An idea."}
steps:
  rates:
    python: "code.py:calculate"
    reads: [idee]
    produces: rates
  tech-stack:
    reads: [idea, {read: rates, fields: [weekly]}]
    template: stak.md.j2
    produces: stck
    model: smart
outputs: [tech-stak]
"""
    world.write("templates/stack.md.j2", "x")
    found = [(d.code, str(d.place), d.hint) for d in world.errors(text)]
    assert found == [
        ("P201", "p.yaml:8:13", "Did you mean 'idea'?"),
        ("P205", "p.yaml:11:42", "Did you mean 'weekly_usd'?"),
        ("P211", "p.yaml:12:15", "looked at stak.md.j2, templates/stak.md.j2, the shipped templates/stak.md.j2. "
                                 "Did you mean 'stack.md.j2'?"),
        ("P230", "p.yaml:13:15", "Did you mean 'stack'? Else write artifacts/stck.yaml, or an inline contract under "
                                 "`artifacts:`"),
        ("P240", "p.yaml:14:12", "There is: cheap, default."),
        ("P201", "p.yaml:15:11", "Did you mean 'tech-stack'?"),
    ]  # fmt: skip


def test_build_graph_raises_them_all(world: World) -> None:
    path = world.pipeline(stack(produces="nope", model="nope"))
    with pytest.raises(InvalidProject) as caught:
        build_graph(world.project, world.settings, path)
    assert [d.code for d in caught.value.diagnostics if d.level == "error"] == ["P230", "P240"]
    assert caught.value.exit_code == 3


def test_a_part_that_is_faulty_causes_no_second_error(world: World) -> None:
    steps = {"rates": {**RATES, "nonsense": 1, "timeout": 5}, "tech-stack": {**STACK, "prompt": "{{ block('rates') }}"}}
    assert {d.code for d in world.errors(steps)} <= {"P101", "P103"}


# --- names


def test_unknown_needs_and_outputs(world: World) -> None:
    faults = world.errors(stack(needs=["rats"]), outputs=["tech-stack", "idae"])
    assert [(d.code, d.hint) for d in faults] == [("P201", "Did you mean 'idea'?"), ("P201", "Did you mean 'rates'?")]


def test_an_underscore_for_a_dash_is_told_apart(world: World) -> None:
    steps = {**BOTH, "last": {"prompt": "x", "reads": ["tech_stack"], "produces": "note"}}
    assert world.only(steps).hint == "it is written tech-stack"


def test_inputs_and_steps_share_one_name_space(world: World) -> None:
    fault = world.only({"idea": {"prompt": "x", "produces": "note"}})
    assert (fault.code, fault.message) == ("P202", "idea is an input and a step; both share one name space")
    assert "p.yaml:4:3" in (fault.hint or "")


def test_names_that_differ_only_by_dash_and_underscore(world: World) -> None:
    fault = world.only({"my-note": {"prompt": "x", "produces": "note"}, "my_note": {"prompt": "x", "produces": "note"}})
    assert fault.code == "P202"
    assert "my_note and my-note differ only by - and _" in fault.message


def test_a_cycle_is_named_whole(world: World) -> None:
    note = {"prompt": "x", "produces": "note"}
    steps = {"a": {**note, "reads": ["c"]}, "b": {**note, "needs": ["a"]}, "c": {**note, "reads": ["b"]}}
    fault = world.only(steps)
    assert (fault.code, fault.message) == ("P203", "these steps wait for each other: a → c → b → a")


def test_a_step_that_reads_or_needs_itself(world: World) -> None:
    faults = world.errors({"a": {"prompt": "x", "produces": "note", "reads": ["a"], "needs": ["a"]}})
    assert [(d.code, d.message) for d in faults] == [
        ("P203", "step a: it reads itself"),
        ("P203", "step a: it needs itself"),
    ]


def test_duplicates(world: World) -> None:
    faults = world.errors(
        stack(
            reads=["idea", "rates", {"read": "rates", "fields": ["weekly_usd", "weekly_usd"]}],
            needs=["rates", "rates"],
            tools=["code.py:lookup", "code.py:lookup"],
        ),
        outputs=["rates", "rates"],
    )
    assert [d.code for d in faults] == ["P204"] * 4


# --- reads


def test_fields_must_be_fields_of_the_source(world: World) -> None:
    for reads, code, words in (
        ([{"read": "rates", "fields": ["weekly"]}], "P205", "rates has no field weekly"),
        ([{"read": "rates", "fields": ["by-role.usd"]}], "P205", "rates has no field by-role.usd"),
        ([{"read": "idea", "fields": ["x"]}], "P206", "idea is text, it has no fields"),
        ([{"read": "rates", "default": {"weekly_usd": "x"}}], "P208", "$.weekly_usd must be a number"),
    ):
        fault = world.only(stack(reads=reads))
        assert fault.code == code
        assert words in fault.message


def test_defaults_of_inputs_are_of_their_type(world: World) -> None:
    inputs = {
        "n": {"type": "integer", "default": "three"},
        "r": {"type": "rates", "about": "Rates.", "default": {"weekly_usd": "x"}},
        "s": {"type": "string", "default": "two\nlines"},
        "u": {"type": "rats", "about": "Rates."},
        "ok": {"type": "text", "about": "x", "default": None},
    }
    faults = world.errors({"a": {"prompt": "x", "produces": "note", "reads": list(inputs)}}, inputs=inputs)
    assert [(d.code, d.hint) for d in faults] == [
        ("P112", None), ("P112", None), ("P112", None), ("P230", "Did you mean 'rates'?"),
    ]  # fmt: skip


def test_warnings_for_what_nobody_reads(world: World) -> None:
    contracts = {"spare": {"artifact": "spare", "about": "x", "not_for": "none", "schema": "text"}}
    graph, found = world.check(BOTH, outputs=["rates"], artifacts=contracts)
    assert graph is not None
    assert [(d.code, d.level, d.message) for d in found] == [
        ("P250", "warning", "no step reads the input region"),
        ("P252", "warning", "nothing has the contract spare"),
        ("P251", "warning", "no step reads tech-stack, and it is no output"),
    ]
    assert graph.warnings == found


# --- the task


def test_a_step_has_exactly_one_task(world: World) -> None:
    assert world.only({"note": {"reads": ["idea"]}}).message == "step note: it has no task"
    world.write("t.j2", "x")
    faults = world.errors({"note": {"template": "t.j2", "prompt": "x"}})
    assert [(d.code, d.message) for d in faults] == [
        ("P210", "step note: it has template and prompt; a step has one task")
    ]


def test_model_keys_on_a_python_step(world: World) -> None:
    faults = world.errors({"rates": {**RATES, "tools": ["code.py:lookup"], "model": "default", "reasks": 3}})
    assert [d.code for d in faults] == ["P227"] * 3


def test_templates_leave_neither_project_nor_utf8(world: World) -> None:
    assert world.only({"note": {"template": "../outside.j2"}}).code == "P211"
    (world.root / "latin.j2").write_bytes("é".encode("latin-1"))
    fault = world.only({"note": {"template": "latin.j2"}})
    assert (fault.code, "not UTF-8" in fault.message) == ("P211", True)


def test_template_syntax_has_its_line(world: World) -> None:
    world.write("templates/t.md.j2", "one\n{{ block('idea' }}\n")
    fault = world.only({"note": {"template": "t.md.j2", "reads": ["idea"]}})
    assert (fault.code, str(fault.place), fault.source) == ("P212", "templates/t.md.j2:2", "{{ block('idea' }}")


def test_inline_prompts_point_into_the_pipeline_file(world: World) -> None:
    text = """\
pipeline: p
inputs:
  idea: {type: text, about: "An idea."}
steps:
  note:
    reads: [idea]
    prompt: |
      one
      {{ block('rates') }}
  other:
    produces: note
    prompt: "{{ nothing }}"
"""
    faults = world.errors(text)
    assert [(d.code, str(d.place)) for d in faults] == [("P213", "p.yaml:9"), ("P213", "p.yaml:12")]
    assert faults[0].source == "      {{ block('rates') }}"


@pytest.mark.parametrize(
    ("template", "code", "message"),
    [
        ("{{ inputs.idea }} {{ inputs.region }} {{ block('rates') }} {{ quote('rates', 'weekly_usd') }}", None, ""),
        ("{% for i in range(3) %}{{ i }}{% endfor %}{% set x = 1 %}{{ x }}", None, ""),
        ("{{ quote('rates', 'by-role[0].usd') }}{{ inputs['idea'] }}", None, ""),
        ("{{ inputs.budget }}", "P213", "the template names inputs.budget, which the step does not read"),
        ("{{ inputs.nope }}", "P213", "the template names inputs.nope, and there is no such input"),
        ("{{ inputs.rates }}", "P213", "rates is a step, not an input"),
        ("{{ inputs.what_for }}", "P214", "inputs.what_for is a rates, not a line of text or a number"),
        ("{{ inputs['what-for'] }}", "P213", "inputs['what-for'] is written inputs.what_for"),
        ("{{ inputs }}", "P214", "`inputs` alone is nothing that can be written"),
        ("{{ block }}", "P214", "`block` alone is nothing that can be written"),
        ("{{ block('stack') }}", "P213", "the template names block('stack'), and the step reads nothing of that name"),
        ("{{ block('last') }}", "P213", "the template names block('last'), which the step does not read"),
        ("{{ block(inputs.region) }}", "P214", "block takes names in quotes, so that they can be checked before a run"),
        ("{{ block('rates', 'x') }}", "P214", "block is written block('NAME')"),
        ("{{ quote('rates') }}", "P214", "quote is written quote('NAME', 'field')"),
        ("{{ quote('rates', 'weekly') }}", "P213", "rates has no field weekly"),
        ("{{ quote('rates', 'by-role.usd') }}", "P213", "rates has no field by-role.usd"),
        ("{{ quote('idea', 'x') }}", "P214", "idea has no fields to quote"),
        ("{{ nothing }}", "P213", "the template names nothing, which does not exist there"),
        (
            "{{ item }}",
            "P213",
            "the template names item, which a step has only with for_each: it is the entry it is made for",
        ),
        ("{% include 'x' %}", "P214", "{% include %} is not available: a step's template is one file"),
        ("{{ inputs.idea|nosuch }}", "P212", "the template cannot be used: No filter named 'nosuch'."),
        ("{{ [1, 2]|random }}", "P212", "the template cannot be used: No filter named 'random'."),
    ],
)
def test_names_in_templates(world: World, template: str, code: str | None, message: str) -> None:
    inputs = {
        "idea": {"type": "text", "about": "An idea."},
        "region": {"type": "string"},
        "budget": {"type": "number"},
        "what-for": {"type": "rates", "about": "Rates."},
    }
    steps = {
        "rates": RATES,
        "note": {"prompt": template, "reads": ["idea", "region", "rates", "what-for"]},
        "last": {"prompt": "x", "reads": ["budget", "note"], "produces": "note"},
    }
    faults = [(d.code, d.message.removeprefix("step note: ")) for d in world.errors(steps, inputs=inputs)]
    assert faults == ([] if code is None else [(code, message)])


def test_a_quoted_field_must_be_among_the_read_ones(world: World) -> None:
    read = {"read": "rates", "fields": ["weekly_usd"]}
    fault = world.only({"rates": RATES, "note": {"prompt": "{{ quote('rates', 'by-role') }}", "reads": [read]}})
    assert (fault.code, fault.hint) == ("P213", "add by-role to the read's fields")


# --- labels (R002, R025)


def test_R002_a_contract_without_a_part_of_its_label_names_step_and_artifact(world: World) -> None:
    """R002: load fails with the step and the artifact named, on the shelf and inline."""
    for part in ("about", "not_for"):
        data = {key: value for key, value in CONTRACTS["rates"].items() if key != part}
        world.write("artifacts/rates.yaml", yaml.safe_dump(data))
        shelf = world.errors({"cost-calculator": RATES})
        world.write("artifacts/rates.yaml", yaml.safe_dump(CONTRACTS["rates"]))
        inline = world.errors({"cost-calculator": RATES}, artifacts={"rates": data})
        for faults in (shelf, inline):
            assert len(faults) == 1
            assert "cost-calculator" in faults[0].message
            assert "rates" in faults[0].message
            assert part in faults[0].message


def test_R025_a_artifact_injected_without_its_guard_is_refused(world: World) -> None:
    """R025 (a), the first seed case: the cost step's output pasted bare into the tech-stack prompt."""
    for prompt in ("Costs: {{ rates }}", "{{ rates.weekly_usd }}", "{% for r in rates %}{{ r }}{% endfor %}"):
        fault = world.only(stack(prompt=prompt))
        assert fault.code == "P215"
        assert fault.message == (
            "step tech-stack: the template names rates bare: what stands there would reach the model without its label"
        )
        assert fault.hint == "write {{ block('rates') }}"
    unread = world.only({"rates": RATES, "tech-stack": {"prompt": "{{ rates }}", "produces": "stack"}})
    assert unread.hint == "write {{ block('rates') }}, and add rates to the step's reads"
    raw = world.errors(stack(reads=["idea", {"read": "rates", "raw": True}]))
    assert [d.code for d in raw] == ["P151"]


def test_R025_b_a_chain_across_steps_is_refused(world: World) -> None:
    """R025 (b), the second seed case: a step that goes on from the former step's response."""
    for key in ("previous_response_id", "chain"):
        assert [d.code for d in world.errors(stack(**{key: "rates"}))] == ["P151"]


# --- contracts of steps


def test_a_step_without_produces_has_the_contract_of_its_name(world: World) -> None:
    assert world.graph({"note": {"prompt": "x"}}).steps["note"].contract.name == "note"
    fault = world.only({"memo": {"prompt": "x"}})
    assert (fault.code, "a contract of its own name" in fault.message or "of its own name" in fault.message) == (
        "P230",
        True,
    )


def test_inline_contracts_come_before_the_shelf(world: World) -> None:
    inline = {"note": {"artifact": "note", "about": "Inline.", "not_for": "none", "schema": "text"}}
    made = world.graph({"note": {"prompt": "x"}}, artifacts=inline).steps["note"].contract
    assert (made.about, made.form) == ("Inline.", "text")


def test_what_a_model_cannot_make(world: World) -> None:
    loose = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "number"}}}}
    contracts = {
        "loose": {"artifact": "loose", "about": "x", "not_for": "none", "schema": loose},
        "scan": {"artifact": "scan", "about": "x", "not_for": "none", "schema": "file"},
    }
    steps = {name: {"prompt": "x"} for name in contracts}
    assert [d.code for d in world.errors(steps, artifacts=contracts)] == ["P234", "P235"]
    function = {"loose": {"python": "code.py:calculate", "reads": ["idea"]}}
    assert world.errors(function, artifacts={"loose": contracts["loose"]}) == []


def fact(nullable: bool) -> dict[str, Any]:
    kind = ["string", "null"] if nullable else "string"
    schema = {
        "type": "object",
        "properties": {"launch-date": {"type": kind, "fact_of": "customer"}},
        "required": ["launch-date"],
    }
    return {"about": "x", "not_for": "none", "schema": schema}


def test_a_required_customer_fact_needs_a_source(world: World) -> None:
    """threads-and-context §2: it would be invented otherwise."""
    contracts = {"brief": {"artifact": "brief", **fact(False)}, "known": {"artifact": "known", **fact(True)}}
    inputs = {"idea": {"type": "text", "about": "x"}, "launch_date": {"type": "string"}}
    fault = world.only({"brief": {"prompt": "x", "reads": ["idea"]}}, artifacts=contracts, inputs=inputs)
    assert fault.code == "P236"
    assert "brief.launch-date" in fault.message
    supplied: list[dict[str, Any]] = [
        {"brief": {"prompt": "x", "reads": ["launch_date"]}},
        {"known": {"prompt": "x", "reads": ["idea"]}},
        {"known": {"prompt": "x", "reads": ["idea"]}, "brief": {"prompt": "x", "reads": ["known"]}},
    ]
    for steps in supplied:
        assert world.errors(steps, artifacts=contracts, inputs=inputs) == []


# --- functions


def test_functions_must_exist_and_fit(world: World) -> None:
    for python, code, words in (
        ("code.py", "P221", "not a reference"),
        ("cod.py:calculate", "P222", "there is no file 'cod.py'; looked at cod.py, steps/cod.py"),
        ("code.py:calculat", "P223", "has no 'calculat'"),
        ("code.py:not_a_function", "P224", "not_a_function is not a function"),
        ("code.py:with_more", "P224", "with_more needs region, which the step does not read"),
        ("code.py:lookup", "P224", "lookup does not take idea, which the step reads"),
        ("broken.py:f", "P223", "broken.py:2"),
        ("../x.py:f", "P222", "leads out of the project"),
    ):
        world.write("broken.py", "x = 1\ny = 1 / 0\n")
        fault = world.only({"rates": {**RATES, "python": python}})
        assert fault.code == code
        assert words in fault.message
    assert world.errors({"rates": {**RATES, "python": "code.py:with_more", "reads": ["idea", "region"]}}) == []


def test_check_functions_take_the_value_and_the_reads(world: World) -> None:
    assert world.errors(stack(checks=[{"python": "code.py:check"}, {"python": "code.py:check_named"}])) == []
    fault = world.only(stack(checks=[{"python": "code.py:calculate"}]))
    assert (fault.code, fault.hint) == ("P224", "write def calculate(value, **reads)")
    fault = world.only(stack(reads=["region", "rates"], checks=[{"python": "code.py:check_named"}]))
    assert fault.message == "step tech-stack: check_named does not take region, which the step reads"


def test_tools_must_be_tools(world: World) -> None:
    world.write("other.py", 'def lookup(x: int) -> int:\n    """Another."""\n    return x\n')
    fault = world.only(stack(tools=["code.py:lookup", "other.py:lookup"]))
    assert (fault.code, fault.message) == (
        "P226", "step tech-stack: two tools are named lookup: code.py:lookup and other.py:lookup",
    )  # fmt: skip
    assert world.only(stack(tools=["code.py:check"])).code == "P225"
    fault = world.only(stack(tools=["web_serch"]))
    assert (fault.code, fault.hint) == ("P221", "did you mean 'web_search'?")


# --- expressions


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("low <= high and len(components) > 0", None, None),
        ("tech_lead != 'nobody'", None, None),
        ("tech-lead != 'nobody'", "tech-lead is read as a subtraction in \"tech-lead != 'nobody'\"", "write tech_lead"),
        ("low <= hihg", "the output stack has no field hihg", "Did you mean 'high'?"),
        ("components.name == 1", "the output stack has no field components.name", None),
        ("rates == 1", "the output stack has no field rates", "expr sees the fields of the output only; "
                                                              "a Python check gets the reads too"),
        ("low <", "the check 'low <': `low <` is not an expression: invalid syntax", None),
    ],
)  # fmt: skip
def test_A21_names_in_expressions(world: World, text: str, message: str | None, hint: str | None) -> None:
    """A21: a name with a dash is told from a subtraction, at load."""
    faults = world.errors(stack(checks=[{"expr": text}]))
    found = [(d.code, d.message.removeprefix("step tech-stack: "), d.hint) for d in faults]
    assert found == ([] if message is None else [("P229", message, hint)])


def test_an_expression_needs_fields(world: World) -> None:
    fault = world.only({"note": {"prompt": "x", "checks": ["len(text) > 3"]}})
    assert (fault.code, fault.message) == (
        "P229",
        "step note: the check 'len(text) > 3' names fields, and note is Markdown",
    )


# --- models


def test_step_over_alias_over_defaults(world: World) -> None:
    models = {
        "default": {"use": "${env:ORCH_MODEL}", "effort": "low", "max_output_tokens": 5000},
        "cheap": {"use": "openai:small"},
    }
    steps = {
        "a": {"prompt": "x", "produces": "note"},
        "b": {"prompt": "x", "produces": "note", "effort": "high", "max_output_tokens": 100},
        "c": {"prompt": "x", "produces": "note", "model": "cheap"},
    }
    made = world.graph(steps, models=models, defaults={"effort": "medium"}).steps
    shown = {n: (m.provider, m.model, m.effort, m.max_output_tokens) for n, s in made.items() if (m := s.model)}
    assert shown == {
        "a": ("scripted", "answers", "low", 5000),
        "b": ("scripted", "answers", "high", 100),
        "c": ("openai", "small", "medium", 8000),
    }


def test_without_models_the_aliases_are_the_variables(world: World) -> None:
    steps = {"a": {"prompt": "x", "produces": "note"}, "b": {"prompt": "x", "produces": "note", "model": "cheap"}}
    world.environ["ORCH_MODEL_CHEAP"] = "openai:small:latest"
    made = {name: step.model for name, step in world.graph(steps).steps.items()}
    assert {name: (m.alias, m.provider, m.model) for name, m in made.items() if m} == {
        "a": ("default", "scripted", "answers"),
        "b": ("cheap", "openai", "small:latest"),
    }
    del world.environ["ORCH_MODEL_CHEAP"]
    model = world.graph(steps).steps["b"].model
    assert model is not None
    assert (model.provider, model.model) == ("scripted", "answers")


def test_faults_of_models(world: World) -> None:
    for use, code, words in (
        ("gpt-6", "P241", "'gpt-6' is not a model"),
        ("opnai:gpt-6", "P242", "there is no provider opnai"),
        (":gpt-6", "P241", "':gpt-6' is not a model"),
    ):
        faults = world.errors({"note": {"prompt": "x"}}, models={"default": {"use": use}})
        assert [d.code for d in faults] == [code]
        assert words in faults[0].message
    fault = world.only({"note": {"prompt": "x", "model": "openai:gpt-6"}})
    assert (fault.code, "declare one under models" in (fault.hint or "")) == ("P240", True)
    fault = world.only({"note": {"prompt": "x"}}, models={"smart": {"use": "openai:gpt-6"}})
    assert (fault.code, fault.message) == ("P240", "there is no model alias default")


@pytest.mark.parametrize("models", [{}, {"models": {"default": {"use": "${env:ORCH_MODEL}"}}}])
def test_an_unset_model_is_a_warning_until_one_is_needed(world: World, models: dict[str, Any]) -> None:
    del world.environ["ORCH_MODEL"]
    path = world.pipeline({"note": {"prompt": "x", "reads": ["idea", "region"]}}, **models)
    graph, found = check_pipeline(world.project, world.settings, path)
    assert graph is not None
    assert graph.steps["note"].model is None
    assert [(d.code, d.level) for d in found] == [("P243", "warning")]
    assert build_graph(world.project, world.settings, path).steps["note"].model is None
    with pytest.raises(ConfigError) as caught:
        build_graph(world.project, world.settings, path, require_model=True)
    assert caught.value.exit_code == 3
    assert "ORCH_MODEL is not set" in caught.value.message
    assert (caught.value.hint or "").startswith("run: export ORCH_MODEL=openai:")


def test_a_pipeline_of_functions_needs_no_model(world: World) -> None:
    del world.environ["ORCH_MODEL"]
    path = world.pipeline({"rates": RATES})
    assert build_graph(world.project, world.settings, path, require_model=True).name == "p"
