"""A picture of a model: boxes for windows, coloured by kind, with arrows from parents to children."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from xml.sax.saxutils import escape

from lockstep.engine.model.drawing_labels import label_of, shortened
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.layout import Box, Layout, Point, lay_out
from lockstep.engine.model.plan import Plan

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
