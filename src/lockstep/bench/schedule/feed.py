"""A process that schedules events at a steady rate, each due a little later."""

from __future__ import annotations

import time
from typing import Any

import lockstep
from lockstep.bench.processes import Link
from lockstep.bench.schedule.nodes import Site, now_ms, open_scheduler, upsert

LEAD_MS = 1500
"""How far ahead events are scheduled."""
_BURST_S = 0.05


def feed(link: Link, site: Site, rate: int, first: int = 0) -> dict[str, Any]:
    """Schedule `rate` events a second, numbered from `first`, until told to end; return how many it were."""
    with lockstep.connect(site.url) as bus, open_scheduler(bus, site, node=None) as scheduler:
        link.ready()
        began, sent = time.monotonic(), 0
        while not link.is_over():
            wanted = int((time.monotonic() - began) * rate)
            at = now_ms() + LEAD_MS
            burst = [upsert(scheduler, first + number, at + number % 50) for number in range(sent, wanted)]
            if burst:
                scheduler.client.send(burst)
                sent = wanted
            time.sleep(_BURST_S)
        return {"sent": sent, "seconds": round(time.monotonic() - began, 1)}
