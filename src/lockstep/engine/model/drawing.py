"""A picture of a model: boxes for windows in columns, and arrows from parents to children."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from lockstep.engine.model import windows as w
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.plan import Plan
from lockstep.engine.model.values import duration_text

MARGIN = 28.0
TITLE = 52.0
CAPTION = 30.0
HEIGHT = 66.0
_BOLD = 8.4
_LETTER = 7.0
_COLOURS = {
    "source": ("#e3f2e6", "#2e7d43"),
    "copy": ("#e4eefb", "#2f66b5"),
    "aggregate": ("#fdeedd", "#c56a12"),
    "filter": ("#f3e8fa", "#8441ad"),
    "compute": ("#fff6d6", "#a58200"),
    "join": ("#fde7ec", "#bd2f55"),
    "union": ("#e0f4f4", "#14807f"),
    "pattern": ("#ffe3d8", "#bf4517"),
    "functional": ("#edf3d5", "#677f10"),
    "counter": ("#e8e8f8", "#5050a8"),
    "transpose": ("#f7e6df", "#8d5233"),
    "remove-state": ("#ececec", "#666666"),
    "notification": ("#fbe4f5", "#a92f8b"),
    "procedural": ("#e2e9ee", "#3d5a6c"),
    "custom": ("#e6ecdf", "#4b6431"),
    "idle": ("#f8f8f8", "#999999"),
}
_STYLE = (
    "text{font-family:'Helvetica Neue',Arial,sans-serif;font-size:12px;fill:#333}"
    ".title{font-size:20px;font-weight:600}.caption{font-size:14px;font-weight:600;fill:#666}"
    ".name{font-weight:600;font-size:13px;fill:#111}.kind{font-size:11px}"
    ".edge{fill:none;stroke:#777;stroke-width:1.5}.label{font-size:11px;fill:#555;stroke:#fff;stroke-width:3px;paint-order:stroke}"
)
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_svg(graph: Graph, plan: Plan | None = None) -> str:
    """The picture as SVG; with a plan, windows that are divided over shards say so."""
    modes = {} if plan is None else {step.node: step.mode for step in plan.steps if step.mode != "whole"}
    queries = list(dict.fromkeys(node.query for node in graph.nodes))
    parts: list[str] = []
    width, y = 0.0, MARGIN + TITLE
    for query in queries:
        nodes = [node for node in graph.nodes if node.query == query]
        if len(queries) > 1:
            parts.append(_text(MARGIN, y + 14, query, "caption"))
            y += CAPTION
        drawn = lay_out({node.index: _size(node) for node in nodes}, _edges(nodes))
        parts.append(f'<g transform="translate({_number(MARGIN)} {_number(y)})">')
        parts += [*_lines(nodes, drawn), *(_node(node, drawn.boxes[node.index], modes) for node in nodes), "</g>"]
        width, y = max(width, drawn.width), y + drawn.height + MARGIN
    return _page(graph.project.name, len(graph.nodes), max(width, 300.0) + 2 * MARGIN, y, parts)


def _page(name: str, count: int, width: float, height: float, parts: Iterable[str]) -> str:
    size = f"{_number(width)} {_number(height)}"
    title = f"{name}: {count} window{'' if count == 1 else 's'}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{_number(width)}" '
        f'height="{_number(height)}" role="img">'
    )
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="#777"/></marker></defs>'
    )
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    top = [head, f"<title>{_clean(title)}</title>", f"<style>{_STYLE}</style>", marker, ground]
    return "\n".join([*top, _text(MARGIN, MARGIN + 16, title, "title"), *parts, "</svg>", ""])


def _size(node: Node) -> tuple[float, float]:
    name, line = len(shortened(node.window.name, 30)) * _BOLD, len(label_of(node)) * _LETTER
    return max(130.0, name + 26, line + 26), HEIGHT


def _edges(nodes: list[Node]) -> list[tuple[int, int]]:
    return [(parent.node, node.index) for node in nodes for parent in node.parents]


def _node(node: Node, box: Box, modes: dict[int, str]) -> str:
    fill, stroke = _COLOURS.get(node.window.kind, ("#f4f4f4", "#555555"))
    x, mode = box.x + 13, modes.get(node.index)
    place = " ".join(
        f'{name}="{_number(value)}"'
        for name, value in (("x", box.x), ("y", box.y), ("width", box.width), ("height", box.height))
    )
    kind = node.window.kind if mode is None else f"{node.window.kind} · {mode}"
    return "".join(
        [
            f'<g class="window" data-window="{_clean(node.path)}">',
            f"<title>{_clean(f'{node.path}: {node.schema}')}</title>",
            f'<rect {place} rx="7" fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>',
            _text(x, box.y + 22, shortened(node.window.name, 30), "name"),
            _text(x, box.y + 38, kind, "kind", f' style="fill:{stroke}"'),
            _text(x, box.y + 55, label_of(node), "main"),
            "</g>",
        ]
    )


def _lines(nodes: list[Node], drawn: Layout) -> list[str]:
    parents = [parent for node in nodes for parent in node.parents]
    found = []
    for parent, route in zip(parents, drawn.routes, strict=True):
        found.append(f'<path class="edge" d="{_curve(route)}" marker-end="url(#arrow)"/>')
        slot = "" if parent.slot == -1 else f"slot {parent.slot}"
        words = " ".join(word for word in (parent.role or "", slot) if word)
        if words:
            x, y = route[-1]
            found.append(_text(x - 10, y - 5, words, "label", ' text-anchor="end"'))
    return found


def _curve(route: tuple[Point, ...]) -> str:
    """Straight through the columns it passes, bent between them."""
    path = [f"M{_number(route[0][0])} {_number(route[0][1])}"]
    for place, ((x0, y0), (x1, y1)) in enumerate(pairwise(route)):
        half = (x0 + x1) / 2
        bend = f"C{_number(half)} {_number(y0)} {_number(half)} {_number(y1)} {_number(x1)} {_number(y1)}"
        path.append(bend if place % 2 == 0 else f"L{_number(x1)} {_number(y1)}")
    return "".join(path)


def _text(x: float, y: float, text: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{_number(x)}" y="{_number(y)}"{more}>{_clean(text)}</text>'


def _clean(text: str) -> str:
    return escape(_ILLEGAL.sub("�", text), {'"': "&quot;"})


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


WIDTH = 36


def shortened(text: str, width: int = WIDTH) -> str:
    """A text on one line, cut where it grows too long."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def label_of(node: Node) -> str:
    """What matters most about a window."""
    words = _WORDS.get(type(node.window))
    return shortened(words(node.window)) if words else ""


