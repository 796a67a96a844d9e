"""Charts as SVG without styles of their own, so that pages need no inline style."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT, PAD = 640, 160, 34
COLUMN, NODE = 270, 170
"""Of a graph: from one layer to the next, and the width of a node; between them is room for what an edge says."""
_TICKS = 4


def sparkline(values: Sequence[float | None], width: int = 96, height: int = 20) -> Markup:
    """A small line without axes; values that are not known leave a hole."""
    paths = _drawn(_paths(values, width, height, 1))
    label = _told(values)
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, label, paths
    )


def line_chart(values: Sequence[float | None], label: str, unit: str = "", seconds: float = 0.0) -> Markup:
    """A line with its range and the time that it covers."""
    known = [value for value in values if value is not None]
    if not known:
        return Markup('<p class="empty">{}: nothing was measured yet.</p>').format(label)
    top = max(known) or 1.0
    paths = _drawn(_paths(values, WIDTH, HEIGHT, PAD, top))
    lines = []
    for tick in range(_TICKS + 1):
        y = HEIGHT - PAD - (HEIGHT - 2 * PAD) * tick / _TICKS
        lines.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text x="{}" y="{:.1f}">{}</text>'
            ).format(PAD + 14, WIDTH - 4, y, y, 2, y + 4, _short(top * tick / _TICKS))
        )
    begin = Markup('<text x="{}" y="{}">{}</text>').format(
        PAD + 14, HEIGHT - 8, f"{seconds:.0f} s ago" if seconds else ""
    )
    end = Markup('<text x="{}" y="{}" text-anchor="end">now</text>').format(WIDTH - 4, HEIGHT - 8)
    title = f"{label}: {_told(values)} {unit}".strip()
    return Markup(
        '<figure class="chart"><figcaption>{}</figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}{}</svg></figure>'
    ).format(f"{label}{f', {unit}' if unit else ''}", WIDTH, HEIGHT, title, Markup("").join(lines), paths, begin, end)


def graph(nodes: Sequence[dict[str, object]], edges: Sequence[tuple[str, str, str]]) -> Markup:
    """A directed graph in layers, left to right. Nodes have id, label, note, state and link; edges have a label."""
    places = _layers([str(node["id"]) for node in nodes], [(start, end) for start, end, _ in edges])
    wide = NODE + 40 + COLUMN * (max((column for column, _ in places.values()), default=0))
    high = 30 + 72 * (1 + max((row for _, row in places.values()), default=0))
    drawn = [_edge(places[start], places[end], text) for start, end, text in edges if start in places and end in places]
    drawn += [_node(places[str(node["id"])], node) for node in nodes]
    return Markup(
        '<svg class="graph" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="model graph">{}</svg>'
    ).format(wide, high, wide, high, Markup("").join(drawn))


def _layers(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """The column and row of each node: a column after those of all that lead to it."""
    column = dict.fromkeys(names, 0)
    for _ in names:
        for start, end in edges:
            if start in column and end in column and column[end] <= column[start] < len(names):
                column[end] = column[start] + 1
    filled: dict[int, int] = {}
    places = {}
    for name in names:
        row = filled.get(column[name], 0)
        filled[column[name]] = row + 1
        places[name] = (column[name], row)
    return places


def _node(place: tuple[int, int], node: dict[str, object]) -> Markup:
    x, y = 20 + COLUMN * place[0], 15 + 72 * place[1]
    body = Markup(
        '<g class="node {}"><rect x="{}" y="{}" width="{}" height="48" rx="5"/>'
        '<text x="{}" y="{}">{}</text><text class="note" x="{}" y="{}">{}</text></g>'
    ).format(node.get("state", ""), x, y, NODE, x + 10, y + 20, _cut(str(node["label"]), 24), x + 10, y + 38,
             _cut(str(node.get("note", "")), 28))  # fmt: skip
    return Markup('<a href="{}">{}</a>').format(node["link"], body) if node.get("link") else body


def _edge(start: tuple[int, int], end: tuple[int, int], text: str) -> Markup:
    x1, y1 = 20 + NODE + COLUMN * start[0], 39 + 72 * start[1]
    x2, y2 = 20 + COLUMN * end[0], 39 + 72 * end[1]
    middle = (x1 + x2) / 2
    label = Markup('<text class="note" x="{}" y="{}" text-anchor="middle">{}</text>').format(
        middle, (y1 + y2) / 2 - 6, text
    )
    return Markup('<path class="edge" d="M{} {} C{} {} {} {} {} {}"/>{}').format(
        x1, y1, middle, y1, middle, y2, x2, y2, label if text else ""
    )


def _paths(values: Sequence[float | None], width: int, height: int, pad: int, top: float | None = None) -> list[str]:
    known = [value for value in values if value is not None]
    most = top if top is not None else max([*known, 1e-9])
    left = pad + 14 if pad > 1 else pad
    step = (width - left - 4) / max(1, len(values) - 1)
    paths: list[str] = []
    is_drawing = False
    for number, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        x, y = left + number * step, height - pad - (height - 2 * pad) * max(0.0, value) / most
        if is_drawing:
            paths[-1] += f" L{x:.1f} {y:.1f}"
        else:
            paths.append(f"M{x:.1f} {y:.1f}")
        is_drawing = True
    return paths


def _drawn(paths: Sequence[str]) -> Markup:
    return Markup("").join(Markup('<path d="{}"/>').format(path) for path in paths)


def _told(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return (
        f"from {_short(min(known))} to {_short(max(known))}, now {_short(known[-1])}" if known else "nothing measured"
    )


def _short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
