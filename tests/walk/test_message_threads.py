"""Message Threads: a provider that keeps a thread for some minutes, where the project asks for it. Replay stays the
truth: whatever is not known any more is sent whole again, and nothing is paid twice for that."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.vendors import ANTHROPIC
from tests.strict_messages import THREADS, MessagesServer, merged
from tests.strict_server import Fault, Seen
from tests.walk.over_http import (
    CALL,
    DONE,
    GOOD,
    PIPELINE,
    at,
    buying,
    buys,
    resume_here,
    run_here,
    shop,
    shopper,
    typed,
    world,
)
from tests.walk.test_anthropic import PAUSED

BAD: dict[str, Any] = {"json": {"cost": 0}}  # under the contract's minimum
CONFIG = '[providers.anthropic]\nchaining = "server"\n'
IDEA = {"idea": "a house"}


def shopping(folder: Path, server: MessagesServer, config: str = CONFIG) -> Any:
    return run_here(shop(folder, config=config), at(server, ANTHROPIC), IDEA)


def bodies(server: MessagesServer) -> list[dict[str, Any]]:
    """The requests of the step that buys."""
    return [seen.body for seen in server.seen if buys(seen)]


def thread(body: Mapping[str, Any]) -> str:
    """What a request says of its thread: it begins one, goes on from a message, or brings everything along."""
    said = body.get("thread")
    return "whole" if said is None else said.get("previous_message_id", said["type"])


def outcomes(run: Any) -> list[tuple[str, str, str]]:
    return [(call.sent.source, call.sent.rung, call.done.outcome) for call in run.calls("buy") if call.done]


def test_results_of_tools_and_a_reask_go_on_from_the_message_before(tmp_path: Path) -> None:
    """The model sees what it would see by replay, to the byte; what is sent is the new turn alone, without what the
    first call has fixed."""
    with MessagesServer(buying(CALL, BAD, GOOD), key=ANTHROPIC.key) as kept:
        run = shopping(tmp_path / "kept", kept)
    with MessagesServer(buying(CALL, BAD, GOOD), key=ANTHROPIC.key) as replayed:
        other = shopping(tmp_path / "replayed", replayed, "")
    assert run.bodies() == other.bodies()
    first, second, third = bodies(kept)
    ids = [call.done.response_id for call in run.calls("buy")]
    assert [thread(body) for body in (first, second, third)] == ["create", *ids[:2]]
    assert {"system", "tools"} <= set(first)
    assert not {"system", "tools"} & {*second, *third}
    assert [[block["type"] for block in turn["content"]] for turn in second["messages"]] == [["tool_result"]]
    assert [turn["role"] for turn in third["messages"]] == ["user"]
    assert all(seen.headers["anthropic-beta"] == THREADS for seen in kept.seen)
    assert outcomes(run) == [
        ("NEXT_STEP", "chain", "tools"),
        ("TOOL_RESULT", "chain", "reask"),
        ("REASK", "chain", "accepted"),
    ]
    for one, whole in zip(kept.seen, replayed.seen, strict=True):
        assert bare(one.effective) == bare(whole.effective)
    assert all("thread" not in body for body in bodies(replayed))


def bare(turns: Any) -> Any:
    """Turns without what differs from run to run: marks of the cache, the vendor's ids and signatures."""
    drop = ("cache_control", "id", "tool_use_id", "signature", "citations")
    return [[{k: v for k, v in block.items() if k not in drop} for block in turn["content"]] for turn in turns]


def test_a_thread_that_is_gone_is_sent_whole_and_kept_again(tmp_path: Path) -> None:
    """After five minutes the vendor has forgotten it: one refusal that costs nothing, then all of it, then on."""

    class Forgetful(MessagesServer):
        no_more = False

        def _of_thread(self, body: Any, headers: Any) -> Any:
            if thread(body) not in ("create", "whole") and not self.no_more:
                self.no_more = True
                self.forget(thread(body))
            return super()._of_thread(body, headers)

    with Forgetful(lambda seen: [CALL, BAD, GOOD][seen.turn] if buys(seen) else DONE, key=ANTHROPIC.key) as server:
        run = shopping(tmp_path, server)
    assert run.value("buy") == {"cost": 24}
    assert outcomes(run) == [
        ("NEXT_STEP", "chain", "tools"),
        ("TOOL_RESULT", "chain", "error"),
        ("TOOL_RESULT", "replay", "reask"),
        ("REASK", "chain", "accepted"),
    ]
    assert world(tmp_path) == ["door"]
    lost = run.calls("buy")[1].done
    assert (lost.reason, lost.cost_usd) == ("chain_lost", 0)
    sent = [body for body in (seen.body for seen in server.seen) if "output_config" in body]
    assert thread(sent[2]) == "create"
    assert thread(sent[3]) == run.calls("buy")[2].done.response_id


@pytest.mark.parametrize("late", [False, True], ids=["from the first call on", "when it is gone on with"])
def test_a_vendor_that_keeps_no_thread_of_ours_is_asked_as_ever(tmp_path: Path, late: bool) -> None:
    """`thread_unsupported_request`: the step does not fail, and no later call of the process asks for it again."""

    class Strict(MessagesServer):
        def respond(self, seen: Seen, fault: Fault) -> Any:
            self.no_threads = not late or thread(seen.body) != "create"
            return super().respond(seen, fault)

    with Strict(shopper, key=ANTHROPIC.key) as server:
        run = shopping(tmp_path, server)
    assert run.status == "succeeded", run.row.error
    asked = [thread(seen.body) for seen in server.seen]
    assert asked[0] == "create"
    assert asked[-2:] == ["whole", "whole"]
    assert len(asked) == 4  # three answers, and one refusal
    assert world(tmp_path) == ["door"]


