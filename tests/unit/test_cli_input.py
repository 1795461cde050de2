"""References, input files and values as people type them: each mistake is one sentence with exit code 2."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from orchestrator.cli.app import root
from orchestrator.cli.edit import with_values
from orchestrator.cli.inputs import read_inputs, read_object
from orchestrator.cli.options import State
from orchestrator.cli.refs import StepRef, is_run, run_ref, step_ref
from orchestrator.contracts import Contract, input_contract
from orchestrator.errors import OrchError, Place, UsageError
from orchestrator.graph import InputNode
from orchestrator.spec import InputSpec


@pytest.mark.parametrize(
    ("typed", "meant"), [("12", "12"), ("#12", "12"), ("last", "last"), ("last~1", "last~1"), ("#7", "7")]
)
def test_a_run_reference(typed: str, meant: str) -> None:
    assert is_run(typed)
    assert run_ref(typed) == meant


@pytest.mark.parametrize("typed", ["", "discovery", "last~", "last~x", "12x", "-1", "1 2", "lasting", "9" * 30])
def test_what_is_no_run_reference_is_refused(typed: str) -> None:
    assert not is_run(typed)
    with pytest.raises(UsageError) as caught:
        run_ref(typed)
    assert caught.value.exit_code == 2
    assert "last~1" in (caught.value.hint or "")


def test_a_step_reference() -> None:
    assert step_ref("12/tech-stack") == StepRef("12", "tech-stack")
    assert step_ref("#12/tech-stack@2") == StepRef("12", "tech-stack", 2)
    assert step_ref("last~1/tech-stack@v3") == StepRef("last~1", "tech-stack", 3)
    assert step_ref("12/profile/acme") == StepRef("12", "profile", item="acme")
    assert step_ref("12/profile/a.c-me_1@2") == StepRef("12", "profile", 2, "a.c-me_1")
    assert step_ref("12/profile/acme").label == "profile/acme"


@pytest.mark.parametrize(
    "typed",
    [
        "tech-stack",
        "12/",
        "12/Tech",
        "12/a@0",
        "12/a@x",
        "12/a@",
        "12/a/b/c",
        "12/a/",
        "12/a/B",
        "12//b",
        "12/a/b@0",
        "x/a",
    ],
)
def test_what_is_no_step_reference_is_refused(typed: str) -> None:
    with pytest.raises(UsageError):
        step_ref(typed)


HERE = Place("p.yaml", 1)
GIVEN = {
    name: InputNode(name, input_contract(name, InputSpec(type=kind, about="x"), HERE), HERE)
    for name, kind in {"idea": "text", "count": "integer", "share": "number", "deep": "boolean"}.items()
}


def test_set_wins_over_the_file_and_is_read_by_the_declared_type(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"idea": "one", "count": 1}', encoding="utf-8")
    given = read_inputs(str(file), ["count=2", "deep=true", "share=0.5", "idea=12", "unknown=7"], GIVEN)
    assert given == {"idea": "12", "count": 2, "deep": True, "share": 0.5, "unknown": "7"}


def test_a_value_may_hold_equals_signs_and_be_empty() -> None:
    assert read_inputs(None, ["idea=a=b=c"], GIVEN) == {"idea": "a=b=c"}
    assert read_inputs(None, ["idea="], GIVEN) == {"idea": ""}


def test_a_value_under_a_contract_of_text_is_taken_as_it_is_and_one_of_data_as_json() -> None:
    under = {form: InputNode(form, replace(contract(), form=form), HERE) for form in ("text", "markdown", "json")}
    given = read_inputs(None, ["text=@ home", 'markdown="# One"', 'json={"a": 1}'], under)
    assert given == {"text": "@ home", "markdown": '"# One"', "json": {"a": 1}}
    with pytest.raises(UsageError, match="is not JSON"):
        read_inputs(None, ["json=some words"], under)


@pytest.mark.parametrize("assignment", ["count=two", "deep=yes", "share=", "idea", "=x"])
def test_a_set_that_cannot_be_read_is_refused(assignment: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        read_inputs(None, [assignment], GIVEN)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("idea: x", "is not JSON"),
        ("[1, 2]", "holds a list, not an object"),
        ('"text"', "holds a text, not an object"),
        ("null", "holds null, not an object"),
        ("3", "holds a number, not an object"),
        ('{"a": 1, "a": 2}', '"a" is given twice'),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_bad_input_file_is_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says) as caught:
        read_object(str(file))
    assert str(file) in caught.value.message
    assert caught.value.hint


def test_the_place_of_a_json_mistake_is_told(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{\n  "idea": oops\n}', encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_object(str(file))
    assert caught.value.place == Place(str(file), 2, 11)


def test_a_missing_file_a_folder_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_object(str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="is a folder"):
        read_object(str(tmp_path))
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_object(str(tmp_path / "latin.json"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_object("nul\0byte")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_object(str(tmp_path / "bom.json")) == {"a": 1}


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"idea": "x"}')

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert read_object("-") == {"idea": "x"}


# --- edit --set -------------------------------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "weekly_usd": {"type": "number"},
        "name": {"type": "string"},
        "roles": {"type": "array", "items": {"$ref": "#/$defs/Role"}},
    },
    "$defs": {"Role": {"type": "object", "properties": {"title": {"type": "string"}, "rate": {"type": "number"}}}},
}


def contract(form: Literal["json", "text"] = "json") -> Contract:
    return Contract(
        name="rates",
        about="a",
        not_for=(),
        sensitivity="internal",
        tags=(),
        max_tokens=None,
        form=form,
        schema=SCHEMA,
        model=None,
        fields=("weekly_usd",),
        customer_fields=(),
        code={},
        digest="d",
        place=Place("x"),
    )


def value() -> dict[str, Any]:
    return {"weekly_usd": 997, "name": "x", "roles": [{"title": "dev", "rate": 1}]}


def test_values_are_set_by_path_and_read_by_the_schema() -> None:
    new = with_values(contract(), value(), ["weekly_usd=1200", "name=12", "roles.0.title=7", "roles[0].rate=2.5"])
    assert new == {"weekly_usd": 1200, "name": "12", "roles": [{"title": "7", "rate": 2.5}]}


def test_setting_never_changes_the_value_it_starts_from() -> None:
    old = value()
    with_values(contract(), old, ["roles.0.rate=9"])
    assert old == value()


def test_one_past_the_end_of_a_list_appends() -> None:
    new = with_values(contract(), value(), ['roles.1={"title": "qa", "rate": 3}'])
    assert new["roles"] == [{"title": "dev", "rate": 1}, {"title": "qa", "rate": 3}]


@pytest.mark.parametrize(
    ("assignment", "hint"),
    [
        ("weekly_us=1", 'Did you mean "weekly_usd"'),
        ("roles.5.rate=1", "list of 1"),
        ("name.x=1", "single value"),
        ("rolls.0=1", 'Did you mean "roles"'),
    ],
)
def test_a_path_that_leads_nowhere_names_the_nearest(assignment: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_values(contract(), value(), [assignment])
    assert hint in (caught.value.hint or "")


def test_a_text_has_no_values_to_set() -> None:
    with pytest.raises(OrchError, match="text"):
        with_values(contract("text"), "abc", ["a=1"])


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("sqlite:///other.db", "orch --db sqlite:///other.db show 1"),
        ("postgresql://ana@h/work", "orch --db postgresql://ana@h/work show 1"),
        ("postgresql://ana:hunter22@h/work", "orch show 1"),  # no hint repeats a password
        ("postgresql://h/work?password=hunter22", "orch show 1"),
    ],
)
def test_printed_commands_name_the_database_they_are_for(url: str, printed: str) -> None:
    state = State()
    root().make_context("orch", ["--db", url, "show"], obj=state)
    assert state.command("show 1") == printed
