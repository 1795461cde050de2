"""A step done once for each entry of a list, through the real engine and store (authoring-and-cli §1, `for_each`)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.frame import FramedArtifact, parse
from orchestrator.providers.base import Listener, no_listener
from orchestrator.providers.scripted import ScriptedProvider
from orchestrator.values import Item, Reply, Request, TextItem
from tests.walk.harness import House, Seen, StopAfter, Stopper, check_no_gap, numbers

PIPELINE = """
    version: 1
    pipeline: rivals
    inputs:
      idea: {type: text, about: "What the customer wants."}
    defaults: {reasks: 0}
    artifacts:
      rivals:
        about: "Competitors found."
        not_for: ["Not a ranking."]
        schema:
          type: object
          properties:
            found:
              type: array
              items:
                type: object
                properties: {slug: {type: string}, size: {type: integer}}
                required: [slug, size]
                additionalProperties: false
          required: [found]
          additionalProperties: false
      sizing: {about: "Market size.", not_for: none, schema: text}
      profile: {about: "A competitor's profile.", not_for: ["Not for quoting."], schema: text}
      advice: {about: "What to do about a competitor.", not_for: none, schema: text}
      summary: {about: "The study.", not_for: none, schema: text}
    steps:
      sizing: {reads: [idea], prompt: "Size the market."}
      rivals: {reads: [idea], prompt: "Find competitors."}
      profile:
        for_each: {item: rival, in: rivals.found, key: slug, at_most: 300FOR_EACH}
        reads: [sizing]
        prompt: "Profile this competitor: {{ item }} It has {{ quote('rival', 'size') }} people."
      summary: {reads: [profile], prompt: "Sum up."}
