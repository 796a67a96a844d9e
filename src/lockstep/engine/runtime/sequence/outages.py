"""A bus that is away for a while: background work waits with growing pauses, and goes on when it is back.

A step that meets it is called again, so it must leave everything as it was, or as it would be if it had come so far.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.errors import AppendUncertain, ServerUnreachable
from lockstep.runtime import logger

BUS_AWAY = (ServerUnreachable, AppendUncertain)
"""What a bus raises that may answer later."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 2.0


class Pauses:
    """How long to wait before the next try: twice as long each time, up to a bound."""

    def __init__(self, what: str) -> None:
        self._what, self._next_s = what, FIRST_PAUSE_S

    def after(self, error: Exception) -> float:
        """Seconds to wait after a failed try; the first one of an outage is logged."""
        if self._next_s == FIRST_PAUSE_S:
            extra = {"action": "bus_away", "reason": str(error)}
            logger.warning("The bus can't be reached: %s waits until it is back", self._what, extra=extra)
        pause, self._next_s = self._next_s, min(2 * self._next_s, LAST_PAUSE_S)
        return pause

    def succeeded(self) -> None:
        """The bus answered."""
        if self._next_s > FIRST_PAUSE_S:
            self._next_s = FIRST_PAUSE_S
            logger.info("The bus is back: %s goes on", self._what, extra={"action": "bus_back"})


def through_outages(name: str, step: Callable[[], float | None]) -> Callable[[], float | None]:
    """A step that is tried again, after a pause, while the bus is away."""
    pauses = Pauses(name)

    def patient() -> float | None:
        try:
            delay = step()
        except BUS_AWAY as error:
            return pauses.after(error)
        pauses.succeeded()
        return delay

    return patient
