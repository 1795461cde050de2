"""Gates: a person answers for exactly what they saw; what waits for the answer waits, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.values import Event
from tests.walk.four_steps import Echo
from tests.walk.harness import House, Seen, StopAfter, Stopper, check_no_gap, meanwhile, numbers

pytestmark = pytest.mark.usefixtures("database")

HEAD = """
version: 1
pipeline: gated
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
"""
ONE = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  look:
    gate: {ask: "Good enough?", shows: [draft]%s}
  letter: {reads: [draft], needs: [look], produces: note, prompt: "Write it."}
outputs: [letter]
"""
REDO = ", on_reject: {redo: draft, mode: fresh, max_rounds: 2%s}"


def gated(folder: Path, steps: str = ONE % "") -> tuple[House, Echo]:
    model = Echo()
    return House(folder, HEAD + steps, model), model


def waiting(folder: Path, steps: str = ONE % "") -> tuple[House, Echo]:
    house, model = gated(folder, steps)
    seen = asyncio.run(house.run({"idea": "red"}))
    assert seen.status == "waiting"
    return house, model


def asked(house: House, before: int = 0) -> list[str]:
    return [request.step for request in house.provider.requests[before:]]


def statuses(seen: Seen) -> dict[str, str]:
    return {name: row.status for name, row in seen.steps.items() if row.kind != "input"}


def kinds(seen: Seen, step: str) -> list[str]:
    return [event.kind for event in seen.events if event.step == step]


# --- one gate ---------------------------------------------------------------------------------------------------------