"""
IDEA = {"idea": "a shop"}
SLUGS = [f"r{n:02}" for n in range(40)]


def rivals(*slugs: str, size: int = 1, **sizes: int) -> dict[str, Any]:
    return {"found": [{"slug": slug, "size": sizes.get(slug, size)} for slug in slugs]}


def prompt_of(request: Request) -> str:
    return "".join(item.text for item in request.items if isinstance(item, TextItem))


def entry_of(request: Request) -> Any:
    """The entry that a request is about, as the model reads it."""
    pieces = [piece for piece in parse(prompt_of(request)).task if isinstance(piece, FramedArtifact)]
    return json.loads(next(piece.content for piece in pieces if piece.step == "rival"))


class Vendor:
    """What the models say: something about each entry, and nothing about those that are broken."""

    def __init__(self, *slugs: str, broken: Sequence[str] = ()) -> None:
        self.found = rivals(*slugs)
        self.broken = set(broken)

    def __call__(self, request: Request, items: tuple[Item, ...]) -> str:
        if request.step == "rivals":
            return json.dumps(self.found)
        if request.step not in ("profile", "advice"):
            return f"{request.step} done"
        entry = entry_of(request)
        return "" if entry["slug"] in self.broken else f"{request.step} of {entry['slug']}, {entry['size']}"


def house(folder: Path, vendor: Any, more: str = "", steps: str = "", files: dict[str, str] | None = None) -> House:
    return House(folder, PIPELINE.replace("FOR_EACH", more) + steps, vendor, files=files or {})


def run(world: House, **more: Any) -> Seen:
    return asyncio.run(world.run(IDEA, **more))


def asked(world: House, step: str = "profile") -> Counter[str]:
    """How often each entry was asked about."""
    return Counter(entry_of(request)["slug"] for request in world.requests(step))


def told(world: House) -> list[tuple[str, str]]:
    """What the last reader's model was shown: each artifact's name and content."""
    return [(a.step, a.content) for a in parse(prompt_of(world.requests("summary")[-1])).artifacts]


@pytest.mark.usefixtures("database")
def test_each_entry_has_an_item_and_readers_get_one_block_for_each(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("beta", "acme"))
    seen = run(world)
    assert seen.status == "succeeded"
    assert seen.text("profile/acme") == "profile of acme, 1"
    assert seen.text("profile/beta") == "profile of beta, 1"
    assert seen.value("profile") == {"items": ["acme", "beta"], "missing": {}}
    assert asked(world) == {"acme": 1, "beta": 1}
    (summary,) = world.requests("summary")
    frame = parse(prompt_of(summary))
    assert [(a.step, a.type, a.content, a.not_for) for a in frame.artifacts] == [
        ("profile/acme", "profile", "profile of acme, 1", ("Not for quoting.",)),
        ("profile/beta", "profile", "profile of beta, 1", ("Not for quoting.",)),
    ]
    assert {row.name: row.item for row in seen.journals["summary"][0].reads if row.item is None} == {"profile": None}
    assert [row.item for row in seen.journals["summary"][0].reads] == [None, "acme", "beta"]
    check_no_gap(seen)


def test_an_item_reads_its_entry_under_the_lists_label_after_what_all_share(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    frames = [parse(prompt_of(request)) for request in world.requests("profile")]
    assert [[a.step for a in frame.artifacts] for frame in frames] == [["sizing"], ["sizing"]]
    piece = next(piece for piece in frames[0].task if isinstance(piece, FramedArtifact))
    assert (piece.step, piece.type, piece.not_for) == ("rival", "rivals", ("Not a ranking.",))
    assert json.loads(piece.content) in rivals("acme", "beta")["found"]


def test_a_prompt_that_does_not_place_its_entry_has_it_among_the_artifacts_last(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("FOR_EACH", "").replace("Profile this competitor: {{ item }} It has", "Profile. It has")
    world = House(
        tmp_path, pipeline, lambda request, items: json.dumps(rivals("acme")) if request.step == "rivals" else "x"
    )
    assert asyncio.run(world.run(IDEA)).status == "succeeded"
    (request,) = world.requests("profile")
    assert [a.step for a in parse(prompt_of(request)).artifacts] == ["sizing", "rival"]


@pytest.mark.parametrize(("vendor", "more"), [(Vendor(), ""), (Vendor("acme", "beta"), ", where: 'size > 5'")])
def test_a_list_of_nothing_is_an_index_of_nothing_and_readers_run(tmp_path: Path, vendor: Vendor, more: str) -> None:
    world = house(tmp_path, vendor, more)
    seen = run(world)
    assert seen.status == "succeeded"
    assert seen.value("profile") == {"items": [], "missing": {}}
    assert world.requests("profile") == []
    assert told(world) == [("profile", "0 items: the list is empty, or nothing of it was wanted.")]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_an_item_that_fails_fails_the_step_and_a_resume_asks_for_it_alone(tmp_path: Path) -> None:
    vendor = Vendor("acme", "beta", "core", broken=["beta"])
    world = house(tmp_path, vendor)
    seen = run(world)
    assert seen.status == "failed"
    assert (seen.steps["profile"].status, seen.steps["profile/beta"].status) == ("failed", "failed")
    assert seen.row.error is not None
    assert seen.row.error.message.startswith("profile: 1 of 3 items failed: beta (")
    assert seen.row.error.message.endswith("(the other 2 are kept)")
    assert world.requests("summary") == []
    vendor.broken.clear()
    seen = asyncio.run(world.resume())
    assert seen.status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 2, "core": 1}
    assert seen.value("profile")["items"] == ["acme", "beta", "core"]
    check_no_gap(seen)


@pytest.mark.usefixtures("database")
def test_failures_are_collected_and_readers_are_told_what_is_missing(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta", "core", broken=["beta"]), ", on_error: collect")
    seen = run(world)
    assert seen.status == "succeeded"
    assert seen.value("profile")["items"] == ["acme", "core"]
    assert list(seen.value("profile")["missing"]) == ["beta"]
    (line, *items) = told(world)
    assert line[0] == "profile"
    assert line[1].startswith("2 of 3 items. Missing: beta (")
    assert [name for name, _ in items] == ["profile/acme", "profile/core"]
    assert any(event.kind == "step.note" and "2 of 3, missing beta" in event.data["text"] for event in seen.events)


def test_nothing_is_collected_where_every_item_failed(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta", broken=["acme", "beta"]), ", on_error: collect")
    seen = run(world)
    assert seen.status == "failed"
    assert seen.row.error is not None
    assert "2 of 2 items failed" in seen.row.error.message


@pytest.mark.parametrize(
    ("slugs", "more", "code"),
    [
        (("acme", "beta", "acme"), "", "same_key"),
        (("acme", " "), "", "no_key"),
        (("acme", "beta", "core"), ", at_most: 2", "too_many"),
    ],
)
def test_S23_a_list_that_cannot_be_is_told_before_anything_is_paid_for_it(
    tmp_path: Path, slugs: tuple[str, ...], more: str, code: str
) -> None:
    world = House(tmp_path, PIPELINE.replace(", at_most: 300FOR_EACH", more), Vendor(*slugs), files={})
    seen = run(world)
    assert seen.status == "failed"
    assert seen.steps["profile"].error is not None
    assert seen.steps["profile"].error.code == code
    assert world.requests("profile") == []
    asyncio.run(world.edit("rivals", rivals("acme", "beta")))
    assert asyncio.run(world.resume()).status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 1}


def test_take_first_leaves_the_rest_out_and_says_so(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("at_most: 300FOR_EACH", "at_most: 2, over: take_first")
    world = House(tmp_path, pipeline, Vendor("core", "beta", "acme"))
    seen = run(world)
    assert seen.value("profile")["items"] == ["beta", "core"]
    notes = [event.data["text"] for event in seen.events if event.kind == "step.note"]
    assert notes == ["1 more entries were left out: at_most is 2"]


def test_the_cap_is_no_failure_of_an_item(tmp_path: Path) -> None:
    """A run that pauses at its cap goes on where it was; nothing is collected as missing."""
    pipeline = PIPELINE.replace("FOR_EACH", ", on_error: collect, concurrency: 1")
    world = House(tmp_path, pipeline.replace("reasks: 0", "reasks: 0, max_output_tokens: 100"), Vendor(*SLUGS))
    world.write("orchestrator.toml", 'user = "ana"\n[prices."*"]\ninput = 0\noutput = 1000\n')
    seen = run(world, cap_usd=Decimal("0.6"))
    assert seen.status == "paused"
    assert seen.steps["profile"].head is None
    assert 1 < len(world.requests("profile")) < 40
    seen = asyncio.run(world.resume(cap_usd=Decimal(10)))
    assert seen.status == "succeeded"
    assert seen.value("profile") == {"items": SLUGS, "missing": {}}
    assert max(asked(world).values()) == 1


# --- many at once -----------------------------------------------------------------------------------------------------


class Watched(ScriptedProvider):
    """Notes how many are asked about at once, and in which order they begin. Nobody is answered before so many ask."""

    def __init__(self, vendor: Callable[..., Any], wanted: int) -> None:
        super().__init__(vendor)
        self.wanted = wanted
        self.now = self.most = 0
        self.order: list[str] = []

    async def respond(self, request: Request, listener: Listener = no_listener) -> Reply:
        if request.step != "profile":
            return await super().respond(request, listener)
        self.order.append(entry_of(request)["slug"])
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(1000):
                if self.most >= self.wanted:
                    break
                await asyncio.sleep(0.01)
            return await super().respond(request, listener)
        finally:
            self.now -= 1


@pytest.mark.parametrize(("more", "most"), [(", concurrency: 3", 3), (", concurrency: 1", 1)])
def test_concurrency_bounds_how_many_are_worked_on_and_keeps_their_order(tmp_path: Path, more: str, most: int) -> None:
    provider = Watched(Vendor(*SLUGS[:12]), most)
    seen = run(house(tmp_path, provider, more))
    assert seen.status == "succeeded"
    assert provider.most == most
    if most == 1:
        assert provider.order == SLUGS[:12]


def test_without_a_bound_all_are_begun_at_once(tmp_path: Path) -> None:
    provider = Watched(Vendor(*SLUGS[:12]), 12)
    assert run(house(tmp_path, provider)).status == "succeeded"
    assert provider.most == 12


def test_twice_as_many_items_are_twice_as_many_writes(tmp_path: Path) -> None:
    counts = []
    for n in (10, 20, 40):
        stopper = Stopper()
        assert run(house(tmp_path / str(n), Vendor(*SLUGS[:n])), observer=stopper).status == "succeeded"
        counts.append(len(stopper.seen))
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


# --- stops and edits --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("stop", range(0, 60, 4))
def test_stopped_anywhere_it_goes_on_and_pays_for_no_item_twice(tmp_path: Path, stop: int) -> None:
    """Of each four moments of the store one, each with a different remainder on the next run of the whole suite."""
    vendor = Vendor("acme", "beta", "core")
    world = house(tmp_path, vendor, ", concurrency: 2")
    stopper = Stopper(stop + 9)  # before, the list is not there
    try:
        seen = run(world, observer=stopper)
        assert seen.status == "succeeded"
    except Exception:  # the store is gone; which step noticed first does not matter
        seen = asyncio.run(world.resume(take_over=True))
    assert seen.status == "succeeded", seen.row.error
    assert seen.value("profile") == {"items": ["acme", "beta", "core"], "missing": {}}
    counts = asked(world)
    done = [f"profile/{slug}" for slug in counts]
    assert all(seen.text(name) for name in done)
    # What had no reply on record when the process ended was in flight, and may be paid once more.
    assert sum(counts.values()) <= 3 + 2
    assert len(world.requests("summary")) <= 2
    check_no_gap(seen)


def test_forty_items_stopped_in_their_midst_ask_again_for_those_in_flight_only(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor(*SLUGS), ", concurrency: 4")
    stopped = world.stopped(IDEA, StopAfter("commit:committed", 20))
    done = {name for name, row in stopped.steps.items() if row.item and row.status == "succeeded"}
    assert 10 < len(done) < 40
    seen = asyncio.run(world.resume())
    assert seen.status == "succeeded"
    assert len(seen.value("profile")["items"]) == 40
    counts = asked(world)
    assert all(counts[name.removeprefix("profile/")] == 1 for name in done)
    assert sum(counts.values()) <= 40 + 4


@pytest.mark.usefixtures("database")
def test_S06_a_list_edited_meanwhile_redoes_what_changed_adds_what_is_new_and_retires_what_is_gone(
    tmp_path: Path,
) -> None:
    vendor = Vendor("acme", "beta", "core", "dash")
    world = house(tmp_path, vendor, ", concurrency: 1")
    world.stopped(IDEA, StopAfter("commit:committed", 5))  # sizing, rivals, acme, beta, core
    asyncio.run(world.edit("rivals", rivals("beta", "acme", "echo", acme=9)))
    seen = asyncio.run(world.resume())
    assert seen.status == "succeeded"
    assert seen.value("profile")["items"] == ["acme", "beta", "echo"]
    assert seen.text("profile/acme") == "profile of acme, 9"
    assert {slug: count for slug, count in asked(world).items() if slug in ("acme", "beta", "core", "echo")} == {
        "acme": 2, "beta": 1, "core": 1, "echo": 1,
    }  # fmt: skip
    assert [name for name, _ in told(world)] == ["profile/acme", "profile/beta", "profile/echo"]
    assert seen.text("profile/core") == "profile of core, 1"  # its versions are kept
    assert seen.steps["profile/core"].retired
    check_no_gap(seen)


def test_an_item_is_edited_and_its_readers_are_told_which_is_stale(tmp_path: Path) -> None:
    from orchestrator.plan import plan_run
    from orchestrator.staleness import stale_reasons

    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)

    async def look() -> dict[str, tuple[str, ...]]:
        async with world.services() as (services, graph):
            row = await services.store.run("last")
            await plan_run(services, graph, row)
            return {name: why for name, why in stale_reasons(graph, await services.store.steps(row.id)).items() if why}

    assert asyncio.run(look()) == {}
    asyncio.run(world.edit("profile", "better", item="acme"))
    assert asyncio.run(look()) == {"summary": ("profile/acme v1→v2 (ana)",)}
    asyncio.run(world.edit("rivals", rivals("acme", "beta", acme=5)))
    assert asyncio.run(look())["profile"] == ("rivals v1→v2 (ana): found",)
    asyncio.run(world.edit("sizing", "small"))
    reasons = asyncio.run(look())
    assert reasons["profile/beta"] == ("sizing v1→v2 (ana)",)
    assert "sizing v1→v2 (ana)" in reasons["profile"]


def test_a_fork_shares_the_items_it_does_not_run_again(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta", "core"))
    run(world)
    child = asyncio.run(world.rerun("summary"))
    assert child.status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 1, "core": 1}
    assert [name for name, _ in told(world)] == ["profile/acme", "profile/beta", "profile/core"]
    assert child.text("profile/acme") == "profile of acme, 1"
    again = asyncio.run(world.rerun("profile"))
    assert again.status == "succeeded"
    assert asked(world) == {"acme": 2, "beta": 2, "core": 2}


# --- joined steps and functions ---------------------------------------------------------------------------------------

ADVICE = """
      advice:
        for_each: {item: rival, same: profile, where: "size > 0"}
        prompt: "Advise on {{ item }} given {{ block('profile') }}"
      last: {reads: [advice, profile], prompt: "End.", produces: summary}
