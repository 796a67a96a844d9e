"""Draws the moving picture of the first page from a real drill: what a subscriber got while engines were killed.

python benchmarks/drill_picture.py            # draws docs/pictures/drill.svg from docs/pictures/drill.json
python benchmarks/drill_picture.py --run      # runs `lockstep drill` first and writes its figures there
python benchmarks/drill_picture.py --frames 5 # also writes that many frames to build/, to look at
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
DATA, PICTURE = PICTURES / "drill.json", PICTURES / "drill.svg"
MEAN_S = 1.0
"""The line is the mean over so long; the marks below it are single arrivals."""
EVENTS, RATE = 420_000, 6_000.0

WIDTH, HEIGHT = 860, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 18, 92, 82
MARKS = 20
"""The height of a mark."""
PLAY_S, HOLD_S = 7.0, 4.0
"""How long the line takes to be drawn, and how long the whole of it stays before it begins again."""
INK, SOFT, LINE, FAULT, SILENCE = "#1f2933", "#52606d", "#1f5f8b", "#b3261e", "#f6cfc9"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kill: when, of which engine, and how long no new block arrived."""

    at_s: float
    engine: str
    by: str
    silence_s: float


@dataclass(frozen=True, slots=True)
class Drill:
    """What the picture shows."""

    command: str
    date: str
    machine: str
    events: int
    seconds: float
    identical: bool
    lost: int
    doubled: int
    arrivals: Sequence[tuple[float, int]]
    """When a piece of the output came, in seconds from the first event, and the events in it."""
    faults: Sequence[Fault]

    @classmethod
    def of(cls, tree: dict[str, Any]) -> Drill:
        """Read it from the plain data of `DATA`."""
        return cls(**tree | {"faults": [Fault(**fault) for fault in tree["faults"]]})

    def rates(self) -> list[tuple[float, float]]:
        """Seconds, and the events a second in the time of `MEAN_S` around them."""
        steps = int(self.seconds * 10) + 1
        return [(step / 10, self._rate(step / 10)) for step in range(steps)]

    def _rate(self, at: float) -> float:
        first, last = max(at - MEAN_S / 2, 0.0), min(at + MEAN_S / 2, self.seconds)
        return sum(events for when, events in self.arrivals if first <= when < last) / (last - first)


def run() -> dict[str, Any]:
    """Kill engines for real, and return what arrived as plain data."""
    from datetime import UTC, datetime

    from lockstep.drill import measure
    from lockstep.drill.options import DrillOptions
    from lockstep.drill.report import Silence
    from lockstep.drill.run import run_drill

    result = run_drill(DrillOptions(events=EVENTS, rate=RATE), Silence())
    found, tree = result.measured, result.tree()
    ends = [0, *(arrival.events for arrival in found.arrivals)]
    return {
        "command": f"lockstep drill --events {EVENTS} --rate {RATE:.0f}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{measure.machine()['cores']} cores",
        "events": tree["events"],
        "seconds": tree["seconds"],
        "identical": tree["identical"],
        "lost": tree["lost"],
        "doubled": tree["doubled"],
        "arrivals": [
            [round(arrival.at - found.began_at, 3), arrival.events - before]
            for arrival, before in zip(found.arrivals, ends, strict=False)
        ],
        "faults": [
            {"at_s": fault.at_s, "engine": fault.engine, "by": fault.by, "silence_s": fault.silence_s}
            for fault in result.faults
        ],
    }


class Scale:
    """From seconds and events a second to places in the picture."""

    def __init__(self, drill: Drill) -> None:
        self.seconds = drill.seconds
        self.top = max(rate for _, rate in drill.rates()) * 1.08

    def x(self, seconds: float) -> float:
        """Left to right."""
        return LEFT + (WIDTH - LEFT - RIGHT) * min(seconds / self.seconds, 1.0)

    def y(self, rate: float) -> float:
        """Bottom to top."""
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / self.top


def draw(drill: Drill, shown_s: float | None = None) -> str:
    """Return the SVG. With `shown_s` it stands still as it is at that second of the run."""
    scale = Scale(drill)
    parts = [_head(drill), _title(drill), _axes(scale), _flow(drill, scale, shown_s)]
    parts += [_fault(fault, scale, shown_s) for fault in drill.faults]
    return "\n".join([*parts, _verdict(drill, shown_s), "</svg>", ""])


