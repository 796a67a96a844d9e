"""The settings in force, as the core looks at them: checks, handlers, filters, aggregates, thresholds.

Settings are validated before they get here. What is of a wrong type all the same counts as not there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from lockstep.cron import Cron, Zone, parse
from lockstep.errors import CronInvalid, ZoneUnknown

WARNING_S, CRITICAL_S = 120, 180
SEVERITIES = ("ok", "warning", "critical", "unknown")
EACH, CHANGE = "each", "change"
WHOLE_MAX = 2**31
"""Larger numbers of seconds or occurrences count as this one: JSON holds whole numbers of any size."""
SHARE = re.compile(r"\s*(>=|>|<=|<|==)\s*(\d{1,9}(?:\.\d{1,6})?)\s*(%?)\s*", re.ASCII)
"""When an aggregate alerts: a number of its members, or their share, such as `>= 1` or `>= 50%`."""
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
Json = dict[str, Any]


class Rules:
    """Settings looked up by name. `digest` and `by` are what the order with them said."""

    def __init__(self, document: Json, digest: str = "", by: str = "", time: int = 0) -> None:
        self.document, self.digest, self.by, self.time = document, digest, by, time
        self.checks = objects(document, "checks")
        self.handlers = objects(document, "handlers")
        self.filters = objects(document, "filters")
        self.aggregates = objects(document, "aggregates")
        own = document.get("sensu")
        self.own: Json = own if isinstance(own, dict) else {}
        self.notify = CHANGE if self.own.get("notify") == CHANGE else EACH
        self.zone = _zone(self.own.get("timezone"))
        keepalives = self.own.get("keepalives")
        self.keepalives: Json = keepalives if isinstance(keepalives, dict) else {}
        self.published = {name: check for name, check in sorted(self.checks.items()) if _is_published(check)}

    def moment(self, now: int) -> datetime:
        """A time with the zone in which time windows are meant."""
        return datetime.fromtimestamp(now, UTC).astimezone(self.zone.info if not self.zone.is_utc else UTC)


def objects(document: Mapping[str, Any], name: str) -> dict[str, Json]:
    """The members of an object that are objects."""
    found = document.get(name)
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, dict)}


def _zone(name: Any) -> Zone:
    try:
        return Zone(name) if isinstance(name, str) else Zone()
    except ZoneUnknown:
        return Zone()


def _is_published(check: Json) -> bool:
    is_timed = positive(check.get("interval")) is not None or isinstance(check.get("cron"), str)
    return check.get("standalone") is not True and check.get("publish") is not False and is_timed


@lru_cache(maxsize=4096)
def cron_of(text: str) -> Cron | None:
    """The cron expression of a check; None if it is none."""
    try:
        return parse(text)
    except CronInvalid:
        return None


@lru_cache(maxsize=65536)
def splay_of(key: str) -> int:
    """What a check's schedule is offset by: 64 bits of the MD5 of its name."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:8], "little")


def splay_delay_ms(key: str, interval_s: int, now_ms: int) -> int:
    """How long after `now_ms` a check with this interval is due first."""
    return (splay_of(key) - now_ms) % (interval_s * 1000)


def positive(value: Any) -> int | None:
    """The value if it is a whole number above 0, `WHOLE_MAX` at most."""
    return min(value, WHOLE_MAX) if type(value) is int and value > 0 else None


def integer(value: Any) -> int | None:
    """The value if it is a whole number, or a text that is one; between -`WHOLE_MAX` and `WHOLE_MAX`."""
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    return max(-WHOLE_MAX, min(value, WHOLE_MAX)) if type(value) is int else None


def severity_of(status: int) -> str:
    """The name of a status."""
    return SEVERITIES[status] if 0 <= status < len(SEVERITIES) else "unknown"
