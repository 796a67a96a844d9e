"""Cron expressions of four dialects, as cron-utils 7.0.2 understands them: parse, next, previous, matches, describe.

parse("0 0/5 14,18 * * ?", "QUARTZ").next(datetime.now(UTC), Zone("Europe/Berlin"))

Pure: no clock, no files but the time zones of the tzdata package. `lockstep.cron.table` holds very many in columns.
"""

from __future__ import annotations

from lockstep.cron.dialect import Dialect
from lockstep.cron.expression import Cron, parse
from lockstep.cron.zone import UTC, Zone

__all__ = ["UTC", "Cron", "Dialect", "Zone", "parse"]