def _head(drill: Drill) -> str:
    gaps = " and ".join(f"{fault.silence_s:.1f}" for fault in drill.faults)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">
  <title id="t">Engines are killed, the stream goes on</title>
  <desc id="d">Events a second at a subscriber during one run. The active of two engines is killed with kill -9, twice.
  The line has two gaps of {gaps} seconds; then the other engine goes on, and what was held back arrives.</desc>
  <style>
    text {{ font-family: system-ui, "DejaVu Sans", "Helvetica Neue", Arial, sans-serif; fill: {INK}; font-size: 13px; }}
    .name {{ font-weight: 600; font-size: 16px; }}
    .small {{ font-size: 12px; fill: {SOFT}; }}
    .fault {{ fill: {FAULT}; font-weight: 600; }}
  </style>
  <rect width="100%" height="100%" fill="#ffffff"/>"""


def _title(drill: Drill) -> str:
    what = "Events a second at a subscriber, the mean over a second; below, each arrival"
    said = f"{what}. {drill.events:,} events, two engines on {drill.machine}, {drill.date}"
    return f"""  <text class="name" x="20" y="28">$ {escape(drill.command)}</text>
  <text class="small" x="20" y="47">{escape(said)}</text>"""


def _axes(scale: Scale) -> str:
    lines = []
    for rate in range(0, int(scale.top) + 1, 2_000 if scale.top < 14_000 else 5_000):
        y = scale.y(rate)
        lines.append(f'  <path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e7eb"/>')
        lines.append(f'  <text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate:,}</text>')
    for second in range(0, int(scale.seconds) + 1, 10):
        x = scale.x(second)
        lines.append(f'  <text class="small" x="{x:.1f}" y="{HEIGHT - 30}" text-anchor="middle">{second} s</text>')
    return "\n".join(lines)


def _flow(drill: Drill, scale: Scale, shown_s: float | None) -> str:
    points = drill.rates()
    line = "L".join(f"{scale.x(at):.1f} {scale.y(rate):.1f}" for at, rate in points)
    ground = HEIGHT - BOTTOM
    area = f"M{scale.x(points[0][0]):.1f} {ground}L{line}L{scale.x(points[-1][0]):.1f} {ground}Z"
    marks = "".join(f"M{scale.x(at):.1f} {ground + 8}v{MARKS}" for at, _ in drill.arrivals)
    reached = scale.seconds if shown_s is None else shown_s
    width, full = scale.x(reached) - LEFT, WIDTH - RIGHT - LEFT
    moving = _animate("width", f"0;{full};{full}", _times()) if shown_s is None else ""
    shown = f'<rect x="{LEFT}" y="0" width="{width:.1f}" height="{HEIGHT}">{moving}</rect>'
    return f"""  <clipPath id="shown">{shown}</clipPath>
  <g clip-path="url(#shown)">
    <path d="{area}" fill="{LINE}" fill-opacity="0.22"/>
    <path d="M{line}" fill="none" stroke="{LINE}" stroke-width="1.6" stroke-linejoin="round"/>
    <path d="{marks}" stroke="{LINE}" stroke-width="1"/>
  </g>"""


def _fault(fault: Fault, scale: Scale, shown_s: float | None) -> str:
    x, end = scale.x(fault.at_s), scale.x(fault.at_s + fault.silence_s)
    is_shown = shown_s is None or shown_s >= fault.at_s
    moving = _appear(fault.at_s / scale.seconds) if shown_s is None else ""
    top, ground, width = TOP, HEIGHT - BOTTOM, max(end - x, 1.5)
    is_late = x > 0.75 * WIDTH
    text = f'x="{x - 6:.1f}" text-anchor="end"' if is_late else f'x="{x + 6:.1f}"'
    said = f"{escape(fault.by)} goes on after {fault.silence_s:.2f} s"
    return f"""  <g opacity="{int(is_shown)}">{moving}
    <rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ground - top + MARKS + 8}" fill="{SILENCE}"/>
    <path d="M{x:.1f} {top - 24}V{ground + MARKS + 8}" stroke="{FAULT}" stroke-width="1.4" stroke-dasharray="4 3"/>
    <text class="fault" {text} y="{top - 14}">kill -9 {escape(fault.engine)}</text>
    <text class="small" {text} y="{top + 1}">{said}</text>
  </g>"""


def _verdict(drill: Drill, shown_s: float | None) -> str:
    same = "byte for byte that of a run without kills" if drill.identical else "NOT that of a run without kills"
    said = f"{drill.lost} lost, {drill.doubled} duplicated; the subscriber's file is {same}"
    is_shown = shown_s is None or shown_s >= drill.seconds
    moving = _appear(0.999) if shown_s is None else ""
    return f'  <text class="name" x="{LEFT}" y="{HEIGHT - 6}" opacity="{int(is_shown)}">{moving}{escape(said)}</text>'


def _times() -> str:
    return f"0;{PLAY_S / (PLAY_S + HOLD_S):.3f};1"


def _appear(share: float) -> str:
    """Invisible until this share of the line is drawn."""
    return _animate("opacity", "0;1;1", f"0;{share * PLAY_S / (PLAY_S + HOLD_S):.4f};1", mode="discrete")


def _animate(name: str, values: str, times: str, mode: str = "linear") -> str:
    return (
        f'<animate attributeName="{name}" values="{values}" keyTimes="{times}" calcMode="{mode}" '
        f'dur="{PLAY_S + HOLD_S:g}s" repeatCount="indefinite"/>'
    )


def main() -> None:
    """Do what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the drill first; needs Java")
    parser.add_argument("--frames", type=int, default=0, metavar="N", help="also write N still SVGs to build/")
    options = parser.parse_args()
    if options.run:
        DATA.write_text(json.dumps(run(), indent=None, separators=(",", ":")) + "\n")
    drill = Drill.of(json.loads(DATA.read_text()))
    PICTURE.write_text(draw(drill))
    for number in range(options.frames):
        frame = PICTURES.parent.parent / "build" / f"drill-{number}.svg"
        frame.parent.mkdir(exist_ok=True)
        frame.write_text(draw(drill, drill.seconds * (number + 1) / options.frames))
    print(PICTURE)


if __name__ == "__main__":
    main()
