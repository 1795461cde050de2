"""Drawings of graphs: what they say, that nothing lies over anything else, that equal pictures are equal bytes."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli import lines
from orchestrator.drawing import MARKS, Format, Node, Picture, draw, picture_of
from orchestrator.drawing.layout import GAP, arrange, layers
from orchestrator.drawing.picture import dollars
from orchestrator.graph import Graph
from orchestrator.values import RunRow
from tests.graph_kit import Part, dags, graph_of, row_of

GOLDEN = Path(__file__).parents[1] / "golden" / "graph"
GRAPH = graph_of(
    {
        "market": Part(["idea"]),
        "rates": Part(["region"], kind="python"),
        "stack": Part(["market", "rates"]),
        "plan": Part(["stack"], needs=["rates"]),
        "estimate": Part(["idea", "stack", "plan", "market"]),
        "end": Part(),
    },
    ["idea", "region"],
)
ROWS = (
    row_of("idea", kind="input"),
    row_of("region", kind="input"),
    row_of("market", cost="0.006"),
    row_of("rates"),
    row_of("stack", cost="1.5"),
    row_of("plan", "failed", cost="0.00001"),
    row_of("estimate", "pending"),
    row_of("end", "running"),
)


def run_row(number: int = 12) -> Any:
    return type("Run", (), {"number": number})()


RUN: RunRow = run_row()
PICTURE = picture_of(GRAPH, RUN, ROWS, {"stack"})


def test_the_tree_shows_each_step_once_below_the_last_that_it_waits_for() -> None:
    assert draw(picture_of(GRAPH), "text").splitlines() == [
        "shop · inputs: idea, region",
        "├─ market · llm  ← idea",
        "│  └─ stack ↓",
        "├─ rates · python  ← region",
        "│  └─ stack · llm  ← market, rates",
        "│     └─ plan · llm  ← stack  after rates",
        "│        └─ estimate · llm  ← idea, stack, plan, market",
        "└─ end · llm",
    ]


def test_the_tree_of_a_run_says_how_each_step_stands() -> None:
    assert draw(PICTURE, "text").splitlines() == [
        "shop · run 12 · inputs: idea, region",
        "├─ ✓ market · llm · $0.006  ← idea",
        "│  └─ stack ↓",
        "├─ ✓ rates · python  ← region",
        "│  └─ ! stack · llm · stale · $1.50  ← market, rates",
        "│     └─ ✗ plan · llm · failed · <$0.0001  ← stack  after rates",
        "│        └─ · estimate · llm · pending  ← idea, stack, plan, market",
        "└─ ▸ end · llm · running",
    ]


def test_a_reference_points_up_where_the_step_stands_above() -> None:
    """`b` is declared before `a`'s other way down, so `d` has been shown when the second reference comes."""
    graph = graph_of({"a": Part(), "b": Part(["a"]), "c": Part(["a"]), "d": Part(["b", "c"]), "e": Part(["d", "b"])})
    assert draw(picture_of(graph), "text").splitlines()[1:] == [
        "└─ a · llm",
        "   ├─ b · llm  ← a",
        "   │  └─ d ↓",
        "   └─ c · llm  ← a",
        "      └─ d · llm  ← b, c",
        "         └─ e · llm  ← d, b",
    ]
    swapped = graph_of({"c": Part(), "x": Part(["c"]), "b": Part(["c"]), "d": Part(["x"]), "e": Part(["b", "x"])})
    assert "   ├─ x · llm  ← c" in draw(picture_of(swapped), "text")
    later = graph_of({"a": Part(), "b": Part(), "j": Part(["a", "b"]), "k": Part(["j", "z"]), "z": Part()})
    assert draw(picture_of(later), "text").splitlines()[-2:] == ["└─ z · llm", "   └─ k · llm  ← j, z"]


