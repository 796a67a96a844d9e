"""An even pace that does not hurry after it was held up."""

from __future__ import annotations

_BEHIND_S_MAX = 0.25


class Pace:
    """Says how long to wait before the next events; time that was lost by more than a moment is not made up for."""

    def __init__(self, rate: float | None) -> None:
        self._rate, self._due = rate, 0.0

    def wait_s(self, now: float, events: int) -> float:
        """How long from now until `events` more may go."""
        if self._rate is None:
            return 0.0
        if now - self._due > _BEHIND_S_MAX:
            self._due = now
        wait = max(0.0, self._due - now)
        self._due += events / self._rate
        return wait