def test_a_gate_waits_and_its_answer_lets_the_run_go_on(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    seen = asyncio.run(house.look())
    assert statuses(seen) == {"draft": "succeeded", "look": "waiting", "letter": "pending"}
    assert seen.row.error is not None
    assert (seen.row.error.code, seen.row.error.exit_code) == ("gate", 4)
    assert asked(house) == ["draft"]
    shown = asyncio.run(house.shown("look"))
    assert {name: head.body for name, head in shown.heads.items()} == {"draft": b"draft(red)"}

    seen = asyncio.run(house.answer("look", comment="Go on."))
    assert seen.status == "succeeded"
    assert seen.value("look") == {"decision": "approve", "comment": "Go on.", "by": "ben"}
    assert seen.text("letter") == "letter(draft(red))"
    version = seen.artifacts["look"].version
    assert (version.author, version.origin, version.contract) == ("ben", "person", "decision")
    assert seen.steps["look"].decision == "approve"
    assert kinds(seen, "look")[-1] == "gate.answered"
    check_no_gap(seen)


def test_nothing_is_held_while_a_gate_waits(tmp_path: Path) -> None:
    """The run is at rest: nobody owns it, and a resume finds nothing to do."""
    house, _ = waiting(tmp_path)
    seen = asyncio.run(house.resume())
    assert (seen.status, asked(house)) == ("waiting", ["draft"])
    assert [attempt.owner for attempt in seen.attempts["look"]] == [None]
    assert len(seen.attempts["look"]) == 1


def test_a_decision_is_read_by_later_steps_and_its_comment_is_in_the_conversation(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path, (ONE % "").replace("reads: [draft], needs: [look]", "reads: [draft, look]"))
    seen = asyncio.run(house.answer("look", comment="Mind the tone."))
    assert seen.status == "succeeded"
    text = house.effective(house.requests("letter")[0])
    assert '"decision": "approve"' in text
    assert "user (look): Mind the tone." in text


def test_S08_an_answer_is_for_what_was_seen(tmp_path: Path) -> None:
    """S08: an edit makes the digest void; nothing is decided, and the run still waits."""
    house, _ = waiting(tmp_path)
    seen_by_ben = asyncio.run(house.shown("look")).digest
    asyncio.run(house.edit("draft", "another draft"))
    with pytest.raises(UsageError, match="changed meanwhile") as refused:
        asyncio.run(house.answer("look", at=seen_by_ben))
    assert refused.value.code == "shown_changed"
    seen = asyncio.run(house.look())
    assert statuses(seen)["look"] == "waiting"
    assert "look" not in seen.artifacts
    seen = asyncio.run(house.answer("look", at=asyncio.run(house.shown("look")).digest[:12]))
    assert seen.text("letter") == "letter(another draft)"


def test_S08_too_short_a_digest_is_none(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    digest = asyncio.run(house.shown("look")).digest
    for at in ("", digest[:11]):
        with pytest.raises(UsageError, match="changed meanwhile"):
            asyncio.run(house.answer("look", at=at))


def test_S08_one_of_three_that_are_shown_is_edited(tmp_path: Path) -> None:
    """S08: the digest is of ALL versions shown, inputs among them."""
    steps = """
  one: {reads: [idea], produces: note, prompt: "One."}
  two: {reads: [idea], produces: note, prompt: "Two."}
  look: {gate: {ask: "All right?", shows: [idea, one, two]}}
  letter: {reads: [one, two], needs: [look], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    for name in ("idea", "one", "two"):
        house, _ = waiting(tmp_path / name, steps)
        digest = asyncio.run(house.shown("look")).digest
        asyncio.run(house.edit(name, "other"))
        with pytest.raises(UsageError, match="changed meanwhile"):
            asyncio.run(house.answer("look", at=digest))


def test_the_person_edits_what_they_review_and_approves_that(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.edit("draft", "my own words"))
    seen = asyncio.run(house.answer("look"))
    assert seen.text("letter") == "letter(my own words)"
    assert asked(house) == ["draft", "letter"]


def test_A10_an_answer_is_used_once_and_the_second_gate_still_waits(tmp_path: Path) -> None:
    """A10 (a): two approvals in a row; the first answer is never given to the second question."""
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  first: {gate: {ask: "Good enough?", shows: [draft]}}
  second: {gate: {ask: "And signed?", shows: [draft]}, needs: [first]}
  letter: {reads: [draft], needs: [second], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    house, _ = waiting(tmp_path, steps)
    digest = asyncio.run(house.shown("first")).digest
    seen = asyncio.run(house.answer("first", at=digest))
    assert statuses(seen) == {"draft": "succeeded", "first": "succeeded", "second": "waiting", "letter": "pending"}
    seen = asyncio.run(house.resume())
    assert (seen.status, statuses(seen)["second"]) == ("waiting", "waiting")
    with pytest.raises(UsageError, match="has been answered") as again:
        asyncio.run(house.answer("first", at=digest))
    assert again.value.code == "not_waiting"
    with pytest.raises(UsageError, match="changed meanwhile"):
        asyncio.run(house.answer("second", at=digest))
    assert asyncio.run(house.answer("second")).status == "succeeded"


def test_A17_three_gates_side_by_side_only_move_forward_and_join_once(tmp_path: Path) -> None:
    """A17: approve one, approve two while the third branch still runs, approve three; the join runs once, then."""
    steps = "".join(
        f"""
  d{n}: {{reads: [idea], produces: note, prompt: "Draft {n}."}}
  g{n}: {{gate: {{ask: "Good {n}?", shows: [d{n}]}}}}
  s{n}: {{reads: [d{n}], needs: [g{n}], produces: note, prompt: "Step {n}."}}"""
        for n in (1, 2, 3)
    )
    join = '\n  join: {reads: [s1, s2, s3], produces: note, prompt: "Join."}\noutputs: [join]\n'
    house, model = waiting(tmp_path, steps + join)
    seen = asyncio.run(house.answer("g1"))
    assert statuses(seen)["s1"] == "succeeded"
    # The second is approved by somebody else while the branch of the third runs.
    model.during("s3", lambda: meanwhile(house.answer("g2", go_on=False)))
    seen = asyncio.run(house.answer("g3"))
    assert statuses(seen) == {**{f"{kind}{n}": "succeeded" for n in (1, 2, 3) for kind in "dgs"}, "join": "succeeded"}
    assert seen.status == "succeeded"
    assert asked(house).count("join") == 1
    assert seen.text("join") == "join(s1(d1(red)), s2(d2(red)), s3(d3(red)))"
    assert [len(seen.attempts[f"g{n}"]) for n in (1, 2, 3)] == [1, 1, 1]
    check_no_gap(seen)


# --- an approval and what it was for ----------------------------------------------------------------------------------


def test_an_approval_expires_when_what_was_shown_changes(tmp_path: Path) -> None:
    """Between the approval and the step that waits for it the draft is edited: the gate asks again."""
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look", go_on=False))
    asyncio.run(house.edit("draft", "not what was approved"))
    seen = asyncio.run(house.resume())
    assert (seen.status, asked(house)) == ("waiting", ["draft"])
    assert statuses(seen) == {"draft": "succeeded", "look": "waiting", "letter": "ready"}
    assert "gate.expired" in kinds(seen, "look")
    seen = asyncio.run(house.answer("look"))
    assert seen.text("letter") == "letter(not what was approved)"
    assert asked(house) == ["draft", "letter"]


def test_the_approved_bytes_back_in_their_place_need_no_new_approval(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look", go_on=False))
    asyncio.run(house.edit("draft", "a slip"))
    asyncio.run(house.edit("draft", "draft(red)"))
    seen = asyncio.run(house.resume())
    assert seen.status == "succeeded"
    assert seen.text("letter") == "letter(draft(red))"
    assert numbers(seen.versions["look"]) == [1]


def test_an_approval_expires_in_a_live_run_before_what_waits_begins(tmp_path: Path) -> None:
    """The edit comes while another branch keeps the last step waiting: it does not begin on what nobody approved."""
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  look: {gate: {ask: "Good enough?", shows: [draft]}}
  other: {reads: [idea], needs: [look], produces: note, prompt: "Other."}
  letter: {reads: [draft, other], needs: [look], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    house, model = waiting(tmp_path, steps)
    model.during("other", lambda: meanwhile(house.edit("draft", "unseen")))
    seen = asyncio.run(house.answer("look"))
    assert (seen.status, asked(house)) == ("waiting", ["draft", "other"])
    assert statuses(seen)["look"] == "waiting"
    seen = asyncio.run(house.answer("look"))
    assert seen.text("letter") == "letter(unseen, other(red))"
    assert asked(house) == ["draft", "other", "letter"]


def test_a_step_under_way_when_its_approval_expires_is_looked_at_again(tmp_path: Path) -> None:
    """It may end, but what waits for it waits for the new answer; and it runs again where its reads have changed."""
    steps = (
        (ONE % "").replace("outputs: [letter]", "")
        + """
  last: {reads: [letter], produces: note, prompt: "Last."}
outputs: [last]
"""
    )
    house, model = waiting(tmp_path, steps)
    model.during("letter", lambda: meanwhile(house.edit("draft", "unseen")))
    seen = asyncio.run(house.answer("look"))
    assert seen.status == "waiting"
    assert "last" not in asked(house)
    seen = asyncio.run(house.answer("look"))
    assert seen.status == "succeeded"
    assert seen.text("last") == "last(letter(unseen))"
    assert asked(house) == ["draft", "letter", "letter", "last"]


def test_a_refresh_asks_again_about_what_changed_and_only_then(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look"))
    assert asyncio.run(house.refresh()).status == "succeeded"
    asyncio.run(house.edit("draft", "other"))
    assert set(asyncio.run(house.stale())) == {"look", "letter"}
    seen = asyncio.run(house.refresh())
    assert (seen.status, asked(house)) == ("waiting", ["draft", "letter"])
    seen = asyncio.run(house.answer("look"))
    assert seen.text("letter") == "letter(other)"
    assert asyncio.run(house.stale()) == {}


def test_a_decision_is_given_not_written(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look", "reject", "No."))
    with pytest.raises(UsageError, match="is given, not written"):
        asyncio.run(house.edit("look", {"decision": "approve", "comment": "", "by": "me"}))


def test_a_gate_is_not_kept_only_answered(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look"))
    with pytest.raises(UsageError, match="only an answer opens it"):
        asyncio.run(house.keep("look"))


# --- rejections -------------------------------------------------------------------------------------------------------


def test_A9_three_rounds_cost_three_calls_across_restarts(tmp_path: Path) -> None:
    """A9: draft, reject, draft, reject, draft, approve; each command is a process of its own."""
    house, _ = waiting(tmp_path, ONE % REDO % "")
    for count in (2, 3):
        seen = asyncio.run(house.answer("look", "reject", f"Not yet ({count})."))
        assert (seen.status, asked(house)) == ("waiting", ["draft"] * count)
        assert asyncio.run(house.resume()).status == "waiting"
        assert f"Not yet ({count})." in house.effective(house.requests("draft")[-1])
    seen = asyncio.run(house.answer("look"))
    assert seen.status == "succeeded"
    assert asked(house) == ["draft"] * 3 + ["letter"]
    assert numbers(seen.versions["draft"]) == [1, 2, 3]
    assert [house_value(seen, n) for n in (1, 2, 3)] == ["reject", "reject", "approve"]
    check_no_gap(seen)


def house_value(seen: Seen, version: int) -> str:
    """What was decided in one round."""
    return [str(event.data["decision"]) for event in seen.events if event.kind == "gate.answered"][version - 1]


def test_a_rejection_makes_a_new_draft_even_where_it_says_the_same(tmp_path: Path) -> None:
    """The redone draft is equal to the byte: the gate asks again all the same, since it was rejected."""
    house, model = waiting(tmp_path, ONE % REDO % "")
    model.says["draft"] = "draft(red)"
    digest = asyncio.run(house.shown("look")).digest
    seen = asyncio.run(house.answer("look", "reject", "No.", at=digest))
    assert (seen.status, asked(house)) == ("waiting", ["draft", "draft"])
    with pytest.raises(UsageError, match="changed meanwhile"):
        asyncio.run(house.answer("look", "reject", "No.", at=digest))
    assert asked(house) == ["draft", "draft"]


@pytest.mark.parametrize(("then", "status", "code"), [("pause", "waiting", "rejected"), ("fail", "failed", "rejected")])
def test_after_the_last_round_the_gate_stays_shut(tmp_path: Path, then: str, status: str, code: str) -> None:
    house, _ = waiting(tmp_path, ONE % REDO % f", then: {then}")
    for _ in range(2):
        asyncio.run(house.answer("look", "reject", "Not yet."))
    seen = asyncio.run(house.answer("look", "reject", "Enough.", go_on=then == "pause"))
    assert seen.status == status
    assert seen.row.error is not None
    assert (seen.row.error.code, "Enough." in seen.row.error.message) == (code, True)
    assert asked(house) == ["draft"] * 3
    seen = asyncio.run(house.resume())
    assert seen.status == "waiting"
    assert asked(house) == ["draft"] * 3
    seen = asyncio.run(house.answer("look"))
    assert (seen.status, asked(house)[-1]) == ("succeeded", "letter")


def test_without_a_redo_a_rejection_keeps_the_gate_shut(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    seen = asyncio.run(house.answer("look", "reject", "No."))
    assert (seen.status, asked(house)) == ("waiting", ["draft"])
    assert seen.value("look")["decision"] == "reject"
    asyncio.run(house.edit("draft", "better"))
    assert asyncio.run(house.answer("look")).text("letter") == "letter(better)"


def test_a_rejection_can_be_a_branch(tmp_path: Path) -> None:
    steps = (
        (ONE % ", on_reject: {then: go_on}").replace("needs: [look], ", "").replace("[draft], p", "[draft, look], p")
    )
    house, _ = waiting(tmp_path, steps)
    seen = asyncio.run(house.answer("look", "reject", "We do not bid."))
    assert seen.status == "succeeded"
    assert '"decision": "reject"' in house.effective(house.requests("letter")[0])


def test_stop_ends_the_run(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    seen = asyncio.run(house.answer("look", "stop", "The customer is gone.", go_on=False))
    assert seen.status == "cancelled"
    assert seen.row.error is not None
    assert "stopped at look by ben: The customer is gone." in seen.row.error.message
    assert statuses(seen)["letter"] == "pending"
    seen = asyncio.run(house.resume())
    assert statuses(seen)["look"] == "waiting", "a resume is a change of mind: it asks again"


def test_stop_reaches_a_run_that_is_live_elsewhere(tmp_path: Path) -> None:
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  look: {gate: {ask: "Good enough?", shows: [draft]}}
  slow: {reads: [draft], produces: note, prompt: "Slow."}
  after: {reads: [slow], produces: note, prompt: "After."}
outputs: [after]
"""
    house, model = gated(tmp_path, steps)

    def stop() -> None:
        while meanwhile(house.look()).steps["look"].status != "waiting":
            pass
        meanwhile(house.answer("look", "stop", "No.", go_on=False))

    model.during("slow", stop)
    seen = asyncio.run(house.run({"idea": "red"}))
    assert seen.status == "cancelled"
    assert asked(house) == ["draft", "slow"], "what was under way is kept, nothing more begins"
    assert seen.steps["slow"].status == "succeeded"


def test_what_is_between_the_redone_step_and_the_gate_runs_again(tmp_path: Path) -> None:
    steps = """
  base: {reads: [idea], produces: note, prompt: "Base."}
  draft: {reads: [base], produces: note, prompt: "Draft it."}
  side: {reads: [base], produces: note, prompt: "Side."}
  look: {gate: {ask: "Good enough?", shows: [draft], on_reject: {redo: base, mode: fresh}}}
  letter: {reads: [draft, side], needs: [look], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    house, model = waiting(tmp_path, steps)
    model.says["base"] = "better"
    seen = asyncio.run(house.answer("look", "reject", "Better base."))
    assert seen.status == "waiting"
    assert sorted(asked(house, 3)) == ["base", "draft", "side"]
    assert asyncio.run(house.answer("look")).text("letter") == "letter(draft(better), side(better))"


def test_two_rejections_at_once_redo_once(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path, ONE % REDO % "")
    digest = asyncio.run(house.shown("look")).digest
    asyncio.run(house.answer("look", "reject", "No.", at=digest, go_on=False))
    with pytest.raises(UsageError, match=r"has been answered|made again"):
        asyncio.run(house.answer("look", "reject", "No.", at=digest))
    seen = asyncio.run(house.resume())
    assert asked(house) == ["draft", "draft"]
    assert len(seen.attempts["draft"]) == 2


def test_a_gate_is_not_answered_while_what_it_shows_is_made_again(tmp_path: Path) -> None:
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  first: {gate: {ask: "Good enough?", shows: [draft], on_reject: {redo: draft, mode: fresh}}}
  second: {gate: {ask: "Signed?", shows: [draft]}}
  letter: {reads: [draft], needs: [first, second], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    house, _ = waiting(tmp_path, steps)
    asyncio.run(house.answer("first", "reject", "No.", go_on=False))
    with pytest.raises(UsageError, match="is being made again"):
        asyncio.run(house.answer("second"))
    asyncio.run(house.resume())
    seen = asyncio.run(house.answer("second"))
    assert statuses(seen) == {"draft": "succeeded", "first": "waiting", "second": "succeeded", "letter": "pending"}


# --- review: required, require: approved ------------------------------------------------------------------------------

REVIEW = """
  draft: {reads: [idea], produces: note, prompt: "Draft it.", review: required}
  letter: {reads: [{read: draft, require: approved}], produces: note, prompt: "Write it."}
outputs: [letter]
"""


def test_a_required_review_holds_every_reader(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path, REVIEW)
    assert asked(house) == ["draft"]
    seen = asyncio.run(house.answer("draft"))
    assert (seen.status, seen.text("letter")) == ("succeeded", "letter(draft(red))")
    assert seen.value("draft.review")["decision"] == "approve"


def test_a_review_goes_on_in_the_steps_thread(tmp_path: Path) -> None:
    """A rejection is a follow-up: the draft's chain, with the comment alone."""
    house, model = waiting(tmp_path, REVIEW)
    model.says["draft"] = "shorter"
    seen = asyncio.run(house.answer("draft", "reject", "Shorter, please."))
    assert seen.status == "waiting"
    assert seen.text("draft") == "shorter"
    assert "Shorter, please." in house.effective(house.requests("draft")[-1])
    assert asyncio.run(house.answer("draft")).text("letter") == "letter(shorter)"


def test_S08_require_approved_is_checked_when_the_context_is_built(tmp_path: Path) -> None:
    """S08: the edit comes when the step has its dispatch already; it does not begin on what nobody has approved."""
    house, _ = waiting(tmp_path, REVIEW)

    class EditBeforeClaim:
        edited = False

        def __call__(self, moment: str) -> None:
            if moment == "adopt_run:committed" and not self.edited:
                self.edited = True
                meanwhile(house.edit("draft", "unseen"))

    seen = asyncio.run(house.answer("draft", observer=EditBeforeClaim()))
    assert "letter" not in asked(house)
    assert seen.status in ("waiting", "failed")
    if seen.status == "failed":
        seen = asyncio.run(house.resume())
    assert (seen.status, statuses(seen)["draft.review"]) == ("waiting", "waiting")
    assert asyncio.run(house.answer("draft")).text("letter") == "letter(unseen)"


# --- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["approve", "reject", "stop", "wait"])
def test_a_gate_that_nobody_answers_is_decided_by_its_policy(tmp_path: Path, then: str) -> None:
    house, _ = waiting(tmp_path, ONE % f", timeout: {{after: 2h, then: {then}}}")
    assert asyncio.run(house.resume(after=timedelta(hours=1))).status == "waiting"
    seen = asyncio.run(house.resume(after=timedelta(hours=1, minutes=1)))
    if then == "wait":
        assert (seen.status, "look" in seen.artifacts) == ("waiting", False)
        return
    assert seen.versions["look"][0].author == "timeout"
    decisions = [event.data["decision"] for event in seen.events if event.kind == "gate.answered"]
    assert decisions == [then]
    assert seen.status == {"approve": "succeeded", "reject": "waiting", "stop": "waiting"}[then]


def test_no_timeout_opens_a_gate_that_was_rejected(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path, ONE % ", timeout: {after: 2h, then: approve}")
    asyncio.run(house.answer("look", "reject", "No."))
    assert asyncio.run(house.resume(after=timedelta(days=3))).status == "waiting"


# --- forks ------------------------------------------------------------------------------------------------------------


def test_S15_an_approval_is_shared_with_a_child_run_for_identical_bytes_only(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look"))
    child = asyncio.run(house.rerun("letter"))
    assert (child.status, child.value("look")["by"]) == ("succeeded", "ben")
    asyncio.run(house.edit("draft", "other", ref=1))
    child = asyncio.run(house.rerun("letter", ref=1))
    assert (child.status, statuses(child)["look"]) == ("waiting", "waiting")
    assert asyncio.run(house.answer("look", ref=child.row.number)).text("letter") == "letter(other)"


def test_S15_an_edit_in_the_child_lets_the_child_ask_again(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    asyncio.run(house.answer("look"))
    child = asyncio.run(house.rerun("letter"))
    asyncio.run(house.edit("draft", "mine", ref=child.row.number))
    seen = asyncio.run(house.refresh(child.row.number))
    assert statuses(seen)["look"] == "waiting"
    assert statuses(asyncio.run(house.look(1)))["look"] == "succeeded"


@pytest.mark.parametrize("options", [{"until": ["draft"]}, {"only": True}])
@pytest.mark.parametrize("answered", [False, True])
def test_a_rerun_that_ends_above_a_gate_does_not_ask_it_and_a_resume_goes_on(
    tmp_path: Path, answered: bool, options: Any
) -> None:
    """What is below the limit has no value in the child, whether the parent's gate was approved or not; going on from
    there is asked for in so many words."""
    house, _ = waiting(tmp_path)
    if answered:
        asyncio.run(house.answer("look"))
    before = len(house.provider.requests)
    child = asyncio.run(house.rerun("draft", ref=1, **options))
    assert (child.status, asked(house, before)) == ("succeeded", ["draft"])
    assert statuses(child) == {"draft": "succeeded"}
    assert asyncio.run(house.stale()) == {}
    assert asyncio.run(house.resume()).status == "waiting"
    assert asyncio.run(house.answer("look")).text("letter") == "letter(draft(red))"


# --- live -------------------------------------------------------------------------------------------------------------


def test_an_answer_given_elsewhere_is_picked_up_by_the_live_run(tmp_path: Path) -> None:
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  look: {gate: {ask: "Good enough?", shows: [draft]}}
  letter: {reads: [draft], needs: [look], produces: note, prompt: "Write it."}
  slow: {reads: [draft], produces: note, prompt: "Slow."}
outputs: [letter, slow]
"""
    house, model = gated(tmp_path, steps)

    def approve() -> None:
        while meanwhile(house.look()).steps["look"].status != "waiting":
            pass
        meanwhile(house.answer("look", go_on=False))

    model.during("slow", approve)
    seen = asyncio.run(house.run({"idea": "red"}))
    assert (seen.status, seen.text("letter")) == ("succeeded", "letter(draft(red))")


def test_yes_approves_each_gate_as_it_stands(tmp_path: Path) -> None:
    from dataclasses import replace

    from orchestrator import engine
    from orchestrator.engine import RunOptions

    house, _ = gated(tmp_path, REVIEW)

    async def main() -> Any:
        async with house.services() as (services, graph):
            row = await engine.start_run(replace(services, approver="--yes"), graph, RunOptions({"idea": "red"}))
            return row.status, (await services.store.artifact(row.id, "draft.review")).version.author

    assert asyncio.run(main()) == ("succeeded", "--yes")
    told = [event for event in house.events if event.step == "draft.review" and event.kind != "step.started"]
    assert told == [Event("gate.answered", "draft.review", None, {"decision": "approve", "by": "--yes"})]


def test_yes_approves_a_gate_that_asked_in_a_process_that_has_ended(tmp_path: Path) -> None:
    """S09: the process may end between the question and the answer that was given before it."""
    house, _ = gated(tmp_path, REVIEW)
    house.approver = "--yes"
    assert house.stopped({"idea": "red"}, StopAfter("ask:committed")).steps["draft.review"].status == "waiting"
    seen = asyncio.run(house.resume())
    assert (seen.status, seen.artifacts["draft.review"].version.author) == ("succeeded", "--yes")


def test_the_events_say_what_a_gate_asks(tmp_path: Path) -> None:
    house, _ = waiting(tmp_path)
    told = [event for event in house.events if event.kind == "step.waiting"]
    assert told == [
        Event(
            "step.waiting", "look", None, {"code": "gate", "message": "look waits for you: Good enough?", "hint": None}
        )
    ]


# --- the process ends at any moment -----------------------------------------------------------------------------------


def _stopped_at(house: House, at: int, work: Any) -> bool:
    """Do this, and end the process at its nth moment; False where it has fewer."""
    stopper = Stopper(at)
    try:
        asyncio.run(work(stopper))
    except StoreError:
        return True
    return len(stopper.seen) >= at


@pytest.mark.slow
def test_A9_a_stop_at_any_moment_of_an_answer_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """A9, S02: the decision, the redo and the wave are one transaction: afterwards it was given, or it was not."""
    for at in range(1, 60):
        house, _ = waiting(tmp_path / str(at), ONE % REDO % "")
        if not _stopped_at(house, at, lambda stop: house.answer("look", "reject", "No.", observer=stop)):  # noqa: B023
            break
        seen = asyncio.run(house.resume())
        rejected = [event for event in seen.events if event.kind == "gate.answered"]
        assert seen.status == "waiting"
        assert len(numbers(seen.versions["draft"])) == 1 + len(rejected)
        assert len(rejected) <= 1
        seen = asyncio.run(house.answer("look"))
        assert (seen.status, seen.text("letter")) == ("succeeded", "letter(draft(red))")
        # The one call in flight may be paid again, no other.
        assert asked(house).count("draft") <= 2 + len(rejected)
        check_no_gap(seen)
    assert at > 5


# --- steps that are skipped -------------------------------------------------------------------------------------------


def test_a_gate_over_nothing_but_skipped_steps_asks_nothing(tmp_path: Path) -> None:
    steps = """
  draft: {reads: [idea], when: "idea == 'red'", produces: note, prompt: "Draft it.", review: required}
  letter: {reads: [{read: draft, default: "none"}], produces: note, prompt: "Write it."}
outputs: [letter]
"""
    house, _ = waiting(tmp_path / "red", steps)
    assert asyncio.run(house.answer("draft")).text("letter") == "letter(draft(red))"
    house, _ = gated(tmp_path / "blue", steps)
    seen = asyncio.run(house.run({"idea": "blue"}))
    assert (seen.status, seen.text("letter")) == ("succeeded", "letter(none)")
    assert statuses(seen)["draft.review"] == "skipped"


def test_a_decision_is_a_branch_for_when(tmp_path: Path) -> None:
    """A bid / no-bid branch: a rejection that goes on, and steps that ask which it was."""
    steps = """
  draft: {reads: [idea], produces: note, prompt: "Draft it."}
  bid: {gate: {ask: "Do we bid?", shows: [draft], on_reject: {then: go_on}}}
  offer: {reads: [draft, bid], when: "bid.decision == 'approve'", produces: note, prompt: "Offer."}
  refusal: {reads: [draft, bid], when: "bid.decision == 'reject'", produces: note, prompt: "Refuse."}
outputs: [offer, refusal]
"""
    for decision, other in (("approve", "refusal"), ("reject", "offer")):
        house, _ = waiting(tmp_path / decision, steps)
        seen = asyncio.run(house.answer("bid", "approve" if decision == "approve" else "reject", "As said."))
        assert seen.status == "succeeded"
        assert statuses(seen)[other] == "skipped"
