"""Where the boxes of a graph go: in columns from left to right, parents before children, with few crossings.

Long edges get a place in every column they pass, so that no line runs through a box. Nothing here is random: the same
graph always looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP_X = 70.0
GAP_Y = 26.0
SWEEPS = 8

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Half of its height down."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by node, and for each edge the points that its line goes through."""

    boxes: Mapping[int, Box]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


@dataclass(slots=True)
class _Spot:
    """A node in a column, or the place where a long edge passes it."""

    width: float
    height: float
    layer: int
    before: list[int]
    after: list[int]
    middle: float = 0.0


def lay_out(sizes: Mapping[int, tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place nodes of these sizes; the edges must not go round in a circle."""
    layers = _layers(sizes, edges)
    spots = {node: _Spot(width, height, layers[node], [], []) for node, (width, height) in sizes.items()}
    chains = [_chain(source, target, spots) for source, target in edges]
    columns = _ordered(spots)
    _settle(columns, spots)
    left = _lefts(columns, spots)
    boxes = {node: _box(spots[node], left) for node in sizes}
    ends = _Ports(edges, spots, chains)
    routes = tuple(ends.route(place, boxes, left) for place in range(len(edges)))
    width = max((box.x + box.width for box in boxes.values()), default=0.0)
    height = max((spot.middle + spot.height / 2 for spot in spots.values()), default=0.0)
    return Layout(boxes, routes, width, height)


def _layers(nodes: Mapping[int, object], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """How many edges the longest way to a node has."""
    layers = dict.fromkeys(nodes, 0)
    for _ in nodes:
        before = dict(layers)
        for source, target in edges:
            layers[target] = max(layers[target], layers[source] + 1)
        if layers == before:
            break
    return layers


def _chain(source: int, target: int, spots: dict[int, _Spot]) -> list[int]:
    """The spots of an edge, with one for every column it passes."""
    chain = [source]
    for layer in range(spots[source].layer + 1, spots[target].layer):
        passing = -1 - len(spots)
        spots[passing] = _Spot(0.0, 12.0, layer, [], [])
        chain.append(passing)
    chain.append(target)
    for one, other in pairwise(chain):
        spots[one].after.append(other)
        spots[other].before.append(one)
    return chain


def _ordered(spots: dict[int, _Spot]) -> list[list[int]]:
    """The columns, each ordered by where its neighbours stand."""
    depth = max((spot.layer for spot in spots.values()), default=-1) + 1
    columns: list[list[int]] = [[] for _ in range(depth)]
    for name, spot in spots.items():
        columns[spot.layer].append(name)
    best, least = [list(column) for column in columns], _crossings(columns, spots)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for layer in range(1, depth) if forward else range(depth - 2, -1, -1):
            _sort(columns[layer], columns[layer + (-1 if forward else 1)], spots, forward)
        crossings = _crossings(columns, spots)
        if crossings < least:
            best, least = [list(column) for column in columns], crossings
    return best


def _sort(column: list[int], beside: list[int], spots: dict[int, _Spot], forward: bool) -> None:
    place = {name: index for index, name in enumerate(beside)}
    own = {name: index for index, name in enumerate(column)}

    def middle(name: int) -> float:
        near = [place[other] for other in (spots[name].before if forward else spots[name].after) if other in place]
        return sum(near) / len(near) if near else own[name]

    column.sort(key=lambda name: (middle(name), own[name]))


def _crossings(columns: list[list[int]], spots: dict[int, _Spot]) -> int:
    found = 0
    for left, right in pairwise(columns):
        place = {name: index for index, name in enumerate(right)}
        lines = [(index, place[other]) for index, name in enumerate(left) for other in spots[name].after]
        found += sum(a < c and b > d for a, b in lines for c, d in lines)
    return found


def _settle(columns: list[list[int]], spots: dict[int, _Spot]) -> None:
    """Heights: every spot as near to the middle of its neighbours as those above and below it allow."""
    for column in columns:
        _place(column, spots, [0.0] * len(column))
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = []
            for name in column:
                near = (spots[name].before if forward else spots[name].after) or [name]
                wanted.append(sum(spots[other].middle for other in near) / len(near))
            _place(column, spots, wanted)
    top = min((spot.middle - spot.height / 2 for spot in spots.values()), default=0.0)
    for spot in spots.values():
        spot.middle -= top


def _place(column: list[int], spots: dict[int, _Spot], wanted: list[float]) -> None:
    """Put a column's spots at the heights closest to those wanted that keep them apart and in order."""
    offsets, offset = [], 0.0
    for index, name in enumerate(column):
        if index:
            offset += (spots[column[index - 1]].height + spots[name].height) / 2 + GAP_Y
        offsets.append(offset)
    # Pools of spots that touch each other move together, to the mean of what they want.
    pools: list[tuple[float, int]] = []
    for want, shift in zip(wanted, offsets, strict=True):
        mean, count = want - shift, 1
        while pools and pools[-1][0] >= mean:
            other, size = pools.pop()
            mean, count = (other * size + mean * count) / (size + count), size + count
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    for name, mean, shift in zip(column, means, offsets, strict=True):
        spots[name].middle = mean + shift


def _lefts(columns: list[list[int]], spots: dict[int, _Spot]) -> list[tuple[float, float]]:
    """Left side and width of every column."""
    found, x = [], 0.0
    for column in columns:
        width = max(spots[name].width for name in column)
        found.append((x, width))
        x += width + GAP_X
    return found


def _box(spot: _Spot, left: list[tuple[float, float]]) -> Box:
    x, width = left[spot.layer]
    return Box(x, spot.middle - spot.height / 2, width, spot.height)


class _Ports:
    """Where lines leave and enter boxes: apart from each other, in the order of what they lead to."""

    def __init__(self, edges: Sequence[tuple[int, int]], spots: dict[int, _Spot], chains: list[list[int]]) -> None:
        self._edges, self._spots, self._chains = edges, spots, chains

    def route(self, place: int, boxes: Mapping[int, Box], left: list[tuple[float, float]]) -> tuple[Point, ...]:
        """The points of an edge's line."""
        source, target = self._edges[place]
        points = [(boxes[source].x + boxes[source].width, self._height(place, boxes[source], 0, 1))]
        for name in self._chains[place][1:-1]:
            x, width = left[self._spots[name].layer]
            points += [(x, self._spots[name].middle), (x + width, self._spots[name].middle)]
        return (*points, (boxes[target].x, self._height(place, boxes[target], 1, -2)))

    def _height(self, place: int, box: Box, end: int, beside: int) -> float:
        node = self._edges[place][end]
        there = [other for other, edge in enumerate(self._edges) if edge[end] == node]
        there.sort(key=lambda other: (self._spots[self._chains[other][beside]].middle, other))
        return box.y + box.height * (there.index(place) + 1) / (len(there) + 1)
