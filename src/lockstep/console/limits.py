"""How many requests a caller may send: a bucket for each caller and kind of request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.console.errors import TooFast

CALLERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of requests a second, and of requests at once."""

    per_s: float
    burst: int


READS, CHANGES, SIGN_INS = Rate(200.0, 400), Rate(20.0, 60), Rate(0.5, 10)
UNKNOWN_READS, UNKNOWN_CHANGES = Rate(20.0, 60), Rate(0.5, 20)
"""Of callers whose credential is not valid, by address: what they try is noted, and must not fill the audit log."""


class RateLimits:
    """Counts requests by caller; callers that were not heard for longest are forgotten first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._buckets: OrderedDict[tuple[str, Rate], tuple[float, float]] = OrderedDict()

    def take(self, caller: str, rate: Rate) -> None:
        """Count one request; TooFast if there were too many."""
        now, key = self._monotonic(), (caller, rate)
        left, then = self._buckets.pop(key, (float(rate.burst), now))
        left = min(float(rate.burst), left + (now - then) * rate.per_s)
        self._buckets[key] = (max(0.0, left - 1.0) if left >= 1.0 else left, now)
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        if left < 1.0:
            raise TooFast(name=caller, rate=f"{rate.per_s:g}", seconds=(1.0 - left) / rate.per_s)
