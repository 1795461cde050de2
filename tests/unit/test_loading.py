"""YAML → specs: shorthand, definitions, and every fault of a file in one pass."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import Diagnostic, Place
from orchestrator.loading import Loaded, load_contract, load_pipeline
from orchestrator.project import Project
from orchestrator.spec import MISSING, CheckSpec, ContractSpec, ConversationSpec, InputSpec, ReadSpec

Write = Callable[[str, str], Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(root=tmp_path.resolve(), file=tmp_path / "orchestrator.toml", config={})


@pytest.fixture
def write(project: Project) -> Write:
    def write(name: str, text: str) -> Path:
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def load(project: Project, write: Write) -> Callable[[str], Loaded]:
    return lambda text: load_pipeline(project, write("p.yaml", text))


Load = Callable[[str], Loaded]

HEAD = "pipeline: p\nsteps:\n"


def faults(loaded: Loaded) -> list[tuple[str, str]]:
    """Code and place of each fault, in the order of the file."""
    found = [d for d in loaded.diagnostics if d.place is not None]
    return [(d.code, str(d.place)) for d in sorted(found, key=_where)]


def _where(fault: Diagnostic) -> tuple[str, int, int]:
    assert fault.place is not None
    return fault.place.file, fault.place.line, fault.place.column


def only(loaded: Loaded) -> Diagnostic:
    assert len(loaded.diagnostics) == 1, loaded.diagnostics
    return loaded.diagnostics[0]


# --- what is right ---


def test_a_whole_pipeline_with_its_shorthand(load: Load) -> None:
    loaded = load(
        """\
version: 1
pipeline: discovery
x-owner: {team: a}
inputs:
  idea: {type: text, about: "What the customer wants.", x-form: 3}
  region: {type: string, default: no}
models:
  default: {use: "${env:ORCH_MODEL}", effort: medium}
defaults: {timeout: 1.5h, call_timeout: 500ms}
budget: {usd: 4.10, unpriced: allow}
system: |
  You prepare a study.
artifacts:
  rates:
    about: "Rates."
    not_for: none
    schema: {type: object, properties: {message: {type: string}}}
steps:
  cost-calculator:
    python: "cost.py:calculate"
    produces: rates
  tech-stack:
    needs: [cost-calculator]
    reads:
      - idea
      - {read: cost-calculator, fields: [weekly_usd], guard: "Not the budget.", default: null}
    prompt: "Choose."
    conversation: off
    checks:
      - "low <= high"
      - {python: "checks.py:adds_up"}
    reasks: 0
outputs: [tech-stack]
"""
    )
    spec = loaded.spec
    assert loaded.diagnostics == ()
    assert spec is not None
    assert spec.inputs["region"] == InputSpec(type="string", default="no")
    assert spec.inputs["idea"].default is MISSING
    assert spec.artifacts["rates"] == ContractSpec(
        artifact="rates",
        about="Rates.",
        not_for="none",
        schema_={"type": "object", "properties": {"message": {"type": "string"}}},
    )
    assert (spec.defaults.timeout, spec.defaults.call_timeout) == (5400.0, 0.5)
    assert spec.budget is not None
    assert spec.budget.usd == Decimal("4.10")
    assert str(spec.budget.usd) == "4.10"
    step = spec.steps["tech-stack"]
    assert step.reads == (
        ReadSpec(read="idea"),
        ReadSpec(read="cost-calculator", fields=("weekly_usd",), guard="Not the budget.", default=None),
    )
    assert step.checks == (CheckSpec(expr="low <= high"), CheckSpec(python="checks.py:adds_up"))
    assert (step.conversation, step.reasks) == ("off", 0)
    assert spec.steps["cost-calculator"].conversation == ConversationSpec(messages=30, tokens=800)
    assert list(spec.steps) == ["cost-calculator", "tech-stack"]
    assert loaded.places.of("steps", "tech-stack", "reads", 1, "guard") == Place("p.yaml", 26, 62)
    assert loaded.places.key("steps", "tech-stack", "reasks") == Place("p.yaml", 32, 5)


# --- all faults in one pass ---


def test_all_faults_of_a_file_in_one_pass_and_the_rest_kept(load: Load) -> None:
    loaded = load(
        """\
