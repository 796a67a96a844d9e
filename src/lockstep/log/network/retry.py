"""A time by which a call must have ended."""

from __future__ import annotations

from collections.abc import Callable


class Deadline:
    """So many seconds from now on."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._end = clock, clock() + seconds

    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(self._end - self._clock(), 0.0)

    def part(self, share: float) -> Deadline:
        """A deadline after a share of what is left."""
        return Deadline(self._clock, self.left() * share)
