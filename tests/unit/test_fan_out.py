"""From a list to entries, and from items to an index (S23): pure, against a naive reading of the same list."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StepFailed
from orchestrator.expressions import parse
from orchestrator.fan_out import Entry, collector, expand, index_of, joined, missing_line, slug
from orchestrator.graph import ForEach, Read, StepNode
from orchestrator.ids import canonical_json, is_name
from tests.graph_kit import CONTRACT, PLACE, Part, graph_of

LIST = replace(CONTRACT, name="rivals", form="json", schema={"type": "object"}, fields=("found",))
ENTRY = replace(CONTRACT, name="rivals", form="json", schema={"type": "object"}, fields=("slug", "size"))


def fan_out(**given: Any) -> StepNode:
    found: dict[str, Any] = {
        "item": "rival", "source": "rivals", "source_kind": "step", "path": ("found",), "key": ("slug",),
        "where": None, "at_most": 100, "over": "fail", "concurrency": None, "on_error": "fail", "same": None,
        "entry": ENTRY, "whole": LIST, "place": PLACE,
    }  # fmt: skip
    where = given.pop("where", None)
    for_each = ForEach(**{**found, **given, "where": parse(where) if where else None})
    step = graph_of({"rivals": Part(), "profile": Part(["rivals"])}).steps["profile"]
    return replace(step, for_each=for_each, reads=(Read("rival", "entry", ENTRY, None, None, PLACE, of="rivals"),))


def value(*entries: Any) -> dict[str, Any]:
    return {"found": list(entries)}


KEYS = st.one_of(
    st.text(min_size=1, max_size=80), st.integers(-5, 10**6), st.sampled_from(["acme", "Acme", ".", "a b"])
)
ENTRIES = st.lists(st.fixed_dictionaries({"slug": KEYS, "size": st.integers(0, 9)}), max_size=12)


def is_blank(key: str | int) -> bool:
    return isinstance(key, str) and not key.strip()


@given(ENTRIES, st.integers(0, 9), st.integers(1, 12), st.booleans())
def test_entries_are_those_wanted_in_order_each_under_its_own_key(
    entries: list[dict[str, Any]], least: int, most: int, first: bool
) -> None:
    step = fan_out(where=f"size >= {least}", at_most=most, over="take_first" if first else "fail")
    wanted = [entry for entry in entries if entry["size"] >= least]
    names = [str(entry["slug"]) for entry in wanted]
    wrong = any(is_blank(entry["slug"]) for entry in wanted) or len(set(names)) < len(names)
    if wrong or (len(wanted) > most and not first):
        with pytest.raises(StepFailed):
            expand(step, value(*entries))
        return
    found = expand(step, value(*entries))
    assert [json.loads(entry.body) for entry in found.entries] == wanted[:most]
    assert found.left == max(0, len(wanted) - most)
    assert [entry.key for entry in found.entries] == [slug(name) for name in names[:most]]
    assert len({entry.key for entry in found.entries}) == len(found.entries)


@given(st.text(min_size=1, max_size=200))
def test_S23_a_key_is_a_name_whatever_it_was(text: str) -> None:
    assert is_name(slug(text))
    assert slug(text) == slug(text)
    assert slug(slug(text)) == slug(text)
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", text):
        assert slug(text) == text


@given(st.lists(st.text(min_size=1, max_size=70), unique=True, max_size=20))
def test_S23_different_keys_stay_different(texts: list[str]) -> None:
    assert len({slug(text) for text in texts}) == len(texts)


@given(ENTRIES, st.randoms())
def test_the_order_of_a_list_gives_no_entry_another_key(entries: list[dict[str, Any]], random: Any) -> None:
    step = fan_out()
    try:
        before = {entry.key: entry.body for entry in expand(step, value(*entries)).entries}
    except StepFailed:
        return
    random.shuffle(entries)
    assert {entry.key: entry.body for entry in expand(step, value(*entries)).entries} == before


@pytest.mark.parametrize(
    ("entries", "code", "says"),
    [
        ([{"slug": "a"}, {"slug": "b"}, {"slug": "a"}], "same_key", "and rivals.found[2] have the same key, a"),
        ([{"slug": 7}, {"slug": "7"}], "same_key", "have the same key, 7"),
        ([{"slug": "a"}, {"size": 1}], "no_key", "rivals.found[1] has no slug, which is its key"),
        ([{"slug": None}], "no_key", "rivals.found[0] has no slug"),
        ([{"slug": " "}], "no_key", "rivals.found[0] has no slug"),
        ([{"slug": True}], "no_key", "rivals.found[0] has no slug"),
        ([{"slug": ["a"]}], "no_key", "rivals.found[0] has no slug"),
    ],
)  # fmt: skip
def test_S23_keys_that_cannot_be_are_told_before_anything_is_paid(entries: list[Any], code: str, says: str) -> None:
    with pytest.raises(StepFailed) as caught:
        expand(fan_out(), value(*entries))
    assert caught.value.code == code
    assert says in caught.value.message
    assert caught.value.hint


def test_too_many_entries() -> None:
    entries = [{"slug": f"r{n}"} for n in range(5)]
    with pytest.raises(StepFailed, match="has 5 entries, and at_most is 4") as caught:
        expand(fan_out(at_most=4), value(*entries))
    assert caught.value.code == "too_many"
    found = expand(fan_out(at_most=4, over="take_first"), value(*entries))
    assert ([entry.key for entry in found.entries], found.left) == (["r0", "r1", "r2", "r3"], 1)


def test_a_list_of_texts_and_one_that_is_not_there() -> None:
    texts = replace(ENTRY, form="text", schema=None, fields=())
    step = fan_out(key=(), entry=texts)
    assert expand(step, value("acme", "B Ltd.")).entries[0] == Entry("acme", b"acme", "rivals.found[0]")
    assert expand(step, value("B Ltd.")).entries[0].key.startswith("b-ltd-")
    for nothing in list[dict[str, Any]]([{}, {"found": None}, {"found": []}]):
        assert expand(step, nothing).entries == ()
    with pytest.raises(StepFailed, match="is no list"):
        expand(step, {"found": "acme"})


def test_where_names_the_entry_too_and_says_what_it_cannot_compare() -> None:
    entries = [{"slug": "a", "size": 1}, {"slug": "b"}]
    assert [e.key for e in expand(fan_out(where="rival.size == 1"), value(*entries)).entries] == ["a"]
    with pytest.raises(StepFailed, match=r"rivals.found\[1\]: where cannot be answered") as caught:
        expand(fan_out(where="size > 0"), value(*entries))
    assert caught.value.code == "where"


def test_entries_of_a_joined_step_keep_their_keys_and_are_filtered() -> None:
    entries = [Entry("a-1", canonical_json({"slug": "A", "size": 1})), Entry("b", canonical_json({"size": 9}))]
    assert [e.key for e in joined(fan_out(same="other", where="size > 5"), entries).entries] == ["b"]


def test_the_collector_reads_the_list_and_all_that_items_read() -> None:
    step = fan_out()
    shared = Read("idea", "input", CONTRACT, None, None, PLACE)
    whole = Read("rivals", "step", LIST, ("note",), "Mind it.", PLACE)
    found = collector(replace(step, reads=(shared, *step.reads)))
    assert [(read.name, read.kind, read.fields) for read in found.reads] == [
        ("idea", "input", None),
        ("rivals", "step", ("found",)),
    ]
    both = collector(replace(step, reads=(whole, *step.reads)))
    assert [(read.name, read.fields, read.guard) for read in both.reads] == [("rivals", ("note", "found"), "Mind it.")]
    assert collector(fan_out(at_most=3)).digest != collector(fan_out(at_most=4)).digest
    assert collector(fan_out(concurrency=3)).digest == collector(fan_out(concurrency=4)).digest


def test_the_index_holds_keys_and_reasons_and_readers_are_told() -> None:
    body = index_of(["b", "a"], {"d": "timeout\nafter  5 tries", "c": "x" * 500})
    index = json.loads(body)
    assert index["items"] == ["a", "b"]
    assert list(index["missing"]) == ["c", "d"]
    assert len(index["missing"]["c"]) == 200
    assert index["missing"]["d"] == "timeout after 5 tries"
    line = missing_line(index, 2)
    assert line is not None
    assert line.startswith("2 of 4 items. Missing: c (xxx")
    assert missing_line({"items": ["a"], "missing": {}}, 1) is None
    assert missing_line({"items": [], "missing": {}}, 0) == "0 items: the list is empty, or nothing of it was wanted."
