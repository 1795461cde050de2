"""A CSV file as the list of objects a contract wants: types from the schema, faults with their line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.errors import UsageError
from orchestrator.exchange.exporting import table
from orchestrator.exchange.importing import WHOLE, read_table, table_fields

PARTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
        "words": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {
        "part": {
            "type": "object",
            "required": ["name", "count"],
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer"},
                "price": {"type": ["number", "null"]},
                "ready": {"type": "boolean"},
                "size": {"enum": ["S", "L"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "note": {"type": "string"},
            },
        }
    },
}


def read(text: str) -> list[dict[str, Any]]:
    return read_table(text, "parts.csv", PARTS, "parts")


def test_where_a_table_can_go_is_told_by_the_schema() -> None:
    assert table_fields(PARTS) == ("parts",)
    assert table_fields({"type": "array", "items": PARTS["$defs"]["part"]}) == (WHOLE,)
    assert table_fields({"type": "object", "properties": {"a": {"type": "string"}}}) == ()


def test_cells_become_what_their_field_takes() -> None:
    text = (
        "name,count,price,ready,size,tags,note\r\n"
        'api,3,2.5,TRUE,L,"[""a"", ""b""]",x\r\n'
        '"7, ""or"" 8",-4,,false,S,[],"two\nlines"\r\n'
    )
    assert read(text) == [
        {"name": "api", "count": 3, "price": 2.5, "ready": True, "size": "L", "tags": ["a", "b"], "note": "x"},
        {
            "name": '7, "or" 8',
            "count": -4,
            "price": None,
            "ready": False,
            "size": "S",
            "tags": [],
            "note": "two\nlines",
        },
    ]


def test_an_empty_cell_is_null_or_left_out_or_an_empty_text() -> None:
    assert read("name,count,price,ready,note\n,1,,,\n") == [{"name": "", "count": 1, "price": None}]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_first_line_tells_the_separator(separator: str) -> None:
    assert read(f"name{separator}count\napi{separator}1\n\n") == [{"name": "api", "count": 1}]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "is empty"),
        ("name,cuont\napi,1\n", 1, 'no field "cuont"'),
        ("name,count,name\napi,1,b\n", 1, "twice"),
        ("name\napi\n", 1, "the column count is missing"),
        ('name,count\n"two\nlines",1\napi,many\n', 4, 'count is "many", not an integer'),
        ("name,count\napi,1.5\n", 2, 'count is "1.5", not an integer'),
        ("name,count\napi,\n", 2, "count is empty"),
        ("name,count\napi,1\nweb,2,3\n", 3, "3 cells where the first line names 2 columns"),
        ('name,count\napi,1\n"web,2\n', 3, "is not CSV"),
        ('name,count\n"api" x,1\n', 2, "is not CSV"),
        ("name,count,ready\napi,1,yes\n", 2, 'ready is "yes", not true or false'),
        ("name,count,size\napi,1,M\n", 2, 'size is "M", not one of "S", "L"'),
        ("name,count,tags\napi,1,a b\n", 2, 'tags is "a b", not a list in JSON'),
        ("name,count,price\napi,1,NaN\n", 2, 'price is "NaN", not a number'),
    ],
)
def test_what_cannot_be_read_is_one_error_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert says in caught.value.message
    assert caught.value.place is not None
    assert (caught.value.place.file, caught.value.place.line) == ("parts.csv", line)


def test_a_near_name_is_proposed() -> None:
    with pytest.raises(UsageError) as caught:
        read("name,cuont\napi,1\n")
    assert caught.value.hint == 'Did you mean "count"?'


class Part(BaseModel):
    name: str
    count: int = 1
    note: str | None = None


class Parts(BaseModel):
    parts: list[Part]


def test_models_of_pydantic_tell_types_too() -> None:
    schema = Parts.model_json_schema()
    assert table_fields(schema) == ("parts",)
    assert read_table("name,count,note\n12,2,\nweb,,x\n", "p.csv", schema, "parts") == [
        {"name": "12", "count": 2, "note": None},
        {"name": "web", "note": "x"},
    ]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            "count": st.integers(-(10**12), 10**12),
        },
        optional={
            "ready": st.booleans(),
            "tags": st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=2),
            "note": st.text("'=+-@\t\r\n;,\"a", min_size=1, max_size=5),
        },
    ),
    min_size=1,
    max_size=4,
)


@given(ROWS)
def test_what_export_writes_reads_back(rows: list[dict[str, Any]]) -> None:
    assert read(table(rows).decode()) == rows