def retention_words(retention: w.Retention | None) -> str:
    """How long rows stay."""
    if retention is None:
        return "keeps all rows"
    limit = duration_text(retention.limit) if retention.by_time else f"{retention.limit} rows"
    kind = retention.kind.partition("_")[2].replace("_", " ")
    field = f" of {retention.field}" if retention.field else ""
    return f"{kind} {limit}{field}"


def _keys(window: Any) -> str:
    return ", ".join(field.name for field in window.schema if field.key) or "nothing"


def _source(window: w.SourceWindow) -> str:
    kept = f", {retention_words(window.retention)}" if window.retention else ""
    records = f"records of {window.stream}, " if window.takes_records else ""
    return f"{records}key {_keys(window)}{', insert only' if window.insert_only else ''}{kept}"


def _join(window: w.JoinWindow) -> str:
    pairs = (left if left == right else f"{left} = {right}" for left, right in window.conditions)
    return f"{window.type} on {', '.join(pairs)}"


def _pattern(window: w.PatternWindow) -> str:
    return "; ".join(pattern.logic for pattern in window.patterns)


def _counter(window: w.CounterWindow) -> str:
    return "in all" if window.count_us is None else f"every {duration_text(window.count_us)}"


def _transpose(window: w.TransposeWindow) -> str:
    return f"{window.mode}: {window.tag_name} of {', '.join(window.tag_values)}"


def _remove_state(window: w.RemoveStateWindow) -> str:
    return f"without {', '.join(window.remove)}" if window.remove else "numbered inserts"


def _notification(window: w.NotificationWindow) -> str:
    return ", ".join(f"{channel.kind} to {channel.to}" for channel in window.channels)


_WORDS: dict[type[w.Window], Callable[[Any], str]] = {
    w.SourceWindow: _source,
    w.CopyWindow: lambda window: retention_words(window.retention),
    w.AggregateWindow: lambda window: f"by {_keys(window)}",
    w.FilterWindow: lambda window: window.expression,
    w.ComputeWindow: lambda window: ", ".join(field.name for field in window.schema if not field.key),
    w.JoinWindow: _join,
    w.UnionWindow: lambda window: "strict" if window.strict else "all rows",
    w.PatternWindow: _pattern,
    w.FunctionalWindow: lambda window: ", ".join(name for name, _ in window.functions),
    w.CounterWindow: _counter,
    w.TransposeWindow: _transpose,
    w.RemoveStateWindow: _remove_state,
    w.NotificationWindow: _notification,
    w.ProceduralWindow: lambda window: f"{window.module}:{window.handler}",
    w.CustomWindow: lambda window: f"{window.module}:{window.class_} {window.version}",
}


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
