"""What `orch check` says of a step that uses another pipeline, and that YAML and Python say the same of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import Diagnostic, UsageError
from orchestrator.graph import Graph, check_pipeline
from orchestrator.project import Project
from orchestrator.selection import select
from orchestrator.settings import load_settings

REPORT = """pipeline: report
inputs:
  topic: {type: text, about: "What it is about."}
  length: {type: integer, default: 3}
artifacts:
  outline: {about: "The outline.", not_for: none, schema: text}
  report: {about: "The report.", not_for: none, schema: text}
steps:
  outline: {reads: [topic, length], prompt: "Outline."}
  report: {reads: [outline], prompt: "Report."}
"""
HEAD = """pipeline: study
inputs:
  idea: {type: text, about: "The idea."}
  many: {type: points, about: "The points."}
artifacts:
  points:
    about: "Points."
    not_for: none
    schema:
      type: object
      properties:
        names: {type: array, items: {type: string}}
        count: {type: integer}
        lead: {type: string}
      required: [names]
      additionalProperties: false
  sum: {about: "The sum.", not_for: none, schema: text}
steps:
"""
SUM = '  sum: {reads: [idea, many, study], prompt: "Sum up."}\n'


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("orchestrator.toml", "")
        self.write("pipelines/report.yaml", REPORT)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def check(self, name: str) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
        project = Project(self.root, self.root / "orchestrator.toml", {})
        settings = load_settings(project, {"HOME": str(self.root), "ORCH_MODEL": "scripted:answers"})
        return check_pipeline(project, settings, self.root / name)

    def steps(self, text: str, last: str = SUM) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
        self.write("study.yaml", HEAD + text + last)
        return self.check("study.yaml")

    def built(self, text: str, last: str = SUM) -> Graph:
        graph, found = self.steps(text, last)
        assert graph is not None, found
        assert not found
        return graph


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("given", "code", "place", "says"),
    [
        ("{}", "P273", "20:5", "step study: report needs the input topic"),
        ("{topc: idea, topic: idea}", "P273", "21:12", "report has no input topc"),
        ("{topic: ida}", "P201", "21:19", "topic is given ida, which is neither a step nor an input"),
        ("{topic: many}", "P275", "21:19", "topic of the pipeline takes text, and many is a points"),
        ("{topic: many.count}", "P275", "21:19", "takes text, and many.count is integer"),
        ("{topic: many.led}", "P275", "21:19", "many has no field led"),
        ("{topic: idea, length: many.lead}", "P275", "21:33", "length of the pipeline takes a whole number"),
        ("{topic: idea, length: {value: three}}", "P275", "21:33", "the value of length does not fit integer"),
        ("{topic: idea, length: 4}", "P103", "21:33", "'length' in 'with' must name what the input is given"),
        ("{topic: {read: idea, value: x}}", "P103", "21:19", "has either 'read' or 'value'"),
        ("{topic: study}", "P203", "21:19", "topic is given its own value"),
    ],
)
def test_what_is_given_is_checked_ahead_of_any_run(world: World, given: str, code: str, place: str, says: str) -> None:
    """A14: missing, unknown and of another type, each named with its place."""
    _, found = world.steps(f"  study:\n    uses: report\n    with: {given}\n".replace("    with: {}\n", ""))
    assert [fault.code for fault in found] == [code]
    assert says in found[0].message
    assert str(found[0].place) == f"study.yaml:{place}"


def test_pipelines_that_use_each_other_are_refused_by_name(world: World) -> None:
    world.write("pipelines/one.yaml", REPORT.replace("pipeline: report", "pipeline: one").replace(
        'outline: {reads: [topic, length], prompt: "Outline."}', "outline: {uses: two, with: {topic: topic}}"
    ))  # fmt: skip
    world.write("pipelines/two.yaml", REPORT.replace("pipeline: report", "pipeline: two").replace(
        'outline: {reads: [topic, length], prompt: "Outline."}', "outline: {uses: one, with: {topic: topic}}"
    ))  # fmt: skip
    graph, found = world.steps("  study: {uses: one, with: {topic: idea}}\n")
    assert graph is None
    (fault,) = [fault for fault in found if fault.level == "error"]
    assert fault.code == "P271"
    assert "these pipelines use each other: one → two → one" in fault.message
    assert fault.place is not None
    assert fault.place.file == "pipelines/two.yaml"


def test_faults_of_a_used_pipeline_stand_in_its_own_file(world: World) -> None:
    world.write("pipelines/report.yaml", REPORT.replace("reads: [outline]", "reads: [outlin]"))
    graph, found = world.steps("  study: {uses: report, with: {topic: idea}}\n")
    assert graph is None
    assert [(fault.code, str(fault.place)) for fault in found if fault.level == "error"] == [
        ("P201", "pipelines/report.yaml:10:20")
    ]


def test_only_outputs_have_names_outside(world: World) -> None:
    _, found = world.steps("  study: {uses: report, with: {topic: idea}}\n", SUM.replace("study]", "study.outline]"))
    fault = next(fault for fault in found if fault.level == "error")
    assert fault.code == "P274"
    assert "outline is none of its outputs: study uses report, of which is read study.report" in fault.message


def test_selections_and_groups_name_what_is_inside(world: World) -> None:
    graph = world.built("  study: {uses: report, with: {topic: idea, length: many.count}}\n")
    inside = ("study.topic", "study.length", "study.outline", "study.report")
    assert select("study", graph) == select("study.*", graph) == inside
    assert select("study+", graph) == (*inside, "sum")
    assert select("study.outline+", graph) == ("study.outline", "study.report", "sum")
    assert select("study.outline or sum", graph) == ("study.outline", "sum")
    assert select("idea+1 and study", graph) == ("study.topic",)
    with pytest.raises(UsageError, match=r'has no step "studi"'):
        select("studi", graph)
    assert graph.steps["sum"].parents == ("study.report",)
    assert graph.steps["sum"].reads[-1].called == "study"


PYTHON = """
from orchestrator import Pipeline

