"""When a block was published, by what is written down on the control log and in reports."""

from __future__ import annotations

import json

from lockstep.engine.runtime.control.reports import all_reports
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.port import Bus, Log


def first_published_ns(bus: Bus, streams: ProjectStreams, block: int) -> int | None:
    """When something behind `block` was first seen to be published; None if nothing was."""
    found = _first_beat(bus.open(streams.control), block)
    if found is None:
        return None
    at_ns, is_oldest = found
    if is_oldest and streams.reports in set(bus.names()):  # beats do not reach back: reports may
        seen = (report.at_ns for report in all_reports(bus.open(streams.reports)) if report.published > block)
        return min([at_ns, *seen])
    return at_ns


def _first_beat(control: Log, block: int) -> tuple[int, bool] | None:
    """The time of the first beat that says more than `block` is out, and whether there is none before it.

    Beats say more and more, so it is found by halving: a few reads, however many beats there are.
    """
    bounds = control.bounds()
    low, high = bounds.first, bounds.next
    found: int | None = None
    while low < high:
        middle = (low + high) // 2
        beat = _beat_at(control, middle)
        if beat is None or beat[0] > block:
            found, high = (beat[1] if beat is not None else found), middle
        else:
            low = middle + 1
    return None if found is None else (found, low == bounds.first)


def _beat_at(control: Log, offset: int) -> tuple[int, int] | None:
    """What the beat at an offset, or the next one, says to be published, and when; None if there is none."""
    try:
        stored = control.read(offset, max_bytes=1)
    except Trimmed:
        stored = control.read(control.bounds().first, max_bytes=1)
    if not stored:
        return None
    view = BatchView(stored[0].base, stored[0].data, control.name)
    published = json.loads(view.values()[max(0, min(offset - view.base, view.count - 1))])["published"]
    return int(published), view.created_ns
