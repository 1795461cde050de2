"""What a recording is known by, what differs between two requests, and files that are no recordings."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ConfigError, ProviderFailure
from orchestrator.providers.cassettes import ASIDE, Cassette, differences, key_of, question
from orchestrator.providers.recording import RecordingProvider, Tape
from orchestrator.providers.replayed import ReplayedProvider
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.store.scrub import Scrubber
from orchestrator.values import OutputItem, Reply, Request, TextItem, ToolOutput, ToolSpec

REQUEST = Request("m", "synthetic_s_1", "Be brief.", (TextItem(("hel", "lo")),), step="greet")
OTHER: dict[str, Any] = {
    "model": "n",
    "system": "Be long.",
    "items": (TextItem(("hello", "!")),),
    "tools": (ToolSpec("look", "Looks.", {}),),
    "max_output_tokens": 9,
    "effort": "low",
    "thread": "resp_1",
}


def key(request: Request) -> str:
    return key_of(question(request))


@pytest.mark.parametrize("field", OTHER)
def test_S14_every_part_of_what_is_asked_is_part_of_the_key(field: str) -> None:
    assert key(replace(REQUEST, **{field: OTHER[field]})) != key(REQUEST)
    assert {part.name for part in fields(Request)} >= set(OTHER) | ASIDE


def test_when_where_and_how_it_is_sent_is_no_part_of_it() -> None:
    """Nor how its text is cut into blocks, nor the id of a thread that no provider has seen."""
    moved = replace(REQUEST, thread="synthetic_s_2", timeout=1.0, cache_key="k", step="other", call=7, item="a")
    assert key(replace(moved, items=(TextItem(("hello",)),), background=True, thread_name="x")) == key(REQUEST)


def test_differences_are_told_part_by_part_at_the_place_where_texts_part() -> None:
    long = "x" * 100
    before = question(replace(REQUEST, items=(TextItem((f"{long} 997 {long}",)), ToolOutput("c1", "42"))))
    now = question(replace(REQUEST, effort="low", items=(TextItem((f"{long} 1200 {long}",)),)))
    assert list(differences(before, now)) == [
        f"item 1: recorded “…{'x' * 23} 997 {'x' * 20}…”, asked “…{'x' * 23} 1200 {'x' * 19}…”",
        "items: 2 recorded, 1 asked",
        "effort: recorded “null”, asked “low”",
    ]


def taped(folder: Path, script: dict[str, list[Any]], *requests: Request, secret: str = "") -> list[Any]:
    """What a scripted provider says to these requests, recorded; failures too."""
    provider = RecordingProvider(ScriptedProvider(script), Tape(folder, Scrubber([secret] if secret else [])))
    return said(provider, *requests)


def said(provider: Any, *requests: Request) -> list[Any]:
    async def go() -> list[Any]:
        found: list[Any] = []
        for request in requests:
            try:
                found.append(await provider.respond(request))
            except ProviderFailure as failure:
                found.append((failure.kind, failure.message))
        return found

    return asyncio.run(go())


def test_replies_come_back_as_they_were_and_the_last_one_again(tmp_path: Path) -> None:
    """A request made twice has two replies, in order; one that a provider refused for what it says is refused again."""
    lost = replace(REQUEST, thread="resp_unknown")
    one = taped(tmp_path, {"greet": [{"text": "hi"}]}, REQUEST, lost)
    assert one[1][0] == "chain_lost"
    again = ReplayedProvider(tape=Cassette.load(tmp_path, "tape"))
    assert said(again, REQUEST, lost, REQUEST) == [one[0], one[1], one[0]]
    tape = Tape(tmp_path, Scrubber([]))
    first, second = one[0], replace(one[0], id="resp_2", text="ho")
    for reply in (first, second):
        asyncio.run(tape.add(again.traits, REQUEST, reply))
    assert said(ReplayedProvider(tape=Cassette.load(tmp_path, "tape")), REQUEST, REQUEST, REQUEST) == [
        first, second, second,
    ]  # fmt: skip


def test_items_travel_verbatim(tmp_path: Path) -> None:
    reply = Reply("resp_1", "completed", "", (OutputItem({"type": "reasoning", "x": [1, {"ü": None}]}),), tries=3)
    asyncio.run(Tape(tmp_path, Scrubber([])).add(ScriptedProvider({}).traits, REQUEST, reply))
    assert said(ReplayedProvider(tape=Cassette.load(tmp_path, "tape")), REQUEST) == [reply]


def test_S29_a_key_is_in_no_recording_and_does_not_keep_it_from_being_found(tmp_path: Path) -> None:
    secret = "sk-CANARY-0123456789"
    request = replace(REQUEST, system=f"The key is {secret}.")
    taped(tmp_path, {"greet": [{"text": f"Indeed: {secret}"}]}, request, secret=secret)
    [path] = tmp_path.rglob("*.json")
    assert secret not in path.read_text("utf-8")
    provider = ReplayedProvider(tape=Cassette.load(tmp_path, "tape"), scrubber=Scrubber([secret]))
    assert said(provider, request)[0].text == "Indeed: [secret removed]"


def test_what_was_not_recorded_is_told_with_its_step(tmp_path: Path) -> None:
    taped(tmp_path, {"greet": [{"text": "hi"}]}, REQUEST)
    provider = ReplayedProvider(tape=Cassette.load(tmp_path, "tape"))
    [(kind, message), (_, unknown)] = said(
        provider, replace(REQUEST, system="Be long.", call=2), replace(REQUEST, system="Be.", step="part")
    )
    assert kind == "bad_request"
    assert message == (
        "step greet: call 2 is not what was recorded in tape. It differs from call 1 of greet in the system text:"
        " recorded “Be brief.”, asked “Be long.”"
    )
    assert unknown == "step part: nothing was recorded of it in tape; there is greet"


def test_the_folder_as_a_model_lies_in_the_project(tmp_path: Path) -> None:
    [(kind, message)] = said(ReplayedProvider(tmp_path / "project"), replace(REQUEST, model="../elsewhere"))
    assert (kind, message) == ("bad_request", "the recordings ../elsewhere lie outside the project")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "tape/greet/01-x.json is no JSON"),
        ("[]", "tape/greet/01-x.json is no recording of format 1"),
        ('{"format": 2}', "tape/greet/01-x.json is no recording of format 1: see format"),
    ],
)
def test_a_file_that_is_no_recording_is_named(tmp_path: Path, body: str, says: str) -> None:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "01-x.json").write_text(body, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Cassette.load(tmp_path, "tape")
    assert caught.value.message.startswith(says)


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_recordings_is_told(tmp_path: Path, there: bool) -> None:
    folder = tmp_path if there else tmp_path / "none"
    with pytest.raises(ConfigError, match="holds no recordings" if there else "there is no folder"):
        Cassette.load(folder, "tape")


def test_a_folder_that_cannot_be_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}), encoding="utf-8")
    with pytest.raises(ConfigError, match="the run cannot be recorded in"):
        Tape(tmp_path / "file", Scrubber([]))
