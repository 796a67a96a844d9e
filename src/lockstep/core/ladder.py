"""When a delivery that failed is tried again: soon at first, then once in every round, until the event is too old.

With the defaults a round has tries at 0, 1, 3 and 7 seconds, and a round begins each minute. The next time is
stored with the event, so a process that is killed does not begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

SECOND_MS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """How often a failed delivery is tried again, and how long."""

    max_retries: int = 3
    """Tries of a round after its first one."""
    initial_delay_ms: int = SECOND_MS
    """From the first try of a round to the second."""
    multiplier: float = 2.0
    """Each delay of a round is so many times the one before."""
    round_ms: int = 60 * SECOND_MS
    """From the beginning of a round to the next."""
    limit_ms: int = 1440 * 60 * SECOND_MS
    """How old an event may be when it is tried for the last time."""

    @property
    def tries(self) -> int:
        """Tries of one round."""
        return self.max_retries + 1

    def delay_ms(self, attempt: int) -> int:
        """Return how long to wait after an attempt that failed; the first attempt of an event has number 1."""
        step = (attempt - 1) % self.tries
        if step < self.max_retries:
            return self._delays()[step]
        return max(self.round_ms - sum(self._delays()), self.initial_delay_ms)

    def is_last_of_round(self, attempt: int) -> bool:
        """Return whether an attempt ends a round."""
        return attempt % self.tries == 0

    def offsets_ms(self) -> list[int]:
        """Return when the tries of a round come, counted from its beginning."""
        return list(accumulate(self._delays(), initial=0))

    def _delays(self) -> list[int]:
        return [round(self.initial_delay_ms * self.multiplier**step) for step in range(self.max_retries)]
