"""The figures as bars: each against its target, so that different units fit on one axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep.bench.rows import Row, shown

_OK, _MISS, _OTHER = "#2a7f62", "#c0392b", "#8a8f98"


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rates = [row for row in rows if row.unit == "/s"]
    limits = [row for row in rows if not row.at_least and row.limit]
    parts = [(part, found) for part, found in ((_rates, rates), (_limits, limits)) if found]
    sizes = [len(found) for _, found in parts]
    figure, axes = plt.subplots(
        len(parts), 1, figsize=(11, 1.6 + 0.36 * sum(sizes)), height_ratios=sizes, squeeze=False
    )
    for ax, (part, found) in zip(axes[:, 0], parts, strict=True):
        part(ax, found)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rates(ax: Any, rows: list[Row]) -> None:
    _bars(ax, rows, [row.value for row in rows])
    ax.set_xscale("log")
    ax.set_title("Per second (log scale; | target)", loc="left", fontsize=11)
    for at, row in enumerate(rows):
        if row.limit is not None:
            ax.plot([row.limit, row.limit], [at - 0.4, at + 0.4], color="black", linewidth=2)


def _limits(ax: Any, rows: list[Row]) -> None:
    _bars(ax, rows, [row.value / (row.limit or 1) for row in rows])
    ax.axvline(1.0, color="black", linewidth=2)
    ax.set_title("Times, processor, growth: part of what is allowed (| limit; less is better)", loc="left", fontsize=11)


def _bars(ax: Any, rows: list[Row], lengths: list[float]) -> None:
    colours = [_OTHER if row.limit is None else _OK if row.ok else _MISS for row in rows]
    bars = ax.barh(range(len(rows)), lengths, color=colours, height=0.7)
    texts = [f"{shown(row.value)} {row.unit}" for row in rows]
    ax.bar_label(
        bars, texts, fontsize=9, padding=4, zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}
    )
    ax.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8.5)
    ax.invert_yaxis()
    ax.margins(x=0.18)
    ax.spines[["top", "right"]].set_visible(False)
