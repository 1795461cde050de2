"""The graph as one SVG: boxes in layers, reads as lines, what is only waited for as dashed lines.

What a box says stands in it as text: name, kind, state with its mark, cost, and the inputs that it reads; hovering
shows all of it. An edge that others imply is drawn faintly; where a graph has so many that they would bury it, they are
left out. The style holds the light colours plainly and the dark ones behind `prefers-color-scheme`, so that a viewer
that knows no media queries shows the light ones. It has a ground of its own, since the page around may follow another
scheme. All rules are bound to `.orch-graph`: an SVG inside a page shares its styles with the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

from orchestrator.drawing.layout import MOST_LANES, Layout, Route, arrange, lanes, layers
from orchestrator.drawing.picture import Node, Picture

MARGIN: Final = 20
TITLE: Final = 34
ROW: Final = 46  # between two layers
LINE: Final = 17
PADDING: Final = 12
CHAR: Final = 7.3  # of the 12 px fixed-width letters, a little more than their nominal width
MOST_CHARS: Final = 36

_LIGHT: Final[Mapping[str, tuple[str, str]]] = {
    "succeeded": ("#dafbe1", "#1a7f37"),
    "stale": ("#fff1e5", "#bc4c00"),
    "failed": ("#ffebe9", "#cf222e"),
    "waiting": ("#fff8c5", "#9a6700"),
    "running": ("#ddf4ff", "#0969da"),
}
_DARK: Final[Mapping[str, tuple[str, str]]] = {
    "succeeded": ("#12261e", "#3fb950"),
    "stale": ("#2e1d10", "#f0883e"),
    "failed": ("#2d1517", "#f85149"),
    "waiting": ("#272115", "#d29922"),
    "running": ("#121d2f", "#4493f8"),
}
_OFF: Final = frozenset({"pending", "ready", "cancelled", "skipped"})


def svg(picture: Picture) -> str:
    direct = picture.direct()
    parents = {node.name: node.parents for node in picture.steps}
    if lanes(layers(parents), parents) > MOST_LANES:
        parents = dict(direct)
    texts = {node.name: _texts(node) for node in picture.steps}
    widths = {name: round(max(map(len, lines)) * CHAR) + 2 * PADDING for name, lines in texts.items()}
    inputs = f" · inputs: {', '.join(picture.inputs)}" if picture.inputs else ""
    head = picture.title + inputs
    layout = arrange(parents, widths)
    line = _cut(head, max(MOST_CHARS, int(layout.width / CHAR)))
    width = max(layout.width, round(len(line) * CHAR)) + 2 * MARGIN
    drawing = _Drawing(layout, widths, texts, (width - layout.width) // 2)
    nodes = {node.name: node for node in picture.steps}
    body = [
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 14}">{_text(line)}</text>',
        *(drawing.edge(route, nodes[route.child], direct[route.child]) for route in layout.routes),
        *(drawing.box(node) for node in picture.steps),
    ]
    return "\n".join([*_open(head, width, drawing.height), *body, "</svg>"])


def _open(title: str, width: int, height: int) -> list[str]:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="orch-graph" role="img" {size}>',
        f"<title>{_text(title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="ground" width="{width}" height="{height}" rx="6"/>',
    ]


class _Drawing:
    """A layout on paper: the rows have the height of their tallest box."""

    def __init__(
        self, layout: Layout, widths: Mapping[str, int], texts: Mapping[str, tuple[str, ...]], left: int
    ) -> None:
        self.layout, self.widths, self.texts, self.left = layout, widths, texts, left
        count = max(layout.layer.values(), default=-1) + 1
        self.tall = [0] * count
        for name, layer in layout.layer.items():
            self.tall[layer] = max(self.tall[layer], self._height(name))
        self.top = [MARGIN + TITLE + sum(self.tall[:at]) + at * ROW for at in range(count)]
        self.height = (self.top[-1] + self.tall[-1] if count else MARGIN + TITLE) + MARGIN

    def _height(self, name: str) -> int:
        return len(self.texts[name]) * LINE + 2 * PADDING - 4

    def box(self, node: Node) -> str:
        width, height, y = self.widths[node.name], self._height(node.name), self.top[self.layout.layer[node.name]]
        x = self.left + self.layout.middle[node.name] - width // 2
        first, *others = self.texts[node.name]
        lines = [f'<text class="name" x="{x + PADDING}" y="{y + PADDING + 11}">{_text(first)}</text>']
        lines += [
            f'<text x="{x + PADDING}" y="{y + PADDING + 11 + at * LINE}">{_text(line)}</text>'
            for at, line in enumerate(others, 1)
        ]
        radius = 14 if node.kind == "python" else 5
        shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'
        return f'<g class="node {_class(node)}"><title>{_text(_hover(node))}</title>{shape}{"".join(lines)}</g>'

    def edge(self, route: Route, child: Node, direct: Collection[str]) -> str:
        """A curve between rows, straight through a row that it passes; an arrow's head at the child."""
        first, last = self.layout.layer[route.parent], self.layout.layer[route.child]
        middles = [self.left + middle for middle in route.middles]
        y = self.top[first] + self._height(route.parent)
        path = [f"M{middles[0]} {y}"]
        for at, (here, there) in enumerate(pairwise(middles), first + 1):
            end = self.top[at] - (7 if at == last else 0)
            half = (end + y) // 2
            path.append(f"V{end}" if here == there else f"C{here} {half} {there} {half} {there} {end}")
            if at != last:
                y = self.top[at] + self.tall[at]
                path.append(f"V{y}")
        kind = "need" if route.parent in child.needs else "read"
        faint = "" if route.parent in direct else " faint"
        head = f'<path class="head{faint}" d="M{middles[-1]} {self.top[last]}l-4 -8h8z"/>'
        return f'<path class="{kind}{faint}" d="{"".join(path)}"/>{head}'


