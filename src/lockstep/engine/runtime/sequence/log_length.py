"""Logs that became shorter: a bus lost records that it had acknowledged, and that somebody has read."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.engine.errors import LogShortened
from lockstep.log.port import Bounds, Log

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

        The log may be long enough again by the time somebody looks; where the append went is known at once.
        """
        if base < at:
            raise self._shortened(base, at, block)

    def _shortened(self, end: int, at: int, block: int | None) -> LogShortened:
        detail = "" if block is None else f", where block {block} ended"
        return LogShortened(stream=self._log.name, next=end, at=at, block=detail)
