"""Where the boxes of a graph stand: in layers from top to bottom, few crossings, edges through lanes of their own.

The usual four moves (Sugiyama): each step goes to the layer below its lowest parent; an edge that passes layers gets a
lane, an empty slot, in each of them; the slots of each layer are ordered by the middle of their neighbours, a few times
down and up; then each slot goes as near to its neighbours as its order allows. Ties go by the order that was, so equal
graphs get equal places. All numbers are whole pixels in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

SWEEPS: Final = 6
GAP: Final = 24
LANE: Final = 14
MOST_LANES: Final = 2_000

Slot = tuple[str, int]  # a step (-1), or the lane of its edges through a layer


@dataclass(frozen=True, slots=True)
class Route:
    """An edge: the middles of the slots that it passes, layer by layer, parent and child included."""

    parent: str
    child: str
    middles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layer and the middle of each step, in pixels from the left; the routes of its edges; how wide all is."""

    layer: Mapping[str, int]
    middle: Mapping[str, int]
    routes: tuple[Route, ...]
    width: int


def lanes(layer: Mapping[str, int], parents: Mapping[str, Sequence[str]]) -> int:
    """How many slots edges need in the layers that they pass."""
    lowest: dict[str, int] = {}
    for child, above in parents.items():
        for parent in above:
            lowest[parent] = max(lowest.get(parent, 0), layer[child])
    return sum(below - layer[parent] - 1 for parent, below in lowest.items())


def layers(parents: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The keys stand after their parents."""
    layer: dict[str, int] = {}
    for name, above in parents.items():
        layer[name] = max((layer[parent] + 1 for parent in above), default=0)
    return layer


def arrange(parents: Mapping[str, Sequence[str]], widths: Mapping[str, int]) -> Layout:
    """The keys of `parents` stand after their parents; `widths` are those of the boxes, in pixels."""
    layer = layers(parents)
    ways = _ways(parents, layer)
    rows = _rows(layer, ways)
    up, down = _neighbours(ways)
    for sweep in range(SWEEPS):
        _order(rows, up if sweep % 2 == 0 else down, downwards=sweep % 2 == 0)
    size = {slot: widths[slot[0]] if slot[1] < 0 else LANE for row in rows for slot in row}
    places = _places(rows, size, up, down)
    left = min((places[slot] - size[slot] / 2 for slot in places), default=0.0)
    right = max((places[slot] + size[slot] / 2 for slot in places), default=0.0)
    middle = {slot: round(place - left) for slot, place in places.items()}
    routes = tuple(Route(way[0][0], way[-1][0], tuple(middle[slot] for slot in way)) for way in ways)
    return Layout(layer, {name: middle[name, -1] for name in parents}, routes, round(right - left))


def _ways(parents: Mapping[str, Sequence[str]], layer: Mapping[str, int]) -> list[tuple[Slot, ...]]:
    """Each edge as the slots that it passes. Edges of one parent share their lanes: they part where they must."""
    ways: list[tuple[Slot, ...]] = []
    for child, above in parents.items():
        for parent in above:
            passed = tuple((parent, at) for at in range(layer[parent] + 1, layer[child]))
            ways.append(((parent, -1), *passed, (child, -1)))
    return ways


def _rows(layer: Mapping[str, int], ways: Sequence[Sequence[Slot]]) -> list[list[Slot]]:
    rows: list[list[Slot]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, at in layer.items():
        rows[at].append((name, -1))
    for slot in dict.fromkeys(slot for way in ways for slot in way if slot[1] >= 0):
        rows[slot[1]].append(slot)
    return rows


Near = Mapping[Slot, Sequence[Slot]]


def _neighbours(ways: Sequence[Sequence[Slot]]) -> tuple[Near, Near]:
    """Above and below each slot, once each."""
    up: dict[Slot, dict[Slot, None]] = {}
    down: dict[Slot, dict[Slot, None]] = {}
    for way in ways:
        for above, below in pairwise(way):
            up.setdefault(below, {})[above] = None
            down.setdefault(above, {})[below] = None
    return {slot: list(near) for slot, near in up.items()}, {slot: list(near) for slot, near in down.items()}


def _order(rows: list[list[Slot]], near: Near, *, downwards: bool) -> None:
    """Order each row by the mean position of its neighbours in the row before; what has none keeps its place."""
    position = {slot: at for row in rows for at, slot in enumerate(row)}
    for row in rows if downwards else reversed(rows):
        keys = {slot: _mean([position[n] for n in near.get(slot, ())], position[slot]) for slot in row}
        row.sort(key=lambda slot: (keys[slot], position[slot]))
        position.update((slot, at) for at, slot in enumerate(row))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _places(rows: Sequence[Sequence[Slot]], size: Mapping[Slot, int], up: Near, down: Near) -> dict[Slot, float]:
    """The middle of each slot: packed at first, then drawn towards its neighbours, down and up."""
    places: dict[Slot, float] = {}
    for row in rows:
        wanted = [0.0] * len(row)
        places.update(zip(row, _apart(wanted, row, size), strict=True))
    for sweep in range(SWEEPS * 2):
        near = up if sweep % 2 == 0 else down
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean([places[n] for n in near.get(slot, ())], places[slot]) for slot in row]
            places.update(zip(row, _apart(wanted, row, size), strict=True))
    return places


def _apart(wanted: Sequence[float], row: Sequence[Slot], size: Mapping[Slot, int]) -> list[float]:
    """The places nearest to the wanted ones (least squares) that keep the order and a gap: pool adjacent violators."""
    offsets, at = [], 0.0
    for before, slot in zip([None, *row], row, strict=False):
        at += 0 if before is None else (size[before] + size[slot]) / 2 + GAP
        offsets.append(at)
    blocks: list[tuple[float, int]] = []  # sum and count of what must stand together
    for want, offset in zip(wanted, offsets, strict=True):
        total, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            earlier = blocks.pop()
            total, count = total + earlier[0], count + earlier[1]
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