pipeline: p
inputs:
  idea: {type: text}
  count: {type: integer, default: 08}
steps:
  a:
    temlate: x.md.j2
    prompt: go
    effort: hihg
    reads: [idea, 5, b]
  b:
    prompt: 7
    max_output_tokens: 1e3
    timeout: 10
  c: nothing
outputs: d
"""
    )
    assert faults(loaded) == [
        ("P105", "p.yaml:3:3"),
        ("P013", "p.yaml:4:35"),
        ("P112", "p.yaml:4:35"),
        ("P101", "p.yaml:7:5"),
        ("P103", "p.yaml:9:13"),
        ("P103", "p.yaml:10:19"),
        ("P103", "p.yaml:12:13"),
        ("P103", "p.yaml:13:24"),
        ("P103", "p.yaml:14:14"),
        ("P103", "p.yaml:15:6"),
        ("P103", "p.yaml:16:10"),
    ]
    assert loaded.spec is not None
    assert [read.read for read in loaded.spec.steps["a"].reads] == ["idea", "b"]
    assert loaded.places.of("steps", "a", "reads", 1) == Place("p.yaml", 10, 22)
    assert list(loaded.spec.steps) == ["a", "b"]
    assert loaded.damaged("steps", "c")
    assert loaded.damaged("steps", "b", "prompt")
    assert not loaded.damaged("steps", "a", "prompt")
    assert not loaded.damaged("inputs", "idea")


def test_every_fault_carries_its_line_and_unknown_keys_the_nearest_word(load: Load) -> None:
    fault = only(load(HEAD + "  a:\n    promt: x\n"))
    assert (fault.source, fault.hint) == ("    promt: x", "Did you mean 'prompt'?")
    assert fault.message == "'promt' is not a key of a step"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    prompt: 5\n", "'prompt' must be text, not the number 5"),
        ("    prompt: [a]\n", "'prompt' must be text, not a list"),
        ("    prompt:\n", "'prompt' is empty"),
        ('    reasks: "2"\n', "'reasks' must be a whole number, not the text '2'"),
        ("    reasks: true\n", "'reasks' must be a whole number, not true"),
        ("    reasks: 99\n", "'reasks' must be at most 20, not the number 99"),
        ("    max_output_tokens: 1e3\n", "'max_output_tokens' must be a whole number, not the number 1e3"),
        ("    max_output_tokens: 0\n", "'max_output_tokens' must be more than 0, not the number 0"),
        ("    reads: idea\n", "'reads' must be a list, not the text 'idea'"),
        ("    reads:\n", "'reads' must be a list, not empty"),
        ("    reads: [{guard: x}]\n", "'read' is missing in a read"),
        ("    reads: [{read: x, fields: []}]\n", "'fields' must be a list, not empty"),
        ("    conversation: false\n", "'conversation' must be off, or {messages, tokens}, not false"),
        ("    checks: [{message: x}]\n", "a check has either 'expr' or 'python'"),
        ("    effort: hihg\n", "'effort' must be none, minimal, low, medium, high, xhigh or max, not the text 'hihg'"),
        ("    timeout: soon\n", "'timeout' is not right: write a duration as a number and a unit: 30s, 10m, 2h"),
        ("    <<: {prompt: x}\n", "merge keys (<<) are not used here"),
    ],
)
def test_plain_sentences(load: Load, text: str, words: str) -> None:
    assert only(load(HEAD + "  a:\n" + text)).message == words


MODEL = "pipeline: p\nmodels: {{default: {{use: 'x:m', vendor_context: {{{}}}}}}}\nsteps: {{a: {{prompt: x}}}}\n"


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("steps: {a: {prompt: x}}\n", "P102", "p.yaml:1:1"),
        ("pipeline: p\n", "P102", "p.yaml:1:1"),
        ("pipeline: p\nsteps: {}\n", "P102", "p.yaml:2:1"),
        ("pipeline: My Study\nsteps: {a: {prompt: x}}\n", "P106", "p.yaml:1:11"),
        ("pipeline: p\nversion: 2\nsteps: {a: {prompt: x}}\n", "P103", "p.yaml:2:10"),
        ("pipeline: p\nversion: true\nsteps: {a: {prompt: x}}\n", "P103", "p.yaml:2:10"),
        ("pipeline: p\nsteps: {Tech Stack: {prompt: x}}\n", "P106", "p.yaml:2:9"),
        ("pipeline: p\nbudget: {usd: plenty}\nsteps: {a: {prompt: x}}\n", "P103", "p.yaml:2:15"),
        ("pipeline: p\nbudget: {usd: -1}\nsteps: {a: {prompt: x}}\n", "P103", "p.yaml:2:15"),
        ("pipeline: p\nbudget: {on_exceed: fail}\nsteps: {a: {prompt: x}}\n", "P102", "p.yaml:2:1"),
        ("pipeline: p\ninputs:\nsteps: {a: {prompt: x}}\n", "P103", "p.yaml:2:8"),
        (MODEL.format("compact: 9000"), "P101", "p.yaml:2:49"),
        (MODEL.format("compact_at: soon"), "P103", "p.yaml:2:61"),
        ("- a\n", "P005", "p.yaml:1:1"),
        ("just text\n", "P005", "p.yaml:1:1"),
        ("", "P004", "p.yaml:1:1"),
        ("pipeline: 'p\n", "P006", "p.yaml:1:11"),
    ],
)
def test_faults_of_the_whole_file(load: Load, text: str, code: str, place: str) -> None:
    fault = only(load(text))
    assert (fault.code, str(fault.place)) == (code, place)


def test_a_name_that_is_not_allowed_comes_with_one_that_is(load: Load) -> None:
    assert only(load(HEAD + "  Tech Stack: {prompt: x}\n")).hint == "For example 'tech-stack'."


# --- labels and guards ---


def test_R002_a_contract_without_about_or_not_for_names_artifact_step_file_and_line(load: Load) -> None:
    text = "artifacts:\n  rates: {schema: text}\npipeline: p\nsteps:\n  cost: {prompt: x, produces: rates}\n"
    loaded = load(text)
    about, not_for = loaded.diagnostics
    assert faults(loaded) == [("P104", "p.yaml:2:3"), ("P104", "p.yaml:2:3")]
    assert about.message == (
        "contract 'rates' (made by step 'cost') does not say what its value represents: 'about' is missing"
    )
    assert "must not be used for: 'not_for' is missing" in not_for.message
    assert "not_for: none" in (not_for.hint or "")
    assert loaded.spec is not None
    assert "rates" in loaded.spec.artifacts


def test_R002_a_contract_of_the_shelf_needs_both_parts(project: Project, write: Write) -> None:
    path = write("artifacts/rates.yaml", "artifact: rates\nschema: text\nabout: ''\n")
    _, places, found = load_contract(project, path, steps=["cost"])
    assert [(d.code, str(d.place)) for d in found] == [
        ("P103", "artifacts/rates.yaml:3:8"),
        ("P104", "artifacts/rates.yaml:1:1"),
    ]
    assert "contract 'rates' (made by step 'cost')" in found[1].message
    assert places.of("schema") == Place("artifacts/rates.yaml", 2, 9)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("not a budget", 'Write it as a list: ["not a budget"]'),
        ("[]", "Write `not_for: none`."),
        ("no", 'Write it as a list: ["no"]'),
        ("5", "Write `not_for: none`."),
    ],
)
def test_not_for_is_a_list_or_the_word_none(project: Project, write: Write, written: str, said: str) -> None:
    path = write("artifacts/r.yaml", f"artifact: r\nabout: Rates.\nschema: text\nnot_for: {written}\n")
    _, _, (fault,) = load_contract(project, path)
    assert (fault.code, fault.hint, str(fault.place)) == ("P103", said, "artifacts/r.yaml:4:10")


def test_contracts_of_the_shelf(project: Project, write: Write) -> None:
    path = write("artifacts/r.yaml", 'artifact: r\nabout: A.\nnot_for: ["N."]\nschema: "s.py:R"\ntags: [t]\n')
    spec, _, found = load_contract(project, path)
    assert found == ()
    assert spec == ContractSpec(artifact="r", about="A.", not_for=("N.",), schema_="s.py:R", tags=("t",))
    other = write("artifacts/q.yaml", "artifact: r\nabout: A.\nnot_for: none\nschema: text\n")
    assert [d.code for d in load_contract(project, other)[2]] == ["P110"]
    bare = write("artifacts/b.yaml", "about: A.\nnot_for: none\nschema: 5\n")
    assert [d.code for d in load_contract(project, bare)[2]] == ["P102", "P103"]
    assert [d.code for d in load_contract(project, project.root / "artifacts/none.yaml")[2]] == ["P001"]


@pytest.mark.parametrize("kind", ["text", "file", "customer-brief"])
def test_inputs_that_hold_text_must_say_what_they_represent(load: Load, kind: str) -> None:
    loaded = load(f"pipeline: p\ninputs:\n  brief: {{type: {kind}}}\nsteps: {{a: {{prompt: x}}}}\n")
    assert faults(loaded) == [("P105", "p.yaml:3:3")]
    assert "input 'brief'" in loaded.diagnostics[0].message


@pytest.mark.parametrize("kind", ["string", "number", "integer", "boolean"])
def test_simple_inputs_need_not(load: Load, kind: str) -> None:
    assert load(f"pipeline: p\ninputs:\n  n: {{type: {kind}}}\nsteps: {{a: {{prompt: x}}}}\n").diagnostics == ()


@pytest.mark.parametrize(
    ("kind", "default", "fits"),
    [
        ("string", "no", True),
        ("string", "5", False),
        ("integer", "5", True),
        ("integer", "5.5", False),
        ("integer", "true", False),
        ("number", "1e3", True),
        ("number", '"5"', False),
        ("boolean", "true", True),
        ("boolean", "no", False),
        ("number", "null", True),
    ],
)
def test_A21c_a_default_is_of_the_inputs_type(load: Load, kind: str, default: str, fits: bool) -> None:
    loaded = load(
        f"pipeline: p\ninputs:\n  n: {{type: {kind}, about: N, default: {default}}}\nsteps: {{a: {{prompt: x}}}}\n"
    )
    assert [d.code for d in loaded.diagnostics] == ([] if fits else ["P112"])


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ("type: string, enum: [dry, warm], default: dry", []),
        ("type: string, enum: [dry, dry]", ["P103"]),
        ("type: string, enum: dry", ["P103"]),
        ("type: string, enum: []", ["P103"]),
        ("type: integer, enum: [one]", ["P103"]),
    ],
)
def test_only_a_line_of_text_is_one_of_some_words(load: Load, said: str, codes: list[str]) -> None:
    loaded = load(f"pipeline: p\ninputs:\n  tone: {{{said}}}\nsteps: {{a: {{prompt: x}}}}\n")
    assert [d.code for d in loaded.diagnostics] == codes


def test_a_guard_that_became_a_mapping(load: Load) -> None:
    read = "      - read: b\n        guard:\n          Note: not a budget\n"
    fault = only(load(HEAD + "  a:\n    prompt: x\n    reads:\n" + read))
    assert (fault.code, str(fault.place)) == ("P017", "p.yaml:8:11")
    assert fault.message.endswith("Note: not a budget")


def test_a_not_for_entry_that_became_a_mapping(project: Project, write: Write) -> None:
    path = write("artifacts/r.yaml", "artifact: r\nabout: A.\nschema: text\nnot_for:\n  - Not: a budget\n  - Not b.\n")
    spec, places, (fault,) = load_contract(project, path)
    assert (fault.code, str(fault.place)) == ("P017", "artifacts/r.yaml:5:5")
    assert spec is not None
    assert spec.not_for == ("Not b.",)
    assert places.of("not_for", 0) == Place("artifacts/r.yaml", 6, 5)


# --- later and refused keys ---


@pytest.mark.parametrize(
    "key",
    [
        *["recall", "memory", "chat", "require"],
        *["fallback", "updates", "tripwires", "select", "from"],
    ],
)
def test_keys_of_later_versions_of_a_step(load: Load, key: str) -> None:
    fault = only(load(HEAD + f"  a:\n    prompt: x\n    {key}: y\n"))
    assert (fault.code, str(fault.place)) == ("P150", "p.yaml:5:5")
    assert fault.message == f"{key!r} in a step is not available yet"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("memory: {}\n", "p.yaml:3:1"),
        ("artifacts: {r: {about: A, not_for: none, schema: text, tripwires: []}}\n", "p.yaml:3:56"),
    ],
)
def test_later_keys_elsewhere(load: Load, text: str, place: str) -> None:
    fault = only(load("pipeline: p\nsteps: {a: {prompt: x}}\n" + text))
    assert (fault.code, str(fault.place)) == ("P150", place)
    assert "not available yet" in fault.message


@pytest.mark.parametrize("key", ["raw", "previous_response_id", "chain"])
@pytest.mark.parametrize("where", ["step", "read"])
def test_R001_R025_raw_content_and_chaining_across_steps_are_refused(load: Load, key: str, where: str) -> None:
    line = f"  a: {{prompt: x, {key}: true}}\n" if where == "step" else f"  a: {{reads: [{{read: b, {key}: true}}]}}\n"
    fault = only(load(HEAD + line))
    assert (fault.code, fault.message) == ("P151", f"{key!r} is refused in a {where}")
    assert ("label" if key == "raw" else "rebuilt") in (fault.hint or "")


# --- step definitions ---


def test_a_used_definition_is_the_base_and_keeps_its_places(load: Load, write: Write, project: Project) -> None:
    file = write(
        "steps/market-sizing.yaml",
        "step: market-sizing\ndescription: Sizes.\ntemplate: sizing.md.j2\nreads: [idea, brief]\n"
        "tools: ['t.py:f']\nproduces: sizes\n",
    )
    loaded = load(HEAD + "  sizing:\n    uses: market-sizing\n    reads: [idea]\n    reasks: 3\n")
    assert loaded.diagnostics == ()
    assert loaded.spec is not None
    step = loaded.spec.steps["sizing"]
    assert (step.uses, step.template, step.produces, step.reasks) == ("market-sizing", "sizing.md.j2", "sizes", 3)
    assert step.reads == (ReadSpec(read="idea"),)
    assert loaded.places.of("steps", "sizing", "template") == Place("steps/market-sizing.yaml", 3, 11)
    assert loaded.places.of("steps", "sizing", "reads", 0) == Place("p.yaml", 5, 13)
    assert loaded.places.line(Place("steps/market-sizing.yaml", 3, 1)) == "template: sizing.md.j2"
    assert loaded.base("sizing", "template") == file
    assert loaded.base("sizing", "tools") == file
    assert loaded.base("sizing", "reads") == project.root / "p.yaml"


def test_a_task_given_at_the_use_replaces_the_definitions(load: Load, write: Write) -> None:
    write("steps/s.yaml", "template: s.md.j2\nproduces: sizes\n")
    loaded = load(HEAD + "  a: {uses: s, prompt: Mine}\n")
    assert loaded.spec is not None
    assert (loaded.spec.steps["a"].template, loaded.spec.steps["a"].prompt) == (None, "Mine")


def test_a_definition_beside_the_file_comes_before_the_shelf(load: Load, write: Write) -> None:
    write("steps/s.yaml", "prompt: shelf\n")
    write("s.yaml", "prompt: beside\n")
    loaded = load(HEAD + "  a: {uses: s.yaml}\n  b: {uses: s}\n")
    assert loaded.spec is not None
    assert [step.prompt for step in loaded.spec.steps.values()] == ["beside", "shelf"]


def test_faults_of_a_definition_stand_once_in_its_own_file(load: Load, write: Write) -> None:
    write("steps/s.yaml", "prompt: x\nuses: t\npromptt: y\nreads:\n  - {read: a, guard: b, c}\n")
    loaded = load(HEAD + "  a: {uses: s}\n  b: {uses: s}\n")
    assert faults(loaded) == [
        ("P109", "steps/s.yaml:2:1"),
        ("P101", "steps/s.yaml:3:1"),
        ("P016", "steps/s.yaml:5:22"),
    ]
    assert [d.source for d in loaded.diagnostics if d.code == "P101"] == ["promptt: y"]


def test_definitions_that_are_not_there(load: Load, write: Write) -> None:
    write("steps/sizing.yaml", "prompt: x\n")
    write("steps/odd.yaml", "step: other\nprompt: x\n")
    write("steps/list.yaml", "- x\n")
    write("sub.yaml", "pipeline: sub\nsteps: {a: {prompt: x}}\n")
    loaded = load(
        HEAD + "  a: {uses: sizng}\n  b: {uses: ../../etc/passwd}\n  c: {uses: sub.yaml}\n  d: {uses: sub}\n"
        "  e: {uses: odd}\n  f: {uses: list}\n  g: {uses: 5}\n"
    )
    assert faults(loaded) == [
        ("P107", "p.yaml:3:13"),
        ("P108", "p.yaml:4:13"),
        ("P103", "p.yaml:9:13"),
        ("P005", "steps/list.yaml:1:1"),
        ("P110", "steps/odd.yaml:1:7"),
    ]
    assert loaded.diagnostics[0].hint == "Did you mean 'sizing'?"
    assert loaded.damaged("steps", "a")
    assert set(loaded.pipelines) == {"c", "d"}


def test_S24_a_pipeline_or_definition_behind_a_link_out_of_the_project_is_not_read(
    project: Project, load: Load, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "s.yaml"
    outside.write_text("pipeline: p\nprompt: secret\nsteps: {a: {prompt: x}}\n")
    (project.root / "steps").mkdir()
    (project.root / "steps" / "s.yaml").symlink_to(outside)
    (project.root / "linked.yaml").symlink_to(outside)
    assert [d.code for d in load(HEAD + "  a: {uses: s}\n").diagnostics] == ["P108"]
    loaded = load_pipeline(project, project.root / "linked.yaml")
    assert (loaded.spec, [d.code for d in loaded.diagnostics]) == (None, ["P108"])


# --- ${env:…} ---


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('models: {m: {use: "openai:x", effort: "${env:EFFORT}"}}\n', "p.yaml:3:39"),
        ('system: "key ${env:ORCH_MODEL}"\n', "p.yaml:3:9"),
        ('inputs: {i: {type: string, default: "${env:HOME}"}}\n', "p.yaml:3:37"),
    ],
)
def test_S24_env_stands_in_the_use_of_models_only(load: Load, text: str, place: str) -> None:
    loaded = load("pipeline: p\nsteps: {a: {prompt: x}}\n" + text)
    assert [str(d.place) for d in loaded.diagnostics if d.code == "P111"] == [place]
    assert load('pipeline: p\nsteps: {a: {prompt: x}}\nmodels: {m: {use: "${env:ORCH_MODEL}"}}\n').diagnostics == ()


def test_S24_env_is_refused_in_contracts_and_definitions_too(project: Project, load: Load, write: Write) -> None:
    path = write("artifacts/r.yaml", 'artifact: r\nabout: "${env:A}"\nnot_for: none\nschema: text\n')
    assert [d.code for d in load_contract(project, path)[2]] == ["P111"]
    write("steps/s.yaml", 'prompt: "${env:A}"\n')
    assert faults(load(HEAD + "  a: {uses: s}\n")) == [("P111", "steps/s.yaml:1:9")]


# --- anything at all ---

_WORDS = st.sampled_from(["x", "off", "none", "${env:A}", ""])
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 99), _WORDS)
_KEYS = st.sampled_from(
    [
        *["pipeline", "steps", "inputs", "artifacts", "models", "budget", "usd", "outputs", "reads", "read", "uses"],
        *["a", "prompt", "checks", "not_for", "about", "schema", "type", "default", "conversation", "fields", "guard"],
    ]
)
_DATA = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=5)),
    max_leaves=20,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_KEYS, _DATA, max_size=7))
def test_S25_whatever_stands_in_a_file_gives_faults_or_a_spec(load: Load, data: dict[str, object]) -> None:
    import json

    loaded = load(json.dumps(data))
    assert loaded.diagnostics or loaded.spec is not None
    for fault in loaded.diagnostics:
        assert fault.place is not None
        assert fault.place.line >= 1
        assert fault.message
        assert fault.source is not None