def test_mermaid_source() -> None:
    picture = picture_of(GRAPH, RUN, ROWS, {"stack"}, only={"market", "stack", "plan", "end"})
    assert draw(picture, "mermaid").splitlines() == [
        "%% shop · run 12",
        "flowchart TD",
        '  i0(["idea"])',
        '  s0["market<br/>llm · ✓ succeeded · $0.006"]',
        '  s1["stack<br/>llm · ! stale · $1.50"]',
        '  s2["plan<br/>llm · ✗ failed · #60;$0.0001"]',
        '  s3["end<br/>llm · ▸ running"]',
        "  i0 --> s0",
        "  s0 --> s1",
        "  s1 --> s2",
        "  classDef input fill:#eaeef2,stroke:#57606a,color:#1f2328",
        "  classDef succeeded fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
        "  classDef stale fill:#fff1e5,stroke:#bc4c00,color:#1f2328,stroke-width:2px",
        "  classDef failed fill:#ffebe9,stroke:#cf222e,color:#1f2328,stroke-width:2px",
        "  classDef running fill:#ddf4ff,stroke:#0969da,color:#1f2328",
        "  class i0 input",
        "  class s0 succeeded",
        "  class s1 stale",
        "  class s2 failed",
        "  class s3 running",
    ]
    whole = draw(picture_of(GRAPH), "mermaid")
    assert '  s1[["rates<br/>python"]]' in whole
    assert "  s1 -.-> s3" in whole


@pytest.mark.parametrize(("form", "name"), [("svg", "run.svg"), ("text", "run.txt"), ("mermaid", "run.mmd")])
def test_the_same_picture_is_the_same_bytes(form: Format, name: str) -> None:
    assert draw(PICTURE, form) + "\n" == (GOLDEN / name).read_text(encoding="utf-8")


def test_each_state_has_one_mark_everywhere() -> None:
    assert {state: lines.MARKS[state][0] for state in MARKS} == MARKS


def test_items_of_a_step_are_one_node_in_the_state_to_look_at_first() -> None:
    graph = graph_of({"a": Part()})
    rows = [
        row_of("a", item="x", cost="0.01"),
        row_of("a", "failed", item="y", cost="0.02"),
        row_of("a", "pending", item="z"),
    ]
    (node,) = picture_of(graph, RUN, rows).steps
    assert node.state == "failed"
    assert node.facts == ("llm", "✗ failed", "1 of 3", "$0.03")
    assert picture_of(graph, RUN, rows[:1], {"a"}).steps[0].state == "stale"
    assert picture_of(graph, RUN, [], {"a"}).steps[0].state == "pending"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, ""),
        ("0", ""),
        ("0.00009", "<$0.0001"),
        ("0.0114", "$0.0114"),
        ("0.1", "$0.10"),
        ("0.006", "$0.006"),
        ("4", "$4.00"),
    ],
)
def test_money(amount: str | None, text: str) -> None:
    assert dollars(None if amount is None else Decimal(amount)) == text


# --- random graphs ----------------------------------------------------------------------------------------------------


def above(graph: Graph, name: str) -> set[str]:
    """All ancestors, by walking every way."""
    return {up for parent in graph.steps[name].parents for up in {parent, *above(graph, parent)}}


@given(dags())
def test_what_others_imply_is_not_direct(graph: Graph) -> None:
    direct = picture_of(graph).direct()
    for name, step in graph.steps.items():
        naive = {p for p in step.parents if not any(p in above(graph, other) for other in step.parents)}
        assert set(direct[name]) == naive


@given(dags())
def test_the_tree_holds_each_step_once_and_each_direct_edge_once(graph: Graph) -> None:
    picture = picture_of(graph)
    edges, stack = [], list[str]()
    shown = []
    for line in draw(picture, "text").splitlines()[1:]:
        match = re.fullmatch(r"((?:│  |   )*)(?:├─ |└─ )(s\d+)( ·.*| [↑↓])", line)
        assert match, line
        depth = len(match[1]) // 3
        stack = [*stack[:depth], match[2]]
        edges.append((stack[-2] if depth else "", match[2]))
        if match[3][1] == "·":
            shown.append(match[2])
        else:
            assert (match[3] == " ↑") == (match[2] in shown)
    assert sorted(shown) == sorted(graph.steps)
    direct = picture.direct()
    assert sorted(edges) == sorted((p, name) for name, parents in direct.items() for p in parents or ("",))


