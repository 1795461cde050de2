"""What differs between two values, and who changed which field."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.exchange.diffing import Change, FieldChanges, blame, changes, field_changes, text_diff
from orchestrator.ids import digest
from orchestrator.values import ArtifactVersion

LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.text("ab.", max_size=2)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "x y"]), inner),
    max_leaves=8,
)


def version(number: int, parent: int | None, author: str = "ana", /, **fields: Any) -> ArtifactVersion:
    return ArtifactVersion(
        id=f"id-{number}",
        run_id="run",
        step="rates",
        item=None,
        contract="vendor-rates",
        version=number,
        sha256=digest(fields),
        size=1,
        author=author,
        origin="person",
        created_at=datetime(2026, 11, 30, tzinfo=UTC),
        parent_id=None if parent is None else f"id-{parent}",
        sensitivity="internal",
        field_hashes={name: digest(value) for name, value in fields.items()},
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 2}, [Change("changed", "a", 1, 2)]),
        ({"a": 1, "b": 2}, {"b": 2, "c": 3}, [Change("removed", "a", old=1), Change("added", "c", new=3)]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, [Change("changed", "a.b[1]", 2, 3)]),
        ({"a": [1]}, {"a": [1, 5]}, [Change("added", "a[1]", new=5)]),
        ({"a": [1, 5]}, {"a": [1]}, [Change("removed", "a[1]", old=5)]),
        ({"x y": 1}, {"x y": 2}, [Change("changed", '["x y"]', 1, 2)]),
        ({"a": 1}, {"a": True}, [Change("changed", "a", 1, True)]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": None}, {}, [Change("removed", "a", old=None)]),
        ("one", "two", [Change("changed", "$", "one", "two")]),
        ({"a": 1}, [1], [Change("changed", "$", {"a": 1}, [1])]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    ],
)
def test_differences_are_told_by_path(old: Any, new: Any, expected: list[Change]) -> None:
    assert list(changes(old, new)) == expected


def test_items_are_matched_by_their_key_and_not_by_place() -> None:
    """An item put in front is one addition, whatever stands behind it."""
    old = {"parts": [{"slug": "api", "price": 1}, {"slug": "web", "price": 2}]}
    new = {"parts": [{"slug": "db", "price": 9}, {"slug": "api", "price": 1}, {"slug": "web", "price": 3}]}
    assert list(changes(old, new)) == [
        Change("changed", "parts[slug=web].price", 2, 3),
        Change("added", "parts[slug=db]", new={"slug": "db", "price": 9}),
    ]


def test_another_order_of_the_same_items_is_one_change() -> None:
    old, new = [{"id": 1}, {"id": 2}, {"id": 3}], [{"id": 3}, {"id": 1}]
    assert list(changes(old, new)) == [
        Change("removed", "[id=2]", old={"id": 2}),
        Change("reordered", "$", [1, 2, 3], [3, 1]),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([{"name": "a", "n": 1}, {"name": "a", "n": 2}], [{"name": "a", "n": 1}, {"name": "a", "n": 3}]),
        ([{"name": "a", "n": 1}, {"n": 2}], [{"name": "a", "n": 1}, {"n": 3}]),
        ([{"id": True, "n": 1}, {"id": False, "n": 2}], [{"id": True, "n": 1}, {"id": False, "n": 3}]),
    ],
)
def test_a_key_that_does_not_tell_all_items_apart_is_not_used(old: Any, new: Any) -> None:
    assert [change.path for change in changes(old, new)] == ["[1].n"]


def test_a_key_that_changed_everywhere_gives_way_to_the_next() -> None:
    old = [{"id": 1, "name": "api", "n": 1}, {"id": 2, "name": "web", "n": 1}]
    new = [{"id": 8, "name": "web", "n": 1}, {"id": 9, "name": "api", "n": 1}]
    assert [change.path for change in changes(old, new)] == ["[name=api].id", "[name=web].id", "$"]


def test_odd_keys_cannot_be_taken_for_others() -> None:
    """A text `1` and a number 1 are two keys, and a bracket in a key does not end the path."""
    old = [{"id": 1, "n": 1}, {"id": "1", "n": 1}, {"id": "a] b", "n": 1}]
    new = [{"id": 1, "n": 2}, {"id": "1", "n": 2}, {"id": "a] b", "n": 2}]
    assert [change.path for change in changes(old, new)] == ["[id=1].n", '[id="1"].n', '[id="a] b"].n']


@given(JSON, JSON)
def test_something_is_told_exactly_where_values_differ(old: Any, new: Any) -> None:
    assert (not changes(old, new)) == (digest(old) == digest(new))
    assert changes(old, copy.deepcopy(old)) == ()


@given(JSON, JSON)
def test_no_path_is_told_twice_for_one_kind(old: Any, new: Any) -> None:
    told = [(change.kind, change.path) for change in changes(old, new)]
    assert len(told) == len(set(told))


def test_texts_are_told_line_by_line() -> None:
    old = "one\ntwo\nthree\nfour\nfive\nsix\n"
    new = "one\ntwo\n3\nfour\nfive\nsix\n"
    assert text_diff(old, new, context=1) == ("@@ -2,3 +2,3 @@", " two", "-three", "+3", " four")
    assert text_diff(old, old) == ()
    assert text_diff("a", "a\n") == ("@@ -1 +1,2 @@", " a", "+")


def test_what_changed_is_told_from_hashes_alone() -> None:
    old, new = version(1, None, a=1, b=2, c=3), version(2, 1, a=1, b=9, d=4)
    assert field_changes(old, new) == FieldChanges(added=("d",), removed=("c",), changed=("b",))
    assert not field_changes(old, old)
    text = version(3, 1)
    assert field_changes(old, text) == FieldChanges(changed=("$",))


def test_blame_names_the_version_that_gave_a_field_its_present_value() -> None:
    """`b` was changed by ben and back by eva: eva's is the one; `a` never changed; `c` came with ben."""
    versions = [
        version(1, None, "model", a=1, b=1),
        version(2, 1, "ben", a=1, b=2, c=5),
        version(3, 2, "eva", a=1, b=1, c=5),
    ]
    found = blame(versions[2], versions)
    assert {name: (one.version, one.author) for name, one in found.items()} == {
        "a": (1, "model"),
        "b": (3, "eva"),
        "c": (2, "ben"),
    }


def test_blame_follows_what_a_version_was_made_from() -> None:
    """A draft that lies between by number is not part of the line."""
    versions = [version(1, None, "model", a=1), version(2, 1, "draft", a=7), version(3, 1, "ana", a=1)]
    assert blame(versions[2], versions)["a"].version == 1


def test_blame_of_a_text_is_of_the_whole() -> None:
    one, two = version(1, None, "model"), version(2, 1, "ana")
    assert {name: found.author for name, found in blame(two, [one, two]).items()} == {"$": "model"}
