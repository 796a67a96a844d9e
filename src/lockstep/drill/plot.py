"""A picture of a drill: what arrived at the subscriber over time, and what was done meanwhile."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lockstep.drill.arrivals import rates
from lockstep.drill.result import Result

_LINE, _FAULT, _SILENCE = "#1f5f8b", "#c0392b", "#f2c4bd"
_STEPS, _STEP_S_MIN = 150, 0.1
_LABELS_MAX, _LABEL_ROWS, _ROW = 8, 3, 0.17
"""Words of faults that are close to each other stand below one another."""


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(result: Result, path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(11, 4.8))
    _rate(ax, result)
    _faults(ax, result)
    ax.set_xlabel("seconds from the first event")
    ax.set_ylabel("events a second at the subscriber")
    ax.set_title(_title(result), loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(axis="y", alpha=0.3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rate(ax: Any, result: Result) -> None:
    step = max(result.seconds / _STEPS, _STEP_S_MIN)
    points = rates(result.measured.arrivals, step)
    times = [at - result.measured.began_at for at, _ in points]
    ax.fill_between(times, [rate for _, rate in points], step="mid", color=_LINE, alpha=0.25, linewidth=0)
    ax.step(times, [rate for _, rate in points], where="mid", color=_LINE, linewidth=1.2)
    ax.set_xlim(0, result.seconds)
    ax.set_ylim(0, max([rate for _, rate in points], default=1.0) * 1.35)


def _faults(ax: Any, result: Result) -> None:
    """Draw a line for each fault, a label if there are not too many, and a shaded span for the silence after it."""
    top = ax.get_ylim()[1]
    for number, fault in enumerate(result.faults):
        ax.axvline(fault.at_s, color=_FAULT, linewidth=1.2, linestyle="--")
        if fault.silence:
            ax.axvspan(*fault.silence, color=_SILENCE, zorder=0)
        if len(result.faults) > _LABELS_MAX:
            ax.text(fault.at_s, top * 0.98, f" {number + 1}", color=_FAULT, fontsize=8, va="top")
            continue
        words = f" {fault.kind} {fault.engine}"
        if fault.silence_s is not None:
            words += f"\n {fault.silence_s:.2f} s of silence"
        if fault.by:
            words += f"\n {fault.by} goes on after {fault.last:,}"
        is_late = fault.at_s > 0.75 * result.seconds
        height = top * (0.98 - _ROW * (number % _LABEL_ROWS))
        ax.text(fault.at_s, height, words, color=_FAULT, fontsize=8.5, va="top", ha="right" if is_late else "left")


def _title(result: Result) -> str:
    measured = result.measured
    same = "identical to an undisturbed run" if measured.difference is None else "NOT identical"
    return f"{measured.options.total:,} events, {measured.options.engines} engines, {result.rate:,}/s: {same}"