def _texts(node: Node) -> tuple[str, ...]:
    reads = [_cut(f"← {', '.join(node.inputs)}", MOST_CHARS)] if node.inputs else []
    return (_cut(node.name, MOST_CHARS), _cut(" · ".join(node.facts), MOST_CHARS), *reads)


def _hover(node: Node) -> str:
    reads = (*node.inputs, *node.reads)
    parts = [" · ".join([node.name, *node.facts])]
    parts += [f"reads {', '.join(reads)}"] if reads else []
    parts += [f"after {', '.join(node.needs)}"] if node.needs else []
    return "; ".join(parts)


def _class(node: Node) -> str:
    if node.state is None:
        return "plain"
    return node.state if node.state in _LIGHT else "off" if node.state in _OFF else "plain"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(text: str) -> str:
    """Text that XML may hold, escaped for content and for attributes."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text), {'"': "&quot;"})


def _rules(colours: Mapping[str, tuple[str, str]]) -> list[str]:
    return [f".orch-graph .{name} rect{{fill:{fill};stroke:{line}}}" for name, (fill, line) in colours.items()]


def _scheme(ground: str, ink: str, soft: str, box: str, line: str) -> list[str]:
    return [
        f".orch-graph .ground{{fill:{ground}}}",
        f".orch-graph text{{fill:{soft}}}",
        f".orch-graph .name,.orch-graph .title{{fill:{ink}}}",
        f".orch-graph .node rect{{fill:{box};stroke:{line}}}",
        f".orch-graph .read,.orch-graph .need{{stroke:{line}}}",
        f".orch-graph .head{{fill:{line}}}",
    ]


STYLE: Final = "\n".join(
    [
        ".orch-graph{max-width:100%;height:auto}",
        ".orch-graph text{font:12px ui-monospace,Menlo,Consolas,monospace}",
        ".orch-graph .name,.orch-graph .title{font-weight:bold}",
        ".orch-graph .read,.orch-graph .need{fill:none;stroke-width:1.5}",
        ".orch-graph .need{stroke-dasharray:5 4}",
        ".orch-graph .faint{opacity:.5}",
        ".orch-graph .stale rect,.orch-graph .failed rect,.orch-graph .waiting rect{stroke-width:2}",
        ".orch-graph .off rect{stroke-dasharray:4 3}",
        *_scheme("#ffffff", "#1f2328", "#57606a", "#f6f8fa", "#8c959f"),
        *_rules(_LIGHT),
        "@media(prefers-color-scheme:dark){",
        *_scheme("#0d1117", "#f0f6fc", "#9198a1", "#161b22", "#656c76"),
        *_rules(_DARK),
        "}",
    ]
)
