"""S09: tools that act on the world, killed between the effect and its record.

`order` writes a line into the world and, while the file `trap` exists, ends the process there and then: the effect has
happened, nothing says so. The model is of the worst kind: as long as it has no result before it, it calls again.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import StoreError, UsageError
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, Request, ToolOutput
from tests.walk.harness import House, Seen, StopAfter, check_no_gap
from tests.walk.over_http import typed

MODEL = {"ORCH_MODEL": "scripted:answers"}
PIPELINE = """
version: 1
pipeline: shop
inputs:
  idea: {type: text, about: "What the customer wants."}
models:
  default: {use: "${env:ORCH_MODEL}"}
artifacts:
  note: {about: "A working note.", not_for: none, schema: text}
steps:
  buy: {reads: [idea], produces: note, tools: ["work.py:order"], prompt: "Order it."}
  report: {reads: [buy], produces: note, prompt: "Report."}
outputs: [report]
"""
WORK = """
import os
import signal
import time
from pathlib import Path

from orchestrator import tool

HERE = Path(__file__).parent


@tool(idempotent={idempotent})
def order(part: str) -> str:
    \"\"\"Order a part.\"\"\"
    while part == "lamp" and not (HERE / "go").exists():
        time.sleep(0.005)
    with (HERE / "world.txt").open("a") as world:
        world.write(part + "\\n")
    if (HERE / "trap").exists():
        (HERE / "trap").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return part + " is ordered"