"""


def test_a_joined_step_reads_what_the_other_made_of_the_same_entry(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta", "core", broken=["beta"]), ", on_error: collect", ADVICE)
    seen = run(world)
    assert seen.status == "succeeded"
    assert seen.value("advice")["items"] == ["acme", "core"]
    for request in world.requests("advice"):
        slug = entry_of(request)["slug"]
        pieces = [piece for piece in parse(prompt_of(request)).task if isinstance(piece, FramedArtifact)]
        assert [(p.step, p.content) for p in pieces if p.step != "rival"] == [("profile", f"profile of {slug}, 1")]
    (last,) = world.requests("last")
    names = [a.step for a in parse(prompt_of(last)).artifacts]
    # What is missing of the one is missing of the other, and its readers are told so too.
    assert names == ["profile", "profile/acme", "profile/core", "advice", "advice/acme", "advice/core"]
    # One item edited: its sibling is stale, the others are not.
    asyncio.run(world.edit("profile", "better", item="acme"))

    async def look() -> set[str]:
        from orchestrator.staleness import stale_reasons

        async with world.services() as (services, graph):
            rows = await services.store.steps((await services.store.run("last")).id)
            return {name for name, why in stale_reasons(graph, rows).items() if why}

    assert asyncio.run(look()) == {"advice", "advice/acme", "summary", "last"}


@pytest.mark.usefixtures("database")
def test_R017_one_item_runs_again_in_a_fork_with_what_hangs_on_it_and_the_others_are_shared(tmp_path: Path) -> None:
    """Issue 4 (7): `rerun --from STEP/KEY`; of a joined step the same item, of a reader of all the whole."""
    world = house(tmp_path, Vendor("acme", "beta", "core"), "", ADVICE)
    parent = run(world)
    with world.new_requests() as sent:
        child = asyncio.run(world.rerun("profile/beta"))
    assert child.status == "succeeded"
    about = [entry_of(request)["slug"] if request.step in ("profile", "advice") else "" for request in sent]
    assert sorted(zip((request.step for request in sent), about, strict=True)) == [
        ("advice", "beta"),
        ("last", ""),
        ("profile", "beta"),
        ("summary", ""),
    ]
    assert numbers(child.versions["profile/beta"])[-1] == 2
    for shared in ("profile/acme", "advice/core", "sizing"):
        assert child.artifacts[shared].version.id == parent.artifacts[shared].version.id
    assert child.value("profile")["items"] == ["acme", "beta", "core"]
    assert asyncio.run(world.stale()) == {}


def test_only_one_item_runs_again_and_what_a_person_wrote_in_another_stays(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    asyncio.run(world.edit("profile", "better", item="acme"))
    asyncio.run(world.refresh())
    with world.new_requests() as sent:
        child = asyncio.run(world.rerun("profile/beta", only=True))
    assert [request.step for request in sent] == ["profile"]
    assert (child.status, child.text("profile/acme")) == ("succeeded", "better")
    assert asyncio.run(world.stale()) == {}  # it says the same
    # S07: an edit is merged with what is made anew, for an item too; the model says what it said, so the edit stays.
    with world.new_requests() as sent:
        again = asyncio.run(world.rerun("profile/acme", only=True))
    assert [entry_of(request)["slug"] for request in sent] == ["acme"]
    assert (again.status, again.text("profile/acme")) == ("succeeded", "better")


@pytest.mark.usefixtures("database")
def test_S07_an_edit_of_an_item_is_merged_where_its_whole_step_runs_again_in_a_fork(tmp_path: Path) -> None:
    """The models say what they said before, so what a person wrote stays, and the numbers of its versions go on."""
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    asyncio.run(world.edit("profile", "better", item="acme"))
    asyncio.run(world.refresh())
    with world.new_requests() as sent:
        child = asyncio.run(world.rerun("profile"))
    assert sorted(entry_of(request)["slug"] for request in sent if request.step == "profile") == ["acme", "beta"]
    assert (child.status, child.text("profile/acme"), child.text("profile/beta")) == (
        "succeeded",
        "better",
        "profile of beta, 1",
    )


def test_items_of_a_list_that_is_made_again_are_those_that_it_then_names(tmp_path: Path) -> None:
    vendor = Vendor("acme", "beta")
    world = house(tmp_path, vendor)
    run(world)
    asyncio.run(world.edit("profile", "better", item="acme"))
    vendor.found = rivals("acme", "core")
    child = asyncio.run(world.rerun("rivals"))
    assert (child.status, child.value("profile")["items"]) == ("succeeded", ["acme", "core"])
    assert child.text("profile/acme") == "better"


def test_one_item_with_another_model_leaves_the_others_to_theirs(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    with world.new_requests() as sent:
        child = asyncio.run(world.rerun("profile/beta", only=True, model="scripted:other"))
    assert [(request.step, entry_of(request)["slug"]) for request in sent] == [("profile", "beta")]
    assert child.status == "succeeded"


@pytest.mark.parametrize("name", ["profile/bet", "sizing/acme"])
def test_an_item_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    with world.new_requests() as sent, pytest.raises(UsageError, match="has no item") as refused:
        asyncio.run(world.rerun(name))
    assert refused.value.hint is not None
    assert ("acme, beta" in refused.value.hint) == (name == "profile/bet")
    assert not sent


PYTHON = """
def words(rival, sizing):
    return f"{rival['slug']} in {sizing}"