def test_steps_side_by_side_all_learn_that_no_thread_is_kept(tmp_path: Path) -> None:
    """Each has asked before the first was refused: none of them fails for what another one has learned meanwhile."""
    names = [f"note-{number}" for number in range(6)]
    steps = "".join(f'  {name}: {{reads: [idea], produces: note, prompt: "Report."}}\n' for name in names)
    folder = shop(tmp_path, PIPELINE[: PIPELINE.index("  buy:")] + steps, CONFIG)
    all_asked = threading.Barrier(len(names), timeout=60)

    class Strict(MessagesServer):
        def respond(self, seen: Seen, fault: Fault) -> Any:
            if thread(seen.body) == "create":
                all_asked.wait()
            self.no_threads = True
            return super().respond(seen, fault)

    with Strict(lambda seen: DONE, key=ANTHROPIC.key) as server:
        run = run_here(folder, at(server, ANTHROPIC), IDEA)
    assert run.status == "succeeded", run.row.error
    assert sorted(thread(seen.body) for seen in server.seen) == ["create"] * 6 + ["whole"] * 6


def test_a_line_that_breaks_while_it_is_gone_on_with_is_no_second_continuation(tmp_path: Path) -> None:
    """The vendor has the turn or has not; a message can be continued once. The try after it is refused, then whole."""
    with MessagesServer(shopper, key=ANTHROPIC.key) as server:
        server.faults = [None, Fault(cut=4)]
        run = shopping(tmp_path, server)
    assert run.value("buy") == {"cost": 24}
    assert outcomes(run)[-1] == ("TOOL_RESULT", "replay", "accepted")
    assert world(tmp_path) == ["door"]


class Deaf(MessagesServer):
    """A server that speaks the API and has never heard of threads: it answers what is said, as if nothing had been."""

    def _of_thread(self, body: Any, headers: Any) -> Any:
        return {k: v for k, v in body.items() if k != "thread"}, merged(body["messages"])


def test_S12_a_server_that_does_not_look_at_the_thread_is_found_out_before_its_answer_is_used(tmp_path: Path) -> None:
    """The re-ask alone makes sense to it. It counts fewer tokens than the thread holds: discarded, and sent whole."""
    wrong = {"json": {"cost": 999}}

    def answer(seen: Seen) -> dict[str, Any]:
        if not buys(seen):
            return DONE
        if "Order it." not in json.dumps(seen.effective):
            return wrong
        return BAD if seen.turn == 0 else GOOD

    with Deaf(answer, key=ANTHROPIC.key) as server:
        run = shopping(tmp_path, server)
    assert run.value("buy") == {"cost": 24}
    assert [outcome for _, _, outcome in outcomes(run)] == ["reask", "discarded", "accepted"]
    assert outcomes(run)[-1][1] == "replay"


def test_a_paused_turn_has_nothing_new_to_say_so_it_is_sent_whole(tmp_path: Path) -> None:
    found = {"blocks": [{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}], **GOOD}
    with MessagesServer(buying(PAUSED, found), key=ANTHROPIC.key) as server:
        run = shopping(tmp_path, server)
    assert run.value("buy") == {"cost": 24}
    assert [thread(body) for body in bodies(server)] == ["create", "create"]


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [False, True])
def test_A8_a_process_that_died_goes_on_with_the_thread_or_without_it(tmp_path: Path, forgotten: bool) -> None:
    """SIGKILL in the tool, which may be repeated: its result goes to the message that called it, if that is known."""
    with MessagesServer(shopper, key=ANTHROPIC.key) as server:
        shop(tmp_path, config=CONFIG)
        (tmp_path / "trap").touch()
        env = at(server, ANTHROPIC)
        code, _, _ = typed(tmp_path, env, "run", "shop", "--set", "idea=a house", "--yes")
        assert code == -9
        first = server.seen[0].response["id"]
        if forgotten:
            server.forget(first)
        run = resume_here(tmp_path, env)
    assert run.value("buy") == {"cost": 24}
    assert world(tmp_path) == ["door", "door"]
    assert [thread(body) for body in bodies(server)] == ["create", first, *(["create"] if forgotten else [])]
    assert [rung for _, rung, outcome in outcomes(run) if outcome == "accepted"] == ["replay" if forgotten else "chain"]


@pytest.mark.parametrize(
    ("config", "pipeline", "says"),
    [
        (CONFIG + "store = false\n", "", 'cannot have chaining = "server" and store = false'),
        (CONFIG, ", vendor_context: {compact_at: 100000}", "has no such way: compact_at"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_sent(
    tmp_path: Path, config: str, pipeline: str, says: str
) -> None:
    with MessagesServer(shopper, key=ANTHROPIC.key) as server:
        text = PIPELINE.replace('"${env:ORCH_MODEL}"', '"${env:ORCH_MODEL}"' + pipeline)
        code, out, err = typed(
            shop(tmp_path, text, config), at(server, ANTHROPIC), "run", "shop", "--set", "idea=x", "--yes"
        )
    assert code in (2, 3), out + err
    assert says in " ".join((out + err).split())
    assert server.seen == []