p = Pipeline("study")
idea = p.input("idea", "text", about="The idea.")
many = p.input("many", "points", about="The points.")
study = p.use("study", {pipeline}, inputs={{"topic": idea, "length": "many.count"}})
p.llm("sum", reads=[idea, many, study], prompt="Sum up.")
"""
INNER = """
from orchestrator import Pipeline

report = Pipeline("report")
report.input("topic", "text", about="What it is about.")
report.input("length", int, default=3)
report.llm("outline", reads=["topic", "length"], prompt="Outline.")
report.llm("report", reads=["outline"], prompt="Report.")
"""
SHELF = {
    "points": HEAD[HEAD.index('    about: "Points') : HEAD.index("  sum:")].replace("\n    ", "\n").strip(),
    "sum": 'about: "The sum."\nnot_for: none\nschema: text',
}


@pytest.mark.parametrize("declared", ['"report"', "report"])
def test_yaml_and_python_are_the_same_pipeline(world: World, declared: str) -> None:
    """For a pipeline of the project by its name, and for one that is declared in Python too."""
    for name, text in SHELF.items():
        world.write(f"artifacts/{name}.yaml", f"artifact: {name}\n{text}\n")
    world.write("artifacts/outline.yaml", 'artifact: outline\nabout: "The outline."\nnot_for: none\nschema: text\n')
    world.write("artifacts/report.yaml", 'artifact: report\nabout: "The report."\nnot_for: none\nschema: text\n')
    start, end = HEAD.index("artifacts:"), HEAD.index("steps:")
    yaml = HEAD[:start] + HEAD[end:]
    world.write("study.yaml", yaml + "  study: {uses: report, with: {topic: idea, length: many.count}}\n" + SUM)
    one, faults = world.check("study.yaml")
    assert one is not None, faults
    if declared == "report":
        world.write("pipelines/inner.py", INNER)
        text = "from .inner import report\n" + PYTHON.format(pipeline=declared)
    else:
        text = PYTHON.format(pipeline=declared)
    world.write("pipelines/study2.py", text)
    two, faults = world.check("pipelines/study2.py")
    assert two is not None, faults
    assert one.spec.steps == two.spec.steps
    assert {n: s.digest for n, s in one.steps.items()} == {n: s.digest for n, s in two.steps.items()}
    assert one.digest == two.digest
