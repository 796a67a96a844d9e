"""When standalone checks run: at the same times after each start, or as their cron says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lockstep.cron import Zone, parse
from lockstep.monitor.agent.machine import Json, Machine, Timer
from lockstep.monitor.core.time_windows import in_time_windows
from lockstep.runtime import logger

LOOK_S = 60.0
"""A timer sleeps at most so long, then looks at the clock again: that may have been set."""
_EARLY_S = 0.05


def splay(key: str, now_ms: int, interval_s: int) -> float:
    """Seconds until the next run of a key: runs are at times that the key chooses within the interval."""
    chosen = int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:8], "little")
    return (chosen - now_ms) % (interval_s * 1000) / 1000


class Schedule:
    """Runs a client's standalone checks."""

    def __init__(self, machine: Machine, client: str, run: Callable[[Json], None], zone: Zone) -> None:
        self._machine, self._client, self._run, self._zone = machine, client, run, zone
        self._timers: dict[str, Timer] = {}
        self._due: dict[str, float] = {}

    def start(self, checks: Mapping[str, Any]) -> None:
        """Begin with those that are standalone and may be published."""
        for name, check in checks.items():
            if is_standalone(check):
                self._plan({**check, "name": name}, self._machine.now())

    def stop(self) -> None:
        """Run nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def next_time(self, check: Mapping[str, Any], after: float) -> float | None:
        """When a check is due first after a time; a cron may never be."""
        if isinstance(check.get("cron"), str):
            moment = datetime.fromtimestamp(after, UTC)
            found = parse(check["cron"], "UNIX").next(moment, self._zone)
            return None if found is None else found.timestamp()
        now_ms = int(after * 1000) + 1
        return now_ms / 1000 + splay(f"{self._client}:{check['name']}", now_ms, check["interval"])

    def _plan(self, check: Json, after: float) -> None:
        due = self.next_time(check, after)
        if due is not None:
            self._due[check["name"]] = due
            self._sleep(check)

    def _sleep(self, check: Json) -> None:
        name = check["name"]
        left = max(self._due[name] - self._machine.now(), 0.0)
        self._timers[name] = self._machine.call_later(min(left, LOOK_S), lambda: self._woken(check))

    def _woken(self, check: Json) -> None:
        """Run the check if it is due. A clock that was set back plans anew, one that jumped ahead runs it once."""
        name, now = check["name"], self._machine.now()
        due = self._due[name]
        if now < due - _EARLY_S:
            planned = self.next_time(check, now)
            if planned is not None and planned < due:
                self._due[name] = planned
            self._sleep(check)
            return
        self._plan(check, max(now, due))
        if in_time_windows(check.get("subdue"), self._machine.local(now)):
            logger.info("check execution was subdued: %s", name, extra={"action": "check_subdued"})
            return
        self._run({**check, "issued": int(now)})


def is_standalone(check: Mapping[str, Any]) -> bool:
    """Whether the agent itself runs a check."""
    interval = check.get("interval")
    is_timed = isinstance(check.get("cron"), str) or (isinstance(interval, int) and not isinstance(interval, bool))
    return bool(check.get("standalone")) and check.get("publish") is not False and is_timed
