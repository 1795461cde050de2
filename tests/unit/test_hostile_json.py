"""S25 attacked: JSON from models, servers and people that has no end, no one meaning, or no form that could be kept.

Whatever is sent, judging it gives a value or faults, in time in proportion to its size; and what counts as a value has
one form: written, read and written again, it is the same bytes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from orchestrator.contracts import Contract, class_contract, schemas
from orchestrator.contracts.rules import json_schema_faults
from orchestrator.contracts.schemas import multiplying, parse_json
from orchestrator.errors import Place
from orchestrator.ids import canonical_json, digest
from orchestrator.output import feedback, judge
from orchestrator.values import Reply

ANY: dict[str, Any] = {}
PARTS: dict[str, Any] = {
    "n": {"type": "number"},
    "i": {"type": "integer"},
    "cents": {"type": "number", "multipleOf": 0.01},
    "threes": {"type": "integer", "multipleOf": 3},
    "code": {"type": "string", "pattern": "^(a+)+$"},
    "at": {"type": "string", "format": "date-time"},
    "mail": {"type": "string", "format": "email"},
    "once": {"type": "array", "uniqueItems": True},
    "one": {"const": 1},
    "some": {"enum": [1, "a", None, True]},
    "few": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    "any": ANY,
    "either": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"y": {"type": "integer"}}}]},
    "exact": {"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 3}, {"type": "null"}]},
}


class Model(BaseModel):
    n: float = 0
    i: int = 0
    cents: Annotated[float, Field(multiple_of=0.01)] = 0
    price: Decimal | None = None
    once: set[str] = set()
    either: int | dict[str, float] | None = None
    any: Any = None


def _contract(schema: dict[str, Any], model: type[BaseModel] | None = None) -> Contract:
    names = tuple(schema.get("properties", ()))
    return Contract(
        "c", "A value.", (), "internal", (), None, "json", schema, model, names, (), {}, "", Place("c.yaml")
    )


def _inline(properties: dict[str, Any], **more: Any) -> Contract:
    schema = {"type": "object", "properties": properties, **more}
    assert schemas.schema_faults(schema) == []
    return _contract(schema)


def _typed(model: type[BaseModel]) -> Contract:
    return _contract(model.model_json_schema(), model)


INLINE, TYPED = _inline(PARTS), _typed(Model)


def _judged(text: str, contract: Contract) -> Any:
    """The value, or None for faults; a value has one form, and faults can be told."""
    result = judge(Reply(id="resp_1", status="completed", text=text, items=()), contract)
    if result.faults:
        feedback(result.faults).encode("utf-8", "strict")
        return None
    body = contract.dump(result.value)
    assert contract.dump(contract.load(body)) == body
    assert contract.field_hashes(body).keys() == result.value.keys()
    contract.instance(body)
    return result.value


NUMBERS = ["0", "-0", "1", "1.0", "1e2", "1e22", "1e308", "1e309", "-1e999", "1e-999", "NaN", "Infinity", "0.1", "007"]
NUMBERS += ["9" * 400, "9" * 4000, "9" * 4001, "-" + "9" * 4300, "9" * 20_000, "0." + "9" * 20_000, "1e" + "9" * 20_000]
NUMBERS += ["9007199254740993", "9007199254740993.0", "1_000", "0x10", "+1", ".5", "1.", "9" * 400 + ".5"]
STRINGS = [
    '""',
    '"a"',
    '"nan"',
    '"inf"',
    '"1e999"',
    '"NaN"',
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\ud83d\\ude00"',
]
STRINGS += [
    '"' + "a" * 5000 + '!"',
    '"' + "9" * 5000 + '"',
    "'a'",
    '"\x00"',
    '"\ud800"',
    '"\\x41"',
    '"' + "@" * 5000 + '"',
]
STRINGS += ['"9999-12-31T23:59:60Z"', '"\U00100000"', '"\u2028"', '"unclosed']
OTHERS = [
    "null",
    "true",
    "True",
    "[]",
    "{}",
    "[1,1.0,true]",
    '[{"a":1,"b":2},{"b":2,"a":1}]',
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
]
OTHERS += [
    "[" * 62 + "]" * 62,
    "[" * 65 + "]" * 65,
    "[" * 20_000,
    '{"a":' * 20_000,
    "[1,]",
    "[1 2]",
    "[1] // x",
    "/* x */ 1",
    "undefined",
]
leaf = st.sampled_from([*NUMBERS, *STRINGS, *OTHERS]) | st.floats().map(json.dumps) | st.integers().map(json.dumps)
texts = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda xs: "[" + ",".join(xs) + "]")
        | st.lists(st.tuples(st.sampled_from([*PARTS, "y", "", "__proto__", "price"]), inner), max_size=3).map(
            lambda xs: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in xs) + "}"
        )
    ),
    max_leaves=4,
)
documents = st.lists(st.tuples(st.sampled_from([*PARTS, "price", "x"]), texts), max_size=3).map(
    lambda pairs: "{" + ",".join(f'"{key}":{text}' for key, text in pairs) + "}"
)


@settings(max_examples=250, deadline=None)
@given(documents | texts | st.text(max_size=20))
def test_S25_whatever_a_model_says_is_a_value_of_one_form_or_faults(text: str) -> None:
    _judged(text, INLINE)
    _judged(text, TYPED)


@settings(max_examples=100, deadline=None)
@given(texts)
def test_S25_what_can_be_read_can_be_kept(text: str) -> None:
    """Everything that parses has canonical bytes, but for half characters, and reads back as the same value."""
    value, why = _tried(parse_json, text)
    assert len(why) < 200
    if why:
        return
    body, why = _tried(canonical_json, value)
    assert not why or "surrogate" in why
    if not why:
        assert parse_json(body.decode()) == value
        assert digest(parse_json(body.decode())) == digest(value)


def _tried(read: Callable[[Any], Any], value: Any) -> tuple[Any, str]:
    try:
        return read(value), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("name", ["n", "i", "cents", "threes", "any", "exact", "few", "once"])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12] + str(len(text)))
def test_S25_every_number_in_every_place(number: str, name: str) -> None:
    """A number of 400 digits that met a `multipleOf` of 0.01 was a bug of ours instead of a fault of the answer."""
    for contract in (INLINE, TYPED):
        _judged(f'{{"{name}": {number}}}', contract)
        _judged(f'{{"{name}": [{number}, {number}]}}', contract)


@pytest.mark.parametrize("said", ['"nan"', '"inf"', '"-Infinity"', '"1e999"', "1" + "0" * 400], ids=len)
def test_S25_a_model_that_takes_words_for_numbers_still_wants_finite_ones(said: str) -> None:
    result = judge(Reply(id="r", status="completed", text=f'{{"either": {{"a": {said}}}}}', items=()), TYPED)
    assert [(fault.path, fault.message) for fault in result.faults] == [
        ("$.either.a", "$.either.a must be a finite number")
    ]


@pytest.mark.parametrize(
    ("number", "fits"), [("0.3", True), ("19.99", True), ("1e308", True), ("0.305", False), ("7" * 400, True)]
)
def test_multiples_are_exact(number: str, fits: bool) -> None:
    """0.3 is thirty times 0.01, whatever binary fractions say."""
    assert (json_schema_faults(INLINE.schema or {}, parse_json(f'{{"cents": {number}}}')) == ()) is fits


@pytest.mark.parametrize(
    ("entries", "unique"),
    [
        ("[1, 1.0]", False),
        ("[1, true]", True),
        ('[0, false, null, ""]', True),
        ('["a", "a"]', False),
        ('[{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]', False),
        ("[[1, 2], [2, 1]]", True),
    ],
)
def test_entries_are_compared_as_json_values(entries: str, unique: bool) -> None:
    assert (json_schema_faults(INLINE.schema or {}, parse_json(f'{{"once": {entries}}}')) == ()) is unique


NO_MEANING = ["1e999", "-1e999", '{"a": [1e400]}', "NaN", "[Infinity]", "-Infinity", '{"a": 1, "a": 2}']
NO_END = ["[" * 66 + "]" * 66, "9" * 4001, "0." + "1" * 4000, " " * 20_000_001]


@pytest.mark.parametrize("text", [*NO_MEANING, *NO_END], ids=lambda text: text[:12])
def test_S25_what_has_no_one_meaning_or_no_end_is_not_even_read(text: str) -> None:
    """Refused by the reader itself: what comes after may not look again."""
    with pytest.raises(ValueError, match=r"number|digits|nested|twice|longer"):
        parse_json(text)
    assert parse_json("[" * 64 + "1e308" + "]" * 64)


# --- time in proportion -----------------------------------------------------------------------------------------------


def _seconds(text: str, contract: Contract) -> float:
    begun = time.process_time()
    judge(Reply(id="r", status="completed", text=text, items=()), contract)
    return time.process_time() - begun


@pytest.mark.parametrize("entry", ['{"k":%d}', "[%d]", '"%d"', "%d"])
def test_S25_many_entries_are_compared_in_time(entry: str) -> None:
    """Each with each, 4,000 objects took a minute, on the event loop."""
    entries = ",".join(entry % number for number in range(4000))
    assert _seconds(f'{{"once":[{entries}]}}', INLINE) < 10


NODE = {"anyOf": [{"$ref": "#/$defs/add"}, {"$ref": "#/$defs/mul"}, {"type": "null"}]}
TREE = _inline(
    {"e": NODE},
    **{
        "$defs": {
            kind: {
                "type": "object",
                "required": ["kind", "left"],
                "properties": {"kind": {"const": kind}, "left": NODE, "right": NODE},
            }
            for kind in ("add", "mul")
        }
    },
)


@pytest.mark.parametrize("kind", ["mul", "add", "div"])
@pytest.mark.parametrize("end", ["null", "5"])
def test_S25_a_tree_of_alternatives_is_checked_in_time(kind: str, end: str) -> None:
    """With every alternative tried at every level, 20 levels took an hour; the limit is 64."""
    text = end
    for _ in range(60):
        text = f'{{"kind": "{kind}", "left": {text}}}'
    assert _seconds(f'{{"e": {text}}}', TREE) < 10
    faults = json_schema_faults(TREE.schema or {}, parse_json(f'{{"e": {text}}}'))
    assert (faults == ()) is (kind != "div" and end == "null")


def test_S25_what_multiplies_all_the_same_is_given_up() -> None:
    """Two alternatives that both fit at every level: only trying both tells."""
    both = {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]}
    contract = _inline({"e": both}, **{"$defs": {"x": {"type": "object", "properties": {"c": both}}}})
    value: Any = {}
    for _ in range(50):
        value = {"c": value}
    begun = time.process_time()
    (fault,) = json_schema_faults(contract.schema or {}, {"e": value})
    assert "nested in too many ways" in fault.rule
    assert time.process_time() - begun < 20


class Add(BaseModel):
    kind: Literal["add"]
    left: Add | Mul | None


class Mul(BaseModel):
    kind: Literal["mul"]
    left: Add | Mul | None


class Sum(BaseModel):
    e: Add | Mul


class One(BaseModel):
    kind: Literal["one"]
    parts: list[Told] = []


class Two(BaseModel):
    kind: Literal["two"]
    parts: dict[str, Told] = {}


Told = Annotated[One | Two, Field(discriminator="kind")]


class Tells(BaseModel):
    e: Told


class Leaf(BaseModel):
    x: int


class Branch(BaseModel):
    parts: list[Leaf | Branch]


class Chain(BaseModel):
    after: Chain | None = None


class Tree(BaseModel):
    parts: list[Tree] = []


class Apart(BaseModel):
    e: Chain | Tree


def test_S25_a_model_that_would_try_every_combination_is_refused() -> None:
    """pydantic tries all alternatives of such a union, inside one call that nothing could stop."""
    assert multiplying(Sum.model_json_schema()) == ("$.properties.e", ("Add", "Mul"))
    with pytest.raises(ValueError, match="each of Add and Mul can hold all of them again"):
        class_contract(Sum, Place("models.py"))


@pytest.mark.parametrize("model", [Tells, Branch, Apart, Tree, Model])
def test_S25_a_recursive_model_that_knows_its_way_is_not(model: type[BaseModel]) -> None:
    assert multiplying(model.model_json_schema()) is None


class Plain(BaseModel):
    code: Annotated[str, Field(pattern=r"^(a+)+$")]


class Configured(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    code: Annotated[str, Field(pattern=r"^(a+)+$")]


class Compiled(BaseModel):
    code: Annotated[str, Field(pattern=re.compile(r"^(a+)+$"))]


class Holds(BaseModel):
    parts: dict[str, list[Configured | None]]


@pytest.mark.parametrize("model", [Configured, Compiled, Holds])
def test_S25_a_model_whose_patterns_may_take_for_ever_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(ValueError, match="regular expressions that Python's engine runs"):
        class_contract(model, Place("models.py"))


def test_S25_pydantics_own_patterns_take_time_in_proportion() -> None:
    assert _seconds(json.dumps({"code": "a" * 50_000 + "!"}), class_contract(Plain, Place("models.py"))) < 1


# --- one form ---------------------------------------------------------------------------------------------------------


class Names(RootModel[frozenset[str]]):
    pass


class Team(BaseModel):
    names: set[str]
    others: dict[str, set[str]] = {}
    pairs: list[frozenset[str]] = []
    root: Names = Names(frozenset())
    order: list[str] = []


def test_S25_a_set_is_written_in_one_order() -> None:
    """Its own order differs from process to process: an edit that changes nothing would have made a new version."""
    letters = list("fbadce")
    contract = _typed(Team)
    given: dict[str, Any] = {"names": letters, "others": {"x": letters, "a": []}, "pairs": [letters], "root": letters}
    kept = contract.load(contract.dump({**given, "order": letters}))
    assert kept["names"] == kept["others"]["x"] == kept["pairs"][0] == kept["root"] == sorted(letters)
    assert kept["order"] == letters
    assert contract.dump(Team.model_validate({**given, "order": letters})) == contract.dump({**given, "order": letters})


def test_S25_numbers_without_end_are_refused_whoever_gives_them() -> None:
    for value in (10**4000, -(10**4000), float("nan"), float("inf"), "\ud800", {"\ud800": 1}, {1: 2}, {1, 2}, b"x"):
        with pytest.raises(ValueError, match=r"digits|finite|surrogate|keys must be text|is not JSON data"):
            canonical_json([value])
    assert len(canonical_json(10**4000 - 1)) == 4000
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper than 64"):
        canonical_json(deep)