def count(profile):
    return {"n": len(profile), "text": profile.get("acme", "")}

def agrees(value, rival, sizing):
    return None if rival["slug"] in value else "it is about another"
"""


def test_functions_get_the_entry_by_name_and_all_items_as_a_mapping(tmp_path: Path) -> None:
    pipeline = """
        version: 1
        pipeline: p
        inputs:
          found: {type: rivals, about: "Known rivals."}
          sizing: {type: string, default: Rome}
        artifacts:
          rivals:
            about: "R."
            not_for: none
            schema:
              type: object
              properties: {found: {type: array, items: {type: object, properties: {slug: {type: string}}}}}
          profile: {about: "P.", not_for: none, schema: text}
          count:
            about: "C."
            not_for: none
            schema: {type: object, properties: {n: {type: integer}, text: {type: string}}}
        steps:
          profile:
            for_each: {item: rival, in: found.found, key: slug}
            reads: [sizing]
            python: code.py:words
            checks: [{python: code.py:agrees}]
          count: {reads: [profile], python: code.py:count}
    """
    world = House(tmp_path, pipeline, {}, files={"code.py": PYTHON})
    seen = asyncio.run(world.run({"found": {"found": [{"slug": "acme"}, {"slug": "beta"}]}}))
    assert seen.status == "succeeded", seen.row.error
    assert seen.value("count") == {"n": 2, "text": "acme in Rome"}
    assert seen.steps["profile"].kind == "map"
    assert seen.steps["profile/acme"].kind == "python"


# --- one item by itself -----------------------------------------------------------------------------------------------


def test_one_item_is_revised_and_only_its_readers_are_stale(tmp_path: Path) -> None:
    from orchestrator import engine
    from orchestrator.staleness import stale_reasons
    from tests.walk.harness import look

    said = iter(["profile of acme, shorter"])
    vendor = Vendor("acme", "beta")
    world = house(tmp_path, lambda request, items: _first(request, items, vendor, said))
    run(world)

    async def revise() -> tuple[Seen, set[str]]:
        world.clock.offset += timedelta(seconds=31)
        async with world.services() as (services, graph):
            row = await engine.revise(
                services, graph, await services.store.run("last"), "profile", "Shorter, please.", item="acme"
            )
            stale = stale_reasons(graph, await services.store.steps(row.id))
            return await look(services, graph, row.id), {name for name, why in stale.items() if why}

    seen, stale = asyncio.run(revise())
    assert seen.text("profile/acme") == "profile of acme, shorter"
    assert seen.text("profile/beta") == "profile of beta, 1"
    assert stale == {"summary"}
    assert len(world.requests("profile")) == 3


def _first(request: Request, items: tuple[Item, ...], vendor: Vendor, said: Iterator[str]) -> str:
    revised = any(isinstance(item, TextItem) and "Shorter, please." in item.text for item in request.items)
    return next(said) if revised else vendor(request, items)


# --- refresh ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_a_refresh_makes_the_items_whose_entries_changed_and_no_others(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta", "core"))
    run(world)
    asyncio.run(world.edit("rivals", rivals("dash", "acme", "beta", beta=9)))
    seen = asyncio.run(world.refresh())
    assert seen.status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 2, "core": 1, "dash": 1}
    assert seen.value("profile")["items"] == ["acme", "beta", "dash"]
    assert told(world) == [
        ("profile/acme", "profile of acme, 1"),
        ("profile/beta", "profile of beta, 9"),
        ("profile/dash", "profile of dash, 1"),
    ]
    assert len(world.requests("summary")) == 2
    assert asyncio.run(world.refresh()).status == "succeeded"
    assert len(world.requests()) == 2 + 3 + 2 + 2  # sizing, rivals; three and two items; two summaries
    check_no_gap(seen)


def test_a_list_that_is_the_same_in_another_order_redoes_nothing(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    asyncio.run(world.edit("rivals", rivals("beta", "acme")))
    seen = asyncio.run(world.refresh())
    assert seen.status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 1}
    assert len(world.requests("summary")) == 1


def test_what_all_items_read_redoes_all_and_an_edited_item_only_its_readers(tmp_path: Path) -> None:
    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    asyncio.run(world.edit("profile", "better", item="acme"))
    seen = asyncio.run(world.refresh())
    assert (asked(world), len(world.requests("summary"))) == ({"acme": 1, "beta": 1}, 2)
    assert told(world)[0] == ("profile/acme", "better")
    asyncio.run(world.edit("sizing", "small"))
    seen = asyncio.run(world.refresh())
    # The model says again what it said, so what the person wrote stands, and nobody has anything new to read.
    assert (asked(world), len(world.requests("summary"))) == ({"acme": 2, "beta": 2}, 2)
    assert seen.artifacts["profile/acme"].body == b"better"
    assert seen.status == "succeeded"


def test_an_item_that_failed_is_asked_for_again_by_itself(tmp_path: Path) -> None:
    vendor = Vendor("acme", "beta", "core", broken=["beta"])
    world = house(tmp_path, vendor, ", on_error: collect")
    run(world)
    vendor.broken.clear()
    seen = asyncio.run(world.refresh(steps=["profile/beta"]))
    assert seen.status == "succeeded"
    assert asked(world) == {"acme": 1, "beta": 2, "core": 1}
    assert seen.value("profile") == {"items": ["acme", "beta", "core"], "missing": {}}
    assert [name for name, _ in told(world)] == ["profile/acme", "profile/beta", "profile/core"]
    seen = asyncio.run(world.refresh(steps=["profile/acme"], force=True))
    assert asked(world) == {"acme": 2, "beta": 2, "core": 1}
    seen = asyncio.run(world.refresh(steps=["profile"], force=True))
    assert asked(world) == {"acme": 3, "beta": 3, "core": 2}
    assert seen.status == "succeeded"


def test_a_kept_step_is_kept_with_its_items(tmp_path: Path) -> None:
    from orchestrator import edits
    from orchestrator.staleness import stale_reasons

    world = house(tmp_path, Vendor("acme", "beta"))
    run(world)
    asyncio.run(world.edit("sizing", "small"))

    async def keep() -> set[str]:
        async with world.services() as (services, graph):
            row = await services.store.run("last")
            await edits.keep_step(services, graph, row, "profile", "good enough")
            return set(stale_reasons(graph, await services.store.steps(row.id)))

    assert asyncio.run(keep()) == set()


@pytest.mark.parametrize(("size", "items"), [("large", ["acme", "beta"]), ("small", None)])
def test_a_condition_is_asked_once_for_the_whole_step(tmp_path: Path, size: str, items: list[str] | None) -> None:
    pipeline = PIPELINE.replace("FOR_EACH", "").replace(
        "        reads: [sizing]\n", "        reads: [sizing]\n        when: \"sizing == 'large'\"\n"
    )
    pipeline = pipeline.replace("reads: [profile]", "reads: [{read: profile, default: {}}]")

    vendor = Vendor("acme", "beta")
    world = House(tmp_path, pipeline, lambda request, sent: size if request.step == "sizing" else vendor(request, sent))
    seen = run(world)
    assert seen.status == "succeeded", seen.row.error
    assert seen.steps["profile"].status == ("skipped" if items is None else "succeeded")
    assert sorted(asked(world)) == (items or [])
    assert [name for name, _ in told(world)] == (["profile"] if items is None else ["profile/acme", "profile/beta"])
