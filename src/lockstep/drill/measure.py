"""Small means of measuring: percentiles, memory, processor time, and what machine this is."""

from __future__ import annotations

import math
import os
import platform
import resource
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_TELLING_S = 0.2


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed; nan if there are none."""
    if not 0 < percent <= 100:
        message = f"percent={percent} must be above 0 and at most 100"
        raise ValueError(message)
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The three that are reported of latencies, rounded to microseconds if the unit is milliseconds."""
    return {name: round(percentile(values, at), 3) for name, at in (("p50", 50), ("p99", 99), ("p999", 99.9))}


def cpu_s() -> float:
    """Processor time of this process so far."""
    return time.process_time()


def peak_rss_mb() -> float:
    """The most memory this process ever had resident, shared pages included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pss_mb() -> float:
    """Memory of this process now; of shared pages its share. Sums up to what all processes take together."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return math.nan
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), math.nan)


class Others:
    """How many cores everything else on this machine kept busy: figures of a disturbed run say so."""

    def __init__(self) -> None:
        self._at, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()
        self._last = 0.0

    def cores(self) -> float:
        """On average since the last call; of a moment too short to tell, what was said last."""
        at, busy, own = time.monotonic(), _busy_s(), _own_s()
        if at - self._at > _TELLING_S:
            self._last = max(0.0, (busy - self._busy - (own - self._own)) / (at - self._at))
            self._at, self._busy, self._own = at, busy, own
        return round(self._last, 2)


def _busy_s() -> float:
    """Processor time of all processes since the machine started."""
    try:
        ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return math.nan
    idle = ticks[3] + ticks[4]
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
