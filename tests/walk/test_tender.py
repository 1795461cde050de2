"""examples/tender: a fan-out over forty requirements, a gate with a rejection, and one of two letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import process_kit
from tests.walk.console import ROOT, copied, environment, follow

EXAMPLE = ROOT / "examples" / "tender"
COMMENT = "The county library service joins as subcontractor and gives its reference. Look again."


class Desk:
    """The example, copied, and the command line in it."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.env = folder, {**environment(home), "ORCH_MODEL": "scripted:sample_answers"}

    def say(self, *arguments: str, code: int = 0) -> str:
        done = process_kit.run(self.folder, *arguments, env=self.env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        found = json.loads(self.say(*arguments, "--json", code=code))
        assert isinstance(found, dict)
        return found

    def states(self) -> dict[str, str]:
        steps = self.document("show", "last")["run"]["steps"]
        return {step["name"]: step["status"] for step in steps if step["item"] is None}

    def value(self, reference: str) -> Any:
        return self.document("show", reference)["artifact"]["value"]

    def approve(self) -> None:
        (digest,) = re.findall(r"--at ([0-9a-f]+)", self.say("inbox"))
        self.say("approve", "last/go-no-go", "--at", digest)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(copied("tender", tmp_path), tmp_path)


def test_the_readme_says_what_happens(tmp_path: Path) -> None:
    assert follow((EXAMPLE / "README.md").read_text(encoding="utf-8"), copied("tender", tmp_path)) == 2


def test_a_rejection_goes_back_to_the_step_and_the_approval_opens_one_branch(desk: Desk) -> None:
    desk.say("run", "tender", "--input", "briefs/libraries.json", code=4)
    assert len(desk.value("last/matrix")["rows"]) == 40
    assert desk.value("last/recommendation")["recommend"] == "no-bid"
    desk.say("reject", "last/go-no-go", "-m", COMMENT, code=4)
    assert desk.value("last/recommendation")["recommend"] == "bid"
    assert desk.states()["bid-letter"] == "pending"
    desk.approve()
    assert desk.states() == {
        **dict.fromkeys(["requirements", "assessment", "matrix", "recommendation", "go-no-go"], "succeeded"),
        "bid-letter": "succeeded",
        "decline-letter": "skipped",
    }
    assert COMMENT in desk.say("why", "last/recommendation", "--text")
    assert "subcontractor" in desk.value("last/bid-letter")
    assert "840" not in desk.say("why", "last/bid-letter", "--text")  # what a day costs us is not for the buyer


def test_an_edited_judgement_goes_up_to_the_gate_and_asks_again(desk: Desk) -> None:
    """What was approved is no longer what stands, so the answer does not hold for it."""
    desk.say("run", "tender", "--input", "briefs/libraries.json", code=4)
    desk.approve()
    assert desk.states()["decline-letter"] == "succeeded"
    told = desk.say("edit", "last/assessment/r-38", "--set", "verdict=yes")
    assert "  stale: matrix  assessment/r-38 v1→v2 (ana)\n" in told
    refreshed = desk.say("refresh", "last", code=4)
    assert "assessment" not in refreshed
    assert desk.value("last/matrix")["excluded_by"] == []
    assert desk.states()["go-no-go"] == "waiting"


def test_one_more_requirement_is_judged_alone(desk: Desk) -> None:
    desk.say("run", "tender", "--input", "briefs/libraries.json", code=4)
    tender = desk.value("last/tender")
    (desk.folder / "tender.md").write_text(tender + "| R-41 | should | A paper form for those who ask. |\n")
    answers = desk.folder / "sample_answers" / "assessment"
    (answers / "r-41.json").write_text((answers / "r-39.json").read_text())
    desk.say("edit", "last/tender", "--file", "tender.md")
    desk.say("refresh", "last", code=4)
    steps = desk.document("show", "last")["run"]["steps"]
    judged = {step["item"]: step["calls"] for step in steps if step["name"] == "assessment" and step["item"]}
    assert judged == dict.fromkeys([f"r-{n:02}" for n in range(1, 42)], 1)
    assert len(desk.value("last/matrix")["rows"]) == 41
