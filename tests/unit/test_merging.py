"""Three-way merge: what each side has changed stands, what both have changed is a conflict, nothing is invented."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.exchange.merging import ABSENT, Conflict, _matches, chooser, covers, merge, same

BASE: dict[str, Any] = {
    "weekly_usd": 997,
    "notes": "none",
    "items": [{"id": "a", "price": 1, "unit": "day"}, {"id": "b", "price": 2, "unit": "day"}],
    "tags": ["x", "y"],
}


def changed(**more: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BASE), **more}


# --- data -------------------------------------------------------------------------------------------------------------


def test_S07_changes_of_different_fields_stand_side_by_side() -> None:
    merged = merge(BASE, changed(weekly_usd=1200), changed(notes="two rooms"))
    assert (merged.value, merged.conflicts) == (changed(weekly_usd=1200, notes="two rooms"), ())


def test_S07_a_field_that_both_have_changed_is_a_conflict_with_all_three_values() -> None:
    head, draft = changed(weekly_usd=1200, notes="by ana"), changed(weekly_usd=1100, tags=["z"])
    merged = merge(BASE, head, draft)
    assert merged.conflicts == (Conflict("weekly_usd", 997, 1200, 1100),)
    assert merged.value == changed(weekly_usd=1200, notes="by ana", tags=["z"])
    taken = merge(BASE, head, draft, chooser("draft", ["weekly_usd"]))
    assert taken.value == changed(weekly_usd=1100, notes="by ana", tags=["z"])
    assert taken.conflicts == merged.conflicts


def test_S07_items_are_told_apart_by_their_key_wherever_they_stand() -> None:
    head = changed(items=[{"id": "a", "price": 5, "unit": "day"}, {"id": "b", "price": 2, "unit": "day"}])
    draft = changed(
        items=[
            {"id": "c", "price": 3, "unit": "day"},
            {"id": "a", "price": 1, "unit": "week"},
            {"id": "b", "price": 2, "unit": "day"},
        ]
    )
    merged = merge(BASE, head, draft)
    assert merged.conflicts == ()
    assert merged.value["items"] == [
        {"id": "c", "price": 3, "unit": "day"},
        {"id": "a", "price": 5, "unit": "week"},
        {"id": "b", "price": 2, "unit": "day"},
    ]


def test_S07_new_items_of_both_sides_stand_behind_what_they_followed() -> None:
    a, b, x, y = ({"id": name} for name in "abxy")
    assert merge([a, b], [a, x, b], [a, b, y]).value == [a, x, b, y]
    assert merge([a, b], [a, b, x], [a, b, y]).value == [a, b, x, y]
    assert merge([a, b], [b, a, x], [y, a, b]).value == [y, b, a, x]
    assert merge([], [x], [y]).value == [x, y]


def test_S07_an_item_that_one_removed_and_the_other_changed_is_a_conflict() -> None:
    a, b = BASE["items"]
    merged = merge(BASE, changed(items=[b]), changed(items=[{**a, "price": 9}, b]))
    assert merged.conflicts == (Conflict("items[id=a]", a, ABSENT, {**a, "price": 9}),)
    assert merged.value["items"] == [b]
    kept = merge(BASE, changed(items=[b]), changed(items=[{**a, "price": 9}, b]), chooser("draft", ["items"]))
    assert kept.value["items"] == [{**a, "price": 9}, b]


def test_S07_an_item_that_one_removed_and_the_other_left_alone_is_gone() -> None:
    a, b = BASE["items"]
    merged = merge(BASE, changed(items=[b]), changed(items=[a, {**b, "price": 7}]))
    assert (merged.value["items"], merged.conflicts) == ([{**b, "price": 7}], ())


def test_S07_two_orders_of_the_same_items_are_a_conflict_of_the_list() -> None:
    a, b, c = ({"id": name} for name in "abc")
    merged = merge([a, b, c], [b, a, c], [c, b, a])
    assert merged.conflicts == (Conflict("$", [a, b, c], [b, a, c], [c, b, a]),)
    assert merged.value == [b, a, c]
    assert merge([a, b, c], [b, a, c], [a, b, c]).value == [b, a, c]


def test_S07_a_list_without_keys_is_one_value() -> None:
    assert merge(BASE, changed(tags=["x"]), changed(notes="n")).value == changed(tags=["x"], notes="n")
    merged = merge(BASE, changed(tags=["x"]), changed(tags=["x", "y", "z"]))
    assert [conflict.path for conflict in merged.conflicts] == ["tags"]


def test_S07_items_that_share_a_key_are_one_value() -> None:
    twice = [{"id": "a", "n": 1}, {"id": "a", "n": 2}]
    merged = merge(twice, [{"id": "a", "n": 3}, twice[1]], [twice[0], {"id": "a", "n": 4}])
    assert [conflict.path for conflict in merged.conflicts] == ["$"]


def test_S07_two_new_objects_under_one_name_are_not_mixed() -> None:
    merged = merge({}, {"budget": {"usd": 1}}, {"budget": {"eur": 2}})
    assert merged.conflicts == (Conflict("budget", ABSENT, {"usd": 1}, {"eur": 2}),)
    assert merged.value == {"budget": {"usd": 1}}


def test_S07_without_a_base_all_that_differs_is_a_conflict() -> None:
    merged = merge(ABSENT, {"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert merged.conflicts == (Conflict("$", ABSENT, {"a": 1, "b": 2}, {"a": 1, "b": 3}),)
    assert merge(ABSENT, {"a": 1}, {"a": 1}).conflicts == ()


def test_S07_null_and_nothing_true_and_one_are_different_values() -> None:
    assert merge({"a": 1}, {"a": None}, {}).conflicts == (Conflict("a", 1, None, ABSENT),)
    assert merge({"a": 0}, {"a": True}, {"a": 1}).conflicts == (Conflict("a", 0, True, 1),)
    assert merge({"a": 0}, {"a": 1}, {"a": 1.0}).conflicts == ()


# --- texts ------------------------------------------------------------------------------------------------------------


def test_S07_lines_changed_apart_from_each_other_stand_side_by_side() -> None:
    base = "# Plan\n\nFirst.\n\nSecond.\n\nThird.\n"
    head, draft = base.replace("First", "Ana's first"), base.replace("Third.", "Third, redone.")
    merged = merge(base, head, draft)
    assert (merged.value, merged.conflicts) == ("# Plan\n\nAna's first.\n\nSecond.\n\nThird, redone.\n", ())


def test_S07_lines_that_both_have_changed_are_a_conflict_at_the_heads_line() -> None:
    merged = merge("one\ntwo\nthree", "zero\none\n2\nthree", "one\nTWO\nthree\nfour")
    assert merged.conflicts == (Conflict("L3", "two", "2", "TWO"),)
    assert merged.value == "zero\none\n2\nthree\nfour"
    assert merge("one\ntwo\nthree", "zero\none\n2\nthree", "one\nTWO\nthree\nfour", chooser("draft", ["L3"])).value == (
        "zero\none\nTWO\nthree\nfour"
    )


def test_S07_a_line_that_one_removed_and_the_other_changed_is_a_conflict() -> None:
    assert merge("one\ntwo\nthree", "one\nthree", "one\n2\nthree").conflicts == (Conflict("L2", "two", ABSENT, "2"),)


def test_S07_texts_of_very_many_equal_lines_are_merged_without_end_of_patience() -> None:
    base = "\n" * 20_000
    merged = merge(base, f"head\n{base}", f"{base}\ndraft")
    assert (merged.value, merged.conflicts) == (f"head\n{base}\ndraft", ())
    merged = merge(f"a{base}z", f"b{base}\ny", f"c{base}\n\nx")
    assert [conflict.path for conflict in merged.conflicts] == ["L1"]


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("items", "items", True),
        ("items", "items[id=a].price", True),
        ("items", "items_more", False),
        ("a.b", "a.b.c", True),
        ("a.b", "a.bc", False),
        ("*", "anything", True),
        ("L3", "L31", False),
    ],
)
def test_a_field_covers_what_lies_within_it(name: str, path: str, expected: bool) -> None:
    assert covers(name, path) is expected


# --- properties -------------------------------------------------------------------------------------------------------

scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "u", "v"]))
items = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from("abcd"), "n": scalars}), max_size=4, unique_by=lambda item: item["id"]
)
leaves = st.one_of(scalars, st.lists(scalars, max_size=2), items)
names = st.sampled_from(["p", "q", "r"])
values = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
texts = st.lists(st.sampled_from(["one", "two", "three", ""]), max_size=7).map("\n".join)
triples = st.one_of(
    st.tuples(values, values, values),
    st.tuples(*[st.fixed_dictionaries({}, optional={"p": leaves, "q": values, "i": items})] * 3),
    st.tuples(items, items, items),
    st.tuples(texts, texts, texts),
)
Triple = tuple[Any, Any, Any]


@given(triples)
def test_S07_where_one_side_is_unchanged_the_other_stands(three: Triple) -> None:
    base, other, _ = three
    for merged in (merge(base, base, other), merge(base, other, base)):
        assert same(merged.value, other)
        assert merged.conflicts == ()


@given(triples)
def test_S07_where_both_are_equal_they_stand(three: Triple) -> None:
    base, both, _ = three
    merged = merge(base, both, copy.deepcopy(both))
    assert same(merged.value, both)
    assert merged.conflicts == ()


@given(triples)
def test_S07_nothing_is_invented(three: Triple) -> None:
    """Every scalar, and every line, is one of the three's; so is every path."""
    known = {leaf for value in three for leaf in walk(value)}
    for side in ("head", "draft"):
        assert set(walk(merge(*three, choose(side)).value)) <= known


