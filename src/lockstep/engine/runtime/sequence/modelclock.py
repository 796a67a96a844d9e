"""The time that a leader's ticks tell: its wall clock, as long as that keeps step with its monotonic clock.

A wall clock that is set, or that differs from the one of the leader before, must not move a model's time in one step:
time never goes back, so a step ahead would stay for good. A difference of more than a second is therefore logged and
slewed: the model's time runs a tenth faster or slower than time passes, until both agree again.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.runtime import logger

MARGIN_US = 1_000_000
"""A wall clock that is so far from what is expected is believed."""
SLEW = 0.1


@dataclass(slots=True)
class ModelClock:
    """The last tick that was read from the sequence log, and when it was made, on the reader's monotonic clock.

    Of a tick that another engine made it is known only that it was not on the log when that was last read to its end:
    after a pause or an outage it may be as old as that. A wall clock that fits to any such moment is right.
    """

    time_us: int | None = None
    """None: no tick came while this process looked, so that its wall clock is all there is."""
    seen_s: float = 0.0
    doubt_s: float = 0.0
    """The tick may have been made so long before it was seen."""
    is_slewing: bool = False

    def saw(self, time_us: int, now_s: float, since_s: float | None = None) -> None:
        """A tick was read from the sequence log; it was made between `since_s` and `now_s`, or right now."""
        if self.time_us is None or time_us >= self.time_us:
            self.time_us, self.seen_s = time_us, now_s
            self.doubt_s = 0.0 if since_s is None else now_s - since_s

    def next(self, wall_us: int, now_s: float) -> int:
        """The time of the next tick."""
        if self.time_us is None:
            return wall_us
        passed_us = int((now_s - self.seen_s) * 1e6)
        ahead_us = wall_us - self.time_us - passed_us
        ahead_us -= min(max(ahead_us, 0), int(self.doubt_s * 1e6))
        if abs(ahead_us) <= MARGIN_US:
            self.is_slewing = False
            return max(wall_us, self.time_us)
        if not self.is_slewing:
            self.is_slewing = True
            words = "The wall clock is %.1f s off the model's time, which is slewed by a tenth until they agree"
            logger.warning(words, ahead_us / 1e6, extra={"action": "clock"})
        return self.time_us + int(passed_us * (1 + SLEW if ahead_us > 0 else 1 - SLEW))
