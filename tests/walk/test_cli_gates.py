"""`orch approve`, `reject` and `inbox` as people and programs use them: whole commands, and the doors in Python."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.app import run as orch_run
from orchestrator.errors import UsageError

Say = Callable[..., str]
PIPELINE = """
version: 1
pipeline: letters
inputs:
  idea: {type: text, about: "What the customer wants."}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  review:
    gate:
      ask: "Good enough to send?"
      shows: [idea, draft]
      on_reject: {redo: draft, mode: follow_up, max_rounds: 1}
  letter: {reads: [draft], needs: [review], produces: note, prompt: "Write it."}
outputs: [letter]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("ORCH_", "OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, value in (("ORCH_TRUST", "1"), ("ORCH_USER", "ana"), ("ORCH_MODEL", "scripted:answers")):
        monkeypatch.setenv(name, value)
    root = tmp_path / "letters"
    (root / "answers").mkdir(parents=True)
    (root / "orchestrator.toml").write_text("")
    (root / "letters.yaml").write_text(PIPELINE)
    (root / "answers" / "draft.json").write_text(json.dumps(["first words", "second words"]))
    (root / "answers" / "letter.json").write_text(json.dumps(["the letter", "the letter again"]))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def say(project: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command prints, stdout and stderr; with `--json` its document alone."""

    def say(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert orch_run(arguments) == code
        seen = capsys.readouterr()
        assert "Traceback" not in seen.err
        return seen.out if "--json" in arguments else seen.out + seen.err

    return say


@pytest.fixture
def digest(say: Say) -> Callable[[], str]:
    def digest() -> str:
        (entry,) = json.loads(say("inbox", "--json"))["waiting"]
        return str(entry["digest"])[:16]

    return digest


def start(say: Say, *more: str, code: int = 4) -> str:
    return say("run", "--set", "idea=a shop", *more, code=code)


def test_a_run_that_reaches_a_gate_says_how_to_answer_and_exits_4(say: Say) -> None:
    told = start(say)
    assert '‖ review  waits for you: orch approve 1/review | orch reject 1/review -m "…"' in told
    assert "orch show 1/review" in told
    shown = say("show", "1")
    assert "review" in shown
    assert "waits for you" in shown
    document = json.loads(say("show", "1", "--json"))["run"]
    assert document["status"] == "waiting"
    assert document["error"]["code"] == "gate"


def test_where_nobody_can_be_shown_anything_the_digest_is_required(say: Say, digest: Callable[[], str]) -> None:
    """S08: outside a terminal an approval says what it is for; the hint says how to find out."""
    start(say)
    told = say("approve", "1/review", code=2)
    assert "--at DIGEST" in told
    assert "orch show 1/review" in told
    assert json.loads(say("approve", "1/review", "--json", code=2))["error"]["code"] == "digest_required"
    seen = say("show", "1/review")
    assert "Good enough to send?" in seen
    assert "first words" in seen
    assert "a shop" in seen
    assert f"digest {digest()}" in seen
    assert f"orch approve 1/review --at {digest()}" in seen

    told = say("approve", "1/review", "--at", digest(), "-m", "Send it.")
    assert "1/review  approved by ana: idea@1, draft@1" in told
    assert "succeeded" in told
    assert "the letter" in say("show", "1/letter")
    decision = json.loads(say("show", "1/review", "--json"))["artifact"]
    assert decision["value"] == {"decision": "approve", "comment": "Send it.", "by": "ana"}
    assert (decision["author"], decision["origin"]) == ("ana", "person")
    assert "approve by ana" in say("show", "1")


def test_S08_a_digest_that_is_void_is_refused_with_the_difference(say: Say, digest: Callable[[], str]) -> None:
    start(say)
    seen = digest()
    (Path() / "new.txt").write_text("other words")
    say("edit", "1/draft", "--file", "new.txt")
    told = say("approve", "1/review", "--at", seen, code=2)
    assert "1/draft  v1 → v2 by ana meanwhile" in told
    assert "-first words" in told
    assert "+other words" in told
    assert "nothing was decided" in told
    document = json.loads(say("approve", "1/review", "--at", seen, "--json", code=2))
    assert document["error"]["code"] == "shown_changed"
    changed = [(diff["old"]["step"], diff["old"]["version"], diff["new"]["version"]) for diff in document["diffs"]]
    assert changed == [("draft", 1, 2)]
    assert "is of nothing that review asks about" in say("approve", "1/review", "--at", "0" * 16, code=2)
    assert "is not the digest" in say("approve", "1/review", "--at", seen[:8], code=2)
    assert "succeeded" in say("approve", "1/review", "--at", digest())


def test_a_rejection_makes_it_again_and_the_gate_asks_again(say: Say, digest: Callable[[], str]) -> None:
    start(say)
    told = say("reject", "1/review", "-m", "Too dry.", code=4)
    assert "1/review  rejected by ana: idea@1, draft@1" in told
    assert "draft is made again" in told
    assert "waits for you" in told
    assert "second words" in say("show", "1/review")
    assert "FOLLOW_UP" in say("why", "1/draft")
    told = say("reject", "1/review", "-m", "Still dry.", code=4)
    assert "nothing is made again: the gate stays shut" in told
    assert "review was rejected by ana after 1 round: Still dry." in say("inbox")
    say("approve", "1/review", "--at", digest(), "--no-resume")
    assert say("inbox") == "nothing waits for you\n"
    assert "succeeded" in say("resume", "1")
    assert say("history", "1/review").count("ana") >= 3


def test_a_rejection_needs_a_comment(say: Say) -> None:
    start(say)
    assert "missing option" in say("reject", "1/review", code=2)
    assert "--message is empty" in say("reject", "1/review", "-m", " ", code=2)


def test_stop_ends_the_run(say: Say) -> None:
    start(say)
    assert "stopped by ana" in say("reject", "1/review", "-m", "The customer is gone.", "--stop")
    document = json.loads(say("show", "1", "--json"))["run"]
    assert (document["status"], document["error"]["code"]) == ("cancelled", "stopped")
    assert "waits for you" in say("resume", "1", code=4)


def test_the_inbox_lists_what_waits_over_runs_with_the_exact_command(say: Say) -> None:
    assert say("inbox") == "nothing waits for you\n"
    assert json.loads(say("inbox", "--json")) == {"schema": "orch.inbox/1", "waiting": [], "decided": []}
    start(say)
    start(say)
    document = json.loads(say("inbox", "--json"))
    first, second = document["waiting"]
    assert (first["run"], second["run"]) == (1, 2)
    assert (first["step"], first["kind"], first["code"]) == ("review", "gate", "gate")
    assert [(shown["name"], shown["version"]) for shown in first["shows"]] == [("draft", 1), ("idea", 1)]
    assert first["commands"] == [
        f"orch approve 1/review --at {first['digest'][:16]}",
        'orch reject 1/review -m "…"',
    ]
    told = say("inbox")
    assert "‖ 1/review  review waits for you: Good enough to send?" in told
    assert "shows draft@1 (scripted:answers), idea@1 (customer)" in told
    for line in first["commands"]:
        assert line in told


def test_a_gate_that_is_late_is_decided_by_the_inbox(say: Say, project: Path) -> None:
    (project / "letters.yaml").write_text(PIPELINE.replace("      on_reject", TIMEOUT + "      on_reject"))
    start(say)
    told = say("inbox")
    assert "1/review was decided by its timeout: orch resume 1" in told
    assert "nothing waits for you" in told
    assert "succeeded" in say("resume", "1")
    assert "approve by timeout" in say("show", "1")


TIMEOUT = "      timeout: {after: 1ms, then: approve}\n"


def test_yes_approves_gates_and_says_so(say: Say) -> None:
    assert "succeeded" in start(say, "--yes", code=0)
    assert "approve by --yes" in say("show", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["approve", "1/draft", "--at", "0" * 16], "letters has no gate draft"),
        (["approve", "1/nothing", "--at", "0" * 16], "its gates: review"),
        (["approve", "1/review@1", "--at", "0" * 16], "a gate is answered for what stands now"),
        (["approve", "1"], "names no step"),
        (["reject", "9/review", "-m", "No."], "run 9 not found"),
    ],
)
def test_what_is_no_answer_is_a_usage_error(say: Say, arguments: list[str], message: str) -> None:
    start(say)
    assert message in say(*arguments, code=2)


def test_a_plan_says_what_will_be_asked(say: Say) -> None:
    steps = json.loads(say("plan", "letters", "--set", "idea=a shop", "--json"))["steps"]
    assert {step["name"]: step["action"] for step in steps} == {"draft": "run", "review": "ask", "letter": "run"}
    start(say)
    steps = json.loads(say("plan", "1", "--json"))["steps"]
    assert {step["name"]: step["action"] for step in steps} == {"draft": "reuse", "review": "ask", "letter": "run"}


PYTHON = """
from orchestrator import Decision, Pipeline, artifact


@artifact(about="A letter.", not_for="none")
class Letter(str):
    pass


p = Pipeline("mail")
p.input("idea", str, about="What the customer wants.")
draft = p.llm("draft", produces=Letter, reads=["idea"], prompt="Write.")
review = p.gate("review", ask="Good enough?", shows=[draft], on_reject={"redo": draft, "max_rounds": 2})


@p.step
def letter(review: Decision, draft: Letter) -> Letter:
    return Letter(f"{draft} ({review.decision} by {review.by})")
"""


def test_the_doors_in_python(project: Path) -> None:
    """The same in Python: what a handle approves is what it has seen."""
    (project / "letters.yaml").unlink()
    (project / "mail.py").write_text(PYTHON)
    spec = importlib.util.spec_from_file_location("mail", project / "mail.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.p.run(idea="a shop")
    assert (run.status, run.get(module.draft)) == ("waiting", "first words")
    second = run.reject(module.review, "Warmer, please.")
    assert (second.status, second.get(module.draft)) == ("waiting", "second words")
    with pytest.raises(UsageError, match="changed meanwhile"):
        asyncio.run(_awaited(run.approve, "review"))  # this handle has seen the first words
    done = second.approve("review")
    assert (done.status, done.get(module.letter)) == ("succeeded", "second words (approve by ana)")
    decision = done.get(module.review)
    assert (decision.decision, decision.comment, decision.by) == ("approve", "", "ana")


async def _awaited(door: Callable[..., Any], gate: str) -> Any:
    return await door(gate)


def test_an_edit_says_what_doing_again_costs_and_does_not_count_what_was_never_done(
    say: Say, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 1 USD for each token of output, 4 tokens at most: `draft` is made again, `letter` behind the gate is not made
    again but for the first time. And a gate is not offered to be kept: only an answer opens it."""
    monkeypatch.setenv("ORCH_MODEL", "acme:answers")
    (project / "orchestrator.toml").write_text(
        '[providers.acme]\nkind = "scripted"\n[prices."answers"]\ninput = "0"\noutput = "1000000"\n'
    )
    head, _, steps = PIPELINE.partition("artifacts:")
    models = 'models: {default: {use: "${env:ORCH_MODEL}", max_output_tokens: 4}}\n'
    (project / "letters.yaml").write_text(f"{head}{models}artifacts:{steps}")
    start(say)
    told = say("edit", "1/idea", "--file", str(_written("a farm")))
    planned = {step["name"]: step for step in json.loads(say("plan", "1", "--json"))["steps"]}
    assert planned["letter"]["cost_high_usd"] == planned["draft"]["cost_high_usd"]
    assert "redo $4.00–12.00: orch refresh 1" in told, "one call, or three where it is asked again twice"
    assert "keep: orch keep 1/draft" in told
    say("keep", "1/draft", "-m", "fine")
    assert "keep" not in say("edit", "1/draft", "--file", str(_written("other words")))


def _written(text: str) -> Path:
    path = Path("new.txt")
    path.write_text(text)
    return path
