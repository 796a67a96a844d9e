"""The time zones of crons."""

from __future__ import annotations

from functools import lru_cache

from lockstep.cron import Zone
from lockstep.schedule.rows import CronRow


def zone_of(row: CronRow) -> Zone:
    """The time zone of a cron, with its rule for nights when clocks change."""
    return _zone(row.tz, row.dst)


@lru_cache(maxsize=1024)
def _zone(name: str, dst: str) -> Zone:
    return Zone(name, "literal" if dst == "literal" else "once")
