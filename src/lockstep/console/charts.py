"""Charts as SVG without styles of their own, so that pages need no inline style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 640, 190
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 28
"""The margins of a chart; its axes are written there."""
COLUMN, ROW, NODE_WIDTH, NODE_HEIGHT = 310, 92, 196, 62
"""Of a graph: from one layer to the next, from one row to the next, and a node; rates are written between nodes."""
_TICKS = 4
_STEPS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)


def sparkline(values: Sequence[float | None], width: int = 110, height: int = 22) -> Markup:
    """A small line without axes; values that are not known leave a hole."""
    points = _points(values, max([*_known(values), 1e-9]), (1, width - 1), (2, height - 2))
    label = _summary(values)
    return Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, label, _lines(points)
    )


def line_chart(
    values: Sequence[float | None], label: str, unit: str = "", every_s: float = 0.0, at_ms: int | None = None
) -> Markup:
    """A line with axes, what it says in words, and the same as a table.

    `every_s` is the time between two values, `at_ms` when the last one was measured.
    """
    if not _known(values):
        return Markup('<p class="empty">{}: nothing was measured yet. Values come every few seconds.</p>').format(label)
    top = _nice(max(_known(values)))
    seconds = every_s * (len(values) - 1)
    points = _points(values, top, (LEFT, WIDTH - RIGHT), (TOP, HEIGHT - BOTTOM))
    drawn = Markup("").join([_areas(points), *_value_axis(top), *_time_axis(seconds, at_ms), _lines(points)])
    said = f"{_summary(values)}{f' {unit}' if unit else ''}"
    return Markup(
        '<figure class="chart"><figcaption>{}{} <span class="note">{}, over {}</span></figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}</figure>'
    ).format(label, f", {unit}" if unit else "", said, _span(seconds), WIDTH, HEIGHT, f"{label}: {said}", drawn,
             _table(values, label, unit, every_s, at_ms))  # fmt: skip


def graph(nodes: Sequence[Mapping[str, Any]], edges: Sequence[tuple[str, str, str]]) -> Markup:
    """A directed graph in layers, left to right.

    Nodes have id, label, note and link, and what colours them: kind, state, is_published, bad. Edges have a label.
    """
    places = _layers([str(node["id"]) for node in nodes], [(start, end) for start, end, _ in edges])
    wide = 32 + NODE_WIDTH + COLUMN * max((column for column, _ in places.values()), default=0)
    high = 24 + NODE_HEIGHT + ROW * max((row for _, row in places.values()), default=0)
    drawn = [_edge(places[start], places[end], text) for start, end, text in edges if start in places and end in places]
    drawn += [_node(places[str(node["id"])], node) for node in nodes]
    return Markup(
        '<svg class="graph" viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-label="Graph of the model">'
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="arrow" d="M0 0 L10 5 L0 10 z"/></marker></defs>{}</svg>'
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


def _node(place: tuple[int, int], node: Mapping[str, Any]) -> Markup:
    x, y = 16 + COLUMN * place[0], 12 + ROW * place[1]
    body = Markup(
        '<g class="node {}"><title>{}: {}</title><rect x="{}" y="{}" width="{}" height="{}" rx="8"/>'
        '<text class="name" x="{}" y="{}">{}</text><text class="says" x="{}" y="{}">{}</text></g>'
    ).format(_classes(node), node["label"], node.get("note", ""), x, y, NODE_WIDTH, NODE_HEIGHT, x + 14, y + 26,
             _cut(str(node["label"]), 22), x + 14, y + 47, _cut(str(node.get("note", "")), 30))  # fmt: skip
    return Markup('<a href="{}">{}</a>').format(node["link"], body) if node.get("link") else body


def _classes(node: Mapping[str, Any]) -> str:
    """What the style sheet colours; the table beside a graph says the same in words."""
    known = (("published", node.get("is_published")), ("bad", node.get("bad")))
    return " ".join([str(node.get("kind", "")), *(name for name, is_so in known if is_so), str(node.get("state", ""))])


def _edge(start: tuple[int, int], end: tuple[int, int], text: str) -> Markup:
    """A line with an arrow; its rate is written where no other line of the same node runs."""
    x1, y1 = 16 + NODE_WIDTH + COLUMN * start[0], 12 + NODE_HEIGHT / 2 + ROW * start[1]
    x2, y2 = 16 + COLUMN * end[0], 12 + NODE_HEIGHT / 2 + ROW * end[1]
    middle = (x1 + x2) / 2
    at = x2 - (COLUMN - NODE_WIDTH) / 2 + (22 if y1 != y2 else 0)
    label = Markup('<text class="rate" x="{}" y="{}" text-anchor="middle">{}</text>').format(
        at, y2 - 8 if y1 == y2 else y2 + (20 if y2 > y1 else -10), text
    )
    is_busy = text[:1].isdigit() and not text.startswith("0/")
    return Markup('<path class="edge{}" d="M{} {} C{} {} {} {} {} {}" marker-end="url(#arrow)"/>{}').format(
        " busy" if is_busy else "", x1, y1, middle, y1, middle, y2, x2, y2, label if text else ""
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _points(
    values: Sequence[float | None], top: float, across: tuple[float, float], down: tuple[float, float]
) -> list[list[tuple[float, float]]]:
    """Runs of points without a hole in them. The newest value is at the right edge."""
    step = (across[1] - across[0]) / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            runs.append([])
            continue
        x = across[1] - (len(values) - 1 - number) * step
        runs[-1].append((x, down[1] - (down[1] - down[0]) * max(0.0, value) / top))
    return [run for run in runs if run]


def _lines(runs: Sequence[Sequence[tuple[float, float]]]) -> Markup:
    """A path for each run; a run of one point is a dot."""
    lines = [Markup('<path class="line" d="M{}"/>').format(_path(run)) for run in runs if len(run) > 1]
    dots = [Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="2.5"/>').format(*run[0])
            for run in runs if len(run) == 1]  # fmt: skip
    return Markup("").join([*lines, *dots])


def _areas(runs: Sequence[Sequence[tuple[float, float]]]) -> Markup:
    low = HEIGHT - BOTTOM
    return Markup("").join(
        Markup('<path class="area" d="M{:.1f} {} L{} L{:.1f} {} Z"/>').format(
            run[0][0], low, _path(run), run[-1][0], low
        )
        for run in runs
        if len(run) > 1
    )


def _path(run: Sequence[tuple[float, float]]) -> str:
    return " L".join(f"{x:.1f} {y:.1f}" for x, y in run)


def _value_axis(top: float) -> list[Markup]:
    lines = []
    for tick in range(_TICKS + 1):
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tick / _TICKS
        lines.append(
            Markup(
                '<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format("grid" if tick else "axis", LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, short(top * tick / _TICKS))
        )
    return lines


def _time_axis(seconds: float, at_ms: int | None) -> list[Markup]:
    """Times of the clock if it is known when the last value was measured, else how long ago."""
    ticks = []
    for tick in range(_TICKS + 1):
        x = LEFT + (WIDTH - LEFT - RIGHT) * tick / _TICKS
        before_s = seconds * (1 - tick / _TICKS)
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        if at_ms is None:
            text, data = (f"{_span(before_s)} ago" if before_s else "now"), Markup("")
        else:
            ms = at_ms - int(before_s * 1000)
            text, data = _clock(ms), Markup(' data-ms="{}"').format(ms)
        ticks.append(
            Markup('<text x="{:.1f}" y="{}" text-anchor="{}"{}>{}</text>').format(x, HEIGHT - 8, anchor, data, text)
        )
    return ticks


def _table(values: Sequence[float | None], label: str, unit: str, every_s: float, at_ms: int | None) -> Markup:
    """The newest first. What was not measured is said to be unknown."""
    rows = []
    for number, value in enumerate(reversed(values)):
        before_s = number * every_s
        when: str | Markup = f"{_span(before_s)} ago" if number else "now"
        if at_ms is not None:
            moment = datetime.fromtimestamp((at_ms - int(before_s * 1000)) / 1000, UTC)
            text = moment.isoformat(timespec="seconds").replace("+00:00", "Z")
            when = Markup('<time datetime="{}">{}</time>').format(text, text.replace("T", " "))
        rows.append(
            Markup('<tr><td>{}</td><td class="number">{}</td></tr>').format(
                when, "unknown" if value is None else f"{value:,.1f}"
            )
        )
    return Markup(
        '<details data-key="table-{}"><summary>As a table</summary><div class="wide"><table><thead><tr>'
        '<th scope="col">time</th><th scope="col" class="number">{}</th></tr></thead><tbody>{}</tbody></table></div>'
        "</details>"
    ).format(label, unit or label, Markup("").join(rows))


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def _nice(most: float) -> float:
    """A round number at or above a value, so that the marks of an axis are round, too."""
    if most <= 0:
        return float(_TICKS)
    size = 10.0 ** (len(f"{int(most)}") - 1) if most >= 1 else 1.0
    return next(step * size for step in _STEPS if step * size >= most) if most > 1 else 1.0


def _summary(values: Sequence[float | None]) -> str:
    known = _known(values)
    if not known:
        return "nothing measured"
    if min(known) == max(known) and values[-1] is not None:
        return f"{short(known[-1])} all the time"
    last = "now unknown" if values[-1] is None else f"now {short(known[-1])}"
    return f"{last}, between {short(min(known))} and {short(max(known))}"


def _span(seconds: float) -> str:
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.0f} s"


def short(value: float) -> str:
    """A number for an axis."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
