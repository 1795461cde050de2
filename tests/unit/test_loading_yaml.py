"""The strict YAML reader: typed or refused, never guessed."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import Place
from orchestrator.yaml_nodes import MAX_BYTES, Document, read_yaml


def read(text: str) -> Document:
    return read_yaml(text.encode(), "f.yaml")


def only(text: str) -> tuple[str, int, int]:
    """Code, line and column of the single fault of a text."""
    found = read(text).diagnostics
    assert len(found) == 1, found
    place = found[0].place
    assert place is not None
    return found[0].code, place.line, place.column


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("2026-11-30", "2026-11-30"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-7", -7),
        ("0", 0),
        ("0o17", 15),
        ("0x1F", 31),
        ("true", True),
        ("~", None),
        ("", None),
        ('"1e3"', "1e3"),
        ("'08'", "08"),
        ("<<", "<<"),
    ],
)
def test_A21c_plain_scalars_by_the_core_schema(written: str, value: object) -> None:
    document = read(f"a: {written}\n")
    assert document.diagnostics == []
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


@pytest.mark.parametrize("written", ["08", "007", "-01", "00.5", ".inf", "-.INF", ".nan", "1e999", "9" * 65])
def test_A21c_numbers_that_readers_understand_differently_are_refused(written: str) -> None:
    document = read(f"a: {written}\n")
    assert [d.code for d in document.diagnostics] == ["P013"]
    assert document.diagnostics[0].place == Place("f.yaml", 1, 4)
    assert f'"{written}"' in (document.diagnostics[0].hint or "")


def test_A21c_duplicate_keys_name_both_places() -> None:
    document = read("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    (fault,) = document.diagnostics
    assert (fault.code, fault.place) == ("P008", Place("f.yaml", 5, 3))
    assert "f.yaml:3:3" in fault.message
    assert fault.source == "  c: 3"


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\tb\n", "- x\n-\ty\n", "a: b\tc\n"])
def test_A21c_tabs_are_refused_with_their_place(text: str) -> None:
    code, line, column = only(text)
    assert code == "P007"
    assert text.splitlines()[line - 1][column - 1] == "\t"


def test_tabs_inside_texts_are_kept() -> None:
    assert read('a: "x\ty"\nb: |\n  x\ty\n').data == {"a": "x\ty", "b": "x\ty\n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("P004", 1, 1)),
        ("# only a comment\n", ("P004", 1, 1)),
        ("---\n", ("P004", 1, 1)),
        ("a: 'x\n", ("P006", 1, 4)),
        ("a: [1, 2\nb: 3\n", ("P006", 1, 4)),
        ("a: {x: 1\nb: 3\n", ("P006", 1, 4)),
        ("a:\n  b: 1\n c: 2\n", ("P006", 3, 2)),
        ("a: @b\n", ("P006", 1, 4)),
        ('a: "\\q"\n', ("P006", 1, 6)),
        ("a: x: y\n", ("P006", 1, 5)),
        ("a: 1\nword\n", ("P006", 2, 1)),
        ("a: | text\n  b\n", ("P006", 1, 6)),
        ("a: - b\n", ("P006", 1, 4)),
        ('a: "\\UFFFFFFFF"\n', ("P006", 1, 7)),
        ('a: "\\uD800"\n', ("P003", 1, 4)),
        ("a: x\nb: \x07\n", ("P003", 2, 4)),
        ("a: 1\n---\nb: 2\n", ("P009", 2, 1)),
        ("%YAML 1.1\n---\na: no\n", ("P009", 1, 1)),
        ("a: !ruby/object x\n", ("P010", 1, 4)),
        ("a: !!int '5'\n", ("P010", 1, 4)),
        ("a: *nothing\n", ("P011", 1, 4)),
        ("a: &x [*x]\n", ("P011", 1, 4)),
        ("a: &x 1\nb: &x 2\n", ("P011", 2, 4)),
        ("? [a]\n: b\n", ("P014", 1, 3)),
        ("true: x\n", ("P014", 1, 1)),
        ("1: x\n", ("P014", 1, 1)),
    ],
)
def test_S25_what_cannot_be_read_has_a_code_and_a_place(text: str, expected: tuple[str, int, int]) -> None:
    assert only(text) == expected


def test_syntax_faults_are_told_in_plain_words() -> None:
    jargon = ("token", "scanning", "parsing", "<block", "flow", "scalar", "mapping values")
    for text in ("a: 'x\n", "a: [1\nb: 3\n", "a:\n  b: 1\n c: 2\n", "a: x: y\n", "a: - b\n", "a:\n\tb: 1\n"):
        fault = read(text).diagnostics[0]
        assert not any(word in f"{fault.message} {fault.hint}" for word in jargon)
        assert fault.hint


def test_not_utf8_names_the_byte() -> None:
    (fault,) = read_yaml(b"a: 1\nb: caf\xe9\n", "f.yaml").diagnostics
    assert (fault.code, fault.place) == ("P003", Place("f.yaml", 2, 7))
    assert read_yaml("\ufeffa: 1\n".encode(), "f.yaml").data == {"a": 1}


def test_S25_size_depth_and_alias_expansion_are_bounded() -> None:
    assert read_yaml(b"a" * (MAX_BYTES + 1), "f.yaml").diagnostics[0].code == "P002"
    assert only("[" * 50_000)[0] == "P012"
    nested = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100))
    assert only(nested)[0] == "P012"
    wide = "a0: &a0 [x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 9)
    )
    assert only(wide)[0] == "P012"
    long = f"a: &a {'x' * 200_000}\nb: [{','.join(['*a'] * 100)}]\n"
    assert only(long)[0] == "P012"


def test_aliases_within_bounds_are_written_out_at_the_place_of_their_anchor() -> None:
    document = read("a: &g\n  x: 1\nb: *g\n")
    assert document.data == {"a": {"x": 1}, "b": {"x": 1}}
    assert document.places[("b", "x")] == Place("f.yaml", 2, 6)


# --- texts that were meant whole ---


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        ("guard: Do not use # as a limit\n", ("P015", 1, 8), "dropped from this guard: as a limit"),
        ("a:\n  - {read: x}\nabout: Rates #1 of two\n", ("P015", 3, 8), "1 of two"),
        ("guard: # all of it\n", ("P015", 1, 7), "all of it"),
        ("guard: one\n  two # three\n", ("P015", 1, 8), "three"),
        ("guard: one # two\n  three\n", ("P015", 1, 8), "two"),
        ("not_for:\n  - These # are not\n", ("P015", 2, 5), "dropped from this guard: are not"),
        ("r: {read: x, guard: Do not use, or any, as limits}\n", ("P016", 1, 21), "this guard: or any, as limits"),
        ("c: {message: too low, by far}\n", ("P016", 1, 14), "this message: by far"),
        ("guard: Note: not a budget\n", ("P017", 1, 8), "Note: not a budget"),
        ("r: {guard: Note: not a budget}\n", ("P017", 1, 12), "Note: not a budget"),
        ("not_for:\n  - Rates: a: b\n", ("P017", 2, 5), "Rates: a: b"),
        ("ask: Good\n  enough: yes\n", ("P017", 1, 6), "Good enough: yes"),
    ],
)
def test_cut_guards_get_their_own_error(text: str, expected: tuple[str, int, int], said: str) -> None:
    assert only(text) == expected
    fault = read(text).diagnostics[0]
    assert said in fault.message
    assert (fault.hint or "").startswith("Quote the whole")


@pytest.mark.parametrize(
    "text",
    [
        'guard: "Do not use # as a limit"  # said by legal\n',
        "guard: Do not use C#\n",
        "guard: | # kept whole\n  Do not use # as a limit\n",
        "read: x # a comment\n",
        "r: {guard: 'a, b', fields: [x]}\n",
        "schema:\n  properties:\n    message: text # not a guard\n",
        "x-notes:\n  about: mine # not a guard\n",
    ],
)
def test_whole_guards_and_other_comments_are_left_alone(text: str) -> None:
    assert read(text).diagnostics == []


def test_a_step_called_default_is_no_data_of_the_users_own() -> None:
    assert only("steps:\n  default:\n    reads:\n      - {guard: a, b}\n")[0] == "P016"


# --- anything at all ---

_PIECES = st.sampled_from(
    [
        *["a", ": ", ":", "\n", "  ", "- ", "[", "]", "{", "}", ",", "#", " #", "&a", "*a", "!", "|", ">", "'", '"'],
        *["---", "...", "%", "?", "08", "1e3", "guard", "not_for", "\\u", "\r", "\t", "\x85", "\u2028", "<<", "@", "~"],
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=25).map("".join)))
def test_S25_no_text_makes_the_reader_raise(text: str) -> None:
    document = read_yaml(text.encode("utf-8", "surrogatepass"), "f.yaml")
    assert document.diagnostics or document.data is not None
    lines = document.text.splitlines()
    for fault in document.diagnostics:
        assert fault.place is not None
        assert 0 <= fault.place.line <= len(lines) + 1
    assert _finite(document.data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_S25_no_bytes_make_the_reader_raise(body: bytes) -> None:
    document = read_yaml(body, "f.yaml")
    assert document.diagnostics or document.data is not None


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _finite(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


BULK = {
    "values in lines": "- a\n",
    "keys": "a{0}: b\n",
    "empty keys": "a:\n",
    "one key for ever": "a: 1\n",
    "anchors": "k{0}: &a{0} x\n",
    "flow": "[]",
    "comments": "# x\n",
    "escapes": '"\\u0041"\n',
}


@pytest.mark.parametrize("name", BULK)
def test_S25_a_file_full_of_anything_is_read_in_time_and_told_of_in_few_words(name: str) -> None:
    """A million bytes of `a:` took half a minute and gave a quarter of a million faults."""
    piece = BULK[name]
    text = "".join(piece.format(number) for number in range(MAX_BYTES // len(piece.format(99_999))))
    begun = time.process_time()
    found = read(text).diagnostics
    assert time.process_time() - begun < 20
    assert 0 < len(found) <= 501
    if len(found) == 501:
        assert found[-1].code == "P012"