"""


def insistent(request: Request, items: tuple[Item, ...]) -> dict[str, Any]:
    """Calls for all parts in one reply until it sees results, and then repeats them."""
    results = [item for item in items if isinstance(item, ToolOutput)]
    if request.step == "buy" and not results:
        return {"tool_calls": [{"name": "order", "arguments": {"part": part}} for part in ("door", "lamp")]}
    return {"text": "; ".join(result.output for result in results) or "done"}


def shop(folder: Path, *, idempotent: bool = False) -> House:
    return House(folder, PIPELINE, insistent, files={"work.py": WORK.format(idempotent=idempotent)})


def world(house: House) -> list[str]:
    return sorted((house.folder / "world.txt").read_text().splitlines())


def interrupted(house: House, *, recorded: int = 1) -> Seen:
    """Stopped when the lamp is ordered but not on record; of the door, which went before, it may be."""
    stop = StopAfter("tool_finished:begin", 1 + recorded)

    def observer(moment: str) -> None:
        if moment in ("tool_finished:committed", "tool_started:committed")[: 2 - recorded]:
            (house.folder / "go").touch()
        stop(moment)

    return house.stopped({"idea": "a house"}, observer)


def in_doubt(seen: Seen) -> str:
    (tool,) = [tool for tool in seen.tools("buy") if tool.output is None]
    return tool.tool_call.call_id


def test_S09_an_interrupted_tool_is_not_repeated_and_the_model_is_not_asked(tmp_path: Path) -> None:
    """However often it is resumed: the step waits, says for what, and nothing is sent or done."""
    house = shop(tmp_path)
    before = interrupted(house)
    for _ in range(3):
        with house.new_requests() as asked:
            seen = asyncio.run(house.resume())
        assert (seen.status, asked, world(house)) == ("waiting", [], ["door", "lamp"])
    error = seen.steps["buy"].error
    assert error is not None
    assert error.exit_code == 4
    assert f"--tool {in_doubt(before)}=retry" in (error.hint or "")
    assert seen.steps["report"].status == "pending"


@pytest.mark.parametrize(
    ("answer", "said", "effects"),
    [
        ("retry", "lamp is ordered", 2),
        ('done:"it came by post"', '"it came by post"', 1),
        ("tell", "interrupted: whether this took effect is not known", 1),
    ],
)
def test_S09_a_person_answers(tmp_path: Path, answer: str, said: str, effects: int) -> None:
    """S09: retry runs it again, done gives the model that result, tell says that nobody knows; on the same chain."""
    house = shop(tmp_path)
    before = interrupted(house)
    call = in_doubt(before)
    asyncio.run(house.resume())

    with house.new_requests() as asked:
        seen = asyncio.run(house.resume(tools={call: answer}))

    assert seen.status == "succeeded"
    assert world(house) == ["door"] + ["lamp"] * effects
    assert seen.text("buy") == f"door is ordered; {said}"
    assert [request.step for request in asked] == ["buy", "report"]
    (first,) = before.calls("buy")
    assert first.done is not None
    assert asked[0].thread == first.done.response_id
    check_no_gap(seen)


def test_S09_an_answer_that_is_none_changes_nothing(tmp_path: Path) -> None:
    house = shop(tmp_path)
    before = interrupted(house)
    asyncio.run(house.resume())
    with pytest.raises(UsageError, match="call_nobody does not wait"):
        asyncio.run(house.resume(tools={"call_nobody": "retry"}))
    with pytest.raises(UsageError, match="is not an answer"):
        asyncio.run(house.resume(tools={in_doubt(before): "perhaps"}))
    assert asyncio.run(house.look()).status == "waiting"


def test_S09_a_retry_that_is_interrupted_again_needs_another_word(tmp_path: Path) -> None:
    """`retry` is said once for one more execution; it is no licence for all later ones."""
    house = shop(tmp_path)
    before = interrupted(house)
    call = in_doubt(before)
    asyncio.run(house.resume())
    with pytest.raises(StoreError):
        asyncio.run(house.resume(tools={call: "retry"}, observer=StopAfter("tool_finished:begin")))
    assert len(world(house)) == 3

    with house.new_requests() as asked:
        seen = asyncio.run(house.resume())

    assert (seen.status, asked, len(world(house))) == ("waiting", [], 3)
    seen = asyncio.run(house.resume(tools={call: 'done:"yes"'}))
    assert (seen.status, len(world(house))) == ("succeeded", 3)


def test_S09_a_retry_that_was_stopped_before_it_began_is_still_due(tmp_path: Path) -> None:
    house = shop(tmp_path)
    call = in_doubt(interrupted(house))
    asyncio.run(house.resume())
    with pytest.raises(StoreError):
        asyncio.run(house.resume(tools={call: "retry"}, observer=StopAfter("adopt_run:committed")))
    assert len(world(house)) == 2
    seen = asyncio.run(house.resume())
    assert (seen.status, len(world(house))) == ("succeeded", 3)


def test_S09_an_idempotent_tool_is_repeated_without_a_word(tmp_path: Path) -> None:
    house = shop(tmp_path, idempotent=True)
    interrupted(house)
    with house.new_requests() as asked:
        seen = asyncio.run(house.resume())
    assert (seen.status, seen.text("buy")) == ("succeeded", "door is ordered; lamp is ordered")
    assert world(house) == ["door", "lamp", "lamp"]
    assert [request.step for request in asked] == ["buy", "report"]


def test_S09_two_tools_in_doubt_are_answered_together(tmp_path: Path) -> None:
    """Neither runs before both are answered: one answer alone leaves the step waiting."""
    house = shop(tmp_path)
    before = interrupted(house, recorded=0)
    calls = {tool.tool_call.arguments.split('"')[3]: tool.tool_call.call_id for tool in before.tools("buy")}
    asyncio.run(house.resume())

    seen = asyncio.run(house.resume(tools={calls["door"]: "retry"}))
    done = world(house)
    assert seen.status == "waiting"
    assert set(done) <= {"door", "lamp"}
    seen = asyncio.run(house.resume(tools={calls["lamp"]: "tell"}))

    assert seen.status == "succeeded"
    assert world(house) == sorted([*done, "door"])


@pytest.mark.slow
@pytest.mark.parametrize("idempotent", [False, True], ids=["acts", "repeatable"])
def test_S09_SIGKILL_between_effect_and_record(tmp_path: Path, idempotent: bool) -> None:
    """S09 with a real signal and the command line: exit 4 and the command to answer with; done is done once."""
    answers = {
        "answers/buy.json": '[{"tool_calls": [{"name": "order", "arguments": {"part": "door"}}]}, {"text": "bought"}]',
        "answers/report.json": '[{"text": "reported"}]',
        "work.py": WORK.format(idempotent=idempotent),
        "trap": "",
    }
    house = House(tmp_path, PIPELINE, ScriptedProvider(root=tmp_path), files=answers, model="scripted:answers")

    killed, _, _ = typed(tmp_path, MODEL, "run", "--set", "idea=a house", "--yes")
    assert killed == -signal.SIGKILL
    assert world(house) == ["door"]

    resumed, *said = typed(tmp_path, MODEL, "resume")
    if idempotent:
        assert resumed == 0, said
        assert world(house) == ["door", "door"]
        return
    call = in_doubt(asyncio.run(house.look()))
    assert resumed == 4
    assert f"--tool {call}=" in "".join(said)
    assert typed(tmp_path, MODEL, "resume")[0] == 4
    assert world(house) == ["door"]

    answered, *said = typed(tmp_path, MODEL, "resume", "--tool", f"{call}=done:door is ordered")
    assert answered == 0, said
    seen = asyncio.run(house.look())
    assert (world(house), seen.text("report")) == (["door"], "reported")
    assert [tool.output.output for tool in seen.tools("buy") if tool.output] == ["door is ordered"]
