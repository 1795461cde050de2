"""Fan-outs through the doors people use: `p.map` and functions in Python, and the command line on items."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator.cli import app
from orchestrator.errors import InvalidProject

STUDY = '''
"""What rivals do, and what to do about them."""

from collections.abc import Mapping

from pydantic import BaseModel

from orchestrator import Ctx, Pipeline, artifact


class Rival(BaseModel):
    slug: str
    size: int


@artifact(about="Competitors.", not_for=["Not a ranking."])
class Rivals(BaseModel):
    found: list[Rival]


@artifact(about="A competitor.", not_for="none")
class Profile(BaseModel):
    words: str


@artifact(about="How large a competitor is.", not_for="none")
class Weight(BaseModel):
    kilos: int


@artifact(about="All of them.", not_for="none")
class Summary(BaseModel):
    names: list[str]
    kilos: int


p = Pipeline("study", budget_usd="4.00", reasks=0)
idea = p.input("idea", str, about="What the customer wants.")
rivals = p.llm("rivals", produces=Rivals, reads=[idea], prompt="Find them.")
profile = p.map(
    "profile", over="rivals.found", key="slug", item="rival", produces=Profile, prompt="Profile {{ item }}",
    on_error="collect", at_most=20,
)


@p.step(for_each={"item": "rival", "same": "profile"})
def weight(rival: Rival, profile: Profile) -> Weight:
    return Weight(kilos=rival.size * len(profile.words))


@p.step
def summary(profiles: Mapping[str, Profile], weights: dict[str, Weight]) -> Summary:
    return Summary(names=[p.words for p in profiles.values()], kilos=sum(w.kilos for w in weights.values()))


p.outputs(summary)
'''
ANSWERS: dict[str, list[Any]] = {
    "rivals": [{"json": {"found": [{"slug": "acme", "size": 2}, {"slug": "beta", "size": 3}]}}],
    "profile/acme": [{"json": {"words": "big"}}],
    "profile/beta": [{"json": {"words": "small"}}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "study"
    (root / "answers" / "profile").mkdir(parents=True)
    (root / "orchestrator.toml").write_text('user = "ana"\n')
    (root / "study.py").write_text(STUDY)
    for name, replies in ANSWERS.items():
        answer(root, name, *replies)
    monkeypatch.setenv("ORCH_MODEL", "scripted:answers")
    monkeypatch.setenv("ORCH_TRUST", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(root)
    return root


def answer(folder: Path, name: str, *replies: Any) -> None:
    (folder / "answers" / f"{name}.json").write_text(json.dumps(replies))


@pytest.fixture
def study(folder: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("study_of_rivals", folder / "study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["study_of_rivals"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["study_of_rivals"]


def test_values_of_a_fan_out_are_mappings_of_the_declared_type(study: ModuleType) -> None:
    run = study.p.run(idea="a shop")
    assert (run.status, run.error) == ("succeeded", None)
    assert run.get(study.profile) == {"acme": study.Profile(words="big"), "beta": study.Profile(words="small")}
    assert run.get(study.weight) == {"acme": study.Weight(kilos=6), "beta": study.Weight(kilos=15)}
    assert run.get(study.summary) == study.Summary(names=["big", "small"], kilos=21)
    assert run.cost_usd == Decimal(0)


def test_a_parameter_says_whether_it_takes_one_value_or_one_for_each_key(folder: Path) -> None:
    from orchestrator.graph import build_graph
    from orchestrator.project import find_project
    from orchestrator.settings import load_settings

    def codes(old: str, new: str) -> list[tuple[str, str | None]]:
        assert old in STUDY
        (folder / "study.py").write_text(STUDY.replace(old, new))
        project = find_project(folder)
        try:
            build_graph(project, load_settings(project, {"ORCH_MODEL": "scripted:answers"}), folder / "study.py")
        except InvalidProject as error:
            return [(d.code, d.hint) for d in error.diagnostics if d.level == "error"]
        return []

    assert codes("x", "x") == []
    assert codes("profiles: Mapping[str, Profile]", "profiles: Profile") == [("P306", "write Mapping[str, Profile]")]
    one = codes("idea = p.input", "@p.step\ndef all_of(rivals: dict[str, Rivals]) -> Weight: ...\nidea = p.input")
    assert ("P306", "let the type be what it reads") in one


# --- the command line -------------------------------------------------------------------------------------------------

Orch = Callable[..., tuple[int, str]]


@pytest.fixture
def orch(folder: Path, capsys: pytest.CaptureFixture[str]) -> Orch:
    def run(*args: str) -> tuple[int, str]:
        capsys.readouterr()
        code = app.run(list(args))
        out, err = capsys.readouterr()
        return code, out + err

    return run


def test_items_are_shown_edited_and_compared_by_name(orch: Orch, folder: Path) -> None:
    code, text = orch("run", "--set", "idea=a shop")
    assert code == 0, text
    code, text = orch("show", "last")
    assert "profile/acme@1" in text
    assert "2 of 2" in text
    code, text = orch("show", "last/profile/acme")
    assert (code, '"words": "big"' in text) == (0, True), text
    code, text = orch("show", "last/profile")
    assert '"acme"' in text
    assert "Which items there are" in text
    code, text = orch("edit", "last/profile/acme", "--set", "words=huge")
    assert code == 0, text
    assert "1/profile/acme  v1 → v2 by ana · contract ok" in text
    assert "stale: summary  profile/acme v1→v2 (ana): words" not in text  # items have no entries for their fields
    assert "stale: summary  profile/acme v1→v2 (ana)" in text
    assert "restore 1/profile/acme@1" in text
    code, text = orch("history", "last/profile/acme")
    assert "v2" in text
    code, text = orch("diff", "last/profile/acme")
    assert "1/profile/acme@1 → 1/profile/acme@2" in text
    code, text = orch("restore", "last/profile/acme@1")
    assert code == 0, text
    code, text = orch("why", "last/profile/beta")
    assert "for_each: the entry of rivals" in text
    code, text = orch("render", "last/profile/beta")
    assert '"slug": "beta"' in text
    code, text = orch("export", "last/profile/acme", "--to", "acme.json")
    assert json.loads((folder / "acme.json").read_text()) == {"words": "big"}
    code, text = orch("export", "last", "--to", "out")
    assert (folder / "out" / "steps" / "profile" / "acme.json").is_file(), text
    code, text = orch("show", "last", "--select", "profile/acme")
    assert "profile/acme" in text
    assert "profile/beta" not in text
    assert "weight" not in text


def test_S07_a_pin_on_an_item_is_on_that_item(orch: Orch) -> None:
    assert orch("run", "--set", "idea=a shop")[0] == 0
    code, text = orch("pin", "last/profile/acme", "words")
    assert (code, "1/profile/acme  pinned: words by ana" in text) == (0, True), text
    assert "orch pin 1/profile/acme --remove" in text
    pins = {
        key: json.loads(orch("show", f"1/profile/{key}", "--json")[1])["artifact"]["pins"] for key in ("acme", "beta")
    }
    assert pins == {"acme": {"words": "ana"}, "beta": {}}
    code, text = orch("pin", "last/profile/acme", "--remove")
    assert (code, "nothing is pinned" in text) == (0, True), text


def test_R017_one_item_is_named_to_run_again(orch: Orch) -> None:
    """Issue 4 (7): `--from STEP/KEY` and `--only STEP/KEY` make that item anew and share the other."""
    assert orch("run", "--set", "idea=a shop")[0] == 0

    def made_in(run: int) -> dict[str, int]:
        return {
            key: json.loads(orch("show", f"{run}/profile/{key}", "--json")[1])["artifact"]["version"]
            for key in ("acme", "beta")
        }

    assert made_in(1) == {"acme": 1, "beta": 1}
    for run, option in ((2, "--from"), (3, "--only"), (4, "--select")):
        code, text = orch("rerun", "1", option, "profile/acme")
        assert code == 0, text
        assert made_in(run) == {"acme": 2, "beta": 1}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("rerun", "1", "--from", "profile/nobody"), 'profile has no item "nobody"'),
        (("show", "last/profile/nobody"), "profile/nobody not found"),
        (("edit", "last/profile", "--set", "x=1"), "it has no value of its own"),
        (("edit", "last/profile"), "it has no value of its own"),
        (("pin", "last/profile"), "pin one of its items: orch pin 1/profile/KEY"),
        (("render", "last/profile"), "is made for each entry of a list"),
        (("render", "last/profile/nobody"), "has no item nobody"),
        (("why", "last/profile/nobody"), 'no step "profile/nobody"'),
        (("show", "last/a/b/c"), "is not the name of a step"),
    ],
)
def test_what_is_no_item_is_refused_with_the_way_out(orch: Orch, args: tuple[str, ...], says: str) -> None:
    assert orch("run", "--set", "idea=a shop")[0] == 0
    code, text = orch(*args)
    assert code == 2, text
    assert says in text


def test_a_failure_is_told_in_one_line_and_what_is_missing_is_named(orch: Orch, folder: Path) -> None:
    answer(folder, "profile/beta", {"json": {"words": 5}})
    code, text = orch("run", "--set", "idea=a shop")
    assert code == 0, text
    assert "1 of 2" in text
    code, text = orch("show", "last")
    assert "1 of 2" in text
    assert "profile/beta" in text
    code, text = orch("--json", "show", "last")
    steps = {(step["name"], step["item"]): step["status"] for step in json.loads(text)["run"]["steps"]}
    assert steps["profile", "beta"] == "failed"
    assert steps["profile", None] == "succeeded"


def test_many_items_are_one_line_unless_all_are_wanted(orch: Orch, folder: Path) -> None:
    answer(folder, "rivals", {"json": {"found": [{"slug": f"r{n:02}", "size": 1} for n in range(12)]}})
    answer(folder, "profile", {"json": {"words": "x"}})
    code, text = orch("run", "--set", "idea=a shop")
    assert code == 0, text
    assert "profile: 12 items, 12 to do" in text
    assert "profile: 10 of 12" in text
    assert "profile/r03" not in text
    code, text = orch("show", "last")
    assert "12 of 12" in text
    assert "r03" not in text
    assert "profile/r03@1" in orch("show", "last", "--items")[1]


def test_a_plan_says_how_many_items_there_may_be_and_then_how_many_there_are(orch: Orch) -> None:
    text = orch("plan", "--set", "idea=a shop")[1]
    assert "up to 20 items, one for each of rivals.found" in text
    orch("run", "--set", "idea=a shop")
    orch("edit", "last/rivals", "--set", "found.0.size=9")
    text = orch("plan", "last")[1]
    assert "up to 20 items" in text
