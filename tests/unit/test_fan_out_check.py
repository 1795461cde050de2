"""What `orch check` says of a step with `for_each`, before any list exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import Diagnostic
from orchestrator.graph import Graph, build_graph, check_pipeline, downstream
from orchestrator.project import Project
from orchestrator.settings import load_settings

ENTRY = {
    "type": "object",
    "properties": {"slug": {"type": "string"}, "size": {"type": "integer"}, "home-page": {"type": "string"}},
    "required": ["slug"],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "found": {"type": "array", "items": {"$ref": "#/$defs/rival"}},
        "words": {"type": "array", "items": {"type": "string"}},
        "inner": {"type": "object", "properties": {"list": {"type": "array", "items": ENTRY}}},
        "maybe": {"anyOf": [{"type": "array", "items": ENTRY}, {"type": "null"}]},
        "loose": {"type": "array"},
        "flags": {"type": "array", "items": {"type": "boolean"}},
        "name": {"type": "string"},
    },
    "required": ["found"],
    "$defs": {"rival": ENTRY},
}
RIVALS = {"python": "code.py:find", "reads": ["idea"]}
CODE = """
def find(idea): return {}
def one(rival): return "x"
def two(rival, profile): return "x"
def check(value, rival): return None
def checked(value, entry): return None
"""


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("orchestrator.toml", "")
        self.write("code.py", CODE)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        return path

    def pipeline(self, steps: dict[str, Any]) -> Path:
        text = {"about": "A text.", "not_for": "none", "schema": "text"}
        data = {
            "version": 1,
            "pipeline": "p",
            "inputs": {
                "idea": {"type": "text", "about": "An idea."},
                "brief": {"type": "rivals", "about": "Known rivals.", "default": {"found": []}},
            },
            "artifacts": {
                "rivals": {"about": "Rivals found.", "not_for": ["Not a ranking."], "schema": SCHEMA},
                **dict.fromkeys(["profile", "plan", "summary"], text),
            },
            "steps": {"rivals": RIVALS, **steps},
            "outputs": [*steps, "idea", "brief"],
        }
        return self.write("p.yaml", yaml.safe_dump(data, sort_keys=False, width=10_000))

    def check(self, steps: dict[str, Any]) -> tuple[Graph | None, tuple[Diagnostic, ...]]:
        project = Project(self.root, self.root / "orchestrator.toml", {})
        settings = load_settings(project, {"ORCH_MODEL": "scripted:answers", "HOME": str(self.root)})
        return check_pipeline(project, settings, self.pipeline(steps))

    def faults(self, steps: dict[str, Any]) -> list[tuple[str, str]]:
        return [(d.code, d.message) for d in self.check(steps)[1] if d.level == "error"]

    def graph(self, steps: dict[str, Any]) -> Graph:
        project = Project(self.root, self.root / "orchestrator.toml", {})
        settings = load_settings(project, {"ORCH_MODEL": "scripted:answers", "HOME": str(self.root)})
        return build_graph(project, settings, self.pipeline(steps))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path.resolve())


def profile(prompt: Any = "Profile it.", **for_each: Any) -> dict[str, Any]:
    given = {"item": "rival", "in": "rivals.found", "key": "slug", **for_each}
    return {"prompt": prompt, "for_each": {key: value for key, value in given.items() if value is not None}}


SUMMARY = {"prompt": "Sum up.", "reads": ["profile"]}


def test_a_fan_out_waits_for_its_list_and_is_read_whole(world: World) -> None:
    graph = world.graph({"profile": profile("See {{ item }}"), "summary": SUMMARY})
    step = graph.steps["profile"]
    assert step.for_each is not None
    assert step.parents == ("rivals",)
    assert step.for_each.list_name == "rivals.found"
    assert step.for_each.entry.not_for == ("Not a ranking.",)
    assert [(read.name, read.kind, read.source) for read in step.reads] == [("rival", "entry", "rivals")]
    assert graph.steps["summary"].reads[0].takes == "each"
    assert downstream(graph, ["rivals"]) == {"profile", "summary"}


def test_a_list_may_be_an_inputs_and_stand_deeper_and_be_null(world: World) -> None:
    graph = world.graph({"profile": profile(**{"in": "brief.inner.list"}), "plan": profile(**{"in": "rivals.maybe"})})
    assert graph.steps["profile"].parents == ()
    assert downstream(graph, ["brief"]) == {"profile"}


def test_entries_that_are_texts_are_their_own_keys(world: World) -> None:
    step = world.graph({"profile": profile(**{"in": "rivals.words", "key": None})}).steps["profile"]
    assert step.for_each is not None
    assert (step.for_each.key, step.for_each.entry.form) == ((), "text")


def test_a_joined_step_reads_its_sibling_and_others_read_each(world: World) -> None:
    plan = {"prompt": "Plan. {{ item }} {{ block('profile') }}", "for_each": {"item": "rival", "same": "profile"}}
    more = {"prompt": "x", "for_each": {"item": "rival", "same": "plan"}, "reads": ["profile"], "produces": "summary"}
    graph = world.graph({"profile": profile(at_most=7), "plan": plan, "more": more, "summary": SUMMARY})
    assert graph.steps["plan"].parents == ("profile",)
    assert {read.name: read.takes for read in graph.steps["plan"].reads} == {"profile": "sibling", "rival": "one"}
    assert {read.name: read.takes for read in graph.steps["more"].reads} == {
        "profile": "sibling", "plan": "sibling", "rival": "one",
    }  # fmt: skip
    joined = graph.steps["plan"].for_each
    assert joined is not None
    assert (joined.at_most, joined.list_name, joined.same) == (7, "rivals.found", "profile")


def test_a_python_item_gets_its_entry_by_name(world: World) -> None:
    steps = {
        "profile": {
            "python": "code.py:one",
            "for_each": profile()["for_each"],
            "checks": [{"python": "code.py:check"}],
        },
        "plan": {"python": "code.py:two", "for_each": {"item": "rival", "same": "profile"}},
    }
    assert world.faults(steps) == []


NO_LIST = "step profile: {} is no list whose entries are described"
NO_KEY = "step profile: nothing says which field names an entry: key is missing"
NEITHER = ", which is neither a step nor an input"
EITHER = "'for_each' has either 'in' or 'same'"


def without_task(**for_each: Any) -> dict[str, Any]:
    return {"prompt": "x", "for_each": for_each}


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        (profile(**{"in": "rivals.fond"}), "P260", "step profile: rivals has no field fond"),
        (profile(**{"in": "rivals.inner.lst"}), "P260", "step profile: rivals.inner has no field lst"),
        (profile(**{"in": "rivals.name"}), "P260", NO_LIST.format("rivals.name")),
        (profile(**{"in": "rivals.loose"}), "P260", NO_LIST.format("rivals.loose")),
        (profile(**{"in": "rivals"}), "P260", NO_LIST.format("rivals")),
        (profile(**{"in": "idea.x"}), "P260", "step profile: idea is text and holds no list"),
        (profile(**{"in": "rival.found"}), "P201", "the list of step profile is in rival" + NEITHER),
        (profile(**{"in": "profile.x"}), "P203", "step profile: its list is its own value"),
        (profile(key=None), "P261", NO_KEY),
        (profile(key="slog"), "P261", "step profile: its entries have no field slog"),
        (profile(**{"in": "rivals.words"}), "P261", "step profile: its entries are no objects, so they have no slug"),
        (profile(**{"in": "rivals.flags", "key": None}), "P261", NO_KEY),
        (without_task(item="rival", same="rivals"), "P262", "step profile: rivals is no other step with for_each"),
        (without_task(item="rival", same="profile"), "P262", "step profile: profile is no other step with for_each"),
        (without_task(item="rival", same="nobody"), "P201", "step profile is joined with nobody" + NEITHER),
        (profile(item="idea"), "P263", "step profile: its entries are called idea, and so is something else"),
        (profile(item="inputs"), "P263", "step profile: its entries are called inputs, and so is something else"),
        (profile(where="siz > 3"), "P229", "step profile: where 'siz > 3': an entry has no field siz"),
        (profile(where="rival.siz > 3"), "P229", "step profile: where 'rival.siz > 3': an entry has no field siz"),
        (profile(where="home-page != 'x'"), "P229", None),
        (profile(where="size >"), "P229", None),
        (profile("{{ item.slug }}"), "P214", "step profile: `item` stands for the whole entry and has no parts"),
        (profile("{{ item['slug'] }}"), "P214", "step profile: `item` stands for the whole entry and has no parts"),
        (profile("{{ quote('rival', 'slog') }}"), "P213", "step profile: rival has no field slog"),
        ({"prompt": "x", "for_each": {"in": "rivals.found", "same": "rivals"}}, "P103", EITHER),
        ({"prompt": "x", "for_each": {"item": "rival"}}, "P103", EITHER),
        ({"prompt": "x", "for_each": "rivals.found"}, "P103", None),
        (profile(at_most=0), "P103", None),
        (profile(over="stop"), "P103", None),
        (profile(each="x"), "P101", "'each' is not a key of 'for_each'"),
        ({"python": "code.py:find", "for_each": profile()["for_each"]}, "P224", None),
        ({**profile(), "checks": [{"python": "code.py:checked"}]}, "P224", None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once_at_its_place(
    world: World, step: dict[str, Any], code: str, message: str | None
) -> None:
    faults = world.faults({"profile": step})
    assert [found for found, _ in faults] == [code], faults
    if message is not None:
        assert faults[0][1] == message


@pytest.mark.parametrize("template", ["{{ item }}", "{% for item in range(3) %}{{ item }}{% endfor %}", "no entry"])
def test_an_item_may_be_placed_or_not(world: World, template: str) -> None:
    assert world.faults({"profile": profile(template)}) == []


def test_what_is_one_value_for_each_key_is_not_quoted_and_not_listed(world: World) -> None:
    quoted = {**SUMMARY, "prompt": "{{ quote('profile', 'x') }}"}
    assert [code for code, _ in world.faults({"profile": profile(), "summary": quoted})] == ["P214"]
    again = {"prompt": "x", "for_each": {"item": "one", "in": "profile.items", "key": "x"}}
    assert [code for code, _ in world.faults({"profile": profile(), "summary": again})] == ["P260"]
    default = {**SUMMARY, "reads": [{"read": "profile", "default": "none"}]}
    assert [code for code, _ in world.faults({"profile": profile(), "summary": default})] == ["P208"]


def test_steps_that_are_joined_in_a_circle_wait_for_each_other(world: World) -> None:
    steps = {
        "profile": without_task(item="rival", same="plan"),
        "plan": without_task(item="rival", same="profile"),
    }
    assert [code for code, _ in world.faults(steps)] == ["P203"]


def test_a_place_in_the_graphs_digest(world: World) -> None:
    """A fan-out that is bounded otherwise is another pipeline."""
    one, two = (world.graph({"profile": profile(at_most=most)}).digest for most in (3, 4))
    assert one != two
