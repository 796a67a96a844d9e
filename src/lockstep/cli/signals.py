"""Requests to end: SIGINT and SIGTERM are noted, and a command ends in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of commands that were asked to end."""


class Stopping:
    """Notes a request to end; `code` is the exit code for it, 0 before."""

    def __init__(self) -> None:
        self.code = 0
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[Stopping]:
        """Take SIGINT and SIGTERM as requests to end."""
        before = {number: signal.getsignal(number) for number in CODES}
        self.listen()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals, also again: Spark sets handlers of its own when it starts."""
        for number in CODES:
            signal.signal(number, self._noted)

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether an end was asked for."""
        return self._asked.wait(seconds)

    def ask(self, code: int) -> None:
        """Ask for the end."""
        self.code = self.code or code
        self._asked.set()

    def _noted(self, number: int, _frame: FrameType | None) -> None:
        self.ask(CODES[signal.Signals(number)])
