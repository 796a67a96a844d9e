"""The history of a scheduler: what happened to events and ticks, newest records first looked at.

Ticks of a cron that are skipped one after the other for one reason are one record: `eventTime` is the first of them,
`lastTime` the last, and `count` says how many there are. A record without `count` is about one event or tick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lockstep.log.batch import BatchView
from lockstep.log.offsets import step_back
from lockstep.log.port import Log
from lockstep.schedule.streams import SchedulerStreams
from lockstep.streams.client import Lockstep

SCANNED = 1_000_000
"""So many of the newest records are looked at, unless told otherwise."""


def records_of(
    bus: Lockstep, streams: SchedulerStreams, tenant: str, name: str, *, scanned: int = SCANNED
) -> list[dict[str, Any]]:
    """Return the records of an event, or of a cron's ticks, in the order in which they were written."""
    wanted = json.dumps(name, ensure_ascii=False).encode()
    found = (json.loads(value) for value in _values(bus.logs(streams.history)[0], scanned) if wanted in value)
    return [record for record in found if record.get("id") == name and record.get("tenant") == tenant]


def _values(log: Log, scanned: int) -> Iterator[bytes]:
    bounds = log.bounds()
    start = step_back(log, bounds.next, scanned, bounds.first)
    while start < bounds.next and (entries := log.read(start)):
        for entry in entries:
            view = BatchView(entry.base, entry.data, log.name)
            values = view.values()
            yield from values[max(start - view.base, 0) :]
            start = view.end