@given(triples)
def test_S07_the_sides_can_be_exchanged(three: Triple) -> None:
    """The same conflicts, seen from the other side; the same value but for the order of what both have put in."""
    base, head, draft = three
    one, other = merge(base, head, draft), merge(base, draft, head, choose("draft"))
    swapped = [(c.base, c.draft, c.head) for c in other.conflicts]
    assert unordered([(c.base, c.head, c.draft) for c in one.conflicts]) == unordered(swapped)
    assert unordered(one.value) == unordered(other.value)


@given(triples)
def test_S07_every_change_of_each_side_stands_where_there_is_no_conflict(three: Triple) -> None:
    """A leaf that a side has and the base has not is in the result; one that a side took away is not."""
    base, head, draft = three
    merged = merge(base, head, draft)
    if merged.conflicts or isinstance(base, str):
        return
    result = dict(places(merged.value))
    for side in (head, draft):
        before, after = dict(places(base)), dict(places(side))
        for path in before.keys() | after.keys():
            if before.get(path) != after.get(path):
                assert result.get(path) == after.get(path), path


@example("two\none\ntwo", "one\ntwo\ntwo\none\none", "two\ntwo\none\none")  # "two" moved by both, differently
@given(texts, texts, texts)
def test_S07_every_changed_line_stands_where_there_is_no_conflict(base: str, head: str, draft: str) -> None:
    """As many of each line as the base has, less those that either side took away, plus what each side added; what
    both have added alike may stand once. Which line was kept is told by how the lines are matched."""
    merged = merge(base, head, draft)
    if merged.conflicts:
        return
    old = base.split("\n")
    kept, added = set(range(len(old))), []
    for side in (head.split("\n"), draft.split("\n")):
        matches = _matches(old, side)
        kept &= {at + n for at, _, size in matches for n in range(size)}
        there = {other + n for _, other, size in matches for n in range(size)}
        added.append([line for at, line in enumerate(side) if at not in there])
    for line in {"one", "two", "three", ""}:
        stands = sum(old[at] == line for at in kept)
        ours, theirs = (lines.count(line) for lines in added)
        assert stands + max(ours, theirs) <= merged.value.split("\n").count(line) <= stands + ours + theirs, line


def choose(side: str) -> Callable[[str], Any]:
    return lambda path: side


def walk(value: Any) -> Iterator[Any]:
    """Every scalar, with its type; every line of a text."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)
    elif isinstance(value, str):
        yield from value.split("\n")
    else:
        yield type(value), value


def keyed_items(value: list[Any]) -> bool:
    found = [item.get("id") for item in value if isinstance(item, dict)]
    return len(found) == len(value) == len(set(found)) and None not in found


def places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every leaf by its path; a list without keys is one leaf, and so is what kind of thing stands there."""
    if isinstance(value, dict):
        yield path, "object"
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list) and value and keyed_items(value):
        yield path, "items"
        for item in value:
            yield from places(item, (*path, f"[{item['id']}]"))
    elif isinstance(value, list) and not value:
        yield path, "items"
    else:
        yield path, repr(value)


def unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, unordered(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return sorted((unordered(inner) for inner in value), key=repr)
    return repr(value)