@given(dags(most=14), st.data())
def test_no_box_lies_on_another_and_every_edge_leads_down(graph: Graph, data: st.DataObject) -> None:
    parents = {name: step.parents for name, step in graph.steps.items()}
    widths = {name: data.draw(st.integers(20, 300)) for name in parents}
    layout = arrange(parents, widths)
    layer = layers(parents)
    for at in set(layer.values()):
        row = sorted((layout.middle[name], name) for name in parents if layer[name] == at)
        for (left, first), (right, second) in pairwise(row):
            assert right - left >= (widths[first] + widths[second]) / 2 + GAP - 1
        assert row[0][0] - widths[row[0][1]] / 2 >= -1
        assert row[-1][0] + widths[row[-1][1]] / 2 <= layout.width + 1
    assert {(route.parent, route.child) for route in layout.routes} == {(p, n) for n, ps in parents.items() for p in ps}
    for route in layout.routes:
        assert layer[route.child] - layer[route.parent] == len(route.middles) - 1 >= 1
        assert route.middles[0] == layout.middle[route.parent]
        assert route.middles[-1] == layout.middle[route.child]
        for at, middle in enumerate(route.middles[1:-1], layer[route.parent] + 1):
            for name in parents:
                if layer[name] == at:
                    assert abs(middle - layout.middle[name]) >= widths[name] / 2


SVG = "{http://www.w3.org/2000/svg}"


@settings(max_examples=30)
@given(dags())
def test_an_svg_is_well_formed_and_all_of_it_is_inside(graph: Graph) -> None:
    root = ElementTree.fromstring(draw(picture_of(graph), "svg"))
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    boxes = [rect for group in root.iter(f"{SVG}g") for rect in group.iter(f"{SVG}rect")]
    assert len(boxes) == len(graph.steps)
    for box in boxes:
        x, y, w, h = (int(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == list(graph.steps)
    edges = [path for path in root.iter(f"{SVG}path") if (path.get("class") or "").startswith(("read", "need"))]
    assert len(edges) == sum(len(step.parents) for step in graph.steps.values())


def test_S27_hostile_names_stay_text_in_every_form() -> None:
    evil = 'x"]<script>alert(1)</script>&\x1b[2J\u202e\n--> #'
    picture = Picture(evil, None, (evil,), (Node(evil, evil, inputs=(evil,), state=evil),))
    svg = draw(picture, "svg")
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "style", "rect", "text", "g",
    }  # fmt: skip
    assert "\x1b" not in svg
    assert "\u202e" not in svg
    mermaid = draw(picture, "mermaid")
    assert "<script" not in mermaid
    assert mermaid.count("\n") == 8  # nine lines: no name makes one
    assert "\x1b" not in mermaid


def test_S28_an_svg_runs_nothing_loads_nothing_and_styles_only_itself() -> None:
    svg = draw(PICTURE, "svg")
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "title", "style", "rect", "text", "g", "path"}
        assert not {key for key in element.attrib if key.startswith("on") or key in ("href", "id", "style")}
    style = next(root.iter(f"{SVG}style")).text or ""
    assert "url(" not in style
    assert "@import" not in style
    for selectors in re.findall(r"([^{}]+)\{[^{}]", style.replace("@media(prefers-color-scheme:dark){", "")):
        assert all(selector.strip().startswith(".orch-graph") for selector in selectors.split(","))


def test_both_colour_schemes_are_readable() -> None:
    """Contrast of text on each box, WCAG 2: 4.5 at least, in both schemes; colours as they stand in the style."""
    style = next(ElementTree.fromstring(draw(PICTURE, "svg")).iter(f"{SVG}style")).text or ""
    light, dark = style.split("@media(prefers-color-scheme:dark){")
    for scheme in (light, dark):
        inks = re.findall(r"(?:text|title)\{fill:(#\w{6})\}", scheme)
        grounds = re.findall(r"(?:ground|rect)\{fill:(#\w{6})", scheme)
        assert len(inks) == 2
        assert len(grounds) == 7
        assert min(contrast(ink, ground) for ink in inks for ground in grounds) >= 4.5


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_chain_longer_than_the_stack_is_drawn() -> None:
    parts = {f"s{at}": Part([f"s{at - 1}"] if at else []) for at in range(1_500)}
    picture = picture_of(graph_of(parts))
    assert draw(picture, "text").count("\n") == 1_500
    assert draw(picture, "svg").count("<g ") == 1_500


def test_where_implied_edges_would_bury_the_graph_they_are_left_out() -> None:
    parts = {f"s{at}": Part([f"s{before}" for before in range(at)]) for at in range(80)}
    svg = draw(picture_of(graph_of(parts)), "svg")
    assert svg.count('class="read"') == 79
    assert "read faint" not in svg
    few = draw(picture_of(graph_of({name: parts[name] for name in list(parts)[:4]})), "svg")
    assert few.count('class="read"') == 3
    assert few.count('class="read faint"') == 3
