"""What a bus may do to a running project: be away for a while, or lose records that it had acknowledged.

A step that meets an outage is called again, so it must leave everything as it was, or as it would be after that much
of the work.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.engine.errors import LogShortened
from lockstep.errors import AppendUncertain, ServerUnreachable
from lockstep.log.port import Bounds, Log
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


PATIENCE_S = 5.0
"""A log must stay too short for so long: a replica that answers after a failover may lag for a moment."""


class LengthCheck:
    """Compares where a log ends with what was read from it. Not to be shared between threads."""

    def __init__(self, log: Log, monotonic: Callable[[], float], patience_s: float = PATIENCE_S) -> None:
        self._log, self._monotonic, self._patience_s = log, monotonic, patience_s
        self._since: float | None = None

    def check(self, at: int, block: int | None = None, bounds: Bounds | None = None) -> None:
        """Raise LogShortened if the log has ended before offset `at`, up to which it was read, for too long.

        `block` is the last block that was read. Give `bounds` if they are at hand.
        """
        found = bounds or self._log.bounds()
        if found.next >= at:
            self._since = None
            return
        now = self._monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._patience_s:
            raise self._shortened(found.next, at, block)

    def appended(self, base: int, at: int, block: int | None = None) -> None:
        """Raise LogShortened if an append went to an offset below `at`, up to which the log was read before.

        The log may be long enough again when its end is read next; the offset of the append is known at once.
        """
        if base < at:
            raise self._shortened(base, at, block)

    def _shortened(self, end: int, at: int, block: int | None) -> LogShortened:
        detail = "" if block is None else f", where block {block} ended"
        return LogShortened(stream=self._log.name, next=end, at=at, block=detail)
